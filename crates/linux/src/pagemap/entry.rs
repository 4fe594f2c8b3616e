//! One entry of the page map.

/// The kernel's bits, and two of ours where the kernel leaves bits unused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry(u64);

impl Entry {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE: u64 = 1 << 61;
    const EXCLUSIVE: u64 = 1 << 56;
    const FRAME: u64 = (1 << 55) - 1;
    /// Ours: the zero page, which all share.
    const ZERO: u64 = 1 << 60;
    /// Ours: mapped by an entry of the next level of the page table, 2 MB on x86-64.
    const HUGE: u64 = 1 << 59;

    /// From its eight bytes.
    pub(super) fn of(bytes: &[u8]) -> Entry {
        Entry(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Sets what the kernel's bits do not contain.
    pub(super) fn mark(&mut self, zero: bool, huge: bool) {
        self.0 |= if zero { Entry::ZERO } else { 0 } | if huge { Entry::HUGE } else { 0 };
    }

    /// In memory, including the zero page.
    pub fn present(self) -> bool {
        self.0 & Entry::PRESENT != 0
    }

    /// In memory, and not the zero page.
    pub fn resident(self) -> bool {
        self.0 & (Entry::PRESENT | Entry::ZERO) == Entry::PRESENT
    }

    /// The zero page: read, never written.
    pub fn zero(self) -> bool {
        self.0 & Entry::ZERO != 0
    }

    /// In swap space, or on its way to another frame.
    pub fn swapped(self) -> bool {
        self.0 & Entry::SWAPPED != 0
    }

    /// Not a file's or shared memory's.
    pub fn anonymous(self) -> bool {
        self.0 & Entry::FILE == 0
    }

    /// Mapped by this process only.
    pub fn exclusive(self) -> bool {
        self.0 & Entry::EXCLUSIVE != 0
    }

    /// Mapped as part of a huge page.
    pub fn huge(self) -> bool {
        self.0 & Entry::HUGE != 0
    }

    /// The frame; 0, which no program ever has, if the kernel hides it.
    pub fn frame(self) -> u64 {
        if self.present() { self.0 & Entry::FRAME } else { 0 }
    }
}

/// The first frame of a block of pages that are all resident, in consecutive frames with the
/// alignment of the pages; also `None` if the kernel hides frames.
pub fn aligned_frames(block: &[Entry]) -> Option<u64> {
    let first = block[0].frame();
    let aligned = first != 0 && first.is_multiple_of(block.len() as u64);
    let in_order = |(i, entry): (usize, &Entry)| entry.resident() && entry.frame() == first + i as u64;
    (aligned && block.iter().enumerate().all(in_order)).then_some(first)
}
