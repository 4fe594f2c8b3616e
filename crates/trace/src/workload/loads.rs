//! What `random`, `chase` and `zipf` share: a region that is written once, and then a number of
//! loads from places in it.

use super::parameters::{MOST_BYTES, MOST_COUNT, Values};
use super::program::{Out, PAGE, Pass, Program, REGION, Running};
use crate::{Error, Source};
use superpage_pages::Access;

/// Chooses the address of the next load.
pub(super) trait Place: Send + 'static {
    /// Instructions per load: assumed by each workload and stated in its documentation.
    const INSTRUCTIONS: u32;

    /// The next offset within the region, in bytes.
    fn next(&mut self) -> u64;
}

/// The size of the region that the parameter `bytes` asks for: whole pages.
pub(super) fn region(values: &Values) -> Result<u64, Error> {
    Ok(values.bytes("bytes", PAGE..=MOST_BYTES)?.next_multiple_of(PAGE))
}

/// The workload with a region of `bytes`, the parameters `references` and `populate`, and the
/// places of `place`.
pub(super) fn start<P: Place>(values: &Values, bytes: u64, place: P) -> Result<Box<dyn Source>, Error> {
    let left = values.count("references", 0..=MOST_COUNT)?;
    let populate = values.choice("populate", "yes", "no")?;
    let pass = Pass::populate(REGION, if populate { bytes } else { 0 });
    let runs = left + pass.pages();
    Ok(Running::start(values, Loads { bytes, pass, left, place, state: State::Start }, false, runs))
}

struct Loads<P> {
    bytes: u64,
    pass: Pass,
    left: u64,
    place: P,
    state: State,
}

enum State {
    Start,
    Populate,
    Load,
    Done,
}

/// Loads generated at a time: neighbours on one page or line are rare in a large region, and a
/// block without any needs no merging.
const BLOCK: usize = 256;

impl<P: Place> Loads<P> {
    fn load(&mut self, out: &mut Out, count: usize) {
        let mut units = [0; BLOCK];
        let (units, unit) = (&mut units[..count], out.unit());
        units.fill_with(|| (REGION + self.place.next()) & !(unit - 1));
        out.data(units[0], Access::Read, 1, P::INSTRUCTIONS);
        if units.windows(2).all(|pair| pair[0] != pair[1]) {
            out.distinct(units[1..].iter().map(|unit| (*unit, Access::Read, 1, P::INSTRUCTIONS)));
        } else {
            units[1..].iter().for_each(|unit| out.data(*unit, Access::Read, 1, P::INSTRUCTIONS));
        }
    }
}

impl<P: Place> Program for Loads<P> {
    fn step(&mut self, out: &mut Out) -> bool {
        match self.state {
            State::Start => {
                out.begin();
                out.map_anonymous(REGION, self.bytes);
                self.state = State::Populate;
            }
            State::Populate => {
                if !self.pass.step(out) {
                    self.state = State::Load;
                }
            }
            State::Load if self.left == 0 => {
                out.unmap_and_exit(REGION, self.bytes);
                self.state = State::Done;
            }
            State::Load => {
                let count = self.left.min(BLOCK as u64);
                self.left -= count;
                self.load(out, count as usize);
            }
            State::Done => return false,
        }
        true
    }
}
