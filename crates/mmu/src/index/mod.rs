//! Index functions: which set of a TLB the number of a translation selects. Each is a file.
//!
//! To add one, write its file (`set`, and `refuses`, as in [`xor`]) and a line in the list below; machine files then know it by
//! its name. Each has a naive twin in the tests (`brute_force`).

use serde::{Deserialize, Serialize};

mod low;
mod skewed;
mod xor;

/// From the list of index functions, generates the enum that machine files name.
macro_rules! indexes {
    ($($(#[$attribute:meta])* $variant:ident $name:literal => $module:ident;)+) => {
        /// An index function, by the name that machine files use.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
        pub enum Index {
            $(
                #[doc = concat!("`", $name, "`: see `index/", stringify!($module), ".rs`.")]
                #[serde(rename = $name)]
                $(#[$attribute])*
                $variant,
            )+
        }

        impl Index {
            /// All index functions.
            pub const ALL: &[Index] = &[$(Index::$variant),+];

            /// The name in machine files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Index::$variant => $name,)+
                }
            }

            /// Why so many sets cannot be selected by it, if they cannot.
            pub(crate) fn refuses(self, sets: usize) -> Option<&'static str> {
                match self {
                    $(Index::$variant => $module::refuses(sets),)+
                }
            }

            /// The set, of so many, that this number selects in a way: the same in each, but for skewed ones.
            pub(crate) fn set(self, number: u64, way: usize, sets: usize) -> usize {
                match self {
                    $(Index::$variant => $module::set(number, way, sets),)+
                }
            }
        }
    };
}

// Name in the code, name in machine files, module.
indexes! {
    #[default]
    Low "low" => low;
    Xor "xor" => xor;
    Skewed "skewed" => skewed;
}
