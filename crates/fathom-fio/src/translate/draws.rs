//! Block sizes and how random offsets are drawn, from their text.

use fathom_io::job::Distribution;

use crate::FioError;
use crate::options::value::{self, Quantity};
use crate::section::Section;

/// Block sizes of one direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sizes {
    One(u64),
    /// Multiples of the first up to the second.
    Range(u64, u64),
    /// Sizes with their shares in percent, the rarest first.
    Split(Vec<(u64, u64)>),
}

impl Sizes {
    pub(crate) fn min(&self) -> u64 {
        match self {
            Self::One(n) | Self::Range(n, _) => *n,
            Self::Split(v) => v.iter().map(|s| s.0).min().unwrap_or(4096),
        }
    }
    /// Each with its weight; of a range at most 256, multiples of the smallest, and the largest.
    pub(crate) fn weights(&self) -> Vec<(u64, f64)> {
        match self {
            Self::One(n) => vec![(*n, 1.0)],
            Self::Range(a, b) => {
                let step = (b / a).div_ceil(256).max(1);
                let multiples = (1..=b / a).step_by(step as usize).map(|n| n * a);
                let smaller = multiples.filter(|n| n < b);
                smaller.chain([*b]).map(|n| (n, 1.0)).collect()
            }
            Self::Split(list) => list.iter().map(|(n, w)| (*n, *w as f64)).collect(),
        }
    }
    pub(crate) fn max(&self) -> u64 {
        match self {
            Self::One(n) | Self::Range(_, n) => *n,
            Self::Split(v) => v.iter().map(|s| s.0).max().unwrap_or(4096),
        }
    }
}

/// How random offsets are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Draw {
    /// By a distribution, perhaps around a center (0..=1).
    By(Distribution, Option<f64>),
    /// Begin and end of the zone that each percent of accesses goes to, in percent of the range.
    Zoned(Vec<(u64, u64)>),
    /// The same in bytes.
    ZonedBytes(Vec<(u64, u64)>),
    /// These blocks in turn; with a stride, they move on as a whole.
    Sequence(Vec<u64>, bool),
}

/// Percent of reads in a mix.
pub(super) fn read_share(s: &Section) -> u64 {
    // The later of the two holds.
    let last = s
        .settings
        .iter()
        .rev()
        .find(|x| matches!(x.option.name, "rwmixread" | "rwmixwrite"));
    match last.map(|x| x.option.name) {
        Some("rwmixread") => s.number("rwmixread").unwrap_or(50).min(100),
        Some(_) => 100 - s.number("rwmixwrite").unwrap_or(50).min(100),
        None => 50,
    }
}

/// The last word after a comma holds where one is missing.
fn three<T: Clone>(parts: &[T]) -> Option<[T; 3]> {
    let pick = |i: usize| parts.get(i).or(parts.last()).cloned();
    Some([pick(0)?, pick(1)?, pick(2)?])
}

/// A share; fio knows whole ones only.
fn percent(share: f64) -> u64 {
    share.clamp(0.0, 100.0) as u64
}

/// What each entry without a share gets of 100 %; all where there is one alone.
fn rest_of(entries: &[(u64, Option<u64>)]) -> u64 {
    let known = entries
        .iter()
        .filter_map(|e| e.1)
        .fold(0, u64::saturating_add);
    let open = entries.iter().filter(|e| e.1.is_none()).count() as u64;
    100u64.saturating_sub(known).checked_div(open).unwrap_or(0)
}

/// Variable that names the version of fio whose offsets are drawn.
const SEEDS: &str = "FATHOM_FIO_SEEDS";

/// Whether offsets have the seeds of fio before 3.35, which `randseed` did not change.
pub(super) fn fixed_seeds(s: &Section) -> Result<bool, FioError> {
    let version = match std::env::var(SEEDS) {
        Ok(v) if !v.is_empty() => v,
        _ => return Ok(false),
    };
    let minor = version
        .strip_prefix("3.")
        .and_then(|m| m.parse::<u32>().ok());
    match minor {
        Some(minor) => Ok(minor < 35 && s.flag("randrepeat", true)),
        None => Err(s.invalid(
            "randseed",
            format!("{SEEDS}={version} is no version of fio: expected one such as 3.33"),
        )),
    }
}

/// A number, or two with a dash between.
pub(super) fn span(s: &Section, option: &str) -> Option<(u64, u64)> {
    let text = s.get(option)?;
    let (a, b) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (a, b) = (bytes(a, s.kb_base())?, bytes(b, s.kb_base())?);
    Some((a.min(b), a.max(b)))
}

pub(super) fn bytes(text: &str, base: u64) -> Option<u64> {
    match value::number(text, base)? {
        Quantity::Plain(v) => u64::try_from(v).ok(),
        _ => None,
    }
}

pub(super) fn sizes(s: &Section) -> Result<[Sizes; 3], FioError> {
    let base = s.kb_base();
    if let Some(text) = s.get("bssplit") {
        let split = |part: &str| -> Sizes {
            let entries: Vec<(u64, Option<u64>)> = part
                .split(':')
                .filter(|p| !p.is_empty())
                .filter_map(|p| {
                    let (size, share) = p.split_once('/').unwrap_or((p, ""));
                    Some((bytes(size, base)?, value::float(share).map(percent)))
                })
                .collect();
            let rest = rest_of(&entries);
            let mut list: Vec<(u64, u64)> = entries
                .iter()
                .map(|(b, w)| (*b, w.unwrap_or(rest)))
                .filter(|(b, w)| *w > 0 && *b > 0)
                .collect();
            // fio looks at the rarest first; it shows where not all of them fit.
            list.sort_by_key(|e| e.1);
            Sizes::Split(list)
        };
        let parts: Vec<Sizes> = text.split(',').map(split).collect();
        if let Some(three) = three(&parts)
            && three
                .iter()
                .all(|t| !matches!(t, Sizes::Split(v) if v.is_empty()))
        {
            return Ok(three);
        }
        return Err(s.invalid("bssplit", "expected sizes with shares such as 4k/60:64k/40"));
    }
    if let Some(text) = s.get("bsrange") {
        let parts: Vec<Sizes> = text
            .split(',')
            .filter_map(|p| {
                let (a, b) = p.split_once('-').or_else(|| p.split_once(':'))?;
                let (a, b) = (bytes(a, base)?, bytes(b, base)?);
                Some(Sizes::Range(a.min(b).max(1), a.max(b).max(1)))
            })
            .collect();
        return three(&parts)
            .ok_or_else(|| s.invalid("bsrange", "expected a range such as 4k-64k"));
    }
    let values = s.per_direction("bs").unwrap_or([4096; 3]);
    Ok(values.map(|v| Sizes::One(if v == 0 { 4096 } else { v })))
}

pub(super) fn draws(s: &Section) -> Result<[Draw; 3], FioError> {
    let text = s.get("random_distribution").unwrap_or("random");
    let bad = |m: String| s.invalid("random_distribution", m);
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let one = |dist: String, center: Option<&str>| -> Result<[Draw; 3], FioError> {
        // Nothing is added to the mean where no width is given.
        let dist: Distribution = match dist.as_str() {
            "gauss:0" => Distribution::Gauss(0.0),
            text => text.parse().map_err(bad)?,
        };
        let d = Draw::By(dist, center.and_then(value::float));
        Ok([d.clone(), d.clone(), d])
    };
    let (shape, center) = match rest.split_once(':') {
        Some((a, b)) => (a, Some(b)),
        None => (rest, None),
    };
    let or = |default: &str| {
        if shape.is_empty() {
            default.to_owned()
        } else {
            shape.to_owned()
        }
    };
    match word.split(',').next().unwrap_or("random") {
        "zipf" => one(format!("zipf:{}", or("1.1")), center),
        "pareto" => one(format!("pareto:{}", or("0.2")), center),
        "normal" => one(format!("gauss:{}", or("0")), center),
        "zoned" | "zoned_abs" => {
            let absolute = word == "zoned_abs";
            let mut parts = Vec::new();
            for direction in rest.split(',') {
                let entries: Vec<(u64, Option<u64>)> = direction
                    .split(':')
                    .filter(|z| !z.is_empty())
                    .map(|z| {
                        let (access, size) = z.split_once('/').unwrap_or((z, ""));
                        let percent = percent(value::float(access).unwrap_or(0.0));
                        (percent, bytes(size, s.kb_base()))
                    })
                    .collect();
                if entries.iter().map(|e| e.0).sum::<u64>() != 100 {
                    return Err(bad(
                        "expected zones such as 60/10:40/90, whose accesses add up to 100 %".into(),
                    ));
                }
                let sizes: Vec<(u64, Option<u64>)> = entries.iter().map(|e| (0, e.1)).collect();
                let rest = if absolute { 0 } else { rest_of(&sizes) };
                let mut end = 0u64;
                let mut table = Vec::with_capacity(100);
                for (percent, size) in entries {
                    let begin = end;
                    end = begin.saturating_add(size.unwrap_or(rest));
                    table.extend((0..percent).map(|_| (begin, end)));
                }
                if !absolute && end > 100 {
                    return Err(bad("zones are larger than 100 % in all".into()));
                }
                parts.push(if absolute {
                    Draw::ZonedBytes(table)
                } else {
                    Draw::Zoned(table)
                });
            }
            three(&parts).ok_or_else(|| bad("expected zones such as 60/10:40/90".into()))
        }
        "sequence" => {
            let blocks: Vec<u64> = rest.split(',').filter_map(|b| bytes(b, 1024)).collect();
            if blocks.is_empty() {
                return Err(bad("expected block numbers such as sequence:2,0,1".into()));
            }
            let d = Draw::Sequence(blocks, s.flag("random_sequence_stride", false));
            Ok([d.clone(), d.clone(), d])
        }
        _ => one("uniform".into(), None),
    }
}
