//! A random chase, each load's address from the load before, in a region and in plain anonymous
//! memory: once all of it is promoted, a region is as fast as the kernel's own huge pages. `cargo
//! bench -p superpage-region [-- MEGABYTES]`

#[cfg(target_os = "linux")]
#[path = "../examples/anonymous/mod.rs"]
mod anonymous;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use anonymous::Anonymous;
    let bytes = std::env::args().skip(1).find_map(|text| text.parse::<usize>().ok()).unwrap_or(256) << 20;
    let mut region = superpage_region::Region::builder().bytes(bytes).user_mode_only().build()?;
    let mut huge = Anonymous::new(bytes, true)?;
    let mut base = Anonymous::new(bytes, false)?;
    for memory in [region.as_mut_slice(), huge.as_mut_slice(), base.as_mut_slice()] {
        chase::cycle(memory);
    }
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..9 {
        for (row, memory) in [region.as_mut_slice(), huge.as_mut_slice(), base.as_mut_slice()].into_iter().enumerate() {
            times[row].push(chase::nanoseconds(memory));
        }
    }
    let stats = region.stats();
    println!(
        "chase over {} MB, medians of 9 interleaved rounds; {} MB of the region are huge",
        bytes >> 20,
        stats.huge_bytes >> 20
    );
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    for (name, time) in ["region", "anonymous, huge pages", "anonymous, base pages"].into_iter().zip(medians) {
        println!("{name:<24} {time:>8.2} ns a load, {:.3} of huge pages", time / medians[1]);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("regions are made on Linux only");
}

#[cfg(target_os = "linux")]
mod chase {
    use std::time::Instant;

    const LINE: usize = 64;
    const LOADS: usize = 2_000_000;

    fn words(memory: &mut [u8]) -> &mut [u64] {
        // SAFETY: any bytes are numbers.
        unsafe { memory.align_to_mut::<u64>() }.1
    }

    /// Makes one random cycle of all cache lines (Sattolo's algorithm), with the same seed for all.
    pub(crate) fn cycle(memory: &mut [u8]) {
        let words = words(memory);
        let lines = words.len() / (LINE / 8);
        let at = |line: usize| line * (LINE / 8);
        for line in 0..lines {
            words[at(line)] = line as u64;
        }
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for line in (1..lines).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            words.swap(at(line), at(state as usize % line));
        }
    }

    pub(crate) fn nanoseconds(memory: &mut [u8]) -> f64 {
        let words = words(memory);
        let (mut line, begun) = (0, Instant::now());
        for _ in 0..LOADS {
            line = words[line as usize * (LINE / 8)];
        }
        std::hint::black_box(line);
        begun.elapsed().as_nanos() as f64 / LOADS as f64
    }
}
