//! fio's way to read numbers: lenient with what follows, percentages beside sizes, `kb_base`.

/// A number with its unit applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Bytes, or a plain number.
    Plain(i64),
    /// `50%`.
    Percent(u64),
    /// `3z`.
    Zones(u64),
}

/// C's strtoll with base 10 or 16: the value and where it ended; `None` without a digit or beyond 64 bits.
pub(crate) fn strtoll(text: &str) -> Option<(i64, usize)> {
    let hex = text.contains("0x") || text.contains("0X");
    let bytes = text.as_bytes();
    let mut at = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let negative = bytes.get(at) == Some(&b'-');
    if negative || bytes.get(at) == Some(&b'+') {
        at += 1;
    }
    if hex && bytes.get(at) == Some(&b'0') && bytes.get(at + 1).is_some_and(|b| b | 32 == b'x') {
        at += 2;
    }
    let radix = if hex { 16 } else { 10 };
    let digits = bytes[at..]
        .iter()
        .take_while(|b| char::from(**b).is_digit(radix))
        .count();
    let value = i64::from_str_radix(text.get(at..at + digits)?, radix).ok()?;
    Some((if negative { -value } else { value }, at + digits))
}

/// Where the digits (and signs before them) end, as fio looks for a suffix.
fn suffix(text: &str) -> &str {
    let mut digit_seen = false;
    for (i, c) in text.char_indices() {
        let sign = c == '+' || c == '-';
        if !c.is_ascii_digit() && (!sign || digit_seen) {
            return &text[i..];
        }
        digit_seen |= c.is_ascii_digit();
    }
    ""
}

/// A size as fio reads it: `4k`, `4kb` and `1m` are binary with `kb_base` 1024, `4kib` is 4000 then.
pub(crate) fn number(text: &str, kb_base: u64) -> Option<Quantity> {
    if text.ends_with('z') && text.len() > 1 {
        return text[..text.len() - 1].parse().ok().map(Quantity::Zones);
    }
    let (value, _) = strtoll(text)?;
    let tail = suffix(text);
    if !tail.starts_with(|c: char| c.is_ascii_alphabetic() || c == '%') {
        return Some(Quantity::Plain(value));
    }
    let tail: String = tail
        .chars()
        .take_while(|c| !matches!(c, ':' | '-' | ',' | '/'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    if tail.starts_with('%') {
        return u64::try_from(value).ok().map(Quantity::Percent);
    }
    let power = match tail.as_bytes().first() {
        Some(b'k') => 1,
        Some(b'm') => 2,
        Some(b'g') => 3,
        Some(b't') => 4,
        Some(b'p') => 5,
        _ => 0,
    };
    let iec = tail.get(1..3) == Some("ib");
    let base: i64 = match (kb_base, iec) {
        (1000, false) | (1024, true) => 1000,
        _ => 1024,
    };
    base.checked_pow(power)
        .and_then(|m| value.checked_mul(m))
        .map(Quantity::Plain)
}

/// A duration in µs.
pub(crate) fn micros(text: &str, bare_seconds: bool) -> Option<u64> {
    let (value, _) = strtoll(text)?;
    let at = text
        .find(|c: char| !(c.is_ascii_digit() || c == '+' || c == '-'))
        .unwrap_or(text.len());
    let unit = text[at..].to_ascii_lowercase();
    let scale: i64 = if !unit.starts_with(|c: char| c.is_ascii_alphabetic()) {
        if bare_seconds { 1_000_000 } else { 1 }
    } else if unit.starts_with("us") {
        1
    } else if unit.starts_with("ms") {
        1000
    } else {
        match unit.as_str() {
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => 1,
        }
    };
    value.checked_mul(scale).and_then(|v| u64::try_from(v).ok())
}

/// C's scanf of a float: the longest beginning that is one.
pub(crate) fn float(text: &str) -> Option<f64> {
    let t = text.trim_start();
    (1..=t.len())
        .rev()
        .filter(|n| t.is_char_boundary(*n))
        .find_map(|n| t[..n].parse::<f64>().ok())
}

/// C's scanf of an unsigned number.
pub(crate) fn unsigned(text: &str) -> Option<i64> {
    strtoll(text).map(|v| v.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_follow_kb_base() {
        for (text, base, bytes) in [
            ("4k", 1024, 4096),
            ("4kb", 1024, 4096),
            ("4kib", 1024, 4000),
            ("4k", 1000, 4000),
            ("4KiB", 1000, 4096),
            ("0x10", 1024, 16),
            ("1m,2m", 1024, 1 << 20),
            ("4x", 1024, 4),
            (" 4k", 1024, 4),
            ("-8k", 1024, -8192),
        ] {
            assert_eq!(number(text, base), Some(Quantity::Plain(bytes)), "{text}");
        }
        assert_eq!(number("50%", 1024), Some(Quantity::Percent(50)));
        assert_eq!(number("k", 1024), None);
    }

    #[test]
    fn times_have_their_own_bare_unit() {
        assert_eq!(micros("10", true), Some(10_000_000));
        assert_eq!(micros("10", false), Some(10));
        assert_eq!(micros("10ms", true), Some(10_000));
        assert_eq!(micros("2m", false), Some(120_000_000));
        assert_eq!(micros("-1", true), None);
    }

    #[test]
    fn floats_are_read_as_far_as_they_go() {
        assert_eq!(float("1.2:0.5"), Some(1.2));
        assert_eq!(float("99.9x"), Some(99.9));
        assert_eq!(float("x"), None);
    }
}
