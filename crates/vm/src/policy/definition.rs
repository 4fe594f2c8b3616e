//! What defines a policy, and what its definition makes.

use super::answers::Answers;
use super::background::Background;
use super::parameter::{Given, Parameter};
use super::target::Need;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::{self, Write};
use core::time::Duration;

/// Everything that defines a policy.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// Where it is described; empty if nowhere.
    pub paper: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Its own parameters; the answers are further ones.
    pub parameters: &'static [Parameter],
    /// What a target must provide for it.
    pub needs: &'static [Need],
    /// Makes the policy from the values given for its own parameters, on the target that
    /// [`Given::target`] names. It may fail ([`Made::failed`]).
    pub make: fn(&Given) -> Made,
}

/// What a definition makes: the parts of a policy.
pub struct Made {
    /// How the fault path behaves.
    pub answers: Answers,
    /// What runs outside faults, if anything does.
    pub background: Option<Box<dyn Background>>,
    /// The share of one core that it may use over time, and the processor time that may be saved up
    /// for one call; `None`: as much as it likes.
    pub(super) budget: Option<(f64, Duration)>,
    /// Why it cannot be made of what was given.
    pub(super) error: Option<String>,
}

impl Made {
    /// A policy that consists of answers alone.
    pub fn answers(answers: Answers) -> Made {
        Made { answers, background: None, budget: None, error: None }
    }

    /// A policy with a background.
    pub fn with(answers: Answers, background: impl Background + 'static) -> Made {
        Made { background: Some(Box::new(background)), ..Made::answers(answers) }
    }

    /// Within a share of one core, above 0, over time, of which so much may be saved up
    /// ([`Runner`](crate::Runner)).
    pub fn within(self, share: f64, burst: Duration) -> Made {
        Made { budget: Some((share, burst)), ..self }
    }

    /// No policy can be made of these values, or on this target: a sentence that says why.
    pub fn failed(why: impl Into<String>) -> Made {
        Made { error: Some(why.into()), ..Made::answers(Answers::BASE) }
    }
}

/// Why a string is not a policy: a sentence of one line that says what is accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct PolicyError(pub(super) String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.chars().try_for_each(|letter| {
            if letter.is_control() {
                letter.escape_default().try_for_each(|part| f.write_char(part))
            } else {
                f.write_char(letter)
            }
        })
    }
}
