//! Where in the TLBs of the first level the translations of recent requests were put, so that a request like one of them is a look at one
//! tag.
//!
//! A request is known by its page and its kind. If the way where its translation was found or put last still holds that, it hits: all
//! that remains is to note the use. Its use bits are set, since a request of the same kind has set them. So it needs neither its page-table
//! entry nor a place in a batch. What is taken so is taken one by one, in order, with what misses in between; so counts are those of any other
//! order of the work.
//!
//! Where few requests are known, this costs more than it saves: then nothing is noted for some time, and requests
//! are translated in batches.
//!
//! What is known is known of one space, and forgotten with every change of a mapping. Nothing is known where a level
//! includes nearer ones, which is all behind, and of TLBs whose entries may be several mappings, or pieces of several sizes.

use crate::batch::{KINDS, bit_of};
use crate::request::Request;
use crate::tlb::Tlbs;
use superpage_pages::{Access, MAX_LEVELS, Vpn};

/// How many requests are known at a time.
const KNOWN: usize = 1024;
/// After so many translated requests it is judged whether noting them was worth it: if as many needed no translation.
const JUDGED: u32 = 256;
/// For how many requests nothing is noted if it was not; each time in a row twice as many, up to the most.
/// Builds for tests change their ways more often: counts must not depend on it.
const PAUSE: u32 = if cfg!(debug_assertions) { 512 } else { 16_384 };
const LONGEST: u32 = 16 * PAUSE;

/// A first-level TLB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstLevel {
    /// Its place among those of the level.
    pub(crate) index: usize,
    /// The kinds of request that it serves, as a bit set ([`bit_of`]).
    pub(crate) kinds: u64,
    /// Whether an entry of it holds one mapping, or one piece of it, of the size that the mapping says.
    pub(crate) known: bool,
}

/// Where the translations of recent requests were put.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// By kind of request, its first-level TLB; `None` if it has none, or one of which nothing is known.
    serving: [Option<u8>; KINDS],
    known: Box<[Known; KNOWN]>,
    /// How often all was forgotten: so that is one addition.
    round: u16,
    /// Requests until something is noted again, and how many there are the next time.
    pause: u32,
    next: u32,
    /// Requests since it was judged last: those that were known, and those that were translated.
    spared: u32,
    translated: u32,
}

/// A request that was served, and what it used.
#[derive(Clone, Copy, Debug)]
struct Known {
    request: Request,
    /// The key of its mapping.
    head: u32,
    /// As in [`Place`].
    at: u32,
    round: u16,
    tlb: u8,
    /// The shift from the number of a base page to that of its translation.
    order: u8,
}

impl Known {
    fn number(&self) -> u64 {
        self.request.page().0 >> (self.order & 63)
    }
}

/// A translation in a TLB of the first level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) tlb: u8,
    /// The number of its way in all sets together.
    pub(crate) at: usize,
    /// As in [`Known`].
    pub(crate) head: u32,
    pub(crate) order: u8,
}

/// The place of a request in the table. Pages beside each other, and the kinds of access to one page, are apart.
#[inline(always)]
fn slot(request: Request) -> usize {
    let page = request.page().0;
    (page ^ page >> 10 ^ request.access_bits() << 8) as usize % KNOWN
}

impl Recent {
    /// Of these first-level TLBs.
    pub(crate) fn new(first_level: impl Iterator<Item = FirstLevel>) -> Recent {
        let mut serving = [None; KINDS];
        for FirstLevel { index, kinds, .. } in first_level.filter(|first| first.known) {
            for kind in (0..MAX_LEVELS * 4).filter(|kind| kind & 3 != 3 && kinds >> bit_of(*kind) & 1 != 0) {
                serving[kind] = Some(index as u8);
            }
        }
        let request = Request::new(Vpn(0), Access::Read);
        let unknown = Known { request, head: 0, at: 0, round: 0, tlb: 0, order: 0 };
        let pause = if serving.iter().all(Option::is_none) { u32::MAX } else { 0 };
        Recent { serving, known: Box::new([unknown; KNOWN]), round: 1, pause, next: PAUSE, spared: 0, translated: 0 }
    }

    /// The TLB that serves a kind of request, if anything is known of it.
    #[inline(always)]
    pub(crate) fn serving(&self, kind: usize) -> Option<u8> {
        self.serving[kind % KINDS]
    }

    /// So many requests were translated without being noted.
    #[inline(always)]
    pub(crate) fn skip(&mut self, requests: usize) {
        if self.pause != u32::MAX {
            self.pause = self.pause.saturating_sub(requests as u32);
            if self.pause == 0 {
                self.forget();
            }
        }
    }

    /// Whether requests are noted now.
    #[inline(always)]
    pub(crate) fn notes(&self) -> bool {
        self.pause == 0
    }

    /// One request was translated, and so many before it since the last one that was were known.
    #[inline(always)]
    pub(crate) fn judge(&mut self, spared: usize) {
        self.spare(spared);
        self.translated += 1;
        if self.translated == JUDGED {
            let worth = self.spared >= self.translated;
            self.pause = if worth { 0 } else { self.next };
            self.next = if worth { PAUSE } else { LONGEST.min(2 * self.next) };
            (self.spared, self.translated) = (0, 0);
        }
    }

    /// So many requests were known since the last one that was translated.
    #[inline(always)]
    pub(crate) fn spare(&mut self, requests: usize) {
        self.spared = self.spared.saturating_add(requests as u32);
    }

    /// Serves a request that is known to hit. Returns whether it is.
    #[inline(always)]
    pub(crate) fn serve(&self, request: Request, first: &mut Tlbs) -> bool {
        let known = &self.known[slot(request)];
        known.request == request
            && known.round == self.round
            && first.use_at(known.tlb as usize, known.at as usize, known.number(), known.head)
    }

    /// A request was served.
    #[inline(always)]
    pub(crate) fn note(&mut self, request: Request, place: Place) {
        let Place { tlb, at, head, order } = place;
        self.known[slot(request)] = Known { request, head, at: at as u32, round: self.round, tlb, order };
    }

    /// The requests that are known now, if their translations are still there.
    pub(crate) fn known(&self) -> impl Iterator<Item = (Request, u64, Place)> {
        let known = self.known.iter().filter(|known| known.round == self.round && self.notes());
        known.map(|known| {
            let at = known.at as usize;
            (known.request, known.number(), Place { tlb: known.tlb, at, head: known.head, order: known.order })
        })
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
