//! Why the kernel could not be traced, each with what would enable it.

use std::io;
use std::path::PathBuf;

/// Why tracing is not possible, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no tracefs and no right to mount one.
    #[error(
        "the kernel's trace file system is not mounted; as root: mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    NotMounted,
    /// It is there, but this user may not use it.
    #[error(
        "{path} may not be written by this user; run as root, or with the capability CAP_DAC_OVERRIDE"
    )]
    Denied {
        /// What was refused.
        path: PathBuf,
    },
    /// It is mounted read-only, as containers have it.
    #[error(
        "{path} is on a read-only mount; run outside of the container, or mount tracefs writable"
    )]
    ReadOnly {
        /// What was refused.
        path: PathBuf,
    },
    /// perf_event_open is refused or missing.
    #[error(
        "perf_event_open is refused ({source}); it needs root, CAP_PERFMON, or kernel.perf_event_paranoid = -1"
    )]
    Perf {
        /// The reason.
        source: io::Error,
    },
    /// A file of tracefs could not be read or written.
    #[error("{path}: {source}; check that the kernel has event tracing (CONFIG_FTRACE)")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A setting of the machine that could not be changed.
    #[error("{name}: {what}")]
    Setting {
        /// Which.
        name: String,
        /// Why not.
        what: String,
    },
    /// Text or pages that are not understood.
    #[error("{path} is not understood: {what}; please report it with the kernel's version")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        what: String,
    },
    /// The events without which nothing can be joined are missing.
    #[error(
        "this kernel has no block events; it needs CONFIG_BLK_DEV_IO_TRACE or CONFIG_BLOCK with tracing"
    )]
    NoBlockEvents,
    /// Rows could not be written.
    #[error(
        "cannot write {path}: {reason}; free some space or choose another directory with --out"
    )]
    Rows {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl TraceError {
    /// Wraps a failure on a file; a refusal is told apart, because it has another remedy.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            _ => Self::File { path, source },
        }
    }
}
