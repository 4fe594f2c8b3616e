//! Which regions of a program's memory are worth a superpage: the fewest that give a share of what
//! superpages everywhere give, each number of them run.
//!
//! What a region is worth by itself is no guide to what several are worth together: their entries
//! compete. So regions are ordered by their misses under base pages, as in Mosalloc's and CBMM's
//! studies of huge page layouts (Agbarya et al., ISPASS 2020; Mansi et al., USENIX ATC 2022), and
//! what the first N of them give is not added up but simulated, under the policy `plan`, many N in
//! one pass over the stream.

use crate::{Error, Progress, Row, Run, Setup, Watch, run_parts};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use superpage_mmu::Mmu;
use superpage_trace::{Cores, Source};
use superpage_vm::{Policy, Target};

/// Runs these setups over the stream.
type Pass<'a> = &'a dyn Fn(&[Setup]) -> Result<Vec<Run>, Error>;

/// Layouts that are run in one pass.
const AT_ONCE: usize = 12;

/// The shares of what superpages everywhere give for which a layout is looked for.
pub const SHARES: [f64; 3] = [0.9, 0.95, 0.99];

/// What superpages are worth to a program, by region.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Advice {
    /// Bytes of a region: the largest size of at most 2 MB.
    pub region_bytes: u64,
    /// The cores that the threads may have; 0: all share one.
    pub most_cores: u32,
    /// Base pages.
    pub base: Row,
    /// Superpages in all regions, by a plan.
    pub everywhere: Row,
    /// The policy `thp`, which also has them at the faults that come before a plan is known.
    pub thp: Row,
    /// The regions that missed under base pages, those with most misses first.
    pub regions: Vec<Hot>,
    /// What the first regions of these give, each number run, ascending.
    pub layouts: Vec<Layout>,
}

/// A region of the address space; what several processes have at an address is one.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hot {
    /// Its first address.
    pub address: u64,
    /// Its TLB misses under base pages.
    pub misses: u64,
    /// The mapping that it is in, the last one that was made there.
    pub mapping: Range<u64>,
}

/// Superpages in some regions.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Layout {
    /// How many, of the first.
    pub regions: usize,
    /// The share of the cycles that superpages everywhere save; below 0 if it takes longer than
    /// base pages.
    pub share: f64,
    /// The run.
    pub row: Row,
}

impl Advice {
    /// Cycles that superpages everywhere save; below 0 if they cost more.
    pub fn saved(&self) -> i128 {
        saved(&self.base, &self.everywhere)
    }

    /// The share of what superpages everywhere save that this run saves.
    pub fn share(&self, row: &Row) -> f64 {
        saved(&self.base, row) as f64 / self.saved() as f64
    }

    /// The smallest layout that was found with at least this share of what superpages everywhere
    /// save; `None` where they save nothing.
    pub fn least(&self, share: f64) -> Option<&Layout> {
        self.layouts.iter().find(|layout| layout.share >= share)
    }

    /// A file for the policy `plan`, in CBMM's format: the first regions, each with the cycles that
    /// its walks took under base pages.
    pub fn plan(&self, regions: usize) -> String {
        self.regions[..regions].iter().map(|hot| self.line(hot, hot.address)).collect()
    }

    /// The line for a region in such a file, with this address in place of its own.
    pub fn line(&self, hot: &Hot, address: u64) -> String {
        let each = self.base.walk_cycles as f64 / self.base.tlb_misses.max(1) as f64;
        let end = address.saturating_add(self.region_bytes);
        format!("huge,mmap,{:.0},addr,>,{address:#x},addr,<,{end:#x}\n", hot.misses as f64 * each)
    }
}

fn saved(base: &Row, other: &Row) -> i128 {
    i128::from(base.cycles) - i128::from(other.cycles)
}

/// Finds out what superpages are worth in which regions. `base` is a simulation under base pages;
/// `open` opens the stream, which is run three times, with some 12 simulations in two of them. Each
/// of its threads has a core with its own TLBs, where the machine has several.
///
/// # Errors
/// The machine has no superpage of at most 2 MB or too little memory for the stream, or the stream
/// is sampled ([`Error::Usage`]); the stream cannot be opened or read. A stream that is stopped
/// gives what is known by then.
pub fn advise(
    base: &Setup,
    open: &dyn Fn() -> Result<Box<dyn Source>, Error>,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Advice, Error> {
    let ladder = &base.ladder;
    let mut levels = ladder.levels().skip(1).filter(|level| ladder.size(*level).bytes() <= 2 << 20);
    let size = levels.next_back().map(|level| ladder.size(level)).ok_or_else(|| {
        Error::Usage(format!("machine {} has no superpage of at most 2 MB to advise", base.machine()))
    })?;
    let passes = |setups: &[Setup]| -> Result<Vec<Run>, Error> {
        let mut source = open()?;
        if source.info().sampling.is_some() {
            let name = &source.info().workload;
            return Err(Error::Usage(format!("{name} is sampled, and all accesses count: record it without --sample")));
        }
        run_parts(setups, source.as_mut(), stop, progress, &Watch { cores: cores(base), ..Watch::default() })
    };
    let counted = Setup { miss_region: Some(size.bytes() / ladder.base().bytes()), ..base.clone() };
    let [all, thp] = [plan("all"), crate::policy("thp")?].map(|policy| base.clone().with_policy(policy));
    let runs = passes(&[counted, all, thp])?;
    let regions = runs[0].misses.as_ref().map_or(Vec::new(), |misses| misses.hot(ladder.base()));
    let [base_row, everywhere, thp] = <[Run; 3]>::try_from(runs).expect("a run for each setup").map(|run| run.row);
    let cut = [&base_row, &everywhere, &thp].into_iter().find_map(|row| Some((row, row.error.as_ref()?)));
    if let Some((row, error)) = cut.filter(|_| !stop.load(Ordering::Relaxed)) {
        return Err(Error::Usage(format!(
            "{} does not run to its end under {} on {}, so nothing can be advised: {error}; \
             advise has no --memory and no --swap, so name a machine with more memory by -m",
            row.workload, row.policy, row.machine
        )));
    }
    let most_cores = cores(base).map_or(0, |cores| cores.number);
    let mut advice = Advice {
        region_bytes: size.bytes(),
        most_cores,
        base: base_row,
        everywhere,
        thp,
        regions,
        layouts: Vec::new(),
    };
    let most = advice.regions.len();
    if advice.saved() <= 0 || most == 0 {
        return Ok(advice);
    }
    advice.add(&grown(most), base, &passes)?;
    let between: Vec<usize> = SHARES.iter().flat_map(|share| advice.around(*share)).collect();
    advice.add(&between, base, &passes)?;
    Ok(advice)
}

/// Each thread on a core, where those of the machine are modelled.
fn cores(base: &Setup) -> Option<Cores> {
    let number = base.machine.clock.cores.unwrap_or(Cores::MANY);
    Mmu::refuses_cores(&base.machine).is_none().then_some(Cores::new(number))
}

/// Numbers of regions from 1 to all, each about the same factor above the one before.
fn grown(most: usize) -> Vec<usize> {
    let step = |index: usize| (most as f64).powf(index as f64 / (AT_ONCE - 1) as f64).round() as usize;
    (0..AT_ONCE).map(step).collect()
}

impl Advice {
    /// Numbers between the first layout with this share and the one before it.
    fn around(&self, share: f64) -> Vec<usize> {
        let Some(found) = self.layouts.iter().position(|layout| layout.share >= share) else { return Vec::new() };
        let (to, from) = (self.layouts[found].regions, found.checked_sub(1).map_or(0, |at| self.layouts[at].regions));
        let parts = AT_ONCE / SHARES.len() + 1;
        (1..parts).map(|part| from + (to - from) * part / parts).collect()
    }

    /// Runs layouts of these numbers of regions that were not run yet.
    fn add(&mut self, numbers: &[usize], base: &Setup, passes: Pass<'_>) -> Result<(), Error> {
        let known = |number: usize| self.layouts.iter().any(|layout| layout.regions == number);
        let mut numbers: Vec<usize> = numbers.iter().copied().filter(|number| *number > 0 && !known(*number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return Ok(());
        }
        let range = |hot: &Hot| format!("{:x}-{:x}", hot.address, hot.address.saturating_add(self.region_bytes));
        let layout = |number: &usize| {
            let ranges: Vec<String> = self.regions[..*number].iter().map(range).collect();
            base.clone().with_policy(plan(&ranges.join(";")))
        };
        let setups: Vec<Setup> = numbers.iter().map(layout).collect();
        let rows = passes(&setups)?.into_iter().map(|run| run.row);
        let found = numbers.into_iter().zip(rows).filter(|(_, row)| row.complete);
        let found: Vec<Layout> = found.map(|(regions, row)| Layout { regions, share: self.share(&row), row }).collect();
        self.layouts.extend(found);
        self.layouts.sort_by_key(|layout| layout.regions);
        Ok(())
    }
}

/// The policy `plan` for ranges of addresses, `LO-HI;LO-HI`, hexadecimal, or for `all` memory.
fn plan(ranges: &str) -> Policy {
    fn read(ranges: &str) -> Result<String, String> {
        let line = |range: &str| match range.split_once('-') {
            Some((from, to)) => format!("huge,mmap,1,addr,>,0x{from},addr,<,0x{to}\n"),
            None => "huge,mmap,1\n".into(),
        };
        Ok(ranges.split(';').map(line).collect())
    }
    let target = Target { read: Some(read), ..Target::MANAGER };
    let definition = target.policies().find(|definition| definition.name == "plan").expect("it is built in");
    Policy::of(definition, [("file", ranges), ("cost", "0")], &target).expect("lines of its format")
}
