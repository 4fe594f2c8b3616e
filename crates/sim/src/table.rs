//! Rows as tables for people.

use crate::columns::fields;
use crate::notes::notes;
use crate::{Certainty, Digest, Files, KernelCounts, Row, approximate};
use serde_json::{Map, Value};
use superpage_pages::PageSize;
use superpage_report::{Column, InSample, Key, Keys, Screen, Table, bytes, count, time};

/// For each workload a line that names it, for each machine a line with the conditions, a table of
/// its policies, and below it what a reader must know; after several workloads, a summary for each
/// machine.
pub(crate) fn table(rows: &[Row], screen: Screen) -> String {
    let mut out = String::new();
    let groups: Vec<&[Row]> = rows.chunk_by(|a, b| a.workload == b.workload).collect();
    for group in &groups {
        out += &screen.paragraph(&program(group));
        for (index, rows) in group.chunk_by(|a, b| a.machine == b.machine).enumerate() {
            out += if index > 0 { "\n" } else { "" };
            out += &screen.paragraph(&conditions(rows));
            out += &screen.table(&policies(rows, screen));
        }
        for note in notes(group, part_of(&group[0], rows).is_some()) {
            out += &screen.note(&note);
        }
        out.push('\n');
    }
    if groups.len() > 1 {
        out += &summary(rows, screen);
    }
    if !rows.is_empty() {
        let mut certainty = Certainty::default();
        rows.iter().for_each(|row| certainty.see(row));
        let kind = match certainty.bound() {
            _ if is_modelled(rows) => "Times are modelled.".into(),
            bound if bound.is_empty() => "Times are modelled: speedup is the time of base over that of the row.".into(),
            bound => bound,
        };
        let more = match is_modelled(rows) {
            _ if screen.is_wide() => "",
            false => " --wide shows the times, what they assume, and more counts; --format json has all.",
            true => " --wide shows speedups, what is assumed, and more counts; --format json has all.",
        };
        out += &screen.paragraph(&format!("{kind}{more}"));
    }
    for machine in machines(rows).into_iter().filter(|_| screen.is_wide()) {
        if let Some(row) = rows.iter().find(|row| row.machine == machine && !row.assumed.is_empty()) {
            let (number, which) = (row.assumed.len(), shorten(&row.assumed));
            out += &format!(
                "{machine}: its modelled times depend on {number} values that nobody has published, assumed in its machine \
                 file{}: {which}; --format json has each\n",
                if row.kernel.is_some() { " and in its kernel's" } else { "" }
            );
        }
    }
    out
}

/// What ran, of the rows of one workload.
pub(crate) fn program(group: &[Row]) -> String {
    let first = &group[0];
    format!(
        "{}: {} references, {} instructions{}{}",
        first.workload,
        count(first.references),
        count(first.instructions),
        approximate::interleaved(first),
        if group.iter().all(|row| row.complete) { "" } else { ", not to its end" }
    )
}

/// What all rows of a machine have in common.
pub(crate) fn conditions(rows: &[Row]) -> String {
    let first = &rows[0];
    let mut parts =
        vec![format!("{} of memory", bytes(first.memory_bytes)), format!("{} of swap", bytes(first.swap_bytes))];
    parts.push(if first.files == Files::Warm { "warm files" } else { "cold files" }.into());
    if first.hash == Digest::Sha1 {
        parts.push("SHA-1 digests".into());
    }
    if let Some(touched) = touched_by_all(rows) {
        parts.push(format!("{} touched", bytes(touched)));
    }
    if !first.fragmented.is_empty() {
        let share = |(size, share): &(PageSize, f64)| format!("{} of {size}", percent(100.0 * share));
        let shares: Vec<String> = first.fragmented.iter().map(share).collect();
        let (immovable, shares) = (bytes(first.immovable_bytes), shares.join(", "));
        parts.push(match first.movable_bytes {
            0 if first.fragment > 0.0 => {
                format!("immovable pages ({immovable}, seed {}) in {shares} extents", first.seed)
            }
            movable => format!(
                "memory {} (immovable {immovable}, movable {}, seed {}), pages in {shares} extents",
                first.memory_state,
                bytes(movable),
                first.seed
            ),
        });
    }
    format!("{}: {}", first.machine, parts.join(", "))
}

/// The most characters of a workload in a summary.
const LABEL: usize = 32;

/// How much was touched, if it is the same for all rows: always, unless one of them ended early.
fn touched_by_all(rows: &[Row]) -> Option<u64> {
    let touched = rows[0].peak_touched_bytes;
    rows.iter().all(|row| row.peak_touched_bytes == touched).then_some(touched)
}

/// Whether there are models of kernels, which are compared by time.
fn is_modelled(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.kernel.is_some())
}

/// One line per policy.
fn policies(rows: &[Row], screen: Screen) -> Table {
    let mut columns: Vec<(Column, Vec<String>)> = Vec::new();
    let add = |columns: &mut Vec<_>, column: Column, cell: &dyn Fn(&Row) -> String| {
        columns.push((column, rows.iter().map(cell).collect()));
    };
    // The names of kernels are long.
    let modelled = is_modelled(rows);
    let policy = if modelled { Column::name("policy") } else { Column::prose("policy") };
    let unless_modelled = |column: Column| if modelled { column.only_wide() } else { column };
    let if_modelled = |column: Column| if modelled { column } else { column.only_wide() };
    add(&mut columns, policy, &|row| row.policy.clone());
    let hosted = rows.iter().any(|row| row.host_policy.is_some());
    if hosted {
        add(&mut columns, Column::prose("host"), &|row| row.host_policy.clone().unwrap_or("-".into()));
    }
    if modelled {
        add(&mut columns, Column::name("kernel"), &|row| row.kernel.clone().unwrap_or("-".into()));
    }
    add(&mut columns, Column::number("TLB misses"), &approximate::misses);
    add(&mut columns, unless_modelled(Column::number("MPKI")), &approximate::mpki);
    add(&mut columns, unless_modelled(Column::number("fewer")), &approximate::fewer);
    add(&mut columns, Column::number("walk refs").only_wide(), &approximate::walk_references);
    add(&mut columns, if_modelled(Column::number("time")), &approximate::seconds);
    add(&mut columns, unless_modelled(Column::number("speedup")), &approximate::speedup);
    if rows.iter().any(|row| row.cores > 1) {
        add(&mut columns, Column::number("elapsed"), &approximate::elapsed);
    }
    if touched_by_all(rows).is_none() {
        add(&mut columns, Column::number("touched"), &|row| bytes(row.peak_touched_bytes));
    }
    // One row at a time: a series is long.
    let values: Vec<Vec<Value>> = rows.iter().map(|row| declared(Row::KEYS, &fields(row))).collect();
    for (at, key) in columns_of(Row::KEYS).into_iter().enumerate() {
        let values = values.iter().map(|values| &values[at]);
        // What is 0 or nothing in all rows has no column.
        if values.clone().all(|value| value.as_f64().is_none_or(|value| value == 0.0)) {
            continue;
        }
        let column = Column::number(key.column);
        // Where kernels are compared by time, that of the disk is a part of it.
        let column = if key.wide || modelled && key.unit != "s" { column.only_wide() } else { column };
        columns.push((column, rows.iter().zip(values).map(|(row, value)| text_of(key, row, value)).collect()));
    }
    if rows.iter().any(|row| row.kernel_counts.is_some()) {
        add(&mut columns, Column::number("its TLB share"), &|row| {
            of_kernel(row, |kernel| (kernel.kernel_entries, kernel.tlb_entries))
        });
    }
    if rows.iter().any(|row| row.kernel_counts.as_ref().is_some_and(|kernel| kernel.handled > 0)) {
        add(&mut columns, Column::number("found in table"), &|row| {
            of_kernel(row, |kernel| (kernel.found, kernel.searches))
        });
        add(&mut columns, Column::number("evicts"), &|row| of_kernel(row, |kernel| (kernel.evicts, kernel.reloads)));
    }
    let by_size = if screen.is_wide() { pages } else { most_pages };
    add(&mut columns, Column::name("pages"), &|row| approximate::known(row, by_size(&row.pages)));
    if hosted {
        add(&mut columns, Column::name("host pages"), &|row| approximate::known(row, by_size(&row.host_pages)));
    }
    let mut table = Table::new(columns.iter().map(|(column, _)| column.clone()));
    (0..rows.len()).for_each(|row| table.row(columns.iter().map(|(_, cells)| cells[row].clone())));
    table
}

/// The keys that declare a column, nested ones too.
fn columns_of(keys: &'static [Key]) -> Vec<&'static Key> {
    let own = |key: &'static Key| Some(key).filter(|key| !key.column.is_empty());
    keys.iter().flat_map(|key| own(key).into_iter().chain(columns_of(key.keys))).collect()
}

/// Their values in a row, in the same order.
fn declared(keys: &'static [Key], row: &Map<String, Value>) -> Vec<Value> {
    let mut values = Vec::new();
    for key in keys {
        let value = row.get(key.name).unwrap_or(&Value::Null);
        if !key.column.is_empty() {
            values.push(value.clone());
        }
        values.extend(declared(key.keys, value.as_object().unwrap_or(&Map::new())));
    }
    values
}

/// The value of a key in a row, as people read it.
fn text_of(key: &Key, row: &Row, value: &Value) -> String {
    let Some(number) = value.as_f64() else { return "-".into() };
    let whole = value.as_u64().unwrap_or(0);
    let text = match key.unit {
        "bytes" => bytes(whole),
        "cycles" => cycles(row, whole),
        "s" => time(number),
        "%" => percent(number),
        _ if value.is_u64() => count(whole),
        _ => number.to_string(),
    };
    if key.sample == InSample::Exact { approximate::known(row, text) } else { text }
}

/// Cycles of the machine of a row, as time.
fn cycles(row: &Row, cycles: u64) -> String {
    time(cycles as f64 * row.seconds / row.cycles.max(1) as f64)
}

/// A share of what a kernel with a model has done.
fn of_kernel(row: &Row, of: fn(&KernelCounts) -> (u64, u64)) -> String {
    let (part, all) = row.kernel_counts.as_ref().map_or((0, 0), of);
    share((all > 0).then(|| 100.0 * part as f64 / all as f64))
}

/// A share in percent, if there is one.
fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), percent)
}

/// A share in percent, without digits that are 0.
pub(crate) fn percent(percent: f64) -> String {
    let text = format!("{percent:.2}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "0" if percent > 0.0 => "under 0.01 %".into(),
        places => format!("{places} %"),
    }
}

/// The machines of the rows, in their order.
pub(crate) fn machines(rows: &[Row]) -> Vec<&str> {
    let mut machines: Vec<&str> = Vec::new();
    for row in rows {
        if !machines.contains(&row.machine.as_str()) {
            machines.push(&row.machine);
        }
    }
    machines
}

/// For each machine, the speedup over `base`, the share of its misses that is saved and the memory
/// that this takes, or the times of kernels that have models: one line per workload, one column per
/// policy and kernel.
fn summary(rows: &[Row], screen: Screen) -> String {
    let mut out = String::new();
    let modelled = is_modelled(rows);
    let label = |row: &Row| match &row.kernel {
        Some(kernel) => format!("{} {kernel}", row.policies()),
        None => row.policies(),
    };
    let all = rows;
    for machine in machines(all) {
        let rows: Vec<&Row> = all.iter().filter(|row| row.machine == machine).collect();
        let per_workload: Vec<&[&Row]> = rows.chunk_by(|a, b| a.workload == b.workload).collect();
        let shown = |row: &&&Row| modelled || !row.is_base();
        let labels: Vec<String> = per_workload[0].iter().filter(shown).map(|row| label(row)).collect();
        if labels.is_empty() {
            continue;
        }
        let what = if modelled { "time" } else { "speedup over base, fewer TLB misses, and more memory" };
        out += &screen.paragraph(&format!("{machine}: {what}"));
        let others = labels.iter().map(Column::number);
        let mut table = Table::new(std::iter::once(Column::name("workload")).chain(others));
        let cells = per_workload.iter().map(|group| {
            let name = short(&group[0].workload);
            let name = match part_of(group[0], all) {
                // Parts differ at their ends.
                Some(part) => format!("{}…/{part}", name.chars().take(20).collect::<String>()),
                None => name,
            };
            let base = group.iter().find(|row| row.is_base());
            let cell = |wanted: &String| match group.iter().find(|row| label(row) == *wanted) {
                Some(row) if modelled => approximate::seconds(row),
                Some(row) => {
                    let memory = base.map_or("-".into(), |base| approximate::more_memory(row, base));
                    format!("{} {:>9} {memory:>7}", approximate::speedup(row), approximate::fewer(row))
                }
                None => "-".into(),
            };
            std::iter::once(name).chain(labels.iter().map(cell)).collect::<Vec<_>>()
        });
        cells.for_each(|cells| table.row(cells));
        out += &screen.table_in_parts(&table);
        out.push('\n');
    }
    out
}

/// The first words of a command line or workload, without the folder of its program.
pub(crate) fn short(workload: &str) -> String {
    let (program, rest) = workload.split_at(workload.find([' ', ':']).unwrap_or(workload.len()));
    let program = program.rsplit('/').next().unwrap_or(program);
    let whole = format!("{program}{rest}");
    let cut = whole.char_indices().nth(LABEL).map(|(at, _)| &whole[..at]);
    let Some(cut) = cut else { return whole };
    format!("{} …", cut.rfind(' ').map_or(cut, |space| &cut[..space]))
}

/// The name of the part of a stream that a row belongs to, if the row of the whole stream is in
/// `rows`.
pub(crate) fn part_of<'a>(row: &'a Row, rows: &[Row]) -> Option<&'a str> {
    rows.iter().find_map(|whole| row.workload.strip_prefix(&whole.workload)?.strip_prefix('/'))
}

/// Assumed values by the table of the machine file that they are in: `costs (13),
/// memory.latency-cycles`.
fn shorten(assumed: &[String]) -> String {
    let keys: Vec<&str> = assumed.iter().map(|value| value.split(" = ").next().unwrap_or(value)).collect();
    let table = |key: &str| key.split('.').next().unwrap_or(key).to_string();
    let tables = keys.chunk_by(|a, b| table(a) == table(b)).map(|keys| match keys {
        [key] => (*key).to_string(),
        several => format!("{} ({})", table(several[0]), several.len()),
    });
    tables.collect::<Vec<_>>().join(", ")
}

fn pages(pages: &[(PageSize, u64)]) -> String {
    let shown: Vec<String> =
        pages.iter().filter(|(_, n)| *n > 0).map(|(size, n)| format!("{} x {size}", count(*n))).collect();
    if shown.is_empty() { "-".into() } else { shown.join(", ") }
}

/// The two sizes with the most memory mapped, in a short form: `1498x4K 1x2M`, with dots for what
/// is left out.
fn most_pages(pages: &[(PageSize, u64)]) -> String {
    let mut shown: Vec<&(PageSize, u64)> = pages.iter().filter(|(_, n)| *n > 0).collect();
    let all = shown.len();
    shown.sort_by_key(|(size, n)| std::cmp::Reverse(size.bytes() * n));
    shown.truncate(2);
    shown.sort();
    let mut words: Vec<String> =
        shown.iter().map(|(size, n)| format!("{}x{size}", count(*n).replace(' ', ""))).collect();
    if all > words.len() {
        words.push("…".into());
    }
    if words.is_empty() { "-".into() } else { words.join(" ") }
}
