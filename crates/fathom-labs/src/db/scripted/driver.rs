//! Clients of several loads on one database: each takes a transaction of a load by its weight, until it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Nanos, Op};

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
}

/// Runs the loads; returns one for each kind, and how many transactions were tried again. `cold` says what keeps the ramp from
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
) -> Result<(Vec<loads::Load>, u64)> {
    let again = AtomicU64::new(0);
    let kinds: Vec<Op> = all
        .iter()
        .flat_map(|w| w.workload.kinds())
        .map(|k| k.1)
        .collect();
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
    let (kinds_of, again_of) = (&kinds, &again);
    let clients = parts.iter_mut().map(|(parts, random)| {
        let client: clients::Client<'_, SqlError> =
            Box::new(move |seat| client(all, parts, random, (kinds_of, again_of), seat));
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
    let mut before = 0;
    let mut counting = |total: Total<'_>| {
        before = again.load(Ordering::Relaxed);
        begin(total);
    };
    let woken = || all.iter().for_each(|w| w.workload.end());
    let loads = clients::run(&plan, clients.collect(), &mut counting, end, &woken, tick)?;
    Ok((loads, again.load(Ordering::Relaxed) - before))
}

/// The seed of a client: no two of a run have one.
pub(in crate::db) fn client_seed(seed: u64, number: u32) -> u64 {
    seed ^ SplitMix64::new(u64::from(number) + 1).next_u64()
}

fn client(
    all: &[Weighted],
    parts: &mut [Box<dyn Transactions + '_>],
    random: &mut SplitMix64,
    (kinds, again): (&[Op], &AtomicU64),
    seat: &mut Seat<'_>,
) -> Result<()> {
    let total: u64 = all.iter().map(|w| w.weight).sum();
    while let Some(came) = seat.next() {
        let at = random.below(total as usize) as u64;
        let chosen = chosen(all.iter().map(|w| w.weight), at);
        loop {
            match parts[chosen].transaction() {
                Ok(kind) => {
                    let kind = all[chosen].first + kind;
                    break seat.done(kind, kinds[kind], 0, came);
                }
                Err(e) if e.again => {
                    if !seat.going() {
                        return Ok(());
                    }
                    again.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}
