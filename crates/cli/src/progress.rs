//! The style of progress bars.

use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// A style with the key `{left}`: the time that is left, or nothing while it is not known, as
/// before the first step.
pub(crate) fn style(template: &str) -> ProgressStyle {
    let key = |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&left(state.eta()));
    };
    ProgressStyle::with_template(template).expect("the template is right").with_key("left", key)
}

/// An estimate of zero means that there is none.
pub(crate) fn left(estimate: Duration) -> String {
    if estimate.is_zero() { String::new() } else { format!("{:#} left", HumanDuration(estimate)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_before_it_is_known() {
        assert_eq!(left(Duration::ZERO), "");
        assert_eq!(left(Duration::from_secs(30)), "30s left");
        let _ = style("{wide_bar} {pos} of {len} runs {left}");
    }
}
