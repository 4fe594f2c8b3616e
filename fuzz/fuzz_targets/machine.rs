//! Machine files with arbitrary contents: refused with one sentence, or a machine that translates
//! addresses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use superpage_mmu::{Machine, Mmu};

fuzz_target!(|text: &str| {
    match Machine::parse(text, "fuzz.toml") {
        Err(error) => assert!(!error.to_string().contains('\n'), "one sentence: {error}"),
        Ok(machine) => {
            let mmu = Mmu::new(&machine);
            assert!(mmu.lookup(0, machine.ladder().vpn(0)).is_none());
        }
    }
});
