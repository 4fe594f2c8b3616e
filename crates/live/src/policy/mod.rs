//! The policies that a live Linux supports, one file each: what a policy sets, what it did, and why
//! it did nothing. To add one takes the file, its `mod` and its line in `LIVE`; one that the
//! simulator does not have also has its definition, and a line in [`LINUX`], in `target.rs`.

mod base;
mod found;
mod hugetlb;
mod mthp;
mod now;
mod plan;
mod promote;
mod text;
mod thp;

pub use found::{Aim, Did, Found, part};
pub use plan::Plan;
pub(crate) use plan::{AS_SET, DISABLED, MALLOC, Wanted, set_thp_disabled};
pub use promote::{too_short, without};
pub(crate) use thp::switch;

use crate::promote::{Options, Work};
pub use crate::target::{LINUX, OF_COMMAND};
use std::fmt;
use std::str::FromStr;
use superpage_linux::Error;
use superpage_linux::settings::{HUGETLB_POOL, SHMEM_ENABLED, System, THP_ENABLED};
use superpage_linux::text::Way;
use superpage_pages::{Bytes, Count, PageSize};
use superpage_report::Screen;
use superpage_vm::{Given, Parameter, Sizes};

/// A policy for the pages of a command: a name, or a name with parameters, such as `mthp:size=64K`,
/// `hugetlb:pool=2G` or `thp:malloc=on`.
#[derive(Clone, Debug)]
pub struct Policy {
    common: superpage_vm::Policy,
    live: Live,
}

/// All that is particular to a live policy. Who runs one asks this, and not for its name.
#[derive(Clone, Debug)]
pub struct Live {
    /// Adds what the policy needs on a system to a plan, and changes nothing.
    pub(crate) plan: fn(&Policy, &mut Plan, &System) -> Result<(), Error>,
    /// What it did to a program, compared with the reference.
    pub did: fn(&Policy, &Found) -> Did,
    /// The part of a program's memory that it aims at; `None` if that is code, or nothing.
    pub aim: Option<Aim>,
    /// The sizes of the folios that it is about, which are then counted.
    pub folios: Option<Sizes>,
    /// How it places the command's code: such a command must be passed to
    /// [`text::prepare`](superpage_linux::text::prepare) before it is started, and
    /// [`text::place`](superpage_linux::text::place) then lets it run.
    pub way: Option<Way>,
    /// What its promoter runs while the command does.
    pub background: Option<Options>,
    /// Its text, if that also names parameters that are as their defaults.
    text: Option<String>,
}

impl Default for Live {
    /// Changes nothing, and is about huge pages.
    fn default() -> Live {
        let (plan, did, aim) = (|_: &_, _: &mut _, _: &_| Ok(()), found::more_huge, Some(Aim::Huge));
        Live { plan, did, aim, folios: None, way: None, background: None, text: None }
    }
}

/// The name of a policy, and what is particular to it.
type Known = (&'static str, fn(&Given) -> Live);

/// The live policies. Any other is its background.
static LIVE: [Known; 6] = [
    ("now", now::live),
    ("base", base::live),
    ("thp", thp::live),
    ("mthp", mthp::live),
    ("hugetlb", hugetlb::live),
    ("text", text::live),
];

impl Policy {
    /// The policies that are compared if none is named.
    pub const NAMES: [&str; 6] = ["now", "base", "thp", "mthp:size=64K", "hugetlb", "promote"];

    /// What is particular to it.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// A table of all policies and parameters, for the help text.
    pub fn help() -> String {
        let lines = |mark: &str, text: &str| Screen::of(Screen::DEFAULT).hanging(mark, text);
        let line = |Parameter { name, values, default, help, .. }: &Parameter| {
            let otherwise = if default.is_empty() { String::new() } else { format!("; {default} if not given") };
            lines(&format!("    :{:<15} ", format!("{name}={values}")), &format!("{help}{otherwise}"))
        };
        let mut text = String::new();
        for definition in LINUX.policies() {
            text += &lines(&format!("  {:<18} ", definition.name), definition.help);
            LINUX.parameters(definition).for_each(|parameter| text += &line(parameter));
        }
        text += "  all that promote, such as promote or ingens, also have\n";
        LINUX.limits.iter().for_each(|parameter| text += &line(parameter));
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
    fn try_from(common: superpage_vm::Policy) -> Result<Policy, Error> {
        let own = LIVE.iter().find(|(name, _)| *name == common.definition().name);
        let live = match own {
            Some((_, live)) => live(common.given()),
            None => promote::live(Options::of(common.clone())?),
        };
        Ok(Policy { common, live })
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        self.common == other.common
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.live.text {
            Some(text) => f.write_str(text),
            None => self.common.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use superpage_vm::{Answers, Definition, Made, Need};
    use superpage_vm::{Background, System, Time};

    #[test]
    fn what_is_written_is_read_back() {
        let own = [
            "thp:malloc=on,shared=on",
            "mthp:size=64K+2M",
            "hugetlb:pool=512M",
            "promote:share=0.9,age=5s",
            "text:way=file",
        ];
        // A plan is one with its file.
        let named = LINUX.policies().map(|policy| policy.name).filter(|name| *name != "plan");
        for text in own.into_iter().chain(Policy::NAMES).chain(named) {
            let written = text.parse::<Policy>().unwrap().to_string();
            assert_eq!(written, if text == "mthp" { "mthp:size=64K" } else { text });
        }
    }

    #[test]
    fn an_error_names_what_there_is() {
        let error = "reservation".parse::<Policy>().unwrap_err();
        let begins = "policy reservation needs control over page faults, which a live Linux does not have; a live Linux has \
                      now, text, base, thp, mthp, hugetlb, promote, ";
        assert!(error.status() == 2 && error.to_string().starts_with(begins), "{error}");
        let of = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
        assert!(of("plan").contains("as in plan:file=FILE"), "{}", of("plan"));
        assert!(of("pro\nmote").starts_with(r"no policy is named `pro\nmote`"), "{}", of("pro\nmote"));
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
        let policy = Policy::try_from(superpage_vm::Policy::of(&OWN, [], &LINUX).unwrap()).unwrap();
        assert_eq!((policy.to_string().as_str(), policy.live().background.is_some()), ("own", true));
    }
}
