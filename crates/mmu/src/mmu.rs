//! The hardware as the rest of the simulator sees it: it takes requests, returns traps and counts,
//! and provides the page-table operations that an operating system needs.
//!
//! Mappings and traps do not depend on TLBs and walkers. So one [`Mmu`] can simulate several
//! machines on which the same kernel runs the same programs. All share the mappings. Machines with
//! equal first levels share one, and with it the look-up of each request ([`crate::tlb::first`]).
//! Behind it, machines with equal further levels share those, which see only first-level misses
//! ([`crate::tlb::further`]). Each walker sees only the misses of all levels ([`crate::walk`]).

use crate::cores::Cores;
use crate::counters::Counters;
use crate::handler::Upkeep;
use crate::host::{HostState, NoCaches};
use crate::machine::Machine;
use crate::machine::Replacement;
use crate::machine::{SHADOW_LINES, TableKind};
use crate::mappings::pte::Pte;
use crate::mappings::{Backing, Change, Effects, Mapping, MappingId, Mappings, SpacePages, Work};
use crate::request::{Request, Trap};
use crate::tlb::first::{FirstLevel, Lined};
use crate::tlb::further::FurtherLevels;
use crate::tlb::reach::entries::Entries;
use crate::tlb::storage::Cache;
use crate::tlb::{Held, Tlbs};
use crate::walk::Walker;
use crate::walk::formats::{Groups, tables_of_host};
use crate::walk::lines::{Lines, PROGRAM_LINES};
use std::cell::RefCell;
use std::ops::Range;
use superpage_pages::{Access, Counts, Mapped, PageSize, Protection, Used, Vpn};

/// Requests that one first level takes before the next one does: few enough that their page-table
/// entries stay in the caches of the host.
const CHUNK: usize = 4096;

/// The TLBs, page tables and walker of one core or several, and their counters; or those of several
/// machines, which run the same programs.
#[derive(Clone, Debug)]
pub struct Mmu {
    pub(crate) mappings: Mappings,
    /// Those of each core, one core after the other. Read them through [`Mmu::served`], which
    /// serves waiting requests first.
    pub(crate) first_levels: RefCell<Vec<FirstLevel>>,
    pub(crate) cores: Cores,
    /// Of each machine.
    indices: Vec<Indices>,
    /// Whether requests may wait on all machines ([`Mmu::defer`]).
    pub(crate) may_defer: bool,
    /// Whether the machines have hash tables of groups.
    pub(crate) walks_again: bool,
    /// The counts that all machines have in common.
    pub(crate) counters: Counters,
    /// The space that the current core runs.
    pub(crate) space: u32,
    /// The pages of the last shootdown, if nothing was translated since: no TLB holds any of them.
    pub(crate) shot: Option<SpacePages>,
    /// Pages whose changes are announced together ([`Mmu::begin_gather`]).
    gathered: Option<SpacePages>,
    /// Whether pages whose reference bit is cleared leave the TLBs.
    flushes_referenced: bool,
    pub(crate) host: HostState,
    /// What the operating system does to keep TLBs and hash tables up to date.
    pub(crate) upkeep: Upkeep,
}

/// The parts of a machine, by index. Machines that differ in costs alone share all of them.
#[derive(Clone, Copy, Debug)]
struct Indices {
    /// Its first level.
    first_level: usize,
    /// Its further levels, among those behind that.
    further: usize,
    /// Its walker, among those behind both.
    walker: usize,
}

impl Indices {
    /// Calls `make` with what they name of a core.
    fn of<T>(self, first_level: &FirstLevel, make: impl FnOnce(&FirstLevel, &FurtherLevels, &Walker) -> T) -> T {
        let further = &first_level.further[self.further];
        make(first_level, further, &further.walkers[self.walker])
    }
}

impl Mmu {
    /// A core of this machine with empty TLBs, running space 0, which has no page tables yet.
    pub fn new(machine: &Machine) -> Mmu {
        Mmu::of(&[machine])
    }

    /// A core of each of these machines, at least one, which must share mappings
    /// ([`Machine::shares_mappings`]). Each different first level takes as long as one machine
    /// alone. Different further levels take time only for misses of their first level, walkers only
    /// for misses of all levels, and machines that differ in costs alone take none.
    ///
    /// # Panics
    /// There is no machine, or two differ in their page tables.
    pub fn of(machines: &[&Machine]) -> Mmu {
        let machine = machines[0];
        let alike = machines[1..].iter().all(|other| machine.shares_mappings(other));
        assert!(alike, "machines with different page tables, or whose TLBs look at use bits");
        let shape = machine.page_table.kind.shape(machine);
        let (mut first_levels, mut indices): (Vec<FirstLevel>, Vec<Indices>) = (Vec::new(), Vec::new());
        for machine in machines {
            let [first, rest] = Tlbs::new(machine);
            let first_level = first_levels
                .iter()
                .position(|first_level| first_level.is_like(&first, machine))
                .unwrap_or(first_levels.len());
            if first_level == first_levels.len() {
                first_levels.push(FirstLevel::new(first, machine));
            }
            let further = first_levels[first_level].add(rest, machine);
            let alike = indices.iter().zip(machines).find_map(|(others, other)| {
                let near = (others.first_level, others.further) == (first_level, further);
                (near && other.counts_like(machine)).then_some(others.walker)
            });
            let walker = alike.unwrap_or_else(|| first_levels[first_level].further[further].add(machine, &shape));
            indices.push(Indices { first_level, further, walker });
        }
        let mut mappings = Mappings::new(machine.ladder(), &shape);
        if machines.iter().any(|machine| machine.range_tlb.is_some()) {
            mappings.keep_ranges();
        }
        if let Some((first, frames)) = machine.shadow_frames() {
            mappings.keep_shadow(first, frames);
        }
        let host = machine.host.as_ref().filter(|host| host.managed && machine.page_table.kind == TableKind::Nested);
        mappings.backing = host.map(|host| Box::new(Backing::new(tables_of_host(machine, host))));
        Mmu {
            mappings,
            cores: Cores::new(first_levels.len()),
            first_levels: RefCell::new(first_levels),
            indices,
            walks_again: machine.page_table.kind == TableKind::Groups,
            may_defer: machines.iter().all(|machine| machine.may_defer()),
            counters: Counters::default(),
            space: 0,
            shot: None,
            gathered: None,
            flushes_referenced: machine.flushes_referenced(),
            host: HostState::default(),
            upkeep: Upkeep::default(),
        }
    }

    /// The bytes of the host that the TLBs and caches of a machine take, without what depends on
    /// the program: those written at the start, and all.
    pub fn bytes_of(machine: &Machine) -> (u64, u64) {
        let tlbs = machine.tlb.iter().map(|tlb| {
            let (begun, whole) = Entries::bytes(machine, tlb);
            // Of the first level they may have ways for a time.
            let placed = <Cache>::placed_bytes(tlb.sets() as u64, tlb.ways() as u64);
            if tlb.level == 1 { (begun.max(placed), whole.saturating_add(placed)) } else { (begun, whole) }
        });
        let host = machine.host.as_ref();
        let of_host = host.into_iter().flat_map(|host| host.walk_cache.iter().map(|cache| cache.entries));
        let nested = host.map(|host| host.nested_tlb);
        let walks = machine
            .walk_cache
            .iter()
            .filter(|cache| machine.within(cache).is_none())
            .map(|cache| cache.entries)
            .chain(of_host)
            .chain(nested);
        let walks = walks.map(|entries| <Cache>::bytes(1, entries, Replacement::Lru));
        let lines = machine.line_cache.iter().chain(&machine.instruction_cache).map(|spec| Lines::bytes(machine, spec));
        let shadow = machine.shadow.iter();
        let remapping =
            shadow.map(|shadow| <Cache>::bytes(shadow.entries / shadow.ways, shadow.ways, Replacement::Lru));
        let buckets = machine.clustered.iter().map(|clustered| (clustered.buckets * 4, clustered.buckets * 4));
        let groups = machine.groups.iter().map(|of| Groups::bytes(of.groups));
        let all = tlbs.chain(walks).chain(lines).chain(remapping).chain(buckets).chain(groups);
        all.fold((0, 0), |(begun, whole), (more, most)| (begun.saturating_add(more), whole.saturating_add(most)))
    }

    /// Calls `make` with the first level, further levels and walker of a machine's current core,
    /// once all waiting requests are served.
    pub(crate) fn of_served<T>(
        &self,
        machine: usize,
        make: impl FnOnce(&FirstLevel, &FurtherLevels, &Walker) -> T,
    ) -> T {
        let at = self.cores.here().start + self.indices[machine].first_level;
        self.indices[machine].of(&self.served()[at], make)
    }

    /// As [`Mmu::of_served`], with those of each core in turn.
    fn each_served(&self, machine: usize, mut make: impl FnMut(&FirstLevel, &FurtherLevels, &Walker)) {
        let (served, indices) = (self.served(), self.indices[machine]);
        self.cores.each(indices.first_level).for_each(|at| indices.of(&served[at], &mut make));
    }

    /// Calls `make` with the hash table of groups of a machine, if it has one.
    pub(crate) fn of_groups<T>(&self, machine: usize, make: impl FnOnce(&Groups) -> T) -> Option<T> {
        self.of_served(machine, |_, _, walker| walker.groups_held().map(make))
    }

    /// The counts since the start, on the machine with this index in [`Mmu::of`] (0 after
    /// [`Mmu::new`]). Panics if `machine` is out of range, here and below.
    pub fn counters(&self, machine: usize) -> Counters {
        let mut counters = self.shared();
        self.each_served(machine, |first_level, further, walker| {
            [&first_level.counters, &further.counters, &walker.counters]
                .into_iter()
                .for_each(|part| counters.add(part));
        });
        counters
    }

    /// The counts that all machines have in common: use bits set, page-table entries written and
    /// traversed, shootdowns, switches, and shadow superpages.
    pub fn shared(&self) -> Counters {
        let [use_bits, use_bit_entries] = self.mappings.use_bits;
        Counters { use_bits, use_bit_entries, remaps: self.mappings.remaps(), ..self.counters }
    }

    /// Page-table entries written, page-table entries traversed, and shootdowns. As in
    /// [`Mmu::shared`], without computing the rest.
    #[inline]
    pub fn changes(&self) -> [u64; 3] {
        [self.counters.pte_writes, self.counters.pte_traversals, self.counters.shootdowns]
    }

    /// [`Counters::shootdowns_sent`] of all machines, without computing the rest.
    #[inline]
    pub fn shootdowns_sent(&self) -> u64 {
        self.counters.shootdowns_sent
    }

    /// Requests that no TLB of this machine could serve: the sum of [`Counters::walks`], without
    /// computing the rest.
    pub fn misses(&self, machine: usize) -> u64 {
        let mut misses = 0;
        self.each_served(machine, |_, further, walker| {
            misses += further.counters.tlb_misses() + walker.counters.tlb_misses();
        });
        misses
    }

    /// The counts of those walks of a machine that found no page, and so ended in a fault.
    pub fn faulting(&self, machine: usize) -> Counters {
        let mut faulting = Counters::default();
        self.each_served(machine, |_, _, walker| faulting.add(&walker.faulting));
        faulting
    }

    /// The most bytes that the page tables of all address spaces took at one time, since the start
    /// or [`Mmu::restart_page_table_peak`]; equal on all machines. A node of the radix format takes
    /// the bytes of its entries, one of the linear format whole base pages; the clustered format
    /// takes its buckets, always, and its nodes. A space has its root from its first access or
    /// mapping until it is destroyed, and other nodes as long as they have an entry.
    pub fn peak_page_table_bytes(&self) -> u64 {
        self.mappings.peak_table_bytes()
    }

    /// Restarts the peak at the bytes that page tables take now.
    pub fn restart_page_table_peak(&mut self) {
        self.mappings.restart_peak();
    }

    /// The entries in use of each TLB of a machine, by page size.
    pub fn held(&self, machine: usize) -> Vec<Held> {
        let levels = |first_level: &FirstLevel, further: &FurtherLevels| {
            [first_level.tlbs.held(&self.mappings), further.tlbs.held(&self.mappings)]
        };
        let mut held = self.of_served(machine, |first_level, further, _| levels(first_level, further)).concat();
        held.sort_by_key(|held| held.tlb);
        held
    }

    /// The number of ranges that the range TLB of a machine holds now.
    pub fn ranges_held(&self, machine: usize) -> u64 {
        self.of_served(machine, |_, further, _| further.tlbs.ranges_held())
    }

    /// The order (base-two logarithm, in base pages) of the smallest aligned block around a page of
    /// the current space in which the TLBs and ranges of a machine hold another mapping than the
    /// page's own; `None` if they hold no other mapping of the space. Entries of perforated pages
    /// do not count. Cost: O(entries).
    pub fn held_around(&self, machine: usize, page: Vpn) -> Option<u32> {
        let own = self.mappings.mapping(self.space, page);
        let own = own.map_or(page.0..page.0 + 1, |Mapping { pte, first, .. }| {
            let size = self.mappings.ladder().sizes()[pte.size_level()];
            first.0..first.0 + size.bytes() / self.mappings.ladder().base().bytes()
        });
        let of = |tlbs: &Tlbs| tlbs.held_around(&self.mappings, self.space, page, &own);
        let orders = self.of_served(machine, |first_level, further, _| [of(&first_level.tlbs), of(&further.tlbs)]);
        orders.into_iter().flatten().min()
    }

    /// The address space that requests are for.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// Makes `space` the current address space for requests, if it is not already. Spaces should
    /// have small numbers: each up to the largest takes a few bytes.
    pub fn switch(&mut self, space: u32) {
        if space == self.space {
            return;
        }
        self.catch_up();
        self.space = space;
        self.counters.switches += 1;
        self.mappings.clear_index_cache();
        let stale = self.cores.switch(space);
        self.counters.late_flushes += u64::from(stale);
        let (first_levels, mappings, _) = self.here();
        for first_level in first_levels {
            first_level.switch(mappings, space);
            if stale {
                first_level.drop_space(mappings, space);
            }
        }
    }

    /// Whether TLBs can be recalled level by level: no entry depends on the walk that comes between
    /// two levels.
    pub(crate) fn may_recall(&self) -> bool {
        self.mappings.backing.is_none() && !self.mappings.shadows() && !self.walks_again()
    }

    /// Translates requests of the current space in order until one traps; returns its index and the
    /// reason.
    ///
    /// The request that traps has been counted, with its misses. The caller lets the operating
    /// system handle the trap, calls [`Mmu::retry`] and continues after that request. A first write
    /// to a clean page is not a trap here: the dirty bit is set in place and counted, whether the
    /// machine does that in hardware or by a trap.
    ///
    /// # Panics
    /// The machine has shadow superpages, which are for streams with lines ([`Mmu::run_lines`]).
    pub fn run(&mut self, requests: &[Request]) -> Option<(usize, Trap)> {
        if requests.is_empty() {
            self.catch_up();
            return None;
        }
        assert!(!self.mappings.shadows(), "a stream without lines on a machine with shadow superpages");
        self.shot = None;
        if self.mappings.backing.is_some() {
            return self.run_as_guest(requests);
        }
        let (first_levels, mappings, space) = self.here();
        if let [first_level] = first_levels {
            return first_level.run::<false>(mappings, space, requests);
        }
        let mut done = 0;
        for chunk in requests.chunks(CHUNK) {
            let mut trap = None;
            // All trap at the same request, since that depends on the mappings alone.
            for first_level in &mut *first_levels {
                trap = first_level.run::<false>(mappings, space, chunk);
            }
            if let Some((index, trap)) = trap {
                return Some((done + index, trap));
            }
            done += chunk.len();
        }
        None
    }

    /// As [`Mmu::run`] with lines: the caches of each machine also hold the program's lines, and
    /// `lines` says which line of 64 bytes in its base page each request accesses. After a trap
    /// call [`Mmu::retry_line`]. TLB misses and walks are those of [`Mmu::run`], but walks find
    /// their lines in other caches. Cost: about a look-up in a set for each request and machine.
    ///
    /// # Panics
    /// The numbers of lines and requests differ, or a memory manager of the host maps the memory.
    /// The machines must be ones that [`Mmu::refuses_lines`] does not refuse.
    pub fn run_lines(&mut self, requests: &[Request], lines: &[u32]) -> Option<(usize, Trap)> {
        assert_eq!(requests.len(), lines.len(), "a line for each request");
        self.catch_up();
        assert!(self.mappings.backing.is_none(), "lines of a guest whose memory a manager of the host maps");
        if self.mappings.has_changed_pages() {
            self.make_superpages();
        }
        self.shot = None;
        if self.upkeep.one_by_one() {
            return self.run_handled(requests, lines);
        }
        let (first_levels, mappings, space) = self.here();
        let mut done = 0;
        for (requests, lines) in requests.chunks(CHUNK).zip(lines.chunks(CHUNK)) {
            let mut trap = None;
            for first_level in &mut *first_levels {
                trap = first_level.run_lines(mappings, space, Lined { requests, lines });
            }
            if let Some((index, trap)) = trap {
                return Some((done + index, trap));
            }
            done += requests.len();
        }
        None
    }

    /// As [`Mmu::retry`]; then accesses this line of the page.
    ///
    /// # Errors
    /// It would trap again; then nothing changes.
    pub fn retry_line(&mut self, request: Request, line: u32) -> Result<(), Trap> {
        if self.walks_again() {
            return self.access_again(request, Some(line));
        }
        if self.mappings.has_changed_pages() {
            self.make_superpages();
        }
        let (first_levels, mappings, space) = self.here();
        for first_level in first_levels {
            first_level.retry_line(mappings, space, request, line)?;
        }
        self.shot = None;
        Ok(())
    }

    /// Why a machine with `memory` bytes cannot run a stream with lines, if it cannot.
    pub fn refuses_lines(machine: &Machine, memory: u64) -> Option<String> {
        let bytes = machine.memory.line_bytes;
        let most = if machine.shadow.is_some() { SHADOW_LINES } else { PROGRAM_LINES }.saturating_mul(bytes);
        if machine.line_cache.is_empty() {
            Some("it has no line caches ([[line-cache]] in its file)".into())
        } else if machine.shadow.is_some() && bytes < 64 {
            Some(format!("with shadow superpages its lines have at least 64 bytes, not {bytes}"))
        } else if machine.has_managed_host() {
            Some(
                "its host has a policy, and puts the guest's lines where that says: leave out --lines or --host-policy"
                    .into(),
            )
        } else if memory > most {
            Some(format!("with lines it can have at most {} GB of memory: give less with --memory", most >> 30))
        } else {
            None
        }
    }

    /// Fills the TLBs for a request that trapped, without counting it. On a machine with a hash
    /// table of groups the retry is an access like any other, and counted: it misses again, and
    /// software puts the page into the table.
    ///
    /// # Errors
    /// It would trap again; then nothing changes.
    pub fn retry(&mut self, request: Request) -> Result<(), Trap> {
        if self.walks_again() {
            return self.access_again(request, None);
        }
        let (first_levels, mappings, space) = self.here();
        for first_level in first_levels {
            first_level.retry(mappings, space, request)?;
        }
        (self.shot, self.host.shot) = (None, false);
        Ok(())
    }

    fn count_work(&mut self, work: Work) {
        self.counters.pte_writes += work.writes;
        self.counters.pte_traversals += work.traversals;
    }

    /// The base pages of a page.
    fn pages(&self, at: Vpn, size: PageSize) -> Range<u64> {
        at.0..at.0 + (size.bytes() >> self.mappings.ladder().base().shift())
    }

    fn count_shootdown(&mut self, space: u32, at: Vpn, size: PageSize) {
        let pages = self.pages(at, size);
        for first_level in self.first_levels.get_mut() {
            first_level.forget();
            first_level.further.iter_mut().for_each(|further| further.forget_ranges(space, &pages));
        }
        self.shoot(space, pages);
    }

    /// The change of mapping a page where nothing is mapped.
    fn entering(&self, space: u32, at: Vpn, to: Mapped) -> Change {
        Change { frames: Some(self.pages(Vpn(to.frame.0), to.size)), ..self.change(space, at, to.size) }
    }

    /// A change of the mapping of this page of this size.
    fn change(&self, space: u32, at: Vpn, size: PageSize) -> Change {
        Change { space, pages: self.pages(at, size), frames: None }
    }

    /// Call it before the mappings of a change are changed.
    fn begin(&mut self, change: &Change) {
        if self.mappings.shadows() {
            let effects = self.mappings.split_before(change, self.first_levels.get_mut());
            self.count_effects(effects);
        }
    }

    /// Call it after the mappings are changed, which took this `work` in the index.
    fn finish(&mut self, change: &Change, work: Work) {
        if self.mappings.has_notifiers() {
            let effects = self.mappings.after(change, work, self.first_levels.get_mut());
            self.count_effects(effects);
        } else {
            self.count_work(work);
        }
    }

    #[cold]
    fn make_superpages(&mut self) {
        let effects = self.mappings.make_superpages(self.first_levels.get_mut());
        self.count_effects(effects);
    }

    #[inline(never)]
    fn count_effects(&mut self, Effects { work, shot }: Effects) {
        self.count_work(work);
        if !shot.is_empty() {
            self.first_levels.get_mut().iter_mut().for_each(FirstLevel::forget);
        }
        shot.into_iter().for_each(|SpacePages { space, pages }| self.shoot(space, pages));
    }

    /// Drops these pages from the TLBs, unless the last shootdown dropped them and nothing was
    /// translated since.
    pub(crate) fn shoot(&mut self, space: u32, pages: Range<u64>) {
        self.catch_up();
        let covers =
            |shot: &SpacePages| shot.space == space && shot.pages.start <= pages.start && pages.end <= shot.pages.end;
        if !self.shot.as_ref().is_some_and(covers) {
            let pages =
                self.gathered.as_ref().filter(|gathered| covers(gathered)).map_or(pages, |all| all.pages.clone());
            self.counters.shootdowns += 1;
            self.counters.shootdowns_running += u64::from(space == self.space);
            let receivers = self.cores.change(space);
            self.counters.shootdowns_sent += u64::from(receivers > 0);
            self.counters.shootdowns_received += receivers;
            self.shot = Some(SpacePages { space, pages: pages.clone() });
            self.keep_up(space, pages);
        }
    }

    /// Maps the page at `at`, where nothing is mapped: referenced, and dirty if it is mapped for a
    /// write. Panics if something is mapped there or `at` is not aligned to the size.
    pub fn enter(&mut self, space: u32, at: Vpn, to: Mapped, access: Access) {
        let change = self.entering(space, at, to);
        self.begin(&change);
        let work = self.mappings.enter(space, at, to, access);
        self.finish(&change, work);
    }

    /// As [`Mmu::enter`], for a page that is not accessed yet: neither referenced nor dirty.
    pub fn enter_untouched(&mut self, space: u32, at: Vpn, to: Mapped) {
        let change = self.entering(space, at, to);
        self.begin(&change);
        let work = self.mappings.enter(space, at, to, Access::Read);
        self.mappings.never_used(MappingId { space, at, size: to.size });
        self.finish(&change, work);
    }

    /// Removes the mapping of `size` at `at` and returns its use bits. Panics if there is no such
    /// mapping, as all operations on a mapping do.
    pub fn remove(&mut self, space: u32, at: Vpn, size: PageSize) -> Used {
        self.catch_up();
        let change = self.change(space, at, size);
        self.begin(&change);
        let (pte, work) = self.mappings.remove(MappingId { space, at, size }, self.first_levels.get_mut());
        self.count_shootdown(space, at, size);
        self.finish(&change, work);
        pte.used()
    }

    /// Changes the rights of a mapping.
    pub fn protect(&mut self, space: u32, at: Vpn, size: PageSize, protection: Protection) {
        self.catch_up();
        let change = self.change(space, at, size);
        self.begin(&change);
        let work = self.mappings.protect(MappingId { space, at, size }, protection, self.first_levels.get_mut());
        self.count_shootdown(space, at, size);
        self.finish(&change, work);
    }

    /// Replaces all mappings of `from` in a region, which have contiguous frames and equal rights,
    /// by one mapping of `to`. Reads all their page-table entries, as real kernels do to gather the
    /// use bits.
    pub fn promote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        self.catch_up();
        let change = self.change(space, at, to);
        self.begin(&change);
        let work = self.mappings.promote(MappingId { space, at, size: from }, to, self.first_levels.get_mut());
        self.count_shootdown(space, at, to);
        self.finish(&change, work);
    }

    /// Replaces one mapping of `from` by mappings of `to`, each with its rights and use bits.
    pub fn demote(&mut self, space: u32, at: Vpn, from: PageSize, to: PageSize) {
        self.catch_up();
        let change = self.change(space, at, from);
        self.begin(&change);
        let work = self.mappings.demote(MappingId { space, at, size: from }, to, self.first_levels.get_mut());
        self.count_shootdown(space, at, from);
        self.finish(&change, work);
    }

    /// The frame of the base page `at`, and the size and rights of its mapping.
    pub fn lookup(&self, space: u32, at: Vpn) -> Option<Mapped> {
        self.mappings.lookup(space, at)
    }

    /// All mappings in no order: address space, first base page, and its frame, size and rights.
    /// Cost: O(page-table entries).
    pub fn mappings(&self) -> impl Iterator<Item = (u32, Vpn, Mapped)> + '_ {
        self.mappings.all()
    }

    /// The use bits of a mapping, since they were last cleared.
    pub fn used(&self, space: u32, at: Vpn, size: PageSize) -> Used {
        self.mappings.used(MappingId { space, at, size }).used()
    }

    /// Clears the reference bit of a mapping and returns whether it was set; the next access sets
    /// it again. If it was, the page is dropped from the TLBs, unless the machine says otherwise
    /// ([`PageTable::flush_referenced`](crate::machine::PageTable::flush_referenced)).
    pub fn clear_referenced(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        self.clear(MappingId { space, at, size }, Pte::without_referenced, self.flushes_referenced).referenced
    }

    /// Clears the dirty bit of a mapping and returns whether it was set. If it was, the page is
    /// dropped from the TLBs.
    pub fn clear_modified(&mut self, space: u32, at: Vpn, size: PageSize) -> bool {
        self.clear(MappingId { space, at, size }, Pte::without_dirty, true).modified
    }

    fn clear(&mut self, mapping: MappingId, change: fn(Pte) -> Pte, flush: bool) -> Used {
        self.catch_up();
        let MappingId { space, at, size } = mapping;
        let (before, work) = if flush {
            self.mappings.clear(mapping, change, self.first_levels.get_mut())
        } else {
            self.mappings.clear(mapping, change, &mut NoCaches)
        };
        if work != Work::default() {
            if flush {
                self.count_shootdown(space, at, size);
            } else {
                // Recent requests are served without a look at their mappings.
                self.first_levels.get_mut().iter_mut().for_each(FirstLevel::forget);
            }
            let writes = self.mappings.writes_of_bits(space, &self.pages(at, size), work.writes);
            self.count_work(Work { writes, ..work });
        }
        before.used()
    }

    /// Splits all shadow superpages of a space whose mappings will all be removed, so that each
    /// base page is flushed from the caches once.
    pub fn uncover_all(&mut self, space: u32) {
        let effects = self.mappings.uncover_all(space, self.first_levels.get_mut());
        self.count_effects(effects);
    }

    /// Flushes a space whose mappings will all be removed without being used first: one shootdown
    /// for all.
    pub fn flush(&mut self, space: u32) {
        // A program that ends, or is replaced by another, has no other thread then.
        self.cores.leave_alone(space);
        self.gather(space, 0..u64::MAX);
    }

    /// As [`Mmu::flush`], for pages of a space whose mappings will change.
    pub fn gather(&mut self, space: u32, pages: Range<u64>) {
        if self.mappings.has_root(space) {
            self.shoot(space, pages);
        }
    }

    /// Announces all changes of these pages of a space together, until [`Mmu::end_gather`], if
    /// there are any.
    pub fn begin_gather(&mut self, space: u32, pages: Range<u64>) {
        self.gathered = Some(SpacePages { space, pages });
    }

    /// Ends what [`Mmu::begin_gather`] began.
    pub fn end_gather(&mut self) {
        // Not all of these pages were changed.
        (self.gathered, self.shot) = (None, None);
    }

    /// Frees the tables of a space, whose number may be reused.
    pub fn destroy(&mut self, space: u32) {
        self.catch_up();
        for first_level in self.first_levels.get_mut() {
            first_level.forget();
            first_level.further.iter_mut().for_each(|further| further.forget_ranges(space, &(0..u64::MAX)));
        }
        self.mappings.destroy(space, self.first_levels.get_mut());
        self.end_on_cores(space);
        self.end_contexts(space);
    }

    /// Checks tables, TLBs and walkers, each by itself and against each other. Cost: O(everything).
    ///
    /// # Errors
    /// A sentence that says what does not hold.
    pub fn validate(&self) -> Result<(), String> {
        self.mappings.validate()?;
        self.served().iter().try_for_each(|first_level| first_level.validate(&self.mappings))
    }
}
