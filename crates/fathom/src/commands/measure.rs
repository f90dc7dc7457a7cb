//! What measuring commands share: say time and bytes, open, run, close, report.

use std::path::Path;

use fathom_bench::cost::RunCost;
use fathom_bench::cpu::{CpuBench, CpuSetting};
use fathom_bench::profile::Profile;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Notebook, NotebookError, Plan, RunMeta};
use fathom_experiments::cpu;
use fathom_system::leftovers;
use fathom_system::on_device::OnDevice;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::announce::Foreseen;
use super::finish::{self, meta};
use super::open::{Ask, Opened, check_cpu, foresee, mention_leftovers, open, plan, profile};
use crate::cli::{LengthArgs, MeasureArgs};
use crate::exit::{Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::{signals, view};

/// One experiment as a command sees it.
pub(crate) struct Measuring<'a> {
    /// The command's name.
    pub(crate) name: &'static str,
    /// What every measuring command takes.
    pub(crate) args: &'a MeasureArgs,
    /// Whether any job writes.
    pub(crate) modifies: bool,
    /// How the processors are kept.
    pub(crate) cpu: CpuSetting,
    /// Threads that record each I/O at the same time; 0 for no log.
    pub(crate) recording: usize,
    /// Whether it runs on a fleet as on one host.
    pub(crate) on_hosts: bool,
    /// Whether it writes on devices with zones only where their write pointers are.
    pub(crate) on_zones: bool,
}

impl Measuring<'_> {
    fn runs_on_hosts(&self) -> Result<(), Failure> {
        if self.on_hosts {
            return Ok(());
        }
        Err(refused(anyhow::anyhow!(
            "--hosts: {} looks below its target, or brings a load of its own, on one machine: run it on each host, and hold the runs against each other with fathom compare (what runs on hosts: docs/fleet.md)",
            self.name
        )))
    }

    /// Where the run is kept.
    fn notebook(
        &self,
        profile: &Profile,
        bench: &dyn Bench,
        environment: serde_json::Value,
    ) -> Result<Notebook, Failure> {
        let args = self.args;
        let meta = RunMeta {
            profile: Some(profile.name.into()),
            ..meta(self.name, args.seed, &args.out, environment)
        };
        finish::notebook(&args.out, meta, bench, self.recording)
    }
}

/// Time and bytes of an experiment; `Bytes` is what filling writes.
pub(crate) type CostOf<'a> = &'a dyn Fn(&Plan, Bytes) -> Result<RunCost, Failure>;

/// Runs an experiment from the announcement to the report.
pub(crate) fn measure(
    what: &Measuring<'_>,
    cost: CostOf<'_>,
    run: impl FnOnce(
        &mut dyn Bench,
        &Plan,
        &mut Notebook,
        &mut dyn ProgressSink,
    ) -> Result<(), NotebookError>,
) -> Outcome {
    checked(
        what,
        cost,
        |_| Ok(()),
        |bench, plan, book, sink, ()| run(&mut CpuBench::new(bench, what.cpu), plan, book, sink),
    )
}

/// The same of an experiment that first looks at what was opened, and keeps the processors itself.
pub(crate) fn checked<T>(
    what: &Measuring<'_>,
    cost: CostOf<'_>,
    check: impl FnOnce(&dyn Bench) -> Result<T, Failure>,
    run: impl FnOnce(
        &mut dyn Bench,
        &Plan,
        &mut Notebook,
        &mut dyn ProgressSink,
        T,
    ) -> Result<(), NotebookError>,
) -> Outcome {
    let args = what.args;
    let profile = profile_of(&args.profile, &args.length)?;
    let control = signals::control().map_err(refused)?;
    match args.hosts.any() {
        true => what.runs_on_hosts()?,
        false => mention_leftovers(&args.target),
    }
    let made = Files::make(args)?;
    let ask = Ask {
        target: made.as_ref().map_or(args.target.as_str(), Files::place),
        profile: &profile,
        seed: args.seed,
        size: args.size,
        destroy: args.destroy.as_deref().filter(|_| made.is_none()),
        modifies: what.modifies,
        in_order: what.on_zones,
        hosts: Some(&args.hosts),
    };
    let named = format!("{} profile", profile.name);
    if args.dry_run {
        let (limits, fills) = foresee(&ask)?;
        let plan = plan(&ask, limits, true, None);
        let o = with_cpu(cost(&plan, fills)?, &plan, what.cpu)?;
        return Foreseen::of(&named, &o, &args.target)
            .on(limits.hosts)
            .dry_run(args.out.json);
    }
    let Opened {
        mut bench,
        limits,
        direct,
        fills,
        environment,
    } = open(&ask, control)?;
    let plan = plan(&ask, limits, direct, Some(&*bench));
    check_cpu(what.cpu, &*bench)?;
    let known = check(&*bench)?;
    let o = with_cpu(cost(&plan, fills)?, &plan, what.cpu)?;
    let said = Foreseen::of(&named, &o, &args.target).on(limits.hosts);
    say::text(&said.line());
    let mut book = what.notebook(&profile, &*bench, environment)?;
    if let Some(made) = &made {
        made.name(&mut book);
    }
    if !bench.simulated() {
        view::expect(o.time());
    }
    let mut line = SurveyLine::new(o.jobs(), fills);
    let compared = match what.cpu {
        CpuSetting::AsIs => Ok(()),
        cpu => cpu::compare(&mut *bench, &plan, cpu, args.seed, &mut book, &mut line),
    };
    let result = compared.and_then(|()| run(&mut *bench, &plan, &mut book, &mut line, known));
    line.clear();
    let outcome = finish::summarised(book, result, bench, &args.out);
    let closed = made.map_or(Ok(()), Files::close);
    let outcome = outcome?;
    closed.map(|()| outcome)
}

/// The file system of `--mkfs`.
struct Files {
    /// None where nothing is to be made (`--dry-run`).
    on: Option<OnDevice>,
    kind: &'static str,
    device: String,
    place: String,
}

impl Files {
    /// None where none was asked for.
    fn make(args: &MeasureArgs) -> Result<Option<Self>, Failure> {
        let Some(kind) = args.mkfs.kind else {
            return Ok(None);
        };
        if args.hosts.any() {
            return Err(refused(anyhow::anyhow!(
                "--mkfs: file systems are made on devices of this machine: leave out --hosts"
            )));
        }
        let device = Path::new(&args.target);
        let on = match args.dry_run {
            true => None,
            false => {
                // Of killed runs: the device may be theirs.
                leftovers::clear();
                let words = args.destroy.clone().into_iter().collect::<Vec<_>>();
                Some(OnDevice::make(kind, device, &words)?)
            }
        };
        // What is announced is the same in every directory.
        let place = on
            .as_ref()
            .map_or_else(std::env::temp_dir, |on| on.dir().to_owned());
        Ok(Some(Self {
            on,
            kind: kind.name,
            device: args.target.clone(),
            place: place.display().to_string(),
        }))
    }

    fn place(&self) -> &str {
        &self.place
    }

    /// The directory has another name in every run: the device is what was measured.
    fn name(&self, book: &mut Notebook) {
        let target = &mut book.run_mut().target;
        target.description = format!("{} on {}: {}", self.kind, self.device, target.description);
        target.name = self.device.clone();
    }

    fn close(self) -> Result<(), Failure> {
        Ok(self.on.map_or(Ok(()), OnDevice::close)?)
    }
}

/// A profile with what was said of length and repeats.
pub(crate) fn profile_of(name: &str, length: &LengthArgs) -> Result<Profile, Failure> {
    let mut p = profile(name)?;
    p.repeats = length.repeats.unwrap_or(p.repeats);
    if let Some(time) = length.time {
        p.job_time = time;
        p.ramp = p.ramp.min(Nanos(time.0 / 4));
    }
    p.ramp = length.ramp.unwrap_or(p.ramp);
    Ok(p)
}

/// The comparison of CPU settings comes on top.
pub(crate) fn with_cpu(
    mut o: RunCost,
    plan: &Plan,
    setting: CpuSetting,
) -> Result<RunCost, Failure> {
    if setting != CpuSetting::AsIs {
        o.join(cpu::run_cost(plan)?);
    }
    Ok(o)
}

/// Profile with what was said on the command line.
pub(crate) fn shortened(
    mut profile: Profile,
    time: Option<Nanos>,
    repeats: Option<u32>,
) -> Profile {
    if let Some(time) = time {
        profile.job_time = time;
        profile.ramp = Nanos(time.0 / 2).min(profile.ramp.max(Nanos::from_millis(300)));
    }
    profile.repeats = repeats.unwrap_or(profile.repeats);
    profile
}
