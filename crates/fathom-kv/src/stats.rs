//! What the engine counts: pages, waits, stalls.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::sync::Waits;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) latch: Waits,
            pub(crate) frame: Waits,
            pub(crate) log: Waits,
            pub(crate) stall: Waits,
        }
        /// Totals since the engine was opened; subtract two for an interval.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Waits for latches of leaves and inner nodes (a page on its way from the store counts).
            pub latch_waits: u64,
            /// Their time over all threads, ns.
            pub latch_wait_ns: u64,
            /// Searches for a frame that went round the whole pool.
            pub frame_waits: u64,
            /// Their time, ns.
            pub frame_wait_ns: u64,
            /// Waits for a list of free places.
            pub space_waits: u64,
            /// Their time, ns.
            pub space_wait_ns: u64,
            /// Commits that waited for the log.
            pub log_waits: u64,
            /// Their time, ns.
            pub log_wait_ns: u64,
            /// Operations held up until a checkpoint made room in store or log.
            pub stalls: u64,
            /// Their time, ns.
            pub stall_ns: u64,
        }
        impl Counters {
            pub(crate) fn read(&self) -> Stats {
                let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
                Stats {
                    $($name: get(&self.$name),)*
                    latch_waits: get(&self.latch.count),
                    latch_wait_ns: get(&self.latch.ns),
                    frame_waits: get(&self.frame.count),
                    frame_wait_ns: get(&self.frame.ns),
                    log_waits: get(&self.log.count),
                    log_wait_ns: get(&self.log.ns),
                    stalls: get(&self.stall.count),
                    stall_ns: get(&self.stall.ns),
                    ..Stats::default()
                }
            }
        }
        impl Stats {
            fn with(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
                Self {
                    $($name: of(self.$name, other.$name),)*
                    latch_waits: of(self.latch_waits, other.latch_waits),
                    latch_wait_ns: of(self.latch_wait_ns, other.latch_wait_ns),
                    frame_waits: of(self.frame_waits, other.frame_waits),
                    frame_wait_ns: of(self.frame_wait_ns, other.frame_wait_ns),
                    space_waits: of(self.space_waits, other.space_waits),
                    space_wait_ns: of(self.space_wait_ns, other.space_wait_ns),
                    log_waits: of(self.log_waits, other.log_waits),
                    log_wait_ns: of(self.log_wait_ns, other.log_wait_ns),
                    stalls: of(self.stalls, other.stalls),
                    stall_ns: of(self.stall_ns, other.stall_ns),
                }
            }
            /// What happened since `earlier`.
            pub fn since(&self, earlier: &Self) -> Self {
                self.with(earlier, u64::saturating_sub)
            }
            /// Together with what another engine counted.
            pub fn and(&self, other: &Self) -> Self {
                self.with(other, u64::saturating_add)
            }
            /// Share of page accesses that went to the store; `None` without accesses.
            pub fn miss_ratio(&self) -> Option<f64> {
                let all = self.hits + self.misses;
                (all > 0).then(|| self.misses as f64 / all as f64)
            }
        }
    };
}

counters! {
    /// Leaf accesses answered by the pool.
    hits,
    /// Leaf accesses that read the store.
    misses,
    /// Leaves written because their frame was needed.
    evicted,
    /// Leaves written by checkpoints, or by a change that came between.
    flushed,
    /// Overflow pages read.
    overflow_reads,
    /// Overflow pages written.
    overflow_writes,
    /// Leaves split.
    splits,
    /// Writes of the log (each may hold many commits).
    log_writes,
    /// Bytes of them.
    log_bytes,
    /// Commits in the log.
    commits,
    /// Checkpoints that became durable.
    checkpoints,
    /// Time of them, ns.
    checkpoint_ns,
    /// Time during which all changes were kept out, ns.
    cut_ns,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
