//! The mechanisms that machine files choose by name, and the machines and overlays that are built
//! in. What a mechanism does is a file where it is used; a new one has its line here and one there.

use crate::tlb::CustomReplacement;
use serde::{Deserialize, Serialize};

/// An enum with a name for each value.
macro_rules! names {
    (
        $(#[$about:meta])* $kind:ident {
            $($(#[$attribute:meta])* $variant:ident $name:literal in $file:literal;)+
            $(+ $(#[$other_attribute:meta])* $other:ident of $type:ty;)?
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum $kind {
            $(
                #[doc = concat!("`", $name, "`: see `", $file, "`.")]
                #[serde(rename = $name)]
                $(#[$attribute])*
                $variant,
            )+
            $($(#[$other_attribute])* $other($type),)?
        }

        impl $kind {
            /// All that have a name in machine files.
            pub const ALL: &[$kind] = &[$($kind::$variant),+];

            /// The name in machine files.
            pub fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)+
                    $($kind::$other(other) => &other.name,)?
                }
            }
        }
    };
}

names! {
    /// A replacement policy: which way of a set goes.
    Replacement {
        Lru "lru" in "tlb/replacement/lru.rs";
        RoundRobin "round-robin" in "tlb/replacement/round_robin.rs";
        Random "random" in "tlb/replacement/random.rs";
        TreePlru "tree-plru" in "tlb/replacement/tree_plru.rs";
        Nru "nru" in "tlb/replacement/nru.rs";
        Mru3Plru4 "mru3-plru4" in "tlb/replacement/mru3_plru4.rs";
        Srrip "srrip" in "tlb/replacement/srrip.rs";
        Itp "itp" in "tlb/replacement/itp.rs";
        +
        /// One of the caller, which no machine file can name.
        #[serde(skip)]
        Custom of &'static CustomReplacement;
    }
}

names! {
    /// An index function: which set the number of a translation selects.
    #[derive(Default)]
    Index {
        #[default]
        Low "low" in "tlb/index/low.rs";
        Xor "xor" in "tlb/index/xor.rs";
        Skewed "skewed" in "tlb/index/skewed.rs";
    }
}

names! {
    /// A page-table format.
    TableKind {
        Radix "radix" in "walk/formats/radix.rs";
        Linear "linear" in "walk/formats/linear.rs";
        Perforated "perforated" in "walk/formats/perforated.rs";
        Nested "nested" in "walk/formats/nested.rs";
        Clustered "clustered" in "walk/formats/clustered.rs";
        Groups "groups" in "walk/formats/groups.rs";
        Victima "victima" in "walk/formats/victima.rs";
    }
}

/// The formats that overlays make of a radix tree, and of no other table.
pub(super) const OVER_RADIX: [&str; 3] = ["nested", "perforated", "victima"];

/// Embeds files of this repository, with their names.
macro_rules! built_in {
    ($folder:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $name, ".toml")))),+]
    };
}

/// The built-in machines, oldest first.
pub(super) const MACHINES: &[(&str, &str)] = built_in!("machines": "ppc603" "ppc604" "alpha-21264" "harpertown" "skylake-sp" "golden-cove" "zen4" "zen5" "neoverse-v2");

/// The built-in overlays.
pub(super) const OVERLAYS: &[(&str, &str)] = built_in!("machines/overlays":
    "clustered"
    "clustered-subblock"
    "coalescing"
    "coalescing-32k"
    "colt"
    "complete-subblock"
    "contiguous"
    "fractured"
    "hashed"
    "lru"
    "mosaic"
    "mosaic-16"
    "nested"
    "nested-2m"
    "partial-subblock"
    "perforated"
    "range"
    "shadow"
    "shared-walk-cache"
    "skewed"
    "tailored"
    "tlb-64"
    "victima"
);
