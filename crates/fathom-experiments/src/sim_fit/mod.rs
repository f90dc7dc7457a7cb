//! Fits a device model to what surveys measured, and says how well it fits, point by point, and how uncertain it is.
//!
//! Means and percentiles of closed loops are fitted: reads, writes, and both mixed. Some loads are held out and predicted
//! by a model of the others, each with an interval; the model that is kept is fitted to all. The host's costs are those of
//! the simulator's default host: what a real host costs differently goes into the device's parameters.

mod advice;
mod likely;
mod search;
mod seen;
mod solve;

use fathom_io::JobSpec;
use fathom_sim::SimError;
use fathom_sim::fitted::{Fitted, Other};
use fathom_sim::model::Model;
use fathom_sim::parameters::Parameter;
use fathom_telemetry::Op;
use fathom_telemetry::schema::Run;
use serde::Serialize;

use likely::Likely;
use search::Parted;
use seen::{Load, MEAN, P99, QUANTITIES, loads};
use solve::{Problem, root, shown};

/// Requests of each load while values are far from their places, near them, and where they are judged.
const FAR: f64 = 3_000.0;
const NEAR: f64 = 20_000.0;
const JUDGED: f64 = 40_000.0;
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

    /// Whether too much is off for a number of it to be relied on.
    pub fn is_unfit(&self) -> bool {
        self.model.fit.as_ref().is_some_and(|f| f.unfit)
    }
}

/// The file of a fitted model; `started` is when its first run began.
fn file(model: &Model, fitted: &Fitted, started: &str) -> Result<String, SimError> {
    let state = match (fitted.held_out, fitted.unfit) {
        (0, _) => "Nothing was held out, so how well it predicts is not known.".to_owned(),
        (n, unfit) => format!(
            "{n} loads were held out: 19 in 20 means within {:.1} %, 99th percentiles within {:.1} %{}.",
            fitted.mean_error_percent,
            fitted.p99_error_percent,
            if unfit {
                ": UNFIT, do not rely on it"
            } else {
                ""
            }
        ),
    };
    let unseen = match fitted.parameters.iter().any(|k| k.starts_with("write.")) {
        true => "",
        false => "# Nothing was measured of writes: they are taken to be as reads.\n",
    };
    let runs = fitted.runs.join(", ").replace(['\n', '\r'], " ");
    let values = model.file()?;
    Ok(format!(
        "# Fitted by fathom sim fit to {runs} ({started}), all values.\n# {state}\n{unseen}\
         # The host's own costs are taken to be those of the simulator's default host.\n\
         # [fit] says how sure it is: a root of the covariance of ln(value + its least difference).\n\
         # sim:FILE,draw=N is another model that is as likely.\n{values}"
    ))
}

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

/// What a model says of its own fit; `others` are as likely.
fn fitted(
    residuals: &[Residual],
    told: &[&Parameter],
    covariance: &[Vec<f64>],
    others: impl Iterator<Item = Likely>,
) -> Fitted {
    let worst =
        |role: &str, what: usize| nineteen_in_twenty(&sizes(residuals, role, QUANTITIES[what].0));
    let (mean, p99) = (worst("prediction", MEAN), worst("prediction", P99));
    let others = others.filter_map(|l| {
        Some(Other {
            share: l.weight,
            slots: l.model.slots,
            values: told.iter().map(|p| p.value(&l.model)).collect(),
            root: root(&l.covariance)?,
        })
    });
    let root = root(covariance).unwrap_or_default();
    Fitted {
        runs: Vec::new(),
        held_out: 0,
        mean_error_percent: mean,
        p99_error_percent: p99,
        unfit: worst("fit", MEAN) > UNFIT_FITTED || mean > UNFIT_MEAN || p99 > UNFIT_P99,
        parameters: (told.iter().take(root.len()))
            .map(|p| p.key.to_owned())
            .collect(),
        others: match root.is_empty() {
            true => Vec::new(),
            false => others.collect(),
        },
        root,
    }
}

/// The fitted parameters with their intervals.
fn values(told: &[&Parameter], fitted: &Fitted, model: &Model) -> Vec<Value> {
    let value = |p: &&Parameter| {
        let [low, high] = p.interval(fitted, p.scaled(model))?.map(|x| p.unscaled(x));
        Some(Value {
            key: p.key,
            value: p.value(model),
            // What differs from nothing by next to nothing may be nothing.
            low: if low < p.least * 0.1 { 0.0 } else { low },
            high,
        })
    };
    told.iter().filter_map(value).collect()
}

/// Fits a model to runs of one device.
///
/// # Errors
/// Where the runs hold too little, or are not of one device.
pub fn fit(runs: &[Run]) -> Result<Fit, FitError> {
    let names: Vec<String> = runs.iter().map(|r| r.name.clone()).collect();
    let name = || names.join(", ");
    let Some(first) = runs.first() else {
        return Err(FitError::TooLittle("no run".into()));
    };
    let elsewhere = |r: &&Run| r.target.place() != first.target.place();
    if let Some(other) = runs.iter().find(elsewhere) {
        return Err(FitError::Others(first.name.clone(), other.name.clone()));
    }
    let all = loads(runs.iter().flat_map(|r| &r.jobs));
    let whole = Parted::of(all.iter().collect());
    if whole.reads.len() < 3 || search::single(&whole.reads, true).is_none() {
        return Err(FitError::TooLittle(name()));
    }
    let start = search::start(&whole, first, &name());
    let out = is_held_out(&all);
    let pick = |held: bool| -> Vec<&Load> {
        let chosen = all.iter().zip(&out).filter(|(_, o)| **o == held);
        chosen.map(|(m, _)| m).collect()
    };
    let (kept, held) = (Parted::of(pick(false)), pick(true));
    let mut trial = search::solve(&kept, start);
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
    problem.settle(&mut trial, 3);
    let mut likely = likely::likely(&problem, trial).into_iter();
    let Some(best) = likely.next() else {
        return Err(FitError::TooLittle(name()));
    };
    let (mut model, covariance) = (best.model, best.covariance);
    let writes = told.iter().any(|p| p.key.starts_with("write."));
    if !writes {
        model.write = model.read;
    }
    residuals.extend(self::residuals(&model, &pick(false), None));
    let fitted = Fitted {
        runs: names,
        held_out: held.len() as u32,
        ..fitted(&residuals, &told, &covariance, likely)
    };
    let values = values(&told, &fitted, &model);
    model.fit = Some(fitted.clone());
    let (open_percent, advice) =
        advice::advice(&problem, &model, &covariance, writes).unwrap_or_default();
    let text = file(&model, &fitted, &first.started)?;
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
