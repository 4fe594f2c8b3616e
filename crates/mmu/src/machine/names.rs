//! The mechanisms that machine files choose by name. What each does is a file where it is used; a
//! new one has its line here and one there.

use serde::{Deserialize, Serialize};

/// An enum with a name for each value.
macro_rules! names {
    ($(#[$about:meta])* $kind:ident { $($(#[$attribute:meta])* $variant:ident $name:literal in $file:literal;)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum $kind {
            $(
                #[doc = concat!("`", $name, "`: see `", $file, "`.")]
                #[serde(rename = $name)]
                $(#[$attribute])*
                $variant,
            )+
        }

        impl $kind {
            /// All of them.
            pub const ALL: &[$kind] = &[$($kind::$variant),+];

            /// The name in machine files.
            pub const fn name(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)+
                }
            }
        }
    };
}

names! {
    /// A replacement: which way of a set goes.
    Replacement {
        Lru "lru" in "tlb/replacement/lru.rs";
        RoundRobin "round-robin" in "tlb/replacement/round_robin.rs";
        Random "random" in "tlb/replacement/random.rs";
        TreePlru "tree-plru" in "tlb/replacement/tree_plru.rs";
        Nru "nru" in "tlb/replacement/nru.rs";
        Mru3Plru4 "mru3-plru4" in "tlb/replacement/mru3_plru4.rs";
        Srrip "srrip" in "tlb/replacement/srrip.rs";
        Itp "itp" in "tlb/replacement/itp.rs";
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
    }
}
