//! What the operating system does: the answers to the questions that every system of superpages must answer.
//!
//! The mechanisms exist once, elsewhere in this crate; a policy only chooses among them.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// Which frames does a fault take?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// One base page, wherever one is free.
    BasePage,
    /// The page's frame in a reservation of the preferred size (Navarro et al., sections 4.1, 4.2).
    Reservation,
}

/// When does a region become a superpage?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promote {
    /// Never: the allocations of the policy without their benefit (section 6.6, "overhead in practice").
    Never,
    /// As soon as it is fully populated, size by size, in place (section 4.5).
    FullPopulation,
}

/// In which objects must the dirty bits of a region agree before it is promoted (section 4.9)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dirty {
    /// In file objects. A page of an anonymous object has no other copy, so that it must be written out with or without
    /// a dirty bit, and nothing is lost with the bit.
    Files,
    /// In all objects, as in the paper. There the bit is emulated, so that the first write to each page faults and the
    /// promotion is tried again; where the hardware sets it, a region of pages that were read first may stay as it is.
    All,
    /// In none.
    Nowhere,
}

/// What if no extent of the preferred size is free (section 4.3)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scarce {
    /// Take a smaller one. Only a fault that would find not even a base page preempts.
    Smaller,
    /// Preempt the reservation whose most recent page allocation occurred least recently.
    Preempt,
}

/// What becomes of the partially populated pieces of a preempted reservation (section 4.8)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pieces {
    /// They are reservations, at the head of the list that is right for them.
    Keep,
    /// They are broken too: every unused frame is freed at once (as in later FreeBSD).
    Free,
}

/// How far is a superpage demoted of which a part must change (section 4.6)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demote {
    /// To the next smaller size, and so on only for the superpages that hold an edge of the part.
    Stepwise,
    /// To base pages at once.
    ToBase,
}

/// A policy: an answer to each question. Make one by name, then change answers by [`Policy::set`] or by field.
///
/// Two questions have one answer so far, and no field: a fault populates the page, and nothing is reclaimed from those who
/// use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Which frames a fault takes.
    pub place: Place,
    /// Whether a reservation in a growing object is at most as large as the object is now (section 4.2).
    pub growing_limit: bool,
    /// Whether a reservation in a growing object may reach past the object's end (section 4.2).
    pub past_end: bool,
    /// When a region becomes a superpage.
    pub promote: Promote,
    /// Where dirty bits must agree for that.
    pub dirty: Dirty,
    /// What happens when no extent of the preferred size is free.
    pub scarce: Scarce,
    /// What becomes of preempted pieces.
    pub pieces: Pieces,
    /// How superpages are demoted.
    pub demote: Demote,
    /// Whether a superpage is demoted, all of it and as `demote` says, before it is unmapped: the three demotions of
    /// section 6.6. Otherwise it is removed in one piece.
    pub demote_on_unmap: bool,
}

/// A parameter of a policy, as users write it.
pub struct Key {
    /// The name.
    pub name: &'static str,
    /// The valid values.
    pub values: &'static [&'static str],
    /// One line of help.
    pub help: &'static str,
    set: fn(&mut Policy, usize),
}

const SWITCH: &[&str] = &["on", "off"];

static KEYS: [Key; 9] = [
    Key {
        name: "place",
        values: &["base", "reservation"],
        help: "frames that a fault takes: one base page, or its page in a reservation of the preferred size",
        set: |policy, value| policy.place = [Place::BasePage, Place::Reservation][value],
    },
    Key {
        name: "growing-limit",
        values: SWITCH,
        help: "a reservation in a growing object is at most as large as the object",
        set: |policy, value| policy.growing_limit = value == 0,
    },
    Key {
        name: "past-end",
        values: SWITCH,
        help: "a reservation in a growing object may reach past the object's end",
        set: |policy, value| policy.past_end = value == 0,
    },
    Key {
        name: "promote",
        values: &["full", "never"],
        help: "when a region becomes a superpage",
        set: |policy, value| policy.promote = [Promote::FullPopulation, Promote::Never][value],
    },
    Key {
        name: "dirty",
        values: &["files", "all", "nowhere"],
        help: "objects in which dirty bits must agree before a region becomes a superpage",
        set: |policy, value| policy.dirty = [Dirty::Files, Dirty::All, Dirty::Nowhere][value],
    },
    Key {
        name: "preempt",
        values: SWITCH,
        help: "preempt a reservation rather than take a smaller extent",
        set: |policy, value| policy.scarce = [Scarce::Preempt, Scarce::Smaller][value],
    },
    Key {
        name: "pieces",
        values: &["keep", "free"],
        help: "partially populated pieces of a preempted reservation stay reserved, or are broken up too",
        set: |policy, value| policy.pieces = [Pieces::Keep, Pieces::Free][value],
    },
    Key {
        name: "stepwise",
        values: SWITCH,
        help: "demote to the next smaller size, and further only around the edges of what changes",
        set: |policy, value| policy.demote = [Demote::Stepwise, Demote::ToBase][value],
    },
    Key {
        name: "demote-on-unmap",
        values: SWITCH,
        help: "demote a superpage before it is unmapped, instead of removing it in one piece",
        set: |policy, value| policy.demote_on_unmap = value == 0,
    },
];

/// The names that [`Policy::named`] knows.
const NAMES: [&str; 2] = ["base", "reservation"];

impl Policy {
    /// The policy of a name: `base` (only base pages) or `reservation` (Navarro et al., OSDI 2002).
    pub fn named(name: &str) -> Result<Policy, PolicyError> {
        let reservation = Policy {
            place: Place::Reservation,
            growing_limit: true,
            past_end: true,
            promote: Promote::FullPopulation,
            dirty: Dirty::Files,
            scarce: Scarce::Preempt,
            pieces: Pieces::Keep,
            demote: Demote::Stepwise,
            demote_on_unmap: true,
        };
        match name {
            "base" => Ok(Policy { place: Place::BasePage, promote: Promote::Never, ..reservation }),
            "reservation" => Ok(reservation),
            _ => Err(PolicyError::Name(name.to_string())),
        }
    }

    /// The names that [`Policy::named`] knows.
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// The parameters of every policy, each with its values and a line of help.
    pub fn keys() -> &'static [Key] {
        &KEYS
    }

    /// Changes the answer that `key` stands for to `value`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyError> {
        let key = KEYS.iter().find(|known| known.name == key).ok_or_else(|| PolicyError::Key(key.to_string()))?;
        let value = key.values.iter().position(|valid| *valid == value);
        let value = value.ok_or(PolicyError::Value(key.name, key.values))?;
        (key.set)(self, value);
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    /// Reads a name, or a name with parameters: `reservation:preempt=off,pieces=free`.
    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut policy = Policy::named(name)?;
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').ok_or_else(|| PolicyError::Syntax(parameter.to_string()))?;
            policy.set(key, value)?;
        }
        Ok(policy)
    }
}

/// Why a text is no policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// No policy has this name.
    Name(String),
    /// No parameter has this name.
    Key(String),
    /// The parameter named first has only the values listed.
    Value(&'static str, &'static [&'static str]),
    /// Not `key=value`.
    Syntax(String),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<'a>(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = &'a str>) -> fmt::Result {
            for (i, name) in names.enumerate() {
                write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
            }
            Ok(())
        }
        match self {
            PolicyError::Name(name) => {
                write!(f, "no policy is named `{name}`; the policies are ")?;
                list(f, NAMES.into_iter())
            }
            PolicyError::Key(key) => {
                write!(f, "no policy has a parameter `{key}`; the parameters are ")?;
                list(f, KEYS.iter().map(|key| key.name))
            }
            PolicyError::Value(key, values) => {
                write!(f, "the policy parameter `{key}` takes one of these values: ")?;
                list(f, values.iter().copied())
            }
            PolicyError::Syntax(parameter) => {
                write!(f, "the policy parameter `{parameter}` should read key=value, such as preempt=off")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_every_key_can_be_set() {
        for key in Policy::keys() {
            let policies: alloc::vec::Vec<Policy> = key
                .values
                .iter()
                .map(|value| {
                    let mut policy = Policy::named("reservation").unwrap();
                    policy.set(key.name, value).unwrap();
                    policy
                })
                .collect();
            assert!(policies.windows(2).all(|pair| pair[0] != pair[1]), "{} changes nothing", key.name);
            assert!(policies.contains(&Policy::named("reservation").unwrap()), "{} hides the default", key.name);
        }
    }

    #[test]
    fn an_error_lists_what_would_be_right() {
        let policy: Policy = "reservation:preempt=off,pieces=free".parse().unwrap();
        assert_eq!((policy.scarce, policy.pieces), (Scarce::Smaller, Pieces::Free));
        let message = |text: &str| text.parse::<Policy>().unwrap_err().to_string();
        assert_eq!(message("reserve"), "no policy is named `reserve`; the policies are base, reservation");
        assert!(message("base:x=1").contains("place, growing-limit"));
        assert!(message("base:preempt=maybe").ends_with("on, off"));
        assert!(message("base:preempt").contains("key=value"));
    }
}
