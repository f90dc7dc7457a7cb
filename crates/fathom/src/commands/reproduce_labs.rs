//! Labs of a reproduction: each runs as the command that a user would type, keeps a run of its own, and its values go
//! beside the published ones.

use std::path::Path;

use fathom_bench::results::{Evidence, SavedHistograms};
use fathom_experiments::reproduce::{ReproduceOptions, Reproduction, Row};
use fathom_io::Control;
use fathom_labs::reproduce::{self as labs, Lab};
use fathom_labs::vm::within::SidesResult;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;

use super::child;
use crate::cli::ReproduceArgs;
use crate::exit::{Failure, refused};

/// Runs the labs whose values are missing, one after the other.
pub(super) fn run(
    args: &ReproduceArgs,
    simulated: bool,
    options: &ReproduceOptions,
    control: &Control,
    r: &mut Reproduction,
) {
    let Some(target) = args.on.first() else {
        return;
    };
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

/// Runs the labs that both targets have to run, one after the other.
pub(super) fn on_both(
    args: &ReproduceArgs,
    options: &ReproduceOptions,
    control: &Control,
    r: &mut Reproduction,
) {
    let [first, second] = args.on.as_slice() else {
        return;
    };
    for lab in labs::pairs(options, &r.rows) {
        let mut runs = Vec::new();
        for target in [first, second] {
            let command = child::typed(&lab.words(target));
            if args.no_labs || control.interrupted() {
                say!("fathom: not run: {command}");
                continue;
            }
            say!("fathom: {command}");
            match one(args, target, &lab, control) {
                Ok(run) => runs.push(run),
                Err(why) => say!("fathom: {command}: {why}"),
            }
        }
        let [(a, a_dir), (b, b_dir)] = runs.as_slice() else {
            continue;
        };
        let histograms = [a_dir, b_dir].map(|d| SavedHistograms::of_series(d.series_file()));
        let both = [
            &Evidence::new(a, &histograms[0]),
            &Evidence::new(b, &histograms[1]),
        ];
        let whence = format!(
            "fathom {}, runs {} and {}",
            a.command,
            a_dir.path().display(),
            b_dir.path().display()
        );
        labs::take_pair(both, &whence, &mut r.rows);
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
    let evidence = Evidence::new(run, &histograms);
    let mut taken = labs::take(paper, &evidence, false, &whence, rows);
    // Another lab in a machine has runs of its own, of which the first stands for them.
    let inside = evidence.result::<SidesResult>();
    let inside = inside.as_ref().and_then(SidesResult::first_inside);
    if let Some((dir, run)) = inside.and_then(|path| RunDir::open(Path::new(path)).ok()) {
        let histograms = SavedHistograms::of_series(dir.series_file());
        let whence = format!(
            "fathom {} in a machine, run {}",
            run.command,
            dir.path().display()
        );
        taken += labs::take(
            paper,
            &Evidence::new(&run, &histograms),
            true,
            &whence,
            rows,
        );
    }
    taken
}

/// The word that was typed for a target, of the first and the second.
pub(super) fn own<'a>(args: &'a ReproduceArgs, name: &str) -> Option<&'a String> {
    let at = args.on.iter().position(|t| t == name)?;
    // One word for two targets is either's: the rules say whose.
    args.destroy.get(at).or(args.destroy.first())
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
    if let Some(serial) = own(args, target) {
        put("--destroy", serial.clone());
    }
    // Arrays with another lab in them are made here.
    let elsewhere = !lab.arguments.iter().any(|a| a == "--lab");
    if (lab.command == "vm" || lab.command == "raid" && elsewhere)
        && let Some(path) = &args.guest.kernel
    {
        put("--kernel", path.display().to_string());
    }
    child::run(&words, &args.out.out, control)
}
