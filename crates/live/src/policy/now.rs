//! `now`: whatever the running system does.

use super::{Answers, Definition, Did, Found, Given, Live, Made, Need, Policy};

pub(super) static POLICY: Definition = Definition {
    name: "now",
    paper: "",
    help: "the system as it is: nothing is changed",
    parameters: &[],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};

pub(super) fn live(_: &Given) -> Live {
    Live { did, ..Live::default() }
}

fn did(_: &Policy, found: &Found) -> Did {
    Did::new(found.huge.map_or(Found::UNSEEN.into(), |bytes| format!("{} huge", found.part(bytes))), None)
}
