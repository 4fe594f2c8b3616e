//! Requests that change nothing: those for what was used last in its set of a first-level TLB.
//!
//! Such a request hits, whatever the TLB replaces: every replacement keeps what was used last, and a second use in a row
//! changes no state of it. Its use bits are set, since the one before it set them. So it is counted and needs no more,
//! neither its page-table entry nor a place in a batch. What is known is known of one space, and forgotten with every
//! change of a mapping.
//!
//! Nothing is filtered where a level includes nearer ones: what it evicts is dropped from those.

use crate::batch::{KINDS, Located};
use crate::cache::Shape;
use crate::request::Request;
use superpage_pages::{Access, Vpn};

/// How many requests are known at a time.
const KNOWN: usize = 1024;

/// The last uses of the sets of all first-level TLBs.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// By kind of request, its first-level TLB: the number of its first set, and its shape; `None` if it has none.
    serving: [Option<(u32, Shape)>; KINDS],
    /// By set: what was used last, as the key of the mapping and the low bits of the translation's number.
    last: Vec<u64>,
    known: Box<[Known; KNOWN]>,
    /// How often all was forgotten: so that is one addition.
    round: u32,
}

/// A request that was served, and what it used.
#[derive(Clone, Copy, Debug)]
struct Known {
    request: Request,
    used: u64,
    set: u32,
    round: u32,
}

/// A use of nothing: no page-table entry has this number.
const NOTHING: u64 = u64::MAX;

impl Recent {
    /// Of first-level TLBs that serve these kinds, as bit sets, and are of these shapes.
    pub(crate) fn new(first_level: impl Iterator<Item = (u32, Shape)>) -> Recent {
        let (mut serving, mut sets) = ([None; KINDS], 0);
        for (kinds, shape) in first_level {
            for kind in (0..KINDS).filter(|kind| kinds >> kind & 1 != 0) {
                serving[kind] = Some((sets, shape));
            }
            sets += shape.sets() as u32;
        }
        let unknown = Known { request: Request::new(Vpn(0), Access::Read), used: NOTHING, set: 0, round: 0 };
        Recent { serving, last: vec![NOTHING; sets as usize], known: Box::new([unknown; KNOWN]), round: 1 }
    }

    /// Whether a request is for what was used last in its set, by an access of the same kind.
    #[inline(always)]
    pub(crate) fn repeats(&self, request: Request) -> bool {
        let known = &self.known[request.bits() as usize % KNOWN];
        known.request == request && known.round == self.round && self.last[known.set as usize] == known.used
    }

    /// A request is about to be translated.
    #[inline(always)]
    pub(crate) fn note(&mut self, request: Request, located: &Located) {
        if let Some(set) = self.note_use(located) {
            self.known[request.bits() as usize % KNOWN] =
                Known { request, used: used(located), set, round: self.round };
        }
    }

    /// The same of a request that will trap although its page is mapped. Returns the set that it uses.
    #[inline(always)]
    pub(crate) fn note_use(&mut self, located: &Located) -> Option<u32> {
        let (first, shape) = self.serving[located.kind % KINDS]?;
        let set = first + shape.set_of(located.number) as u32;
        self.last[set as usize] = used(located);
        Some(set)
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
