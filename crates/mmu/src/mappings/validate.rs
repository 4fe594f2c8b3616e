//! The invariants of page tables.

use super::{Mappings, NO_PARENT};
use crate::record::Record;

/// Where a node is in the tree: its space, its level, and the page-table entry that points to it.
#[derive(Clone, Copy)]
struct Place {
    space: u32,
    level: usize,
    parent: u32,
}

impl Mappings {
    /// Checks that every node is reached once from a root or is free and empty, that pointers and parents agree, that
    /// live page-table entries are counted right, and that every mapping is whole: aligned, its entries alike, within
    /// its node. Cost: O(page-table entries).
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut reached = vec![false; self.nodes.all.len()];
        for (space, roots) in self.roots.iter().enumerate() {
            for (_, first) in roots {
                let place = Place { space: space as u32, level: self.levels(), parent: NO_PARENT };
                self.validate_node(*first, place, &mut reached)?;
            }
        }
        for number in &self.free {
            if std::mem::replace(&mut reached[*number as usize], true) {
                return Err(format!("node {number} is free and in use, or free twice"));
            }
            let first = (*number as usize) << self.nodes.bits;
            if self.records[first..][..1 << self.nodes.bits].iter().any(|record| !record.is_absent()) {
                return Err(format!("free node {number} is not empty"));
            }
        }
        match reached.iter().position(|reached| !reached) {
            Some(lost) => Err(format!("node {lost} is neither in use nor free")),
            None => {
                let ranges = |()| self.validate_ranges();
                self.validate_regions()
                    .and_then(|()| self.validate_clusters())
                    .and_then(ranges)
                    .and_then(|()| self.validate_shadow())
            }
        }
    }

    fn validate_node(&self, first: u32, place: Place, reached: &mut [bool]) -> Result<(), String> {
        let Place { space, level, parent } = place;
        let number = (first >> self.nodes.bits) as usize;
        let node = &self.nodes.all[number];
        if std::mem::replace(&mut reached[number], true) {
            return Err(format!("node {number} is reached twice"));
        }
        if node.space != space || node.level as usize != level || self.parents[number] != parent {
            return Err(format!("node {number}: {node:?} is not at level {level} of space {space} under {parent:#x}"));
        }
        let (mut live, mut index) = (0, 0);
        while index < 1 << self.nodes.bits {
            let id = first + index;
            let record = self.records[id as usize];
            index += 1;
            if record.is_absent() {
                continue;
            }
            live += 1;
            if index > 1 << self.bits[level - 1] {
                return Err(format!("node {number} of level {level} uses record {index}"));
            }
            if record.is_table() {
                if level == 1 {
                    return Err(format!("record {id:#x} of the lowest level points to a table"));
                }
                self.validate_node(record.child(), Place { space, level: level - 1, parent: id }, reached)?;
                continue;
            }
            if self.layout(record.rung()) != (level, record.replicas()) {
                return Err(format!("record {id:#x}: {record:?} does not belong at level {level}"));
            }
            let entries = 1 << record.replicas();
            if Mappings::head(id, record) != id {
                return Err(format!("record {id:#x}: {record:?} is neither a head nor follows one"));
            }
            let like = Record::leaf(record.rung(), record.replicas(), Default::default(), (false, false));
            for replica in 1..entries {
                let repeated = self.records[(id + replica) as usize];
                if repeated != like {
                    return Err(format!("record {:#x}: {repeated:?} does not repeat {record:?}", id + replica));
                }
            }
            live += entries - 1;
            index += entries - 1;
        }
        match live == node.live {
            true => Ok(()),
            false => Err(format!("node {number} counts {} live records but has {live}", node.live)),
        }
    }
}
