//! The quantities of rows that pages show ([`superpage_report::Explorer`]).

use crate::{Certainty, Row};
use superpage_report::Measure;

/// A quantity of a row, which may be relative to the row of `base`.
pub struct Quantity {
    /// Its name in files.
    pub name: &'static str,
    /// Its name for readers, with its unit.
    pub label: &'static str,
    /// Whether larger values are better.
    pub higher_is_better: bool,
    /// Whether means are geometric, as of ratios to `base`, or arithmetic.
    pub ratio: bool,
    /// Whether it is an estimate where the stream was sampled.
    pub estimated: bool,
    /// Its unit, written after a number.
    pub unit: &'static str,
    /// The value of a row, given that row and the row of `base`.
    of: fn(&Row, &Row) -> f64,
    /// Half the width of its 95 % interval, if that is known.
    error: fn(&Row) -> Option<f64>,
}

impl Quantity {
    /// A quantity of which less is better.
    const fn of(name: &'static str, label: &'static str, of: fn(&Row, &Row) -> f64) -> Quantity {
        Quantity { name, label, higher_is_better: false, ratio: false, estimated: false, unit: "", of, error: |_| None }
    }

    /// A percentage, of which less is better.
    const fn percentage(name: &'static str, label: &'static str, of: fn(&Row, &Row) -> f64) -> Quantity {
        Quantity { unit: " %", ..Quantity::of(name, label, of) }
    }

    /// A ratio to `base`, of which less is better.
    const fn ratio(name: &'static str, label: &'static str, of: fn(&Row, &Row) -> f64) -> Quantity {
        Quantity { ratio: true, ..Quantity::of(name, label, of) }
    }

    /// It for readers of rows that are as certain as this.
    pub fn measure(&self, certainty: &Certainty) -> Measure {
        let Quantity { name, label, higher_is_better, ratio, unit, estimated, .. } = *self;
        let sign = if estimated { certainty.sign() } else { "" };
        Measure { name, label: format!("{sign}{label}"), unit, ratio, higher_is_better: Some(higher_is_better) }
    }

    const fn higher_is_better(self) -> Quantity {
        Quantity { higher_is_better: true, ..self }
    }

    /// An estimate where the stream was sampled, with this interval.
    const fn estimated(self, error: fn(&Row) -> Option<f64>) -> Quantity {
        Quantity { estimated: true, error, ..self }
    }
}

/// Index into [`QUANTITIES`]: the quantity that is shown first.
pub const SPEEDUP: usize = 0;
/// The one that it is drawn against.
pub const PEAK: usize = 1;

/// All of them.
pub const QUANTITIES: &[Quantity] = &[
    Quantity::ratio("speedup", "speed-up over base", |row, base| over(base.cycles, row.cycles))
        .higher_is_better()
        .estimated(|row| row.sampled.as_ref()?.speedup_error),
    Quantity::ratio("peak", "memory at its peak over that of base", |row, base| {
        over(row.peak_resident_bytes, base.peak_resident_bytes)
    }),
    Quantity::ratio("end", "memory at the end over that of base", |row, base| {
        over(row.end_resident_bytes, base.end_resident_bytes)
    }),
    Quantity::ratio("own", "speed-up without faults, zeroing and copying", |row, base| over(own(base), own(row)))
        .higher_is_better()
        .estimated(|_| None),
    Quantity::of("mpki", "TLB misses per 1000 instructions", |row, _| row.mpki.unwrap_or(f64::NAN))
        .estimated(|row| Some(1000.0 * row.sampled.as_ref()?.tlb_misses_error? / row.instructions as f64)),
    Quantity::percentage("misses", "TLB misses, % of those of base", |row, base| {
        100.0 * over(row.tlb_misses, base.tlb_misses)
    })
    .estimated(|row| row.sampled.as_ref()?.tlb_miss_reduction_percent_error),
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
    Quantity::ratio("elapsed", "elapsed time over that of base (threads on cores)", |row, base| {
        row.elapsed_seconds / base.elapsed_seconds
    })
    .estimated(|_| None),
    Quantity::of("interrupts", "interrupts of cores by shootdowns", |row, _| row.shootdowns_received as f64),
    Quantity::percentage("other", "work on another core, % of the time of base", |row, base| {
        100.0 * over(row.other_core_cycles, base.cycles)
    }),
    Quantity::percentage("contiguity", "contiguity left at the end, % (Navarro et al., section 6.5)", |row, _| {
        100.0 * row.contiguity
    })
    .higher_is_better(),
];

/// The values of a row in the order of the quantities, or their errors; `NaN` where there is none.
pub type Values = [f32; QUANTITIES.len()];

fn over(value: u64, of: u64) -> f64 {
    value as f64 / of as f64
}

/// The cycles that are not the kernel's at faults: once memory is filled, these alone go on.
fn own(row: &Row) -> u64 {
    row.cycles.saturating_sub(row.fault_cycles + row.zero_cycles + row.copy_cycles)
}

/// The values of a row, given the row of `base` on its machine.
pub fn values(row: &Row, base: Option<&Row>) -> Values {
    std::array::from_fn(|at| base.map_or(f32::NAN, |base| (QUANTITIES[at].of)(row, base) as f32))
}

/// Their errors.
pub fn errors(row: &Row) -> Values {
    std::array::from_fn(|at| (QUANTITIES[at].error)(row).map_or(f32::NAN, |error| error as f32))
}

/// The intervals that lie this far around values, as a page has them; none where an error is not
/// known.
pub fn intervals(values: &[f64], errors: impl IntoIterator<Item = f32>) -> Vec<Option<(f64, f64)>> {
    let around = |(value, error): (&f64, f64)| error.is_finite().then_some((value - error, value + error));
    values.iter().zip(numbers(errors)).map(around).collect()
}

/// Them as a page has them: the shortest decimals that are these numbers, 9 digits at most. As
/// `f64` they would be written with 17.
pub fn numbers(values: impl IntoIterator<Item = f32>) -> Vec<f64> {
    values.into_iter().map(|value| value.to_string().parse().unwrap_or(f64::NAN)).collect()
}
