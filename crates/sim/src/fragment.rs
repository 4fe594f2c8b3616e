//! Memory as it is before a run: fresh, with immovable pages in some extents, as on a machine that
//! has run for long, or as a real one had it.
//!
//! This is a property of the machine's memory and not of a policy: sizes that a policy does not use
//! are fragmented all the same, so all rows of a machine run in the same memory.

use crate::{Error, SnapshotFile};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use superpage_mmu::Machine;
use superpage_pages::{ExactBytes, Extent, FrameUse, Ladder, Level, PageSize, Pfn, Random};
use superpage_vm::Vm;

/// What memory holds before a run.
///
/// A share: that of the extents which hold an immovable page. Without a size it is the share of the
/// extents of *each* superpage size of the machine. The extents that are hit are packed: those of
/// the smallest size fill whole extents of the next size, and so on upward; at each size at most
/// one extent is hit in part. Memory outside them has no such pages. With a size it is the share of
/// the extents of that size, spread over memory, one page in each: smaller extents next to the page
/// are whole, and a larger extent is hit if any of its parts is.
///
/// `frag-50`: in 50 percent of the extents of 2 MB, 64 KB that can be moved, as Zhu et al.
/// (Quicksilver, USENIX ATC 2020) fragment memory.
///
/// `aged`: about 30 % of memory is taken (35 % with base pages of 16 KB, the largest for which
/// there is this), so that nothing above 64 KB is free. 5 % is immovable, a third of the pages of
/// 15 % of the blocks of 2 MB; the rest can be moved, in runs of four pages on average, as file
/// caches and programs leave them. Base pages then come from all over memory. The shares are
/// assumed: on live machines hardly a group of 16 KB is contiguous, and most is free (Navarro et
/// al., section 6.5: a quarter of an hour of use suffices).
///
/// A file: frame by frame as the memory of a machine was ([`SnapshotFile`]); base pages then come
/// from all over what is free. Any text that is none of the others, and has a `/` or is the name of
/// a file, is the path of one, which is read at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fragment {
    /// What occupies memory before the run.
    pub state: State,
    /// The size of the extents; `None`: each superpage size.
    pub size: Option<PageSize>,
    /// The share of them, from 0 to 1.
    pub share: f64,
}

/// What occupies memory before a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Immovable ones.
    #[default]
    Immovable,
    /// Some that can be moved, in extents of 2 MB.
    Movable,
    /// Both, all over memory.
    Aged,
    /// Those of a machine.
    File(Arc<SnapshotFile>),
}

impl FromStr for Fragment {
    type Err = String;

    fn from_str(text: &str) -> Result<Fragment, String> {
        if text == "aged" {
            return Ok(Fragment { state: State::Aged, ..Fragment::default() });
        }
        if let Some(percent) = text.strip_prefix("frag-") {
            let percent = percent.parse::<u8>().ok().filter(|percent| *percent <= 100);
            let percent = percent.ok_or_else(|| format!("{text}: expected a whole percentage, as in frag-50"))?;
            return Ok(Fragment { state: State::Movable, size: None, share: f64::from(percent) / 100.0 });
        }
        let number = |text: &str| text.parse::<f64>().is_ok();
        if !number(text) && (text.contains('/') || Path::new(text).is_file()) {
            let state = State::File(Arc::new(SnapshotFile::read(text)?));
            return Ok(Fragment { state, ..Fragment::default() });
        }
        let (size, share) = match text.split_once(':') {
            Some((size, share)) => (Some(size.parse::<PageSize>().map_err(|error| format!("{size}: {error}"))?), share),
            None => (None, text),
        };
        match share.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Fragment { state: State::Immovable, size, share }),
            _ => Err(format!(
                "{share}: expected a share from 0 to 1, SIZE:SHARE such as 2M:0.5, frag-50, aged, or a file of \
                 `superpage inspect --system --memory-state`"
            )),
        }
    }
}

impl fmt::Display for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.state, self.size) {
            (State::File(file), _) => f.write_str(file.path()),
            (State::Aged, _) => f.write_str("aged"),
            (State::Movable, _) => write!(f, "frag-{}", (self.share * 100.0).round()),
            (State::Immovable, Some(size)) => write!(f, "{size}:{}", self.share),
            (State::Immovable, None) => write!(f, "{}", self.share),
        }
    }
}

impl Fragment {
    /// Whether memory is not fresh.
    fn is_any(&self) -> bool {
        self.share > 0.0 || matches!(self.state, State::Aged | State::File(_))
    }

    /// The file that memory is as in, if there is one.
    pub fn file(&self) -> Option<&SnapshotFile> {
        match &self.state {
            State::File(file) => Some(file),
            _ => None,
        }
    }

    /// The bytes of memory: those of the file, if there is one (an error if `asked` differs), else
    /// `asked`.
    pub(crate) fn memory(&self, asked: Option<u64>, machine: &Machine) -> Result<Option<u64>, Error> {
        let Some(file) = self.file() else { return Ok(asked) };
        let (path, base, own) = (file.path(), machine.ladder().base(), file.snapshot().base());
        if own != base {
            return Err(Error::Usage(format!(
                "machine {}: its base pages are of {base}, and {path}:1 says {own}: take a machine with base pages of \
                 {own}, or the memory of one with {base}",
                machine.name
            )));
        }
        let bytes = file.bytes();
        if let Some(asked) = asked.filter(|asked| *asked != bytes) {
            return Err(Error::Usage(format!(
                "memory of {} is not that of {path}, {}: leave out --memory (in a sweep, memory is \"own\")",
                ExactBytes(asked),
                ExactBytes(bytes)
            )));
        }
        Ok(Some(bytes))
    }

    /// The state in a word: `fresh`, or as it is written.
    pub(crate) fn name(&self) -> String {
        if self.is_any() { self.to_string() } else { "fresh".into() }
    }

    /// Checks that the machine has superpages of the size, if one is given.
    pub(crate) fn check(&self, machine: &Machine) -> Result<(), Error> {
        let ladder = machine.ladder();
        if self.state == State::Aged && ladder.base().bytes() > 16 << 10 {
            let problem = format!("its base pages of {} are too large for memory in pieces of 64 KB", ladder.base());
            return Err(Error::Usage(format!("machine {}: fragment aged: {problem}", machine.name)));
        }
        if !(0.0..=1.0).contains(&self.share) {
            return Err(Error::Usage(format!("fragment {self}: expected a share from 0 to 1")));
        }
        match self.size {
            Some(size) if ladder.level(size).is_none_or(|level| level == Level::BASE) => {
                let problem = format!("it has no superpages of {size}, its sizes are {ladder}");
                Err(Error::Usage(format!("machine {}: fragment {self}: {problem}", machine.name)))
            }
            _ => Ok(()),
        }
    }
}

/// The result of fragmentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fragmented {
    /// For each superpage size of which memory has an extent: the number of its extents with such a
    /// page, and of all.
    pub(crate) extents: Vec<(PageSize, u64, u64)>,
    /// Immovable pages.
    pub(crate) pages: u64,
    /// Pages that can be moved.
    pub(crate) movable: u64,
}

impl Fragmented {
    /// The share of the extents of each size that have such a page.
    pub(crate) fn shares(&self) -> Vec<(PageSize, f64)> {
        self.extents.iter().map(|(size, hit, all)| (*size, *hit as f64 / *all as f64)).collect()
    }
}

/// Takes pages of fresh memory as `fragment` says; `ladder` is the machine's.
pub(crate) fn fragment(
    vm: &mut Vm,
    ladder: &Ladder,
    frames: u64,
    fragment: &Fragment,
    seed: u64,
) -> Result<Fragmented, superpage_vm::Error> {
    if !fragment.is_any() || fragment.state == State::Immovable && ladder.len() == 1 {
        return Ok(Fragmented::default());
    }
    let mut random = Random::new(seed ^ 0x5eed);
    let (wired, held) = match &fragment.state {
        State::Immovable => (immovable(ladder, frames, fragment, &mut random), Vec::new()),
        State::Movable => (Vec::new(), movable(ladder, frames, fragment.share, &mut random)),
        State::Aged => aged(ladder, frames, &mut random),
        State::File(file) => taken(file, frames),
    };
    for frame in &wired {
        vm.wire(Extent { start: Pfn(*frame), level: Level::BASE })?;
    }
    held.iter().try_for_each(|frame| vm.hold(Pfn(*frame)))?;
    if matches!(fragment.state, State::Aged | State::File(_)) {
        vm.scatter(random.next())?;
    }
    let (pages, movable) = (wired.len() as u64, held.len() as u64);
    let mut taken = [wired, held].concat();
    taken.sort_unstable();
    let extents = ladder.levels().skip(1).filter(|level| frames >= ladder.pages(*level)).map(|level| {
        let whole = frames / ladder.pages(level);
        let mut hit: Vec<u64> = taken.iter().map(|frame| frame / ladder.pages(level)).collect();
        hit.dedup();
        (ladder.size(level), hit.iter().filter(|extent| **extent < whole).count() as u64, whole)
    });
    Ok(Fragmented { extents: extents.collect(), pages, movable })
}

/// So many of the extents of `0..all`, each choice equally likely: selection sampling.
fn chosen(all: u64, mut left: u64, random: &mut Random) -> Vec<u64> {
    let mut taken = |extent: &u64| {
        let taken = random.next() % (all - extent) < left;
        left -= u64::from(taken);
        taken
    };
    (0..all).filter(&mut taken).collect()
}

/// The number of base pages in `bytes`, at least one.
fn base_pages(ladder: &Ladder, bytes: u64) -> u64 {
    (bytes >> ladder.base().shift()).max(1)
}

/// 64 KB in a share of the extents of 2 MB.
fn movable(ladder: &Ladder, frames: u64, share: f64, random: &mut Random) -> Vec<u64> {
    let (block, piece) = (base_pages(ladder, 2 << 20), base_pages(ladder, 64 << 10));
    let all = frames / block;
    let blocks = chosen(all, (share * all as f64).round() as u64, random);
    let starts = blocks.into_iter().map(|at| at * block + random.next() % (block / piece) * piece);
    starts.flat_map(|start| start..start + piece).collect()
}

/// Immovable frames, and others that somebody has: see [`Fragment`].
fn aged(ladder: &Ladder, frames: u64, random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let (block, most) = (base_pages(ladder, 2 << 20), base_pages(ladder, 128 << 10));
    let tainted = chosen(frames / block, (frames / block * 15).div_ceil(100), random);
    let inside = tainted.into_iter().flat_map(|at| at * block..(at + 1) * block);
    let wired: Vec<u64> = inside.filter(|_| random.next().is_multiple_of(3)).collect();
    let (mut held, mut taken, mut other) = (Vec::new(), false, wired.iter().copied().peekable());
    // Since which frame all are free.
    let mut free = 0;
    for frame in 0..frames {
        if frame % most == 0 {
            free = frame;
        }
        // Runs of 4 that are taken and of 12 that are free, on average.
        taken = if taken { !random.next().is_multiple_of(4) } else { random.next().is_multiple_of(12) };
        if other.next_if_eq(&frame).is_some() {
            free = frame + 1;
        } else if taken || free % most == 0 && frame - free + 1 == most {
            held.push(frame);
            free = frame + 1;
        }
    }
    (wired, held)
}

/// The immovable and the movable frames in use among the first `frames` of a snapshot; a kernel
/// model keeps the rest.
fn taken(file: &SnapshotFile, frames: u64) -> (Vec<u64>, Vec<u64>) {
    let of = |wanted: FrameUse| {
        let runs = file.snapshot().runs().filter(move |(of, _)| *of == wanted);
        runs.flat_map(|(_, run)| run).take_while(|frame| *frame < frames).collect()
    };
    (of(FrameUse::Immovable), of(FrameUse::Movable))
}

/// One frame in each of the extents that `fragment` names.
fn immovable(ladder: &Ladder, frames: u64, fragment: &Fragment, random: &mut Random) -> Vec<u64> {
    let level = fragment.size.and_then(|size| ladder.level(size)).unwrap_or(Level::BASE.up());
    let (pages, all) = (ladder.pages(level), frames / ladder.pages(level));
    let wanted = (fragment.share * all as f64).round() as u64;
    let extents = match fragment.size {
        None => {
            let (wanted, order) = (wanted as usize, Vec::with_capacity(wanted as usize));
            let mut visit = Visit { ladder, wanted, random, order };
            visit.within(ladder.largest(), 0..frames);
            visit.order
        }
        Some(_) => chosen(all, wanted, random),
    };
    extents.iter().map(|extent| extent * pages + random.next() % pages).collect()
}

/// A visit of the extents of the smallest superpage size, in a random order within each larger one.
struct Visit<'a> {
    ladder: &'a Ladder,
    /// How many are visited.
    wanted: usize,
    random: &'a mut Random,
    /// Those that were visited so far.
    order: Vec<u64>,
}

impl Visit<'_> {
    /// Visits the extents of `level` among the frames in a random order, and recursively within
    /// each. A partial extent at the end counts as one.
    fn within(&mut self, level: Level, frames: std::ops::Range<u64>) {
        let pages = self.ladder.pages(level);
        let smallest = level == Level::BASE.up();
        let count =
            if smallest { (frames.end - frames.start) / pages } else { (frames.end - frames.start).div_ceil(pages) };
        let mut extents: Vec<u64> = (0..count).map(|extent| frames.start + extent * pages).collect();
        // Fisher and Yates.
        for at in (1..extents.len()).rev() {
            extents.swap(at, (self.random.next() % (at as u64 + 1)) as usize);
        }
        for start in extents {
            if self.order.len() == self.wanted {
                return;
            }
            if smallest {
                self.order.push(start / pages)
            } else {
                self.within(level.down(), start..frames.end.min(start + pages))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;
    use superpage_vm::{Config, Policy};

    fn fragmented(sizes: &[&str], frames: u64, text: &str) -> Fragmented {
        let sizes: Vec<PageSize> = sizes.iter().map(|size| size.parse().unwrap()).collect();
        let ladder = Ladder::new(&sizes).unwrap();
        let policy = Policy::named("base").unwrap();
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).unwrap();
        let found = fragment(&mut vm, &ladder, frames, &text.parse().unwrap(), 1).unwrap();
        for (level, (_, hit, all)) in ladder.levels().skip(1).zip(&found.extents) {
            let whole = (0..*all).map(|extent| Extent { start: Pfn(extent * ladder.pages(level)), level });
            assert_eq!(whole.filter(|extent| !vm.buddy().is_free(*extent)).count() as u64, *hit);
        }
        found
    }

    #[test]
    fn a_share_is_that_of_every_size() {
        // 4 GB and a half: of 4, 2304 and 73728 extents.
        let frames = (4 << 18) + (1 << 17);
        for (share, counts) in [("0.5", [36864, 1152]), ("0.25", [18432, 576]), ("1", [73728, 2304])] {
            let found = fragmented(&["4K", "64K", "2M", "1G"], frames, share);
            let hit: Vec<u64> = found.extents.iter().map(|(_, hit, _)| *hit).collect();
            assert_eq!((hit[0], hit[1], found.pages), (counts[0], counts[1], counts[0]), "{share}");
            let expected = share.parse::<f64>().unwrap() * 4.0;
            assert!((hit[2] as f64 - expected).abs() <= 1.0, "{share}: {}", hit[2]);
        }
        assert_eq!(fragmented(&["4K", "2M", "1G"], 1 << 17, "1").extents, [("2M".parse().unwrap(), 256, 256)]);
        assert_eq!(fragmented(&["4K", "2M", "1G"], 1 << 17, "0"), Fragmented::default());
    }

    #[test]
    fn a_size_that_is_named_is_hit_as_often_as_asked_for() {
        let found = fragmented(&["8K", "64K", "512K", "4M"], 1 << 16, "4M:0.5");
        let hit: Vec<u64> = found.extents.iter().map(|(_, hit, _)| *hit).collect();
        assert_eq!((hit, found.pages), (vec![64, 64, 64], 64));
        let found = fragmented(&["4K", "64K", "2M"], 1 << 16, "64K:0.1");
        assert_eq!(found.extents[0].1, 410);
        assert!(found.extents[1].1 > 100, "spread over memory");
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["0", "0.5", "2M:0.25", "1", "frag-0", "frag-50", "frag-100", "aged"] {
            assert_eq!(text.parse::<Fragment>().unwrap().to_string(), text);
        }
        for text in ["2", "-1", "nan", "2M", "3K:0.5", "2M:2", "", "frag-101", "frag-", "frag-0.5", "old"] {
            assert!(text.parse::<Fragment>().is_err(), "{text}");
        }
    }

    #[test]
    fn half_of_the_blocks_have_64_kb() {
        let frames = 1 << 17;
        for (text, share) in [("frag-0", 0), ("frag-50", 128), ("frag-100", 256)] {
            let found = fragmented(&["4K", "2M"], frames, text);
            assert_eq!((found.pages, found.movable), (0, 16 * share), "{text}");
            assert_eq!(found.extents.first().map_or(0, |(_, hit, _)| *hit), share, "{text}");
        }
    }

    #[test]
    fn aged_memory_is_free_in_pieces_of_64_kb_at_most() {
        for (sizes, frames, level) in
            [(["4K", "64K", "128K", "2M"], 1 << 17, 2), (["8K", "64K", "128K", "4M"], 1 << 16, 2)]
        {
            let found = fragmented(&sizes, frames, "aged");
            let (_, hit, all) = found.extents[level - 1];
            assert_eq!(hit, all, "no 128 KB are free");
            let (_, hit, all) = found.extents[0];
            assert!(hit < all * 9 / 10, "some 64 KB are: {hit} of {all}");
            let taken = (found.pages + found.movable) as f64 / frames as f64;
            assert!((0.27..0.33).contains(&taken), "{taken}");
            let immovable = found.pages as f64 / frames as f64;
            assert!((0.04..0.06).contains(&immovable), "{immovable}");
        }
    }

    #[test]
    fn the_frames_of_a_file_are_those_that_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine.memory").display().to_string();
        let (frames, mut random) = (1 << 14, Random::new(7));
        let uses = [FrameUse::Free, FrameUse::Movable, FrameUse::Immovable];
        let all: Vec<FrameUse> = (0..frames / 4).flat_map(|_| [uses[(random.next() % 3) as usize]; 4]).collect();
        let mut snapshot = Snapshot::new("4K".parse().unwrap(), "2M".parse().unwrap(), "6.18", "now");
        all.chunks(512).for_each(|block| snapshot.push(block));
        std::fs::write(&path, snapshot.to_string()).unwrap();
        let state: Fragment = path.parse().unwrap();
        assert_eq!((state.to_string(), state.name()), (path.clone(), path.clone()));
        let ladder = Ladder::new(&["4K", "2M"].map(|size| size.parse().unwrap())).unwrap();
        // All of it, and what a model of the kernel leaves.
        for frames in [frames, frames - 700] {
            let policy = Policy::named("base").unwrap();
            let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).unwrap();
            let found = fragment(&mut vm, &ladder, frames, &state, 1).unwrap();
            let held: Vec<u64> = vm.held().map(|frame| frame.0).collect();
            for frame in 0..frames {
                let free = vm.buddy().is_free(Extent { start: Pfn(frame), level: Level::BASE });
                let of = match (free, held.binary_search(&frame).is_ok()) {
                    (true, _) => FrameUse::Free,
                    (false, true) => FrameUse::Movable,
                    (false, false) => FrameUse::Immovable,
                };
                assert_eq!(of, all[frame as usize], "{frame}");
            }
            let count = |wanted| all[..frames as usize].iter().filter(|of| **of == wanted).count() as u64;
            assert_eq!((found.pages, found.movable), (count(FrameUse::Immovable), count(FrameUse::Movable)));
            assert_eq!(vm.buddy().free_frames(), count(FrameUse::Free));
        }
        let error = format!("{}/none", folder.path().display()).parse::<Fragment>().unwrap_err();
        assert!(error.contains("/none") && error.contains("--memory-state"), "{error}");
    }
}
