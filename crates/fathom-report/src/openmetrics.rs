//! A run as OpenMetrics text: for a textfile collector, a push gateway, and whoever draws its history.
//!
//! Only numbers that stand are exported: a void one is counted among the void, and has no value.

use std::fmt::Write as _;

use fathom_stats::Estimate;
use fathom_telemetry::Op;
use fathom_telemetry::schema::{Headline, Job, Run};

use crate::conclusion::flag_groups;
use crate::data::ReportData;
use crate::error::ReportError;
use crate::exporter::Exporter;
use crate::output::{Output, written};

/// The OpenMetrics exporter.
pub(crate) struct OpenMetrics;

const FILE: &str = "metrics.prom";

impl Exporter for OpenMetrics {
    fn name(&self) -> &'static str {
        "openmetrics"
    }
    fn about(&self) -> &'static str {
        "headlines and flags for Prometheus (metrics.prom)"
    }
    fn export(&self, data: &ReportData, out: &mut dyn Output) -> Result<(), ReportError> {
        let text = text(&data.run);
        out.file(FILE, &mut |w| written(FILE, w.write_all(text.as_bytes())))
    }
}

/// Family, unit of the schema, factor to the base unit, help.
const FAMILIES: [(&str, &[&str], f64, &str); 7] = [
    (
        "fathom_latency_seconds",
        &["ns"],
        1e-9,
        "Latency of a headline or job; stat names mean, ends of its 95 % interval, percentiles.",
    ),
    (
        "fathom_duration_seconds",
        &["s"],
        1.0,
        "A duration that a headline states.",
    ),
    (
        "fathom_throughput_bytes_per_second",
        &["bytes/s"],
        1.0,
        "Bandwidth of a headline or job.",
    ),
    (
        "fathom_operations_per_second",
        &["IOPS", "1/s"],
        1.0,
        "I/Os or operations per second of a headline or job.",
    ),
    (
        "fathom_size_bytes",
        &["bytes"],
        1.0,
        "A size that a headline states.",
    ),
    (
        "fathom_share_ratio",
        &["%"],
        0.01,
        "A share that a headline states, 1 being all.",
    ),
    (
        "fathom_times_ratio",
        &["ratio", "x"],
        1.0,
        "So many times another number, as a headline states it.",
    ),
];

fn text(run: &Run) -> String {
    let mut out = String::new();
    // Two commands on one target may lie side by side in a collector's directory: no series may be there twice.
    let of = format!(
        "target=\"{}\",command=\"{}\"",
        label_text(run.target.place()),
        label_text(&run.command)
    );
    family(
        &mut out,
        "fathom_run_started_seconds",
        "When the run began; its labels say what it was.",
    );
    let started = run.started.parse::<chrono::DateTime<chrono::Utc>>();
    let _ = writeln!(
        out,
        "fathom_run_started_seconds{{{of},simulated=\"{}\",version=\"{}\"}} {}",
        run.simulated,
        label_text(&run.tool_version),
        started.map_or(0, |t| t.timestamp())
    );
    let headlines = match run.headlines.is_empty() {
        true => of_jobs(run),
        false => run.headlines.clone(),
    };
    for (name, units, factor, help) in FAMILIES {
        let all: Vec<&Headline> = (headlines.iter())
            .filter(|h| units.contains(&h.unit.as_str()) && !void(h))
            .collect();
        if all.iter().any(|h| h.estimate.is_some()) {
            family(&mut out, name, help);
        }
        for h in all {
            let Some(e) = h.estimate else { continue };
            let stats = [("mean", Some(e.value)), ("low", e.low), ("high", e.high)];
            let extra = h.extra.iter().map(|(k, v)| (k.as_str(), Some(*v)));
            for (stat, value) in stats.into_iter().chain(extra) {
                let Some(value) = value.filter(|v| v.is_finite()) else {
                    continue;
                };
                let _ = writeln!(
                    out,
                    "{name}{{{of},metric=\"{}\",stat=\"{}\"}} {}",
                    label_text(&h.id),
                    label_text(stat),
                    value * factor
                );
            }
        }
    }
    family(
        &mut out,
        "fathom_void_headlines",
        "Headlines without a usable number.",
    );
    let lost = headlines.iter().filter(|h| void(h) || h.estimate.is_none());
    let _ = writeln!(out, "fathom_void_headlines{{{of}}} {}", lost.count());
    let groups = flag_groups(run);
    if !groups.is_empty() {
        family(
            &mut out,
            "fathom_flagged_jobs",
            "Jobs that carry a flag, by its code.",
        );
    }
    for g in groups {
        let _ = writeln!(
            out,
            "fathom_flagged_jobs{{{of},flag=\"{}\",void=\"{}\"}} {}",
            g.code.name(),
            g.void,
            g.numbers
        );
    }
    out.push_str("# EOF\n");
    out
}

/// What each job delivered, for a run whose jobs are all that it found.
fn of_jobs(run: &Run) -> Vec<Headline> {
    let mut all: Vec<Headline> = Vec::new();
    for (index, job) in run.jobs.iter().enumerate() {
        // Repeats of a job have one name: no series may be there twice.
        let again = (run.jobs[..index].iter()).filter(|j| j.name == job.name);
        let name = match again.count() {
            0 => job.name.clone(),
            n => format!("{}-{}", job.name, n + 1),
        };
        for op in [Op::Read, Op::Write, Op::Trim] {
            all.extend(delivered_by(job, index, op, &name));
        }
    }
    all
}

fn delivered_by(job: &Job, index: usize, op: Op, name: &str) -> Vec<Headline> {
    let Some(d) = job.direction(op) else {
        return Vec::new();
    };
    let response = &d.response_ns;
    let percentiles = [
        ("p50", response.p50),
        ("p99", response.p99),
        ("p99_9", response.p99_9),
        ("p99_99", response.p99_99),
    ];
    let extra = percentiles
        .into_iter()
        .filter_map(|(k, ns)| Some((k.to_owned(), ns? as f64)));
    let numbers = [
        ("latency", "ns", response.mean, extra.collect()),
        ("bandwidth", "bytes/s", Some(d.bytes_per_second), [].into()),
        ("iops", "IOPS", Some(d.iops), [].into()),
    ];
    numbers
        .into_iter()
        .map(|(what, unit, value, extra)| Headline {
            id: format!("{name}-{}-{what}", op.name()),
            label: String::new(),
            group: String::new(),
            unit: unit.into(),
            estimate: value.map(Estimate::single),
            extra,
            jobs: vec![index],
            flags: job.flags.clone(),
        })
        .collect()
}

fn void(h: &Headline) -> bool {
    h.flags.iter().any(|f| f.void)
}

fn family(out: &mut String, name: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
}

/// Text as it stands in a label's quotes.
pub fn label_text(text: &str) -> String {
    let text = crate::text::clean(text);
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::MemoryOutput;
    use crate::testing::{job, reads, run_with};
    use fathom_telemetry::{Flag, FlagCode};

    fn headline(id: &str, unit: &str, value: f64) -> Headline {
        Headline {
            id: id.into(),
            label: id.into(),
            group: "g".into(),
            unit: unit.into(),
            estimate: Some(Estimate::single(value)),
            extra: Default::default(),
            jobs: vec![0],
            flags: Vec::new(),
        }
    }

    #[test]
    fn numbers_are_in_base_units_and_void_ones_have_no_value() {
        let mut run = run_with(vec![job("a")]);
        run.target.path = Some("/a \"quoted\\ name/file".into());
        run.headlines = vec![
            headline("latency", "ns", 12_000.0),
            headline("iops", "IOPS", 5.0),
        ];
        run.headlines[1].flags = vec![Flag {
            void: true,
            ..Flag::new(FlagCode::CpuBound, "busy", "more cores")
        }];
        let data = ReportData::from_run(run);
        let mut out = MemoryOutput::default();
        OpenMetrics.export(&data, &mut out).unwrap();
        let text = out.text(FILE);
        assert!(
            text.contains("metric=\"latency\",stat=\"mean\"} 0.000012"),
            "{text}"
        );
        assert!(text.contains("a \\\"quoted\\\\ name"), "{text}");
        assert!(!text.contains("metric=\"iops\""), "{text}");
        assert!(
            text.contains("fathom_void_headlines{") && text.contains("} 1\n"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn a_run_of_jobs_alone_exports_what_each_delivered() {
        let jobs = [1, 2].map(|_| Job {
            read: Some(reads(5_000)),
            ..job("a")
        });
        let mut run = run_with(jobs.into());
        run.jobs[1].flags = vec![Flag {
            void: true,
            ..Flag::new(FlagCode::CpuBound, "busy", "more cores")
        }];
        let said = text(&run);
        for metric in [
            "metric=\"a-read-latency\",stat=\"p99\"} 0.000",
            "metric=\"a-read-iops\",stat=\"mean\"} ",
            "metric=\"a-read-bandwidth\",stat=\"mean\"} ",
            "fathom_void_headlines{target=\"/data\",command=\"run\"} 3\n",
        ] {
            assert!(said.contains(metric), "{metric}: {said}");
        }
        assert!(!said.contains("a-2-read"), "{said}");
        run.jobs[1].flags.clear();
        assert!(text(&run).contains("metric=\"a-2-read-iops\""));
    }
}
