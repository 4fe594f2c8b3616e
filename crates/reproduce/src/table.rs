//! A page table that consists of nothing but entries, to time the operations of section 6.8: with
//! superpages as replicated entries or as one entry each.

use superpage_pages::{Access, Ladder, Level, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Mapped, Pmap, SpaceId, Used};

/// How a table represents a superpage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// As on the Alpha: an entry for each of its base pages, which contains the size.
    Replicated,
    /// One entry, in the array of its level.
    Single,
}

/// An entry: nothing, or a frame with rights and use bits.
#[derive(Clone, Copy)]
struct Entry {
    frame: u64,
    level: Level,
    protection: Protection,
    used: Used,
}

/// The table of one address space, over a range of pages. There is an array of entries for each
/// size, with as many entries as the range has pages of that size; replicated entries are all in
/// the first.
pub(crate) struct Table {
    form: Form,
    ladder: Ladder,
    first: Vpn,
    levels: Vec<Vec<Option<Entry>>>,
    /// Entries written.
    pub(crate) writes: u64,
    /// Entries that promotions and demotions read or wrote.
    pub(crate) traversals: u64,
}

impl Table {
    /// A table for `pages` base pages from `first`, which is aligned to the largest size.
    pub(crate) fn new(form: Form, ladder: Ladder, first: Vpn, pages: u64) -> Table {
        let levels = ladder.levels().map(|level| match (form, level) {
            (Form::Replicated, level) if level > Level::BASE => Vec::new(),
            _ => vec![None; (pages / ladder.pages(level)) as usize],
        });
        Table { form, ladder, first, levels: levels.collect(), writes: 0, traversals: 0 }
    }

    fn level(&self, size: PageSize) -> Level {
        self.ladder.level(size).expect("a size of the ladder")
    }

    /// The array and the entries in it that hold a mapping.
    fn place(&self, at: Vpn, level: Level) -> (usize, std::ops::Range<usize>) {
        let page = at - self.first;
        match self.form {
            Form::Replicated => (0, page as usize..(page + self.ladder.pages(level)) as usize),
            Form::Single => {
                let index = (page / self.ladder.pages(level)) as usize;
                (level.index(), index..index + 1)
            }
        }
    }

    fn put(&mut self, at: Vpn, level: Level, entry: Option<Entry>) {
        let (array, range) = self.place(at, level);
        self.writes += range.len() as u64;
        self.levels[array][range].fill(entry);
    }

    fn get(&self, at: Vpn, level: Level) -> Option<Entry> {
        let (array, range) = self.place(at, level);
        self.levels[array][range.start].filter(|entry| entry.level == level)
    }

    fn entry(&mut self, at: Vpn, size: PageSize) -> &mut Entry {
        let (array, range) = self.place(at, self.level(size));
        self.levels[array][range.start].as_mut().expect("a mapping where one is named")
    }

    /// A trap for the reference bit, which is protected until then, sets it.
    pub(crate) fn set_referenced(&mut self, at: Vpn, size: PageSize) {
        self.change(at, size, |entry| entry.used.referenced = true);
    }

    /// Changes a mapping and writes all its entries.
    fn change(&mut self, at: Vpn, size: PageSize, change: impl Fn(&mut Entry)) {
        let mut entry = *self.entry(at, size);
        change(&mut entry);
        self.put(at, self.level(size), Some(entry));
    }
}

impl Pmap for Table {
    fn enter(&mut self, _: SpaceId, at: Vpn, to: Mapped, access: Access) {
        let used = Used { referenced: true, modified: access == Access::Write };
        let level = self.level(to.size);
        self.put(at, level, Some(Entry { frame: to.frame.0, level, protection: to.protection, used }));
    }

    fn remove(&mut self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        let used = self.entry(at, size).used;
        self.put(at, self.level(size), None);
        used
    }

    fn protect(&mut self, _: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.change(at, size, |entry| entry.protection = protection);
    }

    fn promote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (from, to) = (self.level(from), self.level(to));
        let mut entry = self.get(at, from).expect("a mapping where a promotion begins");
        for piece in (0..self.ladder.pages(to)).step_by(self.ladder.pages(from) as usize) {
            let (array, range) = self.place(at + piece, from);
            self.traversals += range.len() as u64;
            for old in &mut self.levels[array][range] {
                let old = if self.form == Form::Single { old.take() } else { *old };
                let used = old.expect("a mapping in every piece of a promotion").used;
                entry.used.referenced |= used.referenced;
                entry.used.modified |= used.modified;
            }
        }
        entry.level = to;
        self.put(at, to, Some(entry));
    }

    fn demote(&mut self, _: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let (from, to) = (self.level(from), self.level(to));
        let entry = self.get(at, from).expect("a mapping where a demotion begins");
        if self.form == Form::Single {
            self.put(at, from, None);
        }
        for piece in (0..self.ladder.pages(from)).step_by(self.ladder.pages(to) as usize) {
            self.put(at + piece, to, Some(Entry { frame: entry.frame + piece, level: to, ..entry }));
            self.traversals += self.place(at + piece, to).1.len() as u64;
        }
    }

    fn lookup(&self, _: SpaceId, at: Vpn) -> Option<Mapped> {
        self.ladder.levels().find_map(|level| {
            let start = at.align_down(self.ladder.pages(level));
            let entry = self.get(start, level)?;
            let frame = Pfn(entry.frame + (at - start));
            Some(Mapped { frame, size: self.ladder.size(level), protection: entry.protection })
        })
    }

    fn used(&self, _: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.get(at, self.level(size)).expect("a mapping where one is named").used
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let was = self.used(space, at, size).referenced;
        if was {
            self.change(at, size, |entry| entry.used.referenced = false);
        }
        was
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        let was = self.used(space, at, size).modified;
        if was {
            self.change(at, size, |entry| entry.used.modified = false);
        }
        was
    }

    fn destroy(&mut self, _: SpaceId) {
        self.levels.iter_mut().for_each(|level| level.fill(None));
    }
}
