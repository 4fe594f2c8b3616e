//! The cost of a TLB shootdown: what the processor that changes a mapping waits for others that run
//! the same address space, and what these lose. What it costs itself to drop an entry cannot be
//! separated from changing the page table.
//!
//! The sender's wait is the time that one call takes longer when a thread of this process spins on
//! each of some other processors than when none does. The receiver's loss is the longest turn of
//! that thread's loop meanwhile, beyond that during a call that changes no mapping. Repeats count
//! only if all threads made turns before and soon after the call: who does not run is not sent
//! anything. Nor are minima used: a thread may stop and come back within a call.

use super::clock;
use super::memory::{BASE, HUGE, Memory};
use super::spin::{During, Spinners};
use super::steady::Steady;
use super::steps::median;
use super::{Finding, Series};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::Error;

/// What is shorter, in cycles, is no interrupt: entering and leaving a kernel takes longer.
const NO_INTERRUPT: f64 = 300.0;
/// Differences that agree less than so are within the spread of their rounds.
const AGREE: f64 = 0.5;
/// How many other threads run, where there are processors for them.
const OTHERS: [usize; 6] = [1, 2, 3, 4, 8, 16];
/// Pages of one munmap.
const UNMAPPED: [usize; 3] = [1, 64, 512];
/// Where they are unmapped. Tables on both sides stay in use, so that none is freed.
const AT: usize = HUGE / 2;
const SEND: [&str; 2] = ["shootdown.send", "shootdown: wait of the sender for one other thread"];
const RECEIVE: [&str; 2] = ["shootdown.receive", "shootdown: loss of the interrupted thread"];

/// How much is measured, and until when, as others may be on the processors.
struct Extent<'a> {
    rounds: usize,
    until: Instant,
    stop: &'a AtomicBool,
}

impl Extent<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() > self.until
    }
}

/// All findings. `others` are processors that this thread is not on. Up to 2 s, 0.7 s if quick, of
/// which a tenth is enough where they are idle.
pub(crate) fn measure(others: &[usize], quick: bool, stop: &AtomicBool) -> Vec<Finding> {
    let (rounds, limit) = if quick { (3, 700) } else { (9, 2000) };
    let extent = Extent { rounds, until: Instant::now() + Duration::from_millis(limit), stop };
    ask(others, &extent).unwrap_or_else(|because| {
        let unmaps = UNMAPPED.map(|pages| {
            let [name, what] = names(pages);
            unknown([&name, &what], because.clone())
        });
        [SEND, RECEIVE].map(|names| unknown(names, because.clone())).into_iter().chain(unmaps).collect()
    })
}

fn unknown([name, what]: [&str; 2], because: String) -> Finding {
    Finding::unknown(name, what, because)
}

fn names(pages: usize) -> [String; 2] {
    let what = format!("munmap of {pages} pages: longer with one other thread");
    [format!("shootdown.unmap.{pages}"), what.replace("1 pages", "1 page")]
}

/// The findings, or why none can be made.
fn ask(others: &[usize], extent: &Extent<'_>) -> Result<Vec<Finding>, String> {
    const BUSY: &str = "its threads did not run at once: others have the processors";
    let said = |error: Error| error.to_string();
    if others.is_empty() {
        return Err("this process may run on one processor only".into());
    }
    let memory = Memory::base(AT + UNMAPPED[2] * BASE + AT).map_err(said)?;
    let timed = |change: Change, spinners: &Spinners| -> Result<Timed, String> {
        Timed::measure(change, &memory, spinners, extent).map_err(said)?.ok_or_else(|| BUSY.to_string())
    };
    let discard = Change::Discard { touched: true };
    let none = Spinners::on(&[]).map_err(said)?;
    let alone = timed(discard, &none)?;
    let unmapped_alone = UNMAPPED.map(|pages| timed(Change::Unmap(pages), &none));
    let one = Spinners::on(&others[..1]).map_err(said)?;
    let with = timed(discard, &one)?;
    let calm = timed(Change::Discard { touched: false }, &one)?;
    let mut findings = vec![judge_receive(&with, &calm)];
    for (pages, alone) in UNMAPPED.into_iter().zip(unmapped_alone) {
        let [name, what] = names(pages);
        findings.push(match alone.and_then(|alone| Ok((alone, timed(Change::Unmap(pages), &one)?))) {
            Ok((alone, with)) => longer([&name, &what], &alone, &with),
            Err(because) => unknown([&name, &what], because),
        });
    }
    drop(one);
    let mut waits = vec![(1, with.call.beyond(&alone.call).value)];
    for count in OTHERS.into_iter().filter(|count| (2..=others.len()).contains(count)) {
        let spinners = Spinners::on(&others[..count]).map_err(said)?;
        let Ok(with) = timed(discard, &spinners) else { break };
        waits.push((count, with.call.beyond(&alone.call).value));
    }
    findings.insert(0, judge_send(&alone, &with, &waits));
    Ok(findings)
}

fn judge_send(alone: &Timed, with: &Timed, waits: &[(usize, f64)]) -> Finding {
    let mut finding = longer(SEND, alone, with);
    for (count, wait) in &waits[1..] {
        finding.evidence += &format!(", {wait:.0} longer with {count}");
    }
    if waits.len() == 1 {
        return finding;
    }
    let points = waits.iter().map(|(count, wait)| [*count as f64, *wait]).collect();
    finding.with(Series { name: "wait of the sender".into(), axes: ["other threads", "cycles"], points })
}

fn judge_receive(with: &Timed, calm: &Timed) -> Finding {
    let lost = with.gap.beyond(&calm.gap);
    let evidence =
        format!("its longest turn is {:.0} cycles during a shootdown, {:.0} otherwise", with.gap.value, calm.gap.value);
    if lost.value < NO_INTERRUPT && with.gap.spread() + calm.gap.spread() < NO_INTERRUPT {
        let none = Steady { value: 0.0, agreement: with.gap.agreement.min(calm.gap.agreement) };
        return number(RECEIVE, none, format!("no interrupt: {evidence}"));
    }
    difference(RECEIVE, lost, evidence)
}

/// What a call takes longer with other threads.
fn longer(names: [&str; 2], alone: &Timed, with: &Timed) -> Finding {
    let evidence = format!(
        "{:.0} cycles alone, {:.0} with one other thread, whose longest turn is {:.0}",
        alone.call.value, with.call.value, with.gap.value
    );
    difference(names, with.call.beyond(&alone.call), evidence)
}

fn difference(names: [&str; 2], difference: Steady, evidence: String) -> Finding {
    if difference.agreement < AGREE {
        unknown(names, format!("its rounds spread by more: {evidence}"))
    } else {
        number(names, difference, evidence)
    }
}

fn number([name, what]: [&str; 2], steady: Steady, evidence: String) -> Finding {
    Finding::number(name, what, steady.value, steady.agreement, evidence).unit("cycles")
}

/// A change of mappings.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    /// Giving back (`MADV_DONTNEED`) one page, which was touched; or was not, so that no entry
    /// changes.
    Discard { touched: bool },
    /// `munmap` of so many touched pages.
    Unmap(usize),
}

impl Change {
    /// How often in a round.
    fn repeats(self) -> usize {
        match self {
            Change::Discard { .. } => 100,
            Change::Unmap(pages) => (1000 / pages).clamp(10, 50),
        }
    }

    /// Makes it once in memory whose pages may all be touched, while all threads run, and restores
    /// the mapping. `None` if they did not run.
    fn time(self, memory: &Memory, spinners: &Spinners, extent: &Extent<'_>) -> Result<Option<During>, Error> {
        let part = match self {
            Change::Discard { .. } => 0..BASE,
            Change::Unmap(pages) => AT..AT + pages * BASE,
        };
        if self == (Change::Discard { touched: false }) {
            memory.advise_part(part.clone(), libc::MADV_DONTNEED)?;
        } else {
            memory.touch(part.clone(), BASE);
        }
        let mut made = None;
        let during = spinners.during(&|| extent.is_over(), || {
            made = Some(match self {
                Change::Discard { .. } => memory.advise_part(part.clone(), libc::MADV_DONTNEED),
                Change::Unmap(_) => memory.unmap(part.clone()),
            });
        });
        if let Some(result) = made {
            result?;
            if let Change::Unmap(_) = self {
                memory.fill(part)?;
            }
        }
        Ok(during)
    }
}

/// Medians of rounds, in cycles.
#[derive(Clone, Copy, Debug)]
struct Timed {
    call: Steady,
    /// The longest turn of another thread meanwhile.
    gap: Steady,
}

impl Timed {
    /// The clock is measured while the threads run: with them it may be slower. `None` if the time
    /// was over before all rounds were complete.
    fn measure(
        change: Change,
        memory: &Memory,
        spinners: &Spinners,
        extent: &Extent<'_>,
    ) -> Result<Option<Timed>, Error> {
        let (mut calls, mut gaps) = (Vec::new(), Vec::new());
        for _ in 0..extent.rounds {
            let mut round = Vec::new();
            while round.len() < change.repeats() {
                if extent.is_over() {
                    return Ok(None);
                }
                round.extend(change.time(memory, spinners, extent)?);
            }
            calls.push(median(round.iter().map(|during| during.call)));
            gaps.push(median(round.iter().map(|during| during.longest)));
        }
        let cycles = clock::hertz().value / 1e9;
        Ok(Some(Timed { call: Steady::of(&calls).times(cycles), gap: Steady::of(&gaps).times(cycles) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(calls: [f64; 3], gaps: [f64; 3]) -> Timed {
        Timed { call: Steady::of(&calls), gap: Steady::of(&gaps) }
    }

    #[test]
    fn the_wait_is_what_a_call_takes_longer() {
        let (alone, with) = (timed([1000.0, 1010.0, 1500.0], [0.0; 3]), timed([4000.0, 4100.0, 9000.0], [1600.0; 3]));
        let send = judge_send(&alone, &with, &[(1, 3000.0), (2, 3400.0)]);
        assert_eq!((send.as_number(), send.unit), (Some(3000.0), "cycles"));
        assert!((send.confidence - 3000.0 / 3110.0).abs() < 1e-9, "{}", send.confidence);
        assert!(send.evidence.ends_with("is 1600, 3400 longer with 2"), "{}", send.evidence);
        assert_eq!(send.series[0].points, [[1.0, 3000.0], [2.0, 3400.0]]);
    }

    #[test]
    fn a_wait_within_the_spread_of_rounds_is_not_determined() {
        let (alone, with) = (timed([1000.0, 1400.0, 1500.0], [0.0; 3]), timed([1300.0, 1500.0, 1600.0], [0.0; 3]));
        let send = judge_send(&alone, &with, &[(1, 300.0)]);
        assert_eq!(send.as_number(), None);
        assert!(send.evidence.contains("its rounds spread by more: 1000 cycles alone"), "{}", send.evidence);
    }

    /// An interrupt, none (as where an instruction reaches all processors), and a doubtful one.
    #[test]
    fn the_loss_is_the_longest_turn_beyond_a_calm_one() {
        let calm = timed([0.0; 3], [90.0, 100.0, 110.0]);
        let lost = |gaps| judge_receive(&timed([0.0; 3], gaps), &calm);
        assert_eq!(lost([1590.0, 1600.0, 1700.0]).as_number(), Some(1500.0));
        let none = lost([100.0, 120.0, 120.0]);
        assert!(none.as_number() == Some(0.0) && none.evidence.starts_with("no interrupt"), "{none:?}");
        assert_eq!(lost([100.0, 2000.0, 2500.0]).as_number(), None);
    }

    #[test]
    fn without_another_processor_or_time_nothing_is_determined() {
        let findings = measure(&[], true, &AtomicBool::new(false));
        assert_eq!(findings.len(), 2 + UNMAPPED.len());
        for finding in findings {
            assert!(finding.value.is_none() && finding.evidence.contains("one processor only"), "{finding:?}");
        }
        let stopped = measure(&[0], false, &AtomicBool::new(true));
        assert!(stopped.iter().all(|finding| finding.value.is_none()), "{stopped:?}");
    }

    #[test]
    fn memory_is_as_it_was_after_each_change() {
        let memory = Memory::base(AT + 64 * BASE + AT).unwrap();
        let none = Spinners::on(&[]).unwrap();
        let stop = AtomicBool::new(false);
        let extent = Extent { rounds: 1, until: Instant::now() + Duration::from_secs(60), stop: &stop };
        for change in [Change::Discard { touched: true }, Change::Discard { touched: false }, Change::Unmap(64)] {
            assert!(change.time(&memory, &none, &extent).unwrap().is_some());
            memory.touch(0..memory.bytes(), BASE);
        }
    }
}
