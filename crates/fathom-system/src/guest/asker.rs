//! The way to a guest's agent, for several threads: whole messages, one after another.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fathom_telemetry::Nanos;

use super::wire::{self, Ask};

/// A connection that takes nothing for so long is cut: a message that was begun cannot be taken back.
const STUCK: Duration = Duration::from_secs(2);

/// Asks; the answers come to the [`Guest`](super::Guest).
#[derive(Debug, Clone)]
pub struct Asker {
    out: Arc<Mutex<UnixStream>>,
    /// A handle that needs no turn.
    cut: Arc<UnixStream>,
    heard: Arc<AtomicU64>,
}

impl Asker {
    pub(super) fn new(out: UnixStream) -> io::Result<Self> {
        Ok(Self {
            cut: Arc::new(out.try_clone()?),
            out: Arc::new(Mutex::new(out)),
            heard: Arc::new(AtomicU64::new(fathom_io::clock::monotonic().0)),
        })
    }

    /// Asks.
    ///
    /// # Errors
    /// Where the other side is gone, or takes nothing.
    pub fn ask(&self, ask: &Ask, raw: &[u8]) -> io::Result<()> {
        // Who panicked while writing has left half a message: the other side will say so.
        let mut out = self.out.lock().unwrap_or_else(|e| e.into_inner());
        wire::send(&mut *out, ask, raw).inspect_err(|_| self.cut())
    }

    /// From now on a connection that takes nothing for two seconds is cut, so that it holds up nobody who asks others, too.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub fn be_impatient(&self) -> io::Result<()> {
        self.cut.set_write_timeout(Some(STUCK))
    }

    /// Ends the connection: who waits for an answer learns that none will come.
    pub fn cut(&self) {
        // One that has ended is as wanted.
        let _ = self.cut.shutdown(std::net::Shutdown::Both);
    }

    /// When something came last.
    pub fn heard(&self) -> Nanos {
        Nanos(self.heard.load(Ordering::Relaxed))
    }

    pub(super) fn hears(&self) {
        let now = fathom_io::clock::monotonic();
        self.heard.store(now.0, Ordering::Relaxed);
    }
}
