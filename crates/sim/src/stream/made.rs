//! Which requests a window has made since the last event.

use superpage_mmu::Request;
use superpage_pages::{Access, Vpn};

/// Requests since the last event, those that were last in their slots. One of them touches no page
/// for the first time, and is to no page that its window did not use.
pub(super) struct Made {
    slots: Box<[Request; SLOTS]>,
    /// Whether there is any.
    any: bool,
}

const SLOTS: usize = 1024;

/// No stream makes it: page numbers are smaller.
const NONE: Request = Request::new(Vpn(u64::MAX >> 2), Access::Execute);

impl Default for Made {
    fn default() -> Made {
        Made { slots: Box::new([NONE; SLOTS]), any: false }
    }
}

/// The slot of a request: another one for neighbouring pages, and for kinds of access to a page.
#[inline(always)]
fn slot(request: Request) -> usize {
    let page = request.page().0;
    (page ^ page >> 10 ^ (request.access() as u64) << 8) as usize % SLOTS
}

impl Made {
    /// Whether it was made; `false` if others took its slot since.
    #[inline(always)]
    pub(super) fn has(&self, request: Request) -> bool {
        self.slots[slot(request)] == request
    }

    /// Adds a request.
    pub(super) fn add(&mut self, request: Request) {
        self.slots[slot(request)] = request;
        self.any = true;
    }

    /// An event: forgets all of them.
    pub(super) fn forget(&mut self) {
        if std::mem::take(&mut self.any) {
            self.slots.fill(NONE);
        }
    }
}
