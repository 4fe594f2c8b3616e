//! Arbitrary bytes as the contents of `/proc`, the journal of settings and the daemon's
//! configuration. Nothing is set or promoted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    superpage_linux::read_anything(bytes);
    let mut file = tempfile::NamedTempFile::new().expect("a file for temporary things");
    file.write_all(bytes).expect("room for it");
    let _ = superpage_live::daemon::Config::read(file.path());
});
