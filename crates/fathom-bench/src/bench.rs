//! What jobs run on: a real target or a simulated one, behind one narrow trait.

use fathom_host::{Health, HostRoot, ZoneLimits};
use fathom_io::driver::{DriveError, Observer, PlannedJob, Setting, run_group};
use fathom_io::files::{SeenBy, Steps};
use fathom_io::job::{Command, Engine, JobError, JobSpec, Limits, Rw};
use fathom_io::load::zoned;
use fathom_io::target::{Target, TargetError};
use fathom_io::{Control, validity};
use fathom_telemetry::iolog::LogHandle;
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Flag, FlagCode, Op};

/// Why a bench could not run jobs.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The driver could not run.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A model, or its composition.
    #[error(transparent)]
    Sim(#[from] fathom_sim::SimError),
    /// A job does not fit.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Preparing the target failed.
    #[error("the scratch file could not be filled: {0}")]
    Prepare(String),
    /// The processors cannot be kept as asked.
    #[error("{0}")]
    Cpu(String),
    /// An outside part is missing, or was asked for what it cannot do.
    #[error("{0}")]
    Outside(String),
}

impl BenchError {
    /// Whether the user's input or the safety rules are the cause (exit code 2), rather than the measurement.
    /// A job that cannot start asks for what this machine does not have (a processor, memory, polling).
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Target(_)
                | Self::Sim(_)
                | Self::Job(_)
                | Self::Cpu(_)
                | Self::Outside(_)
                | Self::Drive(DriveError::Start { .. })
        )
    }
}

/// Makes a log handle for (job in the group, thread).
pub type LogMaker<'a> = Option<&'a dyn Fn(usize, u32) -> LogHandle>;

/// Runs groups of jobs.
pub trait Bench {
    /// What jobs may do.
    fn limits(&self) -> Limits;
    /// For the run's record.
    fn describe(&self) -> schema::Target;
    /// Whether numbers come from a model.
    fn simulated(&self) -> bool;
    /// What ends its jobs early; others of the same run share it.
    fn control(&self) -> Control;
    /// Whether someone asked to end.
    fn interrupted(&self) -> bool {
        self.control().interrupted()
    }
    /// Bytes that [`Bench::prepare`] will write; 0 where there is nothing to fill.
    fn fills(&self) -> Bytes {
        Bytes(0)
    }
    /// Whether files in `dir` would lie on the device under test.
    fn shares_disk_with(&self, _dir: &std::path::Path) -> bool {
        false
    }
    /// The target on this machine, for experiments that look below it; none where a model answers.
    fn real(&mut self) -> Option<&mut RealBench> {
        None
    }
    /// Of a target with zones on this machine, their limits.
    fn zones(&self) -> Option<&ZoneLimits> {
        None
    }
    /// The hosts whose jobs these are, for the run's record; none where there is but this one.
    fn hosts(&self) -> Option<serde_json::Value> {
        None
    }
    /// Hosts that do steps with files of one directory; none where there is no such directory.
    fn files(&mut self) -> Option<&mut dyn FilesOfHosts> {
        None
    }
    /// Processors of the host that has the fewest.
    fn processors(&self) -> u32 {
        processors()
    }
    /// What the disk says of itself now (temperature, bytes written inside); `None` where there is nothing to ask.
    /// Commands are sent: not while jobs run.
    fn health(&mut self) -> Option<Health> {
        None
    }
    /// Removes what was made for this run only.
    ///
    /// # Errors
    /// Where something that fathom made could not be removed.
    fn close(self: Box<Self>) -> Result<(), BenchError> {
        Ok(())
    }
    /// Makes the target fit for reading: fills what fathom made. `None` where there is nothing to do.
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError>;
    /// Runs a lab's load on every host at the same time, as `asked` says of the host of each number: its job, and what each
    /// host says beside. `planned` names it, and how long it lasts.
    ///
    /// # Errors
    /// Where there are no hosts that could.
    fn load(
        &mut self,
        lab: &str,
        _asked: &dyn Fn(u32) -> serde_json::Value,
        _planned: &PlannedJob,
        _observer: &mut dyn Observer,
    ) -> Result<(Job, Vec<serde_json::Value>), BenchError> {
        Err(BenchError::Outside(format!(
            "{lab} on hosts: there is but this one"
        )))
    }
    /// Runs jobs at the same time; measures come back in the same order, with their flags.
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError>;
}

/// Hosts and a directory that they share, made for this.
pub trait FilesOfHosts {
    /// Their names.
    fn names(&self) -> &[String];
    /// What is said of all that is measured on them.
    fn flags(&self) -> &[Flag];
    /// Each host does its steps, beginning the second part together. What comes back is in the order of the hosts.
    ///
    /// # Errors
    /// What is said of a host that was lost.
    fn together(&mut self, steps: Vec<Steps>) -> Result<Vec<SeenBy>, Flag>;
}

/// Processors that this process may use.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get()) as u32
}

/// A target on this machine.
pub struct RealBench {
    target: Target,
    control: Control,
    filled: bool,
    half_filled: bool,
}

impl RealBench {
    /// Takes an open target.
    pub fn new(target: Target, control: Control) -> Self {
        Self {
            target,
            control,
            filled: false,
            half_filled: false,
        }
    }
    /// The target, for experiments that look below it (latency by layer).
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The same, to open it in further ways.
    pub fn target_mut(&mut self) -> &mut Target {
        &mut self.target
    }

    /// The same jobs, where those that write on a device with zones are led to the write pointers, as they stand now.
    fn led_by_zones(&self, jobs: &[PlannedJob]) -> Result<Option<Vec<PlannedJob>>, BenchError> {
        let modify = jobs.iter().any(|p| p.job.spec.rw.modifies());
        let Some(limits) = self.target.zone_limits().filter(|_| modify) else {
            return Ok(None);
        };
        // What is merely better written in order may be written anywhere.
        let free = |p: &PlannedJob| {
            let plain = p.job.spec.command == Command::Plain && p.job.spec.open_zones.is_none();
            limits.model == "host-aware" && plain
        };
        let zones = self
            .target
            .zones()
            .map_err(|e| BenchError::Outside(format!("the zones cannot be asked for: {e}")))?;
        let led = |p: &PlannedJob| -> Result<PlannedJob, BenchError> {
            let mut own = p.clone();
            if !free(p)
                && p.guide.is_none()
                && let Some(guide) = zoned::guide(&p.job, p.seats(), &zones)
                    .map_err(|e| BenchError::Outside(format!("job '{}': {e}", p.job.spec.name)))?
            {
                own.guide = Some(guide);
            }
            Ok(own)
        };
        jobs.iter().map(led).collect::<Result<_, _>>().map(Some)
    }
}

impl Bench for RealBench {
    fn limits(&self) -> Limits {
        self.target.limits()
    }
    fn describe(&self) -> schema::Target {
        self.target.describe()
    }
    fn simulated(&self) -> bool {
        false
    }
    fn control(&self) -> Control {
        self.control.clone()
    }
    fn real(&mut self) -> Option<&mut RealBench> {
        Some(self)
    }
    fn zones(&self) -> Option<&ZoneLimits> {
        self.target.zone_limits()
    }
    fn health(&mut self) -> Option<Health> {
        let disk = self.target.describe().device?;
        Some(fathom_host::health::read(&HostRoot::real(), &disk))
    }
    fn fills(&self) -> Bytes {
        if self.filled || !self.target.needs_fill() {
            return Bytes(0);
        }
        Bytes(self.target.limits().size)
    }
    fn shares_disk_with(&self, dir: &std::path::Path) -> bool {
        self.target.shares_disk_with(dir)
    }
    fn close(self: Box<Self>) -> Result<(), BenchError> {
        // A new file that is not filled goes too: a later run would take it for one whose blocks were all
        // written. Dropping the target removes it.
        if self.half_filled {
            return Ok(());
        }
        Ok(self.target.close()?)
    }

    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        if self.filled || !self.target.needs_fill() {
            return Ok(None);
        }
        let limits = self.target.limits();
        let can_direct = matches!(
            self.target.destination(),
            fathom_io::driver::Destination::File {
                direct: Some(_),
                ..
            }
        );
        let spec = fill_job(limits, can_direct);
        let planned = [PlannedJob {
            experiment: "prepare".into(),
            ..PlannedJob::new(spec.validate(&limits)?)
        }];
        let counters = || self.target.counters();
        let setting = Setting {
            destination: self.target.destination(),
            control: &self.control,
            counters: Some(&counters),
            log: None,
        };
        self.half_filled = true;
        let job = run_group(&planned, &setting, observer)?.pop();
        let lost = |f: &&Flag| f.void && f.code == FlagCode::WriteBackFailed;
        if let Some(flag) = job.as_ref().and_then(|j| j.flags.iter().find(lost)) {
            let Flag { detail, remedy, .. } = flag;
            return Err(BenchError::Prepare(format!("{detail}: {remedy}")));
        }
        if let Some(job) = &job
            && let Some(e) = job.errors.first()
        {
            return Err(BenchError::Prepare(format!(
                "{} at byte {}; choose a smaller --size or another place",
                e.message, e.first_offset
            )));
        }
        self.filled = !self.control.interrupted();
        self.half_filled = !self.filled;
        Ok(job)
    }

    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let as_commands = match self.target.takes_commands_only() {
            true => Some(as_commands(jobs)?),
            false => None,
        };
        let jobs = as_commands.as_deref().unwrap_or(jobs);
        let counters = || self.target.counters();
        let setting = Setting {
            destination: self.target.destination(),
            control: &self.control,
            counters: Some(&counters),
            log,
        };
        let led = self.led_by_zones(jobs)?;
        let jobs = led.as_deref().unwrap_or(jobs);
        let mut measures = run_group(jobs, &setting, observer)?;
        validity::judge(&mut measures, jobs, &self.target);
        if led.is_some() {
            for (p, _) in jobs.iter().zip(&measures).filter(|(_, m)| failed_writes(m)) {
                self.target.recover_zones(p.job.start, p.job.end);
            }
        }
        Ok(measures)
    }
}

fn failed_writes(job: &Job) -> bool {
    job.errors.iter().any(|e| e.op == Op::Write)
}

/// Jobs of experiments, which ask for io_uring, on a target that takes NVMe commands only.
fn as_commands(jobs: &[PlannedJob]) -> Result<Vec<PlannedJob>, BenchError> {
    let mut jobs = jobs.to_vec();
    for spec in jobs.iter_mut().map(|p| &mut p.job.spec) {
        match spec.engine {
            Engine::Uring | Engine::UringCmd => spec.engine = Engine::UringCmd,
            other => {
                return Err(BenchError::Outside(format!(
                    "job {}: --engine {other} sends no NVMe commands: leave it out, or name the block device",
                    spec.name
                )));
            }
        }
    }
    Ok(jobs)
}

/// One sequential pass of incompressible data, made durable at the end.
fn fill_job(limits: Limits, direct: bool) -> JobSpec {
    let block = Bytes::mib(1).0.min(limits.size);
    // Direct I/O wants whole blocks; an odd rest of the file is left to the page cache.
    let direct = direct
        && limits
            .size
            .is_multiple_of(u64::from(limits.direct_align.max(1)));
    let mut spec = JobSpec {
        name: "prepare".into(),
        rw: Rw::Write,
        qd: 8,
        direct,
        engine: Engine::Uring,
        ..JobSpec::default()
    };
    spec.bs = fathom_io::job::BlockSizes::one(block);
    spec.sync = fathom_io::job::SyncPolicy::fdatasync(256);
    spec
}

/// A flag for every job of a simulated run.
pub fn simulated_flag(model: &str) -> Flag {
    Flag::new(
        FlagCode::Simulated,
        format!("numbers come from the model {model}"),
        "measure the real device before you rely on them",
    )
}
