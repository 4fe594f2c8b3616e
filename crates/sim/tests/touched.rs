//! What programs touch is a matter of the stream: the same under every policy, whatever that fills
//! or takes away.

use crate::script;

use script::{Script, run_script};
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, Row, SIMULATOR, plan, run};
use superpage_trace::{Backing, Event, Growth, ProcessId, workload};

/// All policies as they are, `base` first, and some with parameters.
fn policies() -> Vec<&'static str> {
    let mut all: Vec<&str> = SIMULATOR.policies().map(|policy| policy.name).collect();
    all.sort_by_key(|name| *name != "base");
    let more = [
        "reservation:threshold=1/8",
        "reservation:place=extent",
        "reservation:reclaim=none",
        "khugepaged:interval=1ms",
        "ingens:interval=1ms,aggressive=0.5",
        "promote:age=1ms,interval=1ms,idle=1ms,cpu=1,share=10%",
    ];
    all.into_iter().chain(more).collect()
}

/// Machines with base pages of 4 KB, and one with 8 KB.
const MACHINES: [&str; 3] = ["zen5", "neoverse-v2", "alpha-21264"];

fn memory(bytes: u64) -> Conditions {
    Conditions { memory: Some(bytes), ..Conditions::default() }
}

/// Asserts that all rows of the machine tell the same touched bytes, and returns them.
fn same(rows: &[Row], what: &str) -> u64 {
    for row in rows {
        assert_eq!(row.peak_touched_bytes, rows[0].peak_touched_bytes, "{what}: {} {}", row.machine, row.policy);
        let bloat = 100.0 * (row.peak_resident_bytes as f64 / row.peak_touched_bytes.max(1) as f64 - 1.0);
        assert!(row.peak_touched_bytes == 0 || (row.bloat_percent - bloat).abs() < 1e-9, "{what}");
    }
    rows[0].peak_touched_bytes
}

#[test]
fn every_policy_touches_the_same_of_every_workload_with_memory_ample_and_scarce() {
    let workloads = [
        "touch:bytes=4M",
        "zipf:bytes=4M,references=20K",
        "tree:nodes=2000,operations=5K",
        "cmp:bytes=2M",
        "dirty-file:bytes=4M,every=4",
        "touch:bytes=3M;random:bytes=2M,references=10K",
        "web:requests=200",
    ];
    let policies: Vec<String> = policies().iter().map(ToString::to_string).collect();
    for text in workloads {
        for machine in MACHINES {
            let with = |conditions: &Conditions| {
                let setups = plan(&[machine.into()], &policies, conditions).unwrap();
                run(&setups, workload::parse(text).unwrap().as_mut(), &AtomicBool::new(false), &|_| {}).unwrap()
            };
            let ample = with(&memory(512 << 20));
            let touched = same(&ample, text);
            assert_eq!(ample[0].peak_resident_bytes, touched, "{text} {machine}: base holds what is touched");
            let scarce: Vec<Row> =
                with(&memory((touched * 3 / 4).max(4 << 20))).into_iter().filter(|row| row.error.is_none()).collect();
            assert_eq!(same(&scarce, text), touched, "{text} {machine}, with less memory");
        }
    }
}

#[test]
fn what_is_filled_and_then_touched_is_no_bloat() {
    let rows = |workload: &str, policy: &str| {
        let setups = plan(&["zen5".into()], &[policy.into()], &memory(1 << 30)).unwrap();
        run(&setups, workload::parse(workload).unwrap().as_mut(), &AtomicBool::new(false), &|_| {}).unwrap()
    };
    for policy in ["thp", "talluri-hill", "reservation:threshold=2/8"] {
        let row = &rows("touch:bytes=64M", policy)[1];
        assert_eq!((row.peak_touched_bytes, row.bloat_percent), (64 << 20, 0.0), "{policy}");
    }
    // One page in sixteen is touched, and all are filled.
    let row = &rows("touch:bytes=64M,step=64K", "thp")[1];
    assert_eq!((row.peak_touched_bytes, row.peak_resident_bytes), (4 << 20, 64 << 20));
    assert_eq!(row.bloat_percent, 1500.0);
}

/// A script drawn by a seed: a few processes that do to their memory all that there is.
struct Drawn {
    script: Script,
    state: u64,
    children: u32,
}

impl Drawn {
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    /// A page of a playing field of 16 MB.
    fn page(&mut self) -> u64 {
        0x1_0000 + self.below(4096)
    }

    fn step(&mut self, alive: &mut Vec<u32>, at: &mut usize) {
        let (start, pages) = (self.page(), 1 + self.below(700));
        let event = match self.below(15) {
            0..3 => {
                let shared = self.below(3) == 0;
                let backing = match self.below(3) {
                    0 => Backing::File { file: 1, file_pages: 4096, offset: self.below(512) },
                    _ => Backing::Anonymous,
                };
                let protection = Protection::READ_WRITE;
                Event::Map { start, pages, protection, shared, backing, growth: Growth::Fixed }
            }
            3..7 => {
                let access = [Access::Read, Access::Write][self.below(2) as usize];
                return self.script.touch(start..start + pages, access);
            }
            7 => Event::Unmap { start, pages },
            8 => Event::Discard { start, pages },
            9 => Event::Protect { start, pages, protection: Protection::READ },
            10 if alive.len() < 4 => {
                self.children += 1;
                alive.push(self.children);
                Event::Fork { child: ProcessId(self.children) }
            }
            11 => {
                *at = self.below(alive.len() as u64) as usize;
                return self.script.process(alive[*at]);
            }
            12 if alive.len() > 1 => {
                alive.remove(*at);
                self.script.event(Event::Exit);
                *at = 0;
                return self.script.process(alive[0]);
            }
            13 if self.below(4) == 0 => Event::Exec,
            _ => {
                self.script.event(Event::Open { file: 2, file_pages: 300 });
                let start = self.below(200);
                self.script.event(Event::Read { file: 2, start, pages: 20 });
                Event::Close { file: 2 }
            }
        };
        self.script.event(event);
    }
}

fn drawn(seed: u64) -> Script {
    let mut drawn = Drawn { script: Script::new(), state: seed, children: 0 };
    let (mut alive, mut at) = (vec![0], 0);
    drawn.script.process(0);
    (0..80).for_each(|_| drawn.step(&mut alive, &mut at));
    drawn.script
}

#[test]
fn every_policy_touches_the_same_through_forks_unmappings_files_and_swap() {
    for seed in 0..4 {
        let mut script = drawn(seed);
        for machine in MACHINES {
            let ample = run_script(&mut script, machine, &policies(), &memory(128 << 20));
            assert!(ample.iter().all(|row| row.error.is_none()), "{seed}: {:?}", ample[0].error);
            let touched = same(&ample, &format!("seed {seed}"));
            // Behind a fork the manager may hold pages for a while that nobody can reach any more.
            assert!(ample[0].peak_resident_bytes >= touched, "seed {seed} {machine}");
            let scarce = run_script(&mut script, machine, &policies(), &memory((touched * 3 / 4).max(4 << 20)));
            let scarce: Vec<Row> = scarce.into_iter().filter(|row| row.error.is_none()).collect();
            if !scarce.is_empty() {
                assert_eq!(same(&scarce, &format!("seed {seed}, with less memory")), touched);
            }
        }
    }
}

#[test]
fn without_forks_and_files_it_is_the_set_of_pages_touched_and_still_mapped() {
    let mut draw = Drawn { script: Script::new(), state: 7, children: 0 };
    draw.script.process(0);
    let (mut touched, mut most) = (HashSet::new(), 0);
    let gone = |touched: &mut HashSet<u64>, from: u64, to: u64| touched.retain(|page| !(from..to).contains(page));
    for _ in 0..400 {
        let (start, pages) = (draw.page(), 1 + draw.below(700));
        match draw.below(6) {
            0..3 => {
                draw.script.touch(start..start + pages, Access::Write);
                touched.extend(start..start + pages);
            }
            3 => {
                draw.script.event(Event::Unmap { start, pages });
                gone(&mut touched, start, start + pages);
            }
            4 => {
                draw.script.map(start, pages);
                gone(&mut touched, start, start + pages);
            }
            _ => {
                // The range moves to where nothing else is, and back over what is there by then.
                let far = 0x8_0000;
                draw.script.map(start, pages);
                gone(&mut touched, start, start + pages);
                draw.script.touch(start..start + pages / 2, Access::Write);
                draw.script.event(Event::Remap { from: start, from_pages: pages, to: far, to_pages: pages });
                draw.script.touch(start..start + 1, Access::Read);
                most = most.max(touched.len() + pages as usize / 2 + 1);
                draw.script.event(Event::Remap { from: far, from_pages: pages, to: start, to_pages: pages });
                touched.extend(start..start + pages / 2);
            }
        }
        most = most.max(touched.len());
    }
    for row in run_script(&mut draw.script, "zen5", &policies(), &memory(256 << 20)) {
        assert_eq!((row.error, row.peak_touched_bytes), (None, 4096 * most as u64), "{}", row.policy);
    }
}

#[test]
fn a_fork_shares_pages_until_they_are_written() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 100);
    script.touch(0x1000..0x1064, Access::Write);
    script.event(Event::Fork { child: ProcessId(1) });
    script.process(1);
    script.touch(0x1000..0x1064, Access::Read);
    script.event(Event::Mark("shared".into()));
    script.touch(0x1000..0x100a, Access::Write);
    script.event(Event::Mark("written".into()));
    script.process(0);
    script.event(Event::Exit);
    script.process(1);
    script.event(Event::Mark("alone".into()));
    script.touch(0x1000..0x1064, Access::Write);
    script.event(Event::Unmap { start: 0x1000, pages: 100 });
    script.event(Event::Mark("nothing".into()));
    script.touch(0x2000..0x2001, Access::Write);
    let setups = plan(&["zen5".into()], &["thp".into()], &memory(64 << 20)).unwrap();
    let runs = superpage_sim::run_parts(&setups, &mut script, &AtomicBool::new(false), &|_| {}, &Default::default());
    for run in runs.unwrap() {
        let touched: Vec<u64> = run.parts.iter().map(|part| part.row.peak_touched_bytes / 4096).collect();
        assert_eq!(touched, [110, 110, 100, 1]);
        assert_eq!(run.row.peak_touched_bytes / 4096, 110);
    }
}

#[test]
fn a_process_that_is_ended_has_touched_what_it_did_until_then() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    script.process(1);
    script.map(0x1000, 400);
    script.touch(0x1000..0x1190, Access::Write);
    let conditions = Conditions { memory: Some(2 << 20), swap: Some(0), ..Conditions::default() };
    // Of 512 frames none is left when the first process touches another page.
    script.event(Event::Exit);
    script.process(0);
    script.map(0x4000, 512);
    script.touch(0x4000..0x4200, Access::Write);
    let row = &run_script(&mut script, "zen5", &["base"], &conditions)[0];
    assert!(row.error.as_deref().is_some_and(|error| error.contains("process 1 was ended")), "{:?}", row.error);
    assert_eq!(row.peak_touched_bytes, 2 << 20);
}
