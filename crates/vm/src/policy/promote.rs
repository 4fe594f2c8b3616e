//! Base pages, and a scanner that makes superpages of what is populated and settled: regions of 2
//! MB (the largest size up to that) that are populated to a share and have not changed for an age,
//! the fullest first, within a budget of processor time.
//!
//! It scans each address space from time to time, and quiet ones less and less often. The same code
//! decides in a simulation, in a kernel and on live Linux.

use super::budget::Budget;
use crate::{
    Answers, Background, Candidate, Definition, Demoting, Events, Given, How, Made, Need, Parameter, Refusal, Scanned,
    Scanner, SpaceId, System, Time, Values, Why,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;
use superpage_pages::{Ladder, Level};

/// The shortest interval.
pub(super) const MS: Duration = Duration::from_millis(1);

/// A parameter that every target has.
pub(super) const fn parameter(
    name: &'static str,
    values: Values,
    default: &'static str,
    help: &'static str,
) -> Parameter {
    Parameter { name, values, default, help, needs: &[] }
}

/// What a background that promotes is kept to: `cpu`, `burst` and `batch`.
pub const LIMITS: [Parameter; 3] = [
    parameter("cpu", Values::Share, "0.01", "the most processor time that is used over time, as a share of one core"),
    parameter("burst", Values::TimeFrom(MS), "100ms", "processor time that may be saved up and used at once"),
    parameter("batch", Values::Count(1, 1024), "4", "regions promoted in one call"),
];

pub(super) static POLICY: Definition = Definition {
    name: "promote",
    paper: "",
    help: "base pages, and superpages where all is populated and settled",
    parameters: &[
        parameter("share", Values::Share, "1", "share of a region's pages that must be populated"),
        parameter("age", Values::Time, "2s", "time for which its population must not have changed"),
        LIMITS[0],
        LIMITS[1],
        parameter(
            "interval",
            Values::TimeFrom(MS),
            "1s",
            "between two scans for processes, and of a process that changes",
        ),
        parameter("idle", Values::Time, "10s", "between two scans of a process that does not change, at most"),
        LIMITS[2],
    ],
    needs: &[Need::Copying],
    make: |given| Made::with(ANSWERS, Promote::new(given)).within(given.share("cpu"), given.time("burst")),
};

/// A superpage that is unmapped whole is not taken apart first, as on Linux.
const ANSWERS: Answers = Answers { demote: Demoting { on_unmap: false, ..Answers::BASE.demote }, ..Answers::BASE };

/// The longest pause when no free extent is available.
const LONGEST_PAUSE: Time = 60 * SECOND;
pub(super) const SECOND: Time = 1_000_000_000;

/// When a queue is filled: the number of regions for which the number of pieces is asked.
const ASKED: usize = 64;

/// The background: the address spaces it watches, and when it is due.
#[derive(Debug)]
struct Promote {
    share: f64,
    age: Time,
    interval: Time,
    idle: Time,
    batch: usize,
    burst: Time,
    /// Half of the budget: what scans may use.
    scans: Budget,
    spaces: BTreeMap<SpaceId, Watched>,
    /// The address space whose scan used up what one call may: the next call goes on after it.
    cut: Option<SpaceId>,
    next_members: Time,
    /// Because no free extent was available: until when nothing is promoted, and how often in a
    /// row.
    pause: (Time, u32),
    /// When something is to be done next.
    due: Time,
}

/// An address space that is watched.
#[derive(Debug)]
struct Watched {
    scanner: Scanner,
    next_scan: Time,
    /// The number of scans in a row that found nothing new.
    quiet: u32,
    /// Candidates to promote, the first one last.
    queue: Vec<Candidate>,
    /// Until when it is left alone.
    held: Time,
}

fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// The largest size of at most 2 MB.
pub(crate) fn huge(ladder: &Ladder) -> Level {
    ladder.levels().rev().find(|level| ladder.size(*level).bytes() <= 2 << 20).unwrap_or(Level::BASE)
}

impl Promote {
    fn new(given: &Given) -> Promote {
        let time = |name| nanos(given.time(name));
        let (cpu, burst) = (given.share("cpu"), given.time("burst"));
        Promote {
            share: given.share("share"),
            age: time("age"),
            interval: time("interval").max(1),
            idle: time("idle").max(1),
            batch: given.number("batch").expect("it has a default") as usize,
            burst: nanos(burst),
            scans: Budget::new(cpu / 2.0, burst / 2),
            spaces: BTreeMap::new(),
            cut: None,
            next_members: 0,
            pause: (0, 0),
            due: 0,
        }
    }

    /// Updates the list of address spaces, and scans those that are due, from where the last call
    /// was cut off.
    fn scan(&mut self, now: Time, level: Level, system: &mut dyn System) {
        if now >= self.next_members {
            self.next_members = now.saturating_add(self.interval);
            let members = system.spaces();
            self.spaces.retain(|space, _| members.binary_search(space).is_ok());
            for space in members {
                let pages = system.ladder().pages(level) as u32;
                let watched = || Watched {
                    scanner: Scanner::new(pages, self.share, self.age).expect("a share that was checked"),
                    next_scan: now.saturating_add(self.interval),
                    quiet: 0,
                    queue: Vec::new(),
                    held: 0,
                };
                self.spaces.entry(space).or_insert_with(watched);
            }
        }
        let began = system.spent();
        let due = self.spaces.iter().filter(|(_, watched)| watched.next_scan <= now);
        let mut due: Vec<SpaceId> = due.map(|(space, _)| *space).collect();
        let cut = self.cut.take();
        let done = due.partition_point(|space| Some(*space) <= cut);
        due.rotate_left(done);
        for space in due {
            let watched = self.spaces.get_mut(&space).expect("it was found there");
            let before = watched.scanner.census();
            let again = now.saturating_add(self.interval);
            match watched.scan(now, space, level, system) {
                Scanned::Gone => drop(self.spaces.remove(&space)),
                Scanned::Closed => (watched.next_scan, watched.quiet) = (now.saturating_add(self.idle), 0),
                Scanned::Seen | Scanned::NewProgram if watched.scanner.census() != before => {
                    (watched.next_scan, watched.quiet) = (again, 0);
                }
                Scanned::Unchanged | Scanned::Seen | Scanned::NewProgram => watched.rest(now, self.interval, self.idle),
            }
            // One scan of much memory may use the whole budget: the others are due again at the
            // next call.
            if system.spent() - began > self.burst / 2 {
                self.cut = Some(space);
                break;
            }
        }
    }

    /// Promotes one batch, in the busiest address space that has a candidate.
    fn promote(&mut self, now: Time, level: Level, system: &mut dyn System) {
        if now < self.pause.0 {
            return;
        }
        let ready = self.spaces.iter().filter(|(_, watched)| watched.due_at().is_some_and(|at| at <= now));
        let busiest = ready.max_by(|(one, _), (other, _)| system.rate(**one).total_cmp(&system.rate(**other)));
        let Some(space) = busiest.map(|(space, _)| *space) else { return };
        let watched = self.spaces.get_mut(&space).expect("it was found there");
        watched.fill(now, space, level, system);
        let (mut left, mut promoted, mut failed) = (self.batch, false, false);
        while left > 0 && !failed && watched.held <= now && !watched.queue.is_empty() {
            let first = watched.queue.len().saturating_sub(left);
            let regions: Vec<Candidate> = watched.queue.drain(first..).rev().collect();
            let outcomes = system.promote(space, level, &regions, How::Either);
            for (candidate, outcome) in regions.into_iter().zip(outcomes).rev() {
                // What the look before it refused is no attempt: the batch is filled with others.
                let looked = |why: Why| why.is_over() && why != Why::Superpage || why == Why::SharedByFork;
                left -= usize::from(!outcome.is_err_and(|refusal| looked(refusal.why)));
                promoted |= outcome.is_ok();
                failed |= outcome.is_err_and(|refusal| refusal.why == Why::NoExtent);
                watched.ended(now, candidate, outcome, self.interval);
            }
        }
        if failed {
            watched.queue.clear();
            let pause = (SECOND << self.pause.1.min(6)).min(LONGEST_PAUSE);
            self.pause = (system.now().saturating_add(pause), self.pause.1.saturating_add(1));
        } else if promoted {
            self.pause.1 = 0;
        }
    }

    /// The next time at which something is to be done, as far as known at `now`.
    fn rest(&mut self, now: Time) -> Time {
        let scans = now.saturating_add(nanos(self.scans.wait(Duration::from_nanos(now))));
        let next = self.spaces.values().map(|watched| watched.next_scan).min().unwrap_or(self.next_members);
        let next = next.min(self.next_members).max(scans);
        let due = self.spaces.values().filter_map(Watched::due_at).min();
        due.map_or(next, |due| next.min(due.max(self.pause.0)))
    }
}

impl Background for Promote {
    fn next(&self) -> Option<Time> {
        Some(self.due)
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        let level = huge(system.ladder());
        if level == Level::BASE {
            self.due = Time::MAX;
            return;
        }
        if self.scans.wait(Duration::from_nanos(now)).is_zero() {
            let before = system.spent();
            self.scan(now, level, system);
            self.scans.spend(Duration::from_nanos(system.spent().saturating_sub(before)));
        }
        self.promote(now, level, system);
        self.due = self.rest(system.now().max(now)).max(now.saturating_add(1));
    }

    fn waits(&self, now: Time) -> Option<Refusal> {
        let due = self.spaces.values().filter_map(Watched::due_at).any(|at| at <= now);
        (due && now < self.pause.0).then_some(Refusal { why: Why::NoExtent, until: self.pause.0 })
    }

    fn events(&self) -> Events {
        Events { gone: true, ..Events::default() }
    }

    fn gone(&mut self, space: SpaceId) {
        self.spaces.remove(&space);
    }

    fn validate(&self) -> Result<(), String> {
        for (SpaceId(space), watched) in &self.spaces {
            watched.scanner.validate().map_err(|error| format!("address space {space}: {error}"))?;
        }
        Ok(())
    }
}

impl Watched {
    /// Scans the address space.
    fn scan(&mut self, now: Time, space: SpaceId, level: Level, system: &mut dyn System) -> Scanned {
        let mut samples = Vec::new();
        let scanned = system.scan_if_changed(space, level, &mut |sample| samples.push(sample));
        match scanned {
            Scanned::Gone | Scanned::Unchanged => return scanned,
            Scanned::NewProgram | Scanned::Closed => self.scanner.clear(),
            Scanned::Seen => {}
        }
        self.queue.clear();
        self.scanner.sweep(now, &samples);
        scanned
    }

    /// Waits twice as long as before, up to the longest time.
    fn rest(&mut self, now: Time, interval: Time, idle: Time) {
        self.quiet = (self.quiet + 1).min(16);
        self.next_scan = now.saturating_add(interval.saturating_mul(1 << self.quiet).min(idle));
    }

    /// When the next candidate may be promoted, if any will be.
    fn due_at(&self) -> Option<Time> {
        let due = if self.queue.is_empty() { self.scanner.next_due() } else { Some(0) };
        due.map(|at| at.max(self.held))
    }

    /// Fills the queue, if it is empty, with what is due.
    fn fill(&mut self, now: Time, space: SpaceId, level: Level, system: &mut dyn System) {
        if !self.queue.is_empty() {
            return;
        }
        self.queue = self.scanner.due(now);
        for candidate in self.queue.iter_mut().take(ASKED).filter(|candidate| candidate.pieces == u32::MAX) {
            candidate.pieces = system.pieces(space, level, candidate.region).unwrap_or(u32::MAX);
            self.scanner.rank(candidate.region, None, Some(candidate.pieces));
        }
        self.queue.sort_unstable_by(|one, other| other.order(one));
    }

    /// Remembers what came of a candidate that was taken from the queue.
    fn ended(&mut self, now: Time, candidate: Candidate, outcome: Result<(), Refusal>, interval: Time) {
        let Err(Refusal { why, until }) = outcome else { return self.scanner.forget(candidate.region) };
        self.held = self.held.max(until);
        match why {
            Why::NoExtent => {}
            // Nobody has looked at it: it is the next again.
            _ if until > now => self.queue.push(candidate),
            Why::Gone => self.queue.clear(),
            Why::Superpage => self.scanner.forget(candidate.region),
            why if why.is_over() => {
                self.scanner.forget(candidate.region);
                (self.next_scan, self.quiet) = (self.next_scan.min(now.saturating_add(interval)), 0);
            }
            _ => {
                self.scanner.put_off(candidate.region, now);
                if why == Why::Ineligible {
                    (self.next_scan, self.quiet) = (now, 0);
                }
            }
        }
    }
}
