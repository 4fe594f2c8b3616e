//! Says which build this is: a digest of the sources that decide what rows are, where they lie
//! beside this crate, as in a checkout. In a published package they do not, and its version says
//! all. The same sources are the same build, wherever and whenever they are built.

use std::path::{Path, PathBuf};
use std::{env, fs, io};
use xxhash_rust::xxh3::Xxh3;

/// The crates on which rows depend.
const CRATES: [&str; 7] = ["keys", "pages", "report", "vm", "mmu", "trace", "sim"];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=SUPERPAGE_BUILD={}", build(&here.join("..")).unwrap_or_default());
}

/// The digest, if all sources can be read.
fn build(crates: &Path) -> io::Result<String> {
    let mut digest = Xxh3::new();
    for name in CRATES {
        let sources = crates.join(name).join("src");
        let mut files = Vec::new();
        find(&sources, &mut files)?;
        files.sort();
        println!("cargo::rerun-if-changed={}", sources.display());
        for file in files {
            let (place, text) = (file.strip_prefix(crates).unwrap_or(&file), fs::read(&file)?);
            digest.update(place.to_string_lossy().as_bytes());
            digest.update(&(text.len() as u64).to_le_bytes());
            digest.update(&text);
        }
    }
    Ok(format!("{:016x}", digest.digest()))
}

/// The files of a folder, and of those in it.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { find(&path, files)? } else { files.push(path) }
    }
    Ok(())
}
