//! Hardware counters of a command and all its descendants, through `perf_event_open`.
//!
//! A counter is opened, disabled, on the thread that is about to start the command, inherited by
//! what the thread starts, and enabled by the exec. So it counts the command and its descendants
//! from the first instruction, and nothing of the thread itself. If there are more counters than
//! the hardware has, they take turns; counts are then scaled to the whole time, and marked so.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Raw, Software};
use perf_event::{Builder, Counter};
use serde::Serialize;
use std::io;

/// A counted event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Loads that accessed the data TLB.
    DtlbLoads,
    /// Loads that missed in it.
    DtlbLoadMisses,
    /// Stores that accessed the data TLB.
    DtlbStores,
    /// Stores that missed in it.
    DtlbStoreMisses,
    /// Fetches that accessed the instruction TLB.
    ItlbLoads,
    /// Fetches that missed in it.
    ItlbMisses,
    /// Cycles in which the page walker works, summed over concurrent walks; a different event on
    /// each family of processors.
    WalkCycles,
    /// Page faults: counted by the kernel, on every machine.
    PageFaults,
}

impl Event {
    /// The events that hardware may count.
    pub const HARDWARE: [Event; 7] = [
        Event::DtlbLoads,
        Event::DtlbLoadMisses,
        Event::DtlbStores,
        Event::DtlbStoreMisses,
        Event::ItlbLoads,
        Event::ItlbMisses,
        Event::WalkCycles,
    ];

    /// How the kernel is asked for it: events whose counts are added. Empty where none is known for
    /// this processor.
    fn builders(self) -> Vec<Builder<'static>> {
        let cache = |which, operation, result| vec![Builder::new(Cache { which, operation, result })];
        match self {
            Event::DtlbLoads => cache(CacheId::DTLB, CacheOp::READ, CacheResult::ACCESS),
            Event::DtlbLoadMisses => cache(CacheId::DTLB, CacheOp::READ, CacheResult::MISS),
            Event::DtlbStores => cache(CacheId::DTLB, CacheOp::WRITE, CacheResult::ACCESS),
            Event::DtlbStoreMisses => cache(CacheId::DTLB, CacheOp::WRITE, CacheResult::MISS),
            Event::ItlbLoads => cache(CacheId::ITLB, CacheOp::READ, CacheResult::ACCESS),
            Event::ItlbMisses => cache(CacheId::ITLB, CacheOp::READ, CacheResult::MISS),
            Event::WalkCycles => walk_cycles().iter().map(|code| Builder::new(Raw::new(*code))).collect(),
            Event::PageFaults => vec![Builder::new(Software::PAGE_FAULTS)],
        }
    }
}

/// The raw events whose sum is the cycles of page walks, by processor.
///
/// Intel: `DTLB_LOAD_MISSES`, `DTLB_STORE_MISSES` and `ITLB_MISSES`, each `.WALK_DURATION` on
/// Haswell and Broadwell and `.WALK_PENDING` since Skylake, all with unit mask 0x10 (Intel's
/// perfmon event lists, HSX, BDX, SKX, ICX, SPR). Processors with two kinds of cores are left out:
/// a raw event counts on one kind only. AMD's Zen has no such event (its processor programming
/// references name walks, not their cycles).
#[cfg(target_arch = "x86_64")]
fn walk_cycles() -> &'static [u64] {
    use std::arch::x86_64::__cpuid;
    let (name, version) = (__cpuid(0), __cpuid(1));
    let vendor: Vec<u8> = [name.ebx, name.edx, name.ecx].iter().flat_map(|word| word.to_le_bytes()).collect();
    let signature = version.eax;
    let model = (signature >> 4 & 0xf) | (signature >> 12 & 0xf0);
    if vendor != b"GenuineIntel" || signature >> 8 & 0xf != 6 {
        return &[];
    }
    match model {
        // Haswell and Broadwell; Skylake to Comet Lake; Ice Lake, Tiger Lake, Rocket Lake.
        0x3c | 0x3f | 0x45 | 0x46 | 0x3d | 0x47 | 0x4f | 0x56 => &[0x1008, 0x1049, 0x1085],
        0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6 => &[0x1008, 0x1049, 0x1085],
        0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 => &[0x1008, 0x1049, 0x1085],
        // Sapphire Rapids, Emerald Rapids, Granite Rapids.
        0x8f | 0xcf | 0xad | 0xae => &[0x1012, 0x1013, 0x1011],
        _ => &[],
    }
}

/// The raw events whose sum is the cycles of page walks: `DTLB_WALK_PERCYC` and `ITLB_WALK_PERCYC`
/// of the Arm architecture's list of events, which the kernel refuses where a core has none.
#[cfg(target_arch = "aarch64")]
fn walk_cycles() -> &'static [u64] {
    &[0x8128, 0x8129]
}

/// No event is known on other architectures.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn walk_cycles() -> &'static [u64] {
    &[]
}

/// The count of an event in one run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Count {
    /// The count, scaled to the whole time if the counter had to take turns.
    pub value: f64,
    /// The share of the time in which it counted: 1 if it never took turns.
    pub share: f64,
}

/// The events that this machine counts for this process.
#[derive(Clone, Debug)]
pub struct Available {
    events: Vec<Event>,
    kernel: bool,
    reason: Option<String>,
}

impl Available {
    /// Tries each of `wanted` once.
    pub fn among(wanted: &[Event]) -> Available {
        let mut available = Available { events: Vec::new(), kernel: true, reason: None };
        for &event in wanted {
            let mut tried = open(event, available.kernel);
            let refused = |tried: &io::Result<Vec<Counter>>| {
                tried.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            };
            if refused(&tried) && available.kernel {
                // Without rights a process may still count what happens outside the kernel.
                available.kernel = false;
                tried = open(event, false);
            }
            match tried {
                Ok(counters) if counters.is_empty() => {}
                Ok(_) => available.events.push(event),
                Err(error) => _ = available.reason.get_or_insert(reason(&error)),
            }
        }
        available
    }

    /// The events that are counted.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Why there are no counts, or their limits; `None` if everything is counted, including the
    /// kernel.
    pub fn note(&self) -> Option<String> {
        let reason = self.reason.as_deref().unwrap_or("no event is known for this processor");
        if self.events.is_empty() {
            return Some(format!("no hardware counters: {reason}"));
        }
        if !self.kernel {
            return Some("hardware counters leave the kernel out: kernel.perf_event_paranoid allows no more".into());
        }
        None
    }

    /// Opens the counters on this thread: they count what it starts from now on, until they are
    /// read.
    ///
    /// # Errors
    /// The kernel's error for the first that could not be opened.
    pub fn open(&self) -> io::Result<Counters> {
        let open = |&event: &Event| Ok((event, open(event, self.kernel)?));
        Ok(Counters(self.events.iter().map(open).collect::<io::Result<_>>()?))
    }
}

fn open(event: Event, kernel: bool) -> io::Result<Vec<Counter>> {
    let build =
        |mut builder: Builder<'static>| builder.inherit(true).enable_on_exec(true).exclude_kernel(!kernel).build();
    event.builders().into_iter().map(build).collect()
}

/// The reason in words that a person can act on.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this processor, or the hypervisor under this machine, offers none".into()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "kernel.perf_event_paranoid does not allow them to this user; as root, or with it at 2 or less, they are"
                .into()
        }
        _ => error.to_string(),
    }
}

/// Open counters of the command that the opening thread starts next.
pub struct Counters(Vec<(Event, Vec<Counter>)>);

impl Counters {
    /// Returns the counts so far; call it when the command and its descendants have ended. An event
    /// is left out if it never had its turn.
    ///
    /// # Errors
    /// The kernel's error for the first that cannot be read.
    pub fn read(mut self) -> io::Result<Vec<(Event, Count)>> {
        let mut counts = Vec::new();
        for (event, counters) in &mut self.0 {
            let mut sum = Some(Count { value: 0.0, share: 1.0 });
            for counter in counters {
                let read = counter.read_count_and_time()?;
                // A command that could not be started has no time at all, and a count of zero.
                let share =
                    if read.time_enabled == 0 { 1.0 } else { read.time_running as f64 / read.time_enabled as f64 };
                sum = sum
                    .filter(|_| share > 0.0)
                    .map(|sum| Count { value: sum.value + read.count as f64 / share, share: sum.share.min(share) });
            }
            counts.extend(sum.map(|count| (*event, count)));
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn faults(script: &str) -> f64 {
        let counters = Available::among(&[Event::PageFaults]).open().unwrap();
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let counts = counters.read().unwrap();
        assert_eq!(counts.len(), 1);
        assert_eq!(counts[0].1.share, 1.0);
        counts[0].1.value
    }

    #[test]
    fn the_kernels_own_events_count_the_command_and_its_children() {
        let available = Available::among(&[Event::PageFaults]);
        if available.events().is_empty() {
            superpage_testing::skip!("system", "{}", available.note().unwrap());
            return;
        }
        let one = faults("true");
        assert!(one > 10.0, "{one}");
        // The children fault for themselves, also where they outlive the one that started them.
        let many = faults("for i in 1 2 3 4 5 6 7 8; do /bin/true; done; (/bin/true; /bin/true) & wait");
        assert!(many > 5.0 * one, "{one} {many}");
    }

    #[test]
    fn what_the_machine_does_not_count_has_a_reason() {
        let available = Available::among(&Event::HARDWARE);
        match available.note() {
            Some(note) => assert!(note.contains("counters"), "{note}"),
            None => assert!(!available.events().is_empty()),
        }
    }
}
