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

/// How large may a reservation be?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Of the preferred size (section 4.2), whichever that is.
    Preferred,
    /// Of the largest size or not at all (as in later FreeBSD); smaller superpages are made inside it.
    Largest,
    /// Of the largest size of at most 2 MB or not at all (Linux: what one entry of the second level of its tables maps).
    Huge,
    /// Of the smallest superpage size or not at all (Talluri and Hill, ASPLOS 1994: one size).
    Smallest,
}

/// Which reservations may reach past the end of their object (section 4.2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PastEnd {
    /// None.
    Never,
    /// Those of objects that grow.
    Growing,
    /// Those of all anonymous objects (as in later FreeBSD).
    Anonymous,
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

/// Which of the reservations that can yield an extent is preempted (section 4.8)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// The least recent of those that yield no more than is asked for, if there is one: a list for each size.
    BySize,
    /// The least recent of all: one queue (as in later FreeBSD).
    One,
}

/// Which pages go when memory is short?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// None: there are no page lists and no page daemon, files' pages go with their last mapping, and memory that runs
    /// out is an error.
    Nothing,
    /// Those not used for long, in approximate LRU order (section 5.1).
    Lru,
}

/// What becomes of clean pages that the daemon takes out of use (section 5.1, change 1)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// They are freed, and their contents lost.
    Free,
    /// They keep their frames until none is free.
    Held,
    /// They count as free: coalesced with free frames, available to reservations, and kept until overwritten.
    Available,
}

/// What wakes the page daemon (section 5.1, change 2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Too few free frames.
    Memory,
    /// Also a failed allocation of the preferred size; then it restores the contiguity that failed, and no more.
    Contiguity,
}

/// What becomes of clean pages of a file at its last close (section 5.1, change 3)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// They stay as active as they were.
    Keep,
    /// They become inactive.
    Inactive,
}

/// Where are the kernel's own pages (section 5.2)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wired {
    /// Wherever a base page is free.
    Scatter,
    /// In pools of contiguous frames.
    Cluster,
}

/// Are dirty base pages of a superpage inferred from digests of their contents (section 4.7)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// No: all base pages of a dirty superpage are written out.
    Off,
    /// Yes: each page is hashed when it was read in.
    Read,
    /// Yes: the pages of a clean superpage are hashed just before it is first written.
    Late,
    /// Yes: pages that were read in are hashed in the idle loop.
    Idle,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Which frames a fault takes.
    pub place: Place,
    /// Whether a reservation in a growing object is at most as large as the object is now (section 4.2).
    pub growing_limit: bool,
    /// Which reservations may reach past their object's end.
    pub past_end: PastEnd,
    /// How large a reservation may be.
    pub reserve: Reserve,
    /// The population, in eighths of a region, at which the rest of it is populated too: 8 leaves that to the program
    /// (section 4.5); 0 populates all of it at its first touch.
    pub threshold: u8,
    /// When a region becomes a superpage.
    pub promote: Promote,
    /// Where dirty bits must agree for that.
    pub dirty: Dirty,
    /// What happens when no extent of the preferred size is free.
    pub scarce: Scarce,
    /// What becomes of preempted pieces.
    pub pieces: Pieces,
    /// Which reservation is preempted.
    pub lists: Lists,
    /// How superpages are demoted.
    pub demote: Demote,
    /// Whether a superpage is demoted, all of it and as `demote` says, before it is unmapped: the three demotions of
    /// section 6.6. Otherwise it is removed in one piece.
    pub demote_on_unmap: bool,
    /// Whether a clean superpage is demoted at its first write, where dirty bits matter as `dirty` says (section 4.7).
    pub demote_on_write: bool,
    /// Whether dirty base pages are inferred from digests.
    pub hash: Hash,
    /// The probability, in quarters, that a superpage is demoted when the daemon clears its reference bit under memory
    /// pressure (section 4.6).
    pub speculate: u8,
    /// Which pages go when memory is short.
    pub reclaim: Reclaim,
    /// What becomes of clean pages that go.
    pub cache: Cache,
    /// What wakes the page daemon.
    pub wake: Wake,
    /// What becomes of clean pages of closed files.
    pub close: Close,
    /// Where the kernel's own pages are.
    pub wired: Wired,
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

static KEYS: [Key; 20] = [
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
        values: &["on", "off", "anonymous"],
        help: "a reservation in a growing (or in any anonymous) object may reach past the object's end",
        set: |policy, value| policy.past_end = [PastEnd::Growing, PastEnd::Never, PastEnd::Anonymous][value],
    },
    Key {
        name: "reserve",
        values: &["preferred", "largest", "smallest", "huge"],
        help: "reservations are of the preferred size, or only of the largest, the smallest, or the largest up to 2 MB",
        set: |policy, value| {
            policy.reserve = [Reserve::Preferred, Reserve::Largest, Reserve::Smallest, Reserve::Huge][value];
        },
    },
    Key {
        name: "threshold",
        values: &["8/8", "7/8", "6/8", "5/8", "4/8", "3/8", "2/8", "1/8", "0/8"],
        help: "once so much of a region is populated, the rest is populated too",
        set: |policy, value| policy.threshold = 8 - value as u8,
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
        name: "lists",
        values: &["by-size", "one"],
        help: "preempt the least recent reservation of the list of the size asked for, or of all",
        set: |policy, value| policy.lists = [Lists::BySize, Lists::One][value],
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
    Key {
        name: "demote-on-write",
        values: SWITCH,
        help: "demote a clean superpage at its first write, where dirty bits matter",
        set: |policy, value| policy.demote_on_write = value == 0,
    },
    Key {
        name: "hash",
        values: &["off", "read", "late", "idle"],
        help: "infer dirty base pages from digests, taken when read in, before the first write, or when idle",
        set: |policy, value| policy.hash = [Hash::Off, Hash::Read, Hash::Late, Hash::Idle][value],
    },
    Key {
        name: "speculate",
        values: &["4/4", "3/4", "2/4", "1/4", "0/4"],
        help: "probability that the daemon demotes a superpage whose reference bit it clears under pressure",
        set: |policy, value| policy.speculate = 4 - value as u8,
    },
    Key {
        name: "reclaim",
        values: &["lru", "none"],
        help: "pages that go when memory is short: those not used for long, or none",
        set: |policy, value| policy.reclaim = [Reclaim::Lru, Reclaim::Nothing][value],
    },
    Key {
        name: "cache",
        values: &["available", "held", "free"],
        help: "clean pages that go count as free and keep contents, keep their frames, or are freed",
        set: |policy, value| policy.cache = [Cache::Available, Cache::Held, Cache::Free][value],
    },
    Key {
        name: "wake",
        values: &["contiguity", "memory"],
        help: "the daemon wakes on failed requests for contiguity too, or only when memory is short",
        set: |policy, value| policy.wake = [Wake::Contiguity, Wake::Memory][value],
    },
    Key {
        name: "close",
        values: &["inactive", "keep"],
        help: "clean pages of a file become inactive at its last close, or stay as they are",
        set: |policy, value| policy.close = [Close::Inactive, Close::Keep][value],
    },
    Key {
        name: "wired",
        values: &["cluster", "scatter"],
        help: "the kernel's own pages lie in contiguous pools, or anywhere",
        set: |policy, value| policy.wired = [Wired::Cluster, Wired::Scatter][value],
    },
];

/// The names that [`Policy::named`] knows.
const NAMES: [&str; 5] = ["base", "reservation", "freebsd", "talluri-hill", "thp"];

impl Policy {
    /// The policy of a name: `base` (only base pages), `reservation` (Navarro et al., OSDI 2002), `freebsd` (what that
    /// design became in production), `talluri-hill` (ASPLOS 1994: one superpage size, promotion at half population), `thp`
    /// (Linux: at the first touch of an aligned 2 MB of anonymous memory, all of it).
    pub fn named(name: &str) -> Result<Policy, PolicyError> {
        let reservation = Policy {
            place: Place::Reservation,
            growing_limit: true,
            past_end: PastEnd::Growing,
            reserve: Reserve::Preferred,
            threshold: 8,
            promote: Promote::FullPopulation,
            dirty: Dirty::Files,
            scarce: Scarce::Preempt,
            pieces: Pieces::Keep,
            lists: Lists::BySize,
            demote: Demote::Stepwise,
            demote_on_unmap: true,
            demote_on_write: true,
            hash: Hash::Off,
            speculate: 4,
            reclaim: Reclaim::Lru,
            cache: Cache::Available,
            wake: Wake::Contiguity,
            close: Close::Inactive,
            wired: Wired::Cluster,
        };
        // The unmodified system of section 6.3: FreeBSD 4.3.
        let plain = Policy {
            demote_on_write: false,
            speculate: 0,
            cache: Cache::Held,
            wake: Wake::Memory,
            close: Close::Keep,
            wired: Wired::Scatter,
            ..reservation.clone()
        };
        match name {
            "base" => Ok(Policy { place: Place::BasePage, promote: Promote::Never, ..plain }),
            "reservation" => Ok(reservation),
            "freebsd" => Ok(Policy {
                growing_limit: false,
                past_end: PastEnd::Anonymous,
                reserve: Reserve::Largest,
                scarce: Scarce::Smaller,
                pieces: Pieces::Free,
                lists: Lists::One,
                demote: Demote::ToBase,
                demote_on_unmap: false,
                demote_on_write: true,
                cache: Cache::Free,
                wired: Wired::Cluster,
                ..plain
            }),
            "talluri-hill" => Ok(Policy { reserve: Reserve::Smallest, threshold: 4, ..plain }),
            "thp" => Ok(Policy {
                growing_limit: false,
                past_end: PastEnd::Never,
                reserve: Reserve::Huge,
                threshold: 0,
                dirty: Dirty::Nowhere,
                scarce: Scarce::Smaller,
                demote: Demote::ToBase,
                demote_on_unmap: false,
                cache: Cache::Free,
                ..plain
            }),
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
        assert_eq!(
            message("reserve"),
            "no policy is named `reserve`; the policies are base, reservation, freebsd, talluri-hill, thp"
        );
        assert!(message("base:x=1").contains("place, growing-limit"));
        assert!(message("base:preempt=maybe").ends_with("on, off"));
        assert!(message("base:preempt").contains("key=value"));
    }
}
