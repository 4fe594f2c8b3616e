//! One machine of a simulation.

use crate::cost::{Effort, KernelCycles};
use crate::estimate::{Translated, Windows};
use crate::{Digest, Setup};
use superpage_mmu::Mmu;

/// One machine of a simulation.
pub(crate) struct Member {
    /// Its place in the grid.
    pub(crate) place: usize,
    /// Its place in the [`Mmu`], and in all lists of a simulation.
    pub(crate) number: usize,
    pub(crate) setup: Setup,
    pub(crate) windows: Windows,
}

impl Member {
    pub(crate) fn new(place: usize, number: usize, setup: &Setup) -> Member {
        Member { place, number, setup: setup.clone(), windows: Windows::default() }
    }

    /// What its hardware has counted.
    pub(crate) fn translated<'a>(&'a self, mmu: &Mmu) -> Translated<'a> {
        Translated::new(&self.setup.machine, mmu, self.number)
    }

    /// What this work of the kernel costs on it.
    pub(crate) fn kernel_cycles(&self, effort: &Effort) -> KernelCycles {
        effort.on(&self.setup.machine, self.digest_cycles(), self.setup.kernel.is_some())
    }

    /// The cost of a digest of a base page.
    pub(crate) fn digest_cycles(&self) -> u64 {
        let costs = &self.setup.machine.costs;
        let each = match self.setup.digest {
            Digest::Fast => costs.hash_per_kb,
            Digest::Sha1 => costs.sha1_per_kb,
        };
        (self.setup.ladder.base().bytes() >> 10) * each
    }
}
