//! Rows as people and programs read them: a table, JSON, CSV, Parquet.

use crate::columns::{columns, fields, text};
use crate::{BackgroundOn, Certainty, Digest, Error, Files, KernelCounts, Row, approximate, parquet};
use serde_json::{Map, Value};
use std::io::Write;
use std::str::FromStr;
use superpage_pages::PageSize;
use superpage_report::{Column, InSample, Key, Keys, Screen, Table, bytes, count, foreign, time};

/// The format in which rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people: one table per workload.
    Table,
    /// One array of objects.
    Json,
    /// A header and one line per row; nested values as JSON text. What a terminal would obey is
    /// escaped.
    Csv,
    /// A Parquet file with one column per key; nested values as JSON text.
    Parquet,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format, Error> {
        match text {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            "parquet" => Ok(Format::Parquet),
            _ => Err(Error::Usage(format!("unknown format {text}: expected table, json, csv or parquet"))),
        }
    }
}

/// Writes `rows` to `out`; a table is formatted for `screen`.
///
/// # Errors
/// A write fails.
pub fn write(rows: &[Row], format: Format, screen: Screen, out: &mut (impl Write + Send)) -> Result<(), Error> {
    let failed = |problem: String| Error::Output { what: "the results".into(), problem };
    match format {
        Format::Table => out.write_all(table(rows, screen).as_bytes()).map_err(|e| failed(e.to_string()))?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, rows).map_err(|e| failed(e.to_string()))?;
            out.write_all(b"\n").map_err(|e| failed(e.to_string()))?;
        }
        Format::Csv => csv(rows, out).map_err(|e| failed(e.to_string()))?,
        Format::Parquet => {
            let bytes = parquet(&columns(rows)).map_err(failed)?;
            out.write_all(&bytes).map_err(|e| failed(e.to_string()))?;
        }
    }
    out.flush().map_err(|e| failed(e.to_string()))
}

fn csv(rows: &[Row], out: &mut impl Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(out);
    for (place, row) in rows.iter().enumerate() {
        let fields = fields(row);
        if place == 0 {
            writer.write_record(fields.keys())?;
        }
        writer.write_record(fields.values().map(|value| foreign(&text(value).unwrap_or_default()).into_owned()))?;
    }
    writer.flush()?;
    Ok(())
}

/// For each workload a line that names it, for each machine a line with the conditions, a table of
/// its policies, and below it what a reader must know; after several workloads, a summary for each
/// machine.
fn table(rows: &[Row], screen: Screen) -> String {
    let mut out = String::new();
    let groups: Vec<&[Row]> = rows.chunk_by(|a, b| a.workload == b.workload).collect();
    for group in &groups {
        let first = &group[0];
        out += &screen.paragraph(&format!(
            "{}: {} references, {} instructions{}{}",
            first.workload,
            count(first.references),
            count(first.instructions),
            approximate::interleaved(first),
            if group.iter().all(|row| row.complete) { "" } else { ", not to its end" }
        ));
        for (index, rows) in group.chunk_by(|a, b| a.machine == b.machine).enumerate() {
            out += if index > 0 { "\n" } else { "" };
            out += &screen.paragraph(&conditions(rows));
            out += &screen.table(&policies(rows, screen));
        }
        for note in notes(group, part_of(first, rows).is_some()) {
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
            false => " --wide shows the times, what they assume, and all counts.",
            true => " --wide shows speedups, what is assumed, and all counts.",
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

/// What all rows of a machine have in common.
fn conditions(rows: &[Row]) -> String {
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
    add(&mut columns, unless_modelled(Column::number("fewer")), &approximate::fewer);
    add(&mut columns, Column::number("walk refs").only_wide(), &approximate::walk_references);
    add(&mut columns, if_modelled(Column::number("time")), &approximate::seconds);
    add(&mut columns, unless_modelled(Column::number("speedup")), &approximate::speedup);
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
fn percent(percent: f64) -> String {
    let text = format!("{percent:.2}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "0" if percent > 0.0 => "under 0.01 %".into(),
        places => format!("{places} %"),
    }
}

/// The machines of the rows, in their order.
fn machines(rows: &[Row]) -> Vec<&str> {
    let mut machines: Vec<&str> = Vec::new();
    for row in rows {
        if !machines.contains(&row.machine.as_str()) {
            machines.push(&row.machine);
        }
    }
    machines
}

/// For each machine, the speedup over `base` and the share of its misses that is saved, or the
/// times of kernels that have models: one line per workload, one column per policy and kernel.
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
        let what = if modelled { "time" } else { "speedup over base, and fewer TLB misses" };
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
            let cell = |wanted: &String| match group.iter().find(|row| label(row) == *wanted) {
                Some(row) if modelled => approximate::seconds(row),
                Some(row) => format!("{} {:>9}", approximate::speedup(row), approximate::fewer(row)),
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

/// The beginning of a command line or workload, without the folder of its program.
fn short(workload: &str) -> String {
    let (program, rest) = workload.split_at(workload.find([' ', ':']).unwrap_or(workload.len()));
    let program = program.rsplit('/').next().unwrap_or(program);
    format!("{program}{rest}").chars().take(32).collect()
}

/// The name of the part of a stream that a row belongs to, if the row of the whole stream is in
/// `rows`.
fn part_of<'a>(row: &'a Row, rows: &[Row]) -> Option<&'a str> {
    rows.iter().find_map(|whole| row.workload.strip_prefix(&whole.workload)?.strip_prefix('/'))
}

/// The notes that must stand below a table for it to be honest.
fn notes(group: &[Row], part: bool) -> Vec<String> {
    let mut notes = approximate::notes(group);
    for row in group {
        let kernel = row.kernel.as_ref().map_or(String::new(), |kernel| format!(" {kernel}"));
        let name = format!("{} {}{kernel}", row.machine, row.policies());
        if let Some(error) = &row.error {
            notes.push(format!("{name}: ended early: {error}"));
        }
        // A part that is shorter than a period is nothing to say.
        if row.background_runs == Some(0) && !part {
            notes.push(format!(
                "{name}: its background never ran while the program had memory: the run ({} modelled) {} shorter than its period; set a shorter period, or --time-scale {}, say",
                time(row.seconds + row.idle_seconds),
                if row.sampled.is_some() { "seems" } else { "is" },
                row.time_scale.times(100)
            ));
        }
        if row.other_core_cycles >= row.cycles.max(100) / 100 {
            notes.push(format!(
                "{name}: background work of {} of its time is on another core (--background program charges the program)",
                percent(100.0 * row.other_core_cycles as f64 / row.cycles.max(1) as f64)
            ));
        }
        notes.extend(where_from(row, group).map(|text| format!("{name}: {text}")));
        let leaked = row.frames_leaked + row.host_frames_leaked;
        if leaked > 0 {
            notes.push(format!("{name}: {leaked} frames leaked: this is a bug in superpage"));
        }
    }
    for machine in group.chunk_by(|a, b| a.machine == b.machine) {
        let most = machine.iter().map(|row| row.unmapped_accesses).max().unwrap_or(0);
        if most > 0 {
            let name = &machine[0].machine;
            notes.push(format!("{name}: {} accesses outside all recorded mappings, mapped page by page", count(most)));
        }
    }
    notes
}

/// What saved or cost a row time against `base`, if walks are less than half of it; of several
/// kernels against the first, however much walks are.
fn where_from(row: &Row, group: &[Row]) -> Option<String> {
    let base = group.iter().find(|base| base.machine == row.machine && base.is_base())?;
    let known = |row: &Row| row.sampled.as_ref().is_none_or(|sampled| sampled.kernel_exact);
    if !known(row) || !known(base) || base.cycles == 0 || row.complete != base.complete {
        return None;
    }
    let percent = |then: u64, now: u64| 100.0 * (then as f64 - now as f64) / base.cycles as f64;
    let gained = percent(base.cycles, row.cycles);
    let walks = percent(base.walk_cycles, row.walk_cycles);
    let other = base.kernel.as_ref().filter(|kernel| row.kernel.as_ref() != Some(kernel));
    if gained.abs() < 1.0 || other.is_none() && walks / gained >= 0.5 {
        return None;
    }
    let background = match row.background {
        BackgroundOn::Core => "waits for the page daemon and background",
        BackgroundOn::Program => "the page daemon and background",
    };
    let parts = [
        ("cache misses", base.data_cycles, row.data_cycles),
        ("hits in later TLB levels", base.tlb_hit_cycles, row.tlb_hit_cycles),
        ("faults, entries and shootdowns", base.fault_cycles, row.fault_cycles),
        ("zeroing", base.zero_cycles, row.zero_cycles),
        ("copying", base.copy_cycles, row.copy_cycles),
        ("promotions and demotions", base.promotion_cycles, row.promotion_cycles),
        (background, base.background_cycles, row.background_cycles),
        ("the disk", base.io_cycles, row.io_cycles),
        ("the host's kernel", base.host_cycles, row.host_cycles),
    ];
    let mut parts: Vec<(&str, f64)> = parts.map(|(what, then, now)| (what, percent(then, now))).into();
    parts.push(("walks", walks));
    // All that a reader of the sum would miss, and walks in any case; the largest first.
    parts.retain(|(what, part)| *what == "walks" || part.abs() >= 0.5 && part.abs() >= gained.abs() / 20.0);
    parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let less = |percent: f64| format!("{:.1} % {}", percent.abs(), if percent < 0.0 { "more" } else { "less" });
    let parts: Vec<String> = parts.iter().map(|(what, part)| format!("{} in {what}", less(*part))).collect();
    let than = other.map_or(String::new(), |kernel| format!(" than with {kernel}"));
    Some(format!("{} time{than}: {}", less(gained), parts.join(", ")))
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
