//! Huge pages for code.

use superpage_vm::{Answers, Definition, Made, Need, Parameter, Values};

pub(super) static POLICY: Definition = Definition {
    name: "text",
    paper: "",
    help: "base pages, and huge pages for the program's code, for the command alone",
    parameters: &[Parameter {
        name: "way",
        values: Values::Words(&["remap", "file", "auto"]),
        default: "remap",
        help: "as a copy, as its pages in the page cache (where they stay), or whichever is possible",
        needs: &[],
    }],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};
