//! The terminal that the full-screen view has taken over, and how a signal handler gives it back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::getpgrp;
use rustix::stdio::{stderr, stdin};
use rustix::termios::{OptionalActions, Termios, tcgetpgrp, tcsetattr};

/// Colours, wrapping, cursor and screen as they were.
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal's modes as they were before it was taken over.
pub(crate) static BEFORE: OnceLock<Termios> = OnceLock::new();
/// Whether it is taken over now.
pub(crate) static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back with system calls alone, as a signal handler may. In the background it is
/// somebody else's already.
pub(crate) fn give_back() {
    if !foreground() {
        return;
    }
    if let (Some(before), true) = (BEFORE.get(), TAKEN.swap(false, Ordering::Relaxed)) {
        let _ = rustix::io::write(stderr(), LEAVE.as_bytes());
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}

/// Whether the terminal listens to this process: one in the background would be stopped by reading a key.
/// Where there is no job control, nobody else is there.
pub(crate) fn foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}
