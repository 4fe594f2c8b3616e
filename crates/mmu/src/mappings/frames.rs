//! The frames of the leaves, in stretches of 16 page-table entries; a stretch without leaves takes
//! no memory. A program that touches memory sparsely has a node of 512 page-table entries for each
//! page, and one stretch of frames in it.

/// The page-table entries of one stretch.
const STRETCH: usize = 16;
/// No stretch yet.
const NONE: u32 = u32::MAX;

/// The frame of each page-table entry, 0 where none was set.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// For each `STRETCH` of page-table entries where their frames stand.
    places: Vec<u32>,
    stretches: Vec<[u64; STRETCH]>,
}

impl Frames {
    /// Makes room for this many page-table entries.
    pub(super) fn resize(&mut self, ptes: usize) {
        self.places.resize(ptes.div_ceil(STRETCH), NONE);
    }

    pub(super) fn get(&self, id: u32) -> u64 {
        let id = id as usize;
        self.stretches.get(self.places[id / STRETCH] as usize).map_or(0, |stretch| stretch[id % STRETCH])
    }

    pub(super) fn set(&mut self, id: u32, frame: u64) {
        let id = id as usize;
        let place = &mut self.places[id / STRETCH];
        if *place == NONE {
            *place = self.stretches.len() as u32;
            self.stretches.push([0; STRETCH]);
        }
        self.stretches[*place as usize][id % STRETCH] = frame;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_leaves_take_little() {
        let mut frames = Frames::default();
        frames.resize(512 * 1000);
        for node in 0..1000 {
            assert_eq!(frames.get(node * 512 + 7), 0);
            frames.set(node * 512 + 7, node as u64 + 5);
        }
        assert!((0..1000).all(|node| frames.get(node * 512 + 7) == node as u64 + 5 && frames.get(node * 512 + 8) == 0));
        assert_eq!(frames.stretches.len(), 1000, "one for each node, not the 32 that it has ptes for");
    }
}
