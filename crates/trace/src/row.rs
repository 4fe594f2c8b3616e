//! A stream as rows of a table: one for each run and each event, in their order.
//!
//! | column | of a run | of an event |
//! | --- | --- | --- |
//! | `process`, `thread` | who did it | who did it; of a switch, who goes on |
//! | `kind` | `read`, `write`, `execute` | its name, such as `switch` or `file-read`; `docs/trace-events.md` lists them |
//! | `page` | its number of 4 KB | the first page, if it has one: of `file-read` and `file-write` in the file |
//! | `pages` | | how many, if it says |
//! | `references` | accesses | of `skipped`, those left out |
//! | `instructions` | see [`Run`] | of `skipped`, those left out |
//! | `detail` | | the rest, in words |
//! | `line` | in a stream with lines, which of the page's 64 | |
//!
//! [`Row::run`] and [`Row::event`] read what [`Row::of_run`] and [`Row::of_event`] make.

use crate::file::{KIND_NAMES, kind_name};
use crate::{Backing, Event, Growth, PAGES_LIMIT, ProcessId, Run, TRACE_LINE_SHIFT, TRACE_PAGE_SHIFT};
use superpage_pages::{Access, Hint, Protection};

/// A row of the table; empty cells are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) kind: &'static str,
    pub(crate) page: Option<u64>,
    pub(crate) pages: Option<u64>,
    pub(crate) references: Option<u64>,
    pub(crate) instructions: Option<u64>,
    pub(crate) detail: Option<String>,
    pub(crate) line: Option<u8>,
}

/// The names of the kinds of runs, by [`Access`].
pub(crate) const RUN_NAMES: [&str; 3] = ["read", "write", "execute"];

/// The lines of a page.
const LINES: u64 = 1 << (TRACE_PAGE_SHIFT - TRACE_LINE_SHIFT);

/// The name of a kind of run or event that equals `name`.
pub(crate) fn known_kind(name: &str) -> Option<&'static str> {
    RUN_NAMES.into_iter().chain(KIND_NAMES).find(|known| *known == name)
}

impl Row {
    /// The row of a run of this process and thread, of a stream with lines or without.
    pub(crate) fn of_run(run: Run, (process, thread): (u32, u32), lines: bool) -> Row {
        Row {
            process,
            thread,
            kind: RUN_NAMES[run.access() as usize],
            page: Some(run.page()),
            references: Some(run.references.into()),
            instructions: Some(run.instructions.into()),
            line: lines.then_some((run.line() % LINES) as u8),
            ..Row::default()
        }
    }

    /// The run of a row that is of one; 1 reference and 0 instructions where it has none.
    ///
    /// # Errors
    /// What is wrong with the row, as a part of a sentence.
    pub(crate) fn run(&self) -> Result<Option<Run>, String> {
        let access = match self.kind {
            "read" => Access::Read,
            "write" => Access::Write,
            "execute" => Access::Execute,
            _ => return Ok(None),
        };
        let page = self.page.filter(|&page| page < PAGES_LIMIT).ok_or("no page, expected its number, below 2^52")?;
        let count = |cell: Option<u64>, default: u32, name: &str| {
            cell.map_or(Ok(default), |count| {
                u32::try_from(count).map_err(|_| format!("{count} {name}, expected less than 2^32"))
            })
        };
        let references = count(self.references, 1, "references")?;
        if references == 0 {
            return Err("0 references, expected at least one".into());
        }
        let line = u64::from(self.line.unwrap_or(0));
        if line >= LINES {
            return Err(format!("line {line}, expected one of the page's {LINES}, from 0"));
        }
        Ok(Some(Run::on_line(page * LINES + line, access, references, count(self.instructions, 0, "instructions")?)))
    }

    /// The row of an event of this process and thread.
    pub(crate) fn of_event(event: Event, (process, thread): (u32, u32)) -> Row {
        let empty = (None, None, None, None, None);
        let kind = kind_name(&event);
        let (page, pages, references, instructions, detail) = match event {
            Event::Switch { .. } | Event::Exec | Event::Exit => empty,
            Event::Map { start, pages, protection, shared, backing, growth } => {
                let shared = if shared { "shared" } else { "private" };
                let backing = match backing {
                    Backing::Anonymous => "anonymous".to_owned(),
                    Backing::File { file, file_pages, offset } => {
                        format!("file {file} of {file_pages} pages from {offset}")
                    }
                };
                let growth = match growth {
                    Growth::Fixed => "fixed",
                    Growth::Up => "grows up",
                    Growth::Down => "grows down",
                };
                (Some(start), Some(pages), None, None, Some(format!("{protection} {shared} {backing}, {growth}")))
            }
            Event::Unmap { start, pages }
            | Event::Discard { start, pages }
            | Event::Grow { start, pages }
            | Event::Rewrite { start, pages } => (Some(start), Some(pages), None, None, None),
            Event::Protect { start, pages, protection } => {
                (Some(start), Some(pages), None, None, Some(protection.to_string()))
            }
            Event::Advise { start, pages, hint } => (Some(start), Some(pages), None, None, Some(hint.to_string())),
            Event::Remap { from, from_pages, to, to_pages } => {
                (Some(from), Some(from_pages), None, None, Some(format!("to {to}, {to_pages} pages")))
            }
            Event::Migrate { thread, to } => {
                (None, None, None, None, Some(format!("thread {thread} to hardware thread {to}")))
            }
            Event::Fork { child } => (None, None, None, None, Some(format!("child {}", child.0))),
            Event::Skipped { references, instructions } => (None, None, Some(references), Some(instructions), None),
            Event::Phase { phase, period } => {
                let period = period.map(|period| format!(" of {period}")).unwrap_or_default();
                (None, None, None, None, Some(format!("{phase:?}{period}").to_lowercase()))
            }
            Event::Call { path, at, bytes } => {
                let pages = if bytes == 0 {
                    0
                } else {
                    ((at + (bytes - 1)) >> TRACE_PAGE_SHIFT) - (at >> TRACE_PAGE_SHIFT) + 1
                };
                (
                    Some(at >> TRACE_PAGE_SHIFT),
                    Some(pages),
                    None,
                    None,
                    Some(format!("{path}, {bytes} bytes at {at:#x}")),
                )
            }
            Event::Open { file, file_pages } => (None, Some(file_pages), None, None, Some(format!("file {file}"))),
            Event::Close { file } | Event::Sync { file } | Event::Remove { file } => {
                (None, None, None, None, Some(format!("file {file}")))
            }
            Event::Read { file, start, pages } | Event::Write { file, start, pages } => {
                (Some(start), Some(pages), None, None, Some(format!("file {file}")))
            }
            Event::Wire { pages } | Event::Unwire { pages } => (None, Some(pages), None, None, None),
            Event::Idle { microseconds } => (None, None, None, None, Some(format!("{microseconds} us"))),
            Event::Note(text) | Event::Mark(text) => (None, None, None, None, Some(text)),
        };
        Row { process, thread, kind, page, pages, references, instructions, detail, line: None }
    }

    /// The event of a row that is of one: that which has this row.
    ///
    /// # Errors
    /// What is wrong with the row, as a part of a sentence.
    pub(crate) fn event(&self) -> Result<Event, String> {
        let detail = self.detail.as_deref().unwrap_or_default();
        let words: Vec<&str> = detail.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        // The n-th number among the words. A wrong one makes an event that has another row.
        let number = |n: usize| {
            let numbers = words.iter().filter_map(|word| match word.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => word.parse().ok(),
            });
            numbers.clone().nth(n).unwrap_or(0)
        };
        let (has, file) = (|word| words.contains(&word), number(0) as u32);
        let rights = || {
            let letters = words.first().copied().unwrap_or_default();
            let bit = |bit: u32, letter| u8::from(letters.contains(letter)) << bit;
            Protection::from_bits(bit(0, 'r') | bit(1, 'w') | bit(2, 'x'))
        };
        let (start, pages) = (self.page.unwrap_or(0), self.pages.unwrap_or(0));
        let event = match self.kind {
            "switch" => Event::Switch { process: ProcessId(self.process), thread: self.thread },
            "map" => Event::Map {
                start,
                pages,
                protection: rights(),
                shared: has("shared"),
                backing: if has("file") {
                    Backing::File { file, file_pages: number(1), offset: number(2) }
                } else {
                    Backing::Anonymous
                },
                growth: match (has("up"), has("down")) {
                    (true, _) => Growth::Up,
                    (_, true) => Growth::Down,
                    _ => Growth::Fixed,
                },
            },
            "unmap" => Event::Unmap { start, pages },
            "protect" => Event::Protect { start, pages, protection: rights() },
            "discard" => Event::Discard { start, pages },
            "grow" => Event::Grow { start, pages },
            "remap" => Event::Remap { from: start, from_pages: pages, to: number(0), to_pages: number(1) },
            "fork" => Event::Fork { child: ProcessId(number(0) as u32) },
            "exec" => Event::Exec,
            "exit" => Event::Exit,
            "note" => return Ok(Event::Note(detail.to_owned())),
            "mark" => return Ok(Event::Mark(detail.to_owned())),
            "open" => Event::Open { file, file_pages: pages },
            "close" => Event::Close { file },
            "file-read" => Event::Read { file, start, pages },
            "file-write" => Event::Write { file, start, pages },
            "sync" => Event::Sync { file },
            "remove" => Event::Remove { file },
            "wire" => Event::Wire { pages },
            "unwire" => Event::Unwire { pages },
            "idle" => Event::Idle { microseconds: number(0) },
            "rewrite" => Event::Rewrite { start, pages },
            "advise" => {
                let hint = (0..).map_while(Hint::from_number).find(|hint| hint.to_string() == detail);
                Event::Advise { start, pages, hint: hint.unwrap_or_default() }
            }
            "call" => {
                let path = words.first().copied().unwrap_or_default().to_owned();
                Event::Call { path, at: number(1), bytes: number(0) }
            }
            "skipped" | "phase" => {
                return Err("part of a sampled stream, and a table does not say how it was sampled: import what was \
                            recorded without sampling, or use the trace itself"
                    .into());
            }
            _ => return Err(format!("kind {:?}, expected read, write, execute or an event's", self.kind)),
        };
        crate::check::ranges(&event)?;
        let row = Row::of_event(event.clone(), (self.process, self.thread));
        if (row.page, row.pages) != (self.page, self.pages) || row.detail.as_deref().unwrap_or_default() != detail {
            let shown = |cell: Option<u64>| cell.map_or("none".into(), |number| number.to_string());
            let cells = format!("page {}, pages {}, detail {detail:?}", shown(self.page), shown(self.pages));
            return Err(format!("a {} of {cells}, expected what trace export writes for one", self.kind));
        }
        Ok(event)
    }
}
