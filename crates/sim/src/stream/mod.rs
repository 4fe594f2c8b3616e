//! The stream as simulations take it: what follows from it, and from the size of the base page,
//! alone. Found once for all simulations of a grid.

mod carried;
mod counted;
mod made;
mod on_cores;
mod pages;
mod piece;
mod recent;
mod requests;
mod stretch;
mod touched;

pub(crate) use carried::Carried;
pub(crate) use counted::Counted;
pub(crate) use on_cores::OnCores;
pub(crate) use pages::{inward, outward};
pub(crate) use piece::Piece;
pub(crate) use requests::{Along, Asked, FirstTouch, Place};
pub(crate) use stretch::{Done, Mark, Phases, Role, Stretch, Window};
