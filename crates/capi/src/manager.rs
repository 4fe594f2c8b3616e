//! A manager with its page tables: what the functions of the header do, in safe code.

use crate::border::Callbacks;
use crate::error::{Code, Problem};
use crate::tables::{Contents, Tables};
use crate::types::{Counts, Done, Kind, Mapping, SizeCounts};
use superpage_pages::{Access, Hint, Ladder, MAX_LEVELS, PageRange, PageSize, Pfn, Protection, Vpn};
use superpage_vm::{Config, Error, FaultError, FaultKind, Map, Need, Policy, SpaceId, Target, Vm};

/// The C interface as a target of policies: the manager, and files for policies that read one. It
/// has no call for TLB misses, and none that looks for zeroes in memory.
const TARGET: Target = Target {
    name: "the C interface",
    read: Some(|path| std::fs::read_to_string(path).map_err(|error| error.to_string())),
    has: &[Need::Faults, Need::Copying, Need::FaultEvents, Need::Zeroing, Need::Accesses],
    ..Target::MANAGER
};

pub(crate) struct Manager {
    vm: Vm,
    tables: Tables,
    contents: Contents,
    /// Faults by the level that maps the page then.
    faults: [u64; MAX_LEVELS],
    now: u64,
}

type Ended<T = ()> = Result<T, Problem>;

/// A list of sizes, as "4K,2M".
fn ladder(sizes: &str) -> Ended<Ladder> {
    let wrong = |error: &dyn std::fmt::Display| Problem::value(format!("sizes {sizes:?}: {error}"));
    let sizes: Result<Vec<PageSize>, _> = sizes.split(',').map(str::parse).collect();
    let ladder = Ladder::new(&sizes.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    let base = ladder.base();
    if base.bytes() < 4096 { Err(wrong(&format!("the base page of {base} is smaller than 4K"))) } else { Ok(ladder) }
}

fn access(access: u32) -> Ended<Access> {
    [Access::Read, Access::Write, Access::Execute]
        .into_iter()
        .find(|kind| 1 << *kind as u32 == access)
        .ok_or_else(|| Problem::value(format!("access {access}: expected 1, 2 or 4, to read, write or execute")))
}

fn rights(bits: u32) -> Ended<Protection> {
    if bits > 7 {
        return Err(Problem::value(format!("rights {bits}: expected a sum of 1, 2 and 4, to read, write and execute")));
    }
    Ok(Protection::from_bits(bits as u8))
}

fn kind(kind: FaultKind) -> Kind {
    match kind {
        FaultKind::Zero => Kind::Zero,
        FaultKind::ZeroPage => Kind::ZeroPage,
        FaultKind::Resident => Kind::Resident,
        FaultKind::Copy => Kind::Copy,
        FaultKind::Rights => Kind::Rights,
        FaultKind::Spurious => Kind::Spurious,
        FaultKind::File | FaultKind::Swap | FaultKind::Cached => Kind::Other,
    }
}

impl Manager {
    /// `hardware`: the page sizes; `None`: those of x86-64.
    pub(crate) fn new(memory: u64, hardware: Option<&str>, policy: &str, calls: Callbacks) -> Ended<Manager> {
        let hardware = hardware.map_or(Ok(Ladder::X86_64), ladder)?;
        Manager::with(memory, hardware, Policy::parse(policy, &TARGET).map_err(Problem::value)?, calls)
    }

    pub(crate) fn with(memory: u64, hardware: Ladder, policy: Policy, calls: Callbacks) -> Ended<Manager> {
        let ladder = policy.ladder(&hardware, &hardware).map_err(Problem::value)?;
        let (base, frames) = (ladder.base(), memory >> ladder.base().shift());
        let mut vm = Vm::new(Config { ladder, frames, policy, swap_pages: 0 }).map_err(Problem::value)?;
        vm.make_pool().map_err(Problem::value)?;
        vm.started(None);
        let (tables, contents) = (Tables::new(hardware, calls), Contents { calls, base });
        Ok(Manager { vm, tables, contents, faults: [0; MAX_LEVELS], now: 0 })
    }

    pub(crate) fn create(&mut self) -> u32 {
        self.vm.create_space().0
    }

    pub(crate) fn fork(&mut self, parent: u32) -> Ended<u32> {
        Ok(self.vm.fork(&mut self.tables, SpaceId(parent))?.0)
    }

    pub(crate) fn exit(&mut self, space: u32) -> Ended {
        Ok(self.vm.exit(&mut self.tables, SpaceId(space))?)
    }

    fn shift(&self) -> u32 {
        self.vm.ladder().base().shift()
    }

    fn page(&self, address: u64) -> Vpn {
        Vpn(address >> self.shift())
    }

    fn range(&self, (address, bytes): (u64, u64)) -> Ended<PageRange> {
        let base = self.vm.ladder().base();
        if (address | bytes) & (base.bytes() - 1) != 0 {
            let message = format!("a range of {bytes} bytes at {address:#x} is not of whole pages of {base}");
            return Err(Problem::value(message));
        }
        Ok(self.page(address).pages(bytes >> self.shift()))
    }

    pub(crate) fn map(&mut self, space: u32, range: (u64, u64), with: u32) -> Ended {
        let range = self.range(range)?;
        let map = Map::anonymous(range.start, range.pages).protection(rights(with)?);
        self.vm.map(&mut self.tables, SpaceId(space), map)?;
        self.daemon();
        Ok(())
    }

    pub(crate) fn unmap(&mut self, space: u32, range: (u64, u64)) -> Ended {
        let range = self.range(range)?;
        Ok(self.vm.unmap(&mut self.tables, SpaceId(space), range)?)
    }

    pub(crate) fn protect(&mut self, space: u32, range: (u64, u64), to: u32) -> Ended {
        let range = self.range(range)?;
        Ok(self.vm.protect(&mut self.tables, SpaceId(space), range, rights(to)?)?)
    }

    pub(crate) fn advise(&mut self, space: u32, range: (u64, u64), hint: u32) -> Ended {
        let range = self.range(range)?;
        let known = Hint::from_number(hint.into()).filter(|hint| *hint != Hint::Stack);
        let hint = known.ok_or_else(|| Problem::value(format!("hint {hint}: expected 0, 1 or 2")))?;
        Ok(self.vm.advise(&mut self.tables, SpaceId(space), range, hint)?)
    }

    pub(crate) fn discard(&mut self, space: u32, range: (u64, u64)) -> Ended {
        let range = self.range(range)?;
        Ok(self.vm.discard(&mut self.tables, SpaceId(space), range)?)
    }

    fn daemon(&mut self) {
        if self.vm.daemon_wanted() {
            self.vm.run_daemon(&mut self.tables, &mut self.contents);
        }
    }

    pub(crate) fn translate(&self, space: u32, address: u64) -> Ended<Mapping> {
        let (space, at) = (SpaceId(space), self.page(address));
        if !self.vm.has_space(space) {
            return Err(Error::NoSpace(space).into());
        }
        let unmapped =
            || Problem::new(Code::Unmapped, format!("no page maps address {address:#x} of space {}", space.0));
        self.tables.mapping(space, at).ok_or_else(unmapped)
    }

    /// Resolves a fault. What maps the page is not said yet.
    fn resolve(&mut self, space: u32, address: u64, access: Access) -> Ended<Done> {
        let at = SpaceId(space).page(self.page(address));
        let done = loop {
            match self.vm.fault(&mut self.tables, &mut self.contents, at, access) {
                Ok(done) => break done,
                Err(FaultError::OutOfMemory(_)) if self.vm.run_daemon(&mut self.tables, &mut self.contents) => {}
                Err(error) => return Err(error.into()),
            }
        };
        self.faults[done.mapped.index()] += 1;
        let (zeroed, copied, mapping) = (done.zeroed, done.copied, Mapping::default());
        Ok(Done { kind: kind(done.kind) as u32, reserved: done.reserved.into(), zeroed, copied, mapping })
    }

    /// What a fault did. The page daemon runs first: it may demote the page, or even evict it.
    fn done(&mut self, space: u32, address: u64, done: Done) -> Done {
        self.daemon();
        Done { mapping: self.tables.mapping(SpaceId(space), self.page(address)).unwrap_or_default(), ..done }
    }

    pub(crate) fn fault(&mut self, space: u32, address: u64, with: u32) -> Ended<Done> {
        let done = self.resolve(space, address, access(with)?)?;
        Ok(self.done(space, address, done))
    }

    pub(crate) fn access(&mut self, space: u32, address: u64, with: u32) -> Ended<Done> {
        let (at, kind) = (self.page(address), access(with)?);
        let hit = self.tables.soft.access(SpaceId(space), at, kind);
        if hit {
            return Ok(Done { kind: Kind::Hit as u32, mapping: self.translate(space, address)?, ..Done::default() });
        }
        let done = self.resolve(space, address, kind)?;
        self.tables.soft.access(SpaceId(space), at, kind);
        Ok(self.done(space, address, done))
    }

    /// When to be called next; `u64::MAX`: not before another operation.
    pub(crate) fn tick(&mut self, now: u64, spent: u64) -> Ended<u64> {
        if now < self.now {
            return Err(Problem::value(format!("time goes back from {} to {now}", self.now)));
        }
        self.now = now;
        Ok(self.vm.advance(&mut self.tables, &mut self.contents, now, spent).unwrap_or(u64::MAX))
    }

    /// Whether the policy's background can go on.
    pub(crate) fn goes_on(&mut self) -> Ended {
        self.vm.background_failed().map_or(Ok(()), |why| Err(Problem::new(Code::Refused, why)))
    }

    pub(crate) fn wire(&mut self) -> Ended<u64> {
        let frame = match self.vm.wire_page() {
            Err(_) if self.vm.run_daemon(&mut self.tables, &mut self.contents) => self.vm.wire_page(),
            taken => taken,
        };
        Ok(frame?.0 << self.shift())
    }

    pub(crate) fn unwire(&mut self, physical: u64) -> Ended {
        let PageRange { start: Vpn(frame), .. } = self.range((physical, 0))?;
        Ok(self.vm.unwire_page(Pfn(frame))?)
    }

    pub(crate) fn validate(&self) -> Ended {
        self.vm.validate(&self.tables).map_err(|why| Problem::new(Code::Defect, why))
    }

    pub(crate) fn counts(&self) -> Counts {
        let (stats, ladder) = (self.vm.stats(), self.vm.ladder());
        let bytes = |pages: u64| pages << self.shift();
        let mut size = [SizeCounts::default(); MAX_LEVELS];
        for level in ladder.levels() {
            let at = level.index();
            size[at] = SizeCounts {
                bytes: ladder.size(level).bytes(),
                mapped: stats.mapped[at],
                faults: self.faults[at],
                promotions: stats.promotions[at],
                demotions: stats.demotions[at],
                allocations: stats.allocations[at],
            };
        }
        Counts {
            faults: stats.faults,
            faults_zero: stats.faults_zero,
            faults_zero_page: stats.faults_zero_page,
            faults_resident: stats.faults_resident,
            faults_copy: stats.faults_copy,
            faults_rights: stats.faults_rights,
            faults_out_of_memory: stats.faults_out_of_memory,
            promotions_at_fault: stats.promotions_at_fault,
            promotions_by_copying: stats.promotions_by_copying,
            reservations_made: stats.reservations_made,
            reservations_preempted: stats.reservations_preempted,
            reserved_found: stats.reserved_found,
            evictions: stats.evictions,
            bytes_zeroed: stats.bytes_zeroed,
            bytes_copied: stats.bytes_copied,
            resident_bytes: bytes(stats.resident_pages),
            peak_resident_bytes: bytes(stats.peak_resident_pages),
            free_bytes: bytes(self.vm.buddy().free_frames()),
            sizes: ladder.len() as u64,
            size,
        }
    }

    /// Puts empty page tables in the place of what is mapped.
    #[cfg(test)]
    pub(crate) fn lose_tables(&mut self) {
        self.tables = Tables::new(*self.vm.ladder(), self.contents.calls);
    }
}
