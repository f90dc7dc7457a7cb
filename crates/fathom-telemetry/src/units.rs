//! Durations and sizes as types: nanoseconds and bytes inside, units at the edge.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether a quantity of this unit of `run.json` is a rate, a size, a time or a ratio of them: none is below 0, save for a
/// difference, whose values tell that.
pub fn never_negative(unit: &str) -> bool {
    const UNITS: [&str; 8] = ["IOPS", "1/s", "bytes/s", "bytes", "ns", "s", "ratio", ""];
    UNITS.contains(&unit)
}

/// A duration or an instant on the driver's clock, in nanoseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Later than anything.
    pub const MAX: Self = Self(u64::MAX);
    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }
    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }
    /// From whole microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }
    /// From fractional seconds; negative or not-a-number becomes zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).max(0.0) as u64)
    }
    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// In microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// Difference, zero where `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Nanos {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}
impl From<Nanos> for std::time::Duration {
    fn from(n: Nanos) -> Self {
        Self::from_nanos(n.0)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits with the unit that suits: `850 ns`, `12.3 µs`, `1.50 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        let (v, unit) = match self.0 {
            0..=999 => return write!(f, "{} ns", self.0),
            1_000..=999_999 => (n / 1e3, "µs"),
            1_000_000..=999_999_999 => (n / 1e6, "ms"),
            _ => (n / 1e9, "s"),
        };
        let digits = if v >= 100.0 {
            0
        } else if v >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{v:.digits$} {unit}")
    }
}

/// A rate or a count for a sentence: whole, with its thousands in groups, `61,010`.
pub fn grouped(v: f64) -> String {
    group_digits(&format!("{v:.0}"))
}

/// A number's text, with or without a fraction, with its thousands in groups.
pub fn group_digits(text: &str) -> String {
    let (sign, rest) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest
        .split_once('.')
        .map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(f) = fraction {
        out.push('.');
        out.push_str(f);
    }
    out
}

/// What could not be read as a size, duration or rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {what}: expected {expected}")]
pub struct ParseUnitError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

fn split_suffix(text: &str) -> (&str, String) {
    let t = text.trim();
    let at = t
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(t.len());
    (&t[..at], t[at..].trim().to_ascii_lowercase())
}

impl FromStr for Nanos {
    type Err = ParseUnitError;
    /// `10s`, `500ms`, `20us`, `100ns`, `2m`, `12h`, `1d`; a bare number is seconds, as in fio.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let err = || ParseUnitError {
            text: text.to_owned(),
            what: "duration",
            expected: "a number with ns, us, ms, s, m, h or d, such as 5s or 100ms",
        };
        let (number, unit) = split_suffix(text);
        let scale = match unit.as_str() {
            "ns" | "nsec" => 1.0,
            "us" | "usec" | "µs" => 1e3,
            "ms" | "msec" => 1e6,
            "" | "s" | "sec" => 1e9,
            "m" | "min" => 60e9,
            "h" | "hour" => 3600e9,
            "d" | "day" => 86_400e9,
            _ => return Err(err()),
        };
        let ns = number.parse::<f64>().map_err(|_| err())? * scale;
        if ns >= u64::MAX as f64 {
            return Err(err());
        }
        Ok(Self(ns.round() as u64))
    }
}

/// A number of bytes, an offset or a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// From MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// From GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl fmt::Display for Bytes {
    /// Exact binary multiples keep their unit (`4 KiB`); others get three digits (`1.46 GiB`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        while unit < 6 && self.0 >> (10 * (unit + 1)) > 0 {
            unit += 1;
        }
        let whole = 1u64 << (10 * unit);
        if self.0.is_multiple_of(whole) {
            return write!(f, "{} {}", self.0 / whole, UNITS[unit]);
        }
        let v = self.0 as f64 / whole as f64;
        let digits = if v >= 100.0 {
            0
        } else if v >= 10.0 {
            1
        } else {
            2
        };
        write!(f, "{v:.digits$} {}", UNITS[unit])
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    /// fio's suffixes: `k`, `m`, `g`, `t`, `p` are binary (1024), as are `ki`, `kib`;
    /// `kb` is 1024 too, as in fio with its default `kb_base=1024`. A bare number is bytes.
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let err = || ParseUnitError {
            text: text.to_owned(),
            what: "size",
            expected: "a number with an optional k, m, g or t (binary), such as 4k or 1g",
        };
        let (number, unit) = split_suffix(text);
        let shift = match unit
            .trim_end_matches("ib")
            .trim_end_matches('b')
            .trim_end_matches('i')
        {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            "p" => 50,
            _ => return Err(err()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole
                .checked_shl(shift)
                .filter(|v| v >> shift == whole)
                .map(Self)
                .ok_or_else(err);
        }
        let v = number.parse::<f64>().map_err(|_| err())? * (1u64 << shift) as f64;
        if v >= u64::MAX as f64 {
            return Err(err());
        }
        Ok(Self(v.round() as u64))
    }
}

/// Serialized as a number of bytes; read from a number or from text with a suffix.
impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}
impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(n) => Ok(Self(n)),
            Either::Text(t) => t.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_fio() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4kb", 4096),
            ("1.5m", 3 << 19),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
            ("7 b", 7),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap().0, bytes, "{text}");
        }
        for bad in ["", "k", "4x", "-4k", "4kk", "99999999999p", "1e3"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_in_sentences_are_whole_and_in_groups() {
        for (v, text) in [(61_009.7, "61,010"), (999.4, "999"), (-1e6, "-1,000,000")] {
            assert_eq!(grouped(v), text);
        }
    }

    #[test]
    fn durations_have_units_and_seconds_by_default() {
        for (text, ns) in [
            ("5", 5_000_000_000),
            ("100ms", 100_000_000),
            ("1.5us", 1500),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(text.parse::<Nanos>().unwrap().0, ns, "{text}");
        }
        assert!("5 parsecs".parse::<Nanos>().is_err());
    }

    #[test]
    fn display_picks_the_unit() {
        assert_eq!(Nanos(12_340).to_string(), "12.3 µs");
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1_568_000_000).to_string(), "1.46 GiB");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*|[0-9.]{0,25}[a-zµ]{0,5}") {
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn every_whole_number_of_bytes_and_ns_is_read_back(n: u64, unit in 0usize..5) {
            let text = format!("{}{}", n >> 44, ["", "k", "m", "g", "t"][unit]);
            proptest::prop_assert_eq!(text.parse::<Bytes>().unwrap().0, (n >> 44) << (10 * unit));
            // Durations go through a double: exact up to 2^53.
            let n = n >> 11;
            proptest::prop_assert_eq!(format!("{n}ns").parse::<Nanos>().unwrap(), Nanos(n));
        }

        #[test]
        fn what_is_displayed_as_a_size_is_read_as_that_size(n: u64) {
            let n = n & !0xfff;
            let shown = Bytes(n).to_string();
            let read = shown.parse::<Bytes>();
            if n >> 60 == 0 {
                let read = read.unwrap().0;
                proptest::prop_assert!(read.abs_diff(n) as f64 <= n as f64 / 99.0, "{shown}");
            }
        }
    }
}
