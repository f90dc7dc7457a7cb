//! A run as OpenMetrics text: for a textfile collector, a push gateway, and whoever draws its history.
//!
//! Only numbers that stand are exported: a void one is counted among the void, and has no value.

use std::fmt::Write as _;

use fathom_telemetry::schema::{Headline, Run};

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
        "Latency of a headline; stat names mean, ends of its 95 % interval, percentiles.",
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
        "Bandwidth of a headline.",
    ),
    (
        "fathom_operations_per_second",
        &["IOPS", "1/s"],
        1.0,
        "I/Os or operations per second of a headline.",
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
    let target = format!("target=\"{}\"", label_text(run.target.place()));
    family(
        &mut out,
        "fathom_run_started_seconds",
        "When the run began; its labels say what it was.",
    );
    let started = run.started.parse::<chrono::DateTime<chrono::Utc>>();
    let _ = writeln!(
        out,
        "fathom_run_started_seconds{{{target},command=\"{}\",simulated=\"{}\",version=\"{}\"}} {}",
        label_text(&run.command),
        run.simulated,
        label_text(&run.tool_version),
        started.map_or(0, |t| t.timestamp())
    );
    for (name, units, factor, help) in FAMILIES {
        let all: Vec<&Headline> = run
            .headlines
            .iter()
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
                    "{name}{{{target},metric=\"{}\",stat=\"{}\"}} {}",
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
    let lost = run
        .headlines
        .iter()
        .filter(|h| void(h) || h.estimate.is_none());
    let _ = writeln!(out, "fathom_void_headlines{{{target}}} {}", lost.count());
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
            "fathom_flagged_jobs{{{target},flag=\"{}\",void=\"{}\"}} {}",
            g.code.name(),
            g.void,
            g.numbers
        );
    }
    out.push_str("# EOF\n");
    out
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
    use crate::testing::{job, run_with};
    use fathom_stats::Estimate;
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
}
