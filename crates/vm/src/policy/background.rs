//! What a policy does outside faults, on its own clock: a [`Background`], and the [`System`] that
//! it observes and changes.
//!
//! The same background runs in a simulation, in a kernel ([`Vm::advance`](crate::Vm::advance)) and
//! on live Linux: each implements [`System`].

use crate::{Address, Candidate, Compacted, FaultKind, How, Need, Place, Reserve, Sample, Scarce, SpaceId, Why};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use superpage_pages::{Extent, Hint, Ladder, Level, MAX_LEVELS, PageRange, Vpn};

/// A time in nanoseconds from an arbitrary origin. It never decreases.
pub type Time = u64;

/// What a policy does outside faults, such as a scanner: its state, and what it does each time it
/// is called.
pub trait Background: fmt::Debug + Send {
    /// When it is to be called next; `None`: not until an event changes that. O(1), or O(address
    /// spaces).
    fn next(&self) -> Option<Time>;

    /// Runs it at time `now`, which is at or after the time that [`Background::next`] returned, or
    /// nearly so.
    fn tick(&mut self, now: Time, system: &mut dyn System);

    /// The events that it needs; asked once, at the start.
    fn events(&self) -> Events {
        Events::default()
    }

    /// A fault was resolved. Called for each, only if [`Background::events`] asks for it, and only
    /// where the target resolves faults itself ([`Need::FaultEvents`](crate::Need::FaultEvents)): a
    /// policy that asks for it elsewhere is refused.
    fn faulted(&mut self, _space: SpaceId, _at: Vpn, _mapped: Level) {}

    /// The TLBs had no translation of the page, which is now mapped at this level. Called for each
    /// miss, only if [`Background::events`] asks for it, and only where the target counts misses
    /// ([`Need::Misses`](crate::Need::Misses)).
    fn missed(&mut self, _space: SpaceId, _at: Vpn, _mapped: Level) {}

    /// Cycles that its work at a miss costs the program, beyond the walk: a handler that counts by
    /// region is slower than one that only refills. Charged at every miss if the policy wants
    /// misses.
    fn miss_cycles(&self) -> u64 {
        0
    }

    /// The events that it wants where the target has them, by [`Background::notify`]; asked once,
    /// at the start. Unlike those of [`Background::events`], a target may lack them.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// One of the events of [`Background::wants`].
    fn notify(&mut self, _event: Event) {}

    /// An address space ended, or its program was replaced by another: the number may stand for
    /// another address space from now on. Called only if [`Background::events`] asks for it. The
    /// manager calls it at once; live Linux after the call in which the end was noticed, when
    /// processes were listed ([`System::spaces`]) or that one was scanned ([`System::scan`]).
    fn gone(&mut self, _space: SpaceId) {}

    /// Why nothing of what is due is done at `now`, and until when: no processor time is left, or
    /// no free extent was available. `None` if nothing is due, or nothing is in the way.
    fn waits(&self, _now: Time) -> Option<Refusal> {
        None
    }

    /// Why it cannot go on, as of a policy that is not compiled in; it is then not called any more.
    /// A target that can stop what runs under it does so, and says why.
    fn failed(&self) -> Option<String> {
        None
    }

    /// What it has found out, as a JSON object, if it has something to say at the end of a run.
    ///
    /// # Errors
    /// Why it cannot say it.
    fn result(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Checks the invariants of its state.
    ///
    /// # Errors
    /// A sentence that says which invariant does not hold.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The events that a background asks for. An event that it does not ask for costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events {
    /// Call [`Background::faulted`].
    pub faulted: bool,
    /// Call [`Background::missed`].
    pub missed: bool,
    /// Call [`Background::gone`].
    pub gone: bool,
}

impl Events {
    /// What a target must provide for them. All targets know of address spaces that end.
    pub(crate) fn needs(self) -> impl Iterator<Item = Need> {
        let faulted = self.faulted.then_some(Need::FaultEvents);
        faulted.into_iter().chain(self.missed.then_some(Need::Misses))
    }
}

/// What faults do in a part of an address space in place of what the policy answers
/// ([`System::prefer`]); the default is nothing else. Whether an extent is mapped as a superpage
/// stays the policy's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Prefer {
    /// Where frames come from.
    pub place: Option<Place>,
    /// How large a reservation or an extent may be.
    pub size: Option<Reserve>,
    /// In place of [`Placing::hinted`](crate::Placing::hinted), where the policy has one.
    pub hinted: Option<Reserve>,
    /// Whether an extent above a base page is only taken if one of just that size was zeroed ahead
    /// ([`System::zero_ahead`]).
    pub only_zeroed: bool,
    /// What is done where no extent of the preferred size is free.
    pub scarce: Option<Scarce>,
}

/// The events that a background can use and do without ([`Background::wants`]). One that it does
/// not want costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants {
    /// [`Event::Start`].
    pub start: bool,
    /// [`Event::Fault`], for each fault: on this crate's manager.
    pub fault: bool,
    /// [`Event::Miss`]: where somebody counts misses in the TLBs.
    pub miss: bool,
    /// What [`Event::Miss`] says of a neighbour, which takes a look into the TLBs at each miss.
    pub neighbour: bool,
    /// [`Event::Starved`]: on this crate's manager.
    pub starved: bool,
    /// [`Event::Mapped`]: on this crate's manager.
    pub mapped: bool,
    /// [`Event::Unmapped`]: on this crate's manager.
    pub unmapped: bool,
    /// No event: what [`Look::accessed`] and [`System::accessed`] say, which a live Linux does not
    /// know.
    pub accessed: bool,
    /// No event: what pages hold, for [`System::shrink`] in the simulator, which keeps that where
    /// it is wanted or needed.
    pub contents: bool,
}

/// Something that happened, for a background that wants to know ([`Background::notify`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It begins: the page sizes in use, and what work costs where that is known.
    Start {
        /// The page sizes in use.
        ladder: Ladder,
        /// What work costs; `None` where nobody knows.
        costs: Option<Costs>,
    },
    /// A fault was resolved.
    Fault {
        /// The page, and its space.
        at: Address,
        /// How.
        kind: FaultKind,
        /// The extent that it asked for: a base page if the page found its frame, or nothing larger
        /// fits.
        wanted: Level,
        /// The page that maps the address now.
        mapped: Level,
    },
    /// The TLBs had no translation of a page, which is mapped at this level.
    Miss {
        /// The page, and its space.
        at: Address,
        /// The page that maps it.
        mapped: Level,
        /// The smallest region larger than that page in which the TLBs hold another page after the
        /// refill; every larger region around it contains that page too. `None` if there is none,
        /// nobody knows, or [`Wants::neighbour`] does not ask for it.
        neighbour: Option<Level>,
    },
    /// A fault wanted an extent of this level and got less, or nothing.
    Starved {
        /// The level.
        level: Level,
        /// What the program asks for there.
        hint: Hint,
    },
    /// A range was mapped.
    Mapped {
        /// The space.
        space: SpaceId,
        /// The pages.
        range: PageRange,
    },
    /// A range was unmapped; holes in it may never have been mapped. Also when something is mapped
    /// over it.
    Unmapped {
        /// The space.
        space: SpaceId,
        /// The pages.
        range: PageRange,
    },
}

/// What work costs, in nanoseconds of one processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// A fault, without filling its page.
    pub fault: Time,
    /// To fill a base page with zeroes.
    pub zero: Time,
    /// To copy a base page.
    pub copy: Time,
    /// A shootdown.
    pub shootdown: Time,
}

/// What a scan of an address space ([`System::scan`]) found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned {
    /// The address space has ended, or the number stands for another one.
    Gone,
    /// Nothing has changed since the last scan, and no region was reported: an answer of
    /// [`System::scan_if_changed`] alone.
    Unchanged,
    /// The regions that were asked for were reported.
    Seen,
    /// They were reported, and it runs another program than at the last scan.
    NewProgram,
    /// Nothing in it may be promoted for now.
    Closed,
}

/// What a scan of a part of an address space ([`System::scan_part`]) found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedPart {
    /// What it found.
    pub scanned: Scanned,
    /// The number of the region at which the next part begins; `None` at the end, and where nothing
    /// was reported because the space is gone or closed.
    pub next: Option<u64>,
}

impl From<Scanned> for ScannedPart {
    fn from(scanned: Scanned) -> ScannedPart {
        ScannedPart { scanned, next: None }
    }
}

/// The part of an address space that a scan reports ([`System::scan_part`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The number of the first region that may be reported.
    pub from: u64,
    /// The most regions that are reported.
    pub most: u64,
}

impl Part {
    /// All of it.
    pub const ALL: Part = Part { from: 0, most: u64::MAX };
}

/// The pages of one region as they are now ([`System::look`]), in base pages. What a target has
/// none of is 0; what it cannot know is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// In memory, of this address space alone.
    pub populated: u32,
    /// In memory, and also other address spaces': since a fork, or of a file that several map.
    pub shared: u32,
    /// In swap space.
    pub swapped: u32,
    /// Not populated, with frames reserved for them.
    pub reserved: u32,
    /// Those of `populated` that were populated around a page that was touched; whether they were
    /// accessed since is not known.
    pub untouched: Option<u32>,
    /// Mapped by pages with a reference bit, set since the bits were last cleared.
    pub accessed: Option<u32>,
    /// Whether it is a superpage, or part of one.
    pub superpage: bool,
    /// Whether it is of a program's text, whose pages in memory are all `populated`, whoever maps
    /// them.
    pub text: bool,
    /// What the program asks for at its first page; `None` where nothing is mapped, or that is not
    /// known, as live.
    pub hint: Option<Hint>,
}

/// What memory is like ([`System::memory`]), in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryState {
    /// All of it: what the manager has, live what the kernel has (`MemTotal`).
    pub total: u64,
    /// Free: in free extents, and live in lists of the processors too.
    pub free: u64,
    /// Free, or to be had without eviction: reserved and not populated, or holding what can be read
    /// again.
    pub available: u64,
    /// The page daemon is woken with fewer available than this; 0 without a daemon.
    pub low: u64,
    /// Once woken, it aims at this many.
    pub aim: u64,
    /// By level: free extents of that size that lie in no larger free extent.
    pub extents: [u64; MAX_LEVELS],
}

impl MemoryState {
    /// The disjoint free extents of a level, those inside larger ones included. O(levels).
    pub fn free_extents(&self, ladder: &Ladder, level: Level) -> u64 {
        let larger = ladder.levels().skip(level.index());
        larger.map(|larger| self.extents[larger.index()] * (ladder.pages(larger) / ladder.pages(level))).sum()
    }
}

/// A region was not promoted ([`System::promote`]), or nothing is promoted for now
/// ([`Background::waits`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub why: Why,
    /// Until when all promotions in the address space are refused for that reason, without a look
    /// at the region; 0 if it is a reason of this region.
    pub until: Time,
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Refusal {
        Refusal { why, until: 0 }
    }
}

/// What a background may observe and change. A region is an aligned part of an address space of the
/// size of a level; its number is its address divided by that size.
pub trait System {
    /// The page sizes in use.
    fn ladder(&self) -> &Ladder;

    /// The current time: at least what [`Background::tick`] was called with.
    fn now(&self) -> Time;

    /// The processor time that the background has used since the start, in nanoseconds, in its own
    /// code, in scans and in promotions. Where somebody else measures it
    /// ([`Vm::advance`](crate::Vm::advance)), as in the simulator, it stands still during a call of
    /// [`Background::tick`], and the next call knows of this one's; live it goes on.
    fn spent(&self) -> Time;

    /// The address spaces that it may work on, in ascending order.
    fn spaces(&mut self) -> Vec<SpaceId>;

    /// Reports to `see`, in ascending order, the regions of `level` that hold a page and lie in
    /// memory that can be promoted: those of `part`, whether or not they were reported before.
    /// Nothing is cleared. O(regions reported), and on this crate's manager one step for each run
    /// of pages behind them in the same mapping.
    fn scan_part(&mut self, space: SpaceId, level: Level, part: Part, see: &mut dyn FnMut(Sample)) -> ScannedPart;

    /// As [`System::scan_part`], of all of the space. O(populated regions).
    fn scan(&mut self, space: SpaceId, level: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        self.scan_part(space, level, Part::ALL, see).scanned
    }

    /// As [`System::scan`], but a target that knows at less cost that nothing has changed since the
    /// last scan may report nothing and return [`Scanned::Unchanged`]: live Linux does, where a
    /// process has not run. For a background that keeps what it saw.
    fn scan_if_changed(&mut self, space: SpaceId, level: Level, see: &mut dyn FnMut(Sample)) -> Scanned {
        self.scan(space, level, see)
    }

    /// The population of one region, as [`System::scan_part`] would report it; `None` where that
    /// reports nothing. On this crate's manager, which counts it, O(runs of populated pages),
    /// charged as one page; elsewhere as a scan of the region.
    fn population(&mut self, space: SpaceId, level: Level, region: u64) -> Option<Sample> {
        let mut found = None;
        self.scan_part(space, level, Part { from: region, most: 1 }, &mut |sample| found = Some(sample));
        found.filter(|sample| sample.region == region)
    }

    /// Looks at the pages of one region, and clears nothing. O(pages of the region); where its
    /// object is shared, times the number of address spaces.
    fn look(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Look {
        Look::default()
    }

    /// The recent load of an address space, in processor seconds per second; 0 if that is not
    /// known.
    fn rate(&self, _space: SpaceId) -> f64 {
        0.0
    }

    /// How many base pages of a region were accessed since the last call for it, and clears their
    /// reference bits; `None` if that is not known. [`System::look`] leaves the bits alone.
    fn accessed(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Option<u32> {
        None
    }

    /// The number of physically contiguous pieces that a region consists of; `None` if that is not
    /// known.
    fn pieces(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Option<u32> {
        None
    }

    /// What memory is like; `None` if that is not known. O(levels), live two small files.
    fn memory(&mut self) -> Option<MemoryState> {
        None
    }

    /// The number of disjoint free extents of a level; `None` if that is not known. As
    /// [`System::memory`].
    fn free_extents(&mut self, level: Level) -> Option<u64> {
        let ladder = *self.ladder();
        self.memory().map(|memory| memory.free_extents(&ladder, level))
    }

    /// Promotes regions. Each is looked at right before, and refused if fewer of its pages than
    /// [`Candidate::least`] are populated and its own. A live Linux also refuses where too little
    /// memory would be left, while tasks wait for memory, while a process is slowed by promotion,
    /// and once a call of the background has used up its time. Returns for each region what came of
    /// it, in their order.
    fn promote(&mut self, space: SpaceId, level: Level, regions: &[Candidate], how: How) -> Vec<Result<(), Refusal>>;

    /// Zeroes up to `most` free extents of a level ahead of faults that take them whole, and
    /// returns how many; `None` where free memory cannot be had
    /// ([`Need::Zeroing`](crate::Need::Zeroing)).
    fn zero_ahead(&mut self, _level: Level, _most: u64) -> Option<u64> {
        None
    }

    /// Changes what faults do in a range, or in all of a space and in what it maps later (`None`).
    /// What is mapped stays, but superpages across the ends of the range are demoted as far as
    /// needed. Returns whether that is so now: `false` where the target resolves faults otherwise,
    /// as a live Linux, where the space has ended, and after 65536 different preferences. O(map
    /// entries there).
    fn prefer(&mut self, _space: SpaceId, _range: Option<PageRange>, _prefer: Prefer) -> bool {
        false
    }

    /// Frees the frames that are reserved around a region and not populated, as preemption does,
    /// and returns how many; all of a reservation that is larger than the region. 0 where the
    /// target reserves nothing. O(pages of the region).
    fn release(&mut self, _space: SpaceId, _level: Level, _region: u64) -> u64 {
        0
    }

    /// Gives back pages of zeroes of a region: demotes what holds them, and frees them; the next
    /// access finds zeroes again. Returns how many. They are found by
    /// [`Memory::is_zero`](crate::Memory::is_zero); in the simulator what was never written, if the
    /// policy needs [`Need::Contents`](crate::Need::Contents). Live, a huge page is split by
    /// debugfs' `split_huge_pages`, and since Linux 6.12 the kernel then frees its pages of zeroes.
    /// Frames of a reservation stay reserved: [`System::release`]. O(pages of the region).
    fn shrink(&mut self, _space: SpaceId, _level: Level, _region: u64) -> u64 {
        0
    }

    /// How many pages of a region [`System::shrink`] would give back now, and changes nothing;
    /// `None` where what pages hold is not known, as on a live Linux. Reads the pages: O(pages of
    /// the region).
    fn zeroes(&mut self, _space: SpaceId, _level: Level, _region: u64) -> Option<u64> {
        None
    }

    /// Compacts an extent: relocates its pages to free frames elsewhere, so that it becomes free;
    /// `None` as the target: of those of this level that are not free, the one with the most free
    /// frames, if its pages have room outside those that are. Returns `None` where the target has
    /// no call for that, as a live Linux. Nothing is evicted, but reservations in it are broken and
    /// cache pages dropped. O(frames of the extent).
    fn compact(&mut self, _level: Level, _target: Option<Extent>) -> Option<Compacted> {
        None
    }

    /// Demotes the superpage of exactly this level at the start of the region, until a base page
    /// maps its first page; where the policy demotes stepwise, the rest stays in superpages of the
    /// sizes between. Returns whether there was one. A live Linux splits it by debugfs'
    /// `split_huge_pages`, and returns `false` where that is not there.
    fn demote(&mut self, space: SpaceId, level: Level, region: u64) -> bool;
}
