//! The state of a machine's physical memory as a file: what `superpage inspect --system
//! --memory-state` writes.
//!
//! Text. The first line, then a line for each block of memory:
//!
//! ```text
//! superpage-memory 1 base=4K block=2M frames=62464 kernel=6.18.44 date=2026-11-27T20:31:00Z
//! I3F13M496
//! 120*F512
//! I512
//! ```
//!
//! `F` are free frames, `M` such that can be moved, and `I` others, each with how many; `120*` is
//! 120 blocks alike.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use superpage_pages::{FrameUse, PageSize};

/// What the first line begins with: the format, and its version.
const FORMAT: &str = "superpage-memory 1";

/// The most memory, and the largest block.
const MOST: u64 = 1 << 60;
const LARGEST: u64 = 1 << 30;

/// The state of a machine's memory, frame by frame. What is no memory is left out, by whole blocks,
/// so that frames have other numbers than on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    base: PageSize,
    block: PageSize,
    /// The kernel's release, and when this was taken.
    kernel: String,
    date: String,
    blocks: Vec<Blocks>,
}

/// Blocks one after the other that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blocks {
    times: u64,
    /// Each with another use than the one before.
    runs: Vec<(FrameUse, u64)>,
}

impl Snapshot {
    /// Of no memory yet, in blocks of this size; `kernel` is a release and `date` a time, words
    /// without spaces.
    pub fn new(base: PageSize, block: PageSize, kernel: &str, date: &str) -> Snapshot {
        Snapshot { base, block, kernel: kernel.into(), date: date.into(), blocks: Vec::new() }
    }

    /// Appends a block.
    ///
    /// # Panics
    /// It has another number of frames.
    pub fn push(&mut self, block: &[FrameUse]) {
        assert_eq!(block.len() as u64, self.block_frames(), "frames of a block");
        let runs = block.chunk_by(|one, next| one == next).map(|run| (run[0], run.len() as u64)).collect();
        self.join(Blocks { times: 1, runs });
    }

    fn join(&mut self, more: Blocks) {
        match self.blocks.last_mut().filter(|last| last.runs == more.runs) {
            Some(last) => last.times += more.times,
            None => self.blocks.push(more),
        }
    }

    /// The size of a base page of the machine.
    pub fn base(&self) -> PageSize {
        self.base
    }

    fn block_frames(&self) -> u64 {
        self.block.bytes() / self.base.bytes()
    }

    /// All frames.
    pub fn frames(&self) -> u64 {
        self.blocks.iter().map(|blocks| blocks.times).sum::<u64>() * self.block_frames()
    }

    /// The bytes of this use.
    pub fn bytes(&self, of: FrameUse) -> u64 {
        self.runs().filter(|(found, _)| *found == of).map(|(_, run)| run.end - run.start).sum::<u64>()
            * self.base.bytes()
    }

    /// The frames by their uses, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (FrameUse, Range<u64>)> + '_ {
        let mut end = 0;
        let runs = self.blocks.iter().flat_map(|blocks| (0..blocks.times).flat_map(|_| &blocks.runs));
        runs.map(move |(of, frames)| {
            let start = end;
            end += frames;
            (*of, start..end)
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A sentence with the file, the line, and what was expected.
    pub fn read(path: &Path) -> Result<Snapshot, String> {
        let file = superpage_output::open_regular(path);
        let file = file.map_err(|error| {
            format!(
                "cannot read {}: {error}; `superpage inspect --system --memory-state FILE` writes such a file",
                path.display()
            )
        })?;
        Snapshot::parse(&path.display().to_string(), BufReader::new(file))
    }

    /// Reads text, which errors call `name`.
    fn parse(name: &str, mut text: impl BufRead) -> Result<Snapshot, String> {
        let wrong = |line: usize, problem: String| {
            format!("{name}:{line}: {problem}; take the file again (superpage inspect --system --memory-state FILE)")
        };
        let first = line(&mut text, 512).map(Option::unwrap_or_default).map_err(|problem| wrong(1, problem))?;
        let (mut snapshot, all) = head(&first).map_err(|problem| wrong(1, problem))?;
        // A letter and a digit for each frame, at most, and how often.
        let longest = 2 * snapshot.block_frames() + 32;
        let (mut found, mut last) = (0_u64, 1);
        while let Some(text) = line(&mut text, longest).map_err(|problem| wrong(last + 1, problem))? {
            let at = last + 1;
            let more = blocks(&text, snapshot.block_frames()).map_err(|problem| wrong(at, problem))?;
            found = found.saturating_add(more.times.saturating_mul(snapshot.block_frames()));
            if found > all {
                return Err(wrong(at, format!("{found} frames by here, and the first line says {all}")));
            }
            snapshot.join(more);
            last = at;
        }
        if found == all {
            Ok(snapshot)
        } else {
            Err(wrong(last, format!("it ends after {found} frames, and the first line says {all}")))
        }
    }
}

/// The next line, of at most `most` bytes, without its end; `None` where there is none.
fn line(text: &mut impl BufRead, most: u64) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    let read = text.take(most + 1).read_until(b'\n', &mut bytes).map_err(|error| error.to_string())?;
    if bytes.pop_if(|last| *last == b'\n').is_none() && bytes.len() as u64 > most {
        return Err(format!("expected a line of at most {most} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "expected text".to_string())?;
    Ok((read > 0).then_some(text))
}

/// The first line: a snapshot without blocks, and the number of its frames.
fn head(line: &str) -> Result<(Snapshot, u64), String> {
    let read = || {
        let mut words = line.strip_prefix(FORMAT)?.strip_prefix(' ')?.split(' ');
        let mut value = |key: &str| {
            words
                .next()?
                .strip_prefix(key)?
                .strip_prefix('=')
                .filter(|value| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic()))
        };
        let base: PageSize = value("base")?.parse().ok()?;
        let block: PageSize = value("block")?.parse().ok()?;
        let frames = number(value("frames")?)?;
        let snapshot = Snapshot::new(base, block, value("kernel")?, value("date")?);
        let fits = block >= base
            && block.bytes() <= LARGEST
            && frames.is_multiple_of(snapshot.block_frames())
            && frames.checked_mul(base.bytes()).is_some_and(|bytes| bytes <= MOST);
        (fits && words.next().is_none()).then_some((snapshot, frames))
    };
    read().ok_or_else(|| {
        let shown: String = line.chars().take(100).collect();
        format!(
            "{shown:?}: expected as the first line `{FORMAT} base=4K block=2M frames=N kernel=RELEASE date=TIME`, where \
             blocks are pages of at most 1 GB, and N frames whole blocks of at most 2^60 bytes"
        )
    })
}

/// A line of blocks of `frames` frames.
fn blocks(line: &str, frames: u64) -> Result<Blocks, String> {
    let read = || {
        let (times, mut rest) = match line.split_once('*') {
            Some((times, rest)) => (number(times)?, rest),
            None => (1, line),
        };
        let mut runs: Vec<(FrameUse, u64)> = Vec::new();
        while let Some(letter) = rest.chars().next() {
            let of = [FrameUse::Free, FrameUse::Movable, FrameUse::Immovable]
                .into_iter()
                .find(|of| self::letter(*of) == letter)?;
            let digits = &rest[1..];
            let length = digits.find(|char: char| !char.is_ascii_digit()).unwrap_or(digits.len());
            if runs.last().is_some_and(|(before, _)| *before == of) {
                return None;
            }
            runs.push((of, number(&digits[..length])?));
            rest = &digits[length..];
        }
        let all = runs.iter().try_fold(0_u64, |all, (_, run)| all.checked_add(*run))?;
        (all == frames).then_some(Blocks { times, runs })
    };
    read().ok_or_else(|| {
        let shown: String = line.chars().take(100).collect();
        format!(
            "{shown:?}: expected runs of a block, each with another letter of F (free), M (movable) and I (immovable) \
             than the one before, {frames} frames in all, as F{frames}, or several such blocks, as 3*F{frames}"
        )
    })
}

/// A number from 1, without a sign or leading zeroes.
fn number(text: &str) -> Option<u64> {
    text.starts_with(|char: char| matches!(char, '1'..='9')).then(|| text.parse().ok())?
}

fn letter(of: FrameUse) -> char {
    match of {
        FrameUse::Free => 'F',
        FrameUse::Movable => 'M',
        FrameUse::Immovable => 'I',
    }
}

/// The text of the file.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Snapshot { base, block, kernel, date, blocks } = self;
        writeln!(f, "{FORMAT} base={base} block={block} frames={} kernel={kernel} date={date}", self.frames())?;
        for Blocks { times, runs } in blocks {
            if *times > 1 {
                write!(f, "{times}*")?;
            }
            runs.iter().try_for_each(|(of, frames)| write!(f, "{}{frames}", letter(*of)))?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// A snapshot with the file that it is from.
#[derive(Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    path: String,
    digest: String,
    snapshot: Snapshot,
}

impl SnapshotFile {
    /// Reads a file.
    ///
    /// # Errors
    /// As for [`Snapshot::read`].
    pub fn read(path: &str) -> Result<SnapshotFile, String> {
        let snapshot = Snapshot::read(path.as_ref())?;
        let digest = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(snapshot.to_string().as_bytes()));
        Ok(SnapshotFile { path: path.into(), digest, snapshot })
    }

    /// The path as it was given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A digest of the contents.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// What is in the file.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.snapshot.frames() * self.snapshot.base.bytes()
    }
}

/// What tells it from others, in short.
impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.path, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "superpage-memory 1 base=4K block=32K frames=32 kernel=6.18 date=2026-11-27T20:31:00Z\n";

    fn parse(text: &str) -> Result<Snapshot, String> {
        Snapshot::parse("m.memory", text.as_bytes())
    }

    fn any_use() -> impl Strategy<Value = FrameUse> {
        prop_oneof![Just(FrameUse::Free), Just(FrameUse::Movable), Just(FrameUse::Immovable)]
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_is_written(
            blocks in proptest::collection::vec(
                prop_oneof![any_use().prop_map(|of| vec![of; 8]), proptest::collection::vec(any_use(), 8)], 1..40)
        ) {
            let mut snapshot = Snapshot::new("4K".parse().unwrap(), "32K".parse().unwrap(), "6.18", "now");
            blocks.iter().for_each(|block| snapshot.push(block));
            let text = snapshot.to_string();
            let read = parse(&text).unwrap();
            prop_assert_eq!(&read, &snapshot);
            prop_assert_eq!(read.to_string(), text);
            let uses: Vec<FrameUse> = read.runs().flat_map(|(of, run)| run.map(move |_| of)).collect();
            prop_assert_eq!(uses, blocks.concat());
        }

        #[test]
        fn no_text_panics(text in "[FMI0-9*\\n\u{e9} -]{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("{HEAD}{text}"));
        }
    }

    #[test]
    fn blocks_that_are_alike_are_one_line() {
        let snapshot = parse(&format!("{HEAD}F8\n2*F8\nI1F3M4\n")).unwrap();
        assert_eq!(snapshot.to_string(), format!("{HEAD}3*F8\nI1F3M4\n"));
        let bytes = [FrameUse::Free, FrameUse::Movable, FrameUse::Immovable].map(|of| snapshot.bytes(of) >> 12);
        assert_eq!((snapshot.frames(), bytes), (32, [27, 4, 1]));
    }

    #[test]
    fn a_long_line_is_not_read_to_its_end() {
        let refused = |text: &str, line: u32| {
            let endless = text.as_bytes().chain(std::io::repeat(b'0'));
            let error = Snapshot::parse("x", BufReader::new(endless)).unwrap_err();
            assert!(error.starts_with(&format!("x:{line}: expected a line of at most")), "{error}");
        };
        refused("", 1);
        refused(HEAD, 2);
        refused(&format!("{HEAD}F8\n"), 3);
        for kernel in ["6.18\0", "6.18\x1b[2J", "6.18\r"] {
            assert!(parse(&HEAD.replace("kernel=", &format!("kernel={kernel}"))).is_err());
        }
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for line in [
            "",
            "F7",
            "F9",
            "F4F4",
            "F0I8",
            "F08",
            "F+8",
            "X8",
            "f8",
            "F8 ",
            " F8",
            "F",
            "8",
            "0*F8",
            "*F8",
            "2*",
            "2*2*F8",
            "-1*F8",
            "F4\u{e9}4",
            "F18446744073709551615M9",
            "F99999999999999999999",
        ] {
            let error = parse(&format!("{HEAD}F8\n{line}\n2*F8\n")).unwrap_err();
            assert!(error.starts_with("m.memory:3: ") && error.contains("8 frames in all"), "{line}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        for (from, to) in [
            ("memory 1", "memory 2"),
            ("superpage", "Superpage"),
            ("base=4K", "base=3K"),
            ("base=4K", "base=64K"),
            ("base=4K block=32K", "block=32K base=4K"),
            ("frames=32", "frames=31"),
            ("frames=32", "frames=0"),
            ("frames=32", "frames=9223372036854775808"),
            (" kernel=6.18", ""),
            ("kernel=6.18", "kernel="),
            ("date=", "date=now "),
        ] {
            let error = parse(&HEAD.replacen(from, to, 1)).unwrap_err();
            assert!(error.starts_with("m.memory:1: ") && error.contains("expected as the first line"), "{to}: {error}");
        }
        for (blocks, at, problem) in [
            ("3*F8\n", 2, "it ends after 24 frames, and the first line says 32"),
            ("", 1, "it ends after 0 frames"),
            ("3*F8\n2*F8\nF8\n", 3, "40 frames by here, and the first line says 32"),
            ("18446744073709551615*F8\n", 2, "the first line says 32"),
        ] {
            let error = parse(&format!("{HEAD}{blocks}")).unwrap_err();
            assert!(error.starts_with(&format!("m.memory:{at}: {problem}")) || error.contains(problem), "{error}");
        }
        assert!(parse("").unwrap_err().starts_with("m.memory:1: "));
    }
}
