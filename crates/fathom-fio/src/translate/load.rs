//! Pattern, block sizes and offsets of a section.

use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Rw};
use fathom_telemetry::Bytes;

use crate::FioError;
use crate::options::value::{self, Quantity};
use crate::section::Section;

pub(super) fn direction(s: &Section) -> Result<Rw, FioError> {
    let text = s.get("rw").unwrap_or("read");
    let (word, tail) = text.split_once(':').unwrap_or((text, ""));
    let random_every_time = word.starts_with("rand") && matches!(tail, "" | "1");
    if !tail.is_empty() && !random_every_time && tail != "0" {
        return Err(FioError::unsupported(
            &s.name,
            &format!("rw={text}"),
            "sequences inside a pattern are not available: use rw=read or rw=randread",
        ));
    }
    match word {
        "readwrite" => Ok(Rw::Mixed),
        "trimwrite" | "randtrimwrite" => Err(FioError::unsupported(
            &s.name,
            &format!("rw={text}"),
            "trims and writes do not mix: make two jobs",
        )),
        _ => word
            .parse()
            .map_err(|e: String| FioError::value(&s.name, "rw", e)),
    }
}

/// Which of fio's three values counts for a pattern; `None` where two of them do.
pub(super) fn one_of<T: PartialEq + Clone>(rw: Rw, values: &[T; 3]) -> Option<T> {
    match (rw.reads(), rw.writes()) {
        (true, true) => (values[0] == values[1]).then(|| values[0].clone()),
        (true, false) => Some(values[0].clone()),
        (false, true) => Some(values[1].clone()),
        (false, false) => Some(values[2].clone()),
    }
}

pub(super) fn block_sizes(s: &Section, rw: Rw) -> Result<BlockSizes, FioError> {
    let two = |option: &str| {
        FioError::unsupported(
            &s.name,
            &format!("{option}={}", s.get(option).unwrap_or("")),
            "reads and writes of one job have the same block sizes: make two jobs",
        )
    };
    let checked = |sizes: Vec<(u64, f64)>, option: &str| {
        let text = sizes
            .iter()
            .map(|(b, w)| format!("{b}:{w}"))
            .collect::<Vec<_>>()
            .join(",");
        text.parse::<BlockSizes>()
            .map_err(|e| FioError::value(&s.name, option, e))
    };
    if let Some(text) = s.get("bssplit") {
        let parts: Vec<&str> = text.split(',').collect();
        let pick = |i: usize| {
            parts
                .get(i)
                .or(parts.last())
                .copied()
                .unwrap_or("")
                .to_owned()
        };
        let split = one_of(rw, &[pick(0), pick(1), pick(2)]).ok_or_else(|| two("bssplit"))?;
        let entries: Vec<(u64, Option<f64>)> = split
            .split(':')
            .filter(|p| !p.is_empty())
            .filter_map(|p| {
                let (size, share) = p.split_once('/').unwrap_or((p, ""));
                match value::number(size, s.kb_base())? {
                    Quantity::Plain(v) => Some((u64::try_from(v).ok()?, value::float(share))),
                    _ => None,
                }
            })
            .collect();
        let known: f64 = entries.iter().filter_map(|e| e.1).sum();
        let open = entries.iter().filter(|e| e.1.is_none()).count().max(1) as f64;
        let rest = ((100.0 - known) / open).max(0.0);
        let weighted: Vec<(u64, f64)> = entries
            .iter()
            .map(|(b, w)| (*b, w.unwrap_or(rest)))
            .filter(|(_, w)| *w > 0.0)
            .collect();
        return checked(weighted, "bssplit");
    }
    if let Some(text) = s.get("bsrange") {
        let parts: Vec<&str> = text.split(',').collect();
        let pick = |i: usize| {
            parts
                .get(i)
                .or(parts.last())
                .copied()
                .unwrap_or("")
                .to_owned()
        };
        let range = one_of(rw, &[pick(0), pick(1), pick(2)]).ok_or_else(|| two("bsrange"))?;
        let ends: Vec<u64> = range
            .split(['-', ':'])
            .filter_map(|e| match value::number(e, s.kb_base())? {
                Quantity::Plain(v) => u64::try_from(v).ok(),
                _ => None,
            })
            .collect();
        let [a, b, ..] = ends[..] else {
            return Err(FioError::value(
                &s.name,
                "bsrange",
                "expected a range such as 4k-64k",
            ));
        };
        let (low, high) = (a.min(b).max(1), a.max(b));
        // Multiples of the smallest, as fio rounds; at most 256 of them.
        let count = (high / low).max(1);
        let step = count.div_ceil(256).max(1);
        let sizes = (1..=count)
            .step_by(usize::try_from(step).unwrap_or(1))
            .map(|n| (n * low, 1.0))
            .collect();
        return checked(sizes, "bsrange");
    }
    let Some(values) = s.per_direction("bs") else {
        return Ok(BlockSizes::one(4096));
    };
    let values = values.map(|v| if v == 0 { 4096 } else { v });
    let size = one_of(rw, &values).ok_or_else(|| two("bs"))?;
    checked(vec![(size, 1.0)], "bs")
}

/// Any of these sizes, for a job whose feed chooses.
pub(super) fn sizes_of(s: &Section, all: &[u64]) -> Result<BlockSizes, FioError> {
    let text: Vec<String> = all.iter().map(u64::to_string).collect();
    text.join(",")
        .parse()
        .map_err(|e| FioError::value(&s.name, "bs", e))
}

pub(super) fn align(s: &Section, spec: &JobSpec) -> Option<Bytes> {
    let values = s.per_direction("ba")?;
    let size = one_of(spec.rw, &values).unwrap_or(values[0]);
    (spec.rw.is_random() && size > 0 && size != spec.bs.min().0).then_some(Bytes(size))
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

pub(super) fn random(s: &Section, spec: &mut JobSpec) -> Result<(), FioError> {
    if !spec.rw.is_random() {
        return Ok(());
    }
    let text = s.get("random_distribution").unwrap_or("random");
    let mut parts = text.split(':');
    let word = parts.next().unwrap_or("random");
    let shape = parts.next();
    if parts.next().is_some() && matches!(word, "zipf" | "pareto" | "normal") {
        return Err(FioError::unsupported(
            &s.name,
            &format!("random_distribution={text}"),
            "a center is not available: leave it out",
        ));
    }
    let dist = match word {
        "random" => "uniform".to_owned(),
        "zipf" => format!("zipf:{}", shape.unwrap_or("1.1")),
        "pareto" => format!("pareto:{}", shape.unwrap_or("0.2")),
        // The mean of twelve draws has this deviation, in percent of the range.
        "normal" => format!("gauss:{}", shape.unwrap_or("8.33")),
        _ => {
            return Err(FioError::unsupported(
                &s.name,
                &format!("random_distribution={text}"),
                "choose random, zipf, pareto or normal",
            ));
        }
    };
    spec.dist = dist
        .parse()
        .map_err(|e: String| FioError::value(&s.name, "random_distribution", e))?;
    spec.random_map = word == "random"
        && (!s.flag("norandommap", false) || s.get("random_generator") == Some("lfsr"))
        && spec.bs.0.len() == 1
        && spec.align.is_none();
    Ok(())
}
