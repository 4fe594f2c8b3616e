//! Faults: each page of a region touched for the first time, in order and at random, with
//! fault-around and without, beside the kernel's own faults of base pages on the same fill. `cargo
//! bench -p superpage-region --bench fill [-- MEGABYTES]`

#[cfg(target_os = "linux")]
#[path = "../examples/anonymous/mod.rs"]
mod anonymous;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("regions are made on Linux only");
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::env::args().skip(1).find_map(|text| text.parse::<usize>().ok()).unwrap_or(64) << 20;
    let pages = bytes / fill::PAGE;
    let mut random: Vec<usize> = (0..pages).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut random);
    for (name, order) in [("in order", (0..pages).collect()), ("at random", random)] {
        println!("{} MB touched {name}, medians of {} interleaved rounds", bytes >> 20, fill::ROUNDS);
        let mut rows: Vec<Vec<fill::Times>> = vec![Vec::new(); fill::WINDOWS.len() + 1];
        for _ in 0..fill::ROUNDS {
            for (row, window) in rows.iter_mut().zip(fill::WINDOWS) {
                row.push(fill::region(bytes, &order, window)?);
            }
            rows[fill::WINDOWS.len()].push(fill::anonymous(bytes, &order)?);
        }
        fill::print(&rows);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod fill {
    use super::anonymous::Anonymous;
    use std::time::Instant;
    use superpage_region::Region;

    pub(crate) const PAGE: usize = 4096;
    pub(crate) const ROUNDS: usize = 9;
    /// The most pages populated at a fault: 1 is without fault-around.
    pub(crate) const WINDOWS: [usize; 4] = [1, 16, 64, 512];

    /// Of one fill, for each page of it: microseconds in all, in the pager without reservations and
    /// promotions of 2 MB, and for these; and messages.
    #[derive(Clone, Copy)]
    pub(crate) struct Times {
        all: f64,
        pager: f64,
        reservations: f64,
        collapses: f64,
        messages: f64,
    }

    pub(crate) fn region(bytes: usize, order: &[usize], window: usize) -> Result<Times, Box<dyn std::error::Error>> {
        let policy = format!("reservation:hash=read,around={window}").parse()?;
        let mut region = Region::builder().bytes(bytes).policy(policy).user_mode_only().build()?;
        let all = touch(region.as_mut_slice(), order);
        let stats = region.stats();
        let page = |nanoseconds: u64| nanoseconds as f64 / 1e3 / order.len() as f64;
        Ok(Times {
            all,
            pager: page(stats.message_nanoseconds),
            reservations: page(stats.reservation_nanoseconds),
            collapses: page(stats.collapse_nanoseconds),
            messages: stats.messages as f64 / order.len() as f64,
        })
    }

    pub(crate) fn anonymous(bytes: usize, order: &[usize]) -> Result<Times, Box<dyn std::error::Error>> {
        let mut memory = Anonymous::new(bytes, false)?;
        Ok(Times {
            all: touch(memory.as_mut_slice(), order),
            pager: 0.0,
            reservations: 0.0,
            collapses: 0.0,
            messages: 0.0,
        })
    }

    /// Writes a byte of each page; microseconds a page.
    fn touch(memory: &mut [u8], order: &[usize]) -> f64 {
        let begun = Instant::now();
        order.iter().for_each(|page| memory[page * PAGE] = 1);
        begun.elapsed().as_nanos() as f64 / 1e3 / order.len() as f64
    }

    pub(crate) fn print(rows: &[Vec<Times>]) {
        for (index, times) in rows.iter().enumerate() {
            let median = |which: fn(&Times) -> f64| {
                let mut all: Vec<f64> = times.iter().map(which).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "{:<32} {:>7.2} us a page; in the pager {:.2}, reservations {:.2}, promotions {:.2}; {:.3} messages",
                WINDOWS.get(index).map_or("kernel, base pages".into(), |window| format!("region, window {window}")),
                median(|time| time.all),
                median(|time| time.pager),
                median(|time| time.reservations),
                median(|time| time.collapses),
                median(|time| time.messages),
            );
        }
    }
}
