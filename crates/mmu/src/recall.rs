//! Brings TLBs up to date after a time in which accesses were not simulated, in a sampled stream:
//! *recall*.
//!
//! Only the last use of each page is known and replayed. But a page that was used all the time,
//! like a stack, never left the first level: the second level never saw it, and no walk to it
//! changed a walk cache. A replay of last uses alone would miss it at each level. So two
//! assumptions are made of a page that a level still holds after the replay:
//!
//! - It stayed in the first level, and is not passed on, if every sample used it (since its first
//!   use, or in as long a time as is recalled now) and the first level missed it in few of them. A
//!   weaker rule fails: a server's buffer is used without a miss while its client is served, and
//!   then not for a while. Assumed to have stayed, it would age in the second level, and the next
//!   sample would walk to it.
//! - It stayed in the other levels, and is not walked for, if the last sample used it without a
//!   miss there. If that is wrong, only the walk caches are slightly off.

use crate::mappings::Mappings;
use crate::mmu::Mmu;
use crate::request::{Request, Trap};
use crate::tlb::batch::{Batch, Located, kind};
use crate::tlb::first::FirstLevel;
use crate::tlb::further::FurtherLevels;
use crate::tlb::noted::Noted;
use crate::tlb::uses::{BATCH, EntryId, each};
use crate::tlb::{Served, Tlbs};
use superpage_pages::Access;

/// A replayed request for a page that was used before too.
#[derive(Clone, Copy, Debug)]
pub struct UsedBefore {
    /// Its index.
    pub index: usize,
    /// Whether the page was written before.
    pub written: bool,
    /// Whether each sample used it: since it was first used, or in as long a time as the one that
    /// is recalled.
    pub always: bool,
}

/// A request that the nearer levels did not serve, or did not hold all the time.
struct Passed {
    located: Located,
    request: Request,
    /// How the page was used before, if it was.
    before: Option<UsedBefore>,
}

impl Passed {
    /// Whether these levels have held it all the time, for the kinds of access that used it: they
    /// hold it, and no request has missed it.
    fn is_in(&self, tlbs: &Tlbs, noted: &Noted) -> bool {
        let Located { number, head, kind, .. } = self.located;
        let write = kind & !3 | Access::Write as usize;
        let has = |kind| tlbs.has(EntryId { number, key: head }, kind);
        let held = |before: UsedBefore| has(kind) && (!before.written || has(write));
        !noted.has(head) && self.before.is_some_and(held)
    }
}

impl Mmu {
    /// Starts a note of misses, for [`Mmu::recall`], in the levels behind the first, and in the
    /// first level too if `first` is set, of the current core; set it seldom, so that its note
    /// spans many samples. A note is forgotten when the second one after it starts.
    pub fn note_misses(&mut self, first: bool) {
        self.catch_up();
        for first_level in self.here().0 {
            let further = first_level.further.iter_mut().map(|further| &mut further.noted);
            let first = Some(&mut first_level.noted).filter(|_| first);
            further.chain(first).for_each(|noted| noted.get_or_insert_default().begin());
        }
    }

    /// As [`Mmu::run`] of requests that are the last use of each page, in order. `used` are those
    /// for pages that were used before too, by ascending index. No page is assumed to have stayed
    /// where an entry depends on other mappings or on use bits, on machines that have shadow
    /// superpages, a managed host or software that refills, where one of the
    /// requests would trap, and without [`Mmu::note_misses`]. Cost: O(requests), some 100 ns each.
    pub fn recall(&mut self, requests: &[Request], used: &[UsedBefore]) -> Option<(usize, Trap)> {
        let Some(entries) = self.recalled(requests, used) else { return self.run(requests) };
        self.catch_up();
        self.shot = None;
        let (first_levels, mappings, space) = self.here();
        for first_level in first_levels {
            // Each first level by its machines alone, whichever others share the mappings. Where
            // entries depend on use bits nothing is recalled.
            if first_level.compared == 0 {
                first_level.recall(mappings, (requests, &entries), used);
            } else {
                first_level.run::<false>(mappings, space, requests);
            }
        }
        None
    }

    /// The page-table entries of the requests, if pages may have stayed and no request would trap.
    fn recalled(&mut self, requests: &[Request], used: &[UsedBefore]) -> Option<Vec<u32>> {
        if used.is_empty() || !self.may_recall() {
            return None;
        }
        self.mappings.refresh();
        let mut entries = Vec::with_capacity(requests.len());
        for request in requests {
            entries.push(self.mappings.ready_entry(self.space, *request)?);
        }
        Some(entries)
    }
}

impl FirstLevel {
    /// Recalls requests, given with their page-table entries.
    fn recall(&mut self, mappings: &mut Mappings, (requests, entries): (&[Request], &[u32]), used: &[UsedBefore]) {
        let (mut missed, mut used) = (Vec::new(), used.iter().copied().peekable());
        let asked = requests.chunks(BATCH).zip(entries.chunks(BATCH));
        for ((asked, entries), first) in asked.zip((0..).step_by(BATCH)) {
            for (at, (request, entry)) in asked.iter().zip(entries).enumerate() {
                let (page, access) = (request.page(), request.access_bits());
                let head = mappings.make_ready(*entry, page, access).expect("it would not trap");
                let pte = mappings.ptes[head as usize];
                let (number, kind) = (self.tlbs.number(page, pte), kind(pte, access));
                self.batch.set(at, Located { head, entry: *entry, number, kind });
            }
            self.batch.close(asked.len());
            for at in each(self.translate_first(mappings)) {
                while used.next_if(|used| used.index < first + at).is_some() {}
                let before = used.next_if(|used| used.index == first + at);
                missed.push(Passed { located: self.batch.located(at), request: asked[at], before });
            }
        }
        if let Some(noted) = &self.noted {
            let always = |passed: &Passed| passed.before.is_some_and(|before| before.always);
            missed.retain(|passed| !(always(passed) && passed.is_in(&self.tlbs, noted)));
        }
        let FirstLevel { further, misses: batch, .. } = self;
        let fill = |batch: &mut Batch, passed: &[Passed]| {
            for (at, passed) in passed.iter().enumerate() {
                batch.set(at, passed.located);
                batch.pages[at] = passed.request.page().0;
            }
            batch.close(passed.len());
        };
        let mut served: Vec<Vec<Served>> = vec![Vec::new(); further.len()];
        for passed in missed.chunks(BATCH) {
            fill(batch, passed);
            for (further, served) in further.iter_mut().zip(&mut served) {
                served.push(further.tlbs.translate(mappings, batch));
            }
        }
        for (number, passed) in missed.chunks(BATCH).enumerate() {
            fill(batch, passed);
            for (further, served) in further.iter_mut().zip(&served) {
                further.recall(mappings, batch, passed, served[number]);
            }
        }
    }
}

impl FurtherLevels {
    /// Counts requests of a recall, whose batch it was, and walks for those that were not held.
    fn recall(&mut self, mappings: &Mappings, batch: &mut Batch, passed: &[Passed], mut served: Served) {
        // What is held to have stayed in the TLBs is neither counted nor walked for.
        if let Some(noted) = &self.noted {
            let stayed = each(served.missed).filter(|at| passed[*at].is_in(&self.tlbs, noted));
            batch.uncounted = stayed.fold(0, |stayed, at| stayed | 1 << at);
        }
        self.count(batch, &served);
        served.missed &= !batch.uncounted;
        if served.missed != 0 {
            self.walkers.iter_mut().for_each(|walker| walker.walk(mappings, batch, &served));
        }
        batch.uncounted = 0;
    }
}
