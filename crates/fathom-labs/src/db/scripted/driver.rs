//! Clients of several loads on one database: each takes a transaction of a load by its weight, until it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Nanos, Op};

use serde::{Deserialize, Serialize};

use super::super::database::Database;
use super::super::sql::{Result, Session, SqlError};
use super::super::workload::{Transactions, Workload, chosen};
use crate::clients::{self, Loop, Seat, Total};
use crate::loads;

/// A load, how often it is chosen, and the number of its first kind.
pub(super) struct Weighted {
    pub(super) workload: Box<dyn Workload>,
    pub(super) weight: u64,
    pub(super) first: usize,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    pub(super) clients: u32,
    pub(super) ramp: Nanos,
    pub(super) time: Nanos,
    /// Transactions per second that come, whatever was answered.
    pub(super) rate: Option<f64>,
    pub(super) seed: u64,
    /// Tries of a transaction, after which it has failed; 0: until it is done.
    pub(super) max_tries: u32,
}

/// What became of transactions that the database undid, as pgbench counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tries {
    /// Times that one was tried again.
    pub(super) again: u64,
    /// Transactions that were, whatever came of it; unknown of runs before these were counted.
    #[serde(default)]
    pub(super) retried: Option<u64>,
    /// Transactions that failed: the last try ended in a deadlock.
    #[serde(default)]
    pub(super) deadlocks: u64,
    /// It ended in a conflict with another transaction, or with a lock that was waited for too long.
    #[serde(default)]
    pub(super) conflicts: u64,
}

impl Tries {
    /// Transactions that did not come to their end.
    pub(super) fn failed(&self) -> u64 {
        self.deadlocks + self.conflicts
    }

    /// Together with another measurement's.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            again: self.again + other.again,
            retried: self.retried.zip(other.retried).map(|(a, b)| a + b),
            deadlocks: self.deadlocks + other.deadlocks,
            conflicts: self.conflicts + other.conflicts,
        }
    }
}

/// The same of all transactions, and of those kinds of which it is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AllTries {
    #[serde(flatten)]
    pub(super) all: Tries,
    /// By kind; `None` where the next try is of another one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) of_kinds: Vec<Option<Tries>>,
}

/// The same while clients count: of all, and of each kind.
struct Undone(Vec<[AtomicU64; 4]>);

impl Undone {
    fn of(kinds: usize) -> Self {
        Self((0..=kinds).map(|_| Default::default()).collect())
    }

    fn count(&self, kind: Option<usize>, what: usize) {
        for at in std::iter::once(0).chain(kind.map(|k| k + 1)) {
            self.0[at][what].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It is tried once more.
    fn again(&self, kind: Option<usize>, first: bool) {
        self.count(kind, 0);
        if first {
            self.count(kind, 1);
        }
    }

    fn failed(&self, kind: Option<usize>, e: &SqlError) {
        self.count(kind, if e.is_deadlock() { 2 } else { 3 });
    }

    fn read(&self) -> Vec<[u64; 4]> {
        let one =
            |counts: &[AtomicU64; 4]| std::array::from_fn(|i| counts[i].load(Ordering::Relaxed));
        self.0.iter().map(one).collect()
    }

    /// `known` says of which kinds.
    fn since(&self, then: &[[u64; 4]], known: &[bool]) -> AllTries {
        let now = self.read();
        let of = |at: usize| {
            let [again, retried, deadlocks, conflicts] =
                std::array::from_fn(|i| now[at][i] - then[at][i]);
            Tries {
                again,
                retried: Some(retried),
                deadlocks,
                conflicts,
            }
        };
        let kinds = known.iter().enumerate();
        AllTries {
            all: of(0),
            of_kinds: kinds.map(|(k, known)| known.then(|| of(k + 1))).collect(),
        }
    }
}

/// Runs the loads; returns one for each kind, and what became of transactions that the database undid. `cold` says what keeps the ramp from
/// its end; `begin` and `end` are called when counting begins and ends, for what others count.
///
/// # Errors
/// The first failure that trying again does not mend.
pub(super) fn run(
    database: &Database,
    all: &[Weighted],
    how: How,
    (stop, cold): (&dyn Fn() -> bool, &dyn Fn() -> Option<&'static str>),
    begin: &mut dyn FnMut(Total<'_>),
    end: &mut dyn FnMut(Total<'_>),
    tick: &mut dyn FnMut(f64),
) -> Result<(Vec<loads::Load>, AllTries)> {
    let kinds: Vec<Op> = all
        .iter()
        .flat_map(|w| w.workload.kinds())
        .map(|k| k.1)
        .collect();
    let undone = Undone::of(kinds.len());
    let dialect = database.dialect();
    // A connection of each client for each load: what one prepares, another does not know.
    let mut sessions = (0..how.clients)
        .map(|_| all.iter().map(|_| database.connect()).collect())
        .collect::<Result<Vec<Vec<Box<dyn Session>>>>>()?;
    let mut parts = Vec::new();
    for (number, own) in (0u32..).zip(&mut sessions) {
        let seed = client_seed(how.seed, number);
        let mut own_parts = Vec::new();
        for (weighted, session) in all.iter().zip(own) {
            own_parts.push(
                weighted
                    .workload
                    .client(&mut **session, dialect, number, seed)?,
            );
        }
        parts.push((own_parts, SplitMix64::new(seed ^ 0x10ad)));
    }
    let (kinds_of, undone_of) = (&kinds, &undone);
    let clients = parts.iter_mut().map(|(parts, random)| {
        let client: clients::Client<'_, SqlError> = Box::new(move |seat| {
            client(
                all,
                parts,
                random,
                (kinds_of, undone_of, how.max_tries),
                seat,
            )
        });
        client
    });
    let ops: Vec<&[Op]> = kinds.iter().map(std::slice::from_ref).collect();
    let plan = Loop {
        open: how.rate.map(|rate| (rate, how.seed)),
        ramp: how.ramp,
        time: how.time,
        cold,
        ramp_max: clients::ramp_max(how.time),
        kinds: &ops,
        stop,
    };
    let mut before = undone.read();
    let mut counting = |total: Total<'_>| {
        before = undone.read();
        begin(total);
    };
    let woken = || all.iter().for_each(|w| w.workload.end());
    let loads = clients::run(&plan, clients.collect(), &mut counting, end, &woken, tick)?;
    let known = all.iter().flat_map(|w| {
        let kinds = w.workload.kinds().len();
        std::iter::repeat_n(w.workload.keeps_kind(), kinds)
    });
    Ok((loads, undone.since(&before, &known.collect::<Vec<_>>())))
}

/// The seed of a client: no two of a run have one.
pub(in crate::db) fn client_seed(seed: u64, number: u32) -> u64 {
    seed ^ SplitMix64::new(u64::from(number) + 1).next_u64()
}

fn client(
    all: &[Weighted],
    parts: &mut [Box<dyn Transactions + '_>],
    random: &mut SplitMix64,
    (kinds, undone, max_tries): (&[Op], &Undone, u32),
    seat: &mut Seat<'_>,
) -> Result<()> {
    let total: u64 = all.iter().map(|w| w.weight).sum();
    while let Some(came) = seat.next() {
        let at = random.below(total as usize) as u64;
        let chosen = chosen(all.iter().map(|w| w.weight), at);
        let mut tries = 0;
        loop {
            tries += 1;
            match parts[chosen].transaction() {
                Ok(kind) => {
                    let kind = all[chosen].first + kind;
                    break seat.done(kind, kinds[kind], 0, came);
                }
                Err(e) if e.again => {
                    if !seat.going() {
                        return Ok(());
                    }
                    let kind = parts[chosen].undone().map(|k| all[chosen].first + k);
                    if tries == max_tries {
                        undone.failed(kind, &e);
                        parts[chosen].give_up();
                        break seat.gave_up();
                    }
                    undone.again(kind, tries == 1);
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}
