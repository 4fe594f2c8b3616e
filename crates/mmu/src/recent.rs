//! Requests that hit for certain in a first-level TLB, and so need not be translated one by one.
//!
//! What was used last in its set hits, whatever the TLB replaces: every replacement keeps it, and a second use in a row
//! changes no state of it. Such a request *repeats*. In a TLB of one set with LRU, what was used within as many uses as
//! it has ways hits too; there only its use must be put in order: it is a *touch*. Use bits are set, since a request of
//! the same kind has set them. So neither needs its page-table entry, or a place in a batch.
//!
//! Where few requests are so, knowing them costs more than it saves: then nothing is noted for some time.
//!
//! What is known is known of one space, and forgotten with every change of a mapping. Nothing is known where a level
//! includes nearer ones: what it evicts is dropped from those.

use crate::batch::{KINDS, Located, bit_of};
use crate::cache::Shape;
use crate::request::Request;
use superpage_pages::{Access, MAX_LEVELS, Vpn};

/// How many requests are known at a time.
const KNOWN: usize = 512;
/// After so many translated requests it is judged whether that was worth it: if as many needed no translation. To note one
/// costs about two thirds of what it saves to spare one.
const JUDGED: u32 = 256;
/// For how many requests nothing is noted if it was not.
const PAUSE: u32 = 16_384;
/// A use of nothing: no page-table entry has this number.
const NOTHING: u64 = u64::MAX;

/// A first-level TLB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstLevel {
    /// Its place among those of the level.
    pub(crate) index: usize,
    /// The kinds of request that it serves, as a bit set ([`bit_of`]).
    pub(crate) kinds: u64,
    pub(crate) shape: Shape,
    /// Whether it is one set with LRU.
    pub(crate) ordered: bool,
    /// Whether one entry may hold several mappings, or pieces of several sizes, or it has no sets in which one entry was used last: of such
    /// a TLB nothing is known.
    pub(crate) joins: bool,
}

/// What is known of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Nothing: it must be translated.
    No,
    /// It changes nothing.
    Repeats,
    /// It is a use of what this mapping has in a TLB with LRU.
    Touches { head: u32, tlb: u8 },
}

/// The last uses of the sets of all first-level TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// By kind of request, its first-level TLB: the number of its first set, and its shape; `None` if it has none.
    serving: [Option<(u32, Shape)>; KINDS],
    sets: Vec<Set>,
    known: Box<[Known; KNOWN]>,
    /// How often all was forgotten: so that is one addition.
    round: u32,
    /// Requests until something is noted again.
    pause: u32,
    /// Requests since it was judged last: those that needed no translation, and those that did.
    spared: u32,
    translated: u32,
}

#[derive(Clone, Debug)]
struct Set {
    /// What was used last: the key of the mapping, and the low bits of the translation's number.
    last: u64,
    /// Uses so far, without those that repeat.
    uses: u64,
    /// Within how many uses what was used hits: 0 if that is not certain.
    certain: u64,
    /// The TLB's place among those of the level.
    tlb: u32,
}

/// A request that was served, and what it used.
#[derive(Clone, Copy, Debug)]
struct Known {
    request: Request,
    used: u64,
    set: u32,
    round: u32,
    /// The number of its last use.
    at: u64,
}

impl Recent {
    /// Of these first-level TLBs.
    pub(crate) fn new(first_level: impl Iterator<Item = FirstLevel>) -> Recent {
        let (mut serving, mut sets) = ([None; KINDS], Vec::new());
        for FirstLevel { index, kinds, shape, ordered, .. } in first_level.filter(|first| !first.joins) {
            for kind in (0..MAX_LEVELS * 4).filter(|kind| kind & 3 != 3 && kinds >> bit_of(*kind) & 1 != 0) {
                serving[kind] = Some((sets.len() as u32, shape));
            }
            let certain = if ordered { shape.ways() as u64 } else { 0 };
            let set = Set { last: NOTHING, uses: 0, certain, tlb: index as u32 };
            sets.resize(sets.len() + shape.sets(), set);
        }
        let request = Request::new(Vpn(0), Access::Read);
        let unknown = Known { request, used: NOTHING, set: 0, round: 0, at: 0 };
        Recent { serving, sets, known: Box::new([unknown; KNOWN]), round: 1, pause: 0, spared: 0, translated: 0 }
    }

    /// The bytes for so many sets.
    pub(crate) fn bytes(sets: usize) -> u64 {
        (sets as u64).saturating_mul(size_of::<Set>() as u64)
    }

    /// So many requests were neither seen nor noted.
    #[inline(always)]
    pub(crate) fn skip(&mut self, requests: usize) {
        self.pause = self.pause.saturating_sub(requests as u32);
        if self.pause == 0 {
            self.forget();
        }
    }

    /// A batch that was noted ends, with so many requests that needed no translation, and that did.
    #[inline(always)]
    pub(crate) fn judge(&mut self, spared: u32, translated: u32) {
        (self.spared, self.translated) = (self.spared.saturating_add(spared), self.translated + translated);
        if self.translated >= JUDGED {
            self.pause = if self.spared < self.translated { PAUSE } else { 0 };
            (self.spared, self.translated) = (0, 0);
        }
    }

    /// Whether requests are noted now.
    #[inline(always)]
    pub(crate) fn notes(&self) -> bool {
        self.pause == 0
    }

    /// What is known of the next request, which is one more use.
    #[inline(always)]
    pub(crate) fn see(&mut self, request: Request) -> Seen {
        let known = &mut self.known[request.bits() as usize % KNOWN];
        if known.request != request || known.round != self.round {
            return Seen::No;
        }
        let set = &mut self.sets[known.set as usize];
        if set.last == known.used {
            return Seen::Repeats;
        }
        if set.uses - known.at >= set.certain {
            return Seen::No;
        }
        set.last = known.used;
        set.uses += 1;
        known.at = set.uses;
        Seen::Touches { head: (known.used >> 32) as u32, tlb: set.tlb as u8 }
    }

    /// A request is about to be translated.
    #[inline(always)]
    pub(crate) fn note(&mut self, request: Request, located: &Located) {
        if let Some(set) = self.note_use(located) {
            let (round, at) = (self.round, self.sets[set as usize].uses);
            let known = Known { request, used: used(located), set, round, at };
            self.known[request.bits() as usize % KNOWN] = known;
        }
    }

    /// The same of a request that will trap although its page is mapped. Returns the set that it uses.
    #[inline(always)]
    pub(crate) fn note_use(&mut self, located: &Located) -> Option<u32> {
        let (first, shape) = self.serving[located.kind % KINDS].as_ref()?;
        let number = first + shape.set_of(located.number) as u32;
        let set = &mut self.sets[number as usize];
        set.last = used(located);
        set.uses += 1;
        Some(number)
    }

    /// The requests that need not be translated now: each with the key and the low bits of the number of what it uses, and
    /// the TLB's place among those of the first level.
    pub(crate) fn certain(&self) -> impl Iterator<Item = (Request, u32, u32, usize)> {
        let known = self.known.iter().filter(|known| known.round == self.round && self.notes());
        let seen = known.map(|known| (known, &self.sets[known.set as usize]));
        let certain = seen.filter(|(known, set)| {
            let touches = set.uses - known.at < set.certain;
            set.last == known.used || touches
        });
        certain.map(|(known, set)| (known.request, (known.used >> 32) as u32, known.used as u32, set.tlb as usize))
    }

    /// Mappings, TLBs or the space have changed.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.round = match self.round.checked_add(1) {
            Some(round) => round,
            None => {
                self.known.iter_mut().for_each(|known| known.round = 0);
                1
            }
        };
    }
}

fn used(located: &Located) -> u64 {
    u64::from(located.head) << 32 | located.number & u64::from(u32::MAX)
}
