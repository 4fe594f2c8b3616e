//! The stream as simulations take it: what follows from it, and from the size of the base page,
//! alone. Found once for all simulations of a grid.

mod carried;
mod core_use;
mod counted;
mod made;
mod pages;
mod piece;
mod recent;
mod requests;
mod stretch;
mod tap;
mod touched;

pub(crate) use carried::Carried;
pub(crate) use core_use::CoreUse;
pub(crate) use counted::Counted;
pub(crate) use pages::{inward, outward};
pub(crate) use piece::Piece;
pub(crate) use requests::{Along, Asked, FirstTouch, Place};
pub(crate) use stretch::{Done, Mark, Phases, Role, Stretch, Window};
pub(crate) use tap::Tap;
