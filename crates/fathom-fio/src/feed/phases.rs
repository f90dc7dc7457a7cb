//! How long a job loaded its target and how long it read back what it wrote: each has a speed of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use fathom_telemetry::Nanos;

/// Time of the load and of reading back, so far; what has elapsed since is the phase's that is under way.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    spent: [AtomicU64; 2],
    now: AtomicU64,
}

impl Phases {
    /// The load (0) or reading back (1) was under way for `time`; `next` comes.
    pub(crate) fn turn(&self, time: Nanos, next: usize) {
        let now = self.now.load(Ordering::Relaxed) as usize;
        self.spent[now.min(1)].fetch_add(time.0, Ordering::Relaxed);
        self.now.store(next as u64, Ordering::Relaxed);
    }

    /// Both, of a job that has taken `wall` so far.
    pub(crate) fn of(&self, wall: Nanos) -> [Nanos; 2] {
        let mut spent = [0, 1].map(|i: usize| self.spent[i].load(Ordering::Relaxed));
        let now = self.now.load(Ordering::Relaxed).min(1) as usize;
        let other = spent[1 - now].min(wall.0);
        // What the phase before has is known exactly, the one under way has the rest.
        (spent[1 - now], spent[now]) = (other, wall.0 - other);
        spent.map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_belongs_to_the_phase_under_way() {
        let p = Phases::default();
        assert_eq!(p.of(Nanos(10)), [Nanos(10), Nanos(0)]);
        p.turn(Nanos(70), 1);
        assert_eq!(p.of(Nanos(100)), [Nanos(70), Nanos(30)]);
        p.turn(Nanos(30), 0);
        assert_eq!(p.of(Nanos(150)), [Nanos(120), Nanos(30)]);
    }
}
