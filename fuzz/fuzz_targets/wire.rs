//! What the recorder's plugin could send, of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| superpage_trace::record::hear(bytes));
