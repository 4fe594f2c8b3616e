//! Folios of one size.

use super::{Definition, Made, Need, Parameter, Values, base};

pub(super) static POLICY: Definition = Definition {
    name: "mthp",
    paper: "Linux 6.8, mm/memory.c: alloc_anon_folio",
    help: "folios of these sizes everywhere (a setting of the whole system)",
    parameters: &[Parameter {
        name: "size",
        values: Values::PageSizes,
        default: "64K",
        help: "of the folios",
        needs: &[],
    }],
    needs: &[Need::Settings],
    make: |_| Made::answers(base::ANSWERS),
};
