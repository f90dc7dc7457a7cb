//! Terminals: each has its warehouse, its district and its deck of cards. Deliveries are queued and done in the
//! background, as clause 2.7 wants. Terminals that wait between their transactions need no connection and no thread meanwhile: a few
//! connections serve all of them, and who finds none free is late from the moment of its entry.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fathom_io::clock::Clock;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::Nanos;

use super::super::database::Database;
use super::super::sql::{Result, SqlError};
use super::rules::Pace;
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
    /// Connections that serve them; as many as terminals where these never wait.
    pub(super) connections: u32,
    pub(super) pace: Pace,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
    /// Transactions per second that come, whatever was answered.
    pub(super) rate: Option<f64>,
    /// Whether terminals deliver themselves.
    pub(super) inline: bool,
    pub(super) seed: u64,
}

impl Load {
    /// Connections that deliver in the background.
    fn background(&self) -> u32 {
        match self.inline {
            true => 0,
            false => self.connections.div_ceil(10),
        }
    }
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

/// A terminal between two transactions.
struct Waiting {
    /// When it enters the next one.
    due: Nanos,
    terminal: Terminal,
}

/// The one that is due first is the largest, as a heap wants it.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Order {
        let other = (other.due, other.terminal.number);
        other.cmp(&(self.due, self.terminal.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Waiting {}

/// Terminals that wait, and whose turn it is to look for the next one that is due.
struct Room {
    waiting: Mutex<BinaryHeap<Waiting>>,
    turn: Mutex<()>,
    pace: Pace,
}

impl Room {
    /// With terminals that begin at moments of one round, so that they do not come together.
    fn new(load: &Load, now: Nanos) -> Self {
        let mut random = SplitMix64::new(load.seed);
        let warehouses = i64::from(load.warehouses);
        let all = (0..load.terminals).map(|number| {
            let seed = random.next_u64();
            let mut terminal = Terminal::new(number, warehouses, SplitMix64::new(seed));
            let next = terminal.deal();
            let round = load.pace.between(next, next, &mut random);
            Waiting {
                due: now + Nanos((round.0 as f64 * random.unit()) as u64),
                terminal,
            }
        });
        Self {
            waiting: Mutex::new(all.collect()),
            turn: Mutex::new(()),
            pace: load.pace,
        }
    }

    /// The next terminal, once it is due; `None` at the end.
    fn next(&self, seat: &mut Seat<'_>) -> Option<Waiting> {
        let _turn = lock(&self.turn);
        while seat.going() {
            let mut left = Nanos::from_millis(5);
            {
                let mut waiting = lock(&self.waiting);
                if let Some(first) = waiting.peek() {
                    let now = seat.now();
                    if first.due <= now {
                        seat.takes(now);
                        return waiting.pop();
                    }
                    // Somebody may come back who is due before.
                    left = left.min(first.due.since(now));
                }
            }
            std::thread::sleep(Duration::from(left));
        }
        None
    }

    /// It has its answer, thinks, and keys in what comes next.
    fn back(&self, mut terminal: Terminal, done: Kind, seat: &Seat<'_>) {
        let next = terminal.deal();
        let wait = self.pace.between(done, next, &mut terminal.random);
        let due = seat.now() + wait;
        lock(&self.waiting).push(Waiting { due, terminal });
    }
}

/// Whose transactions these are.
struct Terminal {
    number: u32,
    /// Warehouse and district.
    place: (i64, i64),
    /// The last card is the next one.
    deck: Vec<Kind>,
    random: SplitMix64,
}

impl Terminal {
    fn new(number: u32, warehouses: i64, random: SplitMix64) -> Self {
        let n = i64::from(number);
        Self {
            number,
            place: (n % warehouses + 1, n / warehouses % DISTRICTS + 1),
            deck: Vec::new(),
            random,
        }
    }
    /// What comes next; it stays in the deck until it is done.
    fn deal(&mut self) -> Kind {
        if self.deck.is_empty() {
            self.deck = Kind::deck(&mut self.random);
        }
        self.deck[self.deck.len() - 1]
    }
}

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
    let background = load.background();
    let mut sessions = (0..load.connections + background)
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
    let room = load.pace.waits();
    let room = room.then(|| Room::new(load, Clock::new().now()));
    let room = room.as_ref();
    let clients = (0..).zip(&mut sessions).map(|(t, client)| {
        let client: clients::Client<'_, SqlError> =
            if let Some(room) = room.filter(|_| t < load.connections) {
                Box::new(move |seat| clerk(common, room, client, seat))
            } else if t < load.connections {
                // What it is dealt and what it enters have nothing to do with each other.
                let random = SplitMix64::new(client.random.next_u64());
                let terminal = Terminal::new(t, common.warehouses, random);
                Box::new(move |seat| own(common, terminal, client, seat))
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

/// A connection that serves a terminal of its own.
fn own(
    common: &Common,
    mut terminal: Terminal,
    client: &mut Client,
    seat: &mut Seat<'_>,
) -> Result<()> {
    while let Some(came) = seat.next() {
        let kind = terminal.deal();
        terminal.deck.pop();
        // A terminal's own time begins when it takes up what it does next.
        let came = if common.open { came } else { seat.now() };
        serve(common, kind, terminal.place, client, came, seat)?;
    }
    Ok(())
}

/// A connection that serves whoever is due.
fn clerk(common: &Common, room: &Room, client: &mut Client, seat: &mut Seat<'_>) -> Result<()> {
    while let Some(Waiting { due, mut terminal }) = room.next(seat) {
        let kind = terminal.deal();
        terminal.deck.pop();
        serve(common, kind, terminal.place, client, due, seat)?;
        room.back(terminal, kind, seat);
    }
    Ok(())
}

/// Does a transaction, or has it done.
fn serve(
    common: &Common,
    kind: Kind,
    place: (i64, i64),
    client: &mut Client,
    came: Nanos,
    seat: &mut Seat<'_>,
) -> Result<()> {
    if kind == Kind::Delivery && !common.inline {
        let mut waiting = lock(&common.queue.waiting);
        if waiting.len() < QUEUE_MAX {
            waiting.push_back((place.0, came));
            common.queue.ring.notify_one();
            return Ok(());
        }
    }
    one(common, client, kind, place, came, seat)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabError;

    #[test]
    fn a_thousand_terminals_that_wait_come_as_often_as_their_times_say() {
        let load = Load {
            constants: Constants {
                last: 1,
                customer: 1,
                item: 1,
            },
            warehouses: 100,
            terminals: 1000,
            connections: 4,
            pace: Pace {
                keying: true,
                thinking: true,
                scale: 0.05,
            },
            ramp: Nanos::from_millis(1500),
            time: Nanos::from_secs(3),
            rate: None,
            inline: true,
            seed: 11,
        };
        let room = &Room::new(&load, Clock::new().now());
        let clients = (0..load.connections).map(|_| -> clients::Client<'_, LabError> {
            Box::new(move |seat| {
                while let Some(Waiting { due, mut terminal }) = room.next(seat) {
                    let kind = terminal.deal();
                    terminal.deck.pop();
                    seat.done(kind as usize, kind.op(), 0, due);
                    room.back(terminal, kind, seat);
                }
                Ok(())
            })
        });
        let how = Loop {
            open: None,
            ramp: load.ramp,
            time: load.time,
            cold: &|| None,
            ramp_max: load.ramp,
            kinds: &Kind::ALL.map(Kind::ops),
            stop: &|| false,
        };
        let loads = clients::run(
            &how,
            clients.collect(),
            &mut |_| (),
            &mut |_| (),
            &|| (),
            &mut |_| (),
        )
        .unwrap();
        // Keying (10 x 18 + 10 x 3 + 3 x 2) / 23 s, thinking (20 x 12 + 10 + 2 x 5) / 23 s, of which a tenth of 1/1000 is cut.
        let round = (216.0 + 260.0) / 23.0 * load.pace.scale;
        // The interactive response time law, so that a busy machine may be late.
        let mut response = fathom_telemetry::Histogram::new();
        for kind in &loads {
            response.merge(&kind.latency());
        }
        let late = response.moments().mean().unwrap() / 1e9;
        let asked = f64::from(load.terminals) / (round + late);
        let done: u64 = loads.iter().map(loads::Load::operations).sum();
        let seen = done as f64 / loads[0].wall.as_secs_f64();
        assert!(
            (seen / asked - 1.0).abs() < 0.08,
            "{seen} instead of {asked}, late by {late} s"
        );
        let new_orders = loads[0].operations() as f64 / done as f64;
        assert!((new_orders - 10.0 / 23.0).abs() < 0.03, "{new_orders}");
    }
}
