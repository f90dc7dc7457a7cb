//! A survey of a device that does not exist, with everything a report must cope with: intervals,
//! holes, void numbers, long names, hostile names, every kind of chart, a thousand windows.

use std::collections::BTreeMap;

use fathom_report::MemorySeries;
use fathom_stats::Estimate;
use fathom_telemetry::schema::*;
use fathom_telemetry::series::JobSeries;
use fathom_telemetry::{DirectionWindow, Flag, FlagCode, Histogram, Nanos, Op, Window};
use serde_json::json;

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

/// What a job of the sample looks like.
struct Plan {
    name: String,
    experiment: &'static str,
    repeat: u32,
    op: Op,
    block: u64,
    depth: u32,
    latency_ns: f64,
    iops: f64,
    windows: u64,
    open_loop: bool,
}

struct Maker {
    dice: Dice,
    jobs: Vec<Job>,
    series: BTreeMap<usize, JobSeries>,
    clock: u64,
}

impl Maker {
    /// Adds a job whose latency is log-normal with a slow second mode, dips and a stall.
    fn add(&mut self, p: Plan) -> usize {
        let width = Nanos::from_millis(100);
        let per_window = 1200u64;
        let scale = p.iops * 0.1 / per_window as f64;
        let (mut total, mut submit_total) = (Histogram::new(), Histogram::new());
        let mut windows = Vec::new();
        let long = p.windows >= 500;
        for index in 0..p.windows {
            // A long job has a stall and a slow second half, as when a write cache is full.
            if long && (430..436).contains(&index) {
                continue;
            }
            let slow = if long && index > 600 { 2.6 } else { 1.0 };
            let (mut h, mut submit) = (Histogram::new(), Histogram::new());
            for _ in 0..per_window {
                let mode = if self.dice.next() < 0.004 { 9.0 } else { 1.0 };
                let v = p.latency_ns * mode * slow * (0.12 * self.dice.normal()).exp();
                h.record_n(v as u64, scale.max(1.0) as u64);
                submit.record_n(
                    600 + (self.dice.next() * 300.0) as u64,
                    scale.max(1.0) as u64,
                );
            }
            let ios = (h.count() as f64 / slow) as u64;
            total.merge(&h);
            submit_total.merge(&submit);
            let mut response = Histogram::new();
            response.merge(&h);
            if p.open_loop {
                for _ in 0..40 {
                    response.record_n((p.latency_ns * (3.0 + 20.0 * self.dice.next())) as u64, 2);
                }
            }
            let mut directions = [None, None, None, None];
            directions[p.op as usize] = Some(Box::new(DirectionWindow {
                ios,
                bytes: ios * p.block,
                errors: 0,
                short: 0,
                submit: submit.to_sparse(),
                service: h.to_sparse(),
                response: response.to_sparse(),
            }));
            windows.push(Window { index, directions });
        }
        let wall_ns = p.windows * width.0;
        let ios: u64 = windows
            .iter()
            .filter_map(|w| w.directions[p.op as usize].as_ref())
            .map(|d| d.ios)
            .sum();
        let seconds = wall_ns as f64 / 1e9;
        let direction = Direction {
            ios,
            bytes: ios * p.block,
            iops: ios as f64 / seconds,
            bytes_per_second: (ios * p.block) as f64 / seconds,
            errors: 0,
            short: 0,
            submit_ns: (&submit_total).into(),
            service_ns: (&total).into(),
            response_ns: (&total).into(),
        };
        let index = self.jobs.len();
        let mut job = Job {
            spec: json!({
                "name": p.name, "rw": format!("rand{}", p.op.name()), "bs": p.block, "qd": p.depth, "threads": 1,
                "direct": true, "time_ns": wall_ns, "engine": "uring", "seed": 1000 + index,
                "offsets": {"kind": "uniform", "align": p.block}, "buffers": {"compress_percent": 0},
            }),
            name: p.name,
            experiment: p.experiment.to_owned(),
            repeat: p.repeat,
            engine: "uring".to_owned(),
            engine_notes: ["registered buffers", "registered files", "DEFER_TASKRUN"]
                .map(str::to_owned)
                .into(),
            start_ns: self.clock,
            wall_ns,
            cpu_ns: ios * 1_450,
            cpu_user_ns: ios * 430,
            qd_requested: p.depth,
            qd_achieved: f64::from(p.depth) * 0.997,
            qd_distribution: vec![(p.depth.saturating_sub(1), 0.02), (p.depth, 0.98)],
            read: None,
            write: None,
            trim: None,
            sync: None,
            open_loop: p.open_loop.then_some(OpenLoop {
                rate_asked: p.iops,
                rate_achieved: p.iops * 0.998,
                late: 1204,
                unissued: 3,
                lateness_max_ns: 2_310_000,
            }),
            device: Some(DeviceDelta {
                name: "nvme0n1".to_owned(),
                read_ios: ios,
                read_bytes: ios * p.block,
                busy_ms: wall_ns / 1_000_000,
                ..DeviceDelta::default()
            }),
            errors: Vec::new(),
            flags: Vec::new(),
        };
        match p.op {
            Op::Write => job.write = Some(direction),
            _ => job.read = Some(direction),
        }
        self.clock += wall_ns + 200_000_000;
        self.jobs.push(job);
        self.series.insert(index, JobSeries { width, windows });
        index
    }
}

/// Latency of the sample's device at a depth: flat up to its parallelism (60), then queueing.
fn latency_at(depth: u32, base: f64) -> f64 {
    base * (1.0 + (f64::from(depth) / 60.0).powi(4)).powf(0.25)
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

fn few_samples() -> Flag {
    Flag::new(
        FlagCode::TooFewSamples,
        "p99.9 needs 10,000 I/Os, there were 4,211",
        "use --profile standard",
    )
}

fn estimate(value: f64, half: f64) -> Option<Estimate> {
    Some(Estimate {
        value,
        low: Some(value - half),
        high: Some(value + half),
        samples: 3,
    })
}

fn headline(
    group: &str,
    label: &str,
    unit: &str,
    estimate: Option<Estimate>,
    extra: &[(&str, f64)],
    flags: Vec<Flag>,
) -> Headline {
    Headline {
        id: label.to_lowercase().replace(' ', "-"),
        label: label.to_owned(),
        group: group.to_owned(),
        unit: unit.to_owned(),
        estimate,
        extra: extra.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        jobs: vec![0],
        flags,
    }
}

fn headlines() -> Vec<Headline> {
    let us = |p50: f64, p99: f64, p999: f64| {
        vec![
            ("p50", p50 * 1e3),
            ("p99", p99 * 1e3),
            ("p99_9", p999 * 1e3),
        ]
    };
    let depth = Flag::new(
        FlagCode::DepthNotReached,
        "231 of 256 I/Os were outstanding on average",
        "use --threads 4, so that each ring submits fewer",
    );
    vec![
        headline(
            "Latency",
            "4 KiB random read, one outstanding",
            "ns",
            estimate(68_210.0, 410.0),
            &us(66.9, 98.4, 612.0),
            vec![],
        ),
        headline(
            "Latency",
            "4 KiB sequential read, one outstanding",
            "ns",
            estimate(41_030.0, 620.0),
            &us(40.2, 71.3, 388.0),
            vec![],
        ),
        headline(
            "Latency",
            "4 KiB random write, one outstanding",
            "ns",
            estimate(12_430.0, 90.0),
            &us(11.8, 22.0, 131.0),
            vec![],
        ),
        headline(
            "Latency",
            "4 KiB sequential write, one outstanding",
            "ns",
            estimate(11_090.0, 1_240.0),
            &us(10.6, 19.7, 118.0)[..2],
            vec![few_samples()],
        ),
        headline(
            "Bandwidth",
            "128 KiB sequential read, 4 threads × QD 8",
            "bytes/s",
            estimate(6.923e9, 31e6),
            &[],
            vec![],
        ),
        headline(
            "Bandwidth",
            "128 KiB sequential write, 4 threads × QD 8",
            "bytes/s",
            None,
            &[],
            vec![no_space()],
        ),
        headline(
            "Bandwidth",
            "128 KiB buffered read",
            "bytes/s",
            estimate(11.31e9, 0.8e9),
            &[],
            vec![page_cache()],
        ),
        headline(
            "IOPS",
            "4 KiB random read, 4 threads × QD 64",
            "1/s",
            estimate(1_018_400.0, 5_200.0),
            &[],
            vec![depth],
        ),
        headline(
            "IOPS",
            "4 KiB random write, 4 threads × QD 64",
            "1/s",
            estimate(388_900.0, 12_800.0),
            &[],
            vec![],
        ),
        headline(
            "IOPS",
            "Write amplification of the file system",
            "ratio",
            Some(Estimate::single(1.08)),
            &[],
            vec![],
        ),
    ]
}

fn axis(label: &str, unit: &str, log: bool) -> Axis {
    Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        log,
    }
}

fn chart(
    id: &str,
    title: &str,
    kind: ChartKind,
    x: Axis,
    y: Axis,
    series: Vec<ChartSeries>,
) -> Chart {
    Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        kind,
        x,
        y,
        z: None,
        categories: Vec::new(),
        series,
        marks: Vec::new(),
    }
}

fn with_interval(x: f64, y: f64, share: f64) -> Point {
    Point {
        x,
        y: Some(y),
        low: Some(y * (1.0 - share)),
        high: Some(y * (1.0 + share)),
        ..Point::default()
    }
}

fn series(name: &str, points: Vec<Point>) -> ChartSeries {
    ChartSeries {
        name: name.to_owned(),
        points,
    }
}

fn depth_sweep() -> Section {
    const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
    let rate = |d: u32, base: f64| f64::from(d) * 1e9 / latency_at(d, base);
    let curve = |base: f64| {
        DEPTHS
            .iter()
            .map(|d| Point {
                label: Some(format!("QD {d}")),
                ..with_interval(rate(*d, base), latency_at(*d, base), 0.02)
            })
            .collect::<Vec<_>>()
    };
    let by_depth = |base: f64, hole: u32| {
        DEPTHS
            .iter()
            .map(|d| match *d == hole {
                true => Point {
                    x: f64::from(*d),
                    ..Point::default()
                },
                false => with_interval(f64::from(*d), rate(*d, base), 0.03),
            })
            .collect::<Vec<_>>()
    };
    let mut throughput_latency = chart(
        "depth-sweep-curve",
        "Throughput and latency, 4 KiB random",
        ChartKind::Line,
        axis("IOPS", "1/s", false),
        axis("mean latency", "ns", true),
        vec![
            series("read", curve(68_000.0)),
            series("write", curve(31_000.0)),
        ],
    );
    throughput_latency.marks = vec![Mark {
        x: Some(740_000.0),
        y: None,
        label: "knee".to_owned(),
    }];
    let mut iops = chart(
        "depth-sweep-iops",
        "IOPS by queue depth",
        ChartKind::Line,
        axis("queue depth", "", true),
        axis("IOPS", "1/s", false),
        vec![
            series("read", by_depth(68_000.0, 0)),
            series("write", by_depth(31_000.0, 16)),
        ],
    );
    iops.marks = vec![Mark {
        x: None,
        y: Some(1.0e6),
        label: "data sheet".to_owned(),
    }];
    let rows = DEPTHS
        .iter()
        .map(|d| {
            let e = |v: f64, s: f64| estimate(v, v * s).map_or(Cell::Hole(()), Cell::Estimate);
            let write = if *d == 16 {
                Cell::Hole(())
            } else {
                e(rate(*d, 31_000.0), 0.03)
            };
            vec![
                Cell::Number(f64::from(*d)),
                e(rate(*d, 68_000.0), 0.02),
                e(latency_at(*d, 68_000.0), 0.02),
                write,
                Cell::Text(if *d == 64 {
                    "knee".to_owned()
                } else {
                    String::new()
                }),
            ]
        })
        .collect();
    let column = |label: &str, unit: &str| Column {
        label: label.to_owned(),
        unit: unit.to_owned(),
    };
    Section {
        id: "depth-sweep".to_owned(),
        title: "Queue depth".to_owned(),
        text: "4 KiB random reads and writes at growing depth. The knee is where one more outstanding I/O adds more \
               latency than throughput; beyond it the device only queues."
            .to_owned(),
        charts: vec![throughput_latency, iops],
        tables: vec![Table {
            id: "depth-sweep-table".to_owned(),
            title: "Depth sweep".to_owned(),
            columns: vec![
                column("Depth", ""),
                column("Read IOPS", "1/s"),
                column("Read latency", "ns"),
                column("Write IOPS", "1/s"),
                column("", ""),
            ],
            rows,
        }],
        flags: Vec::new(),
    }
}

fn bandwidth() -> Section {
    let names = [
        "sequential read",
        "random read",
        "sequential write",
        "random write",
    ];
    let bars = |values: [Option<f64>; 4]| {
        values
            .iter()
            .enumerate()
            .map(|(i, v)| match v {
                Some(v) => with_interval(i as f64, *v, 0.04),
                None => Point {
                    x: i as f64,
                    ..Point::default()
                },
            })
            .collect::<Vec<_>>()
    };
    let mut bandwidth = chart(
        "bandwidth-bars",
        "Bandwidth by pattern and block size",
        ChartKind::Bar,
        axis("pattern", "", false),
        axis("bandwidth", "bytes/s", false),
        vec![
            series(
                "4 KiB",
                bars([Some(2.9e9), Some(2.6e9), Some(1.7e9), Some(1.6e9)]),
            ),
            series(
                "128 KiB",
                bars([Some(6.92e9), Some(6.5e9), None, Some(3.1e9)]),
            ),
            series(
                "1 MiB",
                bars([Some(7.0e9), Some(6.9e9), Some(5.1e9), Some(4.9e9)]),
            ),
        ],
    );
    bandwidth.categories = names.map(str::to_owned).into();
    let layers = [
        ("application", 1.4, 1.5),
        ("system call", 2.1, 2.3),
        ("file system", 3.4, 5.2),
        ("block layer", 2.2, 2.4),
        ("driver", 1.9, 1.8),
        ("device", 57.2, 71.0),
    ];
    let mut stack = chart(
        "latency-by-layer",
        "Where the time goes",
        ChartKind::StackedBar,
        axis("path", "", false),
        axis("mean latency", "ns", false),
        layers
            .iter()
            .map(|(name, direct, buffered)| {
                let point = |x: f64, us: f64| Point {
                    x,
                    y: Some(us * 1e3),
                    ..Point::default()
                };
                series(
                    name,
                    vec![
                        point(0.0, *direct),
                        point(1.0, *buffered),
                        point(2.0, direct * 0.93),
                    ],
                )
            })
            .collect(),
    );
    stack.categories = ["ext4, direct", "ext4, buffered", "raw device"]
        .map(str::to_owned)
        .into();
    Section {
        id: "bandwidth".to_owned(),
        title: "Bandwidth".to_owned(),
        text: "Four threads with eight outstanding I/Os each.".to_owned(),
        charts: vec![bandwidth, stack],
        tables: Vec::new(),
        flags: vec![no_space()],
    }
}

fn mix(dice: &mut Dice) -> Section {
    let shares = [0.0, 25.0, 50.0, 75.0, 100.0];
    let total = |share: f64| 388_900.0 + (share / 100.0).powi(2) * 630_000.0;
    let lines = |f: &dyn Fn(f64) -> f64| {
        shares
            .iter()
            .map(|s| with_interval(*s, f(*s), 0.03))
            .collect::<Vec<_>>()
    };
    let mixed = chart(
        "mix-iops",
        "IOPS by read share",
        ChartKind::Line,
        axis("read share", "%", false),
        axis("IOPS", "1/s", false),
        vec![
            series("total", lines(&total)),
            series("reads", lines(&|s| total(s) * s / 100.0)),
            series("writes", lines(&|s| total(s) * (1.0 - s / 100.0))),
        ],
    );
    let mut map = Vec::new();
    for share in [0.0, 5.0, 35.0, 50.0, 65.0, 95.0, 100.0] {
        for block in [512u64, 4096, 8192, 16_384, 65_536, 131_072, 1_048_576] {
            let v = total(share) * 4096.0 / (block as f64).max(4096.0).powf(0.9);
            map.push(Point {
                x: share,
                y: Some(block as f64),
                z: (block != 512 || share > 40.0).then_some(v),
                ..Point::default()
            });
        }
    }
    let mut heat = chart(
        "mix-map",
        "IOPS by read share and block size",
        ChartKind::Heatmap,
        axis("read share", "%", false),
        axis("block size", "bytes", true),
        vec![series("", map)],
    );
    heat.z = Some(axis("IOPS", "1/s", true));
    let cloud = |dice: &mut Dice, base: f64| {
        (0..60)
            .map(|_| {
                let load = dice.next();
                let y = base / (1.05 - load) * (0.06 * dice.normal()).exp();
                Point {
                    x: load * 100.0,
                    y: Some(y),
                    ..Point::default()
                }
            })
            .collect::<Vec<_>>()
    };
    let scatter = chart(
        "load-latency",
        "p99 against load",
        ChartKind::Scatter,
        axis("load", "%", false),
        axis("p99 latency", "ns", true),
        vec![
            series("read", cloud(dice, 90_000.0)),
            series("write", cloud(dice, 25_000.0)),
        ],
    );
    Section {
        id: "mix".to_owned(),
        title: "Reads and writes mixed".to_owned(),
        text: "A share of reads from none to all, 4 KiB, 4 threads × QD 64.".to_owned(),
        charts: vec![mixed, heat, scatter],
        tables: Vec::new(),
        flags: Vec::new(),
    }
}

fn findings() -> Vec<Finding> {
    vec![
        Finding {
            id: "idle-states".to_owned(),
            text: "Deep CPU idle states add 21.4 ± 1.2 µs to every read with one outstanding I/O, 31 % of its latency.".to_owned(),
            advice: "cpupower idle-set --disable-by-latency 10".to_owned(),
            confidence: "strong".to_owned(),
            jobs: vec![0, 13, 26],
            evidence: vec!["latency-by-layer".to_owned()],
            gain: Some(Estimate { value: 0.31, low: Some(0.29), high: Some(0.33), samples: 5 }),
            refuted_by: "The same pairs with another --seed whose interval holds 0".to_owned(),
        },
        Finding {
            id: "knee".to_owned(),
            text: "Beyond 64 outstanding reads latency grows faster than throughput: 740 k/s at 81 µs is the knee".to_owned(),
            advice: "Limit the application to 64 outstanding I/Os, such as innodb_read_io_threads=8 with 8 requests each".to_owned(),
            confidence: "moderate".to_owned(),
            jobs: (0..9).collect(),
            evidence: vec!["depth-sweep-curve".to_owned(), "depth-sweep-table".to_owned()], ..Finding::default() },
        Finding {
            id: "cache".to_owned(),
            text: "Write throughput falls by 61 % after 9.4 GB: an SLC cache of about that size is likely".to_owned(),
            advice: String::new(),
            confidence: "weak".to_owned(),
            jobs: vec![39],
            evidence: vec![], ..Finding::default() },
    ]
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
        environment: environment(),
        headlines: headlines(),
        results: vec![depth_sweep(), bandwidth(), mix(dice)],
        jobs,
        findings: findings(),
        flags: vec![Flag::new(
            FlagCode::NotChecked,
            "The device's temperature could not be read during the jobs",
            "run as root, or add a udev rule for /dev/nvme0",
        )],
    }
}
