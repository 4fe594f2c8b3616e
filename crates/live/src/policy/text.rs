//! `text`: base pages, and huge pages for the program's code.

use super::{Answers, Bytes, Definition, Did, Found, Given, Live, Made, Need, Parameter, Plan, Policy, Values};
use superpage_linux::text;

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

pub(super) fn live(given: &Given) -> Live {
    let way = given.word("way").parse().expect("the words are ways");
    let plan: fn(&_, &mut Plan, &_) -> _ = |_, plan, system| text::check().and_then(|()| plan.only_asked(system));
    Live { plan, did, aim: None, way: Some(way), ..Live::default() }
}

fn did(_: &Policy, found: &Found) -> Did {
    match found.code_bytes {
        0 => Did::new(format!("nothing: {}", found.code.unwrap_or("no code was placed")), false),
        placed => Did::new(format!("{} of code on huge pages", Bytes(placed)), true),
    }
}
