//! When I/Os start, what makes them durable, what they carry, where they run.

use fathom_io::JobSpec;
use fathom_io::job::{Arrival, Burst, Each, SyncPolicy};
use fathom_telemetry::{Bytes, Nanos};

use crate::FioError;
use crate::section::Section;

pub(super) fn durability(s: &Section, spec: &mut JobSpec) -> Result<(), FioError> {
    if !spec.rw.writes() {
        return Ok(());
    }
    let number = |name| s.number(name).unwrap_or(0).min(u64::from(u32::MAX)) as u32;
    let policy = SyncPolicy {
        each: match s.get("sync") {
            Some("sync" | "1") => Each::Sync,
            Some("dsync") => Each::Fua,
            _ => Each::Plain,
        },
        fsync: number("fsync"),
        fdatasync: number("fdatasync"),
        range: sync_file_range(s)?,
        open_end: true,
    };
    spec.sync = SyncPolicy {
        open_end: policy.has_calls(),
        ..policy
    };
    Ok(())
}

/// `wait_before,write:8`: the kernel's flags, and after how many writes.
fn sync_file_range(s: &Section) -> Result<(u8, u32), FioError> {
    let Some(text) = s.text("sync_file_range") else {
        return Ok((0, 0));
    };
    let (words, every) = text.split_once(':').unwrap_or((text, "1"));
    let flag = |word: &str| match word.trim() {
        "wait_before" => Some(1),
        "write" => Some(2),
        "wait_after" => Some(4),
        _ => None,
    };
    let flags = words
        .split(',')
        .try_fold(0, |all, word| Some(all | flag(word)?));
    flags.zip(every.trim().parse().ok()).ok_or_else(|| {
        let expected = "expected wait_before, write, wait_after, with commas between and :N behind";
        s.invalid(
            "sync_file_range",
            format!("'{text}' is not possible: {expected}"),
        )
    })
}

pub(super) fn pace(s: &Section, spec: &mut JobSpec, thinks_apart: bool) -> Result<(), FioError> {
    let job = &s.name;
    let sum = |values: [u64; 3]| -> (u64, f64) {
        match (spec.rw.reads(), spec.rw.writes()) {
            (true, true) => {
                let total = values[0].saturating_add(values[1]);
                (total, 100.0 * values[0] as f64 / total.max(1) as f64)
            }
            (true, false) => (values[0], 100.0),
            (false, true) => (values[1], 0.0),
            (false, false) => (values[2], 0.0),
        }
    };
    let mean_block = {
        let weight: f64 = spec.bs.0.iter().map(|b| b.1).sum();
        spec.bs.0.iter().map(|(b, w)| b.0 as f64 * w).sum::<f64>() / weight.max(f64::MIN_POSITIVE)
    };
    let by_ios = s.per_direction("rate_iops").map(sum).filter(|r| r.0 > 0);
    let by_bytes = s.per_direction("rate").map(sum).filter(|r| r.0 > 0);
    let rate = match (by_ios, by_bytes) {
        (Some(_), Some(_)) => {
            return Err(FioError::value(
                job,
                "rate",
                "it excludes rate_iops: choose one",
            ));
        }
        (Some((n, share)), None) => Some((n as f64, share)),
        (None, Some((n, share))) => Some((n as f64 / mean_block, share)),
        (None, None) => None,
    };
    let think = if thinks_apart {
        0
    } else {
        s.nanos("thinktime").unwrap_or(0)
    };
    if let Some((rate, share)) = rate {
        if think > 0 {
            return Err(FioError::unsupported(
                job,
                "thinktime with rate",
                "choose one of them",
            ));
        }
        spec.rate = Some(rate);
        spec.arrival = match s.get("rate_process") {
            Some("poisson") => Arrival::Poisson,
            _ => Arrival::Constant,
        };
        if spec.rw.reads() && spec.rw.writes() {
            spec.read_share = share;
        }
    } else if think > 0 {
        spec.burst = Some(Burst {
            ios: s.number("thinktime_blocks").unwrap_or(1).max(1),
            bytes: 0,
            idle: Nanos(think),
        });
    }
    Ok(())
}

/// What a job of the engine cpuio does again and again: the length of one cycle, and the part of it in which a
/// processor is kept busy; `None` for other engines.
pub(super) fn busy(s: &Section) -> Result<Option<(Nanos, Nanos)>, FioError> {
    if s.engine() != "cpuio" {
        return Ok(None);
    }
    let load = s.number("cpuload").unwrap_or(0).min(100);
    if load == 0 {
        return Err(s.invalid(
            "cpuload",
            "cpuio needs the share of time in which a processor is kept busy, such as cpuload=50",
        ));
    }
    // At least a microsecond, so that time goes on.
    let micros = s.number("cpuchunks").unwrap_or(50_000).clamp(1, 1 << 31);
    let spin = micros * 1000;
    Ok(Some((Nanos(spin * 100 / load), Nanos(spin))))
}

/// The least that each direction must reach, as bytes per second, and over which time that is judged.
pub(super) fn rate_min(s: &Section, spec: &JobSpec) -> Option<([f64; 3], Nanos)> {
    let bytes = s.per_direction("rate_min").map(|v| v.map(|n| n as f64));
    let ios = s
        .per_direction("rate_iops_min")
        .map(|v| v.map(|n| n as f64 * spec.bs.min().0 as f64));
    let cycle = s.positive("rate_cycle").unwrap_or(1000);
    bytes
        .or(ios)
        .filter(|v| v.iter().any(|n| *n > 0.0))
        .map(|v| (v, Nanos::from_millis(cycle)))
}

pub(super) fn content(s: &Section, spec: &mut JobSpec) {
    spec.compress = if s.flag("zero_buffers", false) {
        100.0
    } else {
        s.number("buffer_compress_percentage").unwrap_or(0).min(100) as f64
    };
    spec.compress_chunk = Bytes(compress_chunk(s).max(16));
    spec.duplicate = s.number("dedupe_percentage").unwrap_or(0).min(100) as f64;
    // How many blocks a working set has shows when the size is known.
    spec.duplicate_of = 0;
    spec.duplicate_shared = s.flag("dedupe_global", false);
    let plain = spec.compress == 0.0 && spec.duplicate == 0.0;
    let kept = plain && !s.flag("refill_buffers", false);
    spec.scramble = kept && s.flag("scramble_buffers", true);
    spec.same_data = kept && !spec.scramble;
}

/// Compressible and other bytes alternate in so many.
pub(super) fn compress_chunk(s: &Section) -> u64 {
    s.positive("buffer_compress_chunk").unwrap_or(512)
}

/// Share of the size from which duplicates are taken, percent (`dedupe_mode=working_set`).
pub(super) fn working_set(s: &Section) -> Option<u64> {
    (s.get("dedupe_mode") == Some("working_set")).then(|| {
        s.number("dedupe_working_set_percentage")
            .unwrap_or(5)
            .min(100)
    })
}

pub(super) fn cpus(s: &Section, clone: u32) -> Result<Vec<u32>, FioError> {
    let mut list = Vec::new();
    if let Some(text) = s.get("cpus_allowed") {
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let bad = || {
                s.invalid(
                    "cpus_allowed",
                    format!("'{part}' is not a processor: expected 0 or 0-3"),
                )
            };
            let (a, b): (u32, u32) = (
                a.trim().parse().map_err(|_| bad())?,
                b.trim().parse().map_err(|_| bad())?,
            );
            if b > 65_535 {
                return Err(bad());
            }
            list.extend(a..=b);
        }
    } else if let Some(mask) = s.number("cpumask") {
        list.extend((0..64).filter(|i| mask >> i & 1 == 1));
    }
    if list.is_empty() {
        list = super::terms_of_thread::node_processors(s)?;
    }
    if !list.is_empty() {
        let turn = clone as usize % list.len();
        list.rotate_left(turn);
    }
    Ok(list)
}

/// How I/Os are handed over and taken back: as fio does it, by default one by one.
pub(super) fn hand_over(s: &Section, spec: &mut JobSpec) {
    let depth = u64::from(spec.qd);
    let of = |name: &str| s.number(name);
    // 0, and more than the depth, stand for the depth.
    let submit = of("iodepth_batch").unwrap_or(1);
    let submit = if submit == 0 { depth } else { submit };
    let least = of("iodepth_batch_complete_min").unwrap_or(1).max(1);
    // A full queue is drained to this depth before it is filled again.
    let drain = match of("iodepth_low") {
        Some(low) if low > 0 => depth.saturating_sub(low).max(1),
        _ => 1,
    };
    let least = least.max(drain).clamp(1, depth);
    let most = of("iodepth_batch_complete_max").unwrap_or(0).max(least);
    spec.submit_batch = submit.clamp(1, depth) as u32;
    spec.batch = least as u32;
    spec.complete_max = most.clamp(1, depth) as u32;
}
