//! The verbs that work on this system: on running processes, and on commands that they start.

mod compare;
mod daemon;
mod demonstrate;
mod inspect;
mod probe;
mod run;
mod split;

use crate::Failure;
use clap::Subcommand;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use superpage_live::launch::Line;
use superpage_report::Screen;

/// The verbs that work on this system.
#[derive(Subcommand)]
pub(crate) enum Live {
    /// Run a command under several policies in turns, and recommend one of them
    Compare(Box<compare::Compare>),
    /// Promote the memory of running programs to huge pages, where it is populated and settled
    Daemon(daemon::Daemon),
    /// Show where the memory of a process is, in pages of which sizes, and why it is not huge; or
    /// what the system has free
    Inspect(inspect::Inspect),
    /// Run a command under a policy for its pages
    Run(Box<run::Run>),
    /// Split the huge pages of running programs into base pages
    Split(split::Split),
    /// See on this machine, in a minute, what huge pages do to three small programs
    Try(demonstrate::Try),
    /// Determine by timing what this machine and its kernel do with pages of several sizes
    Probe(probe::Measure),
}

impl Live {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if !std::path::Path::new("/proc/self/stat").exists() {
            let sentence = "/proc is not mounted here, and all that is known of processes comes from there: mount it (mount -t \
                            proc proc /proc), or run superpage outside this container";
            return Err(Failure::Run(sentence.into()));
        }
        recover();
        match self {
            Live::Compare(verb) => verb.run(),
            Live::Daemon(verb) => verb.run(),
            Live::Inspect(verb) => verb.run(),
            Live::Run(verb) => verb.run(),
            Live::Split(verb) => verb.run(),
            Live::Try(verb) => verb.run(),
            Live::Probe(verb) => verb.run(),
        }
    }
}

/// Lines to type under a title, none of them wrapped; nothing, if there are none.
fn typed(title: &str, lines: &[Line], screen: Screen) -> String {
    let each = |Line { does, line, .. }: &Line| screen.note(does) + "      " + line + "\n";
    let text: String = lines.iter().map(each).collect();
    if text.is_empty() { text } else { format!("\n{title}\n{text}") }
}

/// Writes the files that these lines make into a folder, each where it would be below `/`; says on
/// standard error what they are for.
fn write_files(folder: &Path, lines: &[Line]) -> Result<(), Failure> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for part in lines.iter().filter_map(|line| line.file.as_ref()) {
        *files.entry(&part.path).or_default() += &part.text;
    }
    if files.is_empty() {
        eprintln!("superpage: no file would change anything for good, so none was written to {}", folder.display());
    }
    for (path, text) in files {
        crate::export::write_below(folder, path.trim_start_matches('/'), text.as_bytes()).map_err(Failure::Run)?;
        eprintln!("superpage: {}{path} is to be {path}, for root; without it there all is as before", folder.display());
    }
    Ok(())
}

/// Restores what a killed process had changed, and reports that, or why it cannot.
fn recover() {
    match superpage_linux::settings::recover() {
        Ok(None) => {}
        Ok(Some(recovered)) => eprintln!("superpage: {recovered}"),
        Err(error) => eprintln!("superpage: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_live::launch::Part;

    #[test]
    fn files_are_written_where_they_would_be_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("new");
        let line = |path: &str, text: &str| {
            let file = Some(Part { path: path.into(), text: text.into() });
            Line { file, ..Line::new("does", "line") }
        };
        let lines = [
            line("/etc/a.conf", "one\n"),
            Line::new("", ""),
            line("/etc/b/c.conf", "x\n"),
            line("/etc/a.conf", "two\n"),
        ];
        assert!(write_files(&at, &lines).is_ok());
        let read = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
        assert_eq!((read("etc/a.conf").as_str(), read("etc/b/c.conf").as_str()), ("one\ntwo\n", "x\n"));
        // Once more: what was there is replaced.
        assert!(write_files(&at, &lines[2..3]).is_ok());
        assert_eq!(read("etc/b/c.conf"), "x\n");
        let (planted, elsewhere) = (folder.path().join("planted"), folder.path().join("elsewhere"));
        std::fs::create_dir_all(&planted).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, planted.join("etc")).unwrap();
        let Err(Failure::Run(said)) = write_files(&planted, &lines) else { panic!("it followed a link") };
        assert!(said.contains("planted/etc/a.conf"), "{said}");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(write_files(&folder.path().join("none"), &lines[1..2]).is_ok());
        assert!(!folder.path().join("none").exists());
    }
}
