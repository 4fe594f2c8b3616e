//! The one lookup that each request makes.

use super::Mappings;
use super::operations::Work;
use crate::request::Trap;
use superpage_pages::Vpn;

/// Cached parts of the upper index, each for what one node of the second level spans: 1 GB in pages
/// of 4 KB. Programs use few, but far apart.
const STRETCHES: usize = 64;

/// The place of a stretch.
#[inline(always)]
fn place(number: u64) -> usize {
    (number ^ number >> 7) as usize % STRETCHES
}

/// Where the second level of the index has the page-table entries of one stretch of pages.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    number: u64,
    first: u32,
    /// The bits of the index that count: none if the whole stretch is one page.
    mask: u32,
}

const NO_STRETCH: Stretch = Stretch { number: u64::MAX, first: 0, mask: 0 };

/// A cache of the upper index, of one space.
#[derive(Clone, Debug)]
pub(super) struct Stretches {
    all: [Stretch; STRETCHES],
    /// The value of [`Mappings::changes`] when they were cached.
    learned: u64,
    /// The page-number bits of the lowest level, and those of the two lowest.
    low_bits: (u32, u32),
}

impl Stretches {
    pub(super) fn new(bits: &[u32]) -> Stretches {
        Stretches { all: [NO_STRETCH; STRETCHES], learned: 0, low_bits: (bits[0], bits[0] + bits[1]) }
    }
}

impl Mappings {
    /// Empties the cache: it is for another space, or out of date.
    pub(crate) fn forget_stretches(&mut self) {
        self.stretches.all = [NO_STRETCH; STRETCHES];
    }

    /// Brings the cache up to date, if the index has changed above the lowest level; call it before
    /// lookups.
    #[inline(always)]
    pub(crate) fn refresh(&mut self) {
        if self.stretches.learned != self.changes {
            self.stretches.learned = self.changes;
            self.forget_stretches();
        }
    }

    /// The page-table entry of the page: of its mapping, or an absent one; `None` if the index does
    /// not reach that far down.
    #[inline(always)]
    pub(crate) fn entry(&mut self, space: u32, page: Vpn) -> Option<u32> {
        let (low, second) = self.stretches.low_bits;
        let number = page.0 >> second;
        let mut stretch = self.stretches.all[place(number)];
        if stretch.number != number {
            stretch = self.learn(space, page)?;
        }
        let above = stretch.first + ((page.0 >> low) as u32 & stretch.mask);
        let pte = self.ptes[above as usize];
        Some(if pte.is_table() { pte.child() + (page.0 as u32 & ((1 << low) - 1)) } else { above })
    }

    /// The head of the mapping that the page-table entry belongs to, with the use bits that the
    /// access sets; or the reason why it traps.
    #[inline(always)]
    pub(crate) fn make_ready(&mut self, entry: u32, page: Vpn, access: u64) -> Result<u32, Trap> {
        let head = Mappings::head(entry, self.ptes[entry as usize]);
        let pte = &mut self.ptes[head as usize];
        if pte.is_shadow() && pte.allows(access) {
            self.use_shadowed(head, page, access);
            return Ok(head);
        }
        if !pte.allows(access) {
            return Err(match pte.is_leaf() {
                true => Trap::Rights { held: pte.protection() },
                false => Trap::Absent,
            });
        }
        let used = pte.used_by(access);
        if used != *pte {
            let set = (used.dirty() && !pte.dirty(), !pte.referenced());
            *pte = used;
            self.note_use(head, set);
        }
        Ok(head)
    }

    /// Notes that an access set the dirty bit of a mapping, its reference bit, or both.
    #[cold]
    fn note_use(&mut self, head: u32, (dirty, referenced): (bool, bool)) {
        let (pte, first, space) = (self.ptes[head as usize], self.nodes.first_page(head), self.nodes.space_of(head));
        let pages = first.0..first.0 + (1 << self.order(pte.size_level()));
        let entries = self.work_of_bits(space, &pages, Work { writes: 1 << pte.replicas(), traversals: 0 }).writes;
        for (bits, count) in self.use_bits.iter_mut().zip([1, entries]) {
            bits.dirty += count * u64::from(dirty);
            bits.referenced += count * u64::from(referenced);
            bits.both += count * u64::from(dirty && referenced);
        }
    }

    /// Whether this access will set one of these use bits of the mapping.
    pub(crate) fn changes(&self, entry: u32, access: u64, bits: u32) -> bool {
        let pte = self.ptes[Mappings::head(entry, self.ptes[entry as usize]) as usize];
        pte.allows(access) && pte.used_by(access).attributes(bits) != pte.attributes(bits)
    }

    #[cold]
    fn learn(&mut self, space: u32, page: Vpn) -> Option<Stretch> {
        let (low, second) = self.stretches.low_bits;
        let number = page.0 >> second;
        let found = self.find(space, page, 2)?;
        let mask = (1u32 << (second - low)) - 1;
        let stretch = match found.level {
            2 => Stretch { number, first: found.id - ((page.0 >> low) as u32 & mask), mask },
            _ if self.ptes[found.id as usize].is_leaf() => Stretch { number, first: found.id, mask: 0 },
            _ => return None,
        };
        self.stretches.all[place(number)] = stretch;
        Some(stretch)
    }
}
