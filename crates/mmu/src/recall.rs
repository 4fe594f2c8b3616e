//! What a program used while nobody looked: the TLBs are brought to where they were at the end of
//! that time.
//!
//! Of each page its last use is known. A page that was used all the time, like a stack, never left
//! the first level, so it was never asked for at the second, and no walk to it changed a walk
//! cache. Where last uses are all that is replayed, it falls out at each level, and comes back at
//! each. So two things are held of a page that a level still has when all was replayed:
//!
//! - The first level had it all the time, and passes nothing on, if it was used whenever anybody
//!   looked (since it was first used, or for as long as nobody has looked now), and not missed in a
//!   good part of that. Less is not enough: a server's buffer is used without a miss while its
//!   client is served, and then not for a while; held to have stayed, it grows old in the second
//!   level, and a window walks to it.
//! - The other levels had it all the time, and it is not walked for, if it was used without a miss
//!   there when anybody looked last. Should that be wrong, walk caches alone are a little off.

use crate::mappings::Mappings;
use crate::mmu::Mmu;
use crate::request::{Request, Trap};
use crate::tlb::batch::{Batch, Located, kind};
use crate::tlb::first::FirstLevel;
use crate::tlb::further::FurtherLevels;
use crate::tlb::noted::Noted;
use crate::tlb::storage::EntryId;
use crate::tlb::{Served, Tlbs};
use superpage_pages::Access;

/// One of the requests that are replayed, for a page that was used before too.
#[derive(Clone, Copy, Debug)]
pub struct Stayed {
    /// Its index.
    pub index: usize,
    /// Whether the page was written to then.
    pub written: bool,
    /// Whether it was used whenever anybody looked: since it was first used, or for as long as
    /// nobody has looked now.
    pub always: bool,
}

/// A request that the levels so far did not serve, or did not have all the time.
struct Passed {
    located: Located,
    request: Request,
    /// How the page was used before, if it was.
    stayed: Option<Stayed>,
}

impl Passed {
    /// Whether these levels have had it all the time, for the kinds of access by which it was used:
    /// they have it, and nobody has missed it.
    fn is_in(&self, tlbs: &Tlbs, noted: &Noted) -> bool {
        let Located { number, head, kind, .. } = self.located;
        let write = kind & !3 | Access::Write as usize;
        let has = |kind| tlbs.has(EntryId { number, key: head }, kind);
        let held = |stayed: Stayed| has(kind) && (!stayed.written || has(write));
        self.stayed.is_some_and(held) && !noted.has(head)
    }
}

impl Mmu {
    /// From now on the levels behind the first note what misses in them, for [`Mmu::recall`], and
    /// the first level too if `first` is set: for it that is done seldom, so that it remembers many
    /// times of looking. Each forgets what it noted when this is done for the second time.
    pub fn note_misses(&mut self, first: bool) {
        self.catch_up();
        for first_level in self.first_levels.get_mut() {
            let further = first_level.further.iter_mut().map(|further| &mut further.noted);
            let first = Some(&mut first_level.noted).filter(|_| first);
            further.chain(first).for_each(|noted| noted.get_or_insert_default().begin());
        }
    }

    /// Makes the requests, the last use of each page in their order, as [`Mmu::run`] does, and
    /// returns what that does; `stayed` are those for pages that were used before too, by their
    /// indices, which ascend. Where an entry depends on other mappings or on use bits, where one of
    /// the requests would trap, and without [`Mmu::note_misses`], none is held to have stayed.
    /// O(requests), some 100 ns each.
    pub fn recall(&mut self, requests: &[Request], stayed: &[Stayed]) -> Option<(usize, Trap)> {
        let ready = |request: &Request| {
            let mapped = self.lookup(self.space(), request.page());
            mapped.is_some_and(|mapped| mapped.protection.allows(request.access()))
        };
        if stayed.is_empty() || !self.may_recall() || !requests.iter().all(ready) {
            return self.run(requests);
        }
        self.catch_up();
        let (first_levels, mappings, space) = self.in_parts();
        for first_level in first_levels {
            // Each by what it is itself, whatever others share the mappings.
            if first_level.compared == 0 {
                first_level.recall(mappings, space, requests, stayed);
            } else {
                first_level.run::<false>(mappings, space, requests);
            }
        }
        None
    }
}

impl FirstLevel {
    fn recall(&mut self, mappings: &mut Mappings, space: u32, requests: &[Request], stayed: &[Stayed]) {
        let (mut missed, mut stayed) = (Vec::new(), stayed.iter().peekable());
        for (index, request) in requests.iter().enumerate() {
            let (page, access) = (request.page(), request.access_bits());
            let entry = mappings.entry(space, page).expect("it would not trap");
            let head = mappings.make_ready(entry, page, access).expect("it would not trap");
            let pte = mappings.ptes[head as usize];
            let (number, kind) = (self.tlbs.number(page, pte), kind(pte, access));
            let located = Located { head, entry, number, kind };
            let stayed = stayed.next_if(|next| next.index == index).copied();
            if self.misses_first(mappings, located) {
                missed.push(Passed { located, request: *request, stayed });
            }
        }
        if let Some(noted) = &self.noted {
            let always = |passed: &Passed| passed.stayed.is_some_and(|stayed| stayed.always);
            missed.retain(|passed| !(always(passed) && passed.is_in(&self.tlbs, noted)));
        }
        let FirstLevel { further, misses, .. } = self;
        for further in further {
            further.recall(mappings, misses, &missed);
        }
    }
}

impl FurtherLevels {
    fn recall(&mut self, mappings: &Mappings, batch: &mut Batch, missed: &[Passed]) {
        let one = |passed: &Passed, batch: &mut Batch| {
            batch.set(0, passed.located);
            batch.ask(&[passed.request]);
            batch.close(1);
        };
        let mut served: Vec<(&Passed, Served)> = Vec::with_capacity(missed.len());
        for passed in missed {
            one(passed, batch);
            served.push((passed, self.tlbs.translate(mappings, batch)));
        }
        for (passed, served) in served {
            let walks = served.missed != 0;
            if walks && self.noted.as_ref().is_some_and(|noted| passed.is_in(&self.tlbs, noted)) {
                continue;
            }
            one(passed, batch);
            self.count(batch, &served);
            if walks {
                self.walkers.iter_mut().for_each(|walker| walker.walk(mappings, batch, &served));
            }
        }
    }
}
