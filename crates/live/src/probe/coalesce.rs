//! Does a TLB coalesce base pages whose frames are contiguous and aligned alike?
//!
//! The frames of huge pages are mapped by base pages in three ways: in place, where groups are
//! aligned in virtual and physical memory alike; 4 KB off, where no group is; and permuted, where
//! no two are neighbours. The same frames and the same lines of them are touched: the only
//! difference is coalescing. Moved by 8, 16, 32 KB, groups up to that size are aligned again, which
//! shows how large groups are.
//!
//! This is tested twice. In the last level, by chases over twice as many pages as it has entries;
//! the size of the effect to expect is measured with as many lines in a quarter of the pages. And
//! in the first level, by chases over stretches of a few pages more than it has entries: a stretch
//! in which a few groups are coalesced fits. If a host backs some frames contiguously and scatters
//! others, stretches differ.

use super::chase::Chase;
use super::curve::base_pages;
use super::memory::{BASE, HUGE, Memory};
use super::{Finding, Series};
use crate::compare::statistics::{median, median_interval};
use crate::inspect::contiguity as inspect;
use superpage_linux::Error;
use superpage_pages::PageSize;

/// How far frames are moved, in base pages.
const SHIFTS: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// Each measures every way once.
const ROUNDS: usize = 16;
/// Pages more than the first level has entries, in a stretch: three groups of four that are joined
/// make it fit.
const MORE: usize = 8;
/// A stretch that is slower by this factor, moved and permuted, is joined in place.
const JOINED: f64 = 1.25;
/// What is slower by this factor, moved, lost something.
const SLOWER: f64 = 1.1;
/// Of the gain if all groups of four pages were joined: less is none. Groups of two gain more.
const SOME: f64 = 0.25;

/// The entries of both levels, and whether the host fractures huge pages.
pub(crate) fn measure(entries: [f64; 2], fractured: Option<bool>) -> Result<Vec<Finding>, Error> {
    let pages = (2.0 * entries[1]) as usize;
    let bytes = (pages * BASE).next_multiple_of(HUGE);
    let memory = Memory::huge(bytes)?;
    let got = memory.huge_bytes()?;
    if got < bytes {
        let because = format!("of {} MB the kernel gave only {} MB as contiguous blocks", bytes >> 20, got >> 20);
        return Ok(vec![Finding::unmeasured(NAME, WHAT, because)]);
    }
    let stretch = (entries[0] as usize + MORE).next_multiple_of(4);
    let mut frames = Frames::new(memory, stretch)?;
    let mut times = Times::default();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..ROUNDS {
        let mut ways = [0, 1, 2, 3, 4, 5].map(|at| Way::Moved(SHIFTS[at])).to_vec();
        ways.push(Way::Permuted);
        random.shuffle(&mut ways);
        for way in ways {
            frames.arrange(way)?;
            let all = frames.time(&frames.lines(0..frames.pages), round);
            let stretches = || (0..frames.pages / stretch).map(|at| at * stretch..(at + 1) * stretch);
            match way {
                Way::Moved(by) => {
                    times.moved[SHIFTS.iter().position(|shift| *shift == by).expect("one of them")].push(all)
                }
                Way::Permuted => {
                    times.permuted.push(all);
                    times.quarter.push(frames.time(&frames.four_lines_a_page(), round));
                }
            }
            let of = match way {
                Way::Moved(0) => &mut times.stretches[0],
                Way::Moved(1) => &mut times.stretches[1],
                Way::Permuted => &mut times.stretches[2],
                Way::Moved(_) => continue,
            };
            of.push(stretches().map(|pages| frames.time(&frames.lines(pages), round)).collect());
        }
    }
    frames.arrange(Way::Moved(0))?;
    let verdict = Verdict { fractured, pages: frames.pages, stretch, aligned: frames.aligned() };
    Ok(verdict.findings(&times))
}

const NAME: &str = "tlb.coalesces";
const WHAT: &str = "aligned contiguous 4K pages share TLB entries";

/// Where frames are mapped.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// In their order, this many base pages beyond a multiple of 2 MB.
    Moved(usize),
    /// In a random order.
    Permuted,
}

/// The frames of some huge pages, and how they are mapped now.
struct Frames {
    /// None only while they are moved.
    memory: Option<Memory>,
    pages: usize,
    way: Way,
    /// Page -> frame, when permuted.
    frame: Vec<usize>,
    /// Frame -> page, when permuted.
    page: Vec<usize>,
}

impl Frames {
    /// Mapped by base pages from now on: one that is moved splits huge pages.
    fn new(memory: Memory, stretch: usize) -> Result<Frames, Error> {
        let pages = memory.bytes() / BASE / stretch * stretch;
        let memory = memory.moved(BASE)?;
        let mut frame: Vec<usize> = (0..memory.bytes() / BASE).collect();
        fastrand::Rng::with_seed(2).shuffle(&mut frame);
        let mut page = vec![0; frame.len()];
        frame.iter().enumerate().for_each(|(at, frame)| page[*frame] = at);
        Ok(Frames { memory: Some(memory), pages, way: Way::Moved(1), frame, page })
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("it is there but while it is moved")
    }

    fn arrange(&mut self, way: Way) -> Result<(), Error> {
        let memory = self.memory.take().expect("it was put back");
        let memory = match (self.way, way) {
            (Way::Permuted, Way::Permuted) => memory,
            (Way::Permuted, Way::Moved(by)) => memory.permuted(&self.page, by * BASE)?,
            (Way::Moved(_), Way::Permuted) => memory.permuted(&self.frame, 0)?,
            (Way::Moved(_), Way::Moved(by)) => memory.moved(by * BASE)?,
        };
        self.memory = Some(memory);
        self.way = way;
        Ok(())
    }

    /// A line of each of these frames, the same whatever the way.
    fn lines(&self, frames: std::ops::Range<usize>) -> Vec<usize> {
        let spread = base_pages(frames.end);
        let page = |frame: usize| if self.way == Way::Permuted { self.page[frame] } else { frame };
        frames.map(|frame| page(frame) * BASE + spread[frame] % BASE).collect()
    }

    /// As many lines, four in each of a quarter of the pages.
    fn four_lines_a_page(&self) -> Vec<usize> {
        (0..self.pages).map(|node| node / 4 * BASE + (node / 4 + node % 4 * 16) * 64 % BASE).collect()
    }

    /// Nanoseconds a load, the least of some repeats.
    fn time(&self, lines: &[usize], round: usize) -> f64 {
        let chase = Chase::new(self.memory(), lines.to_vec(), round as u64);
        let loads = (4 * lines.len()).max(1024);
        (0..8).map(|_| chase.time(loads)).fold(f64::INFINITY, f64::min)
    }

    /// The share of the memory whose frames lie in aligned groups of 16 KB, in percent, where the
    /// kernel tells it.
    fn aligned(&self) -> Option<f64> {
        let start = self.memory().start() as u64;
        let contiguity = inspect(std::process::id(), start..start + self.memory().bytes() as u64).ok()?;
        contiguity.share(PageSize::from_bytes(4 * BASE as u64)?).map(|share| 100.0 * share)
    }
}

/// Nanoseconds a load, a round each.
#[derive(Default)]
struct Times {
    /// For each of [`SHIFTS`].
    moved: [Vec<f64>; SHIFTS.len()],
    permuted: Vec<f64>,
    /// As many lines in a quarter of the pages.
    quarter: Vec<f64>,
    /// In place, 4 KB off, permuted: of each stretch.
    stretches: [Vec<Vec<f64>>; 3],
}

impl Times {
    /// The stretches that are joined: in the rounds that look for them, and again in the others.
    fn joined(&self) -> usize {
        let least = |way: usize, stretch: usize, half: usize| {
            let rounds = self.stretches[way].iter().skip(half).step_by(2);
            rounds.map(|round| round[stretch]).fold(f64::INFINITY, f64::min)
        };
        let slower = |stretch: usize, half: usize| {
            least(1, stretch, half).min(least(2, stretch, half)) > JOINED * least(0, stretch, half)
        };
        (0..self.all_stretches()).filter(|stretch| slower(*stretch, 0) && slower(*stretch, 1)).count()
    }

    fn all_stretches(&self) -> usize {
        self.stretches[0].first().map_or(0, Vec::len)
    }

    /// Nanoseconds a load in stretches, in place, 4 KB off, permuted: the median of the stretches'
    /// least.
    fn in_stretches(&self) -> [f64; 3] {
        [0, 1, 2].map(|way| {
            let least =
                |stretch: usize| self.stretches[way].iter().map(|round| round[stretch]).fold(f64::INFINITY, f64::min);
            median(&(0..self.all_stretches()).map(least).collect::<Vec<f64>>())
        })
    }
}

/// What the times say, and of what.
struct Verdict {
    fractured: Option<bool>,
    pages: usize,
    stretch: usize,
    aligned: Option<f64>,
}

impl Verdict {
    fn findings(&self, times: &Times) -> Vec<Finding> {
        let home = &times.moved[0];
        let ratios = |of: &[f64]| -> Vec<f64> { of.iter().zip(home).map(|(other, home)| other / home).collect() };
        let permuted = ratios(&times.permuted);
        let (low, high) = median_interval(&permuted).expect("there are rounds enough");
        // What all groups of four would gain.
        let most: Vec<f64> = times.permuted.iter().zip(&times.quarter).map(|(all, quarter)| all / quarter).collect();
        let whole = median(&most) - 1.0;
        let moved: Vec<f64> = times.moved.iter().map(|times| median(times)).collect();
        let (joined, of) = (times.joined(), times.all_stretches());
        let near = times.in_stretches();

        let pagemap = self.aligned.map(|share| format!(" ({share:.0} % of its frames in aligned groups of 16K)"));
        let last = format!(
            "{} pages, {ROUNDS} rounds, medians in ns a load: {:.2} in place{}, {:.2} permuted: {:.3} times as long, with 95 % \
             between {low:.3} and {high:.3}; as if all shared by four it would be {:.3}",
            self.pages,
            moved[0],
            pagemap.unwrap_or_default(),
            median(&times.permuted),
            median(&permuted),
            1.0 + whole
        );
        let list: Vec<String> =
            SHIFTS.iter().zip(&moved).skip(1).map(|(shift, ns)| format!("{ns:.2} by {} KB", 4 * shift)).collect();
        let first = format!(
            "{joined} of {of} stretches of {} pages are faster in place; at the median {:.2} ns in place, {:.2} moved by 4 KB, \
             {:.2} permuted",
            self.stretch, near[0], near[1], near[2]
        );
        let seen = format!("{last}; moved {}; {first}", list.join(", "));

        let agree =
            permuted.iter().filter(|ratio| (**ratio - 1.0 > SOME * whole) == (low - 1.0 > SOME * whole)).count();
        let agree = agree as f64 / permuted.len() as f64;
        // Groups of a size are aligned again when moved by it: the smaller moves lose what the
        // larger do not.
        let lost: Vec<usize> = (1..SHIFTS.len()).filter(|at| moved[*at] > SLOWER * moved[0]).collect();
        let group = lost.last().filter(|last| lost.len() == **last).map(|last| 8 * SHIFTS[*last]);
        let verdict = if whole < SLOWER - 1.0 {
            Finding::unknown(NAME, WHAT, format!("a quarter of the pages is hardly faster: {seen}"))
        } else if low - 1.0 > SOME * whole {
            let found = group
                .map_or("yes, in groups of a size that moves do not tell".into(), |kb| format!("groups of {kb} KB"));
            Finding::text(NAME, WHAT, &found, agree, seen)
        } else if joined > 0 {
            let found = format!("yes, in {joined} of {of} places");
            Finding::text(NAME, WHAT, &found, agree, seen)
        } else if self.fractured == Some(true) {
            let why = "nothing was gained by contiguous frames, but the host backs them with its own pages, which \
             it may \
                       scatter, and a TLB can only join what is contiguous there; on the host itself it would tell";
            Finding::unknown(NAME, WHAT, format!("{why}: {seen}"))
        } else if high - 1.0 < SOME * whole {
            Finding::yes(NAME, WHAT, false, agree, seen)
        } else {
            Finding::unknown(NAME, WHAT, format!("rounds do not agree: {seen}"))
        };
        let points = SHIFTS.iter().zip(&moved).map(|(shift, ns)| [(shift * BASE) as f64, *ns]).collect();
        let verdict = verdict.with(Series {
            name: "same frames, moved".into(),
            axes: ["bytes off alignment", "ns a load"],
            points,
        });
        let gain = 100.0 * (1.0 - 1.0 / median(&permuted));
        let evidence = format!(
            "{last}; the interval as a gain is {:.1} to {:.1} %",
            100.0 * (1.0 - 1.0 / low),
            100.0 * (1.0 - 1.0 / high)
        );
        let what = "time saved here by contiguous 4K pages, compared with the same frames permuted";
        vec![verdict, Finding::number("tlb.coalescing.gain", what, gain, low / high, evidence).unit("%")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(home: f64, moved: [f64; 5], permuted: f64, quarter: f64) -> Times {
        let rounds =
            |value: f64| (0..ROUNDS).map(|round| value * (1.0 + 0.001 * (round % 3) as f64)).collect::<Vec<_>>();
        let stretches = |value: f64| vec![vec![value; 4]; ROUNDS];
        Times {
            moved: [home, moved[0], moved[1], moved[2], moved[3], moved[4]].map(rounds),
            permuted: rounds(permuted),
            quarter: rounds(quarter),
            stretches: [2.0, 2.0, 2.0].map(stretches),
        }
    }

    fn found(times: &Times, fractured: bool) -> (String, f64) {
        let verdict = Verdict { fractured: Some(fractured), pages: 5000, stretch: 80, aligned: Some(100.0) };
        let findings = verdict.findings(times);
        assert!(findings.iter().all(|finding| finding.evidence.contains("95 %")), "{findings:?}");
        (findings[0].found(), findings[1].as_number().unwrap())
    }

    #[test]
    fn the_size_of_groups_is_where_moves_lose_nothing_more() {
        let joined = times(10.0, [18.0, 18.0, 10.1, 10.0, 10.0], 18.0, 10.0);
        assert_eq!(found(&joined, false).0, "groups of 16 KB");
        assert!((found(&joined, true).1 - 44.4).abs() < 0.5, "{:?}", found(&joined, true));
    }

    #[test]
    fn no_gain_is_no_unless_a_host_may_scatter() {
        let none = times(18.0, [18.0; 5], 18.0, 10.0);
        assert_eq!(found(&none, false).0, "no");
        assert_eq!(found(&none, true).0, "could not be determined");
        assert_eq!(found(&none, true).1, 0.0);
    }

    #[test]
    fn one_place_that_is_joined_in_both_halves_tells() {
        let mut some = times(18.0, [18.0; 5], 18.0, 10.0);
        some.stretches[0].iter_mut().for_each(|round| round[2] = 1.0);
        assert_eq!(found(&some, true).0, "yes, in 1 of 4 places");
        // In one half only it is chance.
        some.stretches[0].iter_mut().step_by(2).for_each(|round| round[2] = 2.0);
        assert_eq!(found(&some, true).0, "could not be determined");
    }

    #[test]
    fn frames_keep_what_they_hold_wherever_they_are() {
        let memory = Memory::base(2 * HUGE).unwrap();
        let mut frames = Frames::new(memory, 16).unwrap();
        let write = |frames: &Frames| {
            for (frame, at) in frames.lines(0..1024).into_iter().enumerate() {
                // SAFETY: the line is in a mapping of ours.
                unsafe { ((frames.memory().start() + at) as *mut usize).write(frame) };
            }
        };
        let read = |frames: &Frames| -> Vec<usize> {
            // SAFETY: as above.
            frames
                .lines(0..1024)
                .iter()
                .map(|at| unsafe { ((frames.memory().start() + at) as *const usize).read() })
                .collect()
        };
        write(&frames);
        let expected: Vec<usize> = (0..1024).collect();
        for way in [Way::Permuted, Way::Moved(0), Way::Moved(4), Way::Permuted, Way::Permuted, Way::Moved(1)] {
            frames.arrange(way).unwrap();
            assert_eq!(read(&frames), expected);
        }
    }
}
