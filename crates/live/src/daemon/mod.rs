//! `superpage daemon`: [`Promoter`]s that run as long as the system.

mod config;
mod endpoint;
mod metrics;
mod notify;
mod services;
mod wrong;

pub use self::config::{Config, MetricsConfig, Processes, Service};
pub use self::metrics::Metrics;
pub use self::services::{Counted, in_turns};

use self::notify::Manager;
use self::services::Services;
use crate::promote::{Counters, Promoter};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use superpage_linux::Error;
use superpage_linux::cpu::process_cpu;
use superpage_linux::lock::{Lock, Tried, make_folder, own_folder};
use superpage_linux::why::Why;
use superpage_output::foreign;

/// The longest sleep between two looks at the signals.
const NAP: Duration = Duration::from_millis(100);

/// The least processor time that is saved up in a sleep.
const SAVED: Duration = Duration::from_millis(1);

/// The longest time without a look at what is due: new processes have to be met.
const LONGEST: Duration = Duration::from_secs(1);

/// How often the metrics are made new, at most, and written to a file.
const METRICS: Duration = Duration::from_secs(1);
const METRICS_FILE: Duration = Duration::from_secs(15);

/// How often the log has a line on what was promoted, if anything was.
const TELL: Duration = Duration::from_secs(60);

/// When the log has its line on what was found.
const FIRST: Duration = Duration::from_secs(5);

/// Promoters, their configuration and their metrics.
#[derive(Debug)]
pub struct Daemon {
    services: Services,
    config: Config,
    metrics: Metrics,
    manager: Manager,
    _lock: Lock,
}

impl Daemon {
    /// Takes the lock that allows one daemon, starts the promoter and the endpoint of the metrics.
    ///
    /// # Errors
    /// Another daemon runs; or see [`Promoter::new`]; or the address or file of the metrics cannot
    /// be used.
    pub fn start(mut config: Config) -> Result<Daemon, Error> {
        config.validate()?;
        config.processes.leave_out_gone()?;
        // Before the lock: who lacks the right hears of that, and not of the lock's folder.
        let services = Services::new(config.parts()?)?;
        let lock = lock()?;
        raise_files();
        let metrics = Metrics::start(&config.metrics, services.counters())?;
        if let Some(address) = metrics.address() {
            tracing::info!("metrics at http://{address}/metrics");
        }
        Ok(Daemon { services, config, metrics, manager: Manager::of_environment(), _lock: lock })
    }

    /// Promotes until `stop` is set or, if only processes were named, until all of them have ended.
    /// When `reload` is set it is cleared, and `read` returns the new configuration; if that is an
    /// error, the old one stays and the error is logged. The addresses of the metrics do not
    /// change.
    ///
    /// # Errors
    /// The metrics cannot be written at the end.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        reload: &AtomicBool,
        read: impl Fn() -> Result<Config, Error>,
    ) -> Result<(), Error> {
        self.tell("promoting");
        let begun = Instant::now();
        let (mut updated, mut written, mut logged, mut next) = (None, None, begun, begun);
        let mut before = self.services.counters();
        let mut first = true;
        self.manager.ready(&before);
        while !stop.load(Ordering::Relaxed) {
            self.manager.send_again();
            if reload.swap(false, Ordering::Relaxed) {
                self.reload(&read);
                next = begun;
            }
            // To wake for the signals alone costs next to nothing.
            if next <= Instant::now() {
                let rest = nap(self.services.step(), self.config.options.cpu);
                next = Instant::now() + rest;
            }
            if due(&mut updated, METRICS) {
                let counters = self.services.counters();
                self.manager.status(&counters);
                self.metrics.update(counters);
                if self.services.is_over() {
                    tracing::info!("all processes that were named have ended");
                    break;
                }
            }
            if due(&mut written, METRICS_FILE)
                && let Err(error) = self.metrics.write()
            {
                tracing::warn!("{error}");
            }
            if first && begun.elapsed() >= FIRST {
                first = false;
                self.services.iter().for_each(|(service, promoter)| found(service, &promoter.counters()));
            }
            if logged.elapsed() >= TELL {
                logged = Instant::now();
                let left: Vec<u64> = self.services.iter().map(|(_, it)| it.counters().candidate_regions).collect();
                for (service, promoter) in self.services.iter() {
                    let then = before.iter().find(|(then, _)| then.as_deref() == service);
                    log(service, promoter, then.map(|(_, counters)| counters), &left);
                }
                before = self.services.counters();
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()).min(NAP));
        }
        self.manager.stopping();
        let counters = self.services.counters();
        let used = process_cpu(std::process::id() as i32).unwrap_or_default();
        let sum = |of: fn(&Counters) -> u64| counters.iter().map(|(_, counters)| of(counters)).sum::<u64>();
        let (regions, grown) = self.services.past;
        tracing::info!(
            regions = regions + sum(|counters| counters.promoted_regions),
            grown_bytes = grown + sum(|counters| counters.grown_bytes),
            cpu = percent(used.as_secs_f64() / begun.elapsed().as_secs_f64()),
            "ends"
        );
        self.metrics.update(counters);
        self.metrics.write()
    }

    /// Tells the policy, and what of it does not happen here, or surprises.
    fn tell(&self, what: &str) {
        for (service, promoter) in self.services.iter() {
            let options = promoter.options();
            let policy = options.to_string();
            tracing::info!(service, policy = %foreign(&policy), "{what}");
            if let Some(without) = crate::policy::without(options.policy()) {
                tracing::info!(service, "{without}");
            }
            if !options.goes_by_age() {
                let sentence =
                    "this policy may promote a region that is not full; promotion fills the rest, so processes grow";
                tracing::warn!(service, "{sentence}");
            }
        }
    }

    fn reload(&mut self, read: impl Fn() -> Result<Config, Error>) {
        self.manager.reloading();
        let new = read().and_then(|mut config| {
            config.validate()?;
            config.processes.leave_out_gone()?;
            self.services.reconfigure(config.parts()?)?;
            Ok(config)
        });
        let refused = match new {
            Ok(config) => {
                let metrics = self.config.metrics.clone();
                if config.metrics != metrics {
                    tracing::warn!("the metrics stay where they were until the daemon is started again");
                }
                self.tell("configured again");
                self.config = Config { metrics, ..config };
                None
            }
            Err(error) => {
                tracing::warn!("the configuration stays as it was: {}", foreign(&error.to_string()));
                Some(error.to_string())
            }
        };
        self.manager.reloaded(refused, &self.services.counters());
    }
}

/// Logs what a promoter has to do with, so that one with nothing to do is not taken for one that
/// works.
fn found(service: Option<&str>, counters: &Counters) {
    let Counters { watched, huge_regions: huge, candidate_regions: left, sparse_regions: sparse, .. } = *counters;
    let excluded = counters.excluded.iter().map(|(why, processes)| format!("{why} {processes}"));
    let excluded = excluded.collect::<Vec<_>>().join(", ");
    let excluded = (!excluded.is_empty()).then_some(excluded);
    let kept = |why: Why| counters.kept_regions.get(why.name());
    if watched == 0 && excluded.is_none() {
        return tracing::info!(service, "no process was looked at so far");
    }
    tracing::info!(
        service,
        processes = watched,
        excluded,
        huge,
        left,
        shared_by_fork = kept(Why::SharedByFork),
        given_back = kept(Why::GivenBack),
        sparse,
        "regions found so far"
    );
}

/// Logs what a promoter has done since then, if anything; `waiting` are the regions that each still
/// has to promote.
fn log(service: Option<&str>, promoter: &Promoter, then: Option<&Counters>, waiting: &[u64]) {
    let (now, none) = (promoter.counters(), Counters::default());
    let then = then.unwrap_or(&none);
    let (regions, left) = (now.promoted_regions.saturating_sub(then.promoted_regions), now.candidate_regions);
    let waited = |(reason, time): (&&str, &Duration)| {
        let time = time.saturating_sub(then.waited.get(*reason).copied().unwrap_or_default());
        (time >= Duration::from_secs(1)).then(|| format!("{reason} {time:.0?}"))
    };
    let waited = now.waited.iter().filter_map(waited).collect::<Vec<_>>().join(", ");
    if regions == 0 && waited.is_empty() {
        return;
    }
    let turns = in_turns(left, waiting.iter().copied());
    tracing::info!(
        service,
        regions,
        grown_bytes = now.grown_bytes.saturating_sub(then.grown_bytes),
        processes = now.watched,
        // Of several, each is charged all that the process uses.
        cpu = service.is_none().then(|| percent(now.cpu_share())),
        left = (left > 0).then_some(left),
        takes =
            now.region_cost().filter(|_| left > 0).map(|cost| format!("{:.0?}", promoter.options().takes(turns, cost))),
        waited = (!waited.is_empty()).then_some(waited),
        "promoted"
    );
}

/// For how long nothing is done where nothing is due for `rest`. A look whether something is uses
/// processor time, 0.05 ms or more, which counts: who looks each time that as much has been saved
/// never has enough for a promotion.
fn nap(rest: Duration, cpu: f64) -> Duration {
    let saved = Duration::try_from_secs_f64(SAVED.as_secs_f64() / cpu).unwrap_or(NAP);
    if rest.is_zero() { rest } else { rest.clamp(saved.min(NAP), LONGEST) }
}

/// A share for people: `0.32%`.
fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Whether something is due again; if so, it is not until later.
fn due(last: &mut Option<Instant>, every: Duration) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}

/// The lock of the one daemon that a user runs: held until the file is closed, also by a kill.
fn lock() -> Result<Lock, Error> {
    let folder = own_folder()?;
    make_folder(&folder)?;
    let path = folder.join("daemon.lock");
    loop {
        let lock = Lock::open(&path)?;
        let holder = match lock.try_lock()? {
            Tried::Held => return Ok(lock),
            Tried::Replaced => continue,
            Tried::HeldBy(pid) | Tried::SharedBy(pid) => {
                pid.map_or("another process".to_string(), |pid| format!("process {pid}"))
            }
        };
        return Err(Error::Unable(format!(
            "a daemon runs already ({holder}, by {}): end it first, or add to its configuration",
            path.display()
        )));
    }
}

/// Allows this process as many open files as it may have: it has two for each process in which
/// something may be promoted.
pub fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_saves_up_more_than_it_costs_to_wake() {
        let ms = Duration::from_millis;
        let least = Duration::from_micros(1);
        assert_eq!([0.01, 0.5, 1.0].map(|cpu| nap(least, cpu)), [NAP, ms(2), ms(1)]);
        assert_eq!((nap(ms(5), 0.5), nap(Duration::MAX, 0.5), nap(Duration::ZERO, 0.01)), (ms(5), LONGEST, ms(0)));
    }
}
