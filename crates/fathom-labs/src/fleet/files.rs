//! Files of a fleet: one directory that the first host makes and the others join, phases of metadata operations shared out
//! over the hosts, and steps whose times are brought to one clock.

use fathom_bench::bench::FilesOfHosts;
use fathom_io::driver::PlannedJob;
use fathom_io::files::{Operation, Phase, Seen, SeenBy, Steps};
use fathom_system::guest::Guest;
use fathom_system::guest::wire::{Answer, Ask};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Flag, FlagCode};
use serde_json::json;

use super::FleetBench;
use super::merge::on;
use crate::LabError;
use crate::guest::conduct::Ran;

/// Has the first host make the directory and the others join it; returns its name.
///
/// # Errors
/// Where hosts do not share a directory, or it cannot be made; with the name of the host.
pub(super) fn place(
    guests: &mut [Guest],
    names: &[String],
    target: &str,
    groups: Option<usize>,
) -> Result<String, LabError> {
    if groups.is_some_and(|g| g > 1) {
        return Err(LabError::Refused(format!(
            "--hosts: each host sees a directory of its own in {target}: mount one file system on all, or measure each host by itself"
        )));
    }
    let mut joins: Option<(String, String)> = None;
    for (guest, name) in guests.iter_mut().zip(names) {
        let ask = Ask::Place {
            joins: joins.clone(),
        };
        let answer = guest.ask(&ask, &[]).and_then(|()| guest.answer());
        match answer.map_err(|e| on(name, e))?.0 {
            Answer::Placed { name, mark } => joins.get_or_insert((name, mark)),
            other => return Err(LabError::Failed(format!("{name} answered {other:?}"))),
        };
    }
    Ok(joins
        .map(|j| format!("{target}/{}", j.0))
        .unwrap_or_default())
}

/// A host's share of a phase. What others made is looked at and read, so that no cache of the host's own answers; what the
/// host itself made is renamed and removed.
pub(super) fn share(phase: &Phase, host: usize, made: Option<&[u64]>) -> Phase {
    let made = made.unwrap_or_default();
    let hosts = made.len().max(1);
    let of = match phase.operation {
        Operation::Stat | Operation::List | Operation::Read => (host + 1) % hosts,
        _ => host,
    };
    let files = match phase.operation {
        Operation::Create => phase.files,
        _ => made.get(of).copied().unwrap_or(0),
    };
    Phase {
        files,
        hosts: hosts as u64,
        of,
        ..phase.clone()
    }
}

/// Says in jobs with files what was done, and returns how many each host has made now.
pub(super) fn told(
    all: &mut [Job],
    planned: &[PlannedJob],
    parts: &[Option<Ran>],
    made: Option<Vec<u64>>,
) -> Option<Vec<u64>> {
    let (job, plan) = all.first_mut().zip(planned.first())?;
    let Some(phase) = &plan.files else {
        return made;
    };
    let counted = parts.iter().map(|p| {
        let seen = p.as_ref().and_then(|ran| ran.there.seen.first());
        seen.map_or(0, |s| s.counted)
    });
    let counted: Vec<u64> = counted.collect();
    let sum: u64 = made.iter().flatten().sum();
    let there = sum as f64 / parts.len().max(1) as f64;
    job.spec = json!({
        "operation": phase.operation,
        "directory": if phase.shared { "shared" } else { "own" },
        "bytes": phase.bytes,
        "files": phase.files,
        "threads": plan.job.spec.threads,
        // By each host: files, or entries of a directory; and the files that there are of a host, on average.
        "counted": counted,
        "there": there,
    });
    match phase.operation {
        Operation::Create => Some(counted),
        _ => made,
    }
}

impl FilesOfHosts for FleetBench {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn flags(&self) -> &[Flag] {
        &self.stamps
    }

    fn together(&mut self, steps: Vec<Steps>) -> Result<Vec<SeenBy>, Flag> {
        let before: Vec<usize> = steps.iter().map(|s| s.before.len()).collect();
        let asks = steps.into_iter().map(|steps| Ask::Steps { steps });
        let (parts, _) = self.conduct(asks.collect(), &mut |_| {});
        if let Some(flag) = self.lost_flag(&parts) {
            return Err(flag);
        }
        let by = parts.into_iter().flatten().zip(before);
        let by: Vec<SeenBy> = by.map(|(ran, n)| seen_by(ran, n)).collect();
        match by.len() == self.names.len() {
            true => Ok(by),
            false => Err(Flag::new(
                FlagCode::HostLost,
                "not every host answered",
                "look at the hosts, and run again",
            )),
        }
    }
}

/// Times are brought to this machine's clock; what the other one moved by meanwhile makes them less certain.
fn seen_by(ran: Ran, before: usize) -> SeenBy {
    let here = |at: u64| at.saturating_add_signed(-ran.clock.offset);
    let mut all = ran.there.seen.into_iter().map(|s| Seen {
        began: here(s.began),
        ended: here(s.ended),
        last_no: s.last_no.map(here),
        ..s
    });
    let mut bound = ran.clock.bound;
    bound.0 += ran.clock.moved.unsigned_abs();
    SeenBy {
        before: all.by_ref().take(before).collect(),
        then: all.collect(),
        bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_looks_at_was_made_by_another() {
        let phase = |operation| Phase {
            operation,
            shared: false,
            bytes: 0,
            files: 100,
            hosts: 0,
            of: 0,
        };
        let made = [10, 20, 30];
        let of = |operation, host| {
            let s = share(&phase(operation), host, Some(&made));
            (s.hosts, s.of, s.files)
        };
        assert_eq!(of(Operation::Create, 2), (3, 2, 100));
        assert_eq!(of(Operation::Stat, 0), (3, 1, 20));
        assert_eq!(of(Operation::Read, 2), (3, 0, 10));
        assert_eq!(of(Operation::Remove, 1), (3, 1, 20));
        let alone = share(&phase(Operation::Stat), 0, Some(&[7]));
        assert_eq!((alone.of, alone.files), (0, 7));
    }
}
