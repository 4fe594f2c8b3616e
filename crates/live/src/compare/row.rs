//! The results for each policy: a row.

use super::counters::{Count, Event};
use super::served::Load;
use super::statistics::{Family, Ratio, Spread};
use crate::sample::Memory;
use serde::Serialize;

/// One run of the command under a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// From just before the command was started until it and all its descendants had ended, in
    /// seconds. Of a server: seconds a request, if its load says how many there were, else the time
    /// that the load took.
    pub wall: f64,
    /// Processor time in user mode of the whole tree, in seconds.
    pub user: f64,
    /// Processor time in the kernel of the whole tree, in seconds.
    pub system: f64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// The memory of the tree.
    pub memory: Memory,
    /// The hardware counts.
    #[serde(skip)]
    pub counts: Vec<(Event, Count)>,
    /// The command's exit status; 128 plus the number of the signal that ended it.
    pub code: u8,
    /// How many bytes were touched and freed right before the run.
    pub warmed: u64,
    /// How many blocks of a huge page's size were free then, if the kernel shows it.
    pub free_blocks: Option<u64>,
    /// The first setting of the system that was not as when the comparison began, or changed during
    /// the run, in words.
    pub differed: Option<String>,
    /// Of a server: what its load said.
    pub load: Option<Load>,
}

/// All complete runs of one policy; the keys of the JSON are the names of the fields. Counts are
/// medians.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The command, quoted for a shell.
    pub command: String,
    /// The policy; `base#2` is the second of that name.
    pub policy: String,
    /// The command or server that this row alone has, quoted for a shell. Null for others.
    pub own_command: Option<String>,
    /// The number of runs.
    pub runs: usize,
    /// Whether a signal or the time limit ended the comparison before there were as many as were
    /// asked for.
    pub ended_early: bool,
    /// Why it was run no more after these runs, in an adaptive comparison. Null if it was run to
    /// the end.
    pub dropped: Option<String>,
    /// Wall-clock time; of a server the time of a request, if its load says how many there were.
    pub wall_seconds: Spread,
    /// Of a server, like the following: what its load says of requests a second.
    pub requests_per_second: Option<f64>,
    /// The time within which half of all requests are served.
    pub latency_p50_seconds: Option<f64>,
    /// The time within which 99 in 100 requests end.
    pub latency_p99_seconds: Option<f64>,
    /// The time within which 999 in 1000 requests end.
    pub latency_p999_seconds: Option<f64>,
    /// How long the load took; where it is repeated, all its times together.
    pub load_seconds: Option<f64>,
    /// The most memory that the server and its descendants had under the load, where what they
    /// share counts once (PSS).
    pub load_peak_bytes: Option<u64>,
    /// The memory of the server and its descendants when the load ended, where what they share
    /// counts once; where some of them ended with the load, at the last look before.
    pub end_bytes: Option<u64>,
    /// The same over the time of the last run's load: seconds since it began, and bytes.
    pub memory_over_time: Option<Vec<(f64, u64)>>,
    /// Processor time in user mode.
    pub user_seconds: Spread,
    /// Processor time in the kernel.
    pub system_seconds: Spread,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// The most memory that the tree had at once, including huge pages of the static pool. At least
    /// the few MB that this process has when it starts the command.
    pub peak_rss_bytes: u64,
    /// How much of it was mapped by huge pages near the peak.
    pub huge_bytes: Option<u64>,
    /// How much was resident then.
    pub looked_bytes: Option<u64>,
    /// The share of it that was mapped by huge pages.
    pub huge_coverage_percent: Option<f64>,
    /// The most bytes that were seen mapped by huge pages at once, in any run, near the peak or
    /// not.
    pub most_huge_bytes: Option<u64>,
    /// How much of it was in folios of the policy's size, as seen in warm-up runs.
    pub folio_bytes: Option<u64>,
    /// The share of what was resident near the peak that was in such folios.
    pub folio_coverage_percent: Option<f64>,
    /// Loads that accessed the data TLB.
    pub dtlb_loads: Option<u64>,
    /// Loads that missed in it.
    pub dtlb_load_misses: Option<u64>,
    /// Stores that accessed the data TLB.
    pub dtlb_stores: Option<u64>,
    /// Stores that missed in it.
    pub dtlb_store_misses: Option<u64>,
    /// Fetches that accessed the instruction TLB.
    pub itlb_loads: Option<u64>,
    /// Fetches that missed in it.
    pub itlb_misses: Option<u64>,
    /// Cycles of page walks.
    pub walk_cycles: Option<u64>,
    /// The least share of the time in which a counter counted: below 1, counts are scaled up. Null
    /// without counters.
    pub counted_share: Option<f64>,
    /// The reference's time divided by this policy's: above 1, this is faster. The inverse of the
    /// ratio's estimate.
    pub speedup: f64,
    /// This policy's time divided by the reference's, with its interval. Null for the reference.
    pub time_ratio: Option<Ratio>,
    /// What the policy really did to the program's memory, in words.
    pub did: String,
    /// Whether it affected any memory. Null for the reference, and if it could not be seen.
    pub reached: Option<bool>,
    /// The verdict on the time. Null for the reference.
    pub verdict: Option<Verdict>,
    /// How many runs, warm-up runs too, were measured while settings of the system differed from
    /// those at the beginning.
    pub settings_differed: usize,
    /// The state of free memory before each run: `warmed`, `cold host`, `fragmented`, or `metal`
    /// where it makes no difference.
    pub memory_before: &'static str,
    /// How many bytes were touched and freed before each run.
    pub warmed_bytes: u64,
    /// How many blocks of a huge page's size were free before each run.
    pub free_blocks: Option<u64>,
    /// The wall-clock time of each run, in the order of the rounds, in seconds.
    pub times: Vec<f64>,
    /// Processor time in the kernel of each run, in seconds.
    pub system_times: Vec<f64>,
    /// Page faults of each run, with and without I/O.
    pub faults: Vec<u64>,
    /// The most memory in each run, in bytes.
    pub peaks: Vec<u64>,
    /// How each run ended.
    pub exit_codes: Vec<u8>,
}

/// The verdict on a policy's time compared with the reference's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Significantly less.
    Faster,
    /// Significantly more.
    Slower,
    /// No difference was found.
    Same,
    /// The policy affected none of the program's memory: a difference is not due to it.
    NothingReached,
    /// There were not enough runs.
    TooFewRuns,
    /// Settings of the system differed in a run of this policy or of the reference.
    SettingsDiffered,
    /// Runs of this policy ended with other exit statuses than those of the reference: they may
    /// have done less.
    StatusesDiffer,
}

impl Verdict {
    /// The word for it in files.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Same => "same",
            Verdict::NothingReached => "nothing-reached",
            Verdict::TooFewRuns => "too-few-runs",
            Verdict::SettingsDiffered => "settings-differed",
            Verdict::StatusesDiffer => "statuses-differ",
        }
    }
}

/// What a row says of how its runs were made.
pub(super) struct Labels<'a> {
    pub(super) command: &'a str,
    pub(super) policy: &'a str,
    pub(super) memory_before: &'static str,
}

impl Row {
    /// The row of `runs`, which are not empty, with the `reference`'s times in the same rounds,
    /// and the family of all policies that are compared with it.
    ///
    /// How much of memory is huge is taken from the runs that do not count too, `warmups`, where
    /// there is more time to look.
    pub(super) fn of(
        labels: Labels<'_>,
        runs: &[&Run],
        warmups: &[Memory],
        reference: Option<(&[f64], Family)>,
    ) -> Row {
        let spread = |value: fn(&Run) -> f64| {
            let values: Vec<f64> = runs.iter().map(|run| value(run)).collect();
            Spread::of(&values).expect("there are runs")
        };
        let median = |value: &dyn Fn(&Run) -> Option<f64>| {
            let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
            Spread::of(&values).map(|spread| spread.median)
        };
        // Of different rounds medians would not be those of the same thing.
        let all = |value: &dyn Fn(&Load) -> Option<f64>| {
            let of = |run: &Run| value(run.load.as_ref()?);
            runs.iter().all(|run| of(run).is_some()).then(|| median(&of)).flatten()
        };
        let memories = || runs.iter().map(|run| &run.memory).chain(warmups);
        let huge = |value: &dyn Fn(&Memory) -> Option<f64>| {
            let values: Vec<f64> = memories().filter_map(value).collect();
            Spread::of(&values).map(|spread| spread.median)
        };
        let whole = |value: &dyn Fn(&Run) -> Option<u64>| {
            median(&|run: &Run| value(run).map(|value| value as f64)).map(|median| median.round() as u64)
        };
        let counted = |event: Event| {
            let find =
                |run: &Run| run.counts.iter().find(|(counted, _)| *counted == event).map(|(_, count)| count.value);
            median(&find).map(|median| median.round() as u64)
        };
        let looked = huge(&|memory| memory.looked.map(|bytes| bytes as f64)).map(|median| median.round() as u64);
        let times: Vec<f64> = runs.iter().map(|run| run.wall).collect();
        let time_ratio = reference.and_then(|(others, family)| Ratio::of(&times, others, family));
        let shares = runs.iter().flat_map(|run| run.counts.iter().map(|(_, count)| count.share));
        Row {
            command: labels.command.to_string(),
            policy: labels.policy.to_string(),
            own_command: None,
            runs: runs.len(),
            ended_early: false,
            dropped: None,
            wall_seconds: spread(|run| run.wall),
            requests_per_second: all(&|load| load.requests_per_second),
            latency_p50_seconds: all(&|load| load.latencies[0]),
            latency_p99_seconds: all(&|load| load.latencies[1]),
            latency_p999_seconds: all(&|load| load.latencies[2]),
            load_seconds: median(&|run| Some(run.load.as_ref()?.seconds)),
            load_peak_bytes: whole(&|run| run.load.as_ref()?.most_bytes()),
            end_bytes: whole(&|run| run.load.as_ref()?.end_bytes()),
            memory_over_time: runs.last().and_then(|run| run.load.as_ref()).map(|load| load.memory.clone()),
            user_seconds: spread(|run| run.user),
            system_seconds: spread(|run| run.system),
            minor_faults: whole(&|run| Some(run.minor_faults)).expect("there are runs"),
            major_faults: whole(&|run| Some(run.major_faults)).expect("there are runs"),
            // What a look found is no more than the peak: a short run may have its hugetlb pages,
            // which the kernel leaves out of its figure, between two looks.
            peak_rss_bytes: whole(&|run| Some(run.memory.peak)).expect("there are runs").max(looked.unwrap_or(0)),
            huge_bytes: huge(&|memory| memory.huge.map(|bytes| bytes as f64)).map(|median| median.round() as u64),
            looked_bytes: looked,
            huge_coverage_percent: huge(&|memory| memory.coverage.map(|share| 100.0 * share)),
            most_huge_bytes: memories().filter_map(|memory| memory.most_huge).max(),
            folio_bytes: huge(&|memory| memory.folios.map(|bytes| bytes as f64)).map(|median| median.round() as u64),
            folio_coverage_percent: huge(&|memory| memory.folio_coverage.map(|share| 100.0 * share)),
            dtlb_loads: counted(Event::DtlbLoads),
            dtlb_load_misses: counted(Event::DtlbLoadMisses),
            dtlb_stores: counted(Event::DtlbStores),
            dtlb_store_misses: counted(Event::DtlbStoreMisses),
            itlb_loads: counted(Event::ItlbLoads),
            itlb_misses: counted(Event::ItlbMisses),
            walk_cycles: counted(Event::WalkCycles),
            counted_share: shares.reduce(f64::min),
            speedup: time_ratio.map_or(1.0, |ratio| 1.0 / ratio.estimate),
            time_ratio,
            did: String::new(),
            reached: None,
            verdict: None,
            settings_differed: 0,
            memory_before: labels.memory_before,
            warmed_bytes: whole(&|run| Some(run.warmed)).expect("there are runs"),
            free_blocks: whole(&|run| run.free_blocks),
            times,
            system_times: runs.iter().map(|run| run.system).collect(),
            faults: runs.iter().map(|run| run.minor_faults + run.major_faults).collect(),
            peaks: runs.iter().map(|run| run.memory.peak).collect(),
            exit_codes: runs.iter().map(|run| run.code).collect(),
        }
    }

    /// Whether its times can be compared with the reference's: its settings and statuses were the
    /// same, and it affected memory, or looked for a huge page where none was free, which takes
    /// time.
    pub(super) fn is_comparable(&self) -> bool {
        self.settings_differed == 0
            && match self.verdict {
                Some(Verdict::SettingsDiffered | Verdict::StatusesDiffer) => false,
                Some(Verdict::NothingReached) => self.memory_before == super::host::FRAGMENTED,
                _ => true,
            }
    }

    /// The ratio of times, if it is shown with an interval.
    pub(super) fn shown_ratio(&self) -> Option<Ratio> {
        self.time_ratio.filter(|ratio| self.is_comparable() && ratio.interval().is_some())
    }

    /// Says what the policy did, and with it what is to be said of its time. Call it when
    /// `settings_differed` is set; `incomparable` is the verdict if it cannot be compared with the
    /// reference for another reason.
    pub(super) fn tell(&mut self, did: String, reached: Option<bool>, incomparable: Option<Verdict>) {
        (self.did, self.reached) = (did, reached);
        let incomparable = if self.settings_differed > 0 { Some(Verdict::SettingsDiffered) } else { incomparable };
        self.verdict = self.time_ratio.map(|ratio| match incomparable {
            Some(verdict) => verdict,
            _ if reached == Some(false) => Verdict::NothingReached,
            _ if !ratio.sure => Verdict::TooFewRuns,
            _ if !ratio.differs() => Verdict::Same,
            _ if ratio.high < 1.0 => Verdict::Faster,
            _ => Verdict::Slower,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_less_than_what_was_seen_at_once() {
        let run = |peak| Run {
            wall: 1.0,
            user: 1.0,
            system: 0.0,
            minor_faults: 1,
            major_faults: 0,
            memory: Memory { peak, ..Memory::default() },
            counts: Vec::new(),
            code: 0,
            warmed: 0,
            free_blocks: None,
            differed: None,
            load: None,
        };
        let warmup = Memory { peak: 90, huge: Some(60), looked: Some(90), ..Memory::default() };
        let labels = || Labels { command: "x", policy: "hugetlb", memory_before: "metal" };
        let row = |peak| Row::of(labels(), &[&run(peak)], &[warmup], None).peak_rss_bytes;
        assert_eq!([row(30), row(100)], [90, 100]);
    }
}
