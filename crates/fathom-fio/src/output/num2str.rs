//! fio's way to shorten numbers for people: so many digits, a decimal or binary prefix, a unit.

/// What stands behind a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    None,
    Byte,
    BytePerSecond,
    BitPerSecond,
}

/// `n` in at most `digits` digits (the point counts), as fio's num2str does it, rounding included.
pub(crate) fn num2str(n: u64, digits: usize, binary: bool, unit: Unit) -> String {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (prefixes, thousand) = if binary {
        (BINARY, 1024)
    } else {
        (DECIMAL, 1000)
    };
    let word = match unit {
        Unit::None => "",
        Unit::Byte => "B",
        Unit::BytePerSecond => "B/s",
        Unit::BitPerSecond => "bit/s",
    };
    let mut n = if unit == Unit::BitPerSecond {
        n.saturating_mul(8)
    } else {
        n
    };
    let (mut index, mut rest) = (0, None);
    while index + 1 < prefixes.len() && n.to_string().len() > digits {
        rest = Some(n % thousand);
        n /= thousand;
        index += 1;
    }
    let Some(rest) = rest else {
        return format!("{n}{}{word}", prefixes[index]);
    };
    let left = digits.saturating_sub(n.to_string().len());
    if left <= 1 {
        let n = n + u64::from(rest >= thousand / 2);
        return format!("{n}{}{word}", prefixes[index]);
    }
    let fraction = format!("{:.*}", left - 1, rest as f64 / thousand as f64);
    let n = n + u64::from(fraction.starts_with('1'));
    format!(
        "{n}.{}{}{word}",
        fraction.get(2..).unwrap_or(""),
        prefixes[index]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_fio() {
        // From fio's own output.
        for (n, digits, binary, unit, text) in [
            (4096, 4, true, Unit::Byte, "4096B"),
            (65_536, 4, true, Unit::Byte, "64.0KiB"),
            (30_723, 4, false, Unit::None, "30.7k"),
            (8131, 4, false, Unit::None, "8131"),
            (4_828_011, 6, false, Unit::None, "4828.0k"),
            (14_913_000, 6, false, Unit::None, "14913k"),
            (115_782, 6, false, Unit::None, "115782"),
            (1 << 20, 4, true, Unit::Byte, "1024KiB"),
            (1 << 20, 4, false, Unit::Byte, "1049kB"),
            (8 << 20, 4, true, Unit::Byte, "8192KiB"),
            (349_525_333, 4, true, Unit::BytePerSecond, "333MiB/s"),
            (349_525_333, 4, false, Unit::BytePerSecond, "350MB/s"),
            (125_000, 4, false, Unit::BitPerSecond, "1000kbit/s"),
        ] {
            assert_eq!(num2str(n, digits, binary, unit), text, "{n}");
        }
    }
}
