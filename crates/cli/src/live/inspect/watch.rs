//! The live view, in a terminal.

use super::columns::{Content, columns, note, of_process, shown};
use super::system;
use crate::stop::ending;
use crate::{Failure, print};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::proc::{Named, ended};
use superpage_live::inspect::{Mapping, Process, System};
use superpage_report::{Screen, foreign};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Shows a process, or the system, until the user quits or a signal arrives.
pub(super) fn run(pid: Option<u32>, period: Duration, wide: bool) -> Result<ExitCode, Failure> {
    if !print::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage("--watch needs a terminal; without it inspect prints once".into()));
    }
    // Errors at the start are printed without a flicker.
    let mut view = View::new(pid, wide)?;
    let signal = Arc::new(AtomicUsize::new(0));
    for number in ending() {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)
            .map_err(|error| Failure::Run(format!("cannot catch signal {number}: {error}")))?;
    }
    // From here on the terminal is put back however this ends: the guard also drops in a panic.
    let _restored = Restored;
    terminal::enable_raw_mode()
        .and_then(|()| execute!(print::stdout(), EnterAlternateScreen, Hide))
        .map_err(terminal_failed)?;
    view.show(period, &signal)
}

/// Restores the terminal.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = execute!(print::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn terminal_failed(error: io::Error) -> Failure {
    Failure::Run(format!("the terminal failed: {error}"))
}

/// The subject of the view.
enum Subject {
    Process(Process, Named),
    /// Now and, from the second sample on, the previous sample.
    System(Box<System>, Option<Box<System>>),
}

struct View {
    subject: Subject,
    /// Whether all columns are shown.
    wide: bool,
    /// The column that rows are sorted by.
    sort: usize,
    descending: bool,
    /// Rows scrolled past.
    top: usize,
}

/// A table ready to be drawn.
struct Rows {
    head: Vec<String>,
    left: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl View {
    fn new(pid: Option<u32>, wide: bool) -> Result<View, Failure> {
        let (subject, sort) = match pid {
            // By what is resident, behind the address and, in the wide table, the size.
            Some(pid) => {
                let process = Process::read(pid)?;
                let named = Named::of(pid as i32).ok_or_else(|| ended(pid))?;
                (Subject::Process(process, named), if wide { 2 } else { 1 })
            }
            None => (Subject::System(Box::new(System::read()?), None), 1),
        };
        Ok(View { subject, wide, sort, descending: true, top: 0 })
    }

    fn again(&mut self) -> Result<(), Failure> {
        match &mut self.subject {
            // Another one may have got its number.
            Subject::Process(process, named) if !named.lives() => return Err(ended(process.pid).into()),
            Subject::Process(process, _) => *process = Process::read(process.pid)?,
            Subject::System(now, then) => *then = Some(std::mem::replace(now, Box::new(System::read()?))),
        }
        Ok(())
    }

    fn show(&mut self, period: Duration, signal: &AtomicUsize) -> Result<ExitCode, Failure> {
        /// How long a signal may have to wait.
        const PATIENCE: Duration = Duration::from_millis(100);
        let mut next = Instant::now() + period;
        loop {
            self.draw().map_err(terminal_failed)?;
            loop {
                let number = signal.load(Ordering::Relaxed);
                if number != 0 {
                    return Ok(ExitCode::from(128 + number as u8));
                }
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    self.again()?;
                    next = Instant::now() + period;
                    break;
                }
                if !event::poll(left.min(PATIENCE)).map_err(terminal_failed)? {
                    continue;
                }
                match event::read().map_err(terminal_failed)? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if !self.key(key) {
                            return Ok(ExitCode::SUCCESS);
                        }
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }

    /// Handles a key; returns `false` to quit.
    fn key(&mut self, key: KeyEvent) -> bool {
        let columns = self.rows().head.len();
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Left | KeyCode::Char('<') => self.sort = (self.sort + columns - 1) % columns,
            KeyCode::Right | KeyCode::Char('>') => self.sort = (self.sort + 1) % columns,
            KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::Down => self.top += 1,
            KeyCode::PageUp => self.top = self.top.saturating_sub(20),
            KeyCode::PageDown => self.top += 20,
            KeyCode::Home => self.top = 0,
            _ => {}
        }
        true
    }

    /// The rows to be sorted: mappings, or counts per second.
    fn rows(&self) -> Rows {
        match &self.subject {
            Subject::Process(process, _) => mappings(process, self.wide, self.sort, self.descending),
            Subject::System(now, then) => {
                let mut rates: Vec<(String, f64)> = match then {
                    Some(then) => now.rates(then).into_iter().collect(),
                    None => Vec::new(),
                };
                match self.sort {
                    0 => rates.sort_by(|a, b| b.0.cmp(&a.0)),
                    _ => rates.sort_by(|a, b| b.1.total_cmp(&a.1)),
                }
                if !self.descending {
                    rates.reverse();
                }
                let rows = rates.into_iter().map(|(name, rate)| vec![name, format!("{rate:.1}")]).collect();
                Rows { head: vec!["counter".into(), "a second".into()], left: vec![true, false], rows }
            }
        }
    }

    fn above(&self) -> Vec<String> {
        match &self.subject {
            Subject::Process(process, _) => {
                let notes = note(process).into_iter().chain(process.notes.iter().map(|note| note.text.clone()));
                std::iter::once(of_process(process)).chain(notes).collect()
            }
            Subject::System(now, _) => {
                let sections = system::sections(now, Screen::stdout(self.wide)).join("\n");
                let lines = sections.lines().map(String::from);
                lines.chain([String::new(), "Counted since the last look, a second".into()]).collect()
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, height) = terminal::size()?;
        let (columns, height) = (columns as usize, height as usize);
        let Rows { head, left, rows } = self.rows();
        self.top = self.top.min(rows.len().saturating_sub(1));
        let mark = |i: usize| match i == self.sort {
            true if self.descending => "↓",
            true => "↑",
            false => "",
        };
        let head: Vec<String> = head.iter().enumerate().map(|(i, name)| format!("{name}{}", mark(i))).collect();
        let lines = aligned(std::iter::once(head).chain(rows).collect(), &left);
        // Something of the table is always seen.
        let mut above: Vec<String> = self.above().iter().map(|line| foreign(line).into_owned()).collect();
        above.truncate(height.saturating_sub(6));
        let room = height.saturating_sub(above.len() + 2);
        let mut out = Vec::new();
        let mut put = |line: &str, style: Attribute| {
            let line: String = fitting(line, columns).collect();
            queue!(out, SetAttribute(style))?;
            write!(out, "{line}")?;
            queue!(out, SetAttribute(Attribute::Reset), Clear(ClearType::UntilNewLine))?;
            write!(out, "\r\n")
        };
        above.iter().try_for_each(|line| put(line, Attribute::Reset))?;
        put(&lines[0], Attribute::Reverse)?;
        lines[1..].iter().skip(self.top).take(room).try_for_each(|line| put(line, Attribute::Reset))?;
        queue!(
            out,
            Clear(ClearType::FromCursorDown),
            MoveTo(0, height.saturating_sub(1) as u16),
            SetAttribute(Attribute::Dim)
        )?;
        let keys = "left/right: sort by, r: reverse, up/down: scroll, q: quit";
        write!(out, "{}", fitting(keys, columns).collect::<String>())?;
        queue!(out, SetAttribute(Attribute::Reset))?;
        let mut stdout = print::stdout();
        queue!(stdout, MoveTo(0, 0))?;
        stdout.write_all(&out)?;
        stdout.flush()
    }
}

/// The beginning of a line that fits into a number of columns.
fn fitting(line: &str, columns: usize) -> impl Iterator<Item = char> {
    line.chars().scan(0, move |used, c| {
        *used += c.width().unwrap_or(0);
        (*used <= columns).then_some(c)
    })
}

/// Rows as lines, their columns side by side; those of which `left` is true are flush left.
fn aligned(rows: Vec<Vec<String>>, left: &[bool]) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.iter().map(|cell| foreign(cell).into_owned()).collect()).collect();
    let widest = |i: usize| rows.iter().map(|row| row[i].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..left.len()).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cell = |(i, cell): (usize, &String)| {
            let space = " ".repeat(widths[i] - cell.width());
            if left[i] { format!("{cell}{space}") } else { format!("{space}{cell}") }
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

fn mappings(process: &Process, wide: bool, sort: usize, descending: bool) -> Rows {
    let columns = columns(&process.mappings, wide);
    let mut rows: Vec<&Mapping> = shown(process).collect();
    if let Some(column) = columns.get(sort) {
        let key = |mapping: &Mapping| (column.cell)(mapping);
        rows.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.number.total_cmp(&b.number).then_with(|| a.text.cmp(&b.text))
        });
        if descending {
            rows.reverse();
        }
    }
    Rows {
        head: columns.iter().map(|column| column.name.clone()).collect(),
        left: columns.iter().map(|column| column.content == Content::Prose).collect(),
        rows: rows.iter().map(|m| columns.iter().map(|column| (column.cell)(m).text).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_as_the_screen() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let lines =
            aligned(vec![row(["name", "n↓"]), row(["日本", "12345"]), row(["a\u{1b}[2J", "1"])], &[true, false]);
        assert_eq!(lines, ["name           n↓", "日本        12345", "a\\u{1b}[2J      1"].map(String::from));
        assert_eq!(fitting("a日本", 4).collect::<String>(), "a日");
        assert_eq!(fitting("ab", 0).collect::<String>(), "");
    }
}
