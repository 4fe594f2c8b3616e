//! The documents name files and tests of this tree: all of them exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders whose paths are checked.
const FOLDERS: [&str; 6] = ["crates/", "machines/", "docs/", "corpus/", "demo/", "fuzz/"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")).map(|entry| entry.unwrap().path())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// The READMEs, where there are, and the documents, each with its text outside fenced blocks.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let readmes =
        ["README.md", "corpus/README.md"].map(|name| root.join(name)).into_iter().filter(|path| path.exists());
    let documents = readmes.chain(listed(&root.join("docs")).filter(|path| has_extension(path, "md")));
    let prose = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let prose: Vec<&str> = text.split("\n```").step_by(2).collect();
        (path, prose.join("\n"))
    };
    documents.map(prose).collect()
}

/// The words in backquotes, without punctuation at their ends.
fn quoted<'a>(path: &Path, prose: &'a str) -> Vec<&'a str> {
    let parts: Vec<&str> = prose.split('`').collect();
    assert!(parts.len() % 2 == 1, "{path:?} has a backquote without its partner");
    let spans = parts.into_iter().skip(1).step_by(2);
    spans.flat_map(str::split_whitespace).map(|word| word.trim_end_matches([',', ';', ':', ')', '.'])).collect()
}

/// Every source file of the crates.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in listed(folder) {
        if path.is_dir() {
            sources(&path, found);
        } else if has_extension(&path, "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_path_in_the_documents_exists() {
    let mut checked = 0;
    for (document, prose) in documents() {
        for word in quoted(&document, &prose) {
            let path = word.split("::").next().unwrap();
            // A word in capitals stands for a name of the reader's choice.
            let placeholder = Path::new(path).file_stem().is_some_and(|stem| stem == "NAME");
            if placeholder || !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            checked += 1;
            let exists = match path.split_once("*.") {
                Some((folder, extension)) => listed(&root().join(folder)).any(|path| has_extension(&path, extension)),
                None => root().join(path).exists(),
            };
            assert!(exists, "{document:?} names {path}, which does not exist");
        }
    }
    assert!(checked > 20, "only {checked} paths were found");
}

#[test]
fn every_test_in_the_table_of_papers_exists() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let document = root().join("docs/papers.md");
    let prose = fs::read_to_string(&document).unwrap();
    let mut checked = 0;
    for word in quoted(&document, &prose) {
        let Some((file, function)) = word.split_once(".rs::") else { continue };
        if (file, function) == ("file", "function") {
            continue;
        }
        checked += 1;
        let file = format!("{file}.rs");
        let defines = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(&format!("fn {function}("));
        let mut named = files.iter().filter(|path| path.ends_with(&file)).peekable();
        assert!(named.peek().is_some(), "docs/papers.md names {file}, which does not exist");
        assert!(named.any(defines), "docs/papers.md names {word}, but {file} has no such function");
    }
    assert!(checked > 40, "only {checked} tests were found");
}
