//! A plan as a layout of Mosalloc's pools (Agbarya et al., MICRO 2020), as its repository
//! (technion-csl/mosalloc) reads them: a line for each pool's size, with -1 in place of a page's
//! size, and one for each range of huge pages in it.
//!
//! A region of the heap has its place in the pool `brk`, from the heap's start. Where an anonymous
//! mapping comes to lie in the pool `mmap` is not known from a recording: that takes the first gap
//! that fits, and only what the program maps through the C library's function after the library was
//! loaded.

use super::mappings::Mappings;
use std::ffi::OsString;
use std::ops::Range;

/// The only size of a plan's regions that it has.
pub(super) const SIZE: u64 = 2 << 20;

/// The command with the GNU C library's allocator set as Mosalloc sets it: all memory is from the
/// heap, of one arena, which neither shrinks nor grows ahead.
pub(super) fn command(command: &[OsString]) -> Vec<OsString> {
    let all = u64::MAX;
    let own = format!(
        "glibc.malloc.mmap_max=0:glibc.malloc.arena_max=1:glibc.malloc.top_pad=0:glibc.malloc.trim_threshold={all}"
    );
    let mut tunables = OsString::from("GLIBC_TUNABLES=");
    if let Some(before) = std::env::var_os("GLIBC_TUNABLES").filter(|before| !before.is_empty()) {
        tunables.push(before);
        tunables.push(":");
    }
    tunables.push(own);
    ["env".into(), tunables].into_iter().chain(command.iter().cloned()).collect()
}

/// The layout for these regions, and how many of them it has: those in the heap.
pub(super) fn layout(mappings: &Mappings, regions: &[u64]) -> (String, usize) {
    let Range { start, end } = mappings.heap;
    let mut inside: Vec<u64> = regions.iter().copied().filter(|region| (start..end).contains(region)).collect();
    inside.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for offset in inside.iter().map(|region| region - start) {
        match ranges.last_mut().filter(|last| last.end == offset) {
            Some(last) => last.end += SIZE,
            None => ranges.push(offset..offset + SIZE),
        }
    }
    let whole = |bytes: u64| bytes.div_ceil(SIZE) * SIZE;
    let heap = whole(end - start).max(ranges.last().map_or(0, |last| whole(last.end)));
    let (anonymous, files) = mappings.sums();
    let mut text = String::from("type,pageSize,startOffset,endOffset\n");
    for (pool, size) in [("mmap", whole(anonymous)), ("file", whole(files)), ("brk", heap)] {
        text += &format!("{pool},-1,0,{size}\n");
    }
    for Range { start, end } in &ranges {
        text += &format!("brk,{SIZE},{start},{end}\n");
    }
    (text, inside.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_the_heap_are_offsets_from_its_start() {
        let mut mappings = Mappings::default();
        mappings.map(0x7000_0000..0x7050_0000, 3, false);
        mappings.map(0x6000_0000..0x6000_1000, 1, true);
        mappings.grow(0x4000_3000..0x4100_0000);
        let regions = [0x4060_0000, 0x4000_0000, 0x4020_0000, 0x4040_0000, 0x40c0_0000, 0x7020_0000];
        let (text, inside) = layout(&mappings, &regions);
        // The first region begins before the heap, and the last is in a mapping.
        let lines = "type,pageSize,startOffset,endOffset\n\
            mmap,-1,0,6291456\nfile,-1,0,2097152\nbrk,-1,0,16777216\n\
            brk,2097152,2084864,8376320\nbrk,2097152,12570624,14667776\n";
        assert_eq!((text.as_str(), inside), (lines, 4));
    }
}
