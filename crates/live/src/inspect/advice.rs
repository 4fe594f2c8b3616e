//! What to type so that a process's memory becomes huge, by who allocates it.

use super::mapping::{Kind, Mapping};
use super::process::Process;
use super::reach::{Library, library};
use superpage_linux::proc;
use superpage_linux::rules::Rules;
use superpage_linux::why::Why;

/// A line that can be typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What it does, as a phrase.
    pub does: String,
    /// The line; CMD stands for the command of the process.
    pub line: String,
}

/// The share of resident memory below which nothing is said of it.
const LITTLE: f64 = 0.02;

impl Process {
    /// What to type so that more of its memory becomes huge, now and from its next start on;
    /// nothing where nothing that is known would help, or next to nothing is concerned. Reads
    /// `/proc/PID/cgroup`.
    pub fn advice(&self) -> Vec<Line> {
        let unit = proc::read(format!("/proc/{}/cgroup", self.pid)).ok().and_then(|text| unit(&text));
        advice(self.pid, &self.mappings, &Rules::read(), unit.as_deref())
    }
}

/// The systemd service in the text of `/proc/PID/cgroup`, if it has a name that needs no quotes.
fn unit(text: &str) -> Option<String> {
    let unit = text.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.ends_with(".service"))?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    unit.chars().all(plain).then(|| unit.to_string())
}

fn advice(pid: u32, mappings: &[Mapping], rules: &Rules, unit: Option<&str>) -> Vec<Line> {
    let all: u64 = mappings.iter().map(|mapping| mapping.resident_bytes).sum();
    let concerned = |of: &dyn Fn(&Mapping) -> bool, whys: &[Why]| {
        let reasons = mappings.iter().filter(|mapping| of(mapping)).flat_map(|mapping| &mapping.reasons);
        let bytes: u64 = reasons.filter(|reason| whys.contains(&reason.why)).map(|reason| reason.bytes).sum();
        all > 0 && bytes as f64 >= LITTLE * all as f64
    };
    let maps = |name: &str| mappings.iter().any(|it| it.name.rsplit('/').next().unwrap_or_default().starts_with(name));
    let anonymous = |mapping: &Mapping| mapping.kind == Kind::Anonymous;
    let shared = |mapping: &Mapping| mapping.kind == Kind::SharedMemory;
    let code = |mapping: &Mapping| mapping.kind == Kind::File && mapping.permissions.contains('x');
    let mut lines = Vec::new();
    let mut add = |does: &str, line: &str| lines.push(Line { does: does.into(), line: line.into() });
    let asks = concerned(&anonymous, &[Why::NotAdvised, Why::Never]);
    if asks || concerned(&shared, &[Why::NotAdvised]) {
        add("now, whatever is full, without a restart (root)", &format!("superpage daemon --pid {pid}"));
    }
    let never = rules.enabled.as_deref() == Some("never");
    // From the next start on, by who allocates.
    let mut variable = None;
    if asks {
        let java = maps("libjvm.so");
        variable =
            [("libjemalloc.so", "MALLOC_CONF=thp:always"), ("libmimalloc.so", "MIMALLOC_ALLOW_LARGE_OS_PAGES=1")]
                .into_iter()
                .find_map(|(name, variable)| maps(name).then_some(variable));
        let gnu = library(mappings.iter().map(|mapping| mapping.name.clone())) == Library::Gnu;
        variable = variable.or((gnu && !java).then_some("GLIBC_TUNABLES=glibc.malloc.hugetlb=1"));
        if never && (java || variable.is_some()) {
            let line = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
            add("lets programs ask for huge pages (root; before what follows)", line);
        }
        if java {
            add("from the next start on, for the heap", "java -XX:+UseTransparentHugePages ...");
        }
        if let Some(variable) = variable {
            add("from the next start on, for what its allocator takes", &format!("{variable} CMD"));
        }
    }
    if let Some((variable, unit)) = variable.zip(unit) {
        let line = format!(
            "mkdir -p /etc/systemd/system/{unit}.d && printf '[Service]\\nEnvironment={variable}\\n' > \
             /etc/systemd/system/{unit}.d/superpage.conf && systemctl daemon-reload"
        );
        add("the same for the service (root; undone by removing the file)", &line);
    }
    if concerned(&anonymous, &[Why::Disabled]) && (maps("redis-server") || maps("valkey-server")) {
        let line = "redis-server --disable-thp no ...";
        add("from the next start on, lets others make its memory huge (it disables that itself)", line);
    }
    if concerned(&shared, &[Why::Misaligned, Why::Never]) {
        match maps("postgres") {
            true => {
                add(
                    "how many pages its buffers need of a pool (while it is stopped; PostgreSQL 15 or later)",
                    "postgres -D DATA -C shared_memory_size_in_huge_pages",
                );
                add(
                    "sets that pool aside (root), and uses it from the next start on",
                    "sysctl vm.nr_hugepages=N; huge_pages = on in postgresql.conf",
                );
            }
            false => add("from the next start on, for shared memory (root)", "superpage run -p thp:shared=on -- CMD"),
        }
    }
    if concerned(&code, &[Why::FileFolios, Why::Misaligned]) {
        add("from the next start on, for its code", "superpage run --text -- CMD");
    }
    lines
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use superpage_linux::scan;
    use superpage_linux::why::{Part, Reason};

    pub(in crate::inspect) fn mapping(kind: Kind, permissions: &str, name: &str, why: Why, megabytes: u64) -> Mapping {
        let bytes = megabytes << 20;
        let reason = Reason::of(why, scan::Kind::Anonymous, Part::of_bytes(bytes, 2 << 20), 2 << 20, &Rules::default());
        Mapping {
            start: 0,
            end: bytes,
            permissions: permissions.into(),
            name: name.into(),
            kind,
            size_bytes: bytes,
            resident_bytes: bytes,
            populated_share: 1.0,
            swapped_bytes: 0,
            zero_bytes: 0,
            huge_bytes: 0,
            folio_bytes: None,
            contiguous_bytes: None,
            advised: None,
            eligible: None,
            reasons: vec![reason],
        }
    }

    fn told(mappings: &[Mapping], enabled: &str, unit: Option<&str>) -> Vec<String> {
        let rules = Rules { enabled: Some(enabled.into()), ..Rules::default() };
        advice(7, mappings, &rules, unit).into_iter().map(|line| line.line).collect()
    }

    #[test]
    fn each_allocator_has_its_own_line() {
        let heap = || mapping(Kind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        let with = |name: &str| vec![heap(), mapping(Kind::File, "r-xp", name, Why::TooSmall, 1)];
        let daemon = "superpage daemon --pid 7";
        for (name, line) in [
            ("/usr/lib/libc.so.6", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 CMD"),
            ("/usr/lib/libjemalloc.so.2", "MALLOC_CONF=thp:always CMD"),
            ("/opt/jdk/lib/server/libjvm.so", "java -XX:+UseTransparentHugePages ..."),
        ] {
            assert_eq!(told(&with(name), "madvise", None), [daemon, line]);
        }
        assert_eq!(told(&with("/usr/bin/static"), "madvise", None), [daemon]);
        let never = told(&with("/usr/lib/libc.so.6"), "never", Some("web.service"));
        assert!(never.len() == 4 && never[1].starts_with("echo madvise >"), "{never:?}");
        assert!(never[3].contains("Environment=GLIBC_TUNABLES") && never[3].contains("web.service.d/"), "{never:?}");
    }

    #[test]
    fn shared_memory_and_code_have_theirs_and_little_memory_none() {
        let buffers = mapping(Kind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 100);
        let code = mapping(Kind::File, "r-xp", "/usr/lib/postgresql/bin/postgres", Why::FileFolios, 8);
        let lines = told(&[buffers.clone(), code.clone()], "madvise", None);
        assert!(lines[0].contains("shared_memory_size_in_huge_pages"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "superpage run --text -- CMD");
        assert_eq!(told(&[buffers], "madvise", None), ["superpage run -p thp:shared=on -- CMD"]);
        let heap = mapping(Kind::Anonymous, "rw-p", "[heap]", Why::NotAdvised, 1);
        assert!(
            told(&[heap, mapping(Kind::Anonymous, "rw-p", "", Why::NotPopulated, 100)], "madvise", None).is_empty()
        );
        let redis = mapping(Kind::Anonymous, "rw-p", "", Why::Disabled, 100);
        let program = mapping(Kind::File, "r-xp", "/usr/bin/redis-server", Why::TooSmall, 1);
        assert_eq!(told(&[redis, program], "always", None), ["redis-server --disable-thp no ..."]);
    }

    #[test]
    fn a_service_is_told_by_its_control_group() {
        assert_eq!(unit("0::/system.slice/redis-server.service\n").as_deref(), Some("redis-server.service"));
        assert_eq!(unit("1:name=systemd:/user.slice\n0::/system.slice/a@b.service\n").as_deref(), Some("a@b.service"));
        assert_eq!(unit("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(unit("0::/system.slice/$(reboot).service\n"), None);
    }
}
