//! Writes a plausible survey into a directory and makes its report: for looking at, and for tests.
//!
//! `cargo run -p fathom-report --example sample_report -- [DIR] [--simulated] [--large]`

mod sample;

use std::path::Path;
use std::process::ExitCode;

use fathom_report::terminal::{Whereabouts, jobs, summary};
use fathom_report::{DirOutput, ReportData, Screen, exporter};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let simulated = args.iter().any(|a| a == "--simulated");
    let dir = args
        .iter()
        .find(|a| !a.starts_with("--"))
        .map_or("fathom-runs/sample", String::as_str);
    let large = args.iter().any(|a| a == "--large");
    match make(Path::new(dir), simulated, large) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn make(dir: &Path, simulated: bool, large: bool) -> Result<(), fathom_report::ReportError> {
    let (run, series) = if large {
        sample::large()
    } else {
        sample::survey(simulated)
    };
    let data = ReportData {
        run,
        series: Box::new(series),
        dir: Some(dir.to_owned()),
    };
    let mut out = DirOutput::new(dir);
    for format in ["html", "markdown", "terminal"] {
        exporter(format)?.export(&data, &mut out)?;
    }
    exporter("csv")?.export(&data, &mut DirOutput::new(dir.join("csv")))?;
    exporter("svg")?.export(&data, &mut DirOutput::new(dir.join("svg")))?;
    let screen = Screen::colour(100);
    let report = dir.join("report.html");
    let places = Whereabouts {
        run_directory: Some(dir),
        report: Some(&report),
    };
    print!("{}", summary(&data.run, &screen, &places));
    println!();
    let mut few = data.run.clone();
    few.jobs.truncate(2);
    print!("{}", jobs(&few, &screen));
    Ok(())
}
