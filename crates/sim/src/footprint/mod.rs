//! What the kernel itself touches: a model in a file, of its paths and how it keeps TLBs and page tables up to date (Dougan, Mackerras and
//! Yodaiken, OSDI 1999). Recordings hold accesses of programs alone; with a model, what the kernel reads, writes and runs at each
//! of their calls, faults and switches, and while they wait for the disk, is in the stream too, through the same TLBs and caches.

mod calls;
mod counts;
mod engine;

pub use counts::KernelCounts;
pub(crate) use engine::Footprint;

use crate::policy::one_line;
use crate::{Error, Setup};
use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_mmu::Search;
use superpage_pages::{Bytes, parse_bytes};

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
    paths: BTreeMap<String, Path>,
    loops: Loops,
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
    #[serde(rename = "loop")]
    loops: Loops,
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
    /// Room for the structures of so many processes, 8 KB each.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Switch::On
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Handlers {
    C,
    Fast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Flushes {
    Eager,
    Lazy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reclaims {
    No,
    Idle,
    Demand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Caching {
    Cached,
    Uncached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Clears {
    No,
    Cached,
    Uncached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Vsids {
    Counter,
    Process,
}

/// What the paper varies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Switches {
    /// Whether the kernel's memory is translated by blocks (BATs), or on machines without by their largest pages.
    pub(crate) blocks: Switch,
    /// The same of devices.
    pub(crate) device_blocks: Switch,
    /// Whether a block translates the device that a program has mapped, as an X server the frame buffer.
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
    /// The model of a name, a built-in one or the path of a file, with switches after a colon: `linux-ppc:flush=eager,blocks=off`.
    ///
    /// # Errors
    /// There is none of that name, the file cannot be read or is not a model, or a switch has no such value.
    pub fn named(text: &str) -> Result<KernelModel, Error> {
        let (name, set) = text.split_once(':').unwrap_or((text, ""));
        let wrong = |problem: &str| Error::Usage(format!("kernel {text}: {problem}"));
        let file = match MODELS.iter().find(|(known, _)| *known == name) {
            Some((_, file)) => file.to_string(),
            None if name.ends_with(".toml") => {
                superpage_output::read_text(name.as_ref()).map_err(|error| wrong(&error.to_string()))?
            }
            None => {
                let known: Vec<&str> = kernels().collect();
                let problem = format!("there is no such model: there are {}, or a file, NAME.toml", known.join(", "));
                return Err(wrong(&problem));
            }
        };
        let file: File = toml::from_str(&file).map_err(|error| wrong(&one_line(&error, &file)))?;
        let (mut switches, mut given) = (file.switches.clone(), Vec::new());
        for part in set.split(',').filter(|part| !part.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(wrong(&format!("\"{part}\" is no switch: give key=value")));
            };
            let known: Vec<&str> = switches.keys().map(String::as_str).collect();
            if !known.contains(&key) {
                return Err(wrong(&format!("there is no switch \"{key}\": there are {}", known.join(", "))));
            }
            if given.contains(&key) {
                return Err(wrong(&format!("switch \"{key}\" is there twice")));
            }
            given.push(key);
            let value = value.parse().map_or_else(|_| toml::Value::String(value.into()), toml::Value::Integer);
            switches.insert(key.into(), value);
        }
        let switches: Switches = switches.try_into().map_err(|error: toml::de::Error| wrong(error.message()))?;
        if switches.flush == Flushes::Eager && given.contains(&"cutoff") {
            return Err(wrong("an eager kernel flushes any range page by page: cutoff goes with flush=lazy"));
        }
        if switches.flush == Flushes::Lazy && switches.vsids == Vsids::Process {
            return Err(wrong("lazy flushes give spaces other numbers: vsids=process goes with flush=eager"));
        }
        if switches.scatter.is_multiple_of(512) || switches.scatter >= 1 << 20 {
            return Err(wrong(
                "scatter is a number below 1048576 and no multiple of 512, so that there are enough contexts",
            ));
        }
        let model =
            KernelModel { text: text.into(), memory: file.memory, switches, paths: file.path, loops: file.loops };
        model.check().map_err(|problem| wrong(&problem))?;
        Ok(model)
    }

    /// The lines that all paths have of code, and the most that one has of data and of a process's structures.
    fn check(&self) -> Result<(), String> {
        for needed in ["entry", "null", "other", "switch", "fault", "disk", "idle", "handler-c", "handler-fast"] {
            if !self.paths.contains_key(needed) {
                return Err(format!("the file has no [path.{needed}]"));
            }
        }
        let Memory { first_page, text, data, device_page, device_pages, .. } = self.memory;
        if [first_page, device_page].iter().any(|page| *page >= 1 << 20) || device_pages > 1 << 16 {
            return Err("first-page and device-page are below 2^20, device-pages at most 65536".into());
        }
        if text.max(data) > 1 << 30 {
            return Err("memory.text and memory.data are at most 1G".into());
        }
        for (name, path) in &self.paths {
            let lines = [path.code, path.data, path.process, path.other_process, path.device];
            if lines.iter().any(|lines| *lines > 1 << 16) || path.instructions > 1_000_000_000 {
                return Err(format!("[path.{name}]: at most 65536 lines of a kind, and 1000000000 instructions"));
            }
        }
        let Loops { clear_per_line, copy_per_line, reclaim_per_entry } = self.loops;
        if [clear_per_line, copy_per_line, reclaim_per_entry].iter().any(|instructions| *instructions > 1_000_000) {
            return Err("[loop]: at most 1000000 instructions".into());
        }
        let (code, data) = self.paths.values().fold((0, 0), |(code, data), path| (code + path.code, data + path.data));
        for (what, lines, bytes) in [("text", code, self.memory.text), ("data", data, self.memory.data)] {
            if lines * LINE > bytes {
                return Err(format!(
                    "its paths have {lines} lines of {what}, which are more than memory.{what}, {bytes} bytes"
                ));
            }
        }
        let most = |of: fn(&Path) -> u64| self.paths.values().map(of).max().unwrap_or(0);
        if most(|path| path.process.max(path.other_process)) * LINE > PROCESS {
            return Err(format!("a path has more lines of a process than fit into {PROCESS} bytes"));
        }
        if most(|path| path.device) > self.memory.device_pages {
            return Err("a path has more lines of devices than there are pages of them".into());
        }
        let of = self.memory.processes;
        if !(1..=4096).contains(&of) {
            return Err(format!("memory.processes is from 1 to 4096, not {of}"));
        }
        Ok(())
    }

    /// Why this kernel cannot run on the machine of a setup, if it cannot.
    pub(crate) fn refuses(&self, setup: &Setup) -> Result<(), Error> {
        let machine = &setup.machine;
        let refused = |problem: String| Err(Error::Usage(format!("machine {}: {problem}", machine.name)));
        if setup.ladder.base().bytes() != PAGE {
            return refused(format!(
                "a model of the kernel (--kernel) is for base pages of 4K, not {}",
                setup.ladder.base()
            ));
        }
        if machine.tlb.iter().any(|tlb| tlb.spaces.is_some()) || machine.host.is_some() || machine.shadow.is_some() {
            return refused("--kernel takes no TLB with `spaces`, no host and no shadow superpages".into());
        }
        if setup.frames < self.pages() + LEFT {
            let kilobytes = |pages: u64| pages * PAGE / 1024;
            let (need, left) = (kilobytes(self.pages()), kilobytes(setup.frames.saturating_sub(self.pages())));
            return refused(format!(
                "the kernel itself takes {need} KB of memory, which leaves {left} KB for programs: give at least {} KB with --memory",
                kilobytes(self.pages() + LEFT)
            ));
        }
        let has_blocks = machine.groups.as_ref().is_some_and(|groups| groups.blocks > 0);
        if self.switches.program_blocks.is_on() && !has_blocks {
            return refused("program-blocks=on is for machines with blocks, as ppc603".into());
        }
        if self.switches.vsids == Vsids::Process && machine.groups.is_none() {
            return refused("vsids=process is for machines with VSIDs, as ppc603".into());
        }
        let software = machine.groups.as_ref().is_some_and(|groups| groups.search == Search::Software);
        if !self.switches.table.is_on() && !software {
            return refused("table=off is for machines whose TLBs software refills, as ppc603".into());
        }
        let (first, grouped) = (self.memory.first_page, machine.groups.is_some());
        if grouped && (first + setup.frames).max(self.memory.device_page + self.memory.device_pages) > 1 << 20 {
            return refused(
                "the kernel's memory and devices end within its first 4 GB: give less with --memory".into(),
            );
        }
        if grouped && self.switches.blocks.is_on() && !first.is_multiple_of(setup.frames.next_power_of_two()) {
            return refused(
                "memory.first-page of the kernel's model is aligned to a block that holds all memory".into(),
            );
        }
        let block = machine.groups.as_ref().map_or(u64::MAX, |groups| groups.block_size);
        if self.switches.blocks.is_on() && setup.frames * PAGE > block {
            let (block, memory) = (Bytes(block), Bytes(setup.frames * PAGE));
            return refused(format!(
                "its largest block has {block}, less than the {memory} of memory: give less with --memory, or blocks=off"
            ));
        }
        Ok(())
    }

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
}

/// Bytes of a line, of a page, and of the structures of a process.
const LINE: u64 = 64;
const PAGE: u64 = 4096;
const PROCESS: u64 = 8192;

/// Pages that are left for programs at least.
const LEFT: u64 = 256;
