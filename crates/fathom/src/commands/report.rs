//! `fathom report`: remake a report, or export a run.

use std::path::{Path, PathBuf};

use fathom_report::{DirOutput, ReportData};
use fathom_telemetry::rundir::{RUNS_DIR, RunDir};

use crate::cli::ReportArgs;
use crate::exit::{DONE, Outcome, refused};
use crate::screen;

/// See the module.
pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let path: PathBuf = match &args.run {
        Some(run) => run.clone(),
        None => RunDir::newest(Path::new(RUNS_DIR)).map_err(refused)?,
    };
    if args.json {
        let (_, run) = RunDir::open(&path).map_err(refused)?;
        screen::print(&(serde_json::to_string_pretty(&run).map_err(refused)? + "\n"));
        return Ok(DONE);
    }
    if args.format == "terminal" && args.out.is_none() {
        let (dir, run) = RunDir::open(&path).map_err(refused)?;
        let report = Some(dir.report_file()).filter(|p| p.exists());
        let places = fathom_report::terminal::Whereabouts {
            run_directory: Some(dir.path()),
            report: report.as_deref(),
        };
        let s = screen::screen();
        let text = if run.headlines.is_empty() {
            fathom_report::terminal::jobs(&run, &s)
        } else {
            fathom_report::terminal::summary(&run, &s, &places)
        };
        screen::print(&text);
        return Ok(DONE);
    }
    let exporter = fathom_report::exporter(&args.format)?;
    let data = ReportData::open(&path)?;
    let out = args
        .out
        .clone()
        .or_else(|| data.dir.clone())
        .unwrap_or_default();
    std::fs::create_dir_all(&out).map_err(|e| {
        refused(anyhow::anyhow!(
            "{}: cannot be made: {e}; choose another --out",
            out.display()
        ))
    })?;
    exporter.export(&data, &mut DirOutput::new(&out))?;
    screen::print(&format!("{}: {}\n", exporter.name(), out.display()));
    Ok(DONE)
}
