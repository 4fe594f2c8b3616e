//! Who pays for what runs beside the program.

use crate::script::{Batches, Script, run_script};
use std::sync::atomic::AtomicBool;
use superpage_pages::Access;
use superpage_sim::{BackgroundOn, Conditions, Every, Row, Watch, plan, run, run_parts};
use superpage_trace::{Event, Run, workload};

fn rows(machine: &str, policy: &str, memory: u64, on: Option<BackgroundOn>, workload: &str) -> Vec<Row> {
    let conditions = Conditions { memory: Some(memory), background: on, ..Conditions::default() };
    let setups = plan(&[machine.into()], &[policy.into()], &conditions).unwrap();
    run(&setups, workload::parse(workload).unwrap().as_mut(), &AtomicBool::new(false), &|_| {}).unwrap()
}

fn both(machine: &str, policy: &str, memory: u64, workload: &str) -> [Vec<Row>; 2] {
    [BackgroundOn::Program, BackgroundOn::Core].map(|on| rows(machine, policy, memory, Some(on), workload))
}

fn parts(row: &Row) -> u64 {
    row.program_cycles
        + row.tlb_hit_cycles
        + row.walk_cycles
        + row.data_cycles
        + row.fault_cycles
        + row.zero_cycles
        + row.copy_cycles
        + row.promotion_cycles
        + row.background_cycles
        + row.io_cycles
        + row.host_cycles
}

/// Nothing of it goes by time, so all but the payer is the same: of each change of a mapping of the
/// program that runs the program pays the shootdown. A region that a background collapses is
/// flushed once, and no other region with it.
#[test]
fn a_collapse_flushes_its_region_and_no_more() {
    let shootdowns = |policy: &str, idles: usize, unmapped: u64| {
        let mut script = Script::new();
        script.process(0);
        let start = 512 * 1000;
        script.map(start, 1536);
        script.touch(start..start + 512, Access::Write);
        script.touch(start + 512..start + 522, Access::Write);
        (0..idles).for_each(|_| script.event(Event::Idle { microseconds: 12_000_000 }));
        script.event(Event::Unmap { start: start + 512, pages: unmapped });
        script.touch(start..start + 1, Access::Write);
        script.event(Event::Exit);
        let rows = run_script(&mut script, "zen5", &[policy], &Conditions::default());
        (rows[1].promotions, rows[1].shootdowns)
    };
    // The collapse, ten pages, the end.
    assert_eq!(shootdowns("khugepaged:fault=off,max-none=400", 1, 10), (1, 12));
    // Two collapses in two calls, and the end: what the second has flushed nobody has used since.
    assert_eq!(shootdowns("khugepaged:fault=off,pages=512", 2, 512), (2, 3));
}

#[test]
fn the_page_daemon_is_on_another_core() {
    let shootdown = superpage_sim::machine("harpertown").unwrap().costs.shootdown;
    for policy in ["reservation", "thp"] {
        let [program, core] = both("harpertown", policy, 6 << 20, "random:bytes=8M,references=40K");
        for (program, core) in program.iter().zip(&core) {
            assert!(program.daemon_runs > 0 && core.other_core_cycles > 0, "{policy}");
            assert_eq!(program.other_core_cycles, 0);
            assert_eq!(core.cycles + core.other_core_cycles, program.cycles);
            assert_eq!(core.background_cycles + core.other_core_cycles, program.background_cycles);
            assert!(core.background_cycles.is_multiple_of(shootdown) && core.background_cycles > 0);
            assert_eq!([parts(program), parts(core)], [program.cycles, core.cycles]);
            let moved = Row {
                cycles: core.cycles,
                background_cycles: core.background_cycles,
                other_core_cycles: core.other_core_cycles,
                background: core.background,
                seconds: core.seconds,
                elapsed_seconds: core.elapsed_seconds,
                speedup: core.speedup,
                ..program.clone()
            };
            assert_eq!(moved, *core);
        }
    }
}

#[test]
fn a_promotion_on_another_core_makes_faults_wait() {
    let workload = "touch:bytes=8M,rounds=2;zipf:bytes=8M,references=500K";
    let [program, core] = both("zen5", "promote:age=0s,interval=1ms", 64 << 20, workload).map(|rows| rows[1].clone());
    assert!(program.promotions > 0 && core.promotions > 0);
    assert_eq!([parts(&program), parts(&core)], [program.cycles, core.cycles]);
    assert_eq!(program.other_core_cycles, 0);
    assert!(core.other_core_cycles > 0 && core.cycles < program.cycles, "{} {}", core.cycles, program.cycles);
    // At most the shootdowns, and a wait for each region that it promoted.
    let machine = superpage_sim::machine("zen5").unwrap();
    let region = 2048 * machine.costs.copy_per_kb * 2;
    let most = core.shootdowns * machine.costs.shootdown + core.promotions * region;
    assert!((1..most).contains(&core.background_cycles), "{} of {most}", core.background_cycles);
}

#[test]
fn a_machine_of_one_core_has_it_on_the_programs() {
    let row = |machine: &str, on| rows(machine, "base", 64 << 20, on, "touch:bytes=64K")[0].background;
    assert_eq!(row("alpha-21264", None), BackgroundOn::Program);
    assert_eq!(row("zen5", None), BackgroundOn::Core);
    assert_eq!(row("alpha-21264", Some(BackgroundOn::Core)), BackgroundOn::Core);
    assert_eq!(row("alpha-21264:clock.cores=2", None), BackgroundOn::Core);
}

/// The host's background is beside its guest.
#[test]
fn the_background_of_a_host_is_on_another_core() {
    let [program, core] = [BackgroundOn::Program, BackgroundOn::Core].map(|on| {
        let host_policies = vec!["promote:age=1ms,interval=1ms".into()];
        let conditions =
            Conditions { memory: Some(64 << 20), host_policies, background: Some(on), ..Conditions::default() };
        let setups = plan(&["zen5+nested".into()], &["base".into()], &conditions).unwrap();
        let mut stream = workload::parse("zipf:bytes=8M,references=1M").unwrap();
        run(&setups, stream.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap().pop().unwrap()
    });
    assert!(program.host_promotions > 0 && core.host_promotions > 0);
    assert!(core.host_cycles < program.host_cycles && core.other_core_cycles > 0);
    assert_eq!([parts(&program), parts(&core)], [program.cycles, core.cycles]);
}

/// 8 MB are written, then one page after the other is read for 10 M instructions each, some 2.5 ms:
/// nothing faults any more.
fn long_runs(cuts: &[usize]) -> Batches {
    let mut scripts = vec![Script::new()];
    scripts[0].process(0);
    scripts[0].map(0x1000, 2048);
    scripts[0].touch(0x1000..0x1800, Access::Write);
    for read in 0..400 {
        if cuts.contains(&read) {
            scripts.push(Script::new());
        }
        let run = Run::new(0x1000 + read as u64 * 37 % 2048, Access::Read, 1, 10_000_000);
        scripts.last_mut().unwrap().run(run);
    }
    Batches(scripts)
}

/// A background is called when it is due, and how the stream is cut into batches changes nothing.
#[test]
fn a_background_is_called_when_it_is_due_whatever_the_blocks() {
    for (policy, least) in [
        ("ingens:interval=100ms", 4),
        ("khugepaged:fault=off,interval=100ms", 4),
        ("promote:age=200ms,interval=100ms,idle=100ms", 4),
        ("promote:age=1h,interval=1ms,idle=1ms,cpu=1,burst=10s", 300),
    ] {
        for on in [BackgroundOn::Program, BackgroundOn::Core] {
            let conditions = Conditions { background: Some(on), ..Conditions::default() };
            let setups = plan(&["zen5".into()], &[policy.into()], &conditions).unwrap();
            let row = |mut source: Batches| {
                let watch = Watch { every: Some("30ms".parse::<Every>().unwrap()), ..Watch::default() };
                run_parts(&setups, &mut source, &AtomicBool::new(false), &|_| {}, &watch).unwrap().remove(1).row
            };
            let whole = row(long_runs(&[]));
            assert!(whole.background_runs.is_some_and(|runs| runs >= least), "{policy}: {:?}", whole.background_runs);
            assert_eq!(whole.promotions, if least == 4 { 4 } else { 0 }, "{policy}");
            for cuts in [&[200][..], &[1, 2, 3, 77, 78, 399], &(0..400).collect::<Vec<_>>()] {
                assert_eq!(row(long_runs(cuts)), whole, "{policy} on {on:?}, cut at {cuts:?}");
            }
        }
    }
}
