//! The mappings of a program's first process, in the order in which it made them: of a recording,
//! or of a native run.

use std::collections::HashMap;
use std::ops::Range;
use superpage_trace::{Backing, Batch, Error, Event, Growth, ProcessId, Source};

/// The unit of traces.
const PAGE: u64 = 4096;

/// What a process has mapped since it executed its last program.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    made: Vec<Mapping>,
    /// Those of `made` of which something is still there.
    live: Vec<usize>,
    /// The heap, from its start to the highest end that it had.
    pub(super) heap: Range<u64>,
}

#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    rights: u8,
    file: bool,
    /// What was unmapped, from its start: allocators cut what is not aligned off what they map.
    cut: Vec<Range<u64>>,
}

impl Mapping {
    /// What two mappings of a program have in common in two runs.
    fn key(&self) -> (u64, u8, bool) {
        (self.range.end - self.range.start, self.rights, self.file)
    }
}

impl Mappings {
    /// Those of a stream's first process, to its end.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub(super) fn of(source: &mut dyn Source) -> Result<Mappings, Error> {
        let (mut mappings, mut first, mut batch) = (Mappings::default(), true, Batch::default());
        while source.fill(&mut batch)? {
            for (_, event) in &batch.events {
                match event {
                    Event::Switch { process, .. } => first = *process == ProcessId(0),
                    event if first => mappings.take(event),
                    _ => {}
                }
            }
        }
        Ok(mappings)
    }

    fn take(&mut self, event: &Event) {
        let bytes = |start: u64, pages: u64| start * PAGE..(start + pages) * PAGE;
        match event {
            Event::Exec => *self = Mappings::default(),
            Event::Map { start, pages, growth: Growth::Up, .. } => self.grow(bytes(*start, *pages)),
            Event::Map { growth: Growth::Down, .. } => {}
            Event::Map { start, pages, protection, backing, .. } => {
                self.map(bytes(*start, *pages), protection.bits(), *backing != Backing::Anonymous);
            }
            Event::Grow { start, pages } => self.grow(bytes(*start, *pages)),
            Event::Unmap { start, pages } => self.unmap(&bytes(*start, *pages)),
            Event::Remap { from, from_pages, to, to_pages } => {
                self.remap(&bytes(*from, *from_pages), bytes(*to, *to_pages));
            }
            _ => {}
        }
    }

    pub(super) fn map(&mut self, range: Range<u64>, rights: u8, file: bool) {
        self.live.push(self.made.len());
        self.made.push(Mapping { range, rights, file, cut: Vec::new() });
    }

    pub(super) fn unmap(&mut self, range: &Range<u64>) {
        let made = &mut self.made;
        self.live.retain(|index| {
            let Mapping { range: own, cut, .. } = &mut made[*index];
            let (from, to) = (range.start.max(own.start), range.end.min(own.end));
            if from < to {
                cut.push(from - own.start..to - own.start);
            }
            !(range.start <= own.start && own.end <= range.end)
        });
    }

    /// A mapping that moves or changes its length is another one from then on.
    pub(super) fn remap(&mut self, from: &Range<u64>, to: Range<u64>) {
        let holds = |index: &&usize| self.made[**index].range.contains(&from.start);
        let (rights, file) = match self.live.iter().rev().find(holds) {
            Some(index) => (self.made[*index].rights, self.made[*index].file),
            None => return,
        };
        self.unmap(from);
        self.map(to, rights, file);
    }

    /// The heap is now here.
    pub(super) fn grow(&mut self, range: Range<u64>) {
        self.heap = range.start..range.end.max(self.heap.end);
    }

    /// Bytes of all anonymous mappings, and of all files, that were ever made.
    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |file| self.made.iter().filter(|made| made.file == file).map(|made| made.key().0).sum();
        (sum(false), sum(true))
    }

    /// Where the program and its data are that precede the heap: what lies there without gaps.
    fn image(&self) -> Range<u64> {
        let mut start = self.heap.start;
        while let Some(below) = self.made.iter().find(|made| made.range.end == start) {
            start = below.range.start;
        }
        start..self.heap.start
    }

    /// How far these regions of `size` bytes lie from where they are in another run; `None` where
    /// that is not known.
    ///
    /// The heap begins where the program's data end, in both. The n-th mapping of a length, with
    /// the same rights, is the n-th there, if both runs have as many of it and have unmapped the
    /// same parts of both.
    fn shifts(&self, other: &Mappings, regions: &[u64], size: u64) -> Vec<Option<i64>> {
        let (own, others) = (self.by_key(), other.by_key());
        let (heap, image) = (&self.heap, self.image());
        let place = |region: &u64| {
            let here = *region..region + size;
            let common = |range: &Range<u64>| here.end.min(range.end).saturating_sub(here.start.max(range.start));
            let own_heap = common(heap) + common(&image);
            let index = (0..self.made.len()).rev().max_by_key(|index| common(&self.made[*index].range));
            let most = index.map_or(0, |index| common(&self.made[index].range));
            if own_heap > 0 && own_heap >= most {
                return (!other.heap.is_empty()).then(|| other.heap.start.wrapping_sub(heap.start) as i64);
            }
            let made = &self.made[index.filter(|_| most > 0)?];
            let (these, those) = (&own[&made.key()], others.get(&made.key())?);
            let at = these.iter().position(|index| std::ptr::eq(&self.made[*index], made))?;
            let there = &other.made[*those.get(at).filter(|_| these.len() == those.len())?];
            (there.cut == made.cut).then(|| there.range.start.wrapping_sub(made.range.start) as i64)
        };
        regions.iter().map(place).collect()
    }

    fn by_key(&self) -> HashMap<(u64, u8, bool), Vec<usize>> {
        let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, made) in self.made.iter().enumerate() {
            by_key.entry(made.key()).or_default().push(index);
        }
        by_key
    }

    /// Ranges in which all is anonymous memory at some time, ascending and apart.
    fn anonymous(&self) -> Vec<Range<u64>> {
        let made = self.made.iter().filter(|made| !made.file).map(|made| made.range.clone());
        let mut ranges: Vec<Range<u64>> = made.chain([self.heap.clone()]).collect();
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            last.end = if joins { last.end.max(next.end) } else { last.end };
            joins
        });
        ranges
    }

    /// The addresses of these regions in another run, in which mappings have other alignments:
    /// there, it is the region that holds most of it and can be huge. `None` where it is not known,
    /// or none can.
    pub(super) fn translate(&self, other: &Mappings, regions: &[u64], size: u64) -> Vec<Option<u64>> {
        let anonymous = other.anonymous();
        let fits = |start: u64| anonymous.iter().any(|range| range.start <= start && start + size <= range.end);
        // Data before the heap are not among the mappings of a native run.
        let before = other.heap.start.saturating_sub(self.image().end - self.image().start)..other.heap.start;
        let fits = |start: &u64| fits(*start) || before.start <= *start && start + size <= before.end;
        let at = |(region, shift): (&u64, Option<i64>)| {
            let exact = region.wrapping_add_signed(shift?);
            let (down, up) = (exact / size * size, exact.div_ceil(size) * size);
            let nearest = if exact - down <= size / 2 { [down, up] } else { [up, down] };
            nearest.into_iter().find(fits)
        };
        regions.iter().zip(self.shifts(other, regions, size)).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A process with a heap, two mappings of a length and one of another, from these addresses on.
    fn process(heap: u64, at: u64) -> Mappings {
        let mut process = Mappings::default();
        process.map(heap - 4 * MB..heap - MB, 3, true);
        process.map(heap - MB..heap, 3, false);
        process.grow(heap..heap + 8 * MB);
        process.map(at..at + 8 * MB, 3, false);
        process.map(at - 20 * MB..at - 12 * MB, 3, false);
        process.map(at + 40 * MB..at + 80 * MB, 3, false);
        process
    }

    #[test]
    fn regions_move_with_their_mappings_to_where_they_can_be_huge() {
        let (here, mut there) = (process(0x4000_0000, 0x40_0000_0000), process(0x5570_0000, 0x7f00_0010_0000));
        // No call of a native run maps the program's data.
        there.made.drain(..2);
        let regions = [0x4000_0000, 0x4020_0000, 0x40_0020_0000, 0x40_0000_0000 - 20 * MB, 0x3fe0_0000, 0x9000_0000];
        let found = here.translate(&there, &regions, 2 * MB);
        // Half of a region further: the one before, but where that begins before the mapping.
        assert_eq!(found[..3], [Some(0x5580_0000), Some(0x5580_0000), Some(0x7f00_0020_0000)]);
        assert_eq!(found[3], Some(0x7f00_0020_0000 - 20 * MB));
        assert_eq!(found[4..], [Some(0x5540_0000), None], "data before the heap, and nothing at all");
    }

    #[test]
    fn what_another_run_has_more_often_or_cuts_elsewhere_is_not_matched() {
        let (here, mut there) = (process(0x4000_0000, 0x40_0000_0000), process(0x5570_0000, 0x7f00_0000_0000));
        let regions = [0x40_0000_0000, 0x40_0000_0000 + 40 * MB];
        assert!(here.translate(&there, &regions, 2 * MB).iter().all(Option::is_some));
        there.map(0x6000_0000..0x6000_0000 + 8 * MB, 3, false);
        there.unmap(&(0x7f00_0000_0000 + 40 * MB..0x7f00_0000_0000 + 44 * MB));
        assert_eq!(here.translate(&there, &regions, 2 * MB), [None, None]);
        let mut moved = process(0x5570_0000, 0x7f00_0000_0000);
        moved.remap(&(0x7f00_0000_0000..0x7f00_0000_0000 + 8 * MB), 0x6000_0000..0x6000_0000 + 16 * MB);
        assert_eq!(here.translate(&moved, &regions, 2 * MB)[0], None);
    }

    #[test]
    fn those_of_a_stream_are_of_the_first_process_and_its_last_program() {
        let mut source = superpage_trace::workload::parse("random:bytes=32M,references=1K").unwrap();
        let mappings = Mappings::of(source.as_mut()).unwrap();
        assert_eq!(mappings.sums(), (32 * MB, 0));
    }
}
