//! The one place where commands open what they measure: a real target or a model, sized by the profile.
//!
//! [`foresee`] says what would happen without making or opening anything.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fathom_bench::bench::processors;
use fathom_bench::cpu::CpuSetting;
use fathom_bench::profile::{PROFILES, Profile};
use fathom_bench::{Bench, BenchError, Plan, RealBench, SimBench};
use fathom_experiments::drive::Reading;
use fathom_host::{TargetKind, probe_target, space};
use fathom_io::job::Limits;
use fathom_io::{Control, Target, TargetError, Wanted};
use fathom_labs::fleet::ModelFleet;
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;
use fathom_telemetry::say;

use super::finish::capsule;
use crate::cli::HostsArgs;
use crate::exit::{Failure, refused};
use crate::view;

/// Refuses what is no directory, for what needs one, before anything is made: a name that is free would become a file.
pub(crate) fn directory(target: &str, otherwise: &str) -> Result<(), Failure> {
    if Path::new(target).is_dir() {
        return Ok(());
    }
    Err(refused(anyhow::anyhow!(
        "{target}: {otherwise} on the device, mount it, and name the directory"
    )))
}

/// Opens what `name` stands for, as far as `wanted` allows.
pub(crate) fn open_bench(
    name: &str,
    wanted: &Wanted,
    control: Control,
) -> Result<Box<dyn Bench>, BenchError> {
    if SimTarget::is_simulated(name) {
        return Ok(Box::new(SimBench::open(name, control)?));
    }
    let target = Target::open(name, &wanted.clone().of(name))?;
    Ok(Box::new(RealBench::new(target, control)))
}

static CREATE: AtomicBool = AtomicBool::new(false);

/// Remembers that `--create` was typed.
pub(crate) fn create() {
    CREATE.store(true, Ordering::Relaxed);
}

/// Whether a target that is not there may be made.
pub(crate) fn may_create() -> bool {
    CREATE.load(Ordering::Relaxed)
}

/// The same, on hosts where some were named.
pub(crate) fn open_on(
    hosts: &HostsArgs,
    name: &str,
    wanted: &Wanted,
    control: Control,
) -> Result<Box<dyn Bench>, Failure> {
    if let (Some(n), true) = (hosts.simulated(), SimTarget::is_simulated(name)) {
        return Ok(Box::new(ModelFleet::open(
            name,
            n,
            hosts.layout_alone()?,
            control,
        )?));
    }
    match hosts.fleet()? {
        None => Ok(open_bench(name, wanted, control)?),
        Some(fleet) => Ok(Box::new(fleet.open(name, wanted, control)?)),
    }
}

/// What a measuring command asks of its target.
pub(crate) struct Ask<'a> {
    /// As typed.
    pub(crate) target: &'a str,
    /// Sizes a scratch file.
    pub(crate) profile: &'a Profile,
    /// `--seed`.
    pub(crate) seed: u64,
    /// `--size`.
    pub(crate) size: Option<Bytes>,
    /// `--destroy`.
    pub(crate) destroy: Option<&'a str>,
    /// Whether any job writes.
    pub(crate) modifies: bool,
    /// Whether jobs that write do so in order.
    pub(crate) in_order: bool,
    /// Where it is.
    pub(crate) hosts: Option<&'a HostsArgs>,
}

impl Ask<'_> {
    fn is_elsewhere(&self) -> bool {
        self.hosts.is_some_and(HostsArgs::any)
    }
}

/// An open bench and what follows from it.
pub(crate) struct Opened {
    /// Runs the jobs.
    pub(crate) bench: Box<dyn Bench>,
    /// Of the target, cut to what was asked for.
    pub(crate) limits: Limits,
    /// Whether direct I/O is possible.
    pub(crate) direct: bool,
    /// Bytes that filling writes.
    pub(crate) fills: Bytes,
    /// Environment capsule.
    pub(crate) environment: serde_json::Value,
}

/// A profile by its name.
pub(crate) fn profile(name: &str) -> Result<Profile, Failure> {
    Profile::named(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
        refused(anyhow::anyhow!(
            "--profile: '{name}' is not a profile: expected {}",
            names.join(", ")
        ))
    })
}

/// A model has no processors to keep busy.
pub(crate) fn check_cpu(setting: CpuSetting, bench: &dyn Bench) -> Result<(), Failure> {
    if setting != CpuSetting::AsIs && bench.hosts().is_some() {
        return Err(refused(anyhow::anyhow!(
            "--cpu: the processors of other hosts are left as they are: leave out --cpu"
        )));
    }
    if setting != CpuSetting::AsIs && bench.simulated() {
        return Err(refused(anyhow::anyhow!(
            "--cpu: {} is a model and has no processors: leave out --cpu, or name a real target",
            bench.describe().name
        )));
    }
    Ok(())
}

/// Limits and bytes to fill, without opening anything (for `--dry-run`).
pub(crate) fn foresee(ask: &Ask<'_>) -> Result<(Limits, Bytes), Failure> {
    let size = size(ask)?;
    let (existing, fills) = match ask.is_elsewhere() {
        // Nobody is asked before anything is agreed to.
        true => (None, !SimTarget::is_simulated(ask.target)),
        false => probe(ask.target)?,
    };
    let range = match (existing, ask.size) {
        (Some(there), Some(asked)) => there.min(asked),
        (there, _) => there.unwrap_or(size),
    };
    let limits = Limits {
        size: range.0,
        direct_align: 512,
        hosts: ask.hosts.map_or(Ok(1), HostsArgs::count)?,
    };
    Ok((limits, if fills { size } else { Bytes(0) }))
}

/// The same for jobs whose size is their own.
pub(crate) fn foresee_jobs(
    name: &str,
    wanted: &Wanted,
    hosts: Option<&HostsArgs>,
) -> Result<(Limits, Bytes), Failure> {
    let elsewhere = hosts.is_some_and(HostsArgs::any) && !SimTarget::is_simulated(name);
    let (existing, fills) = match elsewhere {
        true => (None, true),
        false => probe(name)?,
    };
    let range = match (existing, wanted.size) {
        (Some(there), _) => there,
        (None, Some(asked)) => asked,
        (None, None) if is_null(name) => Bytes(1 << 40),
        (None, None) => {
            return Err(refused(anyhow::anyhow!(
                "{name}: give --size, the bytes of the scratch file"
            )));
        }
    };
    let limits = Limits {
        size: range.0,
        direct_align: 512,
        hosts: hosts.map_or(Ok(1), HostsArgs::count)?,
    };
    Ok((limits, if fills { range } else { Bytes(0) }))
}

/// Opens the target; where direct I/O is impossible (some tmpfs, FUSE) it says so and goes on without.
pub(crate) fn open(ask: &Ask<'_>, control: Control) -> Result<Opened, Failure> {
    let size = size(ask)?;
    let wanted = |direct| Wanted {
        modifies: ask.modifies,
        in_order: ask.in_order,
        direct,
        size: Some(size),
        destroy: ask.destroy.map(str::to_owned),
        create: may_create(),
        ..Wanted::default()
    };
    let here = HostsArgs::default();
    let (bench, direct) = open_direct(ask.hosts.unwrap_or(&here), ask.target, &wanted, control)?;
    Ok(opened(ask, bench, size, direct))
}

/// The open bench, and whether it is as wanted with direct I/O or, where there is none here, without.
pub(crate) fn open_direct(
    hosts: &HostsArgs,
    name: &str,
    wanted: &dyn Fn(bool) -> Wanted,
    control: Control,
) -> Result<(Box<dyn Bench>, bool), Failure> {
    if hosts.any() {
        return Ok((open_on(hosts, name, &wanted(true), control)?, true));
    }
    match open_bench(name, &wanted(true), control.clone()) {
        Err(BenchError::Target(TargetError::NoDirect { .. })) => {
            say!("fathom: no direct I/O here; measuring through the page cache");
            Ok((open_bench(name, &wanted(false), control)?, false))
        }
        other => Ok((other?, true)),
    }
}

fn opened(ask: &Ask<'_>, bench: Box<dyn Bench>, size: Bytes, direct: bool) -> Opened {
    let about = bench.describe();
    let mut limits = bench.limits();
    // The whole of what exists, or the part that was asked for; null: has no size of its own.
    if about.kind == "null" || ask.size.is_some() {
        limits.size = limits.size.min(size.0);
    }
    let fills = if bench.fills().0 > 0 {
        Bytes(limits.size)
    } else {
        Bytes(0)
    };
    Opened {
        environment: environment(&*bench),
        bench,
        limits,
        direct,
        fills,
    }
}

/// The environment of a target.
pub(crate) fn capsule_of(about: &fathom_telemetry::schema::Target) -> serde_json::Value {
    view::target(match (&about.device, about.kind.as_str()) {
        (_, "simulated" | "null") => view::Target::Elsewhere,
        (Some(device), _) => view::Target::Disks(vec![device.clone()]),
        (None, _) => view::Target::Unknown,
    });
    capsule(about.path.as_deref().map(Path::new))
}

/// The environment of a bench; with hosts it is the controller's, and what each of them said.
pub(crate) fn environment(bench: &dyn Bench) -> serde_json::Value {
    let about = bench.describe();
    let mut capsule = capsule_of(&about);
    // What it says of itself before the run: at the end that is compared.
    if let (None, false, Some(disk)) = (bench.hosts(), bench.simulated(), &about.device)
        && let (Some(reading), Some(all)) = (Reading::of(disk), capsule.as_object_mut())
    {
        all.insert(
            "drive".into(),
            serde_json::to_value(reading).unwrap_or_default(),
        );
    }
    if let (Some(hosts), Some(all)) = (bench.hosts(), capsule.as_object_mut()) {
        view::target(view::Target::Elsewhere);
        all.insert("hosts".into(), hosts);
    }
    capsule
}

/// The plan for `bench`; for this machine before there is one.
pub(crate) fn plan(ask: &Ask<'_>, limits: Limits, direct: bool, bench: Option<&dyn Bench>) -> Plan {
    let cores = bench.map_or_else(processors, Bench::processors);
    Plan {
        limits,
        profile: *ask.profile,
        seed: ask.seed,
        threads: cores.clamp(1, 4),
        direct,
        wears: !is_null(ask.target),
        commands: fathom_host::takes_commands(Path::new(ask.target)),
    }
}

fn is_null(target: &str) -> bool {
    matches!(target, "null" | "null:")
}

/// Size of an existing file or device, and whether a scratch file would be filled.
fn probe(target: &str) -> Result<(Option<Bytes>, bool), Failure> {
    if SimTarget::is_simulated(target) {
        // A model is opened to be asked: nothing comes of it.
        let bench = open_bench(target, &Wanted::default(), Control::default())?;
        return Ok((Some(Bytes(bench.limits().size)), false));
    }
    if is_null(target) {
        return Ok((None, false));
    }
    let path = Path::new(target);
    let block = fathom_host::block_device_of(path);
    Ok(
        match probe_target(block.as_deref().unwrap_or(path)).map_err(refused)? {
            TargetKind::File { size_bytes, .. } | TargetKind::BlockDevice { size_bytes, .. } => {
                (Some(Bytes(size_bytes)), false)
            }
            TargetKind::Missing { path, .. } if !may_create() => {
                return Err(refused(TargetError::Missing { path }));
            }
            _ => (None, true),
        },
    )
}

fn size(ask: &Ask<'_>) -> Result<Bytes, Failure> {
    if let Some(size) = ask.size {
        if size.0 < 1 << 20 {
            return Err(refused(anyhow::anyhow!(
                "--size: {size} is too small to measure: expected 1m or more"
            )));
        }
        return Ok(size);
    }
    let path = Path::new(ask.target);
    let free = if path.is_dir() && !ask.is_elsewhere() {
        space(path).map(|s| s.fits_bytes).unwrap_or(u64::MAX)
    } else {
        u64::MAX
    };
    Ok(ask.profile.scratch_size(free))
}

/// Scratch files of killed runs are named, with the command that removes them.
pub(crate) fn mention_leftovers(target: &str) {
    let dir = Path::new(target);
    let places = fathom_system::lab_dir::search(dir)
        .unwrap_or_default()
        .abandoned;
    if !places.is_empty() {
        say!(
            "fathom: {} director{} of killed labs here; remove with: fathom clean {}",
            places.len(),
            if places.len() == 1 { "y" } else { "ies" },
            dir.display()
        );
    }
    let Ok(found) = fathom_host::leftovers(dir) else {
        return;
    };
    if !found.is_empty() {
        let bytes: u64 = found.iter().map(|l| l.size_bytes).sum();
        say!(
            "fathom: {} scratch file(s) of killed runs hold {} here; remove them with: fathom clean {}",
            found.len(),
            Bytes(bytes),
            dir.display()
        );
    }
}
