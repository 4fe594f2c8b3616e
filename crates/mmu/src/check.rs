//! Checks of a machine beyond the syntax and the ranges of its file, with their errors. Each
//! mechanism says what it refuses; the refusals are collected here.

use crate::machine::{
    Clustered, Disk, ENTRY_BYTES, Host, LINE_CACHE_BYTES, MAX_LINE_LEVELS, MAX_TLB_LEVELS, MAX_WALK_LEVELS, MAX_WAYS,
    Machine, MachineError, Replacement, SEARCHED_WAYS, SetBy, TableKind, TlbSpec, WalkCacheSpec,
};
use superpage_pages::{Access, Ladder};

/// The most bits of an address that page tables translate: page numbers of base pages are shifted
/// by what is left of it.
const ADDRESS_BITS: u32 = u64::BITS;

/// The bits of the page numbers of a guest's memory, with its tables.
const GUEST_BITS: u32 = 36;

/// The refusal of a kind of page table without the table of its sizes, or of that without the kind.
fn kind_without_table(kind: &str, table: &str) -> (&'static str, String) {
    let goes = format!("\"{kind}\" goes with a table {table}, and only with that");
    ("page-table.kind", format!("{goes}; if a later overlay sets the kind, lay it on first"))
}

impl Machine {
    /// Checks everything that the simulator assumes, beyond the ranges of single numbers.
    pub(crate) fn check(&self, origin: &str) -> Result<(), MachineError> {
        let fail = |key: &str, what: String| Err(MachineError::of(origin, key, &what));
        let ladder = match Ladder::new(&self.pages.sizes) {
            Ok(ladder) => ladder,
            Err(error) => return fail("pages.sizes", error.to_string()),
        };
        let line = self.memory.line_bytes;
        if !line.is_power_of_two() || line < ENTRY_BYTES {
            return fail("memory.line-bytes", format!("{line} is not a power of two of at least {ENTRY_BYTES}"));
        }
        if let Some(size) = self.host.as_ref().and_then(|host| host.backs_by)
            && ladder.level(size).is_none()
        {
            return fail("host.backs-by", format!("{size} is not one of pages.sizes, {ladder}"));
        }
        self.check_table(&ladder).or_else(|(key, what)| fail(key, what))?;
        for tlb in &self.tlb {
            let key = format!("tlb \"{}\"", tlb.name);
            if tlb.level == 0 || tlb.level > MAX_TLB_LEVELS {
                return fail(&key, format!("level must be 1 to {MAX_TLB_LEVELS}, not {}", tlb.level));
            }
            let (entries, ways) = (tlb.entries, tlb.ways());
            if entries == 0 || ways == 0 || !entries.is_multiple_of(ways) {
                return fail(&key, format!("{entries} entries are not a whole number of sets of {ways} ways"));
            }
            if ways > MAX_WAYS {
                return fail(&key, format!("at most {MAX_WAYS} ways, not {ways}"));
            }
            if tlb.level == 1 && tlb.replacement.counts_each_use() {
                let name = tlb.replacement.name();
                return fail(
                    &key,
                    format!(
                        "replacement {name} counts each use, and a run of accesses to a page is one use of the first \
                         level: use lru there, or {name} in a further level"
                    ),
                );
            }
            if let Some(why) = tlb.replacement.refuses(ways) {
                return fail(&key, format!("replacement {} with {ways} ways: {why}", tlb.replacement.name()));
            }
            if let Some(why) = self.refuses_skewed(tlb) {
                return fail(&key, why);
            }
            if let Some(why) = tlb.index.refuses(tlb.sets()) {
                return fail(&key, format!("index {} with {} sets: {why}", tlb.index.name(), tlb.sets()));
            }
            if let Some(why) = tlb.joins.as_ref().and_then(|joins| joins.refuses(self, self.has_inclusive())) {
                return fail(&key, why);
            }
            if tlb.sizes.is_empty() {
                return fail(&key, format!("sizes is empty; expected some of pages.sizes, {ladder}"));
            }
            if let Some((_, twice)) = tlb.sizes.iter().enumerate().find(|(at, size)| tlb.sizes[..*at].contains(size)) {
                return fail(&key, format!("sizes names {twice} twice; expected each size once"));
            }
            if let Some(size) = tlb.sizes.iter().find(|size| ladder.level(**size).is_none()) {
                return fail(&key, format!("size {size} is not one of pages.sizes, {ladder}"));
            }
        }
        if self.tlb.len() > 32 {
            return fail("tlb", format!("at most 32 TLBs, not {}", self.tlb.len()));
        }
        for size in ladder.sizes() {
            for access in [Access::Read, Access::Write, Access::Execute] {
                let serving = |tlb: &&TlbSpec| tlb.sizes.contains(size) && tlb.serves.covers(access as usize);
                let mut levels: Vec<usize> = self.tlb.iter().filter(serving).map(|tlb| tlb.level).collect();
                levels.sort_unstable();
                if levels.is_empty() {
                    return fail("tlb", format!("no TLB holds pages of {size} for {access:?} accesses"));
                }
                if let Some(twice) = levels.windows(2).find(|pair| pair[0] == pair[1]) {
                    let level = twice[0];
                    return fail(
                        "tlb",
                        format!("two TLBs of level {level} hold pages of {size} for {access:?} accesses"),
                    );
                }
            }
        }
        self.check_perforated().or_else(|what| fail("perforated", what))?;
        self.check_ranges().or_else(|what| fail("range-tlb", what))?;
        self.check_shadow().or_else(|what| fail("shadow", what))?;
        self.disk.check().or_else(|what| fail("disk", what))?;
        self.check_caches().or_else(|(key, what)| fail(&key, what))
    }

    /// Why a TLB cannot be skewed, if it is and cannot.
    fn refuses_skewed(&self, tlb: &TlbSpec) -> Option<String> {
        let (ways, sizes, given) = (tlb.ways(), tlb.sizes.len(), tlb.size_ways.len());
        let sum = tlb.size_ways.iter().fold(0, |sum: usize, some| sum.saturating_add(*some));
        if given != 0 && (given != sizes || tlb.size_ways.contains(&0) || sum > ways) {
            return Some(format!(
                "size-ways: expected a number of ways, at least 1, for each of the {sizes} sizes, and no more than {ways} in all, not {:?}",
                tlb.size_ways
            ));
        }
        if !tlb.is_skewed() {
            return None;
        }
        let what = if given == 0 { "index skewed" } else { "size-ways" };
        // Each fill computes the set of each way.
        if ways > SEARCHED_WAYS {
            return Some(format!("{what} with {ways} ways: expected at most {SEARCHED_WAYS}"));
        }
        if tlb.replacement != Replacement::Lru {
            let name = tlb.replacement.name();
            return Some(format!("{what} with replacement {name}, which keeps an order of the ways of a set: use lru"));
        }
        let whole = self.host.is_none() && self.shadow.is_none() && tlb.joins.is_none() && !tlb.suits_perforated(self);
        (!whole || self.has_inclusive()).then(|| {
            format!("{what} is for entries of one whole page, without [host], [perforated], [shadow], joins and inclusive TLBs")
        })
    }

    fn check_perforated(&self) -> Result<(), String> {
        if self.perforated.is_none() {
            return Ok(());
        }
        let size = self.perforated_size().expect("the page table was checked");
        let base = self.pages.sizes[0];
        if !self.tlb.iter().any(|tlb| tlb.suits_perforated(self)) {
            return Err(format!("no TLB behind the first level holds pages of {base} and of {size}, as it must"));
        }
        if let Some(tlb) = self.tlb.iter().find(|tlb| tlb.holds_perforated(self) && tlb.joins.is_some()) {
            return Err(format!("tlb \"{}\" holds perforated pages, so it cannot have joins", tlb.name));
        }
        if self.host.as_ref().is_some_and(|host| host.page_table_bits.is_empty()) {
            return Err(
                "on a host whose tables walks do not go through it is not modelled: give [host] page-table-bits, as \
                        +nested does"
                    .into(),
            );
        }
        if self.has_inclusive() {
            return Err("it is for machines without inclusive TLBs".into());
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), String> {
        if self.range_tlb.is_none() {
            return Ok(());
        }
        if self.tlb_levels() < 2 {
            return Err("it is beside the last of several levels of TLBs, and this machine has one level".into());
        }
        if self.host.is_some() || self.perforated.is_some() || self.has_inclusive() {
            return Err("it is for machines without [host], [perforated] and inclusive TLBs".into());
        }
        Ok(())
    }

    fn check_table(&self, ladder: &Ladder) -> Result<(), (&'static str, String)> {
        let bits = &self.page_table.bits;
        if !(3..=MAX_WALK_LEVELS).contains(&bits.len()) {
            return Err(("page-table.bits", format!("expected 3 to {MAX_WALK_LEVELS} levels, not {}", bits.len())));
        }
        if let Some(wide) = bits.iter().find(|bits| !(1..=16).contains(*bits)) {
            return Err(("page-table.bits", format!("each level has 1 to 16 bits, not {wide}")));
        }
        let address = ladder.base().shift() + bits.iter().map(|bits| u32::from(*bits)).sum::<u32>();
        if address > ADDRESS_BITS {
            let base = ladder.base();
            let what =
                format!("with pages of {base} it translates {address} address bits, expected at most {ADDRESS_BITS}");
            return Err(("page-table.bits", what));
        }
        let kind = self.page_table.kind;
        let perforates = matches!(kind, TableKind::Perforated | TableKind::Nested);
        if (kind == TableKind::Perforated && self.perforated.is_none()) || (self.perforated.is_some() && !perforates) {
            return Err(kind_without_table("perforated", "[perforated]"));
        }
        if self.page_table.referenced == SetBy::Trap && !self.page_table.flush_referenced {
            let what = "the bit is set by a trap, for which a page must leave the TLBs: leave it out";
            return Err(("page-table.flush-referenced", what.into()));
        }
        self.check_clustered()?;
        self.check_groups()?;
        self.check_host(ladder)?;
        self.check_lines()?;
        let kind = if self.perforated.is_some() { TableKind::Perforated } else { kind };
        if let Some(why) = kind.unsuited(self) {
            return Err(("page-table.kind", why));
        }
        match kind.refuses(bits, ladder) {
            Some(why) => Err(("page-table.bits", why)),
            None => Ok(()),
        }
    }

    fn check_clustered(&self) -> Result<(), (&'static str, String)> {
        if (self.page_table.kind == TableKind::Clustered) != self.clustered.is_some() {
            return Err(kind_without_table("clustered", "[clustered]"));
        }
        let Some(Clustered { pages, buckets, .. }) = &self.clustered else { return Ok(()) };
        let most = 1u64 << self.page_table.bits[0];
        if !pages.is_power_of_two() || *pages > most {
            let what = format!(
                "expected a power of two, at most the {most} pages of the lowest level of page-table.bits, not {pages}"
            );
            return Err(("clustered.pages", what));
        }
        if !buckets.is_power_of_two() {
            return Err(("clustered.buckets", format!("expected a power of two, not {buckets}")));
        }
        if !self.walk_cache.is_empty() {
            return Err(("walk-cache", "clustered tables have no upper levels: remove them, walk-cache = []".into()));
        }
        Ok(())
    }

    /// Checks the line caches of machines with nested or perforated tables, or shadow addresses.
    /// Their lines lie far apart, so sets must have few enough ways to be searched.
    fn check_lines(&self) -> Result<(), (&'static str, String)> {
        let apart = matches!(self.page_table.kind, TableKind::Nested | TableKind::Perforated);
        let shadow = self.shadow.is_some();
        let mut caches = self.line_cache.iter().chain(self.instruction_cache.as_ref().filter(|_| shadow));
        let with = if shadow { "shadow addresses" } else { "nested or perforated tables" };
        match caches.find(|cache| (apart || shadow) && cache.ways > SEARCHED_WAYS) {
            Some(cache) => {
                Err(("line-cache", format!("with {with} \"{}\" has at most {SEARCHED_WAYS} ways", cache.name)))
            }
            None => Ok(()),
        }
    }

    /// Checks the host for two-dimensional walks.
    fn check_host(&self, ladder: &Ladder) -> Result<(), (&'static str, String)> {
        if let Some(host) = &self.host
            && host.page_table_bits.is_empty()
            && (host.nested_tlb > 0 || !host.walk_cache.is_empty())
        {
            return Err((
                "host",
                "nested-tlb and walk-cache are for walks through its tables: give page-table-bits".into(),
            ));
        }
        let within = |host: &Host| host.walk_cache.iter().any(|cache| cache.within.is_some());
        if self.host.as_ref().is_some_and(within) {
            return Err((
                "host.walk-cache",
                "in is for the walk caches of a machine, not for those of its host".into(),
            ));
        }
        let host = self.host.as_ref().filter(|host| !host.page_table_bits.is_empty());
        let (Some(host), TableKind::Nested) = (host, self.page_table.kind) else {
            if host.is_none() && self.page_table.kind != TableKind::Nested {
                return Ok(());
            }
            return Err(kind_without_table("nested", "[host] that has page-table-bits"));
        };
        let bits: u32 = host.page_table_bits.iter().map(|bits| u32::from(*bits)).sum();
        if bits < GUEST_BITS {
            let what =
                format!("{bits} bits of page numbers are not enough for the memory of a guest: at least {GUEST_BITS}");
            return Err(("host.page-table-bits", what));
        }
        let (lowest, widest) = (host.page_table_bits[0], host.page_table_bits.iter().copied().max().unwrap_or(0));
        if widest > lowest + 3 {
            let what = format!(
                "every table here has room for the widest, so a level has at most 3 bits more than the lowest, which has {lowest}"
            );
            return Err(("host.page-table-bits", what));
        }
        let mut alone = self.clone();
        (alone.host, alone.perforated) = (None, None);
        alone.page_table.kind = TableKind::Radix;
        alone.page_table.bits = host.page_table_bits.clone();
        alone.walk_cache = host.walk_cache.clone();
        if host.nested_tlb > MAX_WAYS {
            return Err(("host.nested-tlb", format!("at most {MAX_WAYS} entries, not {}", host.nested_tlb)));
        }
        alone.check_table(ladder).map_err(|(_, what)| ("host.page-table-bits", what))?;
        alone.check_caches().map_err(|(key, what)| ("host.walk-cache", format!("{key}: {what}")))
    }

    /// Checks that a TLB can hold entries of level 2 in place of a walk cache.
    fn check_within(&self, cache: &WalkCacheSpec, name: &str) -> Result<(), String> {
        self.tlb.iter().find(|tlb| tlb.name == name).ok_or("there is no such TLB")?;
        if cache.level != 2 {
            return Err(format!("only entries of level 2 are in a TLB, not those of level {}", cache.level));
        }
        if cache.entries > MAX_WAYS || (cache.entries == 0 && self.within(cache).is_none()) {
            return Err(format!(
                "it must be of the last level, with entries of one page, on a machine with radix or linear tables, without [host], [range-tlb], \
                 [shadow], joins, skewed and inclusive TLBs; or say with entries = N, at most {MAX_WAYS}, how many a cache of their own has then"
            ));
        }
        Ok(())
    }

    fn check_caches(&self) -> Result<(), (String, String)> {
        let mut seen = [false; MAX_WALK_LEVELS + 1];
        for cache in &self.walk_cache {
            let (level, top) = (cache.level, self.page_table.bits.len());
            let key = format!("walk-cache of level {level}");
            if level < 2 || level > top {
                return Err((key, format!("expected a level from 2 to {top}, those with pointers")));
            }
            if std::mem::replace(&mut seen[level], true) {
                return Err((key, "there are two; expected one".into()));
            }
            if let Some(name) = &cache.within {
                self.check_within(cache, name).map_err(|what| (key, format!("in \"{name}\": {what}")))?;
            } else if cache.entries == 0 || cache.entries > MAX_WAYS {
                return Err((key, format!("expected 1 to {MAX_WAYS} entries")));
            }
        }
        if self.line_cache.len() > MAX_LINE_LEVELS {
            return Err(("line-cache".into(), format!("expected at most {MAX_LINE_LEVELS} levels")));
        }
        let lines = self.line_cache.iter().map(|cache| ("line-cache", cache));
        for (table, cache) in lines.chain(self.instruction_cache.iter().map(|cache| ("instruction-cache", cache))) {
            let key = format!("{table} \"{}\"", cache.name);
            if cache.size > LINE_CACHE_BYTES {
                return Err((key, format!("size is at most 64G, not {} bytes", cache.size)));
            }
            if cache.ways > MAX_WAYS {
                return Err((key, format!("at most {MAX_WAYS} ways, not {}", cache.ways)));
            }
            let sets = cache.sets(self.memory.line_bytes);
            if sets == 0 || (sets * cache.ways) as u64 * self.memory.line_bytes != cache.size {
                return Err((
                    key,
                    format!("{} bytes are not a whole number of sets of {} ways", cache.size, cache.ways),
                ));
            }
            if let Some(why) = cache.replacement.refuses(cache.ways) {
                return Err((key, format!("replacement {}: {why}", cache.replacement.name())));
            }
        }
        Ok(())
    }
}

impl Disk {
    fn check(&self) -> Result<(), String> {
        match (self.near_seek_microseconds, self.capacity_bytes) {
            (None, None) => Ok(()),
            (Some(near), Some(_)) if near <= self.seek_microseconds => Ok(()),
            (Some(_), Some(_)) => {
                Err("near-seek-microseconds is more than seek-microseconds, those of the mean distance".into())
            }
            _ => Err("near-seek-microseconds and capacity-bytes go together: times by distance need both".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;

    #[test]
    fn page_tables_translate_at_most_64_bits() {
        for name in Machine::names() {
            Machine::builtin(name).unwrap();
        }
        let cove = include_str!("../machines/golden-cove.toml");
        let with = |bits: &str| Machine::parse(&cove.replace("[9, 9, 9, 9, 9]", bits), "test.toml");
        for bits in ["[16, 16, 16, 16, 16]", "[16, 16, 16, 16, 1]", "[16, 16, 16, 5]", "[13, 13, 13, 14]"] {
            let said = with(bits).unwrap_err().to_string();
            assert!(said.contains("page-table.bits: with pages of 4K it translates"), "{bits}: {said}");
        }
        for bits in ["[16, 16, 16, 2, 2]", "[12, 10, 10, 10, 10]"] {
            assert_eq!(with(bits).map(drop), Ok(()), "{bits}");
        }
    }

    #[test]
    fn a_disk_must_be_there_and_move_something() {
        let alpha = include_str!("../machines/alpha-21264.toml");
        let refused = |text: String| Machine::parse(&text, "test.toml").unwrap_err().to_string();
        let still = refused(alpha.replace("bytes-per-second = 25_000_000", "bytes-per-second = 0"));
        assert!(still.contains("disk.bytes-per-second: expected a number from 1"), "{still}");
        let near = |keys: &str| refused(alpha.replace("near-seek-microseconds = 5200\n", keys));
        assert!(near("").contains("go together"), "{}", near(""));
        assert!(near("near-seek-microseconds = 9001\n").contains("more than seek-microseconds"));
        let without = refused(alpha.split("[disk]").next().unwrap().into());
        assert!(without.contains("disk"), "{without}");
    }
}
