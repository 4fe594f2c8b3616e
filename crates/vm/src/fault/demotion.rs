//! Demotion, step by step or at once (Navarro et al., section 4.6).

use crate::policy::Demote;
use crate::space::{Entry, Window};
use crate::vm::Vm;
use crate::{Pmap, SpaceId};
use superpage_pages::{Level, Vpn};

impl Vm {
    /// One call of [`Pmap::demote`] for the mapping of level `from` at `start`, of pages of the
    /// window's object. Returns the level of the mappings that replace it.
    pub(super) fn demote_once(&mut self, pmap: &mut impl Pmap, window: Window<'_>, start: Vpn, from: Level) -> Level {
        let Window { space, entry, object } = window;
        let (ladder, to) = (self.frames.ladder, self.demoted(pmap, from));
        pmap.demote(space, start, ladder.size(from), ladder.size(to));
        let stats = &mut self.frames.stats;
        stats.demotions[from.index()] += 1;
        stats.mapped[from.index()] -= 1;
        stats.mapped[to.index()] += ladder.pages(from) / ladder.pages(to);
        if self.objects.get(object).sole {
            let index = entry.index(start.0);
            let walk = self.frames.population.walk(object, index);
            self.frames.count_superpage(&walk, from, -1);
            // Where page tables lack a size between the two, all nodes of the size above `to` have
            // such children.
            if to > Level::BASE {
                let parents = to.up();
                for page in (0..ladder.pages(from)).step_by(ladder.pages(parents) as usize) {
                    let walk = self.frames.population.walk(object, index + page);
                    self.frames.count_children(&walk, parents, ladder.ratio(parents) as u32);
                }
            }
        }
        to
    }

    /// The level to which one call of demotion goes from `from`.
    fn demoted(&self, pmap: &impl Pmap, from: Level) -> Level {
        let mut to = if self.policy.answers.demote.steps == Demote::Stepwise { from.down() } else { Level::BASE };
        while !pmap.contiguity(self.frames.ladder.size(to)).is_whole() {
            to = to.down();
        }
        to
    }

    /// Demotes the superpage of pages of the window's object around `at`, and recursively the
    /// smaller one that holds `at`, until `at` is mapped by a base page or is the start of what
    /// maps it and `keep_start` is set.
    pub(crate) fn demote_around(&mut self, pmap: &mut impl Pmap, window: Window<'_>, at: Vpn, keep_start: bool) {
        while let Some(leaf) = self.frames.leaf(pmap, window.space, at) {
            if leaf.level == Level::BASE || keep_start && leaf.at == at {
                return;
            }
            self.demote_once(pmap, window, leaf.at, leaf.level);
        }
    }

    /// Demotes what lies across the edge between `at` and the page before it, both of the entry.
    pub(crate) fn demote_edge(&mut self, pmap: &mut impl Pmap, space: SpaceId, entry: &Entry, at: u64) {
        if at > entry.start && at < entry.end {
            self.split_zero_leaf(pmap, space, Vpn(at));
            if let Some(walk) = self.frames.holder(&self.objects, entry.object, entry.index(at)) {
                let window = Window { space, entry, object: walk.page.object };
                self.demote_around(pmap, window, Vpn(at), true);
            }
        }
    }

    /// Demotes all of a superpage, step by step if that is the policy, to base pages.
    pub(super) fn dissolve(&mut self, pmap: &mut impl Pmap, window: Window<'_>, at: Vpn, level: Level) {
        let to = self.demote_once(pmap, window, at, level);
        if to > Level::BASE {
            let step = self.frames.ladder.pages(to);
            for part in 0..self.frames.ladder.pages(level) / step {
                self.dissolve(pmap, window, at + part * step, to);
            }
        }
    }
}
