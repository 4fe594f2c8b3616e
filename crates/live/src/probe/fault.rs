//! The cost of a page fault with each page size, including zeroing.

use super::Finding;
use super::memory::{BASE, HUGE, Memory};
use super::steady::Steady;
use super::usable;
use std::time::Instant;
use superpage_linux::Error;
use superpage_pages::PageSize;

/// Memory of one measurement. It was touched and freed just before, as often as it is measured: a
/// host may have taken back what was free (the first touch of a cold block costs milliseconds,
/// which are the host's).
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 8;

/// Faults of base pages, of all sizes of folios that are enabled, of huge pages. In order of size.
pub(crate) fn faults(folios: bool) -> Vec<Finding> {
    let mut findings = vec![fault("4K", BASE, libc::MADV_NOHUGEPAGE)];
    if !folios {
        let because = "only --folios allows sizes one at a time, for the whole system, meanwhile";
        findings.push(Finding::unmeasured("fault.folios", "fault of folios between 4K and 2M", because.into()));
    }
    for (size, _) in usable::folios().filter(|(size, _)| folios && *size < PageSize::MB2) {
        match usable::allow_only(size) {
            Ok(_only) => findings.push(fault(&size.to_string(), size.bytes() as usize, libc::MADV_HUGEPAGE)),
            Err(error) => {
                let what = "fault of folios between 4K and 2M";
                findings.push(Finding::unmeasured("fault.folios", what, error.to_string()));
                break;
            }
        }
    }
    findings.push(fault("2M", HUGE, libc::MADV_HUGEPAGE));
    findings
}

/// Microseconds a fault.
fn fault(size: &str, bytes: usize, advice: libc::c_int) -> Finding {
    let (name, what) = (format!("fault.{size}"), format!("fault of {size}, with zeroing"));
    match time(bytes, advice) {
        Ok(Steady { value, agreement }) => {
            let megabyte = value * (1 << 20) as f64 / bytes as f64;
            let evidence = format!(
                "{megabyte:.0} us a MB; least of {} blocks of 2 MB, memory touched and freed before",
                ROUNDS * (BYTES / HUGE)
            );
            Finding::number(&name, &what, value, agreement, evidence).unit("us")
        }
        Err(error) => Finding::unknown(&name, &what, error.to_string()),
    }
}

/// Timed a block of 2 MB at a time, the least of which is that of a round.
fn time(bytes: usize, advice: libc::c_int) -> Result<Steady, Error> {
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let memory = Memory::new(BYTES)?;
        memory.advise(advice)?;
        let (before, due) = (faults_so_far(), BYTES / bytes);
        let blocks = (0..BYTES).step_by(HUGE).map(|block| {
            let begun = Instant::now();
            memory.touch(block..block + HUGE, bytes);
            begun.elapsed().as_secs_f64() * 1e6 / (HUGE / bytes) as f64
        });
        let least = blocks.fold(f64::INFINITY, f64::min);
        let faults = (faults_so_far() - before) as usize;
        if faults > due + due / 8 + 16 {
            return Err(Error::Unable(format!("the kernel gave smaller pages: {faults} faults where {due} were due")));
        }
        if faults < due - due / 8 {
            return Err(Error::Unable(format!("the kernel gave larger pages: {faults} faults where {due} were due")));
        }
        // The first round warms.
        if round > 0 {
            rounds.push(least);
        }
    }
    Ok(Steady::of(&rounds))
}

/// Minor faults of this thread.
pub(crate) fn faults_so_far() -> i64 {
    // SAFETY: the call fills the structure, which any bytes are valid for.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_minflt
    }
}

/// The part of a fault that does not depend on its size, and zeroing: a line through the times of 4
/// KB and of 2 MB.
pub(crate) fn split(findings: &[Finding], hertz: f64) -> Vec<Finding> {
    let of = |name: &str| findings.iter().find(|finding| finding.name == name);
    let (Some(base), Some(huge)) = (of("fault.4K"), of("fault.2M")) else { return Vec::new() };
    let (fixed, zero) = ("page fault without zeroing", "zeroing 1 KB");
    let (Some(small), Some(large)) = (base.as_number(), huge.as_number()) else {
        let because = "it needs the costs of faults of 4K and of 2M";
        return vec![
            Finding::unknown("fault.fixed", fixed, because.into()),
            Finding::unknown("zero.per-kb", zero, because.into()),
        ];
    };
    let slope = (large - small) / ((HUGE - BASE) as f64 / 1024.0);
    let rest = small - slope * BASE as f64 / 1024.0;
    let confidence = base.confidence.min(huge.confidence);
    let cycles = |us: f64| us * hertz / 1e6;
    let evidence = format!("a line through faults of 4K ({small:.2} us) and 2M ({large:.1} us)");
    vec![
        Finding::number("fault.fixed", fixed, cycles(rest), confidence, evidence.clone()).unit("cycles"),
        Finding::number("zero.per-kb", zero, cycles(slope), confidence, evidence).unit("cycles"),
    ]
}
