//! Kind `operations`: what one operation of the memory manager costs, against the size of the
//! superpage (section 6.8).
//!
//! Each is counted, in page-table entries, and timed, with both the manager and the table at work.
//! Counts are the same everywhere; times are this machine's.

use crate::computed::{Computed, Shown};
use crate::experiment::Experiment;
use crate::table::{Form, Table};
use std::time::Instant;
use superpage_pages::{Access, Extent, Ladder, Level, Pfn, Protection, Vpn};
use superpage_vm::{Buddy, Config, Map, NoMemory, Pmap, Policy, SpaceId, Vm};

/// How often each operation is timed; the least time counts, since all others include something
/// else.
const ROUNDS: usize = 5;

/// One operation at one size.
#[derive(Clone, Copy)]
struct Cost {
    /// Entries written.
    writes: u64,
    /// Entries read or written by promotions and demotions.
    traversals: u64,
    nanoseconds: f64,
}

/// Costs by operation and level.
struct Costs {
    /// The operation, the level, and what it cost.
    found: Vec<(&'static str, Level, Cost)>,
}

impl Costs {
    /// Adds a measurement: its counts must equal those before; of times the least counts.
    fn note(&mut self, operation: &'static str, level: Level, cost: Cost) {
        match self.found.iter_mut().find(|(known, at, _)| *known == operation && *at == level) {
            Some((.., known)) => known.nanoseconds = known.nanoseconds.min(cost.nanoseconds),
            None => self.found.push((operation, level, cost)),
        }
    }
}

/// A manager with a table, and the region that is mapped.
struct Bench {
    vm: Vm,
    table: Table,
    space: SpaceId,
}

/// The region's first page: aligned to every size.
const FIRST: Vpn = Vpn(1 << 30);

impl Bench {
    /// `frames` of memory, and a mapping of `pages`.
    fn new(form: Form, ladder: Ladder, frames: u64, pages: u64) -> Bench {
        let policy = Policy::named("reservation").expect("a built-in policy");
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).expect("memory of at least an extent");
        let mut table = Table::new(form, ladder, FIRST, pages);
        let space = vm.create_space();
        vm.map(&mut table, space, Map::anonymous(FIRST, pages)).expect("a mapping in an empty space");
        Bench { vm, table, space }
    }

    /// Does something, and returns its cost.
    fn cost<T>(&mut self, what: impl FnOnce(&mut Bench) -> T) -> (Cost, T) {
        let before = (self.table.writes, self.table.traversals);
        let start = Instant::now();
        let result = what(self);
        let nanoseconds = start.elapsed().as_nanos() as f64;
        (
            Cost { writes: self.table.writes - before.0, traversals: self.table.traversals - before.1, nanoseconds },
            result,
        )
    }

    /// Write-protects the page.
    fn protect(&mut self, page: u64) -> Cost {
        let protect = |bench: &mut Bench| {
            bench.vm.protect(&mut bench.table, bench.space, (FIRST + page).pages(1), Protection::READ)
        };
        let (cost, done) = self.cost(protect);
        done.expect("a page that is mapped");
        cost
    }

    /// A use bit is cleared, as the page daemon does, and set again by the trap at the next
    /// reference.
    fn emulate(&mut self, page: u64) -> Cost {
        let (cost, ()) = self.cost(|bench| {
            let at = FIRST + page;
            let size = bench.table.lookup(bench.space, at).expect("a page that is mapped").size;
            assert!(bench.table.clear_referenced(bench.space, at, size), "what was touched is referenced");
            bench.table.set_referenced(at, size);
        });
        cost
    }

    /// A first write to the page.
    fn touch(&mut self, page: u64) -> (Cost, Level) {
        self.cost(|bench| {
            let fault = bench.vm.fault(&mut bench.table, &mut NoMemory, bench.space.page(FIRST + page), Access::Write);
            fault.expect("memory is not full").mapped
        })
    }
}

/// Measures all operations over the superpage sizes of the ladder.
fn measure(form: Form, ladder: Ladder) -> Costs {
    let mut costs = Costs { found: Vec::new() };
    let largest = ladder.pages(ladder.largest());
    for _ in 0..ROUNDS {
        // Every page of one largest superpage is touched in order. A fault that completes an extent
        // promotes it.
        let mut bench = Bench::new(form, ladder, 2 * largest, largest);
        for page in 0..largest {
            let (cost, level) = bench.touch(page);
            let operation = match (page, level) {
                (0, _) => continue,
                (_, Level::BASE) => "fault",
                _ => "promotion",
            };
            costs.note(operation, level, cost);
        }
        // One page of a superpage of each size is protected, which demotes the superpage step by
        // step.
        for level in ladder.levels().skip(1) {
            let pages = ladder.pages(level);
            let mut bench = Bench::new(form, ladder, 4 * pages, 2 * pages);
            (0..2 * pages).for_each(|page| _ = bench.touch(page));
            // The first of two, so that the second finds the caches warm.
            bench.emulate(0);
            let cost = bench.emulate(pages);
            costs.note("use-bit emulation", level, cost);
            bench.protect(0);
            let cost = bench.protect(pages);
            costs.note("demotion", level, cost);
        }
        for level in ladder.levels().skip(1) {
            // Memory is one extent of the size, and a first fault reserves all of it; the next, in
            // another extent, preempts it.
            let pages = ladder.pages(level);
            let mut bench = Bench::new(form, ladder, pages, 2 * pages.max(largest));
            bench.touch(0);
            let (cost, _) = bench.touch(largest);
            costs.note("preemption", level, cost);
        }
        for level in ladder.levels() {
            let mut buddy = Buddy::new(ladder, 2 * largest).expect("memory of two extents");
            // A base page is allocated, so that an extent must be split off and coalesced again.
            buddy.allocate_at(Extent { start: Pfn(0), level: Level::BASE });
            let mut pair = || {
                let start = Instant::now();
                let extent = buddy.allocate(level).expect("half of memory is free");
                buddy.free(std::hint::black_box(extent));
                start.elapsed().as_nanos() as f64
            };
            pair();
            let nanoseconds = pair();
            costs.note("allocate and free", level, Cost { writes: 0, traversals: 0, nanoseconds });
        }
    }
    costs
}

/// Costs by size: values `FORM.OPERATION.writes.SIZE`, likewise `traversals` and `nanoseconds`, and
/// curves `FORM.OPERATION.writes` and so on over the bytes of the size. A form is `replicated` or
/// `single`.
pub(crate) fn compute(experiment: &Experiment) -> Computed {
    let mut found = Computed::default();
    for (form, name) in [(Form::Replicated, "replicated"), (Form::Single, "single")] {
        let sizes = experiment.ladders.as_ref().and_then(|ladders| ladders.get(name));
        let Some(Ok(ladder)) = sizes.map(|sizes| Ladder::new(sizes)) else { continue };
        for (operation, level, cost) in measure(form, ladder).found {
            let (size, slug) = (ladder.size(level), operation.replace(' ', "-"));
            let numbers = [
                ("writes", "entries written", cost.writes as f64),
                ("traversals", "entries traversed", cost.traversals as f64),
                ("nanoseconds", "nanoseconds here", cost.nanoseconds),
            ];
            for (key, quantity, value) in numbers {
                found.values.insert(format!("{name}.{slug}.{key}.{size}"), value);
                found.point(&format!("{name}.{slug}.{key}"), size.bytes() as f64, value, "");
                if operation != "allocate and free" || key == "nanoseconds" {
                    found.shown.push(Shown {
                        item: format!("{operation}, {size}"),
                        quantity: format!("{quantity}, {}", if form == Form::Single { "one entry each" } else { name }),
                        value,
                        reason: "the paper states orders of growth, no numbers".into(),
                    });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder() -> Ladder {
        Ladder::new(&["16K", "256K", "4M", "64M"].map(|size| size.parse().unwrap())).unwrap()
    }

    fn counts(form: Form, operation: &str) -> Vec<(u64, u64)> {
        let costs = measure(form, ladder()).found;
        let of = |found: &&(&str, Level, Cost)| found.0 == operation && found.1 > Level::BASE;
        costs.iter().filter(of).map(|(.., cost)| (cost.writes, cost.traversals)).collect()
    }

    #[test]
    fn promotion_writes_every_replicated_entry_at_each_size() {
        // Beside the entry of the page itself: 16 entries, then these again and 256, then these
        // again and 4096.
        let expected = [(1 + 16, 16), (1 + 16 + 256, 16 + 256), (1 + 16 + 256 + 4096, 16 + 256 + 4096)];
        assert_eq!(counts(Form::Replicated, "promotion"), expected);
    }

    #[test]
    fn promotion_writes_one_entry_a_size_where_there_is_one() {
        assert_eq!(counts(Form::Single, "promotion"), [(1 + 1, 16), (1 + 2, 32), (1 + 3, 48)]);
    }

    #[test]
    fn emulating_a_use_bit_writes_every_replicated_entry_twice() {
        assert_eq!(counts(Form::Replicated, "use-bit emulation"), [(2 * 16, 0), (2 * 256, 0), (2 * 4096, 0)]);
        assert_eq!(counts(Form::Single, "use-bit emulation"), [(2, 0); 3]);
    }

    #[test]
    fn preemption_does_not_touch_the_table() {
        for form in [Form::Replicated, Form::Single] {
            assert_eq!(counts(form, "preemption"), [(1, 0); 3]);
        }
    }
}
