//! `fathom sim`: the device models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fathom_experiments::sim_fit::{self, Advice, Fit, Residual};
use fathom_files::{Existing, output};
use fathom_io::JobSpec;
use fathom_sim::target::OPTIONS;
use fathom_sim::{CATALOG, Model, SimTarget};

use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::{Run, Target};
use fathom_telemetry::{Bytes, Nanos, say};

use super::child;
use crate::cli::{FitArgs, SimCommand};
use crate::exit::{DONE, Outcome, failed, refused};
use crate::screen;

pub(crate) fn sim(command: &SimCommand) -> Outcome {
    let text = match command {
        SimCommand::List { json } => list(*json)?,
        SimCommand::Show { model, json } => show(model, *json)?,
        SimCommand::Fit(args) => fit(args)?,
        SimCommand::Model(command) => super::formulas::formula(command)?,
        SimCommand::Check { target, json } => {
            let t = SimTarget::parse(&with_prefix(target)).map_err(refused)?;
            if *json {
                let said = serde_json::json!({
                    "target": t.name, "description": t.description(), "size_bytes": t.size(),
                });
                screen::json(&said)?;
                return Ok(DONE);
            }
            let size = Bytes(t.size());
            format!("{}: {}, {size}\n", t.name, t.description())
        }
    };
    screen::print(&text);
    Ok(DONE)
}

fn list(json: bool) -> Result<String, crate::exit::Failure> {
    let mut models = Vec::new();
    for (name, _) in CATALOG {
        models.push((*name, Model::named(name).map_err(failed)?));
    }
    if json {
        let all: Vec<_> = models
            .iter()
            .map(|(n, m)| serde_json::json!({"target": format!("sim:{n}"), "description": m.description, "size_bytes": m.size()}))
            .collect();
        return Ok(serde_json::to_string_pretty(&all).map_err(failed)? + "\n");
    }
    let mut text = String::new();
    for (name, m) in &models {
        text += &format!("{:20} {}\n", format!("sim:{name}"), m.description);
    }
    text += "\nAlso sim:FILE.toml, sim:raid5:8xMODEL (0, 1, 5, 6, 10), sim:vm:MODEL, sim:vm4:MODEL; options follow after commas:\n";
    for (option, what) in OPTIONS {
        text += &format!("  ,{option:26} {what}\n");
    }
    Ok(text)
}

/// A fitted model may be replaced by a later one.
const FITTED: Existing = Existing::OfKind(|head| head.starts_with(b"# Fitted by fathom sim fit "));

/// The first line of the jobs of `--measure`, kept beside the model.
const NARROWS: &str = "# What fathom sim fit --measure measured to narrow its model";
const NARROWING: Existing = Existing::OfKind(|head| head.starts_with(NARROWS.as_bytes()));

/// A model of what runs measured, kept in the first one's directory or in `--file`, with its residuals.
fn fit(args: &FitArgs) -> Result<String, crate::exit::Failure> {
    let opened = args.runs.iter().map(|run| RunDir::open(run));
    let opened: Vec<_> = opened.collect::<Result<_, _>>().map_err(refused)?;
    let (dirs, mut runs): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let unwritten = |path: &Path, e: std::io::Error| {
        refused(anyhow::anyhow!(
            "{}: cannot be written: {e}; choose another --file",
            path.display()
        ))
    };
    // A fit takes a minute.
    if let Some(path) = &args.file {
        output::check(path, FITTED).map_err(|e| unwritten(path, e))?;
    }
    say!(
        "fathom: fitting a model to {} takes a minute or two",
        runs[0].name
    );
    let mut fit = sim_fit::fit(&runs).map_err(refused)?;
    let before = fit.open_percent;
    let mut measured = None;
    if args.measure && !fit.advice.is_empty() {
        let (run, place) = measure_further(&fit, &dirs[0], &runs[0].target, args)?;
        runs.push(run);
        measured = Some(place);
        fit = sim_fit::fit(&runs).map_err(refused)?;
    }
    let path = match &args.file {
        Some(path) => {
            output::write(path, FITTED, fit.text.as_bytes()).map_err(|e| unwritten(path, e))?;
            path.clone()
        }
        None => dirs[0]
            .write("model.toml", FITTED, fit.text.as_bytes())
            .map_err(failed)?,
    };
    if args.json {
        let all = serde_json::json!({
            "file": path, "model": fit.text, "values": fit.values, "residuals": fit.residuals, "unfit": fit.is_unfit(),
            "open_percent": fit.open_percent, "advice": fit.advice, "measured": measured, "simulated": true,
        });
        return Ok(serde_json::to_string_pretty(&all).map_err(failed)? + "\n");
    }
    let mut text = residuals(&fit) + &values(&fit);
    if let Some(place) = &measured {
        text += &format!(
            "\nmeasured {}: predictions were open by ± {before:.1} % before, by ± {:.1} % now\n",
            place.display(),
            fit.open_percent
        );
    }
    text += &advice(&fit, &runs[0].target);
    text += &format!("\nmodel {0}\nuse it as sim:{0}\n", path.display());
    if fit.is_unfit() {
        text += "UNFIT: what was held out is too far off; every number of this model says so\n";
    }
    Ok(text)
}

/// Runs the loads that would narrow the predictions most on the device of the runs.
fn measure_further(
    fit: &Fit,
    dir: &RunDir,
    target: &Target,
    args: &FitArgs,
) -> Result<(Run, PathBuf), crate::exit::Failure> {
    let control = crate::signals::control().map_err(refused)?;
    let jobs = dir
        .write(
            "narrow.toml",
            NARROWING,
            job_file(fit, target, args.time)?.as_bytes(),
        )
        .map_err(failed)?;
    let mut words = vec!["run".to_owned(), target.place().to_owned(), "--jobs".into()];
    words.push(jobs.display().to_string());
    let serial = args.destroy.iter();
    words.extend(serial.flat_map(|d| ["--destroy".to_owned(), d.clone()]));
    let (run, dir) = child::run(&words, &args.out, &control).map_err(|said| {
        failed(anyhow::anyhow!(
            "what would narrow the fit was not measured: {said}"
        ))
    })?;
    Ok((run, dir.path().to_owned()))
}

/// The advised loads as `fathom run --jobs` reads them, over as much of the target as the runs had.
fn job_file(fit: &Fit, target: &Target, time: Nanos) -> Result<String, crate::exit::Failure> {
    let job = |(i, advice): (usize, &Advice)| JobSpec {
        name: format!("narrow-{}", i + 1),
        time: Some(time),
        size: Some(Bytes(target.size_bytes)),
        ..advice.job.clone()
    };
    let jobs: Vec<JobSpec> = fit.advice.iter().enumerate().map(job).collect();
    let jobs = toml::to_string(&BTreeMap::from([("job", jobs)])).map_err(failed)?;
    Ok(format!("{NARROWS}\n{jobs}"))
}

/// Every number beside the model's; percentiles of what was fitted are in the JSON.
fn residuals(fit: &Fit) -> String {
    let shown = |r: &&Residual| {
        matches!(r.quantity, "mean" | "p99") && (r.role == "prediction" || r.quantity == "mean")
    };
    let name = |r: &Residual| format!("{}, {}s, {}", r.what, r.direction, r.quantity);
    let rows: Vec<&Residual> = fit.residuals.iter().filter(shown).collect();
    let wide = rows.iter().map(|r| name(r).len()).max().unwrap_or(0);
    let mut text = format!(
        "{:wide$}  {:>10} {:>10} {:>8}  role\n",
        "service latency", "measured", "model", "error"
    );
    let time = |ns: f64| Nanos(ns as u64).to_string();
    for r in rows {
        let interval = r.interval_ns.map_or(String::new(), |[low, high]| {
            format!(", {} to {}", time(low), time(high))
        });
        text += &format!(
            "{:wide$}  {:>10} {:>10} {:>+7.1}%  {}{interval}\n",
            name(r),
            time(r.measured_ns),
            time(r.model_ns),
            r.error_percent,
            r.role
        );
    }
    text.push('\n');
    for (name, role) in [("fitted", "fit"), ("held-out", "prediction")] {
        for quantity in ["mean", "p99", "p99.9"] {
            let (n, mean, max) = fit.errors(role, quantity);
            if n > 0 {
                text += &format!(
                    "{n} {name} {quantity}: off by {mean:.1} % on average, by {max:.1} % at most\n"
                );
            }
        }
    }
    text
}

/// The values with their intervals.
fn values(fit: &Fit) -> String {
    let wide = fit.values.iter().map(|v| v.key.len()).max().unwrap_or(0);
    let mut text = format!("\n{:wide$}  {:>10}  95 % interval\n", "value", "");
    for v in &fit.values {
        text += &format!(
            "{:wide$}  {:>10.3}  {:.3} to {:.3}\n",
            v.key, v.value, v.low, v.high
        );
    }
    text + &format!(
        "\nOf loads of other sizes, depths and mixtures the values leave means and 99th percentiles open by ± {:.1} %.\n",
        fit.open_percent
    )
}

/// What to measure next.
fn advice(fit: &Fit, target: &Target) -> String {
    if fit.advice.is_empty() {
        return "No further load would narrow that by a tenth.\n".into();
    }
    let mut text =
        "Measured too, these would narrow it (fathom sim fit --measure does it):\n".to_owned();
    for a in &fit.advice {
        let s = &a.job;
        let share = match s.rw.reads() && s.rw.writes() {
            true => format!(" --read-share {}", s.read_share),
            false => String::new(),
        };
        text += &format!(
            "  to ± {:.1} %  fathom run {} --rw {} --bs {}k --threads {} --qd {}{share}\n",
            a.open_percent,
            target.place(),
            s.rw.word(),
            s.bs.max().0 >> 10,
            s.threads,
            s.qd
        );
    }
    text
}

/// The file of a model, sources and all; as JSON its values.
fn show(model: &str, json: bool) -> Result<String, crate::exit::Failure> {
    let name = model.strip_prefix("sim:").unwrap_or(model);
    Model::named(name).map_err(refused)?;
    let text = CATALOG
        .iter()
        .find(|(n, _)| *n == name)
        .map_or("", |(_, text)| *text);
    if json {
        let values: toml::Value = toml::from_str(text).map_err(failed)?;
        return Ok(serde_json::to_string_pretty(&values).map_err(failed)? + "\n");
    }
    Ok(text.to_owned())
}

fn with_prefix(target: &str) -> String {
    if target.starts_with("sim:") {
        target.to_owned()
    } else {
        format!("sim:{target}")
    }
}
