//! What waits across traps.
//!
//! Programs that touch new memory trap often, and a batch of misses that ends at each trap is small. Where nothing that a kernel does at a trap
//! for an absent page changes what TLBs and walkers do with the requests before it, what missed in a first level need not be passed on before
//! the kernel runs: it waits, with the walk that ended at the absent entry, and the request that is made again, until there are enough for
//! a batch; or until a mapping that is there changes, or the requests end. All is passed on in the same order, so all counts are the same.
//!
//! That is so where what an entry of a TLB or a walk cache holds depends on its own mapping and on the tables above it: new mappings change
//! neither. Entries of several pages, ranges and hash tables depend on what else is mapped.

use crate::batch::{BATCH, Located, absent_kind};
use crate::front::Front;
use crate::machine::Machine;
use crate::mappings::Mappings;
use crate::mmu::Mmu;
use crate::request::Request;
use crate::table::TableKind;

impl Mmu {
    /// From now on what is asked before a trap may be served after it, if these machines are such that nothing changes by that; if not,
    /// this does nothing. What is counted of requests and walks, and what TLBs hold, is then known when [`Mmu::run`] has returned `None`,
    /// or after [`Mmu::catch_up`]: to ask for it in between is a bug.
    pub fn defer(&mut self) {
        let defers = self.may_defer;
        self.fronts.iter_mut().for_each(|front| front.defers = defers);
    }

    /// Serves what waits.
    pub fn catch_up(&mut self) {
        if self.fronts[0].defers {
            let mappings = &self.mappings;
            self.fronts.iter_mut().for_each(|front| front.pass_on(mappings));
        }
    }

    /// Checks that the caller may look at counts and TLBs: all that was asked for is served.
    pub(crate) fn expect_served(&self) {
        debug_assert!(self.fronts.iter().all(|front| front.waiting == 0), "what waits is not counted yet");
    }
}

impl Front {
    /// Counts a walk that ends at the absent entry of a page whose root exists, after what waits.
    pub(crate) fn wait_absent(&mut self, mappings: &Mappings, space: u32, request: Request) {
        let access = request.access_bits();
        let found = mappings.find(space, request.page(), 1).expect("the root exists");
        self.counters.references[access as usize] += 1;
        let kind = absent_kind(found.level, access);
        self.wait(mappings, Located { head: found.id, entry: found.id, number: 0, kind });
    }

    /// Fills what is behind for a request that missed here, uncounted, after what waits.
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

impl Machine {
    /// Whether requests may be served after new mappings are made. Perforated pages and hosts have table formats of their own.
    pub(crate) fn may_defer(&self) -> bool {
        let tables = matches!(self.page_table.kind, TableKind::Radix | TableKind::Linear);
        let joins = self.tlb.iter().any(|tlb| tlb.joined(self).is_some());
        tables && !joins && self.range_tlb.is_none() && self.shadow.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::{Access, Vpn};

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
    #[should_panic(expected = "what waits is not counted yet")]
    fn counts_are_not_asked_for_while_requests_wait() {
        let mut mmu = Mmu::new(&Machine::builtin("zen5").unwrap());
        mmu.defer();
        assert!(mmu.run(&[Request::new(Vpn(1), Access::Read)]).is_some());
        mmu.counters(0);
    }
}
