//! Huge pages by a plan in a file, as in CBMM (Mansi, Tabatabai and Swift, USENIX ATC 2022; its
//! artifact and `mm/estimator.c`): where a line `huge,heap|mmap,VALUE,addr,>,LO,addr,<,HI` says
//! that a huge page saves more than `cost`, faults take one, and what is populated there already is
//! promoted, once in an `interval`; elsewhere there are base pages. A line without addresses is
//! about all of them, as in CBMM's `general.csv`. `cost` is that of CBMM's code, 100 us of zeroing
//! at 2 GHz.
//!
//! CBMM's profiles give no addresses or both, and end each line. So a line with one address, or
//! without its end, was cut, and is refused: it would name more memory than was meant. An open
//! range is written with 0x0, or with 2^56, the end of all user memory (HI of CBMM's own profiles
//! is above 2^47 at times).
//!
//! `superpage advise` writes lines with the addresses of a recording, and after a line `# native`
//! those that the program has without a recorder. A live system reads only the latter, which hold
//! whatever they save; simulations read only the former. Other lines that begin with `#` are
//! comments.
//!
//! Assumed: VALUE is for each huge page, in cycles; the promotion of what is populated, and its
//! interval.
//!
//! Not modelled: `eager` lines, memory that is populated when it is mapped, which are skipped;
//! whether memory is a heap or was mapped; other costs, as where no huge page is free or one is
//! zeroed already. The plan is for all processes.

use super::promote::{MS, huge, parameter as own};
use super::thp;
use crate::{
    Answers, Background, Candidate, Definition, Event, Given, How, Made, Need, Place, Placing, Policy, Prefer, Reserve,
    SpaceId, System, Time, Values, Wants,
};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use superpage_pages::{Level, PageRange, Vpn};

pub(super) static POLICY: Definition = Definition {
    name: "plan",
    paper: "CBMM: Mansi et al., USENIX ATC 2022; its artifact",
    help: "CBMM: huge pages where a file says that they pay, and base pages elsewhere",
    parameters: &[
        own("file", Values::Path, "", "lines such as huge,mmap,300000,addr,>,0x400000,addr,<,0x800000"),
        own("cost", Values::Count(0, 1 << 62), "200000", "that a value in the file must exceed"),
        own("interval", Values::TimeFrom(MS), "1s", "between two looks for base pages where huge ones pay"),
    ],
    needs: &[Need::Copying],
    make: |given| {
        let answers = Answers { place: Placing { frames: Place::BasePage, ..thp::ANSWERS.place }, ..thp::ANSWERS };
        let text = given.contents("file").unwrap_or("");
        if given.text("file").is_none() && is_live(given) {
            return Made::failed("it needs a file, as in plan:file=FILE, which superpage advise -o FILE writes");
        }
        if text.is_empty() && given.text("file").is_some() {
            return Made::failed(format!("its file is empty, or {} reads none", given.target().name));
        }
        let interval = given.time("interval").as_nanos() as Time;
        match ranges(given) {
            Ok(ranges) if ranges.is_empty() && is_live(given) && text.lines().any(is_native) => {
                let name = given.text("file").unwrap_or_default();
                Made::failed(format!("{name}: no region of it has an address of a live program"))
            }
            Ok(ranges) => Made::with(answers, Plan { ranges, interval, scan: 0, mapped: Vec::new() }),
            Err((line, why)) => Made::failed(format!("{}, line {line}: {why}", given.text("file").unwrap_or_default())),
        }
    },
};

/// The ranges of addresses of a policy `plan`, ascending and apart; none of another policy.
pub fn planned(policy: &Policy) -> Vec<Range<u64>> {
    if policy.definition().name == POLICY.name { ranges(policy.given()).unwrap_or_default() } else { Vec::new() }
}

/// Whether the addresses are those of live programs.
fn is_live(given: &Given) -> bool {
    given.target().has.contains(&Need::Settings)
}

/// Whether the lines that follow have addresses of live programs.
fn is_native(line: &str) -> bool {
    line.trim() == "# native"
}

/// The ranges of addresses where huge pages pay, ascending and apart; or the number of a line, and
/// what is wrong there.
fn ranges(given: &Given) -> Result<Vec<Range<u64>>, (usize, &'static str)> {
    let text = given.contents("file").unwrap_or("");
    if !text.is_empty() && !text.ends_with('\n') {
        let why =
            "the file ends within this line, so it may be cut short: write it again, or end the line if it is whole";
        return Err((text.lines().count(), why));
    }
    let native = text.lines().position(is_native);
    let (from, to, cost) = match (native, is_live(given)) {
        (Some(native), true) => (native, usize::MAX, None),
        (native, _) => (0, native.unwrap_or(usize::MAX), given.number("cost")),
    };
    let lines = text.lines().enumerate().take(to).skip(from);
    let lines = lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    let end = if is_live(given) { END } else { u64::MAX };
    let read: Result<Vec<_>, _> =
        lines.map(|(index, text)| line(text, cost, end).map_err(|why| (index + 1, why))).collect();
    let mut ranges: Vec<Range<u64>> = read?.into_iter().flatten().collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        last.end = if joins { last.end.max(next.end) } else { last.end };
        joins
    });
    Ok(ranges)
}

/// The end of a live program's memory: 2^56, of page tables with five levels. Traces may have
/// addresses of a kernel.
const END: u64 = 1 << 56;

/// The range of a line, `None` if huge pages do not pay there; or what is wrong with it. Addresses
/// go up to `end`.
fn line(text: &str, cost: Option<u64>, end: u64) -> Result<Option<Range<u64>>, &'static str> {
    const FORM: &str =
        "expected huge|eager,heap|mmap,VALUE,addr,>,LO,addr,<,HI; without the addresses it is about all memory";
    let number = |text: &str| {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| FORM)
    };
    let fields: Vec<&str> = text.trim().split(',').collect();
    let [kind @ ("huge" | "eager"), "heap" | "mmap", value, limits @ ..] = &fields[..] else { return Err(FORM) };
    let value = number(value)?;
    let (from, to) = match limits {
        [] => (0, u64::MAX),
        ["addr", ">", from, "addr", "<", to] | ["addr", "<", to, "addr", ">", from] => (number(from)?, number(to)?),
        ["addr", ">", _] => {
            return Err(
                "expected an upper address as well, addr,<,HI: 0x100000000000000 is the end of all user memory",
            );
        }
        ["addr", "<", _] => return Err("expected a lower address as well, addr,>,LO: 0x0 is the start of all memory"),
        _ => return Err(FORM),
    };
    if *kind == "eager" {
        return Ok(None);
    }
    if from >= to {
        return Err("expected LO below HI in addr,>,LO,addr,<,HI: correct the addresses, or remove the line");
    }
    if to > end && !limits.is_empty() {
        return Err("expected user memory, which ends at 0x100000000000000: correct the addresses, or remove the line");
    }
    Ok(cost.is_none_or(|cost| value > cost).then_some(from..to))
}

#[derive(Debug)]
struct Plan {
    /// Of addresses.
    ranges: Vec<Range<u64>>,
    interval: Time,
    scan: Time,
    /// What was mapped since the last call, which comes at once: faults there do not know the plan.
    mapped: Vec<(SpaceId, PageRange)>,
}

impl Background for Plan {
    fn next(&self) -> Option<Time> {
        Some(if self.mapped.is_empty() { self.scan } else { 0 })
    }

    fn wants(&self) -> Wants {
        Wants { mapped: true, ..Wants::default() }
    }

    fn notify(&mut self, event: Event) {
        if let Event::Mapped { space, range } = event {
            self.mapped.push((space, range));
        }
    }

    fn tick(&mut self, now: Time, system: &mut dyn System) {
        let (level, bytes) = (huge(system.ladder()), system.ladder().base().bytes());
        let prefer = Prefer { place: Some(Place::Extent), size: Some(Reserve::Huge), ..Prefer::default() };
        for (space, PageRange { start, pages }) in core::mem::take(&mut self.mapped) {
            let end = start.0 + pages;
            let first = self.ranges.partition_point(|range| range.end / bytes <= start.0);
            for range in self.ranges[first..].iter().take_while(|range| range.start / bytes < end) {
                let (from, to) = (start.0.max(range.start / bytes), end.min(range.end / bytes));
                system.prefer(space, Some(Vpn(from).pages(to.saturating_sub(from))), prefer);
            }
        }
        if now < self.scan {
            return;
        }
        self.scan = now.saturating_add(self.interval);
        if level == Level::BASE {
            return;
        }
        let size = system.ladder().size(level).bytes();
        for space in system.spaces() {
            let mut planned = Vec::new();
            system.scan(space, level, &mut |sample| {
                let start = sample.region * size;
                let range = self.ranges.partition_point(|range| range.end < start + size);
                let inside = self.ranges.get(range).is_some_and(|range| range.start <= start);
                planned.extend((inside && !sample.superpage).then(|| Candidate::from(sample)));
            });
            system.promote(space, level, &planned, How::Either);
        }
    }
}
