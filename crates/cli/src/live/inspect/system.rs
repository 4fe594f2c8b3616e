//! The system, as text.

use superpage_linux::pagemap::base_page_bytes;
use superpage_linux::rules::Rules;
use superpage_live::inspect::System;
use superpage_pages::PageSize;
use superpage_report::{Column, Screen, Table, bytes, count};

/// All of the system, with counts since it started.
pub(super) fn text(system: &System, screen: Screen) -> String {
    let mut out = String::new();
    for section in sections(system, screen).into_iter().chain([memory(system, screen)]) {
        out += &section;
        out.push('\n');
    }
    let mut table = Table::new([Column::name("counter"), Column::number("count")]);
    let counted = system.counters.iter().filter(|(_, n)| **n > 0);
    counted.for_each(|(name, n)| table.row([name.clone(), count(*n)]));
    out + "Since the system started; counters that are 0 are left out\n" + &screen.table(&table)
}

/// The sections that a live view shows above the rates.
pub(super) fn sections(system: &System, screen: Screen) -> Vec<String> {
    vec![free(system, screen), unusable(system, screen), pools(system, screen), sizes(system, screen)]
}

fn orders(system: &System) -> Vec<String> {
    let orders = system.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
    let base = base_page_bytes();
    (0..orders)
        .map(|order| PageSize::from_bytes(base << order).map_or(String::new(), |size| size.to_string()))
        .collect()
}

/// A table of zones with one column per order.
fn by_order(system: &System, more: Option<&str>) -> Table {
    let first = std::iter::once(Column::name("zone")).chain(more.map(Column::number));
    Table::new(first.chain(orders(system).into_iter().map(Column::number)))
}

fn free(system: &System, screen: Screen) -> String {
    let mut table = by_order(system, Some("free"));
    for zone in &system.zones {
        let place = [format!("{} {}", zone.node, zone.zone), bytes(zone.free_bytes())];
        table.row(place.into_iter().chain(zone.free_blocks.iter().map(|blocks| count(*blocks))));
    }
    "Free blocks by size\n".to_string() + &screen.table_in_parts(&table)
}

fn unusable(system: &System, screen: Screen) -> String {
    let mut table = by_order(system, None);
    let orders = table.columns().len() - 1;
    for zone in &system.zones {
        let share = |order| zone.unusable(order).map_or("-".into(), |share| format!("{:.1}", 100.0 * share));
        table.row(std::iter::once(format!("{} {}", zone.node, zone.zone)).chain((0..orders).map(share)));
    }
    let title = "Fragmentation: percent of free memory in blocks too small for an allocation of a size";
    screen.paragraph(title) + &screen.table_in_parts(&table)
}

fn pools(system: &System, screen: Screen) -> String {
    if system.pools.is_empty() {
        return screen.paragraph("No hugetlb pools: the kernel has none, or does not show them here");
    }
    let head = ["size", "pages", "free", "reserved", "surplus", "surplus allowed"];
    let mut table = Table::new(head.map(Column::number));
    for pool in &system.pools {
        let numbers = [pool.pages, pool.free, pool.reserved, pool.surplus, pool.overcommit];
        table.row(std::iter::once(pool.size.to_string()).chain(numbers.map(count)));
    }
    "Pools of hugetlb pages\n".to_string() + &screen.table(&table)
}

fn sizes(system: &System, screen: Screen) -> String {
    let (_, temporary) = Rules::lasting(&superpage_linux::settings::System::live());
    let temporary = temporary.map_or(String::new(), |temporary| screen.note(&temporary.to_string()));
    let Rules { enabled, defrag, shmem_enabled, sizes, shmem_sizes, max_ptes_none } = &system.rules;
    let word = |word: &Option<String>| word.clone().unwrap_or("absent".into());
    if enabled.is_none() {
        return screen.paragraph("No transparent huge pages: the kernel has none, or does not show them here");
    }
    let none = max_ptes_none.map_or(String::new(), |pages| format!(", max_ptes_none={pages}"));
    let (enabled, defrag, shmem) = (word(enabled), word(defrag), word(shmem_enabled));
    let title = format!("Transparent huge pages: enabled={enabled}, defrag={defrag}, shmem_enabled={shmem}{none}");
    let stats = ["nr_anon", "anon_fault_alloc", "anon_fault_fallback", "shmem_alloc", "split", "swpout"];
    let mut table = Table::new([
        Column::number("size"),
        Column::name("enabled"),
        Column::name("shmem"),
        Column::number("anon now"),
        Column::number("faults"),
        Column::number("fallbacks"),
        Column::number("shmem allocs"),
        Column::number("split"),
        Column::number("swapped out").only_wide(),
    ]);
    for (size, counted) in &system.folios {
        let words = [sizes, shmem_sizes].map(|words| words.get(size).cloned().unwrap_or("-".into()));
        let counts = stats.iter().map(|name| counted.get(*name).map_or("-".into(), |n| count(*n)));
        table.row(std::iter::once(size.to_string()).chain(words).chain(counts));
    }
    screen.paragraph(&title) + &screen.table(&table) + &temporary
}

fn memory(system: &System, screen: Screen) -> String {
    let mut table = Table::new([Column::name("what"), Column::number("bytes")]);
    system.memory.iter().for_each(|(name, amount)| table.row([(*name).to_string(), bytes(*amount)]));
    "Memory\n".to_string() + &screen.table(&table)
}
