//! Recording beside running natively and beside Lackey: slowdown, references a second, bytes a
//! reference.
//!
//! `cargo bench -p superpage-trace --bench record`. Each figure is the best of three rounds. The
//! slowdown is by the clock; "program" and "collector" are processor time, of the program with what
//! the plugin does in it and of this process that reads and writes what comes, each against the
//! program's natively. With a core for each the larger one is the slowdown. References are loads,
//! stores and instruction fetches, as Lackey writes them too, one a line.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use superpage_trace::file::Writer;
use superpage_trace::{Batch, Sampling, Source, record};

const ROUNDS: usize = 3;
const BYTES: usize = 8_000_000;
/// The lines that are sorted.
const LINES: usize = 400_000;
/// Lackey gets so much less to do, as it is slow.
const LACKEY_SHARE: usize = 200;

fn main() {
    for program in ["qemu-x86_64", "gzip", "bzip2", "perl"] {
        if Command::new(program).arg("--version").stdin(Stdio::null()).output().is_err() {
            println!("skipped: no {program}");
            return;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let text = text(BYTES);
    std::fs::write(folder.join("text"), &text).expect("a file");
    std::fs::write(folder.join("less"), &text[..BYTES / LACKEY_SHARE]).expect("a file");
    let words: Vec<&str> = text.split_ascii_whitespace().take(LINES).collect();
    std::fs::write(folder.join("lines"), words.join("\n") + "\n").expect("a file");
    let count = "my %n; while (<>) { $n{$_}++ for split } print scalar(%n)";
    println!(
        "{:<8} {:<20} {:>8} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "", "how", "seconds", "slowdown", "program", "collector", "M refs/s", "bytes/ref"
    );
    bench(folder, &["sort"], "lines");
    for words in [vec!["gzip", "-c"], vec!["bzip2", "-c"], vec!["perl", "-e", count]] {
        bench(folder, &words, "text");
    }
}

/// Made-up words, always the same.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 20);
    let mut state = 1_u64;
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (state >> 33) % 5000;
        write!(text, "w{:o} ", number * number).expect("a string grows");
        if number.is_multiple_of(9) {
            text.push('\n');
        }
    }
    text.truncate(bytes);
    text
}

/// What a way to run a program gave: seconds by the clock, of the program and of this process;
/// references, bytes written.
#[derive(Clone, Copy, Default)]
struct Taken {
    wall: f64,
    program: f64,
    collector: f64,
    references: u64,
    bytes: u64,
}

/// The fastest of some rounds.
fn best(rounds: usize, mut run: impl FnMut() -> Taken) -> Taken {
    let mut best = Taken { wall: f64::INFINITY, program: f64::INFINITY, collector: f64::INFINITY, ..Taken::default() };
    for _ in 0..rounds {
        let (before, start) = (processor_seconds(), Instant::now());
        let mut taken = run();
        taken.wall = start.elapsed().as_secs_f64().min(best.wall);
        let after = processor_seconds();
        taken.collector = (after.0 - before.0).min(best.collector);
        taken.program = (after.1 - before.1).min(best.program);
        best = taken;
    }
    best
}

/// The processor time of this process and that of all children that have ended.
fn processor_seconds() -> (f64, f64) {
    let own = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = own.rsplit(')').next().expect("a name in brackets");
    let ticks = after_name.split_ascii_whitespace().skip(11).take(4);
    let seconds: Vec<f64> = ticks.map(|word| word.parse::<f64>().expect("a number") / 100.0).collect();
    (seconds[0] + seconds[1], seconds[2] + seconds[3])
}

fn bench(folder: &Path, words: &[&str], file: &str) {
    let shell = |words: &[&str], file: &str| {
        let mut command = Command::new(words[0]);
        let file = folder.join(file);
        command.args(&words[1..]).arg(file).stdout(Stdio::null());
        command
    };
    let native = best(ROUNDS, || {
        assert!(shell(words, file).status().expect("it runs").success());
        Taken::default()
    });
    let print = |how: &str, share: usize, taken: Taken| {
        let million = taken.references as f64 / taken.wall / 1e6;
        let each = if taken.bytes == 0 {
            String::new()
        } else {
            format!("{:.4}", taken.bytes as f64 / taken.references as f64)
        };
        println!(
            "{:<8} {how:<20} {:>8.2} {:>9.1} {:>9.1} {:>9.1} {million:>9.0} {each:>10}",
            words[0],
            taken.wall,
            taken.wall * share as f64 / native.wall,
            taken.program * share as f64 / native.program,
            taken.collector * share as f64 / native.program,
        );
    };
    print("native", 1, native);
    print(
        "emulated only",
        1,
        best(ROUNDS, || {
            let mut plain = vec!["qemu-x86_64"];
            let program = format!("/usr/bin/{}", words[0]);
            plain.push(&program);
            plain.extend(&words[1..]);
            assert!(shell(&plain, file).status().expect("it runs").success());
            Taken::default()
        }),
    );
    let sampled = Sampling { on: 1_000_000, period: 100_000_000, seed: Some(1) };
    for (how, sampling, keep) in
        [("recorded", None, false), ("recorded to a file", None, true), ("sampled 1M/100M", Some(sampled), true)]
    {
        print(how, 1, best(ROUNDS, || recorded(folder, words, file, sampling, keep)));
    }
    // It reads a share of the text.
    if file != "text" {
        return;
    }
    let lackey = best(1, || {
        let mut lackey = vec!["valgrind", "--tool=lackey", "--trace-mem=yes", "--log-fd=2"];
        lackey.extend(words);
        let child = shell(&lackey, "less").stderr(Stdio::piped()).spawn();
        let Ok(mut child) = child else { return Taken::default() };
        let mut lines = Taken::default();
        let mut piece = vec![0; 1 << 16];
        let mut output = child.stderr.take().expect("a pipe");
        while let Ok(count @ 1..) = output.read(&mut piece) {
            lines.bytes += count as u64;
            lines.references += piece[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        let _ = child.wait();
        lines
    });
    if lackey.references != 0 {
        print("Lackey, text", LACKEY_SHARE, lackey);
    }
}

/// Records a program with its output in a shell's hands, as a recorded program's output is its own.
fn recorded(folder: &Path, words: &[&str], file: &str, sampling: Option<Sampling>, keep: bool) -> Taken {
    let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("exec {} {} >/dev/null", line.join(" "), folder.join(file).display());
    let mut command = record::Command::new(["sh", "-c", &line]);
    command.sampling = sampling;
    let mut recording = record::start(&command).expect("it starts");
    let trace = folder.join("trace.sp");
    let mut writer = keep.then(|| Writer::create(&trace, &command.info(), &[]).expect("a file"));
    let (mut batch, mut taken) = (Batch::default(), Taken::default());
    while recording.fill(&mut batch).expect("a stream") {
        taken.references += batch.runs.iter().map(|run| u64::from(run.references)).sum::<u64>();
        taken.references += batch.events.iter().map(|(_, event)| skipped(event)).sum::<u64>();
        if let Some(writer) = &mut writer {
            writer.write(&batch).expect("room on the disk");
        }
    }
    if let Some(writer) = writer {
        writer.finish().expect("room on the disk");
        taken.bytes = trace.metadata().expect("the trace").len();
    }
    assert!(recording.finish().expect("an end").status.success());
    taken
}

fn skipped(event: &superpage_trace::Event) -> u64 {
    match event {
        superpage_trace::Event::Skipped { references, instructions } => references + instructions,
        _ => 0,
    }
}
