//! Compiles the QEMU plugins of `crates/recorder`, by the link `plugin`: one that records pages and
//! one that records lines, both built into this library.
//!
//! They are shared libraries for the machine that records; on systems other than Linux, and where
//! this is built for another machine, empty files stand in their place, and recording says so.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let source = PathBuf::from("plugin");
    println!("cargo::rerun-if-changed={}", source.display());
    let native = variable("HOST") == variable("TARGET");
    let supported = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    for (name, lines) in [("recorder.so", false), ("recorder-lines.so", true)] {
        let plugin = PathBuf::from(variable("OUT_DIR")).join(name);
        if native && supported {
            compile(&source, &plugin, lines);
        } else {
            std::fs::write(&plugin, []).expect("the build folder can be written");
        }
    }
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_default()
}

/// Compiles the plugin that records pages, or the one that records lines.
fn compile(source: &Path, plugin: &Path, lines: bool) {
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(["--crate-name", "superpage_recorder", "--crate-type", "cdylib", "--edition", "2024"]);
    compiler.args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "strip=symbols", "--cap-lints", "allow"]);
    if lines {
        compiler.args(["--cfg", "superpage_lines"]);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        compiler.arg("-C").arg(option);
    }
    compiler.arg("-o").arg(plugin).arg(source.join("lib.rs"));
    let status = compiler.status().expect("the compiler that builds this crate can be run");
    assert!(status.success(), "the plugin in {} does not compile", source.display());
}
