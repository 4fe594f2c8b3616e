//! Index functions: which set of a TLB the number of a translation selects. Each is a file.
//!
//! To add one, write its file (`set`, `fold` and `refuses`, as in [`xor`]), its naive twin in the
//! tests (`brute_force`), and a line in the list below and in `machine/names.rs`, by whose name
//! machine files know it.

use crate::machine::Index;

mod low;
mod skewed;
mod xor;

/// From the list of index functions, generates the calls of each.
macro_rules! indexes {
    ($($variant:ident => $module:ident;)+) => {
        impl Index {
            /// Why it cannot select among this number of sets, if it cannot.
            pub(crate) fn refuses(self, sets: usize) -> Option<&'static str> {
                match self {
                    $(Index::$variant => $module::refuses(sets),)+
                }
            }

            /// Where the set is the low bits of a number, XOR those from another bit on: that bit.
            /// Of a power of two of sets.
            pub(crate) fn fold(self, sets: usize) -> Option<u32> {
                match self {
                    $(Index::$variant => $module::fold(sets),)+
                }
            }

            /// The set, of `sets`, that this number selects in a way; only skewed ones depend on
            /// the way.
            pub(crate) fn set(self, number: u64, way: usize, sets: usize) -> usize {
                match self {
                    $(Index::$variant => $module::set(number, way, sets),)+
                }
            }
        }
    };
}

// Name, module.
indexes! {
    Low => low;
    Xor => xor;
    Skewed => skewed;
}
