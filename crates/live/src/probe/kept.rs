//! Answers that are kept until the system is started again, so that each call gives the same: a
//! file in superpage's own folder ([`own_folder`]), which nobody else may write to. Where there is
//! no such folder nothing is kept.

use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use superpage_linux::lock::{make_folder, own_folder};
use superpage_output::{Output, read_text};

/// An answer, with what it rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) yes: bool,
    pub(super) confidence: f64,
    pub(super) evidence: String,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct File {
    /// The start of the system in which it was answered.
    boot: String,
    #[serde(flatten)]
    kept: Kept,
}

/// The answer of this name that was kept since the system was started.
pub(super) fn read(name: &str) -> Option<Kept> {
    read_from(&place(name)?, &boot()?)
}

/// Keeps an answer. A failure is none: the next call asks again.
pub(super) fn write(name: &str, kept: &Kept) {
    if let Some((place, boot)) = place(name).zip(boot()) {
        let _ = write_to(&place, boot, kept);
    }
}

fn place(name: &str) -> Option<PathBuf> {
    let folder = own_folder().ok()?;
    make_folder(&folder).ok()?;
    Some(folder.join(format!("{name}.json")))
}

/// The identifier of this start of the system.
fn boot() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_string())
}

fn read_from(place: &Path, boot: &str) -> Option<Kept> {
    let file: File = serde_json::from_str(&read_text(place).ok()?).ok()?;
    let asked =
        format!("; answered before since this system was started, and kept: remove {} to ask again", place.display());
    let kept = Kept { evidence: file.kept.evidence + &asked, ..file.kept };
    (file.boot == boot).then_some(kept)
}

fn write_to(place: &Path, boot: String, kept: &Kept) -> std::io::Result<()> {
    let mut output = Output::create(place)?;
    output.write_all(serde_json::to_string(&File { boot, kept: kept.clone() }).expect("plain values").as_bytes())?;
    output.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_one_start_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.json");
        let kept = Kept { yes: true, confidence: 1.0, evidence: "seen".into() };
        assert_eq!(read_from(&place, "one"), None);
        write_to(&place, "one".into(), &kept).unwrap();
        let read = read_from(&place, "one").unwrap();
        assert!(read.yes && read.evidence.starts_with("seen; answered before"), "{read:?}");
        assert_eq!(read_from(&place, "two"), None);
        std::fs::write(&place, "{}").unwrap();
        assert_eq!(read_from(&place, "one"), None);
    }
}
