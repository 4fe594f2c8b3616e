//! What a sweep consists of: its points as parts, each a grid over one stream under one set of
//! conditions, and the cells of these.

use crate::Sweep;
use crate::axis::{Point, TRACE};
use crate::files::Files;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use superpage_mmu::Machine;
use superpage_sim::{
    Conditions, Error, Limit, Setup, Watch, check_memory, check_migration, check_setups, groups, plan_on_host,
    plan_policies,
};
use superpage_trace::file::Reader;
use superpage_trace::{Cores, Info, Source, workload};
use superpage_vm::Policy;
use xxhash_rust::xxh3::Xxh3;

/// The most machines of a cell: what shares a kernel is one simulation, but cells are what
/// processors and computers share.
const MACHINES: usize = 64;

/// The version of superpage, which is an input of every row.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What tells builds of one version from each other: a digest of sources, or nothing in a published
/// package (build.rs).
pub(crate) const BUILD: &str = env!("SUPERPAGE_BUILD");

/// A sweep, checked completely: everything named exists and fits.
pub struct Plan {
    pub(crate) sweep: Sweep,
    pub(crate) parts: Vec<Part>,
    pub(crate) cells: Vec<Cell>,
    /// The streams on the cores that each has, in the order of the points.
    pub(crate) streams: Vec<Stream>,
    machines: HashMap<String, Machine>,
    /// What is set in each, by its name.
    pub(crate) set: HashMap<String, Vec<(String, String)>>,
    /// The policies, by the words of their axis.
    policies: HashMap<String, Policy>,
    /// The policies of hosts, with their names, by the words of their axis.
    hosts: HashMap<String, (String, Policy)>,
    /// The setups of the part whose cells were asked for last: those of one part run one after the
    /// other.
    last: Mutex<Option<(usize, Arc<Vec<Setup>>)>>,
    /// The parts by their streams and conditions.
    places: HashMap<String, usize>,
    /// The digest of everything that is read from files, by a name for people.
    pub(crate) inputs: BTreeMap<String, String>,
}

/// A policy of the caller's, as an object in Python.
#[derive(Clone, Debug)]
pub struct CallerPolicy {
    /// The policy.
    pub policy: Policy,
    /// What tells it from another one of the same name, as its source: rows of both are never
    /// mixed.
    pub text: String,
}

/// A stream of events, whose threads have cores or not.
#[derive(Clone)]
pub(crate) struct Stream {
    /// As the file of the sweep names it, traces after [`TRACE`].
    pub(crate) name: String,
    pub(crate) cores: Option<Cores>,
    digest: String,
    info: Info,
    /// What tells that a trace is the file that was digested.
    stamp: Option<Stamp>,
}

/// Device, number, size and time of the last change of a file.
type Stamp = (u64, u64, u64, Option<SystemTime>);

/// All rows over one stream under one set of conditions, with the `base` rows that they are
/// compared with.
pub(crate) struct Part {
    /// The place of the stream.
    pub(crate) stream: usize,
    pub(crate) conditions: Conditions,
    /// The machines with their policies on each host, in the order of rows.
    grid: Vec<(String, Vec<OnHost>)>,
    /// The number of rows.
    pub(crate) rows: usize,
}

impl Part {
    /// The machines with the numbers of their rows, in their order.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (&str, usize)> {
        let rows = |hosts: &[OnHost]| hosts.iter().map(|(_, policies)| with_base(policies)).sum();
        self.grid.iter().map(move |(machine, hosts)| (machine.as_str(), rows(hosts)))
    }
}

/// The policy of a host, if it has one, and policies on it.
type OnHost = (Option<String>, Vec<String>);

/// The number of rows of a machine, including the row of `base`.
fn with_base(policies: &[String]) -> usize {
    policies.len() + usize::from(!policies.iter().any(|policy| policy == BASE))
}

/// The policy that all are compared with, also of hosts.
const BASE: &str = "base";

/// A unit of work, kept in one file: machines on which the same kernel does the same.
pub(crate) struct Cell {
    /// The digest of all its inputs.
    pub(crate) name: String,
    /// The place of its part.
    pub(crate) part: usize,
    /// The places of its rows in the part.
    pub(crate) rows: Vec<usize>,
}

impl Plan {
    /// Lays the sweep out and checks it: each cell must fit into the memory that `limits` leave.
    /// Reads every machine and policy file once, and every trace once from end to end.
    ///
    /// # Errors
    /// [`Error::Usage`]: something named does not exist, or does not fit where the axes put it; or
    /// an error of a trace.
    pub fn new(sweep: Sweep, limits: &[Limit]) -> Result<Plan, Error> {
        Plan::with_policies(sweep, HashMap::new(), limits)
    }

    /// Like [`Plan::new`], where the axis of policies may name those of the caller too. For the
    /// Python package.
    ///
    /// # Errors
    /// As for [`Plan::new`].
    pub fn with_policies(
        sweep: Sweep,
        callers: HashMap<String, CallerPolicy>,
        limits: &[Limit],
    ) -> Result<Plan, Error> {
        let (mut streams, mut parts): (Vec<Stream>, _) = (Vec::new(), Parts::default());
        let (mut machines, mut policies, mut hosts) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut set = HashMap::new();
        let (mut inputs, mut texts, files) = (BTreeMap::new(), Texts::default(), Files::default());
        let axis = sweep.axes.iter().find(|axis| axis.name == "workload").expect("every sweep has one");
        let mut opened = HashMap::new();
        for name in &axis.values {
            let stream = Stream::open(name, sweep.lines)?;
            if name.starts_with(TRACE) {
                inputs.insert(name.clone(), stream.digest.clone());
            }
            opened.insert(name.clone(), stream);
        }
        for point in sweep.points() {
            let name = point.machine();
            if !machines.contains_key(&name) {
                let (machine, text) = sweep.machine(&name, &files)?;
                texts.machines.insert(name.clone(), hex(text.as_bytes()));
                inputs.insert(format!("machine {name}"), hex(text.as_bytes()));
                machines.insert(name.clone(), machine);
                set.insert(name.clone(), point.set.clone());
            }
            if !texts.policies.contains_key(&point.policy) {
                let (policy, text) = match callers.get(&point.policy) {
                    Some(CallerPolicy { policy, text }) => (policy.clone(), text.clone()),
                    None => superpage_sim::policy_with_text(&point.policy, |path| files.read(path))?,
                };
                policies.insert(point.policy.clone(), policy);
                inputs.insert(format!("policy {}", point.policy), hex(text.as_bytes()));
                texts.policies.insert(point.policy.clone(), text);
            }
            if let Some(host) = point.host.as_ref().filter(|host| !hosts.contains_key(*host)) {
                for name in [BASE, host] {
                    let (policy, text) = superpage_sim::policy_with_text(name, |path| files.read(path))?;
                    inputs.insert(format!("host-policy {name}"), hex(text.as_bytes()));
                    texts.hosts.insert(name.into(), text);
                    hosts.insert(name.into(), (name.into(), policy));
                }
            }
            if let Some(file) = point.conditions.fragment.file() {
                inputs.entry(format!("fragment {}", file.path())).or_insert_with(|| file.digest().into());
            }
            let cores = point.cores();
            let is = |stream: &Stream| stream.name == point.stream && stream.cores == cores;
            // Most often that of the point before.
            let stream = streams.iter().rposition(is).unwrap_or_else(|| {
                streams.push(opened[&point.stream].on(cores));
                streams.len() - 1
            });
            parts.add(stream, point, name);
        }
        let Parts { parts, places } = parts.compared();
        let (cells, last) = (Vec::new(), Mutex::default());
        let mut plan = Plan { sweep, parts, cells, streams, machines, set, policies, hosts, last, places, inputs };
        plan.find_cells(&texts, limits)?;
        Ok(plan)
    }

    fn find_cells(&mut self, texts: &Texts, limits: &[Limit]) -> Result<(), Error> {
        for place in 0..self.parts.len() {
            let part = &self.parts[place];
            let watch = self.watch(self.streams[part.stream].cores);
            let setups = self.setups(part)?;
            check_setups(&setups, &self.streams[part.stream].info, self.sweep.lines)?;
            check_migration(self.streams[part.stream].cores, &self.streams[part.stream].info)?;
            let rows = |(machine, rows): (&str, usize)| std::iter::repeat_n(texts.machines[machine].as_str(), rows);
            let machines: Vec<&str> = part.machines().flat_map(rows).collect();
            let (rows, all) = (setups.len(), groups(&setups, &watch));
            let mut setups: Vec<Option<Setup>> = setups.into_iter().map(Some).collect();
            for group in all {
                for rows in group.chunks(MACHINES) {
                    let members: Vec<Setup> = rows.iter().filter_map(|row| setups[*row].take()).collect();
                    check_memory(&members, &watch, limits)?;
                    let machines = rows.iter().map(|row| machines[*row]);
                    let name = self.name(part, members.iter().zip(machines), texts);
                    self.cells.push(Cell { name, part: place, rows: rows.to_vec() });
                }
            }
            self.parts[place].rows = rows;
        }
        Ok(())
    }

    /// The name of a cell, whose rows are given by their setups and the digests of their machines'
    /// texts.
    fn name<'a>(&self, part: &Part, rows: impl Iterator<Item = (&'a Setup, &'a str)>, texts: &Texts) -> String {
        let (stream, Sweep { lines, contiguity, every, .. }) = (&self.streams[part.stream], &self.sweep);
        let Conditions { sizes, memory, swap, fragment, seed, files, digest, background, time_scale, .. } =
            &part.conditions;
        let mut text = format!(
            "superpage {VERSION}\nstream {}\nlines {lines}, contiguity {contiguity}, every {every:?}\nsizes {sizes:?}\nmemory {memory:?}\n\
             swap {swap:?}\nfragment {fragment}\nseed {seed}\nfiles {files:?}\ndigest {digest:?}\n\
             background {background:?}\ntime-scale {time_scale}\n",
            stream.digest
        );
        if let Some(file) = fragment.file() {
            let _ = writeln!(text, "memory state {}", file.digest());
        }
        for (setup, machine) in rows {
            let policy = texts.policies.get(setup.policy()).map_or("base", String::as_str);
            let _ = writeln!(text, "machine {} {machine}\npolicy {} {policy}", setup.machine(), setup.policy());
            if let Some(host) = setup.host_policy() {
                let _ = writeln!(text, "host-policy {host} {}", texts.hosts[host]);
            }
        }
        hex(text.as_bytes())
    }

    /// The setups of all rows of a part, in their order.
    pub(crate) fn setups(&self, part: &Part) -> Result<Vec<Setup>, Error> {
        let mut all = Vec::new();
        for (name, hosts) in &part.grid {
            let machine = std::slice::from_ref(&self.machines[name]);
            for (host, policies) in hosts {
                let policies: Vec<_> =
                    policies.iter().map(|name| (name.clone(), self.policies[name].clone())).collect();
                all.extend(match host {
                    Some(host) => plan_on_host(machine, &policies, &self.hosts[host], &part.conditions)?,
                    None => plan_policies(machine, &policies, &part.conditions)?,
                });
            }
        }
        // Rows are compared with base by their machine's name.
        let names: Vec<&str> = part.grid.iter().map(|(name, _)| self.machines[name].name.as_str()).collect();
        match names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
            Some((_, name)) => Err(Error::Usage(format!(
                "two machines are called {name}: give each its own `name`, and name none twice"
            ))),
            None => Ok(all),
        }
    }

    /// The part of a point, and the place of its row there.
    pub(crate) fn find(&self, point: &Point) -> (usize, usize) {
        let (machine, mut row) = (point.machine(), 0);
        let part = self.places[&key(point)];
        for (name, hosts) in &self.parts[part].grid {
            for (host, policies) in hosts {
                let all = with_base(policies);
                if *name == machine && *host == point.host {
                    let policy = policies.iter().position(|policy| *policy == point.policy);
                    return (part, row + all - policies.len() + policy.expect("a point of the sweep"));
                }
                row += all;
            }
        }
        unreachable!("a point of the sweep")
    }

    /// The setups of a cell.
    pub(crate) fn setups_of(&self, cell: &Cell) -> Result<Vec<Setup>, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let setups = match &*last {
            Some((part, setups)) if *part == cell.part => Arc::clone(setups),
            _ => Arc::clone(&last.insert((cell.part, Arc::new(self.setups(&self.parts[cell.part])?))).1),
        };
        drop(last);
        Ok(cell.rows.iter().map(|row| setups[*row].clone()).collect())
    }

    /// How a stream is run on these cores, and what is recorded of every run.
    pub(crate) fn watch(&self, cores: Option<Cores>) -> Watch {
        Watch { contiguity: self.sweep.contiguity, lines: self.sweep.lines, every: self.sweep.every, cores }
    }

    /// The place of the stream that the cell at `place` runs over.
    pub(crate) fn stream_of(&self, place: usize) -> usize {
        self.parts[self.cells[place].part].stream
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// The number of cells.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The title of the sweep.
    pub fn title(&self) -> &str {
        &self.sweep.name
    }

    /// The digest of the names of all cells in their order: of all that the rows depend on.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Xxh3::new();
        self.cells.iter().for_each(|cell| digest.update(cell.name.as_bytes()));
        format!("{:032x}", digest.digest128())
    }
}

/// What the files say that the sweep names.
#[derive(Default)]
struct Texts {
    /// Digests of the texts of machines with overlays and values.
    machines: HashMap<String, String>,
    /// Policies with the contents of policy files.
    policies: HashMap<String, String>,
    /// Policies of hosts with the contents of policy files.
    hosts: HashMap<String, String>,
}

/// Parts in the order of the first point of each.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    places: HashMap<String, usize>,
}

impl Parts {
    /// Adds a point to its part. The points of one need not be next to each other.
    fn add(&mut self, stream: usize, point: Point, machine: String) {
        let place = *self.places.entry(key(&point)).or_insert(self.parts.len());
        let Point { conditions, host, policy, .. } = point;
        if place == self.parts.len() {
            self.parts.push(Part { stream, conditions, grid: Vec::new(), rows: 0 });
        }
        let grid = &mut self.parts[place].grid;
        match grid.iter_mut().find(|(name, _)| *name == machine) {
            Some((_, hosts)) => match hosts.iter_mut().find(|(name, _)| *name == host) {
                Some((_, policies)) => policies.push(policy),
                None => hosts.push((host, vec![policy])),
            },
            None => grid.push((machine, vec![(host, vec![policy])])),
        }
    }

    /// Adds the policy `base` of hosts for each policy that runs on a host with a policy, as
    /// `superpage sim` does.
    fn compared(mut self) -> Parts {
        let base = Some(BASE.to_string());
        let machines = self.parts.iter_mut().flat_map(|part| &mut part.grid);
        for (_, hosts) in machines.filter(|(_, hosts)| hosts.iter().any(|(host, _)| host.is_some())) {
            let place = hosts.iter().position(|(host, _)| *host == base).unwrap_or_else(|| {
                hosts.insert(0, (base.clone(), Vec::new()));
                0
            });
            for policy in hosts.iter().flat_map(|(_, policies)| policies.clone()).collect::<Vec<_>>() {
                let there = &mut hosts[place].1;
                if !there.contains(&policy) {
                    there.push(policy);
                }
            }
        }
        self
    }
}

/// What tells one part from the others.
fn key(point: &Point) -> String {
    format!("{} {:?} {:?}", point.stream, point.cores(), point.conditions)
}

/// A digest as text.
fn hex(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

impl Stream {
    /// Checks that it can be opened, and a trace is whole, and digests what it is.
    fn open(name: &str, lines: bool) -> Result<Stream, Error> {
        let Some(path) = name.strip_prefix(TRACE) else {
            let info = parse(name, lines)?.info().clone();
            return Ok(Stream { name: name.into(), cores: None, digest: hex(name.as_bytes()), info, stamp: None });
        };
        let path = Path::new(path);
        let (stamp, mut reader) = (Some(stamp(path)?), Reader::open(path)?);
        reader.verify()?;
        let info = reader.info().clone();
        Ok(Stream { name: name.into(), cores: None, digest: contents(path)?, info, stamp })
    }

    /// The stream with its threads on these cores.
    fn on(&self, cores: Option<Cores>) -> Stream {
        let number = cores.map_or(0, |cores| cores.number);
        let digest = cores.map_or_else(|| self.digest.clone(), |cores| format!("{}, {cores:?}", self.digest));
        Stream { cores, digest, info: Info { cores: number, ..self.info.clone() }, ..self.clone() }
    }

    /// The stream from its beginning.
    ///
    /// # Errors
    /// The trace cannot be read, or is not the one any more that the sweep was laid out with.
    pub(crate) fn source(&self, lines: bool) -> Result<Box<dyn Source>, superpage_trace::Error> {
        let Some(path) = self.name.strip_prefix(TRACE).map(Path::new) else { return parse(&self.name, lines) };
        let reader = Reader::open(path)?;
        if Some(stamp(path)?) != self.stamp {
            let source = std::io::Error::other("it has changed since the sweep began; run the sweep again");
            return Err(superpage_trace::Error::Io { path: path.into(), source });
        }
        Ok(Box::new(reader))
    }
}

fn stamp(path: &Path) -> Result<Stamp, superpage_trace::Error> {
    let failed = |source| superpage_trace::Error::Io { path: path.into(), source };
    let file = std::fs::metadata(path).map_err(failed)?;
    Ok((file.dev(), file.ino(), file.len(), file.modified().ok()))
}

fn parse(text: &str, lines: bool) -> Result<Box<dyn Source>, superpage_trace::Error> {
    if lines { workload::parse_lines(text) } else { workload::parse(text) }
}

/// The digest of a file's contents.
fn contents(path: &Path) -> Result<String, Error> {
    let failed = |source| superpage_trace::Error::Io { path: path.into(), source };
    let mut file = superpage_output::open_regular(path).map_err(failed)?;
    let (mut digest, mut buffer) = (Xxh3::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(format!("{:032x}", digest.digest128())),
            read => digest.update(&buffer[..read]),
        }
    }
}
