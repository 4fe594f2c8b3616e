//! SIGINT and SIGTERM: a flag that long work looks at between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From now on the first SIGINT or SIGTERM sets the flag; a second one ends the process at once.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters: the second signal finds the flag set by the first.
        let registered = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)));
        if let Err(error) = registered {
            eprintln!("superpage: signal {signal} cannot be caught ({error}); an interrupt will lose the run");
        }
    }
    flag
}

/// Calls `then` once the flag is set, for what may wait in a system call meanwhile. The thread ends with the process.
pub(crate) fn when_set(flag: &Arc<AtomicBool>, then: impl FnOnce() + Send + 'static) {
    let flag = Arc::clone(flag);
    std::thread::spawn(move || {
        while !flag.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        then();
    });
}
