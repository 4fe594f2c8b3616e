//! Base pages, and a scanner that makes superpages of what is populated and settled.

use super::{Definition, Made, Need, Parameter, SWITCH, Values, base};

const fn parameter(name: &'static str, values: Values, default: &'static str, help: &'static str) -> Parameter {
    Parameter { name, values, default, help, needs: &[] }
}

pub(super) static POLICY: Definition = Definition {
    name: "promote",
    paper: "",
    help: "base pages, and huge ones where all is populated and settled, for the command alone",
    parameters: &[
        parameter("share", Values::Share, "1", "the least share of a region's pages that are populated"),
        parameter("age", Values::Time, "2s", "how long its population has not changed"),
        parameter("cpu", Values::Share, "0.01", "the most that is used of one core, over time"),
        parameter("burst", Values::Time, "100ms", "CPU time that may be saved up and used at once"),
        parameter("interval", Values::Time, "1s", "between two looks at what runs, and at a process that changes"),
        parameter("idle", Values::Time, "10s", "between two looks at a process that does not, at most"),
        parameter("slowdown", Values::Share, "0.02", "by how much promotion may slow a process"),
        parameter("batch", Values::Count(1, 1024), "4", "regions promoted in one call"),
        parameter("shared", Values::Words(SWITCH), "on", "whether memory files (memfd, /dev/shm) are promoted too"),
    ],
    needs: &[Need::Settings],
    make: |_| Made::answers(base::ANSWERS),
};
