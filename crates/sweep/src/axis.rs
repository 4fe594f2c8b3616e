//! The axes of a sweep: what each is called in the file, and what a value of it does to a point of
//! the grid.

use superpage_pages::{PageSize, parse_bytes, parse_count};
use superpage_sim::{Conditions, with_values};
use superpage_trace::Cores;

/// What a stream axis begins the value of a trace with: no workload is called so.
pub(crate) const TRACE: &str = "trace ";

/// The value by which an axis leaves memory, swap space, sizes or the core of backgrounds to the
/// machine.
const DEFAULT_WORD: &str = "own";

/// The value of the axis `cores` by which threads take turns on one core.
pub(crate) const NO_CORES: &str = "none";

/// One simulation of the grid, in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// A workload, or a trace after [`TRACE`].
    pub(crate) stream: String,
    /// The number of cores of its threads, the quantum there, and whether they migrate; `None`: all
    /// take turns on one.
    cores: Option<u32>,
    quantum: Option<u64>,
    migrate: bool,
    /// The machine with its overlays.
    pub(crate) machine: String,
    /// Keys and values that are set in it.
    pub(crate) set: Vec<(String, String)>,
    /// The policy of the machine's host, if that is to have one.
    pub(crate) host: Option<String>,
    pub(crate) policy: String,
    pub(crate) conditions: Conditions,
}

impl Point {
    /// The machine with what is set in it, as [`superpage_sim::machine`] takes it.
    pub(crate) fn machine(&self) -> String {
        let set: Vec<String> = self.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        with_values(&self.machine, &set)
    }

    /// The cores on which the threads of the stream run.
    pub(crate) fn cores(&self) -> Option<Cores> {
        let Point { quantum, migrate, .. } = *self;
        self.cores.map(|number| Cores { number, quantum: quantum.unwrap_or(Cores::QUANTUM), migrate })
    }
}

/// A kind of axis. To add one takes an entry of [`KINDS`].
pub(crate) struct AxisKind {
    pub(crate) name: &'static str,
    /// What its values are, for `--help` and for errors.
    pub(crate) help: &'static str,
    /// Whether its values are numbers, over which curves are drawn.
    pub(crate) numeric: bool,
    apply: fn(&mut Point, &str) -> Result<(), String>,
}

/// All axes but those of values that are set, the slowest first: rows are in this order. Those of
/// one stream on the same cores are next to each other, since one pass is theirs, and so are those
/// under one set of conditions, since one base is.
pub(crate) static KINDS: [AxisKind; 15] = [
    AxisKind {
        name: "workload",
        help: "a built-in workload with its parameters; `trace` and suites give more values of this axis",
        numeric: false,
        apply: |point, text| put(&mut point.stream, Ok(text.into())),
    },
    AxisKind {
        name: "cores",
        help: "cores on which the threads of the stream run, or none: all take turns on one, as without sim --cores",
        numeric: true,
        apply: |point, text| put(&mut point.cores, cores(text)),
    },
    AxisKind {
        name: "quantum",
        help: "instructions of a thread before another one of its core runs, as 10M; with the axis cores",
        numeric: true,
        apply: |point, text| put(&mut point.quantum, quantum(text).map(Some)),
    },
    AxisKind {
        name: "migrate",
        help: "true or false: whether idle cores take threads that wait for another; with the axis cores",
        numeric: false,
        apply: |point, text| put(&mut point.migrate, text.parse().map_err(|error| format!("{text}: {error}"))),
    },
    AxisKind {
        name: "memory",
        help: "memory of the machine, as 64M, or own: what its file says",
        numeric: true,
        apply: |point, text| put(&mut point.conditions.memory, unless_default(text, bytes)),
    },
    AxisKind {
        name: "swap",
        help: "swap space, as 1G, or own: twice the memory",
        numeric: true,
        apply: |point, text| put(&mut point.conditions.swap, unless_default(text, bytes)),
    },
    AxisKind {
        name: "sizes",
        help: "the only superpage sizes in use, as 64K+2M, or own: all of the machine's",
        numeric: false,
        apply: |point, text| put(&mut point.conditions.sizes, unless_default(text, sizes)),
    },
    AxisKind {
        name: "files",
        help: "warm or cold",
        numeric: false,
        apply: |point, text| put(&mut point.conditions.files, text.parse()),
    },
    AxisKind {
        name: "background",
        help: "core, program, or own: program if the machine has one core, else core",
        numeric: false,
        apply: |point, text| put(&mut point.conditions.background, unless_default(text, str::parse)),
    },
    AxisKind {
        name: "time_scale",
        help: "how many times as fast as modelled time the clock of policies goes",
        numeric: true,
        apply: |point, text| put(&mut point.conditions.time_scale, text.parse()),
    },
    AxisKind {
        name: "fragment",
        help: "the share of extents with an immovable page, from 0 to 1, or SIZE:SHARE, frag-50, aged, or the path of \
               a machine's memory",
        numeric: true,
        apply: |point, text| put(&mut point.conditions.fragment, text.parse()),
    },
    AxisKind {
        name: "seed",
        help: "the seed of the positions of immovable pages",
        numeric: false,
        apply: |point, text| put(&mut point.conditions.seed, seed(text)),
    },
    AxisKind {
        name: "machine",
        help: "a machine, by name or as the path of a machine file, with overlays as in zen5+fractured",
        numeric: false,
        apply: |point, text| put(&mut point.machine, Ok(text.into())),
    },
    AxisKind {
        name: "host-policy",
        help: "a policy of the host, on machines as zen5+nested is, as sim --host-policy; base is always run too",
        numeric: false,
        apply: |point, text| put(&mut point.host, Ok(Some(text.into()))),
    },
    AxisKind {
        name: "policy",
        help: "a policy with its parameters; base is always run too",
        numeric: false,
        apply: |point, text| put(&mut point.policy, Ok(text.into())),
    },
];

fn put<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

fn unless_default<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == DEFAULT_WORD { Ok(None) } else { parse(text).map(Some) }
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| format!("{text}: {error}"))
}

fn sizes(text: &str) -> Result<Vec<PageSize>, String> {
    text.split('+').map(|size| size.parse().map_err(|error| format!("{size}: {error}"))).collect()
}

fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= i64::MAX as u64);
    seed.ok_or_else(|| format!("{text}: expected a number from 0, below 2^63"))
}

fn cores(text: &str) -> Result<Option<u32>, String> {
    if text == NO_CORES {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| (1..=Cores::MOST).contains(number));
    number.map(Some).ok_or_else(|| format!("{text}: expected a number from 1 to {}, or {NO_CORES}", Cores::MOST))
}

fn quantum(text: &str) -> Result<u64, String> {
    let quantum = parse_count(text).ok().filter(|quantum| *quantum > 0);
    quantum.ok_or_else(|| format!("{text}: expected a number of instructions from 1, as 10M"))
}

/// A value of an axis in the one form that rows have: a policy by its name there, unless it is none
/// of superpage's or wrong.
pub(crate) fn canonical(axis: &str, value: &str) -> String {
    match axis {
        "policy" | "host-policy" => superpage_sim::named(value).map_or_else(|_| value.into(), |(name, _)| name),
        "sizes" => {
            let mut sizes: Vec<&str> = value.split('+').collect();
            sizes.sort_unstable();
            sizes.join("+")
        }
        _ if axis.starts_with(SET) => value.parse::<f64>().map_or_else(|_| value.into(), |number| number.to_string()),
        _ => value.into(),
    }
}

/// Axes of values that are set begin with this.
pub(crate) const SET: &str = "set.";

/// The place of an axis in the order of rows: after machines come the values that are set in them.
pub(crate) fn rank(name: &str) -> usize {
    let place = |name: &str| KINDS.iter().position(|kind| kind.name == name);
    2 * place(if name.starts_with(SET) { "machine" } else { name }).unwrap_or(KINDS.len())
        + usize::from(name.starts_with(SET))
}

/// Whether there is an axis of this name, other than of values that are set.
pub(crate) fn is_known(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name)
}

/// Gives a point a value of an axis.
pub(crate) fn apply(axis: &str, point: &mut Point, value: &str) -> Result<(), String> {
    if let Some(key) = axis.strip_prefix(SET) {
        point.set.push((key.into(), value.into()));
        return Ok(());
    }
    let kind = KINDS.iter().find(|kind| kind.name == axis).expect("axes were checked when the file was read");
    (kind.apply)(point, value).map_err(|problem| format!("{problem}; {axis} is {}", kind.help))
}

/// The number that a value of an axis stands for, where curves can be drawn over it: bytes, a
/// share, or what is set.
pub(crate) fn number(axis: &str, value: &str) -> Option<f64> {
    let numeric = axis.starts_with(SET) || KINDS.iter().any(|kind| kind.name == axis && kind.numeric);
    let plain = value.parse::<f64>().ok().filter(|number| number.is_finite());
    let parse = if axis == "quantum" { parse_count } else { parse_bytes };
    numeric.then(|| plain.or_else(|| parse(value).ok().map(|number| number as f64)))?
}

/// Values as figures show them: streams without what does not tell them apart, parameters or the
/// folder of a trace.
pub(crate) fn shown(axis: &str, values: &[String]) -> Vec<String> {
    let short = |value: &String| match value.strip_prefix(TRACE) {
        Some(path) => path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sp").to_string(),
        None if value.contains(['+', ';']) => value.clone(),
        None => value.split(':').next().unwrap_or(value).to_string(),
    };
    let all: Vec<String> = values.iter().map(short).collect();
    let alone = |name: &String| all.iter().filter(|other| *other == name).count() == 1;
    let name = |(value, short): (&String, &String)| if alone(short) { short.clone() } else { value.clone() };
    if axis == "workload" { values.iter().zip(&all).map(name).collect() } else { values.to_vec() }
}
