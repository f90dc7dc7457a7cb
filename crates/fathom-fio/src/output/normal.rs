//! fio's form for people, line by line as fio 3.33 prints it; lines that begin with `fathom:` are added.

use std::fmt::Write;

use fathom_telemetry::Histogram;
use fathom_telemetry::histogram::Moments;

use super::num2str::{Unit, num2str};
use super::{Entry, FIO_VERSION, Results, bins};
use crate::feed::lifetimes::Lifetimes;
use crate::measure::{Measure, Stat, merge};
use crate::plan::{Task, Terms};
use crate::slices::{CRITERIA, Slices};
use crate::translate::Unified;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// What is said before the jobs begin. As in fio it stands before every other form: readers look for JSON after it.
pub(super) fn head(tasks: &[Task]) -> String {
    let mut out = String::new();
    for task in tasks {
        header(&mut out, task);
    }
    let n = tasks.len();
    let _ = writeln!(
        out,
        "{FIO_VERSION}\nStarting {n} thread{}",
        if n == 1 { "" } else { "s" }
    );
    out
}

/// The whole text of all jobs, groups and disks, after the head.
pub(super) fn print(r: &Results<'_>) -> String {
    let mut out = "\n".to_owned();
    let entries = r.entries();
    for e in &entries {
        entry(&mut out, e, &entries, r);
    }
    let mut groups: Vec<u32> = entries.iter().map(|e| e.task.group).collect();
    groups.dedup();
    for g in groups {
        group(&mut out, g, &entries);
    }
    if !r.disks.is_empty() && entries.iter().any(|e| e.task.shape.terms.disk_util) {
        out.push_str("\nDisk stats (read/write):\n");
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
    let measures: Vec<&Measure> = r.tasks.iter().map(|t| t.1).collect();
    if let Some(slices) = &merge(&measures).slices {
        act(&mut out, slices);
    }
    if let Some((system, each)) = r.idle.split_first() {
        let _ = writeln!(out, "\nCPU idleness:\n  system: {system:.2}%");
        if !each.is_empty() {
            let each: Vec<String> = each.iter().map(|v| format!("{v:.2}%")).collect();
            let _ = writeln!(out, "  percpu: {}", each.join(", "));
        }
    }
    out
}

/// The verdict of `--profile=act`. fio prints each share twice, as that of transactions and that of the device.
fn act(out: &mut String, slices: &Slices) {
    out.push_str(
        "        trans                   device\n        %>(ms)                  %>(ms)\n slice",
    );
    for (ms, _) in CRITERIA.iter().chain(&CRITERIA) {
        let _ = write!(out, "\t {ms:2}");
    }
    out.push_str("\n -----  -----   -----  ------   -----   -----  ------\n");
    for (i, hour) in slices.hours().iter().enumerate() {
        let _ = write!(out, "   {:2}", i + 1);
        for percent in hour.percent().iter().chain(&hour.percent()) {
            let _ = write!(out, "\t{percent:2.2}");
        }
        out.push('\n');
    }
    let verdict = if slices.pass() { "PASSED" } else { "FAILED" };
    let _ = writeln!(out, "\nact: test complete, device(s): {verdict}");
}

fn header(out: &mut String, task: &Task) {
    let terms = &task.shape.terms;
    match task.turn {
        0 => {}
        1 => return out.push_str("...\n"),
        _ => return,
    }
    let size = |n: u64| num2str(n, terms.digits, terms.kb_base == 1024, Unit::Byte);
    let range = |(low, high): (u64, u64)| format!("{}-{}", size(low), size(high));
    let _ = writeln!(
        out,
        "{}: (g={}): rw={}, bs=(R) {}, (W) {}, (T) {}, ioengine={}, iodepth={}",
        task.name,
        task.group,
        terms.rw,
        range(terms.blocks[0]),
        range(terms.blocks[1]),
        range(terms.blocks[2]),
        terms.engine,
        terms.depth
    );
}

fn entry(out: &mut String, e: &Entry<'_>, all: &[Entry<'_>], r: &Results<'_>) {
    let m = &e.measure;
    let terms = &e.task.shape.terms;
    if m.totals.iter().take(3).flatten().all(|t| t.ios == 0) {
        // Like fio, nothing of a job that did nothing; but what stands against it.
        return flags(out, m);
    }
    let error = match m.error {
        0 => String::new(),
        n => format!(" ({})", super::strerror(n)),
    };
    let _ = writeln!(
        out,
        "{}: (groupid={}, jobs={}): err={:2}{error}: pid={}: {}",
        e.task.name,
        e.task.group,
        e.members,
        m.error,
        std::process::id(),
        r.now_text
    );
    if !terms.description.is_empty() {
        let _ = writeln!(out, "  Description  : [{}]", terms.description);
    }
    let mixed = terms.unified == Unified::Mixed;
    for (d, name) in DIRECTIONS.iter().enumerate() {
        direction(
            out,
            m,
            d,
            if mixed { "mixed" } else { name },
            terms,
            share_base(e, all, d),
        );
    }
    if terms.unified == Unified::Both {
        let whole = super::unify(m.clone());
        let base = (0..3).map(|d| share_base(e, all, d)).sum();
        direction(out, &whole, 0, "mixed", terms, base);
    }
    spread(out, m);
    sync(out, m, terms);
    cpu(out, e);
    batches(out, m);
    if terms.continue_on_error {
        let _ = writeln!(
            out,
            "     errors    : total={}, first_error={}/<{}>",
            m.errors,
            m.error,
            super::strerror(m.error)
        );
    }
    let (target, percentile, window) = terms.latency;
    let depth = match m.latency_depth {
        0 => u64::from(terms.depth),
        found => found,
    };
    let _ = writeln!(
        out,
        "     latency   : target={target}, window={window}, percentile={percentile:.2}%, depth={depth}"
    );
    if let Some(blocks) = &m.lifetimes {
        lifetimes(out, blocks, &terms.percentiles);
    }
    if let Some(s) = &m.steady {
        steady(out, s, terms);
    }
    flags(out, m);
}

fn cpu(out: &mut String, e: &Entry<'_>) {
    let m = &e.measure;
    let ms = m.runtime_ms();
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
}

/// Depths and batches, and how many I/Os there were.
fn batches(out: &mut String, m: &Measure) {
    for (label, names, counts) in [
        ("  IO depths    ", bins::DEPTHS, &m.batches.depth),
        ("     submit    ", bins::BATCHES, &m.batches.submitted),
        ("     complete  ", bins::BATCHES, &m.batches.completed),
    ] {
        let list: Vec<String> = names
            .iter()
            .zip(bins::shares(counts))
            .map(|(k, v)| format!("{k}={v:.1}%"))
            .collect();
        let _ = writeln!(out, "{label}: {}", list.join(", "));
    }
    let get = |d: usize, f: fn(&crate::Totals) -> u64| m.totals[d].as_deref().map_or(0, f);
    let _ = writeln!(
        out,
        "     issued rwts: total={},{},{},{} short={},{},{},0 dropped={},0,0,0",
        m.issued(0),
        m.issued(1),
        m.issued(2),
        get(3, |t| t.ios),
        get(0, |t| t.short),
        get(1, |t| t.short),
        get(2, |t| t.short),
        m.dropped,
    );
}

/// What stands against it.
fn flags(out: &mut String, m: &Measure) {
    for flag in m.jobs.iter().flat_map(|j| &j.flags) {
        let _ = writeln!(out, "  fathom: {}; {}", flag.detail, flag.remedy);
    }
}

/// How often blocks were trimmed, in lines of fio's length.
fn lifetimes(out: &mut String, blocks: &Lifetimes, list: &[f64]) {
    out.push_str("  block lifetime percentiles :\n   |");
    let percentiles = blocks.percentiles(list);
    let mut length = 0;
    for (i, (p, trims)) in percentiles.iter().enumerate() {
        let end = if i + 1 == percentiles.len() {
            '\n'
        } else {
            ','
        };
        let word = format!(" {p:.2}th={trims}{end}");
        if length + word.len() > 75 {
            length = 0;
            out.push_str("\n   |");
        }
        length += word.len();
        out.push_str(&word);
    }
    let states: Vec<String> = blocks
        .states()
        .iter()
        .map(|(state, count)| format!(" {state}={count}"))
        .collect();
    let _ = writeln!(out, "        states               :{}", states.join(","));
}

/// Bytes per second of a group in one direction, to which a job's share refers.
fn share_base(e: &Entry<'_>, all: &[Entry<'_>], d: usize) -> f64 {
    let group = all.iter().filter(|o| o.task.group == e.task.group);
    let bytes: u64 = group
        .clone()
        .map(|o| o.measure.totals[d].as_deref().map_or(0, |t| t.bytes))
        .sum();
    let longest = group.map(|o| o.measure.runtime_of(d)).max().unwrap_or(1);
    bytes as f64 * 1000.0 / longest.max(1) as f64
}

fn direction(out: &mut String, m: &Measure, d: usize, name: &str, terms: &Terms, group: f64) {
    let ms = m.runtime_of(d);
    let Some(t) = m.totals[d].as_deref().filter(|t| t.ios > 0 && ms > 0) else {
        return;
    };
    let binary = terms.kb_base == 1024;
    let speed = t.bytes.saturating_mul(1000) / ms;
    let iops = t.ios.saturating_mul(1000) / ms;
    let _ = writeln!(
        out,
        "  {name}: IOPS={}, BW={} ({})({}/{ms}msec){}",
        num2str(iops, terms.digits, false, Unit::None),
        num2str(speed, terms.digits, binary, terms.unit()),
        num2str(speed, terms.digits, !binary, terms.unit()),
        num2str(t.bytes, terms.digits, binary, Unit::Byte),
        if name == "write" {
            format!("; {} zone resets", m.zone_resets)
        } else {
            String::new()
        }
    );
    for (label, h) in [
        ("slat", &t.submit),
        ("clat", &t.service),
        (" lat", &t.response),
    ] {
        latency(out, label, h);
    }
    for (label, h, shown) in [
        ("slat", &t.submit, terms.percentiles_of[0]),
        ("clat", &t.service, terms.percentiles_of[1]),
        ("lat", &t.response, terms.percentiles_of[2]),
    ] {
        if shown && !h.is_empty() {
            percentiles(out, label, h, terms);
        }
    }
    if t.bandwidth.n > 0 {
        bandwidth(out, &t.bandwidth, group, terms);
    }
    if t.rate.n > 0 {
        let s = &t.rate;
        let _ = writeln!(
            out,
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            s.min as u64,
            s.max as u64,
            s.mean,
            s.deviation(),
            s.n
        );
    }
}

fn bandwidth(out: &mut String, s: &Stat, group: f64, terms: &Terms) {
    let percent = if group > 1024.0 {
        (s.mean.floor() * 100.0 / (group / 1024.0)).min(100.0)
    } else {
        100.0
    };
    let base = terms.kb_base as f64;
    let bits = terms.unit_base == 1;
    let mut unit = match (bits, terms.kb_base) {
        (true, 1024) => "Kibit",
        (true, _) => "kbit",
        (false, 1024) => "KiB",
        (false, _) => "kB",
    };
    let mut scale = if bits { 8.0 } else { 1.0 };
    if s.mean * scale > base * base {
        scale /= base;
        unit = if bits { "Mibit" } else { "MiB" };
    }
    let _ = writeln!(
        out,
        "   bw ({unit:>5}/s): min={:5}, max={:5}, per={percent:.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
        (s.min * scale) as u64,
        (s.max * scale) as u64,
        s.mean * scale,
        s.deviation() * scale,
        s.n
    );
}

/// Unit of a latency and its scale in ns: fio moves on where minimum, maximum and deviation are large.
fn unit(m: &Moments) -> (&'static str, u64) {
    let deviation = m.stddev().unwrap_or(0.0);
    if m.min > 2_000_000 && m.max > 99_999_999 && deviation > 1e6 {
        ("msec", 1_000_000)
    } else if m.min > 2000 && m.max > 99_999 && deviation > 1e3 {
        ("usec", 1000)
    } else {
        ("nsec", 1)
    }
}

fn latency(out: &mut String, label: &str, h: &Histogram) {
    if h.is_empty() {
        return;
    }
    let m = h.moments();
    let (name, scale) = unit(m);
    let _ = writeln!(
        out,
        "    {label} ({name}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        num2str(m.min / scale, 6, false, Unit::None),
        num2str(m.max / scale, 6, false, Unit::None),
        m.mean().unwrap_or(0.0) / scale as f64,
        m.stddev().unwrap_or(0.0) / scale as f64
    );
}

fn percentiles(out: &mut String, label: &str, h: &Histogram, terms: &Terms) {
    let all = bins::percentiles(&bins::bins(h), &terms.percentiles);
    let (Some(low), Some(high)) = (all.iter().map(|p| p.1).min(), all.iter().map(|p| p.1).max())
    else {
        return;
    };
    let (name, steps) = if low > 2_000_000 && high > 99_999_999 {
        ("msec", 2)
    } else if low > 2000 && high > 99_999 {
        ("usec", 1)
    } else {
        ("nsec", 0)
    };
    let _ = write!(out, "    {label} percentiles ({name}):\n     |");
    let width = (high / 1000u64.pow(steps)).to_string().len().max(5);
    let precision = terms.percentile_digits;
    let per_line = (73 / (precision + 10 + width)).max(1);
    for (i, (p, v)) in all.iter().enumerate() {
        if i > 0 && i % per_line == 0 {
            out.push_str("     |");
        }
        let v = (0..steps).fold(*v, |v, _| v.div_ceil(1000));
        let last = i + 1 == all.len();
        let end = if last { "\n" } else { "," };
        let _ = write!(
            out,
            " {p:w$.precision$}th=[{v:width$}]{end}",
            w = precision + 3
        );
        if !last && i % per_line == per_line - 1 {
            out.push('\n');
        }
    }
}

fn spread(out: &mut String, m: &Measure) {
    let all = bins::distribution(m.totals.iter().take(3).flatten().map(|t| &t.service));
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

fn sync(out: &mut String, m: &Measure, terms: &Terms) {
    let Some(t) = m.totals[3].as_deref().filter(|t| !t.service.is_empty()) else {
        return;
    };
    out.push_str("  fsync/fdatasync/sync_file_range:\n");
    latency(out, "sync", &t.service);
    percentiles(out, "sync", &t.service, terms);
}

fn steady(out: &mut String, s: &crate::Steady, terms: &Terms) {
    let binary = terms.kb_base == 1024;
    let speed = s.mean(1) as u64;
    let latency = if s.judges_latency() {
        let v = s.mean(2);
        let (v, unit) = if v > 2e6 {
            (v / 1e6, "msec")
        } else if v > 2e3 {
            (v / 1e3, "usec")
        } else {
            (v, "nsec")
        };
        format!(
            ", lat={}{unit}",
            num2str(v as u64, terms.digits, false, Unit::None)
        )
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "  steadystate  : attained={}, bw={} ({}), iops={}{latency}, {}{}={:.3}{}",
        if s.attained { "yes" } else { "no" },
        num2str(speed, terms.digits, binary, terms.unit()),
        num2str(speed, terms.digits, !binary, terms.unit()),
        num2str(s.mean(0) as u64, terms.digits, false, Unit::None),
        s.word(),
        if s.is_slope() { " slope" } else { " mean dev" },
        s.criterion,
        s.unit()
    );
}

fn group(out: &mut String, group: u32, entries: &[Entry<'_>]) {
    let _ = writeln!(out, "\nRun status group {group} (all jobs):");
    for (d, name) in ["   READ", "  WRITE", "   TRIM"].iter().enumerate() {
        let mut terms = None;
        let members: Vec<(u64, u64)> = entries
            .iter()
            .filter(|e| e.task.group == group)
            .filter_map(|e| {
                let t = e.measure.totals[d].as_deref().filter(|t| t.bytes > 0)?;
                terms = Some(&e.task.shape.terms);
                Some((t.bytes, e.measure.runtime_of(d).max(1)))
            })
            .collect();
        let Some(terms) = terms else { continue };
        let bytes: u64 = members.iter().map(|m| m.0).sum();
        let longest = members.iter().map(|m| m.1).max().unwrap_or(1);
        let shortest = members.iter().map(|m| m.1).min().unwrap_or(1);
        let speeds: Vec<u64> = members
            .iter()
            .map(|(b, ms)| b.saturating_mul(1000) / ms)
            .collect();
        let (low, high) = (
            speeds.iter().copied().min().unwrap_or(0),
            speeds.iter().copied().max().unwrap_or(0),
        );
        let all = bytes.saturating_mul(1000) / longest;
        let binary = terms.kb_base == 1024;
        let speed = |n: u64, binary: bool| num2str(n, terms.digits, binary, terms.unit());
        let _ = writeln!(
            out,
            "{}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={shortest}-{longest}msec",
            if terms.unified == Unified::Mixed {
                "  MIXED"
            } else {
                name
            },
            speed(all, binary),
            speed(all, !binary),
            speed(low, binary),
            speed(high, binary),
            speed(low, !binary),
            speed(high, !binary),
            num2str(bytes, terms.digits, binary, Unit::Byte),
            num2str(bytes, terms.digits, !binary, Unit::Byte)
        );
    }
}
