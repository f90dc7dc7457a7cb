//! A run's results as fio's output.

use std::time::{SystemTime, UNIX_EPOCH};

use fathom_fio::output::{Disk, Results};
use fathom_fio::{Format, Invocation, Measure, Task};

/// The output in all forms that were asked for.
pub(super) fn print(
    it: &Invocation,
    tasks: &[Task],
    measures: &[Measure],
    disks: Vec<Disk>,
    idle: Vec<f64>,
) -> String {
    let results = Results {
        tasks: tasks.iter().zip(measures).collect(),
        global: it.script.global_options(),
        disks,
        now_ms: now_ms(),
        now_text: local_time(),
        terse_version: it.terse_version,
        idle,
    };
    // As in fio, whatever the order in which they were asked for.
    let order = [
        Format::Terse,
        Format::Json,
        Format::JsonPlus,
        Format::Normal,
    ];
    order
        .iter()
        .filter(|f| it.formats.contains(f))
        .map(|f| results.print(*f))
        .collect()
}

pub(super) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

/// `Fri Nov 20 21:50:43 2026`, in UTC.
fn local_time() -> String {
    fathom_telemetry::utc::text(SystemTime::now(), "%a %b %e %H:%M:%S %Y")
}
