//! Every ready-made query against the same figures taken from the records themselves, one by one and
//! without SQL, histograms or sketches: exact quantiles of sorted numbers.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::query::{READY, ready};

/// A row of the log as it must be.
struct Io {
    job: u16,
    thread: u16,
    op: &'static str,
    intended: i64,
    submitted: i64,
    completed: i64,
    offset: u64,
    len: u32,
    done: i64,
    error: i64,
}

impl Io {
    fn service(&self) -> i64 {
        self.completed - self.submitted
    }
    fn response(&self) -> i64 {
        self.completed - self.intended
    }
}

fn all() -> Vec<Io> {
    let of = |job, i| {
        let r = record(job, i);
        Io {
            job,
            thread: thread(i),
            op: r.op.name(),
            intended: r.intended.0 as i64,
            submitted: r.submitted.0 as i64,
            completed: r.completed.0 as i64,
            offset: r.offset,
            len: r.len,
            done: r.result.max(0),
            error: -r.result.min(0),
        }
    };
    (0..JOBS)
        .flat_map(|job| (0..IOS).map(move |i| of(job, i)))
        .collect()
}

/// What a cell must hold.
#[derive(Debug, Clone)]
enum Must {
    Be(serde_json::Value),
    /// This, or up to 1/128 more.
    Quantile(i64),
    /// This, but for the last digits of a sum of many.
    About(f64),
}

impl Must {
    fn holds(&self, got: &serde_json::Value) -> bool {
        match self {
            Self::Be(v) => got == v,
            Self::Quantile(exact) => got
                .as_i64()
                .is_some_and(|v| v >= *exact && v - exact <= exact / 128),
            Self::About(v) => got
                .as_f64()
                .is_some_and(|g| (g - v).abs() <= 1e-9 * v.abs()),
        }
    }
}

fn be(v: impl Into<serde_json::Value>) -> Must {
    Must::Be(v.into())
}

/// The exact quantile.
fn quantile(values: impl Iterator<Item = i64>, q: f64) -> Must {
    let mut all: Vec<i64> = values.collect();
    all.sort_unstable();
    let rank = ((q * all.len() as f64).ceil() as usize).clamp(1, all.len());
    Must::Quantile(all[rank - 1])
}

fn mean(values: impl Iterator<Item = i64>) -> Must {
    let all: Vec<i64> = values.collect();
    Must::About(all.iter().sum::<i64>() as f64 / all.len() as f64)
}

fn most(values: impl Iterator<Item = i64>) -> Must {
    be(values.max().unwrap())
}

/// Groups in the order of their keys, those that failed left out.
fn good<K: Ord>(all: &[Io], key: impl Fn(&Io) -> K) -> BTreeMap<K, Vec<&Io>> {
    let mut groups: BTreeMap<K, Vec<&Io>> = BTreeMap::new();
    for io in all.iter().filter(|io| io.error == 0) {
        groups.entry(key(io)).or_default().push(io);
    }
    groups
}

/// A result as JSON: its columns and its rows.
#[derive(Default)]
struct Json {
    names: Vec<String>,
    rows: Vec<Vec<serde_json::Value>>,
}

impl Rows for Json {
    fn begin(&mut self, names: &[String]) -> Result<(), QueryError> {
        self.names = names.to_vec();
        Ok(())
    }
    fn row(&mut self, values: &[Cell<'_>]) -> Result<(), QueryError> {
        let cell = |v: &Cell<'_>| match v {
            Cell::Null => json!(null),
            Cell::Integer(v) => json!(v),
            Cell::Real(v) => json!(v),
            Cell::Text(t) => json!(t),
            Cell::Blob(_) => panic!("no ready-made query shows bytes"),
        };
        self.rows.push(values.iter().map(cell).collect());
        Ok(())
    }
    fn end(&mut self) -> Result<(), QueryError> {
        Ok(())
    }
}

/// One row for each job and operation: percentiles, which windows and single I/Os must both give.
fn percentiles(all: &[Io], with_mean: bool, tail: f64) -> Vec<Vec<Must>> {
    let names = ["first", "second", "third"];
    let row = |(job, op): (u16, &str), ios: Vec<&Io>| {
        let service = || ios.iter().map(|io| io.service());
        let mut row = vec![be(names[usize::from(job)]), be(job), be(op), be(ios.len())];
        row.extend(with_mean.then(|| mean(service())));
        row.extend([0.5, 0.99, tail].map(|q| quantile(service(), q)));
        row.push(most(service()));
        row.push(quantile(ios.iter().map(|io| io.response()), 0.99));
        row
    };
    good(all, |io| (io.job, io.op))
        .into_iter()
        .map(|(key, ios)| row(key, ios))
        .collect()
}

/// What each query must answer.
fn expected(name: &str, all: &[Io]) -> Vec<Vec<Must>> {
    const WINDOW: i64 = 100_000_000;
    const SECOND: i64 = 1_000_000_000;
    match name {
        "percentiles" => percentiles(all, false, 0.999),
        "io-percentiles" => percentiles(all, true, 0.9999),
        "over-time" => good(all, |io| (io.job, io.op, io.completed / SECOND))
            .into_iter()
            .map(|((job, op, second), ios)| {
                let failed = all.iter().filter(|io| {
                    io.error != 0 && (io.job, io.op, io.completed / SECOND) == (job, op, second)
                });
                let service = || ios.iter().map(|io| io.service());
                vec![
                    be(job),
                    be(op),
                    be(second as f64),
                    be(ios.len()),
                    be(failed.count()),
                    quantile(service(), 0.5),
                    quantile(service(), 0.99),
                    most(service()),
                ]
            })
            .collect(),
        "worst-windows" => {
            let windows = good(all, |io| (io.job, io.op, io.completed / WINDOW));
            let mut windows: Vec<_> = windows.into_iter().collect();
            let slowest = |ios: &[&Io]| ios.iter().map(|io| io.service()).max();
            windows.sort_by_key(|(key, ios)| (std::cmp::Reverse(slowest(ios)), *key));
            windows.truncate(20);
            windows
                .into_iter()
                .map(|((job, op, window), ios)| {
                    let service = || ios.iter().map(|io| io.service());
                    vec![
                        be(job),
                        be(op),
                        Must::About((window * WINDOW) as f64 / 1e9),
                        be(ios.len()),
                        quantile(service(), 0.5),
                        most(service()),
                    ]
                })
                .collect()
        }
        "totals" => good(all, |io| (io.job, io.op))
            .into_iter()
            .map(|((job, op), ios)| {
                let failed = all
                    .iter()
                    .filter(|io| io.error != 0 && (io.job, io.op) == (job, op));
                let short = ios.iter().filter(|io| io.done < i64::from(io.len));
                vec![
                    be(job),
                    be(op),
                    be(ios.len()),
                    be(ios.iter().map(|io| io.done).sum::<i64>()),
                    be(failed.count()),
                    be(short.count()),
                    mean(ios.iter().map(|io| io.service())),
                ]
            })
            .collect(),
        "jobs" => {
            let flags = ["[]", r#"["cpu-bound","io-errors"]"#, "[]"];
            let row = |(i, j): (usize, &fathom_telemetry::schema::Job)| {
                vec![
                    be(i),
                    be(j.name.as_str()),
                    be(""),
                    be("uring"),
                    be(32),
                    be(31.9),
                    be(5.0),
                    be(3.7),
                    be(u8::from(i == 1)),
                    be(flags[i]),
                ]
            };
            told().jobs.iter().enumerate().map(row).collect()
        }
        "findings" => vec![
            vec![
                be(1),
                be("moderate"),
                be(0.25),
                be(0.2),
                be(0.3),
                be("What was found, 1"),
                be("do it"),
            ],
            vec![
                be(2),
                be("moderate"),
                be(json!(null)),
                be(json!(null)),
                be(json!(null)),
                be("What was found, 2"),
                be("do it"),
            ],
        ],
        "slowest" => {
            let mut ios: Vec<&Io> = all.iter().filter(|io| io.error == 0).collect();
            ios.sort_by_key(|io| (-io.service(), io.submitted));
            ios.truncate(20);
            ios.iter()
                .map(|io| {
                    vec![
                        be(io.job),
                        be(io.thread),
                        be(io.op),
                        be(io.submitted as f64 / 1e9),
                        be(io.offset),
                        be(io.len),
                        be(io.service()),
                        be(io.response()),
                    ]
                })
                .collect()
        }
        "hosts" => good(all, |io| (io.job, io.op))
            .into_iter()
            .map(|((job, op), ios)| {
                let failed = all
                    .iter()
                    .filter(|io| io.error != 0 && (io.job, io.op) == (job, op));
                let service = || ios.iter().map(|io| io.service());
                vec![
                    be(job),
                    be("a job"),
                    be(json!(null)),
                    be(op),
                    be(ios.len()),
                    be(ios.iter().map(|io| io.done).sum::<i64>()),
                    be(failed.count()),
                    quantile(service(), 0.5),
                    quantile(service(), 0.99),
                    most(service()),
                ]
            })
            .collect(),
        "fairness" => (0..JOBS)
            .map(|job| vec![be(job), be("a job"), be(1), be(1.0), be(1.0)])
            .collect(),
        "stragglers" => vec![
            vec![be(0), be("first"), be("h2"), be(3), be(0.75), be(200)],
            vec![be(0), be("first"), be("h1"), be(1), be(0.25), be(100)],
        ],
        "starts" => vec![vec![
            be(0),
            be("first"),
            be(2),
            be(600),
            be(20),
            be(7),
            be(3),
        ]],
        "threads" => good(all, |io| (io.job, io.thread))
            .into_iter()
            .map(|((job, thread), ios)| {
                vec![
                    be(job),
                    be(""),
                    be(thread),
                    be(ios.len()),
                    be(ios.iter().map(|io| io.done).sum::<i64>()),
                    mean(ios.iter().map(|io| io.service())),
                    quantile(ios.iter().map(|io| io.service()), 0.99),
                ]
            })
            .collect(),
        "places" | "sizes" => {
            let third = |io: &Io| match name {
                "places" => io.offset >> 30,
                _ => u64::from(io.len),
            };
            good(all, |io| (io.job, io.op, third(io)))
                .into_iter()
                .map(|((job, op, third), ios)| {
                    vec![
                        be(job),
                        be(op),
                        be(third),
                        be(ios.len()),
                        mean(ios.iter().map(|io| io.service())),
                        quantile(ios.iter().map(|io| io.service()), 0.99),
                    ]
                })
                .collect()
        }
        "depth" => (0..JOBS)
            .map(|job| {
                let ios = || all.iter().filter(|io| io.job == job);
                let busy: i64 = ios().map(Io::service).sum();
                let end = ios().map(|io| io.completed).max().unwrap();
                let begin = ios().map(|io| io.submitted).min().unwrap();
                vec![
                    be(job),
                    be(ios().count()),
                    Must::About(busy as f64 / (end - begin) as f64),
                ]
            })
            .collect(),
        "arrivals" => (0..JOBS)
            .map(|job| {
                let mut gaps = Vec::new();
                for thread in [0, 1] {
                    let mut at: Vec<i64> = all
                        .iter()
                        .filter(|io| (io.job, io.thread) == (job, thread))
                        .map(|io| io.intended)
                        .collect();
                    at.sort_unstable();
                    gaps.extend(at.windows(2).map(|w| w[1] - w[0]));
                }
                let gaps = || gaps.iter().copied();
                vec![
                    be(job),
                    be(gaps().count()),
                    mean(gaps()),
                    quantile(gaps(), 0.5),
                    quantile(gaps(), 0.99),
                    most(gaps()),
                ]
            })
            .collect(),
        "errors" => {
            let mut groups: BTreeMap<(u16, &str, i64), Vec<u64>> = BTreeMap::new();
            for io in all.iter().filter(|io| io.done < i64::from(io.len)) {
                let key = (io.job, io.op, io.error);
                groups.entry(key).or_default().push(io.offset);
            }
            let mut groups: Vec<_> = groups.into_iter().collect();
            groups.sort_by_key(|(key, places)| (std::cmp::Reverse(places.len()), *key));
            groups
                .into_iter()
                .map(|((job, op, error), places)| {
                    vec![
                        be(job),
                        be(op),
                        be(error),
                        be(places.len()),
                        be(places.into_iter().min()),
                    ]
                })
                .collect()
        }
        other => panic!("'{other}' has no figures of its own here"),
    }
}

#[test]
fn every_ready_made_query_gives_what_the_records_give() {
    let base = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path())]).unwrap();
    let all = all();
    for r in READY {
        let mut got = Json::default();
        q.run(r.sql, &mut got)
            .unwrap_or_else(|e| panic!("{}: {e}", r.name));
        let expected = expected(r.name, &all);
        assert_eq!(got.rows.len(), expected.len(), "{}", r.name);
        assert!(!expected.is_empty(), "{} shows nothing here", r.name);
        for (got, expected) in got.rows.iter().zip(&expected) {
            assert_eq!(got.len(), expected.len(), "{}", r.name);
            let alike = got.iter().zip(expected).all(|(g, e)| e.holds(g));
            assert!(alike, "{}:\n{got:?}\n{expected:?}", r.name);
        }
    }
    let json = ask(&q, "SELECT json_extract(json, '$.target.device') FROM run");
    assert_eq!(json, [["nvme0n1"]]);
}

#[test]
fn duckdbs_views_have_the_columns_of_the_tables() {
    let base = tempfile::tempdir().unwrap();
    let q = Queries::open(&[made(base.path())]).unwrap();
    let script = crate::query::duckdb(&RunDir::open(&made(base.path())).unwrap().0, "SELECT 1");
    let tables = q.tables();
    assert!(tables.len() >= 8, "{tables:?}");
    for (table, columns) in tables.iter() {
        let view = script
            .split(";\n")
            .find(|part| part.contains(&format!("VIEW {table} AS")))
            .unwrap();
        if view.contains("SELECT *") {
            continue;
        }
        for c in columns {
            let named = match c.name.as_str() {
                // A word of the language.
                "case" => " AS \"case\"".to_owned(),
                name => format!(" AS {name}"),
            };
            let stands = |before: &str| view.contains(&format!("{before}{},", c.name));
            assert!(
                view.match_indices(&named).any(|(at, _)| {
                    let rest = &view[at + named.len()..];
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                }) || stands("SELECT ")
                    || view.contains(&format!("SELECT {} FROM", c.name)),
                "{table} has no {} in DuckDB",
                c.name
            );
        }
    }
    assert!(ready("jobs").is_some_and(|r| r.sql.contains("void")));
}
