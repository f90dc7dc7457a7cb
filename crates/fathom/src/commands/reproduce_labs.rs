//! Labs of a reproduction: each runs as the command that a user would type, keeps a run of its own, and its values go
//! beside the published ones.

use fathom_bench::results::{Evidence, SavedHistograms};
use fathom_experiments::reproduce::{ReproduceOptions, Reproduction, Row};
use fathom_io::Control;
use fathom_labs::reproduce::{self as labs, Lab};
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;

use super::child;
use crate::cli::ReproduceArgs;
use crate::exit::{Failure, refused};

/// Runs the labs whose values are missing, one after the other.
pub(super) fn run(
    args: &ReproduceArgs,
    (target, simulated): (&str, bool),
    options: &ReproduceOptions,
    control: &Control,
    r: &mut Reproduction,
) {
    for lab in labs::missing(options, &r.rows, simulated) {
        let command = child::typed(&lab.words(target));
        if args.no_labs || control.interrupted() {
            labs::excuse(
                &args.options.paper,
                lab.command,
                &format!("not run; {command} does"),
                &mut r.rows,
            );
            continue;
        }
        say!("fathom: {command}");
        match one(args, target, &lab, control) {
            Ok((run, dir)) => {
                take(&args.options.paper, &run, &dir, &mut r.rows);
                labs::excuse(
                    &args.options.paper,
                    lab.command,
                    &format!("see {}", dir.path().display()),
                    &mut r.rows,
                );
            }
            Err(why) => labs::excuse(&args.options.paper, lab.command, &why, &mut r.rows),
        }
    }
}

/// Values of runs that are there already (`--with`).
pub(super) fn with(args: &ReproduceArgs, rows: &mut [Row]) -> Result<(), Failure> {
    for path in &args.with {
        let (dir, run) = RunDir::open(path).map_err(refused)?;
        if take(&args.options.paper, &run, &dir, rows) == 0 {
            return Err(refused(anyhow::anyhow!(
                "--with {}: a run of fathom {} holds no value of {} that is missing here: expected one of {}",
                path.display(),
                run.command,
                args.options.paper,
                labs::of(&args.options.paper).join(", ")
            )));
        }
    }
    Ok(())
}

/// What a run gives; at how many values.
fn take(paper: &str, run: &Run, dir: &RunDir, rows: &mut [Row]) -> usize {
    let histograms = SavedHistograms::of_series(dir.series_file());
    let whence = format!("fathom {}, run {}", run.command, dir.path().display());
    labs::take(paper, &Evidence::new(run, &histograms), &whence, rows)
}

/// One lab in a process of its own.
fn one(
    args: &ReproduceArgs,
    target: &str,
    lab: &Lab,
    control: &Control,
) -> Result<(Run, RunDir), String> {
    let mut words = lab.words(target);
    let mut put = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if let Some(serial) = &args.destroy {
        put("--destroy", serial.clone());
    }
    // Arrays with another lab in them are made here.
    let elsewhere = !lab.arguments.iter().any(|a| a == "--lab");
    if ["raid", "vm"].contains(&lab.command)
        && elsewhere
        && let Some(path) = &args.guest.kernel
    {
        put("--kernel", path.display().to_string());
    }
    child::run(&words, &args.out.out, control)
}
