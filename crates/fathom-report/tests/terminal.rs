//! What the screen shows, held by golden files: `FATHOM_UPDATE_GOLDEN=1 cargo test` rewrites them.

#[path = "../examples/sample_report/sample/mod.rs"]
mod sample;

use std::fs;
use std::path::Path;

use fathom_report::terminal::{Whereabouts, job_detail, job_table, summary};
use fathom_report::{MemoryOutput, ReportData, Screen, exporter};

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("FATHOM_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} differs; if that is meant, run with FATHOM_UPDATE_GOLDEN=1\n{text}",
        path.display()
    );
}

fn places() -> Whereabouts<'static> {
    Whereabouts {
        run_directory: Some(Path::new("fathom-runs/20261120T203405Z-survey")),
        report: Some(Path::new("fathom-runs/20261120T203405Z-survey/report.html")),
    }
}

fn assert_fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= width,
            "{} columns: {line}",
            line.chars().count()
        );
    }
}

#[test]
fn the_summary_fits_one_screen() {
    let (run, _) = sample::survey(false);
    for width in [80, 100] {
        let text = summary(&run, &Screen::plain(width), &places());
        assert_fits(&text, width);
        assert!(
            text.lines().count() <= 46,
            "{} lines\n{text}",
            text.lines().count()
        );
        golden(&format!("summary-{width}.txt"), &text);
    }
}

#[test]
fn a_narrow_screen_loses_words_but_no_number() {
    let (run, _) = sample::survey(false);
    let text = summary(&run, &Screen::plain(60), &places());
    assert_fits(&text, 60);
    for number in ["68.21 µs", "± 0.41", "6.923 GB/s", "1.018 M IOPS"] {
        assert!(text.contains(number), "{number} not in\n{text}");
    }
}

#[test]
fn a_simulated_run_says_so_first() {
    let (run, _) = sample::survey(true);
    let text = summary(&run, &Screen::plain(80), &places());
    let stamp = text.lines().position(|l| l.starts_with("SIMULATED"));
    assert!(stamp.is_some_and(|line| line <= 2), "{text}");
}

#[test]
fn colour_changes_no_letter() {
    let (run, _) = sample::survey(false);
    let plain = summary(&run, &Screen::plain(80), &places());
    let colour = summary(&run, &Screen::colour(80), &places());
    let mut stripped = String::new();
    let mut rest = colour.as_str();
    while let Some(at) = rest.find('\x1b') {
        stripped.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map_or("", |(_, r)| r);
    }
    stripped.push_str(rest);
    // Colour of an empty line's end does not matter.
    let trimmed = |t: &str| {
        t.lines()
            .map(|l| l.trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(trimmed(&stripped), trimmed(&plain));
    assert!(colour.contains("\x1b[1m"));
}

#[test]
fn a_job_shows_every_figure_as_fio_does() {
    let (run, _) = sample::survey(false);
    let screen = Screen::plain(100);
    let by_name = |part: &str| run.jobs.iter().find(|j| j.name.contains(part)).unwrap();
    let mut text = String::new();
    for part in [
        "randread-4k-qd1-r0",
        "open-loop",
        "buffered-read",
        "seqwrite-128k",
    ] {
        text.push_str(&job_detail(by_name(part), &screen));
        text.push('\n');
    }
    assert_fits(&text, 100);
    golden("jobs.txt", &text);
}

#[test]
fn many_jobs_are_a_table() {
    let (run, _) = sample::survey(false);
    for width in [80, 130] {
        let text = job_table(&run.jobs, &Screen::plain(width));
        assert_fits(&text, width);
        golden(&format!("job-table-{width}.txt"), &text);
    }
}

#[test]
fn markdown_holds_headlines_and_tables() {
    let (run, _) = sample::survey(false);
    let mut out = MemoryOutput::default();
    exporter("markdown")
        .unwrap()
        .export(&ReportData::from_run(run), &mut out)
        .unwrap();
    golden("report.md", &out.text("report.md"));
}
