//! Terminals: each has its warehouse, its district and its deck of cards. Deliveries are queued and done in the
//! background, as clause 2.7 wants.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fathom_io::clock::{Clock, process_cpu};
use fathom_io::threads::within;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Histogram, Nanos};

use super::super::sql::{Result, SqlError};
use super::Database;
use super::schema::DISTRICTS;
use super::transactions::{Client, Constants, End, Kind};

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) constants: Constants,
    pub(super) warehouses: u32,
    pub(super) terminals: u32,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
    pub(super) seed: u64,
}

/// What came of it; arrays in the order of [`Kind::ALL`].
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) done: [u64; 5],
    /// New orders that were rolled back because they had to be.
    pub(super) rolled_back: u64,
    /// Tried again after deadlocks and lock waits.
    pub(super) again: u64,
    pub(super) seconds: f64,
    pub(super) latency: [Histogram; 5],
    /// (seconds, new orders per minute).
    pub(super) series: Vec<(f64, f64)>,
    /// Of the driver, s.
    pub(super) cpu: f64,
}

/// What a thread saw in the measured time.
#[derive(Default)]
struct Seen {
    done: [u64; 5],
    latency: [Histogram; 5],
    rolled_back: u64,
    again: u64,
}

/// Deliveries that wait: a warehouse, and since when.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<(i64, Nanos)>>,
    ring: Condvar,
}

/// As many wait at most; a terminal whose delivery finds no room does it itself.
const QUEUE_MAX: usize = 1000;

struct Common<'a> {
    load: &'a Load,
    now: String,
    stop: AtomicBool,
    measuring: AtomicBool,
    new_orders: AtomicU64,
    queue: Queue,
}

/// Runs the load; `begin` is called when the ramp is over, for what others count from then on.
///
/// # Errors
/// The first failure that trying again does not mend.
pub(super) fn run(
    database: &Database,
    load: &Load,
    stop_early: &dyn Fn() -> bool,
    begin: &mut dyn FnMut(),
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome> {
    const TICK: Duration = Duration::from_millis(100);
    let common = Common {
        load,
        now: super::now(),
        stop: AtomicBool::new(false),
        measuring: AtomicBool::new(false),
        new_orders: AtomicU64::new(0),
        queue: Queue::default(),
    };
    let background = load.terminals.div_ceil(10);
    let mut clients = (0..load.terminals + background)
        .map(|t| {
            let seed = load.seed ^ SplitMix64::new(u64::from(t) + 1).next_u64();
            let session = database.connect()?;
            Client::new(
                session,
                database.dialect(),
                load.constants,
                i64::from(load.warehouses),
                seed,
            )
        })
        .collect::<Result<Vec<Client>>>()?;
    let (terminals, deliverers) = clients.split_at_mut(load.terminals as usize);
    std::thread::scope(|scope| {
        let common = &common;
        let mut workers = Vec::new();
        let sent = terminals
            .iter_mut()
            .enumerate()
            .map(|(t, client)| within(scope, move || terminal(common, t, client)));
        let delivering = deliverers
            .iter_mut()
            .map(|client| within(scope, move || deliverer(common, client)));
        for worker in sent.chain(delivering) {
            workers.push(worker.map_err(|e| {
                common.stop.store(true, Ordering::SeqCst);
                common.queue.ring.notify_all();
                SqlError::here(e.to_string())
            })?);
        }
        let clock = Clock::new();
        let start = clock.now();
        let cpu = || {
            let (user, system) = process_cpu();
            (user.0 + system.0) as f64 / 1e9
        };
        let mut out = Outcome::default();
        let mut last = (start, 0);
        let mut base: Option<(Nanos, f64)> = None;
        loop {
            std::thread::sleep(TICK);
            let (now, n) = (clock.now(), common.new_orders.load(Ordering::Relaxed));
            let rate = (n - last.1) as f64 / now.since(last.0).as_secs_f64().max(1e-9);
            out.series
                .push((now.since(start).as_secs_f64(), rate * 60.0));
            tick(rate);
            last = (now, n);
            if base.is_none() && now.since(start) >= load.ramp {
                begin();
                base = Some((clock.now(), cpu()));
                common.measuring.store(true, Ordering::Relaxed);
            }
            let full = base.is_some_and(|b| now.since(b.0) >= load.time);
            if full || stop_early() || workers.iter().any(|w| w.is_finished()) {
                break;
            }
        }
        if let Some((at, before)) = base {
            out.seconds = clock.now().since(at).as_secs_f64();
            out.cpu = cpu() - before;
        }
        // What ends after this moment is not counted.
        common.measuring.store(false, Ordering::SeqCst);
        common.stop.store(true, Ordering::SeqCst);
        common.queue.ring.notify_all();
        for w in workers {
            let seen = match w.join() {
                Ok(seen) => seen?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            for i in 0..5 {
                out.done[i] += seen.done[i];
                out.latency[i].merge(&seen.latency[i]);
            }
            out.rolled_back += seen.rolled_back;
            out.again += seen.again;
        }
        Ok::<_, SqlError>(out)
    })
}

/// Does one transaction until it succeeds or the run ends; counts it, from `began` on.
fn one(
    common: &Common<'_>,
    client: &mut Client,
    kind: Kind,
    (w, d): (i64, i64),
    (began, clock): (Nanos, &Clock),
    seen: &mut Seen,
) -> Result<()> {
    loop {
        match client.run(kind, w, d, &common.now) {
            Ok(end) => {
                if kind == Kind::NewOrder && end == End::Committed {
                    common.new_orders.fetch_add(1, Ordering::Relaxed);
                }
                if common.measuring.load(Ordering::Relaxed) {
                    if end == End::RolledBack {
                        seen.rolled_back += 1;
                    } else {
                        seen.done[kind as usize] += 1;
                    }
                    let took = clock.now().since(began);
                    seen.latency[kind as usize].record(took.0);
                }
                return Ok(());
            }
            Err(e) if e.again => {
                seen.again += u64::from(common.measuring.load(Ordering::Relaxed));
                if common.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn terminal(common: &Common<'_>, number: usize, client: &mut Client) -> Result<Seen> {
    let warehouses = i64::from(common.load.warehouses);
    let w = number as i64 % warehouses + 1;
    let d = number as i64 / warehouses % DISTRICTS + 1;
    let clock = Clock::new();
    let mut seen = Seen::default();
    let mut deck = Vec::new();
    while !common.stop.load(Ordering::Relaxed) {
        if deck.is_empty() {
            deck = Kind::deck(&mut client.random);
        }
        let Some(kind) = deck.pop() else { continue };
        let began = clock.now();
        if kind == Kind::Delivery {
            let mut waiting = lock(&common.queue.waiting);
            if waiting.len() < QUEUE_MAX {
                waiting.push_back((w, began));
                common.queue.ring.notify_one();
                continue;
            }
        }
        one(common, client, kind, (w, d), (began, &clock), &mut seen)?;
    }
    Ok(seen)
}

fn deliverer(common: &Common<'_>, client: &mut Client) -> Result<Seen> {
    let clock = Clock::new();
    let mut seen = Seen::default();
    loop {
        let next = {
            let mut waiting = lock(&common.queue.waiting);
            loop {
                if common.stop.load(Ordering::Relaxed) {
                    return Ok(seen);
                }
                if let Some(next) = waiting.pop_front() {
                    break next;
                }
                let patience = Duration::from_millis(100);
                waiting = common
                    .queue
                    .ring
                    .wait_timeout(waiting, patience)
                    .map_or_else(|e| e.into_inner().0, |w| w.0);
            }
        };
        let (w, since) = next;
        one(
            common,
            client,
            Kind::Delivery,
            (w, 1),
            (since, &clock),
            &mut seen,
        )?;
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
