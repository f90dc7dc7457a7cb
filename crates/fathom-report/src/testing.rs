//! Small values for this crate's own tests.

use fathom_telemetry::Histogram;
use fathom_telemetry::schema::{Direction, Job, Run, SCHEMA_VERSION, Target};

/// A run of these jobs, otherwise empty.
pub(crate) fn run_with(jobs: Vec<Job>) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        run_id: String::new(),
        tool_version: "0.1.0".into(),
        name: "test".into(),
        command: "run".into(),
        command_line: vec!["fathom".into(), "run".into(), "/data".into()],
        started: "2025-01-02T03:04:05Z".into(),
        finished: Some("2025-01-02T03:04:15Z".into()),
        profile: None,
        seed: 42,
        target: Target {
            name: "/data".into(),
            kind: "directory".into(),
            path: Some("/data/fathom.scratch".into()),
            size_bytes: 1 << 30,
            device: Some("nvme0n1".into()),
            description: "ACME NVMe 1 TB, ext4, 1 GiB scratch file".into(),
        },
        simulated: false,
        labels: [("drive".to_owned(), "A <1>".to_owned())].into(),
        environment: serde_json::json!({"cpu": {"model": "ACME", "cores": 8}}),
        headlines: Vec::new(),
        results: Vec::new(),
        sections: Vec::new(),
        jobs,
        findings: Vec::new(),
        flags: Vec::new(),
    }
}

/// A job without I/O.
pub(crate) fn job(name: &str) -> Job {
    Job {
        name: name.into(),
        experiment: String::new(),
        repeat: 0,
        spec: serde_json::json!({"rw": "randread", "bs": 4096, "qd": 32}),
        engine: "uring".into(),
        engine_notes: vec!["registered buffers".into()],
        start_ns: 0,
        wall_ns: 5_000_000_000,
        cpu_ns: 3_700_000_000,
        cpu_user_ns: 1_100_000_000,
        qd_requested: 32,
        qd_achieved: 31.9,
        qd_distribution: vec![(31, 0.1), (32, 0.9)],
        ..Job::default()
    }
}

/// Reads with latencies from 50 µs to 150 µs.
pub(crate) fn reads(ios: u64) -> Direction {
    let mut h = Histogram::new();
    for i in 0..ios {
        h.record(50_000 + i * 100_000 / ios.max(1));
    }
    let mut submit = Histogram::new();
    submit.record_n(700, ios);
    Direction {
        ios,
        bytes: ios * 4096,
        iops: ios as f64 / 5.0,
        bytes_per_second: ios as f64 * 4096.0 / 5.0,
        errors: 0,
        short: 0,
        submit_ns: (&submit).into(),
        service_ns: (&h).into(),
        response_ns: (&h).into(),
    }
}
