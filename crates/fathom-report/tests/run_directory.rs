//! A report made from a run directory is the one made from the run itself.

#[path = "../examples/sample_report/sample/mod.rs"]
mod sample;

use fathom_report::{MemoryOutput, ReportData, exporter, write_report};
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::series::{JobOfSeries, SeriesWriter};
use fathom_telemetry::{Identity, Nanos};

#[test]
fn the_page_from_a_run_directory_equals_the_one_from_memory() {
    let base = std::env::temp_dir().join(format!("fathom-report-dir-{}", std::process::id()));
    let dir = RunDir::create(&base, "survey").unwrap();
    let (run, series) = sample::survey(false);
    dir.save(&run).unwrap();
    let mut writer = SeriesWriter::create(&dir.series_file(), Identity::default(), 1).unwrap();
    for (job, s) in &series.0 {
        for window in &s.windows {
            let of = JobOfSeries {
                index: *job as u16,
                name: "",
                origin: Nanos::ZERO,
            };
            writer.push(&of, s.width, window).unwrap();
        }
    }
    writer.finish().unwrap();

    let path = write_report(dir.path()).unwrap();
    assert_eq!(path, dir.report_file());
    let written = std::fs::read_to_string(path).unwrap();

    let data = ReportData {
        run,
        series: Box::new(series),
        dir: Some(dir.path().to_owned()),
    };
    let mut out = MemoryOutput::default();
    exporter("html").unwrap().export(&data, &mut out).unwrap();
    assert!(written == out.text("report.html"), "the two pages differ");
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_run_without_series_still_has_a_report() {
    let base = std::env::temp_dir().join(format!("fathom-report-bare-{}", std::process::id()));
    let dir = RunDir::create(&base, "run").unwrap();
    let (mut run, _) = sample::survey(false);
    run.finished = None;
    dir.save(&run).unwrap();
    let text = std::fs::read_to_string(write_report(dir.path()).unwrap()).unwrap();
    assert!(text.contains("This run did not finish"));
    assert!(!text.contains("id=\"over-time\""));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_directory_without_a_run_is_refused_in_one_sentence() {
    let error = write_report(std::path::Path::new("/nonexistent/run"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nonexistent/run") && error.lines().count() == 1,
        "{error}"
    );
}
