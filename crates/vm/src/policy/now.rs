//! `now`: whatever the running system does.

use super::{Definition, Made, Need, base};

pub(super) static POLICY: Definition = Definition {
    name: "now",
    paper: "",
    help: "the system as it is: nothing is changed",
    parameters: &[],
    needs: &[Need::Settings],
    make: |_| Made::answers(base::ANSWERS),
};
