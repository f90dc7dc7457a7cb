//! Threads whose creation is checked.
//!
//! `std::thread::spawn` and `Scope::spawn` panic where the system refuses a thread (a limit of processes, a control
//! group, memory). Who holds a lock or is waited for then leaves others waiting for ever.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread of a scope. Where this fails, the caller sees to it that those that run come to an end: the scope
/// waits for them.
///
/// # Errors
/// Where the system refuses the thread; the sentence says what to do.
pub fn within<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new()
        .spawn_scoped(scope, work)
        .map_err(|e| io::Error::new(e.kind(), refused(&e)))
}

/// What to say of a thread that could not be created.
pub fn refused(e: &io::Error) -> String {
    format!(
        "a thread could not be created: {e}; use fewer, or allow more (ulimit -u, pids.max of the control group)"
    )
}
