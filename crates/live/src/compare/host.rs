//! Effects of the host under this machine that distort a comparison, and the countermeasures.
//!
//! A virtual machine may hand free memory back to its host. The first touch of a block of it then
//! costs milliseconds, and policies that allocate large blocks pay more of this, so they appear
//! worse than they are. Therefore as much memory as the run needs is touched and freed right before
//! it.

use super::fragmented::Fragmented;
use super::{MemoryState, Options};
use crate::inspect::free_blocks;
use procfs::{Current, LoadAverage};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::path::Path;
use superpage_linux::Error;
use superpage_linux::memory::available;
use superpage_linux::pagemap::huge_page_bytes;

/// The words for the state of free memory before each run.
const METAL: &str = "metal";
const WARMED: &str = "warmed";
pub(super) const COLD: &str = "cold host";
pub(super) const FRAGMENTED: &str = "fragmented";

/// What is done to free memory before each run.
pub(super) struct Before {
    /// Its state then, as rows name it.
    pub(super) words: &'static str,
    warms: bool,
    fragmented: Option<Fragmented>,
}

/// Free memory right before a run.
pub(super) struct Free {
    /// How many bytes were touched and freed.
    pub(super) warmed: u64,
    /// How many blocks of a huge page's size are free; `None` where the kernel does not show it.
    pub(super) blocks: Option<u64>,
}

impl Before {
    /// What lies under this machine decides, and the options do; `notes` say what that means for
    /// the rows. `huge` says whether huge pages are compared at all.
    pub(super) fn look(options: &Options, huge: bool, notes: &mut Vec<String>) -> Result<Before, Error> {
        let words = look_under(options, huge, notes)?;
        let fragmented = (options.memory_state == MemoryState::Fragmented).then(Fragmented::new).transpose()?;
        let warms = words == WARMED;
        Ok(Before { words: if fragmented.is_some() { FRAGMENTED } else { words }, warms, fragmented })
    }

    /// Prepares memory for a run: `bytes` of it are touched and freed where the host may have taken
    /// them, and free blocks are broken up where that is asked for. `stop` ends it early.
    ///
    /// # Errors
    /// Those of [`Fragmented::break_up`].
    pub(super) fn prepare(&mut self, bytes: u64, stop: &dyn Fn() -> bool) -> Result<Free, Error> {
        // Huge pages would have the kernel compact what is broken up.
        let warmed = if self.warms { warm(bytes, self.fragmented.is_none()) } else { 0 };
        self.fragmented.as_mut().map_or(Ok(()), |fragmented| fragmented.break_up(stop))?;
        Ok(Free { warmed, blocks: free_blocks(huge_page_bytes()) })
    }

    /// How many free blocks were broken up so far.
    pub(super) fn broken_up(&self) -> Option<u64> {
        self.fragmented.as_ref().map(Fragmented::blocks)
    }
}

/// What lies under this machine, and what that means for the rows. `huge` says whether huge pages
/// are compared at all.
fn look_under(options: &Options, huge: bool, notes: &mut Vec<String>) -> Result<&'static str, Error> {
    let (guest, reports) = (is_virtual(), reports_free_memory());
    if !guest && !reports {
        return Ok(METAL);
    }
    if guest && huge {
        // On another thread, since it chooses a processor for itself.
        let finding = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, crate::probe::host_fractured);
            thread.map_err(Error::thread).map(|thread| thread.join().expect("probing does not panic"))
        })?;
        notes.push(match finding.is_so() {
            Some(true) => format!(
                "host-fractured: the host backs huge pages with small ones, so they reach no further in the TLB; gains come \
                 from cheaper walks and fewer faults ({})",
                finding.evidence
            ),
            Some(false) => format!("not host-fractured: huge pages reach as far in the TLB as they should ({})", finding.evidence),
            None => format!("whether the host fractures huge pages {}", finding.evidence),
        });
    }
    let why = if reports {
        "this machine may hand free memory back to its host"
    } else {
        "the host of this virtual machine may take free memory"
    };
    if options.cold_host {
        notes.push(format!(
            "cold host: {why}, and nothing was touched before the runs; huge pages look worse than they are"
        ));
        return Ok(COLD);
    }
    notes.push(format!("{why}: before each run as much memory as any run needed so far was touched and freed"));
    Ok(WARMED)
}

/// A sentence if other programs leave this machine no rest, by the load average of the last minute.
pub(super) fn busy() -> Option<String> {
    let load = LoadAverage::current().ok()?.one;
    let processors = std::thread::available_parallelism().ok()?.get();
    let said =
        || format!("other programs keep this machine busy (load {load} on {processors} processors): times vary more");
    (load > processors as f32 / 2.0).then(said)
}

/// Whether a hypervisor is under this machine, as far as it shows.
fn is_virtual() -> bool {
    says_processor() || Path::new("/sys/hypervisor/type").exists()
}

/// Whether this kernel can hand free memory back to a host.
fn reports_free_memory() -> bool {
    Path::new("/sys/module/page_reporting").exists()
}

/// The processor has a bit for it: leaf 1, bit 31 of ECX.
#[cfg(target_arch = "x86_64")]
fn says_processor() -> bool {
    std::arch::x86_64::__cpuid(1).ecx >> 31 & 1 == 1
}

/// The firmware names a hypervisor's console or device.
#[cfg(not(target_arch = "x86_64"))]
fn says_processor() -> bool {
    let vendor = std::fs::read_to_string("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    Path::new("/proc/device-tree/hypervisor").exists()
        || ["QEMU", "Amazon EC2", "Google", "Microsoft", "VMware"].iter().any(|name| vendor.contains(name))
}

/// Touches `bytes` of fresh memory, in huge pages where `huge` says so and the kernel has them, and
/// frees it again. Not more than nine tenths of what is available. Returns how much it was: less
/// where the system has no more. Costs 50 us per MB that is warm already, and some ms per MB that
/// is cold.
fn warm(bytes: u64, huge: bool) -> u64 {
    let bytes = bytes.min(available().unwrap_or(0) / 10 * 9) as usize & !(PAGE - 1);
    if bytes == 0 {
        return 0;
    }
    // SAFETY: a new mapping at a place of the kernel's choice.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let Ok(start) = mapped else { return 0 };
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    // SAFETY: the range is the mapping. Where the kernel has no huge pages it says so, and base
    // pages are touched.
    let _ = unsafe { madvise(start, bytes, advice) };
    for page in (0..bytes).step_by(PAGE) {
        // SAFETY: the byte is in the mapping, which nobody else knows of.
        unsafe { start.cast::<u8>().add(page).write_volatile(1) };
    }
    // SAFETY: the mapping is ours, and nothing points into it.
    let _ = unsafe { munmap(start, bytes) };
    bytes as u64
}

/// No page of a machine that Linux runs on is smaller.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_freed() {
        let _turn = superpage_testing::turn_of("resident memory");
        let resident = || procfs::process::Process::myself().unwrap().statm().unwrap().resident;
        let before = resident();
        assert_eq!(warm(32 << 20, true), 32 << 20);
        assert!(resident() < before + 4096, "{before} -> {}", resident());
        assert_eq!(warm(0, false), 0);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
