//! What makes memory of a program huge that it takes when it is started again.

use super::super::mapping::{Mapping, MappingKind};
use super::super::pool;
use super::super::process::LITTLE;
use super::super::reach::huge_size;
use super::allocator::{Allocator, asks, is_java, maps};
use super::origin::Origin;
use super::{ENABLED, FEW, GROWTH, SHMEM_ENABLED, postgresql, resident};
use crate::launch::{Line, Part};
use superpage_linux::pagemap::huge_page_bytes;
use superpage_linux::rules::Rules;
use superpage_linux::why::Why;
use superpage_report::bytes;

/// A program: its mappings, `unmapped` bytes of shared memory that are in no page table, the rules
/// in force for it, and how it was started.
pub(super) struct NextStart<'a> {
    pub(super) mappings: &'a [Mapping],
    pub(super) unmapped: u64,
    pub(super) rules: &'a Rules,
    pub(super) origin: &'a Origin,
}

impl NextStart<'_> {
    pub(super) fn lines(&self) -> Vec<Line> {
        let mut lines = self.private();
        // Debian's redis-server is a link to redis-check-rdb.
        let redis = maps(self.mappings, "redis-") || maps(self.mappings, "valkey-");
        if redis && self.is_much(self.sum(is_anonymous, &[Why::Disabled]).0) {
            let does = "from the next start on, lets others make its memory huge (it disables that itself)";
            lines.push(Line::new(does, "redis-server --disable-thp no ..."));
        }
        if self.shares() {
            lines.extend(self.shared());
        }
        lines.extend(self.code());
        lines
    }

    fn is_much(&self, bytes: u64) -> bool {
        let all = self.unmapped + resident(self.mappings);
        all > 0 && bytes as f64 >= LITTLE * all as f64
    }

    /// The bytes of such mappings that are in base pages for one of these reasons, and of the
    /// blocks of a huge page's size in which they lie.
    fn sum(&self, which: impl Fn(&Mapping) -> bool, whys: &[Why]) -> (u64, u64) {
        let reasons = self.mappings.iter().filter(|mapping| which(mapping)).flat_map(|mapping| &mapping.reasons);
        let concerned = reasons.filter(|reason| whys.contains(&reason.why));
        concerned
            .fold((0, 0), |(bytes, blocks), reason| (bytes + reason.bytes, blocks + reason.blocks * huge_page_bytes()))
    }

    /// Whether shared memory could be huge. What is in no page table lies as the rest of it does.
    fn shares(&self) -> bool {
        let (buffers, _) = self.sum(is_shared, &[Why::Misaligned, Why::Never]);
        buffers > 0 && self.is_much(buffers + self.unmapped)
    }

    /// For private memory, by what takes it.
    fn private(&self) -> Vec<Line> {
        let always = self.rules.anonymous(huge_size()) == Some("always");
        let mut whys = vec![Why::NotAdvised, Why::Never];
        whys.extend((!always).then_some(Why::SharedByFork));
        let (asked, whole) = self.sum(is_anonymous, &whys);
        if !self.is_much(asked) || asked < FEW * huge_page_bytes() {
            return Vec::new();
        }
        let (most, growth) = (bytes(asked), whole.saturating_sub(asked));
        let growth = if growth as f64 > GROWTH * (self.unmapped + resident(self.mappings)) as f64 {
            format!("; with up to {} more memory, as blocks are not full", bytes(growth))
        } else {
            String::new()
        };
        let mut lines = Vec::new();
        let allocator = Allocator::of(self.mappings, self.origin, self.shares());
        let by_asking = matches!(allocator, Allocator::Java | Allocator::Variable(_));
        if by_asking && self.rules.enabled.as_deref() == Some("never") {
            let does = "lets programs ask for huge pages (root; before what follows)";
            lines.push(Line::new(does, format!("echo madvise > {ENABLED}")));
            lines.push(Line::at_boot(ENABLED, "madvise"));
        }
        lines.push(match &allocator {
            // Its collector moves objects into blocks that are not touched yet: how many, nobody
            // knows.
            Allocator::Java => Line::new(
                format!(
                    "from the next start on, for the heap: at most {most}; with more memory than now, as it fills \
                     blocks that it has not touched"
                ),
                JAVA,
            ),
            Allocator::Variable(variable) => Line::new(
                format!("from the next start on, for what its allocator takes: at most {most}{growth}"),
                format!("{variable} CMD"),
            ),
            Allocator::Tcmalloc => Line::new(
                "from the next start on (root), for blocks that become full: its allocator takes a MB at a time",
                "superpage run -p promote -- CMD",
            ),
            Allocator::Other => Line::new(
                format!(
                    "from the next start on, for at most {most}, less of what grows piece by piece (root: sets the \
                     whole system meanwhile){growth}"
                ),
                "superpage run -p thp -- CMD",
            ),
        });
        if let (Allocator::Variable(variable), Some(unit)) = (&allocator, &self.origin.unit) {
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
        lines
    }

    fn shared(&self) -> Vec<Line> {
        if maps(self.mappings, "postgres") {
            let shared = self.mappings.iter().filter(|mapping| is_shared(mapping));
            let mut lines = postgresql::without_pool(self.origin, self.rules.shared(huge_size()));
            lines.extend(postgresql::with_pool(self.origin, pool::needed(shared)));
            return lines;
        }
        if !is_java(self.mappings) {
            let does = "from the next start on, for shared memory (root)";
            return vec![Line::new(does, "superpage run -p thp:shared=on -- CMD")];
        }
        // The heap of ZGC, for which it asks where it may.
        let mut lines = Vec::new();
        if self.rules.shared(huge_size()).is_none_or(|word| word != "advise") {
            let does = "lets programs ask for huge pages of shared memory (root; before the next start)";
            lines.push(Line::new(does, format!("echo advise > {SHMEM_ENABLED}")));
            lines.push(Line::at_boot(SHMEM_ENABLED, "advise"));
        }
        if !asks(self.origin) {
            lines.push(Line::new("from the next start on, for the heap, which is shared memory", JAVA));
        }
        lines
    }

    /// For code. A JVM loads its code when it runs, as others do plugins, where nobody remaps it.
    fn code(&self) -> Option<Line> {
        let code = |mapping: &Mapping| mapping.is_code() && self.origin.code_at_start.had(mapping);
        let (code, _) = self.sum(code, &[Why::FileFolios, Why::Misaligned]);
        if !self.is_much(code) || is_java(self.mappings) {
            return None;
        }
        let line = if maps(self.mappings, "postgres") {
            // It does not start as root.
            "superpage run --text -- setpriv --reuid=postgres --regid=postgres --init-groups CMD"
        } else {
            "superpage run --text -- CMD"
        };
        Some(Line::new(format!("from the next start on, for {} of its code", bytes(code)), line))
    }
}

const JAVA: &str = "java -XX:+UseTransparentHugePages ...";

fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.kind == MappingKind::Anonymous
}

fn is_shared(mapping: &Mapping) -> bool {
    mapping.kind == MappingKind::SharedMemory
}
