//! Memory that is fragmented before a run: immovable pages, one in each of some extents.
//!
//! This is a property of the machine's memory and not of a policy: sizes that a policy does not use are fragmented all
//! the same, so all rows of a machine run in the same memory.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use superpage_mmu::Machine;
use superpage_pages::{Extent, Ladder, Level, PageSize, Pfn, Random};
use superpage_vm::Vm;

/// Which extents of memory hold an immovable page before a run.
///
/// Without a size it is the share of the extents of *each* superpage size of the machine: the extents of the smallest
/// size that hold one fill extents of the next size, and those the extents of the size above, except for one of each
/// that holds the rest; memory outside them has no such pages. With a size it is the share of the extents of that size,
/// spread over memory, one page in each: smaller extents beside the page are whole, and a larger one is not if any of
/// its parts is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fragment {
    /// The size of the extents; `None`: each superpage size.
    pub size: Option<PageSize>,
    /// The share of them, from 0 to 1.
    pub share: f64,
}

impl FromStr for Fragment {
    type Err = String;

    fn from_str(text: &str) -> Result<Fragment, String> {
        let (size, share) = match text.split_once(':') {
            Some((size, share)) => (Some(size.parse::<PageSize>().map_err(|error| format!("{size}: {error}"))?), share),
            None => (None, text),
        };
        match share.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Fragment { size, share }),
            _ => Err(format!("{share}: expected a share from 0 to 1, or SIZE:SHARE such as 2M:0.5")),
        }
    }
}

impl fmt::Display for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{size}:{}", self.share),
            None => write!(f, "{}", self.share),
        }
    }
}

impl Fragment {
    /// Checks that the machine has superpages of the size, if one is given.
    pub(crate) fn check(&self, machine: &Machine) -> Result<(), Error> {
        let ladder = machine.ladder();
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
    /// For each superpage size of which memory has an extent: the number of its extents with an immovable page, and of
    /// all.
    pub(crate) extents: Vec<(PageSize, u64, u64)>,
    /// Immovable pages.
    pub(crate) pages: u64,
}

impl Fragmented {
    /// The share of the extents of each size that have an immovable page.
    pub(crate) fn shares(&self) -> Vec<(PageSize, f64)> {
        self.extents.iter().map(|(size, hit, all)| (*size, *hit as f64 / *all as f64)).collect()
    }
}

/// Wires pages of fresh memory as `fragment` says; `ladder` is the machine's.
pub(crate) fn fragment(
    vm: &mut Vm,
    ladder: &Ladder,
    frames: u64,
    fragment: Fragment,
    seed: u64,
) -> Result<Fragmented, superpage_vm::Error> {
    if fragment.share == 0.0 || ladder.len() == 1 {
        return Ok(Fragmented::default());
    }
    let mut random = Random::new(seed ^ 0x5eed);
    let level = fragment.size.and_then(|size| ladder.level(size)).unwrap_or(Level::BASE.up());
    let (pages, all) = (ladder.pages(level), frames / ladder.pages(level));
    let mut left = (fragment.share * all as f64).round() as u64;
    let chosen: Vec<u64> = match fragment.size {
        None => {
            let (wanted, order) = (left as usize, Vec::with_capacity(left as usize));
            let mut visit = Visit { ladder, wanted, random: &mut random, order };
            visit.within(ladder.largest(), 0..frames);
            visit.order
        }
        // Selection sampling: exactly so many of those that are left, each choice equally likely.
        Some(_) => (0..all)
            .filter(|extent| {
                let taken = random.next() % (all - extent) < left;
                left -= u64::from(taken);
                taken
            })
            .collect(),
    };
    let mut wired: Vec<u64> = chosen.iter().map(|extent| extent * pages + random.next() % pages).collect();
    wired.sort_unstable();
    for frame in &wired {
        vm.wire(Extent { start: Pfn(*frame), level: Level::BASE })?;
    }
    let extents = ladder.levels().skip(1).filter(|level| frames >= ladder.pages(*level)).map(|level| {
        let whole = frames / ladder.pages(level);
        let mut hit: Vec<u64> = wired.iter().map(|frame| frame / ladder.pages(level)).collect();
        hit.dedup();
        (ladder.size(level), hit.iter().filter(|extent| **extent < whole).count() as u64, whole)
    });
    Ok(Fragmented { extents: extents.collect(), pages: wired.len() as u64 })
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
    /// Visits the extents of `level` among the frames in a random order, and recursively within each. A partial extent at
    /// the end counts as one.
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
            match smallest {
                true => self.order.push(start / pages),
                false => self.within(level.down(), start..frames.end.min(start + pages)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_vm::{Config, Policy};

    fn fragmented(sizes: &[&str], frames: u64, text: &str) -> Fragmented {
        let sizes: Vec<PageSize> = sizes.iter().map(|size| size.parse().unwrap()).collect();
        let ladder = Ladder::new(&sizes).unwrap();
        let policy = Policy::named("base").unwrap();
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).unwrap();
        let found = fragment(&mut vm, &ladder, frames, text.parse().unwrap(), 1).unwrap();
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
        for text in ["0", "0.5", "2M:0.25", "1"] {
            assert_eq!(text.parse::<Fragment>().unwrap().to_string(), text);
        }
        for text in ["2", "-1", "nan", "2M", "3K:0.5", "2M:2", ""] {
            assert!(text.parse::<Fragment>().is_err(), "{text}");
        }
    }
}
