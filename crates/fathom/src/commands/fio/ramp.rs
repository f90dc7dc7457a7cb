//! `ramp_size`: the first bytes of a job, or of its group, are done and not measured.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::anyhow;
use fathom_fio::{FOR_EVER, Task};
use fathom_io::driver::{ClosedWindow, PlannedJob};
use fathom_telemetry::Nanos;

use crate::exit::{Failure, failed};

/// Bytes of each group's ramp so far, by the group's number or, without group_reporting, the task's.
#[derive(Default)]
pub(super) struct Ramps(std::collections::BTreeMap<(bool, u32), AtomicU64>);

impl Ramps {
    pub(super) fn of(tasks: &[Task]) -> Self {
        let ramps = tasks.iter().filter(|t| t.shape.ramp_size > 0);
        Self(ramps.map(|t| (key(t), AtomicU64::new(0))).collect())
    }
}

fn key(task: &Task) -> (bool, u32) {
    match task.shape.terms.group_reporting {
        true => (true, task.group),
        false => (false, task.number),
    }
}

/// Jobs of a group have one ramp, as in fio.
pub(super) fn agree(tasks: &[Task]) -> Result<(), Failure> {
    for pair in tasks.windows(2).filter(|p| p[0].group == p[1].group) {
        if pair[0].shape.ramp_size != pair[1].shape.ramp_size {
            return Err(failed(anyhow!(
                "jobs '{}' and '{}' are of one group and have different ramp_size: choose one",
                pair[0].name,
                pair[1].name
            )));
        }
    }
    Ok(())
}

/// A task's part in its ramp.
pub(super) struct Ramp<'a> {
    done: &'a AtomicU64,
    size: u64,
    over: bool,
    /// What was not measured.
    pub(super) time: Nanos,
    pub(super) bytes: u64,
    /// The job ends when it was measured for so long.
    pub(super) runtime: Option<Nanos>,
}

impl<'a> Ramp<'a> {
    /// Of a task that has one. Its end is not the job's own: the time that it may take counts from the end of the ramp.
    pub(super) fn of(task: &Task, ramps: &'a Ramps, job: &mut PlannedJob) -> Option<Self> {
        let done = ramps
            .0
            .get(&key(task))
            .filter(|_| task.shape.ramp_size > 0)?;
        let spec = &mut job.job.spec;
        spec.window = Nanos::from_millis(10);
        Some(Self {
            done,
            size: task.shape.ramp_size,
            over: false,
            time: Nanos::ZERO,
            bytes: 0,
            runtime: spec.time.replace(FOR_EVER),
        })
    }

    /// Whether a window belongs to the ramp; the one after that in which it has its bytes is the first that does not.
    pub(super) fn takes(&mut self, w: &ClosedWindow<'_>) -> bool {
        if self.over || self.done.load(Ordering::Relaxed) >= self.size {
            self.over = true;
            return false;
        }
        let bytes: u64 = w.window.directions.iter().flatten().map(|d| d.bytes).sum();
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.time += w.width;
        self.bytes += bytes;
        true
    }
}
