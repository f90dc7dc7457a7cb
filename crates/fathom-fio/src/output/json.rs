//! fio's JSON: its names, types, nesting and units; what fathom adds stands under the key `fathom`.

use std::fmt::Write;

use fathom_telemetry::Histogram;
use serde_json::Value;

use super::{Entry, FIO_VERSION, Results, bins};
use crate::feed::lifetimes::Lifetimes;
use crate::measure::{Measure, Stat, Totals};
use crate::plan::Terms;
use crate::slices::Slice;
use crate::translate::Unified;

/// A value in the order in which it is written; fio's floats have six digits.
enum Node {
    Int(u64),
    Float(f64),
    Text(String),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Raw(Value),
}

struct Object(Vec<(String, Node)>);

impl Object {
    fn int(&mut self, key: &str, v: u64) {
        self.0.push((key.into(), Node::Int(v)));
    }
    fn float(&mut self, key: &str, v: f64) {
        self.0
            .push((key.into(), Node::Float(if v.is_finite() { v } else { 0.0 })));
    }
    fn text(&mut self, key: &str, v: &str) {
        self.0.push((key.into(), Node::Text(v.into())));
    }
    fn object(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        let mut o = Self(Vec::new());
        fill(&mut o);
        self.0.push((key.into(), Node::Object(o.0)));
    }
}

/// The whole document; `plus` adds histograms.
pub(super) fn print(r: &Results<'_>, plus: bool) -> String {
    let mut root = Object(Vec::new());
    root.text("fio version", FIO_VERSION);
    root.int("timestamp", r.now_ms / 1000);
    root.int("timestamp_ms", r.now_ms);
    root.text("time", &r.now_text);
    if let Some(global) = &r.global {
        root.object("global options", |o| options(o, global));
    }
    let entries = r.entries();
    let aggregates = aggregates(&entries);
    let jobs = entries
        .iter()
        .map(|e| {
            let mut o = Object(Vec::new());
            job(&mut o, e, plus, &aggregates);
            Node::Object(o.0)
        })
        .collect();
    root.0.push(("jobs".into(), Node::Array(jobs)));
    if entries.iter().any(|e| e.task.shape.terms.disk_util) {
        let disks = r
            .disks
            .iter()
            .map(|d| {
                let mut o = Object(Vec::new());
                o.text("name", &d.delta.name);
                o.int("read_ios", d.delta.read_ios);
                o.int("write_ios", d.delta.write_ios);
                o.int("read_merges", d.delta.read_merges);
                o.int("write_merges", d.delta.write_merges);
                o.int("read_ticks", d.delta.read_ticks_ms);
                o.int("write_ticks", d.delta.write_ticks_ms);
                o.int("in_queue", d.in_queue_ms());
                o.float("util", d.utilization());
                Node::Object(o.0)
            })
            .collect();
        root.0.push(("disk_util".into(), Node::Array(disks)));
    }
    if let Some((system, each)) = r.idle.split_first() {
        root.object("cpu_idleness", |o| {
            o.float("system", *system);
            for (i, share) in each.iter().enumerate() {
                o.float(&format!("cpu-{i}"), *share);
            }
            // Nothing is calibrated: the kernel keeps the account.
            o.float("unit_mean", 0.0);
            o.float("unit_stddev", 0.0);
        });
    }
    let mut text = String::new();
    write_node(&mut text, &Node::Object(root.0), 0);
    text.push('\n');
    text
}

fn options(o: &mut Object, list: &[(String, String)]) {
    for (k, v) in list {
        o.text(k, v);
    }
}

/// Bytes per second by group and direction.
fn aggregates(entries: &[Entry<'_>]) -> Vec<(u32, [f64; 3])> {
    let mut out: Vec<(u32, [f64; 3])> = Vec::new();
    for e in entries {
        let speeds: [f64; 3] = std::array::from_fn(|d| speed(&e.measure, d));
        match out.iter_mut().find(|g| g.0 == e.task.group) {
            Some(g) => g.1.iter_mut().zip(speeds).for_each(|(a, b)| *a += b),
            None => out.push((e.task.group, speeds)),
        }
    }
    out
}

fn speed(m: &Measure, direction: usize) -> f64 {
    let ms = m.runtime_of(direction);
    match &m.totals[direction] {
        Some(t) if ms > 0 => (t.bytes as f64 * 1000.0 / ms as f64).floor(),
        _ => 0.0,
    }
}

fn job(o: &mut Object, e: &Entry<'_>, plus: bool, aggregates: &[(u32, [f64; 3])]) {
    let m = &e.measure;
    let terms = &e.task.shape.terms;
    o.text("jobname", &e.task.name);
    o.int("groupid", u64::from(e.task.group));
    o.int("job_start", m.start_ms);
    o.int("error", u64::from(m.error.unsigned_abs()));
    o.int("eta", 0);
    o.int("elapsed", m.elapsed_s);
    o.object("job options", |o| options(o, &e.task.options));
    directions(o, e, plus, aggregates);
    usage(o, e);
    distributions(o, m);
    if terms.continue_on_error {
        o.int("total_err", m.errors);
        o.int("first_error", u64::from(m.error.unsigned_abs()));
    }
    let (target, percentile, window) = terms.latency;
    let depth = match m.latency_depth {
        0 => u64::from(terms.depth),
        found => found,
    };
    o.int("latency_depth", depth);
    o.int("latency_target", target);
    o.float("latency_percentile", percentile);
    o.int("latency_window", window);
    if let Some(blocks) = &m.lifetimes {
        lifetimes(o, blocks, &terms.percentiles);
    }
    if let Some(s) = &m.steady {
        o.object("steadystate", |o| steady(o, s));
    }
    if !terms.description.is_empty() {
        o.text("desc", &terms.description);
    }
    o.object("fathom", |o| extra(o, m));
}

fn directions(o: &mut Object, e: &Entry<'_>, plus: bool, aggregates: &[(u32, [f64; 3])]) {
    let (m, terms) = (&e.measure, &e.task.shape.terms);
    let aggregate = aggregates
        .iter()
        .find(|g| g.0 == e.task.group)
        .map_or([0.0; 3], |g| g.1);
    let mixed = terms.unified == Unified::Mixed;
    for (d, name) in ["read", "write", "trim"].into_iter().enumerate() {
        let name = match (mixed, d) {
            (true, 0) => "mixed",
            (true, _) => continue,
            _ => name,
        };
        o.object(name, |o| direction(o, m, d, terms, plus, aggregate[d]));
    }
    if !mixed {
        o.object("sync", |o| {
            let t = m.totals[3].as_deref();
            o.int("total_ios", t.map_or(0, |t| t.ios));
            let shown = terms.percentiles_of[1] || terms.percentiles_of[2];
            o.object("lat_ns", |o| {
                latency(o, t.map(|t| &t.service), terms, shown, plus);
            });
        });
    }
    if terms.unified == Unified::Both {
        let whole = super::unify(m.clone());
        o.object("mixed", |o| {
            direction(o, &whole, 0, terms, plus, aggregate.iter().sum());
        });
    }
}

/// fio adds up the runtimes of a group's members; so a share of CPU is one of a thread.
fn usage(o: &mut Object, e: &Entry<'_>) {
    let m = &e.measure;
    let ms = m.runtime_ms();
    let share = |us: u64| {
        if ms == 0 {
            0.0
        } else {
            us as f64 / 10.0 / ms as f64 / e.members as f64
        }
    };
    o.int("job_runtime", ms * e.members as u64);
    o.float("usr_cpu", share(m.usage.user_us));
    o.float("sys_cpu", share(m.usage.system_us));
    o.int("ctx", m.usage.switches);
    o.int("majf", m.usage.major_faults);
    o.int("minf", m.usage.minor_faults);
}

/// Shares of depths, of batches and of latencies.
fn distributions(o: &mut Object, m: &Measure) {
    const NAMES: [&str; 12] = [
        "2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000",
    ];
    for (key, names, counts) in [
        ("iodepth_level", bins::DEPTHS, &m.batches.depth),
        ("iodepth_submit", bins::BATCHES, &m.batches.submitted),
        ("iodepth_complete", bins::BATCHES, &m.batches.completed),
    ] {
        o.object(key, |o| {
            for (k, v) in names.iter().zip(bins::shares(counts)) {
                o.float(k, v);
            }
        });
    }
    let spread = bins::distribution(m.totals.iter().take(3).flatten().map(|t| &t.service));
    for (key, from, count) in [
        ("latency_ns", 0, 10),
        ("latency_us", 10, 10),
        ("latency_ms", 20, 12),
    ] {
        o.object(key, |o| {
            for (i, name) in NAMES.iter().take(count).enumerate() {
                o.float(name, spread[from + i]);
            }
        });
    }
}

/// How often blocks were trimmed; nothing where none was touched.
fn lifetimes(o: &mut Object, blocks: &Lifetimes, list: &[f64]) {
    let percentiles = blocks.percentiles(list);
    if percentiles.is_empty() {
        return;
    }
    o.object("block", |o| {
        o.object("percentiles", |o| {
            for (p, trims) in percentiles {
                o.int(&format!("{p:.6}"), trims.into());
            }
        });
        o.object("states", |o| {
            for (state, count) in blocks.states() {
                o.int(state, count);
            }
        });
    });
}

/// What fio does not say: fathom's own jobs, with flags, response latency and achieved depth.
fn extra(o: &mut Object, m: &Measure) {
    let jobs = m
        .jobs
        .iter()
        .map(|j| Node::Raw(serde_json::to_value(j).unwrap_or_default()))
        .collect();
    if let Some(model) = &m.simulated {
        o.text("simulated", model);
    }
    o.int("wall_ns", m.wall.0);
    if let Some(slices) = &m.slices {
        let hour = |s: &Slice| serde_json::json!({"ios": s.ios, "over_1ms": s.over[0], "over_8ms": s.over[1], "over_64ms": s.over[2]});
        let hours: Vec<_> = slices.hours().iter().map(hour).collect();
        let act = serde_json::json!({"passed": slices.pass(), "hours": hours});
        o.0.push(("act".into(), Node::Raw(act)));
    }
    if m.ramp_bytes > 0 {
        // `jobs` hold them.
        o.int("ramp_bytes", m.ramp_bytes);
    }
    o.0.push(("jobs".into(), Node::Array(jobs)));
}

fn direction(o: &mut Object, m: &Measure, d: usize, terms: &Terms, plus: bool, aggregate: f64) {
    let t = m.totals[d].as_deref();
    let get = |f: fn(&Totals) -> u64| t.map_or(0, f);
    let (ios, bytes) = (get(|t| t.ios), get(|t| t.bytes));
    let ms = m.runtime_of(d);
    let per_second = |n: u64| n.saturating_mul(1000).checked_div(ms).unwrap_or(0);
    o.int("io_bytes", bytes);
    o.int("io_kbytes", bytes >> 10);
    o.int("bw_bytes", per_second(bytes));
    o.int("bw", per_second(bytes) >> 10);
    o.float(
        "iops",
        if ms > 0 {
            1000.0 * ios as f64 / ms as f64
        } else {
            0.0
        },
    );
    o.int("runtime", ms);
    o.int("total_ios", m.issued(d));
    o.int("short_ios", get(|t| t.short));
    o.int("drop_ios", if d == 0 { m.dropped } else { 0 });
    let parts: [(&str, Option<&Histogram>); 3] = [
        ("slat_ns", t.map(|t| &t.submit)),
        ("clat_ns", t.map(|t| &t.service)),
        ("lat_ns", t.map(|t| &t.response)),
    ];
    for ((key, h), shown) in parts.into_iter().zip(terms.percentiles_of) {
        o.object(key, |o| latency(o, h, terms, shown, plus));
    }
    if let Some(t) = t.filter(|t| t.by_priority.len() > 1) {
        let each = t.by_priority.iter();
        let each = each.map(|(priority, h)| {
            let mut o = Object(Vec::new());
            o.int("prioclass", u64::from(priority >> 13));
            o.int("prio", u64::from(priority & 7));
            o.int("priohint", u64::from(priority >> 3 & 0x3ff));
            let total = terms.percentiles_of[2];
            let key = if total { "lat_ns" } else { "clat_ns" };
            let shown = total || terms.percentiles_of[1];
            let h = &h[usize::from(total)];
            o.object(key, |o| latency(o, Some(h), terms, shown, plus));
            Node::Object(o.0)
        });
        o.0.push(("prios".into(), Node::Array(each.collect())));
    }
    let samples = t.map_or_else(Stat::default, |t| t.bandwidth);
    let none = samples.n == 0;
    o.int("bw_min", if none { 0 } else { samples.min as u64 });
    o.int("bw_max", samples.max as u64);
    let share = match (none, aggregate > 1024.0) {
        (true, _) => 0.0,
        (_, true) => (samples.mean * 100.0 / (aggregate / 1024.0)).min(100.0),
        _ => 100.0,
    };
    o.float("bw_agg", share);
    o.float("bw_mean", samples.mean);
    o.float("bw_dev", samples.deviation());
    o.int("bw_samples", samples.n);
    let samples = t.map_or_else(Stat::default, |t| t.rate);
    o.int(
        "iops_min",
        if samples.n == 0 {
            0
        } else {
            samples.min as u64
        },
    );
    o.int("iops_max", samples.max as u64);
    o.float("iops_mean", samples.mean);
    o.float("iops_stddev", samples.deviation());
    o.int("iops_samples", samples.n);
}

fn latency(o: &mut Object, h: Option<&Histogram>, terms: &Terms, percentiles: bool, plus: bool) {
    let m = h.map(|h| *h.moments()).unwrap_or_default();
    o.int("min", if m.count == 0 { 0 } else { m.min });
    o.int("max", m.max);
    o.float("mean", m.mean().unwrap_or(0.0));
    o.float("stddev", m.stddev().unwrap_or(0.0));
    o.int("N", m.count);
    let Some(h) = h.filter(|h| percentiles && !h.is_empty()) else {
        return;
    };
    let all = bins::bins(h);
    o.object("percentile", |o| {
        for (p, v) in bins::percentiles(&all, &terms.percentiles) {
            o.int(&format!("{p:.6}"), v);
        }
    });
    if plus {
        o.object("bins", |o| {
            for (v, n) in &all {
                o.int(&v.to_string(), *n);
            }
        });
    }
}

/// Writes with two spaces per level, as fio does.
fn write_node(out: &mut String, node: &Node, level: usize) {
    let pad = |out: &mut String, n: usize| out.extend(std::iter::repeat_n("  ", n));
    match node {
        Node::Int(v) => {
            let _ = write!(out, "{v}");
        }
        Node::Float(v) => {
            let _ = write!(out, "{v:.6}");
        }
        Node::Text(v) => {
            let _ = write!(out, "{}", Value::String(v.clone()));
        }
        Node::Raw(v) => {
            let _ = write!(out, "{v}");
        }
        Node::Object(fields) => {
            out.push_str("{\n");
            for (i, (k, v)) in fields.iter().enumerate() {
                pad(out, level + 1);
                let _ = write!(out, "{} : ", Value::String(k.clone()));
                write_node(out, v, level + 1);
                out.push_str(if i + 1 < fields.len() { ",\n" } else { "\n" });
            }
            pad(out, level);
            out.push('}');
        }
        Node::Array(items) => {
            out.push_str("[\n");
            for (i, v) in items.iter().enumerate() {
                pad(out, level + 1);
                write_node(out, v, level + 1);
                out.push_str(if i + 1 < items.len() { ",\n" } else { "\n" });
            }
            pad(out, level);
            out.push(']');
        }
    }
}

/// fio's steadystate object.
fn steady(o: &mut Object, s: &crate::Steady) {
    o.text("ss", &s.text());
    o.int("duration", s.duration.0 / 1_000_000_000);
    o.int("attained", u64::from(s.attained));
    o.text("criterion", &format!("{:.6}{}", s.criterion, s.unit()));
    o.float("max_deviation", s.deviation);
    o.float("slope", s.drift);
    o.object("data", |o| {
        let list = |which: usize| {
            Node::Array(
                // As in fio, those that never came are zeros.
                s.samples
                    .iter()
                    .map(|v| v[which])
                    .chain(std::iter::repeat(0.0))
                    .take(s.wanted())
                    .map(|v| Node::Int(v as u64))
                    .collect(),
            )
        };
        o.int("bw_mean", s.mean(1) as u64);
        o.int("iops_mean", s.mean(0) as u64);
        if s.judges_latency() {
            o.int("lat_mean", s.mean(2) as u64);
            o.0.push(("lat_ns".into(), list(2)));
        }
        o.0.push(("iops".into(), list(0)));
        o.0.push(("bw".into(), list(1)));
    });
}
