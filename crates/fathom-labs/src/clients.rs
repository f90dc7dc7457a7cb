//! Clients, and what came of them by windows. In a closed loop each asks again as soon as it was answered. In an open loop
//! requests come at their own times, whatever was answered: who is free takes the next, and it is late from its time on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use fathom_bench::progress::ProgressSink;
use fathom_io::clock::{Clock, process_cpu};
use fathom_io::driver::Progress;
use fathom_io::threads::within;
use fathom_stats::rng::SplitMix64;
use fathom_system::process::{END_LIMIT, alarm};
use fathom_telemetry::{Nanos, Op, Record, Recorder, Window, WindowSink};

use crate::LabError;
use crate::loads::{Course, Load};

/// Of the windows that clients record.
pub(crate) const WIDTH: Nanos = Nanos::from_millis(100);

/// How long, how often, and what is recorded.
pub(crate) struct Loop<'a> {
    /// Requests per second of an open loop, all clients together, with a seed for their times (Poisson).
    pub(crate) open: Option<(f64, u64)>,
    /// Left out at the start, at least; rounded up to whole windows. Without it everything counts, from the first
    /// operation on.
    pub(crate) ramp: Nanos,
    /// What has not yet warmed up of what is measured: the ramp goes on while there is something, until `ramp_max`.
    pub(crate) cold: &'a dyn Fn() -> Option<&'static str>,
    /// Longest ramp.
    pub(crate) ramp_max: Nanos,
    /// Measured.
    pub(crate) time: Nanos,
    /// Operations of each kind of work that is recorded for itself; kinds are numbered from 0.
    pub(crate) kinds: &'a [&'a [Op]],
    /// Ends it early.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

/// Shows the rate of a load that runs.
pub(crate) fn ticker(sink: &mut dyn ProgressSink) -> impl FnMut(f64) {
    let began = fathom_io::clock::monotonic();
    let mut ops = 0.0;
    let mut last = began;
    move |rate| {
        let now = fathom_io::clock::monotonic();
        // The line shows differences.
        ops += rate * now.since(last).as_secs_f64();
        last = now;
        sink.progress(&Progress {
            elapsed: now.since(began),
            ios: ops as u64,
            ..Progress::default()
        });
    }
}

/// How long a server's pool may take to fill before a load of so much time.
pub(crate) fn ramp_max(time: Nanos) -> Nanos {
    Nanos(time.0 * 10).max(Nanos::from_secs(30))
}

/// The times of an open loop's requests.
pub(crate) struct Arrivals {
    random: SplitMix64,
    /// Between two of them, on average, ns.
    mean: f64,
    next: f64,
}

impl Arrivals {
    pub(crate) fn new((rate, seed): (f64, u64), start: Nanos) -> Self {
        let mut me = Self {
            random: SplitMix64::new(seed),
            mean: 1e9 / rate.max(1e-3),
            next: start.0 as f64,
        };
        me.take();
        me
    }

    pub(crate) fn take(&mut self) -> Nanos {
        let at = Nanos(self.next as u64);
        // Of 1 - u, which is never 0.
        self.next -= self.mean * (1.0 - self.random.unit()).ln();
        at
    }
}

/// On a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

/// Windows of a kind, all clients together.
#[derive(Clone, Default)]
pub(crate) struct Windows(Arc<Mutex<BTreeMap<u64, Window>>>);

impl WindowSink for Windows {
    fn window(&mut self, window: Window) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&window.index) {
            Some(w) => w.merge(&window),
            None => {
                all.insert(window.index, window);
            }
        }
    }
}

impl Windows {
    /// Takes all of them as a load whose measured part begins with window `first`; whoever knows more of it adds it.
    pub(crate) fn gather(&self, first: u64) -> Load {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let course = Course::of(WIDTH, first as usize, &all);
        let mut measured = all.split_off(&first);
        measured.values_mut().for_each(|w| w.index -= first);
        Load {
            clients: 0,
            wall: Nanos::ZERO,
            cpu: (Nanos::ZERO, Nanos::ZERO),
            width: WIDTH,
            windows: measured.into_values().collect(),
            course,
            cold: None,
            rate: None,
            percentiles: true,
            noted: Vec::new(),
            origin: Nanos::ZERO,
        }
    }
}

/// A client's place: it works as long as it is `going`, and says what it has `done`.
pub(crate) struct Seat<'a> {
    clock: Clock,
    began: Nanos,
    /// When the request was taken up that came at its own time.
    taken: Nanos,
    recorders: Vec<Recorder<Windows>>,
    stop: &'a AtomicBool,
    count: &'a Count,
    arrivals: Option<&'a Mutex<Arrivals>>,
}

impl Seat<'_> {
    /// What a client does here, from its begin to what it has recorded.
    fn serve<E>(mut self, client: Client<'_, E>) -> Result<(), E> {
        self.began = self.now();
        let done = client(&mut self);
        self.recorders.drain(..).for_each(|r| drop(r.finish()));
        done
    }

    /// Whether to go on.
    pub(crate) fn going(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// When the next request came: in a closed loop when the last was answered, in an open one at its time, which is waited
    /// for. `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        if !self.going() {
            return None;
        }
        let Some(arrivals) = self.arrivals else {
            return Some(self.began);
        };
        let due = arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        loop {
            let now = self.clock.now();
            if now >= due {
                self.taken = now;
                return Some(due);
            }
            let left = due.since(now).min(Nanos::from_millis(20));
            std::thread::sleep(Duration::from(left));
            if !self.going() {
                return None;
            }
        }
    }

    /// A request is taken up that came from elsewhere.
    pub(crate) fn takes(&mut self, now: Nanos) {
        self.taken = now;
    }

    /// Now, on the clock of what is recorded.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// What came was given up: it is recorded nowhere, and in a closed loop the next begins now.
    pub(crate) fn gave_up(&mut self) {
        self.began = self.clock.now();
    }

    /// An operation of a kind has ended that came at a moment of [`Seat::next`] or [`Seat::now`].
    pub(crate) fn done(&mut self, kind: usize, op: Op, bytes: u32, came: Nanos) {
        let now = self.clock.now();
        let recorder = &mut self.recorders[kind];
        recorder.advance(now);
        recorder.record(&Record {
            intended: came,
            submitted: came.max(self.taken),
            completed: now,
            offset: 0,
            len: bytes,
            result: i64::from(bytes),
            op,
        });
        self.count.0.fetch_add(1, Ordering::Relaxed);
        self.began = now;
    }
}

/// How the ramp ended.
#[derive(Default)]
struct Ramp {
    /// First window of the measured part.
    first: Option<u64>,
    cold: Option<&'static str>,
    /// CPU time of the process until then.
    cpu: (Nanos, Nanos),
}

impl Ramp {
    fn ends(&mut self, first: u64, cold: Option<&'static str>) {
        (self.first, self.cold, self.cpu) = (Some(first), cold, process_cpu());
    }
}

/// What a client does from its first operation to its last.
pub(crate) type Client<'a, E> = Box<dyn FnOnce(&mut Seat<'_>) -> Result<(), E> + Send + 'a>;

/// Operations so far, for whoever counts something beside.
pub(crate) type Total<'a> = &'a dyn Fn() -> u64;

/// Runs clients; returns one load for each kind. `begin` is called when the ramp is over, `end` when nothing moves any
/// more, for what is counted beside; `woken` wakes clients that wait for something else when they are to stop.
///
/// # Errors
/// The first failure of a client.
pub(crate) fn run<E: From<LabError> + Send>(
    how: &Loop<'_>,
    clients: Vec<Client<'_, E>>,
    begin: &mut dyn FnMut(Total<'_>),
    end: &mut dyn FnMut(Total<'_>),
    woken: &dyn Fn(),
    tick: &mut dyn FnMut(f64),
) -> Result<Vec<Load>, E> {
    let stop = AtomicBool::new(false);
    let counts: Vec<Count> = clients.iter().map(|_| Count::default()).collect();
    let total = || -> u64 { counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum() };
    let windows: Vec<Windows> = how.kinds.iter().map(|_| Windows::default()).collect();
    let first = Clock::new().now();
    let arrivals = how.open.map(|open| Mutex::new(Arrivals::new(open, first)));
    std::thread::scope(|scope| {
        let clock = Clock::new();
        let mut ramp = Ramp::default();
        if how.ramp == Nanos::ZERO {
            begin(&total);
            ramp.ends(0, None);
        }
        let start = clock.now();
        let workers: Vec<_> = clients
            .into_iter()
            .zip(&counts)
            .map(|(client, count)| {
                let kinds = how.kinds.iter().zip(&windows);
                let recorder = |(ops, w): (&&[Op], &Windows)| {
                    Recorder::new(start, WIDTH, ops, None, w.clone())
                };
                let seat = Seat {
                    clock: Clock::new(),
                    began: start,
                    taken: Nanos::ZERO,
                    arrivals: arrivals.as_ref(),
                    recorders: kinds.map(recorder).collect(),
                    stop: &stop,
                    count,
                };
                within(scope, move || seat.serve(client))
            })
            .collect::<Result<_, _>>()
            .map_err(|e| {
                stop.store(true, Ordering::SeqCst);
                woken();
                LabError::Failed(e.to_string())
            })?;
        let mut load = UnderWay {
            how,
            clock,
            start,
            ramp,
        };
        let any_ended = || workers.iter().any(|w| w.is_finished());
        load.attend(&total, begin, tick, &any_ended);
        stop.store(true, Ordering::SeqCst);
        woken();
        let ended = joined(workers, how.stop);
        let last = (load.clock.now(), process_cpu());
        end(&total);
        for client in ended {
            client.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let of_kind = |w: &Windows| load.of_kind(w, counts.len(), last);
        let mut loads: Vec<Load> = windows.iter().map(of_kind).collect();
        share_rates(&mut loads);
        Ok(loads)
    })
}

/// A load while clients work, and when it has ended.
struct UnderWay<'a> {
    how: &'a Loop<'a>,
    clock: Clock,
    start: Nanos,
    ramp: Ramp,
}

impl UnderWay<'_> {
    /// Goes from window to window until all is measured, or a client has `ended`.
    fn attend(
        &mut self,
        total: Total<'_>,
        begin: &mut dyn FnMut(Total<'_>),
        tick: &mut dyn FnMut(f64),
        ended: &dyn Fn() -> bool,
    ) {
        let mut last = (self.start, 0);
        loop {
            // To the next window: what is counted beside begins where a window does.
            let window = self.clock.now().since(self.start).0 / WIDTH.0 + 1;
            let due = self.start + Nanos(window * WIDTH.0);
            std::thread::sleep(Duration::from(due.since(self.clock.now())));
            let (now, done) = (self.clock.now(), total());
            tick((done - last.1) as f64 / now.since(last.0).as_secs_f64().max(1e-9));
            last = (now, done);
            if self.ramp.first.is_none() {
                let cold = (self.how.cold)();
                let ramped = now.since(self.start) >= self.how.ramp;
                if ramped && (cold.is_none() || now.since(self.start) >= self.how.ramp_max) {
                    // Asking took its time.
                    let window = self.clock.now().since(self.start).0 / WIDTH.0;
                    begin(total);
                    self.ramp.ends(window, cold);
                }
            }
            let measured = |first| now.since(self.start) >= Nanos(first * WIDTH.0) + self.how.time;
            let full = self.ramp.first.is_some_and(measured);
            if full || (self.how.stop)() || ended() {
                break;
            }
        }
    }

    /// What came of a kind until a moment, with the process's CPU time until then.
    fn of_kind(
        &self,
        windows: &Windows,
        clients: usize,
        (end, cpu): (Nanos, (Nanos, Nanos)),
    ) -> Load {
        // One that was ended in its ramp has measured nothing.
        let first = self.ramp.first.unwrap_or(u64::MAX);
        let origin = self.start + Nanos(first.saturating_mul(WIDTH.0));
        Load {
            clients: clients as u32,
            origin,
            wall: end.since(origin),
            cpu: (cpu.0 - self.ramp.cpu.0, cpu.1 - self.ramp.cpu.1),
            cold: self.ramp.cold,
            rate: self.how.open.map(|o| o.0),
            ..windows.gather(first)
        }
    }
}

/// Waits for the end of all clients. One whose server answers no more would wait for ever. (A signal has wound the clock
/// itself.)
fn joined<T>(
    workers: Vec<ScopedJoinHandle<'_, T>>,
    stop: &dyn Fn() -> bool,
) -> Vec<thread::Result<T>> {
    if !stop() {
        alarm(END_LIMIT);
    }
    let ended = workers.into_iter().map(|w| w.join()).collect();
    if !stop() {
        alarm(0);
    }
    ended
}

/// What came is known of all kinds together: of each its share of what was answered.
fn share_rates(loads: &mut [Load]) {
    let all: u64 = loads.iter().map(Load::operations).sum();
    for load in loads {
        let share = load.operations() as f64 / all.max(1) as f64;
        load.rate = load.rate.map(|rate| rate * share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_after_the_ramp_counts_and_each_kind_for_itself() {
        let how = Loop {
            open: None,
            ramp: Nanos::from_millis(200),
            time: Nanos::from_millis(400),
            cold: &|| None,
            ramp_max: Nanos::from_secs(1),
            kinds: &[&[Op::Read], &[Op::Write]],
            stop: &|| false,
        };
        let client = |kind: usize, op: Op, ms: u64| -> Client<'_, LabError> {
            Box::new(move |seat| {
                while let Some(came) = seat.next() {
                    std::thread::sleep(Duration::from_millis(ms));
                    seat.done(kind, op, 10, came);
                }
                Ok(())
            })
        };
        let (mut before, mut after) = (0, 0);
        let loads = run(
            &how,
            vec![client(0, Op::Read, 5), client(1, Op::Write, 20)],
            &mut |total| before = total(),
            &mut |total| after = total(),
            &|| (),
            &mut |_| (),
        )
        .unwrap();
        let [reads, writes] = &loads[..] else {
            panic!("two kinds")
        };
        let (r, w) = (reads.operations(), writes.operations());
        assert!(r > w && w > 0, "{r} {w}");
        // Counted beside at about the same moments.
        assert!(
            (after - before).abs_diff(r + w) <= 40,
            "{after} {before} {r} {w}"
        );
        assert!(reads.wall >= how.time);
        let latency = reads.windows[0].directions[Op::Read as usize].as_ref();
        let least = latency.unwrap().response.quantile(0.5).unwrap();
        assert!(least >= 4_900_000, "{least}");
    }

    #[test]
    fn the_ramp_goes_on_until_it_is_warm_and_what_stays_cold_is_void() {
        for (after, max, warm) in [(3, 60_000, true), (1_000_000, 500, false)] {
            let asked = std::cell::Cell::new(0);
            let how = Loop {
                open: None,
                ramp: Nanos::from_millis(100),
                time: Nanos::from_millis(200),
                cold: &|| {
                    asked.set(asked.get() + 1);
                    (asked.get() < after).then_some("it was asked too rarely")
                },
                ramp_max: Nanos::from_millis(max),
                kinds: &[&[Op::Read]],
                stop: &|| false,
            };
            let client: Client<'_, LabError> = Box::new(|seat| {
                while let Some(came) = seat.next() {
                    std::thread::sleep(Duration::from_millis(1));
                    seat.done(0, Op::Read, 1, came);
                }
                Ok(())
            });
            let none = &mut |_: Total<'_>| ();
            let also = &mut |_: Total<'_>| ();
            let loads = run(&how, vec![client], none, also, &|| (), &mut |_| ()).unwrap();
            assert_eq!(loads[0].cold.is_none(), warm);
            assert!(loads[0].course.ramp >= 3, "{:?}", loads[0].course);
            assert!(loads[0].operations() > 0 && loads[0].wall >= how.time);
        }
    }

    #[test]
    fn in_an_open_loop_requests_are_late_from_their_time_on() {
        let open = (60.0, 7);
        let how = Loop {
            open: Some(open),
            ramp: Nanos::ZERO,
            time: Nanos::from_secs(4),
            cold: &|| None,
            ramp_max: Nanos::ZERO,
            kinds: &[&[Op::Read]],
            stop: &|| false,
        };
        // When each came, was taken up and had ended.
        let mut seen: Vec<[Nanos; 3]> = Vec::new();
        let client: Client<'_, LabError> = Box::new(|seat| {
            while let Some(came) = seat.next() {
                let taken = seat.now();
                std::thread::sleep(Duration::from_millis(10));
                seat.done(0, Op::Read, 1, came);
                seen.push([came, taken, seat.now()]);
            }
            Ok(())
        });
        let none = &mut |_: Total<'_>| ();
        let also = &mut |_: Total<'_>| ();
        let loads = run(&how, vec![client], none, also, &|| (), &mut |_| ()).unwrap();
        assert_eq!(loads[0].operations(), seen.len() as u64);
        assert!(seen.len() > 50, "{}", seen.len());
        // They come when they would come to any server, and one server takes them up one after the other: each waits for
        // those before it, at least as long as Lindley's recursion says of the same services.
        let start = seen[0][0] - Arrivals::new(open, Nanos::ZERO).take();
        let mut arrivals = Arrivals::new(open, start);
        let (mut free, mut waits) = (Nanos::ZERO, 0.0);
        for [came, taken, ended] in &seen {
            let due = arrivals.take();
            assert!(due.0.abs_diff(came.0) < 1_000, "{due:?} {came:?}");
            let begins = free.max(*came);
            assert!(*taken >= begins, "{taken:?} {begins:?}");
            waits += begins.since(*came).as_secs_f64();
            free = begins + ended.since(*taken);
        }
        let sum = |of: fn(&[Nanos; 3]) -> Nanos| -> f64 {
            seen.iter().map(|s| of(s).as_secs_f64()).sum()
        };
        let (service, response) = (sum(|s| s[2].since(s[1])), sum(|s| s[2].since(s[0])));
        // The server works for 60 % of the time, or more.
        assert!(waits > service * 0.2, "{waits} {service}");
        assert!(response > service + waits * 0.99, "{response}");
        type Kept = fathom_telemetry::SparseHistogram;
        let recorded = |of: fn(&fathom_telemetry::DirectionWindow) -> &Kept| {
            let mut all = fathom_telemetry::Histogram::new();
            let windows = loads[0].windows.iter().flat_map(|w| &w.directions);
            windows.flatten().for_each(|d| all.merge_sparse(of(d)));
            let mean = fathom_telemetry::LatencySummary::from(&all).mean.unwrap();
            mean / 1e9 * seen.len() as f64
        };
        let alike = |recorded: f64, seen: f64| (recorded / seen - 1.0).abs() < 0.02;
        let (service_of, response_of) = (recorded(|d| &d.service), recorded(|d| &d.response));
        assert!(alike(service_of, service), "{service_of} {service}");
        assert!(alike(response_of, response), "{response_of} {response}");
    }

    #[test]
    fn a_client_that_fails_ends_all() {
        let how = Loop {
            open: None,
            ramp: Nanos::ZERO,
            time: Nanos::from_secs(60),
            cold: &|| None,
            ramp_max: Nanos::ZERO,
            kinds: &[&[Op::Read]],
            stop: &|| false,
        };
        let patient: Client<'_, LabError> = Box::new(|seat| {
            while seat.going() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let failing: Client<'_, LabError> = Box::new(|_| Err(LabError::Failed("it broke".into())));
        let none = &mut |_: Total<'_>| ();
        let also = &mut |_: Total<'_>| ();
        let said = run(
            &how,
            vec![patient, failing],
            none,
            also,
            &|| (),
            &mut |_| (),
        );
        assert_eq!(
            said.err().map(|e| e.to_string()).as_deref(),
            Some("it broke")
        );
    }
}
