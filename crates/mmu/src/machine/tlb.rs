//! One TLB of a machine file.

use super::{Host, Joins, Machine, WalkCacheSpec};
use super::{Index, Replacement, TableKind};
use serde::{Deserialize, Deserializer};
use superpage_pages::PageSize;

/// Which accesses a TLB serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serves {
    /// Loads and stores.
    Data,
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Instruction fetches.
    Instruction,
    /// Everything.
    Unified,
}

impl Serves {
    /// Whether it serves the access of this number (0 read, 1 write, 2 execute).
    pub(crate) fn covers(self, access: usize) -> bool {
        let mask = match self {
            Serves::Load => 1,
            Serves::Store => 2,
            Serves::Data => 3,
            Serves::Instruction => 4,
            Serves::Unified => 7,
        };
        mask >> access & 1 != 0
    }
}

/// The number of ways of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ways {
    /// Fully associative: all entries are one set.
    Full,
    /// Sets of this many ways.
    Of(usize),
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ways, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of ways, or \"full\"")]
        enum Text {
            Number(usize),
            Word(Full),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Full {
            Full,
        }
        Ok(match Text::deserialize(deserializer)? {
            Text::Number(ways) => Ways::Of(ways),
            Text::Word(Full::Full) => Ways::Full,
        })
    }
}

/// One TLB.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlbSpec {
    /// Its name in reports.
    pub name: String,
    /// Its level, from 1.
    pub level: usize,
    /// The accesses that it serves.
    pub serves: Serves,
    /// The page sizes that share its entries.
    pub sizes: Vec<PageSize>,
    /// The number of entries.
    pub entries: usize,
    /// The ways of a set.
    pub ways: Ways,
    /// Which set a translation is in.
    #[serde(default)]
    pub index: Index,
    /// How many of the ways a page of each of `sizes` may use, in their order: which ones depends
    /// on the address. By default each may use all.
    #[serde(default)]
    pub size_ways: Vec<usize>,
    /// Which entry of a set is replaced.
    pub replacement: Replacement,
    /// Cycles that a hit here adds to an access; 0 in the first level, whose hits are part of the
    /// access.
    pub hit_cycles: u64,
    /// Whether the nearer levels may hold only what this one holds.
    #[serde(default)]
    pub inclusive: bool,
    /// How many address spaces it keeps entries of, those that were current last; by default, or
    /// with `all`, of all that have a number.
    #[serde(default, deserialize_with = "number_or_all")]
    pub spaces: Option<usize>,
    /// Whether one entry may hold several base pages, and which.
    #[serde(default)]
    pub joins: Option<Joins>,
}

impl TlbSpec {
    /// The ways of a set.
    pub fn ways(&self) -> usize {
        match self.ways {
            Ways::Full => self.entries,
            Ways::Of(ways) => ways,
        }
    }

    /// The number of sets.
    pub fn sets(&self) -> usize {
        self.entries / self.ways().max(1)
    }

    /// Whether a page has candidates in several sets, or in some of the ways.
    pub fn is_skewed(&self) -> bool {
        self.index == Index::Skewed || !self.size_ways.is_empty()
    }

    /// Whether it may hold perforated pages: it is behind the first level, and holds both base
    /// pages and pages of their size.
    pub(crate) fn suits_perforated(&self, machine: &Machine) -> bool {
        let sizes = |sizes: &[PageSize]| machine.perforated_size().is_some_and(|size| sizes.contains(&size));
        self.level > 1 && sizes(&self.sizes) && self.sizes.contains(&machine.pages.sizes[0])
    }

    /// Whether it holds perforated pages: it may, and no host maps them by smaller ones.
    pub(crate) fn holds_perforated(&self, machine: &Machine) -> bool {
        let whole = |host: &Host| !host.managed && host.backs_by >= machine.perforated_size();
        self.suits_perforated(machine) && machine.host.as_ref().is_none_or(whole)
    }

    /// Whether it holds the entries of a walk cache.
    pub(crate) fn holds_pointers(&self, machine: &Machine) -> bool {
        machine.walk_cache.iter().any(|cache| machine.within(cache).is_some_and(|tlb| tlb.name == self.name))
    }

    /// Whether it could hold the entries of a walk cache.
    fn may_hold_pointers(&self, machine: &Machine) -> bool {
        let tables = matches!(machine.page_table.kind, TableKind::Radix | TableKind::Linear);
        let plain = tables && machine.host.is_none() && machine.range_tlb.is_none() && machine.shadow.is_none();
        let whole = self.joins.is_none() && !self.is_skewed() && !machine.tlb.iter().any(|tlb| tlb.inclusive);
        plain && whole && self.level == machine.tlb_levels()
    }

    /// How it joins base pages, if it holds these.
    pub(crate) fn joined(&self, machine: &Machine) -> Option<&Joins> {
        self.joins.as_ref().filter(|_| self.sizes.contains(&machine.pages.sizes[0]))
    }
}

impl Machine {
    /// The TLB that holds the entries of this walk cache: the one that it names, if that has
    /// entries of one page each, on a machine with radix or linear tables, without `[host]`,
    /// `[range-tlb]`, `[shadow]` and inclusive TLBs, where it is of the last level.
    pub fn within(&self, cache: &WalkCacheSpec) -> Option<&TlbSpec> {
        let named = self.tlb.iter().find(|tlb| Some(&tlb.name) == cache.within.as_ref());
        named.filter(|tlb| tlb.may_hold_pointers(self))
    }
}

fn number_or_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number of address spaces, or \"all\"")]
    enum Text {
        Number(usize),
        Word(All),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum All {
        All,
    }
    Ok(match Text::deserialize(deserializer)? {
        Text::Number(spaces) => Some(spaces),
        Text::Word(All::All) => None,
    })
}
