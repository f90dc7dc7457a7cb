//! What every measuring command does at its end: save, report, summary.

use std::path::Path;

use fathom_bench::{Bench, Notebook, NotebookError, RunMeta};
use fathom_experiments::drive::{DriveResult, Reading};
use fathom_report::Screen;
use fathom_report::terminal::Whereabouts;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::{Headline, Job, Run};
use fathom_telemetry::{Flag, FlagCode};
use serde_json::Value;

use super::context;
use crate::cli::OutArgs;
use crate::exit::{DONE, FAILED, Failure, Outcome, failed};
use crate::screen;

/// What a run of a command says of itself, by the command's name and without a profile.
pub(super) fn meta(command: &str, seed: u64, out: &OutArgs, environment: Value) -> RunMeta {
    RunMeta {
        name: command.into(),
        command: command.into(),
        command_line: command_line(),
        profile: None,
        seed,
        labels: out.labels.given(),
        environment,
    }
}

/// The command line as typed, with what presets and fathom.toml added.
pub(super) fn command_line() -> Vec<String> {
    let line = crate::config::line();
    line.iter()
        .map(|a| a.to_string_lossy().into_owned())
        .collect()
}

/// The environment capsule.
pub(super) fn capsule(path: Option<&Path>) -> serde_json::Value {
    let mut environment = fathom_host::Environment::collect(path).to_json();
    context::add(&mut environment);
    environment
}

/// The notebook of a run on a bench. `recording` threads keep a log of I/Os, which is flagged where it would be written to
/// the device under test.
pub(super) fn notebook(
    out: &OutArgs,
    meta: RunMeta,
    bench: &dyn Bench,
    recording: usize,
) -> Result<Notebook, Failure> {
    let (about, simulated) = (bench.describe(), bench.simulated());
    let mut book = Notebook::create(&out.out, meta, about, simulated, recording)?;
    if recording > 0 && out_on_target(bench, &out.out) {
        book.run_mut().flags.push(Flag::new(
            FlagCode::LogOnTestedDevice,
            "the I/O log is written to the device under test",
            "choose another device with --out",
        ));
    }
    Ok(book)
}

/// Whether results would be written to the device under test.
fn out_on_target(bench: &dyn Bench, out: &Path) -> bool {
    // The directory may not exist yet: its nearest existing parent decides.
    let mut place = out;
    while !place.exists() {
        match place.parent() {
            Some(p) if !p.as_os_str().is_empty() => place = p,
            _ => {
                place = Path::new(".");
                break;
            }
        }
    }
    bench.shares_disk_with(place)
}

/// Ends the run, however the measuring went: removes what was made for it, saves it, writes the report,
/// prints the summary (or `run.json`).
pub(super) fn finish(
    mut book: Notebook,
    measured: Result<(), NotebookError>,
    bench: impl Into<Option<Box<dyn Bench>>>,
    out: &OutArgs,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    crate::view::leave();
    let closed = bench.into().map_or(Ok(()), Bench::close);
    if let Err(e) = measured {
        book = broke_off(book, e)?;
    }
    let code = save(book, out, text)?;
    // Only now: what could not be removed is no reason to lose what was measured.
    closed.map_err(failed)?;
    Ok(code)
}

/// The same with what every experiment has to say.
pub(super) fn summarised(
    book: Notebook,
    measured: Result<(), NotebookError>,
    bench: impl Into<Option<Box<dyn Bench>>>,
    out: &OutArgs,
) -> Outcome {
    let text = fathom_report::terminal::summary;
    finish(book, measured, bench, out, text)
}

/// What a run becomes that an error ended: refused without a trace where nothing was measured and the
/// input is the cause; otherwise kept with a flag, and said.
fn broke_off(mut book: Notebook, error: NotebookError) -> Result<Notebook, Failure> {
    let refusal = matches!(&error, NotebookError::Bench(b) if b.is_refusal());
    if refusal && book.run().jobs.is_empty() {
        book.discard();
        return Err(error.into());
    }
    book.broke_off(&error);
    say!("fathom: {}", failed(error).sentence());
    Ok(book)
}

/// Whether a run's flag says that its directory is not whole.
fn is_loss(flag: &Flag) -> bool {
    flag.code == FlagCode::LogLostRecords
}

/// 1 where the run was cut short or is void, or where nothing could be measured.
fn verdict(run: &Run) -> u8 {
    let flags = || {
        run.flags
            .iter()
            .chain(run.jobs.iter().flat_map(|j| &j.flags))
    };
    let cut = flags().any(|f| f.code == FlagCode::Interrupted);
    let void = run.flags.iter().any(|f| f.void)
        || if run.headlines.is_empty() {
            run.jobs.iter().any(Job::is_void)
        } else {
            // An experiment shows a void cell as a hole and lives with it, unless there is nothing else.
            let usable = |h: &Headline| h.estimate.is_some() && !h.flags.iter().any(|f| f.void);
            !run.headlines.iter().any(usable)
        };
    if cut || void { FAILED } else { DONE }
}

fn save(
    book: Notebook,
    out: &OutArgs,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    finish_with(book, out, None, serde_json::Map::new(), text)
}

/// The same, with keys that the command adds to `run.json` where it is printed, and with its own exit
/// code where what stands in the run does not decide it.
pub(super) fn finish_with(
    mut book: Notebook,
    out: &OutArgs,
    code: Option<u8>,
    extra: serde_json::Map<String, serde_json::Value>,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    crate::view::leave();
    if let Some(drive) = drive_since(book.run()) {
        book.run_mut().flags.extend(drive.flags());
        book.found(&drive)?;
    }
    let (run, dir, _) = book.finish()?;
    for flag in run.flags.iter().filter(|f| is_loss(f)) {
        say!("fathom: {}; {}", flag.detail, flag.remedy);
    }
    shown(&run, &dir, out, code, extra, text)
}

/// The drive before and after the run, where it was read before. One that has not answered is not asked.
fn drive_since(run: &Run) -> Option<DriveResult> {
    let before: Reading = serde_json::from_value(run.environment.get("drive")?.clone()).ok()?;
    let mut flags = run.jobs.iter().flat_map(|j| &j.flags);
    if flags.any(|f| matches!(f.code, FlagCode::Stalled | FlagCode::IoErrors)) {
        return None;
    }
    let after = Reading::of(&before.disk)?;
    Some(DriveResult { before, after })
}

/// The same for a run that is in its directory already.
pub(super) fn present(
    run: &Run,
    dir: &RunDir,
    out: &OutArgs,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    shown(run, dir, out, None, serde_json::Map::new(), text)
}

fn shown(
    run: &Run,
    dir: &RunDir,
    out: &OutArgs,
    code: Option<u8>,
    extra: serde_json::Map<String, serde_json::Value>,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    // A code of its own says nothing of a run without a usable job.
    let none = !run.jobs.is_empty() && run.jobs.iter().all(Job::is_void);
    let mut code = code.map_or_else(|| verdict(run), |own| own.max(u8::from(none) * FAILED));
    let report = match fathom_report::write_report(dir.path()) {
        Ok(path) => Some(path),
        Err(e) => {
            say!("fathom: the report could not be written: {e}");
            None
        }
    };
    if code == DONE && (report.is_none() || run.flags.iter().any(is_loss)) {
        code = FAILED;
    }
    if out.json {
        let mut json = serde_json::to_value(run).map_err(failed)?;
        if let Some(object) = json.as_object_mut() {
            object.extend(extra);
            // Who calls this from a script finds the run, whatever else runs.
            let path = serde_json::to_value(dir.path()).map_err(failed)?;
            object.insert("run_directory".into(), path);
        }
        screen::json(&json)?;
        return Ok(code);
    }
    let places = Whereabouts {
        run_directory: Some(dir.path()),
        report: report.as_deref(),
    };
    screen::print(&text(run, &screen::screen(), &places));
    Ok(code)
}
