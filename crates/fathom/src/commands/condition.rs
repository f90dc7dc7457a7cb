//! `fathom condition`: brings a device into a known state, in pieces that can be resumed.

use fathom_bench::{Notebook, RunMeta};
use fathom_experiments::condition::{self, ConditionOptions};
use fathom_io::JobSpec;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};

use super::finish::{self, command_line};
use super::open::{Ask, Opened, foresee, open, profile};
use super::wear::{agree, endurance};
use crate::cli::ConditionArgs;
use crate::exit::{DONE, Failure, Outcome, refused};
use crate::progress::SurveyLine;
use crate::{screen, signals};

pub(crate) fn condition(args: &ConditionArgs) -> Outcome {
    let load = load(&args.until_steady)?;
    let profile = profile("full")?;
    let control = signals::control().map_err(refused)?;
    let ask = Ask {
        target: &args.target,
        profile: &profile,
        seed: args.seed,
        size: args.size,
        destroy: args.destroy.as_deref(),
        modifies: true,
        hosts: None,
    };
    let options = |range: Bytes| ConditionOptions {
        purge: !args.no_purge,
        passes: args.passes,
        fill: args.fill,
        overwrite: args.overwrite,
        deletes: args.deletes,
        idle: args.idle.unwrap_or(Nanos::ZERO),
        load: load.clone(),
        round: args.round,
        test: args.test,
        recovery: args.recovery.unwrap_or(Nanos::ZERO),
        range,
        seed: args.seed,
    };
    let (foreseen, _) = foresee(&ask)?;
    if args.dry_run {
        screen::print(&announcement(args, &options(Bytes(foreseen.size)), 0));
        return Ok(DONE);
    }
    // What a resumed run must agree with is checked before the target is opened for writing.
    let skip = match &args.resume {
        Some(path) => {
            let (_, run) = RunDir::open(path).map_err(refused)?;
            condition::completed(&run, &args.target, &options(Bytes(foreseen.size)))
                .map_err(|e| refused(anyhow::anyhow!(e)))?
        }
        None => 0,
    };
    let Opened {
        mut bench,
        limits,
        direct,
        environment,
        ..
    } = open(&ask, control)?;
    let about = bench.describe();
    if about.kind == "directory" {
        return Err(refused(anyhow::anyhow!(
            "{}: a scratch file is removed at the end, so nothing would stay conditioned: name a block device with --destroy, a file to be made (--size), or sim:MODEL",
            args.target
        )));
    }
    let options = options(Bytes(limits.size));
    say::text(&announcement(args, &options, skip));
    let simulated = bench.simulated() || about.kind == "null";
    agree(condition::run_cost(&options).written, simulated, &args.wear)?;
    let meta = RunMeta {
        name: "condition".into(),
        command: "condition".into(),
        command_line: command_line(),
        profile: None,
        seed: args.seed,
        labels: args.out.labels.given(),
        environment,
    };
    let mut book = Notebook::create(&args.out.out, meta, about, bench.simulated(), 0)?;
    let mut line = SurveyLine::new(0, Bytes(0));
    let measured = condition::run(&mut *bench, direct, &options, skip, &mut book, &mut line);
    line.clear();
    finish::finish(
        book,
        measured,
        bench,
        &args.out,
        fathom_report::terminal::summary,
    )
}

/// `rw=randwrite bs=4k qd=32` → options, each of them known.
fn load(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut spec = JobSpec::default();
    text.split_whitespace()
        .map(|word| {
            let (name, value) = word
                .trim_start_matches("--")
                .split_once('=')
                .ok_or_else(|| {
                    refused(anyhow::anyhow!(
                        "--until-steady: '{word}' is not possible: expected options such as \"rw=randwrite bs=4k qd=32\""
                    ))
                })?;
            spec.set(name, value)?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

fn announcement(args: &ConditionArgs, o: &ConditionOptions, skip: usize) -> String {
    let out = condition::run_cost(o);
    let load = if o.load.is_empty() {
        String::new()
    } else {
        format!(
            ", then '{}' until steady, at most {:.0} s",
            args.until_steady,
            out.time_at_most.as_secs_f64()
        )
    };
    let resumed = if skip > 0 {
        format!("; {skip} pieces are done already")
    } else {
        String::new()
    };
    let seconds = out.written.0 as f64 / 1e9 + o.idle.as_secs_f64();
    format!(
        "Conditioning {} in {} pieces: {} will be written, about {seconds:.0} s where the device takes 1 GB/s{load}{resumed}; {}\n",
        o.range,
        out.pieces,
        out.written,
        endurance(out.written, &args.wear)
    )
}
