//! Huge pages for code.

use super::{Definition, Made, Need, Parameter, Values, base};

pub(super) static POLICY: Definition = Definition {
    name: "text",
    paper: "",
    help: "base pages, and huge ones for the program's code, for the command alone",
    parameters: &[Parameter {
        name: "way",
        values: Values::Words(&["remap", "file", "auto"]),
        default: "remap",
        help: "a copy, its pages in the cache (where they stay), or as it can be",
        needs: &[],
    }],
    needs: &[Need::Settings],
    make: |_| Made::answers(base::ANSWERS),
};
