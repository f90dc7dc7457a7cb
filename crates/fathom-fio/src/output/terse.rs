//! fio's terse form, versions 2 to 5: one line of semicolons per job. Latencies are in µs, bandwidth in KiB/s.

use std::fmt::Write;

use fathom_telemetry::Histogram;

use super::{FIO_VERSION, Results, bins};
use crate::measure::{Measure, Stat};
use crate::plan::Terms;

/// Percentiles that a line always has room for.
const PERCENTILES: usize = 20;

/// One line per job or group, each ending with a newline.
pub(super) fn print(r: &Results<'_>) -> String {
    let mut out = String::new();
    for e in r.entries() {
        let (m, terms) = (&e.measure, &e.task.shape.terms);
        let version = r.terse_version;
        let _ = write!(out, "{version};");
        if version > 2 {
            let _ = write!(out, "{FIO_VERSION};");
        }
        let _ = write!(out, "{};{};{}", e.task.name, e.task.group, m.error);
        let directions = if version == 3 { 2 } else { 3 };
        for d in 0..directions {
            direction(&mut out, m, d, terms, version);
        }
        let ms = (m.runtime_ms() * e.members as u64).max(1) as f64;
        let _ = write!(
            out,
            ";{:.6}%;{:.6}%;{};{};{}",
            m.usage.user_us as f64 / 10.0 / ms,
            m.usage.system_us as f64 / 10.0 / ms,
            m.usage.switches,
            m.usage.major_faults,
            m.usage.minor_faults
        );
        for v in bins::shares(&m.batches.depth) {
            let _ = write!(out, ";{v:.1}%");
        }
        let spread = bins::distribution(m.totals.iter().take(3).flatten().map(|t| &t.service));
        // Below a microsecond counts as up to 2 µs.
        let mut shown = spread[10..].to_vec();
        if let Some(first) = shown.first_mut() {
            *first += spread[..10].iter().sum::<f64>();
        }
        for v in shown {
            let _ = write!(out, ";{v:.2}%");
        }
        if terms.disk_util && version > 2 {
            for d in &r.disks {
                let x = &d.delta;
                let _ = write!(
                    out,
                    ";{};{};{};{};{};{};{};{};{:.2}%",
                    x.name,
                    x.read_ios,
                    x.write_ios,
                    x.read_merges,
                    x.write_merges,
                    x.read_ticks_ms,
                    x.write_ticks_ms,
                    d.in_queue_ms(),
                    d.utilization()
                );
            }
        }
        if terms.continue_on_error {
            let _ = write!(out, ";{};{}", m.errors, m.error);
        }
        if !terms.description.is_empty() {
            let line = if version == 2 { "\n" } else { "" };
            let _ = write!(out, "{line};{}", terms.description);
        }
        out.push('\n');
    }
    out
}

fn direction(out: &mut String, m: &Measure, d: usize, terms: &Terms, version: u32) {
    let empty = Histogram::default();
    let t = m.totals[d].as_deref();
    let (ios, bytes) = t.map_or((0, 0), |t| (t.ios, t.bytes));
    let ms = m.runtime_of(d);
    let rate = |n: u64| n.saturating_mul(1000).checked_div(ms).unwrap_or(0);
    let _ = write!(
        out,
        ";{};{};{};{ms}",
        bytes >> 10,
        rate(bytes) >> 10,
        rate(ios)
    );
    let (submit, service, response) = t.map_or((&empty, &empty, &empty), |t| {
        (&t.submit, &t.service, &t.response)
    });
    moments(out, submit);
    moments(out, service);
    let mut left = PERCENTILES;
    // Those of the total latency where they were asked for.
    let shown = match terms.percentiles_of {
        [_, _, true] => response,
        [_, true, _] => service,
        _ => &empty,
    };
    if !shown.is_empty() {
        for (p, v) in bins::percentiles(&bins::bins(shown), &terms.percentiles)
            .into_iter()
            .take(PERCENTILES)
        {
            let _ = write!(out, ";{p:.6}%={}", v / 1000);
            left -= 1;
        }
    }
    out.extend(std::iter::repeat_n(";0%=0", left));
    moments(out, response);
    let s = t.map_or_else(Stat::default, |t| t.bandwidth);
    let mean = if ms > 0 {
        rate(bytes) as f64 / 1024.0
    } else {
        0.0
    };
    let share = if s.n > 0 && mean > 0.0 {
        (100.0 * s.mean / mean).min(100.0)
    } else {
        0.0
    };
    let min = if s.n > 0 { s.min as u64 } else { 0 };
    let _ = write!(
        out,
        ";{min};{};{share:.6}%;{:.6};{:.6}",
        s.max as u64,
        s.mean,
        s.deviation()
    );
    if version == 5 {
        let i = t.map_or_else(Stat::default, |t| t.rate);
        let min = if i.n > 0 { i.min as u64 } else { 0 };
        let _ = write!(
            out,
            ";{};{min};{};{:.6};{:.6};{}",
            s.n,
            i.max as u64,
            i.mean,
            i.deviation(),
            i.n
        );
    }
}

fn moments(out: &mut String, h: &Histogram) {
    let m = h.moments();
    let min = if m.count > 0 { m.min / 1000 } else { 0 };
    let _ = write!(
        out,
        ";{min};{};{:.6};{:.6}",
        m.max / 1000,
        m.mean().unwrap_or(0.0) / 1e3,
        m.stddev().unwrap_or(0.0) / 1e3
    );
}
