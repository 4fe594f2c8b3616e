//! Compiles the QEMU plugin of `crates/recorder`, by the link `plugin`, so that it can be built into this library.
//!
//! The plugin is a shared library for the machine that records; on systems other than Linux, and where this is built for
//! another machine, an empty file stands in its place, and recording says so.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let source = PathBuf::from("plugin");
    println!("cargo::rerun-if-changed={}", source.display());
    let variable = |name: &str| env::var_os(name).unwrap_or_default();
    let plugin = PathBuf::from(variable("OUT_DIR")).join("recorder.so");
    let native = variable("HOST") == variable("TARGET");
    let supported = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if !(native && supported) {
        std::fs::write(&plugin, []).expect("the build folder can be written");
        return;
    }
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(["--crate-name", "superpage_recorder", "--crate-type", "cdylib", "--edition", "2024"]);
    compiler.args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "strip=symbols", "--cap-lints", "allow"]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        compiler.arg("-C").arg(option);
    }
    compiler.arg("-o").arg(&plugin).arg(source.join("lib.rs"));
    let status = compiler.status().expect("the compiler that builds this crate can be run");
    assert!(status.success(), "the plugin in {} does not compile", source.display());
}
