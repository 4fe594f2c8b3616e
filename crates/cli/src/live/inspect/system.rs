//! The system, as text.

use superpage_linux::inspect::{Rules, System, base_page_bytes};
use superpage_pages::PageSize;
use superpage_report::{bytes, count, grid};

/// All of it, with counts since the system started.
pub(super) fn text(system: &System) -> String {
    let mut out = String::new();
    for section in [free(system), unusable(system), pools(system), sizes(system), memory(system)] {
        out += &section;
        out.push('\n');
    }
    let rows = system.counters.iter().filter(|(_, n)| **n > 0);
    out + "Since the system started; counters that are 0 are left out\n"
        + &grid(&["counter", "count"], rows.map(|(name, n)| vec![name.clone(), count(*n)]), &["counter"])
}

/// The sections that a live view shows above the rates.
pub(super) fn sections(system: &System) -> Vec<String> {
    vec![free(system), unusable(system), pools(system), sizes(system)]
}

fn orders(system: &System) -> Vec<String> {
    let orders = system.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
    let base = base_page_bytes();
    (0..orders)
        .map(|order| PageSize::from_bytes(base << order).map_or(String::new(), |size| size.to_string()))
        .collect()
}

fn with_orders<'a>(first: &[&'a str], orders: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(orders.iter().map(String::as_str)).collect()
}

fn free(system: &System) -> String {
    let orders = orders(system);
    let rows = system.zones.iter().map(|zone| {
        let place = [zone.node.to_string(), zone.zone.clone(), bytes(zone.free_bytes())];
        place.into_iter().chain(zone.free_blocks.iter().map(|blocks| count(*blocks))).collect()
    });
    "Free blocks by size\n".to_string() + &grid(&with_orders(&["node", "zone", "free"], &orders), rows, &["zone"])
}

fn unusable(system: &System) -> String {
    let orders = orders(system);
    let rows = system.zones.iter().map(|zone| {
        let place = [zone.node.to_string(), zone.zone.clone()];
        let share = |order| zone.unusable(order).map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
        place.into_iter().chain((0..orders.len()).map(share)).collect()
    });
    "Fragmentation: free memory in blocks too small for an allocation of a size\n".to_string()
        + &grid(&with_orders(&["node", "zone"], &orders), rows, &["zone"])
}

fn pools(system: &System) -> String {
    if system.pools.is_empty() {
        return "No hugetlb pools: the kernel has none, or does not show them here\n".into();
    }
    let rows = system.pools.iter().map(|pool| {
        let numbers = [pool.pages, pool.free, pool.reserved, pool.surplus, pool.overcommit];
        std::iter::once(pool.size.to_string()).chain(numbers.map(count)).collect()
    });
    let head = ["size", "pages", "free", "reserved", "surplus", "surplus allowed"];
    "Pools of hugetlb pages\n".to_string() + &grid(&head, rows, &[])
}

fn sizes(system: &System) -> String {
    let Rules { enabled, defrag, shmem_enabled, sizes, shmem_sizes, max_ptes_none } = &system.rules;
    let word = |word: &Option<String>| word.clone().unwrap_or("absent".into());
    if enabled.is_none() {
        return "No transparent huge pages: the kernel has none, or does not show them here\n".into();
    }
    let none = max_ptes_none.map_or(String::new(), |pages| format!(", max_ptes_none={pages}"));
    let (enabled, defrag, shmem) = (word(enabled), word(defrag), word(shmem_enabled));
    let title = format!("Transparent huge pages: enabled={enabled}, defrag={defrag}, shmem_enabled={shmem}{none}\n");
    let stats = ["nr_anon", "anon_fault_alloc", "anon_fault_fallback", "shmem_alloc", "split", "swpout"];
    let rows = system.folios.iter().map(|(size, counted)| {
        let words = [sizes, shmem_sizes].map(|words| words.get(size).cloned().unwrap_or("-".into()));
        let counts = stats.iter().map(|name| counted.get(*name).map_or("-".into(), |n| count(*n)));
        std::iter::once(size.to_string()).chain(words).chain(counts).collect()
    });
    let head = ["size", "enabled", "shmem", "anon now", "faults", "fallbacks", "shmem allocs", "split", "swapped out"];
    title + &grid(&head, rows, &["enabled", "shmem"])
}

fn memory(system: &System) -> String {
    let rows = system.memory.iter().map(|(name, amount)| vec![(*name).to_string(), bytes(*amount)]);
    "Memory\n".to_string() + &grid(&["what", "bytes"], rows, &["what"])
}
