//! Arbitrary bytes as the output of the recorder's plugin.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| superpage_trace::record::hear(bytes));
