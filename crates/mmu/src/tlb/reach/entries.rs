//! The kinds of [`Reach`](super::Reach), and the entries of a TLB of any of them.

use super::coalesced::Coalesced;
use super::complete_subblock::CompleteSubblock;
use super::exact::Exact;
use super::fractured::Fractured;
use super::joint::Joint;
use super::partial_subblock::PartialSubblock;
use super::perforated::Perforated;
use super::pieces::Pieces;
use super::pointers::Pointers;
use super::runs::Runs;
use super::skewed::Skewed;
use crate::machine::{JoinKind, Machine, Replacement, TlbSpec};
use crate::tlb::storage::{Cache, Shares};

/// From the list of kinds, generates the entries of a TLB of any kind, and a macro that compiles an
/// expression for each.
macro_rules! reaches {
    ($dollar:tt $($name:ident $reach:ty;)+) => {
        /// The entries of one TLB.
        #[derive(Clone, Debug)]
        pub(crate) enum Entries {
            $($name(Cache<$reach>),)+
        }

        /// Evaluates an expression with the cache in some [`Entries`], compiled for each kind.
        macro_rules! on_entries {
            ($dollar entries:expr, $dollar cache:ident => $dollar body:expr) => {
                match $dollar entries {
                    $(crate::tlb::reach::entries::Entries::$name($dollar cache) => $dollar body,)+
                }
            };
        }
        pub(crate) use on_entries;

        /// The kinds, by name.
        #[derive(Clone, Copy)]
        enum Kind {
            $($name,)+
        }

        impl Kind {
            /// An empty TLB of this kind.
            fn entries(self, tlb: &TlbSpec) -> Entries {
                let (sets, ways, index, replacement) = (tlb.sets(), tlb.ways(), tlb.index, tlb.replacement);
                match self {
                    $(Kind::$name => Entries::$name(Cache::indexed(sets, ways, index, replacement)),)+
                }
            }

            /// As [`Cache::bytes`].
            fn bytes(self, tlb: &TlbSpec) -> (u64, u64) {
                let (sets, ways, replacement) = (tlb.sets(), tlb.ways(), tlb.replacement);
                match self {
                    $(Kind::$name => Cache::<$reach>::bytes(sets, ways, replacement),)+
                }
            }
        }
    };
}

reaches! { $
    Exact Exact;
    Fractured Fractured;
    Pieces Pieces;
    Coalesced Joint<Coalesced>;
    Runs Joint<Runs>;
    PartialSubblock Joint<PartialSubblock>;
    CompleteSubblock Joint<CompleteSubblock>;
    Perforated Perforated;
    Skewed Skewed;
    Pointers Pointers;
}

impl Kind {
    /// That of a TLB.
    fn of(machine: &Machine, tlb: &TlbSpec) -> Kind {
        match (&machine.host, tlb.joined(machine).map(|joins| joins.kind)) {
            (Some(host), _) if host.managed => Kind::Pieces,
            (_, None) if tlb.holds_perforated(machine) => Kind::Perforated,
            (Some(_), _) => Kind::Fractured,
            (None, None) if tlb.is_skewed() => Kind::Skewed,
            (None, None) if tlb.holds_pointers(machine) => Kind::Pointers,
            (None, None) => Kind::Exact,
            (None, Some(JoinKind::Coalesced)) => Kind::Coalesced,
            (None, Some(JoinKind::Runs)) => Kind::Runs,
            (None, Some(JoinKind::PartialSubblock)) => Kind::PartialSubblock,
            (None, Some(JoinKind::CompleteSubblock)) => Kind::CompleteSubblock,
        }
    }
}

impl Entries {
    /// An empty TLB.
    pub(crate) fn new(machine: &Machine, tlb: &TlbSpec) -> Entries {
        match Kind::of(machine, tlb) {
            Kind::Skewed => {
                let base = machine.pages.sizes[0].shift();
                let orders: Vec<u32> = tlb.sizes.iter().map(|size| size.shift() - base).collect();
                let shares = Shares::new(&orders, &tlb.size_ways, tlb.ways());
                Entries::Skewed(Cache::skewed(tlb.sets(), tlb.ways(), tlb.index, shares))
            }
            kind => kind.entries(tlb),
        }
    }

    /// As [`Cache::bytes`].
    pub(crate) fn bytes(machine: &Machine, tlb: &TlbSpec) -> (u64, u64) {
        match Kind::of(machine, tlb) {
            // A skewed one has tags and times of use, which no more than other entries with ways
            // take.
            Kind::Skewed => Cache::<Exact>::bytes(tlb.sets(), tlb.ways(), Replacement::RoundRobin),
            kind => kind.bytes(tlb),
        }
    }
}
