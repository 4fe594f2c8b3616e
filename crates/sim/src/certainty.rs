//! Which figures of rows are estimates, and why.

use crate::{Row, predictions};
use std::borrow::Cow;
use std::collections::BTreeMap;
use superpage_report::{InSample, KeyKind, Keys, count};

const UNSURE: &str = "what the sample left out decides what the kernel does";

impl Row {
    /// Why the value of a key is no exact count, and how sure it is, in words without a full stop;
    /// `None` if it is exact.
    pub fn why_inexact(&self, key: &str) -> Option<Cow<'static, str>> {
        let sampled = self.sampled.as_ref()?;
        let known = Row::KEYS.iter().find(|known| known.name == key)?;
        let sure = || Cow::Borrowed("with a 95 % interval in `sampled`");
        match known.sample {
            InSample::OfStream => None,
            _ if known.kind == KeyKind::Condition => None,
            _ if !sampled.kernel_exact => Some(Cow::Borrowed(UNSURE)),
            InSample::Estimated => Some(sampled.why_no_interval.clone().unwrap_or_else(sure)),
            InSample::Exact => None,
        }
    }
}

/// How far the counts of some rows are known, for what shows many at once.
#[derive(Clone, Debug, Default)]
pub struct Certainty {
    rows: u64,
    estimates: u64,
    unsure: u64,
    /// The largest speedup of rows without line caches.
    most: Option<f64>,
    /// Whether there are speedups on a machine that was probed, without and with line caches.
    probed: [bool; 2],
    /// Why estimates have no known error.
    bare: BTreeMap<Cow<'static, str>, u64>,
}

impl Certainty {
    /// Takes a row into account.
    pub fn see(&mut self, row: &Row) {
        self.rows += 1;
        if let (Some(gain), false) = (row.speedup, row.is_base()) {
            if row.caches.is_none() {
                self.most = Some(self.most.map_or(gain, |most| most.max(gain)));
            }
            self.probed[usize::from(row.caches.is_some())] |= predictions::is_probed(&row.machine);
        }
        let Some(sampled) = &row.sampled else { return };
        self.estimates += 1;
        self.unsure += u64::from(!sampled.kernel_exact);
        if let Some(why) = &sampled.why_no_interval {
            *self.bare.entry(why.clone()).or_default() += 1;
        }
    }

    /// The sign before numbers that are made of these rows: `≈ ` where some are estimates.
    pub fn sign(&self) -> &'static str {
        if self.estimates > 0 { "≈ " } else { "" }
    }

    /// How far speedups of rows without line caches, and on machines that were probed, can be
    /// trusted, in sentences; empty where there are neither.
    pub fn bound(&self) -> String {
        let most = self.most.map(|most| {
            format!(
                "Speedups are bounds, not times: at most {most:.3} x, with walks that nothing overlaps and a \
                 program whose own cache \
                 misses cost nothing; --lines models caches."
            )
        });
        let earned =
            [false, true].into_iter().filter(|lines| self.probed[usize::from(*lines)]).map(predictions::sentence);
        most.into_iter().chain(earned).collect::<Vec<String>>().join(" ")
    }

    /// What a reader must know of times and misses of these rows, in sentences.
    pub fn sentence(&self) -> String {
        if self.estimates == 0 {
            return "Times are modelled from exact counts.".into();
        }
        let mut text = format!(
            "Times are modelled. Misses, walks and times of {} of {} rows are estimates from samples (≈)",
            count(self.estimates),
            count(self.rows)
        );
        for (why, rows) in &self.bare {
            text += &format!("; {} of them have no known error: {why}", count(*rows));
        }
        text += ".";
        if self.unsure > 0 {
            text += &format!(" Of {} rows nothing but what was touched is known (?): {UNSURE}.", count(self.unsure));
        }
        text
    }
}
