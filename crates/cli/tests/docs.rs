//! What the documents name is there: paths, and tests by `file::function`.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words in backquotes of a document, without those of indented and fenced blocks.
fn quoted(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut words = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if !fenced && !line.starts_with("    ") {
            words.extend(line.split('`').skip(1).step_by(2).map(str::to_string));
        }
    }
    words
}

#[test]
fn paths_and_tests_that_the_documents_name_exist() {
    let root = root();
    let mut documents = vec![root.join("README.md"), root.join("corpus/README.md")];
    documents.extend(std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let folders = ["crates/", "machines/", "policies/", "docs/", "corpus/", "fuzz/", "demo/"];
    let (mut paths, mut tests) = (0, 0);
    for document in documents.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        for word in quoted(&std::fs::read_to_string(document).unwrap()) {
            let place = format!("{}: `{word}`", document.display());
            if word.contains(['*', ' ']) {
                continue;
            }
            if let Some((file, function)) = word.split_once(".rs::") {
                let file = if file.contains('/') { format!("{file}.rs") } else { format!("crates/vm/tests/{file}.rs") };
                let code = std::fs::read_to_string(root.join(&file)).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(code.contains(&format!("fn {function}(")), "{place}: no such function in {file}");
                tests += 1;
            } else if folders.iter().any(|folder| word.starts_with(folder)) && !word.contains("NAME") {
                assert!(root.join(&word).exists(), "{place}: no such path");
                paths += 1;
            }
        }
    }
    assert!(paths > 20 && tests > 20, "{paths} paths and {tests} tests are too few to be all");
}
