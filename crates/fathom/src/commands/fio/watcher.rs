//! What a task's windows become while it runs: its measure, its logs, and its end where it is steady or too slow.

use std::sync::Mutex;

use fathom_fio::output::LogFiles;
use fathom_fio::{Measure, Rusage, Slices, Task};
use fathom_io::driver::{ClosedWindow, Progress, ThreadUsage};
use fathom_io::load::Batches;
use fathom_io::{Control, Observer};
use fathom_telemetry::{Nanos, say};

use super::eta::lock;
use super::ramp::Ramp;

/// Collects windows into the measure and the logs.
pub(super) struct Watcher<'a> {
    pub(super) measure: &'a Mutex<Measure>,
    pub(super) task: &'a Task,
    pub(super) logs: Option<LogFiles>,
    pub(super) all: &'a Control,
    pub(super) own: &'a Control,
    pub(super) least: Option<Least>,
    pub(super) ramp: Option<Ramp<'a>>,
}

/// `rate_min`: whether a task reaches what it must.
pub(super) struct Least {
    bytes: [f64; 3],
    cycle: Nanos,
    covered: Nanos,
    done: [u64; 3],
    pub(super) missed: bool,
}

/// What fio calls the error of a job that `--profile=act` ends.
const EPERM: i32 = 1;

/// A job may take so long to come up to its rate, as in fio.
const START_UP: i64 = 2_000_000_000;

impl Least {
    pub(super) fn new(bytes: [f64; 3], cycle: Nanos) -> Self {
        Self {
            bytes,
            cycle,
            covered: Nanos::ZERO,
            done: [0; 3],
            missed: false,
        }
    }
    /// Takes a window; the direction that fell behind, with its bytes per second.
    fn window(&mut self, w: &ClosedWindow<'_>) -> Option<(usize, f64)> {
        self.covered += w.width;
        for (sum, d) in self.done.iter_mut().zip(&w.window.directions) {
            *sum += d.as_ref().map_or(0, |d| d.bytes);
        }
        if self.covered < self.cycle {
            return None;
        }
        let time = std::mem::take(&mut self.covered).as_secs_f64();
        let done = std::mem::take(&mut self.done);
        if w.start_ns < START_UP {
            return None;
        }
        (0..3)
            .map(|d| (d, done[d] as f64 / time))
            .find(|(d, speed)| *speed < self.bytes[*d])
    }
}

impl Observer for Watcher<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        // Ramp-up is not measured.
        if w.start_ns < 0 {
            return;
        }
        if let Some(r) = &mut self.ramp
            && r.takes(w)
        {
            return;
        }
        let mut m = lock(self.measure);
        m.window(w.width, w.window, self.task.shape.terms.sample);
        if let Some(s) = &mut m.steady
            && s.window(w.start_ns, w.width, w.window)
        {
            self.own.interrupt();
        }
        if !m.failed && m.slices.as_ref().is_some_and(Slices::has_failed) {
            m.fail(EPERM);
            say!(
                "fathom: job '{}': an hour has more slow I/Os than ACT allows",
                self.task.name
            );
            self.own.interrupt();
        }
        let runtime = self.ramp.as_ref().and_then(|r| r.runtime);
        if runtime.is_some_and(|time| m.wall >= time) {
            self.own.interrupt();
        }
        drop(m);
        if let Some(logs) = &mut self.logs {
            logs.window(w.start_ns, w.width, w.window);
        }
        if let Some(l) = &mut self.least
            && !l.missed
            && let Some((direction, speed)) = l.window(w)
        {
            l.missed = true;
            say!(
                "fathom: job '{}': rate_min={:.0} bytes/s is not met: {} reach {speed:.0}",
                self.task.name,
                l.bytes[direction],
                ["reads", "writes", "trims"][direction]
            );
            self.own.interrupt();
        }
    }
    fn progress(&mut self, _progress: &Progress) {
        if self.all.interrupted() {
            self.own.interrupt();
        }
    }
    fn thread_ended(&mut self, _job: usize, u: &ThreadUsage, batches: &Batches) {
        let mut measure = lock(self.measure);
        measure.batches.add(batches);
        let usage = &mut measure.usage;
        *usage = Rusage {
            user_us: usage.user_us + u.user.0 / 1000,
            system_us: usage.system_us + u.system.0 / 1000,
            switches: usage.switches + u.switches,
            major_faults: usage.major_faults + u.major_faults,
            minor_faults: usage.minor_faults + u.minor_faults,
        };
    }
}
