//! `superpage record`.

use crate::Failure;
use crate::sim::Bar;
use crate::stop::Stop;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use superpage_report::count;
use superpage_sim::Progress;
use superpage_trace::file::{Totals, Writer};
use superpage_trace::{Batch, Sampling, Source, record};

/// Record what a program does to its memory, as a trace
#[derive(Args)]
#[command(after_long_help = "Examples:\n  superpage record -o gzip.sp -- gzip -k file\n  \
    superpage record -o cc1.sp --sample 1M/20M -- gcc -O2 -c big.c\n\n\
    The program runs under QEMU's user-mode emulator (Debian and Ubuntu: apt install qemu-user), with its threads and\n\
    the programs that it starts. Its exit status is passed on. Ctrl-C, or another signal that asks for the end, ends it and\n\
    leaves a complete trace; another one a second later or more abandons the trace.")]
pub(crate) struct Record {
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Record ON accesses of each PERIOD, at a random position, and all mappings and first touches
    #[arg(long, value_name = "ON/PERIOD", value_parser = str::parse::<Sampling>)]
    sample: Option<Sampling>,

    /// The seed of the positions of the sample's windows, to repeat them
    #[arg(long, value_name = "NUMBER", requires = "sample", value_parser = clap::value_parser!(u64).range(..1 << 62))]
    seed: Option<u64>,

    /// Record lines of 64 bytes instead of pages, for `sim --lines`: a larger trace that takes
    /// longer
    #[arg(long, conflicts_with = "sample")]
    lines: bool,

    /// Record system calls too, with the buffers that read and write copy: where the kernel runs
    #[arg(long)]
    calls: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD ARG")]
    command: Vec<std::ffi::OsString>,
}

/// How a recording ended.
pub(crate) struct Recorded {
    /// The exit status of the command, or that of a stopped process.
    pub(crate) status: ExitCode,
    /// Whether a signal stopped it, so that the trace is a part.
    pub(crate) stopped: bool,
    /// What is in the trace; `None` if the program never began.
    totals: Option<Totals>,
}

impl Record {
    /// All accesses of a command, into this file.
    pub(crate) fn whole(output: PathBuf, command: Vec<std::ffi::OsString>) -> Record {
        Record { output, sample: None, seed: None, lines: false, calls: false, command }
    }

    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let Recorded { status, stopped, totals } = self.record()?;
        let Some(totals) = totals else {
            eprintln!("superpage: interrupted before the program began; nothing was written");
            return Ok(status);
        };
        eprintln!(
            "superpage: {}: {} runs of {} accesses, {}",
            self.output.display(),
            count(totals.runs),
            count(totals.references + totals.fetches),
            match totals.processes {
                1 => "1 process".to_owned(),
                more => format!("{} processes", count(more)),
            }
        );
        if stopped {
            eprintln!("superpage: interrupted; the trace is complete up to there");
        }
        Ok(status)
    }

    /// Records, and says nothing of the file: its caller may need it for a moment alone.
    pub(crate) fn record(&self) -> Result<Recorded, Failure> {
        let sampling = self.sample.map(|sample| Sampling { seed: self.seed.or(sample.seed), ..sample });
        let command =
            record::Command { sampling, lines: self.lines, calls: self.calls, ..record::Command::new(&self.command) };
        // The program and QEMU are searched for before the output is touched, and the output is
        // created before the program runs.
        command.check()?;
        crate::export::apart_from_command(&self.command, &self.output)?;
        let mut writer = Writer::create(&self.output, &command.info(), &record::notes())?;
        let stop = Stop::catch_for_recording();
        let mut recording = stop.recording(&command)?;
        let bar = Bar::new("recording".into());
        let (mut batch, mut runs) = (Batch::default(), 0);
        loop {
            match recording.fill(&mut batch) {
                Ok(true) => {}
                Ok(false) => break,
                // Stopped before the program began: the emulator has nothing to say.
                Err(_) if runs == 0 && stop.is_set() => {
                    return Ok(Recorded { status: stop.status(), stopped: true, totals: None });
                }
                Err(error) => return Err(error.into()),
            }
            writer.write(&batch)?;
            runs += batch.runs.len() as u64;
            bar.show(Progress { runs, of: None });
        }
        drop(bar);
        let outcome = recording.finish()?;
        // The emulator began, and could not start the program.
        if runs == 0 && !outcome.status.success() && !stop.is_set() {
            let what = command.info().workload;
            return Err(Failure::Usage(format!(
                "{what}: the emulator ended before the program began ({}); its own message says why",
                outcome.status
            )));
        }
        let totals = writer.finish()?;
        for note in &outcome.notes {
            eprintln!("superpage: {note}");
        }
        let stopped = stop.is_set();
        let status = if stopped { stop.status() } else { ExitCode::from(record::exit_status(outcome.status)) };
        Ok(Recorded { status, stopped, totals: Some(totals) })
    }
}
