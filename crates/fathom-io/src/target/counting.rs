//! What a device and what it is made of have counted, as a run records it.

use fathom_host::{CounterSource, Counters};
use fathom_telemetry::schema::{BelowDelta, DeviceDelta};

/// What a device counted, or the difference of two such states, as a run records it.
pub fn counted(c: Counters) -> DeviceDelta {
    DeviceDelta {
        name: c.name,
        read_ios: c.read_ios,
        read_merges: c.read_merges,
        read_bytes: c.read_bytes,
        read_ticks_ms: c.read_ticks_ms,
        write_ios: c.write_ios,
        write_merges: c.write_merges,
        write_bytes: c.write_bytes,
        write_ticks_ms: c.write_ticks_ms,
        discard_ios: c.discard_ios,
        discard_bytes: c.discard_bytes,
        flush_ios: c.flush_ios,
        busy_ms: c.busy_ms,
        ..DeviceDelta::default()
    }
}

/// Cumulative counters of a device and of what it is made of, with what this process has read from any.
pub fn count(source: &CounterSource) -> Option<DeviceDelta> {
    let c = source.read().ok()?;
    let below = source.read_below().ok()?.into_iter();
    Some(DeviceDelta {
        process_read_bytes: process_read_bytes(),
        below: below.map(step).collect(),
        ..counted(c)
    })
}

fn step(c: Counters) -> BelowDelta {
    BelowDelta {
        name: c.name,
        read_bytes: c.read_bytes,
        write_bytes: c.write_bytes,
    }
}

/// `read_bytes` of this process, of those that it started, and of ended ones that it waited for; 0 without accounting.
fn process_read_bytes() -> u64 {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let bytes = |l: &str| l.strip_prefix("read_bytes: ")?.trim().parse::<u64>().ok();
    let (mut all, mut left) = (0, vec!["self".to_owned()]);
    while let Some(process) = left.pop() {
        let text = read(format!("/proc/{process}/io"));
        all += text.lines().find_map(bytes).unwrap_or(0);
        let threads = std::fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = read(format!("{}/children", thread.path().display()));
            left.extend(children.split_whitespace().map(str::to_owned));
        }
    }
    all
}
