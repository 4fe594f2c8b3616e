//! What happens when memory is short: the queues of pages, the page daemon, swap and cache pages,
//! and what of a page is dirty.

mod arrived;
pub(crate) mod daemon;
pub(crate) mod dirt;
mod evict;
mod journal;
pub(crate) mod pages;
mod split;
pub(crate) mod swap_and_cache;
