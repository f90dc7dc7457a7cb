//! Numbers for people: one prefix rule for terminal, Markdown and HTML.
//!
//! Latency is in ns, µs, ms, s; bandwidth in decimal MB/s and GB/s; sizes in
//! binary KiB and MiB, as vendors and kernels print them. Three significant
//! digits everywhere; an interval never claims more digits than it has.
//! `assets/units.js` follows the same rules; `tests/browser.rs` compares both.

use fathom_stats::Estimate;
use fathom_telemetry::units::{group_digits, never_negative};

/// What stands where nothing could be measured.
pub const HOLE: &str = "—";

/// A unit with its prefix: `shown = value / factor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale<'a> {
    /// Divide by this before printing.
    pub factor: f64,
    /// Printed after the number: `µs`, `GB/s`, `k/s`; empty for plain numbers.
    pub unit: &'a str,
}

const TIME: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const RATE: [(f64, &str); 4] = [(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")];
const IOPS: [(f64, &str); 4] = [
    (1.0, "IOPS"),
    (1e3, "k IOPS"),
    (1e6, "M IOPS"),
    (1e9, "G IOPS"),
];
const BANDWIDTH: [(f64, &str); 5] = [
    (1.0, "B/s"),
    (1e3, "kB/s"),
    (1e6, "MB/s"),
    (1e9, "GB/s"),
    (1e12, "TB/s"),
];
const SIZE: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1_048_576.0, "MiB"),
    (1_073_741_824.0, "GiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_125_899_906_842_624.0, "PiB"),
];
/// Seconds of wall time: only downwards, minutes stay seconds.
const SECONDS: [(f64, &str); 4] = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];

/// The prefix that suits `value` in `unit` (a unit of the run's schema).
/// Unknown units are printed as they are, where they are words: they stand beside numbers that nothing escapes.
pub fn scale_for(value: f64, unit: &str) -> Scale<'_> {
    let steps: &[(f64, &str)] = match unit {
        "ns" => &TIME,
        "s" => &SECONDS,
        "1/s" => &RATE,
        "IOPS" => &IOPS,
        "bytes/s" => &BANDWIDTH,
        "bytes" => &SIZE,
        "ratio" => &[(1.0, "")],
        _ => {
            let unit = if unit.chars().all(of_units) {
                unit
            } else {
                "?"
            };
            return Scale { factor: 1.0, unit };
        }
    };
    // 999.6 rounds to 1000: the next prefix reads better, hence 0.9995 of the step.
    let at = steps
        .iter()
        .rposition(|(f, _)| value.abs() >= f * 0.9995)
        .unwrap_or(0);
    let (factor, unit) = steps[if value == 0.0 { zero_step(steps) } else { at }];
    Scale { factor, unit }
}

/// What units are written with, and neither markup nor terminals obey.
fn of_units(c: char) -> bool {
    c.is_alphanumeric() || " %/°·.-+(),²³".contains(c)
}

/// Zero is printed in the base unit (`0 s`, not `0 ns`, for seconds).
fn zero_step(steps: &[(f64, &str)]) -> usize {
    steps.iter().position(|(f, _)| *f == 1.0).unwrap_or(0)
}

/// Decimals that leave three significant digits.
fn decimals(v: f64) -> usize {
    let v = v.abs();
    if v == 0.0 || v >= 99.95 {
        0
    } else if v >= 9.995 {
        1
    } else if v >= 0.9995 {
        2
    } else {
        // 0.0123 wants four; below 1e-6 the number is noise anyway.
        ((-v.log10().floor()) as usize + 2).min(8)
    }
}

/// Thousands in groups: `1,234,567`.
pub fn grouped(n: u64) -> String {
    group_digits(&n.to_string())
}

fn fixed(v: f64, digits: usize) -> String {
    if v.abs() >= 1e15 {
        return format!("{v:.2e}");
    }
    group_digits(&format!("{v:.digits$}"))
}

/// A plain number with three significant digits, whole numbers in full: `12,345`, `0.0123`.
pub fn number(v: f64) -> String {
    if !v.is_finite() {
        return HOLE.to_owned();
    }
    if v.fract() == 0.0 && v.abs() < 1e15 {
        return fixed(v, 0);
    }
    fixed(v, decimals(v))
}

fn with_unit(number: &str, unit: &str) -> String {
    match unit {
        "" => number.to_owned(),
        "%" => format!("{number} %"),
        _ => format!("{number} {unit}"),
    }
}

/// A value with its unit: `84.2 µs`, `6.92 GB/s`, `4 KiB`, `512 k/s`.
pub fn value(v: f64, unit: &str) -> String {
    if !v.is_finite() {
        return HOLE.to_owned();
    }
    let s = scale_for(v, unit);
    let shown = v / s.factor;
    // Sizes and plain numbers are often exact (4 KiB); a latency of 22.0 µs is not 22 µs.
    let exact = shown.fract() == 0.0 && (s.factor == 1.0 || unit == "bytes");
    let text = fixed(shown, if exact { 0 } else { decimals(shown) });
    with_unit(&text, s.unit)
}

/// The same below a heading that names the unit already: `571 k` below `IOPS`.
pub fn below(v: f64, unit: &str, heading: &str) -> String {
    unnamed(&value(v, unit), unit, heading)
}

/// A printed value without its unit where the heading says it.
pub(crate) fn unnamed(text: &str, unit: &str, heading: &str) -> String {
    match unit == "IOPS" && heading.ends_with(unit) {
        true => text.trim_end_matches(unit).trim_end().to_owned(),
        false => text.to_owned(),
    }
}

/// A value or the mark of a hole.
pub fn optional(v: Option<f64>, unit: &str) -> String {
    v.map_or_else(|| HOLE.to_owned(), |v| value(v, unit))
}

/// An estimate split for columns: the value with its unit, and the half width of the interval
/// (`± 1.3`, in the same unit; `(0 to 14)` where that would reach below 0 and the interval does not), empty where one
/// sample allows no interval.
pub fn estimate_parts(e: &Estimate, unit: &str) -> (String, String) {
    let e = &match never_negative(unit) {
        true => e.from_nought(),
        false => *e,
    };
    let (Some(low), Some(high)) = (e.low, e.high) else {
        return (value(e.value, unit), String::new());
    };
    let half = (high - low) / 2.0;
    if !half.is_finite() || !e.value.is_finite() {
        return (value(e.value, unit), String::new());
    }
    let s = scale_for(e.value, unit);
    let below = e.value >= 0.0 && low >= 0.0 && half > e.value;
    // A value at an end of its interval is no middle.
    let at_end = half > 0.0 && (e.value <= low || e.value >= high);
    if below || at_end {
        // Both ends: "±" would reach beyond the interval.
        let [low, high] = [low, high].map(|v| fixed(v / s.factor, decimals(v / s.factor)));
        return (value(e.value, unit), format!("({low} to {high})"));
    }
    let (shown, half) = (e.value / s.factor, half / s.factor);
    // Two digits of the interval, but not more than one digit beyond the value's own three.
    let own = decimals(shown);
    let digits = decimals_for(half, 2).clamp(own.saturating_sub(1), own + 1);
    let number = fixed(shown, digits);
    (
        with_unit(&number, s.unit),
        format!("± {}", fixed(half, digits)),
    )
}

/// Decimals that show `significant` digits of `v`.
fn decimals_for(v: f64, significant: i32) -> usize {
    if v <= 0.0 {
        return 0;
    }
    (significant - 1 - v.log10().floor() as i32).clamp(0, 8) as usize
}

/// An estimate in one piece: `84.2 ± 1.3 µs`.
pub fn estimate(e: &Estimate, unit: &str) -> String {
    let (value, half) = estimate_parts(e, unit);
    if half.is_empty() {
        return value;
    }
    match value.split_once(' ') {
        Some((number, unit)) => format!("{number} {half} {unit}"),
        None => format!("{value} {half}"),
    }
}

/// A moment for people, of RFC 3339: `2026-03-01 12:00:00 UTC`.
pub fn moment(rfc3339: &str) -> String {
    rfc3339.replace('T', " ").replace('Z', " UTC")
}

/// Wall time for people: `850 ms`, `12.3 s`, `2 min 41 s`, `12 h 04 min`.
pub fn wall(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s {
        0..=99 => value(ns as f64, "ns"),
        100..=5_999 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

/// A share in 0..=1 as a percentage with at most three digits: `98.4 %`.
pub fn share(v: f64) -> String {
    value(v * 100.0, "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_carry_the_prefix_that_suits_them() {
        for (v, unit, text) in [
            (850.0, "ns", "850 ns"),
            (84_210.0, "ns", "84.2 µs"),
            (999_600.0, "ns", "1.00 ms"),
            (6.923e9, "bytes/s", "6.92 GB/s"),
            (523e6, "bytes/s", "523 MB/s"),
            (4096.0, "bytes", "4 KiB"),
            (22_000.0, "ns", "22.0 µs"),
            (1.5e9, "bytes", "1.40 GiB"),
            (512_345.0, "1/s", "512 k/s"),
            (512_345.0, "IOPS", "512 k IOPS"),
            (1_023_456.0, "1/s", "1.02 M/s"),
            (0.0, "ns", "0 ns"),
            (0.0, "s", "0 s"),
            (0.25, "s", "250 ms"),
            (0.834, "ratio", "0.834"),
            (98.44, "%", "98.4 %"),
            (12_345.0, "", "12,345"),
            (0.012_34, "", "0.0123"),
            (41.5, "°C", "41.5 °C"),
            (-84_210.0, "ns", "-84.2 µs"),
            (f64::NAN, "ns", "—"),
        ] {
            assert_eq!(value(v, unit), text, "{v} {unit}");
        }
    }

    #[test]
    fn an_interval_shows_two_digits_and_shares_the_unit_of_its_value() {
        let e = |value, half| Estimate {
            value,
            low: Some(value - half),
            high: Some(value + half),
            samples: 5,
        };
        assert_eq!(estimate(&e(84_210.0, 1_310.0), "ns"), "84.2 ± 1.3 µs");
        assert_eq!(estimate(&e(84_210.0, 130.0), "ns"), "84.21 ± 0.13 µs");
        assert_eq!(estimate(&e(84_210.0, 13_100.0), "ns"), "84 ± 13 µs");
        assert_eq!(estimate(&e(512_345.0, 2_100.0), "1/s"), "512.3 ± 2.1 k/s");
        assert_eq!(estimate(&e(0.8, 0.01), "ratio"), "0.800 ± 0.010");
        assert_eq!(estimate(&Estimate::single(84_210.0), "ns"), "84.2 µs");
    }

    /// The numbers of a text, thousands in groups.
    fn numbers(text: &str) -> Vec<f64> {
        let mark = |c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == ',');
        let pieces = text.split(mark).filter(|p| !p.is_empty());
        pieces
            .filter_map(|p| p.replace(',', "").parse().ok())
            .collect()
    }

    #[test]
    fn no_printed_interval_of_what_cannot_be_negative_reaches_below_0() {
        let mut random = fathom_stats::rng::SplitMix64::new(17);
        let mut ranges = 0;
        for round in 0..20_000 {
            let value = 10f64.powf(12.0 * random.unit() - 2.0);
            let half = value * 10f64.powf(4.0 * random.unit() - 2.0);
            let unit = ["IOPS", "1/s", "bytes/s", "bytes", "ns", "s", "ratio", ""][round % 8];
            let e = Estimate {
                value,
                low: Some(value - half),
                high: Some(value + half),
                samples: 3,
            };
            let (shown, interval) = estimate_parts(&e, unit);
            let said = numbers(&interval);
            match interval.strip_prefix("± ") {
                // Rounding may not carry it below, by more than the last digit.
                Some(_) => {
                    let value = numbers(&shown)[0];
                    let text = interval.trim_start_matches("± ").replace(',', "");
                    let digits = text.split_once('.').map_or(0, |p| p.1.len());
                    let step = 10f64.powi(-(digits as i32));
                    assert!(
                        value - said[0] > -1.01 * step,
                        "{e:?} {unit}: {shown} {interval}"
                    );
                }
                None => {
                    ranges += 1;
                    assert_eq!(said.len(), 2, "{e:?} {unit}: {interval}");
                    assert!(said[0] >= 0.0 && said[1] > said[0], "{e:?}: {interval}");
                }
            }
            assert!(estimate(&e, unit).contains(&interval), "{e:?}");
        }
        assert!(ranges > 5_000, "{ranges}");
    }

    #[test]
    fn long_times_are_minutes_and_hours() {
        assert_eq!(wall(12_340_000_000), "12.3 s");
        assert_eq!(wall(3_000_000_000), "3.00 s");
        assert_eq!(wall(161_000_000_000), "2 min 41 s");
        assert_eq!(wall(43_440_000_000_000), "12 h 04 min");
    }
}
