//! The engine's threads in a simulation: they take turns on one thread, in a time that is not the machine's.
//!
//! Whatever would wait (for a latch, a commit, a checkpoint, an I/O, a moment) gives its turn up instead. Who is next is
//! for whoever runs the simulation to decide; the same decisions make the same run, to the bit. Outside of a simulation
//! only what waits anyway looks here, and finds that it runs by itself.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use corosensei::{Coroutine, CoroutineResult, Yielder};
use fathom_io::load::PilotIo;

/// An I/O error of no further known kind (Linux).
const EIO: i32 = 5;

/// A thread of a simulation, by its number.
pub type Player = usize;

/// What a player waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Waits {
    /// Its turn alone.
    Turn,
    /// A change that only it can see, such as a latch that became free: it looks when others have had a turn.
    Change,
    /// That this is said.
    Word(usize),
    /// I/Os that it has asked for.
    Io,
    /// Nothing more: it has ended.
    End,
}

struct Seat {
    coroutine: Option<Coroutine<(), (), ()>>,
    /// Lent by the coroutine's own body; null before it begins.
    yielder: *const Yielder<(), ()>,
    waits: Waits,
    /// It goes on then, whatever it waits for; ns.
    until: Option<u64>,
    /// Changes that there had been when it looked last.
    looked: u64,
    asked: Vec<PilotIo>,
    /// I/Os that it waits for.
    left: usize,
    /// The first that failed.
    errno: i32,
}

#[derive(Default)]
struct Inner {
    seats: RefCell<Vec<Seat>>,
    now: Cell<u64>,
    /// Whose turn it is.
    current: Cell<Player>,
    /// Turns in which something happened.
    changes: Cell<u64>,
    /// In this turn something happened.
    moved: Cell<bool>,
    /// Players that wait for a change.
    looking: Cell<usize>,
    called: RefCell<Vec<Player>>,
    /// I/Os take no time, and nobody is asked to do them.
    instant: Cell<bool>,
}

thread_local! {
    static TAKING: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Threads that take turns. Everything happens on the thread that made it.
pub struct Turns(Rc<Inner>);

impl Default for Turns {
    fn default() -> Self {
        let inner = Inner::default();
        inner.instant.set(true);
        Self(Rc::new(inner))
    }
}

impl Turns {
    /// A new player, who waits for a turn.
    pub fn spawn(&self, work: impl FnOnce() + 'static) -> Player {
        self.0.spawn(Box::new(work))
    }

    /// Plays `work` to its end while I/Os take no time. Others have turns where it waits for them; the clock goes on only
    /// where nobody can do anything before.
    ///
    /// # Errors
    /// Where everybody waits for something that never comes.
    pub fn play<T: 'static>(&self, work: impl FnOnce() -> T + 'static) -> io::Result<T> {
        let value = Rc::new(RefCell::new(None));
        let mine = Rc::clone(&value);
        let player = self.spawn(move || *mine.borrow_mut() = Some(work()));
        let before = self.0.instant.replace(true);
        let done = self.run_until_end(player);
        self.0.instant.set(before);
        done?;
        let value = value.borrow_mut().take();
        value.ok_or_else(|| io::Error::other("a player ended without a result"))
    }

    fn run_until_end(&self, player: Player) -> io::Result<()> {
        loop {
            let now = self.0.now.get();
            if self.0.seats.borrow()[player].waits == Waits::End {
                return Ok(());
            }
            let n = self.0.seats.borrow().len();
            // The one that is waited for comes first, so that the others do no more than they must.
            let next = std::iter::once(player)
                .chain(0..n)
                .find(|p| self.is_ready(*p, now));
            match next {
                Some(p) => self.turn(p, now),
                None => {
                    let times = self.0.seats.borrow();
                    let next = times.iter().filter_map(|s| s.until).min();
                    let stuck = || io::Error::other("every player waits for another one");
                    self.0.now.set(next.ok_or_else(stuck)?);
                }
            }
        }
    }

    /// From now on I/Os are asked for with [`Turns::asked`], and wait for [`Turns::done`].
    pub fn timed(&self) {
        self.0.instant.set(false);
    }

    /// I/Os take no time from now on, and those that are asked for are done.
    pub fn instant(&self) {
        self.0.instant.set(true);
        for seat in self.0.seats.borrow_mut().iter_mut() {
            seat.asked.clear();
            if seat.waits == Waits::Io {
                (seat.waits, seat.left) = (Waits::Turn, 0);
            }
        }
    }

    /// Whether a player could go on at `now`, ns.
    pub fn is_ready(&self, player: Player, now: u64) -> bool {
        let seats = self.0.seats.borrow();
        let s = &seats[player];
        match s.waits {
            Waits::End => false,
            Waits::Turn => s.until.is_none_or(|t| t <= now),
            Waits::Change => s.looked < self.0.changes.get(),
            Waits::Word(_) => s.until.is_some_and(|t| t <= now),
            Waits::Io => s.left == 0,
        }
    }

    /// Whether it will never go on.
    pub fn has_ended(&self, player: Player) -> bool {
        self.0.seats.borrow()[player].waits == Waits::End
    }

    /// When it goes on without others, ns.
    pub fn until(&self, player: Player) -> Option<u64> {
        self.0.seats.borrow()[player].until
    }

    /// Lets a player go on at `now`, ns, up to where it waits again.
    pub fn turn(&self, player: Player, now: u64) {
        let inner = &self.0;
        let taken = {
            let mut seats = inner.seats.borrow_mut();
            let s = &mut seats[player];
            if s.waits != Waits::Change {
                // It only looks: whether something happens, it finds.
                inner.moved.set(true);
            } else {
                inner.moved.set(false);
            }
            s.until = None;
            s.coroutine.take()
        };
        let Some(mut coroutine) = taken else {
            return;
        };
        inner.now.set(now);
        inner.current.set(player);
        let outer = TAKING.replace(Some(Rc::clone(inner)));
        let result = coroutine.resume(());
        TAKING.set(outer);
        if inner.moved.get() {
            inner.changes.set(inner.changes.get() + 1);
        }
        let mut seats = inner.seats.borrow_mut();
        let s = &mut seats[player];
        s.looked = inner.changes.get();
        match result {
            CoroutineResult::Yield(()) => s.coroutine = Some(coroutine),
            CoroutineResult::Return(()) => s.waits = Waits::End,
        }
        let ended = s.waits == Waits::End;
        if inner.moved.get() && inner.looking.get() > 0 {
            let mut called = inner.called.borrow_mut();
            let looking = seats.iter().enumerate();
            called.extend(looking.filter(|s| s.1.waits == Waits::Change).map(|s| s.0));
        }
        drop(seats);
        if ended {
            inner.say(end_of(player));
        }
    }

    /// Players that can go on because of what happened since this was asked last.
    pub fn called(&self) -> Vec<Player> {
        std::mem::take(&mut *self.0.called.borrow_mut())
    }

    /// I/Os that a player has asked for since this was asked last.
    pub fn asked(&self, player: Player) -> Vec<PilotIo> {
        std::mem::take(&mut self.0.seats.borrow_mut()[player].asked)
    }

    /// One of them is done; a negative result is an errno.
    pub fn done(&self, player: Player, result: i64) {
        let s = &mut self.0.seats.borrow_mut()[player];
        s.left = s.left.saturating_sub(1);
        if result < 0 && s.errno == 0 {
            s.errno = i32::try_from(-result).unwrap_or(EIO);
        }
    }
}

/// What is said when a player has ended. Addresses are never so large.
const fn end_of(player: Player) -> usize {
    usize::MAX - player
}

impl Inner {
    fn spawn(&self, work: Box<dyn FnOnce()>) -> Player {
        let mut seats = self.seats.borrow_mut();
        let player = seats.len();
        let coroutine = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            if let Some(inner) = taking() {
                inner.seats.borrow_mut()[player].yielder = yielder;
            }
            work();
        });
        seats.push(Seat {
            coroutine: Some(coroutine),
            yielder: std::ptr::null(),
            waits: Waits::Turn,
            until: None,
            looked: 0,
            asked: Vec::new(),
            left: 0,
            errno: 0,
        });
        self.called.borrow_mut().push(player);
        player
    }

    /// Gives the turn up.
    fn wait(&self, waits: Waits, until: Option<u64>) {
        let player = self.current.get();
        let looks = usize::from(waits == Waits::Change);
        self.looking.set(self.looking.get() + looks);
        let yielder = {
            let mut seats = self.seats.borrow_mut();
            let s = &mut seats[player];
            (s.waits, s.until) = (waits, until);
            s.yielder
        };
        // SAFETY: this runs on the stack of the current player's coroutine (`turn` alone sets `current`, and resumes it),
        // whose body has lent the yielder for as long as it runs.
        unsafe { (*yielder).suspend(()) };
        self.looking.set(self.looking.get() - looks);
        self.seats.borrow_mut()[player].waits = Waits::Turn;
    }

    fn say(&self, word: usize) {
        let mut called = self.called.borrow_mut();
        for (player, s) in self.seats.borrow_mut().iter_mut().enumerate() {
            if s.waits == Waits::Word(word) {
                (s.waits, s.until) = (Waits::Turn, None);
                called.push(player);
            }
        }
    }
}

fn taking() -> Option<Rc<Inner>> {
    TAKING.with_borrow(Clone::clone)
}

/// Whether the caller is a player.
pub fn is_player() -> bool {
    TAKING.with_borrow(Option::is_some)
}

/// The player that calls.
pub(crate) fn player() -> Option<Player> {
    TAKING.with_borrow(|t| t.as_ref().map(|t| t.current.get()))
}

/// Now, ns: in a simulation its time, else the machine's.
pub fn now() -> u64 {
    match taking() {
        Some(inner) => inner.now.get(),
        None => fathom_io::clock::monotonic().0,
    }
}

/// A player waits until then, ns; nobody else does.
pub fn sleep_until(at: u64) {
    if let Some(inner) = taking()
        && at > inner.now.get()
    {
        inner.wait(Waits::Turn, Some(at));
    }
}

/// Waits until `ready`; `false` where the caller is no player and has to wait by itself.
pub(crate) fn wait_until(mut ready: impl FnMut() -> bool) -> bool {
    let Some(inner) = taking() else {
        return false;
    };
    while !ready() {
        inner.wait(Waits::Change, None);
    }
    inner.moved.set(true);
    true
}

/// Waits until somebody [says](say) it, or for a time; whether it was said. `None` where the caller is no player.
pub(crate) fn wait_for(word: usize, most: Option<Duration>) -> Option<bool> {
    let inner = taking()?;
    let until = most.map(|t| inner.now.get() + t.as_nanos() as u64);
    inner.wait(Waits::Word(word), until);
    Some(until.is_none_or(|t| inner.now.get() < t))
}

/// Those who [wait](wait_for) for it go on.
pub(crate) fn say(word: usize) {
    if let Some(inner) = taking() {
        inner.say(word);
    }
}

/// A new player beside the one that calls.
pub(crate) fn spawn(work: Box<dyn FnOnce()>) -> Option<Player> {
    Some(taking()?.spawn(work))
}

/// Waits for a player's end.
pub fn join(player: Player) {
    if let Some(inner) = taking() {
        let ended = inner.seats.borrow()[player].waits == Waits::End;
        if !ended {
            inner.wait(Waits::Word(end_of(player)), None);
        }
    }
}

/// Does I/Os at the same time and waits for all of them. Where the caller is no player, or I/Os take no time, nothing is done.
///
/// # Errors
/// The first failure that [`Turns::done`] was told of.
pub fn io(all: &[PilotIo]) -> io::Result<()> {
    let Some(inner) = taking() else {
        return Ok(());
    };
    if inner.instant.get() || all.is_empty() {
        return Ok(());
    }
    let player = inner.current.get();
    {
        let mut seats = inner.seats.borrow_mut();
        let s = &mut seats[player];
        s.asked.extend_from_slice(all);
        (s.left, s.errno) = (all.len(), 0);
    }
    inner.wait(Waits::Io, None);
    match inner.seats.borrow()[player].errno {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_wait_for_times_words_and_each_other() {
        let turns = Turns::default();
        turns.timed();
        let said = Rc::new(RefCell::new(Vec::new()));
        let note = |what: &'static str| {
            let said = Rc::clone(&said);
            move || said.borrow_mut().push((what, now()))
        };
        let (a, b, c) = (note("slept"), note("heard"), note("joined"));
        let sleeper = turns.spawn(move || {
            sleep_until(100);
            a();
            say(7);
        });
        let hearer = turns.spawn(move || {
            assert_eq!(wait_for(7, Some(Duration::from_nanos(500))), Some(true));
            b();
            assert_eq!(wait_for(8, Some(Duration::from_nanos(50))), Some(false));
        });
        let joiner = turns.spawn(move || {
            join(1);
            c();
        });
        for at in [0, 50, 100, 120, 150, 200] {
            // In turns until nobody can go on.
            while let Some(p) = (0..3).find(|p| turns.is_ready(*p, at)) {
                turns.turn(p, at);
            }
        }
        assert!(
            [sleeper, hearer, joiner]
                .iter()
                .all(|p| turns.has_ended(*p))
        );
        assert_eq!(
            *said.borrow(),
            [("slept", 100), ("heard", 100), ("joined", 150)]
        );
    }

    #[test]
    fn who_waits_for_what_never_comes_is_told() {
        let turns = Turns::default();
        let stuck = turns.play(|| wait_for(1, None));
        assert!(stuck.unwrap_err().to_string().contains("waits for another"));
    }
}
