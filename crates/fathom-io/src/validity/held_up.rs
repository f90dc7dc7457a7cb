//! What kept a job from going on: processors that it or others used up, limits of control groups.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use fathom_host::Below;
use fathom_host::control_group::{ControlGroups, IoKind};
use fathom_telemetry::schema::{HeldUp, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};

use crate::driver::{Control, Destination, PlannedJob, Setting, run_group};
use crate::job::{Engine, JobSpec, Limits};

/// A thread that waits for its processor for more than this share of its time issues that much less.
const WAITED: f64 = 0.05;
/// Less waiting than this is the scheduler's own doing, ns.
const WAITED_NS: u64 = 1_000_000;
/// From here on a limit is what was measured.
const NEAR: f64 = 0.8;

/// The processors or the generator were the limit.
pub(super) fn cpu(job: &Job, plan: &PlannedJob, group: usize) -> Option<Flag> {
    let spec = &plan.job.spec;
    // An open loop spins until the next arrival is due; a polled ring spins by design.
    if job_plays(plan)
        || spec.rate.is_some()
        || spec.iopoll
        || spec.sqpoll
        || group > 1
        || job.wall_ns == 0
    {
        return None;
    }
    let (seats, _) = plan.seats();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
    let capacity = job.wall_ns as f64 * cores.min(f64::from(seats));
    let used = job.cpu_ns as f64 / capacity;
    if used < 0.95 || job.wall_ns < 10_000_000 {
        return None;
    }
    let ios: u64 = Op::ALL
        .iter()
        .filter_map(|op| job.direction(*op))
        .map(|d| d.ios)
        .sum();
    let own = ios as f64 * null_cost_ns() / job.cpu_ns.max(1) as f64;
    if own > 0.5 {
        return Some(Flag::new(
            FlagCode::GeneratorBound,
            format!(
                "the generator itself took {:.0} % of the CPU time used",
                own * 100.0
            ),
            "the target is faster than one generator: add threads",
        ));
    }
    Some(Flag::new(
        FlagCode::CpuBound,
        format!(
            "{:.0} % of the CPU time of {} was used, {:.2} µs per I/O",
            used * 100.0,
            if f64::from(seats) < cores {
                format!("{seats} thread(s)")
            } else {
                format!("all {cores} processors")
            },
            job.cpu_ns as f64 / 1000.0 / ios.max(1) as f64
        ),
        "the number is the software's, not the device's: add threads if processors are idle, or take a faster machine",
    ))
}

/// A trace waits for its times, spinning, as an open loop does.
fn job_plays(plan: &PlannedJob) -> bool {
    plan.job.feed.is_some()
}

/// The generator's own cost per I/O, measured once on the null target, ns.
fn null_cost_ns() -> f64 {
    static COST: OnceLock<f64> = OnceLock::new();
    *COST.get_or_init(|| {
        let spec = JobSpec {
            engine: Engine::Null,
            qd: 32,
            ios: Some(200_000),
            ..JobSpec::default()
        };
        let limits = Limits {
            size: 1 << 30,
            direct_align: 1,
            hosts: 1,
        };
        let Ok(job) = spec.validate(&limits) else {
            return 0.0;
        };
        let control = Control::new();
        let setting = Setting {
            destination: &Destination::Null,
            control: &control,
            counters: None,
            log: None,
        };
        match run_group(&[PlannedJob::new(job)], &setting, &mut ()) {
            Ok(jobs) => jobs.first().map_or(0.0, |j| j.cpu_ns as f64 / 200_000.0),
            Err(_) => 0.0,
        }
    })
}

/// Others had the processors that the job needed. `bound`: its own use of them has been said already.
pub(super) fn contended(job: &Job, plan: &PlannedJob, bound: bool) -> Option<Flag> {
    let h = job.held_up.as_ref()?;
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut seen = Vec::new();
    // What a quota held back was not for want of a processor; that is said on its own.
    let waited = h.waited_ns.saturating_sub(2 * h.cpu_throttled_ns);
    if !bound && h.waited_share > WAITED && waited >= WAITED_NS {
        seen.push(format!(
            "threads of the job were ready and waited for a processor, one of them {} of its time",
            percent(h.waited_share)
        ));
    }
    if let Some(steal) = h.steal_share.filter(|s| *s > WAITED) {
        seen.push(format!(
            "the hypervisor gave {} of the time in which processors had work to other machines",
            percent(steal)
        ));
    }
    // The kernel's own threads (of a loop device, a file system) wait too, where nobody sees it.
    let own = own_share(job, plan, h);
    if let (Some(busy), Some(own)) = (h.busy_share, own)
        && !bound
        && busy >= 0.95
        && own < 0.5
    {
        seen.push(format!(
            "the processors were {} busy, {} of it with this job",
            percent(busy),
            percent(own)
        ));
    }
    (!seen.is_empty()).then(|| {
        Flag::new(
            FlagCode::CpuContended,
            seen.join("; "),
            "the number is lower than the device's: stop what else runs (top), keep it off these processors, or ask for fewer threads than there are",
        )
    })
}

/// This process' part of what kept the processors busy.
fn own_share(job: &Job, plan: &PlannedJob, h: &HeldUp) -> Option<f64> {
    let cores = match BTreeSet::from_iter(&plan.job.spec.cpus).len() {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        pinned => pinned,
    };
    let busy = h.busy_share? * job.wall_ns as f64 * cores as f64;
    // The kernel counts in ticks of 10 ms.
    (job.wall_ns >= 200_000_000 && busy > 0.0).then(|| (job.cpu_ns as f64 / busy).min(1.0))
}

/// Quotas and limits of the control groups that this process is in, as far as they held the group of jobs back.
pub(super) fn by_limits(
    jobs: &[Job],
    planned: &[PlannedJob],
    below: Option<&Below>,
    groups: &ControlGroups,
) -> Vec<Flag> {
    let mut flags = Vec::new();
    let wall = jobs.iter().map(|j| j.wall_ns).max().unwrap_or(0);
    let held = |f: fn(&HeldUp) -> u64| {
        let most = jobs.iter().filter_map(|j| j.held_up.as_ref().map(f)).max();
        most.filter(|ns| *ns > wall / 100)
    };
    if let Some(ns) = held(|h| h.cpu_throttled_ns) {
        let quotas = groups.throttled().processors;
        let by = quotas
            .iter()
            .max_by_key(|q| q.1)
            .map(|(quota, _)| format!(" ({} says {})", quota.file.display(), quota.value));
        flags.push(Flag::new(
            FlagCode::CgroupLimited,
            format!(
                "a control group's processor quota{} kept its threads from running for {} of {}",
                by.unwrap_or_default(),
                Nanos(ns),
                Nanos(wall)
            ),
            "the number is the quota's: raise it, or measure outside the group",
        ));
    }
    if let Some(ns) = held(|h| h.io_throttled_ns) {
        flags.push(Flag::new(
            FlagCode::CgroupLimited,
            format!(
                "the I/O cost controller (io.cost.qos) held I/O back for {} in {}",
                Nanos(ns),
                Nanos(wall)
            ),
            "the number is the controller's: give the group more weight, or switch it off for the device",
        ));
    }
    let Some(below) = below.filter(|_| wall > 0) else {
        return flags;
    };
    let seconds = wall as f64 / 1e9;
    for limit in groups.io_limits() {
        let Some((_, name)) = below.disks.iter().find(|d| d.0 == limit.device) else {
            continue;
        };
        let rate = amount(jobs, planned, limit.kind) / seconds;
        if rate < NEAR * limit.per_second as f64 {
            continue;
        }
        let (bound, reached) = match limit.kind {
            IoKind::ReadBytes | IoKind::WriteBytes => (
                format!("{}/s", Bytes(limit.per_second)),
                format!("{}/s", Bytes(rate as u64)),
            ),
            IoKind::ReadIos | IoKind::WriteIos => (
                format!("{} IOPS", limit.per_second),
                format!("{rate:.0} IOPS"),
            ),
        };
        let what = match limit.kind {
            IoKind::ReadBytes | IoKind::ReadIos => "reads",
            IoKind::WriteBytes | IoKind::WriteIos => "writes",
        };
        flags.push(Flag::new(
            FlagCode::CgroupLimited,
            format!(
                "{} limits {what} of {name} to {bound}, and {reached} were reached",
                limit.limit.file.display()
            ),
            "the number is the limit's: raise it, or measure outside the group",
        ));
    }
    flags
}

/// How much a limit of this kind has counted: what the jobs did, but where the page cache was between, what the device did.
fn amount(jobs: &[Job], planned: &[PlannedJob], kind: IoKind) -> f64 {
    let (op, ios) = match kind {
        IoKind::ReadBytes => (Op::Read, false),
        IoKind::ReadIos => (Op::Read, true),
        IoKind::WriteBytes => (Op::Write, false),
        IoKind::WriteIos => (Op::Write, true),
    };
    let device = jobs.iter().find_map(|j| j.device.as_ref());
    if let Some(d) = device
        && planned.iter().any(|p| !p.job.spec.direct)
    {
        return match kind {
            IoKind::ReadBytes => d.read_bytes,
            IoKind::ReadIos => d.read_ios + d.read_merges,
            IoKind::WriteBytes => d.write_bytes,
            IoKind::WriteIos => d.write_ios + d.write_merges,
        } as f64;
    }
    let directions = jobs.iter().filter_map(|j| j.direction(op));
    directions
        .map(|d| if ios { d.ios } else { d.bytes })
        .sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned() -> PlannedJob {
        let limits = Limits {
            size: 1 << 30,
            direct_align: 512,
            hosts: 1,
        };
        PlannedJob::new(JobSpec::default().validate(&limits).unwrap())
    }

    fn said(held_up: HeldUp, cpu_share: f64, bound: bool) -> Option<String> {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        let job = Job {
            wall_ns: 1_000_000_000,
            cpu_ns: (cpu_share * cores * 1e9) as u64,
            held_up: Some(held_up),
            ..Job::default()
        };
        let flag = contended(&job, &planned(), bound)?;
        assert_eq!((flag.code, flag.void), (FlagCode::CpuContended, false));
        Some(flag.detail)
    }

    #[test]
    fn a_job_is_flagged_whose_threads_waited_or_whose_processors_were_others() {
        let waited = |share: f64| HeldUp {
            waited_ns: (share * 1e9) as u64,
            waited_share: share,
            ..HeldUp::default()
        };
        assert_eq!(said(waited(0.04), 0.5, false), None);
        assert!(
            said(waited(0.25), 0.5, false)
                .unwrap()
                .contains("25 % of its time")
        );
        assert_eq!(said(waited(0.25), 1.0, true), None, "its own doing");
        let quota = HeldUp {
            cpu_throttled_ns: 200_000_000,
            ..waited(0.25)
        };
        assert_eq!(said(quota, 0.5, false), None, "a quota's doing");
        let short = HeldUp {
            waited_ns: 200_000,
            ..waited(0.25)
        };
        assert_eq!(said(short, 0.5, false), None, "of a job of a millisecond");
        let stolen = |share| HeldUp {
            steal_share: Some(share),
            ..HeldUp::default()
        };
        assert_eq!(said(stolen(0.05), 0.5, false), None);
        assert!(
            said(stolen(0.3), 1.0, true).unwrap().contains("30 %"),
            "not its own doing"
        );
        let busy = |share| HeldUp {
            busy_share: Some(share),
            ..HeldUp::default()
        };
        assert_eq!(said(busy(0.99), 0.6, false), None);
        assert_eq!(said(busy(0.90), 0.1, false), None);
        assert!(
            said(busy(0.99), 0.1, false)
                .unwrap()
                .contains("99 % busy, 10 % of it")
        );
    }

    #[test]
    fn time_under_a_quota_or_the_cost_controller_is_said_from_a_hundredth_on() {
        let job = |cpu: u64, io: u64| Job {
            wall_ns: 1_000_000_000,
            held_up: Some(HeldUp {
                cpu_throttled_ns: cpu,
                io_throttled_ns: io,
                ..HeldUp::default()
            }),
            ..Job::default()
        };
        let said = |cpu, io| {
            let flags = by_limits(
                &[job(cpu, io)],
                &[planned()],
                None,
                &ControlGroups::default(),
            );
            assert!(
                flags
                    .iter()
                    .all(|f| f.code == FlagCode::CgroupLimited && !f.void)
            );
            flags.len()
        };
        assert_eq!(said(9_000_000, 9_000_000), 0);
        assert_eq!((said(20_000_000, 0), said(20_000_000, 20_000_000)), (1, 2));
    }
}
