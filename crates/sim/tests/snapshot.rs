//! Runs in memory as a machine had it.

use crate::script::{Script, run_script};
use superpage_pages::Access;
use superpage_sim::{Conditions, plan};
use superpage_trace::Event;

/// 64 MB: two blocks of 2 MB are free, of the others every other group of four frames, and each has
/// an immovable page.
fn file(folder: &tempfile::TempDir) -> String {
    let head = "superpage-memory 1 base=4K block=2M frames=16384 kernel=6.18 date=2026-11-27T20:31:00Z\n";
    let path = folder.path().join("machine.memory");
    let block = "I1M3F4".to_string() + &"M4F4".repeat(63);
    std::fs::write(&path, format!("{head}7*{block}\n2*F512\n23*{block}\n")).unwrap();
    path.display().to_string()
}

fn conditions(fragment: &str, memory: Option<u64>) -> Conditions {
    Conditions { fragment: fragment.parse().unwrap(), memory, ..Conditions::default() }
}

#[test]
fn a_program_finds_what_was_free_and_gives_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(&folder);
    let mut script = Script::new();
    script.process(1);
    script.map(512, 8 * 512);
    script.touch(512..9 * 512, Access::Write);
    script.event(Event::Exit);
    for row in run_script(&mut script, "zen5", &["thp", "thp:compact=on"], &conditions(&file, None)) {
        assert_eq!((row.memory_bytes, row.error, row.frames_leaked), (64 << 20, None, 0), "{}", row.policy);
        assert_eq!((&row.memory_state, row.fragment), (&file, 0.0));
        assert_eq!((row.immovable_bytes, row.movable_bytes), (30 << 12, (30 * 255) << 12));
        assert_eq!(row.fragmented.first().map(|(_, share)| *share), Some(30.0 / 32.0));
        if row.policy == "thp" {
            assert_eq!(row.faults, 2 + 6 * 512, "two huge pages, and base pages");
        }
    }
}

#[test]
fn memory_is_that_of_the_file_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(&folder);
    let refused = |machine: &str, memory| {
        plan(&[machine.into()], &["thp".into()], &conditions(&file, memory)).unwrap_err().to_string()
    };
    assert!(plan(&["zen5".into()], &["thp".into()], &conditions(&file, Some(64 << 20))).is_ok());
    for (memory, size) in [(32 << 20, "32M"), (1 << 30, "1G")] {
        let expected = format!("memory of {size} is not that of {file}, 64M: leave out --memory");
        assert!(refused("zen5", Some(memory)).starts_with(&expected));
    }
    let error = refused("alpha-21264", None);
    assert!(error.starts_with("machine alpha-21264: its base pages are of 8K, and "), "{error}");
    assert!(error.contains(&format!("{file}:1 says 4K: take")), "{error}");
}
