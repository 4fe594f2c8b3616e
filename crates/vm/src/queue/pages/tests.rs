//! The lists against plain queues of frames, after each operation.

use super::*;
use crate::queue::journal::RUN;
use alloc::collections::VecDeque;
use superpage_pages::Random;

/// The lists, and a plain list of frames for each of them, with what is kept of each frame.
struct Both {
    pages: Pages,
    queues: [VecDeque<u32>; LISTS],
    frames: Vec<(u8, bool, bool)>,
}

impl Both {
    fn new(frames: u32) -> Both {
        Both {
            pages: Pages::new(u64::from(frames), &[4]),
            queues: Default::default(),
            frames: vec![(0, false, false); frames as usize],
        }
    }

    fn list(&self, frame: u32) -> Option<List> {
        EVERY.into_iter().find(|list| self.queues[*list as usize].contains(&frame))
    }

    /// The longest part of a range, from its start, of frames that are on no list, or that are on
    /// one.
    fn part(&self, frames: Range<u32>, listed: bool) -> Range<u32> {
        frames.start..frames.clone().find(|frame| self.list(*frame).is_some() != listed).unwrap_or(frames.end)
    }

    fn take(&mut self, frame: u32) {
        self.queues.iter_mut().for_each(|queue| queue.retain(|other| *other != frame));
    }

    fn add(&mut self, frames: Range<u32>) {
        if frames.len() == 1 {
            self.pages.add(frames.start)
        } else {
            self.pages.add_run(frames.clone())
        }
        frames.clone().for_each(|frame| self.frames[frame as usize].0 = ACTIVITY);
        self.queues[List::Active as usize].extend(frames);
    }

    fn strand(&mut self, frames: Range<u32>) {
        self.pages.strand(frames.clone());
        for frame in frames {
            if self.list(frame) == Some(List::Active) {
                self.take(frame);
                self.queues[List::Unswappable as usize].push_back(frame);
            }
        }
    }

    fn put(&mut self, frame: u32, list: List) {
        self.pages.put(frame, list);
        self.take(frame);
        self.queues[list as usize].push_back(frame);
    }

    fn remove(&mut self, frame: u32) {
        self.pages.remove(frame);
        self.take(frame);
        self.frames[frame as usize] = (0, false, false);
    }

    /// One operation of any kind on the frames of a range, of which `frame` is one.
    fn step(&mut self, random: &mut Random, run: Range<u32>, frame: u32) {
        let lists = |random: &mut Random| EVERY[random.below(LISTS as u64) as usize];
        let listed = self.list(frame).is_some();
        match random.below(16) {
            0 if !listed => self.add(self.part(run, false)),
            1 => self.strand(run),
            2 => self.part(run, true).for_each(|frame| self.remove(frame)),
            3 => self.part(run, true).rev().for_each(|frame| self.remove(frame)),
            4 if listed => {
                let list = lists(random);
                self.part(run, true).for_each(|frame| self.put(frame, list));
            }
            // What the daemon does: frames from the head of a list to the tail of one.
            5..8 => {
                let (from, to) = (lists(random), lists(random));
                for _ in 0..random.below(100) {
                    let Some(frame) = self.queues[from as usize].front().copied() else { break };
                    self.put(frame, to);
                }
            }
            8 if listed => {
                self.pages.activate(frame);
                self.take(frame);
                self.queues[List::Active as usize].push_back(frame);
                self.frames[frame as usize].0 = self.frames[frame as usize].0.max(ACTIVITY);
            }
            9 => {
                let (pages, rounds) = (random.below(300), random.below(66) as u8);
                self.pages.pass(pages, rounds);
                for frame in self.queues[List::Active as usize].iter().take(pages as usize) {
                    let kept = &mut self.frames[*frame as usize];
                    (kept.0, kept.2) = (kept.0.saturating_sub(rounds), false);
                }
            }
            10 if listed => {
                let (dirty, referenced) = (random.below(2) == 0, random.below(2) == 0);
                self.pages.set_dirty(frame, dirty);
                self.pages.sampled(frame, referenced, true, 2);
                let activity = self.frames[frame as usize].0;
                let activity = if referenced { (activity + ADVANCE).min(MOST) } else { activity.saturating_sub(2) };
                self.frames[frame as usize] = (activity, dirty, referenced);
            }
            11 => self.activities(frame),
            12 if listed => self.put(frame, lists(random)),
            _ if listed => self.remove(frame),
            _ => self.add(frame..frame + 1),
        }
    }

    fn activities(&mut self, served: u32) {
        self.pages.serve(served);
        let mut expected = [0; MOST as usize + 1];
        for frame in self.queues[List::Active as usize].iter().filter(|frame| !self.pages.is_latest(**frame)) {
            expected[self.frames[*frame as usize].0 as usize] += 1;
        }
        assert_eq!(self.pages.activities(), expected);
    }

    /// Checks that both are equal. Returns the bytes held, without what does not change.
    fn check(&mut self) -> usize {
        self.pages.validate().unwrap();
        for list in EVERY {
            let queue = &self.queues[list as usize];
            assert_eq!(self.pages.count(list), queue.len() as u64);
            if list != List::Busy {
                if self.pages.arrived.is_empty() {
                    assert_eq!(self.pages.head(list), queue.front().copied());
                }
                let mut stale = HashMap::<u32, u32, FxBuildHasher>::default();
                for (frame, state) in (0..).zip(&self.pages.states) {
                    let more = self.pages.more.get(&(frame, list as u8)).copied().unwrap_or(0);
                    stale.insert(frame, u32::from(state >> (STALE + list as u32) & 1) + more);
                }
                let mut entries: Vec<u32> = self.pages.journal.iter(list as usize).collect();
                entries.retain(|frame| match stale.get_mut(frame) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        false
                    }
                    _ => true,
                });
                entries.extend(self.pages.arrived.iter().filter(|(_, other)| *other == list).map(|(frame, _)| frame));
                assert_eq!(*queue, entries, "{list:?}");
            }
        }
        for frame in 0..self.frames.len() as u32 {
            let kept = (self.pages.activity(frame), self.pages.dirty(frame), self.pages.recent(frame));
            assert_eq!(kept, self.frames[frame as usize], "frame {frame}");
        }
        self.pages.journal.metadata_bytes() + self.pages.more.allocation_size()
    }
}

#[test]
fn lists_are_plain_queues() {
    for (seed, frames, steps) in [(1, 16, 3000), (2, 700, 3000), (3, 2048, 1500), (4, 2048, 1500)] {
        let (mut random, mut both) = (Random::new(seed), Both::new(frames));
        for step in 0..steps {
            let start = random.below(u64::from(frames)) as u32;
            // Runs of all lengths, and often one that is kept as a run.
            let longest = if random.below(2) == 0 { 2 * RUN } else { 20 };
            let run = start..(start + 1 + random.below(u64::from(longest)) as u32).min(frames);
            both.step(&mut random, run, start);
            both.check();
            if step % 100 == 0 {
                for list in EVERY.into_iter().take(QUEUES) {
                    let mut reader = both.pages.start(list);
                    let read = core::iter::from_fn(|| both.pages.read(list, &mut reader));
                    assert_eq!(both.queues[list as usize], read.collect::<Vec<_>>());
                }
            }
        }
    }
}

/// A frame that goes to and fro between others leaves an entry each time.
#[test]
fn what_is_stale_stays_a_share_of_what_is_kept() {
    let frames = 16384;
    let mut both = Both::new(frames);
    both.add(0..frames / 2);
    (frames / 2..frames).for_each(|frame| both.add(frame..frame + 1));
    let mut most = 0;
    let mut random = Random::new(1);
    for step in 0..200_000 {
        let others = if step < 100_000 { 8 } else { u64::from(frames) };
        let frame = 1 + random.below(others - 1) as u32;
        let list = if step % 3 == 0 { List::Inactive } else { List::Active };
        both.pages.put(frame, list);
        most = most.max(both.pages.metadata_bytes());
    }
    both.pages.validate().unwrap();
    assert!(most < frames as usize * 9, "{most} bytes for {frames} frames");
    assert_eq!(both.pages.count(List::Active) + both.pages.count(List::Inactive), u64::from(frames));
}

/// Frames that leave while they are read are not met again, and none is passed.
#[test]
fn a_reader_passes_no_frame_while_others_leave() {
    let (mut random, frames) = (Random::new(7), 2000);
    let mut pages = Pages::new(frames, &[4]);
    (0..frames as u32).for_each(|frame| pages.add(frame));
    let (mut reader, mut met) = (pages.start(List::Active), vec![false; frames as usize]);
    while let Some(frame) = pages.read(List::Active, &mut reader) {
        met[frame as usize] = true;
        for _ in 0..random.below(3) {
            let other = random.below(frames) as u32;
            pages.put(other, List::Cache);
            met[other as usize] = true;
        }
    }
    assert!(met.into_iter().all(|met| met));
}
