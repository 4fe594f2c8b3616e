//! Pages that windows of a sampled stream used and that may have stayed in the TLBs since.

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;
use superpage_mmu::{Request, UsedBefore};
use superpage_pages::Access;
use superpage_trace::ProcessId;

/// The pages that the last windows of a sampled stream used, all of them. Those that the gap after
/// them used too may have been used so often that they never left the TLBs, like a stack
/// ([`superpage_mmu::Mmu::recall`]).
#[derive(Default)]
pub(super) struct Recent {
    used: HashMap<(ProcessId, u64), Used, FxBuildHasher>,
    /// Those that earlier windows used, and then one did not.
    left: HashSet<(ProcessId, u64), FxBuildHasher>,
    /// The number of the last window.
    windows: u64,
    /// How many are as long as the time from one to the next.
    enough: u64,
    /// Whether the gap is over, and the next window begins.
    over: bool,
}

/// How windows used a page.
struct Used {
    /// The first and the last of them, by number.
    windows: [u64; 2],
    /// Whether the last one wrote to it.
    written: bool,
}

impl Recent {
    /// `enough` windows are as long as the time from one to the next.
    pub(super) fn new(enough: u64) -> Recent {
        Recent { enough, ..Recent::default() }
    }

    /// The gap is over, and the next window begins.
    pub(super) fn end_gap(&mut self) {
        self.over = true;
    }

    /// Adds the pages of these requests, which a window makes.
    pub(super) fn add(&mut self, process: ProcessId, requests: &[Request]) {
        if std::mem::take(&mut self.over) {
            let last = self.windows;
            let left = self.used.extract_if(|_, used| used.windows[1] != last);
            self.left.extend(left.map(|(page, _)| page));
            self.windows += 1;
        }
        for request in requests {
            let used = self.used.entry((process, request.page().0));
            let used = used.or_insert(Used { windows: [self.windows; 2], written: false });
            used.written &= used.windows[1] == self.windows;
            used.written |= request.access() == Access::Write;
            used.windows[1] = self.windows;
        }
    }

    /// How this page was used, if the last window did; `index` is that of the request.
    pub(super) fn stayed(&self, page: (ProcessId, u64), index: usize) -> Option<UsedBefore> {
        let Used { windows: [first, last], written } = *self.used.get(&page)?;
        let always = last - first + 1 >= self.enough || !self.left.contains(&page);
        (last == self.windows).then_some(UsedBefore { index, written, always })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_pages::Vpn;

    /// One of a server's buffers is used for some windows, then not, and then again: it is no
    /// longer held to have stayed in between. (A Redis whose buffers were had 15 % too many
    /// misses.)
    #[test]
    fn what_a_window_left_has_to_be_used_in_many_again() {
        let process = ProcessId(1);
        let request = |page| Request::new(Vpn(page), Access::Read);
        let mut recent = Recent::new(4);
        let always = |recent: &Recent, page| recent.stayed((process, page), 0).map(|stayed| stayed.always);
        let (stack, buffers) = (9, [[1, 2], [2, 3], [3, 4], [4, 5], [5, 1], [1, 2], [2, 3]]);
        for (number, pages) in buffers.into_iter().enumerate() {
            recent.add(process, &pages.map(request));
            recent.add(process, &[request(stack)]);
            assert_eq!(always(&recent, stack), Some(true), "{number}");
            assert_eq!(always(&recent, pages[0]), Some(number < 5), "{number}");
            assert_eq!(always(&recent, 6), None, "{number}");
            recent.end_gap();
        }
    }
}
