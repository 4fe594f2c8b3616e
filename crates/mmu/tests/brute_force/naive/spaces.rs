//! Switches to other spaces: what TLBs hold of others.

use super::Naive;

impl Naive {
    pub(crate) fn switch(&mut self, space: u32) {
        if space == self.space {
            return;
        }
        self.space = space;
        self.history.push(space);
        self.keep_spaces();
        let bits = self.machine.spaces.number_bits;
        let flush = if bits == 0 {
            true
        } else if self.numbered.contains(&space) {
            false
        } else {
            let exhausted = self.numbered.len() as u64 == 1 << bits;
            if exhausted {
                self.numbered.clear();
            }
            self.numbered.insert(space);
            exhausted
        };
        if flush {
            self.counts.flushes += 1;
            self.flush_all();
        }
    }

    /// Some TLBs keep only entries of the spaces that were current last.
    fn keep_spaces(&mut self) {
        for index in 0..self.tlbs.len() {
            let outer = self.tlbs[index].0.clone();
            let Some(most) = outer.spaces else { continue };
            let mut kept: Vec<u32> = Vec::new();
            for space in self.history.iter().rev() {
                if kept.len() < most && !kept.contains(space) {
                    kept.push(*space);
                }
            }
            for (other, (spec, cache)) in self.tlbs.iter_mut().enumerate() {
                if other == index || outer.inclusive && Naive::is_inner(spec, &outer) {
                    cache.drop(|held| !kept.contains(&held.space));
                }
            }
        }
    }
}
