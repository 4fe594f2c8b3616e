//! A hash table that lives in a region, beside the same table in plain anonymous memory with huge
//! pages and without.
//!
//! `cargo run --release -p superpage-region --example hash_table [MEGABYTES [LIMIT_MEGABYTES
//! [SWAP_DIRECTORY]]]`

#[cfg(target_os = "linux")]
mod anonymous;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("regions are made on Linux only");
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::anonymous::Anonymous;
    use std::time::{Duration, Instant};
    use superpage_region::Region;

    const PAGE: usize = 4096;
    const BLOCK: usize = 2 << 20;

    /// Open addressing, one probe after the other; a key of 0 marks a free slot.
    struct HashTable<'a> {
        slots: &'a mut [[u64; 2]],
    }

    impl<'a> HashTable<'a> {
        /// An empty table in zeroed memory, of a power of two of bytes.
        fn new(memory: &'a mut [u8]) -> HashTable<'a> {
            // SAFETY: any bytes are two numbers.
            let (_, slots, _) = unsafe { memory.align_to_mut::<[u64; 2]>() };
            assert!(slots.len().is_power_of_two(), "the size of the table is a power of two");
            HashTable { slots }
        }

        fn slot(&mut self, key: u64) -> &mut [u64; 2] {
            let mask = self.slots.len() - 1;
            let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize & mask;
            while self.slots[at][0] != key && self.slots[at][0] != 0 {
                at = (at + 1) & mask;
            }
            &mut self.slots[at]
        }

        fn insert(&mut self, key: u64, value: u64) {
            *self.slot(key) = [key, value];
        }

        fn get(&mut self, key: u64) -> Option<u64> {
            let [found, value] = *self.slot(key);
            (found == key).then_some(value)
        }
    }

    struct Work {
        build: Duration,
        lookups: Duration,
    }

    /// Fills half of the table, then looks each key up, in another order, and as many that are not
    /// there.
    fn work(memory: &mut [u8]) -> Work {
        let mut table = HashTable::new(memory);
        let keys = table.slots.len() as u64 / 2;
        let begun = Instant::now();
        for key in 1..=keys {
            table.insert(key, key * key);
        }
        let build = begun.elapsed();
        let begun = Instant::now();
        for round in 0..2 * keys {
            // An odd factor goes once through all numbers below a power of two.
            let key = round.wrapping_mul(0x5851_f42d_4c95_7f2d) % (2 * keys) + 1;
            let expected = (key <= keys).then(|| key * key);
            assert_eq!(table.get(key), expected, "the table lost key {key}");
        }
        Work { build, lookups: begun.elapsed() }
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Microseconds a page to write the first byte of each.
    fn touch(memory: &mut [u8], step: usize) -> f64 {
        let begun = Instant::now();
        for page in memory.chunks_mut(step) {
            // SAFETY: the byte is in the slice; volatile, so that it is written.
            unsafe { std::ptr::write_volatile(&mut page[0], 1) };
        }
        begun.elapsed().as_secs_f64() * 1e6 / (memory.len() / step) as f64
    }

    pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
        let mut arguments = std::env::args().skip(1);
        let size = |text: Option<String>| text.map(|text| text.parse::<usize>().map(|mb| mb << 20)).transpose();
        let bytes = size(arguments.next())?.unwrap_or(256 << 20);
        if !bytes.is_power_of_two() {
            return Err(format!("a table of {} MB cannot be; name a power of two", bytes >> 20).into());
        }
        let limit = size(arguments.next())?;
        let swap_dir = arguments.next();
        let build = || {
            let mut builder = Region::builder().bytes(bytes).user_mode_only();
            if let Some(limit) = limit {
                builder = builder.limit(limit);
            }
            if let Some(directory) = &swap_dir {
                builder = builder.swap_dir(directory);
            }
            builder.build()
        };
        // One round for nothing: a virtual machine's memory may be cold.
        work(Anonymous::new(bytes, true)?.as_mut_slice());

        let (mut rows, mut last) = (vec![Vec::new(); 3], None);
        let lookups = (bytes / 16) as f64;
        for _ in 0..3 {
            let mut region = build()?;
            let mut huge = Anonymous::new(bytes, true)?;
            let mut base = Anonymous::new(bytes, false)?;
            for (row, memory) in
                [region.as_mut_slice(), huge.as_mut_slice(), base.as_mut_slice()].into_iter().enumerate()
            {
                let done = work(memory);
                rows[row].push((done.build.as_secs_f64() * 1e3, lookups / done.lookups.as_secs_f64() / 1e6));
            }
            last = Some(region.stats());
        }
        println!("a hash table of {} MB, half full; medians of 3 rounds\n", bytes >> 20);
        println!("{:<28} {:>10} {:>14}", "memory", "build, ms", "lookups, M/s");
        for (name, row) in ["region", "anonymous, huge pages", "anonymous, base pages"].into_iter().zip(&rows) {
            let (build, lookups) = row.iter().copied().unzip::<f64, f64, Vec<_>, Vec<_>>();
            println!("{name:<28} {:>10.0} {:>14.2}", median(build), median(lookups));
        }
        let stats = last.expect("there was a round");
        let mb = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        println!(
            "\nthe region: {:.0} MB resident, {:.0} MB held, {:.0} MB promoted ({:.0} MB in hardware), {} pages out, {} in",
            mb(stats.resident_bytes()),
            mb(stats.held_bytes()),
            mb(stats.promoted_bytes()),
            mb(stats.huge_bytes),
            stats.pages_out,
            stats.pages_in,
        );
        costs()?;
        Ok(())
    }

    /// What the operations cost, the kernel's own beside them.
    fn costs() -> Result<(), Box<dyn std::error::Error>> {
        const BYTES: usize = 64 << 20;
        const BLOCKS: f64 = (BYTES / BLOCK) as f64;
        let mut costs = vec![Vec::new(); 8];
        for _ in 0..5 {
            costs[0].push(touch(Anonymous::new(BYTES, false)?.as_mut_slice(), PAGE));
            costs[1].push(touch(Anonymous::new(BYTES, true)?.as_mut_slice(), BLOCK));
            let mut copied = Anonymous::new(BYTES, false)?;
            touch(copied.as_mut_slice(), PAGE);
            let begun = Instant::now();
            copied.collapse()?;
            costs[2].push(begun.elapsed().as_secs_f64() * 1e6 / BLOCKS);

            let mut region = Region::builder().bytes(BYTES).user_mode_only().build()?;
            costs[3].push(touch(region.as_mut_slice(), BLOCK));
            costs[4].push(touch(region.as_mut_slice(), PAGE));
            let stats = region.stats();
            costs[5].push(stats.message_nanoseconds as f64 / 1e3 / stats.manager.resident_pages as f64);
            costs[6].push(stats.collapse_nanoseconds as f64 / 1e3 / stats.collapses.max(1) as f64);
            costs[7].push(stats.reservation_nanoseconds as f64 / 1e3 / stats.reservations as f64);
        }
        let names = [
            "kernel: fault of a base page",
            "kernel: fault of a 2 MB page",
            "kernel: promotion to 2 MB, by copying (MADV_COLLAPSE)",
            "region: first fault of a block, its memory and reservation made",
            "region: a base page touched in order, promotions counted in",
            "region:   of that the pager",
            "region: promotion to 2 MB, in place",
            "region: a reservation of 2 MB, a huge page of zeroes",
        ];
        println!("\ncosts, in us each; medians of 5 rounds");
        for (name, cost) in names.into_iter().zip(costs) {
            println!("{name:<66} {:>8.1}", median(cost));
        }
        Ok(())
    }
}
