//! What a survey concludes from its jobs: headlines, charts, tables, findings.

use fathom_stats::Estimate;
use fathom_telemetry::schema::*;
use fathom_telemetry::{Flag, FlagCode};

use super::jobs::latency_at;
use super::{Dice, no_space, page_cache};

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

pub(super) fn headlines() -> Vec<Headline> {
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
            "IOPS",
            estimate(1_018_400.0, 5_200.0),
            &[],
            vec![depth],
        ),
        headline(
            "IOPS",
            "4 KiB random write, 4 threads × QD 64",
            "IOPS",
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

pub(super) fn depth_sweep() -> Section {
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
        axis("IOPS", "IOPS", false),
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
        axis("IOPS", "IOPS", false),
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
                column("Read IOPS", "IOPS"),
                column("Read latency", "ns"),
                column("Write IOPS", "IOPS"),
                column("", ""),
            ],
            rows,
        }],
        flags: Vec::new(),
    }
}

pub(super) fn bandwidth() -> Section {
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

pub(super) fn mix(dice: &mut Dice) -> Section {
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
        axis("IOPS", "IOPS", false),
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
    heat.z = Some(axis("IOPS", "IOPS", true));
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

pub(super) fn findings() -> Vec<Finding> {
    vec![
        Finding {
            good_for: false,
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
