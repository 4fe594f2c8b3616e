//! The machines of the tests: those in the box, and made-up ones.

use crate::replacement;
use superpage_mmu::{Host, Index, JoinKind, Machine, Replacement, Serves, TableKind, TlbSpec, UseBit, Ways};
use superpage_pages::PageSize;

/// All machines in the box, and variants that they do not cover.
pub(crate) fn machines() -> Vec<Machine> {
    let mut machines: Vec<Machine> = Machine::names().map(|name| Machine::builtin(name).unwrap()).collect();
    for replacement in Replacement::ALL.iter().copied() {
        let (all, large, small, suits_lines) = replacement::shapes(replacement);
        let mut alpha = Machine::builtin("alpha-21264").unwrap();
        alpha.name = format!("alpha-21264 {}", replacement.name());
        for tlb in &mut alpha.tlb {
            (tlb.replacement, tlb.entries) = (replacement::at_level(replacement, tlb.level), all);
        }
        alpha.spaces.number_bits = 1;
        machines.push(alpha);
        // Set counts that are no powers of two, an inclusive second level, caches so small that all
        // of them evict.
        let mut odd = Machine::builtin("skylake-sp").unwrap();
        odd.name = format!("odd {}", replacement.name());
        for tlb in &mut odd.tlb {
            (tlb.replacement, tlb.index) = (replacement::at_level(replacement, tlb.level), Index::Low);
            if tlb.level == 2 {
                (tlb.entries, tlb.ways, tlb.inclusive) = (12 * large, Ways::Of(large), true);
            } else if tlb.name == "DTLB 4K" || small == large {
                (tlb.entries, tlb.ways) = (6 * small, Ways::Of(small));
            }
        }
        for (cache, size) in odd.line_cache.iter_mut().zip([1024, 6144, 7040]) {
            cache.size = size;
            cache.replacement = if suits_lines { replacement } else { Replacement::Lru };
        }
        (odd.line_cache[0].ways, odd.line_cache[1].ways) = (2, 4);
        for cache in &mut odd.walk_cache {
            cache.entries = 2;
        }
        machines.push(odd);
    }
    for (index, replacement) in [(Index::Xor, Replacement::Lru), (Index::Xor, Replacement::RoundRobin)] {
        machines.push(selecting(index, replacement, 32, 4));
    }
    let mut split = Machine::builtin("golden-cove").unwrap();
    split.name = "inclusive for data only".into();
    for tlb in &mut split.tlb {
        match tlb.level {
            1 => (),
            _ => (tlb.serves, tlb.inclusive, tlb.entries) = (Serves::Data, true, 64),
        }
    }
    split.walk_cache.retain(|cache| cache.level == 3);
    split.line_cache.clear();
    machines.push(split);
    // Many ways, and many TLBs for one page.
    let mut wide = Machine::builtin("golden-cove").unwrap();
    wide.name = "three levels".into();
    let mut third = wide.tlb.iter().find(|tlb| tlb.name == "STLB 4K").unwrap().clone();
    third.sizes = wide.pages.sizes.clone();
    (third.level, third.entries, third.ways) = (3, 5 * 700, Ways::Of(700));
    for tlb in &mut wide.tlb {
        (tlb.entries, tlb.ways) = if tlb.level == 1 { (8, Ways::Full) } else { (300, Ways::Full) };
    }
    wide.tlb.push(third);
    machines.push(wide);
    // Levels of other widths, so that nodes take less than a page, or several.
    let mut uneven = Machine::builtin("alpha-21264").unwrap();
    (uneven.name, uneven.page_table.bits) = ("uneven linear".into(), vec![11, 9, 12]);
    machines.push(uneven);
    let mut uneven = Machine::builtin("zen4").unwrap();
    (uneven.name, uneven.page_table.bits) = ("uneven radix".into(), vec![10, 8, 11, 3]);
    machines.push(uneven);
    machines.extend(ladders());
    machines.extend(fractured(&machines));
    machines.extend(joined());
    machines.extend(perforated());
    machines.extend(virtualised());
    machines.extend(nested());
    machines.extend(clustered());
    machines.extend(ranged());
    machines.extend(of_few_spaces());
    machines.extend(skewed());
    machines.extend(pointing());
    machines.extend(victima());
    machines
}

/// Guests whose walks are two-dimensional: hosts with larger pages and with smaller ones, of more
/// levels and of fewer, with all caches and with none.
pub(crate) fn nested() -> Vec<Machine> {
    let of = |name: &str| Machine::builtin(name).unwrap();
    let mut machines: Vec<Machine> =
        ["zen5+nested", "skylake-sp+nested-2m", "neoverse-v2+nested", "zen4+nested-2m"].map(of).into();
    for (index, machine) in machines.iter_mut().enumerate() {
        let host = machine.host.as_mut().unwrap();
        match index {
            1 => (host.page_table_bits, host.nested_tlb) = (vec![12, 12, 12], 3),
            2 => host.backs_by = Some("64K".parse().unwrap()),
            3 => {
                (host.nested_tlb, host.walk_cache) = (0, Vec::new());
                machine.walk_cache.clear();
            }
            _ => (),
        }
        if let [_, _, _, level] = &mut host.walk_cache[..] {
            level.entries = 1;
        }
        if index == 1 {
            host.walk_cache.retain(|cache| cache.level < 4);
        }
        machine.name.push_str(&format!(" {index}"));
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.entries = 8 * tlb.ways());
    }
    machines
}

/// TLBs that keep entries of few spaces, each level of another number: with rows and without,
/// joined entries, perforated pages, inclusive levels, on a host with smaller pages.
fn of_few_spaces() -> Vec<Machine> {
    let names = ["zen5", "skylake-sp+perforated", "neoverse-v2+fractured", "skylake-sp+colt", "golden-cove"];
    let mut machines = names.map(|name| Machine::builtin(name).unwrap());
    for (number, machine) in machines.iter_mut().enumerate() {
        machine.name.push_str(" of few spaces");
        for tlb in &mut machine.tlb {
            tlb.spaces = Some(if tlb.level == 1 { 1 + number % 2 } else { 1 + number % 3 });
            tlb.inclusive = number == 4 && tlb.level == 2;
        }
    }
    machines.into()
}

/// TLBs that hold pointers to tables: for data and for all, of base pages and of several sizes,
/// with few entries, of few spaces, with pages of several entries.
fn pointing() -> Vec<Machine> {
    let of = |(name, within, sets): (&str, &str, usize)| {
        let mut machine = Machine::builtin(name).unwrap();
        machine.name = format!("{name} with pointers in {within}");
        let cache = machine.walk_cache.iter_mut().find(|cache| cache.level == 2).unwrap();
        (cache.entries, cache.within) = (0, Some(within.into()));
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1 && sets > 0).for_each(|tlb| tlb.entries = sets * tlb.ways());
        machine
    };
    [
        ("zen5", "L2 DTLB", 0),
        ("zen4+contiguous", "L2 DTLB", 0),
        ("skylake-sp", "STLB", 4),
        ("golden-cove", "STLB 4K", 0),
        ("golden-cove+lru", "STLB 1G", 8),
    ]
    .map(of)
    .into()
}

/// Blocks of translations in a second line cache that holds few or many: with few spaces' numbers
/// and many, mappings of several entries, joined base pages, ranges and inclusive TLBs before them,
/// lines of other sizes, any replacement.
pub(crate) fn victima() -> Vec<Machine> {
    let of = |(name, size, ways): (&str, u64, usize)| {
        let mut machine = Machine::builtin(&format!("{name}+victima")).unwrap();
        machine.name = format!("{name} with blocks in {size} bytes");
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.entries = 16 * tlb.ways());
        let caches = machine.line_cache.iter_mut().zip([(1 << 10, 2), (size, ways), (2 * size, ways)]);
        caches.for_each(|(cache, shape)| (cache.size, cache.ways) = shape);
        machine
    };
    let mut machines: Vec<Machine> = [
        ("zen5", 2 << 10, 2),
        ("golden-cove", 64 << 10, 4),
        ("neoverse-v2+contiguous", 4 << 10, 4),
        ("skylake-sp+colt", 8 << 10, 8),
        ("zen4+range", 3 << 10, 4),
        ("zen5+tailored", 4 << 10, 2),
        ("golden-cove+lru", 1 << 20, 64),
    ]
    .map(of)
    .into();
    machines[0].spaces.number_bits = 0;
    machines[1].spaces.number_bits = 1;
    machines[2].memory.line_bytes = 128;
    machines[3].line_cache[1].replacement = Replacement::Random;
    machines[4].memory.line_bytes = 32;
    machines[6].tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.inclusive = true);
    machines
}

/// Skewed TLBs: of two sizes and of five, with ways of their own for each size and with all, in the
/// first level too, with ranges beside them, of few spaces; and with the sizes' ways alone.
fn skewed() -> Vec<Machine> {
    let of = |(name, index, share): (&str, Index, usize)| {
        let mut machine = Machine::builtin(name).unwrap();
        machine.name = format!("{name} {} {share}", index.name());
        for (number, tlb) in machine.tlb.iter_mut().enumerate().filter(|(_, tlb)| tlb.level > 1 || share % 2 == 1) {
            let ways = 2 * share.max(2) * tlb.sizes.len();
            (tlb.index, tlb.replacement, tlb.ways, tlb.entries) = (index, Replacement::Lru, Ways::Of(ways), 16 * ways);
            tlb.spaces = (share == 3).then_some(2);
            // Of some ways no size has any.
            tlb.size_ways = (0..tlb.sizes.len() * share.min(1)).map(|at| share + (at + number) % 2).collect();
        }
        machine
    };
    [
        ("zen5", Index::Skewed, 4),
        ("zen5", Index::Low, 3),
        ("neoverse-v2+contiguous", Index::Skewed, 1),
        ("skylake-sp+range", Index::Skewed, 0),
        ("golden-cove+clustered", Index::Xor, 2),
        ("alpha-21264", Index::Skewed, 1),
    ]
    .map(of)
    .into()
}

/// Range TLBs, of few entries: beside second levels of one TLB and of several, with joined entries,
/// beside a third level.
pub(crate) fn ranged() -> Vec<Machine> {
    let of = |(name, entries): (&str, usize)| {
        let mut machine = Machine::builtin(&format!("{name}+range")).unwrap();
        machine.name = format!("{name} with {entries} ranges");
        machine.range_tlb.as_mut().unwrap().entries = entries;
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.entries = 4 * tlb.ways());
        machine
    };
    let mut machines: Vec<Machine> = [
        ("zen5", 3),
        ("skylake-sp", 1),
        ("golden-cove", 2),
        ("neoverse-v2+partial-subblock", 3),
        ("harpertown+clustered-subblock", 2),
        ("skylake-sp+colt", 4),
    ]
    .map(of)
    .into();
    // A third level, behind which the ranges are then.
    let mut third = machines[0].tlb.iter().find(|tlb| tlb.level == 2).unwrap().clone();
    (third.level, third.name) = (3, "third".into());
    machines[0].tlb.push(third);
    machines
}

/// Clustered page tables: of many pages a block, of few and of one, with partial subblocks and
/// without, with pages larger and smaller than a block, on guests, with short chains and long ones.
fn clustered() -> Vec<Machine> {
    let of = |(name, pages, buckets, partial): (&str, u64, u64, bool)| {
        let mut machine = Machine::builtin(&format!("{name}+clustered")).unwrap();
        let table = machine.clustered.as_mut().unwrap();
        (table.pages, table.buckets, table.partial_subblock) = (pages, buckets, partial);
        machine.name = format!("{name} with nodes of {pages} in {buckets} buckets, partial subblocks: {partial}");
        machine.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.entries = 8 * tlb.ways());
        machine
    };
    let mut machines: Vec<Machine> = [
        ("zen5", 16, 4096, true),
        ("neoverse-v2", 16, 4096, false),
        ("alpha-21264", 4, 8, true),
        ("harpertown", 1, 1024, false),
        ("harpertown", 64, 1, true),
        ("alpha-21264+partial-subblock", 16, 64, true),
        ("harpertown+fractured", 8, 128, false),
    ]
    .map(of)
    .into();
    machines[1].line_cache.clear();
    let sizes = &mut machines[4].pages.sizes;
    sizes.insert(1, "32K".parse().unwrap());
    machines[4]
        .tlb
        .iter_mut()
        .filter(|tlb| tlb.sizes[0] == "4K".parse().unwrap())
        .for_each(|tlb| tlb.sizes.push("32K".parse().unwrap()));
    machines
}

/// Guests with perforated pages, whichever overlay is laid first, on hosts with pages that are
/// smaller, as large, and larger; large TLBs and small ones; all caches and none.
fn virtualised() -> Vec<Machine> {
    let of = |(name, by): (&str, &str)| {
        let mut machine = Machine::builtin(name).unwrap();
        machine.host.as_mut().unwrap().backs_by = Some(by.parse().unwrap());
        machine.name = format!("{name} on pages of {by}");
        machine
    };
    let mut machines: Vec<Machine> = [
        ("zen5+nested+perforated", "4K"),
        ("skylake-sp+perforated+nested-2m", "2M"),
        ("zen4+nested-2m+perforated", "1G"),
        ("neoverse-v2+perforated+nested", "64K"),
        ("skylake-sp+nested-2m+perforated", "2M"),
    ]
    .map(of)
    .into();
    for tlb in machines.iter_mut().skip(2).flat_map(|machine| &mut machine.tlb).filter(|tlb| tlb.level > 1) {
        tlb.entries = 4 * tlb.ways();
    }
    let host = machines[4].host.as_mut().unwrap();
    (host.nested_tlb, host.walk_cache) = (0, Vec::new());
    machines[4].walk_cache.clear();
    machines
}

/// Page tables with perforated pages: few holes and many, large TLBs and small ones, several walk
/// caches and none.
fn perforated() -> Vec<Machine> {
    let of = |(name, holes): (&str, u32)| {
        let mut machine = Machine::builtin(&format!("{name}+perforated")).unwrap();
        machine.name = format!("{name} with at most {holes} % holes");
        machine.perforated.as_mut().unwrap().most_holes_percent = holes;
        machine
    };
    let mut machines: Vec<Machine> =
        [("zen5", 50), ("skylake-sp", 25), ("neoverse-v2", 60), ("skylake-sp", 0), ("zen4", 50)].map(of).into();
    for tlb in machines.iter_mut().skip(1).flat_map(|machine| &mut machine.tlb).filter(|tlb| tlb.level > 1) {
        tlb.entries = 4 * tlb.ways();
    }
    machines[4].walk_cache.clear();
    machines
}

/// TLBs whose entries hold several base pages: each kind, on one set and on many, in one level and
/// in two, with and without the rules on use bits.
fn joined() -> Vec<Machine> {
    let overlays = ["coalescing", "coalescing-32k", "colt", "partial-subblock", "complete-subblock"];
    let of = |name: &str| overlays.map(|overlay| Machine::builtin(&format!("{name}+{overlay}")).unwrap());
    let mut machines: Vec<Machine> = ["zen5", "skylake-sp", "neoverse-v2", "alpha-21264"].map(of).concat();
    for (index, machine) in machines.iter_mut().enumerate() {
        let joins = machine.tlb.iter_mut().enumerate().filter_map(|(tlb, spec)| Some((tlb, spec.joins.as_mut()?)));
        for (tlb, joins) in joins {
            let subblock = matches!(joins.kind, JoinKind::PartialSubblock | JoinKind::CompleteSubblock);
            joins.prefetch = !subblock || index % 2 == 0;
            if joins.kind != JoinKind::CompleteSubblock {
                // Not the same in all of them.
                joins.alike = match (index / 5 + tlb) % 4 {
                    0 => vec![UseBit::Referenced, UseBit::Dirty],
                    1 => vec![UseBit::Dirty],
                    _ => vec![],
                };
            }
        }
        if index >= 5 {
            machine.name.push_str(" with some rules");
            let sets = |tlb: &TlbSpec| if tlb.ways == Ways::Full { 24 } else { 16 * tlb.ways() };
            machine
                .tlb
                .iter_mut()
                .filter(|tlb| tlb.level > 1 || tlb.entries > 100)
                .for_each(|tlb| tlb.entries = sets(tlb));
        }
        if index % 5 == 3 {
            machine.tlb.iter_mut().for_each(|tlb| tlb.replacement = Replacement::Random);
        }
    }
    machines
}

/// A machine all of whose TLBs have this index and replacement: eight sets in the first level,
/// which the pages of all sizes share, and `sets` in the second.
pub(crate) fn selecting(index: Index, replacement: Replacement, sets: usize, ways: usize) -> Machine {
    let mut machine = Machine::builtin("neoverse-v2").unwrap();
    machine.name = format!("{} {} {sets} x {ways}", index.name(), replacement.name());
    for tlb in &mut machine.tlb {
        let sets = if tlb.level == 1 { 8 } else { sets };
        let replacement = replacement::at_level(replacement, tlb.level);
        (tlb.index, tlb.replacement, tlb.entries, tlb.ways) = (index, replacement, sets * ways, Ways::Of(ways));
    }
    machine
}

/// Ladders of many sizes: all powers of two from 4 KB to 1 GB, where TLBs hold all and where each
/// holds some, those of the Itanium in one TLB, and all that one table of the Alpha holds.
fn ladders() -> Vec<Machine> {
    let tailored =
        ["zen5", "golden-cove", "harpertown"].map(|name| Machine::builtin(&format!("{name}+tailored")).unwrap());
    let with = |name: &str, of: &str, sizes: Vec<PageSize>| {
        let mut machine = Machine::builtin(of).unwrap();
        machine.tlb.iter_mut().for_each(|tlb| tlb.sizes.clone_from(&sizes));
        (machine.name, machine.pages.sizes) = (name.into(), sizes);
        machine
    };
    let itanium = "4K 8K 16K 64K 256K 1M 4M 16M 64M 256M".split(' ').map(|size| size.parse().unwrap()).collect();
    let powers = (13..=23).map(|shift| PageSize::from_shift(shift).unwrap()).collect();
    let mut ten = with("ten sizes", "neoverse-v2", itanium);
    ten.tlb.iter_mut().for_each(|tlb| (tlb.entries, tlb.ways) = (12 * tlb.level, Ways::Of(4)));
    tailored.into_iter().chain([ten, with("linear, eleven sizes", "alpha-21264", powers)]).collect()
}

/// Guests of hosts with smaller pages: of one set and of many, linear and radix tables, inclusive
/// levels, TLBs apart for each size.
fn fractured(metal: &[Machine]) -> Vec<Machine> {
    let hosts = [
        ("zen4", None),
        ("golden-cove", None),
        ("golden-cove", Some("2M")),
        ("neoverse-v2", Some("64K")),
        ("alpha-21264", None),
        ("odd lru", None),
        ("odd random", Some("2M")),
        ("three levels", None),
        ("xor lru 32 x 4", None),
        ("xor round-robin 32 x 4", Some("64K")),
        ("zen5+tailored", Some("32K")),
    ];
    let guest = |(name, size): (&str, Option<&str>)| {
        let mut guest = metal.iter().find(|machine| machine.name == name).unwrap().clone();
        guest.name = format!("{name} on a host with pages of {}", size.unwrap_or("the base size"));
        guest.host = Some(Host { backs_by: size.map(|size| size.parse().unwrap()), ..Host::default() });
        guest
    };
    hosts.map(guest).into()
}

/// The same but for the index of its TLBs, where it can have another.
pub(crate) fn with_another_index(machine: &Machine) -> Machine {
    let mut other = machine.clone();
    for tlb in other.tlb.iter_mut().filter(|tlb| tlb.sets().is_power_of_two()) {
        tlb.index = match tlb.index {
            Index::Low => Index::Xor,
            Index::Xor => Index::Low,
            Index::Skewed => Index::Skewed,
        };
    }
    other
}

/// The same but for a smaller second level, if there is one, and smaller caches of the walker: it
/// is behind the same first level.
pub(crate) fn with_another_second_level(machine: &Machine) -> Machine {
    let mut other = machine.clone();
    for tlb in other.tlb.iter_mut().filter(|tlb| tlb.level > 1) {
        (tlb.entries, tlb.ways, tlb.replacement, tlb.inclusive) = (12, Ways::Of(4), Replacement::Lru, false);
        (tlb.index, tlb.size_ways) = (Index::Low, Vec::new());
    }
    other.walk_cache.iter_mut().for_each(|cache| cache.entries = 1);
    other.line_cache.truncate(fewest_lines(machine));
    other
}

/// The line caches that it needs.
fn fewest_lines(machine: &Machine) -> usize {
    if machine.page_table.kind == TableKind::Victima { 2 } else { 1 }
}

/// The same but for smaller caches of the walker: it is behind the same TLBs.
pub(crate) fn with_another_walker(machine: &Machine) -> Machine {
    let mut other = machine.clone();
    other.walk_cache.iter_mut().for_each(|cache| cache.entries = cache.entries.min(2));
    if let Some(host) = &mut other.host {
        host.nested_tlb = host.nested_tlb.min(2);
        host.walk_cache.iter_mut().for_each(|cache| cache.entries = 1);
    }
    other.line_cache.truncate(fewest_lines(machine));
    other
}

/// The same but for its costs: all that is counted is the same.
pub(crate) fn with_other_costs(machine: &Machine) -> Machine {
    let mut other = machine.clone();
    other.name.push_str(", dear");
    other.memory.latency_cycles += 100;
    other.costs.fault *= 2;
    other.tlb.iter_mut().filter(|tlb| tlb.level > 1).for_each(|tlb| tlb.hit_cycles += 3);
    other.line_cache.iter_mut().for_each(|cache| cache.hit_cycles += 1);
    other
}
