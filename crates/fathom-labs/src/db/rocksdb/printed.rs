//! What db_bench prints, as numbers.

use std::collections::BTreeMap;

use fathom_telemetry::{Histogram, Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::loads::{Course, Load};

/// What db_bench printed for one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Printed {
    pub(super) micros: f64,
    pub(super) ops: f64,
    pub(super) seconds: f64,
    pub(super) operations: f64,
    pub(super) megabytes: Option<f64>,
    /// P50, P99, P99.9 in microseconds.
    pub(super) percentiles: [Option<f64>; 3],
    /// Counters of `--statistics`.
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) assertions: bool,
    /// Its histogram: kind of operation, microseconds in the middle of a bucket, operations in it.
    #[serde(skip)]
    pub(super) buckets: Vec<(Op, f64, u64)>,
}

impl Printed {
    /// As a load of `clients`. Where it printed no histogram, the rate is all there is.
    pub(super) fn load(&self, op: Op, clients: u32, bytes: u64, series: &[(f64, f64)]) -> Load {
        let kinds = [Op::Read, Op::Write].map(|kind| {
            let mut h = Histogram::new();
            for (_, us, n) in self.buckets.iter().filter(|b| b.0 == kind) {
                h.record_n((us * 1000.0) as u64, *n);
            }
            (kind, h)
        });
        let counted: u64 = kinds.iter().map(|k| k.1.count()).sum();
        let n = match self.operations as u64 {
            0 => counted,
            n => n,
        };
        let wall = Nanos((n as f64 / self.ops.max(1e-9) * 1e9) as u64);
        let course = Course::of_rates(series, Nanos::ZERO);
        if counted == 0 {
            return Load::counted(op, n, clients, wall, course);
        }
        Load::of_histograms(&kinds, bytes, clients, wall, course)
    }
}

/// What a histogram's heading speaks of.
fn op_of(name: &str) -> Op {
    match name {
        "write" | "update" | "merge" | "delete" => Op::Write,
        _ => Op::Read,
    }
}

/// `[      6,      10 ]    1234  2.468%  ...`: both ends in microseconds, and how many lie between them.
fn bucket(line: &str) -> Option<(f64, f64, u64)> {
    let (range, rest) = line.strip_prefix('[')?.split_once([']', ')'])?;
    let (from, to) = range.split_once(',')?;
    let n = rest.split_whitespace().next()?;
    Some((
        from.trim().parse().ok()?,
        to.trim().parse().ok()?,
        n.parse().ok()?,
    ))
}

pub(super) fn parse(said: &str, workload: &str) -> Option<Printed> {
    let mut found = Printed {
        assertions: said.contains("Assertions are enabled"),
        ..Printed::default()
    };
    let line = said.lines().find(|l| {
        l.split_once(':')
            .is_some_and(|(name, rest)| name.trim() == workload && rest.contains("micros/op"))
    })?;
    let words: Vec<&str> = line.split_once(':')?.1.split_whitespace().collect();
    let before = |unit: &str| -> Option<f64> {
        let at = words.iter().position(|w| w.trim_end_matches(';') == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    found.micros = before("micros/op")?;
    found.ops = before("ops/sec")?;
    found.seconds = before("seconds").unwrap_or(0.0);
    found.operations = before("operations").unwrap_or(0.0);
    found.megabytes = before("MB/s");
    if let Some(line) = said.lines().find(|l| l.starts_with("Percentiles:")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (into, name) in found.percentiles.iter_mut().zip(["P50:", "P99:", "P99.9:"]) {
            let at = words.iter().position(|w| *w == name);
            *into = at.and_then(|i| words.get(i + 1)?.parse().ok());
        }
    }
    let mut op = Op::Read;
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("Microseconds per ") {
            op = op_of(name.trim_end_matches(':'));
        }
        if let Some((from, to, n)) = bucket(line) {
            found.buckets.push((op, (from + to) / 2.0, n));
        }
        if let Some((name, n)) = line.split_once(" COUNT : ")
            && !name.contains(' ')
            && let Ok(n) = n.trim().parse()
        {
            found.counters.insert(name.to_owned(), n);
        }
    }
    Some(found)
}

pub(super) fn parse_series(text: &str) -> Vec<(f64, f64)> {
    text.lines()
        .filter_map(|l| {
            let (at, rate) = l.split_once(',')?;
            Some((at.parse().ok()?, rate.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "WARNING: Assertions are enabled; benchmarks unnecessarily slow
DB path: [db]
fillrandom   :      37.497 micros/op 26601 ops/sec 1.880 seconds 50000 operations;    2.9 MB/s
Microseconds per write:
Count: 50000 Average: 37.5003  StdDev: 700.51
Min: 4  Median: 8.4414  Max: 92199
[       4,       6 )    10000  20.000%  20.000% ####
[       6,      10 )    40000  80.000% 100.000% ################
Percentiles: P50: 8.44 P75: 10.75 P99: 31.72 P99.9: 10310.00 P99.99: 22000.00
rocksdb.bytes.written COUNT : 6550000
rocksdb.db.get.micros P50 : 0.000000 P95 : 0.000000 P99 : 0.000000 P100 : 0.000000 COUNT : 0 SUM : 0
";

    #[test]
    fn what_it_printed_is_what_is_reported() {
        let p = parse(SAID, "fillrandom").unwrap();
        assert_eq!((p.micros, p.ops, p.seconds), (37.497, 26601.0, 1.880));
        assert_eq!((p.operations, p.megabytes), (50000.0, Some(2.9)));
        assert_eq!(p.percentiles, [Some(8.44), Some(31.72), Some(10310.0)]);
        assert_eq!(p.counters.len(), 1);
        assert_eq!(p.counters["rocksdb.bytes.written"], 6_550_000);
        assert!(p.assertions);
        let load = p.load(Op::Write, 1, 100, &[]);
        assert_eq!(load.operations(), 50_000);
        assert!((load.wall.as_secs_f64() - 1.88).abs() < 0.01);
        let median = load.latency().quantile(0.5).unwrap();
        assert!((7_900..8_100).contains(&median), "{median}");
        assert_eq!(parse(SAID, "readrandom"), None);
    }

    #[test]
    fn its_series_is_read_without_the_heading() {
        let s = parse_series("secs_elapsed,interval_qps\n1,26455\n2,30000\n");
        assert_eq!(s, [(1.0, 26455.0), (2.0, 30000.0)]);
    }
}
