//! Microbenchmarks that determine, by timing alone, what this machine and its kernel do with pages
//! of several sizes.
//!
//! Each question is a file. Each answer is a [`Finding`], with the measured points, how well
//! repeats agree, and, if the points are inconclusive, why. Times are the shortest of many short
//! repeats, on one processor; of shootdowns medians, with threads on others.

mod chase;
mod churn;
mod clock;
mod coalesce;
mod contiguity;
mod curve;
mod fault;
mod finding;
mod fracture;
mod kept;
mod machine;
pub(crate) mod memory;
mod page;
mod pin;
mod promotion;
mod reach;
mod shootdown;
mod spin;
mod steady;
mod steps;
mod usable;
mod ways;

pub use finding::{Finding, Series, Value};
pub(crate) use fracture::host_fractured;
pub use promotion::{RegionCost, region_cost};

use pin::Pinned;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_linux::Error;
use superpage_linux::memory::{Left, left};

/// The options of a probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fewer points and fewer repeats: seconds instead of up to a minute.
    pub quick: bool,
    /// Allow all folio sizes while faults are measured: a system-wide setting, which is restored.
    pub folios: bool,
    /// The share of the available memory, from 0 (none) to 1, that is allocated in base pages and
    /// freed in pieces before contiguity is measured again. Some memory is always left to others.
    pub churn: f64,
}

/// All findings.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The findings, in the order of the questions.
    pub findings: Vec<Finding>,
    /// Latency against pages touched: series for base pages, huge pages, and their references.
    pub latency: Vec<Series>,
    /// The processor, from `/proc/cpuinfo`.
    pub processor: String,
    /// Whether it was stopped before all questions were answered.
    pub stopped: bool,
}

/// Why no further question is asked.
enum Halt {
    Stopped,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

/// The most that a probe has in use at once, in bytes, as a control group counts it.
const NEEDED: u64 = 200 << 20;

impl Probe {
    /// Answers every question. Takes seconds if quick, otherwise up to a minute, and 200 MB, in 16
    /// to 32 GB of address space. `progress` is called before each question. Once `stop` is set no
    /// further question is started: the result is what was found by then.
    ///
    /// # Errors
    /// Less memory than that is left of a limit. Mapping memory or pinning a thread to its
    /// processor fails. What merely cannot be determined, or not measured with these rights, is a
    /// finding without a value.
    pub fn measure(options: &Options, stop: &AtomicBool, mut progress: impl FnMut(&str)) -> Result<Probe, Error> {
        let short = left().into_iter().find(|left| !left.counts_untouched && left.bytes < NEEDED);
        if let Some(Left { bytes, of, .. }) = short {
            return Err(Error::Unable(format!(
                "a probe takes up to {} MB of memory, and {} MB are left of {of}: raise that, or run it elsewhere",
                NEEDED >> 20,
                bytes >> 20
            )));
        }
        let pinned = Pinned::here()?;
        let processor = machine::Processor::here().to_string();
        let mut probe = Probe { findings: Vec::new(), latency: Vec::new(), processor, stopped: false };
        match probe.ask(options, stop, &pinned, &mut progress) {
            Ok(()) => {}
            Err(Halt::Stopped) => probe.stopped = true,
            Err(Halt::Failed(error)) => return Err(error),
        }
        Ok(probe)
    }

    fn ask(
        &mut self,
        options: &Options,
        stop: &AtomicBool,
        pinned: &Pinned,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Halt> {
        let mut next = |question: &str| {
            progress(question);
            if stop.load(Ordering::Relaxed) { Err(Halt::Stopped) } else { Ok(()) }
        };
        let findings = &mut self.findings;
        next("the clock")?;
        let clock = clock::hertz();
        let hertz = clock.value;
        let evidence = "additions in a row, a cycle each; cycles below are of this clock".to_string();
        let what = "clock of the processor, now";
        findings.push(Finding::number("clock.hertz", what, hertz, clock.agreement, evidence).unit("Hz"));
        next("page sizes")?;
        findings.extend(usable::sizes());
        next("whether a host fractures huge pages")?;
        let fractured = host_fractured();
        let is_fractured = fractured.is_so();
        findings.push(fractured);
        next("TLB levels and walks")?;
        let reach = reach::measure(options, stop, hertz)?;
        findings.extend(reach.findings);
        self.latency = reach.curves.iter().map(curve::Curve::series).collect();
        if let Some(first) = reach.base.first() {
            next("associativity")?;
            let first = reach::entries(0, first);
            findings.push(ways::first(first, hertz)?);
            if let Some(second) = reach.base.get(1) {
                findings.extend(ways::second(first, reach::entries(1, second), hertz)?);
                next("coalescing")?;
                findings.extend(coalesce::measure([first, reach::entries(1, second)], is_fractured)?);
            }
        }
        next("faults")?;
        findings.extend(fault::faults(options.folios));
        findings.extend(fault::split(findings, hertz));
        next("shootdowns")?;
        let shootdowns = shootdown::measure(&pinned.others(), options.quick, stop);
        next("promotions")?;
        findings.extend(shootdowns);
        findings.extend(promotion::promotions(options.folios));
        next("contiguity")?;
        findings.extend(contiguity::measure(options.churn, stop));
        Ok(())
    }

    /// The finding with this name.
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    /// A machine file for the simulator: what was measured here, each value with its evidence, and
    /// all else from the nearest built-in machine by processor family, marked as assumed.
    pub fn machine_file(&self) -> String {
        machine::file(self, &machine::Processor::here())
    }

    /// The report as one HTML file, with figures.
    pub fn html(&self) -> String {
        page::html(self)
    }
}
