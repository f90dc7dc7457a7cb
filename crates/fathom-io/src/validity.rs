//! Flags that need the machine: what device counters, extents and the CPU say about a measure.

use std::sync::OnceLock;

use fathom_telemetry::schema::{DeviceDelta, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Op};

use crate::driver::{Control, Destination, PlannedJob, Setting, run_group};
use crate::job::{Engine, JobSpec, Limits};
use crate::target::Target;

/// Judges the jobs of one group, which ran at the same time on `target`.
pub fn judge(jobs: &mut [Job], planned: &[PlannedJob], target: &Target) {
    if target.is_null() || planned.iter().all(|p| p.job.spec.engine == Engine::Null) {
        return;
    }
    let device = device_flags(jobs, planned, target.no_counters());
    for (job, plan) in jobs.iter_mut().zip(planned) {
        job.flags.extend(device.iter().cloned());
        job.flags.extend(unwritten(plan, target));
        job.flags.extend(cpu(job, plan, planned.len()));
    }
}

fn bytes(jobs: &[Job], op: Op) -> u64 {
    jobs.iter()
        .filter_map(|j| j.direction(op))
        .map(|d| d.bytes)
        .sum()
}

/// What the device counted against what the jobs did, over the whole group.
/// `none` is why there are no counters.
fn device_flags(jobs: &[Job], planned: &[PlannedJob], none: Option<&str>) -> Vec<Flag> {
    let mut flags = Vec::new();
    let Some(device) = jobs.iter().find_map(|j| j.device.as_ref()) else {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "no device counters to compare with: {}",
                none.unwrap_or("they could not be read")
            ),
            "page cache and foreign I/O cannot be told here",
        ));
        return flags;
    };
    // The counters are read by a thread that has to be woken: of a short job on a busy machine they miss a part. What the
    // jobs moved in the same time is what they are held against.
    let all: u64 = Op::ALL.iter().map(|op| bytes(jobs, *op)).sum();
    let asked = device.asked_bytes.unwrap_or(all).min(all);
    let covered = |n: u64| (n as f64 * asked as f64 / all.max(1) as f64) as u64;
    let reads = covered(bytes(jobs, Op::Read));
    let writes = covered(bytes(jobs, Op::Write));
    if asked * 2 < all {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "the counters of {} were read after {:.0} % of the job",
                device.name,
                100.0 * (1.0 - asked as f64 / all as f64)
            ),
            "page cache and foreign I/O are judged by the rest of it: run it longer, or on a machine that is less busy",
        ));
    }
    flags.extend(merged(jobs, planned, device));
    let buffered = planned.iter().any(|p| !p.job.spec.direct);
    let noise = 1 << 20;
    // The process' own account leaves out what others read meanwhile, but knows nothing of reads that a
    // kernel thread does for it (loop devices, some file systems): the device's counters decide there.
    let own = match device.process_read_bytes {
        0 => device.read_bytes,
        n => n.min(device.read_bytes),
    };
    // Devices without a queue of their own (md, device-mapper) and the process' account count a request when it begins:
    // what was under way when the counters were read is in no difference. It excuses three quarters of the reads at most.
    let begun: u64 = planned
        .iter()
        .map(|p| u64::from(p.seats().0 * p.seats().1) * p.job.spec.bs.max().0)
        .sum();
    let seen = own + begun.min(reads / 4 * 3);
    if reads > noise && seen * 10 < reads * 9 {
        let share = 100.0 * (1.0 - own as f64 / reads as f64);
        let mut flag = Flag::new(
            FlagCode::PageCacheAnswered,
            format!(
                "{share:.0} % of {} read never reached {}",
                Bytes(reads),
                device.name
            ),
            if buffered {
                "this measures memory: use direct I/O, or a range larger than memory"
            } else {
                "a cache, compression or a hole between the job and the device answered"
            },
        );
        // Who asked for the page cache gets its numbers, flagged; a direct job's are not what they seem.
        flag.void = !buffered;
        flags.push(flag);
    }
    let foreign_reads = device.read_bytes.saturating_sub(reads);
    // Metadata and journal writes are the job's own doing: allow a share for them.
    let foreign_writes = if buffered {
        0
    } else {
        device.write_bytes.saturating_sub(writes + writes / 5)
    };
    let foreign = foreign_reads.max(foreign_writes);
    if foreign > 4 * noise && foreign * 20 > reads + writes {
        flags.push(Flag::new(
            FlagCode::ForeignIo,
            format!(
                "{} served {} that this job did not ask for",
                device.name,
                Bytes(foreign)
            ),
            "stop what else uses the device, or measure when it is idle",
        ));
    }
    flags
}

/// Neighbours that were handed over together and went to the device as one: its speed is that of larger blocks.
fn merged(jobs: &[Job], planned: &[PlannedJob], device: &DeviceDelta) -> Option<Flag> {
    // What the page cache writes and reads has sizes of its own.
    if planned.iter().any(|p| !p.job.spec.direct) {
        return None;
    }
    let ios = |ops: &[Op]| -> u64 {
        let each = |j: &Job| {
            ops.iter()
                .filter_map(|op| j.direction(*op))
                .map(|d| d.ios)
                .sum::<u64>()
        };
        jobs.iter().map(each).sum()
    };
    let ours = ios(&[Op::Read, Op::Write]);
    let merges = device.read_merges + device.write_merges;
    (merges > 100 && merges * 10 > ours && device.read_ios + device.write_ios < ours).then(|| {
        Flag::new(
            FlagCode::RequestsMerged,
            format!(
                "{} did {} requests for {ours} I/Os: neighbours were merged on the way",
                device.name,
                device.read_ios + device.write_ios
            ),
            "this is the speed of larger blocks: say them with --bs, or keep neighbours apart with --submit-batch 1 --complete-max 1",
        )
    })
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

fn cpu(job: &Job, plan: &PlannedJob, group: usize) -> Option<Flag> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::schema::Direction;

    const MIB: u64 = 1 << 20;

    /// What came of a job of reads, sixteen of 64 KiB at a time: bytes in all, and while the device was counted; what the
    /// device and the process' account say.
    struct Case {
        read: u64,
        asked: Option<u64>,
        device: u64,
        process: u64,
        direct: bool,
    }

    fn codes(c: &Case) -> Vec<(FlagCode, bool)> {
        let limits = Limits {
            size: 1 << 30,
            direct_align: 512,
        };
        let mut spec = JobSpec::default();
        for (option, value) in [("bs", "64k"), ("qd", "16"), ("rw", "randread")] {
            spec.set(option, value).unwrap();
        }
        spec.direct = c.direct;
        let planned = PlannedJob::new(spec.validate(&limits).unwrap());
        let job = Job {
            read: Some(Direction {
                bytes: c.read,
                ..Direction::default()
            }),
            device: Some(DeviceDelta {
                name: "vda".into(),
                read_bytes: c.device,
                process_read_bytes: c.process,
                asked_bytes: c.asked,
                ..DeviceDelta::default()
            }),
            ..Job::default()
        };
        let flags = device_flags(&[job], &[planned], None);
        flags.into_iter().map(|f| (f.code, f.void)).collect()
    }

    #[test]
    fn short_jobs_are_judged_by_what_was_counted_of_them() {
        use FlagCode::{ForeignIo, NotChecked, PageCacheAnswered};
        let case = |read, asked: Option<u64>, device, process| Case {
            read: read * MIB,
            asked: asked.map(|a| a * MIB),
            device: device * MIB,
            process: process * MIB,
            direct: true,
        };
        let cached = vec![(PageCacheAnswered, true)];
        for (what, case, expected) in [
            ("all is counted", case(100, Some(100), 100, 100), vec![]),
            (
                "what a run of before says",
                case(100, None, 100, 100),
                vec![],
            ),
            ("one depth was under way", case(8, Some(8), 7, 7), vec![]),
            // 100 ms in a guest: the counters were read a quarter late, three depths apart.
            ("a short job", case(8, Some(6), 5, 5), vec![]),
            ("a kernel thread reads", case(100, Some(90), 90, 0), vec![]),
            (
                "nothing reached it",
                case(100, Some(100), 0, 0),
                cached.clone(),
            ),
            ("nothing, late", case(100, Some(60), 0, 0), cached.clone()),
            (
                "nothing of a short job",
                case(8, Some(6), 0, 0),
                cached.clone(),
            ),
            (
                "half of a short job",
                case(8, Some(8), 4, 4),
                cached.clone(),
            ),
            (
                "a sixth from memory, late",
                case(100, Some(60), 50, 50),
                cached.clone(),
            ),
            (
                "others hid it",
                case(100, Some(100), 200, 5),
                vec![(PageCacheAnswered, true), (ForeignIo, false)],
            ),
            (
                "too late",
                case(100, Some(40), 40, 40),
                vec![(NotChecked, false)],
            ),
            (
                "too late, from memory",
                case(100, Some(40), 0, 0),
                vec![(NotChecked, false), (PageCacheAnswered, true)],
            ),
            (
                "others read meanwhile",
                case(100, Some(80), 100, 80),
                vec![(ForeignIo, false)],
            ),
            // Counted from before the first I/O on.
            (
                "more than was measured",
                case(100, Some(101), 101, 101),
                vec![],
            ),
        ] {
            assert_eq!(codes(&case), expected, "{what}");
        }
        let buffered = Case {
            direct: false,
            ..case(100, Some(90), 1, 1)
        };
        assert_eq!(codes(&buffered), [(PageCacheAnswered, false)]);
    }
}
