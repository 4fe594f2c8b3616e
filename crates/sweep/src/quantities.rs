//! The quantities of a row that the map can show.

use superpage_sim::Row;

/// A quantity of a row, which may be relative to the row of `base`.
pub(crate) struct Quantity {
    pub(crate) name: &'static str,
    /// Its name for readers, with its unit.
    pub(crate) label: &'static str,
    /// Whether more is better.
    pub(crate) more: bool,
    /// Whether means are geometric, as of ratios to `base`, or arithmetic.
    pub(crate) ratio: bool,
    /// Whether it is an estimate where the stream was sampled.
    pub(crate) estimated: bool,
    /// The value of a row, given that row and the row of `base`.
    of: fn(&Row, &Row) -> f64,
}

impl Quantity {
    /// A percentage, of which less is better.
    const fn percentage(name: &'static str, label: &'static str, of: fn(&Row, &Row) -> f64) -> Quantity {
        Quantity { name, label, more: false, ratio: false, estimated: false, of }
    }

    /// A ratio to `base`, of which less is better.
    const fn ratio(name: &'static str, label: &'static str, of: fn(&Row, &Row) -> f64) -> Quantity {
        Quantity { ratio: true, ..Quantity::percentage(name, label, of) }
    }

    const fn more(self) -> Quantity {
        Quantity { more: true, ..self }
    }

    const fn estimated(self) -> Quantity {
        Quantity { estimated: true, ..self }
    }
}

/// Indices into [`QUANTITIES`]: the quantity that the map shows first, and the one that it is drawn
/// against.
pub(crate) const SPEEDUP: usize = 0;
pub(crate) const PEAK: usize = 1;

/// All of them.
pub(crate) const QUANTITIES: &[Quantity] = &[
    Quantity::ratio("speedup", "speed-up over base", |row, base| over(base.cycles, row.cycles)).more().estimated(),
    Quantity::ratio("peak", "memory at its peak over that of base", |row, base| {
        over(row.peak_resident_bytes, base.peak_resident_bytes)
    }),
    Quantity::ratio("end", "memory at the end over that of base", |row, base| {
        over(row.end_resident_bytes, base.end_resident_bytes)
    }),
    Quantity::percentage("misses", "TLB misses, % of those of base", |row, base| {
        100.0 * over(row.tlb_misses, base.tlb_misses)
    })
    .estimated(),
    Quantity::ratio("fault", "99.9th percentile of fault latency over that of base", |row, base| {
        over(row.fault_p999, base.fault_p999)
    }),
    Quantity::ratio("longest", "longest fault over that of base", |row, base| over(row.fault_max, base.fault_max)),
    Quantity::percentage("zeroed", "zeroed, % of the memory of base", |row, base| {
        100.0 * over(row.bytes_zeroed, base.peak_resident_bytes)
    }),
    Quantity::percentage("copied", "copied, % of the memory of base", |row, base| {
        100.0 * over(row.bytes_copied, base.peak_resident_bytes)
    }),
    Quantity::percentage("other", "work on another core, % of the time of base", |row, base| {
        100.0 * over(row.other_core_cycles, base.cycles)
    }),
    Quantity::percentage("contiguity", "contiguity left at the end, % (Navarro et al., section 6.5)", |row, _| {
        100.0 * row.contiguity
    })
    .more(),
];

/// The values of a row in the order of the quantities; `NaN` where there is none.
pub(crate) type Values = [f32; QUANTITIES.len()];

fn over(value: u64, of: u64) -> f64 {
    value as f64 / of as f64
}

/// The values of a row, given the row of `base`.
pub(crate) fn values(row: &Row, base: Option<&Row>) -> Values {
    std::array::from_fn(|at| base.map_or(f32::NAN, |base| (QUANTITIES[at].of)(row, base) as f32))
}
