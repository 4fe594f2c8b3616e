//! All tests of the crate's public interface as one program, which is linked once. One file a question.
//! Tests of different files take turns: what one changes or measures of the system is not another's.

mod command;
mod compare;
mod daemon;
mod docs;
mod inspect;
mod print;
mod probe;
mod record;
mod reproduce;
mod reproduce_live;
mod run;
mod width;

#[test]
fn every_file_is_listed() {
    let listed = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") else { continue };
        assert!(listed.contains(&format!("mod {module};")), "tests/{name} is in no test program");
    }
}
