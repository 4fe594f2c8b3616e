//! The mappings of a process, page by page.

use crate::Growth;
use std::collections::BTreeMap;
use superpage_pages::Protection;

/// What a process has mapped.
#[derive(Clone, Default)]
pub(super) struct Space {
    /// First page of each mapped range: the page after its last, and its rights. Ranges do not
    /// overlap.
    ranges: BTreeMap<u64, (u64, Protection)>,
    /// First page of each mapping that grows up: its end, and the rights of what is added.
    growing: BTreeMap<u64, (u64, Protection)>,
    /// The range found last, since the next access is likely to be in it.
    found: Option<Part>,
}

/// A range of pages with the same rights: its first page, the one after its last, and these.
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    end: u64,
    protection: Protection,
}

impl Space {
    /// The rights of a page; `None` if it is not mapped.
    pub(super) fn protection(&mut self, page: u64) -> Option<Protection> {
        if let Some(part) = self.found
            && (part.start..part.end).contains(&page)
        {
            return Some(part.protection);
        }
        let (start, (end, protection)) = self.ranges.range(..=page).next_back()?;
        self.found = Some(Part { start: *start, end: *end, protection: *protection });
        (page < *end).then_some(*protection)
    }

    pub(super) fn map(&mut self, start: u64, pages: u64, protection: Protection, growth: Growth) {
        self.unmap(start, pages);
        if pages != 0 {
            self.ranges.insert(start, (start + pages, protection));
        }
        if growth == Growth::Up {
            self.growing.insert(start, (start + pages, protection));
        }
    }

    /// Removes a range and returns what was mapped in it.
    fn take(&mut self, start: u64, pages: u64) -> Vec<Part> {
        self.found = None;
        if pages == 0 {
            return Vec::new();
        }
        let end = start + pages;
        let over = self.ranges.range(..end).rev().take_while(|(_, (last, _))| *last > start);
        let over: Vec<_> = over.map(|(first, (last, protection))| (*first, *last, *protection)).collect();
        over.into_iter()
            .map(|(first, last, protection)| {
                self.ranges.remove(&first);
                if first < start {
                    self.ranges.insert(first, (start, protection));
                }
                if last > end {
                    self.ranges.insert(end, (last, protection));
                }
                Part { start: first.max(start), end: last.min(end), protection }
            })
            .collect()
    }

    pub(super) fn unmap(&mut self, start: u64, pages: u64) {
        self.take(start, pages);
        let range = start..start + pages;
        self.growing.retain(|first, (end, _)| !range.contains(first) || *end > range.end);
    }

    pub(super) fn protect(&mut self, start: u64, pages: u64, protection: Protection) {
        for part in self.take(start, pages) {
            self.ranges.insert(part.start, (part.end, protection));
        }
    }

    /// Sets the length of a mapping that grows up. Returns `false` if none starts there.
    pub(super) fn grow(&mut self, start: u64, pages: u64) -> bool {
        let Some((end, protection)) = self.growing.get(&start).copied() else { return false };
        let new = start + pages;
        if new > end {
            self.map(end, new - end, protection, Growth::Fixed);
        } else {
            self.take(new, end - new);
        }
        self.growing.insert(start, (new, protection));
        true
    }

    pub(super) fn remap(&mut self, from: u64, from_pages: u64, to: u64, to_pages: u64) {
        let moved = self.take(from, from_pages);
        let Some(last) = moved.iter().max_by_key(|part| part.end).copied() else { return };
        self.unmap(to, to_pages);
        for part in moved {
            let (first, end) = (part.start - from, (part.end - from).min(to_pages));
            if first < end {
                self.ranges.insert(to + first, (to + end, part.protection));
            }
        }
        if to_pages > from_pages {
            self.ranges.insert(to + from_pages, (to + to_pages, last.protection));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_space_agrees_with_a_map_of_pages(
            steps in proptest::collection::vec((0..5_u8, 0..40_u64, 0..20_u64, 1..8_u8), 1..60),
        ) {
            // Every page by itself, and one mapping from 100 on that grows.
            let (mut space, mut pages) = (Space::default(), BTreeMap::new());
            let mut grown = 5;
            space.map(100, grown, Protection::READ, Growth::Up);
            pages.extend((100..105).map(|page| (page, Protection::READ)));
            for (step, start, length, bits) in steps {
                let (range, protection) = (start..start + length, Protection::from_bits(bits));
                match step {
                    0 => {
                        space.map(start, length, protection, Growth::Fixed);
                        pages.extend(range.map(|page| (page, protection)));
                    }
                    1 => {
                        space.unmap(start, length);
                        pages.retain(|page, _| !range.contains(page));
                    }
                    2 => {
                        space.protect(start, length, protection);
                        pages.range_mut(range).for_each(|(_, rights)| *rights = protection);
                    }
                    3 => {
                        proptest::prop_assert!(space.grow(100, length));
                        pages.retain(|page, _| !(100 + length..200).contains(page));
                        pages.extend((100 + grown..100 + length).map(|page| (page, Protection::READ)));
                        grown = length;
                    }
                    _ => {
                        // Past everything that is mapped otherwise, to a smaller length.
                        let to = 200 + start * 100;
                        space.remap(start, length, to, length / 2);
                        let moved: Vec<_> = range.filter_map(|page| Some((page, pages.remove(&page)?))).collect();
                        if !moved.is_empty() {
                            pages.retain(|page, _| !(to..to + length / 2).contains(page));
                        }
                        let moved = moved.into_iter().map(|(page, rights)| (page - start, rights));
                        pages.extend(moved.filter(|(at, _)| *at < length / 2).map(|(at, rights)| (to + at, rights)));
                    }
                }
                for page in 0..5000 {
                    proptest::prop_assert_eq!(space.protection(page), pages.get(&page).copied(), "page {}", page);
                }
            }
        }
    }
}
