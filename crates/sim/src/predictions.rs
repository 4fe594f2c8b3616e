//! How far predictions were from measurements: `demo/predict --keep` measures programs on a
//! machine, predicts their times on the machine file that `superpage probe` writes there, and keeps
//! both in `predictions.toml`.

use serde::Deserialize;

/// The name of machines that `superpage probe` writes.
const PROBED: &str = "probed";

/// Programs, each measured and predicted on one machine.
#[derive(Deserialize)]
struct Predictions {
    processor: String,
    program: Vec<Program>,
}

/// The time of a program under `thp` divided by that under `base`: measured, and predicted from
/// pages alone and with lines.
#[derive(Deserialize)]
struct Program {
    name: String,
    measured: f64,
    pages: f64,
    lines: f64,
}

impl Predictions {
    fn kept() -> Predictions {
        toml::from_str(include_str!("../predictions.toml")).expect("the file of this crate is right")
    }

    /// The errors in percent, by size, with the programs' names.
    fn errors(&self, lines: bool) -> Vec<(f64, &str)> {
        let error = |it: &Program| 100.0 * (if lines { it.lines } else { it.pages } / it.measured - 1.0);
        let mut errors: Vec<_> = self.program.iter().map(|it| (error(it), it.name.as_str())).collect();
        errors.sort_by(|(one, _), (other, _)| one.abs().total_cmp(&other.abs()));
        errors
    }
}

/// Whether `superpage probe` wrote the file of a machine of this name.
pub(crate) fn is_probed(machine: &str) -> bool {
    machine.split(['+', ':']).next() == Some(PROBED)
}

/// How far such predictions were off, from pages alone or with lines, as a sentence.
pub(crate) fn sentence(lines: bool) -> String {
    let kept = Predictions::kept();
    let errors = kept.errors(lines);
    let ((middle, _), (worst, name)) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    format!(
        "On a machine file that probe wrote the time of thp over base, predicted {}, was off by {:.0} % in the middle of {} programs that \
         were measured ({}), and by {worst:+.0} % at worst ({name}): demo/predict.",
        if lines { "with lines" } else { "from pages alone" },
        middle.abs(),
        errors.len(),
        kept.processor
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_the_quotient_predicted() {
        let program = |name: &str, measured, pages, lines| Program { name: name.into(), measured, pages, lines };
        let program = vec![program("one", 0.5, 0.6, 0.5), program("two", 0.8, 0.6, 0.88)];
        let kept = Predictions { processor: String::new(), program };
        for (lines, known) in [(false, [(20.0, "one"), (-25.0, "two")]), (true, [(0.0, "one"), (10.0, "two")])] {
            let errors = kept.errors(lines);
            let near =
                |((error, of), (known, name)): (&(f64, &str), &(f64, &str))| (error - known).abs() < 1e-9 && of == name;
            assert!(errors.iter().zip(&known).all(near), "{errors:?}");
        }
    }

    #[test]
    fn the_kept_predictions_can_be_said() {
        assert!(Predictions::kept().program.len() >= 12 && sentence(true) != sentence(false));
        assert!(is_probed("probed+colt") && !is_probed("probed2"));
    }
}
