//! The machines of a simulation, and the kernel's interface to them, implemented on modelled page
//! tables and TLBs.

mod causes;
mod member;

pub(crate) use causes::{Cause, Doing, Sent};
pub(crate) use member::Member;

use crate::Setup;
use crate::estimate::Translated;
use crate::observe::{Seen, Unseen};
use crate::stream::{Role, Window};
use std::ops::Range;
use superpage_mmu::Mmu;
use superpage_pages::{Access, PageSize, Protection, Vpn};
use superpage_trace::Sampling;
use superpage_vm::{Contiguity, Mapped, Pmap, SpaceId, Used};

/// The hardware of a simulation: one of page tables and TLBs for all machines on which the kernel
/// does the same, as [`Pmap`]; one call there is one call here.
pub(crate) struct Hardware {
    pub(crate) mmu: Mmu,
    pub(crate) members: Vec<Member>,
    /// Whether what one change of mappings removes is shot down together, as for the changes of a
    /// policy's background.
    pub(crate) gathers: bool,
    /// Whether all that one call changes is shot down together, as Linux does. The rows of streams
    /// without cores have a shootdown for each page.
    pub(crate) batches: bool,
    /// What the kernel does now.
    pub(crate) doing: Doing,
    /// For what shootdowns were sent.
    pub(crate) sent: Sent,
    /// For what mappings are changed together now, and how many shootdowns were sent before.
    gathering: Option<(Cause, u64)>,
    /// Of each core, whether its TLBs have been brought back to where a window begins
    /// ([`Mmu::recall`]), and how many windows have begun so.
    begun: Vec<(bool, u64)>,
    core: usize,
    /// What an observer has not seen yet.
    pub(crate) unseen: Unseen,
}

impl Hardware {
    pub(crate) fn new(mmu: Mmu, members: Vec<Member>) -> Hardware {
        let ((doing, sent), (gathers, batches)) = Default::default();
        let unseen = Unseen::new(members[0].setup.observed.is_some());
        let begun = vec![(false, 0)];
        Hardware { mmu, members, gathers, batches, doing, sent, gathering: None, begun, core: 0, unseen }
    }

    /// What follows happens on this core.
    pub(crate) fn go_to(&mut self, core: usize, sibling: usize) {
        self.mmu.go_to(core, sibling);
        self.begun.resize(self.begun.len().max(core + 1), (false, 0));
        self.core = core;
    }

    /// The address of a page.
    pub(crate) fn address(&self, page: Vpn) -> u64 {
        page.0 << self.setup().ladder.base().shift()
    }

    /// The setup of the first machine, for all that is the same on the others.
    pub(crate) fn setup(&self) -> &Setup {
        &self.members[0].setup
    }

    /// Makes a change; shootdowns that it sends are for this, unless they are of a gathered one.
    fn change<T>(&mut self, cause: Cause, change: impl FnOnce(&mut Mmu) -> T) -> T {
        let before = self.mmu.shootdowns_sent();
        let changed = change(&mut self.mmu);
        if self.gathering.is_none() {
            self.sent.add(cause, self.mmu.shootdowns_sent() - before);
        }
        changed
    }

    /// For what a mapping is changed, unless it is a promotion or demotion.
    fn cause(&self, space: SpaceId, at: Vpn, size: PageSize) -> Cause {
        self.doing.cause(space, at, size.bytes() >> self.setup().ladder.base().shift())
    }

    /// The machine, where a policy asks for its misses or its time: then there is one.
    pub(crate) fn only(&self) -> &Member {
        debug_assert!(self.members.len() == 1, "machines with different times");
        &self.members[0]
    }

    /// A stretch of a stream begins. If it begins a window of a sampled stream, the time before it
    /// was made up for. What missed in the first level is remembered for an eighth of a period's
    /// length, at least. That was measured: longer, and programs that just fit a level have too
    /// many misses; shorter, and a Redis has.
    pub(crate) fn begin(&mut self, role: Role, sampling: Option<Sampling>) {
        let (recalled, windows) = &mut self.begun[self.core];
        match role {
            Role::Recent => *recalled = true,
            Role::Window if std::mem::take(recalled) => {
                let enough = sampling.map_or(1, Sampling::windows_in_period);
                self.mmu.note_misses(windows.is_multiple_of((enough / 8).max(1)));
                *windows += 1;
            }
            _ => {}
        }
    }

    /// What follows belongs to this window of a sampled stream, or to none, after `accesses`.
    /// `superpages` says whether any are mapped.
    pub(crate) fn turn(&mut self, window: Option<Window>, accesses: u64, superpages: bool) {
        for Member { number, setup, windows, .. } in &mut self.members {
            windows.turn(window, &Translated::new(&setup.machine, &self.mmu, *number), accesses, superpages);
        }
    }
}

impl Pmap for Hardware {
    fn enter(&mut self, space: SpaceId, at: Vpn, to: Mapped, access: Access) {
        if self.unseen.wanted && to.size != self.setup().ladder.base() {
            let address = self.address(at);
            self.unseen.push(space, || Seen::Promoted { address, size: to.size, in_place: false });
        }
        self.change(self.cause(space, at, to.size), |mmu| mmu.enter(space.0, at, to, access));
    }

    fn enter_untouched(&mut self, space: SpaceId, at: Vpn, to: Mapped) {
        self.change(self.cause(space, at, to.size), |mmu| mmu.enter_untouched(space.0, at, to));
    }

    fn remove(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.change(self.cause(space, at, size), |mmu| mmu.remove(space.0, at, size))
    }

    fn protect(&mut self, space: SpaceId, at: Vpn, size: PageSize, protection: Protection) {
        self.change(self.cause(space, at, size), |mmu| mmu.protect(space.0, at, size, protection));
    }

    fn promote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let address = self.address(at);
        self.unseen.push(space, || Seen::Promoted { address, size: to, in_place: true });
        self.change(Cause::Promotion, |mmu| mmu.promote(space.0, at, from, to));
    }

    fn demote(&mut self, space: SpaceId, at: Vpn, from: PageSize, to: PageSize) {
        let address = self.address(at);
        self.unseen.push(space, || Seen::Demoted { address, size: from, to });
        self.change(Cause::Demotion, |mmu| mmu.demote(space.0, at, from, to));
    }

    fn contiguity(&self, size: PageSize) -> Contiguity {
        if self.setup().machine.pages.sizes.contains(&size) { Contiguity::Whole } else { Contiguity::Parts }
    }

    fn lookup(&self, space: SpaceId, at: Vpn) -> Option<Mapped> {
        self.mmu.lookup(space.0, at)
    }

    fn used(&self, space: SpaceId, at: Vpn, size: PageSize) -> Used {
        self.mmu.used(space.0, at, size)
    }

    fn clear_referenced(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.change(self.cause(space, at, size), |mmu| mmu.clear_referenced(space.0, at, size))
    }

    fn clear_modified(&mut self, space: SpaceId, at: Vpn, size: PageSize) -> bool {
        self.change(self.cause(space, at, size), |mmu| mmu.clear_modified(space.0, at, size))
    }

    fn begin_gather(&mut self, space: SpaceId, pages: Range<Vpn>) {
        if self.batches {
            self.gathering = Some((self.doing.of_gathered(), self.mmu.shootdowns_sent()));
        }
        if self.gathers {
            self.mmu.gather(space.0, pages.start.0..pages.end.0);
        } else if self.batches {
            self.mmu.begin_gather(space.0, pages.start.0..pages.end.0);
        }
    }

    fn gathers_to_promote(&mut self) {
        self.gathering.iter_mut().for_each(|(cause, _)| *cause = Cause::Promotion);
    }

    fn flush_gathered(&mut self, _: SpaceId) {
        if let Some((cause, before)) = self.gathering.take() {
            self.sent.add(cause, self.mmu.shootdowns_sent() - before);
        }
        if self.batches {
            self.mmu.end_gather();
        }
    }

    fn flush(&mut self, space: SpaceId) {
        self.mmu.flush(space.0);
        self.mmu.uncover_all(space.0);
    }

    fn destroy(&mut self, space: SpaceId) {
        self.mmu.destroy(space.0);
    }
}
