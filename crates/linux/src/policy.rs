//! The policies that a live Linux can carry out, by the names that the simulator uses too.
//!
//! A policy is written as a name, or a name with parameters: `mthp:size=64K`, `hugetlb:pool=2G`, `thp:malloc=on`.

use crate::Error;
use crate::promote;
use crate::text::Way;
use std::fmt;
use std::str::FromStr;
use superpage_pages::{PageSize, parse_bytes};

/// What gives pages to a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Policy {
    /// The system as it is: no setting is changed, and the command's environment is this process's.
    Now,
    /// Base pages only: transparent huge pages are switched off for the command.
    Base,
    /// Transparent huge pages wherever the command's memory allows them.
    Thp {
        /// Only where the C library's allocator asks for them, and not by the switch for the whole system.
        malloc: bool,
    },
    /// Folios of one size for all anonymous memory.
    Mthp {
        /// The size of the folios, one of those that the kernel offers.
        size: PageSize,
    },
    /// Pages of hugetlb for the C library's allocator.
    Hugetlb {
        /// The pool to set aside, in bytes. `None`: pages are taken while the command runs, up to what memory allows.
        pool: Option<u64>,
    },
    /// Base pages, and a promoter that makes populated and settled regions huge while the command runs.
    Promote(promote::Options),
    /// Base pages, and huge ones for the program's code.
    Text {
        /// How the code comes to lie there.
        way: Way,
    },
}

/// A policy as its users have to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Its parameters with their values, each with a line of help.
    pub parameters: &'static [(&'static str, &'static str)],
}

/// All policies.
pub const POLICIES: [Described; 7] = [
    Described { name: "now", help: "the system as it is: nothing is changed", parameters: &[] },
    Described {
        name: "base",
        help: "only base pages, also where the program asks for more, for the command alone",
        parameters: &[],
    },
    Described {
        name: "thp",
        help: "transparent huge pages everywhere (a setting of the whole system)",
        parameters: &[("malloc=on|off", "only where the C library's allocator asks for them, for the command alone")],
    },
    Described {
        name: "mthp",
        help: "folios of one size everywhere (a setting of the whole system)",
        parameters: &[("size=SIZE", "of the folios; 64K if not given")],
    },
    Described {
        name: "hugetlb",
        help: "hugetlb pages for the C library's allocator",
        parameters: &[("pool=SIZE", "set aside before the command starts; else pages are taken as it runs")],
    },
    Described {
        name: "promote",
        help: "base pages, and huge ones where all is populated and settled, for the command alone",
        parameters: &[
            ("share=SHARE", "of a region's pages that have to be populated; 1 if not given"),
            ("age=TIME", "for which the population has not changed; 2s"),
            ("cpu=SHARE", "of one core that promoting may use over time; 0.01"),
            ("burst=TIME", "of a core that may be saved up and used at once; 100ms"),
            ("interval=TIME", "between two looks at a process that changes; 1s"),
            ("idle=TIME", "between two looks at one that does not, at most; 10s"),
            ("slowdown=SHARE", "of a process's speed that promotion may cost it; 0.02"),
            ("batch=REGIONS", "in one call; 4"),
            ("shared=on|off", "whether memory files are promoted too; on"),
        ],
    },
    Described {
        name: "text",
        help: "base pages, and huge ones for the program's code, for the command alone",
        parameters: &[(
            "way=WAY",
            "remap (a copy; if not given), file (its pages in the cache, where they stay) or auto",
        )],
    },
];

impl Policy {
    /// The policies that are compared where none is named.
    pub const NAMES: [&str; 6] = ["now", "base", "thp", "mthp:size=64K", "hugetlb", "promote"];

    /// The policy's name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Now => "now",
            Policy::Base => "base",
            Policy::Thp { .. } => "thp",
            Policy::Mthp { .. } => "mthp",
            Policy::Hugetlb { .. } => "hugetlb",
            Policy::Promote(_) => "promote",
            Policy::Text { .. } => "text",
        }
    }

    /// A table of all policies and parameters, for a help text.
    pub fn help() -> String {
        let mut text = String::new();
        for Described { name, help, parameters } in POLICIES {
            text += &format!("  {name:<18} {help}\n");
            for (parameter, help) in parameters {
                text += &format!("    :{parameter:<15} {help}\n");
            }
        }
        text
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy, Error> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let Some(Described { name, parameters: known, .. }) = POLICIES.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
            return Err(Error::Usage(format!(
                "no policy of a live system is called `{name}`; they are {}",
                names.join(", ")
            )));
        };
        let mut values = Vec::new();
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if !known.iter().any(|(known, _)| known.split('=').next() == Some(key)) {
                let known: Vec<&str> = known.iter().map(|(parameter, _)| *parameter).collect();
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(Error::Usage(format!("policy {name} has no parameter `{key}`; its parameters: {known}")));
            }
            values.push((key, value));
        }
        // The last one counts where a parameter is given twice.
        let value = |key: &str| values.iter().rev().find(|(given, _)| *given == key).map(|(_, value)| *value);
        let bad = |key: &str, what: &str| Error::Usage(format!("policy {name}: {key} is {what}"));
        Ok(match *name {
            "now" => Policy::Now,
            "base" => Policy::Base,
            "thp" => match value("malloc") {
                None | Some("off") => Policy::Thp { malloc: false },
                Some("on") => Policy::Thp { malloc: true },
                Some(other) => return Err(bad("malloc", &format!("on or off, not `{other}`"))),
            },
            "mthp" => {
                let size = value("size").unwrap_or("64K");
                let size = size.parse().map_err(|_| bad("size", &format!("a page size such as 64K, not `{size}`")))?;
                Policy::Mthp { size }
            }
            "promote" => Policy::Promote(parameters.parse()?),
            "text" => Policy::Text { way: value("way").map_or(Ok(Way::Remap), str::parse)? },
            _ => {
                let bytes = |pool| match parse_bytes(pool) {
                    Ok(bytes) if bytes > 0 => Ok(bytes),
                    _ => Err(bad("pool", &format!("a size of memory such as 512M, not `{pool}`"))),
                };
                Policy::Hugetlb { pool: value("pool").map(bytes).transpose()? }
            }
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Policy::Thp { malloc: true } => f.write_str(":malloc=on"),
            Policy::Mthp { size } => write!(f, ":size={size}"),
            Policy::Hugetlb { pool: Some(bytes) } => {
                let (shift, letter) = [(30, "G"), (20, "M"), (10, "K"), (0, "")]
                    .into_iter()
                    .find(|(shift, _)| bytes.trailing_zeros() >= *shift)
                    .expect("a shift of nothing always fits");
                write!(f, ":pool={}{letter}", bytes >> shift)
            }
            Policy::Text { way } if *way != Way::Remap => write!(f, ":way={way}"),
            Policy::Promote(options) => match options.to_string() {
                changed if changed.is_empty() => Ok(()),
                changed => write!(f, ":{changed}"),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "now",
            "base",
            "thp",
            "thp:malloc=on",
            "mthp:size=64K",
            "mthp:size=2M",
            "hugetlb",
            "hugetlb:pool=512M",
            "promote",
            "promote:share=0.9,age=5s",
            "text",
            "text:way=file",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("mthp".parse::<Policy>().unwrap().to_string(), "mthp:size=64K");
        assert_eq!("hugetlb:pool=1536".parse::<Policy>().unwrap().to_string(), "hugetlb:pool=1536");
        for name in Policy::NAMES {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn the_help_tells_every_parameter_of_the_promoter() {
        let promote = POLICIES.iter().find(|policy| policy.name == "promote").unwrap();
        let keys: Vec<&str> =
            promote.parameters.iter().map(|(parameter, _)| parameter.split('=').next().unwrap()).collect();
        assert_eq!(keys, promote::Options::KEYS);
    }

    #[test]
    fn an_error_names_what_there_is() {
        let sentence = |text: &str| match text.parse::<Policy>() {
            Err(error @ Error::Usage(_)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            sentence("reservation"),
            "no policy of a live system is called `reservation`; they are now, base, thp, mthp, hugetlb, promote, text"
        );
        assert_eq!(sentence("mthp:bytes=1"), "policy mthp has no parameter `bytes`; its parameters: size=SIZE");
        assert_eq!(sentence("base:x"), "policy base has no parameter `x`; its parameters: none");
        assert_eq!(sentence("mthp:size=65K"), "policy mthp: size is a page size such as 64K, not `65K`");
        assert_eq!(sentence("thp:malloc"), "policy thp: malloc is on or off, not ``");
        assert_eq!(sentence("hugetlb:pool=0"), "policy hugetlb: pool is a size of memory such as 512M, not `0`");
    }
}
