//! Numbers as people read them.

/// A count with four digits and a decimal unit.
pub fn count(number: u64) -> String {
    scaled(number as f64, 1000.0, ["", " K", " M", " G", " T"], number < 100_000)
}

/// Bytes with four digits and a binary unit.
pub fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, [" B", " KB", " MB", " GB", " TB"], number < 1024)
}

fn scaled(mut number: f64, step: f64, units: [&str; 5], whole: bool) -> String {
    if whole {
        return format!("{number:.0}{}", units[0]);
    }
    let mut unit = 0;
    while number >= step && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$}{}", units[unit])
}

/// A time in the unit that suits it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}
