//! `now`: whatever the running system does.

use superpage_vm::{Answers, Definition, Made, Need};

pub(super) static POLICY: Definition = Definition {
    name: "now",
    paper: "",
    help: "the system as it is: nothing is changed",
    parameters: &[],
    needs: &[Need::Settings],
    make: |_| Made::answers(Answers::BASE),
};
