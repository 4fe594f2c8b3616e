//! `stride`: accesses at a stride of the largest superpage, with which each access makes a
//! reservation that nothing will fill (Navarro et al., section 6.6, preemption overhead).
//!
//! One fixed anonymous mapping of `step * touches` bytes, aligned to 1 GB, and one store at every
//! step. 4 instructions an access are assumed.

use super::Kind;
use super::parameters::{MOST_BYTES, MOST_COUNT, Parameter, Values};
use super::program::Running;
use super::touch::Touches;
use crate::{Error, Source};

pub(super) const KIND: Kind = Kind {
    name: "stride",
    help: "one access each N bytes of a large mapping (Navarro et al., section 6.6)",
    parameters: &[
        Parameter { name: "step", default: "4M", help: "the distance of the accesses" },
        Parameter { name: "touches", default: "500", help: "accesses in a round" },
        Parameter { name: "rounds", default: "1", help: "how many times the mapping is gone through" },
        Parameter { name: "access", default: "write", help: "what is done to the bytes: read or write" },
    ],
    start,
};

fn start(values: &Values) -> Result<Box<dyn Source>, Error> {
    let step = values.bytes("step", 1..=MOST_BYTES)?;
    let touches = values.count("touches", 1..=MOST_COUNT)?;
    let rounds = values.count("rounds", 1..=MOST_COUNT)?;
    let write = values.choice("access", "write", "read")?;
    let Some(bytes) = step.checked_mul(touches).filter(|bytes| *bytes <= MOST_BYTES) else {
        return Err(values.wrong("touches", "step times touches to be at most 16T bytes"));
    };
    Ok(Running::start(values, Touches::new(bytes, step, rounds, false, write), false, touches.saturating_mul(rounds)))
}
