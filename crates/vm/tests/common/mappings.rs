//! What is mapped where: programs map, discard, grow and move it.

use super::scenario::*;
use super::{Op, PAGES, Slot, Source, World, cuts_pool, file_number};
use superpage_pages::{Hint, PageRange, Protection, Vpn};
use superpage_vm::{Backing, Error, Growth, Map, SpaceId};

impl World {
    pub(super) fn map(&mut self, space: SpaceId, range: PageRange, protection: Protection, op: Op) {
        let PageRange { start: Vpn(start), pages } = range;
        let [_, who, _, length, flags, more] = op;
        let shared = flags & SHARED != 0;
        let growth = [Growth::Fixed, Growth::Up, Growth::Down, Growth::Fixed][(more >> 4 & 3) as usize];
        let file = flags & OF_FILE != 0;
        // Half of them aligned as the file is, in its first part, which is not past its end.
        let offset = if more & AS_FILE != 0 { start % 128 } else { u64::from(length % 32) };
        let backing =
            if file { Backing::File { file: file_number(more), pages: 200, offset } } else { Backing::Anonymous };
        let map = Map::anonymous(Vpn(start), pages).protection(protection).shared(shared);
        // A quarter of them with a hint.
        let hint = [Hint::Huge, Hint::Base][who as usize >> 5 & 1];
        let hint = if who >> 6 == 3 { hint } else { Hint::None };
        let map = map.backing(backing).growth(growth).hint(hint);
        match self.wait(|world| world.vm.map(&mut world.pmap, space, map)) {
            Err(Error::PoolPage(_) | Error::PoolShort { .. }) => return,
            done => done.unwrap(),
        }
        for page in start..start + pages {
            let source = match backing {
                Backing::Anonymous => Source::Cell { cell: self.cell(), shared },
                Backing::File { file, offset, .. } => Source::File { file, page: offset + page - start, shared },
            };
            let up = growth == Growth::Up && !file;
            self.slots(space).insert(page, Slot { source, protection, up, hint, begun: None });
        }
    }

    pub(super) fn discard(&mut self, space: SpaceId, start: u64, pages: u64) {
        if cuts_pool(self.wait(|world| world.vm.discard(&mut world.pmap, space, Vpn(start).pages(pages)))) {
            return;
        }
        for page in start..start + pages {
            let Some(slot) = self.slots(space).get(&page).copied() else { continue };
            if let Source::Cell { cell, shared: true } = slot.source {
                self.discarded.insert(cell);
            }
            let source = match slot.source {
                Source::Cell { shared: false, .. } => Source::Cell { cell: self.cell(), shared: false },
                Source::Copied { file, page, .. } => Source::File { file, page, shared: false },
                // Whether what is shared is lost depends on whether anybody else has it: see
                // `access`.
                source => source,
            };
            self.slots(space).insert(page, Slot { source, begun: None, ..slot });
        }
    }

    pub(super) fn grow(&mut self, space: SpaceId, start: u64, pages: u64) {
        let Some(slot) = self.slots(space).get(&start).filter(|slot| slot.up).copied() else {
            let nothing = !self.slots(space).contains_key(&start);
            let refused = |world: &mut World| world.vm.grow(&mut world.pmap, space, Vpn(start), pages);
            assert!(!nothing || self.attempt(refused).is_err());
            return;
        };
        let pages = pages % 200;
        // Only where a mapping starts, which protection may have moved, can it grow from.
        let grow = |world: &mut World| world.vm.grow(&mut world.pmap, space, Vpn(start), pages);
        if self.wait(grow).is_err() {
            return;
        }
        let old = (start..).find(|page| !self.slots[&space].get(page).is_some_and(|slot| slot.up)).unwrap();
        let end = start + pages;
        let last = if old > start { self.slots[&space][&(old - 1)] } else { slot };
        self.forget(space, end.min(old), end.max(old));
        // Of what is new the program has asked nothing yet.
        let last = Slot { hint: Hint::None, begun: None, ..last };
        (old..end).for_each(|page| self.extend(space, page, last, 0));
    }

    /// A page that a longer mapping added, `ahead` pages after the end of its old one.
    fn extend(&mut self, space: SpaceId, at: u64, last: Slot, ahead: u64) {
        let source = match last.source {
            Source::Cell { shared, .. } => Source::Cell { cell: self.cell(), shared },
            Source::File { file, page, shared } => Source::File { file, page: page + ahead, shared },
            Source::Copied { file, page, .. } => Source::File { file, page: page + ahead, shared: false },
        };
        self.slots(space).insert(at, Slot { source, begun: None, ..last });
    }

    pub(super) fn remap(&mut self, space: SpaceId, from: u64, from_pages: u64, op: Op) {
        let [_, _, _, length, flags, more] = op;
        let to = if more & IN_PLACE != 0 { from } else { (u64::from(length) * 8 + u64::from(flags >> 3)) % PAGES };
        let to_pages = match flags & (QUARTER | FOURFOLD) {
            _ if more & 8 != 0 => from_pages,
            QUARTER => from_pages.div_ceil(4),
            FOURFOLD => 4 * from_pages,
            _ => u64::from(more) + 1,
        };
        let (from_range, to_range) = (Vpn(from).pages(from_pages), Vpn(to).pages(to_pages));
        let remap = |world: &mut World| world.vm.remap(&mut world.pmap, space, from_range, to_range);
        if self.wait(remap).is_err() {
            return;
        }
        let moving = from_pages.min(to_pages);
        let moved: Vec<(u64, Slot)> = self.slots(space).range(from..from + moving).map(|(p, s)| (*p, *s)).collect();
        self.forget(space, from, from + from_pages);
        self.forget(space, to, to + to_pages);
        self.slots(space).extend(moved.iter().map(|(page, slot)| (page - from + to, *slot)));
        if let Some(last) = self.slots[&space].get(&(to + moving - 1)).copied() {
            (moving..to_pages).for_each(|page| self.extend(space, to + page, last, page + 1 - moving));
        }
    }
}
