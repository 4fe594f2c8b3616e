//! Programs in C and C++ that are linked with the library, and what they print.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A path of the repository.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compiles a program, linked with the static library, into `folder`; `None`, and a counted skip,
/// if there is no compiler.
pub(crate) fn built(compiler: &str, standard: &str, source: &Path, folder: &Path) -> Option<PathBuf> {
    // Cargo builds the library next to the test.
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libsuperpage_capi.a");
    let program = folder.join("program");
    let mut command = Command::new(compiler);
    command.args([standard, "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]).arg(&program).arg(source);
    command.arg("-I").arg(root("crates/capi/include")).arg(library).args(["-lpthread", "-ldl", "-lm"]);
    let Ok(compiled) = command.output() else {
        superpage_testing::skip!("cc", "no compiler {compiler}");
        return None;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(program)
}

/// What a program prints that ends well.
pub(crate) fn printed(program: &Path, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap();
    let [out, error] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{}: {out}{error}", done.status);
    out
}
