//! `superpage try`: three small programs under three policies, on this machine, in a minute.

use super::compare::{Bar, Format};
use crate::stop::{Second, Stop, ending};
use crate::{Failure, print::print};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;
use superpage_linux::memory::ask_for_huge_pages;
use superpage_live::compare::{Comparison, End, Options, Reaches, With, compare_with, settings, table};
use superpage_report::Screen;

/// Rounds of a program, unless a number is asked for.
const RUNS: u32 = 7;

/// See on this machine, in a minute, what huge pages do to three small programs
#[derive(Args)]
#[command(after_long_help = "Examples:\n  superpage try\n  superpage try -r 20 --format json\n\n\
    Each program runs in ways that set something for it alone, so that it needs no root and changes\n\
    nothing on this system: as it is (now), with only base pages (base), asking for huge pages itself,\n\
    by madvise (asks), and under promote, which makes huge pages of what is full and settled.\n\
    `superpage compare -- CMD` does the same for a program of yours.")]
pub(crate) struct Try {
    /// The number of measured rounds of each program, however long they take. If not given, 7, or
    /// fewer where all would take more than two minutes, as on a busy machine
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,

    /// Show every column, and wrap no line
    #[arg(long)]
    wide: bool,

    /// How to print the results: in JSON an array of rows for each program
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "table")]
    format: Format,

    /// Only do what one of the programs does
    #[arg(long, value_name = "PROGRAM", value_enum)]
    only: Option<Program>,

    /// ... and ask for huge pages at its first touches
    #[arg(long, requires = "only")]
    asks: bool,
}

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Program {
    /// Reads a table of 128 MB at random
    Table,
    /// Mixes 256 KB again and again
    Mixer,
    /// Touches one page of each 256 KB in 512 MB, and reads these again and again
    Sparse,
}

impl Program {
    fn title(self) -> &'static str {
        match self {
            Program::Table => "A table of 128 MB that is read at random: most reads miss in the TLBs",
            Program::Mixer => "A mixer of 256 KB, which TLBs hold whatever the page size is",
            Program::Sparse => "Sparse memory, one page touched of each 256 KB in 512 MB: huge pages take all of it",
        }
    }

    /// How long its rounds may take together, of two minutes, unless a number of them is asked for:
    /// twice what they take here on a quiet machine.
    fn most(self) -> Duration {
        Duration::from_secs(match self {
            Program::Table => 70,
            Program::Mixer => 10,
            Program::Sparse => 40,
        })
    }

    /// The work itself, in memory of malloc, for which it asks for huge pages if `asks`.
    fn work(self, asks: bool) {
        match self {
            Program::Table => {
                // Each line of 64 bytes names the next one: all of them, in no order that a
                // prefetcher sees.
                let lines = 1_usize << 21;
                let mut table = zeroes(8 * lines, asks);
                (0..lines).for_each(|at| table[8 * at] = (at * 1_664_525 + 1_013_904_223) % lines);
                let mut at = 0;
                (0..2 * lines).for_each(|_| at = table[8 * at]);
                black_box(at);
            }
            Program::Mixer => {
                let mut words = zeroes::<u64>(1 << 15, asks);
                for round in 0..6000 {
                    words.iter_mut().for_each(|word| *word = (*word ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    black_box(&mut words);
                }
            }
            Program::Sparse => {
                let mut memory = zeroes::<u8>(512 << 20, asks);
                for round in 0..8_000_u32 {
                    memory.iter_mut().step_by(256 << 10).for_each(|byte| *byte = byte.wrapping_add(round as u8));
                    black_box(&mut memory);
                }
            }
        }
    }
}

/// Zeroes of the C library's allocator, untouched.
fn zeroes<T: Clone + Default>(length: usize, asks: bool) -> Vec<T> {
    let mut memory = vec![T::default(); length];
    if asks {
        ask_for_huge_pages(&mut memory);
    }
    memory
}

impl Try {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(program) = self.only {
            program.work(self.asks);
            return Ok(ExitCode::SUCCESS);
        }
        let myself = std::env::current_exe().map_err(|error| {
            Failure::Run(format!("this program cannot be started again, since it has no path: {error}"))
        })?;
        let stop = Stop::of(ending(), Second::Waits);
        let (mut rows, mut notes, mut ended) = (BTreeMap::new(), Vec::new(), false);
        for program in Program::value_variants() {
            let name = program.to_possible_value().expect("none is skipped").get_name().to_owned();
            let named = |policy: &str| policy.parse().expect("it is one of ours");
            let command = [myself.as_os_str(), "try".as_ref(), "--only".as_ref(), name.as_ref()];
            let asking = command.into_iter().chain(["--asks".as_ref()]).map(Into::into).collect();
            let options = Options {
                policies: ["base", "promote:age=100ms,interval=100ms,shared=off"].map(named).into(),
                with: vec![With { name: Some("asks".into()), policy: named("now"), command: asking }],
                reach: Reaches::OnlyMine,
                runs: self.runs.unwrap_or(RUNS) as usize,
                time_limit: if self.runs.is_none() { Some(program.most()) } else { None },
                ..Options::new(command)
            };
            let comparison = compare_with(settings(&options), &options, stop.flag(), &mut Bar::new(None))?;
            if comparison.ended_early() {
                let Comparison { rounds, of, .. } = comparison;
                let why = if comparison.end == End::Stopped { "it was ended" } else { "its time was over" };
                eprintln!("superpage: {name}: {why} after {rounds} of {of} rounds (-r {of} for all of them)");
            }
            ended = comparison.end == End::Stopped;
            for note in &comparison.notes {
                match notes.iter_mut().find(|(known, _): &&mut (String, Vec<String>)| known == note) {
                    Some((_, programs)) => programs.push(name.clone()),
                    None => notes.push((note.clone(), vec![name.clone()])),
                }
            }
            match self.format {
                Format::Table if comparison.rounds == 0 => {}
                Format::Table => print(shown(*program, &comparison, Screen::stdout(self.wide)))?,
                Format::Json => _ = rows.insert(name, comparison.rows),
            }
            if ended {
                break;
            }
        }
        let notes = said_once(notes);
        match self.format {
            Format::Table => {
                let screen = Screen::stdout(self.wide);
                let notes: String = notes.iter().map(|note| screen.note(note)).collect();
                print(notes + "\nYour own program: superpage compare -- CMD\n")?;
            }
            Format::Json => {
                notes.iter().for_each(|note| eprintln!("superpage: {note}"));
                print(serde_json::to_string_pretty(&rows).expect("rows are plain values") + "\n")?;
            }
        }
        Ok(if ended { stop.status() } else { ExitCode::SUCCESS })
    }
}

/// Notes, each with the programs that it is of: most are of this machine, so of all of them.
fn said_once(notes: Vec<(String, Vec<String>)>) -> Vec<String> {
    let all = notes.iter().map(|(_, programs)| programs.len()).max().unwrap_or(0);
    let said = |(note, programs): (String, Vec<String>)| {
        if programs.len() == all { note } else { format!("{}: {note}", programs.join(", ")) }
    };
    notes.into_iter().map(said).collect()
}

/// The comparison of one program, with what it says in a sentence.
fn shown(program: Program, comparison: &Comparison, screen: Screen) -> String {
    let mut text = screen.paragraph(&format!("{} ({})", program.title(), comparison.rounds_in_words()));
    text += &screen.table(&table(comparison));
    text +=
        &comparison.advice.iter().map(|advice| format!("\n{}", screen.paragraph(&advice.sentence))).collect::<String>();
    text + "\n"
}
