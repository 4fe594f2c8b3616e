//! The threads that simulations run on: started once, or the calling thread alone where there are
//! none to be had.

use crate::Error;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::num::NonZero;
use std::sync::OnceLock;

/// The threads; `None` where none could be started.
static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// The most threads, as of `superpage sim --threads`.
const MOST: usize = 1024;

/// Runs all later simulations of this process on this number of threads, instead of one for each
/// core.
///
/// # Errors
/// They cannot be started, or simulations have run already.
pub fn use_threads(threads: usize) -> Result<(), Error> {
    let failed = |why: &dyn std::fmt::Display| Err(Error::Threads(format!("cannot start {threads} threads: {why}")));
    match ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => match POOL.set(Some(pool)) {
            Ok(()) => Ok(()),
            Err(_) => failed(&"simulations have run before"),
        },
        Err(error) => failed(&error),
    }
}

/// The threads that simulations of this process run on.
pub fn threads() -> usize {
    let begun = POOL.get().map(|pool| pool.as_ref().map_or(1, ThreadPool::current_num_threads));
    begun.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get))
}

/// Calls `work` where rayon's functions use the threads, and says whether there are any: without
/// them they must not be used.
pub(crate) fn with<T: Send>(work: impl FnOnce(bool) -> T + Send) -> T {
    // Within a pool of the caller's.
    if rayon::current_thread_index().is_some() {
        return work(true);
    }
    let start = || {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        ThreadPoolBuilder::new().num_threads(cores.min(MOST)).build().ok()
    };
    match POOL.get_or_init(start) {
        Some(pool) => pool.install(|| work(true)),
        None => work(false),
    }
}
