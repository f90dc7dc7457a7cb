//! Terminals: each has its warehouse, its district and its deck of cards. Deliveries are queued and done in the
//! background, as clause 2.7 wants.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Nanos;

use super::super::database::Database;
use super::super::sql::{Result, SqlError};
use super::schema::DISTRICTS;
use super::transactions::{Client, Constants, End, Kind};
use crate::clients::{self, Loop, Seat, Total};
use crate::loads;

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) constants: Constants,
    pub(super) warehouses: u32,
    pub(super) terminals: u32,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
    /// Transactions per second that come, whatever was answered.
    pub(super) rate: Option<f64>,
    /// Whether terminals deliver themselves.
    pub(super) inline: bool,
    pub(super) seed: u64,
}

/// What came of it.
pub(super) struct Outcome {
    /// In the order of [`Kind::ALL`].
    pub(super) loads: Vec<loads::Load>,
    /// New orders that were rolled back because they had to be.
    pub(super) rolled_back: u64,
    /// Tried again after deadlocks and lock waits.
    pub(super) again: u64,
}

/// Deliveries that wait: a warehouse, and since when.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<(i64, Nanos)>>,
    ring: Condvar,
}

/// As many wait at most; a terminal whose delivery finds no room does it itself.
const QUEUE_MAX: usize = 1000;

struct Common {
    now: String,
    warehouses: i64,
    queue: Queue,
    rolled_back: AtomicU64,
    again: AtomicU64,
    open: bool,
    inline: bool,
}

/// Runs the load. `cold` says what keeps the ramp from its end; `begin` and `end` are called when counting begins and ends, for
/// what others count.
///
/// # Errors
/// The first failure that trying again does not mend.
pub(super) fn run(
    database: &Database,
    load: &Load,
    (stop, cold): (&dyn Fn() -> bool, &dyn Fn() -> Option<&'static str>),
    begin: &mut dyn FnMut(Total<'_>),
    end: &mut dyn FnMut(Total<'_>),
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome> {
    let common = Common {
        now: super::now(),
        warehouses: i64::from(load.warehouses),
        queue: Queue::default(),
        rolled_back: AtomicU64::new(0),
        again: AtomicU64::new(0),
        open: load.rate.is_some(),
        inline: load.inline,
    };
    let common = &common;
    let background = match load.inline {
        true => 0,
        false => load.terminals.div_ceil(10),
    };
    let mut sessions = (0..load.terminals + background)
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
    let clients = sessions.iter_mut().enumerate().map(|(t, client)| {
        let client: clients::Client<'_, SqlError> = if t < load.terminals as usize {
            Box::new(move |seat| terminal(common, t, client, seat))
        } else {
            Box::new(move |seat| deliverer(common, client, seat))
        };
        client
    });
    let how = Loop {
        open: load.rate.map(|rate| (rate, load.seed)),
        ramp: load.ramp,
        time: load.time,
        cold,
        ramp_max: clients::ramp_max(load.time),
        kinds: &Kind::ALL.map(Kind::ops),
        stop,
    };
    let counted = || [&common.rolled_back, &common.again].map(|c| c.load(Ordering::Relaxed));
    let mut before = [0; 2];
    let mut counting = |total: Total<'_>| {
        before = counted();
        begin(total);
    };
    let woken = || common.queue.ring.notify_all();
    let loads = clients::run(&how, clients.collect(), &mut counting, end, &woken, tick)?;
    let after = counted();
    Ok(Outcome {
        loads,
        rolled_back: after[0] - before[0],
        again: after[1] - before[1],
    })
}

/// Does one transaction until it succeeds or the run ends; it counts from when it `came`.
fn one(
    common: &Common,
    client: &mut Client,
    kind: Kind,
    (w, d): (i64, i64),
    came: Nanos,
    seat: &mut Seat<'_>,
) -> Result<()> {
    loop {
        match client.run(kind, w, d, &common.now) {
            Ok(End::Committed) => {
                seat.done(kind as usize, kind.op(), 0, came);
                return Ok(());
            }
            Ok(End::RolledBack) => {
                common.rolled_back.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(e) if e.again => {
                common.again.fetch_add(1, Ordering::Relaxed);
                if !seat.going() {
                    return Ok(());
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn terminal(
    common: &Common,
    number: usize,
    client: &mut Client,
    seat: &mut Seat<'_>,
) -> Result<()> {
    let w = number as i64 % common.warehouses + 1;
    let d = number as i64 / common.warehouses % DISTRICTS + 1;
    let mut deck = Vec::new();
    while let Some(came) = seat.next() {
        if deck.is_empty() {
            deck = Kind::deck(&mut client.random);
        }
        let Some(kind) = deck.pop() else { continue };
        // A terminal's own time begins when it takes up what it does next.
        let came = if common.open { came } else { seat.now() };
        if kind == Kind::Delivery && !common.inline {
            let mut waiting = lock(&common.queue.waiting);
            if waiting.len() < QUEUE_MAX {
                waiting.push_back((w, came));
                common.queue.ring.notify_one();
                continue;
            }
        }
        one(common, client, kind, (w, d), came, seat)?;
    }
    Ok(())
}

fn deliverer(common: &Common, client: &mut Client, seat: &mut Seat<'_>) -> Result<()> {
    loop {
        let (w, since) = {
            let mut waiting = lock(&common.queue.waiting);
            loop {
                if !seat.going() {
                    return Ok(());
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
        one(common, client, Kind::Delivery, (w, 1), since, seat)?;
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
