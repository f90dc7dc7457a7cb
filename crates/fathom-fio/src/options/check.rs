//! Judges a value as fio's own parser does; only the verdict matters here.

use super::value::{self, Quantity};
use super::{Kind, OptionDef};

/// See [`OptionDef::check`].
pub(super) fn check(option: &OptionDef, value: Option<&str>) -> Result<(), String> {
    let missing = || "a value is needed".to_owned();
    match option.kind {
        Kind::Deprecated => return Err("fio no longer has it".into()),
        Kind::Ignored => return Ok(()),
        Kind::Flag => {
            return match value {
                None => Ok(()),
                Some(v) => value::unsigned(v)
                    .map(drop)
                    .ok_or_else(|| format!("'{v}' is not 0 or 1")),
            };
        }
        // fio takes words without one, and means the first.
        Kind::Free | Kind::Choice(_) if value.is_none() => {
            return if matches!(option.kind, Kind::Free) && !needs_value(option.name) {
                Ok(())
            } else {
                Err(missing())
            };
        }
        _ => {}
    }
    let value = value.ok_or_else(missing)?;
    let any = |test: &dyn Fn(&str) -> Result<(), String>| any_part(option.kind, value, test);
    match option.kind {
        Kind::Text | Kind::Engine if value.is_empty() => Err(missing()),
        Kind::Choice(words) => {
            choice(words, value)?.map_or(Ok(()), |w| postfix(option.name, w, value))
        }
        Kind::Free => grammar(option.name, value),
        Kind::Int(low, high) => {
            any(&|v| bounded(v, low, high, true, false))?;
            match value::strtoll(value) {
                Some((mask, _)) if option.name == "cpumask" => {
                    // fio looks at 32 bits.
                    present(31 - (mask as u32).leading_zeros().min(31))
                }
                _ => Ok(()),
            }
        }
        Kind::Size(low, high) => any(&|v| bounded(v, low, high, false, false)),
        Kind::Zone => any(&|v| bounded(v, 0, 0, false, true)),
        Kind::Time { bare_seconds } => any(&|v| {
            value::strtoll(first(v)).map(drop).ok_or_else(|| {
                format!(
                    "'{value}' is not a duration: expected one such as {}",
                    if bare_seconds { "30s" } else { "500us" }
                )
            })
        }),
        Kind::Range => any(&range),
        Kind::Floats { len, .. } if len > 0 && value.split(':').count() > len => Err(format!(
            "the list exceeding max length {len}: give fewer numbers"
        )),
        Kind::Floats { len, low, high } => any(&|v| floats(v, len, low, high)),
        Kind::Bool => any(&|v| match value::unsigned(v) {
            Some(0 | 1) => Ok(()),
            _ => Err(format!("'{value}' is not 0 or 1")),
        }),
        Kind::Text | Kind::Engine | Kind::Flag | Kind::Deprecated | Kind::Ignored => Ok(()),
    }
}

/// fio reads lists part by part and is content when one part is good.
fn any_part(
    kind: Kind,
    value: &str,
    test: &dyn Fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = value;
    let mut verdict = Err(String::new());
    loop {
        let at = match kind {
            Kind::Floats { .. } => rest.find(':'),
            _ => {
                if rest.find(',').is_some_and(|i| i + 1 == rest.len()) {
                    rest = &rest[..rest.len() - 1];
                }
                rest.find(',').or_else(|| {
                    if matches!(kind, Kind::Range) {
                        return None;
                    }
                    // A switch may begin with a dash; what follows it counts.
                    let from = usize::from(!matches!(kind, Kind::Bool));
                    rest.find(':')
                        .or_else(|| rest.get(from..)?.find('-').map(|i| i + from))
                })
            }
        };
        if verdict.is_err() {
            let this = test(rest);
            if this.is_ok() || verdict.as_ref().is_err_and(String::is_empty) {
                verdict = this;
            }
        }
        match at {
            Some(i) => rest = &rest[i + 1..],
            None => return verdict,
        }
    }
}

fn needs_value(name: &str) -> bool {
    !matches!(
        name,
        "write_bw_log" | "write_lat_log" | "write_iops_log" | "write_hist_log"
    )
}

/// What stands before the first comma.
fn first(value: &str) -> &str {
    value.split(',').next().unwrap_or(value)
}

/// The word that the value begins with: it must end there, or at a comma or colon.
fn choice(words: &[&'static str], value: &str) -> Result<Option<&'static str>, String> {
    let word = value.split([',', ':']).next().unwrap_or(value);
    words
        .iter()
        .find(|w| **w == word)
        .map(|w| Some(*w))
        .ok_or_else(|| format!("'{word}' is not one of {}", words.join(", ")))
}

/// What may follow the word after a colon.
fn postfix(name: &str, word: &str, value: &str) -> Result<(), String> {
    let Some((_, rest)) = value.split_once(':') else {
        return if name == "steadystate" {
            Err(format!("a threshold is needed, such as {word}:5%"))
        } else {
            Ok(())
        };
    };
    match name {
        "random_distribution" => distribution(word, rest),
        "steadystate" if value::float(rest).is_none() => Err(format!(
            "'{rest}' is not a threshold: expected one such as {word}:5%"
        )),
        _ => Ok(()),
    }
}

fn distribution(word: &str, rest: &str) -> Result<(), String> {
    let (shape, center) = rest.split_once(':').unwrap_or((rest, ""));
    let shape_value = value::float(shape);
    let bad = |what: &str| Err(format!("{word}: '{rest}' is not possible: expected {what}"));
    match word {
        "zipf" | "pareto" | "normal" => {
            let Some(v) = shape_value else {
                return bad("a number");
            };
            if let Some(c) = value::float(center)
                && !(0.0..=1.0).contains(&c)
            {
                return bad("a center from 0 to 1");
            }
            match word {
                "zipf" if v == 1.0 => bad("a theta other than 1.0"),
                "pareto" if !(v > 0.0 && v < 1.0) => bad("a number between 0 and 1"),
                "normal" if !(0.0..100.0).contains(&v) => bad("a deviation from 0 to 100"),
                _ => Ok(()),
            }
        }
        "zoned" | "zoned_abs" => {
            for direction in rest.split(',') {
                let mut share = 0u64;
                for zone in direction.split(':').filter(|z| !z.is_empty()) {
                    let (access, size) = zone.split_once('/').unwrap_or((zone, ""));
                    let Some(Quantity::Plain(a)) = value::number(access, 1024) else {
                        return bad("zones such as 60/10:40/90");
                    };
                    if !size.is_empty() && value::number(size, 1024).is_none() {
                        return bad("zones such as 60/10:40/90");
                    }
                    share += a.unsigned_abs();
                }
                if share > 100 {
                    return bad("accesses of 100 % in sum");
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn bounded(value: &str, low: i64, high: u64, int: bool, zones: bool) -> Result<(), String> {
    // fio cuts at the first comma; what follows is read but never judged.
    let head = first(value);
    let Some(quantity) = value::number(head, 1024) else {
        return Err(format!("'{value}' is not a number"));
    };
    let v = match quantity {
        Quantity::Plain(v) => v,
        Quantity::Percent(_) => return Ok(()),
        Quantity::Zones(_) => {
            return if !zones {
                Err("'z' does not apply".into())
            } else {
                Ok(())
            };
        }
    };
    // fio compares 32-bit options as int.
    let v = if int { i64::from(v as i32) } else { v };
    let too_large = high > 0
        && if int && v >= 0 {
            v as u64 > high
        } else if int {
            false
        } else {
            v as u64 > high
        };
    let too_small = low != 0
        && (if int {
            v < low
        } else {
            (v as u64) < low as u64
        });
    if too_large || too_small {
        return Err(format!(
            "{head} is not possible: expected {low} to {}",
            if high > 0 {
                high.to_string()
            } else {
                "more".into()
            }
        ));
    }
    Ok(())
}

fn range(value: &str) -> Result<(), String> {
    let head = first(value);
    let bad = || format!("'{value}' is not a range: expected one such as 4k-64k");
    let (a, b) = head
        .split_once('-')
        .or_else(|| head.split_once(':'))
        .ok_or_else(bad)?;
    match (value::number(a, 1024), value::number(b, 1024)) {
        (Some(_), Some(_)) => Ok(()),
        _ => Err(bad()),
    }
}

fn floats(value: &str, len: usize, low: f64, high: f64) -> Result<(), String> {
    let Some(v) = value.split(':').next().and_then(value::float) else {
        return Err(format!("'{value}' is not a list of numbers"));
    };
    if len == 0 {
        return Err("no number is possible".into());
    }
    if (low != 0.0 || high != 0.0) && !(low..=high).contains(&v) {
        return Err(format!(
            "{v} is not possible (value out of range): expected {low} to {high}"
        ));
    }
    Ok(())
}

/// Text with a grammar of its own.
fn grammar(name: &str, value: &str) -> Result<(), String> {
    match name {
        "bssplit" => bssplit(value),
        "cpus_allowed" | "log_compression_cpus" | "verify_async_cpus" => cpu_list(value),
        "verify_pattern" | "buffer_pattern" => pattern(value),
        "ignore_error" | "numa_cpu_nodes" | "numa_mem_policy" => Ok(()),
        _ => Ok(()),
    }
}

fn bssplit(value: &str) -> Result<(), String> {
    let bad = |what: &str| Err(format!("'{value}' is not possible: {what}"));
    for (i, direction) in value.split(',').enumerate() {
        if i > 2 {
            return bad("there are three directions");
        }
        let (mut sum, mut open) = (0i64, 0);
        for part in direction.split(':').filter(|p| !p.is_empty()) {
            let (size, share) = part.split_once('/').unwrap_or((part, ""));
            if value::number(size, 1024).is_none() {
                return bad("expected sizes with shares such as 4k/60:64k/40");
            }
            if share.is_empty() {
                open += 1;
            } else {
                let n = value::strtoll(share).map_or(0, |v| v.0);
                sum += n.clamp(0, 100);
            }
        }
        if sum > 100 && open > 1 {
            return bad("the shares add up to more than 100 %");
        }
    }
    Ok(())
}

fn cpu_list(value: &str) -> Result<(), String> {
    for part in value.split(',').filter(|p| !p.is_empty()) {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        for n in [a, b] {
            match value::strtoll(n) {
                _ if n.is_empty() => {}
                Some((n, _)) if n >= 0 => present(u32::try_from(n).unwrap_or(u32::MAX))?,
                _ => return Err(format!("'{part}' is not a processor: expected 0 or 0-3")),
            }
        }
    }
    Ok(())
}

/// As in fio, a processor that the machine has not makes the script wrong.
fn present(processor: u32) -> Result<(), String> {
    let last = fathom_io::thread_terms::processors().saturating_sub(1);
    if processor > last {
        return Err(format!(
            "there is no processor {processor}: expected 0 to {last}"
        ));
    }
    Ok(())
}

fn pattern(value: &str) -> Result<(), String> {
    let bad = || {
        Err(format!(
            "'{value}' is not a pattern: expected 0xdeadbeef, a number, \"text\" or 'FILE'"
        ))
    };
    match value.as_bytes().first() {
        None => bad(),
        Some(b) if b.is_ascii_whitespace() => bad(),
        Some(b'"') if value.len() < 2 || !value[1..].contains('"') => bad(),
        Some(b'\'') if value.len() < 2 || !value[1..].contains('\'') => bad(),
        Some(b'\'') => {
            // fio reads the file when it reads the option.
            let name = value[1..].split('\'').next().unwrap_or_default();
            std::fs::File::open(name).map(drop).map_err(|e| {
                format!("the pattern '{name}' could not be read: {e}; make the file first")
            })
        }
        Some(b'"' | b'%') => Ok(()),
        Some(_) => match value::strtoll(value) {
            Some(_) => Ok(()),
            None if value.starts_with("0x") => Ok(()),
            None => bad(),
        },
    }
}
