//! What a process requests: map, unmap, protect, advise, discard, grow, remap, and an address for a
//! new mapping.

use crate::object::{Growth, Object, ObjectId};
use crate::space::{Entry, Pooled};
use crate::vm::Vm;
use crate::{Error, PAGES_LIMIT, Pmap, Prefer, SpaceId};
use core::ops::Range;
use superpage_pages::{Hint, Level, PageRange, Protection, Vpn};

/// What backs a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zero-filled memory.
    Anonymous,
    /// A file, whose pages all its mappings share.
    File {
        /// The number of the file.
        file: u32,
        /// The length of the file, in base pages, rounded up.
        pages: u64,
        /// The first mapped page of the file.
        offset: u64,
    },
}

/// A mapping to be made: [`Map::anonymous`] or [`Map::file`], then adjusted through the methods or
/// the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Map {
    /// The first page.
    pub start: Vpn,
    /// The number of base pages.
    pub pages: u64,
    /// The rights.
    pub protection: Protection,
    /// Whether others that map the same object see writes.
    pub shared: bool,
    /// What backs it.
    pub backing: Backing,
    /// How the object may change its size. A file object is fixed, whatever this says.
    pub growth: Growth,
    /// What the program asks for; the policy decides what comes of it ([`Hints`](crate::Hints)).
    pub hint: Hint,
}

impl Map {
    /// Private, zero-filled, readable and writable memory of fixed size.
    pub const fn anonymous(start: Vpn, pages: u64) -> Map {
        let (protection, backing) = (Protection::READ_WRITE, Backing::Anonymous);
        Map { start, pages, protection, shared: false, backing, growth: Growth::Fixed, hint: Hint::None }
    }

    /// Readable and writable pages of a file from `offset` on, which has `file_pages` of them.
    /// Private: the process' writes do not reach the file.
    pub const fn file(start: Vpn, pages: u64, file: u32, file_pages: u64, offset: u64) -> Map {
        Map { backing: Backing::File { file, pages: file_pages, offset }, ..Map::anonymous(start, pages) }
    }

    /// Sets the rights.
    pub const fn protection(self, protection: Protection) -> Map {
        Map { protection, ..self }
    }

    /// Sets whether others that map the same object see writes.
    pub const fn shared(self, shared: bool) -> Map {
        Map { shared, ..self }
    }

    /// Sets what backs it.
    pub const fn backing(self, backing: Backing) -> Map {
        Map { backing, ..self }
    }

    /// Sets how the object may change its size.
    pub const fn growth(self, growth: Growth) -> Map {
        Map { growth, ..self }
    }

    /// What the program asks for.
    pub const fn hint(self, hint: Hint) -> Map {
        Map { hint, ..self }
    }
}

/// The first page of a range and the one after its last.
fn bounds(PageRange { start, pages }: PageRange) -> Result<(u64, u64), Error> {
    match start.0.checked_add(pages) {
        Some(end) if pages > 0 && end <= PAGES_LIMIT => Ok((start.0, end)),
        _ => Err(Error::Range { start: start.0, pages }),
    }
}

impl Vm {
    /// Makes a mapping; whatever it overlaps is unmapped first. If the policy has a static pool and
    /// the mapping is one that uses it, the pages of the pool that lie whole in it are reserved.
    /// Private memory of fixed size becomes part of the object of a neighbour that differs in
    /// nothing, so that a superpage may lie in both. O(log mappings) plus the cost of unmapping.
    ///
    /// # Errors
    /// The address space does not exist, the range, in memory or in the file, is empty or too long,
    /// or an overlapped page is busy; [`Error::PoolPage`] if it would cut a page of the pool,
    /// [`Error::PoolShort`] if too few are left and the policy does not fall back.
    pub fn map(&mut self, pmap: &mut impl Pmap, space: SpaceId, map: Map) -> Result<(), Error> {
        let (start, end) = bounds(map.start.pages(map.pages))?;
        if let Backing::File { pages, offset, .. } = map.backing {
            bounds(Vpn(offset).pages(map.pages))?;
            bounds(Vpn(0).pages(pages))?;
        }
        self.none_busy(space, start..end, None)?;
        self.refuse_cut_of_pool(space, start, end)?;
        let part = self.part_of_pool(pmap, &map);
        let pooled = part.as_ref().map(|part| self.reserve_part(part)).transpose()?.flatten();
        self.unmap(pmap, space, map.start.pages(map.pages))?;
        // What an ended process shared may be continued.
        self.spaces.own_again(&self.objects, space);
        match part.zip(pooled) {
            Some((part, pooled)) => {
                for (ends, pooled) in
                    [(start..part.start, Pooled::Not), (part.clone(), pooled), (part.end..end, Pooled::Not)]
                {
                    if !ends.is_empty() {
                        let range = Vpn(ends.start).pages(ends.end - ends.start);
                        self.put_new(space, Map { start: range.start, pages: range.pages, ..map }, pooled);
                    }
                }
            }
            None => self.put_new(space, map, Pooled::Not),
        }
        self.spaces.join(&mut self.objects, space, start);
        self.spaces.join(&mut self.objects, space, end);
        self.policy.mapped(space, map.start.pages(map.pages));
        Ok(())
    }

    /// Puts the entry of a new mapping where nothing is.
    fn put_new(&mut self, space: SpaceId, map: Map, pooled: Pooled) {
        let (start, end) = (map.start.0, map.start.0 + map.pages);
        let Map { protection, shared, .. } = map;
        let hint = self.policy.answers.place.asked(map.hint);
        let prefer = self.spaces.get_mut(space).prefer;
        let of = |object, offset, copy, growth| Entry {
            start,
            end,
            object,
            offset,
            protection,
            shared,
            copy,
            growth,
            hint,
            prefer,
            pooled,
        };
        let entry = match map.backing {
            Backing::Anonymous => {
                return self.spaces.put_anonymous(&mut self.objects, space, of(ObjectId(0), start, false, map.growth));
            }
            Backing::File { file, pages, offset } => {
                of(self.objects.file(file, pages), offset, !map.shared, Growth::Fixed)
            }
        };
        self.objects.get_mut(entry.object).entries += 1;
        self.spaces.get_mut(space).put(entry);
    }

    /// Unmaps a range; holes are no error. Superpages that cross its ends are demoted as far as
    /// needed. Pages that nobody else can reach are freed. O(pages mapped there).
    ///
    /// # Errors
    /// The address space does not exist, the range is empty or too long, a page there is busy
    /// ([`Error::Busy`]), or it would cut a page of the static pool ([`Error::PoolPage`]).
    pub fn unmap(&mut self, pmap: &mut impl Pmap, space: SpaceId, range: PageRange) -> Result<(), Error> {
        let (low, high) = bounds(range)?;
        self.none_busy(space, low..high, None)?;
        self.refuse_cut_of_pool(space, low, high)?;
        self.remove(pmap, space, low..high);
        Ok(())
    }

    /// Unmaps the pages of a range, of a space that exists, none of which is busy: see
    /// [`Vm::none_busy`].
    pub(crate) fn remove(&mut self, pmap: &mut impl Pmap, space: SpaceId, Range { start: low, end: high }: Range<u64>) {
        self.frames.stats.note_peak();
        self.change_parts(pmap, space, low..high, |vm, pmap, entry, part| {
            vm.unreserve(&part);
            vm.remove_mapped(pmap, space, entry, &part);
            vm.spaces.cut(&mut vm.objects, space, part.start);
            vm.spaces.cut(&mut vm.objects, space, part.end);
            vm.spaces.get_mut(space).take(part.start);
            vm.spaces.shrink(&mut vm.objects, space, part.object);
            vm.spaces.drop_entry(&mut vm.objects, &mut vm.frames, &vm.policy.answers, &part);
        });
        self.frames.take_tables(pmap);
        self.policy.unmapped(space, Vpn(low).pages(high - low));
    }

    /// Changes the part of each entry that lies in a range of a space that exists: one change of
    /// the page tables.
    fn change_parts<P: Pmap>(
        &mut self,
        pmap: &mut P,
        space: SpaceId,
        Range { start: low, end: high }: Range<u64>,
        mut change: impl FnMut(&mut Vm, &mut P, &Entry, Entry),
    ) {
        let entries = self.spaces.get_mut(space).overlapping(low, high);
        pmap.gather(space, Vpn(low)..Vpn(high), |pmap| {
            entries.iter().for_each(|entry| change(self, pmap, entry, entry.within(low, high)));
        });
    }

    /// Changes the rights of a range; holes are no error. Superpages that cross its ends are
    /// demoted as far as needed (section 4.6). O(pages mapped there).
    ///
    /// # Errors
    /// The address space does not exist, the range is empty or too long, or it would cut a page of
    /// the static pool.
    pub fn protect(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        range: PageRange,
        protection: Protection,
    ) -> Result<(), Error> {
        let (low, high) = bounds(range)?;
        self.refuse_cut_of_pool(space, low, high)?;
        self.frames.stats.note_peak();
        self.change_parts(pmap, space, low..high, |vm, pmap, entry, part| {
            if entry.protection == protection {
                return;
            }
            let part = Entry { protection, ..part };
            vm.demote_edge(pmap, space, entry, part.start);
            vm.demote_edge(pmap, space, entry, part.end);
            vm.each_mapped(pmap, space, &part, |vm, pmap, leaf| {
                let (at, size) = (leaf.at, vm.frames.ladder.size(leaf.level));
                let own = !part.copy && vm.frames.population.walk(part.object, part.index(at.0)).populated;
                let mut rights = if own { protection } else { part.rights_without_write() };
                if own && !pmap.used(space, at, size).modified {
                    rights = vm.rights_if_clean(part.object, rights);
                }
                if rights != leaf.rights {
                    pmap.protect(space, at, size, rights);
                }
            });
            vm.protect_zero_leaves(pmap, space, &part);
            vm.spaces.put_part(&mut vm.objects, space, part);
        });
        Ok(())
    }

    /// Changes the program's hint for a range (`madvise`); holes are no error. No mapping changes,
    /// but superpages across the edges of the range are demoted as far as needed, as in Linux,
    /// since a map entry has one hint. What later faults do is the policy's
    /// ([`Hints`](crate::Hints)). Private memory of fixed size that holds nothing yet is then as if
    /// it had been mapped so. O(entries and populated nodes there).
    ///
    /// # Errors
    /// The address space does not exist, the range is empty or too long, or a part of it is of the
    /// static pool.
    pub fn advise(&mut self, pmap: &mut impl Pmap, space: SpaceId, range: PageRange, hint: Hint) -> Result<(), Error> {
        let (low, high) = bounds(range)?;
        self.refuse_pool_pages(space, low, high)?;
        let hint = self.policy.answers.place.asked(hint);
        for entry in self.spaces.get(space)?.overlapping(low, high) {
            let part = Entry { hint, ..entry.within(low, high) };
            if entry.hint != hint && self.spaces.is_unused(&part, &self.objects, &self.frames) {
                [part.start, part.end].into_iter().for_each(|edge| self.split_zero_leaf(pmap, space, Vpn(edge)));
                self.map_again(space, part);
            }
        }
        self.change_entries(pmap, space, range, |entry| entry.hint = hint)
    }

    /// Puts in the place of a part of an entry that holds nothing one that was mapped as it is now.
    fn map_again(&mut self, space: SpaceId, part: Entry) {
        self.spaces.cut(&mut self.objects, space, part.start);
        self.spaces.cut(&mut self.objects, space, part.end);
        self.spaces.get_mut(space).take(part.start);
        self.spaces.shrink(&mut self.objects, space, part.object);
        self.spaces.drop_entry(&mut self.objects, &mut self.frames, &self.policy.answers, &part);
        self.spaces.put_anonymous(&mut self.objects, space, part);
        self.spaces.join(&mut self.objects, space, part.start);
        self.spaces.join(&mut self.objects, space, part.end);
    }

    /// Changes the entries of a range in what concerns no mapping.
    fn change_entries(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        range: PageRange,
        change: impl Fn(&mut Entry),
    ) -> Result<(), Error> {
        let (low, high) = bounds(range)?;
        self.refuse_cut_of_pool(space, low, high)?;
        self.change_parts(pmap, space, low..high, |vm, pmap, entry, part| {
            let mut changed = part;
            change(&mut changed);
            if changed != part {
                vm.demote_edge(pmap, space, entry, part.start);
                vm.demote_edge(pmap, space, entry, part.end);
                vm.spaces.put_part(&mut vm.objects, space, changed);
            }
        });
        Ok(())
    }

    /// Changes what faults do in a range, or in all of a space and in what it maps later, from what
    /// the policy answers ([`System::prefer`](crate::System::prefer)).
    ///
    /// # Errors
    /// As for [`Vm::advise`]; [`Error::Preferences`], with nothing changed, if there are too many.
    pub(crate) fn prefer(
        &mut self,
        pmap: &mut impl Pmap,
        space: SpaceId,
        range: Option<PageRange>,
        prefer: Prefer,
    ) -> Result<(), Error> {
        self.spaces.get(space)?;
        let number = self.policy.number_of(&prefer)?;
        let pages = range.unwrap_or(Vpn(0).pages(PAGES_LIMIT));
        let (low, high) = bounds(pages)?;
        // What says the same again costs nothing.
        if self.spaces.get(space)?.overlapping(low, high).iter().any(|entry| entry.prefer != number) {
            self.change_entries(pmap, space, pages, |entry| entry.prefer = number)?;
        }
        if range.is_none() {
            self.spaces.get_mut(space).prefer = number;
        }
        self.policy.keep(number, prefer);
        Ok(())
    }

    /// The program's hint for a page; `None` if nothing is mapped there. O(log entries).
    pub fn hint(&self, space: SpaceId, at: Vpn) -> Option<Hint> {
        self.spaces.get(space).ok()?.find(at.0).map(|entry| entry.hint)
    }

    /// Whether what is mapped there is a page of a file: not one of anonymous memory, nor a private
    /// copy. O(copy-on-write objects behind the map entry's).
    pub fn maps_file_page(&self, space: SpaceId, at: Vpn) -> bool {
        let Some(entry) = self.spaces.get(space).ok().and_then(|space| space.find(at.0)) else { return false };
        let (mut object, index) = (entry.object, entry.index(at.0));
        while let Some(backing) = self.objects.get(object).backing
            && !self.frames.population.walk(object, index).populated
        {
            object = backing;
        }
        self.objects.get(object).file.is_some()
    }

    /// The shared mapping that has a page, whole; `None` if there is none. O(log entries).
    pub fn shared_mapping(&self, space: SpaceId, at: Vpn) -> Option<PageRange> {
        let entry = self.spaces.get(space).ok()?.find(at.0).filter(|entry| entry.shared)?;
        Some(Vpn(entry.start).pages(entry.end - entry.start))
    }

    /// Whether anything is mapped in a range. O(entries there).
    pub fn maps_any(&self, space: SpaceId, range: PageRange) -> bool {
        self.spaces
            .get(space)
            .is_ok_and(|space| !space.overlapping(range.start.0, range.start.0 + range.pages).is_empty())
    }

    /// Discards the contents of a range and keeps its mappings; holes are no error. The next access
    /// finds zeroes, or the file. Contents that a shared mapping shares with others stay for them.
    /// O(pages mapped there).
    ///
    /// # Errors
    /// The address space does not exist, the range is empty or too long, a page there is busy, or
    /// it would cut a page of the static pool.
    pub fn discard(&mut self, pmap: &mut impl Pmap, space: SpaceId, range: PageRange) -> Result<(), Error> {
        let (low, high) = bounds(range)?;
        self.none_busy(space, low..high, None)?;
        self.refuse_cut_of_pool(space, low, high)?;
        self.frames.stats.note_peak();
        self.change_parts(pmap, space, low..high, |vm, pmap, entry, part| {
            vm.unreserve(&part);
            vm.remove_mapped(pmap, space, entry, &part);
            let given_up = vm.give_up(space, &part);
            let file = vm.file_behind(part.object);
            let backing = vm.objects.get(part.object).backing;
            if entry.shared || file == Some(part.object) || given_up && backing == file {
                return;
            }
            // Pages of objects behind, and pages that others still need, must not show up here
            // again.
            vm.spaces.cut(&mut vm.objects, space, part.start);
            vm.spaces.cut(&mut vm.objects, space, part.end);
            vm.put_fresh(space, part);
            vm.spaces.drop_entry(&mut vm.objects, &mut vm.frames, &vm.policy.answers, &part);
        });
        self.reserve_again(space, low, high);
        self.frames.take_tables(pmap);
        Ok(())
    }

    /// Sets the length of the growing mapping that starts at `start` (`brk`). It may also shrink; 0
    /// unmaps it. Whatever it grows over is unmapped first; another growing mapping that follows
    /// without a gap counts as part of it. What is added has no hint, as in Linux.
    ///
    /// # Errors
    /// The address space does not exist, no mapping starts there, the range is too long, or a page
    /// to be released is busy.
    pub fn grow(&mut self, pmap: &mut impl Pmap, space: SpaceId, start: Vpn, pages: u64) -> Result<(), Error> {
        let found = self.spaces.get(space)?.find(start.0).filter(|entry| entry.start == start.0);
        let mut last = found.ok_or(Error::Unmapped(start))?;
        // Protection and copy-on-write may have cut it into several entries.
        while let Some(next) = self.spaces.get(space)?.find(last.end).filter(|next| next.growth == Growth::Up) {
            last = next;
        }
        let end = if pages == 0 { start.0 } else { bounds(start.pages(pages))?.1 };
        if end > last.end {
            self.may_extend(&last, end - last.end)?;
            self.unmap(pmap, space, Vpn(last.end).pages(end - last.end))?;
            self.extend(space, last, end);
            if last.hint != Hint::None {
                self.advise(pmap, space, Vpn(last.end).pages(end - last.end), Hint::None)?;
            }
        } else if end < last.end {
            self.unmap(pmap, space, Vpn(end).pages(last.end - end))?;
            // What is left of the object shrinks too, unless an entry elsewhere may map the part
            // that was removed.
            if pages > 0
                && let Some(last) = self.spaces.get(space)?.find(end - 1)
                && last.growth == Growth::Up
            {
                let object = self.objects.get_mut(last.object);
                if object.sole && object.entries == 1 {
                    object.high = last.offset_end();
                }
            }
        }
        Ok(())
    }

    /// Checks that a longer entry would end within the longest possible file.
    fn may_extend(&self, entry: &Entry, more: u64) -> Result<(), Error> {
        let file = self.file_behind(entry.object).is_some();
        if file { bounds(Vpn(entry.offset).pages(entry.end - entry.start + more)).map(|_| ()) } else { Ok(()) }
    }

    /// Extends an entry where nothing follows it: with its object, if the indices that follow were
    /// never used.
    fn extend(&mut self, space: SpaceId, entry: Entry, end: u64) {
        let in_file = self.file_behind(entry.object).is_some();
        let entry = if entry.copy && !in_file { self.spaces.own(&mut self.objects, space, entry) } else { entry };
        let longer = Entry { end, ..entry };
        // No object of the chain may have used the indices that follow: what is there now belongs
        // to others.
        let unused = |object: &Object| object.file.is_some() || object.high <= entry.offset_end();
        let unused = self.objects.chain(entry.object).all(|object| unused(self.objects.get(object)));
        let object = self.objects.get_mut(entry.object);
        if object.file.is_some() {
            // Another entry may map that part of the file.
            object.sole = false;
            self.spaces.get_mut(space).put(longer);
        } else if unused && !entry.copy && longer.offset_end() <= PAGES_LIMIT {
            object.high = longer.offset_end();
            self.spaces.get_mut(space).put(longer);
        } else {
            self.put_fresh(space, longer.within(entry.end, end));
        }
    }

    /// The file at the end of a chain of objects, if there is one.
    fn file_behind(&self, front: ObjectId) -> Option<ObjectId> {
        self.objects.chain(front).last().filter(|last| self.objects.get(*last).file.is_some())
    }

    /// Adds a private entry that has no pages yet: on the file behind it, or on a new
    /// anonymous object.
    fn put_fresh(&mut self, space: SpaceId, part: Entry) {
        let (object, offset, copy) = match self.file_behind(part.object) {
            Some(file) => (file, part.offset, true),
            None => (self.objects.add(Object::new(part.growth, part.start, part.end)), part.start, false),
        };
        self.objects.get_mut(object).entries += 1;
        self.spaces.get_mut(space).put(Entry { object, offset, copy, ..part });
    }

    /// Moves the mappings of a range, with their contents, or changes the length of the last one
    /// (`mremap`). Whatever lies at the new place is unmapped first; superpages that are not
    /// aligned there are demoted as far as needed.
    ///
    /// # Errors
    /// The address space does not exist, a range is empty or too long, nothing is mapped at `from`,
    /// a mapping would move onto a part of itself, a page of either range is busy, or the move
    /// would cut a page of the static pool, change its alignment or let it grow.
    pub fn remap(&mut self, pmap: &mut impl Pmap, space: SpaceId, from: PageRange, to: PageRange) -> Result<(), Error> {
        let (low, from_end) = bounds(from)?;
        let (to_low, to_end) = bounds(to)?;
        let (PageRange { start: from, pages: from_pages }, PageRange { start: to, pages: to_pages }) = (from, to);
        self.spaces.get(space)?.find(low).ok_or(Error::Unmapped(from))?;
        if from != to && low < to_end && to_low < from_end {
            return Err(Error::Overlap(to));
        }
        self.refuse_move_of_pool(space, from.pages(from_pages), to.pages(to_pages))?;
        let moving = from_pages.min(to_pages);
        // Both parts that go are asked about at once: an object may be mapped in these two alone.
        let (tail, new) = (low + moving..from_end, if from == to { to_low + moving } else { to_low }..to_end);
        self.none_busy(space, low..low + moving, None)?;
        self.none_busy(space, tail.clone(), Some(new.clone()))?;
        if let Some(last) = self.spaces.get(space)?.find(low + moving - 1) {
            self.may_extend(&last.within(low, low + moving), to_pages - moving)?;
        }
        if !tail.is_empty() {
            self.remove(pmap, space, tail);
        }
        if !new.is_empty() {
            self.remove(pmap, space, new);
        }
        if from != to {
            self.change_parts(pmap, space, low..low + moving, |vm, pmap, entry, part| {
                vm.demote_edge(pmap, space, entry, part.start);
                vm.demote_edge(pmap, space, entry, part.end);
                vm.spaces.cut(&mut vm.objects, space, part.start);
                vm.spaces.cut(&mut vm.objects, space, part.end);
                let start = part.start - low + to_low;
                let moved = Entry { start, end: start + (part.end - part.start), ..part };
                vm.move_mapped(pmap, space, &part, &moved);
                vm.spaces.get_mut(space).take(part.start);
                vm.spaces.get_mut(space).put(moved);
                vm.spaces.join(&mut vm.objects, space, moved.start);
            });
            self.frames.take_tables(pmap);
        }
        if to_pages > from_pages
            && let Some(last) = self.spaces.get(space)?.find(to_low + moving - 1)
        {
            self.extend(space, last, to_end);
        }
        self.spaces.join(&mut self.objects, space, to_low + moving);
        Ok(())
    }

    /// An address for a new mapping (section 5.3): the lowest free one in `within` with the
    /// alignment of the largest superpage that is no larger than the mapping, so that virtual and
    /// physical alignment agree. `offset` is the first mapped page of a file, or 0. `None` if there
    /// is no room. O(mappings there).
    ///
    /// # Errors
    /// The address space does not exist.
    pub fn place(&self, space: SpaceId, pages: u64, offset: u64, within: Range<Vpn>) -> Result<Option<Vpn>, Error> {
        let ladder = &self.frames.ladder;
        let level = ladder.levels().rev().find(|level| ladder.pages(*level) <= pages).unwrap_or(Level::BASE);
        let (low, high) = (within.start.0, within.end.0.min(PAGES_LIMIT));
        Ok(self.spaces.get(space)?.gap(low..high, pages, ladder.pages(level), offset).map(Vpn))
    }

    /// Frees the contents of a part of an entry, which stays, unless others can reach them. Returns
    /// whether it did.
    fn give_up(&mut self, space: SpaceId, part: &Entry) -> bool {
        let object = self.objects.get(part.object);
        if object.file.is_some() {
            return self.frames.give_up_of_file(&mut self.objects, part.object, part.offset..part.offset_end());
        }
        let alone = object.sole || self.spaces.only_user(&self.objects, space, part.object);
        if alone {
            self.frames.release(part.object, part.offset, part.offset_end());
        }
        alone
    }
}
