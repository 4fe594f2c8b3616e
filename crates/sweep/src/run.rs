//! Running the cells that are not there yet, several at a time.

use crate::cells::Cells;
use crate::damaged::{damaged, refused};
use crate::folder::Folder;
use crate::pass::{Running, pass};
use crate::{Plan, Shard, explore, merge, page, picture};
use rayon::{ThreadBuilder, ThreadPoolBuilder};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use superpage_sim::{Error, Limit, Setup, check_memory};

/// How a sweep is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most cells at a time.
    pub jobs: usize,
    /// The cells that are run.
    pub shard: Shard,
    /// Whether damaged cells, and those with an error, are removed and run again.
    pub repair: bool,
    /// What is left of memory, for all cells at a time.
    pub limits: Vec<Limit>,
    /// The command that runs the whole sweep, for the page.
    pub command: String,
}

/// Receives reports of progress.
pub trait Listener: Sync {
    /// What the user should know, a sentence without a full stop: before [`Listener::begins`].
    fn note(&self, text: &str);
    /// `cells` cells are to be run; `there` others of the shard were there already.
    fn begins(&self, cells: usize, there: usize);
    /// A cell has ended.
    fn ended(&self);
    /// Calls `work`, which is all that a thread does that runs cells: what the thread needs is made
    /// before, and ended after it.
    fn on_thread(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// What a run of a sweep has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Cells that were run now.
    pub ran: usize,
    /// Cells of the sweep that are in the folder now.
    pub there: usize,
    /// The number of rows in `rows.parquet`; `None` if cells are missing, and nothing was written.
    pub rows: Option<usize>,
    /// Rows that have an error, in words, if all are there.
    pub failed: Vec<String>,
}

/// The most cells that share one pass over their stream.
pub(crate) const PASS: usize = 8;

/// The cells that wait and those that run.
struct Queue {
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    /// Cells for which memory was short: they run at last, each alone.
    short: VecDeque<usize>,
    /// The first cell for which it was short even so.
    too_large: Option<Error>,
    failed: Option<Error>,
    ran: usize,
}

struct Work<'a> {
    plan: &'a Plan,
    folder: &'a Folder,
    options: &'a Options,
    stop: &'a AtomicBool,
    listener: &'a dyn Listener,
    queue: Mutex<Queue>,
    /// A cell has ended, so that another one may fit into memory.
    ended: Condvar,
}

/// Runs the cells of the shard that `path` does not have yet; when it has all of the sweep, writes
/// `rows.parquet` and `index.html` there. A cell that cannot be run is kept as rows with the error,
/// and the others go on. When `stop` is set this returns soon; only whole cells are kept.
///
/// # Errors
/// [`Error::Usage`]: the folder cannot be used, is of another sweep or version, or in use.
/// [`Error::Output`]: a cell that is there is damaged, or one cannot be written.
pub fn run(
    plan: &Plan,
    path: &Path,
    options: &Options,
    stop: &AtomicBool,
    listener: &dyn Listener,
) -> Result<Done, Error> {
    let Some(folder) = Folder::open(path, plan, options.shard, stop, &|note| listener.note(note))? else {
        return Ok(Done { there: there(plan, &Cells::of(path)?)?, ..Done::default() });
    };
    folder.note().into_iter().for_each(|note| listener.note(note));
    let shard_cells: Vec<usize> = (0..plan.cells.len()).filter(|place| options.shard.has(*place)).collect();
    let waiting = missing(plan, folder.cells(), &shard_cells, options.repair, (options.jobs, stop))?;
    if stop.load(Ordering::Relaxed) {
        return Ok(Done { there: there(plan, folder.cells())?, ..Done::default() });
    }
    let waiting = VecDeque::from(waiting);
    listener.begins(waiting.len(), shard_cells.len() - waiting.len());
    let jobs = options.jobs.clamp(1, waiting.len().max(1));
    let queue = Mutex::new(Queue {
        waiting,
        running: Vec::new(),
        short: VecDeque::new(),
        too_large: None,
        failed: None,
        ran: 0,
    });
    let work = Work { plan, folder: &folder, options, stop, listener, queue, ended: Condvar::new() };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs)
            .map_while(|_| std::thread::Builder::new().name("cell".into()).spawn_scoped(scope, || work.work()).ok())
            .collect();
        work.work();
        threads.into_iter().for_each(|thread| thread.join().expect("panics of cells are caught"));
    });
    let Queue { failed, too_large, ran, .. } = work.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed.or(too_large) {
        return Err(error);
    }
    finish(plan, &folder, ran, &options.command, (options.jobs, stop))
}

/// How many cells a folder has.
fn there(plan: &Plan, cells: &Cells) -> Result<usize, Error> {
    let there = cells.names()?;
    Ok(plan.cells.iter().filter(|cell| there.contains(&cell.name)).count())
}

/// Returns those of the cells at `places` that the folder does not have. With `repair` it removes
/// the files of cells that are damaged or have an error, and returns these cells too. Once `stop`
/// is set it removes nothing, and the result means nothing.
///
/// # Errors
/// [`Error::Output`] names all damaged cells; if one of them is a folder, nothing was removed. Or
/// it names one that cannot be removed.
pub(crate) fn missing(
    plan: &Plan,
    cells: &Cells,
    places: &[usize],
    repair: bool,
    (jobs, stop): (usize, &AtomicBool),
) -> Result<Vec<usize>, Error> {
    let names = cells.names()?;
    let (there, mut missing): (Vec<usize>, Vec<usize>) =
        places.iter().partition(|place| names.contains(&plan.cells[**place].name));
    // Where nothing is missing, all rows are next, which reads the cells.
    if missing.is_empty() && !repair {
        return Ok(missing);
    }
    let damaged = damaged(plan, cells, &there, repair, (jobs, stop));
    if stop.load(Ordering::Relaxed) {
        return Ok(missing);
    }
    // Superpage makes no folder there, so that one belongs to somebody else.
    let stranger = damaged.iter().any(|(place, _)| cells.is_folder(&plan.cells[*place].name));
    let passing = damaged.iter().any(|(_, unread)| unread.passing);
    if !damaged.is_empty() && (!repair || stranger || passing) {
        return Err(refused(plan, cells, &damaged));
    }
    for (place, _) in damaged {
        let name = &plan.cells[place].name;
        cells.remove(name).map_err(|problem| Error::output(cells.path(name).display(), problem))?;
        missing.push(place);
    }
    missing.sort_unstable();
    Ok(missing)
}

/// What is in the folder after `ran` cells ran; when it has all, writes what is made of them.
pub(crate) fn finish(
    plan: &Plan,
    folder: &Folder,
    ran: usize,
    command: &str,
    (jobs, stop): (usize, &AtomicBool),
) -> Result<Done, Error> {
    let there = there(plan, folder.cells())?;
    let mut done = Done { ran, there, ..Done::default() };
    if there < plan.cells.len() {
        return Ok(done);
    }
    let merged = merge::write(plan, folder, jobs, stop).map_err(|error| {
        let all: Vec<usize> = (0..plan.cells.len()).collect();
        match damaged(plan, folder.cells(), &all, false, (jobs, stop)) {
            none if none.is_empty() => error,
            some => refused(plan, folder.cells(), &some),
        }
    })?;
    if let Some(merged) = merged {
        let rows = explore::rows(plan, &merged);
        let picture = picture::picture(plan, &merged, &rows);
        let explorer = explore::explorer(plan, &merged, rows);
        folder.write("index.html", page::html(plan, &merged, explorer.as_ref(), command).as_bytes())?;
        if let Some(picture) = picture {
            folder.write("map.svg", picture.svg().as_bytes())?;
        }
        (done.rows, done.failed) = (Some(merged.rows.len()), merged.failed);
    }
    Ok(done)
}

impl Work<'_> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs cells until none waits, on this thread alone: cells are what processors share.
    fn work(&self) {
        let prepared = |thread: ThreadBuilder| {
            let mut thread = Some(thread);
            self.listener.on_thread(&mut || thread.take().into_iter().for_each(ThreadBuilder::run));
        };
        let pool = ThreadPoolBuilder::new().num_threads(1);
        if pool.build_scoped(prepared, |pool| self.cells(|cells| pool.install(|| self.keep(cells)))).is_err() {
            self.cells(|cells| self.keep(cells));
        }
    }

    /// Runs cells by `keep` until none waits.
    fn cells(&self, keep: impl Fn(&[Running]) -> Result<Ended, Error>) {
        while let Some((cells, alone)) = self.next() {
            let ended = keep(&cells);
            let mut queue = self.queue();
            queue.running.retain(|(running, _)| !cells.iter().any(|(place, _)| place == running));
            match ended {
                Ok(Ended { ran, short }) => {
                    queue.ran += ran;
                    (0..ran).for_each(|_| self.listener.ended());
                    for (place, problem) in short {
                        if alone {
                            _ = queue.too_large.get_or_insert_with(|| self.too_large(place, &problem))
                        } else {
                            queue.short.push_back(place)
                        }
                    }
                }
                Err(error) => _ = queue.failed.get_or_insert(error),
            }
            drop(queue);
            self.ended.notify_all();
        }
    }

    /// The error of a cell for which memory was short though nothing else ran.
    fn too_large(&self, place: usize, problem: &str) -> Error {
        let stream = &self.plan.streams[self.plan.stream_of(place)].name;
        Error::Memory(format!("a cell over {stream}, alone: {problem}"))
    }

    /// The next cells over one stream that fit into memory with those that run, or one for which
    /// memory was short, and whether it runs alone.
    fn next(&self) -> Option<(Vec<Running>, bool)> {
        let mut queue = self.queue();
        loop {
            if self.stop.load(Ordering::Relaxed) || queue.failed.is_some() {
                return None;
            }
            let Some(first) = queue.waiting.front().copied() else {
                if !queue.running.is_empty() && !queue.short.is_empty() {
                    queue = self.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let place = queue.short.pop_front()?;
                match self.plan.setups_of(&self.plan.cells[place]) {
                    Ok(setups) => {
                        queue.running.push((place, setups.clone()));
                        return Some((vec![(place, setups)], true));
                    }
                    Err(error) => {
                        queue.failed.get_or_insert(error);
                        return None;
                    }
                }
            };
            // Enough passes for all threads to end at about the same time.
            let most = queue.waiting.len().div_ceil(2 * self.options.jobs).clamp(1, PASS);
            let stream = self.plan.stream_of(first);
            let alike =
                queue.waiting.iter().copied().take_while(|place| self.plan.stream_of(*place) == stream).take(most);
            let cell = |place: usize| Ok((place, self.plan.setups_of(&self.plan.cells[place])?));
            let mut cells: Vec<Running> = match alike.map(cell).collect::<Result<_, Error>>() {
                Ok(cells) => cells,
                Err(error) => {
                    queue.failed = Some(error);
                    return None;
                }
            };
            while cells.len() > 1 && !self.fits(&queue.running, &cells) {
                cells.truncate(cells.len() / 2);
            }
            if queue.running.is_empty() || self.fits(&queue.running, &cells) {
                queue.waiting.drain(..cells.len());
                queue.running.extend(cells.iter().cloned());
                return Some((cells, false));
            }
            queue = self.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether these cells fit into memory with those that run.
    fn fits(&self, running: &[Running], cells: &[Running]) -> bool {
        let all: Vec<Setup> = running.iter().chain(cells).flat_map(|(_, setups)| setups).cloned().collect();
        let cores = |(place, _): &Running| self.plan.streams[self.plan.stream_of(*place)].cores;
        // None has more cores than these.
        let most = running.iter().chain(cells).filter_map(cores).max_by_key(|cores| cores.number);
        check_memory(&all, &self.plan.watch(most), &self.options.limits).is_ok()
    }

    /// Runs cells over one stream in one pass, and keeps them. Where memory runs short, half of
    /// them at a time.
    fn keep(&self, cells: &[Running]) -> Result<Ended, Error> {
        let kept = match pass(self.plan, cells, self.stop) {
            Err(Error::Memory(_)) if cells.len() > 1 => {
                let (first, second) = cells.split_at(cells.len() / 2);
                let (mut all, more) = (self.keep(first)?, self.keep(second)?);
                all.ran += more.ran;
                all.short.extend(more.short);
                return Ok(all);
            }
            Err(Error::Memory(problem)) => return Ok(Ended { ran: 0, short: vec![(cells[0].0, problem)] }),
            kept => kept?.unwrap_or_default(),
        };
        kept.iter().try_for_each(|(name, bytes)| self.folder.cells().write(name, bytes))?;
        Ok(Ended { ran: kept.len(), short: Vec::new() })
    }
}

/// How many cells of a pass were kept, and those for which memory was short, with the problem.
/// Cells that were stopped are in neither.
struct Ended {
    ran: usize,
    short: Vec<(usize, String)>,
}
