//! The experiments that are built in, and those of a user's own file.

use crate::Experiment;
use std::path::Path;
use superpage_sim::Error;

/// One experiment file: paper, name and text.
macro_rules! files {
    ($($paper:literal / $name:literal),* $(,)?) => {
        [$(($paper, $name, include_str!(concat!("../../../experiments/", $paper, "/", $name, ".toml")))),*]
    };
}

/// All built-in experiments, in the order in which they stand in their paper. A new one is a file and a line here.
static FILES: &[(&str, &str, &str)] = &files![
    "navarro02" / "figure1",
    "navarro02" / "table1",
    "navarro02" / "table2",
    "navarro02" / "table3",
    "navarro02" / "fragmentation",
    "navarro02" / "concurrent",
    "navarro02" / "adversaries",
    "navarro02" / "dirty",
    "navarro02" / "scalability",
];

fn built_in((paper, name, text): &(&str, &str, &str)) -> Experiment {
    Experiment::parse(text, paper, name, &format!("experiments/{paper}/{name}.toml")).expect("built-in files are right")
}

/// All built-in experiments.
pub fn experiments() -> Vec<Experiment> {
    FILES.iter().map(built_in).collect()
}

/// The experiments that `name` asks for: all of a paper, one as `paper/experiment`, or those of a file `*.toml`.
///
/// # Errors
/// A sentence that lists the names that there are, or says what in the file is wrong.
pub fn select(name: &str) -> Result<Vec<Experiment>, Error> {
    if name.ends_with(".toml") {
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|e| Error::Usage(format!("experiment {name}: {e}")))?;
        let folder = path.parent().and_then(Path::file_name).map_or("own".into(), |folder| folder.to_string_lossy());
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        return Ok(vec![Experiment::parse(&text, &folder, &stem, name)?]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in_and_right() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let mut found = Vec::new();
        for paper in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
            for file in std::fs::read_dir(&paper).unwrap().map(|entry| entry.unwrap().path()) {
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
    fn what_is_not_there_is_answered_with_what_is() {
        let error = select("navarro02/table9").unwrap_err().to_string();
        assert!(error.contains("navarro02/table2, navarro02/table3"), "{error}");
    }
}
