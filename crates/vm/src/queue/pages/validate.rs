//! What must hold of the page lists.

use super::*;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

impl Pages {
    /// Checks that each frame that says so is on its list once, behind as many stale entries as are
    /// known, and all counts.
    pub(crate) fn validate(&self) -> Result<(), String> {
        self.journal.validate()?;
        let mut seen = vec![false; self.states.len()];
        for list in EVERY.into_iter().take(QUEUES) {
            let number = list as usize;
            let more = |frame: u32| self.more.get(&(frame, number as u8)).copied().unwrap_or(0);
            let marked = |frame: &u32| self.states[*frame as usize] >> (STALE + number as u32) & 1 != 0;
            let mut stale: BTreeMap<u32, u32> =
                (0..self.states.len() as u32).filter(marked).map(|frame| (frame, 1 + more(frame))).collect();
            if stale.values().sum::<u32>() != self.stale[number] {
                return Err(format!("list {list:?} has another number of stale entries than {}", self.stale[number]));
            }
            let mut count = self.arrived.iter().filter(|(_, other)| *other == list).count() as u32;
            for (position, frame) in self.journal.iter(number).enumerate() {
                if let Some(left) = stale.get_mut(&frame).filter(|left| **left > 0) {
                    if position == 0 {
                        return Err(format!("the head of list {list:?} is stale"));
                    }
                    *left -= 1;
                } else if self.list(frame) != Some(list) || core::mem::replace(&mut seen[frame as usize], true) {
                    return Err(format!(
                        "frame {frame} on list {list:?} says that it is on another, or is there twice"
                    ));
                } else {
                    count += 1;
                }
            }
            if count != self.counts[number] || stale.values().any(|left| *left > 0) {
                return Err(format!("list {list:?} has not {} frames, or lacks stale entries", self.counts[number]));
            }
        }
        for (frame, _) in self.arrived.iter() {
            if self.states[frame as usize] & !STALE_MASK != 0 || core::mem::replace(&mut seen[frame as usize], true) {
                return Err(format!("frame {frame} has arrived twice, or is on a list already"));
            }
        }
        let busy = (0..self.states.len() as u32).filter(|frame| self.list(*frame) == Some(List::Busy)).count();
        let listed = (0..self.states.len() as u32).filter(|frame| self.list(*frame).is_some()).count();
        let known = self.counts.iter().sum::<u32>() as usize;
        let stale = self.stale.iter().sum::<u32>();
        let extra = self.more.values().map(|more| *more as usize).sum::<usize>();
        let marks: usize = self.states.iter().map(|state| (state & STALE_MASK).count_ones() as usize).sum();
        if busy != self.counts[List::Busy as usize] as usize || listed != known {
            return Err(format!("{listed} frames, {busy} of them busy, say that they are on lists, but {known} are"));
        }
        if stale != self.stale_all || stale as usize != marks + extra {
            return Err(format!("{marks} frames and {extra} have stale entries, but {stale} are known"));
        }
        Ok(())
    }
}
