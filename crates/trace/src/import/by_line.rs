//! Texts whose every line is an access, or something to pass over.

use super::lines::Lines;
use super::{Record, Records};
use crate::Error;
use std::path::Path;

/// What a line is.
pub(super) enum Line {
    /// Accesses, which have been passed on; or nothing of interest.
    Read,
    /// The same, made at this time, which never decreases.
    At(u64),
    /// It names the command that was traced.
    Command(String),
    /// Not of this format.
    Wrong,
}

/// A format of such texts.
pub(super) struct Format {
    /// Passes on the records of a line.
    pub(super) parse: fn(&[u8], &mut dyn FnMut(Record)) -> Line,
    /// What a wrong line is, and what was expected: the end of a sentence.
    pub(super) wrong: &'static str,
    /// The last line, if the tool always writes one.
    pub(super) last: Option<&'static str>,
    /// What to know of any such trace.
    pub(super) note: Option<&'static str>,
}

struct ByLine {
    format: &'static Format,
    lines: Lines,
    /// Whether it may end here.
    whole: bool,
    time: u64,
    command: Option<String>,
}

/// Opens a text of this format. Nothing is read yet.
pub(super) fn open(path: &Path, format: &'static Format) -> Result<Box<dyn Records>, Error> {
    Ok(Box::new(ByLine { format, lines: Lines::open(path)?, whole: true, time: 0, command: None }))
}

impl Records for ByLine {
    fn read(&mut self, each: &mut dyn FnMut(Record)) -> Result<bool, Error> {
        for _ in 0..Lines::AT_A_TIME {
            if !self.lines.next()? {
                return match self.format.last.filter(|_| !self.whole) {
                    Some(last) => {
                        Err(self.lines.wrong(&format!("the text is cut off; expected {last} as its last line")))
                    }
                    None => Ok(false),
                };
            }
            self.whole = self.format.last.is_none_or(|last| self.lines.line() == last.as_bytes());
            match (self.format.parse)(self.lines.line(), each) {
                Line::Read => {}
                Line::At(time) if time < self.time => {
                    let problem = format!("time {time} after {}; expected times that do not decrease", self.time);
                    return Err(self.lines.wrong(&problem));
                }
                Line::At(time) => self.time = time,
                Line::Command(command) => drop(self.command.get_or_insert(command)),
                Line::Wrong => {
                    let problem = format!("{} is {}", self.lines.shown(), self.format.wrong);
                    return Err(self.lines.wrong(&problem));
                }
            }
        }
        Ok(true)
    }

    fn workload(&self) -> Option<String> {
        self.command.clone()
    }

    fn notes(&self) -> Vec<(&'static str, String)> {
        self.format.note.into_iter().map(|note| ("note", note.to_owned())).collect()
    }
}

/// A hexadecimal number of at most 16 digits, with `0x` before it or without.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |sum, &digit| Some(sum << 4 | u64::from((digit as char).to_digit(16)?)))
}

/// A decimal number below 10^18.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |sum, &digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}
