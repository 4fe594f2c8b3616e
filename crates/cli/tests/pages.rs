//! The hidden verb `pages`: what packages install.

use std::path::Path;
use std::process::Command;

#[test]
fn the_pages_are_those_of_all_verbs() {
    let _turn = superpage_testing::turn_of("pages");
    let folder = tempfile::tempdir().unwrap();
    let pages =
        |folder: &Path| Command::new(env!("CARGO_BIN_EXE_superpage")).arg("pages").arg(folder).output().unwrap();
    assert!(pages(folder.path()).status.success());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let daemon = read("man/man1/superpage-daemon.1");
    assert!(daemon.contains("metrics") && daemon.contains("/etc/superpage.toml"), "{daemon}");
    assert!(read("man/man1/superpage-trace-import.1").contains("superpage"));
    for name in ["bash-completion/completions/superpage", "zsh/site-functions/_superpage"] {
        assert!(read(name).contains("--metrics-listen"), "{name}");
    }
    assert!(read("fish/vendor_completions.d/superpage.fish").contains("metrics-listen"));
    // Nobody types it.
    assert!(!folder.path().join("man/man1/superpage-pages.1").exists());
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = pages(&file);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    // Whoever owns the folder may have planted links, and what blocks.
    let (planted, victim) = (folder.path().join("planted/man/man1"), folder.path().join("victim"));
    std::fs::create_dir_all(&planted).unwrap();
    std::fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, planted.join("superpage.1")).unwrap();
    assert_eq!(pages(&folder.path().join("planted")).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    std::fs::remove_file(planted.join("superpage.1")).unwrap();
    assert!(Command::new("mkfifo").arg(planted.join("superpage.1")).status().unwrap().success());
    assert_eq!(pages(&folder.path().join("planted")).status.code(), Some(2));
}

/// The files of the Debian package are there, and the unit starts the command that it installs.
#[test]
fn the_package_names_files_that_exist() {
    let _turn = superpage_testing::turn_of("pages");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = std::fs::read_to_string(root.join("crates/cli/Cargo.toml")).unwrap();
    let named = manifest.split('"').filter_map(|word| word.strip_prefix("../../"));
    let named: Vec<&str> = named.filter(|path| !path.starts_with("target/")).collect();
    assert!(named.len() > 4, "{named:?}");
    for path in named {
        let (there, ends) = path.split_once('*').unwrap_or((path, ""));
        let (folder, begins) = there.rsplit_once('/').unwrap_or(("", there));
        let mut names = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let fits = |name: &str| name.starts_with(begins) && name.ends_with(ends);
        assert!(names.any(|name| fits(&name.to_string_lossy())), "{path}");
    }
    let unit = std::fs::read_to_string(root.join("packaging/superpage.service")).unwrap();
    assert!(unit.contains("\nExecStart=superpage daemon --config /etc/superpage.toml\n"));
}

/// `make deb` replaces a cargo-deb that is too old, and leaves a newer one alone.
#[test]
fn the_package_is_built_by_a_cargo_deb_that_knows_it() {
    let _turn = superpage_testing::turn_of("pages");
    if Command::new("make").arg("--version").output().is_err() {
        return superpage_testing::skip!("make", "there is no make");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let (cargo, asked) = (folder.path().join("cargo"), folder.path().join("asked"));
    // What comes after the installation is not built here.
    for (version, installs) in
        [("echo 2.12.1", true), ("echo 3.0.0", false), ("echo 10.1.0", false), ("exit 101", true)]
    {
        let asked_for = asked.display();
        let script =
            format!("#!/bin/sh\necho \"$*\" >> {asked_for}\ncase \"$1\" in deb) {version};; build) exit 1;; esac\n");
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(&cargo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let _ = std::fs::remove_file(&asked);
        let made =
            Command::new("make").arg("deb").arg(format!("CARGO={}", cargo.display())).current_dir(&root).output();
        assert!(!made.unwrap().status.success());
        let asked = std::fs::read_to_string(&asked).unwrap();
        assert_eq!(asked.contains("install cargo-deb --version ^3 --locked"), installs, "{version}: {asked}");
        assert!(asked.starts_with("deb --version\n") && asked.contains("\nbuild "), "{version}: {asked}");
    }
}
