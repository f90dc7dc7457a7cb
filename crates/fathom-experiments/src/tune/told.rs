//! Tells what came of it: findings, the table of what was tried, and every setting before and after.

use fathom_bench::parts::{axis, chart, headline_of, point, series, table};
use fathom_stats::Estimate;
use fathom_stats::compare::Verdict;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Headline, Point, Section,
};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use super::suspect::{Suspected, Tried, Value};
use super::{
    Diagnosis, LIMITS, LoadId, Proof, Sustained, Trial, TuneResult, WORTH, load, sustained,
};

fn percent(v: f64) -> String {
    format!("{:+.0} %", 100.0 * v)
}

/// `+40 % (95 %: +35 % to +45 %)`.
fn gained(e: &Estimate) -> String {
    match (e.low, e.high) {
        (Some(l), Some(h)) => format!(
            "{} (95 %: {} to {})",
            percent(e.value),
            percent(l),
            percent(h)
        ),
        _ => format!("{} (one observation)", percent(e.value)),
    }
}

/// How sure it is that this limits the target.
fn confidence(gain: &Estimate) -> &'static str {
    let low = gain.low.unwrap_or(f64::NEG_INFINITY);
    if low >= LIMITS {
        "strong"
    } else if gain.value >= LIMITS && low >= WORTH {
        "moderate"
    } else {
        "weak"
    }
}

fn words(d: &Diagnosis, id: LoadId) -> &str {
    d.held_out
        .iter()
        .find(|h| h.0 == id)
        .map_or("the held-out job", |h| h.1.as_str())
}

fn capital(text: &str) -> String {
    let mut c = text.chars();
    c.next().map_or(String::new(), |first| {
        first.to_uppercase().collect::<String>() + c.as_str()
    })
}

pub(super) fn findings(d: &Diagnosis) -> Vec<Finding> {
    let mut all: Vec<Finding> = d.proofs.iter().filter_map(|p| of_proof(d, p)).collect();
    all.extend(of_sustained(d));
    Finding::rank(&mut all);
    all.extend(unshown(d));
    all
}

/// Every setting that was tried and of which neither gain nor loss is shown, with how much it may be at most.
fn unshown(d: &Diagnosis) -> Option<Finding> {
    let mut said = Vec::new();
    let mut jobs = Vec::new();
    for (s, suspect) in d.suspects.iter().enumerate() {
        for (v, value) in suspect.values.iter().enumerate() {
            let proofs = d.proofs.iter().filter(|p| (p.suspect, p.value) == (s, v));
            let proofs: Vec<(Option<Estimate>, &[usize])> =
                proofs.map(|p| (p.gain, &p.jobs[..])).collect();
            let trials = d.trials.iter().filter(|t| (t.suspect, t.value) == (s, v));
            let trials = trials.map(|t| (t.gain, &t.jobs[..])).collect();
            // The proof knows best, where there is one.
            let seen = if proofs.is_empty() { trials } else { proofs };
            let gains: Option<Vec<Estimate>> = seen.iter().map(|(g, _)| *g).collect();
            let Some(gains) = gains.filter(|g| !g.is_empty() && g.iter().all(Estimate::holds_none))
            else {
                continue;
            };
            let ends = gains.iter().flat_map(|g| [g.low, g.high]).flatten();
            let most = ends.fold(0.0, |m: f64, e| m.max(e.abs()));
            said.push(format!(
                "{}: no difference shown (± {:.1} %)",
                value.label,
                100.0 * most
            ));
            jobs.extend(seen.iter().flat_map(|(_, jobs)| jobs.iter().copied()));
        }
    }
    (!said.is_empty()).then(|| Finding {
        id: "tune-no-difference".into(),
        text: format!("{}.", said.join("; ")),
        confidence: "moderate".into(),
        jobs,
        evidence: vec!["tune-gains".into(), "tune-table".into()],
        refuted_by:
            "The same settings for longer, with an interval that leaves 0 out: --profile standard."
                .into(),
        ..Finding::default()
    })
}

/// What was proved; a promise of the search that the proof did not keep is in the table only.
fn of_proof(d: &Diagnosis, p: &Proof) -> Option<Finding> {
    let gain = p
        .gain
        .filter(|g| p.verdict == Verdict::Better && g.low.is_some_and(|l| l >= WORTH))?;
    let s = d.suspects.get(p.suspect)?;
    let value = s.values.get(p.value)?;
    let sides = match p.sides {
        [Some(a), Some(b)] => format!(
            "{} instead of {} I/Os per second, ",
            grouped(b.value),
            grouped(a.value)
        ),
        _ => String::new(),
    };
    let harms = p.harms.map_or(String::new(), |(id, by)| {
        format!(
            " It was not kept: it changed the load '{}' by {}.",
            load::word(id),
            percent(by)
        )
    });
    let searched = d
        .trials
        .iter()
        .filter(|t| (t.suspect, t.value) == (p.suspect, p.value))
        .flat_map(|t| t.jobs.iter());
    Some(Finding {
        id: s.id.clone(),
        text: format!(
            "{} limits {}: {} instead of {} gives {sides}{} more, on a job that the search had not seen.{harms}",
            capital(&s.cause),
            words(d, p.load),
            value.label,
            s.now,
            gained(&gain).trim_start_matches('+'),
        ),
        advice: value.command.clone(),
        confidence: confidence(&gain).into(),
        jobs: p.jobs.iter().chain(searched).copied().collect(),
        evidence: vec!["tune-gains".into(), "tune-table".into()],
        gain: Some(gain),
        refuted_by: s.refuted_by.clone(),
        ..Finding::default()
    })
}

fn of_sustained(d: &Diagnosis) -> Option<Finding> {
    let s = d.sustained.as_ref()?;
    let gain = s.gain.filter(|g| g.low.is_some_and(|l| l >= WORTH))?;
    let warmed = match s.celsius {
        [Some(a), Some(b)] => Some((a, b)),
        _ => None,
    };
    let lasted = Nanos(s.slice_ns * s.rates.len() as u64);
    let (heat, cause, advice) = match warmed {
        Some((a, b)) if b > a + 2.0 => (
            format!(", while the device warmed from {a:.0} to {b:.0} °C"),
            "Throttling",
            "cool it better (air over the device, a heat sink), or spread the load; plan with the rate in the end",
        ),
        _ => (
            String::new(),
            "A rate that does not last",
            "plan with the rate in the end: a burst allowance, a cache or heat gives the first seconds more",
        ),
    };
    Some(Finding {
        id: sustained::ID.into(),
        text: format!(
            "{cause} limits long loads: reads in order begin with {}/s and come to {}/s within {lasted}{heat}; without the fall there would be {} more.",
            Bytes(s.burst.value as u64),
            Bytes(s.base.value as u64),
            gained(&gain).trim_start_matches('+'),
        ),
        advice: advice.into(),
        confidence: confidence(&gain).into(),
        jobs: s.jobs.clone(),
        evidence: vec!["tune-sustained".into()],
        gain: Some(gain),
        refuted_by: "The same fall right after an hour of rest, or in an open file that memory holds: then it is not heat.".into(),
        ..Finding::default()
    })
}

pub(super) fn headlines(d: &Diagnosis) -> Vec<Headline> {
    let base = d.base.iter().map(|(id, rates, jobs)| {
        let word = load::word(*id);
        headline_of(
            "As it is",
            &format!("load '{word}'"),
            &format!("tune-{word}"),
            "IOPS",
            Estimate::mean_of(rates),
            jobs.clone(),
        )
    });
    let together = d.together.iter().map(|p| {
        let word = load::word(p.load);
        headline_of(
            "All kept settings together",
            &format!("gain on held-out '{word}'"),
            &format!("tune-{word}-gain"),
            "ratio",
            p.gain,
            p.jobs.clone(),
        )
    });
    base.chain(together).collect()
}

/// Leaves a proved setting in force; says what came of it.
pub(super) fn stay(value: &Value) -> String {
    match value.change.make() {
        None => format!(
            "{}: lasts only as long as a process holds it; to keep it: {}",
            value.label, value.command
        ),
        Some(Ok(made)) => {
            made.keep();
            format!("{}: kept, until the next boot or mount", value.label)
        }
        Some(Err(e)) => format!("{}: could not be kept: {e}", value.label),
    }
}

fn verdict(d: &Diagnosis, t: &Trial) -> (TableCell, String) {
    let proof = d
        .proofs
        .iter()
        .find(|p| (p.suspect, p.value, p.load) == (t.suspect, t.value, t.load));
    let Some(p) = proof else {
        let why = t.why.clone().unwrap_or_else(|| "not promising".into());
        return (TableCell::Hole(()), why);
    };
    let shown = p
        .gain
        .map_or(TableCell::Hole(()), |g| TableCell::Estimate(g.scale(100.0)));
    let words = match (p.verdict, p.kept) {
        (_, true) => "better: kept for what follows".to_owned(),
        (Verdict::Better, false) if p.harms.is_some() => "better, but harms another load".into(),
        (v, false) => match &p.why {
            Some(why) => format!("{}: {why}", v.words()),
            None => v.words().to_owned(),
        },
    };
    (shown, words)
}

/// One change on one load, and the words and proof that belong to it.
struct Line<'a> {
    trial: &'a Trial,
    suspect: &'a Suspected,
    value: &'a Tried,
    /// On the held-out job, %.
    proved: TableCell,
    verdict: String,
}

impl<'a> Line<'a> {
    fn of(d: &'a Diagnosis, trial: &'a Trial) -> Option<Self> {
        let suspect = d.suspects.get(trial.suspect)?;
        let (proved, verdict) = verdict(d, trial);
        Some(Self {
            trial,
            suspect,
            value: suspect.values.get(trial.value)?,
            proved,
            verdict,
        })
    }
}

/// The section of the report.
pub(super) fn section(found: &TuneResult) -> Section {
    let d = &found.diagnosis;
    let mut section = Section {
        id: super::stand::EXPERIMENT.into(),
        title: "What limits, and what to set".into(),
        text: text(d, &found.stayed),
        ..Section::default()
    };
    let lines = d.trials.iter().filter_map(|t| Line::of(d, t));
    let lines: Vec<Line<'_>> = lines.collect();
    if !lines.is_empty() {
        section.charts.push(gains(&lines));
    }
    section.tables.push(table(
        "tune-table",
        "What was tried",
        &lines,
        &[
            ("suspect", "", &|l| l.suspect.id.as_str().into()),
            ("now", "", &|l| l.suspect.now.as_str().into()),
            ("tried", "", &|l| l.value.label.as_str().into()),
            ("load", "", &|l| load::word(l.trial.load).into()),
            ("gain in the search", "%", &|l| {
                l.trial.gain.map(|g| g.scale(100.0)).into()
            }),
            ("gain on the held-out job", "%", &|l| l.proved.clone()),
            ("verdict", "", &|l| l.verdict.as_str().into()),
        ],
    ));
    section.charts.extend(d.sustained.as_ref().map(course));
    if !found.before.is_empty() {
        restored(&mut section, found);
    }
    section
}

fn gains(lines: &[Line<'_>]) -> Chart {
    let bars = |gain: &dyn Fn(&Line<'_>) -> Option<Estimate>| {
        let dot = |(i, l): (usize, &Line<'_>)| point(i as f64, gain(l));
        lines.iter().enumerate().map(dot).collect()
    };
    let proved = |l: &Line<'_>| match l.proved {
        TableCell::Estimate(e) => Some(e),
        _ => None,
    };
    let name = |l: &Line<'_>| format!("{} ({})", l.value.label, load::word(l.trial.load));
    Chart {
        categories: lines.iter().map(name).collect(),
        ..chart(
            "tune-gains",
            "Gain of each change",
            ChartKind::Bar,
            axis("change (load)", "", false),
            axis("gain", "%", false),
            vec![
                series("search", bars(&|l| l.trial.gain.map(|g| g.scale(100.0)))),
                series("proof on the held-out job", bars(&proved)),
            ],
        )
    }
}

/// The rate of the sustained load over time.
fn course(s: &Sustained) -> Chart {
    let seconds = s.slice_ns as f64 / 1e9;
    let points = s
        .rates
        .iter()
        .enumerate()
        .map(|(i, r)| Point {
            x: (i as f64 + 0.5) * seconds,
            y: Some(*r),
            ..Point::default()
        })
        .collect();
    chart(
        "tune-sustained",
        "Reads in order without a pause",
        ChartKind::Line,
        axis("time", "s", false),
        axis("bandwidth", "bytes/s", false),
        vec![series("reads of 1 MiB", points)],
    )
}

/// Every setting before and after; a difference that nobody asked for is a flag.
fn restored(section: &mut Section, found: &TuneResult) {
    let now = |name: &str| {
        let mut after = found.after.iter();
        after.find(|a| a.0 == name).map(|a| a.1.as_str())
    };
    let same = |(name, old): &(String, String)| now(name) == Some(old);
    section.tables.push(table(
        "tune-settings",
        "Settings before and after",
        &found.before,
        &[
            ("setting", "", &|s| s.0.as_str().into()),
            ("before", "", &|s| s.1.as_str().into()),
            ("after", "", &|s| now(&s.0).unwrap_or("gone").into()),
            ("compared", "", &|s| {
                if same(s) { "as it was" } else { "different" }.into()
            }),
        ],
    ));
    let differ = found.before.iter().filter(|s| !same(s));
    let differ: Vec<&str> = differ.map(|s| s.0.as_str()).collect();
    if !differ.is_empty() && !found.keep {
        section.flags.push(Flag::new(
            FlagCode::NotChecked,
            format!("not as before: {}", differ.join(", ")),
            "somebody else changed them meanwhile, or the kernel did; set them by hand",
        ));
    }
}

fn text(d: &Diagnosis, stayed: &[String]) -> String {
    let mut text = String::from(
        "One thing was changed at a time and measured in turns with what is there. What promised 5 % or more was proved on \
         another job with other seeds (blocks of A B B A or B A A B, interval over blocks), with the settings that had been kept in \
         force on both sides.",
    );
    for p in &d.together {
        if let Some(g) = &p.gain {
            text.push_str(&format!(
                " All kept settings together: {} on {}.",
                gained(g),
                words(d, p.load)
            ));
        }
    }
    if let Some(s) = &d.sustained {
        text.push_str(&format!(
            " Without a pause, reads in order begin with {}/s and come to {}/s within {}.",
            Bytes(s.burst.value as u64),
            Bytes(s.base.value as u64),
            Nanos(s.slice_ns * s.rates.len() as u64)
        ));
    }
    for l in &d.left_out {
        text.push_str(&format!(" Left out: {l}."));
    }
    for s in stayed {
        text.push_str(&format!(" {}.", capital(s)));
    }
    text
}
