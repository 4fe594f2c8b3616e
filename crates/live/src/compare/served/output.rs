//! What a load says of itself: how many requests a second, and how long they took.
//!
//! Known are `redis-benchmark` (all three of its forms), `memtier_benchmark`, `pgbench`, `wrk`,
//! `hey`, and whatever writes like one of them; of others one says which text stands before the
//! number.

use std::ops::RangeInclusive;

/// The numbers of one load. Several tests in one output are taken for as many requests each: their
/// throughput is the harmonic mean, and their percentiles are those of the slowest.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Measured {
    /// Requests, transactions or operations a second.
    pub(crate) throughput: Option<f64>,
    /// The percentiles of [`PERCENTILES`], in seconds.
    pub(crate) latencies: [Option<f64>; 3],
    /// How many tests there were.
    pub(crate) tests: usize,
    /// The first throughput that is none: 0, less, no number, or beyond all that there is.
    pub(crate) odd: Option<f64>,
}

/// What a throughput may be, so that ratios of times mean something.
const RATES: RangeInclusive<f64> = 1e-9..=1e18;

/// Which percentiles of the time of a request are looked for.
pub(crate) const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

impl Measured {
    /// Reads an output; `after` is the text before each number that is the throughput, where the
    /// load is none of those known.
    pub(crate) fn read(output: &str, after: Option<&str>) -> Measured {
        let mut reading = Reading::default();
        // A progress line is written over by the next.
        output.split(['\n', '\r']).for_each(|line| reading.line(line, after));
        reading.settle();
        let Reading { rates, latencies, .. } = reading;
        let (tests, odd) = (rates.len(), rates.iter().copied().find(|rate| !RATES.contains(rate)));
        let seconds: f64 = rates.iter().map(|rate| 1.0 / rate).sum();
        let throughput = (tests > 0 && odd.is_none()).then(|| tests as f64 / seconds);
        Measured { throughput, latencies, tests, odd }
    }
}

#[derive(Default)]
struct Reading {
    rates: Vec<f64>,
    latencies: [Option<f64>; 3],
    /// The names of the columns that follow.
    columns: Vec<String>,
    /// Between `Latency by percentile distribution` and the next of its sections.
    distribution: bool,
    /// The first of its lines that has at least each percentile, in seconds: one above it, which
    /// does not count where a summary follows that has the percentile itself.
    above: [Option<f64>; 3],
}

impl Reading {
    fn line(&mut self, line: &str, after: Option<&str>) {
        match after {
            Some(text) => {
                // With a unit as `K` behind it, it is not in requests.
                let number = line.split_once(text).and_then(|(_, rest)| {
                    let mut words = rest.split_whitespace();
                    let found = number(words.next()?);
                    found.filter(|_| !words.next().is_some_and(|unit| ["k", "K", "M", "G", "T"].contains(&unit)))
                });
                self.rate(number);
            }
            None => self.rate(rate(line)),
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        self.columns(line, &words, after.is_none());
        for (place, percentile) in PERCENTILES.into_iter().enumerate() {
            // redis-benchmark -q: "p50=0.263 msec".
            let named = words.iter().find_map(|word| number(word.strip_prefix(&format!("p{percentile}="))?));
            self.latency(place, named.map(|number| number * 1e-3));
            self.latency(place, listed(&words, percentile));
        }
        if line.contains("percentile distribution") || line.contains("Cumulative distribution") {
            self.distribution = line.contains("percentile distribution");
            if self.distribution {
                self.settle();
            }
        }
        if let (true, [percent, "<=", value, "milliseconds", ..]) = (self.distribution, &words[..]) {
            let percent = percent.strip_suffix('%').and_then(number).unwrap_or(0.0);
            for (place, percentile) in PERCENTILES.into_iter().enumerate() {
                if percent >= percentile && self.above[place].is_none() {
                    self.above[place] = number(value).map(|number| number * 1e-3);
                }
            }
        }
    }

    /// Counts what a distribution had, and no summary.
    fn settle(&mut self) {
        let above = std::mem::take(&mut self.above);
        above.into_iter().enumerate().for_each(|(place, seconds)| self.latency(place, seconds));
    }

    fn rate(&mut self, rate: Option<f64>) {
        self.rates.extend(rate);
    }

    fn latency(&mut self, place: usize, seconds: Option<f64>) {
        let known = &mut self.latencies[place];
        *known = (*known)
            .into_iter()
            .chain(seconds.filter(|seconds| (0.0..f64::INFINITY).contains(seconds)))
            .reduce(f64::max);
    }

    /// Tables: redis-benchmark's summary of latencies and its CSV, memtier's totals.
    fn columns(&mut self, line: &str, words: &[&str], rates: bool) {
        let cells: Vec<String> = if line.starts_with('"') {
            line.split(',').map(|cell| cell.trim().trim_matches('"').to_string()).collect()
        } else {
            words.iter().map(ToString::to_string).collect()
        };
        if words.first() == Some(&"Type") && line.contains("Ops/sec") {
            // "Avg. Latency", "p50 Latency": a name of two words is one column.
            self.columns = cells.into_iter().filter(|cell| cell != "Latency").collect();
        } else if words.first() == Some(&"avg") && words.contains(&"p50") || line.starts_with("\"test\",\"rps\"") {
            self.columns = cells;
        } else if cells.len() == self.columns.len() && cells.len() > 1 {
            let memtier = self.columns[0] == "Type";
            if memtier && cells[0] != "Totals" {
                return;
            }
            let columns = std::mem::take(&mut self.columns);
            for (name, cell) in columns.iter().zip(&cells) {
                let place = PERCENTILES.iter().position(|percentile| {
                    let of = format!("p{percentile}");
                    *name == of || *name == format!("{of}_latency_ms")
                });
                match (place, name.as_str(), number(cell)) {
                    (Some(place), _, Some(number)) => {
                        self.above[place] = None;
                        self.latency(place, Some(number * 1e-3));
                    }
                    (None, "rps" | "Ops/sec", number) if rates => self.rate(number),
                    _ => {}
                }
            }
            // CSV has further lines; of the others each has its head.
            if line.starts_with('"') {
                self.columns = columns;
            }
        }
    }
}

/// The throughput in a line that has nothing else.
fn rate(line: &str) -> Option<f64> {
    if let Some((before, _)) = line.split_once(" requests per second") {
        return number(before.split_whitespace().next_back()?);
    }
    if let Some(rest) = line.strip_prefix("tps = ") {
        // Older versions have two lines.
        let whole = !line.contains("including connections");
        return whole.then(|| number(rest.split_whitespace().next()?)).flatten();
    }
    number(line.trim_start().strip_prefix("Requests/sec:")?.trim())
}

/// A percentile in a line that has nothing else: wrk's `99%  3.41ms`, hey's `99% in 0.0034 secs`.
fn listed(words: &[&str], percentile: f64) -> Option<f64> {
    let (first, rest) = words.split_first()?;
    if number(first.trim_end_matches('%'))? != percentile || !first.ends_with('%') {
        return None;
    }
    match rest {
        ["in", value, "secs" | "secs."] => number(value),
        [value] => {
            let unit = value.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
            let of = match unit {
                "us" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                _ => return None,
            };
            Some(number(value.strip_suffix(unit)?)? * of)
        }
        _ => None,
    }
}

/// A number, perhaps with commas between thousands or after it. A comma anywhere else is another
/// language's, in which it may be a decimal one.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches(|letter| ",;:()".contains(letter));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.split(',');
    let first = groups.next()?.len();
    let (mut many, mut thousands) = (false, first <= 3);
    groups.for_each(|group| (many, thousands) = (true, thousands && group.len() == 3));
    let plain = !rest.contains(',') && (!many || thousands);
    plain.then(|| text.replace(',', "").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(measured: Measured, throughput: f64, latencies: [Option<f64>; 3]) {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
        assert!(measured.throughput.is_some_and(|rate| near(rate, throughput)), "{measured:?}");
        for (is, must) in measured.latencies.into_iter().zip(latencies) {
            assert!(is.is_some() == must.is_some() && near(is.unwrap_or(1.0), must.unwrap_or(1.0)), "{measured:?}");
        }
    }

    #[test]
    fn the_forms_of_redis_benchmark_are_read() {
        let long = "====== SET ======\n  100000 requests completed in 0.80 seconds\n\n\
                    Latency by percentile distribution:\n0.000% <= 0.055 milliseconds (cumulative count 2)\n\
                    50.000% <= 0.199 milliseconds (cumulative count 59000)\n\
                    99.023% <= 0.471 milliseconds (cumulative count 99031)\n\
                    99.902% <= 0.703 milliseconds (cumulative count 99905)\n\
                    100.000% <= 1.103 milliseconds (cumulative count 100000)\n\n\
                    Cumulative distribution of latencies:\n99.900% <= 9.103 milliseconds (cumulative count 7)\n\n\
                    Summary:\n  throughput summary: 125000.00 requests per second\n  latency summary (msec):\n  \
                    \u{20}       avg       min       p50       p95       p99       max\n  \
                    \u{20}     0.215     0.048     0.199     0.311     0.407     1.103\n";
        close(Measured::read(long, None), 125_000.0, [Some(0.199e-3), Some(0.407e-3), Some(0.703e-3)]);
        let quiet = "SET: rps=0.0 (overall: nan) avg_msec=nan\rSET: 100000.00 requests per second, p50=0.215 msec\n\
                     GET: 50000.00 requests per second, p50=0.207 msec\n";
        // As many of each: 20 and 10 us a request, 15 on average.
        close(Measured::read(quiet, None), 66_666.666_666_666_67, [Some(0.215e-3), None, None]);
        const CSV: &str =
            "test,rps,avg_latency_ms,min_latency_ms,p50_latency_ms,p95_latency_ms,p99_latency_ms,max_latency_ms";
        let csv = format!(
            "\"{}\"\n\"SET\",\"100000.00\",\"0.2\",\"0.1\",\"0.215\",\"0.3\",\"0.407\",\"1.1\"\n\
             \"GET\",\"100000.00\",\"0.2\",\"0.1\",\"0.199\",\"0.3\",\"0.5\",\"1.1\"\n",
            CSV.replace(',', "\",\"")
        );
        close(Measured::read(&csv, None), 100_000.0, [Some(0.215e-3), Some(0.5e-3), None]);
    }

    #[test]
    fn other_loads_are_read() {
        let memtier = "Type    Ops/sec  Hits/sec  Misses/sec  Avg. Latency  p50 Latency  p99 Latency  \
                       p99.9 Latency  KB/sec\n----\n\
                       Sets    9090.0  ---  ---  1.0  1.0  2.0  3.0  700.0\n\
                       Totals  99999.5  0.00  90909.00  1.99  1.9  4.7  8.1  4200.0\n";
        close(Measured::read(memtier, None), 99_999.5, [Some(1.9e-3), Some(4.7e-3), Some(8.1e-3)]);
        let pgbench = "latency average = 1.234 ms\ninitial connection time = 8.1 ms\n\
                       tps = 3241.5 (without initial connection time)\n";
        close(Measured::read(pgbench, None), 3241.5, [None; 3]);
        let older =
            "tps = 11.0 (including connections establishing)\ntps = 12.0 (excluding connections establishing)\n";
        close(Measured::read(older, None), 12.0, [None; 3]);
        let wrk = "  Latency Distribution\n     50%  635.00us\n     90%    1.10ms\n     99%    2.50ms\n  \
                   Requests/sec:  748868.53\n";
        close(Measured::read(wrk, None), 748_868.53, [Some(635e-6), Some(2.5e-3), None]);
        let hey = "  Requests/sec:\t2410.5\n\nLatency distribution:\n  50% in 0.0021 secs\n  99% in 0.0125 secs\n";
        close(Measured::read(hey, None), 2410.5, [Some(0.0021), Some(0.0125), None]);
        close(Measured::read("did 1,234.5 rows/s, fine\n", Some("did ")), 1234.5, [None; 3]);
    }

    #[test]
    fn an_output_without_numbers_says_nothing() {
        for text in ["", "done\n", "tps = fast\n", "Requests/sec:"] {
            assert_eq!(Measured::read(text, None), Measured::default(), "{text}");
        }
        assert_eq!(Measured::read("125 requests per second", Some("rate: ")), Measured::default());
    }

    #[test]
    fn what_is_no_throughput_is_named() {
        for number in ["0", "-5", "nan", "inf", "1e308", "1e-300"] {
            for other in ["", "tps = 7\n"] {
                let read = Measured::read(&format!("{other}{number} requests per second\n"), None);
                let odd = read.odd.expect("it is one");
                assert_eq!((odd.to_string(), read.throughput), (number.parse::<f64>().unwrap().to_string(), None));
            }
        }
        assert_eq!(Measured::read("tps = 7\nSET: rps=0.0 (overall: nan)", None).odd, None);
        assert_eq!(Measured::read("tps = 7\n99% 3ms\n50% infs\n", None).latencies, [None, Some(3e-3), None]);
    }

    #[test]
    fn a_comma_is_between_thousands_or_the_number_is_none() {
        let plain = ["1,234", "1,234.5", "12,345,678;", "(7)", "1234.5", "-1,000"];
        assert_eq!(plain.map(number), [1234.0, 1234.5, 12_345_678.0, 7.0, 1234.5, -1000.0].map(Some));
        assert_eq!(["1,5", "1.234,5", "1234,567", "1,23", ",", "12k", ""].map(number), [None; 7]);
        let rate = |line: &str| Measured::read(line, Some("ops:")).throughput;
        let rates = ["ops: 12", "ops: 12 a second", "ops: 12 K", "ops: 1,5", "speed: 12"].map(rate);
        assert_eq!(rates, [Some(12.0), Some(12.0), None, None, None]);
    }
}
