//! Engines that the key-value load runs on: fathom's own, and others beside it. One file each; a new one is a file
//! and a line in [`ENGINES`].
//!
//! Others keep files in a directory of the target's file system and have a cache of as many bytes as the pool of
//! fathom's own tree. They read through the page cache, which would be a second, larger cache: it is emptied while
//! they run (`evictor`).

#[cfg(any(
    feature = "fjall",
    feature = "lmdb",
    feature = "redb",
    feature = "sqlite"
))]
mod evictor;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tupl;

use std::path::Path;
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Whether it writes without reading what was there.
    pub(crate) blind: bool,
    pub(super) measure: Measure,
    /// Its version, or what is missing.
    pub(crate) probe: fn() -> Result<String, LabError>,
    /// Debian's packages that bring what it runs on; empty where it is built in.
    pub(crate) packages: &'static str,
}

/// An engine that a feature of this build brings.
macro_rules! built_in {
    ($engine:ident, $feature:literal, blind: $blind:literal, $about:literal) => {
        EngineKind {
            name: $feature,
            about: $about,
            blind: $blind,
            #[cfg(feature = $feature)]
            measure: $engine::measure,
            #[cfg(feature = $feature)]
            probe: $engine::probe,
            #[cfg(not(feature = $feature))]
            measure: left_out::measure,
            #[cfg(not(feature = $feature))]
            probe: || left_out::probe($feature),
            packages: "",
        }
    };
}

/// All of them. fathom's own is not among them.
pub const ENGINES: &[EngineKind] = &[
    built_in!(redb, "redb", blind: false, "copy-on-write B+tree, one writer at a time"),
    built_in!(sqlite, "sqlite", blind: false, "B-tree with a write-ahead log, one writer at a time"),
    built_in!(lmdb, "lmdb", blind: false, "copy-on-write B+tree in mapped memory, one writer at a time"),
    built_in!(fjall, "fjall", blind: true, "log-structured merge tree with a journal, flushed and compacted by its own threads"),
    EngineKind {
        name: "tupl",
        about: "B-tree of O'Neill 2018, in Java, direct I/O",
        blind: false,
        measure: tupl::measure,
        probe: tupl::probe,
        packages: tupl::PACKAGE,
    },
];

/// When a change has to become durable: each, or after a second, as fathom's own tree makes checkpoints.
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
struct Durable {
    each: bool,
    /// Time of the last durable change, ns.
    last: AtomicU64,
}

#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb"))]
impl Durable {
    const CHECKPOINT_NS: u64 = 1_000_000_000;

    fn of(setting: &Setting<'_>) -> Self {
        Self {
            each: setting.commit,
            last: AtomicU64::new(fathom_io::clock::monotonic().0),
        }
    }

    /// Whether this one has to; it will be then.
    fn due(&self) -> bool {
        let now = fathom_io::clock::monotonic().0;
        let last = self.last.load(Ordering::Relaxed);
        let due = self.each || now.saturating_sub(last) >= Self::CHECKPOINT_NS;
        if due {
            self.last.store(now, Ordering::Relaxed);
        }
        due
    }
}

/// For builds without an engine.
#[cfg(not(all(
    feature = "fjall",
    feature = "lmdb",
    feature = "redb",
    feature = "sqlite"
)))]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Libraries that do not say their version are named by hand: as they were built in.
    #[test]
    fn engines_are_named_with_the_version_that_is_built_in() {
        let lock = include_str!("../../../../../Cargo.lock");
        for engine in ["redb", "fjall"] {
            let entry = format!("name = \"{engine}\"\nversion = \"");
            let version = lock.split(&entry).nth(1).unwrap();
            let probe = ENGINES.iter().find(|e| e.name == engine).unwrap().probe;
            // A build without it has none.
            let Ok(said) = probe() else { continue };
            let said = said.strip_prefix(engine).unwrap().trim();
            assert!(version.starts_with(said), "{engine} {said}");
        }
    }
}
