//! Replacement policies: which way of a set of a TLB, walk cache or line cache is replaced. Each is
//! a file.
//!
//! A policy keeps one piece of state for all sets of a structure and handles five events: a way was
//! used, a vacant way was filled, a victim is needed, a way became invalid, all did. It sees the
//! page and the kind of access ([`Use`]). Each is exact, and has a naive twin in the tests
//! (`brute_force/replacement.rs`). To add one, write its file (a type that implements [`Replace`]),
//! its twin, and a line in the list below and in `machine/names.rs`, by whose name machine files
//! know it. [`custom`] is for those of programs that use this crate.

use crate::machine::Replacement;
use crate::tlb::uses::Use;

pub(crate) mod custom;
mod itp;
pub(crate) mod lru;
mod mru3_plru4;
mod nru;
mod random;
mod round_robin;
mod srrip;
mod tree_plru;

/// From the list of replacements, generates the state of any one, and a macro that compiles an
/// expression for each.
macro_rules! replacements {
    ($dollar:tt $($variant:ident => $module:ident: $($form:ident)+;)+) => {
        impl Replacement {
            /// Why sets of `ways` ways cannot use it, if they cannot.
            pub(crate) fn refuses(self, ways: usize) -> Option<&'static str> {
                match self {
                    $(Replacement::$variant => None$(.or_else(|| $module::$form::refuses(ways)))+,)+
                    Replacement::Custom(_) => None,
                }
            }

            /// Whether a second use in a row matters to it. Then it is not for TLBs of the first
            /// level, where a run of accesses to a page is one use.
            pub const fn counts_each_use(self) -> bool {
                match self {
                    $(Replacement::$variant => false$( || $module::$form::COUNTS_EACH_USE)+,)+
                    Replacement::Custom(_) => false,
                }
            }
        }

        /// The state of one replacement for all sets of a structure.
        #[derive(Clone, Debug)]
        pub(crate) enum State {
            $($($form($module::$form),)+)+
            Custom(custom::Custom),
        }

        impl State {
            /// The initial state: of the first form that supports this shape.
            pub(crate) fn of(replacement: Replacement, sets: usize, ways: usize) -> State {
                let state = match replacement {
                    $(Replacement::$variant => {
                        None$(.or_else(|| $module::$form::new(sets, ways).map(State::$form)))+
                    })+
                    Replacement::Custom(custom) => Some(State::Custom(custom::Custom::of(custom, sets, ways))),
                };
                state.expect("the last form takes every shape that is not refused")
            }
        }

        /// Evaluates an expression with the state in a [`State`], compiled for each form.
        macro_rules! on_state {
            ($dollar replacement:expr, $dollar state:ident => $dollar body:expr) => {
                match $dollar replacement {
                    $($(crate::tlb::replacement::State::$form($dollar state) => $dollar body,)+)+
                    crate::tlb::replacement::State::Custom($dollar state) => $dollar body,
                }
            };
        }
        pub(crate) use on_state;
    };
}

// Name, module: its forms, of which the first that supports the shape is used.
replacements! { $
    Lru => lru: Packed Times Listed;
    RoundRobin => round_robin: RoundRobin;
    Random => random: Random;
    TreePlru => tree_plru: TreePlru;
    Nru => nru: Nru;
    Mru3Plru4 => mru3_plru4: Mru3Plru4;
    Srrip => srrip: Srrip;
    Itp => itp: Itp;
}

/// Of any form: each call asks which.
impl Replace for State {
    fn vacant_first(&self) -> bool {
        on_state!(self, state => state.vacant_first())
    }

    /// There is none of any form ([`State::of`]).
    fn new(_: usize, _: usize) -> Option<State> {
        None
    }

    fn touch(&mut self, set: usize, way: usize, by: Use) {
        on_state!(self, state => state.touch(set, way, by));
    }

    fn fill(&mut self, set: usize, way: usize, by: Use) {
        on_state!(self, state => state.fill(set, way, by));
    }

    fn victim(&mut self, set: usize, by: Use) -> usize {
        on_state!(self, state => state.victim(set, by))
    }

    fn invalidate(&mut self, set: usize, way: usize) {
        on_state!(self, state => state.invalidate(set, way));
    }

    fn flush(&mut self) {
        on_state!(self, state => state.flush());
    }

    fn validate(&self, tags: &[u32]) -> Result<(), String> {
        on_state!(self, state => state.validate(tags))
    }
}

/// The state of a replacement for all sets of one structure.
pub(crate) trait Replace: Sized {
    /// Whether the lowest invalid way is filled before any valid one; [`Replace::victim`] is only
    /// called if there is none.
    #[inline(always)]
    fn vacant_first(&self) -> bool {
        false
    }

    /// Whether a second use in a row matters ([`Replacement::counts_each_use`]).
    const COUNTS_EACH_USE: bool = false;

    /// Why sets of `ways` ways cannot use it, if they cannot.
    fn refuses(_ways: usize) -> Option<&'static str> {
        None
    }

    /// The initial state, in which nothing was used and all ways are invalid; `None` if this form
    /// does not support the shape.
    fn new(sets: usize, ways: usize) -> Option<Self>;

    /// The way was used. A second use in a row must change nothing that matters, unless each use
    /// counts, since it may be left out: streams are made of runs.
    fn touch(&mut self, set: usize, way: usize, by: Use);

    /// A way that was vacant was filled.
    #[inline(always)]
    fn fill(&mut self, set: usize, way: usize, by: Use) {
        self.touch(set, way, by);
    }

    /// Chooses the way to fill, and counts the fill as [`Replace::fill`] does.
    fn victim(&mut self, set: usize, by: Use) -> usize;

    /// The way became invalid.
    fn invalidate(&mut self, set: usize, way: usize);

    /// Forgets all uses; all ways are invalid. A round-robin pointer and a random generator keep
    /// their state.
    fn flush(&mut self);

    /// Checks that uses can lead to this state, with these tags.
    fn validate(&self, tags: &[u32]) -> Result<(), String>;
}

/// The error for a set whose state no uses can lead to.
fn possible(wrong: Option<usize>) -> Result<(), String> {
    wrong.map_or(Ok(()), |set| Err(format!("the replacement state of set {set} is impossible")))
}

/// Whether these are the numbers below `count`, each once.
fn is_permutation(numbers: impl Iterator<Item = usize>, count: usize) -> bool {
    if count <= 64 {
        let (mut seen, mut those) = (0u64, 0);
        for number in numbers.filter(|number| *number < 64) {
            (seen, those) = (seen | 1 << number, those + 1);
        }
        return those == count && seen == u64::MAX >> (64 - count);
    }
    let mut seen = vec![false; count];
    let fresh = |number: usize| number < count && !std::mem::replace(&mut seen[number], true);
    numbers.map(fresh).filter(|fresh| *fresh).count() == count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb::uses::EntryId;
    use proptest::prelude::*;
    use tree_plru::TreePlru;

    /// A page that nothing looks at.
    fn any() -> Use {
        Use::by(0, EntryId { number: 0, key: 0 })
    }

    /// As TLB;DR measured them on Skylake (its `TLB/README.md`), for the TLBs of the first level
    /// for data and for instructions; that of the second level is in
    /// `tests/brute_force/replacement.rs`, whose twin goes by it. Ways stand in the order in which
    /// misses in a row would replace them, the next one last. A use of the one at each position
    /// brings those at these positions into their places.
    const PLRU4: [[usize; 4]; 4] = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 1, 0, 3], [3, 0, 1, 2]];
    const PLRU8: [[usize; 8]; 8] = [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 1, 0, 3, 6, 5, 4, 7],
        [3, 0, 1, 2, 7, 4, 5, 6],
        [4, 1, 2, 3, 0, 5, 6, 7],
        [5, 0, 3, 2, 1, 4, 7, 6],
        [6, 1, 0, 3, 2, 5, 4, 7],
        [7, 0, 1, 2, 3, 4, 5, 6],
    ];

    /// Uses these ways one after the other, and then, in each state, the way at every position, and
    /// the victim.
    fn follows<R: Replace + Clone, const WAYS: usize>(vectors: [[usize; WAYS]; WAYS], uses: &[usize]) {
        let order = |state: &R| -> Vec<usize> {
            let mut state = state.clone();
            let mut victims: Vec<usize> = (0..WAYS).map(|_| state.victim(0, any())).collect();
            victims.reverse();
            victims
        };
        let mut state = R::new(1, WAYS).unwrap();
        for way in uses {
            state.touch(0, way % WAYS, any());
            let before = order(&state);
            for (position, vector) in vectors.iter().enumerate() {
                let mut used = state.clone();
                used.touch(0, before[position], any());
                assert_eq!(order(&used), vector.map(|from| before[from]), "{position}");
            }
            let mut missed = state.clone();
            assert_eq!(missed.victim(0, any()), before[WAYS - 1]);
            assert_eq!(order(&missed), vectors[WAYS - 1].map(|from| before[from]));
        }
    }

    proptest! {
        #[test]
        fn pseudo_lru_is_as_measured(uses in prop::collection::vec(0usize..48, 1..200)) {
            follows::<TreePlru, 4>(PLRU4, &uses);
            follows::<TreePlru, 8>(PLRU8, &uses);
        }
    }

    #[test]
    fn a_tree_needs_a_power_of_two() {
        assert!(Replacement::TreePlru.refuses(12).is_some());
        assert!(Replacement::TreePlru.refuses(16).is_none());
        assert!(Replacement::Nru.refuses(65).is_some());
        assert!(Replacement::Lru.refuses(12).is_none());
    }
}
