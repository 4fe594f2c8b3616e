//! Page-table formats: where mappings lie in memory, and so what a walk reads. Each format is a
//! file.
//!
//! What is mapped is kept in [`crate::mappings`] and looked up there for each request; a format is
//! used at a miss, and notified of changes. To add one, write its file (a type that implements
//! [`TableFormat`]), and a line in the list below and in [`crate::machine`], by whose name machine
//! files know it (`page-table.kind`). Its naive twin goes into the tests (`brute_force`).

use crate::machine::{Machine, TableKind};
use crate::mappings::pte::Pte;
use crate::mappings::{Mappings, Shape};
use crate::tlb::batch::Batch;
use crate::tlb::reach::Known;
use crate::walk::lines::{Lines, Reads};
use superpage_pages::{Ladder, Vpn};

mod clustered;
mod groups;
mod linear;
mod nested;
mod perforated;
mod radix;
mod victima;

pub(crate) use groups::Groups;
pub(crate) use nested::{Reached, TABLES, tables_of_host};

/// Where other things that walks read are among the page-table entries, which are numbered from 0:
/// the entries of a host's tables.
const HOST: u32 = 1 << 30;
/// The shadow entries of perforated pages.
const SHADOWS: u32 = 2 << 30;
/// The bitmaps of their holes.
const BITMAPS: u32 = 3 << 30;

/// A page-table format, with the caches of its walker.
pub(crate) trait TableFormat: Sized {
    /// Why a table whose levels translate so many bits each cannot hold pages of this ladder, if it
    /// cannot.
    fn refuses(bits: &[u8], ladder: &Ladder) -> Option<String>;

    /// Why this machine cannot have such a table, if it cannot.
    fn unsuited(_: &Machine) -> Option<String> {
        None
    }

    /// How mappings are indexed and how many entries each takes. Addresses are derived from this
    /// index.
    fn shape(machine: &Machine) -> Shape;

    /// Empty caches, as the machine file describes them.
    fn new(machine: &Machine, shape: &Shape) -> Self;

    /// Walks for these requests of a batch, whose pages are mapped, in their order. Of some TLBs
    /// know a part.
    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: (u64, Known), reads: Reads<'_>);

    /// Walks for a page that is not mapped, to the absent entry. Its root exists. Of some TLBs know
    /// a part: then the first bit of each set is set.
    fn walk_absent(&mut self, mappings: &Mappings, page: (u32, Vpn), known: Known, reads: Reads<'_>);

    /// A page-table entry of a level of the index that pointed to others was removed.
    fn forget(&mut self, level: usize, pte: Pte);

    /// Empties the caches of the walker.
    fn flush(&mut self);

    /// Checks the caches against what is mapped.
    fn validate(&self, mappings: &Mappings) -> Result<(), String>;

    /// The mapping with this head, first page and page-table entry changes: what is kept of it
    /// among the lines is dropped.
    fn changes(&mut self, _head: u32, _first: Vpn, _: Pte, _: &mut Lines) {}

    /// Drops all that is kept among the lines, at a flush of the walk caches.
    fn drop_kept(&mut self, _: &mut Lines) {}

    /// Checks what is kept among the lines against what is mapped.
    fn validate_kept(&self, _: &Mappings, _: &Lines) -> Result<(), String> {
        Ok(())
    }
}

/// From the list of formats, generates a format of any kind.
macro_rules! formats {
    ($dollar:tt $($kind:ident => $module:ident;)+) => {
        impl TableKind {
            pub(crate) fn refuses(self, bits: &[u8], ladder: &Ladder) -> Option<String> {
                match self {
                    $(TableKind::$kind => $module::$kind::refuses(bits, ladder),)+
                }
            }

            pub(crate) fn unsuited(self, machine: &Machine) -> Option<String> {
                match self {
                    $(TableKind::$kind => $module::$kind::unsuited(machine),)+
                }
            }

            pub(crate) fn shape(self, machine: &Machine) -> Shape {
                match self {
                    $(TableKind::$kind => $module::$kind::shape(machine),)+
                }
            }
        }

        /// The format of a machine, and the caches of its walker.
        #[derive(Clone, Debug)]
        pub(crate) enum Format {
            $($kind($module::$kind),)+
        }

        impl Format {
            /// With empty caches.
            pub(crate) fn new(machine: &Machine, shape: &Shape) -> Format {
                match machine.page_table.kind {
                    $(TableKind::$kind => Format::$kind($module::$kind::new(machine, shape)),)+
                }
            }
        }

        /// Evaluates an expression with the format in a [`Format`], compiled for each kind.
        macro_rules! on_format {
            ($dollar format:expr, $dollar kind:ident => $dollar body:expr) => {
                match $dollar format {
                    $(crate::walk::formats::Format::$kind($dollar kind) => $dollar body,)+
                }
            };
        }
        pub(crate) use on_format;
    };
}

// Name, module.
formats! { $
    Radix => radix;
    Linear => linear;
    Perforated => perforated;
    Nested => nested;
    Clustered => clustered;
    Groups => groups;
    Victima => victima;
}
