//! What the kernel itself touches: a model in a file, of its paths and how it keeps TLBs and page
//! tables up to date (Dougan, Mackerras and Yodaiken, OSDI 1999). Recordings hold accesses of
//! programs alone; with a model, what the kernel reads, writes and runs at each of their calls,
//! faults and switches, and while they wait for the disk, is in the stream too, through the same
//! TLBs and caches.

mod calls;
mod counts;
mod engine;
mod file;
mod fits;

pub use counts::KernelCounts;
pub(crate) use engine::{At, Copied, ModelledKernel, touch};

use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_pages::parse_bytes;

/// The built-in models.
const MODELS: [(&str, &str); 1] =
    [("linux-ppc", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/linux-ppc.toml")))];

/// A model of a kernel, with its switches set.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelModel {
    /// As the user wrote it.
    pub(crate) text: String,
    memory: Memory,
    pub(crate) switches: Switches,
    /// The names of those that the user has set.
    given: Vec<String>,
    paths: BTreeMap<String, Path>,
    loops: Loops,
    /// The values of the file that nobody has published, as `key = value`.
    pub(crate) assumed: Vec<String>,
}

/// A model's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[allow(dead_code, reason = "for readers of the file")]
    name: String,
    #[allow(dead_code, reason = "for readers of the file")]
    description: String,
    #[allow(dead_code, reason = "for readers of the file")]
    source: String,
    memory: Memory,
    switches: toml::Table,
    path: BTreeMap<String, Path>,
    /// Of calls that a stream names and that have no path there.
    #[serde(default)]
    call: BTreeMap<String, Path>,
    #[serde(rename = "loop")]
    loops: Loops,
    /// The tables whose values nobody has published.
    #[serde(default)]
    assumed: Vec<String>,
}

/// Where the kernel's own memory is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Memory {
    /// Where memory is mapped, in pages of 4 KB.
    first_page: u64,
    #[serde(deserialize_with = "bytes")]
    text: u64,
    #[serde(deserialize_with = "bytes")]
    data: u64,
    /// The most processes: the kernel has 8 KB of structures for each.
    processes: u64,
    /// Where devices are mapped, and how many pages they have.
    device_page: u64,
    device_pages: u64,
}

fn bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_bytes(&text).map_err(|error| serde::de::Error::custom(format!("\"{text}\": {error}")))
}

/// What a path touches, in lines of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Path {
    instructions: u64,
    code: u64,
    #[serde(default)]
    data: u64,
    #[serde(default)]
    process: u64,
    #[serde(default)]
    other_process: u64,
    #[serde(default)]
    device: u64,
    /// Whether its data are preloaded where the switch says so.
    #[serde(default)]
    preloaded: bool,
}

/// Instructions of loops.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Loops {
    clear_per_line: u64,
    copy_per_line: u64,
    reclaim_per_entry: u64,
}

/// What switches say, each in words of the file.
macro_rules! words {
    ($($name:ident: $($word:ident)|+;)+) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum $name { $($word),+ }
    )+ };
}

words! {
    Switch: On | Off;
    Handlers: C | Fast;
    Flushes: Eager | Lazy;
    Reclaims: No | Idle | Demand;
    Caching: Cached | Uncached;
    Clears: No | Cached | Uncached;
    Vsids: Counter | Process;
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// What the paper varies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Switches {
    /// Whether the kernel's memory is translated by blocks (BATs), or on machines without by their
    /// largest pages.
    pub(crate) blocks: Switch,
    /// The same of devices.
    pub(crate) device_blocks: Switch,
    /// Whether a block translates the device that a program has mapped, as an X server the frame
    /// buffer.
    pub(crate) program_blocks: Switch,
    pub(crate) handlers: Handlers,
    /// Whether there is a hash table, where software searches.
    pub(crate) table: Switch,
    pub(crate) scatter: u32,
    /// What context numbers are.
    pub(crate) vsids: Vsids,
    pub(crate) flush: Flushes,
    /// The most pages that a lazy kernel flushes one by one; 0: any number.
    pub(crate) cutoff: u64,
    pub(crate) reclaim: Reclaims,
    /// Whether page tables go through the caches.
    pub(crate) tables: Caching,
    /// Whether and how the idle task clears pages.
    pub(crate) clear: Clears,
    /// Whether pages that it has cleared are taken by faults.
    pub(crate) list: Switch,
    /// Whether what else the idle task touches goes through the caches.
    pub(crate) idle: Caching,
    /// Whether the data of entries and switches are preloaded.
    pub(crate) preloads: Switch,
}

/// The names of the built-in models of kernels.
pub fn kernels() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|(name, _)| *name)
}

impl KernelModel {
    /// The path of what is entered at a miss.
    pub(crate) fn handler(&self) -> &'static str {
        match self.switches.handlers {
            Handlers::C => "handler-c",
            Handlers::Fast => "handler-fast",
        }
    }

    /// Pages of 4 KB that text, data and the structures of processes take.
    pub(crate) fn pages(&self) -> u64 {
        let Memory { text, data, processes, .. } = self.memory;
        text.div_ceil(PAGE) + data.div_ceil(PAGE) + (processes * PROCESS).div_ceil(PAGE)
    }

    /// The first page of devices on a machine with `memory` pages: what the file says or, where
    /// memory reaches that far, the next gigabyte.
    pub(crate) fn device_page(&self, memory: u64) -> u64 {
        let end = self.memory.first_page + memory;
        if end <= self.memory.device_page { self.memory.device_page } else { end.next_multiple_of(GIGABYTE) }
    }
}

/// Bytes of a line, of a page, and of the structures of a process.
const LINE: u64 = 64;
const PAGE: u64 = 4096;
const PROCESS: u64 = 8192;
/// Pages of a gigabyte.
const GIGABYTE: u64 = 1 << 18;

/// Pages that are left for programs at least.
const LEFT: u64 = 256;
