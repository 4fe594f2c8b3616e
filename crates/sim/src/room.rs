//! Whether simulations fit into the memory of the machine that runs them. What they take to begin
//! follows from the machine and is checked before any of it is allocated; what a program's pages
//! take shows only as it touches them, so it is watched.

use crate::one_kernel::groups;
use crate::{Error, Setup, Watch};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use superpage_mmu::Mmu;
use superpage_report::bytes;
use superpage_trace::Info;

/// The most bytes of the manager's own structures per frame: page lists, free extents and
/// reservations.
const FRAME_BYTES: u64 = 17;
/// The frames for which one byte is written when the simulation begins; the rest is written as
/// frames are used.
const FRAMES_BEGUN: u64 = 2;
/// Bytes more for each extent of a superpage size, written when the simulation begins: much where
/// sizes are close together.
const EXTENT_BYTES: u64 = 4;
/// Bytes for each frame of a machine with shadow superpages, while the list of them grows.
const SHADOW_BYTES: u64 = 16;

/// A limit of the memory that simulations may use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes that are left of it.
    pub bytes: u64,
    /// What it is the limit of, as words for a sentence.
    pub of: String,
    /// Whether memory that was never written to counts.
    pub counts_untouched: bool,
}

/// What is left of each limit, while simulations run.
static LEFT: OnceLock<fn() -> Vec<Limit>> = OnceLock::new();

/// Lets all later simulations of this process end with [`Error::Memory`] when hardly anything is
/// left of a limit, rather than be killed by the system. `left` is called 40 times a second. Only
/// the first call counts.
pub fn watch_memory(left: fn() -> Vec<Limit>) {
    let _ = LEFT.set(left);
}

/// Watches the memory that is left.
pub(crate) struct Guard {
    left: Option<fn() -> Vec<Limit>>,
    begun: Instant,
    /// When it was asked for last, in milliseconds.
    asked: AtomicU64,
    short: OnceLock<Limit>,
}

impl Guard {
    /// Milliseconds between two looks: in this time two processors fill some 100 MB of new memory.
    const EVERY: u64 = 25;
    /// Bytes that stay free: for what is allocated between two looks, and for the rest of the
    /// system.
    const RESERVE: u64 = 256 << 20;

    pub(crate) fn new() -> Guard {
        Guard::of(LEFT.get().copied())
    }

    fn of(left: Option<fn() -> Vec<Limit>>) -> Guard {
        Guard { left, begun: Instant::now(), asked: AtomicU64::new(0), short: OnceLock::new() }
    }

    /// Checks whether what reading the stream takes fits, before any of it is allocated.
    pub(crate) fn check_stream(&self, info: &Info) -> Result<(), Error> {
        let limits = self.left.filter(|_| info.memory > 0).map_or_else(Vec::new, |left| left());
        let Some(Limit { bytes: left, of, .. }) =
            limits.into_iter().find(|limit| limit.bytes < info.memory.saturating_add(Guard::RESERVE))
        else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "workload {} needs {} of memory to generate its stream, and only {} are left of {of}; give a smaller one",
            info.workload,
            bytes(info.memory),
            bytes(left)
        )))
    }

    /// Whether simulations must end. Cost: that of a look at a clock, mostly.
    pub(crate) fn is_short(&self) -> bool {
        let Some(left) = self.left else { return false };
        let (now, asked) = (self.begun.elapsed().as_millis() as u64, self.asked.load(Relaxed));
        if now >= asked + Guard::EVERY && self.asked.compare_exchange(asked, now, Relaxed, Relaxed).is_ok() {
            let short = left().into_iter().find(|limit| limit.bytes < Guard::RESERVE);
            short.into_iter().for_each(|limit| _ = self.short.set(limit));
        }
        self.short.get().is_some()
    }

    /// Fails if simulations had to end.
    pub(crate) fn check(&self, rows: usize, watch: &Watch) -> Result<(), Error> {
        let Some(Limit { bytes: left, of, .. }) = self.short.get() else { return Ok(()) };
        Err(Error::Memory(format!(
            "memory ran short: only {} are left of {of}, while {} simulated at once; give fewer machines or policies at \
             once, or less memory with --memory{}",
            bytes(*left),
            if rows == 1 { "a row was".into() } else { format!("{rows} rows were") },
            if watch.every.is_some() { ", or a longer step with --every" } else { "" }
        )))
    }
}

/// The needs of simulations, in bytes, without what a program's own pages take.
#[derive(Clone, Copy, Default)]
struct Need {
    /// When it begins, as far as it is written to.
    begun: u64,
    /// When the program uses all memory.
    whole: u64,
}

impl Need {
    fn and(self, other: Need) -> Need {
        Need { begun: self.begun.saturating_add(other.begun), whole: self.whole.saturating_add(other.whole) }
    }
}

/// The extents of all superpage sizes in `pages` base pages.
fn extents(setup: &Setup, pages: u64) -> u64 {
    setup.ladder.levels().skip(1).map(|level| pages >> setup.ladder.order(level)).sum()
}

/// What a machine needs by itself: of its cores one when it begins.
fn of_hardware(setup: &Setup, watch: &Watch) -> Need {
    let (begun, whole) = Mmu::bytes_of(&setup.machine);
    let whole = whole.saturating_mul(watch.cores.map_or(1, |cores| cores.number.into()));
    let frames = setup.host.as_ref().map_or(0, |host| host.frames);
    Need {
        begun: begun.saturating_add(frames / FRAMES_BEGUN),
        whole: whole.saturating_add(frames.saturating_mul(FRAME_BYTES)),
    }
}

/// What a kernel needs.
fn of_kernel(setup: &Setup) -> Need {
    let in_memory = extents(setup, setup.frames).saturating_mul(EXTENT_BYTES);
    let of_frame = FRAME_BYTES + if setup.machine.shadow.is_some() { SHADOW_BYTES } else { 0 };
    Need {
        begun: (setup.frames / FRAMES_BEGUN).saturating_add(in_memory),
        whole: setup.frames.saturating_mul(of_frame).saturating_add(in_memory),
    }
}

fn need(setup: &Setup, watch: &Watch) -> Need {
    of_kernel(setup).and(of_hardware(setup, watch))
}

/// The needs of all: machines on which a kernel does the same share it.
fn needs(setups: &[Setup], watch: &Watch) -> Need {
    let kernels = groups(setups, watch).into_iter().map(|group| of_kernel(&setups[group[0]]));
    kernels.chain(setups.iter().map(|setup| of_hardware(setup, watch))).fold(Need::default(), Need::and)
}

/// Checks what simulations of one stream take to begin against these limits.
///
/// # Errors
/// One simulation alone exceeds a limit when its program uses all memory; or all together do when
/// they begin (they run at once, whatever the number of threads), with what stays free while they
/// run.
pub fn check_memory(setups: &[Setup], watch: &Watch, limits: &[Limit]) -> Result<(), Error> {
    let all = needs(setups, watch);
    for Limit { bytes: left, of, counts_untouched } in limits {
        let left = *left;
        let left_of = format!("{} are left of {of}", bytes(left));
        if let Some(setup) = setups.iter().find(|setup| need(setup, watch).whole > left) {
            let (name, memory) = (&setup.machine.name, bytes(setup.frames << setup.ladder.base().shift()));
            return Err(Error::Usage(format!(
                "machine {name} with {memory} of memory takes up to {} to simulate, and {left_of}; give less with \
                 --memory, fewer --cores, or fewer entries in its TLBs and line caches",
                bytes(need(setup, watch).whole)
            )));
        }
        let begun = if *counts_untouched { all.whole } else { all.begun };
        if begun.saturating_add(Guard::RESERVE) > left {
            return Err(Error::Usage(format!(
                "{} {} to begin, {} must stay free, and {left_of}; raise that, or give fewer machines or policies at \
                 once, or less with --memory",
                if setups.len() == 1 { "1 row takes".into() } else { format!("{} rows at once take", setups.len()) },
                bytes(begun),
                bytes(Guard::RESERVE)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, plan};
    use superpage_vm::{Config, Vm};

    fn setups(machine: &str, memory: u64) -> Vec<Setup> {
        let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
        plan(&[machine.into()], &["reservation".into()], &conditions).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_allocated() {
        let limit = |bytes, counts_untouched| [Limit { bytes, of: "the system".into(), counts_untouched }];
        let said = |setups: &[Setup], limits: [Limit; 1]| {
            check_memory(setups, &Watch::default(), &limits).err().map_or(String::new(), |error| error.to_string())
        };
        let setups = setups("zen5", 64 << 30);
        let Need { begun, whole, .. } = need(&setups[0], &Watch::default());
        assert_eq!(said(&setups, limit(whole.max(begun * 2 + Guard::RESERVE), false)), "");
        let one = said(&setups, limit(whole - 1, false));
        assert!(one.contains("machine zen5 with 64.0 GB") && one.contains("--memory"), "{one}");
        assert!(one.contains("are left of the system"), "{one}");
        // Where what is not written to counts, two take twice as much at once.
        assert_eq!(setups.len(), 2);
        let two = said(&setups, limit(2 * whole + Guard::RESERVE - 1, true));
        assert!(two.contains("2 rows at once"), "{two}");
        assert_eq!(said(&setups, limit(2 * whole + Guard::RESERVE, true)), "");
        let many: Vec<Setup> = setups.iter().cycle().take(200).cloned().collect();
        assert!(begun * 200 > 3 * whole, "else this tests nothing");
        let timed = Watch { every: Some(crate::Every::Seconds(1.0)), ..Watch::default() };
        let alone = check_memory(&many, &timed, &limit(3 * whole, false)).unwrap_err().to_string();
        assert!(alone.contains("200 rows at once"), "{alone}");
        assert_eq!(said(&many, limit(3 * whole, false)), "", "they share two kernels");
    }

    #[test]
    fn a_stream_that_does_not_fit_is_refused() {
        let guard = Guard::of(Some(|| vec![Limit { bytes: 1 << 30, of: "the test".into(), counts_untouched: false }]));
        let said = |memory| {
            let info = Info { workload: "graph".into(), memory, ..Info::default() };
            guard.check_stream(&info).map_err(|error| error.to_string())
        };
        assert_eq!((said(0), said((1 << 30) - Guard::RESERVE)), (Ok(()), Ok(())));
        let short = said((1 << 30) - Guard::RESERVE + 1).unwrap_err();
        assert!(
            short.contains("workload graph needs 768 MB") && short.contains("1.00 GB are left of the test"),
            "{short}"
        );
        assert!(Guard::of(None).check_stream(&Info { memory: u64::MAX, ..Info::default() }).is_ok());
    }

    #[test]
    fn simulations_end_when_hardly_anything_is_left() {
        let after = |left: fn() -> Vec<Limit>| {
            let guard = Guard::of(Some(left));
            assert!(!guard.is_short(), "nobody has looked yet");
            std::thread::sleep(std::time::Duration::from_millis(2 * Guard::EVERY));
            guard.is_short();
            guard.check(3, &Watch::default()).map_err(|error| error.to_string())
        };
        assert_eq!(after(Vec::new), Ok(()));
        assert_eq!(after(|| vec![Limit { bytes: 1 << 30, of: "the test".into(), counts_untouched: false }]), Ok(()));
        let short =
            after(|| vec![Limit { bytes: 1 << 20, of: "the test".into(), counts_untouched: false }]).unwrap_err();
        assert!(short.contains("1.00 MB are left of the test, while 3 rows"), "{short}");
    }

    #[test]
    fn a_frame_takes_what_is_said() {
        for setup in [setups("zen5", 4 << 30), setups("zen5+tailored", 4 << 30)].concat() {
            let more = (EXTENT_BYTES * extents(&setup, setup.frames)).div_ceil(setup.frames);
            let Setup { ladder, frames, policy, .. } = setup;
            let held = |frames| {
                Vm::new(Config { ladder, frames, policy: policy.clone(), swap_pages: 0 }).unwrap().metadata_bytes()
                    as u64
            };
            let each = (held(frames) - held(frames / 2)).div_ceil(frames / 2);
            // Page lists, with some 5 bytes a page, are empty yet.
            assert!((2..=FRAME_BYTES + more - 5).contains(&each), "{each} bytes a frame");
        }
    }
}
