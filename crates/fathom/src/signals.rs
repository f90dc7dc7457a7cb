//! SIGINT and SIGTERM end the current window and keep what was measured; a second one ends at once, and so
//! does the time: what has not ended two minutes after the first is ended by force.
//! SIGTSTP (Ctrl-Z) stops the process as ever, after the terminal was given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fathom_io::Control;
use fathom_system::process::{END_LIMIT, alarm};

use crate::exit::FAILED;

/// A control that the signals set.
pub(crate) fn control() -> anyhow::Result<Control> {
    let control = Control::new();
    watch_the_end()?;
    // Another reason to end, such as an agent's input that has ended, makes no second signal of the first.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        let asked = signalled.clone();
        // SAFETY: the handler reads a flag and makes three system calls; it neither allocates nor locks.
        unsafe {
            signal_hook::low_level::register(signal, move || {
                if asked.load(Ordering::Relaxed) {
                    crate::tty::give_back();
                } else {
                    alarm(END_LIMIT);
                }
            })?;
        }
        // For a device that does not answer any more: the second signal does not wait for it. What is left
        // behind then, the next run finds. Order matters: the flag is still unset at the first signal.
        signal_hook::flag::register_conditional_shutdown(signal, FAILED.into(), signalled.clone())?;
        signal_hook::flag::register(signal, signalled.clone())?;
        signal_hook::flag::register(signal, control.flag())?;
    }
    // A reader that closes the pipe (`fathom … | head`) is no reason to leave scratch files behind:
    // Rust ignores SIGPIPE, so writing fails with an error instead.
    Ok(control)
}

/// The end, as if a signal had asked for it.
pub(crate) fn end() {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
}

const ENDED_BY_FORCE: &[u8] = b"fathom: it was told to end two minutes ago and has not: ended by force; fathom clean removes what is left behind\n";

/// Ends the process by force where the end that was asked for does not come: the first signal winds the kernel's clock.
/// What is left, the keeper removes and `fathom clean` finds.
fn watch_the_end() -> anyhow::Result<()> {
    // SAFETY: the handler makes system calls only; it neither allocates nor locks, and the process ends in it.
    unsafe {
        signal_hook::low_level::register(signal_hook::consts::SIGALRM, || {
            crate::tty::give_back();
            let _ = rustix::io::write(rustix::stdio::stderr(), ENDED_BY_FORCE);
            signal_hook::low_level::exit(FAILED.into())
        })?;
    }
    Ok(())
}

/// Ctrl-Z for whoever has taken over the terminal: he is told first, and stops the process himself.
pub(crate) struct Stops {
    asked: Arc<AtomicBool>,
    went_on: Arc<AtomicBool>,
    /// Nobody has taken the terminal: SIGTSTP stops as ever.
    free: Arc<AtomicBool>,
}

impl Stops {
    /// From now on SIGTSTP asks; until this is dropped.
    ///
    /// # Errors
    /// Where the handlers cannot be registered.
    pub(crate) fn ask() -> std::io::Result<Self> {
        use signal_hook::consts::{SIGCONT, SIGTSTP};
        use signal_hook::flag::{register, register_conditional_default};
        let stops = Self {
            asked: Arc::default(),
            went_on: Arc::default(),
            free: Arc::default(),
        };
        register_conditional_default(SIGTSTP, stops.free.clone())?;
        register(SIGTSTP, stops.asked.clone())?;
        register(SIGCONT, stops.went_on.clone())?;
        Ok(stops)
    }

    /// Whether the process is to stop.
    pub(crate) fn asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Stops the process; returns when it goes on.
    pub(crate) fn stop(&self) {
        // It can fail only for signals that it does not know.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP);
    }

    /// Whether the process went on after a stop, asked or not, since the last call.
    pub(crate) fn went_on(&self) -> bool {
        self.went_on.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Stops {
    fn drop(&mut self) {
        self.free.store(true, Ordering::Relaxed);
    }
}
