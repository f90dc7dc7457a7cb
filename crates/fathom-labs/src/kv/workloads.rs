//! What is done to the tree, by name: random inserts and updates (O'Neill 2018), YCSB A to F (Cooper et al. 2010), and sweeps.

use super::keys::Keys;
use super::load::Mix;

/// A workload by name.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    pub(crate) mix: Mix,
    pub(super) keys: Option<Keys>,
    /// Begins with an empty tree, where no number of keys is given.
    pub(super) empty: bool,
    pub(super) sweep: Sweep,
}

/// What changes from line to line of a workload.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sweep {
    None,
    Pages,
    Caches,
}

const fn workload(name: &'static str, about: &'static str, shares: [u32; 4]) -> Workload {
    let [read, update, insert, scan] = shares;
    Workload {
        name,
        about,
        mix: Mix {
            read,
            update,
            insert,
            scan,
        },
        keys: Some(Keys::Zipf),
        empty: false,
        sweep: Sweep::None,
    }
}

/// All of them.
pub const WORKLOADS: [Workload; 10] = [
    Workload {
        keys: None,
        ..workload("update", "random updates", [0, 100, 0, 0])
    },
    Workload {
        keys: None,
        empty: true,
        ..workload(
            "insert",
            "random inserts into an empty tree, or into one of --keys",
            [0, 0, 100, 0],
        )
    },
    workload("a", "YCSB A: half reads, half updates", [50, 50, 0, 0]),
    workload("b", "YCSB B: 95 % reads, 5 % updates", [95, 5, 0, 0]),
    workload("c", "YCSB C: reads", [100, 0, 0, 0]),
    Workload {
        keys: Some(Keys::Latest),
        ..workload(
            "d",
            "YCSB D: reads of the latest, 5 % inserts",
            [95, 0, 5, 0],
        )
    },
    workload("e", "YCSB E: ranges, 5 % inserts", [0, 0, 5, 95]),
    workload(
        "f",
        "YCSB F: half reads, half read-modify-writes",
        [50, 0, 0, 0],
    ),
    Workload {
        keys: None,
        sweep: Sweep::Pages,
        ..workload(
            "pages",
            "random updates with pages of 4 to 64 KiB",
            [0, 100, 0, 0],
        )
    },
    Workload {
        keys: None,
        sweep: Sweep::Caches,
        ..workload(
            "caches",
            "random updates with 5 to 100 % cached",
            [0, 100, 0, 0],
        )
    },
];
