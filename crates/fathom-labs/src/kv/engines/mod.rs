//! Engines that the key-value load runs on: fathom's own, and others beside it. One file each; a new one is a file
//! and a line in [`ENGINES`].
//!
//! Others keep files in a directory of the target's file system and have a cache of as many bytes as the pool of
//! fathom's own tree. They read through the page cache, which would be a second, larger cache: it is emptied while
//! they run (`evictor`).

#[cfg(any(feature = "redb", feature = "sqlite"))]
mod evictor;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tupl;

use std::path::Path;

use super::load::{Load, Outcome};
use crate::LabError;

/// What a measurement of another engine needs.
pub(super) struct Setting<'a> {
    /// A directory of the lab's own.
    pub(super) dir: &'a Path,
    /// Bytes of its cache.
    pub(super) cache: u64,
    /// Bytes of a page, where the engine has a choice.
    pub(super) page: u64,
    /// Bytes of the range that fathom's own tree has, which were written before.
    pub(super) fill: u64,
    /// Whether every commit is synced.
    pub(super) commit: bool,
    /// What is done.
    pub(super) load: &'a Load<'a>,
    /// Whether to end early.
    pub(super) stop: &'a dyn Fn() -> bool,
}

/// Loads, measures, removes.
type Measure = fn(&Setting<'_>, &mut dyn FnMut(f64)) -> Result<Outcome, LabError>;

/// An engine beside fathom's own.
pub struct EngineKind {
    /// Its name.
    pub name: &'static str,
    /// How it writes.
    pub about: &'static str,
    pub(super) measure: Measure,
    /// Its version, or what is missing.
    pub(crate) probe: fn() -> Result<String, LabError>,
    /// Debian's packages that bring what it runs on; empty where it is built in.
    pub(crate) packages: &'static str,
}

/// All of them. fathom's own is not among them.
pub const ENGINES: &[EngineKind] = &[
    EngineKind {
        name: "redb",
        about: "copy-on-write B+tree, one writer at a time",
        #[cfg(feature = "redb")]
        measure: redb::measure,
        #[cfg(feature = "redb")]
        probe: redb::probe,
        #[cfg(not(feature = "redb"))]
        measure: left_out::measure,
        #[cfg(not(feature = "redb"))]
        probe: || left_out::probe("redb"),
        packages: "",
    },
    EngineKind {
        name: "sqlite",
        about: "B-tree with a write-ahead log, one writer at a time",
        #[cfg(feature = "sqlite")]
        measure: sqlite::measure,
        #[cfg(feature = "sqlite")]
        probe: sqlite::probe,
        #[cfg(not(feature = "sqlite"))]
        measure: left_out::measure,
        #[cfg(not(feature = "sqlite"))]
        probe: || left_out::probe("sqlite"),
        packages: "",
    },
    EngineKind {
        name: "tupl",
        about: "B-tree of O'Neill 2018, in Java, direct I/O",
        measure: tupl::measure,
        probe: tupl::probe,
        packages: tupl::PACKAGE,
    },
];

/// For builds without an engine.
#[cfg(not(all(feature = "redb", feature = "sqlite")))]
mod left_out {
    use super::{LabError, Outcome, Setting};

    pub(super) fn probe(name: &str) -> Result<String, LabError> {
        Err(LabError::Missing {
            what: format!("this fathom was built without {name}"),
            remedy: format!("cargo build --release -p fathom --features {name}"),
        })
    }
    pub(super) fn measure(_: &Setting<'_>, _: &mut dyn FnMut(f64)) -> Result<Outcome, LabError> {
        Err(LabError::Failed("not part of this build".into()))
    }
}

/// Any engine's error, in a lab's words.
fn failed(engine: &str, e: impl std::fmt::Display) -> LabError {
    LabError::Failed(format!("{engine}: {e}"))
}
