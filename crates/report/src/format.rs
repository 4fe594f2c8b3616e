//! Numbers as people read them.

/// A count with four digits and a decimal unit.
pub fn count(number: u64) -> String {
    superpage_pages::Count(number).to_string()
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
