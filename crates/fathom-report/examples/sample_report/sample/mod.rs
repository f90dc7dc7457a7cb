//! A survey of a device that does not exist, with everything a report must cope with: intervals,
//! holes, void numbers, long names, hostile names, every kind of chart, a thousand windows.

mod jobs;
mod results;

use std::collections::BTreeMap;

use fathom_report::MemorySeries;
use fathom_telemetry::schema::*;
use fathom_telemetry::series::JobSeries;
use fathom_telemetry::{Flag, FlagCode, Op};
use serde_json::json;

use jobs::{Maker, Plan, latency_at};
use results::{bandwidth, depth_sweep, findings, headlines, mix};

/// A small generator with a fixed seed (the sample must be the same everywhere).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    /// About normal: mean 0, deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// The run and its windows.
pub(crate) fn survey(simulated: bool) -> (Run, MemorySeries) {
    let mut m = Maker {
        dice: Dice(0x9E37_79B9_7F4A_7C15),
        jobs: Vec::new(),
        series: BTreeMap::new(),
        clock: 0,
    };
    const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    for repeat in 0..3 {
        for (name, op, latency) in [
            ("randread-4k-qd1", Op::Read, 68_000.0),
            ("seqread-4k-qd1", Op::Read, 41_000.0),
            ("randwrite-4k-qd1", Op::Write, 12_400.0),
            ("seqwrite-4k-qd1", Op::Write, 11_100.0),
        ] {
            let wobble = 1.0 + 0.01 * m.dice.normal();
            m.add(Plan {
                name: format!("{name}-r{repeat}"),
                experiment: "latency",
                repeat,
                op,
                block: 4096,
                depth: 1,
                latency_ns: latency * wobble,
                iops: 1e9 / latency,
                windows: 30,
                open_loop: false,
            });
        }
        for depth in DEPTHS {
            let latency = latency_at(depth, 68_000.0) * (1.0 + 0.01 * m.dice.normal());
            m.add(Plan {
                name: format!("sweep-randread-4k-qd{depth}-r{repeat}"),
                experiment: "depth-sweep",
                repeat,
                op: Op::Read,
                block: 4096,
                depth,
                latency_ns: latency,
                iops: f64::from(depth) * 1e9 / latency,
                windows: 20,
                open_loop: false,
            });
        }
    }
    let long = m.add(Plan {
        name: "sustained-randwrite-128k-qd32-with-a-rather-long-name-that-a-user-gave-to-the-job-in-a-job-file".to_owned(),
        experiment: "conditioning",
        repeat: 0,
        op: Op::Write,
        block: 131_072,
        depth: 32,
        latency_ns: 640_000.0,
        iops: 48_000.0,
        windows: 1000,
        open_loop: false,
    });
    m.jobs[long].flags.push(Flag::new(
        FlagCode::NotSteady,
        "Throughput fell by 61 % after 60 s and had not settled at the end",
        "run it longer, such as --time 30m, or condition the device first",
    ));
    let open = m.add(Plan {
        name: "open-loop-poisson-200k".to_owned(),
        experiment: "burst",
        repeat: 0,
        op: Op::Read,
        block: 4096,
        depth: 64,
        latency_ns: 84_000.0,
        iops: 200_000.0,
        windows: 120,
        open_loop: true,
    });
    m.jobs[open].flags.push(Flag::new(
        FlagCode::MissedSchedule,
        "1,204 of 2.4 M I/Os started late, by 2.31 ms at most",
        "pin the generator with --cpu, or lower --rate",
    ));
    let cached = m.add(Plan {
        name: "<script>document.title='owned'</script>\"'&-buffered-read".to_owned(),
        experiment: "bandwidth",
        repeat: 0,
        op: Op::Read,
        block: 131_072,
        depth: 8,
        latency_ns: 9_300.0,
        iops: 86_000.0,
        windows: 20,
        open_loop: false,
    });
    m.jobs[cached].flags.push(page_cache());
    let mut failed = m.jobs[0].clone();
    failed.name = "seqwrite-128k-qd256".to_owned();
    failed.experiment = "bandwidth".to_owned();
    (failed.read, failed.wall_ns, failed.cpu_ns) = (None, 0, 0);
    failed.errors = vec![IoError {
        op: Op::Write,
        errno: 28,
        message: "No space left on device".to_owned(),
        first_offset: 1 << 33,
        count: 1,
    }];
    failed.flags = vec![no_space()];
    m.jobs.push(failed);
    for j in &mut m.jobs {
        if simulated {
            j.engine = "sim".to_owned();
            j.flags.push(Flag::new(
                FlagCode::Simulated,
                "Model 'dc-tlc' with seed 42",
                "",
            ));
        }
    }
    let run = run(simulated, m.jobs, &mut m.dice);
    (run, MemorySeries(m.series))
}

/// As much as a page must bear: 400 long jobs of a thousand windows, 20 million I/Os each.
#[allow(dead_code, reason = "not every test that shares this file needs it")]
pub(crate) fn large() -> (Run, MemorySeries) {
    let (mut run, series) = survey(false);
    let (index, job) = run
        .jobs
        .iter()
        .enumerate()
        .max_by_key(|(_, j)| j.wall_ns)
        .map(|(i, j)| (i, j.clone()))
        .unwrap_or_else(|| unreachable!("the survey has jobs"));
    let windows = series.0[&index].clone();
    let mut all = BTreeMap::new();
    run.jobs = (0..400usize)
        .map(|i| Job {
            name: format!("job-{i}"),
            experiment: format!("experiment-{}", i / 20),
            ..job.clone()
        })
        .collect();
    for i in 0..run.jobs.len() {
        all.insert(i, windows.clone());
    }
    (run, MemorySeries(all))
}

/// One recorded job of 100 million I/Os: 250,000 a second for 400 s, in windows of 100 ms.
#[allow(dead_code, reason = "not every test that shares this file needs it")]
pub(crate) fn hundred_million() -> (Run, MemorySeries) {
    const WINDOWS: u64 = 4_000;
    const IOS: u64 = 25_000;
    let (mut run, series) = survey(false);
    let long = run.jobs.iter().enumerate().max_by_key(|(_, j)| j.wall_ns);
    let (index, mut job) = long
        .map(|(i, j)| (i, j.clone()))
        .unwrap_or_else(|| unreachable!("the survey has jobs"));
    let some = series.0[&index].clone();
    let windows = (0..WINDOWS).map(|i| {
        let mut w = some.windows[i as usize % some.windows.len()].clone();
        w.index = i;
        for d in w.directions.iter_mut().flatten() {
            (d.ios, d.bytes) = (IOS, IOS * 4096);
        }
        w
    });
    let windows = JobSeries {
        width: some.width,
        windows: windows.collect(),
    };
    job.wall_ns = WINDOWS * some.width.0;
    for d in [&mut job.read, &mut job.write].into_iter().flatten() {
        (d.ios, d.bytes) = (WINDOWS * IOS, WINDOWS * IOS * 4096);
        d.iops = IOS as f64 / some.width.as_secs_f64();
    }
    run.jobs = vec![job];
    (run, MemorySeries([(0, windows)].into()))
}

fn page_cache() -> Flag {
    Flag::new(
        FlagCode::PageCacheAnswered,
        "The device served 0.3 % of the bytes that the job read",
        "use --direct, or a range larger than memory",
    )
}

fn no_space() -> Flag {
    Flag::new(
        FlagCode::IoErrors,
        "1 of 12,544 writes failed: No space left on device",
        "free 4 GiB on /mnt/data or use a smaller --size",
    )
}

fn environment() -> serde_json::Value {
    json!({
        "hostname": "db-07", "virtualization": "none", "kernel": "6.12.48+deb13-amd64",
        "cpu": {
            "model": "AMD EPYC 9354P 32-Core Processor", "cores": 32, "smt": true, "governor": "schedutil",
            "idle_states": [{"name": "POLL", "latency_ns": 0}, {"name": "C1", "latency_ns": 1000}, {"name": "C2", "latency_ns": 400_000}],
            "mitigations": {"spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; STIBP: always-on; RSB filling; PBRSB-eIBRS: Not affected; BHI: Not affected", "meltdown": "Not affected"},
        },
        "memory": {"total_bytes": 137_438_953_472u64, "available_bytes": 98_231_455_744u64, "numa_nodes": 1},
        "device": {
            "name": "nvme0n1", "model": "ACME Fast SSD 2TB", "serial": "S6Z2NF0T123456", "firmware": "4B2QJXD7", "size_bytes": 2_000_398_934_016u64,
            "temperature_celsius": 41.5, "rotational": false,
            "queue": {"scheduler": "none", "nr_requests": 1023, "write_cache": "write back", "max_sectors_kb": 128, "logical_block_size_bytes": 512, "poll_queues": 0},
        },
        "file_system": {"type": "ext4", "mount_options": ["rw", "noatime", "errors=remount-ro"], "free_bytes": 811_234_123_776u64},
        "versions": {"fathom": "0.1.0", "rustc": "1.95.0", "liburing": null},
    })
}

fn run(simulated: bool, jobs: Vec<Job>, dice: &mut Dice) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        run_id: String::new(),
        tool_version: "0.1.0".to_owned(),
        name: "survey".to_owned(),
        command: "survey".to_owned(),
        command_line: [
            "fathom",
            "survey",
            "/mnt/data/my disk",
            "--profile",
            "quick",
        ]
        .map(str::to_owned)
        .into(),
        started: "2026-11-20T20:34:05Z".to_owned(),
        finished: Some("2026-11-20T20:36:49Z".to_owned()),
        profile: Some("quick".to_owned()),
        seed: 42,
        target: Target {
            name: if simulated {
                "sim:dc-tlc"
            } else {
                "/mnt/data/my disk"
            }
            .to_owned(),
            kind: if simulated { "simulated" } else { "directory" }.to_owned(),
            path: Some("/mnt/data/my disk/.fathom-scratch".to_owned()),
            size_bytes: 16 << 30,
            device: Some("nvme0n1".to_owned()),
            description:
                "ACME Fast SSD 2TB (nvme0n1, firmware 4B2QJXD7), ext4, 16 GiB scratch file"
                    .to_owned(),
        },
        simulated,
        labels: [("drive".to_owned(), "A".to_owned())].into(),
        environment: environment(),
        headlines: headlines(),
        results: Vec::new(),
        sections: vec![depth_sweep(), bandwidth(), mix(dice)],
        jobs,
        findings: findings(),
        flags: vec![Flag::new(
            FlagCode::NotChecked,
            "The device's temperature could not be read during the jobs",
            "run as root, or add a udev rule for /dev/nvme0",
        )],
    }
}
