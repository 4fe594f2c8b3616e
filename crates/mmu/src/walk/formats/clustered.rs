//! A clustered page table: the mappings of an aligned block of base pages are one node of a hash
//! table's chain. Talluri, Hill and Khalidi, A new page table for 64-bit address spaces, SOSP 1995.
//! What nodes there are is in [`crate::mappings::Clusters`].
//!
//! A walk reads the pointer of the bucket, then of each node of the chain the tag, and the pointer
//! to the next one, or the mapping. Of one node it reads each line once: the tag and what it reads
//! next may be in the same. There are no walk caches. What is looked up is still found by the index
//! of the mappings, which takes no room in the machine's memory.

use super::radix::Radix;
use super::{TableFormat, Walks};
use crate::machine::Machine;
use crate::mappings::{ClusterShape, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::tlb::uses::{BATCH, each};
use crate::walk::lines::Reads;
use superpage_pages::{Ladder, Vpn};

/// It has no state: walks depend on the table and on the line caches.
#[derive(Clone, Debug)]
pub(crate) struct Clustered;

impl TableFormat for Clustered {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        Radix::refuses(bits, ladder)
    }

    fn shape(machine: &Machine) -> Shape {
        let mut shape = Radix::shape(machine);
        shape.clusters = ClusterShape::of(machine);
        shape.bytes.fill(0);
        shape
    }

    fn new(_: &Machine, _: &Shape) -> Clustered {
        Clustered
    }

    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, mut reads: Reads<'_>) {
        for index in each(walks.requests) {
            let space = mappings.nodes.space_of(batch.entries[index]);
            search(mappings, SpacePage { space, page: Vpn(batch.pages[index]) }, &mut reads);
        }
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, _: PartialHits, mut reads: Reads<'_>) {
        search(mappings, page, &mut reads);
    }

    fn drop_pointer(&mut self, _: Pointer) {}

    fn flush(&mut self) {}

    fn validate(&self, _: &Mappings) -> Result<(), String> {
        Ok(())
    }
}

/// Reads the lines of a search. What is read twice in a row is read once.
fn search(mappings: &Mappings, SpacePage { space, page }: SpacePage, Reads { lines, counters, .. }: &mut Reads<'_>) {
    let clusters = mappings.clusters().expect("clustered tables have nodes");
    let (mut last, mut count) = (None, 0);
    clusters.search(space, page, |word| {
        let line = Some(lines.line(word));
        if std::mem::replace(&mut last, line) != line {
            lines.want(count, word);
            count += 1;
            if count == BATCH {
                lines.read(count, counters);
                count = 0;
            }
        }
    });
    lines.read(count, counters);
}
