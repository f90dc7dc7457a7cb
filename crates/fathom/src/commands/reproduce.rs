//! `fathom reproduce PAPER`: published figures beside the models', or beside what a target that is there gives.

use fathom_bench::{Bench, Notebook, RunMeta};
use fathom_experiments::reproduce::present::{ROLES, errors};
use fathom_experiments::reproduce::{
    self, Models, PAPERS, ReproduceError, ReproduceOptions, Reproduction, Row, method, real,
};
use fathom_io::{Control, Wanted};
use fathom_telemetry::say;
use fathom_telemetry::schema::Target;
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::announce::Foreseen;
use super::finish::{capsule, finish_with, meta, notebook};
use super::open::{foresee_jobs, open_bench};
use super::reproduce_labs;
use crate::cli::ReproduceArgs;
use crate::exit::{Failure, Outcome, failed, refused};
use crate::signals;

pub(crate) fn reproduce(args: &ReproduceArgs) -> Outcome {
    let title = title(args)?;
    if args.dry_run {
        return foresee(args, title);
    }
    let (book, reproduction, code) = match args.on.as_slice() {
        [] => on_models(args, title)?,
        [first] => on_target(args, (first, None))?,
        [first, second] => on_target(args, (first, Some(second)))?,
        [_, _, third, ..] => {
            return Err(refused(anyhow::anyhow!(
                "--on {third}: a third target has nothing to stand for: expected the paper's own device and one that it is held against"
            )));
        }
    };
    let mut extra = serde_json::Map::new();
    extra.insert("paper".into(), args.options.paper.as_str().into());
    let rows = serde_json::to_value(&reproduction.rows).map_err(failed)?;
    extra.insert("rows".into(), rows);
    finish_with(book, &args.out, code, extra, |run, screen, places| {
        let mut text = format!("{title}\n{}", fathom_report::terminal::stamp(run, screen));
        text += &format!("{}\n", reproduction.basis);
        text += &format!("\n{}", table(&reproduction.rows));
        text += &fathom_report::terminal::conclusion(run, screen);
        if let Some(report) = places.report {
            text += &format!("\nreport {}\n", report.display());
        }
        text
    })
}

/// What it would take. What labs add says `fathom raid`, `vm`, `kv` or `db` with `--dry-run`.
fn foresee(args: &ReproduceArgs, title: &str) -> Outcome {
    let Some(target) = args.on.first() else {
        let (cost, model) = reproduce::run_cost(&args.options.paper);
        return Foreseen::of(title, &cost, model).dry_run(args.out.json);
    };
    let (mut options, wanted) = asked(args, target)?;
    let (limits, fills) = foresee_jobs(target, &wanted, None)?;
    options.size = Some(options.data_set().min(Bytes(limits.size)));
    let cost = real::run_cost(&options, args.on.len() > 1, fills).map_err(failure)?;
    Foreseen::of(title, &cost, target).dry_run(args.out.json)
}

/// How to measure on a target, and what that asks of it.
fn asked(args: &ReproduceArgs, name: &str) -> Result<(ReproduceOptions, Wanted), Failure> {
    let mut options = args.options.clone();
    let Some(method) = method(&options.paper) else {
        return Err(refused(ReproduceError::UnknownPaper(options.paper)));
    };
    if options.size.is_none() && std::path::Path::new(name).is_dir() {
        options.size = Some(method.data_set);
    }
    let wanted = Wanted {
        modifies: true,
        direct: true,
        buffered: options.paper == "han2021",
        size: options.size,
        destroy: reproduce_labs::own(args, name).cloned(),
        create: super::open::may_create(),
        ..Wanted::default()
    };
    Ok((options, wanted))
}

fn title(args: &ReproduceArgs) -> Result<&'static str, Failure> {
    PAPERS
        .iter()
        .find(|p| p.0 == args.options.paper)
        .map(|p| p.1)
        .ok_or_else(|| refused(ReproduceError::UnknownPaper(args.options.paper.clone())))
}

type Made = (Notebook, Reproduction, Option<u8>);

fn on_models(args: &ReproduceArgs, title: &str) -> Result<Made, Failure> {
    let control = signals::control().map_err(refused)?;
    let target = Target {
        name: format!("sim:{}", args.options.paper),
        kind: "simulated".into(),
        path: None,
        size_bytes: 0,
        device: None,
        description: format!("models of the devices of {title}"),
    };
    let mut book = Notebook::create(&args.out.out, meta_of(args, capsule(None)), target, true, 0)?;
    let made = {
        let mut models = Models::kept_in(&mut book, &args.options.paper, control);
        reproduce::reproduce(&args.options.paper, &mut models)
    };
    let mut r = match made {
        Ok(r) => r,
        Err(ReproduceError::Interrupted) => Reproduction {
            rows: Vec::new(),
            curves: Vec::new(),
            paper: args.options.paper.clone(),
            basis: "Interrupted: the jobs that ended before are kept.".into(),
        },
        Err(e) => {
            book.discard();
            return Err(failure(e));
        }
    };
    let interrupted = r.rows.is_empty();
    if let Err(e) = reproduce_labs::with(args, &mut r.rows) {
        book.discard();
        return Err(e);
    }
    if let Some(figure) = args.options.figure.as_ref().filter(|_| !interrupted) {
        r.rows
            .retain(|row| reproduce::is_figure(figure, &row.id, &row.place));
        r.curves
            .retain(|c| reproduce::is_figure(figure, "", &c.place));
        if r.rows.is_empty() {
            book.discard();
            return Err(refused(anyhow::anyhow!(
                "--figure {figure}: no value of {} has this identifier, table or figure; leave it out to see them all",
                args.options.paper
            )));
        }
    }
    book.found(&r)?;
    let run = book.run_mut();
    run.flags.push(Flag::new(
        FlagCode::Simulated,
        "numbers come from models of the paper's devices",
        "fathom reproduce with --on TARGET measures a real one",
    ));
    if interrupted {
        run.flags.push(ReproduceError::interrupted());
    }
    let code = if interrupted {
        crate::exit::FAILED
    } else {
        crate::exit::DONE
    };
    Ok((book, r, Some(code)))
}

fn on_target(
    args: &ReproduceArgs,
    (first, second): (&str, Option<&String>),
) -> Result<Made, Failure> {
    let control = signals::control().map_err(refused)?;
    let (options, wanted) = asked(args, first)?;
    let mut bench = open_bench(first, &wanted, control.clone())?;
    let other = second.map(|name| Ok::<_, Failure>((name, asked(args, name)?.1)));
    let other = other.transpose()?;
    let other = other.map(|(name, wanted)| open_bench(name, &wanted, control.clone()));
    let mut other = other.transpose()?;
    let about = bench.describe();
    let environment = capsule(about.path.as_deref().map(std::path::Path::new));
    let meta = meta_of(args, environment);
    let mut book = notebook(&args.out, meta, &*bench, 0)?;
    if let Some(other) = &other {
        let target = &mut book.run_mut().target;
        let beside = other.describe();
        target.name = format!("{} and {}", target.name, beside.name);
        target.description = format!("{}, beside {}", target.description, beside.description);
    }
    let beside: Option<&mut dyn Bench> = match &mut other {
        Some(other) => Some(&mut **other),
        None => None,
    };
    let measured = real::measure(&options, &mut *bench, beside, &mut book);
    let simulated = bench.simulated() || other.as_ref().is_some_and(|o| o.simulated());
    for bench in [Some(bench), other].into_iter().flatten() {
        bench.close().map_err(failed)?;
    }
    let mut r = match measured {
        Ok(r) => r,
        Err(e) => {
            book.discard();
            return Err(failure(e));
        }
    };
    if let Err(e) = with_labs(args, simulated, &options, &control, &mut r) {
        book.discard();
        return Err(e);
    }
    // They take as long as `fathom reproduce PAPER`: who leaves the labs out wants it short.
    let short = args.no_labs && args.with.is_empty();
    if !(short || simulated || control.interrupted()) {
        beside_models(&args.options.paper, &mut r.rows);
    }
    book.found(&r)?;
    Ok((book, r, None))
}

/// What the models of the paper's devices say of the same values, devices, machines and arrays.
fn beside_models(paper: &str, rows: &mut [Row]) {
    say!("fathom: the same values on the models of the paper's devices");
    // What was measured stands without them.
    let Ok(models) = reproduce::reproduce(paper, &mut Models::unkept()) else {
        return;
    };
    for row in rows.iter_mut().filter(|r| r.ours.is_some()) {
        let same = models
            .rows
            .iter()
            .find(|m| m.id == row.id && m.unit == row.unit);
        row.model = same.and_then(|m| m.ours);
    }
}

/// Values of labs; the figure that was asked for needs one at least, from wherever.
fn with_labs(
    args: &ReproduceArgs,
    simulated: bool,
    options: &ReproduceOptions,
    control: &Control,
    r: &mut Reproduction,
) -> Result<(), Failure> {
    reproduce_labs::with(args, &mut r.rows)?;
    reproduce_labs::run(args, simulated, options, control, r);
    if args.on.len() > 1 && !simulated {
        reproduce_labs::on_both(args, options, control, r);
    }
    match &args.options.figure {
        Some(figure) if r.rows.iter().all(|r| r.ours.is_none()) && !control.interrupted() => {
            let why = r.rows.iter().find(|r| r.note.starts_with("fathom "));
            Err(refused(match why {
                Some(row) => anyhow::anyhow!("--figure {figure}: {}", row.note),
                None => ReproduceError::Figure(figure.clone()).into(),
            }))
        }
        _ => Ok(()),
    }
}

fn failure(e: ReproduceError) -> Failure {
    match e {
        ReproduceError::Bench(_) => failed(e),
        _ => refused(e),
    }
}

fn meta_of(args: &ReproduceArgs, environment: serde_json::Value) -> RunMeta {
    RunMeta {
        name: format!("reproduce-{}", args.options.paper),
        ..meta("reproduce", 1, &args.out, environment)
    }
}
fn number(x: Option<f64>) -> String {
    match x {
        None => "-".into(),
        Some(x) if x.abs() >= 1000.0 => format!("{x:.0}"),
        Some(x) if x.abs() >= 100.0 => format!("{x:.1}"),
        Some(x) if x.abs() >= 1.0 => format!("{x:.2}"),
        Some(x) => format!("{x:.3}"),
    }
}

fn table(all: &[Row]) -> String {
    // Conditions and passing remarks are in the report and in --json.
    let rows: Vec<&Row> = all
        .iter()
        .filter(|r| r.ours.is_some() || ["needs", "fathom "].iter().any(|n| r.note.starts_with(n)))
        .collect();
    let wide = |f: &dyn Fn(&Row) -> usize| rows.iter().map(|r| f(r)).max().unwrap_or(0);
    let (id, what) = (wide(&|r| r.id.len()), wide(&|r| r.what.chars().count()));
    // Only beside what was measured on a target.
    let models = rows.iter().any(|r| r.model.is_some());
    let model = |word: String| {
        if models {
            format!(" {word:>10}")
        } else {
            String::new()
        }
    };
    let mut text = format!(
        "{:id$}  {:what$}  {:>10} {:>10}{} {:9} {:>7}  role\n",
        "id",
        "what",
        "published",
        "ours",
        model("models".into()),
        "unit",
        "error"
    );
    for r in &rows {
        let error = r
            .error_percent
            .map_or_else(String::new, |e| format!("{e:+.1}%"));
        let role = match r.role {
            _ if r.ours.is_none() => "",
            role => role.word(),
        };
        text += format!(
            "{:id$}  {:what$}  {:>10} {:>10}{} {:9} {error:>7}  {role}",
            r.id,
            r.what,
            r.as_published(|v| number(Some(v)))
                .unwrap_or_else(|| number(None)),
            number(r.ours),
            model(number(r.model)),
            r.unit
        )
        .trim_end();
        text.push('\n');
        if !r.note.is_empty() {
            text += &format!("{:id$}    {}\n", "", r.note);
        }
    }
    text.push('\n');
    for (role, name) in ROLES {
        if let Some((n, mean, max)) = errors(all, role) {
            text += &format!("{n} {name} values: mean error {mean:.1} %, largest {max:.1} %\n");
        }
    }
    if all.len() > rows.len() {
        text += &format!(
            "{} further values are conditions or passing remarks: see the report, or --json\n",
            all.len() - rows.len()
        );
    }
    text
}
