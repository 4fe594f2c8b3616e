//! What a folder is of, who works on it, and what of it is read.

use super::*;
use crate::cells::MOST;
use crate::locks::{AGAIN, SILENT};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn plan() -> Plan {
    let text =
        "[sweep]\nname = \"small\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"base\"\n";
    Plan::new(crate::Sweep::of_text(text, "small.toml").unwrap(), &[]).unwrap()
}

fn opened(path: &Path) -> Result<Folder, Error> {
    let silent = |note: &str| panic!("{note}");
    Folder::open(path, &plan(), Shard::default(), &AtomicBool::new(false), &silent).map(Option::unwrap)
}

fn refused(path: &Path) -> String {
    match opened(path) {
        Err(Error::Usage(problem)) => problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

fn manifest() -> Manifest {
    let axis = |name: &str, values: &[&str]| (name.to_string(), values.iter().map(|value| value.to_string()).collect());
    Manifest {
        version: "1".into(),
        build: "b".into(),
        title: "t".into(),
        cells: 4,
        digest: "d".into(),
        axes: vec![axis("policy", &["thp"]), axis("memory", &["64M", "128M"])],
        inputs: [("a.toml", "1"), ("b.toml", "2")].map(|(name, digest)| (name.into(), digest.into())).into(),
    }
}

#[test]
fn a_difference_is_named() {
    let differs = |change: fn(&mut Manifest)| {
        let mut now = manifest();
        change(&mut now);
        manifest().differs(&now)
    };
    let says = |change, expected: &str| assert_eq!(differs(change).as_deref(), Some(expected));
    assert_eq!(differs(|now| (now.title, now.build) = ("other".into(), "c".into())), None);
    says(|now| now.version = "2".into(), "was made by superpage 1, and this is 2");
    says(
        |now| (now.digest, now.axes[1].1) = ("e".into(), vec!["64M".into()]),
        "is of another sweep: there memory is 64M, 128M, here 64M",
    );
    says(
        |now| {
            now.digest = "e".into();
            now.axes.push(("seed".into(), vec!["7".into()]));
        },
        "is of another sweep: there seed is nothing, here 7",
    );
    // The axes are the same in another order.
    says(
        |now| {
            now.digest = "e".into();
            now.axes.reverse();
        },
        "is of another sweep: there workload is nothing, here nothing",
    );
    says(
        |now| {
            now.digest = "e".into();
            now.inputs.insert("b.toml".into(), "3".into());
        },
        "was begun with another b.toml: its contents have changed",
    );
    let otherwise = "is of a sweep whose axes go together otherwise, or with other options";
    says(|now| now.digest = "e".into(), otherwise);
    // An input that only one of them has is none that changed.
    says(
        |now| {
            now.digest = "e".into();
            now.inputs.remove("b.toml");
        },
        otherwise,
    );
}

#[test]
fn another_build_is_noted_where_both_are_known() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(opened(folder.path()).unwrap().note(), None);
    assert_eq!(opened(folder.path()).unwrap().note(), None, "the same build");
    let path = folder.path().join(MANIFEST);
    let begun_by = |build: &str| {
        let manifest = Manifest { build: build.into(), ..Manifest::of(&plan()) };
        std::fs::write(&path, serde_json::to_string(&manifest).unwrap()).unwrap();
        opened(folder.path()).unwrap().note().map(str::to_string)
    };
    assert_eq!(begun_by(""), None);
    assert_eq!(begun_by("another").is_some_and(|note| note.contains("another build")), !BUILD.is_empty());
}

#[test]
fn a_folder_with_other_files_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    // Files whose names begin with a dot are nobody's.
    std::fs::write(folder.path().join(".hidden"), "").unwrap();
    std::fs::write(folder.path().join("rows.parquet"), "mine").unwrap();
    assert!(refused(folder.path()).contains("it holds rows.parquet, which no sweep wrote"));
    std::fs::remove_file(folder.path().join("rows.parquet")).unwrap();
    opened(folder.path()).unwrap();
    // Once it is a sweep's, that is its file.
    std::fs::write(folder.path().join("rows.parquet"), "").unwrap();
    opened(folder.path()).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "").unwrap();
    assert!(refused(folder.path()).contains("it holds notes.txt, which no sweep wrote"));
    assert!(folder.path().join(".hidden").exists());
}

#[test]
fn a_manifest_of_another_shape_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(MANIFEST), "{}").unwrap();
    assert!(refused(folder.path()).contains("sweep.json is not of this version of superpage"));
    assert_eq!(differs(folder.path(), &plan()), None);
    std::fs::remove_file(folder.path().join(MANIFEST)).unwrap();
    std::fs::create_dir(folder.path().join(MANIFEST)).unwrap();
    assert!(refused(folder.path()).contains("sweep.json"));
}

#[test]
fn who_waits_for_another_process_says_so_once_after_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let locks = Directory::make(folder.path()).unwrap();
    let never = AtomicBool::new(false);
    let held = enter(&locks, &never, &|by| panic!("{by}")).unwrap().unwrap();
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let began = Instant::now();
            let entered = enter(&locks, &never, &|by| sender.send((by.to_string(), began.elapsed())).unwrap());
            entered.unwrap().is_some()
        });
        let (by, after) = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(by.starts_with(&format!("process {} on ", std::process::id())), "{by}");
        assert!(after >= SILENT, "{after:?}");
        assert!(receiver.recv_timeout(10 * AGAIN).is_err(), "it is said again");
        drop(held);
        assert!(waiting.join().unwrap());
    });
    // One who shall end does not wait.
    let _held = enter(&locks, &never, &|by| panic!("{by}")).unwrap().unwrap();
    assert!(enter(&locks, &AtomicBool::new(true), &|by| panic!("{by}")).unwrap().is_none());
}

#[test]
fn who_is_named_in_the_lock_is_no_longer_when_the_folder_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let open = opened(folder.path()).unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join(LOCKS).join(ENTRY)).unwrap(), "");
    drop(open);
}

#[test]
fn a_cell_of_too_many_bytes_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let open = opened(folder.path()).unwrap();
    let most = vec![0; MOST as usize + 1];
    open.cells().write("most", &most[1..]).unwrap();
    assert_eq!(open.cells().read("most").unwrap().len() as u64, MOST);
    let file = File::options().write(true).open(open.cells().path("most")).unwrap();
    file.set_len(MOST + 1).unwrap();
    assert!(open.cells().open("most").unwrap_err().problem.contains("no cell has more than 67108864"));
    assert_eq!(open.cells().names().unwrap().into_iter().collect::<Vec<_>>(), ["most"]);
    open.cells().remove("most").unwrap();
    assert!(open.cells().read("most").is_err() && open.cells().names().unwrap().is_empty());
    let file = Cells::of(open.file(MANIFEST).as_path()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(file.contains("cannot use") && file.contains(MANIFEST), "no folder is not an empty one: {file}");
    assert_eq!(Cells::of(&folder.path().join("none")).unwrap().open("most").unwrap_err().problem, "there are no cells");
}

#[test]
fn what_killed_processes_left_goes_where_no_other_can_be_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let open = |shard: &str| {
        let silent = |note: &str| panic!("{note}");
        let shard = shard.parse().unwrap();
        drop(Folder::open(folder.path(), &plan(), shard, &AtomicBool::new(false), &silent).unwrap().unwrap());
    };
    open("1/2");
    let left = ["", CELLS].map(|inner| folder.path().join(inner).join(".superpage-0123456789abcdef"));
    left.iter().for_each(|path| std::fs::write(path, "").unwrap());
    open("1/2");
    assert!(left.iter().all(|path| path.exists()), "another shard may be about to name it");
    open("1/1");
    assert!(!left.iter().any(|path| path.exists()));
}
