//! `fathom runs`: what was measured here, and what its owner calls it.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fathom_report::{Brief, DirOutput, format, index_page};
use fathom_telemetry::rundir::{RUNS_DIR, RunDir};
use fathom_telemetry::{Price, say};

use super::context;
use super::shopping::columns;
use crate::cli::RunsArgs;
use crate::exit::{DONE, Failure, Outcome, failed, refused};
use crate::screen;

/// The page of a directory of runs.
const INDEX_FILE: &str = "index.html";
/// The label that names what others are compared with.
const BASELINE: &str = "baseline";
/// Numbers of a run that the list has room for.
const NUMBERS_SHOWN: usize = 2;

pub(crate) fn runs(args: &RunsArgs) -> Outcome {
    if !args.labels.given().is_empty() || context::price().is_some() {
        return label(args);
    }
    let mut dirs = args.dirs.clone();
    if dirs.is_empty() {
        dirs.push(RUNS_DIR.into());
    }
    let mut all = Vec::new();
    for dir in &dirs {
        all.extend(briefs(dir)?);
    }
    all.retain(|r| args.only.iter().all(|(k, v)| r.labels.get(k) == Some(v)));
    if args.json {
        screen::json(&all)?;
    } else if args.html {
        // Over several directories, in the first.
        let page = index_page(&all, &dirs[0])?;
        let path = DirOutput::new(&dirs[0]).page(INDEX_FILE, &page)?;
        screen::print(&format!("{}\n", path.display()));
    } else {
        screen::print(&list(&all));
    }
    Ok(DONE)
}

/// The runs in a directory, the oldest first. What cannot be read is said and left out.
fn briefs(dir: &Path) -> Result<Vec<Brief>, Failure> {
    let mut all = Vec::new();
    for path in RunDir::all(dir).map_err(refused)? {
        match Brief::open(&path) {
            Ok(run) => all.push(run),
            Err(e) => say!("fathom: left out: {e}"),
        }
    }
    Ok(all)
}

fn list(all: &[Brief]) -> String {
    let mut rows = vec![
        [
            "started", "command", "target", "host", "numbers", "flags", "labels",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for run in all {
        let numbers = run
            .headlines
            .iter()
            .take(NUMBERS_SHOWN)
            .map(|h| match &h.estimate {
                Some(e) => format!("{} {}", h.label, format::value(e.value, &h.unit)),
                None => format!("{} {}", h.label, format::HOLE),
            });
        rows.push(vec![
            run.started_words(),
            run.command.clone(),
            run.target.place().to_owned(),
            run.host.clone().unwrap_or_default(),
            numbers.collect::<Vec<_>>().join(", "),
            run.flags_words(),
            run.labels_words(),
        ]);
    }
    columns(&rows)
}

/// Calls runs something, afterwards.
fn label(args: &RunsArgs) -> Outcome {
    if args.dirs.is_empty() || args.html || args.json || !args.only.is_empty() {
        return Err(refused(anyhow!(
            "--label, --note and --price need the runs that they are of, and nothing else: fathom runs RUN --label NAME=VALUE"
        )));
    }
    // All are read before the first is changed.
    let runs = args
        .dirs
        .iter()
        .map(|path| RunDir::open(path).map_err(refused));
    for (dir, mut run) in runs.collect::<Result<Vec<_>, _>>()? {
        for (name, value) in args.labels.given() {
            match value.is_empty() {
                true => run.labels.remove(&name),
                false => run.labels.insert(name, value),
            };
        }
        if let Some(price) = context::price() {
            price.clone().put_into(&mut run);
        }
        dir.save(&run).map_err(failed)?;
        let labels = run.labels.iter().map(|(k, v)| format!(" {k}={v}"));
        let price = Price::of(&run).map(|p| format!(" price {}", p.words()));
        let words = labels.chain(price);
        screen::print(&format!(
            "{}:{}\n",
            dir.path().display(),
            words.collect::<String>()
        ));
    }
    Ok(DONE)
}

/// The newest run beside `run` that is labelled `baseline=NAME`.
pub(super) fn baseline(name: &str, run: &Path) -> Result<PathBuf, Failure> {
    let (dir, _) = RunDir::open_as::<serde::de::IgnoredAny>(run).map_err(refused)?;
    let here = dir.path().canonicalize().map_err(failed)?;
    let beside = here.parent().unwrap_or(Path::new("/"));
    let all = briefs(beside)?;
    let mut known: Vec<&String> = all.iter().filter_map(|r| r.labels.get(BASELINE)).collect();
    let found = all
        .iter()
        .rev()
        .find(|r| r.labels.get(BASELINE).is_some_and(|n| n == name) && r.path != here);
    if let Some(found) = found {
        return Ok(found.path.clone());
    }
    known.sort();
    known.dedup();
    let known: Vec<&str> = known.iter().map(|n| n.as_str()).collect();
    Err(refused(anyhow!(
        "--baseline {name}: no other run in {} is labelled so (known: {}); label one with 'fathom runs RUN --label {BASELINE}={name}'",
        beside.display(),
        if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        }
    )))
}
