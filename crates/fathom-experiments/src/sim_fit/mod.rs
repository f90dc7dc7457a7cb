//! Fits a device model to what surveys measured, and says how well it fits, point by point, and how uncertain it is.
//!
//! Means and percentiles of closed loops are fitted: reads, writes, and both mixed. Some loads are held out and predicted
//! by a model of the others, each with an interval; the model that is kept is fitted to all. The host's costs are those of
//! the simulator's default host: what a real host costs differently goes into the device's parameters.

mod advice;
mod seen;
mod solve;
mod text;

use fathom_io::JobSpec;
use fathom_sim::SimError;
use fathom_sim::fitted::Fitted;
use fathom_sim::model::{Model, Path};
use fathom_sim::parameters::Parameter;
use fathom_telemetry::Op;
use fathom_telemetry::schema::Run;
use serde::Serialize;

use seen::{Load, MEAN, P99, QUANTITIES, loads};
use solve::{Problem, parameters, root, shown};

/// Software of the default host around a request, ns: submission, shallow sleep, completion.
const HOST_NS: f64 = 5_500.0;
/// Requests of each load while values are far from their places, near them, and where they are judged.
const FAR: f64 = 3_000.0;
const NEAR: f64 = 20_000.0;
const JUDGED: f64 = 40_000.0;
/// Queue slots of a device that never runs out of them, and of others that are tried.
const SLOTS: [u32; 4] = [1024, 32, 64, 128];
/// Standard deviations of a 95 % interval.
const Z: f64 = 1.96;
/// A model is unfit where more than one in twenty is further off: of the means that were fitted, of those that were held
/// out, or of their 99th percentiles, percent.
const UNFIT_FITTED: f64 = 10.0;
const UNFIT_MEAN: f64 = 20.0;
const UNFIT_P99: f64 = 60.0;

/// Why nothing could be fitted.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The runs lack what a fit needs.
    #[error(
        "{0}: a fit needs closed loops of random reads at depth 1 and at several depths: take a run of fathom survey"
    )]
    TooLittle(String),
    /// Runs of different devices.
    #[error("{0} and {1} are runs of different devices: expected runs of one")]
    Others(String, String),
    /// The fitted values make no model.
    #[error("the values found make no model: {0}")]
    Model(#[from] SimError),
}

/// A measured number beside the model's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Residual {
    /// Load in words.
    pub what: String,
    /// `read` or `write`.
    pub direction: &'static str,
    /// `mean`, `p50`, `p90`, `p99` or `p99.9` of the service latency.
    pub quantity: &'static str,
    /// As measured, ns.
    pub measured_ns: f64,
    /// The same of the model.
    pub model_ns: f64,
    /// Model against measured.
    pub error_percent: f64,
    /// 95 % interval of the prediction, the measurement's own scatter included, ns; where it was held out.
    pub interval_ns: Option<[f64; 2]>,
    /// `fit`, or `prediction` where it was held out.
    pub role: &'static str,
}

/// A value that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Value {
    /// Its key in the model's file.
    pub key: &'static str,
    /// In the unit of its key.
    pub value: f64,
    /// 95 % interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// A further load, and what is open once it is measured beside those named before it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The load.
    #[serde(skip)]
    pub job: JobSpec,
    /// In words.
    pub what: String,
    /// Half of a 95 % interval of predicted means and 99th percentiles, percent.
    pub open_percent: f64,
}

/// A model and how well it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// Its file.
    pub text: String,
    /// Every number.
    pub residuals: Vec<Residual>,
    /// Every value with its interval.
    pub values: Vec<Value>,
    /// What the values leave open of loads of other sizes and depths: half of a 95 % interval of their means and 99th
    /// percentiles, percent; of the model alone, not of the host.
    pub open_percent: f64,
    /// What would narrow that most, the best first.
    pub advice: Vec<Advice>,
}

impl Fit {
    /// Number of a quantity's residuals in a role, their mean and their largest error, percent.
    pub fn errors(&self, role: &str, quantity: &str) -> (usize, f64, f64) {
        let all = sizes(&self.residuals, role, quantity);
        let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
        (all.len(), mean, all.last().copied().unwrap_or(0.0))
    }

    /// What it says of itself in the model's file.
    pub fn fitted(&self) -> &Fitted {
        self.model.fit.as_ref().unwrap_or(&NOTHING)
    }
}

/// Of a model that was not fitted.
static NOTHING: Fitted = Fitted {
    runs: Vec::new(),
    held_out: 0,
    mean_error_percent: 0.0,
    p99_error_percent: 0.0,
    unfit: false,
    parameters: Vec::new(),
    root: Vec::new(),
};

/// Errors without their sign, the smallest first, percent.
fn sizes(residuals: &[Residual], role: &str, quantity: &str) -> Vec<f64> {
    let mut all: Vec<f64> = residuals
        .iter()
        .filter(|r| r.role == role && r.quantity == quantity)
        .map(|r| r.error_percent.abs())
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// What 19 in 20 do not exceed.
fn nineteen_in_twenty(sizes: &[f64]) -> f64 {
    let n = (sizes.len() as f64 * 0.95).ceil() as usize;
    sizes.get(n.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// First guess of one direction from its extremes.
fn guess(points: &[&Load], random_qd1: Option<f64>, sequential_qd1: Option<f64>) -> Path {
    let bytes_per_ns = points
        .iter()
        .map(|m| m.iops * m.block() / 1e9)
        .fold(1e-4, f64::max)
        * 1.02;
    let command_ns = points
        .iter()
        .map(|m| 1e9 / m.iops - m.block() / bytes_per_ns)
        .fold(f64::MAX, f64::min)
        .clamp(0.0, 1e8);
    let device = |total: f64| (total - HOST_NS - command_ns - 4096.0 / bytes_per_ns).max(100.0);
    let random = random_qd1.map_or(10_000.0, device);
    let fixed = match (random_qd1, sequential_qd1) {
        (Some(r), Some(s)) if s < 0.8 * r => device(s),
        _ => random / 4.0,
    };
    Path {
        command_ns,
        gb_per_s: bytes_per_ns,
        media_us: (random - fixed).max(0.0) / 1e3,
        fixed_us: fixed / 1e3,
    }
}

/// The loads of a fit by what they are.
struct Parted<'a> {
    all: Vec<&'a Load>,
    reads: Vec<&'a Load>,
    writes: Vec<&'a Load>,
}

impl<'a> Parted<'a> {
    fn of(all: Vec<&'a Load>) -> Self {
        let of = |op: Op| all.iter().copied().filter(|m| m.op() == Some(op)).collect();
        Self {
            reads: of(Op::Read),
            writes: of(Op::Write),
            all,
        }
    }

    /// What can be told of these loads.
    fn told(&self) -> Vec<&'static Parameter> {
        let mut heads = vec!["units", "pipeline_cv", "media_cv", "read."];
        let mixed: Vec<_> = self.all.iter().filter(|m| m.op().is_none()).collect();
        if !self.writes.is_empty() || !mixed.is_empty() {
            heads.push("write.");
        }
        if !mixed.is_empty() {
            heads.push("flash.program_us");
        }
        if mixed.iter().any(|m| !m.spec.rw.is_random()) {
            heads.push("flash.reads_spoilt");
        }
        parameters(&heads)
    }
}

/// Latency of one small request at a time, ns.
fn single(points: &[&Load], random: bool) -> Option<f64> {
    let one =
        |m: &&&Load| m.outstanding() == 1 && m.spec.rw.is_random() == random && m.block() <= 8192.0;
    points.iter().find(one).map(|m| m.mean_ns())
}

/// Some starts after so many rounds, the best first. A buffer that answers writes at once stays one.
fn ranked(
    starts: Vec<Model>,
    loads: &[&Load],
    moved: &[&'static Parameter],
    (requests, rounds): (f64, u32),
) -> Vec<(f64, Model)> {
    let go = |mut model: Model| {
        let buffer = model.write.media_us == 0.0;
        let mut moved = moved.to_vec();
        moved.retain(|p| !(buffer && p.key == "write.media_us"));
        let problem = Problem {
            loads,
            moved: &moved,
            requests,
        };
        (problem.descend(&mut model, rounds), model)
    };
    let mut gone: Vec<_> = starts.into_iter().map(go).collect();
    gone.sort_by(|a, b| a.0.total_cmp(&b.0));
    gone
}

/// The first so many of them.
fn first(ranked: Vec<(f64, Model)>, n: usize) -> Vec<Model> {
    ranked.into_iter().take(n).map(|r| r.1).collect()
}

/// The same device with other numbers of slots, where so many are ever asked for.
fn with_slots(model: &Model, loads: &[&Load], slots: &[u32]) -> Vec<Model> {
    let deepest = loads.iter().map(|m| m.outstanding()).max().unwrap_or(1);
    let told = slots.iter().filter(|n| **n < deepest || **n == SLOTS[0]);
    told.map(|slots| Model {
        slots: *slots,
        ..model.clone()
    })
    .collect()
}

/// Values for these loads from nothing.
fn solve(parted: &Parted<'_>, model: Model) -> Model {
    let of_reads = parameters(&["units", "pipeline_cv", "media_cv", "read."]);
    let random = single(&parted.reads, true);
    let sequential = single(&parted.reads, false);
    // Read-ahead shows in what one sequential request takes; where it hardly does, either may be true.
    let ahead: &[bool] = match (random, sequential) {
        (Some(r), Some(s)) if s < 0.8 * r => &[true],
        (Some(r), Some(s)) if s < 0.97 * r => &[true, false],
        _ => &[false],
    };
    let most = parted.reads.iter().map(|m| m.iops).fold(0.0, f64::max);
    let mut starts = Vec::new();
    for read_ahead in ahead {
        let busy = most * model.read.media_us / 1e6;
        let mut units = [0.6 * busy, 1.2 * busy, 3.0 * busy, 3.0, 8.0, 24.0]
            .map(|n| (n.ceil() as u32).clamp(1, 512))
            .to_vec();
        units.sort_unstable();
        units.dedup();
        for units in units {
            let start = Model {
                read_ahead: *read_ahead,
                units,
                ..model.clone()
            };
            starts.extend(with_slots(&start, &parted.reads, &SLOTS[..2]));
        }
    }
    let found = first(ranked(starts, &parted.reads, &of_reads, (FAR, 12)), 3);
    let found = first(ranked(found, &parted.reads, &of_reads, (NEAR, 8)), 2);
    let of_writes = parameters(&["write."]);
    // A buffer answers writes, or the medium does.
    let mut answers = Vec::new();
    for medium in found {
        let mut buffer = medium.clone();
        buffer.write.fixed_us += buffer.write.media_us;
        buffer.write.media_us = 0.0;
        answers.push(medium);
        if !parted.writes.is_empty() {
            answers.push(buffer);
        }
    }
    if !parted.writes.is_empty() {
        let gone = ranked(answers, &parted.writes, &of_writes, (FAR, 12));
        answers = first(gone, usize::MAX);
    }
    let told = parted.told();
    // Programming keeps units from reading, for a share of their time at the full rate.
    let shares: &[f64] = match told.iter().any(|p| p.key == "flash.program_us") {
        true => &[0.0, 0.15, 0.5],
        false => &[0.0],
    };
    let programs = |model: &Model, share: f64| {
        let mut other = model.clone();
        let us = share * f64::from(model.units) * 4.096 / model.write.gb_per_s;
        for program in parameters(&["flash.program_us"]) {
            program.set_scaled(&mut other, (us + program.least).ln());
        }
        other
    };
    // Of each the share that suits it best: what looks alike from far is told apart from near.
    let mut near: Vec<Model> = Vec::new();
    for answer in &answers {
        let starts = shares.iter().map(|s| programs(answer, *s)).collect();
        near.extend(first(ranked(starts, &parted.all, &told, (FAR, 12)), 1));
    }
    let best = ranked(near, &parted.all, &told, (NEAR, 8))
        .into_iter()
        .next();
    let (cost, model) = best.unwrap_or((f64::INFINITY, model));
    climbed(model, cost, parted)
}

/// Other numbers of slots and of units, everything else following them: steps along one value at a time end where none alone helps.
fn climbed(mut model: Model, mut cost: f64, parted: &Parted<'_>) -> Model {
    let mut others = with_slots(&model, &parted.all, &SLOTS);
    others.retain(|m| m.slots != model.slots);
    let reached = ranked(others, &parted.all, &parted.told(), (NEAR, 6));
    if let Some(better) = reached.into_iter().find(|r| r.0 < cost) {
        (cost, model) = better;
    }
    let mut follow = parted.told();
    follow.retain(|p| p.key != "units");
    for steps in [&[0.7, 1.4][..], &[0.0, 2.0], &[0.0, 2.0]] {
        let from = model.units;
        for (i, times) in steps.iter().enumerate() {
            // The last ones are neighbours.
            let units = match steps[0] == 0.0 {
                true => (from + 2 * i as u32).saturating_sub(1),
                false => (f64::from(from) * times).round() as u32,
            };
            if units == from || !(1..=4096).contains(&units) {
                continue;
            }
            let other = vec![at_units(&model, units)];
            let reached = ranked(other, &parted.all, &follow, (NEAR, 4));
            if let Some(better) = reached.into_iter().find(|r| r.0 < cost) {
                (cost, model) = better;
            }
        }
    }
    model
}

/// The same device of another number of units that serve as much together, and one request as fast.
fn at_units(model: &Model, units: u32) -> Model {
    let mut other = model.clone();
    let times = f64::from(units) / f64::from(model.units);
    other.units = units;
    for (path, was) in [
        (&mut other.read, model.read),
        (&mut other.write, model.write),
    ] {
        let medium = (was.media_us * times).min(was.media_us + was.fixed_us);
        path.fixed_us += was.media_us - medium;
        path.media_us = medium;
    }
    other
}

/// Loads that are left out at first: every third depth of the random reads and every second mixture, not the extremes.
fn is_held_out(all: &[Load]) -> Vec<bool> {
    let deepest = all
        .iter()
        .filter(|m| m.op() == Some(Op::Read))
        .map(|m| m.outstanding())
        .max();
    let mut depths: Vec<usize> = Vec::new();
    let mut mixed: Vec<usize> = Vec::new();
    for (i, m) in all.iter().enumerate() {
        let depth = m.outstanding();
        if m.op().is_none() {
            mixed.push(i);
        } else if m.op() == Some(Op::Read)
            && m.spec.rw.is_random()
            && depth > 1
            && Some(depth) != deepest
        {
            depths.push(i);
        }
    }
    depths.sort_by_key(|i| all[*i].outstanding());
    mixed.sort_by(|a, b| all[*a].spec.read_share.total_cmp(&all[*b].spec.read_share));
    let mut out = vec![false; all.len()];
    depths
        .iter()
        .skip(1)
        .step_by(3)
        .for_each(|i| out[*i] = true);
    mixed.iter().skip(1).step_by(2).for_each(|i| out[*i] = true);
    out
}

/// The numbers of some loads beside the model's; with a covariance they are predictions.
fn residuals(
    model: &Model,
    of: &[&Load],
    predicted: Option<(&Problem<'_>, &[Vec<f64>])>,
) -> Vec<Residual> {
    let shown = shown(std::slice::from_ref(model), of, JUDGED, 1);
    let carried = predicted.and_then(|(problem, c)| problem.carried(model, c, of));
    let mut out = Vec::new();
    let mut number = 0;
    for (load, shown) in of.iter().zip(&shown[0]) {
        for (i, seen) in load.seen.iter().enumerate() {
            let own = carried.as_ref().map(|c| c[number]);
            number += 1;
            let Some((ln, sd)) = shown.as_ref().and_then(|s| s[i]) else {
                continue;
            };
            let close = QUANTITIES[seen.what].2;
            let interval = own.map(|own| {
                let all = (own * own + sd * sd + seen.sd * seen.sd + close * close).sqrt();
                [-Z, Z].map(|z| (ln + z * all).exp())
            });
            out.push(Residual {
                what: load.words(),
                direction: if seen.op == Op::Read { "read" } else { "write" },
                quantity: QUANTITIES[seen.what].0,
                measured_ns: seen.ln.exp(),
                model_ns: ln.exp(),
                error_percent: ((ln - seen.ln).exp() - 1.0) * 100.0,
                interval_ns: interval,
                role: if predicted.is_some() {
                    "prediction"
                } else {
                    "fit"
                },
            });
        }
    }
    out
}

/// Fits a model to runs of one device.
///
/// # Errors
/// Where the runs hold too little, or are not of one device.
pub fn fit(runs: &[Run]) -> Result<Fit, FitError> {
    let name = || {
        runs.iter()
            .map(|r| r.name.clone())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(first) = runs.first() else {
        return Err(FitError::TooLittle("no run".into()));
    };
    if let Some(other) = runs
        .iter()
        .find(|r| r.target.place() != first.target.place())
    {
        return Err(FitError::Others(first.name.clone(), other.name.clone()));
    }
    let all = loads(runs.iter().flat_map(|r| &r.jobs));
    let whole = Parted::of(all.iter().collect());
    let random = single(&whole.reads, true);
    if whole.reads.len() < 3 || random.is_none() {
        return Err(FitError::TooLittle(name()));
    }
    let start = Model {
        description: format!("fitted to {} of {}", name(), first.target.name),
        capacity_gb: (first.target.size_bytes as f64 / 1e9).max(1.1),
        slots: SLOTS[0],
        units: 8,
        read_ahead: false,
        pipeline_cv: 0.2,
        media_cv: 0.2,
        read: guess(&whole.reads, random, single(&whole.reads, false)),
        write: guess(
            &whole.writes,
            single(&whole.writes, true),
            single(&whole.writes, false),
        ),
        mechanical: None,
        flash: None,
        thermal: None,
        synchronous: None,
        fit: None,
    };
    let out = is_held_out(&all);
    let pick = |held: bool| -> Vec<&Load> {
        let chosen = all.iter().zip(&out).filter(|(_, o)| **o == held);
        chosen.map(|(m, _)| m).collect()
    };
    let (kept, held) = (Parted::of(pick(false)), pick(true));
    let mut trial = solve(&kept, start);
    let told = kept.told();
    let problem = Problem {
        loads: &kept.all,
        moved: &told,
        requests: JUDGED,
    };
    problem.settle(&mut trial, 2);
    let mut residuals = match problem.covariance(&trial).filter(|_| !held.is_empty()) {
        Some(covariance) => self::residuals(&trial, &held, Some((&problem, &covariance))),
        None => Vec::new(),
    };
    let told = whole.told();
    let problem = Problem {
        loads: &whole.all,
        moved: &told,
        requests: JUDGED,
    };
    let mut model = trial;
    problem.settle(&mut model, 3);
    residuals.extend(self::residuals(&model, &pick(false), None));
    let covariance = problem.covariance(&model).unwrap_or_default();
    let worst =
        |what: usize| nineteen_in_twenty(&sizes(&residuals, "prediction", QUANTITIES[what].0));
    let (mean, p99) = (worst(MEAN), worst(P99));
    let met = nineteen_in_twenty(&sizes(&residuals, "fit", QUANTITIES[MEAN].0));
    let fitted = Fitted {
        runs: runs.iter().map(|r| r.name.clone()).collect(),
        held_out: held.len() as u32,
        mean_error_percent: mean,
        p99_error_percent: p99,
        unfit: met > UNFIT_FITTED || mean > UNFIT_MEAN || p99 > UNFIT_P99,
        parameters: told.iter().map(|p| p.key.to_owned()).collect(),
        root: root(&covariance).unwrap_or_default(),
    };
    let values = (told.iter().zip(fitted.deviations()))
        .map(|(p, sd)| {
            let at = p.scaled(&model);
            // What differs from nothing by next to nothing may be nothing.
            let low = p.unscaled(at - Z * sd);
            Value {
                key: p.key,
                value: p.value(&model),
                low: if low < p.least * 0.1 { 0.0 } else { low },
                high: p.unscaled(at + Z * sd),
            }
        })
        .collect();
    model.fit = Some(fitted);
    let writes = told.iter().any(|p| p.key.starts_with("write."));
    let (open_percent, advice) =
        advice::advice(&problem, &model, &covariance, writes).unwrap_or_default();
    let text = text::file(&model, &first.started);
    let model = Model::parse("fitted model", &text)?;
    Ok(Fit {
        model,
        text,
        residuals,
        values,
        open_percent,
        advice,
    })
}
