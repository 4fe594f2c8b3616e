//! Requests that wait across traps.
//!
//! Programs that touch new memory trap often, and a batch of misses that ends at each trap is
//! small. On many machines the kernel's work at a trap for an absent page does not change how TLBs
//! and walkers serve earlier requests. There the misses of a first level need not be passed on
//! before the kernel runs: they wait, with the walk that ended at the absent entry and the retry of
//! its request, until a batch is full, an existing mapping changes, or the requests end. They are
//! passed on in their order, so all counts stay equal.
//!
//! Requests may wait where an entry of a TLB or a walk cache depends only on its mapping and the
//! tables above it, which new mappings do not change. Entries of several pages, ranges and hash
//! tables depend on other mappings.

use crate::mappings::Mappings;
use crate::mmu::Mmu;
use crate::request::Request;
use crate::tlb::batch::{Located, absent_kind};
use crate::tlb::first::FirstLevel;
use crate::tlb::uses::BATCH;
use std::cell::Ref;

impl Mmu {
    /// Lets requests before a trap be served after it, on machines where no count depends on that;
    /// on others this does nothing. Calls that read counts or TLBs serve waiting requests first.
    pub fn defer(&mut self) {
        let defers = self.may_defer;
        self.first_levels.get_mut().iter_mut().for_each(|first_level| first_level.defers = defers);
    }

    /// Serves waiting requests, before mappings change.
    pub(crate) fn catch_up(&mut self) {
        pass_on(self.first_levels.get_mut(), &self.mappings);
    }

    /// The first levels and all levels behind them, once no request waits.
    pub(crate) fn served(&self) -> Ref<'_, Vec<FirstLevel>> {
        pass_on(&mut self.first_levels.borrow_mut(), &self.mappings);
        self.first_levels.borrow()
    }
}

/// Passes on waiting requests. Either all first levels defer, or none does.
fn pass_on(first_levels: &mut [FirstLevel], mappings: &Mappings) {
    if first_levels[0].defers {
        first_levels.iter_mut().for_each(|first_level| first_level.pass_on(mappings));
    }
}

impl FirstLevel {
    /// Queues a walk that ends at the absent entry of a page, whose root exists.
    pub(crate) fn wait_absent(&mut self, mappings: &mut Mappings, space: u32, request: Request) {
        let access = request.access_bits();
        // The lookup that found the page absent cached the place of its entry, unless the tables
        // end higher up.
        let entry = mappings.entry(space, request.page());
        let entry = entry.or_else(|| mappings.find(space, request.page(), 1).map(|found| found.id));
        let entry = entry.expect("the root exists");
        self.counters.references[access as usize] += 1;
        let kind = absent_kind(mappings.nodes.level_of(entry), access);
        self.wait(mappings, Located { head: entry, entry, number: 0, kind });
    }

    /// Queues a request that missed here and is to fill the levels behind, uncounted.
    pub(crate) fn wait_uncounted(&mut self, mappings: &Mappings, located: Located) {
        self.wait(mappings, located);
        self.misses.uncounted |= 1 << (self.waiting - 1);
    }

    fn wait(&mut self, mappings: &Mappings, located: Located) {
        if self.waiting == BATCH {
            self.pass_on(mappings);
        }
        self.misses.add(&mut self.waiting, located);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use superpage_pages::{Access, Mapped, PageSize, Pfn, Protection, Vpn};

    #[test]
    fn requests_wait_where_no_new_mapping_changes_how_they_are_served() {
        let defers = |name: &str| Machine::builtin(name).unwrap().may_defer();
        for name in ["zen5", "harpertown", "alpha-21264", "neoverse-v2", "zen5+fractured", "zen5+skewed"] {
            assert!(defers(name), "{name}");
        }
        let depend = ["coalescing", "colt", "partial-subblock", "complete-subblock", "range", "shadow", "perforated"];
        for name in depend.into_iter().chain(["nested", "nested+perforated", "clustered", "hashed"]) {
            assert!(!defers(&format!("zen5+{name}")), "{name}");
        }
        assert!(!defers("ppc603") && !defers("ppc604"));
    }

    #[test]
    fn what_is_read_while_requests_wait_is_of_all_of_them() {
        let machine = Machine::builtin("zen5").unwrap();
        let (mut waits, mut plain) = (Mmu::new(&machine), Mmu::new(&machine));
        waits.defer();
        for mmu in [&mut waits, &mut plain] {
            let requests: Vec<Request> = (0..100).map(|page| Request::new(Vpn(page), Access::Read)).collect();
            for (page, request) in requests.iter().enumerate() {
                assert!(mmu.run(&requests[page..]).is_some_and(|(index, _)| index == 0));
                let frame = Pfn(page as u64);
                let to = Mapped { frame, size: PageSize::KB4, protection: Protection::READ_WRITE };
                mmu.enter(0, Vpn(page as u64), to, Access::Read);
                mmu.retry(*request).unwrap();
            }
        }
        assert!(waits.first_levels.borrow()[0].waiting > 0, "nothing waits");
        assert_eq!(waits.misses(0), plain.misses(0));
        assert!(waits.first_levels.borrow()[0].waiting == 0 && plain.misses(0) == 100);
        assert_eq!((waits.counters(0), waits.faulting(0)), (plain.counters(0), plain.faulting(0)));
        assert_eq!(waits.held(0), plain.held(0));
    }
}
