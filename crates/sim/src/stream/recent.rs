//! Pages that windows of a sampled stream used and that may have stayed in the TLBs since.

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;
use superpage_mmu::{Request, UsedBefore};
use superpage_pages::Access;
use superpage_trace::ProcessId;

/// The pages that the last windows of a sampled stream used on a core, all of them. Those that the
/// gap after them used too may have been used so often that they never left the TLBs, like a stack
/// ([`superpage_mmu::Mmu::recall`]).
#[derive(Clone, Default)]
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
#[derive(Clone)]
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

    /// Requests of a window follow.
    pub(super) fn begin(&mut self) {
        if std::mem::take(&mut self.over) {
            let last = self.windows;
            let left = self.used.extract_if(|_, used| used.windows[1] != last);
            self.left.extend(left.map(|(page, _)| page));
            self.windows += 1;
        }
    }

    /// Adds the page of a request that the window makes.
    pub(super) fn add(&mut self, process: ProcessId, request: Request) {
        let used = self.used.entry((process, request.page().0));
        let used = used.or_insert(Used { windows: [self.windows; 2], written: false });
        used.written &= used.windows[1] == self.windows;
        used.written |= request.access() == Access::Write;
        used.windows[1] = self.windows;
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
            recent.begin();
            pages.into_iter().chain([stack]).for_each(|page| recent.add(process, request(page)));
            assert_eq!(always(&recent, stack), Some(true), "{number}");
            assert_eq!(always(&recent, pages[0]), Some(number < 5), "{number}");
            assert_eq!(always(&recent, 6), None, "{number}");
            recent.end_gap();
        }
    }

    /// Of two processes that take turns.
    #[test]
    fn what_the_last_window_wrote_is_known_whatever_came_between() {
        let (mut recent, mut luck) = (Recent::new(2), 1u64);
        let mut random = |below: u64| {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (luck >> 33) % below
        };
        for _ in 0..50 {
            let mut written: HashMap<(ProcessId, u64), bool> = HashMap::new();
            for _ in 0..random(8) {
                let process = ProcessId(random(2) as u32);
                recent.begin();
                for _ in 0..random(40) {
                    let page = random(6) + random(3) * 1024;
                    let access = [Access::Read, Access::Write, Access::Execute][random(3) as usize];
                    recent.add(process, Request::new(Vpn(page), access));
                    *written.entry((process, page)).or_default() |= access == Access::Write;
                }
            }
            for page in (0..2).flat_map(|process| (0..3 * 1024).map(move |page| (ProcessId(process), page))) {
                let known = recent.stayed(page, 0).map(|before| before.written);
                assert_eq!(known.filter(|_| !written.is_empty()), written.get(&page).copied(), "{page:?}");
            }
            recent.end_gap();
        }
    }
}
