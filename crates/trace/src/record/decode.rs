//! Decodes the plugin's words into runs and events.

use super::wire::{self, Unit, code};
use crate::Phase;
use crate::event::{Backing, Batch, Event, Growth, ProcessId, Run, TRACE_LINE_SHIFT};
use std::collections::HashMap;
use superpage_pages::{Access, Hint, Protection};

/// The bits of a tag that hold its kind.
const KIND: u64 = 3;

/// The names that all processes of a recording share.
#[derive(Default)]
pub(super) struct Names {
    /// Files by device and inode.
    files: HashMap<(u64, u64), u32>,
    /// Processes by their tokens.
    processes: HashMap<u64, ProcessId>,
    threads: u32,
    /// Until when, by the system's clock in milliseconds, idle time is in the stream.
    idle_until: u64,
}

impl Names {
    /// The process with this token, if it has been forked.
    pub(super) fn process(&self, token: u64) -> Option<ProcessId> {
        self.processes.get(&token).copied()
    }

    /// Assigns a process its number.
    pub(super) fn add_process(&mut self, token: u64) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        *self.processes.entry(token).or_insert(id)
    }

    /// Assigns a thread its number.
    pub(super) fn add_thread(&mut self) -> u32 {
        self.threads += 1;
        self.threads - 1
    }

    /// Whether no thread has got a number yet.
    pub(super) fn no_threads(&self) -> bool {
        self.threads == 0
    }

    /// How much of a sleep that ended at this time is idle time: several that sleep at once are
    /// idle once.
    fn idle(&mut self, slept: u64, ended: u64) -> u64 {
        let idle = slept.min(ended.saturating_sub(self.idle_until));
        self.idle_until = self.idle_until.max(ended);
        idle
    }

    fn file(&mut self, file: (u64, u64)) -> u32 {
        let next = self.files.len() as u32;
        *self.files.entry(file).or_insert(next)
    }
}

/// What the plugin reports in addition to the stream.
pub(super) enum Word {
    /// The process has executed another program, whose threads are new.
    Executed,
    /// The process has forked another, with this token.
    Forked(u64),
    /// The process has ended.
    Exited,
    /// The process will come back on another connection.
    Reconnects,
    /// A text for the user.
    Note(String),
}

/// Decodes the words of one chunk, with runs of this unit, into `batch`, and into `heard` what
/// concerns the recording. Returns how many words were decoded: all, unless they end with an end
/// mark or in the middle of an event.
pub(super) fn decode(words: &[u64], unit: Unit, names: &mut Names, batch: &mut Batch, heard: &mut Vec<Word>) -> usize {
    let mut at = 0;
    loop {
        at += if unit == wire::PAGES {
            decode_runs(&words[at..], wire::PAGES, batch)
        } else {
            decode_runs(&words[at..], wire::LINES, batch)
        };
        let Some(&word) = words.get(at).filter(|word| is_event(**word)) else { return at };
        let count = word >> wire::PAYLOAD_SHIFT;
        let Some(payload) = words.get(at + 1..at + 1 + count as usize) else { return at };
        let code = (word >> wire::NUMBER_SHIFT) & ((1 << (wire::PAYLOAD_SHIFT - wire::NUMBER_SHIFT)) - 1);
        event(code, payload, names, batch, heard);
        at += 1 + payload.len();
    }
}

fn is_event(word: u64) -> bool {
    word & (wire::VALID | KIND) == wire::VALID | wire::EVENT
}

/// Decodes the runs with which the words begin; returns their number. Compiled for each unit.
#[inline(always)]
fn decode_runs(words: &[u64], unit: Unit, batch: &mut Batch) -> usize {
    let runs = words.iter().take_while(|word| is_run(**word, unit)).count();
    batch.runs.extend(words[..runs].iter().map(|word| run(*word, unit)));
    runs
}

/// Whether a word is that of a run with accesses.
#[inline(always)]
fn is_run(word: u64, unit: Unit) -> bool {
    (word & wire::VALID != 0) & (word & KIND != wire::EVENT) & (word >> unit.count_shift != 0)
}

/// The run in a word, without branches that nobody could predict.
#[inline(always)]
fn run(word: u64, unit: Unit) -> Run {
    const { assert!(wire::READ == Access::Read as u64 && wire::WRITE == Access::Write as u64) };
    const { assert!(wire::EXECUTE == Access::Execute as u64 && wire::STRADDLE == 4) };
    let count = (word >> unit.count_shift) as u32;
    // Half an instruction does not count as one, and data accesses count none.
    let execute = (word >> 1 & 1) as u32;
    let instructions = (count - (word >> 2 & 1) as u32) & execute.wrapping_neg();
    Run::tagged(line(word, unit) << 2 | word & KIND, count, instructions)
}

/// The number of the line, or of the page's first, in a word of a run. Addresses have 48 bits;
/// those of the upper half are the kernel's.
#[inline(always)]
fn line(word: u64, unit: Unit) -> u64 {
    let upper = 64 - unit.count_shift;
    let number = ((word << upper) as i64) >> (upper + wire::NUMBER_SHIFT);
    (number as u64) << unit.shift >> TRACE_LINE_SHIFT
}

fn event(what: u64, payload: &[u64], names: &mut Names, batch: &mut Batch, heard: &mut Vec<Word>) {
    let words = |place: usize| payload.get(2 * place..2 * place + 2).map_or([0, 0], |words| [words[0], words[1]]);
    let [start, pages] = words(0);
    let event = match what {
        code::MAP => {
            let ([flags, device], [inode, length], [offset, _]) = (words(1), words(2), words(3));
            let backing = if flags & wire::FILE != 0 {
                Backing::File { file: names.file((device, inode)), file_pages: length.div_ceil(4096), offset }
            } else {
                Backing::Anonymous
            };
            let growth = match flags & (wire::GROWS_UP | wire::GROWS_DOWN) {
                wire::GROWS_UP => Growth::Up,
                wire::GROWS_DOWN => Growth::Down,
                _ => Growth::Fixed,
            };
            let protection = Protection::from_bits(flags as u8);
            Event::Map { start, pages, protection, shared: flags & wire::SHARED != 0, backing, growth }
        }
        code::UNMAP => Event::Unmap { start, pages },
        code::PROTECT => Event::Protect { start, pages, protection: Protection::from_bits(words(1)[0] as u8) },
        code::DISCARD => Event::Discard { start, pages },
        code::ADVISE => match Hint::from_number(words(1)[0]) {
            Some(hint) => Event::Advise { start, pages, hint },
            None => return,
        },
        code::CALL => match wire::PATHS.get(start as usize) {
            Some(path) => Event::Call { path: (*path).into(), at: pages, bytes: words(1)[0] },
            None => return,
        },
        code::GROW => Event::Grow { start, pages },
        code::REMAP => {
            let [to, to_pages] = words(1);
            Event::Remap { from: start, from_pages: pages, to, to_pages }
        }
        code::FORK => {
            heard.push(Word::Forked(start));
            Event::Fork { child: names.add_process(start) }
        }
        code::EXEC => {
            heard.push(Word::Executed);
            Event::Exec
        }
        code::EXIT => {
            heard.push(Word::Exited);
            Event::Exit
        }
        code::SKIPPED => Event::Skipped { references: start, instructions: pages },
        code::PHASE => match Phase::of(start) {
            Some(phase) => Event::Phase { phase, period: Some(pages).filter(|period| *period > 0) },
            None => return,
        },
        // Whole milliseconds, so that a program that sleeps alone is recorded alike each time.
        code::SLEPT => match names.idle(start, pages) {
            0 => return,
            milliseconds => Event::Idle { microseconds: milliseconds * 1000 },
        },
        code::NOTE => {
            let bytes: Vec<u8> =
                payload.iter().skip(2).flat_map(|word| word.to_ne_bytes()).take(start as usize).collect();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            heard.push(Word::Note(text.clone()));
            Event::Note(text)
        }
        code::RECONNECT => return heard.push(Word::Reconnects),
        _ => return,
    };
    batch.event(event);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(page: u64, bits: u64, count: u64) -> u64 {
        wire::PAGES.run(page << 12, bits) | count << wire::PAGES.count_shift
    }

    #[test]
    fn runs_and_events_come_out_in_order() {
        let words = [
            run(5, wire::EXECUTE | wire::STRADDLE, 3),
            run((1 << 52) - 1, wire::WRITE, (1 << 24) - 1),
            wire::event(code::UNMAP, 2),
            7,
            2,
            run(8, wire::READ, 1),
            0,
            run(9, wire::READ, 1),
        ];
        let (mut batch, mut heard) = (Batch::default(), Vec::new());
        assert_eq!(decode(&words, wire::PAGES, &mut Names::default(), &mut batch, &mut heard), 6);
        let runs = [
            Run::new(5, Access::Execute, 3, 2),
            Run::new((1 << 52) - 1, Access::Write, (1 << 24) - 1, 0),
            Run::new(8, Access::Read, 1, 0),
        ];
        assert_eq!(batch.runs, runs);
        assert_eq!(batch.events, [(2, Event::Unmap { start: 7, pages: 2 })]);
    }

    #[test]
    fn runs_of_lines_have_the_whole_address_without_its_six_low_bits() {
        let top = (1 << 18) - 1;
        let addresses = [0x1040, 0xffff_ffff_ff80, 0x7fff_0000_003f];
        let words = addresses.map(|address| wire::LINES.run(address, wire::WRITE) | top << wire::LINES.count_shift);
        let mut batch = Batch::default();
        assert_eq!(decode(&words, wire::LINES, &mut Names::default(), &mut batch, &mut Vec::new()), 3);
        let lines = [0x41, (1 << 58) - 2, 0x7fff_0000_0000 >> 6];
        assert_eq!(batch.runs, lines.map(|line| Run::on_line(line, Access::Write, top as u32, 0)));
        assert_eq!(batch.runs[0].page(), 1);
    }

    #[test]
    fn a_run_of_no_accesses_is_not_understood() {
        let mut batch = Batch::default();
        let words = [run(5, wire::READ, 2), run(6, wire::READ, 0)];
        assert_eq!(decode(&words, wire::PAGES, &mut Names::default(), &mut batch, &mut Vec::new()), 1);
        assert_eq!(batch.runs.len(), 1);
    }

    #[test]
    fn half_an_event_is_not_understood() {
        let words = [wire::event(code::REMAP, 4), 1, 2];
        let (mut batch, mut heard) = (Batch::default(), Vec::new());
        assert_eq!(decode(&words, wire::PAGES, &mut Names::default(), &mut batch, &mut heard), 0);
        assert!(batch.events.is_empty());
    }

    #[test]
    fn who_sleeps_at_once_is_idle_once() {
        let (mut names, mut batch) = (Names::default(), Batch::default());
        // From 100 to 400; from 300 to 500 and from 350 to 450, of another; from 600 to 700.
        for (slept, ended) in [(300, 400), (200, 500), (100, 450), (100, 700)] {
            let words = [wire::event(code::SLEPT, 2), slept, ended];
            assert_eq!(decode(&words, wire::PAGES, &mut names, &mut batch, &mut Vec::new()), 3);
        }
        let idle = |milliseconds: u64| (0, Event::Idle { microseconds: milliseconds * 1000 });
        assert_eq!(batch.events, [idle(300), idle(100), idle(100)]);
    }

    #[test]
    fn one_file_has_one_number() {
        let mut names = Names::default();
        let numbers = [(1, 1), (1, 2), (1, 1)].map(|file| names.file(file));
        assert_eq!(numbers, [0, 1, 0]);
    }
}
