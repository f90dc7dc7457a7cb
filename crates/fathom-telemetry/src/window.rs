//! The per-thread recorder and the windows that it closes.
//!
//! The path of an I/O touches one set of dense histograms, those of the current
//! window. When a window ends they are made sparse and handed to a
//! [`WindowSink`]; job totals are the sum of windows, so nothing is counted twice
//! and percentiles over time are real. Recording allocates nothing; closing a
//! window (every 100 ms by default) does.

use crate::LatencySummary;
use crate::histogram::{BUCKETS, Histogram, Moments, SparseHistogram, bucket_of};
use crate::iolog::LogHandle;
use crate::record::{Op, Record};
use crate::schema::Direction;
use crate::units::Nanos;

/// Receives closed windows, in order of time per thread.
pub trait WindowSink {
    /// Takes a closed window.
    fn window(&mut self, window: Window);
}

impl WindowSink for Vec<Window> {
    fn window(&mut self, window: Window) {
        self.push(window);
    }
}

/// What one thread completed in one window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// Number since the job's origin; `start = origin + index × width`.
    pub index: u64,
    /// By [`Op`] number; `None` where nothing completed.
    pub directions: [Option<Box<DirectionWindow>>; 4],
}

impl Window {
    /// Adds another thread's window of the same index.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            match (mine.as_mut(), theirs) {
                (Some(m), Some(t)) => m.merge(t),
                (None, Some(t)) => *mine = Some(t.clone()),
                (_, None) => {}
            }
        }
    }
}

/// One direction in one window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DirectionWindow {
    /// Completed without error.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Failed.
    pub errors: u64,
    /// Transferred less than asked for.
    pub short: u64,
    /// Submission latency.
    pub submit: SparseHistogram,
    /// Service latency.
    pub service: SparseHistogram,
    /// Response latency.
    pub response: SparseHistogram,
}

impl DirectionWindow {
    fn merge(&mut self, other: &Self) {
        self.ios = self.ios.saturating_add(other.ios);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
        self.short = self.short.saturating_add(other.short);
        self.submit.merge(&other.submit);
        self.service.merge(&other.service);
        self.response.merge(&other.response);
    }
}

/// One direction of one job over several windows.
#[derive(Debug, Clone, Default)]
pub struct DirectionTotal {
    /// Completed without error.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Failed.
    pub errors: u64,
    /// Transferred less than asked for.
    pub short: u64,
    /// Submission latency.
    pub submit: Histogram,
    /// Service latency.
    pub service: Histogram,
    /// Response latency.
    pub response: Histogram,
}

impl DirectionTotal {
    /// Adds a window. (Saturating: a file of others may claim anything.)
    pub fn add(&mut self, window: &DirectionWindow) {
        self.ios = self.ios.saturating_add(window.ios);
        self.bytes = self.bytes.saturating_add(window.bytes);
        self.errors = self.errors.saturating_add(window.errors);
        self.short = self.short.saturating_add(window.short);
        self.submit.merge_sparse(&window.submit);
        self.service.merge_sparse(&window.service);
        self.response.merge_sparse(&window.response);
    }

    /// As a job has it that measured for so long; rates are 0 where that is no time at all.
    pub fn over(&self, wall: Nanos) -> Direction {
        let per_second = |n: u64| match wall {
            Nanos::ZERO => 0.0,
            wall => n as f64 / wall.as_secs_f64(),
        };
        Direction {
            ios: self.ios,
            bytes: self.bytes,
            iops: per_second(self.ios),
            bytes_per_second: per_second(self.bytes),
            errors: self.errors,
            short: self.short,
            submit_ns: LatencySummary::from(&self.submit),
            service_ns: LatencySummary::from(&self.service),
            response_ns: LatencySummary::from(&self.response),
        }
    }
}

/// Dense counts of one window; 32 bits suffice (4·10⁹ I/Os in one bucket of one window).
struct Dense {
    counts: Box<[u32; BUCKETS]>,
    low: usize,
    high: usize,
    count: u64,
    /// Enough for 2^64 ns in total: 584 years of latency in one window.
    sum: u64,
    sum_squares: u128,
    min: u64,
    max: u64,
}

impl Dense {
    fn new() -> Self {
        let counts = vec![0u32; BUCKETS].into_boxed_slice();
        Self {
            counts: counts
                .try_into()
                .unwrap_or_else(|_| unreachable!("the vector has BUCKETS elements")),
            low: BUCKETS,
            high: 0,
            count: 0,
            sum: 0,
            sum_squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Takes `n` equal values.
    #[inline]
    fn record_n(&mut self, value: u64, n: u64) {
        self.counts[bucket_of(value)] += n as u32;
        self.count += n;
        self.sum += value * n;
        self.sum_squares += u128::from(value) * u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn take(&mut self) -> SparseHistogram {
        if self.count == 0 {
            return SparseHistogram::default();
        }
        self.low = bucket_of(self.min);
        self.high = bucket_of(self.max);
        let mut buckets = Vec::with_capacity(64);
        for (i, n) in self.counts[self.low..=self.high].iter_mut().enumerate() {
            if *n > 0 {
                buckets.push(((self.low + i) as u32, u64::from(*n)));
                *n = 0;
            }
        }
        let moments = Moments {
            count: self.count,
            sum: u128::from(self.sum),
            sum_squares: self.sum_squares,
            min: self.min,
            max: self.max,
        };
        self.count = 0;
        self.sum = 0;
        self.sum_squares = 0;
        self.min = u64::MAX;
        self.max = 0;
        SparseHistogram { buckets, moments }
    }
}

/// I/Os that went through the same moments: a batch that is submitted together and reaped together
/// has one latency, so its histograms are booked once per batch rather than once per I/O.
#[derive(Clone, Copy, PartialEq)]
struct Times {
    intended: Nanos,
    submitted: Nanos,
    completed: Nanos,
}

impl Times {
    #[inline]
    fn of(r: &Record) -> Self {
        Self {
            intended: r.intended,
            submitted: r.submitted,
            completed: r.completed,
        }
    }
}

struct Accumulator {
    /// Of the run of alike I/Os that is not yet in the histograms.
    alike: Times,
    run: u64,
    /// Those in the run included.
    ios: u64,
    bytes: u64,
    errors: u64,
    short: u64,
    submit: Dense,
    service: Dense,
    response: Dense,
}

impl Accumulator {
    fn new() -> Self {
        Self {
            alike: Times {
                intended: Nanos::ZERO,
                submitted: Nanos::ZERO,
                completed: Nanos::ZERO,
            },
            run: 0,
            ios: 0,
            bytes: 0,
            errors: 0,
            short: 0,
            submit: Dense::new(),
            service: Dense::new(),
            response: Dense::new(),
        }
    }

    #[inline]
    fn add(&mut self, times: Times, n: u64) {
        if times != self.alike {
            self.book();
            self.alike = times;
        }
        self.run += n;
    }

    fn book(&mut self) {
        let n = std::mem::take(&mut self.run);
        if n == 0 {
            return;
        }
        let t = self.alike;
        self.submit.record_n(t.submitted.since(t.intended).0, n);
        self.service.record_n(t.completed.since(t.submitted).0, n);
        self.response.record_n(t.completed.since(t.intended).0, n);
    }

    fn take(&mut self) -> Option<Box<DirectionWindow>> {
        self.book();
        if self.ios + self.errors == 0 {
            return None;
        }
        Some(Box::new(DirectionWindow {
            ios: std::mem::take(&mut self.ios),
            bytes: std::mem::take(&mut self.bytes),
            errors: std::mem::take(&mut self.errors),
            short: std::mem::take(&mut self.short),
            submit: self.submit.take(),
            service: self.service.take(),
            response: self.response.take(),
        }))
    }
}

/// One thread's recorder.
pub struct Recorder<S> {
    origin: Nanos,
    width: Nanos,
    index: u64,
    window_end: Nanos,
    directions: [Option<Box<Accumulator>>; 4],
    log: Option<LogHandle>,
    /// The log, until the window of this number begins.
    later: (u64, Option<LogHandle>),
    sink: S,
}

impl<S: WindowSink> Recorder<S> {
    /// A recorder whose windows of `width` begin at `origin`. `ops` are the operations that the job
    /// will do: their histograms are allocated here, so that recording never allocates.
    pub fn new(origin: Nanos, width: Nanos, ops: &[Op], log: Option<LogHandle>, sink: S) -> Self {
        assert!(width > Nanos::ZERO, "a window has a width");
        let mut log = log;
        if let Some(log) = &mut log {
            log.set_origin(origin);
        }
        let mut directions = [None, None, None, None];
        for op in ops {
            directions[*op as usize] = Some(Box::new(Accumulator::new()));
        }
        Self {
            origin,
            width,
            index: 0,
            window_end: origin + width,
            directions,
            log,
            later: (0, None),
            sink,
        }
    }

    /// Leaves a ramp, a whole number of windows, out of the log, whose times count from its end.
    pub fn log_after(&mut self, ramp: Nanos) {
        if ramp > Nanos::ZERO {
            self.later = (ramp.0 / self.width.0, self.log.take());
            if let Some(log) = &mut self.later.1 {
                log.set_origin(self.origin + ramp);
            }
        }
    }

    /// Closes windows that ended before `now`; tells whether one did. Once per reaped batch, before
    /// its records.
    #[inline]
    pub fn advance(&mut self, now: Nanos) -> bool {
        let over = now >= self.window_end;
        if over {
            self.roll(now);
        }
        over
    }

    /// Takes one completed I/O. Operations that [`Recorder::new`] was not told of are a programmer's error.
    #[inline]
    pub fn record(&mut self, r: &Record) {
        self.log(r);
        let Some(a) = &mut self.directions[r.op as usize] else {
            debug_assert!(false, "{:?} was not announced", r.op);
            return;
        };
        if r.result < 0 {
            a.errors += 1;
            return;
        }
        a.ios += 1;
        a.bytes += r.result as u64;
        a.short += u64::from((r.result as u64) < u64::from(r.len));
        a.add(Times::of(r), 1);
    }

    /// Whether I/Os are logged one by one.
    #[inline]
    pub fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Takes a completed I/O for the log alone, where there is one; see [`Recorder::record_alike`].
    #[inline]
    pub fn log(&mut self, r: &Record) {
        if let Some(log) = &mut self.log {
            log.push(r);
        }
    }

    /// Takes `n` completed I/Os that transferred all that was asked, `bytes` together, and went through the same moments
    /// as `r`; the same as [`Recorder::record`] for each of them, but for the log, which wants each.
    #[inline]
    pub fn record_alike(&mut self, r: &Record, n: u64, bytes: u64) {
        let Some(a) = &mut self.directions[r.op as usize] else {
            debug_assert!(false, "{:?} was not announced", r.op);
            return;
        };
        a.ios += n;
        a.bytes += bytes;
        a.add(Times::of(r), n);
    }

    #[cold]
    fn roll(&mut self, now: Nanos) {
        self.flush();
        self.index = now.since(self.origin).0 / self.width.0;
        self.window_end = self.origin + Nanos((self.index + 1) * self.width.0);
        if self.index >= self.later.0 && self.later.1.is_some() {
            self.log = self.later.1.take();
        }
    }

    fn flush(&mut self) {
        let mut w = Window {
            index: self.index,
            ..Window::default()
        };
        for (slot, acc) in w.directions.iter_mut().zip(&mut self.directions) {
            *slot = acc.as_mut().and_then(|a| a.take());
        }
        if w.directions.iter().any(Option::is_some) {
            self.sink.window(w);
        }
    }

    /// Closes the last window and the log; returns the sink.
    pub fn finish(mut self) -> S {
        self.flush();
        for log in [self.log.take(), self.later.1.take()].into_iter().flatten() {
            log.close();
        }
        self.sink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(completed: u64, result: i64) -> Record {
        Record {
            intended: Nanos(completed - 300),
            submitted: Nanos(completed - 200),
            completed: Nanos(completed),
            offset: 0,
            len: 4096,
            result,
            op: Op::Read,
        }
    }

    #[test]
    fn alike_ones_taken_together_count_as_one_by_one() {
        let recorder = || Recorder::new(Nanos(0), Nanos(1000), &[Op::Read], None, Vec::new());
        let (mut singly, mut together) = (recorder(), recorder());
        for (t, n) in [(700, 3), (900, 1), (1500, 2)] {
            let r = io(t, 4096);
            singly.advance(Nanos(t));
            (0..n).for_each(|_| singly.record(&r));
            together.advance(Nanos(t));
            together.record_alike(&r, n, 4096 * n);
        }
        assert_eq!(singly.finish(), together.finish());
    }

    #[test]
    fn windows_hold_what_completed_in_them_and_empty_ones_are_left_out() {
        let mut r = Recorder::new(Nanos(1000), Nanos(1000), &[Op::Read], None, Vec::new());
        for (t, result) in [(1500, 4096), (1999, 512), (4000, -5), (4100, 4096)] {
            r.advance(Nanos(t));
            r.record(&io(t, result));
        }
        let windows = r.finish();
        let seen: Vec<_> = windows
            .iter()
            .map(|w| {
                let d = w.directions[0].as_ref().unwrap();
                (w.index, d.ios, d.errors, d.short, d.bytes)
            })
            .collect();
        assert_eq!(seen, [(0, 2, 0, 1, 4608), (3, 1, 1, 0, 4096)]);
        let d = windows[0].directions[0].as_ref().unwrap();
        assert_eq!(d.service.quantile(0.5), Some(200));
        assert_eq!(d.response.moments.sum, 600);
        assert_eq!(d.submit.moments.max, 100);
    }
}
