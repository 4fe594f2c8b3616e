//! The effect of a policy on processes that run under it: what was requested, what is huge, and why
//! nothing is.

use super::MappingKind;
use super::mapping::{facts, name};
use super::process::tmpfs;
use crate::policy::{Aim, part};
use procfs::process::{MemoryMap, VmFlags};
use std::collections::BTreeMap;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::proc::maps::smaps;
use superpage_linux::proc::{disabled, status};
use superpage_linux::program;
use superpage_linux::rules::Rules;
use superpage_linux::scan;
use superpage_linux::why::{Why, words_of};
use superpage_pages::PageSize;

/// Below this share of the memory a policy counts as having had no effect.
const LEAST_EFFECT: f64 = 0.1;

/// The allocator interface that a program uses, judged by the libraries that it has mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// The C library of GNU, also linked statically, which reads `GLIBC_TUNABLES`. The program may
    /// nevertheless have its own allocator.
    Gnu,
    /// Another C library.
    Other,
    /// None: the program is linked statically.
    Static,
}

/// How much was requested and how much is huge of the anonymous memory of processes, in resident
/// bytes; of what several of them map, each has its proportional share.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reach {
    /// All of it.
    pub resident: u64,
    /// Mapped by huge pages, including those of a hugetlb pool.
    pub huge: u64,
    /// In mappings with the advice `MADV_HUGEPAGE`.
    pub advised: u64,
    /// From a hugetlb pool.
    pub hugetlb: u64,
    /// Code and files, which are not part of the rest and are not huge.
    pub files: u64,
    /// Shared memory that is not huge in some page table, counted in each: another process may have
    /// it as huge pages.
    pub shared: u64,
    /// Not huge because of the program or its mappings, and not because of settings or time: the
    /// first of [`TooSmall`](Why::TooSmall), [`Misaligned`](Why::Misaligned),
    /// [`Disabled`](Why::Disabled) and [`AdvisedAgainst`](Why::AdvisedAgainst) that applies to the
    /// mapping. Kinds are distinguished where the words differ: where memory is misaligned.
    pub left: BTreeMap<(Why, scan::Kind), u64>,
    /// The library that the process with most of this memory uses.
    pub library: Option<Library>,
}

impl Reach {
    /// Sums over processes; those that end meanwhile or may not be inspected are skipped. Reads
    /// `smaps` of each, which walks its page table: some 15 ms for a GB of base pages. Asks every
    /// few dozen microseconds whether to continue; if not, the result is partial.
    pub fn read(pids: &[i32], go_on: &dyn Fn() -> bool) -> Reach {
        let rules = Rules::default();
        let (mut sum, mut most) = (Reach::default(), 0);
        for pid in pids.iter().take_while(|_| go_on()) {
            let Ok(status) = status(*pid) else { continue };
            let Ok(smaps) = smaps(*pid as u32, go_on) else { continue };
            let (disabled, tmpfs) = (disabled(&status), tmpfs(*pid));
            let mut one = Reach::default();
            for map in &smaps {
                let facts = facts(map, &rules, disabled, &tmpfs);
                if matches!(facts.kind, MappingKind::Anonymous | MappingKind::SharedMemory | MappingKind::Hugetlb) {
                    let kind = |why| match (why, facts.mounted) {
                        (Why::Misaligned, true) => scan::Kind::Mounted,
                        (Why::Misaligned, false) => scan::Kind::Shared,
                        _ => scan::Kind::Anonymous,
                    };
                    let why = facts.why_of_mapping().map(|why| (why, kind(why)));
                    one.add(map, why, facts.kind == MappingKind::SharedMemory);
                } else if facts.kind == MappingKind::File {
                    let bytes = |key| map.extension.map.get(key).copied().unwrap_or(0);
                    one.files += proportional(map, bytes("Rss").saturating_sub(bytes("FilePmdMapped")));
                }
            }
            if one.resident > most {
                most = one.resident;
                let library = library(smaps.iter().map(|map| name(&map.pathname)));
                let is_gnu = library == Library::Static && program::is_static_gnu(*pid as u32);
                sum.library = Some(if is_gnu { Library::Gnu } else { library });
            }
            sum.merge(one);
        }
        sum
    }

    fn add(&mut self, map: &MemoryMap, why: Option<(Why, scan::Kind)>, shared: bool) {
        let sum = |keys: &[&str]| keys.iter().filter_map(|key| map.extension.map.get(*key)).sum::<u64>();
        let hugetlb = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
        let thp = proportional(map, sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]));
        let resident = proportional(map, sum(&["Rss"]));
        self.resident += resident + hugetlb;
        self.huge += thp + hugetlb;
        self.hugetlb += hugetlb;
        if map.extension.vm_flags.contains(VmFlags::HG) {
            self.advised += resident;
        }
        match why {
            _ if resident <= thp => {}
            Some(why) => *self.left.entry(why).or_default() += resident - thp,
            None => self.shared += if shared { resident - thp } else { 0 },
        }
    }

    fn merge(&mut self, other: Reach) {
        self.resident += other.resident;
        self.huge += other.huge;
        self.advised += other.advised;
        self.hugetlb += other.hugetlb;
        self.files += other.files;
        self.shared += other.shared;
        for (why, bytes) in other.left {
            *self.left.entry(why).or_default() += bytes;
        }
    }

    /// How much a policy with this aim reached, as far as it can be seen: folios are not in
    /// `smaps`.
    pub fn reached(&self, aim: Aim) -> u64 {
        match aim {
            Aim::Huge => self.huge,
            Aim::Folios => 0,
            Aim::Advised => self.advised,
            Aim::Hugetlb => self.hugetlb,
        }
    }

    /// Why a policy with this aim had no effect, or almost none, as a sentence without a full stop;
    /// `None` if it had, or if this cannot be seen. `rules` are the settings of the system.
    pub fn why_nothing(&self, aim: Aim, rules: &Rules) -> Option<String> {
        let reached = self.reached(aim);
        // A program with its own allocator asks the C library too, for a few things: Java's
        // compiler, say. And what Redis has before it disables huge pages may be huge.
        if reached as f64 > self.resident as f64 * LEAST_EFFECT || self.resident == 0 {
            return None;
        }
        // What most of the memory is left alone for, if that is most of it.
        let most = self.left(aim).max_by_key(|(_, bytes)| **bytes);
        if let Some((&(why, kind), bytes)) = most.filter(|(_, bytes)| **bytes > self.resident / 2) {
            let share = *bytes as f64 / self.resident as f64;
            // The rest may become huge: what is said of all must not be of a part.
            let of = if share < 0.95 { format!("{:.0} % of it: ", 100.0 * share) } else { String::new() };
            return Some(of + &words_of(why, kind, huge_size(), rules));
        }
        match reached {
            _ if !aim.asks() => None,
            // With `glibc.malloc.hugetlb=1` the C library advises only under enabled=madvise.
            _ if aim == Aim::Advised && rules.enabled.as_deref() == Some("always") => {
                Some("the C library asks for nothing where enabled=always".into())
            }
            _ if aim == Aim::Advised && self.huge as f64 > self.resident as f64 * LEAST_EFFECT => {
                Some("its memory is huge without advice, where the C library asks for nothing".into())
            }
            0 => Some(self.unasked().into()),
            some => Some(format!("{}, but for {}", self.unasked(), part(some, self.resident))),
        }
    }

    /// Why an allocator did not do what the tunables of the C library say.
    fn unasked(&self) -> &'static str {
        match self.library {
            Some(Library::Static) => "the allocator does not ask the C library: the program is linked statically",
            Some(Library::Other) => "the allocator does not ask the C library of GNU: the program has another one",
            _ => "the allocator does not ask the C library",
        }
    }

    /// The kinds of shared memory of which a tenth of all memory or more lies where no huge page
    /// fits.
    pub(crate) fn misplaced(&self) -> impl Iterator<Item = scan::Kind> {
        let much = |bytes: u64| bytes > 0 && bytes as f64 >= LEAST_EFFECT * self.resident as f64;
        let misaligned = self.left.iter().filter(move |((why, _), bytes)| *why == Why::Misaligned && much(**bytes));
        misaligned.map(|((_, kind), _)| *kind)
    }

    /// What a policy with this aim leaves alone: where no huge page fits, smaller folios may; and
    /// where shared memory lies concerns no allocator.
    fn left(&self, aim: Aim) -> impl Iterator<Item = (&(Why, scan::Kind), &u64)> {
        let of_any_size = |why: Why| matches!(why, Why::Disabled | Why::AdvisedAgainst);
        self.left.iter().filter(move |((why, kind), _)| match aim {
            Aim::Huge => true,
            Aim::Folios => of_any_size(*why),
            Aim::Advised | Aim::Hugetlb => *kind == scan::Kind::Anonymous,
        })
    }

    /// What a policy with this aim leaves alone and why, the largest first: reasons that apply to
    /// at least a hundredth of the memory.
    pub fn reasons(&self, aim: Aim, rules: &Rules) -> Vec<(u64, String)> {
        let size = huge_size();
        let files = Some((self.files, "code and files".to_string())).filter(|_| aim == Aim::Huge);
        let left = self.left(aim).map(|((why, kind), bytes)| (*bytes, words_of(*why, *kind, size, rules)));
        let mut reasons: Vec<(u64, String)> = left.chain(files).filter(|(bytes, _)| self.is_much(*bytes)).collect();
        reasons.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        reasons
    }

    /// Bytes of private memory that are not huge though nothing of the program forbids it, if they
    /// are at least a hundredth of all.
    pub fn rest(&self) -> Option<u64> {
        let rest = self.resident.saturating_sub(self.huge + self.shared + self.left.values().sum::<u64>());
        Some(rest).filter(|rest| *rest > 0 && self.is_much(*rest))
    }

    fn is_much(&self, bytes: u64) -> bool {
        bytes * 100 >= self.resident + self.files
    }
}

/// What falls to this process of resident bytes of a mapping, as `Pss` is to `Rss`: what processes
/// share counts once over them all. A hugetlb pool is in neither.
fn proportional(map: &MemoryMap, bytes: u64) -> u64 {
    let of = |key| map.extension.map.get(key).copied();
    match (of("Pss"), of("Rss")) {
        (Some(share), Some(all)) if all > 0 => (u128::from(bytes) * u128::from(share) / u128::from(all)) as u64,
        _ => bytes,
    }
}

pub(super) fn huge_size() -> PageSize {
    PageSize::from_bytes(huge_page_bytes()).expect("a power of two")
}

/// The C library among the names of mappings.
pub(super) fn library(names: impl Iterator<Item = String>) -> Library {
    let mut found = Library::Static;
    for name in names {
        let file = name.rsplit('/').next().unwrap_or_default();
        if file.starts_with("libc.so.6") || file.starts_with("libc-2.") {
            return Library::Gnu;
        }
        if name.starts_with('/') && (file.starts_with("ld-") || file.contains(".so")) {
            found = Library::Other;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_their_names() {
        let of = |names: &[&str]| library(names.iter().map(|name| name.to_string()));
        assert_eq!(of(&["/usr/bin/x", "/lib/ld-linux-x86-64.so.2", "/lib/libc.so.6"]), Library::Gnu);
        assert_eq!(of(&["/usr/bin/x", "/lib/ld-musl-x86_64.so.1"]), Library::Other);
        assert_eq!(of(&["/usr/bin/x", "[heap]", ""]), Library::Static);
    }

    #[test]
    fn what_came_to_nothing_says_why() {
        let (always, rules) = (Rules { enabled: Some("always".into()), ..Rules::default() }, Rules::default());
        let reach = Reach { resident: 100 << 20, library: Some(Library::Static), ..Reach::default() };
        let why = reach.why_nothing(Aim::Advised, &rules).unwrap();
        assert_eq!(why, "the allocator does not ask the C library: the program is linked statically");
        let half = Reach { advised: 50 << 20, ..reach.clone() };
        assert_eq!(half.why_nothing(Aim::Advised, &rules), None);
        // Java has its heap from the kernel, and little from the C library.
        let java = Reach { advised: 2 << 20, hugetlb: 4 << 20, library: Some(Library::Gnu), ..reach.clone() };
        let why = |aim| java.why_nothing(aim, &rules).unwrap();
        assert_eq!(why(Aim::Advised), "the allocator does not ask the C library, but for 2.00 of 100 MB");
        assert_eq!(why(Aim::Hugetlb), "the allocator does not ask the C library, but for 4.00 of 100 MB");
        assert_eq!(Reach { huge: 2 << 20, ..java.clone() }.why_nothing(Aim::Huge, &rules), None);
        let huge = Reach { huge: 90 << 20, ..reach.clone() };
        let why = huge.why_nothing(Aim::Advised, &always).unwrap();
        assert_eq!(why, "the C library asks for nothing where enabled=always");
        let own = |why| (why, scan::Kind::Anonymous);
        let left = [(own(Why::Disabled), 99 << 20), (own(Why::TooSmall), 100)].into();
        let redis = Reach { left, library: Some(Library::Gnu), ..reach };
        let begun = Reach { huge: 5 << 20, ..redis.clone() };
        assert_eq!(begun.why_nothing(Aim::Huge, &rules).unwrap(), "the process disabled huge pages by prctl");
        let node = Reach { left: [(own(Why::TooSmall), 80 << 20)].into(), ..redis.clone() };
        assert_eq!(node.why_nothing(Aim::Huge, &rules).unwrap(), "80 % of it: no aligned 2M in the mapping");
        assert_eq!(
            (node.why_nothing(Aim::Folios, &rules), node.reasons(Aim::Folios, &rules)),
            (None, vec![]),
            "64 KB may fit"
        );
        for aim in [Aim::Huge, Aim::Folios, Aim::Advised, Aim::Hugetlb] {
            assert_eq!(redis.why_nothing(aim, &rules).unwrap(), "the process disabled huge pages by prctl");
        }
        assert_eq!(redis.reasons(Aim::Huge, &rules).len(), 1);
        // No allocator has shared memory, so where that lies is not why it asks for nothing.
        let shared = [((Why::Misaligned, scan::Kind::Shared), 90 << 20)].into();
        let memfd = Reach { left: shared, ..redis.clone() };
        assert_eq!(memfd.why_nothing(Aim::Hugetlb, &rules).unwrap(), "the allocator does not ask the C library");
        assert!(memfd.why_nothing(Aim::Huge, &rules).unwrap().contains("modulo 2M"));
        // All but what is less than a hundredth has a reason.
        let mixed = Reach { huge: 60 << 20, files: 2 << 20, left: [(own(Why::TooSmall), 30 << 20)].into(), ..redis };
        let sizes: Vec<u64> = mixed.reasons(Aim::Huge, &rules).iter().map(|(bytes, _)| bytes >> 20).collect();
        assert_eq!((sizes, mixed.rest()), (vec![30, 2], Some(10 << 20)));
        assert_eq!(Reach { huge: 70 << 20, ..mixed }.rest(), None);
    }
}
