//! Flags that need the machine: what device counters, extents, processors and control groups say about a measure.

mod device;
mod held_up;

use fathom_host::ControlGroups;
use fathom_host::root::HostRoot;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode, Op};

use crate::driver::PlannedJob;
use crate::job::Engine;
use crate::target::Target;

/// Judges the jobs of one group, which ran at the same time on `target`.
pub fn judge(jobs: &mut [Job], planned: &[PlannedJob], target: &Target) {
    if target.is_null() || planned.iter().all(|p| p.job.spec.engine == Engine::Null) {
        return;
    }
    let mut together = match jobs.iter().find_map(|j| j.device.as_ref()) {
        Some(counted) => device::flags(jobs, planned, counted, target.below()),
        None => vec![device::not_counted(target.no_counters())],
    };
    let groups = ControlGroups::of_this_process(&HostRoot::real());
    together.extend(held_up::by_limits(jobs, planned, target.below(), &groups));
    for (job, plan) in jobs.iter_mut().zip(planned) {
        job.flags.extend(together.iter().cloned());
        job.flags.extend(unwritten(plan, target));
        let bound = held_up::cpu(job, plan, planned.len());
        let contended = held_up::contended(job, plan, bound.is_some());
        job.flags.extend(bound.into_iter().chain(contended));
    }
}

fn bytes(jobs: &[Job], op: Op) -> u64 {
    jobs.iter()
        .filter_map(|j| j.direction(op))
        .map(|d| d.bytes)
        .sum()
}

fn unwritten(plan: &PlannedJob, target: &Target) -> Option<Flag> {
    let job = &plan.job;
    if !job.spec.rw.reads() {
        return None;
    }
    let missing = target.unwritten(job.start, job.end).filter(|b| *b > 0)?;
    Some(Flag::new(
        FlagCode::UnwrittenBlocksRead,
        format!(
            "{} of the range of {} were never written",
            Bytes(missing),
            Bytes(job.range())
        ),
        "reads of them never reach the device: fill the file first, or let fathom make its own",
    ))
}
