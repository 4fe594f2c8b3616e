//! `base`: the baseline that every comparison names.

use crate::{Answers, Definition, Made};

pub(super) static POLICY: Definition = Definition {
    name: "base",
    paper: "FreeBSD 4.3, the unmodified system of Navarro et al., OSDI 2002, section 6.3",
    help: "only base pages",
    parameters: &[],
    needs: &[],
    make: |_| Made::answers(Answers::BASE),
};
