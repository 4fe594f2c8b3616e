//! How a stream is run, and what to record of it.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use superpage_pages::parse_count;
use superpage_trace::Cores;

/// How a stream is run, and what to record of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watch {
    /// Keep the state of the run so often, in [`Row::series`](crate::Row::series).
    pub every: Option<Every>,
    /// Find out how contiguous mapped memory is at its peak
    /// ([`contiguous_percent`](crate::Row::contiguous_percent)). That takes time in proportion to
    /// mapped memory, each time that memory shrinks from a new peak.
    pub contiguity: bool,
    /// Keep the program's data and instructions in the machine's line caches, together with page
    /// tables ([`Mmu::run_lines`](superpage_mmu::Mmu::run_lines)). The stream must have lines.
    pub lines: bool,
    /// Run the threads of the stream on these cores, each with its own TLBs; `None`: all take turns
    /// on one, in the order of the stream.
    pub cores: Option<Cores>,
}

/// How often the state of a run is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Every {
    /// At the first look after each multiple of this number of seconds of modelled time, idle time
    /// included: at page faults, at events of the stream, each 64 requests to the TLBs between
    /// them, and each microsecond of idle time.
    Seconds(f64),
    /// Before the first run of the stream that begins after each multiple of this number of
    /// instructions.
    Instructions(u64),
}

impl Every {
    /// # Errors
    /// [`Error::Usage`]: it is no step.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Every::Seconds(step) if step.is_normal() && step >= 1e-9 => Ok(()),
            Every::Instructions(1..) => Ok(()),
            _ => Err(Error::Usage(
                "a sample every 0 seconds or 0 instructions: expected at least 1ns, or an instruction".into(),
            )),
        }
    }
}

impl fmt::Display for Every {
    /// As it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Seconds(step) => write!(f, "{step}s"),
            Every::Instructions(step) => write!(f, "{step}"),
        }
    }
}

impl FromStr for Every {
    type Err = String;

    /// A time with its unit, or a number of instructions.
    fn from_str(text: &str) -> Result<Every, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit = match &text[digits.len()..] {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "" => 0.0,
            _ => f64::NAN,
        };
        let seconds = digits.parse::<f64>().ok().map(|number| Every::Seconds(number * unit));
        let every = if unit == 0.0 { parse_count(text).ok().map(Every::Instructions) } else { seconds };
        every.filter(|every| every.check().is_ok()).ok_or_else(|| {
            format!("{text}: expected a time such as 100ms or 2s, or a number of instructions such as 10M")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_time_or_a_number_of_instructions() {
        let read = |text: &str| text.parse::<Every>();
        assert_eq!(read("100ms"), Ok(Every::Seconds(0.1)));
        assert_eq!(read("2.5s"), Ok(Every::Seconds(2.5)));
        assert_eq!(read("10M"), Ok(Every::Instructions(10_000_000)));
        for wrong in ["", "0", "0s", "-1s", "1m", "s", "nans", "infs", "ten"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
