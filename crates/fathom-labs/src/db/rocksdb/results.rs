//! What db_bench printed and the devices counted, as tables, charts and headlines.

use fathom_bench::parts::{
    axis, chart, estimate, headline_of, line_chart, number, point, series, table, text,
};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Section, Table};
use fathom_telemetry::{Flag, FlagCode};

use super::{Line, Repeat, RocksResult};
use crate::confounders;

/// A line with what it rests on.
struct Shows<'a> {
    line: &'a Line,
    evidence: &'a Evidence<'a>,
}

impl Shows<'_> {
    fn name(&self) -> &str {
        &self.line.setting.workload
    }

    /// Of what db_bench printed, of the repeats that may be used.
    fn printed(&self, f: impl Fn(&Repeat) -> Option<f64>) -> Option<Estimate> {
        self.line.mean(|r| r.job(self.evidence).and_then(|_| f(r)))
    }

    fn micros(&self) -> Option<Estimate> {
        self.printed(|r| Some(r.beside.micros * 1000.0))
    }

    fn percentile(&self, i: usize) -> Option<Estimate> {
        self.printed(|r| r.beside.percentiles[i].map(|us| us * 1000.0))
    }

    fn counter(&self, name: &str) -> Option<Estimate> {
        self.printed(|r| r.beside.counters.get(name).map(|n| *n as f64))
    }

    /// Bytes that went to the device for each that the user wrote: the log, flushes, compactions.
    fn amplification(&self) -> Option<Estimate> {
        self.printed(|r| {
            let of = |name: &str| r.beside.counters.get(name).map(|n| *n as f64);
            let flushed = of("rocksdb.flush.write.bytes").filter(|n| *n > 0.0)?;
            let log = of("rocksdb.wal.bytes").unwrap_or(0.0);
            let compacted = of("rocksdb.compact.write.bytes").unwrap_or(0.0);
            let written = of("rocksdb.bytes.written").filter(|n| *n > 0.0)?;
            Some((log + flushed + compacted) / written)
        })
    }

    fn hits(&self) -> Option<Estimate> {
        self.printed(|r| {
            let of = |name: &str| r.beside.counters.get(name).map_or(0.0, |n| *n as f64);
            let (hit, miss) = (
                of("rocksdb.block.cache.hit"),
                of("rocksdb.block.cache.miss"),
            );
            (hit + miss > 0.0).then(|| hit / (hit + miss) * 100.0)
        })
    }
}

/// Section and headlines.
pub(super) fn present(result: &RocksResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let measured = result.lines.iter().filter(|l| !l.repeats.is_empty());
    let all: Vec<Shows<'_>> = measured.map(|line| Shows { line, evidence }).collect();
    if all.is_empty() {
        return;
    }
    let o = &result.options;
    let repeats = || all.iter().flat_map(|s| &s.line.repeats);
    let slow = repeats().any(|r| r.beside.assertions).then(|| {
        Flag::new(
            FlagCode::NotChecked,
            "this db_bench was built with assertions: it says itself that it is unnecessarily slow",
            "build RocksDB with DEBUG_LEVEL=0 for figures to compare with others",
        )
    });
    shown.sections.push(Section {
        id: "rocksdb".into(),
        title: "RocksDB (db_bench)".into(),
        text: format!(
            "{}. {} keys of 16 bytes with values of {} bytes, batches of 8, 64 write buffers at most, a block cache of {}, direct I/O for reads, flushes and compactions, no compression. Rates and percentiles are db_bench's own; reads never have the seed of their fill.",
            result.version, o.keys, o.value, o.cache
        ),
        charts: charts(&all),
        tables: vec![rates(&all), counters(&all)],
        flags: slow.into_iter().collect(),
    });
    for s in &all {
        let name = s.name();
        let headline = |what: &str, id: &str, unit, value| {
            let (label, id) = (format!("{name}: {what}"), format!("rocksdb-{name}{id}"));
            headline_of("RocksDB", &label, &id, unit, value, s.line.jobs())
        };
        let rate = s.line.rate(evidence);
        shown
            .headlines
            .push(headline("operations", "", "1/s", rate));
        let mean = headline("mean time of an operation", "-mean", "ns", s.micros());
        shown.headlines.push(mean);
    }
    shown.findings.extend(conclusion(&all));
    shown.findings.push(beside(result, &all, evidence));
}

/// What a write costs the device and what the block cache spares it. Nothing was varied, so nothing is proposed.
fn conclusion(all: &[Shows<'_>]) -> Option<Finding> {
    let each = |f: &dyn Fn(&Shows<'_>) -> Option<Estimate>, unit: &str| {
        let told = all.iter().filter_map(|s| {
            let e = f(s)?;
            let between = e.low.zip(e.high).map_or(String::new(), |(low, high)| {
                format!(" ({low:.1} to {high:.1})")
            });
            Some(format!("{} {:.1}{unit}{between}", s.name(), e.value))
        });
        told.collect::<Vec<_>>().join(", ")
    };
    let written = each(&|s| s.amplification(), "");
    let hits = each(&|s| s.hits(), " %");
    let mut text = String::new();
    if !written.is_empty() {
        text.push_str(&format!(
            "Bytes that reach the device for each that is written: {written}. "
        ));
    }
    if !hits.is_empty() {
        text.push_str(&format!("Found in the block cache: {hits}. "));
    }
    (!text.is_empty()).then(|| Finding {
        id: "rocksdb-costs".into(),
        text: text + "No setting was varied, so none is proposed: run it again with another --cache or --value, and hold the runs against each other (fathom compare)",
        confidence: "moderate".into(),
        jobs: all.iter().flat_map(|s| s.line.jobs()).collect(),
        evidence: vec!["rocksdb-counters".into()],
        refuted_by: "The same with another --seed whose intervals lie elsewhere.".into(),
        ..Finding::default()
    })
}

/// What was looked at beside it.
fn beside(result: &RocksResult, all: &[Shows<'_>], evidence: &Evidence<'_>) -> Finding {
    let jobs: Vec<usize> = all.iter().flat_map(|s| s.line.jobs()).collect();
    let mut facts = vec![
        confounders::warm(confounders::CACHES, &jobs, evidence),
        if result.settles {
            "fills end when everything is flushed and compacted, none of which falls to the reads after them"
        } else {
            "this db_bench does not wait for compactions: reads may carry those of the fill before them"
        }
        .into(),
        "what was written last is lost with the machine's power: the log is not synced".into(),
    ];
    facts.extend(result.settings.in_words());
    let lines = all.iter().map(|s| s.line);
    let used = confounders::processors(lines, evidence);
    facts.extend(used.map(|n| format!("db_bench took up to {n:.2} processors")));
    confounders::beside("rocksdb", facts, jobs, "rocksdb-counters")
}

fn charts(all: &[Shows<'_>]) -> Vec<Chart> {
    let bars = all.iter().enumerate();
    let bars = bars.map(|(i, s)| point(i as f64, s.line.rate(s.evidence)));
    let over_time: Vec<_> = all
        .iter()
        .filter_map(|s| Some((s.name().to_owned(), s.line.repeats.last()?.course.points())))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    let rates = Chart {
        categories: all.iter().map(|s| s.name().to_owned()).collect(),
        ..chart(
            "rocksdb-rates",
            "Operations by workload",
            ChartKind::Bar,
            axis("workload", "", false),
            axis("operations", "1/s", true),
            vec![series("operations", bars.collect())],
        )
    };
    let lines = (!over_time.is_empty()).then(|| {
        line_chart(
            "rocksdb-over-time",
            "Rate over time, last repeat",
            axis("time", "s", false),
            axis("operations", "1/s", true),
            over_time,
        )
    });
    std::iter::once(rates).chain(lines).collect()
}

fn rates(all: &[Shows<'_>]) -> Table {
    let device = |s: &Shows<'_>, i: usize| estimate(s.line.mean(|r| r.device(s.evidence)[i]));
    table(
        "rocksdb-table",
        "As db_bench printed it, and what the device counted",
        all,
        &[
            ("workload", "", &|s| text(s.name())),
            ("threads", "", &|s| {
                number(Some(f64::from(s.line.setting.threads)))
            }),
            ("operations", "1/s", &|s| estimate(s.line.rate(s.evidence))),
            ("mean", "ns", &|s| estimate(s.micros())),
            ("p50", "ns", &|s| estimate(s.percentile(0))),
            ("p99", "ns", &|s| estimate(s.percentile(1))),
            ("p99.9", "ns", &|s| estimate(s.percentile(2))),
            ("bandwidth", "bytes/s", &|s| {
                estimate(s.printed(|r| r.beside.megabytes.map(|m| m * 1e6)))
            }),
            ("device reads per operation", "", &|s| device(s, 0)),
            ("device writes per operation", "", &|s| device(s, 1)),
        ],
    )
}

fn counters(all: &[Shows<'_>]) -> Table {
    table(
        "rocksdb-counters",
        "RocksDB's own counters",
        all,
        &[
            ("workload", "", &|s| text(s.name())),
            ("written by the user", "bytes", &|s| {
                estimate(s.counter("rocksdb.bytes.written"))
            }),
            ("log", "bytes", &|s| {
                estimate(s.counter("rocksdb.wal.bytes"))
            }),
            ("flushed", "bytes", &|s| {
                estimate(s.counter("rocksdb.flush.write.bytes"))
            }),
            ("compacted, written", "bytes", &|s| {
                estimate(s.counter("rocksdb.compact.write.bytes"))
            }),
            ("compacted, read", "bytes", &|s| {
                estimate(s.counter("rocksdb.compact.read.bytes"))
            }),
            ("write amplification", "x", &|s| estimate(s.amplification())),
            ("block cache hits", "%", &|s| estimate(s.hits())),
            ("stalled", "ns", &|s| {
                estimate(s.counter("rocksdb.stall.micros").map(|e| e.scale(1000.0)))
            }),
        ],
    )
}
