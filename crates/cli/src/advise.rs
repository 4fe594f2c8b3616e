//! `superpage advise`.

mod mappings;
mod mosalloc;
mod native;

use self::mappings::Mappings;
use crate::Failure;
use crate::print::Width;
use crate::record::Record;
use crate::sim::{Bar, limits};
use crate::stop::Stop;
use clap::{Args, ValueEnum};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use superpage_output::quoted;
use superpage_report::{Column, Screen, Table, bytes, count, foreign_json};
use superpage_sim::{Advice, Conditions, Hot, SHARES, Watch, check_memory, plan};
use superpage_trace::{Source, record, workload};

/// Find the regions of a program's memory that are worth huge pages: the fewest that give 90, 95
/// and 99 % of what they give everywhere
#[derive(Args)]
#[command(override_usage = "superpage advise [OPTIONS] <WORKLOAD[:key=value,...]>
       superpage advise [OPTIONS] --trace <FILE>
       superpage advise [OPTIONS] -- <CMD> [ARG]...")]
#[command(after_long_help = "Examples:
  superpage advise -m zen5 --trace corpus/whole/xz.sp
  superpage advise -o xz.plan -- xz -9 -c file
  superpage run -v -p plan:file=xz.plan -- xz -9 -c file
  superpage sim -m zen5 -p plan:file=xz.plan,cost=0 -- xz -9 -c file

Regions are ordered by their TLB misses under base pages; what the first N give is not added up, but
simulated, for some 25 numbers N, in three passes. Each thread has a core with its own TLBs, as in
sim --cores. With -o, CMD runs a second time, natively under
strace, its output dropped: the plan has its addresses there too, without address space
randomization. The exit status of CMD is passed on.")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false).args(["workload", "trace", "command"]))]
pub(crate) struct Advise {
    /// A machine, by name or as the path of a machine file, with overlays as in zen5+fractured
    #[arg(short, long, value_name = "M", default_value = "golden-cove")]
    machine: String,

    /// Write the smallest plan that gives 95 % to this file, for `sim -p plan:file=FILE,cost=0`,
    /// and of a command for `run -p plan:file=FILE`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The format of that file: plan (CBMM's), mosalloc (pools of Mosalloc, the heap's regions)
    #[arg(long, value_name = "FORMAT", default_value = "plan", requires = "output")]
    layout: File,

    /// How to print it: table or json
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,

    #[command(flatten)]
    width: Width,

    /// The trace of a program, whole
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// A built-in workload with its parameters, as sim has them
    #[arg(value_name = "WORKLOAD[:key=value,...]")]
    workload: Option<String>,

    /// A program with its arguments, recorded first into a temporary file (needs QEMU)
    #[arg(last = true, value_name = "CMD ARG")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// The format of the file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum File {
    Plan,
    Mosalloc,
}

/// What is written, what there is to say of it, and its part of the JSON, by its key.
struct Written {
    text: String,
    notes: Vec<String>,
    /// What it does, and the line to type.
    lines: Vec<(&'static str, String)>,
    json: Option<(&'static str, serde_json::Value)>,
}

/// The share for which a plan is written.
const PLANNED: f64 = SHARES[1];

impl Advise {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let setups = plan(std::slice::from_ref(&self.machine), &[], &Conditions::default())?;
        check_memory(&setups, &Watch::default(), &limits())?;
        if let Some(output) = &self.output {
            // Parts of a machine may be files.
            let parts = self.machine.split('+').map(Path::new);
            let mut inputs = parts.chain(self.trace.as_deref());
            inputs.try_for_each(|input| crate::export::apart(input, output))?;
            crate::export::apart_from_command(&self.command, output)?;
            superpage_output::Output::refuse_pipe(output)
                .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", output.display())))?;
        }
        let export = crate::export::create(self.output.as_ref())?;
        let (mut recorded, mut status) = (None, ExitCode::SUCCESS);
        let input = Input::now();
        if !self.command.is_empty() {
            let folder = record::Folder::create(&std::env::temp_dir()).map_err(no_folder)?;
            let path = folder.path().join("program.sp");
            let command = match self.layout {
                File::Plan => self.command.clone(),
                File::Mosalloc => mosalloc::command(&self.command),
            };
            let ended = Record::whole(path.clone(), command).record()?;
            if ended.stopped {
                return Ok(part(ended.status));
            }
            status = ended.status;
            recorded = Some((path, folder));
        }
        let trace = recorded.as_ref().map(|(path, _)| path).or(self.trace.as_ref());
        let open = || -> Result<Box<dyn Source>, superpage_sim::Error> {
            match (&self.workload, trace) {
                (Some(text), _) => Ok(workload::parse(text)?),
                (None, Some(path)) => Ok(Box::new(crate::trace::open(path, false)?)),
                (None, None) => unreachable!("one of the three is given"),
            }
        };
        let stop = Stop::catch_once_a_second()?;
        let (bar, pass) = (Bar::new(String::new()), Cell::new(0));
        let next = || {
            pass.set(pass.get() + 1);
            bar.begin(format!("pass {} of 3", pass.get()));
            open()
        };
        let advice = superpage_sim::advise(&setups[0], &next, stop.flag(), &|progress| bar.show(progress))?;
        drop(bar);
        if stop.is_set() {
            return Ok(part(stop.status()));
        }
        let least = advice.least(PLANNED).filter(|_| export.is_some());
        let written = match least {
            Some(least) => {
                input.rewind();
                Some(self.written(&advice, least.regions, (&open, status, &stop))?)
            }
            None => None,
        };
        let text = match self.format {
            Format::Table => self.table(&advice, written.as_ref()),
            Format::Json => {
                let mut json = serde_json::to_value(&advice).expect("plain values");
                if let Some(Written { notes, lines, json: part, .. }) = &written {
                    if let Some((key, value)) = part {
                        json[key] = value.clone();
                    }
                    notes.iter().for_each(|note| eprintln!("superpage: {note}"));
                    lines.iter().for_each(|(does, line)| eprintln!("superpage: {does}: {line}"));
                }
                foreign_json(&serde_json::to_string_pretty(&json).expect("plain values")) + "\n"
            }
        };
        // From here on a signal ends this process at once, and would leave the recording.
        drop(recorded);
        let file = export.zip(written.map(|written| written.text));
        if self.output.is_some() && file.is_none() {
            eprintln!("superpage: no plan was written, since there is nothing to gain");
        }
        crate::export::write_and_print(file, text, &stop)?;
        Ok(if stop.is_set() { stop.status() } else { status })
    }

    /// The file for the first regions.
    fn written(
        &self,
        advice: &Advice,
        regions: usize,
        (open, status, stop): (Open<'_>, ExitCode, &Stop),
    ) -> Result<Written, Failure> {
        let output = self.output.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let planned = &advice.regions[..regions];
        let addresses: Vec<u64> = planned.iter().map(|hot| hot.address).collect();
        if self.layout == File::Mosalloc {
            if advice.region_bytes != mosalloc::SIZE {
                let sentence = format!(
                    "Mosalloc has no pages of {}, the regions of machine {}: name one with pages of 2 MB by -m",
                    bytes(advice.region_bytes),
                    advice.base.machine
                );
                return Err(Failure::Usage(sentence));
            }
            let (text, inside) = mosalloc::layout(&Mappings::of(open()?.as_mut())?, &addresses);
            let mut line = format!("{inside} of {regions} regions are in the heap, and in {output}");
            if inside < regions {
                line += "; where the others lie in Mosalloc's pools is not known";
            }
            let mut notes = vec![line];
            if self.command.is_empty() {
                notes.push(
                    "Mosalloc has malloc take all memory from the heap: offsets are its own only if the program was \
                     recorded that way, as superpage advise --layout mosalloc -- CMD does"
                        .into(),
                );
            }
            let json = serde_json::json!({ "regions": inside, "left_out": regions - inside });
            return Ok(Written { text, notes, lines: Vec::new(), json: Some(("mosalloc", json)) });
        }
        let mut text = advice.plan(regions);
        let again = match (&self.trace, &self.workload) {
            (Some(trace), _) => format!("--trace {}", quoted(&trace.to_string_lossy())),
            (None, Some(workload)) => quoted(workload),
            (None, None) => format!("-- {}", words(&self.command)),
        };
        let plan = |more: &str| quoted(&format!("plan:file={output},{more}"));
        let cores = match advice.most_cores {
            0 => String::new(),
            cores => format!(" --cores {cores}"),
        };
        let sim = format!("superpage sim -m {}{cores} -p {} {again}", quoted(&self.machine), plan("cost=0"));
        let (mut notes, mut lines) = (Vec::new(), vec![("to simulate that plan", sim)]);
        if self.command.is_empty() {
            return Ok(Written { text, notes, lines, json: None });
        }
        let bar = Bar::spin("running the command under strace");
        let ran = native::run(&self.command, stop);
        drop(bar);
        let (native, ended) = match ran {
            Ok(found) => found,
            Err(why) => {
                notes.push(format!(
                    "the plan is for simulations alone, as addresses of the live program are not known: {why}"
                ));
                return Ok(Written { text, notes, lines, json: Some(("native", serde_json::Value::Null)) });
            }
        };
        if ExitCode::from(record::exit_status(ended)) != status {
            notes.push(format!("natively the command ended otherwise than recorded ({ended}): can it run twice?"));
        }
        let found = Mappings::of(open()?.as_mut())?.translate(&native, &addresses, advice.region_bytes);
        text += "# native\n";
        for (hot, native) in planned.iter().zip(&found) {
            text += &native.map(|native| advice.line(hot, native)).unwrap_or_default();
        }
        let matched = found.iter().flatten().count();
        let mut line = format!("natively {matched} of the {regions} regions in the plan have a known address");
        line +=
            if matched == regions { "" } else { " (the others: no mapping there is like theirs, or fits a huge page)" };
        if matched > 0 {
            let run = format!("superpage run -v -p {} {again}", plan("interval=20ms,cpu=50%,burst=1s"));
            lines.push(("to run with it (a program of minutes needs no more than plan:file=FILE)", run));
        }
        notes.push(line);
        let pairs = addresses.iter().zip(&found);
        let regions: Vec<_> =
            pairs.map(|(address, native)| serde_json::json!({ "address": address, "native": native })).collect();
        let json = serde_json::json!({ "matched": matched, "regions": regions });
        Ok(Written { text, notes, lines, json: Some(("native", json)) })
    }

    fn table(&self, advice: &Advice, written: Option<&Written>) -> String {
        let screen = self.width.screen();
        let Advice { base, everywhere, regions, .. } = advice;
        let speedup = base.cycles as f64 / everywhere.cycles.max(1) as f64;
        let title = format!(
            "{}: {} TLB misses on {} under base pages, in {} (each an aligned {} of addresses); huge pages \
             everywhere: {} misses, speedup {speedup:.3}",
            base.workload,
            count(base.tlb_misses),
            base.machine,
            counted(regions.len()),
            bytes(advice.region_bytes),
            count(everywhere.tlb_misses),
        );
        let mut out = screen.paragraph(&superpage_report::foreign(&title));
        if advice.saved() <= 0 {
            return out + &screen.note("huge pages everywhere save no time: base pages are best for it");
        }
        out += &screen.table(&layouts(advice));
        out += "\n";
        out += &screen.table(&mappings(advice, screen));
        let memory = |row: &superpage_sim::Row| row.peak_resident_bytes;
        if let Some(least) = advice.least(PLANNED) {
            let (few, all) = (least.regions, advice.layouts.last().map_or(0, |layout| layout.regions));
            let hot = regions_with_most(advice);
            let (huge, least_memory) = (huge_bytes(advice, &least.row), memory(&least.row));
            let thp = &advice.thp;
            let words = if 2 * huge <= least_memory && thp.cycles <= least.row.cycles && memory(thp) <= least_memory {
                format!("thp gives {:.1} % in no more memory (superpage run -p thp -- CMD)", 100.0 * advice.share(thp))
            } else if 2 * huge <= least_memory {
                format!(
                    "huge pages are {} of its {}: advice by the program itself, where it allocates those \
                     (MADV_HUGEPAGE), with enabled=madvise",
                    bytes(huge),
                    bytes(least_memory)
                )
            } else if 2 * hot <= few {
                format!(
                    "{:.0} % of the misses are in the first {hot}, and the others save page faults: huge pages \
                     wherever they fit (superpage run -p thp -- CMD)",
                    100.0 * PLANNED
                )
            } else {
                "the misses are spread over its memory: huge pages wherever they fit (superpage run -p thp -- CMD)"
                    .into()
            };
            let note = format!(
                "{} {:.1} % of what huge pages everywhere save, with {} more memory at its peak; {words}",
                in_words(few, all),
                100.0 * least.share,
                bytes(least_memory.saturating_sub(memory(base))),
            );
            out += &screen.note(&note);
        }
        for note in written.iter().flat_map(|written| &written.notes) {
            out += &screen.note(&superpage_report::foreign(note));
        }
        for (does, line) in written.iter().flat_map(|written| &written.lines) {
            out += &(screen.note(does) + "      " + line + "\n");
        }
        out
    }
}

/// The regions of a plan, and what the others are.
fn in_words(few: usize, all: usize) -> String {
    let give = if few == 1 { "gives" } else { "give" };
    match all - few {
        0 => format!("{} (all that miss) {give}", counted(few)),
        rest => format!("{} with most misses (of {}; {rest} not in the plan) {give}", counted(few), count(all as u64)),
    }
}

/// A number of regions.
fn counted(regions: usize) -> String {
    format!("{} region{}", count(regions as u64), if regions == 1 { "" } else { "s" })
}

/// The folder for temporary files cannot be had.
fn no_folder(error: std::io::Error) -> Failure {
    let folder = std::env::temp_dir();
    Failure::Usage(format!(
        "cannot make a folder in {}: {error}; set TMPDIR to a folder where this user may write",
        folder.display()
    ))
}

/// Opens the stream.
type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Source>, superpage_sim::Error>;

/// Standard input where it was, if that is known: of a file.
struct Input(Option<(std::fs::File, u64)>);

impl Input {
    fn now() -> Input {
        let file = std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from);
        let at = |mut file: std::fs::File| file.stream_position().ok().map(|at| (file, at));
        Input(file.ok().and_then(at))
    }

    /// For a command that runs again.
    fn rewind(self) {
        if let Some((mut file, at)) = self.0 {
            let _ = file.seek(SeekFrom::Start(at));
        }
    }
}

/// A command as one types it.
fn words(command: &[OsString]) -> String {
    command.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// Says that there is no advice, since it was stopped.
fn part(status: ExitCode) -> ExitCode {
    eprintln!("superpage: interrupted, and nothing can be said of a part of it");
    status
}

/// The bytes of a row's huge pages.
fn huge_bytes(advice: &Advice, row: &superpage_sim::Row) -> u64 {
    let huge = row.pages.iter().find(|(size, _)| size.bytes() == advice.region_bytes);
    huge.map_or(0, |(_, pages)| pages * advice.region_bytes)
}

/// The smallest layout for each share, and the largest.
fn layouts(advice: &Advice) -> Table {
    let heads =
        ["of the gain", "regions", "huge pages", "TLB misses", "speedup", "resident", "given"].map(Column::number);
    let mut table = Table::new(heads);
    let found = SHARES.into_iter().filter_map(|share| Some((format!("{:.0} %", 100.0 * share), advice.least(share)?)));
    let all = advice.layouts.last().map(|layout| ("all".to_string(), layout));
    let rows = found.chain(all).map(|(share, layout)| (share, count(layout.regions as u64), &layout.row));
    for (share, regions, row) in rows.chain([("thp".into(), "-".into(), &advice.thp)]) {
        table.row([
            share,
            regions,
            bytes(huge_bytes(advice, row)),
            count(row.tlb_misses),
            format!("{:.3}", advice.base.cycles as f64 / row.cycles.max(1) as f64),
            bytes(row.peak_resident_bytes),
            format!("{:.1} %", 100.0 * advice.share(row)),
        ]);
    }
    table
}

/// How many of the regions with most misses have nearly all of them.
fn regions_with_most(advice: &Advice) -> usize {
    let most = PLANNED * advice.base.tlb_misses as f64;
    let sums = advice.regions.iter().scan(0, |sum, hot| {
        *sum += hot.misses;
        Some(*sum)
    });
    1 + sums.take_while(|sum| (*sum as f64) < most).count()
}

/// The mappings with most misses, and what of them is in the plan.
fn mappings(advice: &Advice, screen: Screen) -> Table {
    const SHOWN: usize = 10;
    let planned = advice.least(PLANNED).map_or(0, |layout| layout.regions);
    let mut by_mapping: BTreeMap<(u64, u64), Vec<(usize, &Hot)>> = BTreeMap::new();
    for (rank, hot) in advice.regions.iter().enumerate() {
        by_mapping.entry((hot.mapping.start, hot.mapping.end)).or_default().push((rank, hot));
    }
    let misses = |of: &[(usize, &Hot)]| of.iter().map(|(_, hot)| hot.misses).sum::<u64>();
    let mut sorted: Vec<_> = by_mapping.into_iter().collect();
    sorted.sort_by_key(|(_, of)| std::cmp::Reverse(misses(of)));
    let heads = ["mapping at", "size", "regions", "in the plan", "misses", "of all"].map(Column::number);
    let mut table = Table::new(heads);
    let shown = if screen.is_wide() { sorted.len() } else { SHOWN };
    for ((start, end), of) in sorted.into_iter().take(shown) {
        let part = misses(&of) as f64 / advice.base.tlb_misses.max(1) as f64;
        table.row([
            format!("{start:x}"),
            bytes(end - start),
            of.len().to_string(),
            of.iter().filter(|(rank, _)| *rank < planned).count().to_string(),
            count(misses(&of)),
            format!("{:.1} %", 100.0 * part),
        ]);
    }
    table
}
