//! Does a host back this guest's huge pages with small ones, so that they do not extend the reach of its TLBs?
//!
//! A chase over lines of 16 huge pages, far apart, and over as many base pages. Every first-level TLB holds 16 huge
//! pages: the chase costs the same as over as many adjacent lines, unless a huge page takes an entry for each of its
//! pieces. Then it costs about as much as over base pages.

use super::chase::{Chase, spread};
use super::memory::{BASE, HUGE, Memory};
use super::pin::Pinned;
use super::steady::Steady;
use super::{Finding, Series};
use superpage_linux::Error;

/// Memory for the chase over pages: 16 huge pages.
const BYTES: usize = 16 * HUGE;
/// Base pages from one line of it to the next: more than hardware joins into one entry, and odd, so that lines spread over
/// the sets of TLBs and caches.
const STRIDE: usize = 5;
/// Lines of a chase: more than any first-level TLB has entries.
const NODES: [usize; 2] = [256, BYTES / (STRIDE * BASE) - 1];
/// How often it is asked anew, with fresh memory.
const DRAWS: u64 = 3;
const NAME: &str = "host.fractures";
const WHAT: &str = "a host backs huge pages with small ones";

/// Whether a host fractures this guest's huge pages, so that 2 MB pages do not extend the reach of its TLBs; their gain
/// then comes from cheaper walks and fewer faults. This is possible under a hypervisor only, and is measured, by
/// timing, on the processor of the calling thread. Takes well under a second, and 64 MB meanwhile.
///
/// If it could not be determined, the finding has no value and says why.
pub fn host_fractured() -> Finding {
    match ask() {
        Ok(finding) => finding,
        Err(error) => Finding::unknown(NAME, WHAT, format!("it failed to {error}").replace("to cannot ", "to ")),
    }
}

/// Nanoseconds a load over adjacent lines, lines of huge pages, lines of base pages.
struct Draw {
    dense: f64,
    huge: f64,
    base: f64,
}

impl Draw {
    fn measure(nodes: usize, seed: u64, memories: [&Memory; 3]) -> Draw {
        let lines =
            [(0..nodes).map(|node| 64 * node).collect(), spread(nodes, STRIDE * BASE), spread(nodes, STRIDE * BASE)];
        let mut times = lines.into_iter().zip(memories).map(|(lines, memory)| {
            let chase = Chase::new(memory, lines, seed);
            Steady::measure(3, 10, || chase.time(4 * nodes)).value
        });
        let mut next = || times.next().expect("three memories, three times");
        Draw { dense: next(), huge: next(), base: next() }
    }

    /// What pages far apart cost beyond lines that are adjacent: with huge pages as a share of that with base pages.
    fn share(&self) -> f64 {
        (self.huge - self.dense) / (self.base - self.dense)
    }
}

fn ask() -> Result<Finding, Error> {
    let _pinned = Pinned::here()?;
    let mut draws: Vec<(usize, Draw)> = Vec::new();
    for seed in 0..DRAWS {
        let (huge, base) = (Memory::huge(BYTES)?, Memory::base(BYTES)?);
        let got = huge.huge_bytes()?;
        if got < BYTES {
            let because = format!("of {} MB the kernel made only {} MB huge pages", BYTES >> 20, got >> 20);
            return Ok(Finding::unknown(NAME, WHAT, because));
        }
        for nodes in NODES {
            let dense = Memory::base((64 * nodes).next_multiple_of(BASE))?;
            draws.push((nodes, Draw::measure(nodes, seed, [&dense, &huge, &base])));
        }
    }
    // Base pages far apart must cost more than adjacent lines, or there is nothing to compare with.
    let most = NODES[NODES.len() - 1];
    let told: Vec<&Draw> = draws.iter().filter(|(nodes, _)| *nodes == most).map(|(_, draw)| draw).collect();
    if told.iter().any(|draw| draw.base < 1.1 * draw.dense) {
        let Draw { dense, base, .. } = told[0];
        let because =
            format!("{most} base pages cost no more ({base:.1} ns a load) than adjacent lines ({dense:.1} ns)");
        return Ok(Finding::unknown(NAME, WHAT, because));
    }
    let shares: Vec<f64> = told.iter().map(|draw| draw.share()).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let yes = mean > 0.5;
    let agree = shares.iter().filter(|share| (**share > 0.5) == yes).count();
    let seen = best(&told);
    let evidence = format!(
        "{most} lines on pages apart cost {:.1} ns a load in {} huge pages, {:.1} in base pages, {:.1} adjacent: {:.0} % of \
         what base pages add",
        seen.huge,
        BYTES / HUGE,
        seen.base,
        seen.dense,
        100.0 * mean
    );
    let mut finding = Finding::yes(NAME, WHAT, yes, agree as f64 / shares.len() as f64, evidence);
    for (name, pick) in [("adjacent", 0), ("huge pages", 1), ("base pages", 2)] {
        let points = NODES.map(|nodes| {
            let of: Vec<&Draw> = draws.iter().filter(|(at, _)| *at == nodes).map(|(_, draw)| draw).collect();
            let Draw { dense, huge, base } = best(&of);
            [nodes as f64, [dense, huge, base][pick]]
        });
        finding = finding.with(Series { name: name.into(), axes: ["lines", "ns a load"], points: points.to_vec() });
    }
    Ok(finding)
}

/// The least of each time.
fn best(draws: &[&Draw]) -> Draw {
    let least = |pick: fn(&Draw) -> f64| draws.iter().map(|draw| pick(draw)).fold(f64::INFINITY, f64::min);
    Draw { dense: least(|draw| draw.dense), huge: least(|draw| draw.huge), base: least(|draw| draw.base) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_or_says_why_not() {
        let finding = host_fractured();
        match finding.is_so() {
            Some(_) => assert!(finding.evidence.contains("ns a load") && finding.series.len() == 3),
            None => assert!(finding.evidence.contains("because"), "{}", finding.evidence),
        }
    }
}
