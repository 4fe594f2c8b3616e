//! Built-in workloads: streams of events that need no file and no program.
//!
//! A workload is a name and its parameters, `matrix:n=500,rounds=3`. Sizes take K, M, G (powers of
//! 1024), counts take K, M, G (powers of 1000). Each is the same stream on every machine, event for
//! event.
//!
//! ```
//! use superpage_trace::{Batch, Source, workload};
//!
//! let mut source = workload::parse("touch:bytes=64K").unwrap();
//! let mut batch = Batch::default();
//! let mut runs = 0;
//! while source.fill(&mut batch).unwrap() {
//!     runs += batch.runs.len();
//! }
//! assert_eq!(runs, 16);
//! ```

mod btree;
mod c4;
mod chase;
mod cmp;
mod dirty_file;
mod fftw;
mod files;
mod fill;
mod graph;
mod gups;
mod kv;
mod lmbench;
mod loads;
mod matrix;
mod mix;
mod parameters;
mod permutation;
mod process;
mod program;
mod random;
mod seek;
mod sequential;
mod share;
mod sp;
mod stacks;
mod store;
mod stride;
mod touch;
mod tree;
mod web;
mod xsbench;
mod zipf;

pub use parameters::Parameter;

use crate::{Error, Source};
use mix::Mix;
use parameters::Values;
use superpage_pages::parse_count;

/// One kind of workload: what the help text shows of it, and how to start it.
pub struct Kind {
    /// The name.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    start: fn(&Values) -> Result<Box<dyn Source>, Error>,
}

/// Every workload, in the order of the help text. To add one takes its file with a `KIND`, and a
/// line here: the last, because the numbers of files depend on the order.
static ALL: [Kind; 32] = [
    matrix::KIND,
    tree::KIND,
    fftw::KIND,
    touch::KIND,
    stride::KIND,
    random::KIND,
    sequential::KIND,
    chase::KIND,
    zipf::KIND,
    dirty_file::KIND,
    cmp::KIND,
    fill::KIND,
    seek::KIND,
    web::KIND,
    c4::KIND,
    sp::KIND,
    share::KIND,
    store::KIND,
    lmbench::null_call::KIND,
    lmbench::mmap_latency::KIND,
    lmbench::switch::KIND,
    lmbench::pipe_latency::KIND,
    lmbench::pipe_bandwidth::KIND,
    lmbench::start::KIND,
    lmbench::reread::KIND,
    lmbench::draw::KIND,
    stacks::KIND,
    gups::KIND,
    graph::KIND,
    kv::KIND,
    btree::KIND,
    xsbench::KIND,
];

/// All built-in workloads.
pub fn all() -> &'static [Kind] {
    &ALL
}

/// The number of the file that holds the program of the workload with this name: the same in all
/// its processes.
fn file(name: &str) -> u32 {
    ALL.iter().position(|kind| kind.name == name).expect("a workload of the table") as u32
}

/// The source that `text` describes: a workload, `name` or `name:key=value,...`, or a mix of
/// several.
///
/// In a mix each workload is a process. `a+b` runs them at once, in turns of a million
/// data references; `a+b@slice=10K` in turns of ten thousand; one that is idle gives up the rest of
/// its turn. `a;b` runs them one after the other, each after an [`Event::Mark`](crate::Event::Mark)
/// of its name, and `a+b;c` first both and then the third. A shell needs quotes around `;`.
///
/// ```
/// use superpage_trace::{check_stream, workload};
///
/// let mut both = workload::parse("matrix:n=100,rounds=1 + tree:nodes=50 @ slice=10K").unwrap();
/// assert!(check_stream(&mut *both).unwrap().references > 30_000);
/// assert!(workload::parse("tree:leaves=3").is_err_and(|error| error.to_string().contains("nodes, operations, seed")));
/// ```
///
/// # Errors
/// [`Error::Input`] for an unknown name (the message lists all), a key that the workload does not
/// have (it lists its keys), and a value out of range (it gives the range).
pub fn parse(text: &str) -> Result<Box<dyn Source>, Error> {
    parse_as(text, false)
}

/// The same workload as [`parse`] describes, in runs of lines: the same accesses, and the same
/// events between them. Code of which only the page is known runs in the page's first line. About 5
/// to 60 times as many runs where a workload goes through memory in order.
///
/// # Errors
/// As [`parse`].
pub fn parse_lines(text: &str) -> Result<Box<dyn Source>, Error> {
    parse_as(text, true)
}

fn parse_as(text: &str, lines: bool) -> Result<Box<dyn Source>, Error> {
    let in_turn = text.split(';').map(|text| at_once(text, lines)).collect::<Result<Vec<_>, _>>()?;
    Ok(Mix::in_turn(text.trim(), in_turn))
}

/// Parses `a+b@slice=N`.
fn at_once(text: &str, lines: bool) -> Result<Box<dyn Source>, Error> {
    let (text, slice) = match text.split_once('@') {
        None => (text, mix::SLICE),
        Some((workloads, option)) => {
            let wrong =
                || Error::input(format!("@{option}"), "expected @slice= and a count of references from 1, such as 10K");
            let count = option.trim().strip_prefix("slice=").ok_or_else(wrong)?;
            (workloads, parse_count(count.trim()).ok().filter(|count| *count > 0).ok_or_else(wrong)?)
        }
    };
    let sources = text.split('+').map(|text| single(text, lines)).collect::<Result<Vec<_>, _>>()?;
    Ok(Mix::at_once(text.trim(), sources, slice))
}

/// Parses `name` or `name:key=value,...`.
fn single(text: &str, lines: bool) -> Result<Box<dyn Source>, Error> {
    let text = text.trim();
    let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
    let Some(kind) = ALL.iter().find(|kind| kind.name == name) else {
        let names = ALL.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let recorded = if name.contains(['/', '.']) { " (a recorded program is a trace: --trace FILE)" } else { "" };
        return Err(Error::input(format!("{name:?}"), format!("no such workload{recorded}; expected one of {names}")));
    };
    (kind.start)(&Values::parse(kind.name, kind.parameters, parameters, lines)?)
}
