//! The frame allocator of Mosaic pages (Gosakan et al., ASPLOS 2023): iceberg hashing, and Horizon
//! LRU.
//!
//! A hash of its number leaves a page 104 frames to be in, so that 7 bits say which: memory is
//! divided into buckets of 64 frames, 56 of which are the front yard and 8 the back yard. A page
//! has one bucket for the front yard, and six for the back yard, one in each sixth of the buckets.
//! It takes a free frame of its front yard, or else one of the emptiest of its back yards; if all
//! are full, there is a *conflict*, and a page is evicted. A page last used before the *horizon* is
//! a *ghost*: it is evicted as soon as somebody needs its frame. Without ghosts at hand the page
//! used longest ago of all candidates goes, and the horizon moves to that time, so that everything
//! else as old becomes a ghost: as far as the choice of frames allows, memory is one LRU list.
//!
//! Sizes, number of choices, sixths and order of evictions are those of the authors' kernel
//! (`mm/iceberg.c` in the patch of the artifact, oscarlab/mosaic-asplos23-artifacts on GitHub).
//! That one hashes by xxHash64, and the paper's circuit by tabulation; here it is the mixing
//! function of SplitMix64 ([`Random::at`]). The kernel learns of uses by scanning; here each is
//! known.

use std::collections::HashMap;
use superpage_pages::Random;

/// Frames of a front yard, and of a back yard.
const FRONT: usize = 56;
const BACK: usize = 8;
pub(super) const BUCKET: usize = FRONT + BACK;
/// Back yards that a page may be in.
pub(super) const CHOICES: usize = 6;

const FRONT_FRAMES: u64 = (1 << FRONT) - 1;

/// A page in a frame, and when it was last used; times are from 1.
#[derive(Clone, Copy, Default)]
struct Held {
    page: u64,
    used: u64,
}

/// What an access found or did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placed {
    /// The page was in memory.
    Hit,
    /// It took a free frame.
    Free,
    /// All its frames held pages, and this one was evicted.
    Evicted(u64),
}

/// Memory of `buckets` buckets. An access takes about 100 ns.
pub(super) struct Iceberg {
    frames: Vec<Held>,
    /// For each bucket a bit for each of its frames that holds a page.
    used: Vec<u64>,
    places: HashMap<u64, usize>,
    keys: [u64; 1 + CHOICES],
    clock: u64,
    horizon: u64,
}

impl Iceberg {
    /// Empty memory; at least [`CHOICES`] buckets. The seed chooses the hash functions.
    pub(super) fn new(buckets: usize, seed: u64) -> Iceberg {
        let mut random = Random::new(seed);
        Iceberg {
            frames: vec![Held::default(); buckets * BUCKET],
            used: vec![0; buckets],
            places: HashMap::new(),
            keys: std::array::from_fn(|_| random.next()),
            clock: 0,
            horizon: 0,
        }
    }

    /// The percent of frames that hold a page, ghosts among them.
    pub(super) fn used_percent(&self) -> f64 {
        100.0 * self.places.len() as f64 / self.frames.len() as f64
    }

    /// The bucket of the page's front yard, and those of its back yards.
    pub(super) fn buckets(&self, page: u64) -> (usize, [usize; CHOICES]) {
        let all = self.used.len();
        let below = |choice: usize, range: usize| Random::at(self.keys[choice], page).below(range as u64) as usize;
        let back = std::array::from_fn(|i| {
            let (start, end) = (i * all / CHOICES, (i + 1) * all / CHOICES);
            start + below(1 + i, end - start)
        });
        (below(0, all), back)
    }

    /// The program uses the page.
    pub(super) fn access(&mut self, page: u64) -> Placed {
        self.clock += 1;
        if let Some(frame) = self.places.get(&page) {
            self.frames[*frame].used = self.clock;
            return Placed::Hit;
        }
        let (frame, placed) = self.choose(page);
        if let Placed::Evicted(page) = placed {
            self.places.remove(&page);
        }
        self.frames[frame] = Held { page, used: self.clock };
        self.used[frame / BUCKET] |= 1 << (frame % BUCKET);
        self.places.insert(page, frame);
        placed
    }

    /// The page's memory is freed; nothing happens if it is not in memory.
    #[cfg(test)]
    pub(super) fn free(&mut self, page: u64) {
        if let Some(frame) = self.places.remove(&page) {
            self.used[frame / BUCKET] &= !(1 << (frame % BUCKET));
        }
    }

    /// The frame for a page that has none, and what is in it.
    fn choose(&mut self, page: u64) -> (usize, Placed) {
        let (front, back) = self.buckets(page);
        let free = !self.used[front] & FRONT_FRAMES;
        if free != 0 {
            return (front * BUCKET + free.trailing_zeros() as usize, Placed::Free);
        }
        let front = self.oldest(front * BUCKET..front * BUCKET + FRONT);
        if self.frames[front].used < self.horizon {
            return (front, Placed::Evicted(self.frames[front].page));
        }
        // Of equally full ones the last, as there.
        let taken = |bucket: &&usize| (self.used[**bucket] >> FRONT).count_ones();
        let emptiest = *back.iter().rev().min_by_key(taken).expect("several choices");
        let free = !self.used[emptiest] & !FRONT_FRAMES;
        if free != 0 {
            return (emptiest * BUCKET + free.trailing_zeros() as usize, Placed::Free);
        }
        let yard = |bucket: usize| bucket * BUCKET + FRONT..(bucket + 1) * BUCKET;
        let live =
            |bucket: &&usize| self.frames[yard(**bucket)].iter().filter(|held| held.used >= self.horizon).count();
        let least = *back.iter().min_by_key(live).expect("several choices");
        let mut victim = self.oldest(yard(least));
        if self.frames[victim].used >= self.horizon {
            let back = back.iter().map(|bucket| self.oldest(yard(*bucket)));
            victim = back.chain([front]).min_by_key(|frame| self.frames[*frame].used).expect("several choices");
            self.horizon = self.frames[victim].used;
        }
        (victim, Placed::Evicted(self.frames[victim].page))
    }

    /// The frame of these, all of which hold pages, whose page was used longest ago.
    fn oldest(&self, frames: std::ops::Range<usize>) -> usize {
        frames.min_by_key(|frame| self.frames[*frame].used).expect("a yard has frames")
    }

    /// Checks that each page is in one frame, which is one of its candidates, and that nothing else
    /// is.
    #[cfg(test)]
    pub(super) fn validate(&self) {
        let held = self.used.iter().map(|used| used.count_ones() as usize).sum::<usize>();
        assert_eq!(held, self.places.len(), "pages in frames, and pages with places");
        for (page, frame) in &self.places {
            let (bucket, slot) = (frame / BUCKET, frame % BUCKET);
            let (front, back) = self.buckets(*page);
            assert!(self.used[bucket] >> slot & 1 == 1 && self.frames[*frame].page == *page, "page {page}");
            let candidate = if slot < FRONT { bucket == front } else { back.contains(&bucket) };
            assert!(candidate, "page {page} is in bucket {bucket}, slot {slot}");
            assert!((1..=self.clock).contains(&self.frames[*frame].used), "page {page}");
        }
        assert!(self.horizon <= self.clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory as lists, by the description: of each bucket the pages of its front and of its back
    /// yard, with the times of their last uses.
    struct Naive {
        front: Vec<Vec<(u64, u64)>>,
        back: Vec<Vec<(u64, u64)>>,
        now: u64,
        horizon: u64,
    }

    impl Naive {
        fn access(&mut self, page: u64, (front, back): (usize, [usize; CHOICES])) -> Placed {
            self.now += 1;
            let now = self.now;
            if let Some(held) = self.front.iter_mut().chain(&mut self.back).flatten().find(|held| held.0 == page) {
                held.1 = now;
                return Placed::Hit;
            }
            let mut old: Vec<(u64, u64)> = self.front[front].clone();
            old.sort_by_key(|held| held.1);
            if old.len() < 56 {
                self.front[front].push((page, now));
                return Placed::Free;
            }
            if old[0].1 < self.horizon {
                return self.replace(old[0].0, (page, now));
            }
            let room = back.iter().map(|bucket| 8 - self.back[*bucket].len()).max().unwrap();
            if room > 0 {
                let last = back.iter().rfind(|bucket| 8 - self.back[**bucket].len() == room).unwrap();
                self.back[*last].push((page, now));
                return Placed::Free;
            }
            let ghosts = |bucket: usize| self.back[bucket].iter().filter(|held| held.1 < self.horizon).count();
            let most = back.iter().map(|bucket| ghosts(*bucket)).max().unwrap();
            if most > 0 {
                let bucket = back.iter().find(|bucket| ghosts(**bucket) == most).unwrap();
                let oldest = self.back[*bucket].iter().min_by_key(|held| held.1).unwrap().0;
                return self.replace(oldest, (page, now));
            }
            let all = old.into_iter().chain(back.iter().flat_map(|bucket| self.back[*bucket].clone()));
            let oldest = all.min_by_key(|held| held.1).unwrap();
            self.horizon = oldest.1;
            self.replace(oldest.0, (page, now))
        }

        fn replace(&mut self, old: u64, new: (u64, u64)) -> Placed {
            *self.front.iter_mut().chain(&mut self.back).flatten().find(|held| held.0 == old).unwrap() = new;
            Placed::Evicted(old)
        }

        fn free(&mut self, page: u64) {
            self.front.iter_mut().chain(&mut self.back).for_each(|yard| yard.retain(|held| held.0 != page));
        }
    }

    /// Memory of 6 to 12 buckets, and programs of up to one and a half times as much, which also
    /// free pages.
    #[test]
    fn pages_are_placed_as_brute_force_places_them() {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let buckets = CHOICES + random.below(7) as usize;
            let (pages, freeing) = (1 + random.below(1200), 3 + random.below(200));
            let mut iceberg = Iceberg::new(buckets, seed);
            let empty = vec![Vec::new(); buckets];
            let mut naive = Naive { front: empty.clone(), back: empty, now: 0, horizon: 0 };
            for operation in 0..3000 {
                let page = random.below(pages) << 20;
                if random.below(freeing) == 0 {
                    iceberg.free(page);
                    naive.free(page);
                } else {
                    let expected = naive.access(page, iceberg.buckets(page));
                    assert_eq!(iceberg.access(page), expected, "seed {seed}, operation {operation}");
                }
                if operation % 500 == 0 {
                    iceberg.validate();
                }
            }
            iceberg.validate();
            assert_eq!(iceberg.horizon, naive.horizon, "seed {seed}");
        }
    }

    #[test]
    fn a_page_has_one_bucket_for_its_front_yard_and_one_in_each_sixth_for_its_back_yards() {
        let iceberg = Iceberg::new(600, 1);
        let mut seen = vec![[0; 2]; 600];
        for page in 0..60_000 {
            let (front, back) = iceberg.buckets(page);
            seen[front][0] += 1;
            for (i, bucket) in back.into_iter().enumerate() {
                assert!((100 * i..100 * (i + 1)).contains(&bucket), "{back:?}");
                seen[bucket][1] += 1;
            }
        }
        // Five standard deviations of a count of 100, and of one of 600.
        assert!(seen.iter().all(|[front, back]| (50..150).contains(front) && (478..722).contains(back)));
    }
}
