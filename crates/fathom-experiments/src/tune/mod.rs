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

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule;
use fathom_io::JobSpec;
use fathom_sim::SimTarget;
use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_mean;
use fathom_stats::compare::{Verdict, relative_of_log};
use fathom_telemetry::schema::{Finding, Job};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::ab::{self, BLOCK_JOBS, Setting};
use crate::compare::metrics;
pub use load::{Effort, Load, LoadId};
pub use machine::Surroundings;
use stand::{InBook, ModelStand, Passed, RealStand, Stand};
use suspect::in_order;
pub use suspect::{Change, Suspect, Suspected, Tried, Value};
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What was suspected.
    pub suspects: Vec<Suspected>,
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
    pub held_out: Vec<(LoadId, String)>,
}

impl Diagnosis {
    /// What limits the target, first what limits it most.
    pub fn findings(&self) -> Vec<Finding> {
        told::findings(self)
    }
    /// The settings that were kept, of the suspects that were tried.
    fn kept<'a>(&self, suspects: &'a [Suspect]) -> Vec<&'a Value> {
        let kept = self.proofs.iter().filter(|p| p.kept);
        kept.filter_map(|p| suspects.get(p.suspect)?.values.get(p.value))
            .collect()
    }
}

/// What was found, and every setting before and after.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TuneResult {
    /// What was measured.
    pub diagnosis: Diagnosis,
    /// Each setting with its value at the start.
    pub before: Vec<(String, String)>,
    /// The same at the end.
    pub after: Vec<(String, String)>,
    /// What became of the settings that were to stay in force, in sentences.
    pub stayed: Vec<String>,
    /// Whether proved settings were to stay in force.
    pub keep: bool,
}

impl ExperimentResult for TuneResult {
    const EXPERIMENT: &'static str = stand::EXPERIMENT;

    fn present(&self, _: &Evidence<'_>, shown: &mut Shown) {
        shown.sections.push(told::section(self));
        shown.headlines.extend(told::headlines(&self.diagnosis));
        shown.findings.extend(self.diagnosis.findings());
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
#[derive(Debug, Clone, Default, Args)]
pub struct TuneOptions {
    /// Only these, with commas: scheduler, queue-depth, read-ahead, idle-states, completion, write-back,
    /// write-throttle, mount-options, throttling, …
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<String>,
    /// Length of a pass on this machine [default: a quarter of the profile's jobs]
    #[arg(long, value_name = "DURATION")]
    pub pass: Option<Nanos>,
    /// Leave settings in force whose gain was proved
    #[arg(long)]
    pub keep: bool,
    /// Bytes that an application on a model goes back to, for the size of its cache [default: 256m]
    #[arg(long, value_name = "SIZE")]
    pub working_set: Option<Bytes>,
    /// Seed of everything random.
    #[arg(skip)]
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
pub fn run_cost(
    ground: &Ground,
    plan: &Plan,
    options: &TuneOptions,
    fills: Bytes,
) -> Result<RunCost, fathom_io::JobError> {
    let effort = effort(ground, plan, options);
    let suspects = ground.suspects(&options.only);
    let loads = load::loads(plan, &effort, &wanted(&suspects))?;
    let mut out = RunCost::filling(fills);
    for s in &suspects {
        let mine = || loads.iter().filter(|l| s.loads.contains(&l.id));
        for l in mine() {
            out.phase("search");
            out.add(&l.search, 2 * effort.pairs * s.values.len() as u32);
        }
        if let Some(l) = mine().next() {
            // The proof, and its share of the proof of all together; about half of them promise what is to be proved.
            out.phase("proof on a job that the search had not");
            out.add(&l.held_out, effort.blocks * BLOCK_JOBS);
            out.add_beside(&l.held_out, effort.blocks * BLOCK_JOBS);
        }
    }
    if Ground::sustains(&options.only) {
        out.phase("sustained load");
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
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    fathom_bench::progress::prepare(bench, sink)?;
    let effort = effort(ground, plan, options);
    let before = settings_of(ground);
    let total = run_cost(ground, plan, options, Bytes(0))
        .map_err(BenchError::from)?
        .jobs();
    let mut keeping = InBook {
        book,
        sink,
        done: 0,
        total,
    };
    let suspects = ground.suspects(&options.only);
    let search = Search {
        ground,
        suspects: &suspects,
        plan,
        effort: &effort,
        options,
    };
    let diagnosis = match ground {
        Ground::Model(target) => search.run(&mut ModelStand {
            target: (**target).clone(),
            keeping: &mut keeping,
            control: bench.control(),
        })?,
        Ground::Machine(_) => search.run(&mut RealStand {
            bench: &mut *bench,
            keeping: &mut keeping,
        })?,
    };
    if bench.interrupted() {
        let mut flag = schedule::cut_short(keeping.done, total);
        flag.remedy.push_str("; every setting is as it was");
        keeping.book.run_mut().flags.push(flag);
    }
    let mut stayed = Vec::new();
    if options.keep && !bench.interrupted() {
        let kept = diagnosis.kept(&suspects);
        stayed.extend(in_order(kept, |v| &v.change).into_iter().map(told::stay));
    }
    keeping.book.found(&TuneResult {
        diagnosis,
        before,
        after: settings_of(ground),
        stayed,
        keep: options.keep,
    })
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
    let search = Search {
        ground,
        suspects: &ground.suspects(&options.only),
        plan,
        effort,
        options,
    };
    search.run(stand)
}

/// What is looked for, and how.
struct Search<'a> {
    ground: &'a Ground,
    suspects: &'a [Suspect],
    plan: &'a Plan,
    effort: &'a Effort,
    options: &'a TuneOptions,
}

impl Search<'_> {
    fn run(&self, stand: &mut dyn Stand) -> Result<Diagnosis, NotebookError> {
        let wanted = wanted(self.suspects);
        let loads = load::loads(self.plan, self.effort, &wanted).map_err(BenchError::from)?;
        let mut d = self.begin(&wanted, &loads);
        let mut tuning = Tuning {
            stand,
            effort: self.effort,
            seed: self.options.seed,
        };
        self.sustain(&mut tuning, &mut d)?;
        for (i, s) in self.suspects.iter().enumerate() {
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
        self.prove(&mut tuning, &loads, &mut d)?;
        if !tuning.stand.interrupted() && d.kept(self.suspects).len() > 1 {
            d.together = self.together(&mut tuning, &d, &loads)?;
        }
        Ok(d)
    }

    /// What is known before the first pass.
    fn begin(&self, wanted: &[LoadId], loads: &[Load]) -> Diagnosis {
        let asked = |l: &String| {
            let name = l.split(':').next().unwrap_or_default();
            let only = &self.options.only;
            only.is_empty() || only.iter().any(|o| o == name)
        };
        let cannot = wanted
            .iter()
            .filter(|w| !loads.iter().any(|l| l.id == **w))
            .map(|w| format!("{}: no direct I/O here", load::word(*w)));
        Diagnosis {
            left_out: cannot
                .chain(self.ground.left_out().into_iter().filter(asked))
                .collect(),
            held_out: loads
                .iter()
                .map(|l| (l.id, l.held_out_words.to_owned()))
                .collect(),
            suspects: self.suspects.iter().map(Suspected::from).collect(),
            ..Diagnosis::default()
        }
    }

    fn sustain(&self, tuning: &mut Tuning<'_>, d: &mut Diagnosis) -> Result<(), NotebookError> {
        if !Ground::sustains(&self.options.only) {
            return Ok(());
        }
        let mut left_out = |why: &str| d.left_out.push(format!("{}: {why}", sustained::ID));
        if !self.plan.direct {
            left_out("no direct I/O here");
            return Ok(());
        }
        let spec = load::sustained(self.plan, self.effort).map_err(BenchError::from)?;
        match sustained::measure(&mut *tuning.stand, &spec, self.options.seed)? {
            Ok(s) => d.sustained = Some(s),
            Err(why) => left_out(&why),
        }
        Ok(())
    }

    fn prove(
        &self,
        tuning: &mut Tuning<'_>,
        loads: &[Load],
        d: &mut Diagnosis,
    ) -> Result<(), NotebookError> {
        for (i, v, id) in promising(d) {
            if tuning.stand.interrupted() {
                return Ok(());
            }
            let (Some(s), Some(l)) = (self.suspects.get(i), loads.iter().find(|l| l.id == id))
            else {
                continue;
            };
            // Settings that were kept are in force on both sides; what is no setting is proved for itself.
            let mut both: Vec<&Change> = s.under.iter().collect();
            if s.is_setting {
                both.extend(d.kept(self.suspects).iter().map(|k| &k.change));
            }
            let mut with = both.clone();
            with.push(&s.values[v].change);
            let mut proof = tuning.prove([both.as_slice(), with.as_slice()], l)?;
            (proof.suspect, proof.value) = (i, v);
            proof.harms = harm(d, i, v);
            proof.kept = s.is_setting
                && proof.verdict == Verdict::Better
                && proof.gain.and_then(|g| g.low).is_some_and(|l| l >= WORTH)
                && proof.harms.is_none();
            d.proofs.push(proof);
        }
        Ok(())
    }

    /// All kept settings against none, on the held-out job of each load that one was proved with.
    fn together(
        &self,
        tuning: &mut Tuning<'_>,
        d: &Diagnosis,
        loads: &[Load],
    ) -> Result<Vec<Proof>, NotebookError> {
        let all: Vec<&Change> = d.kept(self.suspects).iter().map(|k| &k.change).collect();
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
        spec.seed = schedule::seed(self.seed, stand::EXPERIMENT, &spec.name, number);
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
        let order = format!("order of {} on {}", s.id, load::word(load.id));
        let begins = schedule::seed(self.seed, stand::EXPERIMENT, &order, value as u32) as u32 & 1;
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
        let word = load::word(load.id);
        let order = schedule::seed(self.seed, stand::EXPERIMENT, word, 0);
        'blocks: for block in 0..self.effort.blocks {
            for setting in ab::block(order, block) {
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
