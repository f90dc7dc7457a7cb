//! What the measurements say: tables and charts by distribution, and the share that gives most for its price.

use fathom_bench::parts::{axis, chart, estimate, headline_of, number, point, series, table, text};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Chart, ChartKind, ChartSeries, Finding, Headline, Mark, Section, Table,
};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Flag, FlagCode};

use super::{CacheResult, Measured, Repeat, steps_of};
use crate::kv::keys::Keys;

/// Predictions further off than this are said to be.
const OFF_MAX: f64 = 0.15;

/// What one distribution gave at each share.
struct Row {
    share: f64,
    hits: f64,
    hits_seen: Option<Estimate>,
    latency: Option<Estimate>,
    latency_seen: Option<Estimate>,
    rate: Option<Estimate>,
    rate_seen: Option<Estimate>,
    p99: Option<Estimate>,
}

/// The result with what it rests on.
struct Found<'a> {
    result: &'a CacheResult,
    evidence: &'a Evidence<'a>,
}

impl std::ops::Deref for Found<'_> {
    type Target = CacheResult;
    fn deref(&self) -> &CacheResult {
        self.result
    }
}

impl Found<'_> {
    /// Of the measurements of a line whose jobs may be used.
    fn seen(&self, line: usize, f: impl Fn(&Measured) -> Option<f64>) -> Option<Estimate> {
        let usable = |m: &Measured| self.evidence.job(m.job).is_some_and(|j| !j.is_void());
        let values: Vec<f64> = self
            .repeats
            .iter()
            .flat_map(|r| r.lines.iter().filter(|l| l.0 == line && usable(&l.1)))
            .filter_map(|l| f(&l.1))
            .collect();
        Estimate::mean_of(&values)
    }

    fn predicted(&self, keys: Keys, share: f64) -> [Option<Estimate>; 2] {
        let hits = self.hits(keys, share);
        let all: Vec<_> = self
            .repeats
            .iter()
            .filter_map(|r| Some(self.costs(r, keys)?.at(hits)))
            .collect();
        let of = |f: fn(&super::predict::Predicted) -> f64| {
            Estimate::mean_of(&all.iter().map(f).collect::<Vec<_>>())
        };
        [of(|p| p.latency), of(|p| p.rate)]
    }

    fn rows(&self, keys: Keys) -> Vec<Row> {
        let mine = self.lines.iter().enumerate().filter(|l| l.1.keys == keys);
        mine.map(|(i, line)| {
            let [latency, rate] = self.predicted(keys, line.share);
            Row {
                share: line.share,
                hits: self.hits(keys, line.share),
                hits_seen: self.seen(i, |m| Some(m.hits)),
                latency,
                latency_seen: self.seen(i, |m| Some(m.latency)),
                rate,
                rate_seen: self.seen(i, |m| Some(m.rate)),
                p99: self.seen(i, |m| m.p99),
            }
        })
        .collect()
    }

    /// Lines whose cache was not full when it was measured: they are slower than they would be later.
    fn cold(&self) -> Option<Flag> {
        let cold = |i: &usize| {
            let mut all = self.repeats.iter().flat_map(|r| &r.lines);
            all.any(|(line, m)| line == i && !m.warm)
        };
        let names: Vec<String> = (0..self.lines.len())
            .filter(cold)
            .map(|i| format!("{} {} %", self.lines[i].keys.name(), self.lines[i].share))
            .collect();
        (!names.is_empty()).then(|| {
            Flag::new(
                FlagCode::NotSteady,
                format!(
                    "the cache was not full when it was measured: {}",
                    names.join(", ")
                ),
                "use less --data, or smaller --shares",
            )
        })
    }

    /// Requests per second for each dollar that a gigabyte of data costs with this share cached.
    fn per_dollar(&self, share: f64, rate: Option<Estimate>) -> Option<Estimate> {
        let price = self.options.prices.of_data(share / 100.0);
        rate.map(|r| r.scale(1.0 / price))
    }
}

/// Predicted over measured, percent.
fn off(predicted: Option<Estimate>, measured: Option<Estimate>) -> Option<f64> {
    let (p, m) = predicted.zip(measured)?;
    (m.value > 0.0).then(|| (1000.0 * (p.value / m.value - 1.0)).round() / 10.0)
}

fn percent(e: Option<Estimate>) -> Option<Estimate> {
    e.map(|e| e.scale(100.0))
}

/// Section, headlines and findings.
pub(super) fn present(result: &CacheResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let found = &Found { result, evidence };
    let o = &found.options;
    let bytes = found.leaves * o.page.0;
    let mut section = Section {
        id: "cache".into(),
        title: "Cache size".into(),
        text: format!(
            "Point reads of a tree of {} in pages of {}, {} thread(s). Predicted from the device's latency (page-read jobs), the hit share of the clock under independent requests, and what a request takes with everything cached (Zhang et al. 2018, eq. 1: t_io (1 - H) + t_load H); measured beside with fathom's own tree{}. Prices: {} $/GB of memory, {} $/GB of the device; requests per dollar are for each GB of data.",
            Bytes(bytes),
            o.page,
            o.threads,
            if found.cores.is_some() {
                ""
            } else {
                ", on the model in virtual time"
            },
            o.prices.dram,
            o.prices.device,
        ),
        ..Section::default()
    };
    section.tables.push(costs(found));
    for keys in &o.keys {
        let rows = found.rows(*keys);
        section.tables.push(shares(found, *keys, &rows));
        shown.headlines.extend(headline(found, *keys, &rows));
        shown.findings.extend(finding(found, *keys, &rows));
    }
    section.charts = charts(found);
    section.flags.extend(found.cold());
    shown.sections.push(section);
}

/// A cost of the model, and what was measured of it in each repeat, ns.
struct Cost {
    label: String,
    value: Option<Estimate>,
}

fn costs(found: &Found<'_>) -> Table {
    let mean = |f: &dyn Fn(&Repeat) -> Option<f64>| {
        let values: Vec<f64> = found.repeats.iter().filter_map(f).collect();
        Estimate::mean_of(&values)
    };
    let io = found.options.depths().into_iter().map(|depth| Cost {
        label: format!("t_io, {depth} outstanding"),
        value: mean(&|r| r.io.iter().find(|d| d.0 == depth).map(|d| d.1)),
    });
    let load = found.options.keys.iter().map(|keys| Cost {
        label: format!("t_load, {} keys", keys.name()),
        value: mean(&|r| r.load.iter().find(|l| l.0 == *keys).map(|l| l.1)),
    });
    let own = Cost {
        label: "the tree's own part of a miss".into(),
        value: Some(Estimate::single(found.extra)),
    };
    let rows: Vec<Cost> = io.chain(load).chain([own]).collect();
    table(
        "cache-costs",
        "What predictions rest on",
        &rows,
        &[
            ("time", "", &|c| text(&c.label)),
            ("measured", "ns", &|c| estimate(c.value)),
        ],
    )
}

fn shares(found: &Found<'_>, keys: Keys, rows: &[Row]) -> Table {
    let bytes = (found.leaves * found.options.page.0) as f64;
    let whole = |v: f64| number(Some(v));
    table(
        &format!("cache-{}", keys.name()),
        &format!("Cached share, {} keys", keys.name()),
        rows,
        &[
            ("cached", "%", &|r| whole(r.share)),
            ("cache", "bytes", &|r| {
                whole((bytes * r.share / 100.0).round())
            }),
            ("hits, predicted", "%", &|r| {
                whole((1000.0 * r.hits).round() / 10.0)
            }),
            ("hits", "%", &|r| estimate(percent(r.hits_seen))),
            ("latency, predicted", "ns", &|r| estimate(r.latency)),
            ("latency", "ns", &|r| estimate(r.latency_seen)),
            ("p99", "ns", &|r| estimate(r.p99)),
            ("requests, predicted", "1/s", &|r| estimate(r.rate)),
            ("requests", "1/s", &|r| estimate(r.rate_seen)),
            ("prediction off", "%", &|r| number(off(r.rate, r.rate_seen))),
            ("requests/s per dollar, predicted", "", &|r| {
                estimate(found.per_dollar(r.share, r.rate))
            }),
            ("requests/s per dollar", "", &|r| {
                estimate(found.per_dollar(r.share, r.rate_seen))
            }),
        ],
    )
}

/// Latency, throughput and requests per dollar: lines as predicted, dots as measured.
fn charts(found: &Found<'_>) -> Vec<Chart> {
    let o = &found.options;
    let mut of: [Vec<ChartSeries>; 3] = Default::default();
    let mut best = Vec::new();
    for keys in &o.keys {
        let mut lines: [Vec<_>; 3] = Default::default();
        for share in steps_of(o) {
            let [latency, rate] = found.predicted(*keys, share);
            let per = found.per_dollar(share, rate);
            for (line, y) in lines.iter_mut().zip([latency, rate, per]) {
                // Intervals would hide the dots.
                line.push(point(share, y.map(|e| Estimate::single(e.value))));
            }
        }
        let rows = found.rows(*keys);
        for r in &rows {
            let per = found.per_dollar(r.share, r.rate_seen);
            let dots = [r.latency_seen, r.rate_seen, per];
            for (i, y) in dots.into_iter().enumerate() {
                let name = format!("{}, measured", keys.name());
                match of[i].iter_mut().find(|s| s.name == name) {
                    Some(s) => s.points.push(point(r.share, y)),
                    None => of[i].push(series(&name, vec![point(r.share, y)])),
                }
            }
        }
        for (all, line) in of.iter_mut().zip(lines) {
            all.push(series(&format!("{}, predicted", keys.name()), line));
        }
        best.extend(top(found, &rows).map(|i| Mark {
            x: Some(rows[i].share),
            y: None,
            label: format!("{}: most per dollar", keys.name()),
        }));
    }
    let [latency, rate, per] = of;
    let cached = || axis("cached", "%", true);
    let draw = |id: &str, title: &str, y, all| chart(id, title, ChartKind::Line, cached(), y, all);
    let mut price = draw(
        "cache-price-chart",
        "Requests per second and dollar by cached share",
        axis("requests/s per dollar", "", true),
        per,
    );
    price.marks = best;
    vec![
        draw(
            "cache-latency-chart",
            "Latency by cached share",
            axis("mean latency", "ns", true),
            latency,
        ),
        draw(
            "cache-rate-chart",
            "Throughput by cached share",
            axis("requests", "1/s", true),
            rate,
        ),
        price,
    ]
}

/// The row that gives most for its price.
fn top(found: &Found<'_>, rows: &[Row]) -> Option<usize> {
    let value = |i: usize| {
        found
            .per_dollar(rows[i].share, rows[i].rate_seen)
            .map(|e| e.value)
    };
    (0..rows.len())
        .filter(|i| value(*i).is_some())
        .max_by(|a, b| {
            value(*a)
                .unwrap_or(0.0)
                .total_cmp(&value(*b).unwrap_or(0.0))
        })
}

fn worst(rows: &[Row]) -> Option<f64> {
    let all = rows.iter().filter_map(|r| off(r.rate, r.rate_seen));
    all.max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

fn headline(found: &Found<'_>, keys: Keys, rows: &[Row]) -> Vec<Headline> {
    let name = keys.name();
    let mut all = Vec::new();
    let of = |label: &str, id: &str, unit: &str, e| {
        headline_of("Cache size", label, id, unit, e, found.jobs.clone())
    };
    let best = top(found, rows).map(|i| &rows[i]);
    all.push(of(
        &format!(
            "{name} keys, {}",
            best.map_or("nothing measured".into(), |r| format!(
                "{} % cached: most per dollar",
                r.share
            ))
        ),
        &format!("cache-{name}-rate"),
        "1/s",
        best.and_then(|r| r.rate_seen),
    ));
    all.push(of(
        &format!("{name} keys, prediction off at worst"),
        &format!("cache-{name}-off"),
        "%",
        worst(rows).map(Estimate::single),
    ));
    all
}

fn finding(found: &Found<'_>, keys: Keys, rows: &[Row]) -> Option<Finding> {
    let best = top(found, rows)?;
    let per = |i: usize| found.per_dollar(rows[i].share, rows[i].rate_seen);
    let (row, name) = (&rows[best], keys.name());
    let (top, rate, latency) = (per(best)?, row.rate_seen?, row.latency_seen?);
    // What the choice is held against: the other share that comes nearest, and the smallest.
    let others = (0..rows.len()).filter(|i| *i != best).filter_map(per);
    let second = others.max_by(|a, b| a.value.total_cmp(&b.value));
    let apart = second.is_some_and(|s| top.low.zip(s.high).is_some_and(|(t, s)| t > s));
    let smallest = (0..rows.len()).min_by(|a, b| rows[*a].share.total_cmp(&rows[*b].share))?;
    let largest = (0..rows.len()).max_by(|a, b| rows[*a].share.total_cmp(&rows[*b].share))?;
    let against = (best != smallest)
        .then(|| per(smallest).map(|s| top.gain_over(&s)))
        .flatten();
    let whole = rows[smallest].rate_seen.zip(rows[largest].rate_seen);
    let well = worst(rows).is_some_and(|w| w.abs() <= 100.0 * OFF_MAX);
    let said = format!(
        "With {name} keys, {} % of the data in memory give most for their price: {} requests/s at {} on average, {} requests/s per dollar{}{}.",
        row.share,
        grouped(rate.value),
        fathom_telemetry::Nanos(latency.value as u64),
        grouped(top.value),
        against.map_or(String::new(), |g| format!(
            ", {:+.0} % against {} %",
            100.0 * g.value,
            rows[smallest].share
        )),
        whole.map_or(String::new(), |(s, l)| format!(
            "; {} instead of {} % of it make requests {:.1} times as fast",
            rows[largest].share,
            rows[smallest].share,
            l.value / s.value
        )),
    );
    // At the edge of what was measured the best may lie beyond it.
    let edge = rows.len() > 1 && (best == smallest || best == largest);
    let (wider, limit) = match best == smallest {
        true => ("smaller", rows[smallest].share),
        false => ("larger", rows[largest].share),
    };
    Some(Finding {
        id: format!("cache-{name}"),
        text: if edge {
            format!(
                "{said} That is the edge of what was measured: {wider} shares than {limit} % may give more."
            )
        } else {
            said
        },
        advice: if edge {
            format!("Measure {wider} shares before you choose: --shares.")
        } else {
            format!(
                "Give the store's cache {} % of its data (InnoDB: innodb_buffer_pool_size; fathom kv --cache {}).",
                row.share, row.share
            )
        },
        confidence: if apart && well && !edge {
            "moderate"
        } else {
            "weak"
        }
        .into(),
        jobs: found.jobs.clone(),
        evidence: vec!["cache-price-chart".into(), format!("cache-{name}")],
        // A measurement to come gains nothing by itself.
        gain: against.filter(|_| !edge),
        refuted_by: format!(
            "The store itself with both caches: fathom kv --workload caches --distribution {name}; or other prices (--dram-price, --device-price)."
        ),
        ..Finding::default()
    })
}
