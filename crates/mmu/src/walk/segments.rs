//! Segments: the upper bits of an address select a virtual segment identifier (VSID), which names
//! the same page in all address spaces that have it. Dougan, Mackerras and Yodaiken, OSDI 1999,
//! sections 3, 5.2 and 7.
//!
//! An address space has a context number, from which its VSIDs follow: number x scatter, modulo
//! 2^20, and four bits for the segment, as in Linux/PPC. With a new context number all that was
//! known of the space is out of date at once: the entries with its old VSIDs, in the hash table,
//! match nothing any more; they are zombies. Programs recorded on machines with wider addresses
//! have segments beyond 16: they are numbered in the order of their first use, and more than eight
//! take another context number. Context numbers are counted, or are process numbers: then a process
//! keeps its number as long as it lives.

/// The bits of a page index: a segment has 256 MB.
const INDEX_BITS: u32 = 16;
/// Context numbers are below this, and 0 is the kernel's.
pub(crate) const CONTEXTS: u32 = 1 << 20;
/// The segments of a program that one context number serves; the others are the kernel's.
const OF_CONTEXT: usize = 8;
/// Numbers of processes are below this in Linux.
const PROCESSES: u32 = 1 << 15;

/// The page under its VSID: `vsid << 16 | index`.
pub(crate) type VirtualPage = u64;

/// The segment of a page.
fn segment_of(page: u64) -> u64 {
    page >> INDEX_BITS
}

/// The VSID of a segment of a context.
fn vsid(context: u32, segment: usize) -> u64 {
    (u64::from(context) << 4) + segment as u64
}

/// The page with the index of `page` under this VSID.
fn under(vsid: u64, page: u64) -> VirtualPage {
    (vsid << INDEX_BITS) + page % (1 << INDEX_BITS)
}

/// The context of a page's VSID.
pub(crate) fn context_of(page: VirtualPage) -> usize {
    (page >> (INDEX_BITS + 4)) as usize
}

/// The page under a VSID that no space has, of the first context that is never given. It is in the
/// groups of the pages of context 0.
pub(crate) fn nobodys(page: u64) -> VirtualPage {
    under(vsid(CONTEXTS, segment_of(page) as usize % OF_CONTEXT), page)
}

/// The segments of all spaces.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    scatter: u32,
    /// The space of the kernel, whose VSIDs never change.
    kernel: Option<u32>,
    /// Whether context numbers are process numbers, and the process number of each space.
    by_process: bool,
    processes: Vec<u32>,
    /// By space: the numbers of its segments, in the order of their first use, and the contexts
    /// that serve them, eight by each.
    spaces: Vec<(Vec<u64>, Vec<u32>)>,
    /// The contexts, by scattered number, that a space has.
    live: Vec<bool>,
    /// The last context number that was given.
    last: u32,
}

impl Segments {
    pub(crate) fn new(scatter: u32) -> Segments {
        Segments {
            scatter,
            kernel: None,
            by_process: false,
            processes: Vec::new(),
            spaces: Vec::new(),
            live: vec![false; CONTEXTS as usize],
            last: 0,
        }
    }

    /// Sets how context numbers are scattered, the space of the kernel, and whether context numbers
    /// are process numbers. Call it before any page is looked up.
    pub(crate) fn set(&mut self, scatter: u32, kernel: Option<u32>, by_process: bool) {
        *self = Segments { kernel, by_process, ..Segments::new(scatter) };
    }

    /// Sets the process number of a space; by default it is the number of the space.
    pub(crate) fn set_process(&mut self, space: u32, process: u32) {
        let known = self.processes.len() as u32;
        self.processes.extend(known..known.max(space + 1));
        self.processes[space as usize] = process;
    }

    /// A context that no space has, for the next eight segments of a space that has `held`; `None`
    /// where numbers have run out.
    fn next_context(&mut self, space: u32, held: usize) -> Option<u32> {
        // With an even constant they repeat sooner.
        let numbers = CONTEXTS >> self.scatter.trailing_zeros();
        let scattered = |number: u32| number.wrapping_mul(self.scatter) % CONTEXTS;
        if self.by_process {
            let process = self.processes.get(space as usize).copied().unwrap_or(space);
            let first = process % (PROCESSES - 1) + 1 + PROCESSES * held as u32;
            let free = |context: &u32| *context != 0 && !self.live[*context as usize];
            return (first..first + numbers).map(scattered).find(free);
        }
        if self.last + 1 == numbers {
            return None;
        }
        self.last += 1;
        Some(scattered(self.last))
    }

    /// The page under its VSID; `None` if numbers have run out, so that [`Segments::begin_again`]
    /// must be called.
    pub(crate) fn page(&mut self, space: u32, page: u64) -> Option<VirtualPage> {
        if let Some(known) = self.known(space, page) {
            return Some(known);
        }
        if self.spaces.len() <= space as usize {
            self.spaces.resize(space as usize + 1, Default::default());
        }
        let (segments, contexts) = &self.spaces[space as usize];
        let (number, held) = (segments.len(), contexts.len());
        // Numbers of segments have no gaps, so that at most one context is missing.
        if held <= number / OF_CONTEXT {
            let context = self.next_context(space, held)?;
            self.spaces[space as usize].1.push(context);
            self.live[context as usize] = true;
        }
        self.spaces[space as usize].0.push(segment_of(page));
        self.known(space, page)
    }

    /// The contexts that a space has.
    pub(crate) fn contexts_of(&self, space: u32) -> &[u32] {
        self.spaces.get(space as usize).map_or(&[], |(_, contexts)| contexts)
    }

    /// The page under its VSID, if its segment has one.
    pub(crate) fn known(&self, space: u32, page: u64) -> Option<VirtualPage> {
        let segment = segment_of(page);
        if self.kernel == Some(space) {
            return Some(under(segment & 0xf, page));
        }
        let (segments, contexts) = self.spaces.get(space as usize)?;
        let number = segments.iter().position(|other| *other == segment)?;
        let context = contexts.get(number / OF_CONTEXT)?;
        Some(under(vsid(*context, number % OF_CONTEXT), page))
    }

    /// Whether a space has the VSID of this page.
    pub(crate) fn lives(&self, page: VirtualPage) -> bool {
        let context = context_of(page);
        self.live[context] || context == 0
    }

    /// The space gets other VSIDs when it needs some.
    pub(crate) fn renew(&mut self, space: u32) {
        if let Some((segments, contexts)) = self.spaces.get_mut(space as usize) {
            contexts.drain(..).for_each(|context| self.live[context as usize] = false);
            segments.clear();
        }
    }

    /// All numbers can be given again: no space has one. What is held of any must be dropped.
    pub(crate) fn begin_again(&mut self) {
        (0..self.spaces.len() as u32).for_each(|space| self.renew(space));
        self.last = 0;
    }

    /// Checks that no two spaces have the same context, and that those they have live.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut all: Vec<u32> = self.spaces.iter().flat_map(|(_, contexts)| contexts).copied().collect();
        let (count, live) = (all.len(), self.live.iter().filter(|live| **live).count());
        all.sort_unstable();
        all.dedup();
        if all.len() != count || live != count || all.iter().any(|context| !self.live[*context as usize]) {
            return Err(format!("{count} contexts, {} different, {live} live", all.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vsid_is_the_scattered_context_and_the_segment() {
        let mut segments = Segments::new(897);
        assert_eq!(segments.page(0, 5), Some((897 << 4) << 16 | 5));
        assert_eq!(segments.page(7, 0x1_0003), Some(((2 * 897) << 4) << 16 | 3), "its first segment");
        assert_eq!(segments.page(7, 9), Some(((2 * 897) << 4 | 1) << 16 | 9));
        assert_eq!(segments.known(7, 9), segments.page(7, 9));
        // The ninth segment of a space takes a context of its own.
        (2..8).for_each(|number| assert!(segments.page(7, number << 16).is_some()));
        assert_eq!(segments.page(7, 8 << 16), Some(((3 * 897) << 4) << 16));
        let old = segments.page(7, 9).unwrap();
        segments.renew(7);
        assert!(!segments.lives(old) && segments.known(7, 9).is_none());
        assert_eq!(segments.page(7, 9), Some(((4 * 897) << 4) << 16 | 9));
        segments.validate().unwrap();
        assert_eq!(nobodys(0x19_0003), (1 << 24 | 1) << 16 | 3);
    }

    #[test]
    fn the_context_of_a_process_is_its_number_or_the_next_that_is_free() {
        let mut segments = Segments::new(897);
        segments.set(1, None, true);
        segments.set_process(3, 40);
        assert_eq!(segments.page(3, 5), Some((41 << 4) << 16 | 5));
        segments.renew(3);
        assert_eq!(segments.page(3, 5), Some((41 << 4) << 16 | 5), "the same again");
        segments.set_process(4, 40 + PROCESSES - 1);
        assert_eq!(segments.page(4, 5), Some((42 << 4) << 16 | 5), "numbers of processes come round");
        (1..9).for_each(|number| assert!(segments.page(3, number << 16).is_some()));
        assert_eq!(segments.page(3, 8 << 16), Some((u64::from(41 + PROCESSES) << 4) << 16));
        assert_eq!(segments.page(2, 5), Some((3 << 4) << 16 | 5), "of which nothing was said");
        segments.validate().unwrap();
    }

    #[test]
    fn a_state_with_a_context_that_is_not_live_or_has_two_spaces_is_refused() {
        let mut segments = Segments::new(1);
        (0..3).for_each(|space| assert!(segments.page(space, 0).is_some()));
        let refused = |change: fn(&mut Segments)| {
            let mut broken = segments.clone();
            change(&mut broken);
            assert!(broken.validate().is_err(), "{:?}", broken.spaces);
        };
        refused(|segments| segments.live[1] = false);
        refused(|segments| segments.live[9] = true);
        refused(|segments| (segments.live[1], segments.live[9]) = (false, true));
        refused(|segments| (segments.spaces[0].1[0], segments.live[1]) = (2, false));
        // As many are live as there are contexts.
        refused(|segments| segments.spaces[0].1[0] = 2);
        segments.validate().unwrap();
    }

    #[test]
    fn an_even_constant_leaves_fewer_numbers() {
        let mut segments = Segments::new(4);
        assert_eq!(segments.page(0, 0), Some((4 << 4) << 16));
        for space in 1..(CONTEXTS >> 2) - 1 {
            assert!(segments.page(0, 0).is_some(), "{space}");
            segments.renew(0);
        }
        assert!(segments.page(0, 0).is_some());
        segments.renew(0);
        assert_eq!(segments.page(0, 0), None, "the next would be 0, the kernel's");
        // Nor is there another for processes, of which 0 is none.
        segments.set(CONTEXTS / 2, None, true);
        assert_eq!(segments.page(0, 0), Some((u64::from(CONTEXTS / 2) << 4) << 16));
        assert_eq!(segments.page(2, 0), None);
        assert_eq!(segments.contexts_of(2), []);
        assert!(segments.lives((u64::from(CONTEXTS / 2) << 4) << 16 | 3) && !segments.lives((8 << 4) << 16));
    }

    #[test]
    fn the_kernel_keeps_its_vsids_and_numbers_run_out() {
        let mut segments = Segments::new(897);
        segments.set(1, Some(1000), false);
        assert_eq!(segments.page(1000, 0xc_0001), Some(0xc << 16 | 1));
        for space in 0..CONTEXTS - 1 {
            assert!(segments.page(0, 0).is_some(), "{space}");
            segments.renew(0);
        }
        assert_eq!(segments.page(0, 0), None);
        segments.begin_again();
        assert_eq!(segments.page(0, 0), Some(1 << 20));
        assert!(segments.lives(0xc << 16));
    }
}
