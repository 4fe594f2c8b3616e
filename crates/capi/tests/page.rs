//! The page of the documents: its program prints what it says.

use crate::build::{built, printed, root};

#[test]
fn the_program_of_the_page_prints_what_the_page_says() {
    let text = std::fs::read_to_string(root("docs/capi.md")).unwrap();
    let block = |kind: &str| {
        let (_, from) = text.split_once(&format!("\n```{kind}\n")).unwrap();
        format!("{}\n", from.split_once("\n```").unwrap().0)
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.c");
    std::fs::write(&source, block("c")).unwrap();
    if let Some(program) = built("cc", "-std=c99", &source, folder.path()) {
        assert_eq!(printed(&program, &[]), block("text"));
    }
}
