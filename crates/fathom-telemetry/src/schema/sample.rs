//! A run in which every field has something to say, for tests.

use fathom_stats::Estimate;
use serde_json::json;

use super::*;
use crate::histogram::Histogram;
use crate::validity::FlagCode;

/// A run with every optional field filled and every enum's shape present.
pub(crate) fn sample_run() -> Run {
    let estimate = Estimate {
        value: 71_500.0,
        low: Some(70_100.5),
        high: Some(72_900.25),
        samples: 5,
    };
    let flag = || {
        Flag::new(
            FlagCode::DepthNotReached,
            "21.3 of 32 I/Os were outstanding",
            "use more threads",
        )
    };
    Run {
        schema_version: SCHEMA_VERSION,
        run_id: String::new(),
        tool_version: "0.1.0".to_owned(),
        name: "survey".to_owned(),
        command: "survey".to_owned(),
        command_line: vec!["fathom".to_owned(), "survey".to_owned()],
        started: "2026-02-28T12:30:45Z".to_owned(),
        finished: Some("2026-02-28T12:33:01Z".to_owned()),
        profile: Some("quick".to_owned()),
        seed: u64::MAX,
        target: Target {
            name: ".".to_owned(),
            kind: "directory".to_owned(),
            path: Some("./fathom-scratch".to_owned()),
            size_bytes: 1 << 30,
            device: Some("nvme0n1".to_owned()),
            description: "Example SSD, ext4, 1 GiB".to_owned(),
        },
        simulated: false,
        labels: [("drive".to_owned(), "A".to_owned())].into(),
        environment: json!({"kernel": "6.12", "cpu": {"model": "Example"}}),
        headlines: vec![Headline {
            id: "randread-4k-qd1-latency".to_owned(),
            label: "4 KiB random read, one outstanding".to_owned(),
            group: "Latency".to_owned(),
            unit: "ns".to_owned(),
            estimate: Some(estimate),
            extra: BTreeMap::from([("p99".to_owned(), 99_000.0)]),
            jobs: vec![0],
            flags: vec![flag()],
        }],
        results: vec![SavedResult {
            experiment: "curve".into(),
            version: 1,
            data: json!({ "closed": [] }),
        }],
        sections: vec![section(estimate)],
        jobs: vec![job()],
        findings: vec![Finding {
            id: "knee".to_owned(),
            text: "The knee lies at 32 outstanding I/Os".to_owned(),
            advice: "--qd 32".to_owned(),
            confidence: "strong".to_owned(),
            jobs: vec![0],
            evidence: vec!["depth-sweep-curve".to_owned()],
            refuted_by: "A curve whose knee lies elsewhere".to_owned(),
            ..Finding::default()
        }],
        flags: vec![flag()],
    }
}

fn section(estimate: Estimate) -> Section {
    let axis = |label: &str, unit: &str| Axis {
        label: label.to_owned(),
        unit: unit.to_owned(),
        log: true,
    };
    Section {
        id: "depth-sweep".to_owned(),
        title: "Queue depth".to_owned(),
        text: "Random 4 KiB reads at growing depth.".to_owned(),
        charts: vec![Chart {
            id: "depth-sweep-curve".to_owned(),
            title: "Throughput and latency".to_owned(),
            kind: ChartKind::StackedBar,
            x: axis("IOPS", "1/s"),
            y: axis("Latency", "ns"),
            z: Some(axis("Share", "%")),
            categories: vec!["read".to_owned()],
            series: vec![ChartSeries {
                name: "mean".to_owned(),
                points: vec![
                    Point {
                        x: 0.0,
                        y: Some(71_500.0),
                        low: Some(70_000.0),
                        high: Some(73_000.0),
                        z: Some(1.0),
                        label: Some("QD 1".to_owned()),
                    },
                    Point {
                        x: 1.0,
                        ..Point::default()
                    },
                ],
            }],
            marks: vec![Mark {
                x: Some(1.0),
                y: None,
                label: "knee".to_owned(),
            }],
        }],
        tables: vec![Table {
            id: "depth-sweep-table".to_owned(),
            title: "Queue depth".to_owned(),
            columns: vec![Column {
                label: "Depth".to_owned(),
                unit: String::new(),
            }],
            rows: vec![vec![
                Cell::Hole(()),
                Cell::Number(1.5),
                Cell::Text("words".to_owned()),
                Cell::Estimate(estimate),
            ]],
        }],
        flags: Vec::new(),
    }
}

fn job() -> Job {
    let mut h = Histogram::new();
    for i in 0..200_000u64 {
        h.record(50_000 + i % 40_000);
    }
    let latency = LatencySummary::from(&h);
    let direction = Direction {
        ios: 200_000,
        bytes: 200_000 * 4096,
        iops: 100_000.0,
        bytes_per_second: 409_600_000.0,
        errors: 1,
        short: 2,
        submit_ns: LatencySummary::default(),
        service_ns: latency,
        response_ns: latency,
    };
    Job {
        name: "randread-4k-qd1".to_owned(),
        experiment: "latency".to_owned(),
        repeat: 0,
        spec: json!({"rw": "randread", "bs": 4096}),
        engine: "uring".to_owned(),
        engine_notes: vec!["registered buffers".to_owned()],
        start_ns: 1,
        wall_ns: 2_000_000_000,
        cpu_ns: 100_000_000,
        cpu_user_ns: 60_000_000,
        qd_requested: 1,
        qd_achieved: 0.99,
        qd_distribution: vec![(0, 0.01), (1, 0.99)],
        read: Some(direction.clone()),
        write: Some(direction.clone()),
        trim: Some(direction.clone()),
        sync: Some(direction),
        open_loop: Some(OpenLoop {
            rate_asked: 1000.0,
            rate_achieved: 999.5,
            late: 3,
            unissued: 0,
            lateness_max_ns: 12_000,
        }),
        device: Some(DeviceDelta {
            name: "nvme0n1".to_owned(),
            read_ios: 200_000,
            below: vec![BelowDelta::default()],
            ..DeviceDelta::default()
        }),
        write_back: Some(WriteBack {
            ns: 3_000_000,
            device_write_bytes: Some(8192),
            device: "nvme0n1".to_owned(),
        }),
        held_up: Some(HeldUp {
            waited_ns: 5_000_000,
            waited_share: 0.002,
            steal_share: Some(0.0),
            busy_share: Some(0.4),
            cpu_throttled_ns: 1,
            io_throttled_ns: 1,
        }),
        hosts: vec![HostShare {
            host: "h1".to_owned(),
            p99_ns: Some(9000),
            ..HostShare::default()
        }],
        errors: vec![IoError {
            op: Op::Read,
            errno: 5,
            message: "Input/output error".to_owned(),
            first_offset: 4096,
            count: 1,
        }],
        flags: Vec::new(),
    }
}
