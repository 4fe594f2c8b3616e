//! The file of a sweep: `docs/sweep.md` explains how to write one.

use crate::axis::{self, KINDS, NO_CORES, Point, SET, TRACE, apply, canonical, is_known, rank};
use crate::files::Files;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use superpage_mmu::{Machine, MachineError};
use superpage_sim::{Error, Every, Fragment};
use toml::Value;

/// The most points of a sweep.
const MOST: u64 = 10_000_000;

/// A sweep as its file says it.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Its title.
    pub(crate) name: String,
    /// Whether streams have lines, and machines the programs' data in their caches.
    pub(crate) lines: bool,
    /// Whether rows say how contiguous mapped memory is.
    pub(crate) contiguity: bool,
    /// How often rows keep their state.
    pub(crate) every: Option<Every>,
    /// The axes, the slowest first.
    pub(crate) axes: Vec<Axis>,
    /// Which of them go together, the slowest first; each is in one of these.
    bundles: Vec<Vec<usize>>,
    /// The machines that the file contains.
    inline: BTreeMap<String, InlineMachine>,
    /// The values of the axis of that name: files are read once, so that what is digested is what
    /// runs.
    fragments: BTreeMap<String, Fragment>,
}

/// A machine that the sweep's file contains: `[machines.NAME]`.
#[derive(Clone, Debug)]
struct InlineMachine {
    /// What it is from, if it says only what differs.
    from: Option<String>,
    /// The text of the machine file or overlay.
    text: String,
}

/// An axis with its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

impl Axis {
    /// Its values, if they are different numbers.
    fn numbers(&self) -> Option<Vec<f64>> {
        let numbers: Vec<f64> =
            self.values.iter().map(|value| axis::number(&self.name, value)).collect::<Option<_>>()?;
        let different = numbers.iter().enumerate().all(|(place, number)| !numbers[..place].contains(number));
        different.then_some(numbers)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    sweep: Head,
    axes: toml::Table,
    #[serde(default)]
    suites: BTreeMap<String, Suite>,
    #[serde(default)]
    machines: BTreeMap<String, toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "expected a table: [sweep], with a name")]
struct Head {
    name: String,
    #[serde(default)]
    suites: Vec<String>,
    #[serde(default)]
    zip: Vec<Vec<String>>,
    #[serde(default)]
    lines: bool,
    #[serde(default)]
    contiguity: bool,
    every: Option<String>,
}

/// A list of streams with a name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite {
    #[serde(default)]
    workload: Vec<String>,
    #[serde(default)]
    trace: Vec<String>,
}

impl Sweep {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::Usage`]: a sentence with the file, the place in it, and what was expected.
    pub fn read(path: &Path) -> Result<Sweep, Error> {
        let wrong = |problem: String| Error::Usage(format!("sweep {}: {problem}", path.display()));
        let text = superpage_output::read_text(path).map_err(|error| wrong(error.to_string()))?;
        Sweep::parse(&text).map_err(wrong)
    }

    /// The sweep that this text of a file says; `name` is for errors. For the Python package.
    ///
    /// # Errors
    /// [`Error::Usage`]: as for [`Sweep::read`].
    pub fn of_text(text: &str, name: &str) -> Result<Sweep, Error> {
        Sweep::parse(text).map_err(|problem| Error::Usage(format!("sweep {name}: {problem}")))
    }

    /// Parses the text of a file; the error says where and what.
    pub(crate) fn parse(text: &str) -> Result<Sweep, String> {
        let Text { sweep, axes: tables, suites, machines } = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message().replace('\n', ", "))
        })?;
        let mut axes = streams(&sweep.suites, &suites, &tables)?;
        for (name, value) in &tables {
            match (name.as_str(), value) {
                ("workload" | "trace", _) => {}
                ("set", Value::Table(keys)) => keys.iter().try_for_each(|(key, value)| set(key, value, &mut axes))?,
                (name, value) if is_known(name) => axes.push(Axis { name: name.into(), values: values(name, value)? }),
                (name, _) => {
                    // What a workload is may also be a trace.
                    let named = |name: &'static str| [Some(name), (name == "workload").then_some("trace")];
                    let known: Vec<&str> = KINDS.iter().flat_map(|kind| named(kind.name)).flatten().collect();
                    let known = known.join(", ");
                    return Err(format!(
                        "axes.{name}: there is no such axis; take one of {known}, or set.\"machine.key\""
                    ));
                }
            }
        }
        for (name, default) in [("machine", "golden-cove"), ("policy", "reservation")] {
            if !axes.iter().any(|axis| axis.name == name) {
                return Err(format!("axes.{name} is missing: give at least one, as in {name} = [\"{default}\"]"));
            }
        }
        let has = |axis: &str, fits: fn(&[String]) -> bool| axes.iter().any(|a| a.name == axis && fits(&a.values));
        let cores = has("cores", |values| values.iter().all(|value| value != NO_CORES));
        if let Some(axis) = ["quantum", "migrate"].into_iter().find(|axis| !cores && has(axis, |_| true)) {
            return Err(format!("axes.{axis}: is of threads on cores: give axes.cores, without {NO_CORES}"));
        }
        let inline = machines.into_iter().map(inline_machine).collect::<Result<_, String>>()?;
        axes.sort_by(|a, b| (rank(&a.name), &a.name).cmp(&(rank(&b.name), &b.name)));
        let bundles = bundles(&axes, &sweep.zip)?;
        for Axis { name, values } in &mut axes {
            values.iter_mut().for_each(|value| *value = canonical(name, value));
        }
        let Head { name, lines, contiguity, every, .. } = sweep;
        let every = every.map(|every| every.parse()).transpose().map_err(|error| format!("sweep.every: {error}"))?;
        let fragments = BTreeMap::new();
        let mut sweep = Sweep { name, lines, contiguity, every, axes, bundles, inline, fragments };
        let most = sweep.bundles.iter().map(|bundle| sweep.length(bundle) as u64);
        let points = most.fold(1u64, u64::saturating_mul);
        if points > MOST {
            return Err(format!("{points} combinations are too many: at most {MOST} in one sweep"));
        }
        // Each value by itself, so that an error names its axis.
        for axis in &sweep.axes {
            for value in &axis.values {
                let mut point = Point::default();
                apply(&axis.name, &mut point, value).map_err(|problem| format!("axes.{}: {problem}", axis.name))?;
                if axis.name == "fragment" {
                    sweep.fragments.insert(value.clone(), point.conditions.fragment);
                }
            }
        }
        Ok(sweep)
    }

    fn length(&self, bundle: &[usize]) -> usize {
        self.axes[bundle[0]].values.len()
    }

    /// Whether a machine is one that the file contains, or made of one.
    pub(crate) fn is_inline(&self, name: &str) -> bool {
        self.inline.contains_key(name.split(['+', ':']).next().unwrap_or_default())
    }

    /// The machine of a name, with the text of one file that says the same. The name may begin with
    /// a machine that the sweep's file contains; the rest of it names files, also a file
    /// `NAME.toml` next to `[machines.NAME]`.
    pub(crate) fn machine(&self, name: &str, files: &Files) -> Result<(Machine, String), Error> {
        let (first, more) = name.split_at(name.find(['+', ':']).unwrap_or(name.len()));
        let inline = self.inline.get(first);
        // As errors call it. Files are not called so.
        let here = format!("[machines.{first}].toml");
        let name = match inline {
            Some(InlineMachine { from: Some(from), .. }) => format!("{from}+{here}{more}"),
            Some(InlineMachine { from: None, .. }) => format!("{here}{more}"),
            None => name.to_string(),
        };
        let read = |path: &str| match inline {
            Some(inline) if path == here => Ok(inline.text.clone()),
            _ => files.read(path).map_err(|error| MachineError::unread(path, error)),
        };
        Machine::with_text(&name, read).map_err(|error| Error::Usage(error.to_string()))
    }

    /// All points, in the order of the grid: of axes that go together the slowest says where.
    pub(crate) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let all: usize = self.bundles.iter().map(|bundle| self.length(bundle)).product();
        (0..all).map(|number| self.point(&self.chosen(number)))
    }

    /// Which value of each bundle the point with this number has.
    pub(crate) fn chosen(&self, mut number: usize) -> Vec<usize> {
        let mut chosen = vec![0; self.bundles.len()];
        for (bundle, place) in self.bundles.iter().zip(&mut chosen).rev() {
            *place = number % self.length(bundle);
            number /= self.length(bundle);
        }
        chosen
    }

    /// The point with these values of the bundles.
    pub(crate) fn point(&self, chosen: &[usize]) -> Point {
        let mut point = Point::default();
        for (place, axis) in self.axes.iter().enumerate() {
            let bundle = self.bundles.iter().position(|bundle| bundle.contains(&place)).expect("each axis is in one");
            let value = &axis.values[chosen[bundle]];
            if axis.name == "fragment" {
                point.conditions.fragment = self.fragments[value].clone();
            } else {
                apply(&axis.name, &mut point, value).expect("each value was applied when the file was read");
            }
        }
        point
    }

    /// The axes that go together, one after the other, as the page shows them.
    pub(crate) fn bundles(&self) -> Vec<Bundle> {
        let bundle = |places: &Vec<usize>| {
            let axes: Vec<&Axis> = places.iter().map(|place| &self.axes[*place]).collect();
            let shown: Vec<Vec<String>> = axes.iter().map(|axis| axis::shown(&axis.name, &axis.values)).collect();
            let values = (0..self.length(places)).map(|value| {
                let values: Vec<&str> = shown.iter().map(|values| values[value].as_str()).collect();
                values.join(", ")
            });
            let numbers = axes.iter().find_map(|axis| Some((axis.name.clone(), axis.numbers()?)));
            Bundle {
                name: axes.iter().map(|axis| axis.name.trim_start_matches(SET)).collect::<Vec<_>>().join(" and "),
                holds: axes.iter().map(|axis| axis.name.clone()).collect(),
                values: values.collect(),
                numbers,
            }
        };
        self.bundles.iter().map(bundle).collect()
    }
}

/// Axes that go together, or one alone.
pub(crate) struct Bundle {
    /// What they are called.
    pub(crate) name: String,
    /// The names of the axes.
    pub(crate) holds: Vec<String>,
    /// Their values, in short.
    pub(crate) values: Vec<String>,
    /// The first of them whose values are different numbers, with these.
    pub(crate) numbers: Option<(String, Vec<f64>)>,
}

impl Bundle {
    /// Whether values of the machine file are among them.
    pub(crate) fn sets(&self) -> bool {
        self.holds.iter().any(|name| name.starts_with(SET))
    }

    /// Whether this axis is among them.
    pub(crate) fn has(&self, axis: &str) -> bool {
        self.holds.iter().any(|name| name == axis)
    }
}

/// The axis of streams: those of suites, then workloads, then traces.
fn streams(named: &[String], suites: &BTreeMap<String, Suite>, tables: &toml::Table) -> Result<Vec<Axis>, String> {
    let mut all = Vec::new();
    let traces = |names: &[String]| names.iter().map(|name| format!("{TRACE}{name}")).collect::<Vec<_>>();
    for name in named {
        let Some(Suite { workload, trace }) = suites.get(name) else {
            let known: Vec<&str> = suites.keys().map(String::as_str).collect();
            return Err(format!("sweep.suites: there is no suite {name}; [suites] has {}", listed(&known)));
        };
        if workload.is_empty() && trace.is_empty() {
            return Err(format!("suites.{name} is empty: give it a workload or a trace"));
        }
        all.extend(workload.iter().cloned());
        all.extend(traces(trace));
    }
    for (axis, prefix) in [("workload", ""), ("trace", TRACE)] {
        if let Some(value) = tables.get(axis) {
            all.extend(values(axis, value)?.into_iter().map(|value| format!("{prefix}{value}")));
        }
    }
    if all.is_empty() {
        return Err("nothing runs: give axes.workload, axes.trace, or sweep.suites".into());
    }
    Ok(vec![Axis { name: "workload".into(), values: all }])
}

/// What `[machines.NAME]` says.
fn inline_machine((name, mut table): (String, toml::Table)) -> Result<(String, InlineMachine), String> {
    let wrong = |problem: &str| Err(format!("machines.{name}: {problem}"));
    // Silently, one of both would be simulated where the other is meant.
    if Machine::names().any(|known| known == name) {
        return wrong("a built-in machine has this name: choose another");
    }
    if Machine::overlays().any(|known| known == name) {
        return wrong("a built-in overlay has this name: choose another");
    }
    if !name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)) {
        return wrong("expected a name of letters, digits, - and _");
    }
    let from = match table.remove("from") {
        None => None,
        Some(Value::String(from)) => {
            table.entry("name").or_insert_with(|| Value::String(name.clone()));
            table.entry("description").or_insert_with(|| Value::String(format!("what [machines.{name}] says")));
            Some(from)
        }
        Some(_) => return wrong("from: expected the name of a machine, as in from = \"zen5\""),
    };
    Ok((name, InlineMachine { from, text: table.to_string() }))
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// The axes of a key of machine files: of what is below it, where the key is written without
/// quotes, as TOML reads `set.costs.fault`.
fn set(key: &str, value: &Value, axes: &mut Vec<Axis>) -> Result<(), String> {
    if let Value::Table(below) = value {
        return below.iter().try_for_each(|(name, value)| set(&format!("{key}.{name}"), value, axes));
    }
    let (name, said) = (format!("{SET}{key}"), format!("set.\"{key}\""));
    if axes.iter().any(|axis| axis.name == name) {
        return Err(format!("axes.{said} is there twice, with quotes and without"));
    }
    // A machine's name says what is set in it, and there a comma ends a value.
    let values = values(&said, value)?;
    match values.iter().find(|value| value.contains(',')) {
        Some(value) => Err(format!("axes.{said}: {value:?}: expected one value without a comma; several are a list")),
        None => {
            axes.push(Axis { name, values });
            Ok(())
        }
    }
}

/// The values of an axis: a list, or one value.
fn values(axis: &str, value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Float(number) if !number.is_finite() => Err(format!("axes.{axis}: {number}: expected a finite number")),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        other => Err(format!("axes.{axis}: expected words or numbers, not a value of type {}", other.type_str())),
    };
    let values = match value {
        Value::Array(values) => values.iter().map(one).collect::<Result<Vec<_>, _>>()?,
        value => vec![one(value)?],
    };
    if values.is_empty() {
        return Err(format!("axes.{axis} is empty: give it a value, or leave the axis out"));
    }
    Ok(values)
}

/// Refuses what would be the same point twice, also where it is spelled in another way, as 1G and
/// 1024M.
fn twice(axes: &[Axis], bundle: &[usize]) -> Result<(), String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for place in 0..axes[bundle[0]].values.len() {
        let said = |place: usize| {
            bundle.iter().map(|axis| axes[*axis].values[place].as_str()).collect::<Vec<_>>().join(" with ")
        };
        let mut point = Point::default();
        for axis in bundle {
            // What cannot be applied is reported later, with its axis: until then it is equal to
            // nothing.
            let Axis { name, values } = &axes[*axis];
            if apply(name, &mut point, &canonical(name, &values[place])).is_err() {
                point.set.push((name.clone(), values[place].clone()));
            }
        }
        if let Some(then) = seen.insert(format!("{point:?}"), place) {
            let names = bundle.iter().map(|axis| axes[*axis].name.as_str()).collect::<Vec<_>>().join(" and ");
            let (then, now) = (said(then), said(place));
            return Err(if then == now {
                format!("axes.{names}: {now} is there twice")
            } else {
                format!("axes.{names}: {then} and {now} are the same: leave one of them out")
            });
        }
    }
    Ok(())
}

/// Which axes go together, in the order of the first of each.
fn bundles(axes: &[Axis], zip: &[Vec<String>]) -> Result<Vec<Vec<usize>>, String> {
    let mut bundles: Vec<Vec<usize>> = Vec::new();
    for names in zip {
        let mut bundle = Vec::new();
        for name in names {
            let name = if name == "trace" { "workload" } else { name };
            let Some(place) = axes.iter().position(|axis| axis.name == name) else {
                let known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
                return Err(format!("sweep.zip: there is no axis {name}; [axes] has {}", known.join(", ")));
            };
            if bundle.contains(&place) || bundles.iter().flatten().any(|other| *other == place) {
                return Err(format!("sweep.zip: {name} is there twice"));
            }
            bundle.push(place);
        }
        let lengths: Vec<String> =
            bundle.iter().map(|place| format!("{} has {}", axes[*place].name, axes[*place].values.len())).collect();
        if bundle.len() < 2 {
            return Err(
                "sweep.zip: expected lists of at least two axes, as in zip = [[\"memory\", \"fragment\"]]".into()
            );
        }
        if bundle.iter().any(|place| axes[*place].values.len() != axes[bundle[0]].values.len()) {
            return Err(format!(
                "sweep.zip: axes that go together must have as many values each: {}",
                lengths.join(", ")
            ));
        }
        bundle.sort_unstable();
        bundles.push(bundle);
    }
    for place in 0..axes.len() {
        if !bundles.iter().flatten().any(|other| *other == place) {
            bundles.push(vec![place]);
        }
    }
    bundles.sort();
    bundles.iter().try_for_each(|bundle| twice(axes, bundle))?;
    Ok(bundles)
}

/// The part of `--help` about axes.
pub fn axes_help() -> String {
    let kind = |kind: &axis::AxisKind| format!("  {:11} {}\n", kind.name, kind.help);
    let mut help: String = KINDS.iter().map(kind).collect();
    help += "  set.KEY     a value of the machine file, as in set.\"tlb.L2 DTLB.entries\" = [1024, 2048]\n";
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_in_the_order_of_the_grid() {
        let text = "[sweep]\nname = \"a\"\nzip = [[\"machine\", \"set.costs.fault\"]]\nsuites = [\"s\"]\n[axes]\n\
                    policy = [\"thp\", \"base\"]\n\
                    trace = \"t.sp\"\nseed = [7, 8]\nmachine = [\"zen5\", \"zen4\"]\nset.\"costs.fault\" = [5, 5]\n\
                    [suites.s]\nworkload = [\"touch\"]\n";
        let sweep = Sweep::parse(text).unwrap();
        let said =
            |point: Point| format!("{} {} {} {}", point.stream, point.conditions.seed, point.machine(), point.policy);
        let points: Vec<String> = sweep.points().map(said).collect();
        assert_eq!(points.len(), 16);
        assert_eq!(
            points[..5],
            [
                "touch 7 zen5:costs.fault=5 thp",
                "touch 7 zen5:costs.fault=5 base",
                "touch 7 zen4:costs.fault=5 thp",
                "touch 7 zen4:costs.fault=5 base",
                "touch 8 zen5:costs.fault=5 thp",
            ]
        );
        assert_eq!(points[15], "trace t.sp 8 zen4:costs.fault=5 base");
        let bundles = sweep.bundles();
        let names: Vec<&str> = bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        assert_eq!(names, ["workload", "seed", "machine and costs.fault", "policy"]);
        assert_eq!(bundles[0].values, ["touch", "t"]);
        assert_eq!(bundles[2].values, ["zen5, 5", "zen4, 5"]);
        assert_eq!(bundles[2].numbers, None);
    }

    #[test]
    fn machines_of_the_file_itself_are_machines() {
        let sweep = |machines: &str| {
            let head = "[sweep]\nname = \"a\"\n[axes]\npolicy = \"thp\"\nworkload = \"touch\"\n";
            let machine = "machine = [\"zen5\", \"dear\", \"dear+fractured\", \"dear:costs.zero-per-kb=7\"]\n";
            Sweep::parse(&format!("{head}{machine}{machines}"))
        };
        let dear = sweep("[machines.dear]\nfrom = \"zen5\"\ncosts = { fault = 9000 }\n").unwrap();
        let machines: Vec<(String, u64)> = dear
            .points()
            .map(|point| dear.machine(&point.machine(), &Files::default()).unwrap().0)
            .map(|machine| (machine.name, machine.costs.fault))
            .collect();
        let usual = Machine::named("zen5", |_| unreachable!()).unwrap().costs.fault;
        let expected = [("zen5", usual), ("zen5+dear", 9000), ("zen5+dear+fractured", 9000)];
        assert_eq!(machines[..3], expected.map(|(name, fault)| (name.to_string(), fault)));
        assert_eq!(machines[3], ("zen5+dear:costs.zero-per-kb=7".to_string(), 9000));
        let error = sweep("[machines.zen5]\nfrom = \"zen4\"\n").unwrap_err();
        assert!(error.contains("machines.zen5: a built-in machine has this name"), "{error}");
        let error = sweep("[machines.fractured]\nfrom = \"zen4\"\n").unwrap_err();
        assert!(error.contains("machines.fractured: a built-in overlay has this name"), "{error}");
        let error = sweep("[machines.\"a+b\"]\nfrom = \"zen4\"\n").unwrap_err();
        assert!(error.contains("expected a name of letters"), "{error}");
        let error = sweep("[machines.a]\nfrom = 3\n").unwrap_err();
        assert!(error.contains("machines.a: from: expected the name"), "{error}");
    }

    fn axes(text: &str) -> Result<Vec<Axis>, String> {
        let head = "[sweep]\nname = \"a\"\n[axes]\nworkload = \"touch\"\nmachine = \"zen5\"\npolicy = \"thp\"\n";
        Sweep::parse(&format!("{head}{text}\n")).map(|sweep| sweep.axes)
    }

    #[test]
    fn values_that_are_spelled_differently_are_the_same() {
        for (text, said) in [
            ("memory = [\"1G\", \"1024M\"]", "axes.memory: 1G and 1024M are the same: leave one of them out"),
            ("memory = [\"own\", 1024, \"1K\"]", "axes.memory: 1024 and 1K are the same"),
            ("fragment = [0.5, \"0.50\"]", "axes.fragment: 0.5 and 0.50 are the same"),
            ("seed = [7, \"07\"]", "axes.seed: 7 and 07 are the same"),
            ("sizes = [\"2M\", \"2048K\"]", "axes.sizes: 2M and 2048K are the same"),
            ("memory = [\"1G\", \"1G\"]", "axes.memory: 1G is there twice"),
            ("memory = [\"1G\", \"1X\", \"1X\"]", "axes.memory: 1X is there twice"),
        ] {
            let error = axes(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        assert!(axes("memory = [\"1G\", \"1025M\"]\nswap = \"1G\"").is_ok());
    }

    #[test]
    fn a_policy_that_is_spelled_in_two_ways_is_one() {
        let policies = |text: &str| {
            Sweep::parse(&format!(
                "[sweep]\nname = \"a\"\n[axes]\nworkload = \"touch\"\nmachine = \"zen5\"\npolicy = [{text}]\n"
            ))
        };
        let error = policies("\"reservation\", \"reservation:preempt=on\"").unwrap_err();
        assert_eq!(error, "axes.policy: reservation and reservation:preempt=on are the same: leave one of them out");
        let sweep = policies("\"thp\", \"promote:age=0.5s\"").unwrap();
        assert_eq!(sweep.points().map(|point| point.policy).collect::<Vec<_>>(), ["thp", "promote:age=500ms"]);
    }

    #[test]
    fn keys_of_machine_files_may_be_written_without_quotes() {
        let quoted = axes("set.\"tlb.L2 DTLB.entries\" = [1, 2]\nset.\"costs.fault\" = 5").unwrap();
        assert_eq!(axes("set.tlb.\"L2 DTLB\".entries = [1, 2]\nset.costs.fault = 5").unwrap(), quoted);
        for (text, said) in [
            (
                "set.\"costs.fault\" = 5\nset.costs.fault = 6",
                "axes.set.\"costs.fault\" is there twice, with quotes and without",
            ),
            (
                "set.\"costs.fault\" = \"5,costs.zero=6\"",
                "axes.set.\"costs.fault\": \"5,costs.zero=6\": expected one value without a comma",
            ),
            ("set.\"costs.fault\" = [inf, 5]", "axes.set.\"costs.fault\": inf: expected a finite number"),
            ("fragment = nan", "axes.fragment: NaN: expected a finite number"),
        ] {
            let error = axes(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }
}
