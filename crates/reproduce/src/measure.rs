//! Measures: the small language in which an experiment file says how a quantity is computed from
//! what was run.
//!
//! Words are separated by spaces: `100 * ( all.cycles / base.cycles - 1 )`. A word that is neither
//! a number nor an operator names a value. There are `+ - * /`, comparisons (`a >= b > c` holds if
//! both do), parentheses and the functions `min max mean all count round ceil`, with arguments
//! separated by commas; `count` of comparisons is the number that hold.

use superpage_report::{Keys, Stored};

/// A value that an experiment finds, or that a paper reports.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Whether something holds.
    Truth(bool),
    /// Anything that is counted or measured.
    Number(f64),
}

impl Keys for Value {
    const STORED: Stored = Stored::Number;
}

/// A parsed measure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Measure {
    Number(f64),
    Name(String),
    Sum(Box<Measure>, char, Box<Measure>),
    Compare(Vec<(Comparison, Measure)>),
    Call(Function, Vec<Measure>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Comparison {
    /// The first of a chain: there is nothing before it.
    First,
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Function {
    Min,
    Max,
    Mean,
    All,
    Count,
    Round,
    Ceil,
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("min", Function::Min),
    ("max", Function::Max),
    ("mean", Function::Mean),
    ("all", Function::All),
    ("count", Function::Count),
    ("round", Function::Round),
    ("ceil", Function::Ceil),
];

impl Measure {
    /// Parses a measure. The error says what was expected, and where.
    pub(crate) fn parse(text: &str) -> Result<Measure, String> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut reader = Reader { words: &words, text };
        let measure = reader.comparison()?;
        match reader.words.first() {
            None => Ok(measure),
            Some(word) => Err(reader.expected("an operator or the end", Some(word))),
        }
    }

    /// Calls `visit` with every name in it.
    pub(crate) fn names(&self, visit: &mut dyn FnMut(&str)) {
        match self {
            Measure::Number(_) => {}
            Measure::Name(name) => visit(name),
            Measure::Sum(left, _, right) => {
                left.names(visit);
                right.names(visit);
            }
            Measure::Compare(parts) => parts.iter().for_each(|(_, part)| part.names(visit)),
            Measure::Call(_, arguments) => arguments.iter().for_each(|argument| argument.names(visit)),
        }
    }

    /// Puts a name for each of these items in place of `*:NAME`, an argument of a function.
    pub(crate) fn spread(&mut self, items: &[String]) {
        match self {
            Measure::Number(_) | Measure::Name(_) => {}
            Measure::Sum(left, _, right) => {
                left.spread(items);
                right.spread(items);
            }
            Measure::Compare(parts) => parts.iter_mut().for_each(|(_, part)| part.spread(items)),
            Measure::Call(_, arguments) => {
                let each = |argument: Measure| match &argument {
                    Measure::Name(name) => match name.strip_prefix("*:") {
                        Some(of) => items.iter().map(|item| Measure::Name(format!("{item}:{of}"))).collect(),
                        None => vec![argument],
                    },
                    _ => vec![argument],
                };
                *arguments = std::mem::take(arguments).into_iter().flat_map(each).collect();
                arguments.iter_mut().for_each(|argument| argument.spread(items));
            }
        }
    }

    /// Evaluates it with the values that `look` returns. `None` if one is missing, or the result is
    /// not a number.
    pub(crate) fn value(&self, look: &dyn Fn(&str) -> Option<Value>) -> Option<Value> {
        let number = match self {
            Measure::Number(number) => *number,
            Measure::Name(name) => return look(name),
            Measure::Sum(left, operator, right) => {
                let (left, right) = (left.number(look)?, right.number(look)?);
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                }
            }
            Measure::Compare(parts) => {
                let numbers = parts.iter().map(|(_, part)| part.number(look)).collect::<Option<Vec<f64>>>()?;
                let holds = |i: usize| match parts[i].0 {
                    Comparison::First => true,
                    Comparison::Less => numbers[i - 1] < numbers[i],
                    Comparison::AtMost => numbers[i - 1] <= numbers[i],
                    Comparison::Equal => numbers[i - 1] == numbers[i],
                    Comparison::AtLeast => numbers[i - 1] >= numbers[i],
                    Comparison::More => numbers[i - 1] > numbers[i],
                };
                return Some(Value::Truth((0..parts.len()).all(holds)));
            }
            Measure::Call(function @ (Function::All | Function::Count), arguments) => {
                let values = arguments.iter().map(|argument| argument.value(look)).collect::<Option<Vec<Value>>>()?;
                let hold = values.iter().filter(|value| **value == Value::Truth(true)).count();
                return Some(match function {
                    Function::All => Value::Truth(hold == values.len()),
                    _ => Value::Number(hold as f64),
                });
            }
            Measure::Call(function, arguments) => {
                let numbers = arguments.iter().map(|argument| argument.number(look)).collect::<Option<Vec<f64>>>()?;
                match function {
                    Function::Min => numbers.into_iter().fold(f64::INFINITY, f64::min),
                    Function::Max => numbers.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    Function::Mean => numbers.iter().sum::<f64>() / numbers.len() as f64,
                    Function::Ceil => numbers[0].ceil(),
                    _ => {
                        let scale = 10_f64.powf(numbers.get(1).copied().unwrap_or(0.0));
                        (numbers[0] * scale).round() / scale
                    }
                }
            }
        };
        number.is_finite().then_some(Value::Number(number))
    }

    fn number(&self, look: &dyn Fn(&str) -> Option<Value>) -> Option<f64> {
        match self.value(look)? {
            Value::Number(number) => Some(number),
            Value::Truth(truth) => Some(f64::from(u8::from(truth))),
        }
    }
}

/// The words that are left to parse.
struct Reader<'a> {
    words: &'a [&'a str],
    text: &'a str,
}

impl Reader<'_> {
    fn expected(&self, what: &str, found: Option<&&str>) -> String {
        let found = found.map_or("its end".into(), |word| format!("\"{word}\""));
        format!("measure \"{}\": expected {what}, found {found}; words are separated by spaces", self.text)
    }

    /// Takes the next word if it is one of these.
    fn take<'b>(&mut self, wanted: &[&'b str]) -> Option<&'b str> {
        let word = *self.words.first()?;
        let found = *wanted.iter().find(|wanted| **wanted == word)?;
        self.words = &self.words[1..];
        Some(found)
    }

    fn comparison(&mut self) -> Result<Measure, String> {
        let mut parts = vec![(Comparison::First, self.sum()?)];
        while let Some(operator) = self.take(&["<", "<=", "==", ">=", ">"]) {
            let comparison = match operator {
                "<" => Comparison::Less,
                "<=" => Comparison::AtMost,
                "==" => Comparison::Equal,
                ">=" => Comparison::AtLeast,
                _ => Comparison::More,
            };
            parts.push((comparison, self.sum()?));
        }
        Ok(if parts.len() == 1 { parts.remove(0).1 } else { Measure::Compare(parts) })
    }

    fn sum(&mut self) -> Result<Measure, String> {
        let mut left = self.product()?;
        while let Some(operator) = self.take(&["+", "-"]) {
            let operator = if operator == "+" { '+' } else { '-' };
            left = Measure::Sum(Box::new(left), operator, Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Measure, String> {
        let mut left = self.atom()?;
        while let Some(operator) = self.take(&["*", "/"]) {
            let operator = if operator == "*" { '*' } else { '/' };
            left = Measure::Sum(Box::new(left), operator, Box::new(self.atom()?));
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Measure, String> {
        if self.take(&["("]).is_some() {
            let inner = self.comparison()?;
            self.close()?;
            return Ok(inner);
        }
        let Some((word, rest)) = self.words.split_first() else {
            return Err(self.expected("a number or a name", None));
        };
        if ["(", ")", ",", "+", "-", "*", "/", "<", "<=", "==", ">=", ">"].contains(word) {
            return Err(self.expected("a number or a name", Some(word)));
        }
        self.words = rest;
        if let Ok(number) = word.parse::<f64>() {
            return Ok(Measure::Number(number));
        }
        if self.take(&["("]).is_none() {
            return Ok(Measure::Name((*word).to_string()));
        }
        let Some((_, function)) = FUNCTIONS.iter().find(|(name, _)| name == word) else {
            let known = FUNCTIONS.map(|(name, _)| name).join(", ");
            return Err(self.expected(&format!("one of the functions {known}"), Some(word)));
        };
        let mut arguments = vec![self.comparison()?];
        while self.take(&[","]).is_some() {
            arguments.push(self.comparison()?);
        }
        self.close()?;
        Ok(Measure::Call(*function, arguments))
    }

    fn close(&mut self) -> Result<(), String> {
        self.take(&[")"]).map(|_| ()).ok_or_else(|| self.expected("a closing parenthesis", self.words.first()))
    }
}

/// The item in a name, if there is one, and the rest: `Matrix:all.cycles`.
pub(crate) fn split(name: &str) -> (Option<&str>, &str) {
    name.split_once(':').map_or((None, name), |(item, rest)| (Some(item), rest))
}

/// A name as one word of a measure: with `-` in place of spaces.
pub(crate) fn slug(name: &str) -> String {
    name.replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work_out(text: &str) -> Option<Value> {
        let look = |name: &str| match name {
            "base.cycles" => Some(Value::Number(200.0)),
            "64K.speedup@fftw-1" => Some(Value::Number(1.25)),
            _ => None,
        };
        Measure::parse(text).unwrap().value(&look)
    }

    #[test]
    fn a_measure_is_worked_out_by_the_usual_rules() {
        assert_eq!(work_out("1 + 2 * 3 - 4 / 2"), Some(Value::Number(5.0)));
        assert_eq!(work_out("100 * (base.cycles / 100 - 1)"), Some(Value::Number(100.0)));
        assert_eq!(work_out("round(64K.speedup@fftw-1, 1)"), Some(Value::Number(1.3)));
        assert_eq!(work_out("ceil ( 499 / 7 )"), Some(Value::Number(72.0)));
        assert_eq!(work_out("mean ( 1 , 2 , 6 ) + min ( 4 , 3 ) + max ( 1 , 2 )"), Some(Value::Number(8.0)));
    }

    #[test]
    fn a_chain_of_comparisons_holds_where_each_does() {
        assert_eq!(work_out("1 < 2 <= 2 == 2"), Some(Value::Truth(true)));
        assert_eq!(work_out("3 >= 2 > 2"), Some(Value::Truth(false)));
        assert_eq!(work_out("all ( 1 < 2 , 2 < 1 )"), Some(Value::Truth(false)));
        assert_eq!(work_out("count ( 1 < 2 , 2 < 1 , 3 > 2 )"), Some(Value::Number(2.0)));
    }

    #[test]
    fn a_name_stands_for_all_items() {
        let mut measure = Measure::parse("100 * (mean(*:all.speedup) - 1) < max(1, *:base.cycles)").unwrap();
        measure.spread(&["Matrix".into(), "B+-tree".into()]);
        let named = "100 * (mean(Matrix:all.speedup, B+-tree:all.speedup) - 1) < \
                     max(1, Matrix:base.cycles, B+-tree:base.cycles)";
        assert_eq!(measure, Measure::parse(named).unwrap());
    }

    #[test]
    fn what_is_missing_makes_the_whole_missing() {
        assert_eq!(work_out("1 + nothing.there"), None);
        assert_eq!(work_out("1 / 0"), None);
    }

    #[test]
    fn an_error_says_what_was_expected_and_found() {
        let error = |text| Measure::parse(text).unwrap_err();
        assert!(error("1 + ").contains("a number or a name, found its end"));
        assert!(error("a b").contains("an operator or the end, found \"b\""));
        assert!(error("least(1)").contains("min, max"));
        assert!(error("( 1 , 2 )").contains("a closing parenthesis, found \",\""));
    }
}
