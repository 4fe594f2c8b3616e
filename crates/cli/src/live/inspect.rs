//! `superpage inspect`.

mod columns;
mod system;
mod watch;

use crate::Failure;
use crate::print::print;
pub(super) use columns::why;
use columns::{columns, note, shown, title};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use superpage_linux::inspect::{Mapping, Process, System};
use superpage_report::{foreign_json, grid};

/// Show where the memory of a process lies, in pages of which sizes, and why it is not huge; or what the system has free.
///
/// Nothing is changed. Folios and contiguity are shown to root only, the rest for one's own processes to all.
#[derive(clap::Args)]
#[command(after_long_help = "Columns, for each mapping:\n  \
    resident   what is in memory; populated is its share of the mapping's size\n  \
    folio 64K  resident bytes that the kernel allocated as pages of 64 KB\n  \
    huge       resident bytes that the page table maps by huge pages, of a hugetlb pool too\n  \
    tlb 64K    the share of the resident bytes in groups of 64 KB that are contiguous and aligned: what a TLB that\n             \
    coalesces pages, or a page table with contiguous bits, could map by one entry\n\n\
    Keys of --watch: left and right choose the column to sort by, r reverses, up and down scroll, q quits.\n\n\
    Examples:\n  \
    superpage inspect $(pidof redis-server)\n  \
    superpage inspect --system --watch=5\n  \
    superpage inspect --format json 4711 | jq '.[] | select(.huge_bytes > 0)'")]
pub(crate) struct Inspect {
    /// The process to look at
    #[arg(value_name = "PID", required_unless_present = "system", conflicts_with = "system")]
    pid: Option<u32>,

    /// Look at the system: free blocks, fragmentation, pools, what the kernel's workers did
    #[arg(long)]
    system: bool,

    /// Keep looking, every so many seconds (2 if not said)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds)]
    watch: Option<Duration>,

    /// How to print it: table or json
    #[arg(long, value_name = "FORMAT", default_value = "table", conflicts_with = "watch")]
    format: Format,
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
            return watch::run(self.pid, period);
        }
        let text = match (self.pid, self.format) {
            (Some(pid), Format::Table) => table(&Process::read(pid)?),
            (None, Format::Table) => system::text(&System::read()?),
            (Some(pid), Format::Json) => {
                let process = Process::read(pid)?;
                for note in &process.notes {
                    eprintln!("superpage: {note}");
                }
                let command = &process.command;
                json(&process.mappings.iter().map(|mapping| Row { pid, command, mapping }).collect::<Vec<_>>())
            }
            (None, Format::Json) => json(&[System::read()?]),
        };
        print(text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn json(rows: &impl Serialize) -> String {
    foreign_json(&serde_json::to_string_pretty(rows).expect("plain values")) + "\n"
}

fn table(process: &Process) -> String {
    let columns = columns(&process.mappings);
    let head: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let left: Vec<&str> = columns.iter().filter(|column| column.left).map(|column| column.name.as_str()).collect();
    let shown = shown(process);
    let rows = shown.map(|mapping| columns.iter().map(|column| (column.cell)(mapping).text).collect());
    let mut out = format!("{}\n{}", title(process), grid(&head, rows, &left));
    out.extend(note(process).map(|note| format!("  {note}\n")));
    out.extend(process.notes.iter().map(|note| format!("  {note}\n")));
    out
}
