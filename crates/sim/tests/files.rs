//! Files, swap space, digests and the kernel's own memory, as a row counts them and the disk
//! charges for them.

use crate::script;

use script::{Script, run_script};
use std::sync::atomic::AtomicBool;
use superpage_pages::{Access, Protection};
use superpage_sim::{Conditions, Files, Row, Watch, plan, run, run_parts};
use superpage_trace::{Backing, Event, Growth, ProcessId, workload};

const PLENTY: u64 = 64 << 20;

fn plenty() -> Conditions {
    Conditions { memory: Some(PLENTY), ..Conditions::default() }
}

/// The row of one policy on the Alpha, whose base pages hold two pages of the stream.
fn alpha(script: &mut Script, policy: &str, conditions: &Conditions) -> Row {
    let row = run_script(script, "alpha-21264", &[policy], conditions).pop().unwrap();
    assert_eq!((row.frames_leaked, &row.error), (0, &None));
    row
}

#[test]
fn the_first_read_of_a_warm_file_is_free_and_of_a_cold_one_is_one_request() {
    let mut script = Script::new();
    script.process(0);
    script.event(Event::Open { file: 7, file_pages: 100 });
    script.event(Event::Read { file: 7, start: 0, pages: 100 });
    script.event(Event::Read { file: 7, start: 50, pages: 50 });
    script.event(Event::Close { file: 7 });
    for policy in ["base", "reservation"] {
        let [warm, cold] =
            [Files::Warm, Files::Cold].map(|files| alpha(&mut script, policy, &Conditions { files, ..plenty() }));
        for row in [&warm, &cold] {
            assert_eq!((row.page_ins, row.bytes_read, row.bytes_copied), (50, 50 * 8192, 150 * 4096));
        }
        assert_eq!((warm.io_requests, cold.io_requests), (0, 1));
        // 9 ms, and 400 KB at 25 MB/s.
        assert!((cold.io_seconds - (0.009 + 409_600.0 / 25e6)).abs() < 1e-8, "{}", cold.io_seconds);
        assert!((cold.seconds - warm.seconds - cold.io_seconds).abs() < 1e-8);
    }
}

/// Five times a process maps a file privately, writes to its pages before it has read them, and
/// goes; in between another reads them. The file is warm: nothing is read from the disk. Of a cold
/// one each copy is read, since the file's own page was in no frame.
#[test]
fn a_private_write_to_a_page_of_a_warm_file_reads_nothing_from_the_disk() {
    let mut script = Script::new();
    let backing = Backing::File { file: 7, file_pages: 16, offset: 0 };
    let (protection, growth) = (Protection::READ_WRITE, Growth::Fixed);
    for round in 0..5 {
        script.process(round);
        script.event(Event::Map { start: 64, pages: 16, protection, shared: false, backing, growth });
        script.touch(64..80, Access::Write);
        script.event(Event::Exit);
    }
    script.process(9);
    script.map_file(64, 7, 16);
    script.touch(64..80, Access::Read);
    script.event(Event::Exit);
    let requests = |files: Files| {
        let row = run_script(&mut script.clone(), "zen5", &["base"], &Conditions { files, ..plenty() }).pop().unwrap();
        (row.io_requests, row.page_ins, row.frames_leaked)
    };
    assert_eq!([Files::Warm, Files::Cold].map(requests), [(0, 6 * 16, 0), (6, 6 * 16, 0)]);
}

#[test]
fn what_is_written_goes_out_when_it_is_synced_and_a_part_of_a_page_is_read_first() {
    let mut script = Script::new();
    script.process(0);
    script.event(Event::Open { file: 1, file_pages: 9 });
    // Pages 3 to 8 of the stream: the second half of one page of 8 KB, two whole ones, and the
    // first half of one whose other half is past the end of the file.
    script.event(Event::Write { file: 1, start: 3, pages: 6 });
    script.event(Event::Sync { file: 1 });
    script.event(Event::Sync { file: 1 });
    let row = alpha(&mut script, "base", &plenty());
    assert_eq!((row.page_ins, row.page_outs, row.bytes_written), (1, 4, 4 * 8192));
    assert_eq!((row.io_requests, row.bytes_copied), (1, 6 * 4096));
}

#[test]
fn a_sync_waits_for_nobody_else_s_writes() {
    let mut script = Script::new();
    script.process(0);
    (0..2).for_each(|file| script.event(Event::Open { file, file_pages: 4096 }));
    for turn in 0..32 {
        let file = turn % 2;
        script.event(Event::Write { file, start: u64::from(turn / 2) * 2, pages: 2 });
        script.event(Event::Sync { file });
    }
    let row = alpha(&mut script, "base", &plenty());
    assert_eq!((row.page_outs, row.io_requests), (32, 32), "each is written at once, and a seek of 16 MB away");
}

#[test]
fn a_file_that_is_removed_is_not_written() {
    let mut script = Script::new();
    script.process(0);
    script.event(Event::Open { file: 1, file_pages: 0 });
    script.event(Event::Write { file: 1, start: 0, pages: 64 });
    script.event(Event::Close { file: 1 });
    script.event(Event::Remove { file: 1 });
    // Another file of the same number, long enough to push the first out if it were there.
    script.event(Event::Open { file: 1, file_pages: 512 });
    script.event(Event::Read { file: 1, start: 0, pages: 512 });
    for policy in ["base", "reservation"] {
        let row = alpha(&mut script, policy, &Conditions { memory: Some(1 << 20), ..Conditions::default() });
        assert_eq!((row.page_outs, row.page_ins, row.io_requests), (0, 256, 0), "{policy}");
        assert!(row.evictions > 0, "{policy}");
    }
}

#[test]
fn anonymous_memory_beyond_the_frames_goes_to_swap_space_and_comes_back() {
    let mut script = Script::new();
    script.process(0);
    script.map(0x1000, 512);
    script.touch(0x1000..0x1200, Access::Write);
    script.touch(0x1000..0x1200, Access::Read);
    for policy in ["base", "reservation", "freebsd", "talluri-hill", "thp"] {
        let row = alpha(&mut script, policy, &Conditions { memory: Some(1 << 20), ..Conditions::default() });
        assert!(row.page_outs >= 128 && row.page_ins >= 128, "{policy}: {row:?}");
        assert_eq!((row.bytes_written, row.bytes_read), (row.page_outs * 8192, row.page_ins * 8192));
        assert!(row.io_requests > 0 && row.daemon_runs > 0 && row.daemon_cycles > 0, "{policy}: {row:?}");
        assert!(row.daemon_cycles < row.cycles && row.io_seconds < row.seconds);
        // What is not in memory when the process ends is in swap space; a cache page that counts as
        // free may be in both.
        let resident = row.active_bytes + row.inactive_bytes + row.cache_bytes;
        assert!(resident <= 1 << 20 && resident + row.swap_used_bytes >= 2 << 20, "{policy}: {row:?}");
        assert!(row.active_bytes > 0 && row.inactive_bytes > 0, "{policy}: {row:?}");
        let small = Conditions { memory: Some(1 << 20), swap: Some(256 << 10), ..Conditions::default() };
        let row = &run_script(&mut script, "alpha-21264", &[policy], &small).pop().unwrap();
        assert!(row.error.as_ref().is_some_and(|error| error.contains("process 0")), "{policy}: {row:?}");
        assert_eq!(row.frames_leaked, 0);
    }
}

#[test]
fn demotion_on_write_saves_a_factor_of_512() {
    // Section 6.7: one page in 512 of a file is written. A superpage of 4 MB has one dirty bit.
    let policies = ["reservation", "reservation:demote-on-write=off"].map(String::from);
    let setups = plan(&["alpha-21264".into()], &policies, &plenty()).unwrap();
    let mut source = workload::parse("dirty-file:bytes=16M,every=512").unwrap();
    let rows = run(&setups, source.as_mut(), &AtomicBool::new(false), &|_| {}).unwrap();
    let outs: Vec<u64> = rows.iter().map(|row| row.page_outs).collect();
    assert_eq!(outs, [4, 4, 4 * 512], "base, and with and without demotion");
    assert!(rows[2].seconds > rows[1].seconds);
}

#[test]
fn digests_tell_which_pages_of_a_dirty_superpage_changed() {
    // A file of 512 KB is read, so that one superpage maps it; of its 64 pages two are written, one
    // of them with what it holds already; then all is written out.
    let mut script = Script::new();
    script.process(0);
    script.map_file(0x400 * 16, 5, 128);
    let first = 0x400 * 16;
    script.touch(first..first + 128, Access::Read);
    script.event(Event::Idle { microseconds: 1_000_000 });
    script.touch(first + 10..first + 11, Access::Write);
    script.event(Event::Rewrite { start: first + 20, pages: 2 });
    script.touch(first + 20..first + 21, Access::Write);
    script.event(Event::Rewrite { start: 0, pages: 0 });
    script.event(Event::Sync { file: 5 });
    let row = |script: &mut Script, hash: &str| {
        alpha(script, &format!("reservation:demote-on-write=off,hash={hash}"), &plenty())
    };
    let off = row(&mut script, "off");
    assert_eq!((off.page_outs, off.pages_hashed, off.pages_spared), (64, 0, 0));
    for hash in ["read", "late", "idle"] {
        let row = row(&mut script, hash);
        // Each page is hashed once before it is written, and once when it is to go out.
        assert_eq!((row.page_outs, row.pages_spared, row.pages_hashed), (1, 63, 128), "{hash}");
    }
    // What the idle loop hashes takes no time of the program's.
    let fast = superpage_sim::machine("alpha-21264").unwrap().costs.hash_per_kb;
    assert_eq!(row(&mut script, "read").cycles - row(&mut script, "idle").cycles, 64 * 8 * fast);
    let sha1 = Conditions { digest: superpage_sim::Digest::Sha1, ..plenty() };
    let slow = alpha(&mut script, "reservation:demote-on-write=off,hash=read", &sha1);
    assert!(slow.cycles > row(&mut script, "read").cycles);
}

#[test]
fn the_kernel_takes_and_gives_back_whole_pages_of_the_machine() {
    let mut script = Script::new();
    script.process(0);
    // 5 pages of 4 KB are 3 of 8 KB; 1 more is in the third; 2 less leave 2.
    for event in [Event::Wire { pages: 5 }, Event::Wire { pages: 1 }, Event::Unwire { pages: 2 }] {
        script.event(event);
        script.event(Event::Idle { microseconds: 1000 });
    }
    let watch = Watch { every: Some(superpage_sim::Every::Seconds(0.001)), ..Watch::default() };
    let setups = plan(&["alpha-21264".into()], &["base".into()], &plenty()).unwrap();
    let run = run_parts(&setups, &mut script, &AtomicBool::new(false), &|_| {}, &watch).unwrap().remove(0);
    let series = run.row.series.unwrap();
    let wired: Vec<u64> = series.iter().map(|sample| sample.wired_bytes / 8192).collect();
    // The last one is the end.
    assert_eq!(wired, [0, 3, 3, 2, 2]);
    assert_eq!((run.row.frames_leaked, run.row.error), (0, None));
}

#[test]
fn a_forked_child_keeps_files_open_until_it_exits_too() {
    let mut script = Script::new();
    script.process(0);
    script.event(Event::Open { file: 1, file_pages: 64 });
    script.event(Event::Fork { child: ProcessId(1) });
    script.event(Event::Exit);
    script.process(1);
    script.event(Event::Read { file: 1, start: 0, pages: 64 });
    script.event(Event::Exit);
    script.process(2);
    script.event(Event::Read { file: 1, start: 0, pages: 64 });
    let row = run_script(&mut script, "alpha-21264", &["base"], &plenty()).pop().unwrap();
    assert_eq!(row.page_ins, 32);
    assert!(row.error.is_some_and(|error| error.contains("not open")), "the third process has not opened it");
}
