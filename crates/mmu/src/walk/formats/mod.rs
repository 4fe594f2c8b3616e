//! Page-table formats: where mappings lie in memory, and so what a walk reads. Each format is a
//! file.
//!
//! What is mapped is kept in [`crate::mappings`] and looked up there for each request; a format is
//! used at a miss, and notified of changes. To add one, write its file (a type that implements
//! [`TableFormat`]), and a line in the list below and in [`crate::machine`], by whose name machine
//! files know it (`page-table.kind`). Its naive twin goes into the tests (`brute_force`).

use crate::machine::{Machine, TableKind};
use crate::mappings::{Mapping, Mappings, Pointer, Shape, SpacePage};
use crate::tlb::batch::Batch;
use crate::tlb::reach::PartialHits;
use crate::walk::lines::{Lines, Reads};
use crate::walk::walk_caches::WalkCaches;
use superpage_pages::Ladder;

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

/// The requests of a batch that are walked, and those of them whose walks are shorter.
#[derive(Clone, Copy)]
pub(crate) struct Walks {
    /// As a bit set.
    pub(crate) requests: u64,
    pub(crate) partial: PartialHits,
}

impl Walks {
    /// One of them alone.
    #[inline(always)]
    fn only(self, index: usize) -> Walks {
        Walks { requests: 1 << index, ..self }
    }
}

/// A page-table format, with the caches of its walker.
pub(crate) trait TableFormat: Sized {
    /// Why a table whose levels translate these `bits` cannot hold pages of this ladder, if it
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

    /// Walks for requests of a batch, in order.
    fn walk(&mut self, mappings: &Mappings, batch: &Batch, walks: Walks, reads: Reads<'_>);

    /// Walks to the absent entry of a page that is not mapped. Its root exists. The first bits of
    /// `partial` say what TLBs hold.
    fn walk_absent(&mut self, mappings: &Mappings, page: SpacePage, partial: PartialHits, reads: Reads<'_>);

    /// Drops a pointer to a table that is removed.
    fn drop_pointer(&mut self, pointer: Pointer);

    /// Empties the caches of the walker, for the current hardware thread.
    fn flush(&mut self);

    /// The walk caches of the tree, if it is one.
    fn caches(&mut self) -> Option<&mut WalkCaches> {
        None
    }

    /// Checks the caches against what is mapped.
    fn validate(&self, mappings: &Mappings) -> Result<(), String>;

    /// Drops what is kept among the lines of a mapping that changes.
    fn drop_leaf(&mut self, _: Mapping, _: &mut Lines) {}

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
