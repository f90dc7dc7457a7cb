//! What `fathom watch` sees, for who looks on: windows as those of jobs, of I/O that others issue.

use fathom_experiments::workload::Ended;
use fathom_io::driver::live::{LiveWindow, tell_of, watched};
use fathom_telemetry::{Histogram, Nanos, Op};

/// Length of a window.
const WIDTH: Nanos = Nanos::from_millis(200);

/// Windows under way.
pub(super) struct Live {
    name: String,
    index: u64,
    window: LiveWindow,
    latency: Histogram,
}

impl Live {
    /// Nothing seen yet.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            index: 0,
            window: empty(name, 0),
            latency: Histogram::new(),
        }
    }

    /// An I/O ended.
    pub(super) fn ended(&mut self, e: Ended) {
        self.latency.record(e.latency_ns);
        self.count(1, u64::from(e.op == Op::Read), e.bytes);
    }

    /// So many ended, as counters tell.
    pub(super) fn count(&mut self, ios: u64, reads: u64, bytes: u64) {
        self.window.ios += ios;
        self.window.reads += reads;
        self.window.bytes += bytes;
    }

    /// Closes the window that is over, `since` the beginning.
    pub(super) fn at(&mut self, since: Nanos) {
        let index = since.0 / WIDTH.0;
        if index == self.index {
            return;
        }
        self.index = index;
        let mut over = std::mem::replace(&mut self.window, empty(&self.name, index));
        over.latency = std::mem::take(&mut self.latency).to_sparse();
        if watched() {
            tell_of(over);
        }
    }
}

fn empty(name: &str, index: u64) -> LiveWindow {
    LiveWindow {
        group: 0,
        index: 0,
        job: name.to_owned(),
        thread: 0,
        threads: 1,
        host: None,
        open_loop: false,
        start: Nanos(index * WIDTH.0),
        width: WIDTH,
        ios: 0,
        reads: 0,
        bytes: 0,
        errors: 0,
        latency: fathom_telemetry::SparseHistogram::default(),
    }
}

#[cfg(test)]
mod tests {
    use fathom_io::driver::live::look_on;

    use super::*;

    #[test]
    fn what_is_watched_comes_in_windows_with_its_latency() {
        let Some(seen) = look_on() else { return };
        let mut live = Live::new("vda");
        live.ended(Ended {
            op: Op::Read,
            bytes: 4096,
            latency_ns: 50_000,
        });
        live.at(Nanos::from_millis(100));
        live.at(Nanos::from_millis(210));
        live.count(7, 3, 28_672);
        live.at(Nanos::from_millis(450));
        let windows: Vec<LiveWindow> = seen.try_iter().collect();
        assert_eq!(windows.len(), 2);
        let first = &windows[0];
        assert_eq!((first.ios, first.reads, first.bytes), (1, 1, 4096));
        assert_eq!(first.latency.moments.max, 50_000);
        assert_eq!(
            (windows[1].ios, windows[1].start),
            (7, Nanos::from_millis(200))
        );
    }
}
