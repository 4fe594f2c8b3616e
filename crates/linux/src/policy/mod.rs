//! The policies that a live Linux supports, with the names that the simulator also uses.
//!
//! A policy is written as a name, or a name with parameters: `mthp:size=64K`, `hugetlb:pool=2G`, `thp:malloc=on`.

mod hugetlb;
mod now;
mod text;

use crate::Error;
use crate::promote;
use crate::text::Way;
use std::fmt;
use std::str::FromStr;
use superpage_vm::{Need, Parameter, Sizes, Target};

/// A policy for the pages of a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Policy {
    /// The system as it is: no setting is changed, and the command's environment is this process's.
    Now,
    /// Base pages only: transparent huge pages are disabled for the command.
    Base,
    /// Transparent huge pages wherever the command's memory allows them.
    Thp {
        /// Only where the C library's allocator asks for them, and not by the system-wide setting.
        malloc: bool,
        /// Shared memory too, within its size: by a setting of the whole system that decides when memory is mapped.
        shared: bool,
    },
    /// Folios of these sizes for all anonymous memory.
    Mthp {
        /// The folio sizes, of those that the kernel offers.
        sizes: Sizes,
    },
    /// Pages of hugetlb for the C library's allocator.
    Hugetlb {
        /// The pool to set aside, in bytes. `None`: pages are allocated while the command runs, up to what memory
        /// allows.
        pool: Option<u64>,
    },
    /// Base pages, and the background of a policy that promotes while the command runs.
    Promote(promote::Options),
    /// Base pages, and huge pages for the program's code.
    Text {
        /// How the code is placed there.
        way: Way,
    },
}

/// A live Linux as a target of policies.
pub const LINUX: Target = Target {
    name: "a live Linux",
    has: &[Need::Settings, Need::Copying],
    own: &[&now::POLICY, &hugetlb::POLICY, &text::POLICY],
};

impl Policy {
    /// The policies that are compared if none is named.
    pub const NAMES: [&str; 6] = ["now", "base", "thp", "mthp:size=64K", "hugetlb", "promote"];

    /// The policy's name without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Now => "now",
            Policy::Base => "base",
            Policy::Thp { .. } => "thp",
            Policy::Mthp { .. } => "mthp",
            Policy::Hugetlb { .. } => "hugetlb",
            Policy::Promote(options) => options.policy().definition().name,
            Policy::Text { .. } => "text",
        }
    }

    /// A table of all policies and parameters, for the help text.
    pub fn help() -> String {
        let mut text = String::new();
        for definition in LINUX.policies() {
            text += &format!("  {:<18} {}\n", definition.name, definition.help);
            for parameter in LINUX.parameters(definition) {
                let Parameter { name, values, default, help, .. } = parameter;
                let otherwise = if default.is_empty() { String::new() } else { format!("; {default} if not given") };
                text += &format!("    :{:<15} {help}{otherwise}\n", format!("{name}={values}"));
            }
        }
        text
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Policy, Error> {
        superpage_vm::Policy::parse(text, &LINUX).map_err(|error| Error::Usage(error.to_string()))?.try_into()
    }
}

impl TryFrom<superpage_vm::Policy> for Policy {
    type Error = Error;

    /// The live form of a policy whose needs are met: its settings, or its background.
    fn try_from(policy: superpage_vm::Policy) -> Result<Policy, Error> {
        let (name, given) = (policy.definition().name, policy.given());
        Ok(match name {
            "now" => Policy::Now,
            "base" => Policy::Base,
            "thp" => Policy::Thp { malloc: given.is_on("malloc"), shared: given.is_on("shared") },
            "mthp" => Policy::Mthp { sizes: given.sizes("size") },
            "hugetlb" => Policy::Hugetlb { pool: given.number("pool") },
            "text" => Policy::Text { way: given.word("way").parse()? },
            _ => Policy::Promote(promote::Options::of(policy)?),
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Policy::Promote(options) = self {
            return options.fmt(f);
        }
        f.write_str(self.name())?;
        match self {
            Policy::Thp { malloc, shared } => {
                let on = [("malloc", *malloc), ("shared", *shared)].into_iter().filter(|(_, on)| *on);
                let on: Vec<String> = on.map(|(name, _)| format!("{name}=on")).collect();
                if on.is_empty() { Ok(()) } else { write!(f, ":{}", on.join(",")) }
            }
            Policy::Mthp { sizes } => write!(f, ":size={sizes}"),
            Policy::Hugetlb { pool: Some(bytes) } => {
                let (shift, letter) = [(30, "G"), (20, "M"), (10, "K"), (0, "")]
                    .into_iter()
                    .find(|(shift, _)| bytes.trailing_zeros() >= *shift)
                    .expect("a shift of nothing always fits");
                write!(f, ":pool={}{letter}", bytes >> shift)
            }
            Policy::Text { way } if *way != Way::Remap => write!(f, ":way={way}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_vm::{Answers, Background, Definition, Made, System, Time};

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "now",
            "base",
            "thp",
            "thp:malloc=on",
            "thp:malloc=on,shared=on",
            "mthp:size=64K",
            "mthp:size=2M",
            "mthp:size=64K+2M",
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
    fn an_error_names_what_there_is() {
        let sentence = |text: &str| match text.parse::<Policy>() {
            Err(error @ Error::Usage(_)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            sentence("reservation"),
            "policy reservation needs control over page faults, which a live Linux does not have; a live Linux has \
             now, hugetlb, text, base, thp, mthp, promote, khugepaged, ingens"
        );
        assert_eq!(sentence("mthp:bytes=1"), "policy mthp has no parameter `bytes`; its parameters: size=SIZE+SIZE...");
        assert_eq!(sentence("base:x=1"), "policy base has no parameter `x`; its parameters: none");
        assert_eq!(
            sentence("mthp:size=65K"),
            "policy mthp: size is a page size, or several, such as 64K or 64K+2M, not `65K`"
        );
        assert_eq!(sentence("thp:malloc"), "policy thp: `malloc` should read key=value, as in thp:key=value,key=value");
        assert_eq!(sentence("hugetlb:pool=0"), "policy hugetlb: pool is a size of memory such as 512M, not `0`");
    }

    #[test]
    fn a_policy_of_ones_own_is_its_background() {
        #[derive(Debug)]
        struct Idle;
        impl Background for Idle {
            fn next(&self) -> Option<Time> {
                None
            }
            fn tick(&mut self, _: Time, _: &mut dyn System) {}
        }
        static OWN: Definition = Definition {
            name: "own",
            paper: "",
            help: "does nothing",
            parameters: &[],
            needs: &[Need::Copying],
            make: |_| Made::with(Answers::BASE, Idle),
        };
        let own = superpage_vm::Policy::of(&OWN, [], &LINUX).unwrap();
        let policy = Policy::try_from(own.clone()).unwrap();
        assert_eq!(
            (policy.to_string().as_str(), &policy),
            ("own", &Policy::Promote(promote::Options::of(own).unwrap()))
        );
    }

    #[test]
    fn every_policy_that_needs_no_more_is_there() {
        for definition in LINUX.policies() {
            definition.name.parse::<Policy>().unwrap();
        }
    }
}
