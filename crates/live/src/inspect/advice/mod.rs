//! What to type so that a process's memory becomes huge, by who allocates it.

mod allocator;
mod next_start;
mod origin;
mod postgresql;

use self::allocator::is_java;
use self::next_start::NextStart;
use self::origin::{CodeAtStart, Origin};
use super::mapping::{Mapping, MappingKind};
use super::process::{LITTLE, Process};
use super::service::Service;
use crate::launch::Line;
use crate::promote::Selected;
use std::collections::BTreeMap;
use std::path::PathBuf;
use superpage_linux::rules::Rules;
use superpage_linux::settings::System;
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
            let code_at_start = CodeAtStart::of(processes[0]);
            let origin = Origin { code_at_start, ..origins.reduce(Origin::and).unwrap_or_default() };
            // What is in no page table is of the first of them that shares memory.
            let shares = mappings.iter().any(|mapping| mapping.kind == MappingKind::SharedMemory);
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
            let next = NextStart { mappings: &mappings, unmapped: here, rules: &rules, origin: &origin };
            lines.extend(next.lines().into_iter().map(of));
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
            let arguments = if is_java(&process.mappings) { Origin::of(process.pid).arguments } else { Vec::new() };
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

#[cfg(test)]
pub(super) mod tests {
    use super::origin::{unit, words};
    use super::*;
    use superpage_linux::scan;
    use superpage_linux::why::{Part, Reason, Why};

    pub(in crate::inspect) fn mapping(
        kind: MappingKind,
        permissions: &str,
        name: &str,
        why: Why,
        megabytes: u64,
    ) -> Mapping {
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
            exclusive: Default::default(),
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
        now.into_iter().chain(NextStart { mappings, unmapped, rules, origin }.lines()).collect()
    }

    fn told(mappings: &[Mapping], enabled: &str, unit: Option<&str>) -> Vec<String> {
        let rules = Rules { enabled: Some(enabled.into()), ..Rules::default() };
        let origin = Origin { unit: unit.map(String::from), ..Origin::default() };
        advice((mappings, 0), &rules, &origin).into_iter().map(|line| line.line).collect()
    }

    #[test]
    fn each_allocator_has_its_own_line() {
        let heap = || mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        let with = |name: &str| vec![heap(), mapping(MappingKind::File, "r-xp", name, Why::TooSmall, 1)];
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
        let buffers = mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 100);
        let code = mapping(MappingKind::File, "r-xp", "/usr/lib/postgresql/bin/postgres", Why::FileFolios, 8);
        let lines = told(&[buffers.clone(), code.clone()], "madvise", None);
        assert_eq!(lines[0], "postgres -D DATA -C shared_memory_size_in_huge_pages");
        let lines_of = postgresql::with_pool(&Origin { arguments: words("postgres\0-h\0\0"), ..Origin::default() }, 1);
        assert!(words("").is_empty());
        assert_eq!(lines_of[0].line, "postgres -h '' -C shared_memory_size_in_huge_pages");
        let user = "setpriv --reuid=postgres --regid=postgres --init-groups CMD";
        assert_eq!(lines.last().unwrap(), &format!("superpage run --text -- {user}"));
        let code = mapping(MappingKind::File, "r-xp", "/usr/bin/node", Why::FileFolios, 8);
        assert_eq!(told(&[code], "madvise", None), ["superpage run --text -- CMD"]);
        assert_eq!(told(&[buffers], "madvise", None), ["superpage run -p thp:shared=on -- CMD"]);
        let heap = mapping(MappingKind::Anonymous, "rw-p", "[heap]", Why::NotAdvised, 1);
        assert!(
            told(&[heap, mapping(MappingKind::Anonymous, "rw-p", "", Why::NotPopulated, 100)], "madvise", None)
                .is_empty()
        );
        let redis = mapping(MappingKind::Anonymous, "rw-p", "", Why::Disabled, 100);
        let program = mapping(MappingKind::File, "r-xp", "/usr/bin/redis-check-rdb", Why::TooSmall, 1);
        assert_eq!(told(&[redis, program], "always", None), ["redis-server --disable-thp no ..."]);
    }

    #[test]
    fn buffers_in_no_page_table_count() {
        let buffers = mapping(MappingKind::SharedMemory, "rw-s", "/dev/zero", Why::Misaligned, 1);
        let code = mapping(MappingKind::File, "r-xp", "/usr/bin/x", Why::TooSmall, 100);
        let told = |mappings: &[Mapping], unmapped: u64| {
            advice((mappings, unmapped << 20), &Rules::default(), &Origin::default()).len()
        };
        let both = [buffers, code.clone()];
        assert_eq!((told(&both, 0), told(&both, 100), told(&[code], 100)), (0, 1, 0));
    }

    #[test]
    fn what_is_in_force_is_not_advised_and_what_it_costs_is_said() {
        let mut heap = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
        (heap.full_bytes, heap.reasons[0].blocks) = (0, 500);
        let libc = mapping(MappingKind::File, "r-xp", "/usr/lib/libc.so.6", Why::TooSmall, 1);
        let told = |origin: &Origin| {
            let rules = Rules { enabled: Some("madvise".into()), ..Rules::default() };
            advice((&[heap.clone(), libc.clone()], 0), &rules, origin)
        };
        let lines = told(&Origin::default());
        assert_eq!(lines.len(), 1, "nothing is full: {lines:?}");
        assert!(lines[0].does.contains("up to 900 MB more memory"), "{lines:?}");
        // Full blocks that four processes share since a fork need no more memory.
        let mut forked = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 100);
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
        let heap = mapping(MappingKind::SharedMemory, "rw-s", "/memfd:java_heap (deleted)", Why::Never, 400);
        let other = mapping(MappingKind::Anonymous, "rw-p", "", Why::NotAdvised, 20);
        let mappings =
            [heap, other, mapping(MappingKind::File, "r-xp", "/opt/jdk/lib/server/libjvm.so", Why::TooSmall, 1)];
        let of = |word: &str, argument: &str| {
            let rules = Rules { shmem_enabled: Some(word.into()), ..Rules::default() };
            let origin = Origin { arguments: vec!["java".into(), argument.into()], ..Origin::default() };
            let next = NextStart { mappings: &mappings, unmapped: 0, rules: &rules, origin: &origin };
            let lines = next.lines().into_iter().map(|line| line.line);
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
        let lines = postgresql::with_pool(&origin, 1);
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
            postgresql::with_pool(&Origin { arguments, ..Origin::default() }, 1)[3].line.clone()
        };
        let line = "psql -h /srv/run -p 7932 -c 'SHOW huge_pages'";
        assert_eq!(to(&["postgres", "-D", "/srv/data", "-p", "7932", "-k", "/srv/run"]), line);
        assert_eq!(to(&["postgres", "-cport=7932", "-k/srv/run"]), line);
        assert_eq!(to(&["postgres", "-c", "port=7932"]), "psql -p 7932 -c 'SHOW huge_pages'");
        for off in ["huge_pages=off", "-chuge_pages=off", "--huge_pages=off"] {
            let arguments = ["postgres", "-c", off].map(String::from).to_vec();
            let lines = postgresql::with_pool(&Origin { arguments, ..Origin::default() }, 1);
            assert!(lines[3].does.contains(&format!(", once {off} is no longer")), "{}", lines[3].does);
        }
        let odd = Origin { arguments: vec!["postgres".into(), "-D$(reboot)".into()], ..origin };
        assert_eq!(postgresql::with_pool(&odd, 1)[0].line, "postgres -D /srv/data -C shared_memory_size_in_huge_pages");
    }

    #[test]
    fn advice_is_for_all_that_it_is_of() {
        let origin = |unit: &str, option: &str| Origin {
            unit: Some(unit.into()),
            environment: vec!["LANG=C".into(), format!("OPTION={option}")],
            arguments: vec!["server".into(), option.into()],
            folder: "/srv".into(),
            code_at_start: CodeAtStart::default(),
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
