//! What limits a target, and what to set: one thing is changed at a time and measured in pairs, what promises a gain is
//! proved on a job that the search has not seen, and everything is put back.
//!
//! Nothing is concluded from what a setting is called or what a model contains: a cause is named because a change of it,
//! and of nothing else, made a difference. [`suspect`] says what can be changed, [`load`] on which jobs it would tell,
//! [`stand`] makes the change for the length of one pass; here it is decided, and [`told`] tells it.

pub mod load;
pub mod machine;
pub mod model;
pub mod stand;
pub mod suspect;
mod sustained;
mod told;

use fathom_io::JobSpec;
use fathom_io::load::rng::mix;
use fathom_sim::SimTarget;
use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_mean;
use fathom_stats::compare::{Verdict, relative_of_log};
use fathom_telemetry::schema::{Finding, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use crate::ab::{self, BLOCK_JOBS, Setting};
use crate::bench::{Bench, BenchError};
use crate::cells::Plan;
use crate::compare::metrics;
use crate::notebook::{Notebook, NotebookError};
use crate::outlook::Outlook;
use crate::survey::{self, Watcher};
pub use load::{Effort, Load, LoadId};
pub use machine::Surroundings;
use stand::{InBook, ModelStand, Passed, RealStand, Stand};
use suspect::in_order;
pub use suspect::{Change, Suspect, Value};
pub use sustained::Sustained;

/// A mean gain of the search from which on a proof is worth its time.
const PROMISING: f64 = 0.05;
/// The lower end of a proved gain from which on a setting is kept.
const WORTH: f64 = 0.03;
/// The lower end of a gain from which on it limits the target: below it a finding is called weak.
pub const LIMITS: f64 = 0.15;
/// A setting that takes so much from another load is not kept.
const HARM: f64 = -0.10;

/// One value of a suspect on one load of the search.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Index of the suspect.
    pub suspect: usize,
    /// Index of its value.
    pub value: usize,
    /// The load.
    pub load: LoadId,
    /// With the change against without it, − 1.
    pub gain: Option<Estimate>,
    /// Why it could not be tried.
    pub why: Option<String>,
    /// Indices of its passes.
    pub jobs: Vec<usize>,
}

/// The best value of a suspect on the held-out job.
#[derive(Debug, Clone)]
pub struct Proof {
    /// Index of the suspect.
    pub suspect: usize,
    /// Index of its value.
    pub value: usize,
    /// The load.
    pub load: LoadId,
    /// I/Os per second without and with the change.
    pub sides: [Option<Estimate>; 2],
    /// With against without, − 1.
    pub gain: Option<Estimate>,
    /// What follows.
    pub verdict: Verdict,
    /// Why it could not be made.
    pub why: Option<String>,
    /// A load that lost by it in the search, and how much.
    pub harms: Option<(LoadId, f64)>,
    /// Whether it stayed in force for what was proved after it.
    pub kept: bool,
    /// Indices of its passes.
    pub jobs: Vec<usize>,
}

/// Everything that was measured.
#[derive(Default)]
pub struct Diagnosis {
    /// What was suspected.
    pub suspects: Vec<Suspect>,
    /// The search.
    pub trials: Vec<Trial>,
    /// The proofs, in the order in which they were made.
    pub proofs: Vec<Proof>,
    /// All kept settings together against none, on each held-out job: load and proof.
    pub together: Vec<Proof>,
    /// The sustained load, where there was time for it.
    pub sustained: Option<Sustained>,
    /// I/Os per second of each load with nothing changed, and their jobs.
    pub base: Vec<(LoadId, Vec<f64>, Vec<usize>)>,
    /// Loads that were left out, and why.
    pub left_out: Vec<String>,
    /// What each load's proof was done with.
    pub held_out: Vec<(LoadId, &'static str)>,
}

impl Diagnosis {
    /// What limits the target, first what limits it most.
    pub fn findings(&self) -> Vec<Finding> {
        told::findings(self)
    }
    /// The settings that were kept.
    pub fn kept(&self) -> impl Iterator<Item = (&Suspect, &Value)> {
        self.proofs.iter().filter(|p| p.kept).filter_map(|p| {
            let s = self.suspects.get(p.suspect)?;
            Some((s, s.values.get(p.value)?))
        })
    }
}

/// What is tuned.
pub enum Ground {
    /// A model.
    Model(Box<SimTarget>),
    /// A target on this machine.
    Machine(Surroundings),
}

impl Ground {
    /// What may limit it; `only` restricts it to these ids.
    pub fn suspects(&self, only: &[String]) -> Vec<Suspect> {
        let mut all = match self {
            Self::Model(t) => model::suspects(t),
            Self::Machine(around) => machine::suspects(around),
        };
        all.retain(|s| only.is_empty() || only.iter().any(|o| o == s.id));
        all
    }
    /// What is not tried here, each with its name and why.
    pub fn left_out(&self) -> Vec<String> {
        match self {
            Self::Model(_) => Vec::new(),
            Self::Machine(around) => machine::left_out(around),
        }
    }
    /// Whether the sustained load is asked for.
    fn sustains(only: &[String]) -> bool {
        only.is_empty() || only.iter().any(|o| o == sustained::ID)
    }
    /// Every id that `only` may name here.
    pub fn ids(&self) -> Vec<&'static str> {
        let mut ids: Vec<&str> = Vec::new();
        let suspects = self.suspects(&[]);
        for id in suspects.iter().map(|s| s.id).chain([sustained::ID]) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }
}

/// How it is tuned.
#[derive(Debug, Clone, Default)]
pub struct TuneOptions {
    /// Ids of what is tried; everything where empty.
    pub only: Vec<String>,
    /// Leave proved settings in force.
    pub keep: bool,
    /// Length of a pass on this machine; a quarter of the profile's jobs where absent.
    pub pass: Option<Nanos>,
    /// Size of the working set of the cached load, on models.
    pub working_set: Option<Bytes>,
    /// Seed of everything random.
    pub seed: u64,
}

/// Working set on models where nobody said.
const WORKING_SET: Bytes = Bytes::mib(256);

fn effort(ground: &Ground, plan: &Plan, options: &TuneOptions) -> Effort {
    match ground {
        Ground::Model(_) => Effort::model(options.working_set.unwrap_or(WORKING_SET)),
        Ground::Machine(_) => Effort::real(plan, options.pass),
    }
}

/// Time and bytes at most.
///
/// # Errors
/// Never with options that exist.
pub fn outlook(
    ground: &Ground,
    plan: &Plan,
    options: &TuneOptions,
    fills: Bytes,
) -> Result<Outlook, fathom_io::JobError> {
    let effort = effort(ground, plan, options);
    let suspects = ground.suspects(&options.only);
    let loads = load::loads(plan, &effort, &wanted(&suspects))?;
    let mut out = Outlook::filling(fills);
    for s in &suspects {
        let mine = || loads.iter().filter(|l| s.loads.contains(&l.id));
        for l in mine() {
            out.add(&l.search, 2 * effort.pairs * s.values.len() as u32);
        }
        if let Some(l) = mine().next() {
            // The proof, and its share of the proof of all together.
            out.add(&l.held_out, 2 * effort.blocks * BLOCK_JOBS);
        }
    }
    if Ground::sustains(&options.only) {
        out.add(&load::sustained(plan, &effort)?, sustained::SLICES);
    }
    Ok(out)
}

fn wanted(suspects: &[Suspect]) -> Vec<LoadId> {
    let mut ids: Vec<LoadId> = suspects.iter().flat_map(|s| s.loads.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Tunes a target and puts the results into the notebook. Everything is as it was before when this returns, unless
/// `options.keep`.
///
/// # Errors
/// A job could not run, or not be kept.
pub fn run(
    bench: &mut dyn Bench,
    ground: &Ground,
    plan: &Plan,
    options: &TuneOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    survey::prepare(bench, watcher)?;
    let effort = effort(ground, plan, options);
    let before = settings_of(ground);
    let total = outlook(ground, plan, options, Bytes(0))
        .map_err(BenchError::from)?
        .jobs;
    let mut keeping = InBook {
        book,
        watcher,
        done: 0,
        total,
    };
    let diagnosis = match ground {
        Ground::Model(target) => {
            let mut stand = ModelStand {
                target: (**target).clone(),
                keeping: &mut keeping,
                control: bench.control(),
            };
            diagnose(&mut stand, ground, plan, &effort, options)?
        }
        Ground::Machine(_) => {
            let mut stand = RealStand {
                bench: &mut *bench,
                keeping: &mut keeping,
            };
            diagnose(&mut stand, ground, plan, &effort, options)?
        }
    };
    if bench.interrupted() {
        keeping.book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{} of at most {total} passes were run", keeping.done),
            "run again for the rest; every setting is as it was",
        ));
    }
    let mut stayed = Vec::new();
    if options.keep && !bench.interrupted() {
        let kept = diagnosis.kept().map(|k| k.1).collect();
        stayed.extend(in_order(kept, |v| &v.change).into_iter().map(told::stay));
    }
    let after = settings_of(ground);
    let run = keeping.book.run_mut();
    run.sections.push(told::section(
        &diagnosis,
        &before,
        &after,
        &stayed,
        options.keep,
    ));
    run.headlines.extend(told::headlines(&diagnosis));
    run.findings.extend(diagnosis.findings());
    Ok(())
}

fn settings_of(ground: &Ground) -> Vec<(String, String)> {
    match ground {
        Ground::Model(_) => Vec::new(),
        Ground::Machine(around) => around.settings(),
    }
}

/// Searches, proves, and looks at the sustained load.
///
/// # Errors
/// A job could not run, or not be kept.
pub fn diagnose(
    stand: &mut dyn Stand,
    ground: &Ground,
    plan: &Plan,
    effort: &Effort,
    options: &TuneOptions,
) -> Result<Diagnosis, NotebookError> {
    let suspects = ground.suspects(&options.only);
    let wanted = wanted(&suspects);
    let loads = load::loads(plan, effort, &wanted).map_err(BenchError::from)?;
    let mut d = Diagnosis {
        left_out: wanted
            .iter()
            .filter(|w| !loads.iter().any(|l| l.id == **w))
            .map(|w| format!("{}: no direct I/O here", load::word(*w)))
            .collect(),
        held_out: loads.iter().map(|l| (l.id, l.held_out_words)).collect(),
        suspects,
        ..Diagnosis::default()
    };
    let asked = |l: &String| {
        let name = l.split(':').next().unwrap_or_default();
        options.only.is_empty() || options.only.iter().any(|o| o == name)
    };
    d.left_out
        .extend(ground.left_out().into_iter().filter(asked));
    let mut tuning = Tuning {
        stand,
        effort,
        seed: options.seed,
    };
    if Ground::sustains(&options.only) && plan.direct {
        let spec = load::sustained(plan, effort).map_err(BenchError::from)?;
        match sustained::measure(&mut *tuning.stand, &spec)? {
            Ok(s) => d.sustained = Some(s),
            Err(why) => d.left_out.push(format!("{}: {why}", sustained::ID)),
        }
    } else if Ground::sustains(&options.only) {
        d.left_out
            .push(format!("{}: no direct I/O here", sustained::ID));
    }
    for (i, s) in d.suspects.iter().enumerate() {
        for v in 0..s.values.len() {
            for l in loads.iter().filter(|l| s.loads.contains(&l.id)) {
                if tuning.stand.interrupted() {
                    return Ok(d);
                }
                let trial = tuning.search(s, (i, v), l, &mut d.base)?;
                d.trials.push(trial);
            }
        }
    }
    for (i, v, id) in promising(&d) {
        if tuning.stand.interrupted() {
            return Ok(d);
        }
        let (Some(s), Some(l)) = (d.suspects.get(i), loads.iter().find(|l| l.id == id)) else {
            continue;
        };
        // Settings that were kept are in force on both sides; what is no setting is proved for itself.
        let mut both: Vec<&Change> = s.under.iter().collect();
        if s.is_setting {
            both.extend(d.kept().map(|k| &k.1.change));
        }
        let value = &s.values[v];
        let mut with = both.clone();
        with.push(&value.change);
        let mut proof = tuning.prove([both.as_slice(), with.as_slice()], l)?;
        (proof.suspect, proof.value) = (i, v);
        proof.harms = harm(&d, i, v);
        proof.kept = s.is_setting
            && proof.verdict == Verdict::Better
            && proof.gain.and_then(|g| g.low).is_some_and(|l| l >= WORTH)
            && proof.harms.is_none();
        d.proofs.push(proof);
    }
    if d.kept().count() > 1 {
        d.together = together(&mut tuning, &d, &loads)?;
    }
    Ok(d)
}

/// The best value of each suspect whose search promised something, the best suspect first.
fn promising(d: &Diagnosis) -> Vec<(usize, usize, LoadId)> {
    let mut best: Vec<(f64, &Trial)> = Vec::new();
    for t in &d.trials {
        let Some(gain) = t.gain.map(|g| g.value).filter(|g| *g >= PROMISING) else {
            continue;
        };
        match best.iter_mut().find(|b| b.1.suspect == t.suspect) {
            Some(b) if b.0 < gain => *b = (gain, t),
            Some(_) => {}
            None => best.push((gain, t)),
        }
    }
    best.sort_by(|a, b| b.0.total_cmp(&a.0));
    best.iter()
        .map(|(_, t)| (t.suspect, t.value, t.load))
        .collect()
}

/// The load of the search that lost most by a value, where that is too much.
fn harm(d: &Diagnosis, suspect: usize, value: usize) -> Option<(LoadId, f64)> {
    d.trials
        .iter()
        .filter(|t| (t.suspect, t.value) == (suspect, value))
        .filter_map(|t| Some((t.load, t.gain?.value)))
        .filter(|t| t.1 < HARM)
        .min_by(|a, b| a.1.total_cmp(&b.1))
}

/// All kept settings against none, on the held-out job of each load that one was proved with.
fn together(
    tuning: &mut Tuning<'_>,
    d: &Diagnosis,
    loads: &[Load],
) -> Result<Vec<Proof>, NotebookError> {
    let all: Vec<&Change> = d.kept().map(|k| &k.1.change).collect();
    let mut ids: Vec<LoadId> = d.proofs.iter().filter(|p| p.kept).map(|p| p.load).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut out = Vec::new();
    for l in loads.iter().filter(|l| ids.contains(&l.id)) {
        if tuning.stand.interrupted() {
            break;
        }
        out.push(tuning.prove([&[], all.as_slice()], l)?);
    }
    Ok(out)
}

struct Tuning<'a> {
    stand: &'a mut dyn Stand,
    effort: &'a Effort,
    seed: u64,
}

fn rate(job: &Job) -> Option<f64> {
    metrics::iops(job).filter(|v| *v > 0.0 && !job.is_void())
}

impl Tuning<'_> {
    /// One pass of a side; both sides of a pair have the same seed, so that one source of noise is less.
    fn pass(
        &mut self,
        changes: &[&Change],
        load: &Load,
        spec: &JobSpec,
        number: u32,
        side: usize,
    ) -> Result<Passed, NotebookError> {
        let mut spec = spec.clone();
        let salt = mix(u64::from(number) << 8 ^ load.id as u64);
        spec.seed = mix(self.seed ^ salt ^ spec.name.len() as u64) >> 1;
        let letter = if side == 0 { 'A' } else { 'B' };
        spec.name = format!("{}.{letter}{}", spec.name, number + 1);
        self.stand.pass(changes, load, &spec)
    }

    /// Pairs of without and with, whose order alternates; which begins is drawn.
    fn search(
        &mut self,
        s: &Suspect,
        (suspect, value): (usize, usize),
        load: &Load,
        base: &mut Vec<(LoadId, Vec<f64>, Vec<usize>)>,
    ) -> Result<Trial, NotebookError> {
        let mut trial = Trial {
            suspect,
            value,
            load: load.id,
            gain: None,
            why: None,
            jobs: Vec::new(),
        };
        let without: Vec<&Change> = s.under.iter().collect();
        let mut with = without.clone();
        with.push(&s.values[value].change);
        let mut ratios = Vec::new();
        let salt = mix((suspect as u64) << 16 ^ (value as u64) << 8 ^ load.id as u64);
        let begins = (mix(self.seed ^ salt) & 1) as u32;
        'pairs: for pair in 0..self.effort.pairs {
            let mut rates = [None, None];
            let first = (pair + begins) % 2;
            for side in [first, 1 - first] {
                if self.stand.interrupted() {
                    break 'pairs;
                }
                let changes = if side == 1 { &with } else { &without };
                match self.pass(changes, load, &load.search, pair, side as usize)? {
                    Passed::Measured(m) => {
                        rates[side as usize] = rate(&m.job);
                        trial.jobs.push(m.index);
                        if side == 0 && s.under.is_empty() {
                            note_base(base, load.id, rate(&m.job), m.index);
                        }
                    }
                    Passed::Impossible(why) => {
                        trial.why = Some(why);
                        break 'pairs;
                    }
                }
            }
            if let [Some(a), Some(b)] = rates {
                ratios.push((b / a).ln());
            }
        }
        if ratios.is_empty() {
            trial
                .why
                .get_or_insert_with(|| "no pair of passes gave valid numbers".into());
        }
        if trial.why.is_none() {
            trial.gain = bootstrap_mean(&ratios, self.seed).map(relative_of_log);
        }
        Ok(trial)
    }

    /// Blocks of both sides on the held-out job.
    fn prove(&mut self, sides: [&[&Change]; 2], load: &Load) -> Result<Proof, NotebookError> {
        let mut ran: Vec<(Setting, Job)> = Vec::new();
        let (mut jobs, mut why) = (Vec::new(), None);
        'blocks: for block in 0..self.effort.blocks {
            for setting in ab::block(self.seed ^ load.id as u64, block) {
                if self.stand.interrupted() {
                    break 'blocks;
                }
                let side = setting as usize;
                // Numbers that no pair of the search has.
                let number = self.effort.pairs + block;
                match self.pass(sides[side], load, &load.held_out, number, side)? {
                    Passed::Measured(m) => {
                        jobs.push(m.index);
                        ran.push((setting, m.job));
                    }
                    Passed::Impossible(said) => {
                        why = Some(said);
                        break 'blocks;
                    }
                }
            }
        }
        let by_reference: Vec<(Setting, &Job)> = ran.iter().map(|(s, j)| (*s, j)).collect();
        let row = ab::analyse(&by_reference, self.seed).into_iter().next();
        let (sides, gain, verdict) = match row {
            Some(r) => ([r.a, r.b], r.relative, r.verdict),
            None => ([None, None], None, Verdict::NotComparable),
        };
        Ok(Proof {
            suspect: usize::MAX,
            value: 0,
            load: load.id,
            sides,
            gain,
            verdict,
            why,
            harms: None,
            kept: false,
            jobs,
        })
    }
}

fn note_base(
    base: &mut Vec<(LoadId, Vec<f64>, Vec<usize>)>,
    load: LoadId,
    rate: Option<f64>,
    job: usize,
) {
    let Some(rate) = rate else { return };
    match base.iter_mut().find(|b| b.0 == load) {
        Some(b) => {
            b.1.push(rate);
            b.2.push(job);
        }
        None => base.push((load, vec![rate], vec![job])),
    }
}
