//! fio's forms of output: JSON, JSON with histograms, terse version 3, text, logs.

mod bins;
mod clients;
mod eta;
mod histlog;
mod json;
mod logs;
mod normal;
pub(crate) mod num2str;
mod packed;
mod side;
mod terse;

use fathom_telemetry::Nanos;
use fathom_telemetry::schema::DeviceDelta;

pub use crate::aux_files::{Outputs, is_log, is_output, is_state, is_text, named};
pub use clients::{Answer, several, text as several_text};
pub use eta::progress;
pub use logs::{EachLog, LogFiles};
pub use packed::inflate;
pub use side::{COMMANDS, text_of};

use crate::cmdline::Format;
use crate::measure::{Measure, merge};
use crate::plan::Task;
use crate::translate::Unified;

/// The version of fio whose output this is.
pub const FIO_VERSION: &str = "fio-3.33";

/// A device behind the targets, over the whole script.
#[derive(Debug, Clone)]
pub struct Disk {
    /// What it counted.
    pub delta: DeviceDelta,
    /// Over so long.
    pub time: Nanos,
}

impl Disk {
    /// Busy time in percent.
    fn utilization(&self) -> f64 {
        let ms = self.time.as_secs_f64() * 1e3;
        if ms > 0.0 {
            (100.0 * self.delta.busy_ms as f64 / ms).min(100.0)
        } else {
            0.0
        }
    }
    fn in_queue_ms(&self) -> u64 {
        self.delta.read_ticks_ms + self.delta.write_ticks_ms
    }
}

/// Everything that an output shows.
#[derive(Debug)]
pub struct Results<'a> {
    /// Tasks with their measures, in order.
    pub tasks: Vec<(&'a Task, &'a Measure)>,
    /// Options of `[global]`.
    pub global: Option<Vec<(String, String)>>,
    /// Devices.
    pub disks: Vec<Disk>,
    /// Now, ms since 1970.
    pub now_ms: u64,
    /// Now in words, as ctime prints it.
    pub now_text: String,
    /// Version of the terse form.
    pub terse_version: u32,
    /// Idle share in percent: of the system, then of each processor where that was asked for.
    pub idle: Vec<f64>,
}

/// The lines of the form for people that stand before all else: a line per job, the version, how many jobs start.
pub fn head(tasks: &[Task]) -> String {
    normal::head(tasks)
}

/// One entry of the output: a task, or a group of them.
struct Entry<'a> {
    task: &'a Task,
    measure: Measure,
    /// Tasks in it.
    members: usize,
}

impl Results<'_> {
    /// Prints in one form.
    pub fn print(&self, format: Format) -> String {
        match format {
            Format::Json => json::print(self, false),
            Format::JsonPlus => json::print(self, true),
            Format::Terse => terse::print(self),
            Format::Normal => normal::print(self),
        }
    }

    /// Tasks as the output shows them: those of a group that reports together become one.
    fn entries(&self) -> Vec<Entry<'_>> {
        let mut out: Vec<(&Task, Vec<&Measure>)> = Vec::new();
        for (task, measure) in self.tasks.iter().filter(|t| t.0.shape.terms.stats) {
            let joins = task.shape.terms.group_reporting
                && out.last().is_some_and(|(first, _)| {
                    first.group == task.group && first.shape.terms.group_reporting
                });
            match out.last_mut() {
                Some((_, members)) if joins => members.push(measure),
                _ => out.push((task, vec![measure])),
            }
        }
        out.into_iter()
            .map(|(task, members)| {
                let mut measure = if members.len() == 1 {
                    members[0].clone()
                } else {
                    merge(&members)
                };
                let [slat, clat, lat] = task.shape.terms.disabled;
                // Total latency as fio counts it begins at the actual start; under a rate the wait
                // for it is shown under the key `fathom` alone.
                for t in measure.totals.iter_mut().flatten() {
                    if measure.open_loop {
                        t.response = t.service.clone();
                        t.submit = fathom_telemetry::Histogram::default();
                    }
                    if task.shape.terms.no_samples {
                        (t.bandwidth, t.rate) = Default::default();
                    }
                    if slat || task.shape.terms.synchronous {
                        t.submit = fathom_telemetry::Histogram::default();
                    }
                    if clat {
                        t.service = fathom_telemetry::Histogram::default();
                    }
                    if lat {
                        t.response = fathom_telemetry::Histogram::default();
                    }
                }
                if task.shape.terms.unified == Unified::Mixed {
                    measure = unify(measure);
                }
                Entry {
                    task,
                    measure,
                    members: members.len(),
                }
            })
            .collect()
    }
}

/// The system's words for an error, without its number.
fn strerror(errno: i32) -> String {
    if errno == 0 {
        return "Success".into();
    }
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Reads, writes and trims together, in the place of reads.
fn unify(m: Measure) -> Measure {
    let mut parts: Vec<Measure> = Vec::new();
    let (wall, sync) = (m.wall, m.totals[3].clone());
    let longest = (0..3).map(|d| m.runtime_of(d)).max();
    let mut rest = m.clone();
    rest.all_take(longest.unwrap_or(0));
    for t in m.totals.into_iter().take(3).flatten() {
        parts.push(Measure {
            totals: [Some(t), None, None, None],
            wall,
            ..Measure::default()
        });
    }
    let joined = merge(&parts.iter().collect::<Vec<_>>());
    rest.totals = joined.totals;
    rest.totals[3] = sync;
    rest
}
