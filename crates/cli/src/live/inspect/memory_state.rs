//! The state of this machine's memory, for simulations.

use crate::Failure;
use std::path::Path;
use std::process::ExitCode;
use superpage_linux::pagemap::Physical;
use superpage_pages::{Bytes, FrameUse};
use superpage_report::Export;
use superpage_sim::Snapshot;

/// Writes it to a file, and prints how much is free.
pub(super) fn write(path: &Path) -> Result<ExitCode, Failure> {
    let export = Export::create(path).map_err(|error| Failure::Usage(error.to_string()))?;
    let physical = Physical::open()?;
    let release = "/proc/sys/kernel/osrelease";
    let kernel = std::fs::read_to_string(release).map_err(superpage_linux::Error::file("read", release))?;
    let date = chrono::Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut snapshot = Snapshot::new(physical.base(), physical.block(), kernel.trim(), &date);
    physical.blocks(|block| snapshot.push(block))?;
    export.write(&snapshot.to_string()).map_err(|error| Failure::Run(error.to_string()))?;
    let all = Bytes(snapshot.frames() * snapshot.base().bytes());
    let [free, movable, immovable] =
        [FrameUse::Free, FrameUse::Movable, FrameUse::Immovable].map(|of| Bytes(snapshot.bytes(of)));
    // The file may be standard output.
    eprintln!("{}: {all}: {free} free, {movable} movable, {immovable} immovable", path.display());
    Ok(ExitCode::SUCCESS)
}
