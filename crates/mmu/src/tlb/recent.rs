//! Which entries of the first-level TLBs serve recent requests, so that a request equal to one of
//! them is a look at one tag.
//!
//! A request is *known* if one for its page by its kind of access was noted. If the entry that was
//! noted still holds the translation, the request hits, and only the use remains to be counted: an
//! equal request has set the use bits. So it needs neither the page-table entry nor a batch.
//! Requests are then taken one by one, in order, with misses in between; counts are as in batches.
//!
//! Where few requests are known, this costs more time than it saves: then nothing is noted for a
//! while, and requests are translated in batches.
//!
//! Known requests are of one space, and are forgotten with every change of a mapping. Requests are
//! not noted in TLBs whose entries may hold several mappings or pieces of several sizes, and with
//! an inclusive level, where no TLB is in the first level.

use crate::request::Request;
use crate::tlb::Tlbs;
use crate::tlb::batch::{KINDS, bit_of};
use crate::tlb::uses::{EntryId, Use};
use superpage_pages::{Access, MAX_LEVELS, Vpn};

/// How many requests are known at a time.
const KNOWN: usize = 1024;
/// After this many translated requests, noting is judged: it pays if as many requests needed no
/// translation.
const JUDGED: u32 = 256;
/// If it does not pay, nothing is noted for this many requests; twice as many each time in a row,
/// up to the longest. Debug builds pause more often, since counts must not depend on it.
const PAUSE: u32 = if cfg!(debug_assertions) { 512 } else { 16_384 };
const LONGEST: u32 = 16 * PAUSE;

/// A first-level TLB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTlb {
    /// Its index among the TLBs of the level.
    pub(crate) index: usize,
    /// The kinds of request that it serves, as a bit set ([`bit_of`]).
    pub(crate) kinds: u64,
    /// Whether its requests can be known: an entry holds one mapping, or one piece of a size that
    /// follows from the mapping.
    pub(crate) known: bool,
}

/// Recent requests, and the entries that serve them.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// By kind of request, its first-level TLB; `None` if it has none, or one whose requests cannot
    /// be known.
    serving: [Option<u8>; KINDS],
    known: Box<[Known; KNOWN]>,
    /// Incremented to forget all requests at once.
    round: u16,
    /// Requests until noting resumes, and the length of the next pause.
    pause: u32,
    next: u32,
    /// Since noting was judged last: requests that were known, and requests that were translated.
    spared: u32,
    translated: u32,
}

/// A request, and the entry that serves it.
#[derive(Clone, Copy, Debug)]
struct Known {
    request: Request,
    entry: TlbEntry,
    /// The value of [`Recent::round`] when it was noted.
    round: u16,
}

impl Known {
    /// The translation that it used.
    fn id(&self) -> EntryId {
        EntryId { number: self.request.page().0 >> (self.entry.order & 63), key: self.entry.head }
    }
}

/// An entry of a TLB of the first level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlbEntry {
    /// The key of its mapping.
    pub(crate) head: u32,
    /// Its index in the TLB: set x ways + way.
    pub(crate) at: u32,
    pub(crate) tlb: u8,
    /// The shift from the number of a base page to that of its translation.
    pub(crate) order: u8,
}

/// The slot of a request in the table. Neighbouring pages, and the kinds of access to one page,
/// have different slots.
#[inline(always)]
fn slot(request: Request) -> usize {
    let page = request.page().0;
    (page ^ page >> 10 ^ request.access_bits() << 8) as usize % KNOWN
}

impl Recent {
    /// No known requests, for these first-level TLBs.
    pub(crate) fn new(first_level: impl Iterator<Item = FirstTlb>) -> Recent {
        let mut serving = [None; KINDS];
        for FirstTlb { index, kinds, .. } in first_level.filter(|first| first.known) {
            for kind in (0..MAX_LEVELS * 4).filter(|kind| kind & 3 != 3 && kinds >> bit_of(*kind) & 1 != 0) {
                serving[kind] = Some(index as u8);
            }
        }
        let request = Request::new(Vpn(0), Access::Read);
        let unknown = Known { request, entry: TlbEntry { head: 0, at: 0, tlb: 0, order: 0 }, round: 0 };
        let pause = if serving.iter().all(Option::is_none) { u32::MAX } else { 0 };
        Recent { serving, known: Box::new([unknown; KNOWN]), round: 1, pause, next: PAUSE, spared: 0, translated: 0 }
    }

    /// The TLB that serves a kind of request, if these can be known.
    #[inline(always)]
    pub(crate) fn serving(&self, kind: usize) -> Option<u8> {
        self.serving[kind % KINDS]
    }

    /// This many requests were translated without being noted.
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

    /// A request was translated, after `spared` known ones.
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

    /// This many requests were known since the last one that was translated.
    #[inline(always)]
    pub(crate) fn spare(&mut self, requests: usize) {
        self.spared = self.spared.saturating_add(requests as u32);
    }

    /// Serves requests that are known to hit, up to the first that is not; returns how many. Out of
    /// line: there the compiler knows that no use of an entry changes what is known.
    #[inline(never)]
    pub(crate) fn serve(&self, requests: &[Request], first: &mut Tlbs) -> usize {
        let (known, round) = (&*self.known, self.round);
        let served = |request: &Request| {
            let known = &known[slot(*request)];
            let TlbEntry { tlb, at, .. } = known.entry;
            known.request == *request
                && known.round == round
                && first.use_at(tlb as usize, at as usize, Use::by(request.access_bits() as u8, known.id()))
        };
        requests.iter().map(served).take_while(|served| *served).count()
    }

    /// Notes a request and the entry that serves it.
    #[inline(always)]
    pub(crate) fn note(&mut self, request: Request, entry: TlbEntry) {
        self.known[slot(request)] = Known { request, entry, round: self.round };
    }

    /// The requests that are known now, with the entries and translations that they used.
    pub(crate) fn known(&self) -> impl Iterator<Item = (Request, TlbEntry, EntryId)> {
        let known = self.known.iter().filter(|known| known.round == self.round && self.notes());
        known.map(|known| (known.request, known.entry, known.id()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const READ_BASE: usize = Access::Read as usize;
    const WRITE_BASE: usize = Access::Write as usize;

    /// Of one TLB that serves these kinds of request.
    fn recent(kinds: &[usize], known: bool) -> Recent {
        let kinds = kinds.iter().fold(0, |kinds, kind| kinds | 1 << bit_of(*kind));
        Recent::new([FirstTlb { index: 3, kinds, known }].into_iter())
    }

    /// Judges once, where each translated request came after `spared` known ones.
    fn judged(recent: &mut Recent, spared: usize) {
        (1..JUDGED).for_each(|_| recent.judge(spared));
        assert!(recent.notes(), "judged too early");
        recent.judge(spared);
    }

    /// Checks that requests are noted again after `requests` more.
    fn pauses_for(recent: &mut Recent, requests: u32) {
        assert!(!recent.notes());
        recent.skip(1);
        recent.skip(requests as usize - 2);
        assert!(!recent.notes());
        recent.skip(1);
        assert!(recent.notes());
    }

    #[test]
    fn where_few_requests_are_known_pauses_are_ever_longer_up_to_the_longest() {
        let mut recent = recent(&[READ_BASE], true);
        for doubled in 0..7 {
            judged(&mut recent, 0);
            pauses_for(&mut recent, (16 * PAUSE).min(PAUSE << doubled));
        }
        // As many known as translated is worth it, and the next pause is the first again.
        judged(&mut recent, 1);
        assert!(recent.notes());
        judged(&mut recent, 0);
        pauses_for(&mut recent, PAUSE);
        // One fewer is not; what was known before it was judged last does not count.
        recent.spare(JUDGED as usize - 1);
        judged(&mut recent, 0);
        pauses_for(&mut recent, 2 * PAUSE);
        recent.spare(JUDGED as usize);
        judged(&mut recent, 0);
        assert!(recent.notes());
    }

    #[test]
    fn of_tlbs_of_which_nothing_is_known_nothing_is_ever_noted() {
        let mut recent = recent(&[READ_BASE], false);
        recent.skip(usize::MAX);
        recent.skip(u32::MAX as usize);
        assert_eq!((recent.notes(), recent.serving(READ_BASE)), (false, None));
    }

    #[test]
    fn a_kind_of_request_is_served_by_the_tlb_that_says_so() {
        let large = (MAX_LEVELS - 1) << 2 | Access::Execute as usize;
        let recent = recent(&[WRITE_BASE, large], true);
        let serving = |kind: &usize| recent.serving(*kind) == Some(3);
        assert_eq!((0..KINDS).filter(serving).collect::<Vec<_>>(), [WRITE_BASE, large]);
    }

    #[test]
    fn what_is_forgotten_is_not_known_when_the_rounds_begin_again() {
        let mut recent = recent(&[READ_BASE], true);
        let request = Request::new(Vpn(0x1234), Access::Read);
        let mut known_after = |forgotten: u32| {
            recent.note(request, TlbEntry { tlb: 3, at: 7, head: 9, order: 4 });
            (0..forgotten).for_each(|_| recent.forget());
            recent.known().map(|(request, entry, id)| (request, entry.at, id)).collect::<Vec<_>>()
        };
        assert_eq!(known_after(0), [(request, 7, EntryId { number: 0x123, key: 9 })]);
        for forgotten in [1, 2, u32::from(u16::MAX) - 1, u32::from(u16::MAX), u32::from(u16::MAX) + 1] {
            assert_eq!(known_after(forgotten), [], "after {forgotten} rounds");
        }
        assert_eq!(known_after(0).len(), 1);
        judged(&mut recent, 0);
        assert_eq!(recent.known().count(), 0, "nothing is known in a pause");
        recent.skip(PAUSE as usize);
        assert_eq!(recent.known().count(), 0, "nor after it");
    }

    #[test]
    fn neighbouring_pages_and_kinds_of_access_have_different_slots() {
        let apart = |requests: &[(u64, Access)]| {
            let slots: HashSet<usize> =
                requests.iter().map(|(page, access)| slot(Request::new(Vpn(*page), *access))).collect();
            assert_eq!(slots.len(), requests.len());
        };
        let pages = |pages: std::ops::Range<u64>| {
            pages.flat_map(|page| [(page, Access::Read), (page, Access::Write), (page, Access::Execute)])
        };
        apart(&pages(0..256).collect::<Vec<_>>());
        apart(&pages(0x12_3400..0x12_3500).collect::<Vec<_>>());
        // Pages as far apart as there are slots, as those of two arrays.
        apart(&(0..64).flat_map(|page| [(page, Access::Read), (page << 10 | 0x81, Access::Read)]).collect::<Vec<_>>());
    }
}
