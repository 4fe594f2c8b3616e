//! What `superpage compare` itself costs, and how often it tells apart what is the same.
//!
//! The command is this program again, which works for about a second on some memory. `overhead`
//! runs it in turns under compare and alone, by a bare fork and wait, and gives the ratio of the
//! times with its interval, and the processor time that compare takes for itself. `identical`
//! compares a policy with itself again and again, and counts how often a difference is found.
//!
//!     cargo run --release -p superpage-live --example compare_itself -- overhead 20
//!     cargo run --release -p superpage-live --example compare_itself -- identical 20

#[cfg(target_os = "linux")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let number = arguments.next().and_then(|number| number.parse().ok());
    match (what.as_str(), number) {
        ("overhead", Some(rounds)) => live::overhead(rounds),
        ("identical", Some(tries)) => live::identical(tries),
        ("work", Some(steps)) => live::work(steps),
        _ => {
            eprintln!("usage: compare_itself overhead ROUNDS | identical TRIES");
            std::process::exit(2);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this compares policies of Linux");
}

#[cfg(target_os = "linux")]
mod live {
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::Instant;
    use superpage_live::compare::statistics::{Ratio, Spread, order};
    use superpage_live::compare::{Options, Row, compare};

    /// Touches 64 MB and then walks through them in a random cycle.
    pub(super) fn work(steps: u64) {
        let mut next: Vec<u32> = (0..16 << 20).collect();
        let mut random = fastrand::Rng::with_seed(1);
        // Sattolo's shuffle makes one cycle of all.
        for i in (1..next.len()).rev() {
            next.swap(i, random.usize(..i));
        }
        let mut at = 0;
        for _ in 0..steps {
            at = next[at as usize];
        }
        println!("{at}");
    }

    fn command(steps: u64) -> [String; 3] {
        let program = std::env::current_exe().expect("this program has a path");
        [program.to_str().expect("of text").into(), "work".into(), steps.to_string()]
    }

    /// One run of the command as it is, as compare times it, with the whole row.
    fn compared(options: &Options) -> Vec<Row> {
        match compare(options, &Arc::default(), &mut ()) {
            Ok(comparison) => comparison.rows,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }

    pub(super) fn overhead(rounds: u64) {
        let words = command(4 << 20);
        let policies = vec!["now".parse().expect("it is a policy")];
        let options = Options { policies, runs: 1, warmup: 0, cold_host: true, ..Options::new(words.clone()) };
        let alone = || {
            let started = Instant::now();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            assert!(command.spawn().expect("this program can be started").wait().expect("and waited for").success());
            started.elapsed().as_secs_f64()
        };
        let mut times = [Vec::new(), Vec::new()];
        // A third series is a control: alone again.
        let mut control = Vec::new();
        let mut own = Vec::new();
        for round in 0..rounds {
            for which in order(1, round, 3) {
                match which {
                    0 => times[0].push(alone()),
                    1 => {
                        let before = processor_time();
                        times[1].push(compared(&options)[0].times[0]);
                        own.push(processor_time() - before);
                    }
                    _ => control.push(alone()),
                }
            }
        }
        let show = |name: &str, times: &[f64], base: &[f64]| {
            let spread = Spread::of(times).expect("there are rounds");
            let ratio = Ratio::of(times, base, 2).expect("there are rounds");
            let share = |ratio: f64| 100.0 * (ratio - 1.0);
            println!(
                "{name:<16} median {:.4} s, least {:.4} s; {:+.2} % ({:+.2} to {:+.2} %, {:.1} % sure)",
                spread.median,
                spread.min,
                share(ratio.estimate),
                share(ratio.low),
                share(ratio.high),
                100.0 * ratio.level
            );
        };
        show("alone", &times[0], &times[0]);
        show("alone, again", &control, &times[0]);
        show("under compare", &times[1], &times[0]);
        let (own, alone) =
            (Spread::of(&own).expect("there are rounds"), Spread::of(&times[0]).expect("there are rounds"));
        println!(
            "processor time of compare itself for a run: {:.2} ms, {:.2} % of the command's time alone",
            1e3 * own.median,
            100.0 * own.median / alone.median
        );
    }

    /// The processor time of this process so far, without that of its children, in seconds.
    fn processor_time() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }

    pub(super) fn identical(tries: u64) {
        let mut found = 0;
        for seed in 0..tries {
            let policies = vec!["now".parse().expect("it is a policy"); 2];
            let options =
                Options { policies, runs: 10, warmup: 0, cold_host: true, seed, ..Options::new(command(1 << 18)) };
            let rows = compared(&options);
            let ratio = rows[1].time_ratio.expect("it is not the reference");
            found += u64::from(ratio.differs());
            let (estimate, low, high) = (ratio.estimate, ratio.low, ratio.high);
            println!(
                "seed {seed}: {estimate:.4} ({low:.4} to {high:.4}){}",
                if ratio.differs() { " told apart" } else { "" }
            );
        }
        println!("{found} of {tries} told apart");
    }
}
