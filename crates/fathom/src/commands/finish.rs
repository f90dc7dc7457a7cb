//! What every measuring command does at its end: save, report, summary.

use std::path::Path;

use fathom_experiments::{Bench, Notebook};
use fathom_report::Screen;
use fathom_report::terminal::Whereabouts;
use fathom_telemetry::schema::Run;

use crate::cli::OutArgs;
use crate::exit::{Outcome, failed};
use crate::screen;

/// The command line as typed.
pub(super) fn command_line() -> Vec<String> {
    std::env::args_os()
        .map(|a| a.to_string_lossy().into_owned())
        .collect()
}

/// The environment capsule.
pub(super) fn capsule(path: Option<&Path>) -> serde_json::Value {
    fathom_host::Environment::collect(path).to_json()
}

/// Whether results would be written to the device under test.
pub(super) fn out_on_target(bench: &dyn Bench, out: &Path) -> bool {
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

/// Ends the run: saves it, writes the report, prints the summary (or `run.json`).
pub(super) fn finish(
    book: Notebook,
    out: &OutArgs,
    code: u8,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    finish_with(book, out, code, serde_json::Map::new(), text)
}

/// The same, with keys that the command adds to `run.json` where it is printed.
pub(super) fn finish_with(
    book: Notebook,
    out: &OutArgs,
    code: u8,
    extra: serde_json::Map<String, serde_json::Value>,
    text: impl FnOnce(&Run, &Screen, &Whereabouts<'_>) -> String,
) -> Outcome {
    let (run, dir, log) = book.finish()?;
    if let Some(e) = log.and_then(|l| l.error) {
        eprintln!("fathom: {e}");
    }
    let report = match fathom_report::write_report(dir.path()) {
        Ok(path) => Some(path),
        Err(e) => {
            eprintln!("fathom: the report could not be written: {e}");
            None
        }
    };
    if out.json {
        let mut json = serde_json::to_value(&run).map_err(failed)?;
        if let Some(object) = json.as_object_mut() {
            object.extend(extra);
        }
        let json = serde_json::to_string_pretty(&json).map_err(failed)?;
        screen::print(&(json + "\n"));
        return Ok(code);
    }
    let places = Whereabouts {
        run_directory: Some(dir.path()),
        report: report.as_deref(),
    };
    screen::print(&text(&run, &screen::screen(), &places));
    Ok(code)
}
