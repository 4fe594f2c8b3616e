//! A linear table, as on the Alpha: a page of any size has one identical entry for each of its base
//! pages, of which the first holds the use bits (Navarro et al., section 6.1). The levels above the
//! lowest only locate the pieces of the table: they are the table's entries for its own pages, in
//! pages of it.

use super::radix::Radix;
use super::{TableFormat, Walks};
use crate::machine::Machine;
use crate::mappings::{Layout, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::walk::lines::Reads;
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::Ladder;

/// Walks as in a tree: only the levels of leaves differ.
#[derive(Clone, Debug)]
pub(crate) struct Linear(Radix);

impl TableFormat for Linear {
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String> {
        let largest = ladder.size(ladder.largest());
        let order = largest.shift() - ladder.base().shift();
        (order > bits[0] as u32)
            .then(|| format!("a page of {largest} is not within one table of 2^{} entries", bits[0]))
    }

    fn shape(machine: &Machine) -> Shape {
        let mut shape = Shape::new(machine, |_, order| Layout { level: 1, replicas: order });
        let page = machine.ladder().base().bytes();
        shape.bytes.iter_mut().for_each(|bytes| *bytes = bytes.next_multiple_of(page));
        shape
    }

    fn new(machine: &Machine, shape: &Shape) -> Linear {
        Linear(Radix::new(machine, shape))
    }

    #[inline(always)]
    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, reads: Reads<'_>) {
        self.0.walk(mappings, batch, walks, reads);
    }

    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, reads: Reads<'_>) {
        self.0.walk_absent(mappings, page, partial, reads);
    }

    fn drop_pointer(&mut self, pointer: Pointer) {
        self.0.drop_pointer(pointer);
    }

    fn caches(&mut self) -> Option<&mut WalkCaches> {
        Some(&mut self.0.caches)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn validate(&self, mappings: &Mappings) -> Result<(), String> {
        self.0.validate(mappings)
    }
}
