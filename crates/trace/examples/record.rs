//! Records a program: `cargo run --release --example record -- [--sample ON/PERIOD] [-o FILE] CMD
//! ARG...`
//!
//! Without `-o` the stream is only counted, and checked with `--check`.

use std::process::ExitCode;
use superpage_trace::{Batch, Sampling, Source, check_stream, file::Writer, record};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("record: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1).peekable();
    let (mut output, mut sampling, mut check) = (None, None, false);
    loop {
        match words.peek().and_then(|word| word.to_str()) {
            Some("-o") => output = words.nth(1),
            Some("--sample") => {
                let text = words.nth(1).unwrap_or_default().into_string().unwrap_or_default();
                let (on, period) = text.split_once('/').ok_or("expected --sample ON/PERIOD")?;
                sampling = Some(Sampling { on: on.parse()?, period: period.parse()?, seed: Some(1) });
            }
            Some("--check") => check = words.next().is_some(),
            Some("--") => drop(words.next()),
            _ => break,
        }
    }
    let mut command = record::Command::new(words);
    command.sampling = sampling;
    let mut recording = record::start(&command)?;
    if check {
        println!("{:?}", check_stream(&mut recording)?);
    } else {
        let mut writer = output.map(|path| Writer::create(path.as_ref(), &command.info(), &[])).transpose()?;
        let mut batch = Batch::default();
        let (mut runs, mut references) = (0, 0);
        while recording.fill(&mut batch)? {
            runs += batch.runs.len();
            references += batch.runs.iter().map(|run| u64::from(run.references)).sum::<u64>();
            if let Some(writer) = &mut writer {
                writer.write(&batch)?;
            }
        }
        if let Some(writer) = writer {
            writer.finish()?;
        }
        eprintln!("{runs} runs, {references} references and fetches");
    }
    let outcome = recording.finish()?;
    for note in &outcome.notes {
        eprintln!("note: {note}");
    }
    eprintln!("{}", outcome.status);
    Ok(outcome.status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}
