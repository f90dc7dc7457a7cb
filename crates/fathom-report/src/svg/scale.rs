//! From values to pixels, and the ticks between: the rules of `assets/scale.js`, for pictures.

use fathom_telemetry::units::group_digits;

use crate::format;

/// Axes end here.
const FAR: f64 = 1e300;

/// Where values of one axis stand.
#[derive(Debug, Clone)]
pub(super) enum Scale {
    /// Numbers, evenly or by powers of ten.
    Continuous {
        low: f64,
        high: f64,
        from: f64,
        to: f64,
        log: bool,
    },
    /// Categories 0 … n-1.
    Bands { n: usize, from: f64, to: f64 },
}

impl Scale {
    /// Numbers from `domain` on pixels `range`.
    pub(super) fn continuous(domain: (f64, f64), range: (f64, f64), log: bool) -> Self {
        // What an edited run may hold: no number beyond that has a neighbour that could be drawn.
        let (mut low, mut high) = (domain.0.clamp(-FAR, FAR), domain.1.clamp(-FAR, FAR));
        if log {
            if low < 1.0 / FAR || low.is_nan() {
                low = if high > 0.0 { high / 1000.0 } else { 1.0 };
            }
            if high <= low || high.is_nan() {
                high = low * 10.0;
            }
        } else if high <= low || high.is_nan() || low.is_nan() {
            high = low + if low == 0.0 { 1.0 } else { low.abs() };
        }
        Self::Continuous {
            low,
            high,
            from: range.0,
            to: range.1,
            log,
        }
    }

    /// The pixel of a value; `None` where it has none.
    pub(super) fn at(&self, v: f64) -> Option<f64> {
        match *self {
            Self::Continuous {
                low,
                high,
                from,
                to,
                log,
            } => {
                if !v.is_finite() || (log && v <= 0.0) {
                    return None;
                }
                let t = |v: f64| if log { v.log10() } else { v };
                Some(from + (t(v) - t(low)) / (t(high) - t(low)) * (to - from))
            }
            Self::Bands { n, from, to } => ((0.0..n as f64).contains(&v))
                .then(|| from + (v + 0.5) * (to - from) / n.max(1) as f64),
        }
    }

    /// The same, cut to the axis: for the ends of bars and intervals.
    pub(super) fn within(&self, v: f64) -> f64 {
        match *self {
            Self::Continuous {
                low,
                high,
                from,
                log,
                ..
            } => {
                let v = if log && v <= 0.0 { low } else { v };
                self.at(v.clamp(low, high)).unwrap_or(from)
            }
            Self::Bands { from, .. } => self.at(v).unwrap_or(from),
        }
    }

    /// Width of a band.
    pub(super) fn band(&self) -> Option<f64> {
        match *self {
            Self::Bands { n, from, to } => Some(((to - from) / n.max(1) as f64).abs()),
            Self::Continuous { .. } => None,
        }
    }

    /// Values that get a tick, about `count` of them. `values` are those that the axis shows.
    pub(super) fn ticks(&self, count: usize, unit: &str, values: &[f64]) -> Vec<f64> {
        match *self {
            Self::Bands { n, .. } => (0..n).map(|i| i as f64).collect(),
            Self::Continuous {
                low,
                high,
                log: false,
                ..
            } => linear(low, high, count, unit, values),
            Self::Continuous { low, high, .. } => logarithmic(low, high, count, unit, values),
        }
    }
}

/// Multiples of 1, 2, 2.5 or 5 × 10ⁿ, in the unit that is printed.
fn linear(low: f64, high: f64, count: usize, unit: &str, values: &[f64]) -> Vec<f64> {
    // Between two whole numbers of things there is nothing to mark.
    let whole = unit.is_empty() && !values.is_empty() && values.iter().all(|v| v.fract() == 0.0);
    let factor = format::scale_for(low.abs().max(high.abs()), unit).factor;
    let (l, h) = (low / factor, high / factor);
    let raw = ((h - l) / count.max(1) as f64).max(if whole { 1.0 } else { f64::MIN });
    if !raw.is_finite() || raw <= 0.0 {
        return Vec::new();
    }
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw * 0.999 && (!whole || s.fract() == 0.0))
        .unwrap_or(raw);
    let first = (l / step - 1e-9).ceil();
    (0..50)
        .map(|i| first + f64::from(i))
        .take_while(|i| i * step <= h + step * 1e-9)
        .map(|i| i * step * factor)
        .collect()
}

fn logarithmic(low: f64, high: f64, count: usize, unit: &str, values: &[f64]) -> Vec<f64> {
    let inside = |v: &f64| *v >= low * 0.999 && *v <= high * 1.001;
    if unit == "quantile" {
        let nines = (1..=7).map(|e| 10f64.powi(e));
        return [1.0, 2.0].into_iter().chain(nines).filter(inside).collect();
    }
    // Depths and sizes are powers of two: their ticks are the values themselves.
    let positive: Vec<f64> = values.iter().copied().filter(|v| *v > 0.0).collect();
    let powers = positive.iter().any(|v| *v != positive[0])
        && positive.iter().all(|v| v.log2().fract() == 0.0);
    if unit == "bytes" || (powers && unit.is_empty()) {
        let from = (low.log2() - 1e-9).ceil() as i32;
        let to = (high.log2() + 1e-9).floor() as i32;
        let n = (to - from + 1).max(0) as usize;
        let step = n.div_ceil(count.max(2)).max(1);
        return (from..=to).step_by(step).map(|e| 2f64.powi(e)).collect();
    }
    let decades = (high / low).log10();
    if decades < 0.7 {
        let mut ticks = linear(low, high, count, unit, &[]);
        ticks.retain(|v| *v > 0.0);
        return ticks;
    }
    let multiples = |digits: &[f64]| -> Vec<f64> {
        let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
        exponents
            .flat_map(|e| digits.iter().map(move |d| d * 10f64.powi(e)))
            .filter(inside)
            .collect()
    };
    for digits in [
        &[1.0, 2.0, 3.0, 5.0][..],
        &[1.0, 2.0, 5.0],
        &[1.0, 3.0],
        &[1.0],
    ] {
        let ticks = multiples(digits);
        if ticks.len() <= count + 1 {
            return ticks;
        }
    }
    let skip = (decades / count.max(1) as f64).ceil().max(1.0) as i32;
    let mut ticks = multiples(&[1.0]);
    ticks.retain(|v| v.log10().round() as i32 % skip == 0);
    ticks
}

/// How ticks of one axis are written: one prefix for all of them, named beside the axis, or each its own.
pub(super) struct Labels {
    factor: Option<f64>,
    unit: String,
    /// Stands behind the axis' name; empty where each tick has its own unit.
    pub(super) suffix: String,
}

impl Labels {
    /// For these ticks.
    pub(super) fn of(ticks: &[f64], unit: &str, log: bool) -> Self {
        let largest = ticks.iter().map(|v| v.abs()).fold(0.0, f64::max);
        let smallest = ticks
            .iter()
            .copied()
            .filter(|v| *v > 0.0)
            .fold(largest, f64::min);
        let ratio = if smallest > 0.0 {
            largest / smallest
        } else {
            largest
        };
        let each = unit == "bytes" || unit == "quantile" || ratio >= if log { 30.0 } else { 2e3 };
        let scale = format::scale_for(largest, unit);
        Self {
            factor: (!each).then_some(scale.factor),
            suffix: if each {
                String::new()
            } else {
                scale.unit.to_owned()
            },
            unit: unit.to_owned(),
        }
    }

    /// A tick's text.
    pub(super) fn text(&self, v: f64) -> String {
        if let Some(factor) = self.factor {
            return trimmed(v / factor);
        }
        if self.unit == "quantile" {
            return quantile(v);
        }
        if self.unit == "bytes" {
            return format::value(v, "bytes");
        }
        let s = format::scale_for(v, &self.unit);
        let text = trimmed(v / s.factor);
        if s.unit.is_empty() {
            text
        } else {
            format!("{text} {}", s.unit)
        }
    }
}

/// Six digits at most, none superfluous.
fn trimmed(v: f64) -> String {
    if v == 0.0 {
        return "0".to_owned();
    }
    let digits = (5.0 - v.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{v:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    group_digits(text)
}

/// The quantile axis holds 1/(1-q): 1 is the minimum, 2 the median, 1000 the 99.9th percentile.
fn quantile(odds: f64) -> String {
    let q = 1.0 - 1.0 / odds;
    let nines = (odds.log10().ceil() - 1.0).max(0.0) as usize;
    let text = format!("{:.nines$}", q * 100.0);
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_inside_and_about_as_many_as_asked() {
        for (low, high, log, unit) in [
            (0.0, 84_210.0, false, "1/s"),
            (1e4, 3e8, true, "ns"),
            (512.0, 1e6, true, "bytes"),
            (1.0, 128.0, true, ""),
            (1.0, 1e5, true, "quantile"),
            (3.0, 3.0, false, "%"),
            (0.0, 0.0, true, "ns"),
            (f64::NAN, f64::NAN, false, "s"),
        ] {
            let s = Scale::continuous((low, high), (50.0, 450.0), log);
            let ticks = s.ticks(6, unit, &[1.0, 2.0, 64.0]);
            assert!(ticks.len() <= 16, "{ticks:?}");
            for t in &ticks {
                let px = s.at(*t).unwrap();
                assert!((49.0..451.0).contains(&px), "{t} at {px}");
                assert!(!Labels::of(&ticks, unit, log).text(*t).contains("NaN"));
            }
        }
        let s = Scale::continuous((0.0, 100_000.0), (0.0, 1.0), false);
        let ticks = s.ticks(5, "1/s", &[]);
        let labels = Labels::of(&ticks, "1/s", false);
        assert_eq!(labels.suffix, "k/s");
        let texts: Vec<String> = ticks.iter().map(|t| labels.text(*t)).collect();
        assert_eq!(texts, ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(quantile(1000.0), "99.9 %");
        assert_eq!(quantile(2.0), "50 %");
    }

    /// One axis of `tests/golden/ticks.json`, from which `tests/browser.rs` has the page make the same ticks.
    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    struct Axis {
        low: f64,
        high: f64,
        log: bool,
        unit: String,
        count: usize,
        values: Vec<f64>,
        suffix: String,
        ticks: Vec<String>,
    }

    #[test]
    fn ticks_are_those_that_the_page_has_too() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ticks.json");
        let axes: &[(f64, f64, bool, &str, &[f64])] = &[
            (0.0, 84_210.0, false, "1/s", &[]),
            (0.0, 3.2e9, false, "bytes/s", &[]),
            (0.0, 100.0, false, "%", &[]),
            (0.0, 0.9, false, "ratio", &[]),
            (-3.5, 12.25, false, "", &[]),
            (17.0, 1234.5, false, "s", &[]),
            (0.0, 0.034, false, "s", &[]),
            (0.0, 5e7, false, "ns", &[]),
            (0.0, 6.0e10, false, "bytes", &[]),
            (3.0, 3.0, false, "%", &[]),
            (1.97, 4.03, false, "", &[2.0, 3.0, 4.0]),
            (0.0, 17.5, false, "", &[1.0, 8.0, 16.0]),
            (1e4, 3e8, true, "ns", &[]),
            (9e4, 2.2e5, true, "ns", &[]),
            (41_000.0, 1.9e6, true, "ns", &[]),
            (1e3, 1e13, true, "1/s", &[]),
            (512.0, 1e6, true, "bytes", &[]),
            (1.0, 128.0, true, "", &[1.0, 2.0, 64.0]),
            (1.0, 100.0, true, "", &[1.0, 7.0, 60.0]),
            (1.0, 1e5, true, "quantile", &[]),
            (0.0, 0.0, true, "ns", &[]),
        ];
        let made: Vec<Axis> = axes
            .iter()
            .flat_map(|axis| [3, 6, 8].map(|count| (axis, count)))
            .map(|(&(low, high, log, unit, values), count)| {
                let scale = Scale::continuous((low, high), (50.0, 450.0), log);
                let ticks = scale.ticks(count, unit, values);
                let labels = Labels::of(&ticks, unit, log);
                Axis {
                    low,
                    high,
                    log,
                    unit: unit.to_owned(),
                    count,
                    values: values.to_vec(),
                    ticks: ticks.iter().map(|t| labels.text(*t)).collect(),
                    suffix: labels.suffix,
                }
            })
            .collect();
        if std::env::var_os("FATHOM_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
        }
        let golden: Vec<Axis> =
            serde_json::from_slice(&std::fs::read(&path).unwrap_or_default()).unwrap_or_default();
        for (made, golden) in made.iter().zip(&golden) {
            assert_eq!(made, golden);
        }
        assert_eq!(
            made.len(),
            golden.len(),
            "if that is meant, run with FATHOM_UPDATE_GOLDEN=1"
        );
    }
}
