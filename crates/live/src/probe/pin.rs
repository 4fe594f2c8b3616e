//! Pins the thread to one processor while something is timed.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use superpage_linux::Error;

/// The calling thread stays on the processor that it was on; dropped, it may run where it could
/// before.
pub(crate) struct Pinned {
    before: CpuSet,
}

impl Pinned {
    pub(crate) fn here() -> Result<Pinned, Error> {
        let before = sched_getaffinity(None).map_err(Error::system("ask which processors this thread may use"))?;
        let cpu = sched_getcpu();
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(Error::system(format!("stay on processor {cpu}")))?;
        Ok(Pinned { before })
    }

    /// The other processors that it could run on before, ascending.
    pub(crate) fn others(&self) -> Vec<usize> {
        let here = sched_getcpu();
        (0..CpuSet::MAX_CPU).filter(|cpu| *cpu != here && self.before.is_set(*cpu)).collect()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A failure would leave the thread where it is: slower at worst.
        let _ = sched_setaffinity(None, &self.before);
    }
}
