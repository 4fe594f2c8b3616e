//! The columns for a mapping, in order.

use std::collections::BTreeSet;
use superpage_linux::why::Reason;
use superpage_live::inspect::{Mapping, Process, Service};
use superpage_pages::PageSize;
use superpage_report::{Table, bytes, count, foreign};

/// A column of the table of mappings.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) content: Content,
    pub(super) cell: Box<dyn Fn(&Mapping) -> Cell>,
}

/// The kind of text in a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Flush right.
    Number,
    /// Flush left.
    Prose,
}

/// The contents of a cell, and its sort key: the number, then the text.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: f64,
}

fn size(amount: u64) -> Cell {
    Cell { text: if amount == 0 { "-".into() } else { bytes(amount) }, number: amount as f64 }
}

fn share(share: Option<f64>) -> Cell {
    let text = share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
    Cell { text, number: share.unwrap_or(-1.0) }
}

fn words(text: String) -> Cell {
    Cell { text, number: 0.0 }
}

/// The columns for these mappings; for folios, the sizes that occur. If not `wide`, those that
/// answer the verb's question.
pub(super) fn columns(mappings: &[Mapping], wide: bool) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name: &str, content: Content, cell: Box<dyn Fn(&Mapping) -> Cell>| {
        columns.push(Column { name: name.into(), content, cell });
    };
    use Content::{Number, Prose};
    add("address", Number, Box::new(|m| Cell { text: format!("{:x}", m.start), number: m.start as f64 }));
    if wide {
        add("size", Number, Box::new(|m| size(m.size_bytes)));
    }
    add("resident", Number, Box::new(|m| size(m.resident_bytes)));
    if wide {
        add("populated", Number, Box::new(|m| share(Some(m.populated_share))));
    }
    if mappings.iter().any(|mapping| mapping.swapped_bytes > 0) {
        add("swapped", Number, Box::new(|m| size(m.swapped_bytes)));
    }
    if !wide {
        let huge = |m: &Mapping| (m.resident_bytes > 0).then(|| m.huge_bytes as f64 / m.resident_bytes as f64);
        add("huge", Number, Box::new(move |m| share(huge(m))));
        // Names of files come short here; the wide table has them whole.
        add("mapping", Prose, Box::new(|m| named(m, m.name.rsplit('/').next().unwrap_or_default())));
        add("why not huge", Prose, Box::new(|m| words(why(&m.reasons, false))));
        return columns;
    }
    let sizes: BTreeSet<PageSize> =
        mappings.iter().flat_map(|m| &m.folio_bytes).flat_map(|f| f.keys()).copied().collect();
    for folio in sizes {
        let bytes =
            move |m: &Mapping| m.folio_bytes.as_ref().and_then(|folios| folios.get(&folio)).copied().unwrap_or(0);
        add(&format!("folio {folio}"), Number, Box::new(move |m| size(bytes(m))));
    }
    add("huge", Number, Box::new(|m| size(m.huge_bytes)));
    add("full", Number, Box::new(|m| size(m.full_bytes)));
    if mappings.iter().any(|mapping| mapping.resident_bytes > 0 && mapping.contiguous_bytes.is_some()) {
        for group in ["16K", "32K", "64K", "2M"] {
            let group: PageSize = group.parse().expect("a size");
            add(&format!("tlb {group}"), Number, Box::new(move |m| share(m.contiguous_share(group))));
        }
    }
    add("mapping", Prose, Box::new(|m| named(m, &m.name)));
    add("why not huge", Prose, Box::new(|m| words(why(&m.reasons, true))));
    columns
}

fn named(mapping: &Mapping, name: &str) -> Cell {
    words(format!("{} {name}", mapping.permissions).trim_end().into())
}

/// The reasons with most bytes: two with their bytes if `wide`, otherwise one.
pub(in crate::live) fn why(reasons: &[Reason], wide: bool) -> String {
    let phrase = |reason: &Reason| format!("{} ({})", reason.text, bytes(reason.bytes));
    match reasons {
        [] => String::new(),
        [reason] => reason.text.clone(),
        [most, _, ..] if !wide => format!("{}; ...", phrase(most)),
        [most, next, rest @ ..] => {
            let more = if rest.is_empty() { "" } else { "; ..." };
            format!("{}; {}{more}", phrase(most), phrase(next))
        }
    }
}

/// The mappings as a table.
pub(super) fn table(process: &Process, wide: bool) -> Table {
    let columns = columns(&process.mappings, wide);
    let mut table = Table::new(columns.iter().map(|column| match column.content {
        Content::Number => superpage_report::Column::number(&column.name),
        Content::Prose => superpage_report::Column::prose(&column.name),
    }));
    shown(process).for_each(|mapping| table.row(columns.iter().map(|column| (column.cell)(mapping).text)));
    table
}

/// What is not huge of the whole process, by reason: those with a hundredth of it, or all if
/// `wide`. `None` if all is huge.
pub(super) fn summary(process: &Process, wide: bool) -> Option<Table> {
    let shares = process.not_huge_by_reason();
    let all: u64 = process.mappings.iter().map(|mapping| mapping.resident_bytes).sum();
    let number = superpage_report::Column::number;
    let prose = superpage_report::Column::prose;
    let mut table = Table::new([number("not huge"), number("of all"), prose("because"), prose("what would help")]);
    let shown = shares.iter().filter(|share| share.bytes > 0 && (wide || 100 * share.bytes >= all));
    for share in shown {
        let part = format!("{:.1} %", 100.0 * share.bytes as f64 / all as f64);
        table.row([bytes(share.bytes), part, share.text.clone(), share.help.unwrap_or("-").to_string()]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// The processes of a service, the largest first: those with a hundredth of its memory, or all if
/// `wide`; and how many are left out.
pub(super) fn processes(processes: &[Process], wide: bool) -> (Table, usize) {
    let number = superpage_report::Column::number;
    let prose = superpage_report::Column::prose;
    let heads =
        [number("pid"), prose("name"), number("resident"), number("its share"), number("huge"), prose("why not huge")];
    let mut table = Table::new(heads);
    let sum = |process: &Process, field: fn(&Mapping) -> u64| process.mappings.iter().map(field).sum::<u64>();
    let part_of = |process: &Process| sum(process, |mapping| mapping.proportional_bytes);
    let all: u64 = processes.iter().map(part_of).sum();
    let mut shown: Vec<&Process> = processes.iter().filter(|process| wide || 100 * part_of(process) >= all).collect();
    shown.sort_by_key(|process| std::cmp::Reverse(part_of(process)));
    let left = processes.len() - shown.len();
    for process in shown {
        let (resident, huge) =
            (sum(process, |mapping| mapping.resident_bytes), sum(process, |mapping| mapping.huge_bytes));
        let part = (resident > 0).then(|| huge as f64 / resident as f64);
        let shares = process.not_huge_by_reason();
        table.row([
            process.pid.to_string(),
            process.command.clone(),
            bytes(resident),
            bytes(part_of(process)),
            share(part).text,
            shares.first().map_or(String::new(), |most| format!("{} ({})", most.text, bytes(most.bytes))),
        ]);
    }
    (table, left)
}

/// The line above the table.
pub(super) fn title(service: &Service, whole: &Process) -> String {
    match service.processes.as_slice() {
        [process] => of_process(process),
        processes => {
            let sum = |field: fn(&Mapping) -> u64| whole.mappings.iter().map(field).sum::<u64>();
            let (resident, huge) = (sum(|m| m.resident_bytes), sum(|m| m.huge_bytes));
            format!(
                "{}: {} processes, {} resident, {} of it ({:.1} %) in huge pages; what they share is counted once",
                foreign(&whole.command),
                processes.len(),
                bytes(resident),
                bytes(huge),
                100.0 * huge as f64 / resident.max(1) as f64,
            )
        }
    }
}

/// The line above the table of a process.
pub(super) fn of_process(process: &Process) -> String {
    let sum = |field: fn(&Mapping) -> u64| process.mappings.iter().map(field).sum::<u64>();
    let (resident, huge) = (sum(|m| m.resident_bytes), sum(|m| m.huge_bytes));
    let share = if resident == 0 { 0.0 } else { 100.0 * huge as f64 / resident as f64 };
    format!(
        "{} ({}): {} resident, {} of it ({share:.1} %) in huge pages",
        foreign(&process.command),
        process.pid,
        bytes(resident),
        bytes(huge)
    )
}

/// The mappings that a table shows: those with at least a hundredth of the resident memory.
pub(super) fn shown(process: &Process) -> impl Iterator<Item = &Mapping> {
    let all: u64 = process.mappings.iter().map(|mapping| mapping.resident_bytes).sum();
    process.mappings.iter().filter(move |mapping| mapping.resident_bytes > 0 && 100 * mapping.resident_bytes >= all)
}

/// The line below the table, about what it leaves out.
pub(super) fn note(process: &Process) -> Option<String> {
    let sum = |(number, bytes): (u64, u64), mapping: &Mapping| (number + 1, bytes + mapping.resident_bytes);
    let all = process.mappings.iter().fold((0, 0), sum);
    let shown = shown(process).fold((0, 0), sum);
    let (number, resident) = (all.0 - shown.0, all.1 - shown.1);
    let mappings = if number == 1 { "mapping" } else { "mappings" };
    (number > 0).then(|| format!("{} more {mappings} with {} resident", count(number), bytes(resident)))
}
