//! CSV for spreadsheets and scripts: jobs, windows, and each table and chart (RFC 4180).
//!
//! Numbers are in base units named in the column (`_ns`, `_bytes`), never with
//! prefixes; a hole is an empty field, never 0.

use std::io::{self, Write};

use fathom_telemetry::schema::{Cell, Chart, Table};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{Histogram, LatencySummary, Op, SparseHistogram};

use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::output::{Output, file_name, written};
use crate::stamp::Stamp;
use crate::terminal::{cpu_per_io, directions};

/// The CSV exporter.
pub(crate) struct Csv;

impl Exporter for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }
    fn about(&self) -> &'static str {
        "jobs.csv, headlines.csv, series.csv, and one file per table and chart"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        let stamp = Stamp::of(&data.run);
        out.file("jobs.csv", &mut |w| {
            written("jobs.csv", jobs(data, &mut Sheet::new(w, stamp)))
        })?;
        out.file("headlines.csv", &mut |w| {
            written("headlines.csv", headlines(data, &mut Sheet::new(w, stamp)))
        })?;
        out.file("series.csv", &mut |w| {
            series(data, &mut Sheet::new(w, stamp))
        })?;
        let mut names = std::collections::BTreeSet::new();
        let mut unique = |prefix: &str, id: &str| {
            let mut name = file_name(prefix, id, "csv");
            let mut n = 1;
            while !names.insert(name.to_ascii_lowercase()) {
                n += 1;
                name = file_name(prefix, &format!("{id}-{n}"), "csv");
            }
            name
        };
        for section in &data.run.sections {
            for t in &section.tables {
                let name = unique("table-", &t.id);
                out.file(&name, &mut |w| {
                    written(&name, table(t, &mut Sheet::new(w, stamp)))
                })?;
            }
            for c in &section.charts {
                let name = unique("chart-", &c.id);
                out.file(&name, &mut |w| {
                    written(&name, chart(c, &mut Sheet::new(w, stamp)))
                })?;
            }
        }
        Ok(())
    }
}

/// A file being written. Sheets travel alone, so each of a simulated or emulated run has a last column that says so.
struct Sheet<'a> {
    w: &'a mut dyn Write,
    stamp: Option<Stamp>,
    headed: bool,
}

impl<'a> Sheet<'a> {
    fn new(w: &'a mut dyn Write, stamp: Option<Stamp>) -> Self {
        Self {
            w,
            stamp,
            headed: false,
        }
    }
}

/// Writes one record with CRLF, quoting where needed.
fn record<S: AsRef<str>>(
    sheet: &mut Sheet<'_>,
    fields: impl IntoIterator<Item = S>,
) -> io::Result<()> {
    let w = &mut *sheet.w;
    for (i, field) in fields.into_iter().enumerate() {
        if i > 0 {
            w.write_all(b",")?;
        }
        w.write_all(quoted(field.as_ref()).as_bytes())?;
    }
    if let Some(stamp) = sheet.stamp {
        write!(w, ",{}", if sheet.headed { "true" } else { stamp.word })?;
    }
    sheet.headed = true;
    w.write_all(b"\r\n")
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A number in full precision, shortest form that reads back the same; a hole is empty.
fn num(v: Option<f64>) -> String {
    v.filter(|v| v.is_finite())
        .map(|v| v.to_string())
        .unwrap_or_default()
}

fn int(v: Option<u64>) -> String {
    v.map(|v| v.to_string()).unwrap_or_default()
}

const LATENCY_COLUMNS: [&str; 10] = [
    "samples", "min", "mean", "stddev", "p50", "p90", "p99", "p99_9", "p99_99", "max",
];

fn latency(l: &LatencySummary) -> [String; 10] {
    [
        l.samples.to_string(),
        int(l.min),
        num(l.mean),
        num(l.stddev),
        int(l.p50),
        int(l.p90),
        int(l.p99),
        int(l.p99_9),
        int(l.p99_99),
        int(l.max),
    ]
}

fn latency_columns(prefix: &str) -> impl Iterator<Item = String> {
    LATENCY_COLUMNS
        .map(|c| match c {
            "samples" => format!("{prefix}_samples"),
            c => format!("{prefix}_{c}_ns"),
        })
        .into_iter()
}

fn jobs(data: &ReportData, w: &mut Sheet<'_>) -> io::Result<()> {
    let fixed = [
        "job",
        "experiment",
        "repeat",
        "engine",
        "direction",
        "void",
        "flags",
        "start_ns",
        "wall_ns",
        "cpu_ns",
        "cpu_per_io_ns",
        "qd_requested",
        "qd_achieved",
        "rate_asked_per_s",
        "rate_achieved_per_s",
        "ios",
        "bytes",
        "iops_per_s",
        "bandwidth_bytes_per_s",
        "errors",
        "short",
    ];
    let head = fixed.map(str::to_owned).into_iter();
    let head = head
        .chain(latency_columns("submit"))
        .chain(latency_columns("service"))
        .chain(latency_columns("response"))
        .chain(["spec".to_owned()]);
    record(w, head)?;
    for job in &data.run.jobs {
        let flags: Vec<&str> = job.flags.iter().map(|f| f.code.name()).collect();
        let common = |direction: &str| {
            vec![
                job.name.clone(),
                job.experiment.clone(),
                job.repeat.to_string(),
                job.engine.clone(),
                direction.to_owned(),
                job.is_void().to_string(),
                flags.join(" "),
                job.start_ns.to_string(),
                job.wall_ns.to_string(),
                job.cpu_ns.to_string(),
                num(cpu_per_io(job)),
                job.qd_requested.to_string(),
                num(Some(job.qd_achieved)),
                num(job.open_loop.as_ref().map(|o| o.rate_asked)),
                num(job.open_loop.as_ref().map(|o| o.rate_achieved)),
            ]
        };
        let mut any = false;
        for (name, d) in directions(job) {
            any = true;
            let mut row = common(name);
            row.extend([
                d.ios.to_string(),
                d.bytes.to_string(),
                num(Some(d.iops)),
                num(Some(d.bytes_per_second)),
                d.errors.to_string(),
                d.short.to_string(),
            ]);
            for l in [&d.submit_ns, &d.service_ns, &d.response_ns] {
                row.extend(latency(l));
            }
            row.push(job.spec.to_string());
            record(w, row)?;
        }
        if !any {
            let mut row = common("");
            row.extend((0..6 + 3 * LATENCY_COLUMNS.len()).map(|_| String::new()));
            row.push(job.spec.to_string());
            record(w, row)?;
        }
    }
    Ok(())
}

fn headlines(data: &ReportData, w: &mut Sheet<'_>) -> io::Result<()> {
    record(
        w,
        [
            "id", "group", "label", "unit", "value", "low_95", "high_95", "repeats", "extra",
            "flags",
        ],
    )?;
    for h in &data.run.headlines {
        let e = h.estimate.as_ref();
        let extra: Vec<String> = h.extra.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let flags: Vec<&str> = h.flags.iter().map(|f| f.code.name()).collect();
        record(
            w,
            [
                h.id.clone(),
                h.group.clone(),
                h.label.clone(),
                h.unit.clone(),
                num(e.map(|e| e.value)),
                num(e.and_then(|e| e.low)),
                num(e.and_then(|e| e.high)),
                e.map(|e| e.samples.to_string()).unwrap_or_default(),
                extra.join(" "),
                flags.join(" "),
            ],
        )?;
    }
    Ok(())
}

/// Every window of every job, one job in memory at a time.
fn series(data: &ReportData, w: &mut Sheet<'_>) -> Result<(), ReportError> {
    let head = [
        "job",
        "direction",
        "start_s",
        "width_s",
        "ios",
        "bytes",
        "errors",
        "short",
    ];
    let head = head.map(str::to_owned).into_iter();
    let head = head
        .chain(latency_columns("service"))
        .chain(latency_columns("response"));
    written("series.csv", record(w, head))?;
    for (index, job) in data.run.jobs.iter().enumerate() {
        let s = data.series.windows(index, usize::MAX)?;
        let width = s.width.as_secs_f64();
        for window in &s.windows {
            for (op, d) in Op::ALL.iter().zip(&window.directions) {
                let Some(d) = d else { continue };
                let mut row = vec![
                    job.name.clone(),
                    op.name().to_owned(),
                    num(Some(window.index as f64 * s.width.0 as f64 / 1e9)),
                    num(Some(width)),
                    d.ios.to_string(),
                    d.bytes.to_string(),
                    d.errors.to_string(),
                    d.short.to_string(),
                ];
                row.extend(latency(&summary_of(&d.service)));
                row.extend(latency(&summary_of(&d.response)));
                written("series.csv", record(w, row))?;
            }
        }
    }
    Ok(())
}

/// A window's summary under the same rule as a job's: no percentile without samples beyond it.
pub(crate) fn summary_of(h: &SparseHistogram) -> LatencySummary {
    // Small windows are frequent: without support for p50 a dense copy would be for nothing.
    if h.moments.count < 2 * SAMPLES_BEYOND {
        let m = &h.moments;
        let some = m.count > 0;
        return LatencySummary {
            samples: m.count,
            min: some.then_some(m.min),
            mean: m.mean(),
            stddev: m.stddev(),
            max: some.then_some(m.max),
            ..LatencySummary::default()
        };
    }
    let mut dense = Histogram::new();
    dense.merge_sparse(h);
    (&dense).into()
}

fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() {
        label.to_owned()
    } else {
        format!("{label} [{unit}]")
    }
}

fn table(t: &Table, w: &mut Sheet<'_>) -> io::Result<()> {
    // A column with intervals becomes three, so that each field holds one number.
    let wide: Vec<bool> = (0..t.columns.len())
        .map(|i| {
            t.rows
                .iter()
                .any(|r| matches!(r.get(i), Some(Cell::Estimate(_))))
        })
        .collect();
    let mut head = Vec::new();
    for (c, wide) in t.columns.iter().zip(&wide) {
        head.push(with_unit(&c.label, &c.unit));
        if *wide {
            head.push(with_unit(&format!("{} low 95", c.label), &c.unit));
            head.push(with_unit(&format!("{} high 95", c.label), &c.unit));
        }
    }
    record(w, head)?;
    for row in &t.rows {
        let mut fields = Vec::new();
        for (i, wide) in wide.iter().enumerate() {
            let (mut low, mut high) = (None, None);
            fields.push(match row.get(i) {
                Some(Cell::Number(v)) => num(Some(*v)),
                Some(Cell::Text(t)) => t.clone(),
                Some(Cell::Estimate(e)) => {
                    (low, high) = (e.low, e.high);
                    num(Some(e.value))
                }
                Some(Cell::Hole(())) | None => String::new(),
            });
            if *wide {
                fields.extend([num(low), num(high)]);
            }
        }
        record(w, fields)?;
    }
    Ok(())
}

fn chart(c: &Chart, w: &mut Sheet<'_>) -> io::Result<()> {
    record(
        w,
        [
            "series".to_owned(),
            with_unit(&c.x.label, &c.x.unit),
            "category".to_owned(),
            with_unit(&c.y.label, &c.y.unit),
            "low_95".to_owned(),
            "high_95".to_owned(),
            "colour_value".to_owned(),
            "label".to_owned(),
        ],
    )?;
    for s in &c.series {
        for p in &s.points {
            record(
                w,
                [
                    s.name.clone(),
                    num(Some(p.x)),
                    category(c, p.x).unwrap_or_default().to_owned(),
                    num(p.y),
                    num(p.low),
                    num(p.high),
                    num(p.z),
                    p.label.clone().unwrap_or_default(),
                ],
            )?;
        }
    }
    Ok(())
}

/// Name of the category that `x` counts.
fn category(c: &Chart, x: f64) -> Option<&str> {
    if x < 0.0 || x.fract() != 0.0 {
        return None;
    }
    c.categories.get(x as usize).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::MemoryOutput;
    use crate::testing::{job, reads, run_with};
    use fathom_stats::Estimate;
    use fathom_telemetry::schema::{Column, Section};

    fn export(data: &ReportData) -> MemoryOutput {
        let mut out = MemoryOutput::default();
        Csv.export(data, &mut out).unwrap();
        out
    }

    #[test]
    fn every_job_row_has_as_many_fields_as_the_heading() {
        let mut with_reads = job("plain");
        with_reads.read = Some(reads(10_000));
        with_reads.spec = serde_json::json!({});
        let mut empty = job("nothing");
        empty.spec = serde_json::json!({});
        let text = export(&ReportData::from_run(run_with(vec![with_reads, empty])));
        let text = text.text("jobs.csv");
        let fields: Vec<usize> = text.lines().map(|l| l.split(',').count()).collect();
        assert_eq!(fields, [52, 52, 52], "{text}");
        assert!(text.contains("plain,,0,uring,read,false,"));
    }

    #[test]
    fn each_sheet_of_a_simulated_run_says_so_in_its_last_column() {
        let mut with_reads = job("plain");
        with_reads.read = Some(reads(10_000));
        let mut run = run_with(vec![with_reads]);
        run.simulated = true;
        let out = export(&ReportData::from_run(run));
        let text = out.text("jobs.csv");
        let mut lines = text.lines();
        assert!(lines.next().unwrap().ends_with(",spec,simulated"));
        assert!(lines.next().unwrap().ends_with(",true"));
        assert!(out.text("headlines.csv").ends_with(",simulated\r\n"));
    }

    #[test]
    fn commas_quotes_and_line_breaks_are_quoted_as_rfc_4180_asks() {
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
        assert_eq!(quoted("plain"), "plain");
    }

    #[test]
    fn a_hole_is_an_empty_field_and_an_interval_has_columns_of_its_own() {
        let mut run = run_with(Vec::new());
        run.sections = vec![Section {
            tables: vec![Table {
                id: "t/1".into(),
                title: String::new(),
                columns: vec![
                    Column {
                        label: "depth".into(),
                        unit: String::new(),
                    },
                    Column {
                        label: "latency".into(),
                        unit: "ns".into(),
                    },
                ],
                rows: vec![
                    vec![Cell::Number(1.0), Cell::Hole(())],
                    vec![
                        Cell::Number(2.0),
                        Cell::Estimate(Estimate {
                            value: 5.5,
                            low: Some(5.0),
                            high: Some(6.0),
                            samples: 3,
                        }),
                    ],
                ],
            }],
            ..Section::default()
        }];
        let out = export(&ReportData::from_run(run));
        assert_eq!(
            out.text("table-t-1.csv"),
            "depth,latency [ns],latency low 95 [ns],latency high 95 [ns]\r\n1,,,\r\n2,5.5,5,6\r\n"
        );
    }
}
