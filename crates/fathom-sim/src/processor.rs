//! The host's processor: what submitting and completing cost, cores, idle states, interrupt or polling.

use std::collections::VecDeque;

use crate::host::Host;

/// What the processor does while nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Idle states, chosen by a governor.
    On,
    /// No idle states: the core spins.
    Off,
    /// Another task keeps the core busy and is pushed aside.
    Busy,
}

/// I/O waiters of a core divide what latency the governor allows (Linux menu: 1 + 10 per waiter).
const WAITER: u64 = 10;
/// Intervals that the governor looks back on.
const HISTORY: usize = 8;

/// Predicts the next idle interval from the last ones, as Linux' menu governor does.
#[derive(Debug, Clone, Default)]
struct Governor {
    intervals: [u64; HISTORY],
    next: usize,
    sum: u64,
}

impl Governor {
    #[inline]
    fn predict(&self) -> u64 {
        self.sum / HISTORY as u64
    }
    #[inline]
    fn learn(&mut self, interval: u64) {
        self.sum = self.sum + interval - self.intervals[self.next];
        self.intervals[self.next] = interval;
        self.next = (self.next + 1) % HISTORY;
    }
}

/// One worker's view of the processor.
#[derive(Debug, Clone)]
struct Thread {
    core: usize,
    polling: bool,
    outstanding: u32,
    governor: Governor,
    cpu: u64,
    started: u64,
    /// Waits for its core.
    queued: bool,
}

/// Costs in ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) submit: u64,
    pub(crate) complete: u64,
    pub(crate) poll: u64,
    pub(crate) switch: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Processor {
    pub(crate) costs: Costs,
    idle: Idle,
    /// Exit latency and target residency, ns.
    states: Vec<(u64, u64)>,
    cores: Vec<u64>,
    /// Workers that wait for a core, in order.
    queues: Vec<VecDeque<u32>>,
    threads: Vec<Thread>,
}

pub(crate) fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

impl Processor {
    /// `scheduler` is an extra cost per submission, ns.
    pub(crate) fn new(host: &Host, idle: Idle, scheduler: u64) -> Self {
        Self {
            costs: Costs {
                submit: ns(host.submit_us) + scheduler,
                complete: ns(host.complete_us),
                poll: ns(host.poll_us),
                switch: ns(host.busy_switch_us),
            },
            idle,
            states: host
                .idle_states
                .iter()
                .map(|s| (ns(s.exit_us), ns(s.target_us)))
                .collect(),
            cores: vec![0; host.cores as usize],
            queues: vec![VecDeque::new(); host.cores as usize],
            threads: Vec::new(),
        }
    }

    /// New workers, one entry per worker: whether it polls.
    pub(crate) fn seat(&mut self, at: u64, polling: impl Iterator<Item = bool>) {
        let cores = self.cores.len();
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.threads = polling
            .enumerate()
            .map(|(i, polling)| Thread {
                core: i % cores,
                polling,
                outstanding: 0,
                governor: Governor::default(),
                cpu: 0,
                started: at,
                queued: false,
            })
            .collect();
    }

    /// Processor time of a worker until `at`, ns: a polling one never sleeps.
    pub(crate) fn used(&self, worker: usize, at: u64) -> u64 {
        self.threads.get(worker).map_or(0, |t| {
            if t.polling {
                at.saturating_sub(t.started)
            } else {
                t.cpu
            }
        })
    }

    /// When a worker that wants to run at `at` may: its core serves those who wait in order.
    #[inline]
    pub(crate) fn ready(&mut self, worker: usize, at: u64) -> u64 {
        let t = &mut self.threads[worker];
        let (free, queue) = (self.cores[t.core], &mut self.queues[t.core]);
        if free <= at && queue.is_empty() {
            return at;
        }
        Self::queue(t, worker as u32, free, queue, at)
    }

    #[cold]
    fn queue(t: &mut Thread, worker: u32, free: u64, queue: &mut VecDeque<u32>, at: u64) -> u64 {
        if free <= at && queue.front() == Some(&worker) {
            queue.pop_front();
            t.queued = false;
            return at;
        }
        if !t.queued {
            t.queued = true;
            queue.push_back(worker);
        }
        // The first in the queue looks again when the core is free, the others right after.
        free.max(at) + u64::from(queue.front() != Some(&worker)).max(u64::from(free <= at))
    }

    /// A worker works for `cost` from `at`; returns when it is done.
    #[inline]
    pub(crate) fn work(&mut self, worker: usize, at: u64, cost: u64) -> u64 {
        let t = &mut self.threads[worker];
        t.cpu += cost;
        let core = &mut self.cores[t.core];
        *core = at.max(*core) + cost;
        *core
    }

    #[inline]
    pub(crate) fn issued(&mut self, worker: usize) {
        self.threads[worker].outstanding += 1;
    }

    /// A worker that waited since `since` takes `n` completions at `at`, each for `cost` ns; with
    /// `wakes` it was asleep. Returns when it is done.
    #[inline]
    pub(crate) fn reap(&mut self, worker: usize, since: u64, at: u64, n: usize, cost: u64) -> u64 {
        let t = &mut self.threads[worker];
        let waited_for_io = t.outstanding > 0;
        t.outstanding -= (n as u32).min(t.outstanding);
        let mut begin = at;
        if !t.polling && at > since {
            // Nobody else used the core since, or `ready` would have said so.
            let idle_from = since.max(self.cores[t.core]);
            if at > idle_from {
                begin += match self.idle {
                    Idle::Off => 0,
                    Idle::Busy => self.costs.switch,
                    Idle::On => exit(&self.states, &t.governor, waited_for_io),
                };
                t.governor.learn(at - idle_from);
            }
        }
        let work = cost * n as u64;
        t.cpu += work + (begin - at);
        let end = begin + work;
        let core = &mut self.cores[t.core];
        *core = end.max(*core);
        end
    }

    /// ns to wake a thread that serves `worker`'s I/O on another core.
    pub(crate) fn wake_helper(&self, worker: usize) -> u64 {
        match self.idle {
            Idle::Off => 0,
            Idle::Busy => self.costs.switch,
            Idle::On => exit(&self.states, &self.threads[worker].governor, true),
        }
    }
}

/// Exit latency of the state that the governor would have chosen.
#[inline]
fn exit(states: &[(u64, u64)], governor: &Governor, waits_for_io: bool) -> u64 {
    let predicted = governor.predict();
    let allowed = if waits_for_io {
        predicted / WAITER
    } else {
        predicted
    };
    let mut chosen = states.first().map_or(0, |s| s.0);
    for (exit, target) in states.iter().skip(1) {
        if *target > predicted || *exit > allowed {
            break;
        }
        chosen = *exit;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_after(interval: u64, io: bool) -> u64 {
        let host = Host::named("xeon-e5-2609").unwrap();
        let p = Processor::new(&host, Idle::On, 0);
        let mut g = Governor::default();
        for _ in 0..HISTORY {
            g.learn(interval);
        }
        exit(&p.states, &g, io)
    }

    #[test]
    fn the_governor_sleeps_deeper_the_longer_it_expects_to_and_less_deep_while_io_is_awaited() {
        assert_eq!(exit_after(8_000, true), 2_000);
        assert_eq!(exit_after(112_000, true), 10_000);
        assert_eq!(exit_after(112_000, false), 40_000);
        assert_eq!(exit_after(5_000_000, false), 133_000);
    }
}
