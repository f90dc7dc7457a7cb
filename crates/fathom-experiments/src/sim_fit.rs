//! Fits a device model to what a survey measured, and says how well it fits, point by point.
//!
//! Closed loops of reads or of writes are fitted; mixed loads are held out and predicted. The host's costs are those of
//! the simulator's default host: what a real host costs differently goes into the device's parameters.

use std::collections::BTreeMap;

use fathom_bench::{Bench, SimBench};
use fathom_io::driver::PlannedJob;
use fathom_io::{Control, JobSpec};
use fathom_sim::model::{Model, Path};
use fathom_sim::{SimError, SimTarget};
use fathom_telemetry::schema::{Job, Run};
use fathom_telemetry::{Bytes, Nanos, Op};
use serde::Serialize;

/// Requests per point and trial.
const REQUESTS: f64 = 6_000.0;
/// Rounds of the descent; its steps shrink from one to the next.
const ROUNDS: i32 = 9;
/// Software of the default host around a request, ns: submission, shallow sleep, completion.
const HOST_NS: f64 = 5_500.0;

/// Why nothing could be fitted.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The run lacks what a fit needs.
    #[error(
        "{0}: a fit needs closed loops of random reads at depth 1 and at several depths: take a run of fathom survey"
    )]
    TooLittle(String),
    /// The fitted values make no model.
    #[error("the values found make no model: {0}")]
    Model(#[from] SimError),
}

/// A measured point beside the model's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Residual {
    /// Load in words.
    pub what: String,
    /// Mean service latency, ns.
    pub measured_ns: f64,
    /// The same of the model.
    pub model_ns: f64,
    /// Model against measured.
    pub error_percent: f64,
    /// `fit`, or `prediction` where it was held out.
    pub role: &'static str,
}

/// A model and how well it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// Its file.
    pub text: String,
    /// Every point.
    pub residuals: Vec<Residual>,
}

impl Fit {
    /// Number, mean and largest error of the points of a role, percent.
    pub fn errors(&self, role: &str) -> (usize, f64, f64) {
        let all: Vec<f64> = self
            .residuals
            .iter()
            .filter(|r| r.role == role)
            .map(|r| r.error_percent.abs())
            .collect();
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        (all.len(), mean, all.iter().copied().fold(0.0, f64::max))
    }
}

/// One load with what was measured.
#[derive(Debug, Clone)]
struct Measured {
    spec: JobSpec,
    mean_ns: f64,
    iops: f64,
}

impl Measured {
    fn op(&self) -> Option<Op> {
        let rw = self.spec.rw;
        match (rw.reads(), rw.writes()) {
            (true, false) => Some(Op::Read),
            (false, true) => Some(Op::Write),
            _ => None,
        }
    }
    fn block(&self) -> f64 {
        self.spec.bs.max().0 as f64
    }
    fn outstanding(&self) -> u32 {
        self.spec.qd * self.spec.threads
    }
}

/// Closed loops of the run, repeats averaged.
fn points(run: &Run) -> Vec<Measured> {
    let mut groups: BTreeMap<String, Vec<Measured>> = BTreeMap::new();
    for job in &run.jobs {
        if let Some(m) = closed_loop(job) {
            let s = &m.spec;
            let key = format!(
                "{:?} {:?} {:04} {:04} {}",
                s.rw, s.bs, s.threads, s.qd, s.read_share
            );
            groups.entry(key).or_default().push(m);
        }
    }
    groups
        .into_values()
        .filter_map(|g| {
            let n = g.len() as f64;
            let mean_ns = g.iter().map(|m| m.mean_ns).sum::<f64>() / n;
            let iops = g.iter().map(|m| m.iops).sum::<f64>() / n;
            Some(Measured {
                mean_ns,
                iops,
                ..g.into_iter().next()?
            })
        })
        .collect()
}

fn closed_loop(job: &Job) -> Option<Measured> {
    let s = &job.spec;
    let text = |key: &str| s.get(key)?.as_str().map(str::to_owned);
    let number = |key: &str| s.get(key).and_then(serde_json::Value::as_f64);
    let some = |key: &str| !matches!(s.get(key), None | Some(serde_json::Value::Null));
    if job.is_void() || job.experiment == "prepare" || some("rate") || some("burst") {
        return None;
    }
    if s.get("direct").and_then(serde_json::Value::as_bool) == Some(false) {
        return None;
    }
    let mut spec = JobSpec::default();
    spec.set("rw", &text("rw")?).ok()?;
    spec.set("bs", &text("bs")?).ok()?;
    spec.qd = number("qd")? as u32;
    spec.threads = number("threads")? as u32;
    spec.read_share = number("read_share")
        .or_else(|| number("read-share"))
        .unwrap_or(50.0);
    let both: Vec<_> = [Op::Read, Op::Write]
        .iter()
        .filter_map(|op| job.direction(*op))
        .filter(|d| d.ios > 0)
        .collect();
    let iops: f64 = both.iter().map(|d| d.iops).sum();
    let weighted: f64 = both
        .iter()
        .filter_map(|d| Some(d.iops * d.service_ns.mean?))
        .sum();
    // The driver and the experiments think in the depth that was asked for; so does the model.
    (iops > 0.0 && spec.bs.0.len() == 1 && job.qd_requested == spec.qd * spec.threads).then_some(
        Measured {
            spec,
            mean_ns: weighted / iops,
            iops,
        },
    )
}

/// Mean service latency of the model under a load, ns.
fn simulate(model: &Model, m: &Measured) -> Option<f64> {
    let mut target = SimTarget::of(model.clone());
    target.fast = true;
    let mut bench = SimBench::new(target, Control::new());
    let ns = (REQUESTS.max(f64::from(m.outstanding()) * 30.0) / m.iops * 1e9) as u64;
    let spec = JobSpec {
        time: Some(Nanos(ns.clamp(200_000, 60_000_000_000))),
        ramp: Nanos(ns / 10),
        window: Nanos((ns / 10).max(1_000)),
        size: None,
        ..m.spec.clone()
    };
    let planned = [PlannedJob::new(spec.validate(&bench.limits()).ok()?)];
    let job = bench.run(&planned, None, &mut ()).ok()?.pop()?;
    let (mut sum, mut n) = (0.0, 0.0);
    for op in [Op::Read, Op::Write] {
        if let Some(d) = job.direction(op)
            && let Some(mean) = d.service_ns.mean
        {
            sum += mean * d.ios as f64;
            n += d.ios as f64;
        }
    }
    (n > 0.0).then_some(sum / n)
}

/// Sum of squared log errors over the points of one direction.
fn cost(model: &Model, points: &[&Measured]) -> f64 {
    points
        .iter()
        .map(|m| match simulate(model, m) {
            Some(ns) => (ns / m.mean_ns).ln().powi(2),
            None => 10.0,
        })
        .sum()
}

/// First guess of one direction from its extremes.
fn guess(
    points: &[&Measured],
    random_qd1: Option<f64>,
    sequential_qd1: Option<f64>,
) -> (Path, bool) {
    let bytes_per_ns = points
        .iter()
        .map(|m| m.iops * m.block() / 1e9)
        .fold(1e-4, f64::max)
        * 1.02;
    let command_ns = points
        .iter()
        .map(|m| 1e9 / m.iops - m.block() / bytes_per_ns)
        .fold(f64::MAX, f64::min)
        .max(0.0);
    let device = |total: f64| (total - HOST_NS - command_ns - 4096.0 / bytes_per_ns).max(100.0);
    let random = random_qd1.map_or(10_000.0, device);
    let ahead = match (random_qd1, sequential_qd1) {
        (Some(r), Some(s)) => s < 0.8 * r,
        _ => false,
    };
    let fixed = if ahead {
        sequential_qd1.map_or(random / 4.0, device)
    } else {
        random / 4.0
    };
    let path = Path {
        command_ns,
        gb_per_s: bytes_per_ns,
        media_us: (random - fixed).max(0.0) / 1e3,
        fixed_us: fixed / 1e3,
    };
    (path, ahead)
}

type Change = fn(&mut Model, f64);
const READ: [Change; 5] = [
    |m, x| m.read.command_ns = (m.read.command_ns + 1.0) * x,
    |m, x| m.read.gb_per_s *= x,
    |m, x| m.read.media_us = (m.read.media_us + 0.01) * x,
    |m, x| m.read.fixed_us = (m.read.fixed_us + 0.01) * x,
    |m, x| {
        let by = if x > 1.0 { 1 } else { -1 };
        let step = (f64::from(m.units) * (x - 1.0).abs()).round().max(1.0) as i64;
        m.units = (i64::from(m.units) + by * step).clamp(1, 4096) as u32;
    },
];
const WRITE: [Change; 4] = [
    |m, x| m.write.command_ns = (m.write.command_ns + 1.0) * x,
    |m, x| m.write.gb_per_s *= x,
    |m, x| m.write.media_us = (m.write.media_us + 0.01) * x,
    |m, x| m.write.fixed_us = (m.write.fixed_us + 0.01) * x,
];

/// Changes one parameter at a time as long as that helps, with smaller and smaller steps.
fn descend(model: &mut Model, changes: &[Change], points: &[&Measured]) {
    if points.is_empty() {
        return;
    }
    let mut best = cost(model, points);
    for round in 0..ROUNDS {
        let step = 1.0 + 0.5 * 0.6f64.powi(round);
        for change in changes {
            for x in [step, 1.0 / step] {
                loop {
                    let mut tried = model.clone();
                    change(&mut tried, x);
                    let c = cost(&tried, points);
                    if c >= best * 0.999 {
                        break;
                    }
                    (*model, best) = (tried, c);
                }
            }
        }
    }
}

/// Fits a model to a run.
///
/// # Errors
/// Where the run holds too little.
pub fn fit(run: &Run) -> Result<Fit, FitError> {
    let all = points(run);
    let of = |op: Op| -> Vec<&Measured> { all.iter().filter(|m| m.op() == Some(op)).collect() };
    let (reads, writes) = (of(Op::Read), of(Op::Write));
    let single = |points: &[&Measured], random: bool| {
        points
            .iter()
            .find(|m| {
                m.outstanding() == 1 && m.spec.rw.is_random() == random && m.block() <= 8192.0
            })
            .map(|m| m.mean_ns)
    };
    if reads.len() < 3 || single(&reads, true).is_none() {
        return Err(FitError::TooLittle(run.name.clone()));
    }
    let (read, ahead) = guess(&reads, single(&reads, true), single(&reads, false));
    let (write, _) = guess(&writes, single(&writes, true), single(&writes, false));
    let most = reads.iter().map(|m| m.iops).fold(0.0, f64::max);
    let mut model = Model {
        description: format!("fitted to {} of {}", run.name, run.target.name),
        capacity_gb: (run.target.size_bytes as f64 / 1e9).max(1.1),
        slots: 1024,
        units: ((most * read.media_us / 1e6 * 1.2).ceil() as u32).clamp(1, 256),
        read_ahead: ahead,
        pipeline_cv: 0.2,
        media_cv: 0.2,
        read,
        write,
        mechanical: None,
        flash: None,
        thermal: None,
        synchronous: None,
    };
    descend(&mut model, &READ, &reads);
    descend(&mut model, &WRITE, &writes);
    let residuals: Vec<Residual> = all
        .iter()
        .filter_map(|m| {
            let model_ns = simulate(&model, m)?;
            let s = &m.spec;
            let share = match m.op() {
                None => format!(", {} % reads", s.read_share),
                Some(_) => String::new(),
            };
            Some(Residual {
                what: format!(
                    "{:?} {}{share}, {} x {}",
                    s.rw,
                    Bytes(s.bs.max().0),
                    s.threads,
                    s.qd
                ),
                measured_ns: m.mean_ns,
                model_ns,
                error_percent: (model_ns / m.mean_ns - 1.0) * 100.0,
                role: if m.op().is_some() {
                    "fit"
                } else {
                    "prediction"
                },
            })
        })
        .collect();
    let mut fit = Fit {
        model,
        text: String::new(),
        residuals,
    };
    fit.text = file(&fit, run);
    fit.model = Model::parse("fitted model", &fit.text)?;
    Ok(fit)
}

/// The model's file.
fn file(fit: &Fit, run: &Run) -> String {
    let m = &fit.model;
    let (n, mean, max) = fit.errors("fit");
    let quoted = m.description.replace(['"', '\\', '\n'], "'");
    let path = |p: &Path| {
        format!(
            "command_ns = {:.1}\ngb_per_s = {:.4}\nmedia_us = {:.3}\nfixed_us = {:.3}\n",
            p.command_ns, p.gb_per_s, p.media_us, p.fixed_us
        )
    };
    format!(
        "# Fitted by fathom sim fit to the run {} ({}), all values.\n\
         # {n} points of mean latency: mean error {mean:.1} %, largest {max:.1} %.\n\
         # The host's own costs are taken to be those of the simulator's default host.\n\
         description = \"{quoted}\"\ncapacity_gb = {:.3}\nslots = {}\nunits = {}\nread_ahead = {}\n\
         pipeline_cv = {}     # assumed\nmedia_cv = {}        # assumed\n\n[read]\n{}\n[write]\n{}",
        run.name.replace('\n', " "),
        run.started,
        m.capacity_gb,
        m.slots,
        m.units,
        m.read_ahead,
        m.pipeline_cv,
        m.media_cv,
        path(&m.read),
        path(&m.write)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::job::{BlockSizes, Rw};

    /// A small survey of a model.
    fn survey(name: &str) -> Run {
        let mut bench = SimBench::open(name, Control::new()).unwrap();
        let mut jobs = Vec::new();
        let loads = [
            (Rw::Read, 4, 1, 1),
            (Rw::Write, 4, 1, 1),
            (Rw::RandWrite, 4, 1, 1),
            (Rw::Read, 128, 2, 32),
            (Rw::Write, 128, 2, 32),
            (Rw::RandWrite, 4, 2, 64),
            (Rw::RandMixed, 4, 1, 16),
        ];
        let sweep = [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (2, 16), (2, 64)];
        let all = loads
            .into_iter()
            .chain(sweep.map(|(t, q)| (Rw::RandRead, 4, t, q)));
        for (rw, kib, threads, qd) in all {
            let spec = JobSpec {
                rw,
                bs: BlockSizes::one(kib << 10),
                threads,
                qd,
                time: Some(Nanos::from_millis(200)),
                ramp: Nanos::from_millis(20),
                window: Nanos::from_millis(20),
                ..JobSpec::default()
            };
            let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
            jobs.push(bench.run(&planned, None, &mut ()).unwrap().remove(0));
        }
        let mut run: Run = serde_json::from_value(serde_json::json!({
            "schema_version": 1, "tool_version": "", "name": "survey", "command": "survey", "command_line": [],
            "started": "", "finished": null, "profile": null, "seed": 1,
            "target": bench.describe(), "simulated": true, "environment": {},
            "headlines": [], "results": [], "sections": [], "jobs": [], "findings": [], "flags": [],
        }))
        .unwrap();
        run.jobs = jobs;
        run
    }

    #[test]
    fn a_survey_of_a_model_gives_that_model_back() {
        for (name, mean_max, max_max) in [
            ("sim:optane-900p", 2.0, 8.0),
            ("sim:intel-p3700", 4.0, 15.0),
        ] {
            let fit = fit(&survey(name)).unwrap();
            let (n, mean, max) = fit.errors("fit");
            assert!(n >= 13, "{n}");
            assert!(
                mean < mean_max && max < max_max,
                "{name}: {mean} {max} {:#?}",
                fit.residuals
            );
            let (held_out, _, far) = fit.errors("prediction");
            assert_eq!(held_out, 1);
            assert!(far < 35.0, "{far}");
            let truth = SimTarget::parse(name).unwrap().model;
            let rate = fit.model.read.gb_per_s / truth.read.gb_per_s;
            assert!((rate - 1.0).abs() < 0.05, "{name}: {rate}");
        }
    }

    #[test]
    fn a_run_without_a_depth_sweep_is_refused() {
        let mut run = survey("sim:optane-900p");
        run.jobs.truncate(3);
        assert!(fit(&run).unwrap_err().to_string().contains("fathom survey"));
    }
}
