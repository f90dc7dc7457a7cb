//! What the machine did beside a group: processors busy, stolen or held back by a quota, threads that waited for one.

use fathom_host::control_group::{ControlGroups, Throttled};
use fathom_host::processors::{self, ProcessorTime};
use fathom_host::root::HostRoot;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::HeldUp;

use super::PlannedJob;

/// How long one thread and the kernel's workers for it were ready and waited for a processor.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Waited {
    sum_ns: u64,
    share_max: f64,
}

impl Waited {
    /// Of the calling thread since `before` was its run delay, over `elapsed`; with the workers for its rings, which belong
    /// to this load alone.
    pub(super) fn since(before: Option<u64>, elapsed: Nanos, rings: bool) -> Self {
        let now = processors::own_run_delay();
        let own = now
            .zip(before)
            .map(|(now, before)| now.saturating_sub(before));
        let workers = if rings {
            // SAFETY: a system call without arguments that always succeeds.
            processors::ring_workers_run_delay(unsafe { libc::gettid() })
        } else {
            Vec::new()
        };
        let mut all = Self::default();
        for ns in own.into_iter().chain(workers) {
            all.sum_ns += ns;
            all.share_max = all.share_max.max(ns as f64 / elapsed.0.max(1) as f64);
        }
        all
    }

    /// Takes another thread's.
    pub(super) fn add(&mut self, other: &Self) {
        self.sum_ns += other.sum_ns;
        self.share_max = self.share_max.max(other.share_max);
    }
}

/// Readings of the machine, taken at the ends of a group.
pub(super) struct Conditions {
    root: HostRoot,
    groups: ControlGroups,
    only: Vec<u32>,
}

/// One reading.
pub(super) struct Reading {
    time: Option<ProcessorTime>,
    throttled: Throttled,
}

impl Conditions {
    pub(super) fn of(jobs: &[PlannedJob]) -> Self {
        let root = HostRoot::real();
        // Pinned jobs depend on their processors alone.
        let pinned = jobs.iter().all(|p| !p.job.spec.cpus.is_empty());
        let cpus = jobs.iter().flat_map(|p| p.job.spec.cpus.iter().copied());
        Self {
            groups: ControlGroups::of_this_process(&root),
            only: cpus.filter(|_| pinned).collect(),
            root,
        }
    }

    pub(super) fn read(&self) -> Reading {
        Reading {
            time: ProcessorTime::read(&self.root, &self.only),
            throttled: self.groups.throttled(),
        }
    }
}

impl Reading {
    /// What happened since `earlier`, to a job whose threads `waited`.
    pub(super) fn since(&self, earlier: &Self, waited: &Waited) -> HeldUp {
        let time = self.time.zip(earlier.time).map(|(b, a)| b.since(&a));
        // The quota that bound most: those of ancestors count the same waits again.
        let throttled = self.throttled.processors.iter().map(|(limit, ns)| {
            let before = earlier.throttled.processors.iter();
            let before = before.filter(|(l, _)| l.file == limit.file).map(|b| b.1);
            ns.saturating_sub(before.sum())
        });
        HeldUp {
            waited_ns: waited.sum_ns,
            waited_share: waited.share_max,
            steal_share: time.and_then(|t| t.steal_share()),
            busy_share: time.and_then(|t| t.busy_share()),
            cpu_throttled_ns: throttled.max().unwrap_or(0),
            io_throttled_ns: self
                .throttled
                .io_cost_ns
                .saturating_sub(earlier.throttled.io_cost_ns),
        }
    }
}
