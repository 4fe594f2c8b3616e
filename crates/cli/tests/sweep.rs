//! Sweeps from outside: ended and gone on with, shared, compared with `sim`, and refused.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

/// A folder with the file of a sweep, in which commands run.
struct Place(tempfile::TempDir);

const SWEEP: &str = "[sweep]\nname = \"small\"\nzip = [[\"memory\", \"fragment\"]]\n[axes]\n\
    workload = [\"tree:nodes=3K,operations=1K\", \"random:bytes=8M,references=50K\"]\nmachine = [\"skylake-sp\", \"skylake-sp+tlb-64\"]\n\
    policy = [\"thp\", \"promote\"]\nmemory = [\"16M\", \"own\"]\nfragment = [0.5, 0]\n";

impl Place {
    fn new(sweep: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.path("a.toml"), sweep).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
        command.args(words).current_dir(self.0.path());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs the sweep to its end, and returns what it printed.
    fn sweep(&self, folder: &str, more: &[&str]) -> String {
        let done = self.run(&[&["sweep", "a.toml", "-o", folder], more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// The same of another file.
    fn sweep_of(&self, file: &Path, more: &[&str]) -> String {
        let done = self.run(&[&["sweep", file.to_str().unwrap(), "-o", "out"], more].concat());
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn rows(&self, folder: &str) -> Vec<u8> {
        fs::read(self.path(folder).join("rows.parquet")).unwrap()
    }

    /// What refuses a command with status 2.
    fn refused(&self, words: &[&str]) -> String {
        let done = self.run(words);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        said
    }
}

/// The cells of a folder, with the time at which each was written.
fn cells(folder: &Path) -> BTreeMap<String, SystemTime> {
    let files = fs::read_dir(folder.join("cells")).into_iter().flatten().flatten();
    // What is about to get its name has a hidden one.
    let whole = files.filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
    whole.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().modified().unwrap())).collect()
}

#[test]
fn a_sweep_that_is_killed_again_and_again_ends_with_the_same_rows() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(SWEEP);
    place.sweep("whole", &[]);
    let all = cells(&place.path("whole"));
    let names: Vec<&String> = all.keys().collect();
    let mut before = BTreeMap::new();
    for round in 0..10 {
        let mut child = place.command(&["sweep", "a.toml", "-o", "killed"]).stdout(Stdio::null()).spawn().unwrap();
        // Until so many cells more are there: wherever that is within the next one.
        let enough = (before.len() + 1 + round % 2).min(all.len() - 1);
        while cells(&place.path("killed")).len() < enough && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = cells(&place.path("killed"));
        assert!(before.iter().all(|(name, time)| now[name] == *time), "what was done was done again");
        assert!(now.keys().all(|name| names.contains(&name)), "something that is no whole cell was left");
        before = now;
    }
    let said = place.sweep("killed", &["--jobs", "1"]);
    assert!(said.contains(&format!("{0} of {0} cells", all.len())), "{said}");
    let now = cells(&place.path("killed"));
    assert!(before.iter().all(|(name, time)| now[name] == *time), "what was done was done again");
    assert_eq!(place.rows("killed"), place.rows("whole"));
    // And once more, when there is nothing to do.
    assert!(place.sweep("killed", &[]).contains(" 0 of them new"));
    assert_eq!(cells(&place.path("killed")), now);
}

#[test]
fn shards_make_what_one_run_makes_and_that_is_what_sim_prints() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        &SWEEP
            .replace("memory = [\"16M\", \"own\"]\nfragment = [0.5, 0]", "memory = \"16M\"\nfragment = 0.5")
            .replace("zip = [[\"memory\", \"fragment\"]]", ""),
    );
    place.sweep("whole", &["--jobs", "2"]);
    let first = place.sweep("shards", &["--shard", "1/2"]);
    assert!(
        first.contains("rows.parquet is written when all are there") && !place.path("shards/rows.parquet").exists()
    );
    let planned = place.sweep("shards", &["--shard", "2/2", "--dry-run"]);
    assert!(planned.contains("12 rows in 8 cells, 4 of them in this shard\n0 are done, 4 are missing\n"), "{planned}");
    assert!(planned.contains("from 4 cells, measured when they ran"), "{planned}");
    place.sweep("shards", &["--shard", "2/2"]);
    assert_eq!(place.rows("shards"), place.rows("whole"));
    let page = |folder: &str| fs::read_to_string(place.path(folder).join("index.html")).unwrap();
    assert_eq!(page("shards").replace("-o shards", "-o whole"), page("whole"));
    // The page has the rows to explore, their command, and one for a row alone, which runs.
    let page = page("whole");
    let data = page.split_once("<script type=\"application/json\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["rows"].as_array().unwrap().len(), 8, "and 4 of base, which is no value of the axis");
    assert_eq!(page.matches("Made by <code>superpage sweep a.toml -o whole</code>").count(), 1);
    assert!(fs::read_to_string(place.path("whole/map.svg")).unwrap().starts_with("<svg "));
    let alone = page.split("One of its rows alone: <code>superpage ").nth(1).unwrap().split("</code>").next().unwrap();
    let alone = place.run(&alone.split(' ').collect::<Vec<_>>());
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    // One call of sim for each stream: its rows are those of the sweep, so the bytes of each
    // stream's are.
    for workload in ["tree:nodes=3K,operations=1K", "random:bytes=8M,references=50K"] {
        let words = [
            "-m",
            "skylake-sp",
            "-m",
            "skylake-sp+tlb-64",
            "-p",
            "thp",
            "-p",
            "promote",
            "--memory",
            "16M",
            "--fragment",
            "0.5",
        ];
        let sim = place.run(&[&["sim", workload, "--format", "parquet"], &words[..]].concat());
        let one = SWEEP.replace("memory = [\"16M\", \"own\"]\nfragment = [0.5, 0]", "memory = \"16M\"\nfragment = 0.5");
        let streams = "workload = [\"tree:nodes=3K,operations=1K\", \"random:bytes=8M,references=50K\"]";
        let one = one
            .replace(streams, &format!("workload = \"{workload}\""))
            .replace("zip = [[\"memory\", \"fragment\"]]", "");
        let alone = Place::new(&one);
        alone.sweep("out", &[]);
        assert_eq!(alone.rows("out"), sim.stdout, "{workload}");
    }
}

/// Eight processes that find no folder, or locks that nobody holds, none of which may take another
/// for a sweep that is in the way.
#[test]
fn shards_that_begin_at_the_same_moment_do_not_refuse_each_other() {
    let _turn = superpage_testing::turn_of("sweep");
    let head =
        "[sweep]\nname = \"at once\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\nmemory = \"64M\"\n";
    let place = Place::new(&format!("{head}policy = \"thp\"\nfragment = 0.5\nseed = [1, 2, 3, 4, 5, 6, 7, 8]\n"));
    place.sweep("whole", &[]);
    for round in 0..10 {
        let out = format!("out{round}");
        if round % 2 == 1 {
            fs::create_dir_all(place.path(&out).join("locks")).unwrap();
            (2..40).for_each(|of| fs::write(place.path(&out).join(format!("locks/of-{of}")), "").unwrap());
        }
        let begin = |shard: String| {
            let mut command = place.command(&["sweep", "a.toml", "-o", &out, "--jobs", "1", "--shard", &shard]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = (1..=8).map(|index| begin(format!("{index}/8"))).collect();
        for child in all {
            let done = child.wait_with_output().unwrap();
            assert!(done.status.success(), "round {round}: {}", String::from_utf8_lossy(&done.stderr));
        }
        assert_eq!(place.rows(&out), place.rows("whole"));
    }
    // A folder is of one sweep, also if two were begun in it at once.
    fs::write(place.path("b.toml"), format!("{head}policy = \"reservation\"\n")).unwrap();
    for round in 0..10 {
        let out = format!("one{round}");
        let begin = |index: usize| {
            let (file, shard) = (["a.toml", "b.toml"][index % 2], format!("{}/8", index + 1));
            let mut command = place.command(&["sweep", file, "-o", &out, "--jobs", "1", "--shard", &shard]);
            (file, command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
        };
        let all: Vec<_> = (0..8).map(begin).collect();
        let mut taken = Vec::new();
        for (file, child) in all {
            let done = child.wait_with_output().unwrap();
            let said = String::from_utf8(done.stderr).unwrap();
            if done.status.success() {
                taken.push(file)
            } else {
                assert!(said.contains("it is of another sweep: there "), "{said}")
            }
        }
        assert!(taken.len() == 4 && taken.iter().all(|file| *file == taken[0]), "{taken:?}");
    }
}

#[test]
fn what_a_sweep_was_made_from_does_not_change() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"one\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"mine.toml\"\npolicy = \"thp\"\n",
    );
    let machine = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/zen5.toml")).unwrap();
    fs::write(place.path("mine.toml"), &machine).unwrap();
    place.sweep("out", &[]);
    let rows = place.rows("out");
    // Another comment is the same machine.
    fs::write(place.path("mine.toml"), format!("# mine\n{machine}")).unwrap();
    assert!(place.sweep("out", &[]).contains(" 0 of them new"));
    fs::write(place.path("mine.toml"), machine.replacen("entries = 64", "entries = 32", 1)).unwrap();
    let sweep = ["sweep", "a.toml", "-o", "out"];
    let said = place.refused(&sweep);
    assert!(said.contains("was begun with another machine mine.toml") && said.contains("give a new folder"), "{said}");
    fs::write(place.path("mine.toml"), &machine).unwrap();
    let text = fs::read_to_string(place.path("a.toml")).unwrap();
    fs::write(place.path("a.toml"), text.replace("64K", "128K")).unwrap();
    let said = place.refused(&sweep);
    assert!(said.contains("there workload is touch:bytes=64K, here touch:bytes=128K"), "{said}");
    fs::write(place.path("a.toml"), &text).unwrap();
    let manifest = fs::read_to_string(place.path("out/sweep.json")).unwrap();
    let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
    fs::write(place.path("out/sweep.json"), manifest.replace(&version, "\"version\": \"0.0.9\"")).unwrap();
    assert!(place.refused(&sweep).contains("was made by superpage 0.0.9, and this is "));
    // Of another build of this version that is only said.
    let build = manifest.split("\"build\": \"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(build.len(), 16, "{build}");
    fs::write(place.path("out/sweep.json"), manifest.replace(build, "0123456789abcdef")).unwrap();
    let done = place.run(&sweep);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.starts_with("superpage: out was begun by another build of superpage "), "{said}");
    assert_eq!(place.rows("out"), rows);
}

/// Rows of one cell are never taken for those of another, nor results of somebody else for a
/// sweep's.
#[test]
fn files_that_are_not_of_the_sweep_are_not_taken_for_its_own() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"two\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"thp\"\nmemory = [\"64M\", \"128M\"]\n",
    );
    place.sweep("out", &[]);
    let (rows, files) = (place.rows("out"), cells(&place.path("out")));
    let [one, other, third, ..] = &files.keys().collect::<Vec<_>>()[..] else { panic!("{files:?}") };
    let path = |name: &str| place.path("out/cells").join(name);
    let kept = fs::read(path(one)).unwrap();
    fs::copy(path(other), path(one)).unwrap();
    let done = place.run(&["sweep", "a.toml", "-o", "out"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.contains("1 damaged cell: ") && said.contains("it is of another cell; --repair"),
        "{said}"
    );
    // It is told before anything runs that is missing.
    fs::remove_file(path(third)).unwrap();
    fs::write(path(one), &kept[..kept.len() - 9]).unwrap();
    let whole = fs::read(path(other)).unwrap();
    fs::File::create(path(other)).unwrap().set_len(20 << 30).unwrap();
    let done = place.run(&["sweep", "a.toml", "-o", "out"]);
    let said = String::from_utf8(done.stderr).unwrap();
    // All of them at once.
    assert!(done.status.code() == Some(1) && said.contains("2 damaged cells: "), "{said}");
    assert!([one, other].iter().all(|name| said.contains(&format!("{name}: "))), "{said}");
    assert!(said.contains("it has 21474836480 bytes, and no cell has more than 67108864"), "{said}");
    assert!(said.contains("--repair") && !path(third).exists(), "{said}");
    fs::write(path(other), whole).unwrap();
    // Nothing is waited for, nor read for ever.
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    for (put, why) in [(["-s", "/dev/zero"], "is a link"), (["-T", "pipe"], "is not a regular file")] {
        fs::remove_file(path(one)).unwrap();
        let put = put.map(|word| if word == "pipe" { path("pipe").display().to_string() } else { word.into() });
        assert!(Command::new("ln").args(put).arg(path(one)).status().unwrap().success());
        let done = place.run(&["sweep", "a.toml", "-o", "out"]);
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && said.contains(why), "{said}");
    }
    fs::remove_file(path("pipe")).unwrap();
    // What is damaged is removed and computed again, and what a link led to stays.
    fs::write(place.path("whole"), kept).unwrap();
    fs::remove_file(path(one)).unwrap();
    assert!(Command::new("ln").arg("-s").arg(place.path("whole")).arg(path(one)).status().unwrap().success());
    fs::write(path(other), "damaged").unwrap();
    let said = place.sweep("out", &["--repair"]);
    assert!(said.contains(", 3 of them new"), "{said}");
    assert!(!fs::symlink_metadata(path(one)).unwrap().is_symlink() && place.path("whole").exists());
    assert!(place.sweep("out", &["--repair"]).contains(" 0 of them new"));
    // A folder is somebody else's: it is named with the others, and nothing is removed.
    fs::remove_file(path(one)).unwrap();
    fs::create_dir(path(one)).unwrap();
    fs::write(path(one).join("a file"), "").unwrap();
    fs::write(path(other), "damaged").unwrap();
    for more in [&[][..], &["--repair"]] {
        let done = place.run(&[&["sweep", "a.toml", "-o", "out"], more].concat());
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && said.contains("2 damaged cells: "), "{said}");
        assert!(said.contains(&format!("{one} is a folder, and no sweep made it: remove it, then --repair")), "{said}");
        assert!(path(one).join("a file").exists() && fs::read(path(other)).unwrap() == b"damaged");
    }
    fs::remove_dir_all(path(one)).unwrap();
    assert!(place.sweep("out", &["--repair"]).contains(" 2 of them new"));
    // What a kill has left just now goes, where no shard may be about to name it.
    fs::write(path(".superpage-0123456789abcdef"), "").unwrap();
    place.sweep("out", &[]);
    assert_eq!(place.rows("out"), rows);
    assert!(!path(".superpage-0123456789abcdef").exists());

    fs::create_dir(place.path("mine")).unwrap();
    fs::write(place.path("mine/rows.parquet"), "mine").unwrap();
    let said = place.refused(&["sweep", "a.toml", "-o", "mine"]);
    assert!(said.contains("it holds rows.parquet, which no sweep wrote"), "{said}");
    assert_eq!(place.rows("mine"), b"mine");
}

#[test]
fn what_another_prepared_leads_nowhere() {
    let _turn = superpage_testing::turn_of("sweep");
    let sweep =
        "[sweep]\nname = \"two\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"thp\"\n";
    for (name, leads) in [("cells", "elsewhere"), ("locks", "elsewhere"), ("locks/all", "elsewhere/all")] {
        let place = Place::new(sweep);
        fs::create_dir(place.path("elsewhere")).unwrap();
        fs::write(place.path("elsewhere/.superpage-0123456789abcdef"), "theirs").unwrap();
        fs::create_dir_all(place.path("out").join(name).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(place.path(leads), place.path("out").join(name)).unwrap();
        let said = place.refused(&["sweep", "a.toml", "-o", "out"]);
        assert!(said.contains("links are not followed"), "{said}");
        let left = fs::read_dir(place.path("elsewhere")).unwrap().count();
        assert_eq!(left, 1, "{name}: a file was made or removed where a link leads");
    }
    // Nor where results were.
    let place = Place::new(sweep);
    place.sweep("out", &[]);
    for name in ["rows.parquet", "index.html"] {
        let (file, leads) = (place.path("out").join(name), place.path(name));
        fs::rename(&file, &leads).unwrap();
        let before = fs::metadata(&leads).unwrap().ino();
        std::os::unix::fs::symlink(&leads, &file).unwrap();
        let done = place.run(&["sweep", "a.toml", "-o", "out"]);
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && said.contains(&format!("{name}: is a link")), "{said}");
        assert_eq!(fs::metadata(&leads).unwrap().ino(), before, "{name} was replaced where the link leads");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn who_keeps_a_sweep_waiting_is_named_and_a_signal_ends_it() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(SWEEP);
    fs::create_dir_all(place.path("out/locks")).unwrap();
    let lock = place.path("out/locks/entry");
    fs::write(&lock, "process 7 on a computer").unwrap();
    let held = fs::File::open(&lock).unwrap();
    held.lock_shared().unwrap();
    let child = place.command(&["sweep", "a.toml", "-o", "out"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(child.try_wait().unwrap().is_none());
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("out waits for process 7 on a computer, which holds locks/entry"), "{said}");
    assert!(said.contains("interrupted; 0 of "), "{said}");
    drop(held);
    place.sweep("out", &[]);
    // Nobody else may open the files of locks, and so lock them.
    for file in fs::read_dir(place.path("out/locks")).unwrap() {
        let mode = std::os::unix::fs::MetadataExt::mode(&file.unwrap().metadata().unwrap()) & 0o777;
        assert_eq!(mode, 0o600);
    }
}

#[test]
fn a_row_that_fails_is_a_row_and_the_others_go_on() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"one\"\n[axes]\nworkload = [\"touch:bytes=64K\", \"touch:bytes=64M\"]\nmachine = \"zen5\"\n\
         policy = \"thp\"\nmemory = \"16M\"\nswap = \"0\"\n",
    );
    let done = place.run(&["sweep", "a.toml", "-o", "out"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("touch:bytes=64M, zen5 thp: ") && said.lines().count() == 2, "{said}");
    assert!(String::from_utf8(done.stdout).unwrap().contains("4 of 4 cells are in out, 4 of them new\n4 rows"));
}

#[test]
fn a_damaged_trace_is_refused_before_anything_runs() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"one\"\n[axes]\ntrace = \"cut.sp\"\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"thp\"\n",
    );
    // A block in the middle is damaged, which shows when it is read.
    let mut trace = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/gzip.sp")).unwrap();
    let middle = trace.len() / 2;
    trace[middle] ^= 0xff;
    fs::write(place.path("cut.sp"), trace).unwrap();
    let said = place.refused(&["sweep", "a.toml", "-o", "out"]);
    assert!(said.contains("cut.sp: ") && !place.path("out").exists(), "{said}");
}

#[test]
fn two_at_a_time_are_told_and_an_interrupted_one_says_how_to_go_on() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(&SWEEP.replace("references=50K", "references=900M"));
    let child =
        place.command(&["sweep", "a.toml", "-o", "out"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while cells(&place.path("out")).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        place
            .refused(&["sweep", "a.toml", "-o", "out"])
            .contains("another sweep runs in it; wait for it, end it, or share")
    );
    assert!(
        place
            .refused(&["sweep", "a.toml", "-o", "out", "--shard", "1/2"])
            .contains("a sweep without --shard runs in it")
    );
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(128 + 15), "{said}");
    assert!(said.contains("the same command again goes on from there"), "{said}");
    let some = cells(&place.path("out"));
    assert!(!some.is_empty() && some.len() < 20 && !place.path("out/rows.parquet").exists(), "{}", some.len());
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new("");
    for (from, to, part) in [
        ("memory =", "colour =", "axes.colour: there is no such axis; take one of workload, trace, cores, "),
        ("0.5, 0]", "1.5, 0]", "axes.fragment: 1.5: expected a share from 0 to 1"),
        ("\"16M\"", "\"16X\"", "axes.memory: 16X: "),
        ("\"16M\"", "\"1M\"", "memory of 1M is less than one superpage of 2M on skylake-sp"),
        ("\"16M\"", "0", "give at least that (--memory, or the axis memory of a sweep)"),
        ("[0.5, 0]", "[0.5]", "must have as many values each: memory has 2, fragment has 1"),
        ("[0.5, 0]", "[]", "axes.fragment is empty"),
        ("\"fragment\"]]", "\"seed\"]]", "sweep.zip: there is no axis seed; [axes] has workload, memory, fragment, "),
        ("\"thp\", ", "\"thp\", \"thp\", ", "axes.policy: thp is there twice"),
        ("\"promote\"", "\"demote\"", "demote"),
        ("[\"skylake-sp\"", "[\"zen9\"", "there is no built-in machine \"zen9\""),
        ("tree:nodes", "tree:leaves", "leaves"),
        ("workload =", "trace =", "tree:nodes=3K,operations=1K: No such file"),
        ("name = \"small\"", "name = \"small\"\nsuites = [\"b\"]", "there is no suite b; [suites] has none"),
        ("policy =", "set.\"tlb.STLB.entries\" = [3]\npolicy =", "tlb"),
        ("policy =", "set.\"costs.fines\" = [3]\npolicy =", "costs.fines: there is no such key; take one of "),
        ("[sweep]", "[sweep", "line 1"),
        ("policy =", "# policy =", "axes.policy is missing"),
    ] {
        let text = SWEEP.replacen(from, to, 1);
        assert_ne!(text, SWEEP);
        fs::write(place.path("a.toml"), text).unwrap();
        let said = place.refused(&["sweep", "a.toml", "-o", "out"]);
        assert!(said.contains(part), "{to}: {said}");
    }
    fs::write(place.path("a.toml"), SWEEP).unwrap();
    assert!(place.refused(&["sweep", "none.toml", "-o", "out"]).contains("none.toml"));
    assert!(place.refused(&["sweep", "a.toml", "-o", "a.toml/out"]).contains("name a folder with -o"));
    assert!(!place.path("out").exists(), "nothing was begun");
    fs::create_dir(place.path("mine")).unwrap();
    fs::write(place.path("mine/thesis.tex"), "").unwrap();
    assert!(place.refused(&["sweep", "a.toml", "-o", "mine"]).contains("it holds thesis.tex, which no sweep wrote"));
}

#[test]
fn names_are_printed_without_control_characters() {
    let place = Place::new(
        "[sweep]\nname = \"a\\u001b]0;b\\u0007\\u202ec\"\n[axes]\nworkload = \"touch:bytes=64K\"\n\
         machine = \"zen5\"\npolicy = \"thp\"\n",
    );
    let said = [place.sweep("out", &["--dry-run"]), place.sweep("out\u{1b}[31m\u{7}", &[])].concat();
    assert!(said.starts_with("a\\u{1b}]0;b\\u{7}\\u{202e}c: 2 rows") && said.contains("out\\u{1b}[31m"), "{said}");
    assert!(said.chars().all(|sign| sign == '\n' || !sign.is_control() && sign != '\u{202e}'), "{said:?}");
}

#[test]
fn a_usage_error_repeats_arguments_without_control_characters() {
    let place = Place::new(SWEEP);
    let done = place.run(&["sweep", "a.toml", "-o", "out", "--jobs", "\u{1b}[31m\u{202e}4"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("--jobs"), "{said}");
    assert!(said.chars().all(|sign| sign == '\n' || !sign.is_control() && sign != '\u{202e}'), "{said:?}");
}

/// Of a shard without a cell `--dry-run` lays the whole sweep out, and tries nothing.
#[test]
fn the_sweeps_of_this_project_and_of_its_page_fit_their_machines() {
    let _turn = superpage_testing::turn_of("sweep");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/sweep.md")).unwrap();
    let place = Place::new(page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap());
    std::os::unix::fs::symlink(root.join("corpus"), place.path("corpus")).unwrap();
    let machine = fs::read_to_string(root.join("machines/zen5.toml")).unwrap();
    fs::write(place.path("mine.toml"), machine.replacen("\"zen5\"", "\"mine\"", 1)).unwrap();
    let mut files = vec![place.path("a.toml")];
    files.extend(fs::read_dir(root.join("sweeps")).unwrap().map(|file| file.unwrap().path()));
    assert!(files.len() > 3);
    for file in files {
        let said = place.sweep_of(&file, &["--dry-run", "--shard", "1000000/1000000"]);
        assert!(said.contains(", 0 of them in this shard\n0 are done, 0 are missing\n"), "{said}");
    }
}

#[test]
fn sim_sets_what_a_sweep_sets() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"set\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = \"zen5\"\npolicy = \"thp\"\n\
         set.\"costs.fault\" = [900, 1000]\nset.\"tlb.L2 DTLB.hit-cycles\" = 9\n",
    );
    place.sweep("out", &[]);
    let set = ["--set", "costs.fault=900", "--set", "tlb.L2 DTLB.hit-cycles=9"];
    let other = "zen5:costs.fault=1000,tlb.L2 DTLB.hit-cycles=9";
    let one =
        place.run(&[&["sim", "touch:bytes=64K", "-m", "zen5", "-p", "thp", "--format", "json"], &set[..]].concat());
    let rows: serde_json::Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!(rows[0]["machine"], "zen5:costs.fault=900,tlb.L2 DTLB.hit-cycles=9");
    let both = ["sim", "touch:bytes=64K", "-m", rows[0]["machine"].as_str().unwrap(), "-m", other, "-p", "thp"];
    let both = place.run(&[&both[..], &["--format", "parquet"]].concat());
    // The axes are two columns more.
    let axes = ["costs_fault", "l2_dtlb_hit_cycles"];
    let (rows, both) = (columns(place.rows("out")), columns(both.stdout));
    let (set, rows): (Vec<Columns>, Vec<Columns>) =
        rows.into_iter().map(|row| row.into_iter().partition(|(name, _)| axes.contains(&name.as_str()))).unzip();
    assert_eq!(rows, both);
    let value = |number: i64| Field::Long(number);
    let expected = |fault: i64| vec![(axes[0].into(), value(fault)), (axes[1].into(), value(9))];
    assert_eq!(set, [expected(900), expected(900), expected(1000), expected(1000)]);
}

type Columns = Vec<(String, Field)>;

/// The values of each row of a Parquet file, by column.
fn columns(file: Vec<u8>) -> Vec<Columns> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().get_column_iter().map(|(name, value)| (name.clone(), value.clone())).collect())
        .collect()
}

/// A machine of the sweep's own and a file of that name are two machines.
#[test]
fn a_machine_file_is_not_hidden_by_a_machine_of_the_sweep() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"both\"\n[axes]\nworkload = \"touch:bytes=64K\"\nmachine = [\"mine\", \"mine.toml\"]\npolicy = \"thp\"\n\
         [machines.mine]\nfrom = \"mine.toml\"\nname = \"changed\"\ncosts = { fault = 9000 }\n",
    );
    let machine = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/zen5.toml")).unwrap();
    fs::write(place.path("mine.toml"), machine.replacen("\"zen5\"", "\"mine\"", 1)).unwrap();
    fs::write(place.path("over.toml"), "name = \"changed\"\ndescription = \"dear\"\n[costs]\nfault = 9000\n").unwrap();
    place.sweep("out", &[]);
    let words =
        ["sim", "touch:bytes=64K", "-m", "mine.toml+over.toml", "-m", "mine.toml", "-p", "thp", "--format", "parquet"];
    assert_eq!(place.rows("out"), place.run(&words).stdout);
}

/// Hosts with policies, `base` among them: the rows of `sim`, which the page names one by one.
#[test]
fn policies_of_hosts_are_an_axis() {
    let _turn = superpage_testing::turn_of("sweep");
    let head = "[sweep]\nname = \"hosts\"\n[axes]\nworkload = [\"touch:bytes=4M\", \"random:bytes=8M,references=50K\"]\n\
        machine = [\"zen5+nested\", \"golden-cove+nested\"]\npolicy = [\"thp\", \"reservation\"]\nmemory = \"64M\"\n";
    let sim = ["-m", "zen5+nested", "-m", "golden-cove+nested", "-p", "thp", "-p", "reservation", "--memory", "64M"];
    let place = Place::new(head);
    fs::write(place.path("host.toml"), "from = \"reservation\"\n[parameters]\npreempt = false\n").unwrap();
    for (number, hosts) in [&["thp", "host.toml"][..], &["thp", "base"][..]].into_iter().enumerate() {
        fs::write(place.path("a.toml"), format!("{head}host-policy = {hosts:?}\n")).unwrap();
        let out = format!("out{number}");
        place.sweep(&out, &[]);
        let of_hosts: Vec<&str> = hosts.iter().flat_map(|host| ["--host-policy", host]).collect();
        // Streams are the slowest axis, and a file of Parquet is of one schema.
        for workload in ["touch:bytes=4M", "random:bytes=8M,references=50K"] {
            let one =
                head.replace("[\"touch:bytes=4M\", \"random:bytes=8M,references=50K\"]", &format!("{workload:?}"));
            fs::write(place.path("one.toml"), format!("{one}host-policy = {hosts:?}\n")).unwrap();
            let alone = format!("{out}-{}", &workload[..5]);
            let done = place.run(&["sweep", "one.toml", "-o", &alone]);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            let rows = place.run(&[&["sim", workload, "--format", "parquet"], &sim[..], &of_hosts].concat()).stdout;
            assert_eq!(place.rows(&alone), rows, "{workload} {hosts:?}");
            assert!(cells(&place.path(&alone)).keys().all(|cell| cells(&place.path(&out)).contains_key(cell)));
        }
        let page = fs::read_to_string(place.path(&out).join("index.html")).unwrap();
        let shown = page.split("<script>").next().unwrap();
        assert!(shown.contains("--host-policy ") && !shown.contains("NaN"));
    }
    for (host, part) in [("nobody", "nobody"), ("thp\", \"thp", "axes.host-policy: thp is there twice")] {
        fs::write(place.path("a.toml"), format!("{head}host-policy = [\"{host}\"]\n")).unwrap();
        assert!(place.refused(&["sweep", "a.toml", "-o", "no"]).contains(part));
    }
    fs::write(place.path("a.toml"), format!("{}host-policy = \"thp\"\n", head.replace("zen5+nested", "zen5"))).unwrap();
    assert!(
        place
            .refused(&["sweep", "a.toml", "-o", "no"])
            .contains("use machines with nested page tables, as zen5+nested")
    );
}

/// The contents of a file of memory decide which cells are new, as they decide what is run; and the
/// command of a row alone names it.
#[test]
fn another_memory_under_the_same_name_is_another_cell() {
    let _turn = superpage_testing::turn_of("sweep");
    let place = Place::new(
        "[sweep]\nname = \"a memory\"\n[axes]\nworkload = \"touch:bytes=4M\"\nmachine = \"zen5\"\npolicy = \"thp\"\n\
         fragment = \"today.memory\"\n",
    );
    let write = |blocks: &str| {
        let head = "superpage-memory 1 base=4K block=2M frames=8192 kernel=6.18 date=2026-11-27T20:31:00Z";
        fs::write(place.path("today.memory"), format!("{head}\n{blocks}\n")).unwrap();
    };
    write("16*I1F511");
    assert!(place.sweep("out", &[]).contains(" 2 of them new"));
    assert!(place.sweep("out", &[]).contains(" 0 of them new"));
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    assert!(page.contains("superpage sim -m zen5 -p thp --fragment today.memory touch:bytes=4M"));
    write("16*F512");
    let error = place.refused(&["sweep", "a.toml", "-o", "out"]);
    assert!(error.contains("another fragment today.memory: its contents have changed"), "{error}");
    place.sweep("other", &[]);
    let names = |folder: &str| cells(&place.path(folder)).into_keys().collect::<Vec<_>>();
    assert!(names("out").iter().all(|name| !names("other").contains(name)));
    assert_ne!(place.rows("other"), place.rows("out"));
    write("16*F513");
    let error = place.refused(&["sweep", "a.toml", "-o", "wrong"]);
    assert!(error.contains("axes.fragment: today.memory:2: \"16*F513\": expected"), "{error}");
}
