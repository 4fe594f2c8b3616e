//! What one entry of a TLB covers. Each kind is a file.
//!
//! The hardware looks up *translations*: a page of the guest, or, if a host backs that by smaller pages, a piece of it
//! of their size. A translation is named by its mapping (the key of an entry) and its number: the page's number in
//! units of the translation's size, which also selects the set. An entry holds a key, and a payload that says which
//! translations of that mapping it covers. If an entry covers a whole mapping the payload is `()`, and costs nothing.
//!
//! To add a kind, write its file (a type with [`Reach`]) and a line in the list below, and its naive twin in the tests (`brute_force`).

use crate::cache::Cache;
use crate::machine::{Machine, TlbSpec};
use std::fmt::Debug;
use std::ops::Range;

mod exact;
mod fractured;

pub(crate) use exact::Exact;
pub(crate) use fractured::Fractured;

/// What one entry covers, beyond its key. TLB code is compiled for each implementation, as it is for each replacement.
pub(crate) trait Reach: Clone + Debug {
    /// What an entry holds beside its key.
    type Payload: Copy + PartialEq + Debug + Default;

    /// Whether an entry is a whole mapping, so that there is at most one.
    const WHOLE: bool = false;

    /// The payload of a new entry, filled for this translation.
    fn fill(number: u64) -> Self::Payload;

    /// Whether an entry covers this translation of its mapping.
    fn covers(payload: Self::Payload, number: u64) -> bool;

    /// The translations that an entry covers, of all that its mapping has.
    fn covered(payload: Self::Payload, mapping: Range<u64>) -> Range<u64>;

    /// What is left of an entry when these translations of its mapping change; `None` if nothing is, and the entry is
    /// dropped.
    fn without(payload: Self::Payload, changed: &Range<u64>) -> Option<Self::Payload>;
}

/// From the list of kinds, generates the entries of a TLB of any kind, and a macro that compiles an expression for
/// each.
macro_rules! reaches {
    ($dollar:tt $($reach:ident)+) => {
        /// The entries of one TLB.
        #[derive(Clone, Debug)]
        pub(crate) enum Entries {
            $($reach(Cache<$reach>),)+
        }

        /// Evaluates an expression with the cache in some [`Entries`], compiled for each kind.
        macro_rules! on_entries {
            ($dollar entries:expr, $dollar cache:ident => $dollar body:expr) => {
                match $dollar entries {
                    $(crate::reach::Entries::$reach($dollar cache) => $dollar body,)+
                }
            };
        }
        pub(crate) use on_entries;
    };
}

reaches! { $ Exact Fractured }

impl Entries {
    /// An empty TLB.
    pub(crate) fn new(machine: &Machine, tlb: &TlbSpec) -> Entries {
        let (sets, ways, replacement) = (tlb.sets(), tlb.ways(), tlb.replacement);
        match machine.host {
            None => Entries::Exact(Cache::new(sets, ways, replacement)),
            Some(_) => Entries::Fractured(Cache::new(sets, ways, replacement)),
        }
    }

    /// As [`Cache::bytes`].
    pub(crate) fn bytes(machine: &Machine, tlb: &TlbSpec) -> (u64, u64) {
        let (sets, ways, replacement) = (tlb.sets(), tlb.ways(), tlb.replacement);
        match machine.host {
            None => Cache::<Exact>::bytes(sets, ways, replacement),
            Some(_) => Cache::<Fractured>::bytes(sets, ways, replacement),
        }
    }
}
