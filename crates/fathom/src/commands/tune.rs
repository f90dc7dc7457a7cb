//! `fathom tune`: one setting at a time, measured in pairs, proved on another job, and put back.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use fathom_bench::cpu::CpuSetting;
use fathom_experiments::tune::{self, Ground, Surroundings, TuneOptions};
use fathom_host::{TargetKind, may_overwrite, probe_target};
use fathom_sim::SimTarget;
use fathom_stack::settings;
use fathom_telemetry::say;

use super::measure::{Measuring, measure};
use crate::cli::{KeepSettingsArgs, TuneArgs};
use crate::exit::{DONE, FAILED, Failure, Outcome, refused};

pub(crate) fn tune(args: &TuneArgs) -> Outcome {
    let name = &args.measure.target;
    if let Some(kind) = args.measure.mkfs.kind {
        return Err(refused(anyhow::anyhow!(
            "--mkfs: tune sets what belongs to the target that it is given: name {name} without it, or a directory on {}",
            kind.name
        )));
    }
    let modifies = may_write(args);
    let ground = ground(name, modifies)?;
    // What a killed run left is not what this machine's owner chose: it is put back before anything is looked at.
    match &ground {
        Ground::Machine(_) if args.measure.dry_run => {
            for left in settings::leftovers() {
                say!("fathom: a killed run left {left}: it would be put back");
            }
        }
        Ground::Machine(_) => {
            for said in settings::restore_leftovers() {
                say!("fathom: {said}");
            }
        }
        Ground::Model(_) => {}
    }
    let ids = ground.ids();
    if let Some(unknown) = args
        .options
        .only
        .iter()
        .find(|o| !ids.contains(&o.as_str()))
    {
        let left_out = ground.left_out().into_iter();
        let why =
            left_out.filter_map(|l| Some(l.strip_prefix(&format!("{unknown}: "))?.to_owned()));
        let why: Vec<String> = why.collect();
        return Err(refused(if why.is_empty() {
            anyhow::anyhow!(
                "--only: '{unknown}' is nothing that is tried on {name}: expected {}",
                ids.join(", ")
            )
        } else {
            anyhow::anyhow!("--only {unknown}: not tried on {name}: {}", why.join("; "))
        }));
    }
    let options = TuneOptions {
        seed: args.measure.seed,
        ..args.options.clone()
    };
    let what = Measuring {
        name: "tune",
        args: &args.measure,
        modifies,
        cpu: CpuSetting::AsIs,
        recording: 0,
        on_hosts: false,
        on_zones: false,
    };
    // Before the first change: it outlives a process that is killed.
    let keeper = match &ground {
        Ground::Machine(_) if !args.measure.dry_run => Keeper::start(),
        _ => None,
    };
    let outcome = measure(
        &what,
        &|plan, fills| Ok(tune::run_cost(&ground, plan, &options, fills)?),
        |bench, plan, book, watcher| tune::run(bench, &ground, plan, &options, book, watcher),
    );
    drop(keeper);
    outcome
}

/// Whether jobs may write: to what fathom makes or made, and to a device whose serial number was typed.
fn may_write(args: &TuneArgs) -> bool {
    let path = Path::new(&args.measure.target);
    match probe_target(path) {
        Ok(TargetKind::BlockDevice { .. }) => args.measure.destroy.is_some(),
        Ok(TargetKind::File { path, .. }) => may_overwrite(&path),
        _ => true,
    }
}

fn ground(name: &str, modifies: bool) -> Result<Ground, Failure> {
    if SimTarget::is_simulated(name) {
        let target = SimTarget::parse(name).map_err(refused)?;
        return Ok(Ground::Model(Box::new(target)));
    }
    if matches!(name, "null" | "null:") {
        return Err(refused(anyhow::anyhow!(
            "null: has no settings: name a directory, a file, a block device or sim:MODEL"
        )));
    }
    Ok(Ground::Machine(Surroundings::of(Path::new(name), modifies)))
}

/// A process of its own that puts settings back where this one is killed. What it needs stands in notes that are
/// written before each change, so that the next run, or `fathom clean`, can do the same where it was killed too.
struct Keeper(Child);

impl Keeper {
    fn start() -> Option<Self> {
        use std::os::unix::process::CommandExt;
        let program = std::env::current_exe().ok()?;
        let child = Command::new(program)
            .args(["keep-settings", &std::process::id().to_string()])
            // Signals to the terminal's group are not for it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(e) => {
                say!("fathom: nobody watches over the settings ({e}); after a kill: fathom clean");
                None
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The end of its input is the sign.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The far side of [`Keeper`]: waits for the end of the process that started it.
pub(crate) fn keep_settings(args: &KeepSettingsArgs) -> Outcome {
    let ignored = std::sync::Arc::default();
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        let flag: std::sync::Arc<std::sync::atomic::AtomicBool> = std::sync::Arc::clone(&ignored);
        signal_hook::flag::register(signal, flag).map_err(refused)?;
    }
    let mut sink = std::io::sink();
    let _ = std::io::copy(&mut std::io::stdin(), &mut sink);
    // A killed process ends its last system call first, and its I/O holds a file system for a moment.
    for _ in 0..100 {
        settings::restore_leftovers();
        if !settings::has_notes(args.pid) {
            return Ok(DONE);
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(FAILED)
}
