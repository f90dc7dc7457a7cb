//! `fathom ab`: one job with two settings, run in turns.

use fathom_experiments::ab::{AbRow, BLOCK_JOBS, BLOCKS_MIN, Setting, analyse, block};
use fathom_experiments::{Notebook, RunMeta};
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::{JobSpec, Wanted};
use fathom_stats::compare::Verdict;
use fathom_telemetry::Nanos;
use fathom_telemetry::say;
use fathom_telemetry::schema::{Cell, Column, Section, Table};

use super::compare::{columns, percent, relative, shown};
use super::finish::{self, capsule, command_line};
use super::open::open_bench;
use crate::cli::AbArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};
use crate::{progress, signals};

pub(crate) fn ab(args: &AbArgs) -> Outcome {
    let threshold = percent(&args.threshold)?;
    if args.blocks < BLOCKS_MIN {
        return Err(refused(anyhow::anyhow!(
            "--blocks {}: an interval needs {BLOCKS_MIN} at least",
            args.blocks
        )));
    }
    let job = |name: &str, own: &str| -> Result<JobSpec, Failure> {
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
    };
    let specs = [job("a", &args.a)?, job("b", &args.b)?];
    let text = |s: &JobSpec| serde_json::to_value(s).unwrap_or_default();
    if text(&specs[0]) == text(&specs[1]) {
        say!("fathom: both settings are the same; what differs is noise");
    }
    let control = signals::control().map_err(refused)?;
    let wanted = Wanted::by(&specs, args.destroy.as_deref());
    let mut bench = open_bench(&args.target, &wanted, control)?;
    let limits = bench.limits();
    for spec in &specs {
        spec.validate(&limits)?;
    }
    let environment = capsule(bench.describe().path.as_deref().map(std::path::Path::new));
    if specs.iter().any(|s| s.rw.reads()) {
        bench.prepare(&mut ())?;
    }
    let meta = RunMeta {
        name: "ab".into(),
        command: "ab".into(),
        command_line: command_line(),
        profile: None,
        seed: specs[0].seed,
        environment,
    };
    let mut book = Notebook::create(&args.out.out, meta, bench.describe(), bench.simulated(), 0)?;
    let mut ran: Vec<(Setting, usize)> = Vec::new();
    let total = u64::from(args.blocks) * u64::from(BLOCK_JOBS);
    let mut line = progress::Line::new(total);
    let mut measured = Ok(());
    'blocks: for number in 0..args.blocks {
        for setting in block(specs[0].seed, number) {
            let mut spec = specs[setting as usize].clone();
            // The same offsets for both settings of a block: one source of noise less.
            spec.seed = specs[0].seed.wrapping_add(u64::from(number)) >> 1;
            spec.name = format!("{}.{}", spec.name, ran.len() + 1);
            line.name(&spec.name);
            let planned = [PlannedJob {
                experiment: "ab".into(),
                repeat: number,
                ..PlannedJob::new(spec.validate(&limits)?)
            }];
            let run = book.measure(&mut *bench, &planned, &mut |p: &Progress| line.show(p));
            let indices = match run {
                Ok(i) => i,
                Err(e) => {
                    measured = Err(e);
                    break 'blocks;
                }
            };
            if bench.interrupted() || book.run().jobs.iter().any(|j| !j.errors.is_empty()) {
                break 'blocks;
            }
            ran.extend(indices.into_iter().map(|i| (setting, i)));
            line.position(ran.len() as u64);
        }
    }
    line.clear();
    let rows = {
        let jobs = &book.run().jobs;
        let in_order: Vec<_> = ran.iter().map(|(s, i)| (*s, &jobs[*i])).collect();
        analyse(&in_order, specs[0].seed)
    };
    let own = verdict_code(&rows, threshold);
    book.run_mut().sections.push(section(args, &rows));
    let (a, b) = (args.a.clone(), args.b.clone());
    let code = finish::finish(
        book,
        measured,
        bench,
        &args.out,
        move |run, screen, places| {
            let mut table = vec![
                ["", "A", "B", "B against A (95 %)", "verdict"]
                    .map(str::to_owned)
                    .to_vec(),
            ];
            table.extend(rows.iter().map(|r| {
                vec![
                    r.label.clone(),
                    shown(r.a.as_ref(), &r.unit),
                    shown(r.b.as_ref(), &r.unit),
                    relative(r.relative.as_ref()),
                    r.verdict.words().into(),
                ]
            }));
            let report = places
                .report
                .map(|r| format!("\nreport {}\n", r.display()))
                .unwrap_or_default();
            let stamp = fathom_report::terminal::stamp(run, screen);
            format!("{stamp}A  {a}\nB  {b}\n\n{}{report}", columns(&table))
        },
    )?;
    Ok(code.max(own))
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

/// For the report.
fn section(args: &AbArgs, rows: &[AbRow]) -> Section {
    let column = |label: &str| Column {
        label: label.into(),
        unit: String::new(),
    };
    Section {
        id: "ab".into(),
        title: "Two settings in turns".into(),
        text: format!(
            "A: {}. B: {}. Blocks of A B B A or B A A B, as the seed drew them, so that a drift favours neither; the interval comes from resampling blocks.",
            args.a, args.b
        ),
        tables: vec![Table {
            id: "ab-table".into(),
            title: "B against A".into(),
            columns: ["metric", "A", "B", "B against A (95 %)", "verdict"]
                .map(column)
                .to_vec(),
            rows: rows
                .iter()
                .map(|r| {
                    vec![
                        Cell::Text(r.label.clone()),
                        Cell::Text(shown(r.a.as_ref(), &r.unit)),
                        Cell::Text(shown(r.b.as_ref(), &r.unit)),
                        Cell::Text(relative(r.relative.as_ref())),
                        Cell::Text(r.verdict.words().into()),
                    ]
                })
                .collect(),
        }],
        ..Section::default()
    }
}
