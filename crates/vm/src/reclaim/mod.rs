//! What happens when memory is short: the page daemon, what it evicts and splits, and which pages
//! are dirty.

mod daemon;
mod dirt;
mod evict;
mod split;
