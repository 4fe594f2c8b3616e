//! What to type to have a policy without measuring it again.

use crate::policy::Plan;
use superpage_linux::settings::System;

/// A line that can be typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What it does, as a phrase.
    pub does: String,
    /// The line; CMD stands for a command, PID for a process.
    pub line: String,
    /// The part of a file that the line makes, if it makes one.
    pub file: Option<Part>,
}

/// A part of a file of this system's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where the file belongs.
    pub path: String,
    /// Its lines.
    pub text: String,
}

impl Line {
    /// A line and what it does.
    pub fn new(does: impl Into<String>, line: impl Into<String>) -> Line {
        Line { does: does.into(), line: line.into(), file: None }
    }

    /// One that has a setting of the kernel set at each boot.
    pub(crate) fn at_boot(path: &str, value: &str) -> Line {
        let (file, text) = ("/etc/tmpfiles.d/superpage.conf", format!("w {path} - - - - {value}"));
        let does = "for all programs, from the next boot on (root; undone by removing the file's line)";
        let file_part = Part { path: file.into(), text: text.clone() + "\n" };
        Line { file: Some(file_part), ..Line::new(does, format!("echo '{text}' >> {file}")) }
    }
}

/// The folder of settings of transparent huge pages.
const THP: &str = "sys/kernel/mm/transparent_hugepage/";

impl Plan {
    /// What to type for a `command`, a service, or the whole system; nothing for the system as it
    /// is. Settings that have the wanted value are left out. Reads them.
    pub fn lines(&self, system: &System, command: &str) -> Vec<Line> {
        let policy = &self.policy;
        if policy.to_string() == crate::Policy::NAMES[0] {
            return Vec::new();
        }
        // Only a shell takes variables in front of a command.
        let env = if command.split(' ').next().is_some_and(|word| word.contains('=')) { "env " } else { "" };
        let mut lines = vec![Line::new("for one command", format!("superpage run -p '{policy}' -- {env}{command}"))];
        if let Some(value) = self.malloc {
            let does = match value {
                2 => "the same from its allocator alone, where the system has a pool (vm.nr_overcommit_hugepages)",
                _ => "the same from its allocator alone, without superpage",
            };
            lines.push(Line::new(does, format!("GLIBC_TUNABLES=glibc.malloc.hugetlb={value} {command}")));
        }
        if policy.live().background.is_some() && !self.fixed {
            let does = "for a service that runs already (root)";
            lines.push(Line::new(does, format!("superpage daemon --policy '{policy}' --pid PID")));
        }
        // What a pool takes is gone for all others: how large it should be, nobody has measured.
        let settings = self.settings.iter().filter(|wanted| !wanted.brief && wanted.setting.starts_with(THP));
        let changed = settings.filter(|wanted| system.get(&wanted.setting).is_ok_and(|now| now != wanted.value));
        for wanted in changed {
            let (path, value) = (system.path(&wanted.setting).display().to_string(), &wanted.value);
            lines.push(Line::new("for all programs, until the next boot (root)", format!("echo {value} > {path}")));
            lines.push(Line::at_boot(&path, value));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_at_boot_is_a_line_of_systemd() {
        let Line { line, file, .. } = Line::at_boot("/sys/kernel/mm/x", "always");
        let part = file.unwrap();
        assert_eq!(
            (part.path.as_str(), part.text.as_str()),
            ("/etc/tmpfiles.d/superpage.conf", "w /sys/kernel/mm/x - - - - always\n")
        );
        assert_eq!(line, "echo 'w /sys/kernel/mm/x - - - - always' >> /etc/tmpfiles.d/superpage.conf");
    }
}
