//! The disk's arm: which requests transfers become, and how far it moves for each.
//!
//! Reads and writes are clustered, as FreeBSD clusters them (`vfs_cluster.c`; Navarro et al. ran
//! 4.3). A read takes the whole aligned cluster of 64 KB that its page is in; the other pages of it
//! wait in a buffer and cost a transfer when they are asked for, but no request. Pages that nobody
//! asks for cost nothing. Written pages wait until 16 are there, the most that FreeBSD's pager
//! writes at once, and are written in the order of their places.
//!
//! Swap space is at the start of the disk, and the files behind it, in the order in which they are
//! first used. A file has a piece for its length then; where it grows it gets another behind all
//! others, as long as those before it together, so that a file that grows beside others is
//! scattered at first. A cluster is read from where its first page is. A request that begins where
//! the last one in its direction ended needs no seek. All sums are the same for any disk: the time
//! of a seek is an amount for each and one that goes with the square root of the distance, so that
//! sums of both are enough.

use std::collections::{HashMap, VecDeque};
use superpage_mmu::Machine;
use superpage_vm::Backed;

/// The direction of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    In,
    Out,
}

/// Bytes of a cluster: FreeBSD's `MAXBSIZE`.
const CLUSTER: u64 = 64 << 10;
/// Pages that are written at once: FreeBSD's `vm_pageout_page_count`.
const WRITES: usize = 16;
/// Clusters whose pages wait to be asked for, the least recently read of which is forgotten:
/// assumed, as many as the segments of a drive's cache.
const BUFFERS: usize = 16;
/// Whose pages: those of a file, or of swap space.
type Owner = Option<u32>;

/// Part of a cluster that was read.
#[derive(Clone, Debug)]
struct Buffer {
    owner: Owner,
    /// The first page.
    first: u64,
    /// The pages that nobody has asked for yet, as a bit set.
    left: u64,
}

/// Adjacent pages of a file, up to where the next piece begins.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The first page, and the first behind it.
    first: u64,
    end: u64,
    /// Its first byte on the disk.
    at: u64,
}

/// The sums, and where the arm is.
#[derive(Clone, Debug, Default)]
struct Moves {
    /// Where the last request ended, in bytes, and its direction.
    at: Option<(Way, u64)>,
    /// Requests that needed a seek.
    requests: u64,
    /// Those of them for which it is not known where the arm was: the first.
    unknown: u64,
    /// The sum of the square roots of the distances of the others, in bytes.
    roots: u64,
}

#[derive(Debug)]
pub(crate) struct Arm {
    /// Bytes of a base page.
    page: u64,
    moves: Moves,
    /// The pieces of each file, and the end of them all, in bytes.
    places: HashMap<u32, Vec<Piece>>,
    end: u64,
    /// The last read in front.
    buffers: VecDeque<Buffer>,
    /// Places of pages to be written.
    writes: Vec<u64>,
}

impl Moves {
    /// A request for these bytes.
    fn go(&mut self, way: Way, start: u64, bytes: u64) {
        if self.at != Some((way, start)) {
            self.requests += 1;
            match self.at {
                Some((_, at)) => self.roots += at.abs_diff(start).isqrt(),
                None => self.unknown += 1,
            }
        }
        self.at = Some((way, start.saturating_add(bytes)));
    }
}

/// Pages of a cluster.
fn cluster(page: u64) -> u64 {
    (CLUSTER / page).max(1)
}

impl Arm {
    /// An arm over a disk whose swap space has `swap_pages` pages, of `page` bytes.
    pub(crate) fn new(page: u64, swap_pages: u64) -> Arm {
        let (places, buffers) = (HashMap::new(), VecDeque::new());
        Arm { page, moves: Moves::default(), places, end: swap_pages.saturating_mul(page), buffers, writes: Vec::new() }
    }

    /// A file has at least `pages` pages from here on.
    pub(crate) fn place(&mut self, file: u32, pages: u64) {
        let pieces = self.places.entry(file).or_default();
        let first = pieces.last().map_or(0, |last| last.end);
        if pages > first {
            // What grows is likely to grow again.
            let more = pages.max(2 * first).next_multiple_of(cluster(self.page));
            let end = if pieces.is_empty() { pages } else { more };
            pieces.push(Piece { first, end, at: self.end });
            self.end = self.end.saturating_add((end - first).saturating_mul(self.page));
        }
    }

    /// The place of a page of a file, in bytes.
    fn find(&mut self, file: u32, page: u64) -> u64 {
        self.place(file, page + 1);
        let pieces = &self.places[&file];
        let piece = pieces[pieces.partition_point(|piece| piece.end <= page)];
        piece.at.saturating_add((page - piece.first).saturating_mul(self.page))
    }

    /// A file is deleted.
    pub(crate) fn forget(&mut self, file: u32) {
        self.places.remove(&file);
        self.buffers.retain(|buffer| buffer.owner != Some(file));
    }

    pub(crate) fn transfer(&mut self, way: Way, place: Backed) {
        let (owner, page) = match place {
            Backed::File { file, page } => (Some(file), page),
            Backed::Swap { slot } => (None, slot.into()),
        };
        let pages = cluster(self.page);
        let (first, bit) = (page / pages * pages, 1 << (page % pages));
        let mut buffers = self.buffers.iter_mut();
        let buffer = buffers.find(|buffer| (buffer.owner, buffer.first) == (owner, first));
        if way == Way::Out {
            buffer.into_iter().for_each(|buffer| buffer.left &= !bit);
            let place = owner.map_or(page * self.page, |file| self.find(file, page));
            self.writes.push(place);
            if self.writes.len() == WRITES {
                self.settle();
            }
            return;
        }
        if let Some(buffer) = buffer
            && buffer.left & bit != 0
        {
            buffer.left &= !bit;
            return;
        }
        let place = owner.map_or(first * self.page, |file| self.find(file, first));
        self.moves.go(Way::In, place, pages * self.page);
        self.buffers.retain(|buffer| (buffer.owner, buffer.first) != (owner, first));
        self.buffers.truncate(BUFFERS - 1);
        self.buffers.push_front(Buffer { owner, first, left: (u64::MAX >> (64 - pages)) & !bit });
    }

    /// Writes what waits. Before that it is not in the sums, so that these never decrease.
    pub(crate) fn settle(&mut self) {
        self.writes.sort_unstable();
        for start in std::mem::take(&mut self.writes) {
            self.moves.go(Way::Out, start, self.page);
        }
    }

    /// Requests that needed a seek.
    pub(crate) fn requests(&self) -> u64 {
        self.moves.requests
    }

    /// The time of all seeks, in cycles of the machine.
    pub(crate) fn cycles(&self, machine: &Machine) -> u64 {
        let (disk, moves) = (&machine.disk, &self.moves);
        let cycles = |microseconds: u128| microseconds * u128::from(machine.clock.hertz) / 1_000_000;
        let (seek, near) = (disk.seek_microseconds, disk.near_seek_microseconds.unwrap_or(disk.seek_microseconds));
        let far = u128::from(seek - near);
        // The mean of the square root of the distance between any two places is 8/15 of that of the
        // whole disk.
        let whole = u128::from(disk.capacity_bytes.unwrap_or(1).isqrt());
        let fixed = u128::from(moves.requests) * u128::from(near) + u128::from(moves.unknown) * far;
        (cycles(fixed) + cycles(15 * far * u128::from(moves.roots)) / (8 * whole)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 8192;
    const SWAP: u64 = 1 << 17;

    fn file(file: u32, page: u64) -> Backed {
        Backed::File { file, page }
    }

    fn read(arm: &mut Arm, pages: impl IntoIterator<Item = (u32, u64)>) -> u64 {
        let before = arm.requests();
        pages.into_iter().for_each(|(of, page)| arm.transfer(Way::In, file(of, page)));
        arm.requests() - before
    }

    #[test]
    fn files_side_by_side_are_read_by_clusters() {
        let mut arm = Arm::new(PAGE, SWAP);
        (0..26).for_each(|file| arm.place(file, 256));
        assert_eq!(read(&mut arm, (0..256).map(|page| (0, page))), 1, "in order nothing is sought");
        let pages = (0..256).flat_map(|page| [(2, page), (3, page)]);
        assert_eq!(read(&mut arm, pages), 2 * 256 / 8);
        // What has been asked for is read again; what has not waits.
        assert_eq!(read(&mut arm, [(4, 11), (5, 0), (4, 8), (4, 15), (4, 11)]), 3);
        // Not for ever.
        assert_eq!(read(&mut arm, (0..16).map(|of| (10 + of, 0)).chain([(4, 9)])), 17);
    }

    #[test]
    fn writes_are_sorted_16_at_a_time() {
        let mut arm = Arm::new(PAGE, SWAP);
        arm.place(1, 1000);
        for page in (0..16).rev() {
            arm.transfer(Way::Out, file(1, page));
        }
        assert_eq!(arm.requests(), 1);
        for page in (32..64).step_by(2).chain((33..64).step_by(2)) {
            arm.transfer(Way::Out, file(1, page));
        }
        assert_eq!(arm.requests(), 1 + 32);
        arm.transfer(Way::Out, Backed::Swap { slot: 5 });
        assert_eq!(arm.requests(), 33, "it waits");
        arm.settle();
        assert_eq!(arm.requests(), 34);
    }

    #[test]
    fn files_that_grow_side_by_side_do_not_overlap() {
        // 16 MB each, in turns of 128 KB, all of it written at once.
        let seeks = |lengths: [u64; 2]| {
            let mut arm = Arm::new(PAGE, SWAP);
            (0..2).for_each(|file| arm.place(file, lengths[file as usize]));
            for turn in 0..256 {
                (0..16).for_each(|page| arm.transfer(Way::Out, file(turn % 2, u64::from(turn / 2) * 16 + page)));
            }
            arm.requests()
        };
        assert_eq!(seeks([2048, 2048]), 256);
        // Where one's piece ends and the next piece of the other begins there is no seek.
        assert!((230..256).contains(&seeks([0, 0])), "{}", seeks([0, 0]));
    }

    #[test]
    fn swap_space_ends_where_files_begin() {
        let mut arm = Arm::new(PAGE, 1 << 20);
        arm.place(1, 8);
        arm.transfer(Way::In, Backed::Swap { slot: (1 << 20) - 8 });
        arm.transfer(Way::In, file(1, 0));
        assert_eq!(arm.requests(), 1, "the first cluster of files is behind the last of swap space");
    }

    #[test]
    fn near_seeks_are_short() {
        let mut machine = Machine::builtin("alpha-21264").unwrap();
        let disk = &mut machine.disk;
        (disk.seek_microseconds, disk.near_seek_microseconds) = (9000, Some(5000));
        disk.capacity_bytes = Some(1 << 32);
        let mut arm = Arm::new(PAGE, SWAP);
        arm.place(1, 1 << 19);
        let milliseconds = |arm: &Arm, machine: &Machine| arm.cycles(machine) as f64 * 1e3 / machine.clock.hertz as f64;
        arm.transfer(Way::In, file(1, 0));
        assert!((milliseconds(&arm, &machine) - 9.0).abs() < 1e-4, "the first is as far as any");
        // From the end of the first cluster to a gigabyte farther: half of the square root of the
        // whole.
        arm.transfer(Way::In, file(1, ((1 << 30) + CLUSTER) / PAGE));
        assert!((milliseconds(&arm, &machine) - 9.0 - 5.0 - 4.0 * 0.5 * 15.0 / 8.0).abs() < 1e-3);
        (machine.disk.near_seek_microseconds, machine.disk.capacity_bytes) = (None, None);
        assert!((milliseconds(&arm, &machine) - 18.0).abs() < 1e-4, "or all seeks are alike");
    }
}
