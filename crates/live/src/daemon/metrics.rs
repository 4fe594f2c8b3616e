//! The daemon's counters as text for Prometheus: on an HTTP endpoint, and in a file for the node
//! exporter.

use super::config::MetricsConfig;
use super::endpoint::{Endpoint, PATIENCE};
use super::services::Counted;
use crate::promote::Counters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use superpage_linux::Error;
use superpage_linux::cpu::process_cpu;
use superpage_output::{Output, explain};

/// The type of the text.
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counters as last updated, and where they are published.
pub struct Metrics {
    shared: Arc<Shared>,
    file: Option<PathBuf>,
    endpoint: Option<Endpoint>,
}

/// What the endpoint's thread and the daemon's share: the counters, and the CPU time of the process
/// at that moment, so that the parts never add up to more.
#[derive(Debug)]
struct Shared(Mutex<(Vec<Counted>, Duration)>);

impl Shared {
    fn now(counters: Vec<Counted>) -> (Vec<Counted>, Duration) {
        (counters, process_cpu(std::process::id() as i32).unwrap_or_default())
    }
}

impl Metrics {
    /// Opens the endpoint and checks the file, if there are any.
    ///
    /// # Errors
    /// The address cannot be used, or the file cannot be written.
    pub fn start(config: &MetricsConfig, counters: Vec<Counted>) -> Result<Metrics, Error> {
        let shared = Arc::new(Shared(Mutex::new(Shared::now(counters))));
        let published = Arc::clone(&shared);
        let endpoint = config
            .listen
            .map(|address| Endpoint::open(address, CONTENT, PATIENCE, move || render(&published)))
            .transpose()?;
        let metrics = Metrics { shared, file: config.file.clone(), endpoint };
        metrics.write()?;
        Ok(metrics)
    }

    /// The address of the endpoint.
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Replaces the published counters.
    pub fn update(&self, counters: Vec<Counted>) {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = Shared::now(counters);
    }

    /// Writes the file, if there is one: a reader sees the old or the new contents completely, see
    /// [`Output`].
    ///
    /// # Errors
    /// [`Error::Usage`] if its place cannot take it, as a missing folder; else [`Error::File`].
    pub fn write(&self) -> Result<(), Error> {
        let Some(path) = &self.file else { return Ok(()) };
        // It would be waited for who reads it, and nothing promoted meanwhile.
        if std::fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
            let shown = path.display();
            return Err(Error::Usage(format!(
                "{shown} is a pipe, which takes no metrics: name a file, or give an address"
            )));
        }
        let mut output =
            Output::create(path).map_err(|error| Error::Usage(Error::file("write", path)(error).to_string()))?;
        let written = output.write_all(render(&self.shared).as_bytes()).and_then(|()| output.commit());
        written.map_err(|error| Error::file("write", path)(explain(error)))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("file", &self.file).field("address", &self.address()).finish_non_exhaustive()
    }
}

fn render(shared: &Arc<Shared>) -> String {
    let mut registry = Registry::with_prefix("superpage");
    registry.register_collector(Box::new(Arc::clone(shared)));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes all that is written");
    out
}

impl Collector for Shared {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counted, used) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = counted.as_slice();
        let out = &mut encoder;
        sum(out, of, "promoted_bytes", "Bytes that became huge pages", |c| c.promoted_bytes() as f64)?;
        sum(out, of, "promoted_regions", "Regions that became huge pages", |c| c.promoted_regions as f64)?;
        sum(out, of, "grown_bytes", "Bytes that promotion populated", |c| c.grown_bytes as f64)?;
        sum(out, of, "changed", "Candidates left alone: their population had changed", |c| c.changed as f64)?;
        sum(out, of, "shared", "Candidates left alone: others share their pages", |c| c.shared as f64)?;
        sum(out, of, "no_room", "Candidates left alone: too little memory would be left", |c| c.no_room as f64)?;
        sum(out, of, "calls", "Calls that promote", |c| c.calls as f64)?;
        sum(out, of, "scans", "Scans of a process", |c| c.scans as f64)?;
        sum(out, of, "quiet_scans", "Scans that found a process unchanged", |c| c.quiet_scans as f64)?;
        let help = "Pauses of 0.1 s or more of a process that promotion had slowed";
        sum(out, of, "backoffs", help, |c| c.backoffs as f64)?;
        let help = "Pauses of processes that promotion had slowed, all together";
        sum(out, of, "backoff_seconds", help, |c| c.paused.as_secs_f64())?;
        sum(out, of, "memory_backoffs", "Pauses because no free huge page could be had", |c| c.memory_backoffs as f64)?;
        sum(out, of, "pressure_backoffs", "Pauses because tasks waited for memory", |c| c.pressure_backoffs as f64)?;
        let help = "Time for which promotion waited in at least one process, by reason";
        let waited =
            |c: &Counters| c.waited.iter().map(|(why, time)| (*why, ConstCounter::new(time.as_secs_f64()))).collect();
        by(out, of, ("throttled_seconds", help), "by", waited)?;
        // Of the whole daemon.
        let whole: Vec<Counted> = of.first().map(|(_, first)| (None, first.clone())).into_iter().collect();
        each(out, &whole, "cpu_seconds", "CPU time used", |_| Some(ConstCounter::new(used.as_secs_f64())))?;
        sum(out, of, "scan_cpu_seconds", "CPU time used in looks and scans", |c| c.scan_cpu.as_secs_f64())?;
        sum(out, of, "promote_cpu_seconds", "CPU time used in promotions", |c| c.promote_cpu.as_secs_f64())?;
        // All that is left, so that the parts add up to the total.
        let parts: Duration = of.iter().map(|(_, counters)| counters.scan_cpu + counters.promote_cpu).sum();
        let other = used.saturating_sub(parts).as_secs_f64();
        let help = "CPU time used by the daemon's start, its waking, metrics and log: the rest of the total";
        each(out, &whole, "other_cpu_seconds", help, |_| Some(ConstCounter::new(other)))?;
        let refused = |c: &Counters| c.refused.iter().map(|(why, n)| (*why, ConstCounter::new(*n))).collect();
        by(out, of, ("refused_regions", "Regions that the kernel did not promote"), "reason", refused)?;
        now(out, of, "watched_processes", "Processes that are watched", |c| c.watched)?;
        now(out, &whole, "region_bytes", "Bytes in a region", |c| c.region_bytes)?;
        now(out, of, "huge_regions", "Regions of the watched that are huge pages", |c| c.huge_regions)?;
        let help = "Regions of the watched that are populated to the share";
        now(out, of, "candidate_regions", help, |c| c.candidate_regions)?;
        let help = "Regions of the watched that are populated below the share";
        now(out, of, "sparse_regions", help, |c| c.sparse_regions)?;
        let help = "CPU time that the kernel took to promote a region in the mean";
        let cost = |c: &Counters| c.region_cost().map(|cost| ConstGauge::new(cost.as_secs_f64()));
        each(out, of, "region_cost_seconds", help, cost)?;
        let gauges = |of: &BTreeMap<&'static str, u64>| {
            of.iter().map(|(why, n)| (*why, ConstGauge::new(*n as i64))).collect::<Vec<_>>()
        };
        let help = "Processes that are left alone";
        by(out, of, ("excluded_processes", help), "reason", |c| gauges(&c.excluded))?;
        let help = "Resident bytes in which nothing is promoted, by the reason as inspect has it";
        by(out, of, ("left_alone_bytes", help), "reason", |c| gauges(&c.left))
    }
}

/// A counter of each service.
fn sum(
    out: &mut DescriptorEncoder<'_>,
    counted: &[Counted],
    name: &str,
    help: &str,
    of: fn(&Counters) -> f64,
) -> fmt::Result {
    each(out, counted, name, help, |counters| Some(ConstCounter::new(of(counters))))
}

/// What is so now with each service.
fn now(
    out: &mut DescriptorEncoder<'_>,
    counted: &[Counted],
    name: &str,
    help: &str,
    of: fn(&Counters) -> u64,
) -> fmt::Result {
    each(out, counted, name, help, |counters| Some(ConstGauge::new(of(counters) as i64)))
}

/// A value of each service that has one.
fn each<M: EncodeMetric>(
    out: &mut DescriptorEncoder<'_>,
    counted: &[Counted],
    name: &str,
    help: &str,
    of: impl Fn(&Counters) -> Option<M>,
) -> fmt::Result {
    let values = counted.iter().filter_map(|(service, counters)| Some((service, of(counters)?)));
    let values: Vec<_> = values.collect();
    let Some((_, first)) = values.first() else { return Ok(()) };
    let mut family = out.encode_descriptor(name, help, None, first.metric_type())?;
    for (service, value) in &values {
        match service {
            Some(service) => value.encode(family.encode_family(&[("service", service.as_str())])?)?,
            None => return value.encode(family),
        }
    }
    Ok(())
}

/// Values of each service by `key`.
fn by<M: EncodeMetric + Default>(
    out: &mut DescriptorEncoder<'_>,
    counted: &[Counted],
    (name, help): (&str, &str),
    key: &str,
    of: impl Fn(&Counters) -> Vec<(&'static str, M)>,
) -> fmt::Result {
    let mut family: MetricEncoder<'_> = out.encode_descriptor(name, help, None, M::default().metric_type())?;
    for (service, counters) in counted {
        for (reason, value) in of(counters) {
            let mut labels = vec![(key, reason)];
            labels.extend(service.as_deref().map(|service| ("service", service)));
            value.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::net::TcpStream;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::Path;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_place_that_takes_no_file_is_bad_usage() {
        let folder = tempfile::tempdir().unwrap();
        let start = |file| Metrics::start(&MetricsConfig { listen: None, file: Some(file) }, Vec::new());
        for file in [folder.path().join("none/superpage.prom"), folder.path().to_path_buf()] {
            let error = start(file).unwrap_err();
            assert!(error.status() == 2 && error.to_string().starts_with("cannot write "), "{error}");
        }
    }

    #[test]
    fn the_endpoint_and_the_file_tell_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("superpage.prom");
        let config = MetricsConfig { listen: Some("127.0.0.1:0".parse().unwrap()), file: Some(file.clone()) };
        let mut counters = Counters { region_bytes: 2 << 20, ..Counters::default() };
        let metrics = Metrics::start(&config, vec![(None, counters.clone())]).unwrap();
        counters.promoted_regions = 3;
        counters.collapse_cpu = std::time::Duration::from_millis(6);
        counters.refused.insert("busy", 2);
        counters.excluded.insert("kernel", 70);
        counters.waited.insert("cpu", std::time::Duration::from_secs(4));
        metrics.update(vec![(None, counters.clone())]);
        metrics.write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in [
            "superpage_promoted_bytes_total 6291456",
            "superpage_refused_regions_total{reason=\"busy\"} 2",
            "superpage_region_cost_seconds 0.002",
            "superpage_throttled_seconds_total{by=\"cpu\"} 4",
            "superpage_excluded_processes{reason=\"kernel\"} 70",
            "# TYPE superpage_promoted_regions counter",
        ] {
            assert!(text.lines().any(|found| found.trim_end_matches(".0") == line), "{line} is not in {text}");
        }
        let of = |service: &str| (Some(service.to_string()), counters.clone());
        metrics.update(vec![of("a.service"), of("b")]);
        metrics.write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        for line in [
            "superpage_promoted_bytes_total{service=\"a.service\"} 6291456",
            "superpage_promoted_bytes_total{service=\"b\"} 6291456",
            "superpage_refused_regions_total{reason=\"busy\",service=\"b\"} 2",
            "superpage_region_bytes 2097152",
        ] {
            assert!(text.lines().any(|found| found.trim_end_matches(".0") == line), "{line} is not in {text}");
        }
        let address = metrics.address().unwrap();
        let answer = get(address, "/metrics");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("superpage_region_bytes 2097152"), "{answer}");
        assert!(get(address, "/").starts_with("HTTP/1.1 404"));
        let taken = MetricsConfig { listen: Some(address), file: None };
        assert_eq!(Metrics::start(&taken, Vec::new()).unwrap_err().status(), 1);
        let nowhere = MetricsConfig { listen: None, file: Some(folder.path().join("no/such")) };
        assert!(Metrics::start(&nowhere, Vec::new()).unwrap_err().to_string().contains("no/such"));
        drop(metrics);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written is left");
    }

    fn told_in(file: &Path) -> Result<Metrics, Error> {
        Metrics::start(&MetricsConfig { listen: None, file: Some(file.into()) }, Vec::new())
    }

    #[test]
    fn a_device_and_a_link_stay_what_they_are() {
        let full = Path::new("/dev/full");
        // By a link, so that a fault here costs no device.
        let folder = tempfile::tempdir().unwrap();
        let (device, link, file) =
            (folder.path().join("device"), folder.path().join("link"), folder.path().join("file"));
        symlink(full, &device).unwrap();
        symlink(&file, &link).unwrap();
        assert!(told_in(&device).unwrap_err().to_string().starts_with("cannot write "));
        told_in(&link).unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(told_in(&pipe).unwrap_err().to_string().contains("is a pipe"));
        assert!(device.is_symlink() && link.is_symlink() && !full.is_file());
        assert!(fs::read_to_string(&file).unwrap().ends_with("# EOF\n"));
    }

    #[test]
    fn a_file_keeps_its_mode_and_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("superpage.prom");
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut reader = fs::File::open(&file).unwrap();
        told_in(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "before", "who had it open sees no half of the new one");
    }

    #[test]
    fn what_another_user_planted_is_refused() {
        if !rustix::process::geteuid().is_root() {
            superpage_testing::skip!("root", "only root can act as another user");
            return;
        }
        const NOBODY: u32 = 65534;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let file = folder.path().join("superpage.prom");
        fs::write(&file, "nobody's").unwrap();
        chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        assert!(told_in(&file).unwrap_err().to_string().contains("belongs to user 65534"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "nobody's");
    }
}
