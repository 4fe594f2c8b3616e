//! The TLBs: what an entry covers ([`reach`]), where it is stored ([`storage`], [`index`]), which
//! one is replaced ([`replacement`]), the words that these share ([`uses`]), and the levels: the
//! [`first`], which takes requests in batches, and the [`further`] ones behind it.

pub(crate) mod batch;
pub(crate) mod first;
pub(crate) mod further;
pub(crate) mod index;
mod kept_spaces;
pub(crate) mod noted;
mod ranges;
pub(crate) mod reach;
mod recent;
pub(crate) mod replacement;
pub(crate) mod storage;
mod tlbs;
pub(crate) mod uses;

pub use replacement::custom::{CustomReplacement, CustomState, EntryUse};
pub use tlbs::{Contents, Held};
pub(crate) use tlbs::{Served, Tlbs};
