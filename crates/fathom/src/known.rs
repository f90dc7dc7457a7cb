//! What commands know of each other: the registry stands above them and tells it once, before the first one runs.

use std::sync::OnceLock;

use fathom_bench::results::Presenter;

/// What else runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nests {
    No,
    /// Labs of arrays run it in a directory.
    Directory,
    /// Those of machines, too: it works on a device.
    Device,
}

/// What there is.
pub(crate) struct Known {
    /// How every kind of result is shown.
    pub(crate) presenters: fn() -> Vec<Presenter>,
    /// Commands that run as labs inside of arrays and machines, as they are typed.
    pub(crate) labs: fn() -> Vec<(String, Nests)>,
    /// The whole command line.
    pub(crate) command_line: fn() -> clap::Command,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Tells it; later ones change nothing.
pub(crate) fn tell(known: Known) {
    let _ = KNOWN.set(known);
}

/// How every kind of result is shown.
pub(crate) fn presenters() -> Vec<Presenter> {
    KNOWN.get().map(|k| (k.presenters)()).unwrap_or_default()
}

/// Commands that run inside of others.
pub(crate) fn labs() -> Vec<(String, Nests)> {
    KNOWN.get().map(|k| (k.labs)()).unwrap_or_default()
}

/// The whole command line, for what is made from it; `None` before it is told.
pub(crate) fn command_line() -> Option<clap::Command> {
    KNOWN.get().map(|k| (k.command_line)())
}
