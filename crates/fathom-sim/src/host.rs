//! What a host costs: submission, completion, and the idle state that a core must leave first.
//!
//! Values are Zhang et al.'s server (two E5-2609 v4, 16 cores); sources stand at each.

use std::hint::select_unpredictable;

/// Submission of one I/O, ns (fit: 5.6 µs of software at one outstanding read).
pub const SUBMIT_NS: u64 = 2_000;
/// Completion of one I/O, ns (the same fit).
pub const COMPLETE_NS: u64 = 1_500;
/// Completion found by polling, ns (no interrupt, no wake-up; assumed).
pub const POLLED_NS: u64 = 700;
/// Cores of that server.
pub const CORES: u32 = 16;

/// Exit latency and target residency of the idle states, ns (intel_idle's table for Broadwell: C1, C1E, C3, C6).
const IDLE_STATES: [(u64, u64); 4] = [
    (2_000, 2_000),
    (10_000, 20_000),
    (40_000, 100_000),
    (133_000, 400_000),
];
/// The menu governor takes no state whose exit costs more than this part of the expected sleep while a task waits for
/// I/O (1 + 10 per waiter in Linux 4.14).
const IO_WAIT_FACTOR: u64 = 10;

/// Expected sleep from which each of the deeper states is taken, and its exit latency, ns.
const DEEPER: [(u64, u64); 3] = {
    let mut out = [(0, 0); 3];
    let mut i = 0;
    while i < out.len() {
        let (exit, target) = IDLE_STATES[i + 1];
        let waits = exit * IO_WAIT_FACTOR;
        out[i] = (if target > waits { target } else { waits }, exit);
        i += 1;
    }
    out
};

/// What idle cores do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// They sleep as a menu governor would let them.
    #[default]
    Menu,
    /// They stay in the shallowest state (`intel_idle.max_cstate=1`).
    Shallow,
    /// They never sleep (`idle=poll`, or other work keeps them busy).
    Busy,
}

/// How completions are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Completions {
    /// By interrupt.
    #[default]
    Interrupt,
    /// By polling.
    Polling,
}

/// Costs of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostCosts {
    /// CPU time of a submission, ns.
    pub submit_ns: u64,
    /// CPU time of a completion, ns.
    pub complete_ns: u64,
    /// Added to each submission by an I/O scheduler, ns.
    pub scheduler_ns: u64,
    /// What idle cores do.
    pub idle: Idle,
    /// How completions are noticed.
    pub completions: Completions,
    /// Cores; threads are dealt to them in turn.
    pub cores: u32,
}

impl Default for HostCosts {
    fn default() -> Self {
        Self {
            submit_ns: SUBMIT_NS,
            complete_ns: COMPLETE_NS,
            scheduler_ns: 0,
            idle: Idle::Menu,
            completions: Completions::Interrupt,
            cores: CORES,
        }
    }
}

/// A processor (or a kernel thread) that sleeps between events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sleeper {
    /// When it has nothing to do any more.
    pub free: u64,
    /// Smoothed length of its sleeps, ns.
    expected: u64,
}

impl Sleeper {
    /// Time to wake at `at`: nothing when it was not asleep.
    #[inline]
    pub fn wake(&mut self, at: u64, idle: Idle) -> u64 {
        // Nobody can predict whether it sleeps: all is computed, and then chosen without a branch.
        let asleep = at > self.free;
        let slept = at.wrapping_sub(self.free);
        let expected = if self.expected == 0 {
            slept
        } else {
            self.expected
        };
        // A slow average stands for the governor's buckets: single short sleeps do not change its mind.
        let change = slept.wrapping_sub(expected) as i64 / 32;
        let learned = expected.wrapping_add_signed(change).max(1);
        self.expected = select_unpredictable(asleep, learned, self.expected);
        select_unpredictable(asleep, exit_ns(expected, idle), 0)
    }

    /// Time to wake at `at` where another's sleeps say what to expect.
    #[inline]
    pub fn wake_like(&mut self, at: u64, idle: Idle, other: &Self) -> u64 {
        if at <= self.free {
            return 0;
        }
        exit_ns(other.expected, idle)
    }
}

/// Time to leave the state that is chosen for an expected sleep, ns.
#[inline]
fn exit_ns(expected: u64, idle: Idle) -> u64 {
    match idle {
        Idle::Busy => 0,
        Idle::Shallow => IDLE_STATES[0].0,
        Idle::Menu => {
            let mut exit = IDLE_STATES[0].0;
            for (least, deeper) in DEEPER {
                exit = if expected >= least { deeper } else { exit };
            }
            exit
        }
    }
}

/// A host's cores.
#[derive(Debug, Clone)]
pub struct Host {
    costs: HostCosts,
    cores: Box<[Sleeper]>,
}

impl Host {
    /// All cores idle since time 0.
    pub fn new(costs: HostCosts) -> Self {
        Self {
            costs,
            cores: vec![Sleeper::default(); costs.cores.max(1) as usize].into(),
        }
    }

    /// The core that `worker` runs on.
    pub fn core_of(&self, worker: u32) -> u32 {
        worker % self.cores.len() as u32
    }

    #[inline]
    fn core(&mut self, worker: u32) -> &mut Sleeper {
        // A division costs as much as the rest of a submission; most threads have a core of their own.
        let (n, worker) = (self.cores.len(), worker as usize);
        let core = if worker < n { worker } else { worker % n };
        &mut self.cores[core]
    }

    /// A submission by `worker` at `at`, of `extra` ns beside the usual; returns its end.
    #[inline]
    pub fn submit(&mut self, worker: u32, at: u64, usual: bool, extra: u64) -> u64 {
        let cost = extra
            + if usual {
                self.costs.submit_ns + self.costs.scheduler_ns
            } else {
                0
            };
        let core = self.core(worker);
        core.free = core.free.max(at) + cost;
        core.free
    }

    /// From a completion to the next request at the device, with a processor that wakes from the shallowest state.
    pub fn usual_ns(&self) -> u64 {
        let c = self.costs;
        let taken = match (c.completions, c.idle) {
            (Completions::Polling, _) => POLLED_NS.min(c.complete_ns),
            (_, Idle::Busy) => c.complete_ns,
            _ => c.complete_ns + IDLE_STATES[0].0,
        };
        taken + c.submit_ns + c.scheduler_ns
    }

    /// `n` completions for `worker` at `at`; returns when it has taken them.
    #[inline]
    pub fn complete(&mut self, worker: u32, at: u64, n: u64) -> u64 {
        let c = self.costs;
        let core = self.core(worker);
        match c.completions {
            Completions::Polling => {
                core.free = core.free.max(at) + n * POLLED_NS.min(c.complete_ns)
            }
            Completions::Interrupt => {
                let exit = core.wake(at, c.idle);
                core.free = core.free.max(at) + exit + n * c.complete_ns;
            }
        }
        core.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_after(sleep: u64) -> u64 {
        let mut s = Sleeper::default();
        (1..100).fold(0, |_, i| {
            let at = i * sleep;
            let exit = s.wake(at, Idle::Menu);
            s.free = at;
            exit
        })
    }

    #[test]
    fn the_governor_sleeps_deeper_when_it_expects_to_sleep_longer() {
        assert_eq!(exit_after(8_000), 2_000);
        assert_eq!(exit_after(112_000), 10_000);
        assert_eq!(exit_after(500_000), 40_000);
        assert_eq!(exit_after(5_000_000), 133_000);
    }

    #[test]
    fn a_busy_core_needs_no_time_to_wake() {
        let mut s = Sleeper {
            free: 100,
            expected: 0,
        };
        assert_eq!(s.wake(100, Idle::Menu), 0);
        assert_eq!(s.wake(10_000, Idle::Busy), 0);
    }
}
