//! Trying again what is busy for a moment.

use std::time::Duration;

use fathom_telemetry::Nanos;

/// Does something again for a while as long as it fails in this way: what somebody looks at, or what I/O of a killed
/// process still holds, is free a moment later.
pub fn patiently<T, E>(
    seconds: u64,
    busy: impl Fn(&E) -> bool,
    mut what: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let began = fathom_io::clock::monotonic();
    loop {
        match what() {
            Err(e)
                if busy(&e)
                    && fathom_io::clock::monotonic().since(began) < Nanos::from_secs(seconds) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// Whether somebody else has it for now.
pub fn is_busy(e: &std::io::Error) -> bool {
    e.kind() == std::io::ErrorKind::ResourceBusy
}
