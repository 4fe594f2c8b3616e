//! A reference: the textbook buddy, one doubly linked list for each power of two, links as indices
//! in two arrays.

/// No frame: the end of a list.
const NIL: u32 = u32::MAX;

/// The mark of a frame that does not begin a free block.
const TAKEN: u8 = u8::MAX;

/// Blocks freed last are taken first.
pub(crate) struct ArrayBuddy {
    next: Vec<u32>,
    prev: Vec<u32>,
    order: Vec<u8>,
    heads: Vec<u32>,
}

impl ArrayBuddy {
    /// `frames` frames, a multiple of the largest block's `1 << largest`, all free.
    pub(crate) fn new(frames: u32, largest: u32) -> ArrayBuddy {
        let all = frames as usize;
        let mut buddy = ArrayBuddy {
            next: vec![NIL; all],
            prev: vec![NIL; all],
            order: vec![TAKEN; all],
            heads: vec![NIL; largest as usize + 1],
        };
        for start in (0..frames).step_by(1 << largest).rev() {
            buddy.push(start, largest);
        }
        buddy
    }

    fn push(&mut self, start: u32, order: u32) {
        let head = self.heads[order as usize];
        self.next[start as usize] = head;
        self.prev[start as usize] = NIL;
        self.order[start as usize] = order as u8;
        if head != NIL {
            self.prev[head as usize] = start;
        }
        self.heads[order as usize] = start;
    }

    fn unlink(&mut self, start: u32, order: u32) {
        let (next, prev) = (self.next[start as usize], self.prev[start as usize]);
        if prev == NIL {
            self.heads[order as usize] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next != NIL {
            self.prev[next as usize] = prev;
        }
        self.order[start as usize] = TAKEN;
    }

    /// Takes a block of `1 << order` frames.
    pub(crate) fn allocate(&mut self, order: u32) -> Option<u32> {
        let from = (order..self.heads.len() as u32).find(|from| self.heads[*from as usize] != NIL)?;
        let start = self.heads[from as usize];
        self.unlink(start, from);
        for half in (order..from).rev() {
            self.push(start + (1 << half), half);
        }
        Some(start)
    }

    /// Gives a block back.
    pub(crate) fn free(&mut self, mut start: u32, mut order: u32) {
        while order + 1 < self.heads.len() as u32 {
            let buddy = start ^ (1 << order);
            if u32::from(self.order[buddy as usize]) != order {
                break;
            }
            self.unlink(buddy, order);
            start &= !(1 << order);
            order += 1;
        }
        self.push(start, order);
    }

    /// The memory of links and marks, in bytes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.order.len() * (2 * size_of::<u32>() + 1)
    }
}
