//! Does a host back this guest's huge pages with small ones, so that they do not extend the reach
//! of its TLBs?
//!
//! Two chases over as many lines of the same 16 huge pages. In one, each line is on a base page of
//! its own; in the other, all are on a few. Every first-level TLB holds 16 huge pages, and as many
//! entries as there are of these few: so the second chase costs what a hit in the first level
//! costs, and the first costs the same unless a huge page takes an entry for each of its pieces.
//! Nothing else differs: the lines spread alike over the sets of caches, and base pages are not
//! compared, since what they cost is the host's doing too, and changes.

use super::chase::Chase;
use super::kept;
use super::memory::{BASE, HUGE, Memory};
use super::pin::Pinned;
use super::steady::Steady;
use super::{Finding, Series};
use superpage_linux::Error;

/// Memory for both chases: 16 huge pages.
const BYTES: usize = 16 * HUGE;
const PAGES: usize = BYTES / BASE;
/// Lines of a chase: on a page each more than any first-level TLB has entries.
const LINES: usize = 26 * PLACES;
/// Lines in a base page.
const PLACES: usize = BASE / LINE;
const LINE: usize = 64;
/// How often it is asked, each time with fresh memory.
const DRAWS: u64 = 5;
/// Up to this share of a first-level hit more, lines apart cost the same; from the other share on
/// they miss in the first level. A hit in the second level takes 7 cycles or more on top of the 12
/// to 16 of a load from the second-level cache.
const SAME: f64 = 0.1;
const MORE: f64 = 0.25;
/// The share of draws that must agree.
const AGREE: f64 = 0.8;
const NAME: &str = "host.fractures";
const WHAT: &str = "a host backs huge pages with small ones";

/// Whether a host fractures this guest's huge pages, so that 2 MB pages do not extend the reach of
/// its TLBs; their gain then comes from cheaper walks and fewer faults. This is possible under a
/// hypervisor only, and is measured, by timing, on the processor of the calling thread. Takes well
/// under a second, and 32 MB meanwhile.
///
/// An answer is kept until the system is started again, for all calls of this user, with its
/// evidence. If it could not be determined, the finding has no value and says why, and the next
/// call asks again.
pub(crate) fn host_fractured() -> Finding {
    if let Some(kept) = kept::read(NAME) {
        return Finding::yes(NAME, WHAT, kept.yes, kept.confidence, kept.evidence);
    }
    let finding = match ask() {
        Ok(finding) => finding,
        Err(error) => Finding::unknown(NAME, WHAT, format!("could not be determined: {error}")),
    };
    if let Some(yes) = finding.is_so() {
        kept::write(NAME, &kept::Kept { yes, confidence: finding.confidence, evidence: finding.evidence.clone() });
    }
    finding
}

/// Nanoseconds a load: over lines on few base pages, and on one each.
#[derive(Clone, Copy, Debug)]
struct Draw {
    near: f64,
    apart: f64,
}

impl Draw {
    fn measure(memory: &Memory, seed: u64) -> Draw {
        let time = |lines: Vec<usize>| {
            let chase = Chase::new(memory, lines, seed);
            Steady::measure(3, 10, || chase.time(4 * LINES)).value
        };
        Draw { near: time(near()), apart: time(apart()) }
    }

    /// What lines on a page each cost beyond a first-level hit, as a share of it.
    fn share(&self) -> f64 {
        self.apart / self.near - 1.0
    }
}

/// Lines that fill 26 base pages, which spread over all huge pages.
fn near() -> Vec<usize> {
    const STEP: usize = PAGES / (LINES / PLACES);
    (0..LINES).map(|line| line / PLACES * STEP * BASE + line % PLACES * LINE).collect()
}

/// Lines on every fourth or fifth base page. Of 32 in a row none has the same place in its page as
/// one of the next 32, so that they spread over the sets of a cache whose index takes in five bits
/// of the page's number.
fn apart() -> Vec<usize> {
    const STRIDE: usize = 5;
    (0..LINES).map(|line| line * STRIDE % PAGES * BASE + line / 32 % PLACES * LINE).collect()
}

fn ask() -> Result<Finding, Error> {
    let _pinned = Pinned::here()?;
    let mut draws = Vec::new();
    for seed in 0..DRAWS {
        let memory = Memory::huge(BYTES)?;
        let got = memory.huge_bytes()?;
        if got < BYTES {
            let because = format!("of {} MB the kernel made only {} MB huge pages", BYTES >> 20, got >> 20);
            return Ok(Finding::unknown(NAME, WHAT, because));
        }
        draws.push(Draw::measure(&memory, seed));
    }
    Ok(judge(&draws))
}

/// What the draws come to.
fn judge(draws: &[Draw]) -> Finding {
    let of = |holds: &dyn Fn(f64) -> bool| {
        draws.iter().filter(|draw| holds(draw.share())).count() as f64 / draws.len() as f64
    };
    let (same, more) = (of(&|share| share <= SAME), of(&|share| share >= MORE));
    let listed = |pick: fn(&Draw) -> f64| {
        let mut times: Vec<f64> = draws.iter().map(pick).collect();
        times.sort_by(f64::total_cmp);
        format!("{:.1} to {:.1}", times[0], times[times.len() - 1])
    };
    let evidence = format!(
        "{LINES} lines of {} huge pages cost {} ns a load on a base page each, and {} on {} base pages, where all hit in the first \
         level, in {} tries",
        BYTES / HUGE,
        listed(|draw| draw.apart),
        listed(|draw| draw.near),
        LINES / PLACES,
        draws.len()
    );
    let finding = match () {
        () if more >= AGREE => Finding::yes(NAME, WHAT, true, more, evidence),
        () if same >= AGREE => Finding::yes(NAME, WHAT, false, same, evidence),
        () => {
            let because = "lines apart cost neither the same as in the first level nor clearly more in most tries";
            Finding::unknown(NAME, WHAT, format!("{because}: {evidence}"))
        }
    };
    let series = |name: &str, pick: fn(&Draw) -> f64| {
        let points = draws.iter().enumerate().map(|(index, draw)| [index as f64 + 1.0, pick(draw)]);
        Series { name: name.into(), axes: ["try", "ns a load"], points: points.collect() }
    };
    finding.with(series("on few base pages", |draw| draw.near)).with(series("on a base page each", |draw| draw.apart))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_or_says_why_not() {
        let finding = ask().unwrap();
        assert!(finding.evidence.contains("ns a load") || finding.value.is_none(), "{}", finding.evidence);
        if finding.value.is_none() {
            assert!(finding.evidence.contains("because"), "{}", finding.evidence);
        }
    }

    /// What base pages cost had flipped the answer; now nothing but a first-level hit is compared.
    #[test]
    fn tries_that_disagree_give_no_answer() {
        let judged = |apart: [f64; 5]| {
            let draws = apart.map(|apart| Draw { near: 3.7, apart });
            let finding = judge(&draws);
            (finding.is_so(), finding.confidence)
        };
        assert_eq!(judged([6.2, 6.4, 6.3, 6.2, 6.4]), (Some(true), 1.0));
        assert_eq!(judged([3.7, 3.8, 3.6, 9.9, 3.7]), (Some(false), 0.8));
        assert_eq!(judged([3.7, 6.4, 3.6, 6.2, 3.7]), (None, 0.0));
        assert_eq!(judged([4.3; 5]), (None, 0.0));
        assert!(judge(&[Draw { near: 3.7, apart: 4.3 }]).evidence.contains("4.3 to 4.3 ns a load on a base page each"));
    }

    #[test]
    fn both_chases_spread_alike() {
        let pages = |lines: &[usize]| lines.iter().map(|at| at / BASE).collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!((pages(&near()), pages(&apart())), (26, LINES));
        for lines in [near(), apart()] {
            // As a cache of 2048 sets would place them, where 2 MB are contiguous.
            let mut sets = vec![0; 2048];
            lines.iter().for_each(|at| sets[at / LINE % 2048] += 1);
            assert!(sets.iter().all(|lines| *lines <= 2), "{:?}", sets.iter().max());
            let huge: std::collections::BTreeSet<_> = lines.iter().map(|at| at / HUGE).collect();
            assert_eq!(huge.len(), 16);
        }
    }
}
