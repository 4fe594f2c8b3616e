//! Experiment files: one table or figure of a paper each. `docs/experiment-file.md` explains how to
//! write one.

use crate::judge::Tolerance;
use crate::live::program::Program;
use crate::measure::{Measure, Value, slug, split};
use serde::Deserialize;
use std::collections::BTreeMap;
use superpage_pages::PageSize;
use superpage_sim::Error;

/// One table or figure of a paper: what the paper ran and found, and what runs here in its place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// The paper's name and the experiment's, from the path of the file.
    #[serde(skip)]
    pub(crate) paper: String,
    #[serde(skip)]
    pub(crate) name: String,
    /// The title of the table or figure.
    pub title: String,
    /// The section of the paper.
    pub section: String,
    /// What the paper ran.
    pub there: String,
    /// What runs here.
    pub here: String,
    pub(crate) kind: Kind,
    /// Whether streams have lines, and machines the programs' data in their caches, as `superpage
    /// sim --lines`.
    #[serde(default)]
    pub(crate) lines: bool,
    /// The runs of every item, by name.
    #[serde(default)]
    pub(crate) runs: BTreeMap<String, Run>,
    /// The quantities measured of each item.
    #[serde(default, rename = "column")]
    pub(crate) columns: Vec<Column>,
    /// What runs, and the paper's value in each column.
    #[serde(default, rename = "item")]
    pub(crate) items: Vec<Item>,
    /// Single values in addition to the columns.
    #[serde(default, rename = "value")]
    pub(crate) values: Vec<Single>,
    /// Figures of the results.
    #[serde(default, rename = "figure")]
    pub(crate) figures: Vec<Figure>,
    /// Kind `coverage`: the computers of the figure.
    #[serde(default, rename = "workstation")]
    pub(crate) workstations: Vec<crate::coverage::Workstation>,
    /// Kind `coverage`: the years in which machines of the built-in files came to market.
    #[serde(default)]
    pub(crate) years: BTreeMap<String, f64>,
    /// Kind `operations`: the sizes over which operations are measured.
    pub(crate) ladders: Option<BTreeMap<String, Vec<PageSize>>>,
    /// Kind `holes`: the layouts of memory, and over what they are swept.
    pub(crate) sweep: Option<crate::holes::sweep::Sweep>,
    /// Kind `filling`: the memory that is filled.
    pub(crate) filling: Option<crate::filling::Filling>,
    /// Input files of programs, and files of machines and overlays, by name, from the folder
    /// `inputs` next to the experiment's file.
    #[serde(skip)]
    pub(crate) inputs: BTreeMap<String, String>,
    /// What a reader changed for this run.
    #[serde(skip)]
    pub(crate) changed: Changed,
}

/// What a reader changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changed {
    /// Values set in machines, `KEY=VALUE` each.
    pub(crate) set: Vec<String>,
    /// Whether lines were asked for, of an experiment without.
    pub(crate) lines: bool,
}

/// The source of an experiment's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Every item with every run, on the simulator.
    Grid,
    /// A grid over streams of several parts, and over time.
    Sequence,
    /// TLB coverage as a share of memory, from data sheets.
    Coverage,
    /// The memory manager's operations, one at a time.
    Operations,
    /// Memory laid out with and without holes, without a kernel.
    Holes,
    /// Frames chosen by a hash, without page tables.
    Filling,
    /// Real programs under the policies of a live Linux.
    Live,
}

/// One way to run an item: a policy on a machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "RunText")]
pub(crate) struct Run {
    pub(crate) policy: String,
    pub(crate) machine: String,
    /// The texts of those parts of the machine that are inputs of the experiment, by their paths,
    /// `inputs/NAME.toml`.
    pub(crate) inputs: BTreeMap<String, String>,
    /// Whether superpages are replicated entries, as the machine says, or one entry each.
    pub(crate) replication: bool,
    /// A stream other than the item's own.
    pub(crate) workload: Option<String>,
    pub(crate) long: Option<String>,
    /// Which extents of memory hold an immovable page before the run, as `superpage sim
    /// --fragment`.
    pub(crate) fragment: Option<String>,
    /// A model of the kernel, as `superpage sim --kernel`.
    pub(crate) kernel: Option<String>,
    /// Values that a reader set in the machine, `KEY=VALUE` each; its name has them.
    pub(crate) set: Vec<String>,
}

/// A run as files write it: a policy's name, or a table.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a policy, or a table with policy, machine, replication, workload, long, fragment, kernel"
)]
enum RunText {
    Policy(String),
    #[serde(rename_all = "kebab-case")]
    Table {
        policy: String,
        machine: Option<String>,
        replication: Option<bool>,
        workload: Option<String>,
        long: Option<String>,
        fragment: Option<String>,
        kernel: Option<String>,
    },
}

impl From<RunText> for Run {
    fn from(text: RunText) -> Run {
        let (policy, named, replication, workload, long, fragment, kernel) = match text {
            RunText::Policy(policy) => (policy, None, None, None, None, None, None),
            RunText::Table { policy, machine, replication, workload, long, fragment, kernel } => {
                (policy, machine, replication, workload, long, fragment, kernel)
            }
        };
        let machine = named.unwrap_or_else(|| "alpha-21264".into());
        let (inputs, replication) = (BTreeMap::new(), replication.unwrap_or(true));
        Run { policy, machine, inputs, replication, workload, long, fragment, kernel, set: Vec::new() }
    }
}

/// A quantity that is measured of every item.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Column {
    pub(crate) quantity: String,
    pub(crate) measure: Text,
    /// The paper's value for all items that run; then items have none for this column.
    pub(crate) paper: Option<Value>,
    pub(crate) tolerance: Option<Tolerance>,
    /// Why no item is judged by it.
    pub(crate) shown: Option<String>,
}

/// A benchmark of the paper, or a program that represents it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Item {
    pub(crate) name: String,
    /// A built-in workload.
    pub(crate) workload: Option<String>,
    /// A trace of the corpus, by its file name.
    pub(crate) trace: Option<String>,
    /// Kind `live`: a program.
    pub(crate) live: Option<Program>,
    /// The workload for a long run.
    pub(crate) long: Option<String>,
    /// Kind `holes`: accesses at the beginning that do not count.
    pub(crate) warm: Option<String>,
    /// Memory of the machine, overriding its file.
    pub(crate) memory: Option<String>,
    /// The hash function for digests, `fast` or `sha-1`, instead of the fast one.
    pub(crate) digest: Option<String>,
    /// Whether files have been read before, `warm` or `cold`, instead of warm.
    pub(crate) files: Option<String>,
    /// Speeds up the clock of policies with a background by this factor, as `superpage sim
    /// --time-scale`.
    pub(crate) time_scale: Option<u32>,
    /// The interval, in seconds of modelled time, at which the state of memory is recorded.
    pub(crate) sample_seconds: Option<f64>,
    /// The paper's values, in the order of the columns that do not state them. `"-"`: the
    /// paper has none.
    #[serde(default)]
    pub(crate) paper: Vec<Cell>,
    /// The base count of the paper's run in steps of its counter, for the tolerance `steps`.
    pub(crate) steps: Option<u32>,
    /// Why none of it is judged.
    pub(crate) shown: Option<String>,
    /// Why a quantity is not judged, by its name.
    #[serde(default)]
    pub(crate) unlike: BTreeMap<String, String>,
    /// The likely cause where a quantity differs, by its name.
    #[serde(default)]
    pub(crate) because: BTreeMap<String, String>,
}

impl Item {
    /// Whether anything runs here for it.
    pub(crate) fn runs(&self) -> bool {
        self.workload.is_some() || self.trace.is_some() || self.live.is_some()
    }
}

/// A value of the paper in a table, or the mark for none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Value(Value),
    #[allow(dead_code, reason = "the text is not a value")]
    None(String),
}

/// A single value in addition to the columns.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Single {
    pub(crate) item: String,
    pub(crate) quantity: String,
    /// `None`: nothing here corresponds to it, and `shown` says why.
    pub(crate) measure: Option<Text>,
    pub(crate) paper: Option<Value>,
    pub(crate) tolerance: Option<Tolerance>,
    pub(crate) steps: Option<u32>,
    pub(crate) shown: Option<String>,
    pub(crate) because: Option<String>,
}

/// A figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// A description for screen readers.
    pub(crate) alt: String,
    pub(crate) kind: superpage_report::Kind,
    pub(crate) x: superpage_report::Axis,
    pub(crate) y: superpage_report::Axis,
    /// Kind `bars`: the groups, from left to right.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    pub(crate) series: Vec<Series>,
}

/// One series of a figure, in one colour.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Series {
    pub(crate) name: String,
    /// A curve that the experiment produces.
    pub(crate) points: Option<String>,
    /// Kind `scatter`: whether its points are joined by a line.
    #[serde(default)]
    pub(crate) line: bool,
    /// Kind `bars`: a measure for each group, which names the item.
    #[serde(default)]
    pub(crate) values: Vec<Text>,
    /// Kind `bars`: the paper's values, drawn as marks.
    #[serde(default)]
    pub(crate) paper: Vec<f64>,
}

/// A measure as its file writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Text(pub(crate) Measure);

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Text, String> {
        Measure::parse(&text).map(Text)
    }
}

impl Experiment {
    /// Parses an experiment file. `paper` and `name` are its names; `origin` names it in errors;
    /// `inputs` are the input files of its programs, by name.
    ///
    /// # Errors
    /// A sentence with the file, the place in it, and what was expected.
    pub fn parse(
        text: &str,
        paper: &str,
        name: &str,
        origin: &str,
        inputs: BTreeMap<String, String>,
    ) -> Result<Experiment, Error> {
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            Error::Usage(format!("{origin}, line {line}: {}", error.message().replace('\n', ", ")))
        })?;
        (experiment.paper, experiment.name, experiment.inputs) = (paper.into(), name.into(), inputs);
        let items: Vec<String> =
            experiment.items.iter().filter(|item| item.runs()).map(|item| slug(&item.name)).collect();
        let columns = experiment.columns.iter_mut().map(|column| &mut column.measure);
        let singles = experiment.values.iter_mut().filter_map(|single| single.measure.as_mut());
        columns.chain(singles).for_each(|text| text.0.spread(&items));
        experiment
            .find_machines()
            .and_then(|()| experiment.check())
            .map_err(|problem| Error::Usage(format!("{origin}: {problem}")))?;
        Ok(experiment)
    }

    /// `paper/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.paper, self.name)
    }

    /// Whether it runs real programs under the policies of this Linux, and changes its settings.
    pub fn is_live(&self) -> bool {
        self.kind == Kind::Live
    }

    /// The paper's name.
    pub fn paper(&self) -> &str {
        &self.paper
    }

    /// Gives each run the texts of its machine's parts that are inputs.
    fn find_machines(&mut self) -> Result<(), String> {
        for (name, run) in &mut self.runs {
            for part in run.machine.split('+').filter(|part| part.starts_with("inputs/")) {
                let text = self.inputs.get(&part["inputs/".len()..]).ok_or_else(|| {
                    let known = self.inputs.keys().cloned().collect::<Vec<_>>().join(", ");
                    format!("run {name}: there is no file {part} next to it; the folder inputs has {known}")
                })?;
                run.inputs.insert(part.into(), text.clone());
            }
        }
        Ok(())
    }

    /// Checks what the syntax alone does not ensure.
    fn check(&self) -> Result<(), String> {
        let grid = matches!(self.kind, Kind::Grid | Kind::Sequence | Kind::Live);
        if grid && self.runs.is_empty() {
            return Err("a grid needs [runs]: at least one policy by name".into());
        }
        if (self.kind == Kind::Coverage) == self.workstations.is_empty() {
            return Err("expected [[workstation]] where the kind is coverage, and nowhere else".into());
        }
        if (self.kind == Kind::Operations) != self.ladders.is_some() {
            return Err("expected [ladders] where the kind is operations, and nowhere else".into());
        }
        if (self.kind == Kind::Holes) != self.sweep.is_some() {
            return Err("expected [sweep] where the kind is holes, and nowhere else".into());
        }
        self.sweep.as_ref().map_or(Ok(()), crate::holes::sweep::Sweep::check)?;
        if (self.kind == Kind::Filling) != self.filling.is_some() {
            return Err("expected [filling] where the kind is filling, and nowhere else".into());
        }
        self.filling.as_ref().map_or(Ok(()), crate::filling::Filling::check)?;
        let cells = self.columns.iter().filter(|column| column.paper.is_none()).count();
        for item in &self.items {
            let (name, values) = (&item.name, item.paper.len());
            if values != cells {
                return Err(format!("item {name} has {values} values of the paper, expected {cells}: one a column"));
            }
            if item.workload.is_some() && item.trace.is_some() {
                return Err(format!("item {name} has both workload and trace: give one"));
            }
            if item.runs() && item.live.is_some() != (self.kind == Kind::Live) {
                return Err(format!("item {name}: expected live where the kind is live, and nowhere else"));
            }
            if grid && !item.runs() && item.shown.is_none() {
                let give = if self.kind == Kind::Live { "live" } else { "workload, trace" };
                return Err(format!("item {name} runs nothing and does not say why: give {give} or shown"));
            }
            if let Some(program) = &item.live {
                program.check(&self.inputs).map_err(|problem| format!("item {name}: {problem}"))?;
            }
            if let Some(key) = item.unlike.keys().chain(item.because.keys()).find(|key| self.column(key).is_none()) {
                return Err(format!("item {name} gives a reason for \"{key}\", which is not a column's quantity"));
            }
            let steps = |column: &Column| column.tolerance == Some(Tolerance::Steps);
            if item.shown.is_none() && item.steps.is_none() && self.columns.iter().any(steps) {
                return Err(format!("item {name} is judged in steps: say how many its base has with `steps`"));
            }
        }
        for column in &self.columns {
            if column.tolerance.is_none() && column.shown.is_none() && column.paper.is_none_or(is_number) {
                return Err(format!("column \"{}\" needs a tolerance, or shown with a reason", column.quantity));
            }
        }
        for single in &self.values {
            let (item, quantity) = (&single.item, &single.quantity);
            if single.measure.is_none() && single.shown.is_none() {
                return Err(format!("value \"{item}, {quantity}\" is not measured and does not say why in shown"));
            }
            let judged = single.shown.is_none() && single.tolerance.is_none();
            if judged && single.paper.is_none_or(is_number) {
                return Err(format!("value \"{item}, {quantity}\" needs paper and tolerance, or shown with a reason"));
            }
        }
        for figure in self.figures.iter().filter(|figure| figure.kind == superpage_report::Kind::Bars) {
            let uneven = |series: &&Series| series.values.len() != figure.groups.len();
            if let Some(series) = figure.series.iter().find(uneven) {
                let (name, groups) = (&series.name, figure.groups.len());
                return Err(format!("figure \"{}\": series {name} has not {groups} values, one a group", figure.title));
            }
        }
        self.check_names(grid)
    }

    /// Checks that every name in a measure begins with a run, or with an item and a run.
    fn check_names(&self, grid: bool) -> Result<(), String> {
        if !grid {
            return Ok(());
        }
        let mut problem = None;
        self.visit_names(&mut |name: &str| {
            let (item, rest) = split(name);
            let run = rest.split('.').next().unwrap_or(rest);
            if let Some(item) = item.filter(|item| !self.items.iter().any(|known| slug(&known.name) == *item)) {
                problem.get_or_insert(format!("measure \"{name}\": there is no item {item}"));
            } else if !self.runs.contains_key(run) {
                let known = self.runs.keys().cloned().collect::<Vec<_>>().join(", ");
                problem.get_or_insert(format!("measure \"{name}\": there is no run {run}; expected one of {known}"));
            }
        });
        problem.map_or(Ok(()), Err)
    }

    /// Whether a measure reads this key of a row, or one of its values.
    pub(crate) fn reads(&self, key: &str) -> bool {
        let mut found = false;
        self.visit_names(&mut |name| found |= split(name).1.split(['.', '@']).nth(1) == Some(key));
        found
    }

    /// Calls `visit` with every name in a measure.
    fn visit_names(&self, visit: &mut dyn FnMut(&str)) {
        let columns = self.columns.iter().map(|column| &column.measure);
        let singles = self.values.iter().filter_map(|single| single.measure.as_ref());
        let bars = self.figures.iter().flat_map(|figure| &figure.series).flat_map(|series| &series.values);
        columns.chain(singles).chain(bars).for_each(|text| text.0.names(visit));
    }

    fn column(&self, quantity: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.quantity == quantity)
    }
}

fn is_number(value: Value) -> bool {
    matches!(value, Value::Number(_))
}
