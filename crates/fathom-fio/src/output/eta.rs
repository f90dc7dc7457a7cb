//! fio's line of progress: how many jobs run, what they do, how far they are, how fast, and how long it takes.

use fathom_telemetry::Nanos;

use super::num2str::{Unit, num2str};
use crate::measure::Measure;
use crate::plan::Task;

/// `Jobs: 1 (f=1): [R(1)][50.0%][r=2048KiB/s][r=512 IOPS][eta 00m:05s]`. `rates` are I/Os and bytes per second of reads,
/// writes and trims; `now` counts from the beginning.
pub fn progress(state: &[(&Task, Measure)], rates: [[f64; 2]; 3], now: Nanos) -> String {
    let running = |m: &Measure| m.started && m.jobs.is_empty();
    let jobs = state.iter().filter(|s| running(&s.1)).count();
    let files: usize = state
        .iter()
        .filter(|s| running(&s.1))
        .map(|s| s.0.places().count())
        .sum();
    let mut words: Vec<(char, u32)> = Vec::new();
    for (task, m) in state {
        let c = if running(m) {
            letter(task)
        } else if m.started {
            '_'
        } else {
            'P'
        };
        match words.last_mut() {
            Some(w) if w.0 == c => w.1 += 1,
            _ => words.push((c, 1)),
        }
    }
    let words: Vec<String> = words.iter().map(|(c, n)| format!("{c}({n})")).collect();
    let left = state.iter().filter_map(|(t, m)| left(t, m, now)).max();
    let share = left.map_or("-.-%".to_owned(), |l| {
        let whole = (now + l).as_secs_f64().max(f64::MIN_POSITIVE);
        format!("{:.1}%", 100.0 * now.as_secs_f64() / whole)
    });
    let terms = state.first().map(|s| &s.0.shape.terms);
    let binary = terms.is_none_or(|t| t.kb_base == 1024);
    let list = |which: usize, text: &dyn Fn(f64) -> String| -> String {
        let each = ["r", "w", "t"].iter().zip(rates);
        let shown: Vec<String> = each
            .filter(|(_, r)| r[0] > 0.0)
            .map(|(d, r)| format!("{d}={}", text(r[which])))
            .collect();
        shown.join(",")
    };
    let speed = list(1, &|v| num2str(v as u64, 4, binary, Unit::BytePerSecond));
    let iops = list(0, &|v| num2str(v as u64, 4, false, Unit::None));
    let mut line = format!("Jobs: {jobs} (f={files}): [{}][{share}]", words.join(","));
    if !speed.is_empty() {
        line += &format!("[{speed}][{iops} IOPS]");
    }
    let seconds = left.unwrap_or_default().as_secs_f64().round() as u64;
    line += "[eta ";
    if seconds >= 3600 {
        line += &format!("{:02}h:", seconds / 3600);
    }
    line + &format!("{:02}m:{:02}s]", seconds / 60 % 60, seconds % 60)
}

/// What a job does, in fio's letter.
fn letter(task: &Task) -> char {
    match task.shape.terms.rw.as_str() {
        "read" => 'R',
        "write" => 'W',
        "rw" => 'M',
        "randread" => 'r',
        "randwrite" => 'w',
        "randrw" => 'm',
        "trim" => 'D',
        _ => 'd',
    }
}

/// How long it still takes: by its time, or by its bytes so far.
fn left(task: &Task, m: &Measure, now: Nanos) -> Option<Nanos> {
    if !m.started || !m.jobs.is_empty() {
        return None;
    }
    let spec = &task.shape.spec;
    if let Some(t) = spec.time {
        return Some(t.since(m.wall));
    }
    let crate::Extent::Bytes(all) = task.shape.size else {
        return None;
    };
    let done: u64 = m.totals.iter().flatten().map(|t| t.bytes).sum();
    let all = all.saturating_mul(task.shape.loops);
    (done > 0).then(|| {
        let rest = all.saturating_sub(done) as f64 / done as f64;
        Nanos((m.wall.max(Nanos(1)).min(now).0 as f64 * rest) as u64)
    })
}
