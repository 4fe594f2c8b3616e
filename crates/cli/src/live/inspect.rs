//! `superpage inspect`.

mod columns;
mod memory_state;
mod system;
mod watch;

use crate::Failure;
use crate::print::{Width, print};
pub(super) use columns::why;
use columns::{note, title};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use superpage_live::inspect::{Expectation, Mapping, Process, Service, System};
use superpage_live::promote::Selected;
use superpage_report::{Screen, foreign, foreign_json};

/// Show where the memory of a process lies, in pages of which sizes, and why it is not huge; or
/// what the system has free.
///
/// Nothing is changed. Folios and contiguity are shown to root only, the rest for one's own
/// processes to all.
#[derive(clap::Args)]
#[command(after_long_help = "Columns, for each mapping; those in brackets with --wide:\n  \
    resident     what is in memory [populated: its share of the mapping's size]\n  \
    huge         the share of that which the page table maps by huge pages, of a hugetlb pool too [its bytes]\n  \
    [folio 64K]  resident bytes that the kernel allocated as pages of 64 KB\n  \
    [tlb 64K]    the share of the resident bytes in groups of 64 KB that are contiguous and aligned: what a TLB that\n               \
    coalesces pages, or a page table with contiguous bits, could map by one entry\n  \
    mapping      rights, and the name of the file [with its path]\n\n\
    Keys of --watch: left and right choose the column to sort by, r reverses, up and down scroll, q quits.\n\n\
    Examples:\n  \
    superpage inspect redis-server\n  \
    superpage inspect postgresql.service --expect 'shared huge >= 90 %'\n  \
    superpage inspect --system --watch=5\n  \
    superpage inspect --system --memory-state today.memory\n  \
    superpage inspect --format json 4711 | jq '.[] | select(.huge_bytes > 0)'")]
pub(crate) struct Inspect {
    /// What to inspect: numbers or names of processes, as ps shows them, units of systemd, control
    /// groups
    #[arg(value_name = "PID|NAME|UNIT", required_unless_present = "system", conflicts_with = "system")]
    which: Vec<Selected>,

    /// Show the system: free blocks, fragmentation, pools, the work of the kernel's threads
    #[arg(long)]
    system: bool,

    /// Write which frames of this machine are free, movable and immovable, for `superpage sim
    /// --fragment FILE`. Needs root
    #[arg(long, value_name = "FILE", requires = "system", conflicts_with_all = ["which", "watch", "format"])]
    memory_state: Option<PathBuf>,

    /// Refresh the view at this interval in seconds (2 by default)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds)]
    watch: Option<Duration>,

    /// Also write the files that make the advice last into this folder: for systemd and for each
    /// boot
    #[arg(long, value_name = "DIR", requires = "which", conflicts_with_all = ["watch", "system"])]
    write: Option<PathBuf>,

    /// Exit with 1, and say so, unless that much is huge: `heap huge >= 90 %`, of heap, shared
    /// (each with its part of a hugetlb pool), code or all; with 2 if that cannot be seen
    #[arg(long, value_name = "WHAT huge >= N %", requires = "which", conflicts_with_all = ["watch", "system"])]
    expect: Vec<Expectation>,

    /// How to print it: table or json
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "watch")]
    format: Format,

    #[command(flatten)]
    width: Width,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.1 to 86400".into())
}

/// A row of JSON.
#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    command: &'a str,
    #[serde(flatten)]
    mapping: &'a Mapping,
}

impl Inspect {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(period) = self.watch {
            let pid = match self.which.as_slice() {
                [] => None,
                [Selected::Process(pid)] => Some(*pid as u32),
                _ => return Err(Failure::Usage(WATCHED.into())),
            };
            return watch::run(pid, period, self.width.screen().is_wide());
        }
        if let Some(path) = &self.memory_state {
            return memory_state::write(path);
        }
        let screen = self.width.screen();
        if self.which.is_empty() {
            let system = System::read()?;
            print(match self.format {
                Format::Table => system::text(&system, screen),
                Format::Json => json(&[system]),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let checks = !self.expect.is_empty();
        let service = Service::read(&self.which, checks)
            .map_err(|error| if checks { Failure::Usage(error.to_string()) } else { error.into() })?;
        let whole = service.as_one_process();
        let advice = service.advice(&whole);
        if let Some(folder) = &self.write {
            super::write_files(folder, &advice)?;
        }
        let text = match self.format {
            Format::Table => table(&service, &whole, screen) + &super::typed(ADVICE, &advice, screen),
            Format::Json => {
                for note in &whole.notes {
                    eprintln!("superpage: {}", foreign(&note.text));
                }
                let rows = |process| {
                    let Process { pid, command, mappings, .. }: &Process = process;
                    mappings.iter().map(|mapping| Row { pid: *pid, command, mapping })
                };
                json(&service.processes.iter().flat_map(rows).collect::<Vec<_>>())
            }
        };
        print(text)?;
        Ok(self.met(&whole))
    }

    /// Says what is not as expected.
    fn met(&self, whole: &Process) -> ExitCode {
        let mut code = ExitCode::SUCCESS;
        for expectation in &self.expect {
            if let Some(unmet) = expectation.unmet(whole) {
                code = ExitCode::FAILURE;
                eprintln!("superpage: {}: {unmet}", foreign(&whole.command));
            }
        }
        code
    }
}

const WATCHED: &str = "--watch shows one process, by its number, or --system";
const ADVICE: &str = "To have more of it in huge pages:";

fn json(rows: &impl Serialize) -> String {
    foreign_json(&serde_json::to_string_pretty(rows).expect("plain values")) + "\n"
}

fn table(service: &Service, whole: &Process, screen: Screen) -> String {
    let wide = screen.is_wide();
    let mut out = screen.paragraph(&title(service, whole));
    if let Some(summary) = columns::summary(whole, wide) {
        out += &(screen.table(&summary) + "\n");
    }
    match service.processes.as_slice() {
        [process] => {
            out += &screen.table(&columns::table(process, wide));
            out.extend(note(process).map(|note| screen.note(&note)));
        }
        processes => {
            let (table, left) = columns::processes(processes, wide);
            out += &screen.table(&table);
            if left > 0 {
                out += &screen.note(&format!("{left} more of its processes have less than 1 % of it each"));
            }
        }
    }
    out.extend(whole.notes.iter().map(|note| screen.note(&note.text)));
    out
}
