//! What a world starts from, drawn from a number: ladder, memory, swap space, policy.

use superpage_pages::{Ladder, Level, PageSize};
use superpage_vm::{Config, Policy};

/// Ladders with ratios from 2 to 128, one of base pages alone, two of real machines, all sizes that there can be, and those of
/// the Itanium.
const LADDERS: [&str; 9] = [
    "4K",
    "4K 8K 32K 128K",
    "4K 16K 32K 256K",
    "4K 64K",
    "4K 512K",
    "8K 64K 512K 4M",
    "4K 64K 2M",
    "4K 8K 16K 32K 64K 128K 256K 512K 1M 2M 4M 8M 16M 32M 64M 128M 256M 512M 1G",
    "4K 8K 16K 64K 256K 1M 4M 16M 64M 256M",
];
/// The most frames that count as a superpage: larger ones find no memory.
const LARGE: u64 = 1024;

/// The ladder of a size list such as `"4K 64K"`.
fn ladder(sizes: &str) -> Ladder {
    let sizes: Vec<PageSize> = sizes.split(' ').map(|size| size.parse().unwrap()).collect();
    Ladder::new(&sizes).unwrap()
}

/// Takes one of `count` equally likely choices from a number.
fn draw(left: &mut u128, count: usize) -> usize {
    let choice = (*left % count as u128) as usize;
    *left /= count as u128;
    choice
}

/// What a world starts from.
pub(crate) struct Setting {
    /// Of the memory manager.
    pub(crate) config: Config,
    /// The sizes that page tables have.
    pub(crate) mapped: Ladder,
    /// Whether the daemon comes when it is called, and not only when memory is full.
    pub(crate) daemon_comes: bool,
    /// Whether a process ends that finds no memory.
    pub(crate) ends: bool,
}

/// The setting of a world. `answers` picks the policy: one of those with a name, with about a fifth of its parameters drawn
/// anew. `frames` picks the size of memory: a few pages, or about what a half to four of the largest superpages take.
pub(crate) fn setting(ladder_number: u8, answers: u128, frames: u16) -> Setting {
    let ladder = ladder(LADDERS[ladder_number as usize % LADDERS.len()]);
    let mut left = answers;
    let (daemon_comes, ends) = (draw(&mut left, 2) == 0, draw(&mut left, 4) < 3);
    let swap_pages = [4000, 1000, 300, 5, 0][draw(&mut left, 5)];
    let names: Vec<&str> = Policy::names().collect();
    // The one in which most mechanisms are on comes twice as often.
    let name = names.get(draw(&mut left, names.len() + 1)).copied().unwrap_or("reservation");
    let superpages = ladder.sizes()[1..].iter().map(PageSize::to_string).collect::<Vec<_>>();
    let (mut policy, mut mapped) = (Policy::named(name).unwrap(), ladder);
    if name == "mthp" && !superpages.is_empty() {
        // One of the sizes, or all.
        let sizes = superpages.get(draw(&mut left, superpages.len() + 1));
        policy = format!("mthp:size={}", sizes.unwrap_or(&superpages.join("+"))).parse().unwrap();
    }
    // Page tables may lack a size.
    if (name == "mthp" || draw(&mut left, 8) == 0)
        && let Some(without) = ladder.sizes()[1..].get(draw(&mut left, superpages.len() + 1))
    {
        let left = ladder.sizes().iter().copied().filter(|size| size != without).collect::<Vec<_>>();
        mapped = Ladder::new(&left).unwrap();
    }
    for key in Policy::keys() {
        let values = key.values.len();
        // What hardly any policy with a name does: there all answers are equally likely.
        let own = if matches!(key.name, "hash" | "demote-on-write") { 0 } else { 4 * values };
        if let Some(value) = draw(&mut left, own + values).checked_sub(own) {
            policy.set(key.name, key.values[value]).unwrap();
        }
    }
    let large = ladder.pages(Level(ladder.len() as u8 - 1)).clamp(128, LARGE);
    let (size, more) = (frames % 8, u64::from(frames / 8 % 64));
    let frames = [1, large / 2, large, large * 3 / 2, 2 * large, 2 * large, 3 * large, 4 * large][size as usize] + more;
    Setting { config: Config { ladder, frames, policy, swap_pages }, mapped, daemon_comes, ends }
}
