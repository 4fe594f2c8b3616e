//! Outputs as programs, users and attackers meet them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use superpage_output::Output;

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn written(path: &Path, text: &str) -> Output {
    let mut output = Output::create(path).unwrap();
    output.write_all(text.as_bytes()).unwrap();
    output
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nothing_is_there_before_it_is_whole_and_what_was_stays_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    Output::check(&path).unwrap();
    let one = written(&path, "one");
    // On Linux nothing lies beside it either, so that a kill leaves nothing behind.
    let beside = usize::from(!cfg!(target_os = "linux"));
    assert_eq!(names(folder.path()).len(), beside);
    one.commit().unwrap();
    drop(written(&path, "given up"));
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(folder.path())), ("one", vec!["a".to_string()]));
}

#[test]
fn several_at_once_are_each_whole_and_the_last_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut outputs: Vec<Output> = (0..3).map(|number| written(&path, &number.to_string())).collect();
    outputs.iter_mut().enumerate().for_each(|(number, output)| write!(output, " and {number}").unwrap());
    for (number, output) in outputs.into_iter().enumerate() {
        output.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{number} and {number}"));
    }
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn the_mode_of_what_is_replaced_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for kept in [0o600, 0o640, 0o666, 0o755] {
        fs::write(&path, "before").unwrap();
        set_mode(&path, kept);
        written(&path, "after").commit().unwrap();
        assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (kept, "after"));
    }
    // A new one is as any other new file of this user.
    let (new, usual) = (folder.path().join("new"), folder.path().join("usual"));
    fs::write(&usual, "").unwrap();
    written(&new, "").commit().unwrap();
    assert_eq!(mode(&new), mode(&usual));
}

#[test]
fn names_that_could_be_guessed_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let (path, part, theirs) = (folder.path().join("x"), folder.path().join("x.part"), folder.path().join("theirs"));
    fs::write(&theirs, "theirs").unwrap();
    symlink(&theirs, &part).unwrap();
    written(&path, "ours").commit().unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert!(fs::symlink_metadata(&part).unwrap().is_symlink());
    assert_eq!(names(folder.path()), ["theirs", "x", "x.part"]);
}

#[test]
fn a_link_stays_one_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("below")).unwrap();
    let (file, link, second) =
        (folder.path().join("below/file"), folder.path().join("link"), folder.path().join("second"));
    symlink("below/file", &link).unwrap();
    symlink("link", &second).unwrap();
    // First where nothing is yet, then where something is.
    for text in ["one", "two"] {
        written(&second, text).commit().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    assert!([link, second].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
    assert_eq!(names(&folder.path().join("below")), ["file"]);
    let circle = folder.path().join("circle");
    symlink("circle", &circle).unwrap();
    assert!(Output::create(&circle).is_err());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none/a"), folder.path().to_path_buf(), "/".into()] {
        for error in [Output::check(&path).unwrap_err(), Output::create(&path).unwrap_err()] {
            assert!(error.to_string().ends_with("name a file in a folder where this user may write"), "{error}");
        }
    }
    if rustix::process::geteuid().is_root() {
        superpage_testing::skip!("user", "root may write to files and folders that may not be written to");
        return;
    }
    let path = folder.path().join("a");
    fs::write(&path, "before").unwrap();
    set_mode(&path, 0o400);
    assert!(Output::create(&path).is_err(), "a file that may not be written to");
    set_mode(&path, 0o600);
    set_mode(folder.path(), 0o500);
    assert!(Output::create(&path).is_err(), "a folder that may not be written to");
    set_mode(folder.path(), 0o700);
    assert_eq!(fs::read_to_string(&path).unwrap(), "before");
}

/// In folders where all may write, what others put there is not followed, though the kernel may not
/// see to that.
#[test]
fn what_another_user_planted_is_refused() {
    if !rustix::process::geteuid().is_root() {
        superpage_testing::skip!("root", "only root can act as another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let (shared, victim) = (folder.path().join("shared"), folder.path().join("victim"));
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    fs::write(&victim, "root's").unwrap();
    let (link, file) = (shared.join("link"), shared.join("file"));
    symlink(&victim, &link).unwrap();
    fs::write(&file, "nobody's").unwrap();
    for planted in [&link, &file] {
        std::os::unix::fs::lchown(planted, Some(NOBODY), Some(NOBODY)).unwrap();
        for error in [Output::check(planted).unwrap_err(), Output::create(planted).unwrap_err()] {
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    // Nor in a folder of their own, where they alone may write; what root has put there is replaced
    // and stays root's.
    set_mode(&shared, 0o755);
    std::os::unix::fs::chown(&shared, Some(NOBODY), Some(NOBODY)).unwrap();
    for planted in [&link, &file, &shared.join("way/x")] {
        if !planted.exists() {
            let way = shared.join("way");
            symlink(folder.path(), &way).unwrap();
            std::os::unix::fs::lchown(&way, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        for error in [Output::check(planted).unwrap_err(), Output::create(planted).unwrap_err()] {
            assert!(error.to_string().contains("user 65534, in a folder of another user"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    let own = shared.join("own");
    for text in ["new", "newer"] {
        written(&own, text).commit().unwrap();
        assert_eq!((fs::metadata(&own).unwrap().uid(), fs::read_to_string(&own).unwrap().as_str()), (0, text));
    }
    // Where a group may write its members replace files, and a link or a pipe of theirs is refused.
    std::os::unix::fs::chown(&shared, Some(0), Some(NOBODY)).unwrap();
    set_mode(&shared, 0o2775);
    let pipe = shared.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    std::os::unix::fs::lchown(&pipe, Some(NOBODY), Some(NOBODY)).unwrap();
    for planted in [&link, &pipe, &shared.join("way/x")] {
        for error in [Output::check(planted).unwrap_err(), Output::create(planted).unwrap_err()] {
            assert!(error.to_string().contains("where a group may write"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "root's");
    written(&file, "ours").commit().unwrap();
    set_mode(&shared, 0o755);
    // A file of theirs in a folder of root's is no trap, and what is replaced stays theirs.
    std::os::unix::fs::chown(&shared, Some(0), Some(0)).unwrap();
    written(&file, "new").commit().unwrap();
    let now = fs::metadata(&file).unwrap();
    assert_eq!((now.uid(), now.gid(), now.len()), (NOBODY, NOBODY, 3));
}

#[test]
fn what_is_no_file_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    Output::check(&pipe).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    written(&pipe, "through the pipe").commit().unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    assert_eq!(names(folder.path()), ["pipe"]);
    written(Path::new("/dev/null"), "nowhere").commit().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn an_open_file_is_written_at_its_end() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut open = fs::File::create(&path).unwrap();
    open.write_all(b"before, ").unwrap();
    // As `-o /dev/stdout >> a`.
    written(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())), "after").commit().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before, after");
}
