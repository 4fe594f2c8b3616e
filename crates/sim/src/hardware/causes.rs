//! For what shootdowns are sent to other cores.

use std::ops::Index;
use superpage_pages::Vpn;
use superpage_vm::SpaceId;

/// For what a shootdown is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Unmap,
    Protect,
    CopyOnWrite,
    Promotion,
    Demotion,
    Migration,
}

/// What the kernel does when it changes mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Doing {
    /// What a program's call asked for.
    Call(Cause),
    /// It handles a fault of this page.
    Fault(SpaceId, Vpn),
    /// Work of its own: the page daemon, or the background of the policy.
    #[default]
    Own,
}

impl Doing {
    /// For what a mapping of these many base pages is changed.
    pub(super) fn cause(self, space: SpaceId, at: Vpn, pages: u64) -> Cause {
        match self {
            Doing::Call(cause) => cause,
            Doing::Fault(of, page) if of == space && page.0.wrapping_sub(at.0) < pages => Cause::CopyOnWrite,
            Doing::Fault(..) | Doing::Own => Cause::Migration,
        }
    }

    /// For what several mappings are changed together, unless it is a promotion.
    pub(super) fn of_gathered(self) -> Cause {
        if let Doing::Call(cause) = self { cause } else { Cause::Migration }
    }
}

/// Shootdowns sent, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent([u64; 6]);

impl Sent {
    pub(super) fn add(&mut self, cause: Cause, sent: u64) {
        self.0[cause as usize] += sent;
    }
}

impl Index<Cause> for Sent {
    type Output = u64;

    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}
