//! `fathom compare --devices`: drives beside each other, for who chooses one.

use std::fmt::Write as _;

use fathom_experiments::compare::{
    Line, Offer, Published, Shopping, WindowSource, factor, published, shopping,
};
use fathom_report::{clean, format, markdown_text as escape};
use fathom_stats::Estimate;
use fathom_stats::compare::Verdict;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Price, say};
use serde::Serialize;

use crate::cli::CompareArgs;
use crate::exit::{DONE, Outcome, REFUSED, refused};
use crate::screen;

pub(super) fn devices(args: &CompareArgs, runs: &[(Run, Box<dyn WindowSource>)]) -> Outcome {
    let named = args.baseline.as_deref().unwrap_or("1");
    let number = named.parse::<usize>().ok();
    let Some(baseline) = number.filter(|n| (1..=runs.len()).contains(n)) else {
        return Err(refused(anyhow::anyhow!(
            "--baseline {named}: expected 1 to {}, the number of a run",
            runs.len()
        )));
    };
    let fits = args.prices.is_empty() || args.prices.len() == runs.len();
    if !fits || args.prices.iter().any(|p| !(p.is_finite() && *p > 0.0)) {
        return Err(refused(anyhow::anyhow!(
            "--prices: expected {} prices above 0, one for each run",
            runs.len()
        )));
    }
    let prices = prices(&args.prices, runs);
    let with: Vec<(&Run, &dyn WindowSource)> = runs.iter().map(|(r, w)| (r, w.as_ref())).collect();
    let paper = args.vs.as_deref().map(|paper| published(paper, &with));
    let all = Beside {
        runs: shopping(&with, baseline - 1, &prices),
        published: paper
            .transpose()
            .map_err(|why| refused(anyhow::anyhow!("--vs {why}")))?,
    };
    if args.json {
        screen::json(&all)?;
    } else if args.markdown {
        screen::print(&markdown(&all));
    } else {
        screen::print(&terminal(&all));
    }
    if all.runs.matches() || all.published.as_ref().is_some_and(Published::matches) {
        return Ok(DONE);
    }
    let nor = match all.published {
        Some(_) => ", and none has a number beside a published figure",
        None => "",
    };
    say!(
        "fathom: no metric is in two of these runs{nor}; measure the drives by one command, such as fathom survey"
    );
    Ok(REFUSED)
}

/// What each run costs: as typed, else as the runs have it, where they have it alike.
fn prices(typed: &[f64], runs: &[(Run, Box<dyn WindowSource>)]) -> Vec<Option<f64>> {
    if !typed.is_empty() {
        return typed.iter().map(|p| Some(*p)).collect();
    }
    let all: Vec<Option<Price>> = runs.iter().map(|(run, _)| Price::of(run)).collect();
    let known: Vec<&Price> = all.iter().flatten().collect();
    if let Some(other) = known.iter().find(|p| !p.is_of_kind(known[0])) {
        say!(
            "fathom: {} and {other} cannot be held against each other: nothing is divided by them; give --prices in one unit",
            known[0]
        );
        return Vec::new();
    }
    all.iter().map(|p| p.as_ref().map(|p| p.amount)).collect()
}

/// The runs beside each other and, where it was asked for, beside what a paper published.
#[derive(Serialize)]
struct Beside {
    #[serde(flatten)]
    runs: Shopping,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<Published>,
}

/// `6.2 × faster (6.1 to 6.3)`, or that no difference is shown.
fn against(o: &Offer) -> String {
    let (Some(t), Some(verdict)) = (o.times, o.verdict) else {
        return String::new();
    };
    if verdict == Verdict::NoDifferenceShown {
        return "no difference shown".into();
    }
    let (word, t) = if t.value >= 1.0 {
        ("faster", t)
    } else {
        let turn = |v: Option<f64>| v.map(|v| 1.0 / v);
        let slower = Estimate {
            value: 1.0 / t.value,
            low: turn(t.high),
            high: turn(t.low),
            ..t
        };
        ("slower", slower)
    };
    factors(&t, word)
}

/// `6.2 × WORD (6.1 to 6.3)`.
fn factors(t: &Estimate, word: &str) -> String {
    let value = factor(t.value);
    match (t.low, t.high) {
        (Some(l), Some(h)) => format!("{value} × {word} ({} to {})", factor(l), factor(h)),
        _ => format!("{value} × {word} (one sample: no interval)"),
    }
}

/// What was published, and how many times as good each run is. Machines differ: there is no verdict.
fn figures(p: &Published, runs: &[String]) -> Vec<Vec<String>> {
    let mut head = vec![p.title.clone(), "published".into()];
    head.extend(runs.iter().map(|r| clean(r)));
    let mut table = vec![head];
    for f in &p.figures {
        let mut row = vec![
            clean(&format!("{}, {} ({})", f.label, f.device, f.row)),
            format::value(f.value, &f.unit),
        ];
        row.extend(f.offers.iter().map(|o| {
            let said = match &o.times {
                Some(t) => factors(t, "as good"),
                None => number(o, &f.unit),
            };
            clean(&format!("{said}{}", notes(o)))
        }));
        table.push(row);
    }
    if p.figures.is_empty() {
        table.push(vec![
            "no figure of it is of a load that these runs measured".into(),
        ]);
    }
    table
}

/// How each run stands to what was published, as one sentence for each.
fn beside_figures(p: &Published, runs: &[String]) -> Vec<String> {
    let of_run = |(i, name): (usize, &String)| {
        let offers = || p.figures.iter().map(move |f| &f.offers[i]);
        let times: Vec<f64> = offers().filter_map(|o| Some(o.times?.value)).collect();
        let least = times.iter().copied().reduce(f64::min)?;
        let most = times.iter().copied().reduce(f64::max)?;
        let flagged = offers().filter(|o| o.times.is_some() && !o.notes.is_empty());
        let flagged = match flagged.count() {
            0 => String::new(),
            n => format!(", {n} of them with flags or notes"),
        };
        let (least, most) = (factor(least), factor(most));
        Some(format!(
            "{name} is {least} to {most} times as good as {} published, in {} figures{flagged}",
            p.paper,
            times.len()
        ))
    };
    runs.iter().enumerate().filter_map(of_run).collect()
}

/// Flags and differences of a number, in brackets.
fn notes(o: &Offer) -> String {
    match o.notes.is_empty() {
        true => String::new(),
        false => format!(" [{}]", o.notes.join(", ")),
    }
}

/// A number, or why there is none.
fn number(o: &Offer, unit: &str) -> String {
    match (&o.estimate, &o.why) {
        (Some(e), _) => format::estimate(e, unit),
        (None, Some(why)) => why.clone(),
        (None, None) => "not measured".into(),
    }
}

/// Rows of a metric: the numbers, and below them what they are against the baseline.
fn rows(l: &Line, baseline: usize) -> Vec<Vec<String>> {
    let mut numbers = vec![clean(&l.label)];
    numbers.extend(l.offers.iter().map(|o| clean(&number(o, &l.unit))));
    if l.good.is_none() {
        let mut row = vec![clean(&l.label)];
        let said = |o: &Offer| clean(&format!("{}{}", number(o, &l.unit), notes(o)));
        row.extend(l.offers.iter().map(said));
        return vec![row];
    }
    let mut compared = vec![String::new()];
    compared.extend(l.offers.iter().enumerate().map(|(i, o)| {
        let said = match (i == baseline, against(o)) {
            (true, _) if o.estimate.is_some() => "baseline".to_owned(),
            (_, said) if said.is_empty() && o.estimate.is_some() => {
                "the baseline has no number".to_owned()
            }
            (_, said) => said,
        };
        clean(&format!("{said}{}", notes(o)))
    }));
    let mut out = vec![numbers, compared];
    if l.offers.iter().any(|o| o.per_price.is_some()) {
        let mut row = vec!["  for each unit of price".to_owned()];
        row.extend(l.offers.iter().map(|o| {
            o.per_price.map_or_else(
                || "no price or no number".into(),
                |v| format::value(v, &l.unit),
            )
        }));
        out.push(row);
    }
    out
}

/// Which drive wins how often, and how the drives stand to what was published.
fn conclusion(all: &Beside) -> String {
    let s = &all.runs;
    let base = &s.runs[s.baseline];
    let mut said = Vec::new();
    for (i, name) in s.runs.iter().enumerate().filter(|(i, _)| *i != s.baseline) {
        let count = |v: Verdict| {
            let offers = s.lines.iter().filter_map(|l| l.offers.get(i));
            offers.filter(|o| o.verdict == Some(v)).count()
        };
        let all = s
            .lines
            .iter()
            .filter(|l| l.offers[i].times.is_some())
            .count();
        said.push(match all {
            0 => format!("{name} has no metric in common with {base}"),
            n => format!(
                "{name} is faster than {base} in {} and slower in {} of {n} metrics",
                count(Verdict::Better),
                count(Verdict::Worse)
            ),
        });
    }
    let figures = all.published.as_ref();
    said.extend(figures.map_or_else(Vec::new, |p| beside_figures(p, &s.runs)));
    match said.is_empty() {
        true => "Nothing stands beside it.".into(),
        false => said.join("; ") + ".",
    }
}

fn table(s: &Shopping) -> Vec<Vec<String>> {
    let mut head = vec![String::new()];
    head.extend(s.runs.iter().map(|r| clean(r)));
    let mut table = vec![head];
    for d in &s.differs {
        let mut row = vec![clean(&d.condition)];
        let shown = |v: &Option<String>| match v.as_deref() {
            None | Some("") => "not known".to_owned(),
            Some(v) if v.chars().count() > 40 => {
                clean(&v.chars().take(39).collect::<String>()) + "…"
            }
            Some(v) => clean(v),
        };
        row.extend(d.values.iter().map(shown));
        table.push(row);
    }
    table.push(vec![String::new(); s.runs.len() + 1]);
    for l in &s.lines {
        table.extend(rows(l, s.baseline));
    }
    table
}

/// The tables of all that is shown.
fn tables(all: &Beside) -> Vec<Vec<Vec<String>>> {
    let mut tables = vec![table(&all.runs)];
    tables.extend(all.published.iter().map(|p| figures(p, &all.runs.runs)));
    tables
}

fn terminal(all: &Beside) -> String {
    let tables: String = tables(all).iter().map(|t| columns(t) + "\n").collect();
    format!("{tables}Conclusion\n  {}\n", clean(&conclusion(all)))
}

fn markdown(all: &Beside) -> String {
    let mut out = format!("**{}**\n", escape(&conclusion(all)));
    for table in tables(all) {
        out.push('\n');
        rows_in_markdown(&table, &mut out);
    }
    out
}

fn rows_in_markdown(table: &[Vec<String>], out: &mut String) {
    let filled = table.iter().filter(|r| r.iter().any(|t| !t.is_empty()));
    for (i, row) in filled.enumerate() {
        let cells: Vec<String> = row.iter().map(|t| escape(t)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
        }
    }
}

/// Aligned columns; the first is left-aligned.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|c| {
            rows.iter()
                .filter_map(|r| r.get(c))
                .map(|t| t.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in rows {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(t, w)| format!("{t}{}", " ".repeat(w - t.chars().count())))
            .collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
    }
    out
}
