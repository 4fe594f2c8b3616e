//! What to type so that a process's memory becomes huge, by who allocates it.

use super::mapping::{Kind, Mapping};
use super::pool;
use super::process::{LITTLE, Process};
use super::reach::{Library, huge_size, library};
use super::service::Service;
use crate::launch::{Line, Part};
use crate::promote::Selected;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::rules::Rules;
use superpage_linux::settings::System;
use superpage_linux::why::Why;
use superpage_linux::{proc, program};
use superpage_output::quoted;
use superpage_report::bytes;

/// The setting for memory that a program does not ask for.
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The setting for shared memory.
const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// As many huge pages are little, whatever their share: second levels of TLBs have held the base
/// pages of 6 to 8 MB since 2015 (docs/machines.md).
const FEW: u64 = 4;
/// The share of resident memory by which it may grow without a word.
const GROWTH: f64 = 0.05;

impl Service {
    /// What to type so that more of its memory, all in `whole`, becomes huge, now and from its next
    /// start on; nothing where nothing that is known would help, or next to nothing is concerned.
    /// Reads what `/proc/PID` says of how its processes were started.
    pub fn advice(&self, whole: &Process) -> Vec<Line> {
        let selected = match self.processes.as_slice() {
            [process] => format!("--pid {}", process.pid),
            _ => self.which.iter().map(Selected::option).collect::<Vec<_>>().join(" "),
        };
        let all = resident(&whole.mappings) + self.unmapped_bytes;
        let mut lines = now(&selected, all, &whole.mappings);
        let programs = self.programs();
        let mut unmapped = self.unmapped_bytes;
        for processes in &programs {
            let mappings: Vec<Mapping> = match programs.len() {
                1 => whole.mappings.clone(),
                _ => processes.iter().flat_map(|it| &it.mappings).map(Mapping::proportional).collect(),
            };
            let origins = processes.iter().map(|process| Origin::of(process.pid));
            let started = Started::of(processes[0]);
            let origin = Origin { started, ..origins.reduce(Origin::and).unwrap_or_default() };
            // What is in no page table is of the first of them that shares memory.
            let shares = mappings.iter().any(|mapping| mapping.kind == Kind::SharedMemory);
            let here = if shares || programs.len() == 1 { std::mem::take(&mut unmapped) } else { 0 };
            // Such as the shell that started the rest.
            if ((resident(&mappings) + here) as f64) < LITTLE * all as f64 {
                continue;
            }
            let (rules, _) = Rules::of(processes[0].pid, &System::live());
            let of = |line: Line| match programs.len() {
                1 => line,
                _ => Line { does: format!("{}: {}", processes[0].named_among(&programs), line.does), ..line },
            };
            lines.extend(from_next_start((&mappings, here), &rules, &origin).into_iter().map(of));
        }
        lines
    }

    /// The processes of each program that they run: what it allocates with, and what sets that,
    /// differ. JVMs with other arguments may have other collectors. Processes whose program may not
    /// be seen are of one.
    fn programs(&self) -> Vec<Vec<&Process>> {
        let mut programs: BTreeMap<(PathBuf, Vec<String>), Vec<&Process>> = BTreeMap::new();
        for process in &self.processes {
            let file = std::fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
            let java = process.mappings.iter().any(|mapping| mapping.name.ends_with("/libjvm.so"));
            let arguments = if java { Origin::of(process.pid).arguments } else { Vec::new() };
            programs.entry((file, arguments)).or_default().push(process);
        }
        programs.into_values().collect()
    }
}

impl Process {
    /// Its name, with its number where another of these programs has that name.
    fn named_among(&self, programs: &[Vec<&Process>]) -> String {
        match programs.iter().filter(|processes| processes[0].command == self.command).count() {
            1 => self.command.clone(),
            _ => format!("{} ({})", self.command, self.pid),
        }
    }
}

fn resident(mappings: &[Mapping]) -> u64 {
    mappings.iter().map(|mapping| mapping.resident_bytes).sum()
}

/// What makes memory huge that is there, of `all` bytes.
fn now(selected: &str, all: u64, mappings: &[Mapping]) -> Vec<Line> {
    let full: u64 = mappings.iter().map(|mapping| mapping.full_bytes).sum();
    let does = format!("now, without a restart (root): {} that are full", bytes(full));
    let line = Line::new(&does, format!("superpage daemon {selected}"));
    Vec::from_iter((full > 0 && full as f64 >= LITTLE * all as f64).then_some(line))
}

/// How processes were started: what holds for all.
#[derive(Default)]
struct Origin {
    /// The systemd service that it is of.
    unit: Option<String>,
    /// `NAME=VALUE`.
    environment: Vec<String>,
    arguments: Vec<String>,
    folder: String,
    started: Started,
}

/// What a process had at its start, before it ran.
#[derive(Default)]
struct Started {
    /// The files of its code; `None` if that is not known.
    code: Option<BTreeSet<String>>,
    /// The C library of GNU, linked statically.
    static_gnu: bool,
}

impl Started {
    fn of(process: &Process) -> Started {
        let names: BTreeSet<&str> = process.mappings.iter().map(|mapping| mapping.name.as_str()).collect();
        let code = program::loaded_at_start(process.pid, &names);
        let is_static = library(names.iter().map(ToString::to_string)) == Library::Static;
        Started {
            code: code.map(|files| files.into_iter().map(String::from).collect()),
            static_gnu: is_static && program::is_static_gnu(process.pid),
        }
    }

    fn had(&self, mapping: &Mapping) -> bool {
        self.code.as_ref().is_none_or(|files| files.contains(&mapping.name))
    }
}

impl Origin {
    fn of(pid: u32) -> Origin {
        let texts = |pid: u32, name: &str| words(&proc::read(format!("/proc/{pid}/{name}")).unwrap_or_default());
        let mut arguments = texts(pid, "cmdline");
        // A process of PostgreSQL shows what it does; the options are those of the one that started
        // it.
        if arguments.first().is_some_and(|first| first.starts_with("postgres: "))
            && let Some(stat) = proc::stat(pid as i32)
        {
            arguments = texts(stat.ppid as u32, "cmdline");
        }
        Origin {
            unit: proc::read(format!("/proc/{pid}/cgroup")).ok().and_then(|text| unit(&text)),
            environment: texts(pid, "environ"),
            arguments,
            folder: std::fs::read_link(format!("/proc/{pid}/cwd")).map_or(String::new(), |at| at.display().to_string()),
            started: Started::default(),
        }
    }

    /// What also holds for others; nothing, if they are of another service.
    fn and(mut self, other: Origin) -> Origin {
        if self.unit != other.unit {
            return Origin::default();
        }
        self.environment.retain(|variable| other.environment.contains(variable));
        if self.arguments != other.arguments {
            self.arguments.clear();
        }
        if self.folder != other.folder {
            self.folder.clear();
        }
        self
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find_map(|text| text.strip_prefix(name)?.strip_prefix('='))
    }

    /// The variable that sets an option of an allocator, with what it has now; `None` if that is
    /// set.
    fn with(&self, name: &str, option: &str, between: char) -> Option<String> {
        let now = self.variable(name).filter(|now| is_plain(now));
        let key = option.split(['=', ':']).next().unwrap_or(option);
        match now {
            Some(now) if now.split(between).any(|known| known.starts_with(key)) => None,
            Some(now) if key != option => Some(format!("{name}={now}{between}{option}")),
            _ => Some(format!("{name}={option}")),
        }
    }
}

/// The words of a text in which each ends with a zero byte. Any may be empty.
fn words(text: &str) -> Vec<String> {
    text.split_terminator('\0').map(String::from).collect()
}

/// Whether a shell takes it as it is.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@/=,+".contains(c))
}

/// The systemd service in the text of `/proc/PID/cgroup`, if it has a name that needs no quotes.
fn unit(text: &str) -> Option<String> {
    let unit = text.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.ends_with(".service"))?;
    is_plain(unit).then(|| unit.to_string())
}

/// What makes memory of a program huge that it takes the next time; `unmapped` bytes of shared
/// memory are in no page table.
fn from_next_start((mappings, unmapped): (&[Mapping], u64), rules: &Rules, origin: &Origin) -> Vec<Line> {
    let all = unmapped + resident(mappings);
    let much = |bytes: u64| all > 0 && bytes as f64 >= LITTLE * all as f64;
    let of = |which: &dyn Fn(&Mapping) -> bool, whys: &[Why]| {
        let reasons = mappings.iter().filter(|mapping| which(mapping)).flat_map(|mapping| &mapping.reasons);
        let concerned = reasons.filter(|reason| whys.contains(&reason.why));
        concerned
            .fold((0, 0), |(bytes, blocks), reason| (bytes + reason.bytes, blocks + reason.blocks * huge_page_bytes()))
    };
    let concerned =
        |which: &dyn Fn(&Mapping) -> bool, whys: &[Why]| Some(of(which, whys).0).filter(|bytes| much(*bytes));
    let maps = |name: &str| mappings.iter().any(|it| it.name.rsplit('/').next().unwrap_or_default().starts_with(name));
    let anonymous = |mapping: &Mapping| mapping.kind == Kind::Anonymous;
    let shared = |mapping: &Mapping| mapping.kind == Kind::SharedMemory;
    let mut lines = Vec::new();
    let add = |lines: &mut Vec<Line>, does: &str, line: &str| lines.push(Line::new(does, line));
    let never = rules.enabled.as_deref() == Some("never");
    let huge = huge_size();
    // By who allocates.
    let mut variable = None;
    let always = rules.anonymous(huge) == Some("always");
    let mut settings = vec![Why::NotAdvised, Why::Never];
    settings.extend((!always).then_some(Why::SharedByFork));
    let (asked, whole) = of(&anonymous, &settings);
    let java = maps("libjvm.so");
    let asks = origin.arguments.iter().any(|argument| argument == "-XX:+UseTransparentHugePages");
    // What is in no page table lies as the rest of it does.
    let (buffers, _) = of(&shared, &[Why::Misaligned, Why::Never]);
    let shares = buffers > 0 && much(buffers + unmapped);
    if much(asked) && asked >= FEW * huge_page_bytes() {
        let growth = whole.saturating_sub(asked);
        let growth = if growth as f64 > GROWTH * all as f64 {
            format!("; with up to {} more memory, as blocks are not full", bytes(growth))
        } else {
            String::new()
        };
        // Of gperftools. It takes a MB at a time, so that first touches find no whole block. From a
        // pool (`TCMALLOC_MEMFS_MALLOC_PATH`) its memory would be shared with the processes that it
        // forks.
        let grows = maps("libtcmalloc");
        // V8 maps its heap itself: glibc's allocator has a small part of what node takes.
        let past = java || grows || maps("node");
        let gnu = library(mappings.iter().map(|mapping| mapping.name.clone())) == Library::Gnu;
        let gnu = (gnu || origin.started.static_gnu) && !past;
        let allocators = [
            (maps("libjemalloc.so"), "MALLOC_CONF", "thp:always", ','),
            (maps("libmimalloc.so"), "MIMALLOC_ALLOW_LARGE_OS_PAGES", "1", ','),
            (gnu, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", ':'),
        ];
        let known = allocators.into_iter().find(|(there, ..)| *there);
        variable = known.and_then(|(_, name, option, between)| origin.with(name, option, between));
        // With ZGC the heap is shared memory.
        let java = java && !asks && !shares;
        if never && (java || variable.is_some()) {
            let line = format!("echo madvise > {ENABLED}");
            add(&mut lines, "lets programs ask for huge pages (root; before what follows)", &line);
            lines.push(Line::at_boot(ENABLED, "madvise"));
        }
        if java {
            // Its collector moves objects into blocks that are not touched yet: how many, nobody
            // knows.
            let does = format!(
                "from the next start on, for the heap: at most {}; with more memory than now, as it fills blocks that \
                 it has not touched",
                bytes(asked)
            );
            add(&mut lines, &does, "java -XX:+UseTransparentHugePages ...");
        } else if let Some(variable) = &variable {
            let does =
                format!("from the next start on, for what its allocator takes: at most {}{growth}", bytes(asked));
            add(&mut lines, &does, &format!("{variable} CMD"));
        } else if grows {
            let does = "from the next start on (root), for blocks that become full: its allocator takes a MB at a time";
            add(&mut lines, does, "superpage run -p promote -- CMD");
        } else {
            // Go, or a program without a dynamic allocator; or what past it maps memory.
            let does = format!(
                "from the next start on, for at most {}, less of what grows piece by piece (root: sets the whole \
                     system meanwhile){growth}",
                bytes(asked)
            );
            add(&mut lines, &does, "superpage run -p thp -- CMD");
        }
    }
    if let Some((variable, unit)) = variable.zip(origin.unit.as_ref()) {
        let folder = format!("/etc/systemd/system/{unit}.d");
        let line = format!(
            "mkdir -p {folder} && printf '[Service]\\nEnvironment={variable}\\n' > {folder}/superpage.conf && \
             systemctl daemon-reload"
        );
        let part =
            Part { path: format!("{folder}/superpage.conf"), text: format!("[Service]\nEnvironment={variable}\n") };
        let does = "the same for the service (root; undone by removing the file)";
        lines.push(Line { file: Some(part), ..Line::new(does, line) });
    }
    // Debian's redis-server is a link to redis-check-rdb.
    if concerned(&anonymous, &[Why::Disabled]).is_some() && (maps("redis-") || maps("valkey-")) {
        let line = "redis-server --disable-thp no ...";
        add(&mut lines, "from the next start on, lets others make its memory huge (it disables that itself)", line);
    }
    if shares {
        match () {
            () if maps("postgres") => {
                lines.extend(postgresql(origin, pool::needed(mappings.iter().filter(|it| shared(it)))));
            }
            // The heap of ZGC, for which it asks where it may.
            () if java => {
                if rules.shared(huge).is_none_or(|word| word != "advise") {
                    let does = "lets programs ask for huge pages of shared memory (root; before the next start)";
                    add(&mut lines, does, &format!("echo advise > {SHMEM_ENABLED}"));
                    lines.push(Line::at_boot(SHMEM_ENABLED, "advise"));
                }
                if !asks {
                    let does = "from the next start on, for the heap, which is shared memory";
                    add(&mut lines, does, "java -XX:+UseTransparentHugePages ...");
                }
            }
            () => add(
                &mut lines,
                "from the next start on, for shared memory (root)",
                "superpage run -p thp:shared=on -- CMD",
            ),
        }
    }
    // A JVM loads its code when it runs, as others do plugins, where nobody remaps it.
    let code = |mapping: &Mapping| mapping.is_code() && origin.started.had(mapping);
    if let Some(code) = concerned(&code, &[Why::FileFolios, Why::Misaligned]).filter(|_| !java) {
        let line = if maps("postgres") {
            // It does not start as root.
            "superpage run --text -- setpriv --reuid=postgres --regid=postgres --init-groups CMD"
        } else {
            "superpage run --text -- CMD"
        };
        add(&mut lines, &format!("from the next start on, for {} of its code", bytes(code)), line);
    }
    lines
}

/// A pool for the buffers of PostgreSQL, which the server computes from its options; `now` pages
/// hold what it has mapped.
fn postgresql(origin: &Origin, now: u64) -> Vec<Line> {
    let plain = origin.arguments.len() > 1 && origin.arguments.iter().all(|argument| is_plain(argument));
    let folder = if !origin.folder.is_empty() && is_plain(&origin.folder) { &origin.folder } else { "DATA" };
    let started = if plain {
        origin.arguments.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ")
    } else {
        format!("postgres -D {folder}")
    };
    let [pool, at_boot] = pool::set_aside(now);
    // What is on its command line goes before all files.
    let set =
        origin.arguments.iter().find(|argument| argument.trim_start_matches(['-', 'c']).starts_with("huge_pages="));
    let first = set.map_or(String::new(), |set| format!(", once {} is no longer on its command line", quoted(set)));
    // Its port and the folder of its socket, so that no other server of this host is meant.
    let given = |option: &str, key: &str| {
        let next = origin.arguments.iter().skip_while(|argument| *argument != option).nth(1);
        let at_once = || origin.arguments.iter().find_map(|argument| argument.strip_prefix(option));
        let by_key = origin
            .arguments
            .iter()
            .find_map(|argument| argument.trim_start_matches(['-', 'c']).strip_prefix(key)?.strip_prefix('='));
        next.map(String::as_str).or_else(at_once).or(by_key).filter(|value| !value.is_empty())
    };
    let host = given("-k", "unix_socket_directories").map(|host| format!("-h {} ", quoted(host)));
    let port = given("-p", "port").map(|port| format!("-p {} ", quoted(port)));
    let to = host.unwrap_or_default() + &port.unwrap_or_default();
    vec![
        Line::new(
            "how many pages N its buffers need of a pool (as its own user, while it is stopped; PostgreSQL 15 or later)",
            format!("{started} -C shared_memory_size_in_huge_pages"),
        ),
        pool,
        at_boot,
        // `try` is what it does unless somebody changed that. Not `on`: where the pool is not there
        // it would not start. And not a line in a file: which one it reads, and what goes before
        // that, is the server's to know.
        Line::new(
            format!(
                "it takes the pool when it starts again{first}; if it says off here, ALTER SYSTEM SET huge_pages = try \
                 and start it once more (as its superuser; undone by ALTER SYSTEM RESET huge_pages)"
            ),
            format!("psql {to}-c 'SHOW huge_pages'"),
        ),
    ]
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
            proportional_bytes: bytes,
            pooled: Default::default(),
            populated_share: 1.0,
            swapped_bytes: 0,
            zero_bytes: 0,
            huge_bytes: 0,
            full_bytes: if why == Why::NotAdvised { bytes } else { 0 },
            folio_bytes: None,
            contiguous_bytes: None,
            advised: None,
            eligible: None,
            reasons: vec![reason],
        }
    }

    /// All lines for a service that runs one program.
    fn advice((mappings, unmapped): (&[Mapping], u64), rules: &Rules, origin: &Origin) -> Vec<Line> {
        let now = now("--pid 7", unmapped + resident(mappings), mappings);
        now.into_iter().chain(from_next_start((mappings, unmapped), rules, origin)).collect()
    }

    fn told(mappings: &[Mapping], enabled: &str, unit: Option<&str>) -> Vec<String> {
        let rules = Rules { enabled: Some(enabled.into()), ..Rules::default() };
        let origin = Origin { unit: unit.map(String::from), ..Origin::default() };
        advice((mappings, 0), &rules, &origin).into_iter().map(|line| line.line).collect()
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
            ("/usr/bin/node", "superpage run -p thp -- CMD"),
        ] {
            assert_eq!(told(&with(name), "madvise", None), [daemon, line]);
        }
        let pooled =
            told(&[&with("/usr/lib/libc.so.6")[..], &with("/usr/lib/libtcmalloc.so.4")[1..]].concat(), "madvise", None);
        assert_eq!(pooled, [daemon, "superpage run -p promote -- CMD"]);
        assert_eq!(told(&with("/usr/bin/static"), "madvise", None), [daemon, "superpage run -p thp -- CMD"]);
        let never = told(&with("/usr/lib/libc.so.6"), "never", Some("web.service"));
        assert!(never.len() == 5 && never[1].starts_with("echo madvise >"), "{never:?}");
        assert!(never[4].contains("Environment=GLIBC_TUNABLES") && never[4].contains("web.service.d/"), "{never:?}");
    }

    #[test]
    fn shared_memory_and_code_have_theirs_and_little_memory_none() {
        let buffers = mapping(Kind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 100);
        let code = mapping(Kind::File, "r-xp", "/usr/lib/postgresql/bin/postgres", Why::FileFolios, 8);
        let lines = told(&[buffers.clone(), code.clone()], "madvise", None);
        assert_eq!(lines[0], "postgres -D DATA -C shared_memory_size_in_huge_pages");
        let lines_of = postgresql(&Origin { arguments: words("postgres\0-h\0\0"), ..Origin::default() }, 1);
        assert!(words("").is_empty());
        assert_eq!(lines_of[0].line, "postgres -h '' -C shared_memory_size_in_huge_pages");
        let user = "setpriv --reuid=postgres --regid=postgres --init-groups CMD";
        assert_eq!(lines.last().unwrap(), &format!("superpage run --text -- {user}"));
        let code = mapping(Kind::File, "r-xp", "/usr/bin/node", Why::FileFolios, 8);
        assert_eq!(told(&[code], "madvise", None), ["superpage run --text -- CMD"]);
        assert_eq!(told(&[buffers], "madvise", None), ["superpage run -p thp:shared=on -- CMD"]);
        let heap = mapping(Kind::Anonymous, "rw-p", "[heap]", Why::NotAdvised, 1);
        assert!(
            told(&[heap, mapping(Kind::Anonymous, "rw-p", "", Why::NotPopulated, 100)], "madvise", None).is_empty()
        );
        let redis = mapping(Kind::Anonymous, "rw-p", "", Why::Disabled, 100);
        let program = mapping(Kind::File, "r-xp", "/usr/bin/redis-check-rdb", Why::TooSmall, 1);
        assert_eq!(told(&[redis, program], "always", None), ["redis-server --disable-thp no ..."]);
    }

    #[test]
    fn buffers_in_no_page_table_count() {
        let buffers = mapping(Kind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 1);
        let code = mapping(Kind::File, "r-xp", "/usr/bin/x", Why::TooSmall, 100);
        let told = |mappings: &[Mapping], unmapped: u64| {
            advice((mappings, unmapped << 20), &Rules::default(), &Origin::default()).len()
        };
        let both = [buffers, code.clone()];
        assert_eq!((told(&both, 0), told(&both, 100), told(&[code], 100)), (0, 1, 0));
    }

    #[test]
    fn what_is_in_force_is_not_advised_and_what_it_costs_is_said() {
        let mut heap = mapping(Kind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        (heap.full_bytes, heap.reasons[0].blocks) = (0, 500);
        let libc = mapping(Kind::File, "r-xp", "/usr/lib/libc.so.6", Why::TooSmall, 1);
        let told = |origin: &Origin| {
            let rules = Rules { enabled: Some("madvise".into()), ..Rules::default() };
            advice((&[heap.clone(), libc.clone()], 0), &rules, origin)
        };
        let lines = told(&Origin::default());
        assert_eq!(lines.len(), 1, "nothing is full: {lines:?}");
        assert!(lines[0].does.contains("up to 900 MB more memory"), "{lines:?}");
        // Full blocks that four processes share since a fork need no more memory.
        let mut forked = mapping(Kind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        forked.proportional_bytes /= 4;
        let whole: Vec<Mapping> = (0..4).map(|_| forked.proportional()).chain([libc.clone()]).collect();
        let rules = Rules { enabled: Some("madvise".into()), ..Rules::default() };
        let lines = advice((&whole, 0), &rules, &Origin::default());
        let heap = lines.iter().find(|line| line.line.starts_with("GLIBC_TUNABLES")).unwrap();
        assert!(heap.does.ends_with("at most 100 MB"), "{}", heap.does);
        let with = |text: &str| Origin { environment: vec![text.into()], ..Origin::default() };
        let lines = told(&with("GLIBC_TUNABLES=glibc.malloc.check=1"));
        assert_eq!(lines[0].line, "GLIBC_TUNABLES=glibc.malloc.check=1:glibc.malloc.hugetlb=1 CMD");
        let lines = told(&with("GLIBC_TUNABLES=glibc.malloc.hugetlb=1"));
        assert_eq!(lines[0].line, "superpage run -p thp -- CMD", "what its allocator takes is huge");
    }

    #[test]
    fn the_heap_of_a_jvm_may_be_shared_memory() {
        let heap = mapping(Kind::SharedMemory, "rw-s", "/memfd:java_heap (deleted)", Why::Never, 400);
        let other = mapping(Kind::Anonymous, "rw-p", "", Why::NotAdvised, 20);
        let mappings = [heap, other, mapping(Kind::File, "r-xp", "/opt/jdk/lib/server/libjvm.so", Why::TooSmall, 1)];
        let of = |word: &str, argument: &str| {
            let rules = Rules { shmem_enabled: Some(word.into()), ..Rules::default() };
            let origin = Origin { arguments: vec!["java".into(), argument.into()], ..Origin::default() };
            let lines = from_next_start((&mappings, 0), &rules, &origin).into_iter().map(|line| line.line);
            lines.collect::<Vec<_>>()
        };
        let java = "java -XX:+UseTransparentHugePages ...";
        let lines = of("never", "-XX:+UseZGC");
        assert_eq!(lines.iter().filter(|line| *line == java).count(), 1, "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("echo advise > ")), "{lines:?}");
        let lines = of("advise", "-XX:+UseTransparentHugePages");
        assert!(!lines.iter().any(|line| line == java || line.starts_with("echo")), "{lines:?}");
    }

    #[test]
    fn the_buffers_of_postgresql_are_computed_from_its_options() {
        let arguments = ["postgres", "-D", "/srv/data", "-c", "shared_buffers=256MB"].map(String::from).to_vec();
        let origin = Origin { arguments, folder: "/srv/data".into(), ..Origin::default() };
        let lines = postgresql(&origin, 1);
        let first = "postgres -D /srv/data -c shared_buffers=256MB -C shared_memory_size_in_huge_pages";
        assert_eq!((lines[0].line.as_str(), lines.len()), (first, 4));
        assert!(
            lines[3].does.starts_with("it takes the pool when it starts again; if it says off"),
            "{}",
            lines[3].does
        );
        assert_eq!(lines[3].line, "psql -c 'SHOW huge_pages'");
        let to = |arguments: &[&str]| {
            let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
            postgresql(&Origin { arguments, ..Origin::default() }, 1)[3].line.clone()
        };
        let line = "psql -h /srv/run -p 7932 -c 'SHOW huge_pages'";
        assert_eq!(to(&["postgres", "-D", "/srv/data", "-p", "7932", "-k", "/srv/run"]), line);
        assert_eq!(to(&["postgres", "-cport=7932", "-k/srv/run"]), line);
        assert_eq!(to(&["postgres", "-c", "port=7932"]), "psql -p 7932 -c 'SHOW huge_pages'");
        for off in ["huge_pages=off", "-chuge_pages=off", "--huge_pages=off"] {
            let arguments = ["postgres", "-c", off].map(String::from).to_vec();
            let lines = postgresql(&Origin { arguments, ..Origin::default() }, 1);
            assert!(lines[3].does.contains(&format!(", once {off} is no longer")), "{}", lines[3].does);
        }
        let odd = Origin { arguments: vec!["postgres".into(), "-D$(reboot)".into()], ..origin };
        assert_eq!(postgresql(&odd, 1)[0].line, "postgres -D /srv/data -C shared_memory_size_in_huge_pages");
    }

    #[test]
    fn advice_is_for_all_that_it_is_of() {
        let origin = |unit: &str, option: &str| Origin {
            unit: Some(unit.into()),
            environment: vec!["LANG=C".into(), format!("OPTION={option}")],
            arguments: vec!["server".into(), option.into()],
            folder: "/srv".into(),
            started: Started::default(),
        };
        let both = |one: Origin, other: Origin| {
            let Origin { unit, environment, arguments, folder, .. } = one.and(other);
            (unit, environment.len(), arguments.len(), folder)
        };
        let web = || origin("web.service", "a");
        assert_eq!(both(web(), web()), (Some("web.service".into()), 2, 2, "/srv".into()));
        assert_eq!(both(web(), origin("web.service", "b")), (Some("web.service".into()), 1, 0, "/srv".into()));
        assert_eq!(both(web(), origin("db.service", "a")), (None, 0, 0, String::new()));
    }

    #[test]
    fn a_service_is_told_by_its_control_group() {
        assert_eq!(unit("0::/system.slice/redis-server.service\n").as_deref(), Some("redis-server.service"));
        assert_eq!(unit("1:name=systemd:/user.slice\n0::/system.slice/a@b.service\n").as_deref(), Some("a@b.service"));
        assert_eq!(unit("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(unit("0::/system.slice/$(reboot).service\n"), None);
    }
}
