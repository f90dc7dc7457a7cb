//! What a device, and what it is made of, counted against what the jobs did.

use fathom_host::Below;
use fathom_telemetry::schema::{DeviceDelta, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};

use super::bytes;
use crate::driver::PlannedJob;
use crate::job::Distribution;

/// Less than this of others' I/O is noise.
const NOISE: u64 = 1 << 20;

/// Where nothing counts, and why.
pub(super) fn not_counted(why: Option<&str>) -> Flag {
    Flag::new(
        FlagCode::NotChecked,
        format!(
            "no device counters to compare with: {}",
            why.unwrap_or("they could not be read")
        ),
        "page cache and foreign I/O cannot be told here",
    )
}

/// The kernel does not count commands that pass its block layer. No cache and no hole answers them.
pub(super) fn past_the_block_layer() -> Flag {
    Flag::new(
        FlagCode::NotChecked,
        "the kernel does not count commands that pass its block layer",
        "what others did on the drive meanwhile cannot be told: compare with --engine uring",
    )
}

/// What a group of jobs did, as far as the counters cover it.
struct Done {
    /// The counters are read by a thread that has to be woken: of a short job on a busy machine they miss a part. What the
    /// jobs moved in the same time is what they are held against.
    asked: u64,
    all: u64,
    reads: u64,
    writes: u64,
    /// Devices without a queue of their own (md, device-mapper) and the process' account count a request when it begins:
    /// what was under way when the counters were read is in no difference.
    begun: u64,
    buffered: bool,
}

impl Done {
    fn by(jobs: &[Job], planned: &[PlannedJob], device: &DeviceDelta) -> Self {
        let all: u64 = Op::ALL.iter().map(|op| bytes(jobs, *op)).sum();
        let asked = device.asked_bytes.unwrap_or(all).min(all);
        let at_once = |p: &PlannedJob| u64::from(p.seats().0 * p.seats().1) * p.job.spec.bs.max().0;
        let mut done = Self {
            asked,
            all,
            reads: 0,
            writes: 0,
            begun: planned.iter().map(at_once).sum(),
            buffered: planned.iter().any(|p| !p.job.spec.direct),
        };
        done.reads = done.covered(bytes(jobs, Op::Read));
        done.writes = done.covered(bytes(jobs, Op::Write));
        done
    }

    /// The part of `n` bytes that was done while the counters counted.
    fn covered(&self, n: u64) -> u64 {
        (n as f64 * self.asked as f64 / self.all.max(1) as f64) as u64
    }

    /// Whether clearly less than `did` was counted. What was under way excuses three quarters of it at most.
    fn clearly_less(&self, counted: u64, did: u64) -> bool {
        let seen = counted + self.begun.min(did / 4 * 3);
        seen * 10 < did * 9
    }
}

/// Flags of the whole group.
pub(super) fn flags(
    jobs: &[Job],
    planned: &[PlannedJob],
    device: &DeviceDelta,
    below: Option<&Below>,
) -> Vec<Flag> {
    let done = Done::by(jobs, planned, device);
    let mut flags = Vec::new();
    if done.asked * 2 < done.all {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "the counters of {} were read after {:.0} % of the job",
                device.name,
                100.0 * (1.0 - done.asked as f64 / done.all as f64)
            ),
            "page cache and foreign I/O are judged by the rest of it: run it longer, or on a machine that is less busy",
        ));
    }
    flags.extend(merged(&done, jobs, device));
    flags.extend(reads(&done, device, below));
    flags.extend(writes(&done, jobs, device, below));
    flags.extend(lost(&done, jobs, planned));
    flags.extend(foreign(&done, device));
    if let Some(why) = below.and_then(|b| b.unseen.as_ref())
        && done.all > 0
    {
        flags.push(Flag::new(
            FlagCode::NotChecked,
            format!(
                "what {} is made of does not count its I/O: {why}",
                device.name
            ),
            "page cache and holes below the device cannot be told here",
        ));
    }
    flags
}

fn share_of(part: u64, whole: u64) -> f64 {
    100.0 * (1.0 - part as f64 / whole.max(1) as f64)
}

fn reads(done: &Done, device: &DeviceDelta, below: Option<&Below>) -> Vec<Flag> {
    // The process' own account leaves out what others read meanwhile, but knows nothing of reads that a
    // kernel thread does for it (some file systems): the device's counters decide there.
    let own = match device.process_read_bytes {
        0 => device.read_bytes,
        n => n.min(device.read_bytes),
    };
    let Some((share, place, remedy)) = (if done.clearly_less(own, done.reads) {
        let remedy = if done.buffered {
            "this measures memory: use direct I/O, or a range larger than memory".to_owned()
        } else {
            "a cache, compression or a hole between the job and the device answered".to_owned()
        };
        Some((share_of(own, done.reads), device.name.clone(), remedy))
    } else {
        let short =
            |s: &&fathom_telemetry::schema::BelowDelta| done.clearly_less(s.read_bytes, done.reads);
        device.below.iter().find(short).map(|step| {
            let place = format!("{}, which {} is made of", step.name, device.name);
            (share_of(step.read_bytes, done.reads), place, through(below))
        })
    }) else {
        // Less than that may be anybody's.
        let unknown = device.process_read_bytes == 0 && device.read_bytes > 0;
        return (done.reads > 0 && done.reads < NOISE && unknown)
            .then(|| {
                Flag::new(
                    FlagCode::NotChecked,
                    format!(
                        "{} are too little to tell reads of {} for this job from those for others",
                        Bytes(done.reads),
                        device.name
                    ),
                    "the page cache may have answered: run it longer",
                )
            })
            .into_iter()
            .collect();
    };
    let mut flag = Flag::new(
        FlagCode::PageCacheAnswered,
        format!(
            "{share:.0} % of {} read never reached {place}",
            Bytes(done.reads)
        ),
        remedy,
    );
    // Who asked for the page cache gets its numbers, flagged; a direct job's are not what they seem.
    flag.void = !done.buffered;
    vec![flag]
}

/// Neighbours that were handed over together and went to the device as one: its speed is that of larger blocks.
fn merged(done: &Done, jobs: &[Job], device: &DeviceDelta) -> Option<Flag> {
    // What the page cache writes and reads has sizes of its own.
    if done.buffered {
        return None;
    }
    let ours: u64 = jobs
        .iter()
        .flat_map(|j| [j.direction(Op::Read), j.direction(Op::Write)])
        .flatten()
        .map(|d| d.ios)
        .sum();
    let requests = device.read_ios + device.write_ios;
    let merges = device.read_merges + device.write_merges;
    (merges > 100 && merges * 10 > ours && requests < ours).then(|| {
        Flag::new(
            FlagCode::RequestsMerged,
            format!(
                "{} did {requests} requests for {ours} I/Os: neighbours were merged on the way",
                device.name
            ),
            "this is the speed of larger blocks: say them with --bs, or keep neighbours apart with --submit-batch 1 --complete-max 1",
        )
    })
}

/// What to do about a stack of devices that answers by itself.
fn through(below: Option<&Below>) -> String {
    match below.map_or(&[][..], |b| &b.cached_loops) {
        [] => "a cache, compression or a hole in between answered: fill the whole device first, or measure what it is made of"
            .into(),
        loops => format!(
            "{} goes through the page cache of its file: losetup --direct-io=on /dev/{}, and fill it first",
            loops.join(" and "),
            loops[0]
        ),
    }
}

fn writes(done: &Done, jobs: &[Job], device: &DeviceDelta, below: Option<&Below>) -> Option<Flag> {
    if done.writes == 0 {
        return None;
    }
    let least = device
        .below
        .iter()
        .map(|s| (s.write_bytes, &s.name))
        .chain([(device.write_bytes, &device.name)])
        .min_by_key(|s| s.0)?;
    if !done.clearly_less(least.0, done.writes) {
        return None;
    }
    let had = format!(
        "{:.0} % of {} written had not reached {} when the job ended",
        share_of(least.0, done.writes),
        Bytes(done.writes),
        least.1
    );
    // With what was still to do, the rate is that of the device, or of memory where blocks were overwritten there.
    let took = jobs
        .iter()
        .filter_map(|j| j.write_back.as_ref().map(|w| w.ns))
        .max();
    let wall = jobs.iter().map(|j| j.wall_ns).max().unwrap_or(0);
    // Of lost data there is no rate.
    let void = jobs.iter().any(Job::is_void);
    let until = took
        .filter(|_| wall > 0 && !void)
        .map_or(String::new(), |ns| {
            let rate = bytes(jobs, Op::Write) as f64 / ((wall + ns) as f64 / 1e9);
            format!(
                "; that took {} more, {}/s with it",
                Nanos(ns),
                Bytes(rate as u64)
            )
        });
    let direct_above = !done.buffered && done.clearly_less(device.write_bytes, done.writes);
    let remedy = if done.buffered {
        "this measures memory: use direct I/O, --fsync or --fdatasync, or write more than memory holds".to_owned()
    } else if direct_above {
        "a cache, compression or a file system that does not write directly took it".to_owned()
    } else {
        through(below)
    };
    let mut flag = Flag::new(FlagCode::PageCacheAnswered, had + &until, remedy);
    // As for reads; but below the device it is a cache that was asked for its errors and is part of what is measured.
    flag.void = direct_above;
    Some(flag)
}

/// Data that is on no device although all was written back and nobody complained.
fn lost(done: &Done, jobs: &[Job], planned: &[PlannedJob]) -> Option<Flag> {
    let back = jobs.iter().find_map(|j| j.write_back.as_ref())?;
    let reached = back.device_write_bytes?;
    // What was overwritten in memory counts once; of blocks drawn alike three fifths are different ones at least.
    let different = jobs.iter().zip(planned).map(|(job, plan)| {
        let spec = &plan.job.spec;
        let told = plan.guide.is_some() || plan.job.feed.is_some() || spec.align.is_some();
        let reduced = spec.compress > 0.0 || spec.duplicate > 0.0;
        let alike = matches!(spec.dist, Distribution::Uniform);
        if told || reduced || !alike {
            return 0;
        }
        let written = job.write.as_ref().map_or(0, |w| w.bytes);
        written.min(plan.job.range()) / u64::from(spec.threads.max(1)) / 5 * 3
    });
    let least = done.covered(different.max().unwrap_or(0));
    let known = jobs.iter().any(|j| j.flags.iter().any(|f| f.void));
    if known || least < NOISE || reached * 2 >= least {
        return None;
    }
    Some(Flag::new(
        FlagCode::WriteBackFailed,
        format!(
            "only {} of {} written ever reached {}, and nothing told of an error",
            Bytes(reached),
            Bytes(bytes(jobs, Op::Write)),
            back.device
        ),
        "something between the job and the device drops, packs or keeps what is written: look at the kernel log",
    ))
}

fn foreign(done: &Done, device: &DeviceDelta) -> Option<Flag> {
    let reads = device.read_bytes.saturating_sub(done.reads);
    // Metadata and journal writes are the job's own doing: allow a share for them.
    let writes = if done.buffered {
        0
    } else {
        device
            .write_bytes
            .saturating_sub(done.writes + done.writes / 5)
    };
    used_by_others(&device.name, reads.max(writes), done.reads + done.writes)
}

/// That a device served `foreign` bytes that nobody here asked for, beside `own`: more than noise, and a twentieth.
pub fn used_by_others(device: &str, foreign: u64, own: u64) -> Option<Flag> {
    (foreign > 4 * NOISE && foreign.saturating_mul(20) > own).then(|| {
        Flag::new(
            FlagCode::ForeignIo,
            format!(
                "{device} served {} that this job did not ask for",
                Bytes(foreign)
            ),
            "stop what else uses the device, or measure when it is idle",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobSpec, Limits};
    use fathom_telemetry::schema::{BelowDelta, DeviceDelta, Direction, WriteBack};

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
            hosts: 1,
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
        let device = job.device.clone().unwrap();
        let flags = flags(&[job], &[planned], &device, None);
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

    /// A job of `written` MiB, `direct` or not, after which the devices counted so many MiB: at the end of the job from the
    /// top down, and by the end of the write-back where they counted least.
    fn after_writing(written: u64, direct: bool, counted: &[u64], back: u64) -> Vec<Flag> {
        after(written, None, direct, counted, back)
    }

    /// The same where the counters were read so late that they cover `asked` MiB.
    fn after_writing_late(written: u64, asked: u64, counted: &[u64], back: u64) -> Vec<Flag> {
        after(written, Some(asked * MIB), true, counted, back)
    }

    fn after(
        written: u64,
        asked: Option<u64>,
        direct: bool,
        counted: &[u64],
        back: u64,
    ) -> Vec<Flag> {
        let limits = Limits {
            size: 1 << 30,
            direct_align: 512,
            hosts: 1,
        };
        let mut spec = JobSpec::default();
        for (option, value) in [("bs", "64k"), ("qd", "16"), ("rw", "write")] {
            spec.set(option, value).unwrap();
        }
        spec.direct = direct;
        let planned = PlannedJob::new(spec.validate(&limits).unwrap());
        let job = Job {
            wall_ns: 1_000_000_000,
            write: Some(Direction {
                bytes: written * MIB,
                ..Direction::default()
            }),
            write_back: Some(WriteBack {
                ns: 1_000_000_000,
                device_write_bytes: Some(back * MIB),
                device: "vda".into(),
            }),
            ..Job::default()
        };
        let device = DeviceDelta {
            name: "loop7".into(),
            write_bytes: counted[0] * MIB,
            asked_bytes: asked,
            below: steps(&counted[1..], |step, n| step.write_bytes = n),
            ..DeviceDelta::default()
        };
        flags(&[job], &[planned], &device, None)
    }

    fn steps(mib: &[u64], set: fn(&mut BelowDelta, u64)) -> Vec<BelowDelta> {
        let step = |n: &u64| {
            let mut step = BelowDelta {
                name: "vda".into(),
                ..BelowDelta::default()
            };
            set(&mut step, n * MIB);
            step
        };
        mib.iter().map(step).collect()
    }

    #[test]
    fn writes_that_stay_in_memory_are_said_and_those_that_get_lost_void_the_job() {
        use FlagCode::{PageCacheAnswered, WriteBackFailed};
        let codes = |flags: &[Flag]| -> Vec<_> { flags.iter().map(|f| (f.code, f.void)).collect() };
        for (what, flags, expected) in [
            (
                "all is there",
                after_writing(100, false, &[100], 100),
                vec![],
            ),
            (
                "in memory until asked for",
                after_writing(100, false, &[30], 100),
                vec![(PageCacheAnswered, false)],
            ),
            (
                "dropped without a word",
                after_writing(100, false, &[0], 1),
                vec![(PageCacheAnswered, false), (WriteBackFailed, true)],
            ),
            (
                "a loop device that keeps them to itself",
                after_writing(100, true, &[100, 0], 1),
                vec![(PageCacheAnswered, false), (WriteBackFailed, true)],
            ),
            (
                "a loop device with a cache",
                after_writing(100, true, &[100, 40], 100),
                vec![(PageCacheAnswered, false)],
            ),
            (
                "what was asked to be direct was not",
                after_writing(100, true, &[40], 100),
                vec![(PageCacheAnswered, true)],
            ),
            (
                "an array writes all of it twice",
                after_writing(100, true, &[100, 200], 100),
                vec![],
            ),
            (
                "some was under way",
                after_writing(8, true, &[7], 8),
                vec![],
            ),
            (
                "counted late: a short job on a busy machine",
                after_writing_late(100, 5, &[5], 5),
                vec![(FlagCode::NotChecked, false)],
            ),
            // Nine passes over a small range leave one to be written.
            (
                "overwritten in memory",
                after_writing(9 << 10, false, &[700], 1 << 10),
                vec![(PageCacheAnswered, false)],
            ),
        ] {
            assert_eq!(codes(&flags), expected, "{what}");
        }
        let told = &after_writing(100, false, &[30], 100)[0].detail;
        assert!(
            told.contains("70 % of 100 MiB") && told.contains("50 MiB/s with it"),
            "{told}"
        );
    }

    #[test]
    fn reads_that_a_loop_device_answers_itself_void_the_job() {
        let limits = Limits {
            size: 1 << 30,
            direct_align: 512,
            hosts: 1,
        };
        let planned = PlannedJob::new(JobSpec::default().validate(&limits).unwrap());
        let job = Job {
            read: Some(Direction {
                bytes: 100 * MIB,
                ..Direction::default()
            }),
            ..Job::default()
        };
        let said = |below: &[u64], way: &Below| {
            let device = DeviceDelta {
                name: "loop7".into(),
                read_bytes: 100 * MIB,
                process_read_bytes: 100 * MIB,
                below: steps(below, |step, n| step.read_bytes = n),
                ..DeviceDelta::default()
            };
            flags(
                std::slice::from_ref(&job),
                std::slice::from_ref(&planned),
                &device,
                Some(way),
            )
        };
        let mut way = Below::default();
        assert!(said(&[100], &way).is_empty());
        assert!(said(&[140, 150], &way).is_empty(), "read ahead");
        let hole = said(&[100, 10], &way);
        assert!(
            hole[0].void && hole[0].detail.contains("90 % of 100 MiB"),
            "{hole:?}"
        );
        way.cached_loops.push("loop7".into());
        let cached = said(&[10], &way);
        assert!(
            cached[0]
                .remedy
                .contains("losetup --direct-io=on /dev/loop7"),
            "{cached:?}"
        );
        way.unseen = Some("tmpfs lives in memory".into());
        let memory = said(&[], &way);
        assert_eq!(
            (memory[0].code, memory[0].void),
            (FlagCode::NotChecked, false)
        );
    }

    #[test]
    fn little_reading_is_judged_too_and_not_where_it_may_be_anybodys() {
        use FlagCode::{NotChecked, PageCacheAnswered};
        let kib = |read: u64, device: u64, process: u64| {
            codes(&Case {
                read: read << 10,
                asked: None,
                device: device << 10,
                process: process << 10,
                direct: true,
            })
        };
        assert_eq!(kib(400, 400, 400), []);
        assert_eq!(kib(400, 0, 0), [(PageCacheAnswered, true)]);
        assert_eq!(
            kib(400, 900, 10),
            [(PageCacheAnswered, true)],
            "others read"
        );
        assert_eq!(kib(400, 900, 0), [(NotChecked, false)]);
    }
}
