//! Flags that need the machine: what device counters, extents, processors and control groups say about a measure.

mod device;
mod held_up;

use fathom_host::root::HostRoot;
use fathom_host::{ControlGroups, health};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};

pub use device::used_by_others;

use crate::driver::PlannedJob;
use crate::job::Engine;
use crate::target::Target;

/// Judges the jobs of one group, which ran at the same time on `target`.
pub fn judge(jobs: &mut [Job], planned: &[PlannedJob], target: &Target) {
    if target.is_null() || planned.iter().all(|p| p.job.spec.engine == Engine::Null) {
        return;
    }
    let commands = planned
        .iter()
        .any(|p| p.job.spec.engine == Engine::UringCmd);
    let mut together = match jobs.iter().find_map(|j| j.device.as_ref()) {
        _ if commands => vec![device::past_the_block_layer()],
        Some(counted) => device::flags(jobs, planned, counted, target.below()),
        None => vec![device::not_counted(target.no_counters())],
    };
    together.extend(drive_warnings(target));
    let groups = ControlGroups::of_this_process(&HostRoot::real());
    together.extend(held_up::by_limits(jobs, planned, target.below(), &groups));
    for (job, plan) in jobs.iter_mut().zip(planned) {
        job.flags.extend(together.iter().cloned());
        job.flags.extend(unwritten(plan, target));
        let bound = held_up::cpu(job, plan, planned.len());
        let contended = held_up::contended(job, plan, bound.is_some());
        job.flags.extend(bound.into_iter().chain(contended));
        tell_what_the_kernel_said(job, target);
    }
}

/// What the drives behind the target warn of.
fn drive_warnings(target: &Target) -> Vec<Flag> {
    let disks = target
        .below()
        .map(|b| b.disks.as_slice())
        .unwrap_or_default();
    let warns = |(_, disk): &(_, String)| {
        let warnings = health::warnings(&HostRoot::real(), disk);
        (!warnings.is_empty()).then(|| {
            Flag::new(
                FlagCode::DeviceWarning,
                format!("{disk} warns: {}", warnings.join(", ")),
                "its numbers are those of a drive in this state: look at its health (fathom devices), and replace or cool it",
            )
        })
    };
    disks.iter().filter_map(warns).collect()
}

/// The kernel's own words about the device, beside an error or a stall: timeouts, resets, the sector of a bad medium.
fn tell_what_the_kernel_said(job: &mut Job, target: &Target) {
    let failed = |f: &&mut Flag| matches!(f.code, FlagCode::IoErrors | FlagCode::Stalled);
    let disks = target
        .below()
        .map(|b| b.disks.as_slice())
        .unwrap_or_default();
    let Some(flag) = job.flags.iter_mut().find(failed) else {
        return;
    };
    let names: Vec<&str> = disks.iter().map(|(_, name)| name.as_str()).collect();
    let lasted = Nanos(job.wall_ns) + Nanos::from_secs(150);
    let said = fathom_host::kernel_log::about(&names, lasted.0);
    if !said.is_empty() {
        flag.detail += &format!("; the kernel says: {}", said.join(" | "));
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
