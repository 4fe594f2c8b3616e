//! The rules that a trace file is held to while it is read: those that a consumer cannot do
//! without. They concern events, not accesses, and cost nothing for each access.

use super::files::Files;
use crate::event::{Backing, CALL_BYTES, Event, PAGES_LIMIT, ProcessId};
use crate::file::kind_name;
use std::collections::HashSet;

/// Which processes exist and which files are open, as far as a trace has been read from its start.
#[derive(Default)]
pub(crate) struct Rules {
    current: Option<ProcessId>,
    live: HashSet<ProcessId>,
    files: Files,
    sums: Sums,
}

/// Amounts that events of a stream add up to.
#[derive(Default)]
pub(crate) struct Sums {
    /// Microseconds of idle time.
    idle: u64,
    /// Accesses and instructions that were left out.
    skipped: u64,
}

impl Sums {
    /// Some 35 years.
    const IDLE: u64 = 1 << 50;
    const SKIPPED: u64 = 1 << 60;

    /// Adds an event, and checks that what consumers compute from the sums fits into 64 bits.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), String> {
        let (sum, more, limit, of) = match *event {
            Event::Idle { microseconds } => (&mut self.idle, microseconds, Sums::IDLE, "microseconds of idle time"),
            Event::Skipped { references, instructions } => {
                let more = references.saturating_add(instructions);
                (&mut self.skipped, more, Sums::SKIPPED, "accesses and instructions left out")
            }
            _ => return Ok(()),
        };
        *sum = sum.saturating_add(more);
        if *sum > limit { Err(format!("{sum} {of}, expected at most {limit} in all")) } else { Ok(()) }
    }
}

impl Rules {
    /// Checks an event and follows it; an error is what is wrong, as a part of a sentence.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), String> {
        ranges(event)?;
        self.sums.event(event)?;
        if let Event::Switch { process, .. } = *event {
            self.live.insert(process);
            self.current = Some(process);
            return Ok(());
        }
        if matches!(event, Event::Note(_) | Event::Mark(_) | Event::Idle { .. })
            || matches!(event, Event::Skipped { .. } | Event::Phase { .. } | Event::Migrate { .. })
        {
            return Ok(());
        }
        let Some(process) = self.current else {
            return Err(format!("{} of no process, expected a switch to one before it", kind_name(event)));
        };
        self.files.event(process, event)?;
        match *event {
            Event::Fork { child } if !self.live.insert(child) => {
                return Err(format!("fork of process {}, which exists, expected a new one", child.0));
            }
            Event::Exit => {
                self.live.remove(&process);
                self.current = None;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that accesses may come here.
    pub(crate) fn accesses(&self) -> Result<(), String> {
        match self.current {
            Some(_) => Ok(()),
            None => Err("accesses of no process before it, expected a switch to one".into()),
        }
    }
}

/// Checks that the ranges of an event end within [`PAGES_LIMIT`], that what it maps or moves is not
/// empty, and the path of a call.
pub(crate) fn ranges(event: &Event) -> Result<(), String> {
    let check = |start: u64, pages: u64, empty: bool| match start.checked_add(pages) {
        Some(end) if end <= PAGES_LIMIT && (empty || pages > 0) => Ok(()),
        _ => {
            let least = if empty { "" } else { "at least one page and " };
            let name = kind_name(event);
            Err(format!("{name} of {pages} pages from page {start:#x} on, expected {least}an end up to page 2^52"))
        }
    };
    match *event {
        Event::Map { start, pages, backing, .. } => {
            check(start, pages, false)?;
            match backing {
                Backing::Anonymous => Ok(()),
                Backing::File { file_pages, offset, .. } => {
                    check(offset, pages, false)?;
                    check(0, file_pages, true)
                }
            }
        }
        Event::Remap { from, from_pages, to, to_pages } => {
            check(from, from_pages, false)?;
            check(to, to_pages, false)
        }
        Event::Unmap { start, pages }
        | Event::Protect { start, pages, .. }
        | Event::Discard { start, pages }
        | Event::Advise { start, pages, .. }
        | Event::Grow { start, pages }
        | Event::Rewrite { start, pages }
        | Event::Read { start, pages, .. }
        | Event::Write { start, pages, .. } => check(start, pages, true),
        Event::Open { file_pages, .. } => check(0, file_pages, true),
        Event::Wire { pages } | Event::Unwire { pages } => check(0, pages, true),
        Event::Call { ref path, at, bytes } => {
            let known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            if path.is_empty() || path.len() > CALL_BYTES || !path.bytes().all(known) {
                let expected = format!("1 to {CALL_BYTES} lower-case letters, digits and -");
                return Err(format!("call by the path {path:?}, expected {expected}"));
            }
            match at.checked_add(bytes) {
                Some(_) => Ok(()),
                None => Err(format!("call with {bytes} bytes from {at:#x} on, expected an end below 2^64")),
            }
        }
        Event::Switch { .. } | Event::Fork { .. } | Event::Exec | Event::Exit | Event::Skipped { .. } => Ok(()),
        Event::Note(_) | Event::Close { .. } | Event::Sync { .. } | Event::Remove { .. } => Ok(()),
        Event::Idle { .. } | Event::Mark(_) | Event::Phase { .. } | Event::Migrate { .. } => Ok(()),
    }
}
