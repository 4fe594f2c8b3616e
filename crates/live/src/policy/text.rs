//! `text`: base pages, and huge pages for the program's code.

use super::{Bytes, Did, Found, Given, Live, Plan, Policy};
use superpage_linux::text;

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
