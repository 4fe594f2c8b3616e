//! Each replacement once more, for all sets of a structure, with no thought for speed.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::LazyLock;
use superpage_mmu::{CustomReplacement, CustomState, EntryUse, Replacement};
use superpage_pages::Access;

/// What [`crate::naive`] asks of a replacement. Ways are numbered within their set.
pub(crate) trait Twin: Debug {
    /// The way was used, by an access of a program or by none.
    fn touch(&mut self, set: usize, way: usize, by: Option<Access>);

    /// The way was filled.
    fn fill(&mut self, set: usize, way: usize, by: Option<Access>) {
        self.touch(set, way, by);
    }

    /// The way to fill, of which the lowest invalid one is `vacant`.
    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize;

    /// The way is invalid.
    fn invalidate(&mut self, set: usize, way: usize);

    /// All ways are.
    fn flush(&mut self);
}

/// The naive twin of a replacement.
pub(crate) fn twin(replacement: Replacement, sets: usize, ways: usize) -> Box<dyn Twin> {
    match replacement {
        Replacement::Lru => Box::new(Lru(vec![(0..ways).rev().collect(); sets])),
        Replacement::RoundRobin => Box::new(RoundRobin { next: vec![0; sets], ways }),
        Replacement::Random => Box::new(Random { state: 0x9e37_79b9_7f4a_7c15, ways }),
        Replacement::TreePlru => Box::new(TreePlru { right: vec![BTreeMap::new(); sets], ways }),
        Replacement::Nru => Box::new(Nru(vec![vec![false; ways]; sets])),
        Replacement::Mru3Plru4 => Box::new(Permuted(vec![Permuted::START.to_vec(); sets])),
        Replacement::Srrip => Box::new(Srrip(vec![vec![3; ways]; sets])),
        Replacement::Itp => Box::new(Itp(vec![(0..ways).rev().map(|way| (way, None)).collect(); sets])),
        Replacement::Custom(_) => Box::new(Mru(vec![0; sets])),
    }
}

/// All replacements, and one that is given.
pub(crate) fn all() -> Vec<Replacement> {
    static GIVEN: LazyLock<CustomReplacement> =
        LazyLock::new(|| CustomReplacement { name: "mru".into(), make: |_, sets, _| Box::new(Mru(vec![0; sets])) });
    Replacement::ALL.iter().copied().chain([Replacement::Custom(&GIVEN)]).collect()
}

/// The ways that a structure may have under a replacement: all entries of one set, and the ways of
/// a larger and a smaller set. And whether it suits line caches of any number of ways.
pub(crate) fn shapes(replacement: Replacement) -> (usize, usize, usize, bool) {
    match replacement {
        Replacement::TreePlru => (64, 8, 4, false),
        Replacement::Nru | Replacement::Srrip => (64, 8, 4, true),
        Replacement::Mru3Plru4 => (12, 12, 12, false),
        _ => (128, 8, 4, true),
    }
}

/// The replacement for a level of TLBs: some are not for the first.
pub(crate) fn at_level(replacement: Replacement, level: usize) -> Replacement {
    if level == 1 && replacement.counts_each_use() { Replacement::Lru } else { replacement }
}

/// The number of ways that a set may have, next to `ways`.
pub(crate) fn nearest(replacement: Replacement, ways: usize) -> usize {
    match replacement {
        Replacement::TreePlru => ways.next_power_of_two(),
        Replacement::Mru3Plru4 => 12,
        _ => ways,
    }
}

/// Ways of each set, the one used longest ago first.
#[derive(Debug)]
struct Lru(Vec<Vec<usize>>);

impl Twin for Lru {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        self.0[set].retain(|other| *other != way);
        self.0[set].push(way);
    }

    fn victim(&mut self, set: usize, _: Option<usize>) -> usize {
        self.0[set][0]
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.0[set].retain(|other| *other != way);
        self.0[set].insert(0, way);
    }

    fn flush(&mut self) {}
}

/// The way of each set that was used last, which goes.
#[derive(Clone, Debug)]
struct Mru(Vec<usize>);

impl Twin for Mru {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        self.0[set] = way;
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or(self.0[set])
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}
}

impl CustomState for Mru {
    fn touch(&mut self, set: usize, way: usize, used: EntryUse) {
        Twin::touch(self, set, way, used.access);
    }

    fn fill(&mut self, set: usize, way: usize, used: EntryUse) {
        Twin::fill(self, set, way, used.access);
    }

    fn victim(&mut self, set: usize, _: EntryUse) -> usize {
        Twin::victim(self, set, None)
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        Twin::invalidate(self, set, way);
    }

    fn flush(&mut self) {
        Twin::flush(self);
    }

    fn copy(&self) -> Box<dyn CustomState> {
        Box::new(self.clone())
    }
}

#[derive(Debug)]
struct RoundRobin {
    next: Vec<usize>,
    ways: usize,
}

impl Twin for RoundRobin {
    fn touch(&mut self, _: usize, _: usize, _: Option<Access>) {}

    fn victim(&mut self, set: usize, _: Option<usize>) -> usize {
        let way = self.next[set];
        self.next[set] = (way + 1) % self.ways;
        way
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}
}

#[derive(Debug)]
struct Random {
    state: u64,
    ways: usize,
}

impl Twin for Random {
    fn touch(&mut self, _: usize, _: usize, _: Option<Access>) {}

    fn victim(&mut self, _: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or_else(|| {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (((self.state >> 32) * self.ways as u64) >> 32) as usize
        })
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {}
}

/// For each inner node of a set's tree, as the range of ways below it: whether the right half is to
/// go next.
#[derive(Debug)]
struct TreePlru {
    right: Vec<BTreeMap<(usize, usize), bool>>,
    ways: usize,
}

impl Twin for TreePlru {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        let (mut low, mut high) = (0, self.ways);
        while high - low > 1 {
            let middle = (low + high) / 2;
            self.right[set].insert((low, high), way < middle);
            if way < middle { high = middle } else { low = middle }
        }
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or_else(|| {
            let (mut low, mut high) = (0, self.ways);
            while high - low > 1 {
                let middle = (low + high) / 2;
                let right = self.right[set].get(&(low, high)).copied().unwrap_or(false);
                if right { low = middle } else { high = middle }
            }
            low
        })
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.right.iter_mut().for_each(BTreeMap::clear);
    }
}

/// The ways of each set that were used.
#[derive(Debug)]
struct Nru(Vec<Vec<bool>>);

impl Twin for Nru {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        let used = &mut self.0[set];
        used[way] = true;
        if used.iter().all(|used| *used) {
            used.fill(false);
            used[way] = true;
        }
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or_else(|| self.0[set].iter().position(|used| !used).unwrap_or(0))
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        self.0[set][way] = false;
    }

    fn flush(&mut self) {
        self.0.iter_mut().for_each(|used| used.fill(false));
    }
}

/// The re-reference prediction value of each way (Jaleel et al., ISCA 2010, figure 4b).
#[derive(Debug)]
struct Srrip(Vec<Vec<u8>>);

impl Twin for Srrip {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        self.0[set][way] = 0;
    }

    fn fill(&mut self, set: usize, way: usize, _: Option<Access>) {
        self.0[set][way] = 2;
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or_else(|| {
            let farthest = *self.0[set].iter().max().unwrap();
            self.0[set].iter_mut().for_each(|value| *value += 3 - farthest);
            self.0[set].iter().position(|value| *value == 3).unwrap()
        })
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.0.iter_mut().for_each(|set| set.fill(3));
    }
}

/// Each way of a set and, of what a fetch loaded, how often it was used; the next victim first.
#[derive(Debug)]
struct Itp(Vec<Vec<(usize, Option<u32>)>>);

impl Itp {
    /// Takes the way out, and puts it `from_end` steps from the last victim or, if negative, from
    /// the next one.
    fn put(&mut self, set: usize, (way, uses): (usize, Option<u32>), from_end: i64) {
        let stack = &mut self.0[set];
        stack.retain(|(other, _)| *other != way);
        let at = if from_end < 0 { -from_end - 1 } else { stack.len() as i64 - from_end };
        stack.insert(at as usize, (way, uses));
    }
}

impl Twin for Itp {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        let ways = self.0[set].len() as i64;
        let uses = self.0[set].iter().find(|(other, _)| *other == way).unwrap().1;
        match uses {
            None => self.put(set, (way, None), -1 - 2 * ways / 3),
            Some(uses) if uses < 7 => self.put(set, (way, Some(uses + 1)), ways / 3),
            Some(_) => self.put(set, (way, uses), 0),
        }
    }

    fn fill(&mut self, set: usize, way: usize, by: Option<Access>) {
        match by {
            Some(Access::Execute) => self.put(set, (way, Some(0)), self.0[set].len() as i64 / 3),
            _ => self.put(set, (way, None), -1),
        }
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or(self.0[set][0].0)
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.0.iter_mut().for_each(|set| *set = (0..set.len()).rev().map(|way| (way, None)).collect());
    }
}

/// As TLB;DR measured it on Skylake's second level (its `TLB/README.md`): a set is a list of its
/// ways, the last one goes next, and a use of the way at each position puts the list into another
/// order.
#[derive(Debug)]
struct Permuted(Vec<Vec<usize>>);

impl Permuted {
    /// The order of ways in a set in which nothing was used.
    const START: [usize; 12] = [3, 11, 7, 1, 9, 5, 2, 10, 6, 0, 8, 4];

    /// For a use at each position the positions, before it, of what stands at each afterwards.
    const ORDERS: [[usize; 12]; 12] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [1, 2, 0, 4, 5, 3, 7, 8, 6, 10, 11, 9],
        [2, 0, 1, 5, 3, 4, 8, 6, 7, 11, 9, 10],
        [3, 1, 2, 0, 4, 5, 9, 7, 8, 6, 10, 11],
        [4, 2, 0, 1, 5, 3, 10, 8, 6, 7, 11, 9],
        [5, 0, 1, 2, 3, 4, 11, 6, 7, 8, 9, 10],
        [6, 1, 2, 3, 4, 5, 0, 7, 8, 9, 10, 11],
        [7, 2, 0, 4, 5, 3, 1, 8, 6, 10, 11, 9],
        [8, 0, 1, 5, 3, 4, 2, 6, 7, 11, 9, 10],
        [9, 1, 2, 0, 4, 5, 3, 7, 8, 6, 10, 11],
        [10, 2, 0, 1, 5, 3, 4, 8, 6, 7, 11, 9],
        [11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    ];
}

impl Twin for Permuted {
    fn touch(&mut self, set: usize, way: usize, _: Option<Access>) {
        let before = self.0[set].clone();
        let at = before.iter().position(|other| *other == way).unwrap();
        self.0[set] = Permuted::ORDERS[at].iter().map(|from| before[*from]).collect();
    }

    fn victim(&mut self, set: usize, vacant: Option<usize>) -> usize {
        vacant.unwrap_or(self.0[set][11])
    }

    fn invalidate(&mut self, _: usize, _: usize) {}

    fn flush(&mut self) {
        self.0.fill(Permuted::START.to_vec());
    }
}
