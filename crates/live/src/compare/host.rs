//! Effects of the host under this machine that distort a comparison, and the countermeasures.
//!
//! A virtual machine may hand free memory back to its host. The first touch of a block of it then costs milliseconds,
//! and policies that allocate large blocks pay more of this, so they appear worse than they are. Therefore as much
//! memory as the run needs is touched and freed right before it.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::path::Path;
use superpage_linux::memory::available;

/// Whether a hypervisor is under this machine, as far as it shows.
pub(super) fn is_virtual() -> bool {
    says_processor() || Path::new("/sys/hypervisor/type").exists()
}

/// Whether this kernel can hand free memory back to a host.
pub(super) fn reports_free_memory() -> bool {
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

/// Touches `bytes` of fresh memory, in huge pages where the kernel has them, and frees it again. Not more than nine tenths
/// of what is available. Returns how much it was: less where the system has no more. Costs 50 us per MB that is warm
/// already, and some ms per MB that is cold.
pub(super) fn warm(bytes: u64) -> u64 {
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
    // SAFETY: the range is the mapping. Where the kernel has no huge pages it says so, and base pages are touched.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
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
        let resident = || procfs::process::Process::myself().unwrap().statm().unwrap().resident;
        let before = resident();
        assert_eq!(warm(32 << 20), 32 << 20);
        assert!(resident() < before + 4096, "{before} -> {}", resident());
        assert_eq!(warm(0), 0);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
