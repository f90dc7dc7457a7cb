//! Where a tree's threads play: each of them sits on a thread of a job on the model, whose pilot gives it its turns and
//! issues its I/Os.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fathom_io::load::{Guide, Next, Pilot, PilotIo};
use fathom_kv::turns::{Player, Turns};
use fathom_telemetry::{Nanos, Op, Record};

thread_local! {
    /// Of the job that runs on this thread: a pilot has to be able to go to another one, which this cannot.
    static STAGE: RefCell<Option<Rc<Stage>>> = const { RefCell::new(None) };
}

/// A thread of the job.
#[derive(Default)]
struct Seat {
    players: Vec<Player>,
    queue: VecDeque<(PilotIo, Player)>,
    under_way: Vec<(PilotIo, Player)>,
}

/// All threads of the job.
pub(super) struct Stage {
    turns: Rc<Turns>,
    seats: RefCell<Vec<Seat>>,
    seat_of: RefCell<HashMap<Player, usize>>,
    /// Seats of clients; the engine's own threads sit behind them, where there is room.
    clients: usize,
    /// Seats to be asked again, by players that can go on there.
    called: RefCell<VecDeque<u32>>,
    /// What is done when measuring begins.
    begin: Box<dyn Fn()>,
    measured_from: Cell<Option<Nanos>>,
}

/// Seats of the engine's own threads: checkpoints, pages written ahead, and four that write a checkpoint's pages.
pub(super) const BACKGROUND: u32 = 6;

impl Stage {
    /// Client `i` sits on seat `i` of `seats`.
    pub(super) fn new(
        turns: Rc<Turns>,
        clients: &[Player],
        seats: u32,
        begin: impl Fn() + 'static,
    ) -> Rc<Self> {
        let me = Self {
            turns,
            seats: RefCell::new((0..seats).map(|_| Seat::default()).collect()),
            seat_of: RefCell::default(),
            clients: clients.len(),
            called: RefCell::default(),
            begin: Box::new(begin),
            measured_from: Cell::new(None),
        };
        for (seat, player) in clients.iter().enumerate() {
            me.sit(*player, seat);
        }
        Rc::new(me)
    }

    /// Runs `job` with this stage's guide, on this thread.
    pub(super) fn during<T>(self: &Rc<Self>, job: impl FnOnce(Guide) -> T) -> T {
        STAGE.set(Some(Rc::clone(self)));
        let done = job(Guide {
            pilot: Some(Arc::new(|thread| Box::new(Place(thread)) as Box<dyn Pilot>)),
            ops: vec![Op::Read, Op::Write, Op::Sync],
            ..Guide::default()
        });
        STAGE.set(None);
        done
    }

    fn sit(&self, player: Player, seat: usize) {
        self.seats.borrow_mut()[seat].players.push(player);
        self.seat_of.borrow_mut().insert(player, seat);
    }

    /// Where a player sits; one that is new takes the engine's seat with the fewest.
    fn seat(&self, player: Player) -> usize {
        if let Some(seat) = self.seat_of.borrow().get(&player) {
            return *seat;
        }
        let free = {
            let seats = self.seats.borrow();
            let own = seats.iter().enumerate().skip(self.clients);
            own.min_by_key(|s| s.1.players.len()).map_or(0, |s| s.0)
        };
        self.sit(player, free);
        free
    }

    fn next(&self, seat: usize, now: Nanos) -> Next {
        if self.measured_from.get().is_some_and(|from| now >= from) {
            self.measured_from.set(None);
            (self.begin)();
        }
        self.take_calls(seat);
        loop {
            let player = {
                let s = &mut self.seats.borrow_mut()[seat];
                if let Some(next) = s.queue.pop_front() {
                    s.under_way.push(next);
                    return Next::Start(next.0);
                }
                let mut players = s.players.iter();
                players.find(|p| self.turns.is_ready(**p, now.0)).copied()
            };
            let Some(player) = player else {
                break;
            };
            self.turns.turn(player, now.0);
            let asked = self.turns.asked(player);
            {
                let s = &mut self.seats.borrow_mut()[seat];
                s.queue.extend(asked.into_iter().map(|io| (io, player)));
                if self.turns.has_ended(player) {
                    s.players.retain(|p| *p != player);
                }
            }
            self.take_calls(seat);
        }
        let seats = self.seats.borrow();
        let times = seats[seat].players.iter();
        match times.filter_map(|p| self.turns.until(*p)).min() {
            Some(t) => Next::At(Nanos(t)),
            None => Next::Drain,
        }
    }

    /// Who can go on elsewhere is asked there.
    fn take_calls(&self, here: usize) {
        for player in self.turns.called() {
            if self.turns.has_ended(player) {
                continue;
            }
            let seat = self.seat(player);
            let mut called = self.called.borrow_mut();
            if seat != here && !called.contains(&(seat as u32)) {
                called.push_back(seat as u32);
            }
        }
    }

    fn done(&self, seat: usize, io: &PilotIo, result: i64) {
        let s = &mut self.seats.borrow_mut()[seat];
        if let Some(i) = s.under_way.iter().position(|u| u.0 == *io) {
            let (_, player) = s.under_way.swap_remove(i);
            self.turns.done(player, result);
        }
    }
}

/// A thread of the job, by its number.
struct Place(u32);

impl Place {
    fn on_stage<T>(&self, f: impl FnOnce(&Stage) -> T) -> Option<T> {
        let stage = STAGE.with_borrow(Clone::clone)?;
        Some(f(&stage))
    }
}

impl Pilot for Place {
    fn start(&mut self, origin: Nanos) {
        self.on_stage(|s| s.measured_from.set(Some(origin)));
    }
    fn decides_end(&self) -> bool {
        true
    }
    fn next(&mut self, now: Nanos) -> Next {
        self.on_stage(|s| s.next(self.0 as usize, now))
            .unwrap_or(Next::End)
    }
    fn called(&mut self) -> Option<u32> {
        self.on_stage(|s| s.called.borrow_mut().pop_front())?
    }
    fn done(&mut self, io: &PilotIo, record: &Record, _data: &[u8]) -> i64 {
        self.on_stage(|s| s.done(self.0 as usize, io, record.result));
        record.result
    }
}
