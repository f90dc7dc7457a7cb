//! Latencies by I/O priority, where single I/Os have one of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fathom_telemetry::{Histogram, Nanos, Record};

/// Completion and total latency by the kernel's number of a priority.
pub type ByPriority = BTreeMap<u16, [Histogram; 2]>;

/// Those of reads, writes and trims of all threads of a task.
pub(crate) type Classes = Arc<Mutex<[ByPriority; 3]>>;

/// What one thread saw; it joins the others when its job has ended.
pub(super) struct Seen {
    own: [ByPriority; 3],
    origin: Nanos,
    all: Classes,
}

impl Seen {
    pub(super) fn new(all: Classes) -> Self {
        Self {
            own: Default::default(),
            origin: Nanos::ZERO,
            all,
        }
    }
    /// The measured part begins.
    pub(super) fn start(&mut self, origin: Nanos) {
        self.origin = origin;
    }
    pub(super) fn record(&mut self, record: &Record, priority: u16) {
        let measured = record.completed >= self.origin && record.result >= 0;
        let Some(of) = self.own.get_mut(record.op as usize).filter(|_| measured) else {
            return;
        };
        let [completion, total] = of.entry(priority).or_default();
        completion.record(record.service().0);
        total.record(record.response().0);
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, own) in all.iter_mut().zip(&self.own) {
            join(sum, own);
        }
    }
}

/// Adds latencies to those of the same priority.
pub(crate) fn join(all: &mut ByPriority, more: &ByPriority) {
    for (priority, each) in more {
        let sums = all.entry(*priority).or_default();
        for (sum, h) in sums.iter_mut().zip(each) {
            sum.merge(h);
        }
    }
}
