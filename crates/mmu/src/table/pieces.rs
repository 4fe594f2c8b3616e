//! Superpages where a host backs the guest's memory by base pages.
//!
//! Each base page of a superpage has a record of its own in a table of the lowest level, with the rung of the superpage: TLBs
//! hold it as a piece. The guest's own entry, where walks end, is what points to that table. Pieces have use bits of their
//! own, which count together; work is that of the guest's entries.

use super::{Tables, Watch, Work};
use crate::record::Record;
use superpage_pages::{Access, PageSize, Pfn, Protection, Vpn};

impl Tables {
    pub(super) fn enter_pieces(
        &mut self,
        space: u32,
        at: Vpn,
        frame: Pfn,
        rung: usize,
        protection: Protection,
        access: Access,
    ) -> Work {
        let leaf = Record::leaf(rung, 0, protection, (true, access == Access::Write));
        for offset in 0..1 << self.order(rung) {
            let id = self.make(space, at + offset, 1);
            self.write_leaf(id, leaf, frame.0 + offset);
            self.nodes.of(id).live += 1;
        }
        Work { writes: 1 << self.walked(rung).1, traversals: 0 }
    }

    /// The pages of a superpage.
    fn pieces(&self, at: Vpn, size: PageSize) -> impl Iterator<Item = Vpn> + use<> {
        (0..1 << self.order(self.rung(size))).map(move |offset| at + offset)
    }

    /// Removes all pieces; returns a record of the superpage with their use.
    pub(super) fn remove_pieces(
        &mut self,
        space: u32,
        at: Vpn,
        size: PageSize,
        watch: &mut impl Watch,
    ) -> (Record, Work) {
        let last = self.used_pieces(space, at, size);
        for piece in self.pieces(at, size) {
            self.remove_one(space, piece, size, watch);
        }
        (last, Work { writes: 1 << self.walked(last.rung()).1, traversals: 0 })
    }

    /// A record of the superpage with the use of all pieces.
    pub(super) fn used_pieces(&self, space: u32, at: Vpn, size: PageSize) -> Record {
        let mut used = (false, false);
        let mut last = Record::ABSENT;
        for piece in self.pieces(at, size) {
            last = self.expect(space, piece, size).1;
            used = (used.0 | last.referenced(), used.1 | last.dirty());
        }
        Record::leaf(last.rung(), 0, last.protection(), used)
    }

    /// Changes each piece; returns what the superpage was before.
    pub(super) fn change_pieces(
        &mut self,
        space: u32,
        at: Vpn,
        size: PageSize,
        change: impl Fn(Record) -> Record,
        watch: &mut impl Watch,
    ) -> (Record, Work) {
        let before = self.used_pieces(space, at, size);
        for piece in self.pieces(at, size) {
            let (id, record) = self.expect(space, piece, size);
            watch.leaf(id, piece, record);
            self.records[id as usize] = change(record);
        }
        (before, Work { writes: 1 << self.walked(before.rung()).1, traversals: 0 })
    }

    /// The pieces of all pages of `from` become those of one of `to`.
    pub(super) fn promote_pieces(
        &mut self,
        space: u32,
        at: Vpn,
        from: PageSize,
        to: PageSize,
        watch: &mut impl Watch,
    ) -> Work {
        let rung = self.rung(to);
        let (first, whole) = self.expect(space, at, from);
        let frame = self.frames.get(first);
        let mut used = (false, false);
        for (offset, piece) in self.pieces(at, to).enumerate() {
            let (id, record) = self.expect(space, piece, from);
            assert_eq!(record.protection(), whole.protection(), "page {piece:?} does not fit into one of {to}");
            assert_eq!(self.frames.get(id), frame + offset as u64, "frames that are not contiguous become one of {to}");
            used = (used.0 | record.referenced(), used.1 | record.dirty());
            watch.leaf(id, piece, record);
        }
        let leaf = Record::leaf(rung, 0, whole.protection(), used);
        for piece in self.pieces(at, to) {
            let (id, _) = self.expect(space, piece, from);
            self.records[id as usize] = leaf;
        }
        let entries = 1u64 << (self.order(rung) - self.order(whole.rung()));
        Work { writes: 1 << self.walked(rung).1, traversals: entries << self.walked(whole.rung()).1 }
    }

    /// The pieces of one page of `from` become those of pages of `to`.
    pub(super) fn demote_pieces(
        &mut self,
        space: u32,
        at: Vpn,
        from: PageSize,
        to: PageSize,
        watch: &mut impl Watch,
    ) -> Work {
        let rung = self.rung(to);
        let whole = self.used_pieces(space, at, from);
        let leaf = Record::leaf(rung, 0, whole.protection(), (whole.referenced(), whole.dirty()));
        for piece in self.pieces(at, from) {
            let (id, record) = self.expect(space, piece, from);
            watch.leaf(id, piece, record);
            self.records[id as usize] = leaf;
        }
        let (above, below) = (self.walked(whole.rung()), self.walked(rung));
        let written = (1u64 << (self.order(whole.rung()) - self.order(rung))) << below.1;
        Work { writes: written + (above.0 != below.0) as u64, traversals: written }
    }
}
