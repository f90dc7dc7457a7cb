//! Threads that the engine starts: the system's, or in a simulation players beside the one that starts them.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::JoinHandle;

use crate::error::{KvError, Result};
use crate::turns::{self, Player};

/// A thread that lives as long as its engine.
pub(crate) enum Hand {
    Thread(JoinHandle<()>),
    Player(Player),
}

impl Hand {
    /// # Errors
    /// Where the system refuses the thread.
    pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Self> {
        if turns::is_player() {
            let player = turns::spawn(Box::new(work)).map(Self::Player);
            return player.ok_or_else(|| KvError::Thread("the simulation has ended".into()));
        }
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map(Self::Thread)
            .map_err(|e| KvError::Thread(fathom_io::threads::refused(&e)))
    }

    /// Waits for its end. A player ends with its simulation where nobody plays any more.
    pub(crate) fn join(self) {
        match self {
            Self::Thread(thread) => drop(thread.join()),
            Self::Player(player) => turns::join(player),
        }
    }
}

/// Does `work` on `n` threads at the same time; `stop` is called where not all could be started, and has to end it.
///
/// # Errors
/// The first failure of the work, or where the system refuses a thread.
pub(crate) fn together(
    n: usize,
    work: impl Fn() -> Result<()> + Clone + Send + Sync + 'static,
    stop: &dyn Fn(),
) -> Result<()> {
    if turns::is_player() {
        return in_turns(n, work);
    }
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for _ in 0..n {
            match fathom_io::threads::within(scope, &work) {
                Ok(one) => all.push(one),
                Err(e) => {
                    stop();
                    return Err(KvError::Thread(e.to_string()));
                }
            }
        }
        for one in all {
            // A panic goes on where the work was asked for.
            match one.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}

fn in_turns(n: usize, work: impl Fn() -> Result<()> + Clone + 'static) -> Result<()> {
    let first = Rc::new(RefCell::new(Ok(())));
    let players: Vec<_> = (0..n)
        .filter_map(|_| {
            let (work, first) = (work.clone(), Rc::clone(&first));
            turns::spawn(Box::new(move || {
                let done = work();
                if first.borrow().is_ok() {
                    *first.borrow_mut() = done;
                }
            }))
        })
        .collect();
    players.into_iter().for_each(turns::join);
    first.replace(Ok(()))
}
