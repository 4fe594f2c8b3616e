//! What simulations of one size of base page carry over from batch to batch: which run of the
//! stream makes a request, and what its requests touched.

use super::made::Made;
use super::recent::Recent;
use super::stretch::Role;
use super::touched::Touched;
use superpage_mmu::Request;
use superpage_pages::{Access, Vpn};
use superpage_trace::{Cores, Event, Info, Run, Sampling, TRACE_PAGE_SHIFT};

/// What is carried over from one batch to the next, for machines with one size of base page.
pub(crate) struct Carried {
    /// The bits that a page number of the stream loses on them.
    pub(super) shift: u32,
    /// Whether each run makes a request, for its line.
    pub(super) lines: bool,
    pub(super) last: Last,
    /// The requests of a window since the last event.
    made: Made,
    pub(super) touched: Touched,
    /// What windows used on each core.
    recent: Vec<Recent>,
    core: usize,
    /// The number of cores; 0: the stream does not say which runs what.
    cores: u32,
}

impl Carried {
    /// For machines whose base page has `base_shift` bits, at least those of a trace page.
    pub(crate) fn new(base_shift: u32, lines: bool, info: &Info) -> Carried {
        let shift = base_shift - TRACE_PAGE_SHIFT;
        let recent = Recent::new(info.sampling.map_or(0, Sampling::windows_in_period));
        Carried {
            shift,
            lines,
            last: NOWHERE,
            made: Made::default(),
            touched: Touched::new(shift),
            recent: vec![recent; info.cores.max(1) as usize],
            core: 0,
            cores: info.cores,
        }
    }

    /// What windows used on the current core.
    pub(super) fn recent(&mut self) -> &mut Recent {
        &mut self.recent[self.core]
    }

    /// Notes a request for a run, which makes it if `makes` is set; returns whether it touched a
    /// page for the first time.
    #[inline(always)]
    pub(super) fn note(&mut self, request: Request, makes: bool, role: Role) -> bool {
        if role == Role::Window {
            return !self.made.has(request) && self.note_in_window(request, makes);
        }
        self.touched.access(request.page().0, request.access())
    }

    /// As [`Carried::note`], of a request that may be the first of its kind in a window since the
    /// last event.
    #[inline(never)]
    fn note_in_window(&mut self, request: Request, makes: bool) -> bool {
        if makes {
            self.made.add(request);
            self.recent[self.core].add(self.touched.process(), request);
        }
        self.touched.access(request.page().0, request.access())
    }

    /// What an event changes.
    pub(super) fn event(&mut self, event: &Event) {
        self.touched.event(event);
        self.made.forget();
        if let Event::Switch { thread, .. } = event {
            self.core = Cores::of(self.cores, *thread) as usize;
        }
        if !matches!(event, Event::Note(_) | Event::Skipped { .. } | Event::Phase { .. }) {
            self.last = NOWHERE;
        }
    }
}

/// For each kind of access (read, write, fetch), the page where a request of this kind would find
/// all as the last one left it, or [`NO_PAGE`]. Those of reads and writes are the current page of
/// the data stream.
pub(super) type Last = [u64; 3];

pub(super) const NO_PAGE: u64 = u64::MAX;
pub(super) const NOWHERE: Last = [NO_PAGE; 3];

/// The request for `run`, and whether the run issues it: whether it is the first of its kind since
/// its stream came to its page.
#[inline(always)]
pub(super) fn next([read, written, fetched]: &mut Last, shift: u32, run: &Run) -> (Request, bool) {
    let (page, access) = (run.page() >> shift, run.access());
    let known = match access {
        Access::Read => {
            *written = if *written == page { page } else { NO_PAGE };
            std::mem::replace(read, page)
        }
        // The first one may change the mapping: reads begin again.
        Access::Write => {
            *read = if *written == page { *read } else { NO_PAGE };
            std::mem::replace(written, page)
        }
        Access::Execute => std::mem::replace(fetched, page),
    };
    (Request::new(Vpn(page), access), known != page)
}
