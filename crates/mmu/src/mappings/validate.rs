//! The invariants of page tables.

use super::{Layout, Mappings, NO_PARENT};
use crate::mappings::pte::Pte;
use superpage_pages::Used;

/// The position of a node in the tree: its space, its level, and the entry that points to it.
#[derive(Clone, Copy)]
struct NodePosition {
    space: u32,
    level: usize,
    parent: u32,
}

impl Mappings {
    /// Checks that every node is reached once from a root or is free and empty, that pointers and
    /// parents agree, that live page-table entries are counted right, and that every mapping is
    /// whole: aligned, its entries alike, within its node. Cost: O(page-table entries).
    pub(crate) fn validate(&self) -> Result<(), String> {
        let mut reached = vec![false; self.nodes.all.len()];
        for (space, roots) in self.roots.iter().enumerate() {
            for (_, first) in roots {
                let position = NodePosition { space: space as u32, level: self.levels(), parent: NO_PARENT };
                self.validate_node(*first, position, &mut reached)?;
            }
        }
        for number in &self.free {
            if std::mem::replace(&mut reached[*number as usize], true) {
                return Err(format!("node {number} is free and in use, or free twice"));
            }
            let first = (*number as usize) << self.nodes.bits;
            if self.ptes[first..][..1 << self.nodes.bits].iter().any(|pte| !pte.is_absent()) {
                return Err(format!("free node {number} is not empty"));
            }
        }
        match reached.iter().position(|reached| !reached) {
            Some(lost) => Err(format!("node {lost} is neither in use nor free")),
            None => self.validate_notifiers(),
        }
    }

    fn validate_node(&self, first: u32, position: NodePosition, reached: &mut [bool]) -> Result<(), String> {
        let NodePosition { space, level, parent } = position;
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
            let pte = self.ptes[id as usize];
            index += 1;
            if pte.is_absent() {
                continue;
            }
            live += 1;
            if index > 1 << self.bits[level - 1] {
                return Err(format!("node {number} of level {level} uses pte {index}"));
            }
            if pte.is_table() {
                if level == 1 {
                    return Err(format!("pte {id:#x} of the lowest level points to a table"));
                }
                let below = NodePosition { space, level: level - 1, parent: id };
                self.validate_node(pte.child(), below, reached)?;
                continue;
            }
            if self.layout(pte.size_level()) != (Layout { level, replicas: pte.replicas() }) {
                return Err(format!("pte {id:#x}: {pte:?} does not belong at level {level}"));
            }
            let entries = 1 << pte.replicas();
            if Mappings::head(id, pte) != id {
                return Err(format!("pte {id:#x}: {pte:?} is neither a head nor follows one"));
            }
            let like = Pte::leaf(pte.size_level(), pte.replicas(), Default::default(), Used::default());
            for replica in 1..entries {
                let repeated = self.ptes[(id + replica) as usize];
                if repeated != like {
                    return Err(format!("pte {:#x}: {repeated:?} does not repeat {pte:?}", id + replica));
                }
            }
            live += entries - 1;
            index += entries - 1;
        }
        if live != node.live {
            return Err(format!("node {number} counts {} live ptes but has {live}", node.live));
        }
        Ok(())
    }
}
