//! As much memory for the pages of each database: its own cache, and what the page cache keeps for it.

use std::cell::Cell;

use fathom_system::cgroup::{Group, Inside};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

/// What a database's caches may have together. InnoDB reads past the page cache: its pool is all that it has.
#[derive(Default)]
pub(super) struct Budget {
    /// Bytes of the database's own cache.
    pub(super) own: u64,
    /// Bytes of both caches.
    all: u64,
    /// Bytes of the page cache.
    pages: u64,
    group: Option<Group>,
    /// Why there is no limit, where there should be one.
    pub(super) unlimited: Option<String>,
    held: Cell<Nanos>,
}

/// That a database had the memory of the machine as its cache, where there was no limit to its own.
pub(super) fn more_cache(database: &str, unlimited: Option<&str>) -> Option<Flag> {
    unlimited.map(|why| {
        Flag::new(
            FlagCode::NotChecked,
            format!("{database}: its page cache has no limit, and the others' caches have: {why}"),
            "run as root, with the memory controller on, to hold databases against each other",
        )
    })
}

impl Budget {
    /// Less page cache leaves no room for what processes need for a moment: the kernel would end them.
    const LEAST: u64 = 32 << 20;

    /// Of a database that reads through the page cache a quarter is its own, as PostgreSQL's manual advises.
    pub(super) fn new(database: &str, bytes: u64) -> Self {
        if database == "mariadb" {
            return Self {
                own: bytes,
                ..Self::default()
            };
        }
        let (group, unlimited) = match Group::create(database) {
            Ok(group) => (Some(group), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let own = bytes / 4;
        let pages = (bytes - own).max(Self::LEAST);
        Self {
            own,
            all: own + pages,
            pages,
            group,
            unlimited,
            held: Cell::default(),
        }
    }

    /// What this process starts and reads until the end of what is returned is under the limit.
    pub(super) fn enter(&self) -> Option<Inside> {
        self.group.as_ref()?.enter().ok()
    }

    /// Holds it while the database works: what its processes need for themselves comes and goes.
    pub(super) fn hold(&self) {
        let now = fathom_io::clock::monotonic();
        let due = now.since(self.held.get()) > Nanos::from_millis(500);
        if let Some(group) = self.group.as_ref().filter(|_| due) {
            self.held.set(now);
            // The kernel refuses where it cannot free so much at once: then the next time.
            let _ = group.limit_cache(self.pages);
        }
    }

    /// Ends the limit: questions about everything need more than the work itself.
    pub(super) fn release(&self) {
        if let Some(group) = &self.group {
            let _ = group.limit(i64::MAX as u64);
        }
    }

    /// How large they are.
    pub(super) fn in_words(&self) -> String {
        match &self.unlimited {
            None => format!("both caches together {}", Bytes(self.all)),
            Some(_) => "which has no limit here".into(),
        }
    }
}
