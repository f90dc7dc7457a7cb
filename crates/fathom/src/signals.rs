//! SIGINT and SIGTERM end the current window and keep what was measured; a second one ends at once.

use fathom_io::Control;

use crate::exit::FAILED;

/// A control that the signals set.
pub(crate) fn control() -> anyhow::Result<Control> {
    let control = Control::new();
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        let asked = control.flag();
        // SAFETY: the handler reads a flag and makes two system calls; it neither allocates nor locks.
        unsafe {
            signal_hook::low_level::register(signal, move || {
                if asked.load(std::sync::atomic::Ordering::Relaxed) {
                    crate::view::give_back();
                }
            })?;
        }
        // For a device that does not answer any more: the second signal does not wait for it. What is left
        // behind then, the next run finds. Order matters: the flag is still unset at the first signal.
        signal_hook::flag::register_conditional_shutdown(signal, FAILED.into(), control.flag())?;
        signal_hook::flag::register(signal, control.flag())?;
    }
    // A reader that closes the pipe (`fathom … | head`) is no reason to leave scratch files behind:
    // Rust ignores SIGPIPE, so writing fails with an error instead.
    Ok(control)
}
