//! Does a TLB join base pages whose frames are contiguous and aligned alike?
//!
//! The frames of huge pages are mapped by base pages: at their place, where groups are aligned in virtual and physical memory
//! alike, and then 4 KB off, where no group is. The same frames, the same lines: what differs is coalescing alone. Moved by 8,
//! 16, 32 KB, groups up to that size are aligned again, which tells how large groups are.

use super::chase::Chase;
use super::curve::base_pages;
use super::memory::{BASE, HUGE, Memory};
use super::steady::Steady;
use super::{Finding, Series};
use crate::Error;

/// How far frames are moved, in base pages.
const SHIFTS: [usize; 6] = [0, 1, 2, 4, 8, 16];
const ROUNDS: usize = 4;
/// What is slower by this factor lost something.
const SLOWER: f64 = 1.1;

/// Over twice as many pages as the last TLB level has entries.
pub(crate) fn measure(entries: f64, fractured: Option<bool>) -> Result<Finding, Error> {
    let (name, what) = ("tlb.coalesces", "aligned contiguous 4K pages share TLB entries");
    let pages = (2.0 * entries) as usize;
    let bytes = (pages * BASE).next_multiple_of(HUGE);
    let mut memory = Memory::huge(bytes)?;
    let got = memory.huge_bytes()?;
    if got < bytes {
        let because = format!("of {} MB the kernel gave only {} MB as contiguous blocks", bytes >> 20, got >> 20);
        return Ok(Finding::unknown(name, what, because));
    }
    // Moved once, they are base pages.
    memory = memory.moved(BASE)?;
    let mut times = vec![Vec::new(); SHIFTS.len()];
    for round in 0..ROUNDS {
        for (shift, times) in SHIFTS.iter().zip(&mut times) {
            memory = memory.moved(shift * BASE)?;
            let chase = Chase::new(&memory, base_pages(pages), round as u64);
            times.push((0..8).map(|_| chase.time(4 * pages)).fold(f64::INFINITY, f64::min));
        }
    }
    let least: Vec<f64> = times.iter().map(|times| Steady::of(times).value).collect();
    let broken: Vec<usize> = (1..SHIFTS.len()).filter(|at| least[*at] > SLOWER * least[0]).collect();
    let points = SHIFTS.iter().zip(&least).map(|(shift, ns)| [(shift * BASE) as f64, *ns]).collect();
    let list: Vec<String> =
        SHIFTS.iter().zip(&least).map(|(shift, ns)| format!("{ns:.1} moved by {} KB", 4 * shift)).collect();
    let seen = format!("{pages} pages, ns a load: {}", list.join(", "));
    // In how many rounds 4 KB off says the same.
    let yes = !broken.is_empty();
    let agree = times[0].iter().zip(&times[1]).filter(|(home, off)| (**off > SLOWER * **home) == yes).count();
    let confidence = agree as f64 / ROUNDS as f64;
    let finding = match broken.last() {
        Some(last) if broken.len() == *last => {
            let group = format!("groups of {} KB", 8 * SHIFTS[*last]);
            Finding::text(
                name,
                what,
                &group,
                confidence,
                format!("{seen}; up to {} KB off it is lost", 4 * SHIFTS[*last]),
            )
        }
        Some(_) => Finding::unknown(name, what, format!("the moves do not agree on a size: {seen}")),
        None if fractured == Some(true) => {
            let because = format!("the host that fractures huge pages may scatter these frames too: {seen}");
            Finding::unknown(name, what, because)
        }
        None => Finding::yes(name, what, false, confidence, seen),
    };
    Ok(finding.with(Series { name: "same frames, moved".into(), axes: ["bytes off alignment", "ns a load"], points }))
}
