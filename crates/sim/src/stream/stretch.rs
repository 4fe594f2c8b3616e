//! The stretches of the stream: runs between marks, with their counts, and the windows of a sampled
//! stream that they lie in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use superpage_keys::Counts;
use superpage_pages::{Access, Counts};
use superpage_trace::{Event, Phase, Run, Sampling, Source};

/// What happens between two runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// The event with this index in the batch.
    Event(usize),
    /// What follows belongs to this window of a sampled stream, or to none.
    Window(Option<Window>),
}

/// A window of a sampled stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// Its number, in the order in which windows begin.
    pub(crate) number: usize,
    /// The thread of which it is, in a stream with cores.
    pub(crate) thread: u32,
    /// The accesses that it stands for, if that is not a period of the sampling.
    pub(crate) period: Option<u64>,
    /// Whether it begins with [`Sampling::SHORT`] pages, and the gap before it may have used more.
    pub(crate) short: bool,
}

/// The counts of some runs.
#[derive(Clone, Copy, Default, PartialEq, Debug, Counts)]
pub(crate) struct Done {
    /// Data references.
    pub(crate) references: u64,
    /// Instructions.
    pub(crate) instructions: u64,
    /// Data references and instruction fetches.
    pub(crate) accesses: u64,
}

impl Done {
    pub(super) fn of(runs: &[Run]) -> Done {
        let (mut done, mut fetched) = (Done::default(), 0);
        for run in runs {
            let count = u64::from(run.references);
            done.accesses += count;
            fetched += if run.access() == Access::Execute { count } else { 0 };
            done.instructions += u64::from(run.instructions);
        }
        done.references = done.accesses - fetched;
        done
    }
}

/// Prefix sums of a batch: the counts of its first runs, for each number of whole blocks of them.
#[derive(Default)]
pub(crate) struct PrefixSums(Vec<Done>);

impl PrefixSums {
    /// The runs of a block: the most that are gone through for each number that is asked for.
    const BLOCK: usize = 64;

    /// Counts the runs of another batch.
    pub(crate) fn count(&mut self, runs: &[Run]) {
        self.0.clear();
        let mut sum = Done::default();
        for block in runs.chunks(PrefixSums::BLOCK) {
            self.0.push(sum);
            sum = sum.plus(&Done::of(block));
        }
        self.0.push(sum);
    }

    /// The counts of the runs before this one; `runs` are those of the batch.
    pub(crate) fn before(&self, runs: &[Run], run: usize) -> Done {
        let block = run / PrefixSums::BLOCK;
        self.0[block].plus(&Done::of(&runs[block * PrefixSums::BLOCK..run]))
    }

    /// The instructions of these runs of the batch.
    pub(crate) fn instructions(&self, runs: &[Run], some: Range<usize>) -> u64 {
        if some.len() <= PrefixSums::BLOCK {
            runs[some].iter().map(|run| u64::from(run.instructions)).sum()
        } else {
            self.before(runs, some.end).instructions - self.before(runs, some.start).instructions
        }
    }
}

/// The runs between two marks, as counts, and the second mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// Where its runs begin in the batch.
    pub(crate) start: usize,
    /// Where they end.
    pub(crate) end: usize,
    /// Their counts.
    pub(crate) done: Done,
    /// What follows; `None` at the end of the batch.
    pub(crate) mark: Option<Mark>,
    /// The role of its runs in a sampled stream.
    pub(crate) role: Role,
}

/// The role of runs in a sampled stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Role {
    /// All of a stream that is not sampled, first touches in a gap, a window whose phases are not
    /// marked.
    #[default]
    Other,
    /// The pages used last in a gap, with which a window begins.
    Recent,
    /// A window's own accesses, while it warms up or is measured.
    Window,
}

/// Tracks the windows of a sampled stream, of which each thread has its own. They are numbered in
/// the order in which they begin. An unsampled stream is one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    sampled: bool,
    /// Whether the stream marks its phases; if not, windows begin with a period, and no part of
    /// them is for warming.
    marked: bool,
    /// The window that each thread is in.
    threads: BTreeMap<u32, Option<Window>>,
    current: u32,
    windows: usize,
    /// Runs since the last phase began, and their accesses.
    since: (usize, u64),
    /// Whether the windows of the stream may be short, and the next one is.
    short: [bool; 2],
    /// The role of each thread's runs; none: [`Role::Other`].
    roles: BTreeMap<u32, Role>,
    /// The threads of which accesses were left out since their last phase began: only then does a
    /// window begin with pages used last.
    skipped: BTreeSet<u32>,
    /// Whether windows of the stream begin with pages used last at all.
    recent: bool,
    /// Whether the stream has cores.
    on_cores: bool,
}

impl Phases {
    pub(crate) fn new(source: &dyn Source) -> Phases {
        let sampling = source.info().sampling.filter(|sampling| sampling.on < sampling.period);
        let marked = sampling.is_some_and(|sampling| sampling.seed.is_some());
        let short = [source.info().short_windows, false];
        let (recent, on_cores) = (!source.info().cold_windows, source.info().cores > 0);
        Phases { sampled: sampling.is_some(), marked, short, recent, on_cores, ..Phases::default() }
    }

    /// Follows runs: those between two phases, of an access each, are the pages with which a window
    /// begins.
    pub(super) fn runs(&mut self, runs: usize, accesses: u64) {
        self.since = (self.since.0 + runs, self.since.1 + accesses);
    }

    /// The role of the runs that follow.
    pub(super) fn role(&self) -> Role {
        self.roles.get(&self.current).copied().unwrap_or_default()
    }

    /// The window that the current thread is in.
    fn window(&mut self) -> &mut Option<Window> {
        let (marked, thread, windows) = (self.marked, self.thread(), &mut self.windows);
        self.threads.entry(self.current).or_insert_with(|| {
            (!marked).then(|| {
                *windows += 1;
                Window { number: *windows - 1, thread, period: None, short: false }
            })
        })
    }

    /// The current thread, in a stream with cores.
    fn thread(&self) -> u32 {
        if self.on_cores { self.current } else { 0 }
    }

    /// Handles an event; if it changes the window, returns the new one, if any.
    pub(super) fn event(&mut self, event: &Event) -> Option<Option<Window>> {
        if !self.sampled {
            return None;
        }
        let before = self.threads.get(&self.current).copied().flatten();
        if let Event::Skipped { references: 1.., .. } | Event::Skipped { instructions: 1.., .. } = event {
            self.skipped.insert(self.current);
        }
        let begins = match event {
            Event::Switch { thread, .. } => {
                self.current = *thread;
                None
            }
            Event::Phase { phase, period } => {
                let skipped = self.skipped.remove(&self.current) && self.recent;
                let role = self.roles.entry(self.current).or_default();
                *role = match (*phase, *role) {
                    (Phase::Gap, _) => Role::Other,
                    (Phase::Warming, Role::Other) if skipped => Role::Recent,
                    _ => Role::Window,
                };
                let begun = std::mem::take(&mut self.since) == (Sampling::SHORT, Sampling::SHORT as u64);
                self.short[1] = *phase != Phase::Gap && (self.short[1] || self.short[0] && begun);
                Some((*phase == Phase::Measured, *period))
            }
            Event::Skipped { references, instructions } if !self.marked => Some((references + instructions > 0, None)),
            _ => None,
        };
        if let Some((begins, period)) = begins {
            let (number, thread, short) = (self.windows, self.thread(), self.short[1]);
            let new = begins.then_some(Window { number, thread, period, short });
            self.windows += usize::from(begins);
            *self.window() = new;
        }
        let now = *self.window();
        (now != before).then_some(now)
    }
}
