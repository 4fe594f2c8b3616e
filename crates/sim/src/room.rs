//! Whether simulations fit into the memory of the machine that is to run them: said before any is allocated.

use crate::{Error, Setup};
use superpage_report::bytes;

/// Bytes of the manager's own structures for each frame, at most: of its page lists, free extents and reservations.
const FRAME_BYTES: u64 = 17;
/// Of so many frames together one byte is written when the simulation begins; the rest as frames are used.
const FRAMES_BEGUN: u64 = 2;
/// Bytes for each entry of a TLB, and each line of a cache for page tables.
const ENTRY_BYTES: u64 = 10;

/// What a simulation takes when it begins, and what it can take when the program uses all memory; without page tables, which
/// depend on the program.
fn need(setup: &Setup) -> (u64, u64) {
    let entries: u64 = setup.machine.tlb.iter().map(|tlb| tlb.entries as u64).sum();
    let lines: u64 = setup.machine.line_cache.iter().map(|cache| cache.size / setup.machine.memory.line_bytes).sum();
    let hardware = (entries + lines).saturating_mul(ENTRY_BYTES);
    let whole = setup.frames.saturating_mul(FRAME_BYTES);
    ((setup.frames / FRAMES_BEGUN).saturating_add(hardware), whole.saturating_add(hardware))
}

/// Refuses simulations of which one alone cannot be, or all together cannot begin, with so many bytes of memory.
pub(crate) fn check(setups: &[Setup], available: u64) -> Result<(), Error> {
    if let Some(setup) = setups.iter().find(|setup| need(setup).1 > available) {
        let (name, memory) = (&setup.machine.name, bytes(setup.frames << setup.ladder.base().shift()));
        return Err(Error::Usage(format!(
            "machine {name} with {memory} of memory takes up to {} to simulate, and {} are available here; give less with \
             --memory, or fewer entries in its TLBs and line caches",
            bytes(need(setup).1),
            bytes(available)
        )));
    }
    let begun = setups.iter().map(|setup| need(setup).0).fold(0, u64::saturating_add);
    if begun > available {
        return Err(Error::Usage(format!(
            "{} simulations at once take {} to begin, and {} are available here; give fewer machines or policies at once, or \
             less with --memory",
            setups.len(),
            bytes(begun),
            bytes(available)
        )));
    }
    Ok(())
}

/// Bytes that are available without swapping, where the system says.
pub(crate) fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, plan};
    use superpage_vm::{Config, Vm};

    fn setups(memory: u64) -> Vec<Setup> {
        let conditions = Conditions { memory: Some(memory), ..Conditions::default() };
        plan(&["zen5".into()], &["reservation".into()], &conditions).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_allocated() {
        let setups = setups(64 << 30);
        let (begun, whole) = need(&setups[0]);
        check(&setups, whole).unwrap();
        let one = check(&setups, whole - 1).unwrap_err().to_string();
        assert!(one.contains("machine zen5 with 64.0 GB") && one.contains("--memory"), "{one}");
        let many: Vec<Setup> = setups.iter().cycle().take(200).cloned().collect();
        assert!(begun * 200 > whole, "else this tests nothing");
        let many = check(&many, whole).unwrap_err().to_string();
        assert!(many.contains("200 simulations at once"), "{many}");
    }

    #[test]
    fn a_frame_takes_what_is_said() {
        for setup in setups(4 << 30) {
            let Setup { ladder, frames, policy, .. } = setup;
            let held = |frames| {
                Vm::new(Config { ladder, frames, policy: policy.clone(), swap_pages: 0 }).unwrap().metadata_bytes()
                    as u64
            };
            let each = (held(frames) - held(frames / 2)).div_ceil(frames / 2);
            assert!((FRAME_BYTES / 2..=FRAME_BYTES).contains(&each), "{each} bytes a frame");
        }
    }
}
