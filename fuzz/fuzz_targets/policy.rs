//! Arbitrary policies: as a name with parameters, and as a file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;

fuzz_target!(|text: &str| {
    // As on a command line; a name that ends in .toml would be read from the disk.
    if !text.split(':').next().unwrap_or_default().ends_with(".toml")
        && let Err(error) = superpage_sim::policy(text)
    {
        assert!(!error.to_string().is_empty());
    }
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file for temporary things");
    file.write_all(text.as_bytes()).expect("room for it");
    let path = file.path().to_str().expect("a plain name");
    let _ = superpage_sim::policy(path);
});
