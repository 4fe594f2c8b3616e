//! A small sweep: two workloads, two policies and two memories, eight cells of a row each.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use superpage_sim::Error;
use superpage_sweep::{Done, Listener, Options, Plan, Sweep, run};

const SWEEP: &str = "[sweep]\nname = \"small\"\n[axes]\nworkload = [\"touch:bytes=64K\", \"touch:bytes=128K\"]\n\
    machine = \"zen5\"\npolicy = [\"base\", \"thp\"]\nmemory = [\"64M\", \"128M\"]\n";

pub(crate) fn plan() -> Plan {
    plan_of(SWEEP)
}

pub(crate) fn plan_of(text: &str) -> Plan {
    Plan::new(Sweep::of_text(text, "small.toml").unwrap(), &[]).unwrap()
}

pub(crate) fn options(shard: &str) -> Options {
    Options { jobs: 2, shard: shard.parse().unwrap(), repair: false, limits: Vec::new(), command: "sweep".into() }
}

#[derive(Default)]
pub(crate) struct Seen(pub Mutex<Vec<(usize, usize)>>);

impl Listener for Seen {
    fn note(&self, text: &str) {
        panic!("{text}");
    }

    fn begins(&self, cells: usize, there: usize) {
        self.0.lock().unwrap().push((cells, there));
    }

    fn ended(&self) {}
}

pub(crate) fn ran(path: &Path, options: &Options) -> Result<Done, Error> {
    run(&plan(), path, options, &AtomicBool::new(false), &Seen::default())
}

/// The paths of a folder's cells, in the order of their names.
pub(crate) fn cells(path: &Path) -> Vec<PathBuf> {
    let mut cells: Vec<_> = fs::read_dir(path.join("cells")).unwrap().map(|file| file.unwrap().path()).collect();
    cells.sort();
    cells
}
