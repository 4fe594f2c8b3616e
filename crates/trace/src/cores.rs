//! The threads of a stream on cores of their own: which of them runs when.
//!
//! A stream says what each thread did, in order, and how that lies between events that change
//! memory, files and processes. In which order the accesses of two threads come between two such
//! events, it does not say: that of a recording is the order in which buffers were full. So threads
//! are put on cores by their numbers, in turn, and each core runs those that it has, while all
//! cores make instructions at the same rate. That depends on the stream alone, not on any TLB.
//!
//! A core may have several hardware threads, also known as siblings, each with threads of its own:
//! thread T is on hardware thread T modulo their number, and hardware thread H on core H modulo the
//! number of cores, as Linux fills cores before it doubles up. Siblings that have something to run
//! share their core's rate in pieces of a few hundred instructions: as many as a reorder buffer
//! holds.
//!
//! If threads may migrate, a core with nothing to run takes one from a core where two or more wait,
//! once that core has made a slice of instructions while another thread of it waited and a core was
//! idle: so what is done in a moment is not moved, as a kernel leaves alone what ran just now
//! (Linux's `sched_migration_cost`). The thread stays there until it is taken again.

use crate::event::{Batch, Event, Info, ProcessId, Run, Source};
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::vec::IntoIter;

/// The instructions that a core makes before another one goes on: what cores share sees their
/// accesses in pieces of this length.
const SLICE: u64 = 20_000;

/// The instructions that a hardware thread makes before its sibling goes on.
const PIECE: u64 = 500;

/// The runs between two events that are held: more are parted there, as if an event were between
/// them, at the end of a batch. They take 16 bytes each.
const MOST: usize = 1 << 18;

/// On which cores the threads of a stream run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// How many there are, at least 1.
    pub number: u32,
    /// The instructions of a thread before another one of its hardware thread runs, at least 1.
    pub quantum: u64,
    /// Whether a core with nothing to run takes a thread that waits for another core, and so does
    /// an idle hardware thread.
    pub migrate: bool,
}

impl Cores {
    /// A clock tick of 4 ms (Linux with `HZ=250`) at 2.5 instructions a nanosecond.
    pub const QUANTUM: u64 = 10_000_000;

    /// The most that can be asked for.
    pub const MOST: u32 = 4096;

    /// Of a machine whose file does not say how many it has.
    pub const MANY: u32 = 64;

    /// This number of cores, each with threads that stay on it and take turns of the usual length.
    pub const fn new(number: u32) -> Cores {
        Cores { number, quantum: Cores::QUANTUM, migrate: false }
    }

    /// Of this number of cores, or of hardware threads of all cores, the one on which a thread
    /// begins.
    pub fn of(number: u32, thread: u32) -> u32 {
        thread % number.max(1)
    }
}

/// A stream whose threads run on several cores: between two events that change memory, files or
/// processes, cores advance at the same pace, and each runs its threads in turn. The order of the
/// accesses of each thread, and on which side of an event they are, stay as they were.
///
/// Batches of the thread that runs alone pass unchanged. Memory: 16 bytes for each run that waits,
/// some 2^18, and as much for each thread as it once needed.
pub struct OnCores<'a> {
    source: &'a mut dyn Source,
    info: Info,
    quantum: u64,
    migrate: bool,
    /// What was read last and not taken apart yet.
    runs: Vec<Run>,
    taken: usize,
    events: Peekable<IntoIter<(u32, Event)>>,
    /// The thread at which the source is, and the one at which this stream is.
    reading: Option<(ProcessId, u32)>,
    current: Option<(ProcessId, u32)>,
    threads: HashMap<u32, Thread>,
    cores: Vec<Core>,
    /// Whether a core, or a hardware thread of any, has nothing to run, if threads migrate.
    idle: [bool; 2],
    /// The runs and events that wait.
    held: usize,
    /// Whether what waits is made, before the next event is.
    making: bool,
    next: Option<Event>,
    /// The source has ended.
    over: bool,
}

/// What a thread does up to the next event: runs, and what concerns it alone.
#[derive(Default)]
struct Thread {
    process: ProcessId,
    /// The hardware thread to which it has migrated.
    on: Option<u32>,
    runs: Vec<Run>,
    made: usize,
    /// Each before the run with this index.
    own: VecDeque<(u32, Event)>,
}

impl Thread {
    /// The runs and events that wait.
    fn waiting(&self) -> usize {
        self.runs.len() - self.made + self.own.len()
    }

    fn is_done(&self) -> bool {
        self.waiting() == 0
    }
}

/// A hardware thread, and its threads that wait, of which the first runs.
#[derive(Clone, Default)]
struct Sibling {
    waiting: VecDeque<u32>,
    /// The thread that ran last, and its instructions since it got the hardware thread.
    last: Option<u32>,
    used: u64,
}

/// A core.
#[derive(Clone, Default)]
struct Core {
    siblings: Vec<Sibling>,
    /// The one that goes on.
    turn: usize,
    /// The instructions since the last event.
    time: u64,
    /// All its instructions, and those that it has made since it last gave a thread away, while one
    /// waited and another core was idle. Counted if threads migrate.
    made: u64,
    contended: u64,
}

impl Core {
    fn new(siblings: u32) -> Core {
        Core { siblings: vec![Sibling::default(); siblings as usize], ..Core::default() }
    }

    /// The threads that wait here.
    fn waiting(&self) -> usize {
        self.siblings.iter().map(|sibling| sibling.waiting.len()).sum()
    }

    /// Those of the hardware thread where most do.
    fn longest(&self) -> usize {
        self.siblings.iter().map(|sibling| sibling.waiting.len()).max().unwrap_or(0)
    }

    /// The hardware threads that have something to run.
    fn busy(&self) -> usize {
        self.siblings.iter().filter(|sibling| !sibling.waiting.is_empty()).count()
    }

    /// Whether it has a thread to give to an idle core, or to an idle hardware thread of another.
    fn has_more(&self, [core, sibling]: [bool; 2]) -> bool {
        core && self.waiting() > 1 || sibling && self.longest() > 1
    }
}

impl<'a> OnCores<'a> {
    /// The threads of `source` on these cores, each of which has so many hardware threads, at least
    /// 1.
    pub fn new(source: &'a mut dyn Source, cores: Cores, siblings: u32) -> OnCores<'a> {
        let info = Info { cores: cores.number, siblings, ..source.info().clone() };
        OnCores {
            source,
            info,
            quantum: cores.quantum.max(1),
            migrate: cores.migrate,
            runs: Vec::new(),
            taken: 0,
            events: Vec::new().into_iter().peekable(),
            reading: None,
            current: None,
            threads: HashMap::new(),
            cores: Vec::new(),
            idle: [false; 2],
            held: 0,
            making: false,
            next: None,
            over: false,
        }
    }

    /// Reads the next batch into `batch`, if it is of the thread at which both streams are, so that
    /// it can pass; else, to be taken apart. Returns whether it passes.
    fn read(&mut self, batch: &mut Batch) -> Result<bool, crate::Error> {
        self.over = !self.source.fill(batch)?;
        self.info.cut = self.source.info().cut;
        let elsewhere = |event: &Event| match *event {
            Event::Switch { process, thread } => Some((process, thread)) != self.reading,
            _ => false,
        };
        if self.held == 0 && self.reading == self.current && !batch.events.iter().any(|(_, event)| elsewhere(event)) {
            return Ok(!self.over);
        }
        std::mem::swap(&mut self.runs, &mut batch.runs);
        self.events = std::mem::take(&mut batch.events).into_iter().peekable();
        self.taken = 0;
        batch.clear();
        Ok(false)
    }

    /// Takes apart what was read, up to an event that concerns more than its thread, or until
    /// enough waits; returns whether that is to be made then.
    fn take(&mut self) -> bool {
        loop {
            let end = self.events.peek().map_or(self.runs.len(), |(before, _)| *before as usize);
            if end > self.taken {
                let Some((process, number)) = self.reading else { return false };
                let runs = self.taken..end;
                (self.held, self.taken) = (self.held + runs.len(), end);
                let thread = wait(&mut self.threads, &mut self.cores, &self.info, (process, number));
                thread.runs.extend_from_slice(&self.runs[runs]);
            }
            // Then whole batches can pass.
            let Some((_, event)) = self.events.next() else { return self.held >= MOST };
            match (event, self.reading) {
                (Event::Switch { process, thread }, _) => self.reading = Some((process, thread)),
                (own, Some(reading)) if is_own(&own) => {
                    let thread = wait(&mut self.threads, &mut self.cores, &self.info, reading);
                    thread.own.push_back((thread.runs.len() as u32, own));
                    self.held += 1;
                }
                (event, _) => {
                    self.next = Some(event);
                    return true;
                }
            }
        }
    }

    /// An idle hardware thread takes a thread, if there is one to take: that of the core with the
    /// fewest busy ones, and of these the core that has made the fewest instructions. It takes the
    /// last that waits where most do; an idle core takes also one of two busy siblings.
    fn migrate(&mut self, batch: &mut Batch) {
        self.cores.resize(self.info.cores as usize, Core::new(self.info.siblings));
        let idle = |(_, core): &(usize, &Core)| core.busy() < core.siblings.len();
        let idle = self.cores.iter().enumerate().filter(idle).min_by_key(|(_, core)| (core.busy(), core.made));
        self.idle = idle.map_or([false; 2], |(_, core)| [core.busy() == 0, true]);
        let Some((to, _)) = idle else { return };
        let idle = self.idle;
        let gives = |core: &&mut Core| core.has_more(idle) && core.contended >= SLICE;
        let from = self.cores.iter_mut().rev().filter(gives).max_by_key(|core| (core.longest(), core.waiting()));
        let Some(from) = from else { return };
        from.contended = 0;
        let longest = from.siblings.iter_mut().max_by_key(|sibling| sibling.waiting.len());
        let number = longest.and_then(|sibling| sibling.waiting.pop_back()).expect("two wait");
        // It has waited until now.
        let busy = self.cores.iter().filter(|core| core.busy() > 0);
        let now = busy.map(|core| core.time).min().unwrap_or(0);
        let cores = self.cores.len();
        let core = &mut self.cores[to];
        core.time = core.time.max(now);
        let at = core.siblings.iter().position(|sibling| sibling.waiting.is_empty()).expect("one is idle");
        core.siblings[at].waiting.push_back(number);
        let on = (at * cores + to) as u32;
        self.threads.get_mut(&number).expect("it waits").on = Some(on);
        batch.event(Event::Migrate { thread: number, to: on });
        // It is switched to where it goes on.
        self.current = self.current.filter(|(_, thread)| *thread != number);
    }

    /// Makes what waits, until the batch is full; returns whether all was made.
    fn make(&mut self, batch: &mut Batch) -> bool {
        while batch.runs.len() < Batch::RUNS {
            if self.migrate {
                self.migrate(batch);
            }
            // The one that is behind goes on.
            let waits = |core: &&mut Core| core.busy() > 0;
            let Some(core) = self.cores.iter_mut().filter(waits).min_by_key(|core| core.time) else {
                self.cores.iter_mut().for_each(|core| core.time = 0);
                return true;
            };
            let mut left = SLICE;
            while left > 0 && batch.runs.len() < Batch::RUNS && core.busy() > 0 {
                let alone = core.busy() == 1;
                let waits = core.waiting() > 1 && core.has_more(self.idle);
                let siblings = core.siblings.len();
                let turn = (core.turn..).find(|turn| !core.siblings[turn % siblings].waiting.is_empty());
                let turn = turn.expect("one is busy") % siblings;
                core.turn = (turn + 1) % siblings;
                let sibling = &mut core.siblings[turn];
                let number = sibling.waiting[0];
                let thread = self.threads.get_mut(&number).expect("it waits");
                if sibling.last.replace(number) != Some(number) || sibling.used >= self.quantum {
                    sibling.used = 0;
                }
                switch(&mut self.current, (thread.process, number), batch);
                let waiting = thread.waiting();
                let most = if alone { left } else { left.min(PIECE) };
                let made = run(thread, most.min(self.quantum - sibling.used), batch);
                self.held -= waiting - thread.waiting();
                sibling.used += made;
                (core.time, core.made) = (core.time + made, core.made + made);
                core.contended += if waits { made } else { 0 };
                if thread.is_done() {
                    *thread = Thread { runs: std::mem::take(&mut thread.runs), on: thread.on, ..Thread::default() };
                    thread.runs.clear();
                    sibling.waiting.pop_front();
                } else if sibling.used >= self.quantum {
                    sibling.waiting.rotate_left(1);
                }
                // A core whose one hardware thread ends its run looks who is behind.
                left = if alone { 0 } else { left.saturating_sub(made) };
            }
        }
        false
    }
}

/// Whether an event concerns its thread alone, and nothing that others do.
fn is_own(event: &Event) -> bool {
    matches!(event, Event::Skipped { .. } | Event::Phase { .. } | Event::Note(_) | Event::Call { .. })
}

/// The thread, which waits for its hardware thread.
fn wait<'a>(
    threads: &'a mut HashMap<u32, Thread>,
    cores: &mut Vec<Core>,
    info: &Info,
    (process, number): (ProcessId, u32),
) -> &'a mut Thread {
    let thread = threads.entry(number).or_default();
    if thread.is_done() {
        let on = thread.on.unwrap_or(Cores::of(info.cores * info.siblings, number));
        let (core, sibling) = ((on % info.cores) as usize, (on / info.cores) as usize);
        cores.resize(cores.len().max(core + 1), Core::new(info.siblings));
        let Sibling { waiting, last, .. } = &mut cores[core].siblings[sibling];
        // Nobody has taken its place from the one that ran last.
        if *last == Some(number) { waiting.push_front(number) } else { waiting.push_back(number) }
    }
    thread.process = process;
    thread
}

/// Runs a thread until it has made so many instructions, nothing of it waits, or the batch is full;
/// returns the instructions, with those that were left out.
fn run(thread: &mut Thread, most: u64, batch: &mut Batch) -> u64 {
    let mut made = 0;
    while made < most && batch.runs.len() < Batch::RUNS && !thread.is_done() {
        let next = thread.own.front().map_or(thread.runs.len(), |(before, _)| *before as usize);
        if next == thread.made
            && let Some((_, own)) = thread.own.pop_front()
        {
            made += if let Event::Skipped { instructions, .. } = own { instructions } else { 0 };
            batch.event(own);
            continue;
        }
        let end = next.min(thread.made + Batch::RUNS - batch.runs.len());
        let mut at = thread.made;
        while at < end && made < most {
            made += u64::from(thread.runs[at].instructions);
            at += 1;
        }
        batch.runs.extend_from_slice(&thread.runs[thread.made..at]);
        thread.made = at;
    }
    made
}

/// Switches to a thread, if the stream is elsewhere.
fn switch(current: &mut Option<(ProcessId, u32)>, to: (ProcessId, u32), batch: &mut Batch) {
    if current.replace(to) != Some(to) {
        batch.event(Event::Switch { process: to.0, thread: to.1 });
    }
}

impl Source for OnCores<'_> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, crate::Error> {
        batch.clear();
        loop {
            if self.making {
                if !self.make(batch) {
                    return Ok(true);
                }
                self.making = false;
                if let Some(event) = self.next.take() {
                    self.reading.into_iter().for_each(|reading| switch(&mut self.current, reading, batch));
                    batch.event(event);
                }
            }
            if batch.runs.len() >= Batch::RUNS {
                return Ok(true);
            }
            // As long as there is one thread, what it does need not wait for others.
            self.making = self.take() || self.held > 0 && self.threads.len() == 1;
            if self.making {
                continue;
            }
            if !batch.runs.is_empty() || !batch.events.is_empty() {
                return Ok(true);
            } else if self.over {
                return Ok(false);
            } else if self.read(batch)? {
                return Ok(true);
            } else {
                // At the end, all that waits is made.
                self.making = self.over;
            }
        }
    }

    fn digest(&self) -> Option<String> {
        self.source.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use superpage_pages::Access;

    /// A stream of prepared batches.
    struct Prepared {
        info: Info,
        batches: VecDeque<Batch>,
    }

    impl Source for Prepared {
        fn info(&self) -> &Info {
            &self.info
        }

        fn fill(&mut self, batch: &mut Batch) -> Result<bool, crate::Error> {
            batch.clear();
            let next = self.batches.pop_front();
            let more = next.is_some();
            *batch = next.unwrap_or_default();
            Ok(more)
        }
    }

    fn on_cores(batches: Vec<Batch>, number: u32, quantum: u64) -> Vec<Batch> {
        scheduled(batches, Cores { quantum, ..Cores::new(number) })
    }

    fn scheduled(batches: Vec<Batch>, cores: Cores) -> Vec<Batch> {
        with_siblings(batches, cores, 1)
    }

    fn with_siblings(batches: Vec<Batch>, cores: Cores, siblings: u32) -> Vec<Batch> {
        let mut prepared = Prepared { info: Info::default(), batches: batches.into() };
        let mut source = OnCores::new(&mut prepared, cores, siblings);
        let (mut out, mut batch) = (Vec::new(), Batch::default());
        while source.fill(&mut batch).unwrap() {
            assert!(batch.runs.len() <= Batch::RUNS && (!batch.runs.is_empty() || !batch.events.is_empty()));
            out.push(batch.clone());
        }
        out
    }

    /// One thing that happens in a stream.
    #[derive(Clone, PartialEq, Eq, Debug)]
    enum Happens {
        Run(Run),
        Event(Event),
    }

    /// What happens by which thread, without the switches.
    fn story(batches: &[Batch]) -> Vec<(u32, Happens)> {
        let (mut story, mut current) = (Vec::new(), u32::MAX);
        for batch in batches {
            let mut events = batch.events.iter().peekable();
            for at in 0..=batch.runs.len() {
                while let Some((_, event)) = events.next_if(|(before, _)| *before as usize == at) {
                    match event {
                        Event::Switch { thread, .. } => current = *thread,
                        Event::Migrate { .. } => {}
                        event => story.push((current, Happens::Event(event.clone()))),
                    }
                }
                story.extend(batch.runs.get(at).map(|run| (current, Happens::Run(*run))));
            }
        }
        story
    }

    fn turn(thread: u32, first: u64, runs: u64, instructions: u32) -> Batch {
        let mut batch = Batch::default();
        batch.event(Event::Switch { process: ProcessId(7), thread });
        (first..first + runs).for_each(|page| batch.run(Run::new(page, Access::Read, 1, instructions)));
        batch
    }

    /// Threads 0, 2 and 4 meet on core 0 of two, and core 1 takes one after another as it is idle:
    /// but only after one has waited for a slice, and each stays where it went.
    #[test]
    fn an_idle_core_takes_a_thread_that_waits() {
        // All have been there before.
        let before = || {
            let mut before = vec![turn(0, 500, 1, 1), turn(2, 501, 1, 1), turn(4, 502, 1, 1)];
            before[2].event(Event::Unmap { start: 600, pages: 1 });
            before
        };
        let batches = || vec![turn(0, 0, 10, 10_000), turn(2, 100, 10, 10_000), turn(4, 200, 10, 10_000)];
        let mut twice = [before(), batches()].concat();
        twice[5].event(Event::Unmap { start: 600, pages: 1 });
        twice.extend(batches());
        let out = scheduled(twice, Cores { migrate: true, ..Cores::new(2) });
        let pages: Vec<u64> = out.iter().flat_map(|batch| &batch.runs).map(|run| run.page()).skip(3).collect();
        let moves = |out: &[Batch]| -> Vec<(u32, u32)> {
            let events = out.iter().flat_map(|batch| &batch.events);
            events
                .filter_map(|(_, e)| if let Event::Migrate { thread, to } = e { Some((*thread, *to)) } else { None })
                .collect()
        };
        assert_eq!(moves(&out)[0], (2, 1));
        assert_eq!(pages[..8], [200, 201, 202, 203, 100, 101, 204, 205], "it begins where core 0 is then");
        assert!(moves(&out).len() <= 3, "{:?}", moves(&out));
        let small = [before(), vec![turn(0, 0, 15, 1000), turn(2, 100, 15, 1000)]].concat();
        assert_eq!(moves(&scheduled(small, Cores { migrate: true, ..Cores::new(2) })), [], "done before a slice");
        assert_eq!(moves(&scheduled(batches(), Cores::new(2))), []);
        let cores = Cores { migrate: true, ..Cores::new(2) };
        assert_eq!(scheduled(batches(), cores), scheduled(batches(), cores));
    }

    #[test]
    fn two_threads_advance_at_the_same_pace_on_two_cores_and_by_quanta_on_one() {
        // Both have been there before.
        let mut first = turn(1, 501, 1, 1);
        first.event(Event::Unmap { start: 600, pages: 1 });
        let batches = vec![turn(0, 500, 1, 1), first, turn(0, 0, 30, 10_000), turn(1, 100, 10, 10_000)];
        let order = |number, quantum| -> Vec<u64> {
            let batches = on_cores(batches.clone(), number, quantum);
            batches.iter().flat_map(|batch| &batch.runs).map(|run| run.page()).skip(2).collect()
        };
        let both = order(2, Cores::QUANTUM);
        assert_eq!(both[..8], [0, 1, 100, 101, 2, 3, 102, 103]);
        assert_eq!(both[38..], [28, 29]);
        let one = order(1, 50_000);
        assert_eq!(one[..11], [100, 101, 102, 103, 104, 0, 1, 2, 3, 4, 105], "thread 1 ran last, and goes on");
        assert_eq!(
            order(1, Cores::QUANTUM)[..31],
            [&(100..110).collect::<Vec<_>>()[..], &(0..21).collect::<Vec<_>>()].concat()
        );
    }

    /// Threads 0 and 2 are siblings on core 0 of two, and share its rate in small pieces; threads 1
    /// and 4 have a core, and a hardware thread, in turn.
    #[test]
    fn siblings_share_the_rate_of_their_core_in_small_pieces() {
        let order = |threads: &[u32], siblings| -> Vec<u64> {
            let turns = threads.iter().map(|thread| turn(*thread, u64::from(*thread) * 1000, 100, 250));
            let mut first: Vec<Batch> = threads.iter().map(|thread| turn(*thread, 9000, 1, 1)).collect();
            first.last_mut().expect("one").event(Event::Unmap { start: 600, pages: 1 });
            let batches = first.into_iter().chain(turns).collect();
            let out = with_siblings(batches, Cores::new(2), siblings);
            out.iter().flat_map(|batch| &batch.runs).map(|run| run.page()).filter(|page| *page != 9000).collect()
        };
        let both = order(&[0, 2], 2);
        assert_eq!(both[..8], [0, 1, 2000, 2001, 2, 3, 2002, 2003]);
        let three = order(&[0, 2, 1], 2);
        assert_eq!(three[..4], [0, 1, 2000, 2001]);
        assert_eq!(three[80..83], [1000, 1001, 1002], "after 20 000 instructions of core 0");
        assert_eq!(order(&[0, 1], 2), order(&[0, 1], 1), "a core for each");
        assert_eq!(order(&[0, 4], 2), order(&[0, 4], 1), "both on one hardware thread");
    }

    #[test]
    fn a_stream_of_one_thread_passes_unchanged() {
        let batches: Vec<Batch> = (0..5).map(|at| turn(3, at * 100, 50, 1)).collect();
        let passed = on_cores(batches.clone(), 4, 1);
        assert_eq!(passed[1..], batches[1..]);
        assert_eq!(story(&passed), story(&batches));
    }

    #[test]
    fn more_runs_than_are_held_are_parted() {
        let long = |thread, first| turn(thread, first, MOST as u64 / 2 + 1, 1);
        let batches: Vec<Batch> = vec![long(0, 0), long(1, 1 << 30), turn(0, 1 << 40, 5, 1)];
        let out = on_cores(batches.clone(), 2, Cores::QUANTUM);
        assert_eq!(out.iter().map(|batch| batch.runs.len()).sum::<usize>(), MOST + 7);
    }

    proptest! {
        /// Each thread does what it did, in its order; and what is before an event that concerns
        /// more than its thread is before it still.
        #[test]
        fn threads_and_events_keep_their_order(
            steps in prop::collection::vec((0u32..5, 0u8..6, 0u64..40, 0u32..30_000), 1..120),
            cores in 1u32..5,
            quantum in prop_oneof![Just(1), Just(100_000), Just(Cores::QUANTUM)],
            split in 1usize..9,
            (siblings, migrate) in (1u32..4, any::<bool>()),
        ) {
            let (mut batches, mut page) = (vec![Batch::default()], 0);
            for (at, (thread, what, runs, instructions)) in steps.into_iter().enumerate() {
                if at % split == 0 {
                    batches.push(Batch::default());
                }
                let batch = batches.last_mut().expect("one");
                if what != 0 || at == 0 {
                    batch.event(Event::Switch { process: ProcessId(thread / 2), thread });
                }
                match what {
                    1 => batch.event(Event::Unmap { start: page, pages: 1 }),
                    2 => batch.event(Event::Skipped { references: page, instructions: 1 << 20 }),
                    _ => {}
                }
                (0..runs).for_each(|run| batch.run(Run::new(page + run, Access::Read, 1, instructions)));
                page += runs;
            }
            batches.retain(|batch| !batch.runs.is_empty() || !batch.events.is_empty());
            let out = with_siblings(batches.clone(), Cores { number: cores, quantum, migrate }, siblings);
            let (before, after) = (story(&batches), story(&out));
            for thread in 0..5 {
                let of = |story: &[(u32, Happens)]| -> Vec<Happens> {
                    story.iter().filter(|(by, _)| *by == thread).map(|(_, what)| what.clone()).collect()
                };
                prop_assert_eq!(of(&before), of(&after));
            }
            let shared = |(_, what): &(u32, Happens)| matches!(what, Happens::Event(event) if !is_own(event));
            let parts = |story: &[(u32, Happens)]| -> Vec<usize> { story.split(shared).map(<[_]>::len).collect() };
            prop_assert_eq!(parts(&before), parts(&after));
        }
    }
}
