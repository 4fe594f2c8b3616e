//! `superpage split`.

use crate::Failure;
use crate::print::{Width, print};
use std::collections::BTreeSet;
use std::process::ExitCode;
use superpage_linux::proc::{State, ended};
use superpage_linux::split::Splitter;
use superpage_live::promote::Selected;
use superpage_live::split::split;
use superpage_report::{Column, Table, bytes};

/// Split the huge pages of running programs into base pages
///
/// Their memory keeps its contents. Needs root, and debugfs mounted.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:\n  superpage split redis-server\n  superpage split 4711 postgresql.service\n\n\
    It splits once: khugepaged and a superpage daemon that may promote there make huge pages again. Pages\n\
    of a hugetlb pool cannot be split, and pages that a device or another process has pinned stay.")]
pub(crate) struct Split {
    /// In what to split: numbers or names of processes, as ps shows them, units of systemd, control
    /// groups
    #[arg(value_name = "PID|NAME|UNIT", required = true)]
    which: Vec<Selected>,

    #[command(flatten)]
    width: Width,
}

impl Split {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut pids = BTreeSet::new();
        for selected in &self.which {
            pids.extend(selected.members()?);
        }
        if let Some(pid) = pids.iter().find(|pid| matches!(State::of(**pid), State::Kernel)) {
            return Err(Failure::Usage(ended(*pid as u32).to_string()));
        }
        pids.retain(|pid| State::of(*pid).runs());
        if pids.is_empty() {
            return Err(Failure::Usage(
                "none of these processes is there: see ps for the numbers of those that run".into(),
            ));
        }
        let splitter = Splitter::of("/sys/kernel/debug")?;
        let mut table = Table::new([
            Column::number("pid"),
            Column::prose("name"),
            Column::number("huge before"),
            Column::number("huge after"),
        ]);
        let mut failed = Vec::new();
        for pid in pids {
            match split(pid, &splitter) {
                Ok(None) => {}
                Ok(Some(done)) => {
                    table.row([pid.to_string(), done.name, bytes(done.before), bytes(done.after)]);
                }
                Err(error) => failed.push(error),
            }
        }
        if !table.rows().is_empty() {
            print(self.width.screen().table(&table))?;
        }
        // The others' memory is split all the same, and their rows say so.
        let last = failed.pop();
        failed.iter().for_each(|error| eprintln!("superpage: {error}"));
        match last {
            Some(error) => Err(error.into()),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}
