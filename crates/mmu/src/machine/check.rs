//! What a machine file must satisfy beyond its syntax, and the errors that say so.

use super::overlay::{self, label};
use super::{Clustered, Disk, Host, LineCacheSpec, Machine, SetBy, TlbSpec, WalkCacheSpec};
use crate::cache::{MAX_WAYS, SEARCHED_WAYS};
use crate::counters::{MAX_LINE_LEVELS, MAX_TLB_LEVELS, MAX_WALK_LEVELS};
use crate::lines::ENTRY_BYTES;
use crate::replacement::Replacement;
use crate::table::{MAX_TABLE_LEVELS, TableKind};
use superpage_pages::{Access, Ladder};

/// The most bits of an address that page tables translate: page numbers of base pages are shifted by what is left of it.
const ADDRESS_BITS: u32 = u64::BITS;

/// The bits of the page numbers of a guest's memory, with its tables.
const GUEST_BITS: u32 = 36;

/// Why a machine could not be made: one sentence with the file, the key and what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    pub(super) fn unknown(what: &str, name: &str, known: &[(&str, &str)]) -> MachineError {
        let known: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        MachineError(format!(
            "there is no built-in {what} \"{name}\"; take one of {}, or the path of a file of your own that ends in .toml",
            known.join(", ")
        ))
    }

    /// A file could not be read.
    pub fn unread(path: &str, why: impl std::fmt::Display) -> MachineError {
        MachineError(format!("machine file {path}: {why}"))
    }

    /// The value of a key is wrong.
    pub(super) fn of(origin: &str, key: &str, problem: &str) -> MachineError {
        MachineError(format!("{origin}: {key}: {problem}"))
    }

    pub(super) fn syntax(origin: &str, error: &toml::de::Error) -> MachineError {
        // The parser's message, on one line, without its drawing of the place.
        let place = error.to_string();
        let line = place.lines().next().and_then(|first| first.split("at ").nth(1)).map(|at| format!(" at {at}"));
        let message = in_words(error.message());
        MachineError(format!("{origin}{}: {message}", line.unwrap_or_default()))
    }

    /// The types of a file with overlays do not fit. Such an error knows no line: it names the key, and in a list the part.
    pub(super) fn types(origin: &str, file: &toml::Table, error: &toml::de::Error) -> MachineError {
        let whole = error.to_string();
        let key = whole.lines().last().and_then(|last| last.strip_prefix("in `")?.strip_suffix('`'));
        let list = key.and_then(|key| key.split('.').next()).unwrap_or_default();
        let parts = file.get(list).and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let problem = in_words(error.message());
        let Some(at) = parts.iter().position(|part| !fits(list, part)) else {
            let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
            return MachineError(format!("{origin}: {key}{problem}"));
        };
        let named = |part: &toml::Value| part.as_table().and_then(label).map(toml::Value::to_string);
        let name = named(&parts[at]).unwrap_or_else(|| "without a name".to_string());
        let without_joins = parts[at].as_table().cloned().map(|mut part| {
            part.remove("joins");
            toml::Value::Table(part)
        });
        if without_joins.is_some_and(|part| fits(list, &part)) {
            return MachineError(format!(
                "{origin}: [[{list}]] {name}: joins: {problem}; expected kind, pages and source, and \
                                         perhaps alike and prefetch"
            ));
        }
        if !problem.starts_with("missing field") {
            return MachineError(format!("{origin}: [[{list}]] {name}: {problem}"));
        }
        let others = parts.iter().enumerate().filter(|(index, _)| *index != at);
        let others: Vec<String> = others.filter_map(|(_, part)| named(part)).collect();
        let others = if others.is_empty() { "none".to_string() } else { others.join(", ") };
        MachineError(format!(
            "{origin}: [[{list}]] {name}: {problem}; one that the machine does not have is new, and must be \
             complete: it has {others}"
        ))
    }
}

/// A message of the parser on one line, with what serde says of types of Rust in words: of
/// "invalid type: string \"many\", expected u64", "\"many\" is not a whole number of 0 or more".
fn in_words(message: &str) -> String {
    let plain = message.replace('\n', ", ");
    let types = plain.strip_prefix("invalid type: ").or_else(|| plain.strip_prefix("invalid value: "));
    let Some((given, wanted)) = types.and_then(|types| types.rsplit_once(", expected ")) else { return plain };
    let most = |bits: u32| format!("a whole number from 0 to {}", u64::MAX >> (u64::BITS - bits));
    let wanted = match wanted {
        "u8" => most(8),
        "u16" => most(16),
        "u32" => most(32),
        "u64" | "usize" => "a whole number of 0 or more".to_string(),
        "f64" => "a number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a sequence" => "a list".to_string(),
        "a map" => "a table".to_string(),
        other if other.starts_with("struct ") => "a table".to_string(),
        other => other.to_string(),
    };
    let given = match (given.strip_prefix("string "), given.split_once('`')) {
        (Some(text), _) => text,
        (None, Some((_, value))) => value.trim_end_matches('`'),
        (None, None) if given == "sequence" => "a list",
        (None, None) if given == "map" => "a table",
        (None, None) => given,
    };
    format!("{given} is not {wanted}")
}

/// Whether a part of a list of a machine file has the keys and types that it should have.
fn fits(list: &str, part: &toml::Value) -> bool {
    let part = part.clone();
    match list {
        "tlb" => part.try_into::<TlbSpec>().is_ok(),
        "walk-cache" => part.try_into::<WalkCacheSpec>().is_ok(),
        "line-cache" => part.try_into::<LineCacheSpec>().is_ok(),
        _ => true,
    }
}

/// The tables of a file.
pub(super) fn table(text: &str, origin: &str) -> Result<toml::Table, MachineError> {
    toml::from_str(text).map_err(|error| MachineError::syntax(origin, &error))
}

/// The tables of a file, those within others too, each with what errors call it.
fn parts<'a>(label: &str, file: &'a toml::Table) -> Vec<(String, &'a toml::Table)> {
    let mut found = Vec::new();
    for (name, value) in file {
        let name = if label.is_empty() { name.clone() } else { format!("{label}.{name}") };
        let tables: Vec<(String, &toml::Table)> = match value {
            toml::Value::Table(table) => vec![(name, table)],
            toml::Value::Array(parts) => {
                let label = |part: &toml::Table| match overlay::label(part) {
                    Some(toml::Value::String(label)) => format!("{name}.{label}"),
                    Some(label) => format!("{name}.{label}"),
                    None => name.clone(),
                };
                parts.iter().filter_map(|part| part.as_table()).map(|part| (label(part), part)).collect()
            }
            _ => continue,
        };
        for (label, table) in tables {
            let within = parts(&label, table);
            found.push((label, table));
            found.extend(within);
        }
    }
    found
}

/// The values marked as assumed, read from the file's own tables so that no key is forgotten.
pub(super) fn assumed(file: &toml::Table, origin: &str) -> Result<Vec<(String, String)>, MachineError> {
    let mut found = Vec::new();
    for (label, table) in parts("", file) {
        let Some(toml::Value::Array(keys)) = table.get("assumed") else { continue };
        for key in keys.iter().filter_map(|key| key.as_str()) {
            let about = |key: &str| matches!(key, "source" | "assumed" | "name");
            let mut named = table.iter().filter(|(k, _)| if key == "all" { !about(k) } else { *k == key }).peekable();
            if named.peek().is_none() {
                let keys = table.keys().filter(|key| !about(key)).cloned().collect::<Vec<_>>().join(", ");
                return Err(MachineError(format!(
                    "{origin}: {label}.assumed names \"{key}\", which is not a key there; expected \"all\" \
                     or some of {keys}"
                )));
            }
            found.extend(named.map(|(key, value)| (format!("{label}.{key}"), value.to_string())));
        }
    }
    Ok(found)
}

/// Checks that names are names, and that sources say something.
pub(super) fn said(file: &toml::Table, origin: &str) -> Result<(), MachineError> {
    for (label, table) in std::iter::once((String::new(), file)).chain(parts("", file)) {
        let empty =
            |key: &&str| table.get(*key).and_then(toml::Value::as_str).is_some_and(|text| text.trim().is_empty());
        if let Some(key) = ["name", "description", "source"].into_iter().find(empty) {
            let what = match key {
                "source" => {
                    "it is empty; say where the values come from, and list those that nobody has published in assumed"
                }
                _ => "it is empty; expected some words",
            };
            return Err(MachineError::of(origin, format!("{label}.{key}").trim_start_matches('.'), what));
        }
    }
    Ok(())
}

impl Machine {
    /// Checks everything that the simulator assumes, beyond the ranges of single numbers.
    pub(super) fn check(&self, origin: &str) -> Result<(), MachineError> {
        let fail = |key: &str, what: String| Err(MachineError(format!("{origin}: {key}: {what}")));
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
            if let Some(why) = tlb.replacement.refuses(ways) {
                return fail(&key, format!("replacement {} with {ways} ways: {why}", tlb.replacement.name()));
            }
            if let Some(why) = self.refuses_skewed(tlb) {
                return fail(&key, why);
            }
            if let Some(why) = tlb.index.refuses(tlb.sets()) {
                return fail(&key, format!("index {} with {} sets: {why}", tlb.index.name(), tlb.sets()));
            }
            let inclusive = self.tlb.iter().any(|tlb| self.enclosed_by(tlb) != 0);
            if let Some(why) = tlb.joins.as_ref().and_then(|joins| joins.refuses(self, inclusive)) {
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
                let serving = |tlb: &&super::TlbSpec| tlb.sizes.contains(size) && tlb.serves.covers(access as usize);
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

    /// What is wrong with a TLB whose ways serve some sizes, or have sets of their own.
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
        (!whole || self.tlb.iter().any(|tlb| self.enclosed_by(tlb) != 0)).then(|| {
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
        match self.tlb.iter().any(|tlb| self.enclosed_by(tlb) != 0) {
            true => Err("it is for machines without inclusive TLBs".into()),
            false => Ok(()),
        }
    }

    fn check_ranges(&self) -> Result<(), String> {
        if self.range_tlb.is_none() {
            return Ok(());
        }
        if self.tlb_levels() < 2 {
            return Err("it is beside the last of several levels of TLBs, and this machine has one level".into());
        }
        if self.host.is_some() || self.perforated.is_some() || self.tlb.iter().any(|tlb| self.enclosed_by(tlb) != 0) {
            return Err("it is for machines without [host], [perforated] and inclusive TLBs".into());
        }
        Ok(())
    }

    fn check_table(&self, ladder: &Ladder) -> Result<(), (&'static str, String)> {
        let bits = &self.page_table.bits;
        if !(3..=MAX_TABLE_LEVELS).contains(&bits.len()) {
            return Err(("page-table.bits", format!("expected 3 to {MAX_TABLE_LEVELS} levels, not {}", bits.len())));
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
            return Err((
                "page-table.kind",
                "\"perforated\" goes with a table [perforated], and only with that; if a later overlay sets the kind, lay it on first".into(),
            ));
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
        match kind.refuses(bits, ladder) {
            Some(why) => Err(("page-table.bits", why)),
            None => Ok(()),
        }
    }

    fn check_clustered(&self) -> Result<(), (&'static str, String)> {
        if (self.page_table.kind == TableKind::Clustered) != self.clustered.is_some() {
            return Err((
                "page-table.kind",
                "\"clustered\" goes with a table [clustered], and only with that; if a later overlay sets the kind, lay it on first".into(),
            ));
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
        match self.walk_cache.is_empty() {
            true => Ok(()),
            false => Err(("walk-cache", "clustered tables have no upper levels: remove them, walk-cache = []".into())),
        }
    }

    /// What walks beyond the plain tables, and shadow addresses, need of the line caches: these lines lie far apart, and only sets of
    /// few ways take no more memory for that.
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

    /// What two-dimensional walks need of the host.
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
            return match host.is_some() == (self.page_table.kind == TableKind::Nested) {
                true => Ok(()),
                false => Err((
                    "page-table.kind",
                    "\"nested\" goes with a table [host] that has page-table-bits, and only with that; if a later overlay sets \
                     the kind, lay it on first"
                        .into(),
                )),
            };
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

    /// What a TLB must be that holds entries of level 2 in place of a walk cache.
    fn check_within(&self, cache: &WalkCacheSpec, name: &str) -> Result<(), String> {
        self.tlb.iter().find(|tlb| tlb.name == name).ok_or("there is no such TLB")?;
        if cache.level != 2 {
            return Err(format!("only entries of level 2 are in a TLB, not those of level {}", cache.level));
        }
        match cache.entries <= MAX_WAYS && (cache.entries > 0 || self.within(cache).is_some()) {
            true => Ok(()),
            false => Err(format!(
                "it must be of the last level, with entries of one page, on a machine with radix or linear tables, without [host], [range-tlb], \
                 [shadow], joins, skewed and inclusive TLBs; or say with entries = N, at most {MAX_WAYS}, how many a cache of their own has then"
            )),
        }
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
            if cache.size > super::range::LINE_CACHE_BYTES {
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
        let cove = include_str!("../../machines/golden-cove.toml");
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
        let alpha = include_str!("../../machines/alpha-21264.toml");
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
