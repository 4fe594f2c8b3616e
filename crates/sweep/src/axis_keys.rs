//! The keys that the axes of a sweep add to its rows, each with values of one type.

use crate::Plan;
use crate::axis::{SET, TRACE};
use crate::plan::Part;
use serde_json::{Map, Value};
use superpage_report::Keys;
use superpage_sim::Row;

/// The values of axes by their keys, in the order of the axes.
pub(crate) type Axes = Map<String, Value>;

impl Plan {
    /// The values of the axes that are not keys of every row anyway: for each row of a part, in its
    /// order.
    pub(crate) fn axes(&self, part: &Part) -> Vec<Axes> {
        let names: Vec<&str> = self.sweep.axes.iter().map(|axis| axis.name.as_str()).collect();
        let traced = self.streams.iter().any(|stream| stream.name.starts_with(TRACE));
        let mut common = Axes::new();
        if traced {
            let path = self.streams[part.stream].name.strip_prefix(TRACE);
            common.insert("trace".into(), path.map_or(Value::Null, Value::from));
        }
        if names.contains(&"sizes") {
            let sizes = |sizes: &Vec<_>| sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
            common.insert("sizes".into(), part.conditions.sizes.as_ref().map(sizes).map_or(Value::Null, Value::from));
        }
        let keys = self.set_keys();
        let of_machine = |(machine, rows): (&str, usize)| {
            let mut axes = common.clone();
            for ((key, kind), value) in keys.iter().zip(self.set_values(machine)) {
                axes.insert(key.clone(), value.map_or(Value::Null, |text| kind.value(&text)));
            }
            std::iter::repeat_n(axes, rows)
        };
        part.machines().flat_map(of_machine).collect()
    }

    /// For each axis of values that are set, in the order of the axes, its key in rows, and what
    /// all its values are.
    fn set_keys(&self) -> Vec<(String, ValueType)> {
        let mut keys: Vec<(String, ValueType)> = Vec::new();
        for axis in &self.sweep.axes {
            let Some(name) = axis.name.strip_prefix(SET) else { continue };
            let taken = |key: &str| {
                Row::KEYS.iter().any(|known| known.name == key) || keys.iter().any(|(known, _)| known == key)
            };
            let short = key(name.strip_prefix("tlb.").unwrap_or(name));
            let full = key(&axis.name);
            let numbered = (2..).map(|number| format!("{full}_{number}"));
            let mut all = [short, full.clone()].into_iter().chain(numbered);
            keys.push((all.find(|key| !taken(key)).expect("numbers do not end"), ValueType::of(&axis.values)));
        }
        keys
    }

    /// What is set in a machine of the grid, for each such axis; `None` if it is in no point of the
    /// sweep.
    fn set_values(&self, machine: &str) -> Vec<Option<String>> {
        let axes = self.sweep.axes.iter().filter_map(|axis| axis.name.strip_prefix(SET));
        let set = self.set.get(machine).map_or(&[][..], Vec::as_slice);
        axes.map(|name| set.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())).collect()
    }
}

/// What all values of an axis are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ValueType {
    Count,
    Number,
    Text,
}

impl ValueType {
    fn of(values: &[String]) -> ValueType {
        match values {
            // As columns hold it.
            _ if values.iter().all(|value| value.parse::<i64>().is_ok_and(|value| value >= 0)) => ValueType::Count,
            _ if values.iter().all(|value| value.parse::<f64>().is_ok_and(f64::is_finite)) => ValueType::Number,
            _ => ValueType::Text,
        }
    }

    fn value(self, text: &str) -> Value {
        match self {
            ValueType::Count => text.parse::<u64>().map_or(Value::Null, Value::from),
            ValueType::Number => text.parse::<f64>().map_or(Value::Null, Value::from),
            ValueType::Text => text.into(),
        }
    }
}

/// A key of lower-case words: `L2 DTLB.entries` is `l2_dtlb_entries`.
fn key(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sweep;

    #[test]
    fn each_row_has_the_values_of_its_point() {
        let text = "[sweep]\nname = \"a\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = [\"zen5\", \"zen5+fractured\"]\npolicy = [\"thp\"]\n\
                    sizes = [\"own\", \"2M\"]\nset.\"tlb.L2 DTLB.entries\" = [1024, 2048]\nset.\"costs.cycles-per-instruction\" = [0.5, 1]\n";
        let plan = Plan::new(Sweep::of_text(text, "a.toml").unwrap(), &[]).unwrap();
        for point in plan.sweep.points() {
            let (part, row) = plan.find(&point);
            let axes = &plan.axes(&plan.parts[part])[row];
            let sizes = point.conditions.sizes.as_ref().map(|sizes| sizes[0].to_string());
            let [costs, entries] = &point.set[..] else { panic!("{point:?}") };
            let expected = Axes::from_iter([
                ("sizes".into(), sizes.map_or(Value::Null, Value::from)),
                ("costs_cycles_per_instruction".into(), costs.1.parse::<f64>().unwrap().into()),
                ("l2_dtlb_entries".into(), entries.1.parse::<u64>().unwrap().into()),
            ]);
            assert_eq!(*axes, expected, "{point:?}");
        }
        let rows: usize = plan.parts.iter().map(|part| part.rows).sum();
        assert_eq!(plan.parts.iter().map(|part| plan.axes(part).len()).sum::<usize>(), rows);
    }
}
