//! The cost of promotion: `MADV_COLLAPSE` of full regions, by the pages that they consist of.

use super::Finding;
use super::fault::faults_so_far;
use super::memory::{BASE, HUGE, Memory};
use super::usable::{allow, folios};
use std::time::Duration;
use superpage_linux::Error;
use superpage_linux::cpu::thread_cpu;
use superpage_linux::memory::available;
use superpage_linux::pagemap::Pagemap;
use superpage_pages::PageSize;

/// Memory of one round.
const BYTES: usize = 32 << 20;
/// The first round warms.
const ROUNDS: usize = 4;
const FOLIO: usize = 64 << 10;
/// A cache line.
const LINE: usize = 64;

/// Of regions of base pages; of regions of 64 KB folios where they may be had, which `folios`
/// allows meanwhile.
pub(crate) fn promotions(folios: bool) -> Vec<Finding> {
    let base = timed("promotion.4K", "promotion of 2 MB of base pages", || Memory::base(BYTES));
    vec![base, of_folios(folios)]
}

/// What the promotion of one region costs here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionCost {
    /// In memory that was just used.
    pub warm: Duration,
    /// The most that was met in other free memory: what a host has taken back, it provides first.
    pub most: Duration,
}

impl RegionCost {
    /// Whether memory was met that a host had to provide first.
    pub fn met_cold(&self) -> bool {
        self.most > 3 * self.warm
    }
}

/// Measures what the promotion of one region costs here, by medians of 32 in pieces of 64 MB, more
/// than caches hold. Of free memory it tries one piece after the other until one is cold: what was
/// used last, which a kernel gives away first, is not what follows. 0.1 to 1 s; 64 MB, and up to
/// 256 MB where none is cold and four times that is available.
///
/// # Errors
/// The kernel does not promote, or has no memory for it.
pub fn region_cost() -> Result<RegionCost, Error> {
    const PIECES: usize = 4;
    const PIECE: usize = 32 * HUGE;
    let once = || -> Result<(Memory, Duration), Error> {
        let memory = Memory::base(PIECE)?;
        memory.touch(0..PIECE, LINE);
        let mut times = collapses(&memory, PIECE)?;
        times.sort_unstable();
        Ok((memory, times[times.len() / 2]))
    };
    let (first, again) = (once()?.1, once()?.1);
    let mut cost = RegionCost { warm: first.min(again), most: first.max(again) };
    let may_hold =
        |pieces: usize| available().is_some_and(|bytes| bytes > 4 * (PIECES * PIECE) as u64) && pieces < PIECES;
    let mut held = Vec::new();
    while !cost.met_cold() && may_hold(held.len()) {
        let (memory, median) = once()?;
        // Both of the first may have been cold.
        cost = RegionCost { warm: cost.warm.min(median), most: cost.most.max(median) };
        held.push(memory);
    }
    Ok(cost)
}

/// The CPU time of each collapse in this memory, one after the other; at least one.
fn collapses(memory: &Memory, bytes: usize) -> Result<Vec<Duration>, Error> {
    let pagemap = Pagemap::open(std::process::id() as i32).map_err(Error::file("read", "/proc/self/pagemap"))?;
    memory.advise(libc::MADV_HUGEPAGE)?;
    let mut times = Vec::new();
    for at in (0..bytes).step_by(HUGE) {
        // From the advice on khugepaged may be first.
        let (start, mut huge) = ((memory.start() + at) as u64, false);
        let seen = pagemap.runs_while(start..start + HUGE as u64, |run| {
            huge |= run.huge();
            !huge
        });
        seen.map_err(Error::system("scan this process's pages"))?;
        let before = thread_cpu();
        memory.advise_part(at..at + HUGE, libc::MADV_COLLAPSE)?;
        times.extend((!huge).then(|| thread_cpu().saturating_sub(before)));
    }
    if times.is_empty() { Err(Error::Unable("the kernel promotes all at once".into())) } else { Ok(times) }
}

fn of_folios(may_allow: bool) -> Finding {
    let (name, what) = ("promotion.64K", "promotion of 2 MB of 64K folios");
    let measure = || timed(name, what, in_folios);
    let setting = "hugepages-64kB/enabled";
    match folios().find(|(size, _)| *size == PageSize::KB64) {
        None => Finding::unmeasured(name, what, format!("this kernel has no {setting}")),
        Some((_, true)) => measure(),
        Some(_) if !may_allow => {
            Finding::unmeasured(name, what, format!("{setting} allows no such folios; --folios does meanwhile"))
        }
        Some(_) => match allow(PageSize::KB64) {
            Ok(_allowed) => measure(),
            Err(error) => Finding::unmeasured(name, what, error.to_string()),
        },
    }
}

/// Memory of folios of 64 KB, whatever larger sizes are allowed too: every other piece of 64 KB is
/// advised and touched, then the others, so that no larger page has room in a mapping.
fn in_folios() -> Result<Memory, Error> {
    let memory = Memory::new(BYTES)?;
    memory.advise(libc::MADV_NOHUGEPAGE)?;
    // A page that was touched gives the pieces an ancestor in common, without which they could not
    // be one mapping again.
    memory.touch(0..BASE, BASE);
    memory.advise_part(0..BASE, libc::MADV_DONTNEED)?;
    let before = faults_so_far();
    for first in [0, FOLIO] {
        memory.advise(libc::MADV_NOHUGEPAGE)?;
        for at in (first..BYTES).step_by(2 * FOLIO) {
            memory.advise_part(at..at + FOLIO, libc::MADV_HUGEPAGE)?;
            memory.touch(at..at + FOLIO, BASE);
        }
    }
    let (faults, due) = ((faults_so_far() - before) as usize, BYTES / FOLIO);
    if faults > due + due / 8 + 16 {
        Err(Error::Unable(format!("the kernel gave smaller pages: {faults} faults where {due} were due")))
    } else {
        Ok(memory)
    }
}

fn timed(name: &str, what: &str, make: impl Fn() -> Result<Memory, Error>) -> Finding {
    let measured = || -> Result<Vec<f64>, Error> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let taken = collapses(&make()?, BYTES)?;
            if round > 0 {
                times.extend(taken.iter().map(|time| time.as_secs_f64() * 1e6));
            }
        }
        Ok(times)
    };
    match measured() {
        Ok(mut times) => {
            times.sort_by(f64::total_cmp);
            // Not the least: khugepaged may have been first in some.
            let [low, median, high] = [1, 5, 9].map(|tenth| times[times.len() * tenth / 10]);
            let evidence = format!(
                "under it is one in ten of {} promotions by MADV_COLLAPSE; median {median:.0} us, \
                 9 of 10 under {high:.0}",
                times.len()
            );
            Finding::number(name, what, low, low / median, evidence).unit("us")
        }
        Err(error) => Finding::unmeasured(name, what, error.to_string()),
    }
}
