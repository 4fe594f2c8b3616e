//! Several threads for many small pieces of work.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads, as many as `jobs`; `None` if they cannot be started.
pub(crate) fn pool(jobs: usize) -> Option<ThreadPool> {
    ThreadPoolBuilder::new().num_threads(jobs).build().ok()
}

/// Calls `one` for each item, on the threads of the pool or, if there is none, on this one; returns
/// the results in the order of the items.
pub(crate) fn on_all<T: Sync, R: Send>(
    pool: Option<&ThreadPool>,
    items: &[T],
    one: impl Fn(&T) -> R + Sync + Send,
) -> Vec<R> {
    match pool {
        Some(pool) => pool.install(|| items.par_iter().map(one).collect()),
        None => items.iter().map(one).collect(),
    }
}
