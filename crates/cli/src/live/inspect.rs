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
use superpage_live::inspect::{Mapping, Process, System};
use superpage_report::{Screen, foreign_json};

/// Show where the memory of a process lies, in pages of which sizes, and why it is not huge; or what the system has free.
///
/// Nothing is changed. Folios and contiguity are shown to root only, the rest for one's own processes to all.
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
    superpage inspect $(pidof redis-server)\n  \
    superpage inspect --system --watch=5\n  \
    superpage inspect --system --memory-state today.memory\n  \
    superpage inspect --format json 4711 | jq '.[] | select(.huge_bytes > 0)'")]
pub(crate) struct Inspect {
    /// The process to inspect
    #[arg(value_name = "PID", required_unless_present = "system", conflicts_with = "system", value_parser = number)]
    pid: Option<u32>,

    /// Show the system: free blocks, fragmentation, pools, the work of the kernel's threads
    #[arg(long)]
    system: bool,

    /// Write which frames of this machine are free, movable and immovable, for `superpage sim --fragment FILE`. Needs
    /// root
    #[arg(long, value_name = "FILE", requires = "system", conflicts_with_all = ["pid", "watch", "format"])]
    memory_state: Option<PathBuf>,

    /// Refresh the view every so many seconds (2 by default)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds)]
    watch: Option<Duration>,

    /// Also write the files that make the advice last into this folder: for systemd and for each
    /// boot
    #[arg(long, value_name = "DIR", requires = "pid", conflicts_with = "watch")]
    write: Option<PathBuf>,

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

/// The number of a process.
pub(super) fn number(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) if digits => Err("there is no process with such a large number".into()),
        Err(_) => Err("expected the number of a process, as pidof and ps tell it".into()),
    }
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
            return watch::run(self.pid, period, self.width.screen().is_wide());
        }
        if let Some(path) = &self.memory_state {
            return memory_state::write(path);
        }
        let screen = self.width.screen();
        let text = match (self.pid, self.format) {
            (Some(pid), Format::Table) => {
                let process = Process::read(pid)?;
                self.write(&process)?;
                table(&process, screen)
            }
            (None, Format::Table) => system::text(&System::read()?, screen),
            (Some(pid), Format::Json) => {
                let process = Process::read(pid)?;
                self.write(&process)?;
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

impl Inspect {
    fn write(&self, process: &Process) -> Result<(), Failure> {
        self.write.as_ref().map_or(Ok(()), |folder| super::write_files(folder, &process.advice()))
    }
}

fn json(rows: &impl Serialize) -> String {
    foreign_json(&serde_json::to_string_pretty(rows).expect("plain values")) + "\n"
}

fn table(process: &Process, screen: Screen) -> String {
    let mut out = screen.paragraph(&title(process));
    if let Some(summary) = columns::summary(process, screen.is_wide()) {
        out += &(screen.table(&summary) + "\n");
    }
    out += &screen.table(&columns::table(process, screen.is_wide()));
    out.extend(note(process).iter().chain(&process.notes).map(|note| screen.note(note)));
    out + &super::typed("To have more of it in huge pages:", &process.advice(), screen)
}
