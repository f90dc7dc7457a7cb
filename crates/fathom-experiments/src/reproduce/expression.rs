//! Arithmetic of the table of values: numbers, or lists of them taken element by element, under names.
//!
//! Words stand apart from operators: `(max(p3700.mb / optane.mb) - 1) * 100`.

use super::{ReproduceError, store};

/// One number, or one for each variant of a load; NaN where there is none.
pub(super) type Values = Vec<f64>;

/// What a name stands for.
type Names<'a> = &'a mut dyn FnMut(&str) -> Result<Values, ReproduceError>;

/// Operators, those that bind loosest first.
const LEVELS: [&[&str]; 4] = [&["&"], &["<", "<=", ">", ">="], &["+", "-"], &["*", "/"]];

/// The value of a text.
///
/// # Errors
/// Of the names; and a sentence where the text is none.
pub(super) fn evaluate(text: &str, names: Names<'_>) -> Result<Values, ReproduceError> {
    let mut reader = Reader {
        text,
        words: words(text),
        at: 0,
        names,
    };
    let all = reader.level(0)?;
    match reader.peek() {
        None => Ok(all),
        Some(_) => Err(reader.wrong()),
    }
}

/// A number that rests on no name.
pub(super) fn constant(text: &str) -> Result<Option<f64>, ReproduceError> {
    let unknown = |name: &str| Err(ReproduceError::Table(format!("{name} in {text}")));
    Ok(evaluate(text, &mut { unknown })?.first().copied())
}

fn words(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while let Some(at) = rest.find(['(', ')', ',']) {
            all.extend([&rest[..at], &rest[at..=at]]);
            rest = &rest[at + 1..];
        }
        all.push(rest);
    }
    all.retain(|w| !w.is_empty());
    all
}

struct Reader<'a, 'n> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    names: Names<'n>,
}

impl<'a> Reader<'a, '_> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }
    fn next(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.words.get(self.at - 1).copied()
    }
    fn wrong(&self) -> ReproduceError {
        ReproduceError::Table(format!("'{}', near word {}", self.text, self.at + 1))
    }

    fn level(&mut self, level: usize) -> Result<Values, ReproduceError> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.peek().filter(|w| operators.contains(w)) {
            self.at += 1;
            let right = self.level(level + 1)?;
            left = each(operator, &left, &right);
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Values, ReproduceError> {
        let Some(word) = self.next() else {
            return Err(self.wrong());
        };
        if word == "(" {
            return Ok(self.list()?.remove(0));
        }
        if let Ok(number) = word.parse() {
            return Ok(vec![number]);
        }
        if self.peek() != Some("(") {
            return (self.names)(word);
        }
        self.at += 1;
        let arguments = self.list()?;
        call(word, &arguments).ok_or_else(|| self.wrong())
    }

    /// What stands between brackets.
    fn list(&mut self) -> Result<Vec<Values>, ReproduceError> {
        let mut all = vec![self.level(0)?];
        loop {
            match self.next() {
                Some(",") => all.push(self.level(0)?),
                Some(")") => return Ok(all),
                _ => return Err(self.wrong()),
            }
        }
    }
}

/// Element by element; one number goes with each of many.
fn each(operator: &str, left: &[f64], right: &[f64]) -> Values {
    let truth = |is: bool| f64::from(u8::from(is));
    let of = |a: f64, b: f64| match operator {
        "&" => truth(a != 0.0 && b != 0.0),
        "<" => truth(a < b),
        "<=" => truth(a <= b),
        ">" => truth(a > b),
        ">=" => truth(a >= b),
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        _ => a / b,
    };
    let n = if left.len() == 1 {
        right.len()
    } else {
        left.len()
    };
    let (left, right) = (left.iter().cycle(), right.iter().cycle());
    left.zip(right).take(n).map(|(a, b)| of(*a, *b)).collect()
}

/// A function of what stands in its brackets; `None` where there is no such one.
fn call(name: &str, given: &[Values]) -> Option<Values> {
    let all = || given.iter().flatten().copied();
    // What has a hole has no largest.
    let either = |pick: fn(f64, f64) -> f64| {
        all().reduce(|a, b| {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                pick(a, b)
            }
        })
    };
    let second = || given.get(1).and_then(|v| v.first()).copied();
    let raw = || given[0].first().copied();
    Some(vec![match name {
        "max" => either(f64::max)?,
        "min" => either(f64::min)?,
        "sum" => all().sum(),
        "mean" => all().sum::<f64>() / all().count() as f64,
        "at" => *given[0].get(second()? as usize)?,
        "increase" => {
            let highest = given.get(2).and_then(|v| v.first()).copied();
            increase(&given[0], given.get(1)?, highest)
        }
        "inserts" => store::at_hour(&store::inserts(raw()?), second()?),
        "updates" => store::at_hour(&store::updates(raw()?), second()?),
        "inserts-later" => store::at_hour(&store::inserts_later(raw()?), second()?),
        _ => return None,
    }])
}

/// Increase of the mean latency over the first point's where the rate is 95 % of its highest (of all points, unless it is
/// said), %; of loads in a closed loop, fewest threads first.
fn increase(rates: &[f64], latencies: &[f64], highest: Option<f64>) -> f64 {
    let points = rates.iter().copied().zip(latencies.iter().copied());
    let points: Vec<(f64, f64)> = points.filter(|p| p.0.is_finite()).collect();
    let highest = highest.unwrap_or(points.iter().map(|p| p.0).fold(0.0, f64::max));
    let wanted = 0.95 * highest;
    let crossing = points
        .windows(2)
        .find(|w| w[0].0 < wanted && w[1].0 >= wanted);
    let at = crossing.map(|w| w[0].1 + (wanted - w[0].0) / (w[1].0 - w[0].0) * (w[1].1 - w[0].1));
    let increase = at
        .zip(points.first())
        .map(|(at, first)| (at / first.1 - 1.0) * 100.0);
    increase.unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_element_by_element_and_a_hole_stays_one() {
        let value = |text: &str| {
            let names = |name: &str| match name {
                "a-b" => Ok(vec![1.0, 2.0, 4.0]),
                "hole.us" => Ok(vec![1.0, f64::NAN]),
                _ => Err(ReproduceError::Table(name.into())),
            };
            evaluate(text, &mut { names })
        };
        let one = |text: &str| value(text).unwrap()[0];
        assert_eq!(value("8 / a-b - 1").unwrap(), [7.0, 3.0, 1.0]);
        assert_eq!(one("(max(a-b, 3) - 1) * 2 + at(a-b, 1)"), 8.0);
        assert_eq!(one("1 + 2 <= 3 & sum(a-b) > 7"), 0.0);
        assert_eq!(one("mean(a-b / a-b) >= 1"), 1.0);
        assert!(one("max(hole.us)").is_nan());
        // 95 % of 200 lie half way between 180 and 200.
        let rates = increase(
            &[100.0, 180.0, f64::NAN, 200.0],
            &[10.0, 12.0, 13.0, 16.0],
            None,
        );
        assert!((rates - 40.0).abs() < 1e-9, "{rates}");
        for wrong in ["1 +", "(1", "1 2", "median(a-b)", "c", "at(a-b, 9)", ""] {
            assert!(value(wrong).is_err(), "{wrong}");
        }
    }
}
