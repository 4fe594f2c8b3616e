//! The built-in experiments, and those of a user's own file.

use crate::Experiment;
use std::collections::BTreeMap;
use std::path::Path;
use superpage_sim::Error;

/// One experiment file: paper, name and text.
macro_rules! files {
    ($($paper:literal / $name:literal),* $(,)?) => {
        [$(($paper, $name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/", $paper, "/", $name, ".toml")))),*]
    };
}

/// All built-in experiments, in the order of their papers. To add one takes a file and a line here.
static FILES: &[(&str, &str, &str)] = &files![
    "navarro02" / "figure1",
    "navarro02" / "table1",
    "navarro02" / "table2",
    "navarro02" / "table3",
    "navarro02" / "caches",
    "navarro02" / "base-pages",
    "navarro02" / "related",
    "navarro02" / "fragmentation",
    "navarro02" / "concurrent",
    "navarro02" / "adversaries",
    "navarro02" / "colouring",
    "navarro02" / "dirty",
    "navarro02" / "scalability",
    "ingens16" / "bloat",
    "hawkeye19" / "recovery",
    "quicksilver20" / "fragmented",
    "ethp21" / "rules",
    "trident21" / "large",
    "jdk23" / "stacks",
    "pcc23" / "share",
    "piehl12" / "misses",
    "piehl12" / "page-sizes",
    "piehl12" / "table1-6",
    "piehl12" / "table4-1",
    "piehl12" / "table4-2",
    "piehl12" / "table4-3",
    "piehl12" / "table4-4",
    "piehl12" / "table4-5",
    "piehl12" / "table4-6",
    "piehl12" / "table4-7",
    "piehl12" / "table4-8",
    "piehl12" / "table4-9",
    "piehl12" / "pathology",
    "solomon24" / "contiguity",
    "solomon24" / "sizes",
    "solomon24" / "workloads",
    "talluri94" / "subblocks",
    "talluri95" / "tables",
    "swanson98" / "shadow",
    "park20" / "mechanism",
    "park20" / "microbenchmark",
    "park20" / "benchmarks",
    "park20" / "holes",
    "park20" / "bloat",
    "park20" / "virtualised",
    "gosakan23" / "misses",
    "gosakan23" / "filling",
    "tatar22" / "measured",
    "dougan99" / "table1",
    "dougan99" / "table2",
    "dougan99" / "effects",
    "dougan99" / "operations",
    "dougan99" / "table",
    "dougan99" / "idle",
    "dougan99" / "proposed",
    "dougan99" / "today",
];

/// The input files of programs of built-in experiments: paper, name and text.
macro_rules! inputs {
    ($($paper:literal / $name:literal),* $(,)?) => {
        [$(($paper, $name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/", $paper, "/inputs/", $name)))),*]
    };
}

/// All of them. To add one takes a file and a line here.
static INPUTS: &[(&str, &str, &str)] = &inputs![
    "navarro02" / "base-32k.toml",
    "navarro02" / "base-64k.toml",
    "navarro02" / "base-4k.toml",
    "navarro02" / "base-4m.toml",
    "piehl12" / "hpccinf.txt",
    "piehl12" / "benzene.nw",
    "piehl12" / "one-32k.toml",
    "piehl12" / "two-32k.toml",
    "hawkeye19" / "server.toml",
    "solomon24" / "render.js",
    "solomon24" / "generate.sh",
    "gosakan23" / "gem5.toml",
    "gosakan23" / "ways-1.toml",
    "gosakan23" / "ways-2.toml",
    "gosakan23" / "ways-4.toml",
    "gosakan23" / "ways-8.toml",
    "gosakan23" / "mosaic-8.toml",
    "gosakan23" / "mosaic-32.toml",
    "dougan99" / "clock-180.toml",
    "dougan99" / "clock-200.toml",
];

fn built_in((paper, name, text): &(&str, &str, &str)) -> Experiment {
    let own = INPUTS.iter().filter(|input| input.0 == *paper);
    let inputs = own.map(|(_, name, text)| (name.to_string(), text.to_string())).collect();
    let origin = format!("experiments/{paper}/{name}.toml");
    Experiment::parse(text, paper, name, &origin, inputs).expect("built-in files are valid")
}

/// The files of a folder, by name; none if there is no such folder.
fn folder(path: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut inputs = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(inputs) };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()) {
        let text =
            superpage_output::read_text(&path).map_err(|e| Error::Usage(format!("input {}: {e}", path.display())))?;
        inputs.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text);
    }
    Ok(inputs)
}

/// All built-in experiments.
pub fn experiments() -> Vec<Experiment> {
    FILES.iter().map(built_in).collect()
}

/// The experiments that `name` selects: all of a paper, one as `paper/experiment`, or those of a
/// file `*.toml`.
///
/// # Errors
/// The name is unknown (the message lists all), or something in the file is wrong (it says what).
pub fn select(name: &str) -> Result<Vec<Experiment>, Error> {
    if name.ends_with(".toml") {
        let path = Path::new(name);
        let text = superpage_output::read_text(path).map_err(|e| Error::Usage(format!("experiment {name}: {e}")))?;
        let folder = path.parent().and_then(Path::file_name).map_or("own".into(), |folder| folder.to_string_lossy());
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let inputs = self::folder(&path.with_file_name("inputs"))?;
        return Ok(vec![Experiment::parse(&text, &folder, &stem, name, inputs)?]);
    }
    let asked = |file: &&(&str, &str, &str)| name == file.0 || name.split_once('/') == Some((file.0, file.1));
    let found: Vec<Experiment> = FILES.iter().filter(asked).map(built_in).collect();
    if found.is_empty() {
        let known: Vec<String> = FILES.iter().map(|(paper, name, _)| format!("{paper}/{name}")).collect();
        return Err(Error::Usage(format!(
            "there is no experiment {name}; take a paper or one of {}, or the path of an experiment file (*.toml)",
            known.join(", ")
        )));
    }
    Ok(found)
}

/// The experiments that any of these names selects, in their order and each once.
///
/// # Errors
/// As for [`select`].
pub fn select_all(names: &[String]) -> Result<Vec<Experiment>, Error> {
    let mut chosen: Vec<Experiment> = Vec::new();
    for name in names {
        for experiment in select(name)? {
            if chosen.iter().all(|known| known.full_name() != experiment.full_name()) {
                chosen.push(experiment);
            }
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Kind;

    #[test]
    fn every_file_of_the_folder_is_built_in_and_right() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let mut found = Vec::new();
        for paper in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
            let files = std::fs::read_dir(&paper).unwrap().map(|entry| entry.unwrap().path());
            for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")) {
                let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
                found.push(format!("{}/{}", name(&paper), name(&file)));
            }
        }
        let mut built_in: Vec<String> = experiments().iter().map(Experiment::full_name).collect();
        found.sort();
        built_in.sort();
        assert_eq!(found, built_in);
    }

    #[test]
    fn every_input_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        for paper in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
            let paper_name = paper.file_name().unwrap().to_string_lossy().into_owned();
            let built_in = INPUTS.iter().filter(|input| input.0 == paper_name);
            let built_in: BTreeMap<String, String> = built_in.map(|input| (input.1.into(), input.2.into())).collect();
            assert_eq!(folder(&paper.join("inputs")).unwrap(), built_in);
        }
    }

    #[test]
    fn every_machine_of_a_run_is_there() {
        for experiment in experiments().iter().filter(|experiment| experiment.kind != Kind::Live) {
            for (name, run) in &experiment.runs {
                let machine = crate::streams::machine(&run.machine, &run.inputs);
                assert!(machine.is_ok(), "{}, run {name}: {machine:?}", experiment.full_name());
            }
        }
    }

    #[test]
    fn contiguity_is_found_out_only_where_a_measure_reads_it() {
        let reads = |name: &str| select(name).unwrap()[0].reads("contiguous_percent");
        assert!(reads("solomon24/contiguity") && !reads("solomon24/sizes") && !reads("navarro02/fragmentation"));
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let error = select("navarro02/table9").unwrap_err().to_string();
        assert!(error.contains("navarro02/table2, navarro02/table3"), "{error}");
    }
}
