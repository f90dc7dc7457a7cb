//! Block sizes and how random offsets are drawn, from their text.

use fathom_io::job::Distribution;

use super::recipe::{Draw, Sizes};
use crate::FioError;
use crate::options::value::{self, Quantity};
use crate::section::Section;

/// The last word after a comma holds where one is missing.
fn three<T: Clone>(parts: &[T]) -> Option<[T; 3]> {
    let pick = |i: usize| parts.get(i).or(parts.last()).cloned();
    Some([pick(0)?, pick(1)?, pick(2)?])
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
            let entries: Vec<(u64, Option<f64>)> = part
                .split(':')
                .filter(|p| !p.is_empty())
                .filter_map(|p| {
                    let (size, share) = p.split_once('/').unwrap_or((p, ""));
                    Some((bytes(size, base)?, value::float(share)))
                })
                .collect();
            let known: f64 = entries.iter().filter_map(|e| e.1).sum();
            let open = entries.iter().filter(|e| e.1.is_none()).count().max(1) as f64;
            let rest = ((100.0 - known) / open).max(0.0);
            let mut list: Vec<(u64, f64)> = entries
                .iter()
                .map(|(b, w)| (*b, w.unwrap_or(rest)))
                .filter(|(b, w)| *w > 0.0 && *b > 0)
                .collect();
            // fio looks at the rarest first; it shows where not all of them fit.
            list.sort_by(|a, b| a.1.total_cmp(&b.1));
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
        return Err(FioError::value(
            &s.name,
            "bssplit",
            "expected sizes with shares such as 4k/60:64k/40",
        ));
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
            .ok_or_else(|| FioError::value(&s.name, "bsrange", "expected a range such as 4k-64k"));
    }
    let values = s.per_direction("bs").unwrap_or([4096; 3]);
    Ok(values.map(|v| Sizes::One(if v == 0 { 4096 } else { v })))
}

pub(super) fn draws(s: &Section) -> Result<[Draw; 3], FioError> {
    let text = s.get("random_distribution").unwrap_or("random");
    let bad = |m: String| FioError::value(&s.name, "random_distribution", m);
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let one = |dist: String, center: Option<&str>| -> Result<[Draw; 3], FioError> {
        let dist: Distribution = dist.parse().map_err(bad)?;
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
        "normal" => one(format!("gauss:{}", or("10")), center),
        "zoned" | "zoned_abs" => {
            let absolute = word == "zoned_abs";
            let mut parts = Vec::new();
            for direction in rest.split(',') {
                let entries: Vec<(f64, Option<u64>)> = direction
                    .split(':')
                    .filter(|z| !z.is_empty())
                    .map(|z| {
                        let (access, size) = z.split_once('/').unwrap_or((z, ""));
                        (
                            value::float(access).unwrap_or(0.0),
                            bytes(size, s.kb_base()),
                        )
                    })
                    .collect();
                if entries.is_empty() {
                    return Err(bad("expected zones such as 60/10:40/90".into()));
                }
                let known: u64 = entries.iter().filter_map(|e| e.1).sum();
                let open = entries.iter().filter(|e| e.1.is_none()).count().max(1) as u64;
                let mut end = 0;
                parts.push(if absolute {
                    Draw::ZonedBytes(
                        entries
                            .iter()
                            .map(|(a, n)| {
                                end += n.unwrap_or(0);
                                (*a, end)
                            })
                            .collect(),
                    )
                } else {
                    Draw::Zoned(
                        entries
                            .iter()
                            .map(|(a, n)| {
                                end += n.unwrap_or(100u64.saturating_sub(known) / open);
                                (*a, (end as f64 / 100.0).min(1.0))
                            })
                            .collect(),
                    )
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
