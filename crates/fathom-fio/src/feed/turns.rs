//! Whose turn it is and how deep: jobs of one flow, and the search for the depth that holds a latency target.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_io::clock::monotonic;
use fathom_io::load::Next;
use fathom_telemetry::{Nanos, Record};

use super::FioFeed;

use crate::translate::recipe::{Flow, LatencyTarget};

/// Jobs that share a flow keep their I/Os in the proportion of their weights.
#[derive(Debug, Default)]
pub struct FlowGroup {
    weight: AtomicU64,
    count: AtomicU64,
}

/// I/Os per unit of weight by which a job of a flow may be ahead.
const FLOW_SLACK: u64 = 32;

/// A job's part in its flow.
pub(super) struct Part {
    group: Arc<FlowGroup>,
    pub(super) flow: Flow,
    count: u64,
}

impl Part {
    pub(super) fn new(group: Arc<FlowGroup>, flow: Flow) -> Self {
        group.weight.fetch_add(flow.weight, Ordering::Relaxed);
        Self {
            group,
            flow,
            count: 0,
        }
    }
    /// Whether it is this job's turn.
    pub(super) fn may(&mut self) -> bool {
        let all = self.group.count.load(Ordering::Relaxed).max(1) as f64;
        let weight = self.group.weight.load(Ordering::Relaxed).max(1) as f64;
        // A job may be ahead by a few I/Os, so that none waits for the other's time slice.
        let due = all * self.flow.weight as f64 / weight;
        if self.count as f64 > due + (self.flow.weight * FLOW_SLACK) as f64 {
            return false;
        }
        self.group.count.fetch_add(1, Ordering::Relaxed);
        self.count += 1;
        true
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.group
            .weight
            .fetch_sub(self.flow.weight, Ordering::Relaxed);
        self.group.count.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Seeks the largest depth at which latency stays below the target.
pub(super) struct Seeker {
    pub(super) goal: LatencyTarget,
    pub(super) depth: u32,
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) good: u64,
    pub(super) all: u64,
    pub(super) until: Nanos,
    pub(super) found: bool,
    pub(super) result: Arc<AtomicU64>,
}

impl Seeker {
    /// Begins at depth 1, and goes to `high` at most.
    pub(super) fn new(goal: LatencyTarget, high: u32, result: &Arc<AtomicU64>) -> Self {
        Self {
            goal,
            depth: 1,
            low: 0,
            high,
            good: 0,
            all: 0,
            until: Nanos::ZERO,
            found: false,
            result: result.clone(),
        }
    }
    pub(super) fn take(&mut self, record: &Record) {
        self.all += 1;
        self.good += u64::from(record.service() <= self.goal.target);
    }
    pub(super) fn judge(&mut self, now: Nanos) {
        if now < self.until || self.all == 0 || self.found {
            return;
        }
        self.until = now + self.goal.window;
        let holds = self.good as f64 >= self.all as f64 * self.goal.percentile / 100.0;
        (self.good, self.all) = (0, 0);
        if holds {
            self.low = self.depth;
        } else {
            self.high = self.depth;
        }
        if self.low + 1 >= self.high || (holds && self.depth == self.high) {
            self.depth = self.low.max(1);
            self.found = true;
        } else {
            self.depth = if self.high == u32::MAX {
                self.depth * 2
            } else {
                (self.low + self.high).div_ceil(2)
            };
        }
        self.result.store(u64::from(self.depth), Ordering::Relaxed);
    }
}

impl FioFeed {
    /// What keeps the next I/O from starting now: thinking, a latency target, the flow.
    pub(super) fn held_back(&mut self, now: Nanos) -> Option<Next> {
        if self.think_due {
            if self.flying > 0 {
                return Some(Next::Drain);
            }
            self.think_due = false;
            let r = &self.order.recipe;
            let busy = now + r.think.spin;
            if r.think.spin > Nanos::ZERO && self.order.real_time {
                while monotonic() < busy {
                    std::hint::spin_loop();
                }
            }
            self.resume = now + r.think.time;
            self.last_think = self.resume;
            if r.skips_missed {
                self.due = self.due.map(|due| due.max(now) + r.think.time);
            }
        }
        if now < self.resume {
            return Some(Next::At(self.resume));
        }
        if let Some(s) = &mut self.seeker {
            s.judge(now);
            if s.found && !s.goal.run {
                return Some(if self.flying > 0 {
                    Next::Drain
                } else {
                    Next::End
                });
            }
            if self.flying >= s.depth {
                return Some(Next::Drain);
            }
        }
        if let Some(p) = &mut self.part
            && !p.may()
        {
            return Some(Next::At(now + Nanos(p.flow.sleep.0.max(20_000))));
        }
        None
    }
}
