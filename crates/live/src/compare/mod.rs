//! One command under several policies, run in turns, so that what differs is the policy's doing:
//! times, faults, memory, TLB misses, and which policy to use.
//!
//! Every round runs each policy once, in an order drawn at random from a seed; [`statistics`]
//! evaluates the rounds. The whole process tree is measured. System-wide changes of a policy are
//! made under one lock that is held for the whole comparison, and are restored after every run;
//! where no policy makes any the lock is shared with other comparisons, so that nobody else makes
//! some. A row that was measured while settings differed gets no verdict.

mod advice;
mod bystanders;
mod columns;
mod comparing;
mod constant;
pub mod counters;
mod did;
mod entries;
pub mod export;
mod fragmented;
mod host;
mod html;
mod looks;
mod options;
mod row;
mod rows;
mod run;
mod served;
pub mod statistics;

pub use advice::Advice;
pub use columns::{did_table, table};
pub use html::html;
pub use options::{MemoryState, Options, Output, Reaches, With};
pub use row::{Row, Run, Verdict};
pub use served::{Load, Server};

use crate::inspect::Reach;
use crate::policy::Plan;
use crate::session;
use bystanders::bystanders;
use comparing::{Comparing, Turn};
use constant::Constant;
use counters::{Available, Event};
use entries::entries;
use host::{Before, busy};
use looks::Looks;
use rows::{Began, Look, failed, rows, unseen};
use served::Loader;
use statistics::Ratio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use superpage_linux::Error;
use superpage_linux::rules::Rules;
use superpage_linux::scan::Kind;
use superpage_linux::settings::Settings;
use superpage_linux::tree::exits;
use superpage_linux::why::shared_way_out;

/// Receives reports of a comparison's progress.
pub trait Watch {
    /// A run begins.
    fn run(&mut self, at: &At);

    /// Something that the user should know before time is spent: a sentence without a full stop.
    fn say(&mut self, sentence: &str);
}

/// A run among all.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The policy of the run.
    pub policy: &'a str,
    /// The round that it counts in, from 1; none for a run to warm up.
    pub round: Option<usize>,
    /// The number of rounds, at most.
    pub rounds: usize,
    /// Which of all runs it is, from 1, those that do not count among them.
    pub index: usize,
    /// How many there are, at most.
    pub of: usize,
}

/// Nobody looks.
impl Watch for () {
    fn run(&mut self, _: &At) {}
    fn say(&mut self, _: &str) {}
}

/// The results.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The command, quoted for a shell.
    pub command: String,
    /// The seed of the order within rounds.
    pub seed: u64,
    /// The number of complete rounds.
    pub rounds: usize,
    /// The number of rounds that were asked for.
    pub of: usize,
    /// Why there are no more.
    pub end: End,
    /// A row for each policy, the reference first; none if no round is complete.
    pub rows: Vec<Row>,
    /// Which policy to use; none if no round is complete.
    pub advice: Option<Advice>,
    /// What a reader of the rows must know: one sentence each, without a full stop.
    pub notes: Vec<String>,
}

/// Why a comparison has no more rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has all that were asked for.
    Whole,
    /// It is adaptive, and every row has a verdict.
    Decided,
    /// Its time was over.
    TimeLimit,
    /// It was stopped.
    Stopped,
}

impl Comparison {
    /// Whether it was stopped, or its time was over, before the last round.
    pub fn ended_early(&self) -> bool {
        matches!(self.end, End::TimeLimit | End::Stopped)
    }

    /// The level at which the intervals that are shown hold together: [`statistics::LEVEL`], or
    /// less after few rounds; none if none is shown.
    pub(crate) fn level(&self) -> Option<f64> {
        let level = |ratio: Ratio| if ratio.sure { statistics::LEVEL } else { ratio.level };
        self.rows.iter().filter_map(Row::shown_ratio).map(level).reduce(f64::min)
    }

    /// How many rounds there are: `1 round`, `3 of 6 rounds, ended early`.
    pub fn rounds_in_words(&self) -> String {
        let why = match self.end {
            End::Whole => return counted(self.rounds, "round"),
            End::Decided => "then every row had a verdict",
            End::TimeLimit => "ended early by the time limit",
            End::Stopped => "ended early",
        };
        format!("{} of {}, {why}", self.rounds, counted(self.of, "round"))
    }
}

/// What ends a comparison early: the caller's flag, and the time limit.
struct Stop<'a> {
    flag: &'a Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop<'_> {
    /// Whether the caller's flag is set.
    fn is_flagged(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Whether the flag is set or the time is over.
    fn is_set(&self) -> bool {
        self.is_flagged() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The settings of this system, locked if the policies or the reference change any, else locked
/// together with others that measure. While another process holds the lock this waits, and a signal
/// should interrupt the wait: so install handlers that only set a flag after this.
pub fn settings(options: &Options) -> Settings {
    let with = options.with.iter().map(|with| &with.policy);
    session::settings(options.policies.iter().chain(with).chain([&options.reference]), true, options.waits)
}

/// Compares. `stop` ends it early: the running command is ended, and the rounds that are complete
/// count, as when the time limit comes. While it runs, this process starts no other children.
///
/// # Errors
/// [`Error::Usage`] for options that make no sense; [`Error::Unable`] if a run fails, or none of
/// the policies is supported here except the reference; others of the settings and of the system.
/// Settings are restored in any case.
pub fn compare(options: &Options, stop: &Arc<AtomicBool>, watch: &mut dyn Watch) -> Result<Comparison, Error> {
    compare_with(settings(options), options, stop, watch)
}

/// As [`compare`], with settings that are locked already.
///
/// # Errors
/// As [`compare`].
pub fn compare_with(
    mut settings: Settings,
    options: &Options,
    stop: &Arc<AtomicBool>,
    watch: &mut dyn Watch,
) -> Result<Comparison, Error> {
    if options.command.is_empty() {
        return Err(Error::Usage("there is no command to compare: name it after --".into()));
    }
    if let Some(unit) = options.server.as_ref().and_then(Server::unit) {
        return Err(Error::Usage(format!(
            "{unit} is a unit of systemd, which would be started again under each policy: compare a copy of it: give --server \
             its command (systemctl show -p ExecStart {unit}) with another port and data folder"
        )));
    }
    if options.runs == 0 {
        return Err(Error::Usage("at least one run is needed".into()));
    }
    if !options.waits && !settings.is_locked() {
        // Without the right to the lock it is as always; where another has it, this says who.
        if let Err(error @ Error::Unable(_)) = settings.share() {
            return Err(error);
        }
    }
    let mut notes = Vec::new();
    let others = match options.reach {
        Reaches::System => None,
        Reaches::Considerate => bystanders(),
        Reaches::OnlyMine => Some(String::new()),
    };
    let (mut entries, left_out) = entries(options, others, &mut settings, &mut notes)?;
    let mut changes = |which: fn(&Plan) -> bool, when: &str| {
        let names: Vec<&str> =
            entries.iter().filter(|entry| which(&entry.plan)).map(|entry| entry.name.as_str()).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            watch.say(&format!("settings of the whole system are changed in the runs of {names}, and put back {when}"));
        }
    };
    changes(Plan::is_global, "after each");
    changes(
        |plan| plan.is_briefly_global() && !plan.is_global(),
        "once each has mapped its memory (shmem_enabled, so that huge pages fit into shared memory)",
    );
    let (others, rounds) = (entries.len() - 1, counted(options.runs, "round"));
    let needed = statistics::rounds_needed(others);
    if others > 0 && options.runs < needed {
        let policies = if others == 1 { "1 policy".to_string() } else { format!("{others} policies") };
        watch.say(&format!(
            "{rounds} will not be enough to advise: with {policies} besides {}, {needed} are the least (-r {needed})",
            options.reference
        ));
    }
    notes.extend(busy());
    // It is to be no child of this process, which takes in all that has no parent while a command
    // runs.
    let loader = options.server.as_ref().map(|server| Loader::start(server, &options.start()?)).transpose()?;
    let available = Available::among(&Event::HARDWARE);
    notes.extend(available.note());
    let (constant, rules) = (Constant::begin(&settings), Rules::read());
    let before = Before::look(options, entries.len() > 1, &mut notes)?;
    if options.memory_state == MemoryState::Fragmented {
        watch.say("free memory is fragmented for the whole system until this ends: others get few huge pages too");
    }
    let began = Began { memory_before: before.words, rules: &rules };
    let traces = exits::check().map_err(|error| error.to_string());
    let mut comparing = Comparing {
        options,
        settings,
        constant,
        available,
        before,
        loader,
        numbers: None,
        traces,
        left: 0,
        notes: Vec::new(),
    };

    let deadline = options.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let stop = &Stop { flag: stop, deadline };
    let mut looks = Looks::new(others, options.runs);
    let mut total = entries.len() * (options.warmup + options.runs);
    let mut index = 0;
    let mut rounds = 0;
    let mut decided = None;
    'rounds: for round in 0..options.warmup + options.runs {
        let measured = round.checked_sub(options.warmup);
        let mut order = match measured {
            Some(round) => statistics::order(options.seed, round as u64, entries.len()),
            None => (0..entries.len()).collect(),
        };
        order.retain(|which| entries[*which].dropped.is_none());
        for which in order {
            // Before the first run of a policy, the peaks of others tell about when to look at its
            // memory.
            let known = entries.iter().map(|entry| entry.peak).filter(|peak| *peak > 0).min();
            // Every policy finds as much warm memory; after its own amount each would begin in
            // another state.
            let warm = entries.iter().map(|entry| entry.peak).max().unwrap_or(0);
            let entry = &mut entries[which];
            let expected = if entry.peak > 0 { entry.peak } else { known.unwrap_or(0) };
            index += 1;
            let round = measured.map(|round| round + 1);
            watch.run(&At { policy: &entry.name, round, rounds: options.runs, index, of: total });
            let turn = Turn { round: measured, expected, warm };
            let Some(run) = comparing.run(entry, turn, stop)? else {
                break 'rounds;
            };
            entry.peak = entry.peak.max(run.memory.peak);
            match measured {
                Some(_) => entry.runs.push(run),
                None => {
                    entry.warmups.push(run.memory);
                    entry.differed.extend(run.differed);
                }
            }
        }
        rounds += usize::from(measured.is_some());
        if let Some(family) = options.adaptive.then(|| looks.due(rounds)).flatten() {
            let rows = rows(options, &entries, Look { rounds, family }, began);
            for (which, why) in looks::losers(&rows) {
                entries[which].dropped = Some((family, why));
                total -= options.runs - rounds;
            }
            if looks::decided(&rows) {
                decided = Some(family);
                break;
            }
        }
    }
    let end = match () {
        () if decided.is_some() => End::Decided,
        () if rounds == options.runs => End::Whole,
        () if stop.is_flagged() => End::Stopped,
        () => End::TimeLimit,
    };
    notes.append(&mut comparing.notes);
    if comparing.left > 0 {
        notes.push(format!(
            "the command left processes behind that did not end ({} in all runs); they were ended, and its time is its own",
            comparing.left
        ));
    }
    comparing.settings.restore()?;
    notes.extend(comparing.before.broken_up().map(|blocks| {
        let left = entries.iter().flat_map(|entry| &entry.runs).filter_map(|run| run.free_blocks).max();
        let left = left.map_or(String::new(), |left| format!("; before each run at most {left} were left"));
        format!("free memory was fragmented: {blocks} free blocks of 2 MB were broken up{left}")
    }));
    notes.extend(entries.iter().filter_map(|entry| {
        let (name, runs, how) = (&entry.name, entry.differed(rounds).count(), entry.differed(rounds).next()?);
        Some(format!("settings differed in {} of {name}, so it gets no verdict: {how}", counted(runs, "run")))
    }));
    let rows = rows(options, &entries, Look { rounds, family: decided.unwrap_or(looks.last(rounds)) }, began);
    let early = matches!(end, End::TimeLimit | End::Stopped);
    let rows: Vec<Row> = rows.into_iter().map(|row| Row { ended_early: early, ..row }).collect();
    notes.extend(failed(&rows));
    notes.extend(unseen(options, &rows, comparing.traces.err()));
    let reaches = entries.iter().filter_map(|entry| entry.seen.reach.as_ref());
    let misplaced: Vec<Kind> = reaches.flat_map(Reach::misplaced).collect();
    notes.extend(shared_way_out(&misplaced, &Rules::read()));
    if rows.iter().any(|row| row.counted_share.is_some_and(|share| share < 1.0)) {
        notes.push("hardware counters took turns: counts are scaled to the whole time".into());
    }
    notes.extend(advice::as_far(&rows));
    notes.extend(advice::other_side(&rows));
    let advice = (!rows.is_empty()).then(|| advice::advise(&rows, &left_out));
    let command = options.command_line();
    Ok(Comparison { command, seed: options.seed, rounds, of: options.runs, end, rows, advice, notes })
}

/// So many of something: `1 run`, `2 runs`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let usage = |options: Options| matches!(compare(&options, &Arc::default(), &mut ()), Err(Error::Usage(_)));
        assert!(usage(Options { policies: Vec::new(), ..Options::new([""; 0]) }));
        assert!(usage(Options { policies: Vec::new(), runs: 0, ..Options::new(["true"]) }));
    }
}
