//! fio's line of progress (`--eta=always`), once a second on standard output: programs read it there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fathom_fio::{Measure, Task, progress};
use fathom_telemetry::Nanos;

use crate::screen;

/// What the last line said.
#[derive(Default)]
pub(super) struct Eta {
    last: Nanos,
    /// I/Os and bytes of reads, writes and trims.
    done: [[u64; 2]; 3],
    width: usize,
}

impl Eta {
    /// Prints a line where one is due.
    pub(super) fn step(&mut self, tasks: &[Task], measures: &[Mutex<Measure>], now: Nanos) {
        let time = now.since(self.last);
        if time < Nanos::from_secs(1) {
            return;
        }
        self.last = now;
        let mut done = [[0; 2]; 3];
        for m in measures {
            for (sum, t) in done.iter_mut().zip(&lock(m).totals) {
                let t = t.as_ref().map_or([0; 2], |t| [t.ios, t.bytes]);
                (sum[0], sum[1]) = (sum[0] + t[0], sum[1] + t[1]);
            }
        }
        let seconds = time.as_secs_f64();
        let rates = [0, 1, 2].map(|d: usize| {
            let rate = |i: usize| (done[d][i] - self.done[d][i].min(done[d][i])) as f64 / seconds;
            [rate(0), rate(1)]
        });
        self.done = done;
        let state: Vec<_> = tasks
            .iter()
            .zip(measures)
            .map(|(t, m)| (t, lock(m).clone()))
            .collect();
        let line = progress(&state, rates, now);
        // A shorter line leaves nothing of the one before.
        let blank = self.width.saturating_sub(line.len());
        self.width = line.len();
        screen::over(&format!("{line}{}", " ".repeat(blank)));
    }
}

pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left a number unfinished at worst.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
