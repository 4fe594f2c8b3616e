//! What a simulation notes along the way that kernel and hardware do not count.

use crate::faults::Faults;
use crate::hardware::Hardware;
use crate::joinable::Joinable;
use crate::{ContiguousPercent, Watch};
use superpage_mmu::Mmu;
use superpage_pages::MAX_LEVELS;
use superpage_vm::{SpaceId, Vm};

/// What is noted along the way: pages touched, latencies of faults, and what went wrong.
pub(crate) struct Noted {
    pub(crate) watch: Watch,
    pub(crate) touched: TouchedPages,
    pub(crate) faults: Faults,
    pub(crate) outcome: Outcome,
    /// The peak of page tables before the current part, in bytes.
    page_tables: u64,
}

/// Pages that programs have touched and still have.
#[derive(Default)]
pub(crate) struct TouchedPages {
    pub(crate) now: u64,
    pub(crate) peak: u64,
    /// The peak since the current part of the stream began.
    pub(crate) peak_of_part: u64,
    /// What was mapped at the peak, by level.
    pub(crate) mapped_at_peak: [u64; MAX_LEVELS],
    /// How contiguous that was; of an earlier peak, as long as memory is `at_peak`.
    contiguous: Joinable,
    at_peak: bool,
}

/// What went wrong.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Why the run could not continue.
    pub(crate) failed: Option<String>,
    /// Why processes were killed, in order.
    pub(crate) reasons: Vec<String>,
    /// The run was interrupted within a piece of the stream: the rest of it is left out.
    pub(crate) stopped: bool,
}

impl Noted {
    /// Nothing noted yet, of a simulation of `machines` machines.
    pub(crate) fn new(watch: &Watch, machines: usize) -> Noted {
        let (touched, outcome) = (TouchedPages::default(), Outcome::default());
        Noted { watch: *watch, touched, faults: Faults::new(machines), outcome, page_tables: 0 }
    }

    /// Records the number of touched pages, which only grows until the next event or access.
    pub(crate) fn note_touched(&mut self, pages: u64, vm: &Vm) {
        self.touched.now = pages;
        if pages >= self.touched.peak {
            (self.touched.peak, self.touched.mapped_at_peak) = (pages, vm.stats().mapped);
            self.touched.at_peak = true;
        }
        self.touched.peak_of_part = self.touched.peak_of_part.max(pages);
    }

    /// Called before memory that was touched goes away.
    pub(crate) fn leave_peak(&mut self, hardware: &Hardware, vm: &Vm) {
        if self.watch.contiguity && std::mem::take(&mut self.touched.at_peak) {
            let is_file = |space, page| vm.maps_file_page(SpaceId(space), page);
            let base_shift = vm.ladder().base().shift();
            self.touched.contiguous = Joinable::count(&hardware.mmu, base_shift, is_file);
        }
    }

    /// A part of the stream begins.
    pub(crate) fn begin_part(&mut self, mmu: &mut Mmu) {
        self.faults.begin_part();
        self.page_tables = self.page_table_bytes(mmu);
        mmu.restart_page_table_peak();
        self.touched.peak_of_part = self.touched.now;
    }

    /// The most that page tables took at a time, in bytes.
    pub(crate) fn page_table_bytes(&self, mmu: &Mmu) -> u64 {
        self.page_tables.max(mmu.peak_page_table_bytes())
    }

    /// How contiguous mapped memory was at its peak, if somebody asked.
    pub(crate) fn contiguous_percent(&self) -> Option<ContiguousPercent> {
        self.watch.contiguity.then(|| self.touched.contiguous.percent())
    }
}

impl Outcome {
    /// What went wrong, in its order.
    pub(crate) fn error(&self) -> Option<String> {
        let errors: Vec<&str> = self.reasons.iter().chain(&self.failed).map(String::as_str).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// The run cannot continue, for this reason unless it had one.
    pub(crate) fn fail(&mut self, reason: impl ToString) {
        self.failed.get_or_insert_with(|| reason.to_string());
    }
}
