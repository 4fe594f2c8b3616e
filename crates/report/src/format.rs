//! Numbers as people read them.

/// A count with four digits and a decimal unit.
pub fn count(number: u64) -> String {
    if number < 100_000 {
        return number.to_string();
    }
    let (mut scaled, mut unit) = (number as f64, 0);
    while scaled >= 1000.0 && unit < 4 {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
    format!("{scaled:.digits$}{}", ["", " K", " M", " G", " T"][unit])
}

/// Bytes with four digits and a binary unit.
pub fn bytes(number: u64) -> String {
    superpage_pages::Bytes(number).to_string()
}

/// A time in a suitable unit: s, ms or us.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}
