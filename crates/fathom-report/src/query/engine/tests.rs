//! Queries on a run whose rows are known: the same answers whichever way the table is read.

use std::path::Path;

use fathom_stats::Estimate;
use fathom_telemetry::iolog::{IoLog, IoLogReader};
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::{Finding, HostShare, Run};
use fathom_telemetry::series::{JobOfSeries, SeriesWriter};
use fathom_telemetry::{Flag, FlagCode, Identity, Nanos, Op, Record, Recorder};

use super::super::Value as Cell;
use super::*;
use crate::testing::{job, run_with};

mod ready;

/// Rows as text.
#[derive(Default)]
struct Collected {
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Rows for Collected {
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError> {
        self.names = names.to_vec();
        Ok(())
    }
    fn row(&mut self, values: &[Cell<'_>]) -> Result<(), QueryError> {
        let text = |v: &Cell<'_>| match v {
            Cell::Null => "null".to_owned(),
            Cell::Integer(v) => v.to_string(),
            Cell::Real(v) => format!("{v:.6}"),
            Cell::Text(t) => t.to_string(),
            Cell::Blob(b) => format!("{} bytes", b.len()),
        };
        self.rows.push(values.iter().map(text).collect());
        Ok(())
    }
    fn end(&mut self) -> Result<(), QueryError> {
        Ok(())
    }
}

const JOBS: u16 = 3;
const IOS: u64 = 9000;
/// When time 0 of the jobs was, in UTC.
const BEGAN: i64 = 1_735_787_045_000_000_000;

/// I/O `i` of a job: three operations, two sizes, uneven arrivals over 2.7 s, some that fail or are short.
fn record(job: u16, i: u64) -> Record {
    let at = i * 300_000 + i * i * 31 % 100_000 + u64::from(job);
    let submitted = at + 10 + i % 7;
    let len = if i.is_multiple_of(2) { 4096 } else { 16384 };
    Record {
        op: match (job, i % 5) {
            (0, _) => Op::Read,
            (_, 0) => Op::Write,
            (2, 1) => Op::Sync,
            _ => Op::Read,
        },
        offset: (i * 7919 % 1_000_003) << 12,
        len,
        intended: Nanos(at),
        submitted: Nanos(submitted),
        completed: Nanos(submitted + i * i % 100_003),
        result: match i % 1000 {
            999 => -5,
            500 => i64::from(len) / 2,
            _ => i64::from(len),
        },
    }
}

/// The thread of I/O `i`.
fn thread(i: u64) -> u16 {
    (i / 3 % 2) as u16
}

fn finding(rank: u32, gain: Option<Estimate>) -> Finding {
    Finding {
        id: format!("finding-{rank}"),
        text: format!("What was found, {rank}"),
        advice: "do it".to_owned(),
        confidence: "moderate".to_owned(),
        jobs: vec![0],
        evidence: Vec::new(),
        gain,
        refuted_by: String::new(),
        ..Finding::default()
    }
}

/// What the run of these tests says beside its I/Os.
fn told() -> Run {
    let mut run = run_with(["first", "second", "third"].map(job).into());
    run.jobs[1].flags = vec![
        Flag::new(FlagCode::CpuBound, "busy", "use more cores"),
        Flag::new(FlagCode::IoErrors, "9 failed", "look at the log"),
    ];
    let share = |host: &str, late_ns, n: u64| HostShare {
        host: host.into(),
        p99_ns: Some(100 * n),
        slowest_windows: n * n - n + 1,
        late_ns,
        tail_ios: n,
        clock_bound_ns: 10 * n,
        clock_moved_ns: 7 * late_ns.signum(),
        ..HostShare::default()
    };
    run.jobs[0].hosts = vec![share("h1", -100, 1), share("h2", 500, 2)];
    run.findings = vec![
        finding(
            1,
            Some(Estimate {
                value: 0.25,
                low: Some(0.2),
                high: Some(0.3),
                samples: 5,
            }),
        ),
        finding(2, None),
    ];
    run
}

/// A run with windows and a log, in which jobs follow each other, as a driver writes it.
fn made(base: &Path) -> std::path::PathBuf {
    let dir = RunDir::create(base, "test").unwrap();
    dir.save(&told()).unwrap();
    let identity = Identity {
        clock_zero_ns: BEGAN,
        ..Identity::default()
    };
    let log = IoLog::create(&dir.io_file(), identity.clone(), 1).unwrap();
    let mut series = SeriesWriter::create(&dir.series_file(), identity, 1).unwrap();
    let width = Nanos::from_millis(100);
    for job in 0..JOBS {
        let ops = [Op::Read, Op::Write, Op::Sync];
        let mut windows = Recorder::new(Nanos::ZERO, width, &ops, None, Vec::new());
        let mut handles = [0, 1].map(|thread| log.handle(job, thread, Nanos::ZERO));
        for i in 0..IOS {
            let r = record(job, i);
            handles[usize::from(thread(i))].push(&r);
            windows.advance(r.completed);
            windows.record(&r);
        }
        for w in windows.finish() {
            let origin = Nanos::ZERO;
            let of = JobOfSeries {
                index: job,
                name: "a job",
                origin,
            };
            series.push(&of, width, &w).unwrap();
        }
    }
    series.finish().unwrap();
    let summary = log.finish().unwrap();
    assert_eq!(summary.rows, u64::from(JOBS) * IOS);
    dir.path().to_owned()
}

fn ask(q: &Queries, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Collected::default();
    q.run(sql, &mut rows)
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    rows.rows
}

fn refusal(q: &Queries, sql: &str) -> String {
    match q.run(sql, &mut Collected::default()) {
        Err(e) => e.to_string(),
        Ok(()) => panic!("{sql} was not refused"),
    }
}

#[test]
fn rows_that_are_skipped_or_delivered_in_order_are_those_that_sqlite_would_take() {
    let base = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path())]).unwrap();
    // A plus in front hides a column from the table: SQLite filters and sorts alone.
    for (quick, plain) in [
        (
            "SELECT job, op, count(*), sum(service_ns) FROM io GROUP BY job, op",
            "SELECT job, op, count(*), sum(service_ns) FROM io GROUP BY +job, +op ORDER BY 1, 2",
        ),
        (
            "SELECT op, count(*), max(\"offset\") FROM io GROUP BY op",
            "SELECT op, count(*), max(\"offset\") FROM io GROUP BY +op ORDER BY 1",
        ),
        (
            "SELECT job, sum(len) FROM io WHERE op = 'read' GROUP BY job",
            "SELECT job, sum(len) FROM io WHERE +op = 'read' GROUP BY +job ORDER BY 1",
        ),
        (
            "SELECT count(*) FROM io WHERE job = 1 AND op = 'write'",
            "SELECT count(*) FROM io WHERE +job = 1 AND +op = 'write'",
        ),
        (
            "SELECT count(*) FROM io WHERE op = 'WRITE' COLLATE NOCASE AND job = '2'",
            "SELECT count(*) FROM io WHERE +op = 'write' AND +job = 2",
        ),
        (
            "SELECT count(*) FROM io WHERE op = 'erase' OR job = 9 OR job = NULL",
            "SELECT 0",
        ),
        (
            "SELECT DISTINCT op, job FROM io ORDER BY job DESC, op DESC",
            "SELECT op, job FROM io GROUP BY +op, +job ORDER BY 2 DESC, 1 DESC",
        ),
        (
            "SELECT job, op, completed_ns FROM io ORDER BY job, op LIMIT 20000",
            "SELECT job, op, completed_ns FROM io ORDER BY +job, +op LIMIT 20000",
        ),
        (
            "SELECT name, count(*) FROM jobs JOIN io USING (job) WHERE op = 'write' GROUP BY name ORDER BY name",
            "SELECT name, n FROM jobs JOIN (SELECT +job AS job, count(*) AS n FROM io WHERE +op = 'write' GROUP BY 1) USING (job) ORDER BY name",
        ),
    ] {
        let (a, b) = (ask(&q, quick), ask(&q, plain));
        assert_eq!(a.len(), b.len(), "{quick}");
        if quick.contains("LIMIT") {
            // Within an operation the order is free.
            let keys = |rows: &[Vec<String>]| -> Vec<_> {
                rows.iter().map(|r| (r[0].clone(), r[1].clone())).collect()
            };
            assert_eq!(keys(&a), keys(&b), "{quick}");
        } else {
            assert_eq!(a, b, "{quick}");
        }
    }
    let plan = ask(
        &q,
        "EXPLAIN QUERY PLAN SELECT job, op, count(*) FROM io GROUP BY job, op",
    );
    assert!(!format!("{plan:?}").contains("TEMP B-TREE"), "{plan:?}");
}

#[test]
fn quantiles_are_those_of_all_ios_and_within_the_histograms_error() {
    let base = tempfile::tempdir().unwrap();
    let dir = made(base.path());
    let q = Queries::open(std::slice::from_ref(&dir)).unwrap();
    let mut exact: Vec<u64> = IoLogReader::open(&dir.join("io.parquet"))
        .unwrap()
        .only_job(0)
        .map(Result::unwrap)
        .filter(|r| r.error == 0)
        .map(|r| r.service_ns())
        .collect();
    exact.sort_unstable();
    for (share, sql) in [(0.5, "0.5"), (0.99, "0.99"), (0.999, "0.999"), (1.0, "1")] {
        let of_ios = ask(
            &q,
            &format!("SELECT quantile(service_ns, {sql}) FROM io WHERE job = 0 AND error = 0"),
        );
        let merged = ask(
            &q,
            &format!("SELECT quantile(service_histogram, {sql}) FROM series WHERE job = 0"),
        );
        assert_eq!(of_ios, merged, "{share}");
        let got: u64 = of_ios[0][0].parse().unwrap();
        let rank = ((share * exact.len() as f64).ceil() as usize).clamp(1, exact.len());
        let expected = exact[rank - 1];
        assert!(
            got >= expected && got - expected <= expected / 128,
            "{got} {expected}"
        );
    }
    assert_eq!(
        ask(
            &q,
            "SELECT quantile(service_ns, 0.5) FROM io WHERE job = 77"
        ),
        [["null"]]
    );
}

#[test]
fn what_is_no_query_of_this_run_is_refused_with_the_reason() {
    let base = tempfile::tempdir().unwrap();
    let dir = made(base.path());
    let q = Queries::open(std::slice::from_ref(&dir)).unwrap();
    for (sql, part) in [
        ("SELEC 1", "near \"SELEC\""),
        ("SELECT nonsense FROM io", "no such column: nonsense"),
        (
            "SELECT 1 FROM nowhere",
            "there are io, series, jobs, hosts, headlines, findings, layers, device, run",
        ),
        ("SELECT 1; SELECT 2", "one is run at a time"),
        ("DELETE FROM jobs", "runs cannot be changed"),
        ("ATTACH 'x.db' AS x", "runs cannot be changed"),
        ("VACUUM INTO 'x.db'", "runs cannot be changed"),
        ("", "runs cannot be changed"),
        (
            "SELECT quantile(service_ns, 99) FROM io",
            "a share from 0 to 1",
        ),
        (
            "SELECT quantile(op, 0.5) FROM io",
            "a number or a histogram",
        ),
        ("SELECT quantile(x'ff', 0.5)", "the file is damaged"),
    ] {
        let said = refusal(&q, sql);
        assert!(said.contains(part), "{sql}: {said}");
    }
    std::fs::remove_file(dir.join("io.parquet")).unwrap();
    let q = Queries::open(std::slice::from_ref(&dir)).unwrap();
    let said = refusal(&q, "SELECT count(*) FROM io");
    assert!(said.contains("--record"), "{said}");
    std::fs::write(dir.join("io.parquet"), b"PAR1").unwrap();
    let said = Queries::open(std::slice::from_ref(&dir))
        .err()
        .unwrap()
        .to_string();
    assert!(said.contains("io.parquet"), "{said}");
}

#[test]
fn depth_and_wall_clock_are_those_of_the_records() {
    let base = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path())]).unwrap();
    let all: Vec<Record> = (0..IOS).map(|i| record(1, i)).collect();
    for i in [0u64, 17, 4_000, IOS - 1] {
        let at = record(1, i).submitted;
        let outstanding = all.iter().filter(|r| r.submitted <= at && r.completed > at);
        let sql = format!(
            "SELECT DISTINCT depth FROM io WHERE job = 1 AND submitted_ns = {}",
            at.0
        );
        assert_eq!(ask(&q, &sql), [[outstanding.count().to_string()]], "{i}");
    }
    // 2025-01-02T03:04:05Z
    let began = 1_735_787_045_000_000_000u64;
    let sql = "SELECT min(unix_ns - submitted_ns), max(unix_ns - submitted_ns) FROM io";
    assert_eq!(ask(&q, sql), [[began.to_string(), began.to_string()]]);
    let sql = "SELECT min(unix_ns - start_ns) FROM series";
    assert_eq!(ask(&q, sql), [[began.to_string()]]);
}

#[test]
fn spread_and_correlation_are_the_textbooks() {
    let base = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path())]).unwrap();
    let of = |what: &str, rows: &str| {
        ask(
            &q,
            &format!("WITH t(x, y) AS (VALUES {rows}) SELECT {what} FROM t"),
        )[0][0]
            .clone()
    };
    assert_eq!(
        of(
            "stddev(x)",
            "(2,0),(4,0),(4,0),(4,0),(5,0),(5,0),(7,0),(9,0)"
        ),
        "2.138090"
    );
    assert_eq!(of("corr(x, y)", "(1,2),(2,4),(3,6)"), "1.000000");
    assert_eq!(of("corr(x, y)", "(1,3),(2,1),(3,2),(4,NULL)"), "-0.500000");
    assert_eq!(of("corr(x, y)", "(1,1),(1,2)"), "null");
    assert_eq!(of("stddev(x)", "(1,1)"), "null");
    assert_eq!(of("median(x)", "(9,0),(1,0),(5,0)"), "5");
    // 1e15 apart and a spread of 1: sums of squares would lose it.
    assert_eq!(
        of(
            "stddev(x)",
            "(1000000000000001,0),(1000000000000002,0),(1000000000000003,0)"
        ),
        "1.000000"
    );
}

#[test]
fn what_a_run_found_counted_and_took_apart_are_tables() {
    let base = tempfile::tempdir().unwrap();
    let dir = made(base.path());
    let mut run = told();
    run.headlines = vec![fathom_telemetry::schema::Headline {
        id: "read-iops".into(),
        label: "reads".into(),
        group: "IOPS".into(),
        unit: "IOPS".into(),
        estimate: Some(Estimate {
            value: 5.0,
            low: Some(4.0),
            high: Some(6.0),
            samples: 3,
        }),
        extra: [("p99".to_owned(), 7.0)].into(),
        jobs: vec![0, 2],
        flags: Vec::new(),
    }];
    run.jobs[2].device = Some(fathom_telemetry::schema::DeviceDelta {
        name: "nvme0n1".into(),
        read_ios: 11,
        ..Default::default()
    });
    run.results = vec![fathom_telemetry::schema::SavedResult {
        experiment: "stack".into(),
        version: 1,
        data: serde_json::json!({"cases": [{"name": "randread", "rung": "perf", "layers": [
            {"name": "device", "owner": "device", "mean_ns": 9.5, "p50_ns": 9, "p99_ns": null, "share": 0.5, "ios": 3}]}]}),
    }];
    let (there, _) = RunDir::open(&dir).unwrap();
    there.save(&run).unwrap();
    let one = Queries::open(std::slice::from_ref(&dir)).unwrap();
    assert_eq!(
        ask(
            &one,
            "SELECT id, heading, value, high, p99, p50, jobs FROM headlines"
        ),
        [[
            "read-iops",
            "IOPS",
            "5.000000",
            "6.000000",
            "7.000000",
            "null",
            "[0,2]"
        ]]
    );
    assert_eq!(
        ask(&one, "SELECT job, name, read_ios FROM device"),
        [["2", "nvme0n1", "11"]]
    );
    assert_eq!(
        ask(&one, "SELECT \"case\", layer, mean_ns, p99_ns FROM layers"),
        [["randread", "device", "9.500000", "null"]]
    );
}

#[test]
fn several_runs_are_asked_at_once_and_their_jobs_stay_apart() {
    let base = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path()), made(other.path())]).unwrap();
    let per_run = IOS * u64::from(JOBS);
    assert_eq!(
        ask(
            &q,
            "SELECT run, count(*), min(job), max(job) FROM io GROUP BY run ORDER BY run"
        ),
        [
            ["0".to_owned(), per_run.to_string(), "0".into(), "2".into()],
            [
                "1".to_owned(),
                per_run.to_string(),
                "65536".into(),
                "65538".into()
            ]
        ]
    );
    let named = "SELECT run.run, jobs.name, count(*) FROM io JOIN jobs USING (job) JOIN run ON run.run = jobs.run GROUP BY job ORDER BY job";
    let rows = ask(&q, named);
    assert_eq!(rows.len(), 6);
    assert_eq!(rows[5], ["1", "third", &IOS.to_string()]);
    assert_eq!(
        ask(
            &q,
            "SELECT count(DISTINCT depth) > 1 FROM io WHERE job = 65537"
        ),
        [["1"]]
    );
    assert_eq!(
        ask(&q, "SELECT count(*), count(DISTINCT run) FROM findings"),
        [["4", "2"]]
    );
    // Ready-made queries hold for several runs, too.
    let ready = ask(&q, crate::query::ready("percentiles").unwrap().sql);
    assert_eq!(ready.len() % 2, 0);
    assert_eq!(ready[0][2..], ready[ready.len() / 2][2..]);
}
