//! Jobs with their windows: latencies that look like a device's, a stall, a slow second half.

use std::collections::BTreeMap;

use fathom_telemetry::schema::*;
use fathom_telemetry::series::JobSeries;
use fathom_telemetry::{DirectionWindow, Histogram, Nanos, Op, Window};
use serde_json::json;

use super::Dice;

/// What a job of the sample looks like.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) experiment: &'static str,
    pub(super) repeat: u32,
    pub(super) op: Op,
    pub(super) block: u64,
    pub(super) depth: u32,
    pub(super) latency_ns: f64,
    pub(super) iops: f64,
    pub(super) windows: u64,
    pub(super) open_loop: bool,
}

pub(super) struct Maker {
    pub(super) dice: Dice,
    pub(super) jobs: Vec<Job>,
    pub(super) series: BTreeMap<usize, JobSeries>,
    pub(super) clock: u64,
}

impl Maker {
    /// Adds a job whose latency is log-normal with a slow second mode, dips and a stall.
    pub(super) fn add(&mut self, p: Plan) -> usize {
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
            ..Job::default()
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
pub(super) fn latency_at(depth: u32, base: f64) -> f64 {
    base * (1.0 + (f64::from(depth) / 60.0).powi(4)).powf(0.25)
}
