//! The tests of the SNIA Solid State Storage Performance Test Specification (PTS 2.0), one file each.
//!
//! Every test purges, conditions, measures rounds until the specification's rule says "steady" (at most 25),
//! and reports what it asks for. Beside that rule stands fathom's own verdict: a result that either of them
//! does not call steady is stamped so. Shortened minutes are allowed for a trial, and said.

mod dirth;
mod idle;
mod iops;
mod latency;
mod long;
mod steps;
mod tables;
mod throughput;

use clap::Args;
use fathom_bench::bench::Bench;
use fathom_bench::cost::{FILL_RATE, RunCost};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_stats::steady::PTS_ROUNDS_MAX;
use fathom_telemetry::schema::Section;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use crate::purge::Purging;

pub use steps::Rounds;
use steps::{Measured, Steps, numbers};

/// A minute as the specification means it.
pub const MINUTE: Nanos = Nanos::from_secs(60);

/// One test of the specification.
pub struct Test {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is.
    pub title: &'static str,
    loads: fn(&PtsOptions) -> Loads,
    run: fn(&mut Steps<'_>) -> Result<(), NotebookError>,
}

/// All tests, in the order in which they run.
pub const TESTS: [Test; 7] = [
    Test {
        id: "iops",
        title: "IOPS",
        loads: iops::loads,
        run: iops::run,
    },
    Test {
        id: "tp",
        title: "Throughput",
        loads: throughput::loads,
        run: throughput::run,
    },
    Test {
        id: "lat",
        title: "Latency",
        loads: latency::loads,
        run: latency::run,
    },
    Test {
        id: "wsat",
        title: "Write saturation",
        loads: long::saturating,
        run: long::write_saturation,
    },
    Test {
        id: "hir",
        title: "Host idle recovery",
        loads: idle::loads,
        run: idle::run,
    },
    Test {
        id: "xsr",
        title: "Cross stimulus recovery",
        loads: long::stimuli,
        run: long::cross_stimulus,
    },
    Test {
        id: "dirth",
        title: "Demand intensity and response time histogram",
        loads: dirth::loads,
        run: dirth::run,
    },
];

/// How the tests run.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct PtsOptions {
    /// Tests, in the order of the specification
    #[arg(long, value_delimiter = ',', default_value = "iops,tp,lat", value_name = "TEST,…", value_parser = known)]
    pub tests: Vec<String>,
    /// What stands for a minute; shorter ones are trials and say so
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub unit: Nanos,
    /// Threads, where the specification leaves them open
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Outstanding I/Os of each thread
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub qd: u32,
    /// Range that is tested: the whole target for the specification.
    #[arg(skip)]
    pub range: Bytes,
    /// In which way each test purges.
    #[arg(skip)]
    #[serde(default)]
    pub purging: Purging,
    /// Seed of everything random.
    #[arg(skip)]
    pub seed: u64,
}

fn known(test: &str) -> Result<String, String> {
    let all: Vec<&str> = TESTS.iter().map(|t| t.id).collect();
    match all.contains(&test) {
        true => Ok(test.to_owned()),
        false => Err(format!(
            "'{test}' is not a test: expected {}",
            all.join(", ")
        )),
    }
}

/// What a test measured: indices of its jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jobs {
    /// IOPS: of each round by share of reads, then block size; a hole where the device cannot do the size.
    Iops(Vec<Vec<Option<usize>>>),
    /// Throughput at a block size as a job has it (`1m`): read and write of each round.
    Throughput(String, Vec<[usize; 2]>),
    /// Latency: as IOPS.
    Latency(Vec<Vec<Option<usize>>>),
    /// Write saturation: each minute.
    WriteSaturation(Vec<usize>),
    /// Host idle recovery: for each pause the bursts, and what followed without pauses.
    Idle(Vec<(Vec<usize>, Option<usize>)>),
    /// Cross stimulus recovery: the minutes of each phase.
    CrossStimulus(Vec<Vec<usize>>),
    /// Demand intensity: of each round by threads, then depth; then the demands whose responses were looked at.
    Demand(Vec<Vec<usize>>, Vec<(String, usize)>),
}

/// One test of the specification.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PtsResult {
    /// How it ran.
    pub options: PtsOptions,
    /// Size of the target.
    pub size: Bytes,
    /// What could not be done, in sentences.
    pub notes: Vec<String>,
    /// Rounds until steady, where the test has any.
    pub rounds: Option<Rounds>,
    /// What was measured.
    pub measured: Jobs,
}

impl ExperimentResult for PtsResult {
    const EXPERIMENT: &'static str = "pts";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let found = Found {
            options: &self.options,
            evidence: *evidence,
        };
        let made = match (&self.measured, &self.rounds) {
            (Jobs::Iops(jobs), Some(rounds)) => iops::show(&found, jobs, rounds),
            (Jobs::Throughput(bs, jobs), Some(rounds)) => {
                throughput::show(&found, bs, jobs, rounds)
            }
            (Jobs::Latency(jobs), Some(rounds)) => latency::show(&found, jobs, rounds),
            (Jobs::Idle(states), Some(rounds)) => idle::show(&found, states, rounds),
            (Jobs::Demand(grids, demands), Some(rounds)) => {
                dirth::show(&found, grids, demands, rounds)
            }
            (Jobs::WriteSaturation(minutes), _) => long::show_saturation(&found, minutes),
            (Jobs::CrossStimulus(phases), _) => long::show_recovery(&found, phases),
            (_, None) => return,
        };
        let (mut section, mut headlines) = made;
        let flags = self.flags(&mut section);
        if let Some(r) = &self.rounds {
            section.text = format!("{} {}", section.text, r.sentence());
        }
        for h in &mut headlines {
            h.flags.extend(flags.iter().cloned());
        }
        section.flags.extend(flags);
        shown.sections.push(section);
        shown.headlines.extend(headlines);
    }
}

impl PtsResult {
    /// What stands against the test; charts of what still moved say so.
    fn flags(&self, section: &mut Section) -> Vec<Flag> {
        let mut flags = Vec::new();
        if let Some((flag, moving)) = self.rounds.as_ref().and_then(Rounds::flag) {
            if moving {
                fathom_bench::drift::mark(section);
            }
            flags.push(flag);
        }
        let mut not_checked =
            |detail: String, remedy| flags.push(Flag::new(FlagCode::NotChecked, detail, remedy));
        let PtsOptions { unit, range, .. } = self.options;
        if unit != MINUTE {
            not_checked(
                format!("a minute of the specification was {unit} here"),
                "leave out --unit for results that follow the specification",
            );
        }
        if range < self.size {
            not_checked(
                format!("only {range} of {} were tested", self.size),
                "leave out --size for results that follow the specification",
            );
        }
        for note in &self.notes {
            not_checked(
                note.clone(),
                "purge in another way (--purge, or the vendor's tool) and run again",
            );
        }
        flags
    }
}

/// What a test is shown from.
struct Found<'a> {
    options: &'a PtsOptions,
    evidence: Evidence<'a>,
}

impl Found<'_> {
    /// A job in numbers.
    fn job(&self, index: usize) -> Option<Measured> {
        Some(numbers(index, self.evidence.job(index)?))
    }

    /// Several.
    fn jobs(&self, indices: &[usize]) -> Vec<Measured> {
        indices.iter().filter_map(|i| self.job(*i)).collect()
    }

    /// One cell of the rounds that results are averaged over.
    fn window(&self, all: &[Vec<Option<usize>>], rounds: &Rounds, cell: usize) -> Vec<Measured> {
        let window = all.get(rounds.window()).unwrap_or_default();
        let indices: Vec<usize> = window.iter().filter_map(|r| *r.get(cell)?).collect();
        self.jobs(&indices)
    }
}

/// The tests that were asked for, in their order.
fn chosen(options: &PtsOptions) -> impl Iterator<Item = &'static Test> {
    TESTS
        .iter()
        .filter(|t| options.tests.iter().any(|n| n == t.id))
}

/// What a test measures, as far as it is known before.
#[derive(Default)]
struct Loads {
    /// Before the rounds: those that condition.
    before: Vec<JobSpec>,
    /// Of a round; rounds are repeated until steady.
    round: Vec<JobSpec>,
    /// After them.
    after: Vec<JobSpec>,
}

/// Says time, with as many rounds as the rule needs where the target is steady at once, and bytes at most: those of 25
/// rounds on a device that takes a GB per second.
pub fn run_cost(options: &PtsOptions) -> RunCost {
    let mut cost = RunCost::default();
    for test in chosen(options) {
        let loads = (test.loads)(options);
        let wears = options.purging.written(options.range);
        if wears.0 > 0 {
            let phase = format!("{}: purge by {}", test.title, options.purging);
            cost.phase(&phase).work(0, Nanos::ZERO, wears);
        }
        if !loads.before.is_empty() {
            cost.phase(&format!("{}: conditioning", test.title));
            add(&mut cost, &loads.before, 1, 1);
        }
        if !loads.round.is_empty() {
            let most = PTS_ROUNDS_MAX as u32;
            cost.phase(&format!("{}: 5 to {most} rounds", test.title));
            add(&mut cost, &loads.round, most, 5);
        }
        if !loads.after.is_empty() {
            cost.phase(test.title);
            add(&mut cost, &loads.after, 1, 1);
        }
    }
    cost
}

fn add(cost: &mut RunCost, loads: &[JobSpec], most: u32, expected: u32) {
    for load in loads {
        cost.add_up_to(load, most, expected);
        if load.rw.writes() && load.bytes.is_none() {
            let share = match load.rw == Rw::RandMixed {
                true => 1.0 - load.read_share / 100.0,
                false => 1.0,
            };
            let one = load.time.unwrap_or_default().as_secs_f64() * FILL_RATE as f64 * share;
            cost.work(0, Nanos::ZERO, Bytes(one as u64 * u64::from(most)));
        }
    }
}

/// Runs the tests and puts their sections into the notebook.
pub fn run(
    bench: &mut dyn Bench,
    direct: bool,
    options: &PtsOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    for test in chosen(options) {
        let mut steps = Steps::begin(bench, book, sink, test, options, direct);
        (test.run)(&mut steps)?;
        let ended = steps.end();
        if ended {
            break;
        }
    }
    Ok(())
}
