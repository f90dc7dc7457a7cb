//! fio's form for people.

use std::fmt::Write;

use fathom_telemetry::Histogram;

use super::{Entry, FIO_VERSION, Results, bins};
use crate::measure::Stat;
use crate::plan::Task;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// See the module.
pub(super) fn print(r: &Results<'_>) -> String {
    let mut out = String::new();
    for (task, _) in &r.tasks {
        header(&mut out, task);
    }
    let n = r.tasks.len();
    let _ = writeln!(
        out,
        "{FIO_VERSION}\nStarting {n} thread{}\n",
        if n == 1 { "" } else { "s" }
    );
    let entries = r.entries();
    for e in &entries {
        entry(&mut out, e, r);
    }
    let mut groups: Vec<u32> = entries.iter().map(|e| e.task.group).collect();
    groups.dedup();
    for g in groups {
        group(&mut out, g, &entries);
    }
    if !r.disks.is_empty() {
        let _ = writeln!(out, "\nDisk stats (read/write):");
        for d in &r.disks {
            let x = &d.delta;
            let _ = writeln!(
                out,
                "  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:.2}%",
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
    out
}

fn header(out: &mut String, task: &Task) {
    let spec = &task.shape.spec;
    let terms = &task.shape.terms;
    let (low, high) = (spec.bs.min().0, spec.bs.max().0);
    if task.clone > 0 {
        return;
    }
    let range = format!("{low}B-{high}B");
    let _ = writeln!(
        out,
        "{}: (g={}): rw={}, bs=(R) {range}, (W) {range}, (T) {range}, ioengine={}, iodepth={}",
        task.name,
        task.group,
        spec.rw.word(),
        terms.engine,
        terms.depth
    );
}

fn entry(out: &mut String, e: &Entry<'_>, r: &Results<'_>) {
    let m = &e.measure;
    let terms = &e.task.shape.terms;
    let _ = writeln!(
        out,
        "{}: (groupid={}, jobs={}): err={:2}{}: pid={}: {}",
        e.task.name,
        e.task.group,
        e.members,
        m.error,
        if m.error == 0 {
            String::new()
        } else {
            format!(" ({})", std::io::Error::from_raw_os_error(m.error))
        },
        std::process::id(),
        r.now_text
    );
    if !terms.description.is_empty() {
        let _ = writeln!(out, "  Description  : [{}]", terms.description);
    }
    let ms = m.runtime_ms();
    for (d, name) in DIRECTIONS.iter().enumerate() {
        let Some(t) = m.totals[d].as_deref().filter(|t| t.ios > 0) else {
            continue;
        };
        let speed = t.bytes.saturating_mul(1000).checked_div(ms).unwrap_or(0);
        let iops = t.ios as f64 * 1000.0 / ms.max(1) as f64;
        let _ = writeln!(
            out,
            " {:>5}: IOPS={}, BW={} ({})({}/{ms}msec){}",
            name,
            count(iops),
            binary(speed, "/s"),
            decimal(speed, "/s"),
            binary(t.bytes, ""),
            if d == 1 { "; 0 zone resets" } else { "" }
        );
        for (label, h) in [
            ("slat", &t.submit),
            ("clat", &t.service),
            ("lat", &t.response),
        ] {
            latency(out, label, h);
        }
        for (label, h, shown) in [
            ("slat", &t.submit, terms.percentiles_of[0]),
            ("clat", &t.service, terms.percentiles_of[1]),
            ("lat", &t.response, terms.percentiles_of[2]),
        ] {
            if shown && !h.is_empty() {
                percentiles(out, label, h, &terms.percentiles);
            }
        }
        if t.bandwidth.n > 0 {
            samples(
                out,
                "bw (  KiB/s)",
                &t.bandwidth,
                Some(speed as f64 / 1024.0),
            );
            samples(out, "iops       ", &t.rate, None);
        }
    }
    spread(out, e);
    let share = |us: u64| us as f64 / 10.0 / (ms.max(1) * e.members as u64) as f64;
    let _ = writeln!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        share(m.usage.user_us),
        share(m.usage.system_us),
        m.usage.switches,
        m.usage.major_faults,
        m.usage.minor_faults
    );
    let levels = bins::depths(&m.depths);
    let _ = write!(out, "  IO depths    : ");
    for (i, (k, v)) in ["1", "2", "4", "8", "16", "32", ">=64"]
        .iter()
        .zip(levels)
        .enumerate()
    {
        let _ = write!(out, "{}{k}={v:.1}%", if i > 0 { ", " } else { "" });
    }
    let get = |d: usize, f: fn(&crate::Totals) -> u64| m.totals[d].as_deref().map_or(0, f);
    let list = |f: fn(&crate::Totals) -> u64| {
        format!("{},{},{},{}", get(0, f), get(1, f), get(2, f), get(3, f))
    };
    let _ = writeln!(
        out,
        "\n     issued rwts: total={} short={} dropped=0,0,0,0",
        list(|t| t.ios),
        list(|t| t.short)
    );
    let _ = writeln!(
        out,
        "     latency   : target=0, window=0, percentile=100.00%, depth={}",
        terms.depth
    );
    if m.errors > 0 {
        let _ = writeln!(
            out,
            "     errors    : total={}, first_error={}",
            m.errors, m.error
        );
    }
    for flag in m.jobs.iter().flat_map(|j| &j.flags) {
        let _ = writeln!(out, "  fathom: {}; {}", flag.detail, flag.remedy);
    }
    out.push('\n');
}

/// Unit of a latency, its scale in ns: fio moves on when minimum and mean allow it.
fn unit(h: &Histogram) -> (&'static str, f64) {
    let m = h.moments();
    let mean = m.mean().unwrap_or(0.0);
    if m.min > 2_000_000 && mean > 2e6 {
        ("msec", 1e6)
    } else if m.min > 2000 && mean > 2e3 {
        ("usec", 1e3)
    } else {
        ("nsec", 1.0)
    }
}

fn latency(out: &mut String, label: &str, h: &Histogram) {
    if h.is_empty() {
        return;
    }
    let m = h.moments();
    let (name, scale) = unit(h);
    let _ = writeln!(
        out,
        "    {label:>4} ({name}): min={}, max={}, avg={:.2}, stdev={:.2}",
        short(m.min as f64 / scale),
        short(m.max as f64 / scale),
        m.mean().unwrap_or(0.0) / scale,
        m.stddev().unwrap_or(0.0) / scale
    );
}

/// Whole numbers, thousands as k.
fn short(v: f64) -> String {
    if v >= 100_000.0 {
        format!("{:.0}k", v / 1000.0)
    } else {
        format!("{v:.0}")
    }
}

fn percentiles(out: &mut String, label: &str, h: &Histogram, list: &[f64]) {
    let (name, scale) = unit(h);
    let _ = writeln!(out, "    {label} percentiles ({name}):");
    let all = bins::percentiles(&bins::bins(h), list);
    let rows = all.chunks(4).count();
    for (i, row) in all.chunks(4).enumerate() {
        out.push_str("     | ");
        for (j, (p, v)) in row.iter().enumerate() {
            let comma = if i + 1 == rows && j + 1 == row.len() {
                ""
            } else {
                ", "
            };
            let _ = write!(out, "{p:5.2}th=[{:5.0}]{comma}", *v as f64 / scale);
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
}

fn samples(out: &mut String, label: &str, s: &Stat, whole: Option<f64>) {
    let percent = whole.map_or(String::new(), |w| {
        format!(", per={:.2}%", (100.0 * s.mean / w.max(1.0)).min(100.0))
    });
    let _ = writeln!(
        out,
        "   {label}: min={:>5.0}, max={:>5.0}{percent}, avg={:.2}, stdev={:.2}, samples={}",
        s.min,
        s.max,
        s.mean,
        s.deviation(),
        s.n
    );
}

fn spread(out: &mut String, e: &Entry<'_>) {
    let all = bins::distribution(
        e.measure
            .totals
            .iter()
            .take(3)
            .flatten()
            .map(|t| &t.service),
    );
    const NAMES: [&str; 12] = [
        "2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000",
    ];
    for (name, from, n) in [("nsec", 0, 10), ("usec", 10, 10), ("msec", 20, 12)] {
        let shown: Vec<String> = (0..n)
            .filter(|i| all[from + i] > 0.0)
            .map(|i| format!("{}={:.2}%", NAMES[i], all[from + i]))
            .collect();
        for line in shown.chunks(5) {
            let _ = writeln!(out, "  lat ({name})   : {}", line.join(", "));
        }
    }
}

fn group(out: &mut String, group: u32, entries: &[Entry<'_>]) {
    let _ = writeln!(out, "Run status group {group} (all jobs):");
    for (d, name) in ["READ", "WRITE", "TRIM"].iter().enumerate() {
        let members: Vec<(u64, u64)> = entries
            .iter()
            .filter(|e| e.task.group == group)
            .filter_map(|e| {
                let t = e.measure.totals[d].as_deref().filter(|t| t.bytes > 0)?;
                Some((t.bytes, e.measure.runtime_ms().max(1)))
            })
            .collect();
        if members.is_empty() {
            continue;
        }
        let bytes: u64 = members.iter().map(|m| m.0).sum();
        let longest = members.iter().map(|m| m.1).max().unwrap_or(1);
        let shortest = members.iter().map(|m| m.1).min().unwrap_or(1);
        let speeds: Vec<u64> = members.iter().map(|(b, ms)| b * 1000 / ms).collect();
        let (low, high) = (
            speeds.iter().copied().min().unwrap_or(0),
            speeds.iter().copied().max().unwrap_or(0),
        );
        let all = bytes * 1000 / longest;
        let _ = writeln!(
            out,
            "{name:>7}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={shortest}-{longest}msec",
            binary(all, "/s"),
            decimal(all, "/s"),
            binary(low, "/s"),
            binary(high, "/s"),
            decimal(low, "/s"),
            decimal(high, "/s"),
            binary(bytes, ""),
            decimal(bytes, "")
        );
    }
}

/// Four significant digits.
fn digits(v: f64) -> String {
    let decimals = match v {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{v:.decimals$}")
}

fn scaled(n: u64, base: f64, units: [&str; 5], tail: &str) -> String {
    let mut v = n as f64;
    let mut i = 0;
    while v >= base * 9.999 && i + 1 < units.len() || v >= base && i == 0 {
        v /= base;
        i += 1;
        if v < base {
            break;
        }
    }
    if i == 0 {
        format!("{n}{}{tail}", units[0])
    } else {
        format!("{}{}{tail}", digits(v), units[i])
    }
}

/// `31.8MiB/s`.
fn binary(n: u64, tail: &str) -> String {
    scaled(n, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"], tail)
}

/// `33.3MB/s`.
fn decimal(n: u64, tail: &str) -> String {
    scaled(n, 1000.0, ["B", "kB", "MB", "GB", "TB"], tail)
}

/// `8131`, `12.3k`.
fn count(v: f64) -> String {
    if v >= 10_000.0 {
        format!("{}k", digits(v / 1000.0))
    } else {
        format!("{v:.0}")
    }
}
