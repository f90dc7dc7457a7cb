//! Creates, stats, lists, reads, renames and removes files, on all hosts together: in a directory of each host's own with
//! empty files, and in one directory of all with files of 3901 bytes, as mdtest's easy and hard have it in the IO500.

mod present;

use clap::{Args, ValueEnum};
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::Measurement;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Point;
use fathom_bench::schedule;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::files::{Operation, Phase};
use fathom_io::job::Rw;
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos, Op};
use serde::{Deserialize, Serialize};

/// Of windows: a phase of few files is over in few milliseconds where files are kept in memory.
const WINDOW: Nanos = Nanos::from_millis(2);
/// What a file system writes of its own for each file that is made, renamed and removed, about.
const INODE: u64 = 4096;
/// Clocks, common start and end of a phase.
const BETWEEN: Nanos = Nanos::from_millis(250);

/// Which files, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// Empty files in a directory of each host's own.
    Easy,
    /// Files of --bytes in one directory of all.
    Hard,
}

impl Set {
    const ALL: [Self; 2] = [Self::Easy, Self::Hard];

    fn name(self) -> &'static str {
        match self {
            Self::Easy => "easy",
            Self::Hard => "hard",
        }
    }

    fn operations(self) -> &'static [Operation] {
        use Operation::{Create, List, Read, Remove, Rename, Stat};
        match self {
            Self::Easy => &[Create, Stat, List, Rename, Remove],
            Self::Hard => &[Create, Stat, List, Read, Rename, Remove],
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom metadata /mnt/shared --hosts n1,n2,n3,n4      all hosts together\n  fathom metadata /data                                this host alone\n  fathom metadata /mnt/shared --hosts nodes.txt --only hard --files 100000 --time 30s"
)]
pub struct MetadataOptions {
    /// Files that each host makes in a directory at most; fewer where the time is over before
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub files: u64,
    /// Threads of each host
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Bytes of each file of the shared directory
    #[arg(long, default_value = "3901", value_name = "SIZE")]
    pub bytes: Bytes,
    /// easy: empty files in own directories; hard: files in one shared directory [default: both]
    #[arg(long, value_name = "SET")]
    pub only: Option<Set>,
}

/// A phase, and its jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    set: Set,
    phase: Phase,
    point: Point,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MetadataResult {
    options: MetadataOptions,
    steps: Vec<Step>,
}

impl MetadataOptions {
    /// Every phase, in the order in which they follow each other.
    fn steps(&self, plan: &Plan) -> Result<Vec<Step>, JobError> {
        let sets = Set::ALL
            .into_iter()
            .filter(|s| self.only.is_none_or(|o| o == *s));
        let all = sets.flat_map(|s| s.operations().iter().map(move |o| (s, *o)));
        all.map(|(set, operation)| {
            let hard = set == Set::Hard;
            let spec = JobSpec {
                name: format!("{}-{}", set.name(), operation.name()),
                rw: if operation.op() == Op::Read {
                    Rw::Read
                } else {
                    Rw::Write
                },
                time: Some(plan.profile.job_time),
                window: WINDOW,
                threads: self.threads,
                direct: false,
                ..JobSpec::default()
            };
            let phase = Phase {
                operation,
                shared: hard,
                bytes: if hard { self.bytes.0 as u32 } else { 0 },
                files: self.files,
                hosts: 1,
                of: 0,
            };
            Ok(Step {
                set,
                phase,
                point: Point::new(spec),
            })
        })
        .collect()
    }
}

impl Measurement for MetadataOptions {
    const NAME: &'static str = "metadata";
    const ON_HOSTS: bool = true;
    const FILES_OF_HOSTS: Option<u32> = Some(1);

    fn check(&self) -> Result<(), String> {
        match self.bytes {
            Bytes(n) if n <= 16 << 20 => Ok(()),
            n => Err(format!(
                "--bytes: {n} is too much for a file of many: expected 16m at most"
            )),
        }
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let repeats = plan.profile.repeats;
        let mut cost = RunCost::filling(fills);
        for step in self.steps(plan)? {
            let written = match step.phase.operation {
                Operation::Create => INODE + u64::from(step.phase.bytes).next_multiple_of(4096),
                Operation::Rename | Operation::Remove => INODE,
                _ => 0,
            };
            // Of each host.
            let bytes = written
                .saturating_mul(self.files)
                .saturating_mul(u64::from(repeats));
            let each = plan.profile.job_time + BETWEEN;
            cost.phase(&step.point.spec.name).work(
                repeats,
                Nanos(each.0.saturating_mul(u64::from(repeats))),
                Bytes(bytes),
            );
            cost.files = self.files;
        }
        Ok(cost)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut steps = self.steps(plan).map_err(BenchError::from)?;
        let (repeats, each) = (plan.profile.repeats, steps.len() as u32);
        let mut done = 0;
        'all: for repeat in 0..repeats {
            for step in &mut steps {
                if bench.interrupted() {
                    break 'all;
                }
                sink.job(done, repeats * each, &step.point.spec.name);
                let job = measure(step, repeat, plan, (bench, book, sink))?;
                step.point.jobs.push(job);
                done += 1;
                let job = &book.run().jobs[job];
                // Later phases need the files of this one, and all hosts.
                if let Some(why) = ended_by(job) {
                    book.run_mut().flags.push(why);
                    break 'all;
                }
            }
        }
        if bench.interrupted() {
            let flag = schedule::cut_short(done, repeats * each);
            book.run_mut().flags.push(flag);
        }
        book.found(&MetadataResult {
            options: self.clone(),
            steps,
        })
    }
}

fn measure(
    step: &Step,
    repeat: u32,
    plan: &Plan,
    (bench, book, sink): (&mut dyn Bench, &mut Notebook, &mut dyn ProgressSink),
) -> Result<usize, NotebookError> {
    let mut spec = step.point.spec.clone();
    spec.name = format!("{}.{}", spec.name, repeat + 1);
    let planned = [PlannedJob {
        experiment: MetadataOptions::NAME.into(),
        repeat,
        files: Some(step.phase.clone()),
        ..PlannedJob::new(spec.validate(&plan.limits).map_err(BenchError::from)?)
    }];
    let mut show = |p: &Progress| sink.progress(p);
    let jobs = book.measure(bench, &planned, &mut show)?;
    Ok(jobs[0])
}

/// What ends the run: an operation that failed, or a host that is gone.
fn ended_by(job: &fathom_telemetry::schema::Job) -> Option<Flag> {
    let ends = |f: &&Flag| matches!(f.code, FlagCode::IoErrors | FlagCode::HostLost);
    job.flags.iter().find(ends).cloned()
}
