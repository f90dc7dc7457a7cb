//! SIGINT and SIGTERM end the current window and keep what was measured.

use fathom_io::Control;

/// A control that the signals set.
pub(crate) fn control() -> anyhow::Result<Control> {
    let control = Control::new();
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, control.flag())?;
    }
    // A reader that closes the pipe (`fathom … | head`) is no reason to leave scratch files behind:
    // Rust ignores SIGPIPE, so writing fails with an error instead.
    Ok(control)
}
