//! `fathom ab`: one job with two settings, run in turns.

use fathom_bench::cost::RunCost;
use fathom_experiments::ab::{self, AbRow, BLOCK_JOBS, BLOCKS_MIN};
use fathom_experiments::compare::relative;
use fathom_io::{JobSpec, Wanted};
use fathom_stats::compare::Verdict;
use fathom_telemetry::Nanos;
use fathom_telemetry::say;

use super::announce::Foreseen;
use super::compare::{percent, shown};
use super::finish::{self, meta};
use super::open::{capsule_of, foresee_jobs, open_bench};
use super::shopping::columns;
use crate::cli::AbArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::signals;

pub(crate) fn ab(args: &AbArgs) -> Outcome {
    let threshold = percent(&args.threshold)?;
    if args.blocks < BLOCKS_MIN {
        return Err(refused(anyhow::anyhow!(
            "--blocks {}: an interval needs {BLOCKS_MIN} at least",
            args.blocks
        )));
    }
    let specs = [job(args, "a", &args.a)?, job(args, "b", &args.b)?];
    let text = |s: &JobSpec| serde_json::to_value(s).unwrap_or_default();
    if text(&specs[0]) == text(&specs[1]) {
        say!("fathom: both settings are the same; what differs is noise");
    }
    let wanted = Wanted {
        create: super::open::may_create(),
        ..Wanted::by(&specs, args.destroy.as_deref())
    };
    if args.dry_run {
        let (limits, fills) = foresee_jobs(&args.target, &wanted, None)?;
        let mut cost = RunCost::filling(fills);
        for (spec, name) in specs.iter().zip(["A", "B"]) {
            spec.validate(&limits)?;
            cost.phase(&format!("{name}, in turns"))
                .add(spec, args.blocks * BLOCK_JOBS / 2);
        }
        return Foreseen::of("A and B", &cost, &args.target).dry_run(args.out.json);
    }
    let control = signals::control().map_err(refused)?;
    let mut bench = open_bench(&args.target, &wanted, control)?;
    let limits = bench.limits();
    for spec in &specs {
        spec.validate(&limits)?;
    }
    let environment = capsule_of(&bench.describe());
    let meta = meta("ab", specs[0].seed, &args.out, environment);
    let mut book = finish::notebook(&args.out, meta, &*bench, 0)?;
    let mut line = SurveyLine::new(args.blocks * BLOCK_JOBS, bench.fills());
    let measured = ab::run(
        &mut *bench,
        &specs,
        [&args.a, &args.b],
        args.blocks,
        &mut book,
        &mut line,
    );
    line.clear();
    let rows = measured
        .as_ref()
        .map_or(Vec::new(), |found| found.rows(&book.evidence()));
    let own = verdict_code(&rows, threshold);
    let (a, b) = (args.a.clone(), args.b.clone());
    let code = finish::finish(
        book,
        measured.map(drop),
        bench,
        &args.out,
        move |run, screen, places| {
            let report = places
                .report
                .map(|r| format!("\nreport {}\n", r.display()))
                .unwrap_or_default();
            let stamp = fathom_report::terminal::stamp(run, screen);
            format!(
                "{stamp}A  {a}\nB  {b}\n\n{}{}{report}",
                columns(&table(&rows)),
                fathom_report::terminal::conclusion(run, screen),
            )
        },
    )?;
    Ok(code.max(own))
}

/// A job with what is its own.
fn job(args: &AbArgs, name: &str, own: &str) -> Result<JobSpec, Failure> {
    let mut spec = JobSpec {
        name: name.into(),
        ..JobSpec::default()
    };
    args.job.apply(&mut spec)?;
    for (option, text) in settings(own)? {
        spec.set(&option, &text)?;
    }
    if spec.time.is_none() && spec.bytes.is_none() && spec.ios.is_none() {
        spec.time = Some(Nanos::from_secs(1));
        spec.ramp = Nanos::from_millis(100);
    }
    Ok(spec)
}

fn table(rows: &[AbRow]) -> Vec<Vec<String>> {
    let head = ["", "A", "B", "B against A (95 %)", "verdict"].map(str::to_owned);
    let row = |r: &AbRow| {
        vec![
            r.label.clone(),
            shown(r.a.as_ref(), &r.unit),
            shown(r.b.as_ref(), &r.unit),
            relative(r.relative.as_ref()),
            r.verdict.words().into(),
        ]
    };
    let head = std::iter::once(head.to_vec());
    head.chain(rows.iter().map(row)).collect()
}

/// 1 where B is worse in any metric by the threshold, or nothing could be said.
fn verdict_code(rows: &[AbRow], threshold: f64) -> u8 {
    let worse = rows.iter().any(|r| {
        r.verdict == Verdict::Worse && r.relative.is_some_and(|d| d.value.abs() >= threshold)
    });
    let said = rows.iter().any(|r| r.verdict != Verdict::NotComparable);
    if worse || !said { FAILED } else { DONE }
}

/// `--qd 32 --sqpoll`, `qd=32 sqpoll` → pairs; a switch has an empty text.
fn settings(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut out = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let word = word.trim_start_matches("--");
        if let Some((name, value)) = word.split_once('=') {
            out.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let option = fathom_io::job::options::find(word)?;
        let value = if option.value.is_empty() {
            String::new()
        } else {
            words.next().map(str::to_owned).ok_or_else(|| {
                refused(anyhow::anyhow!(
                    "{word}: expected a value after it, such as --{word} {}",
                    option.value
                ))
            })?
        };
        out.push((option.name.to_owned(), value));
    }
    Ok(out)
}
