//! `fathom fio …`: fio's command line and job files in, fio's output out, fathom's driver between.

mod aggregate;
mod clients;
mod disks;
mod eta;
mod files;
mod held;
mod idle;
mod names;
mod permits;
mod ramp;
mod results;
mod run;
mod sim;
mod trigger;
mod watcher;

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fathom_files::Output;
use fathom_fio::options::{self, EngineFate, Fate};
use fathom_fio::output::{self, is_output};
use fathom_fio::{FioError, Format, Invocation, Purpose, Task, plan, to_toml};
use fathom_telemetry::say;

use self::clients::Clients;
use crate::exit::{DONE, Failure, Outcome, failed, refused};
use crate::screen;

/// fio's exit code of a run that a signal ended.
const INTERRUPTED: u8 = 128;

/// A script that fio would not take either ends as it does there; one that fathom refuses, with fathom's code.
fn rejected(e: FioError) -> Failure {
    match e {
        FioError::Unsupported { .. } => refused(e),
        e => failed(e),
    }
}

/// Where clap has read the arguments.
pub(crate) fn of(args: &crate::cli::FioArgs) -> Outcome {
    fio(&args.args)
}

/// `args` are what follows the program's name.
pub(crate) fn fio(args: &[String]) -> Outcome {
    if args == [clients::AGENT] {
        return clients::agent();
    }
    if let Some(clients) = Clients::of(args)? {
        return clients.run();
    }
    let mut it = Invocation::parse(args).map_err(rejected)?;
    if matches!(it.purpose, Purpose::Run | Purpose::MergeOnly) {
        let outputs = it.outputs();
        it.script.merge_traces(&outputs).map_err(rejected)?;
    }
    if it.parse {
        screen::print(&it.parsing());
    }
    match &it.purpose {
        Purpose::Help => screen::print(HELP),
        Purpose::Version => screen::print(&format!("{}\n", fathom_fio::output::FIO_VERSION)),
        Purpose::OptionHelp(name) => screen::print(&option_help(name.as_deref())?),
        Purpose::EngineHelp => screen::print(&engine_help()),
        Purpose::Checksums(which) => screen::print(&checksums(which)?),
        Purpose::Clock => screen::print(&clock_test()),
        Purpose::Inflate(path) => {
            let text = output::inflate(path).map_err(|e| failed(output::named(path, e)))?;
            screen::print(&text);
        }
        // Like fio, this judges options one by one; what they mean together shows in a run.
        Purpose::ParseOnly | Purpose::MergeOnly => {}
        Purpose::ShowCommand => screen::print(&(it.script.command_line() + "\n")),
        Purpose::Convert => {
            let tasks = plan(&it.script).map_err(refused)?;
            screen::print(&to_toml(&tasks).map_err(refused)?);
        }
        Purpose::Run => return run(&it),
    }
    Ok(DONE)
}

fn run(it: &Invocation) -> Outcome {
    it.script.cross_check(it.read_only).map_err(rejected)?;
    if it.trigger.remote.is_some() {
        let why = "--trigger-remote is for the hosts of --client: expected --trigger";
        return Err(rejected(FioError::Usage(why.into())));
    }
    let tasks = plan(&it.script).map_err(rejected)?;
    unsupported(&tasks, it.lenient)?;
    let answer = Answer::begin(it)?;
    // What cannot be written is refused before anything is made, and before anything runs.
    let outputs = it.outputs();
    for task in &tasks {
        outputs.check(task).map_err(refused)?;
    }
    if it.bandwidth_log {
        aggregate::check(&outputs).map_err(refused)?;
    }
    let (text, code) = match sim::model(&tasks)? {
        Some(model) => {
            let done = sim::run(it, &tasks, model)?;
            answer.head(it, &tasks)?;
            done
        }
        None => run::run(it, &tasks, &answer)?,
    };
    answer.say(&text)?;
    Ok(code)
}

/// Where the output goes: the screen, or a file that keeps what it held until there is something to be said.
struct Answer(Option<Mutex<Output>>);

impl Answer {
    fn begin(it: &Invocation) -> Result<Self, Failure> {
        let named = it.output.as_deref().filter(|p| *p != Path::new("-"));
        let Some(path) = named else {
            return Ok(Self(None));
        };
        let out = it.outputs().create(path, is_output).map_err(refused)?;
        Ok(Self(Some(Mutex::new(out))))
    }

    /// What is said before the jobs begin: prints it, or keeps it until the file has its place.
    fn head(&self, it: &Invocation, tasks: &[Task]) -> Result<(), Failure> {
        if !it.formats.contains(&Format::Normal) {
            return Ok(());
        }
        let text = fathom_fio::output::head(tasks);
        let Some(out) = &self.0 else {
            screen::print(&text);
            return Ok(());
        };
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())
            .map_err(|e| failed(output::named(out.path(), e)))
    }

    /// Prints, or adds to the file, which has its place from then on.
    fn say(&self, text: &str) -> Result<(), Failure> {
        let Some(out) = &self.0 else {
            screen::print(text);
            return Ok(());
        };
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(text.as_bytes())
            .and_then(|()| out.publish())
            .map_err(|e| failed(output::named(out.path(), e)))
    }
}

/// Options without which the script would be another one: an error, or a word with `--lenient`.
fn unsupported(tasks: &[Task], lenient: bool) -> Result<(), Failure> {
    let mut said = Vec::new();
    for e in tasks.iter().flat_map(|t| &t.shape.ignored) {
        if !lenient {
            return Err(refused(anyhow::anyhow!("{e}; --lenient runs without it")));
        }
        if !said.contains(&e) {
            say!("fathom: ignored: {e}");
            said.push(e);
        }
    }
    if lenient {
        let mut said = Vec::new();
        for line in tasks.iter().flat_map(|t| &t.shape.accepted) {
            if !said.contains(&line) {
                say!("fathom: changes nothing: {line}");
                said.push(line);
            }
        }
    }
    Ok(())
}

fn option_help(name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        let o = options::find(name).ok_or_else(|| {
            refused(anyhow::anyhow!(
                "fio has no option '{name}': fathom fio --cmdhelp lists them"
            ))
        })?;
        return Ok(format!(
            "{:>20}: {}\n{:>20}: {}\n{:>20}: {:?}\n{:>20}: {}\n",
            o.name,
            o.note,
            "alias",
            if o.alias.is_empty() { "none" } else { o.alias },
            "type",
            o.kind,
            "default",
            if o.default.is_empty() {
                "no default"
            } else {
                o.default
            }
        ));
    }
    Ok(options::all()
        .map(|o| {
            let fate = match o.fate {
                Fate::Mapped => "maps to",
                Fate::Harmless => "accepted:",
                Fate::Refused => "refused:",
            };
            format!("{:<28} {fate} {}\n", o.name, o.note)
        })
        .collect())
}

/// How fast the checksums of `verify` are, in fio's lines.
fn checksums(which: &str) -> Result<String, Failure> {
    let found = fathom_fio::checksum_speeds(which);
    if found.is_empty() {
        return Err(failed(anyhow::anyhow!(
            "there is no checksum '{which}': expected one such as md5, crc32c or sha256"
        )));
    }
    let line = |(name, speed): (&str, f64)| {
        format!("{name}:\t{:8.2} MiB/sec\n", speed / f64::from(1 << 20))
    };
    Ok(found.into_iter().map(line).collect())
}

/// Whether the processor's time-stamp counter can be relied on, in fio's words.
fn clock_test() -> String {
    let reliable = fathom_io::clock::Clock::new().is_counter();
    let word = if reliable { "yes" } else { "no" };
    format!("cs: reliable_tsc: {word}\ncs: Pass!\n")
}

fn engine_help() -> String {
    options::ENGINES
        .iter()
        .map(|(name, fate)| {
            let what = match fate {
                EngineFate::Sync => "preadv",
                EngineFate::Async => "uring",
                EngineFate::Null => "null",
                EngineFate::Calls | EngineFate::Apart => {
                    return format!("{name:<16} as in fio\n");
                }
                EngineFate::Missing => return format!("{name:<16} not available\n"),
            };
            format!("{name:<16} fathom's {what}\n")
        })
        .collect()
}

const HELP: &str = "\
fathom fio [OPTIONS] [JOBFILE...]     fio's options and job files, fio's output

  --name=JOB --OPTION=VALUE ...       a job on the command line; options before the first job hold for all
  --output-format=FORMATS             normal, terse, json, json+ (several with commas); --minimal is terse
  --output=FILE                       write the output there
  --section=NAME                      only this section of the job files (may be repeated)
  --parse-only, --showcmd             check the jobs; print them as a command line
  --convert                           print the jobs as fathom's TOML
  --client=HOST[,HOST]|FILE           run the jobs there (what follows, up to the next --client), and sum them up
  --status-interval=TIME              print what was measured so far at this distance
  --eta=always|never|auto             progress on standard error
  --readonly                          refuse jobs that write
  --cmdhelp[=OPTION], --enghelp       options and engines, and what becomes of each
  --idle-prof=system|percpu           how idle the processors were
  --trigger-file=FILE, --trigger-timeout=TIME, --trigger=COMMAND
                                      end the jobs when FILE appears or TIME is over, then run COMMAND
  --trigger-remote=COMMAND            with --client: the same on every host

Of fathom's own:
  --lenient                           go on without options that are not supported, and say so
  --overwrite-output                  outputs and logs replace whatever file has their name; without it only
                                      empty ones, outputs of the same kind, and what fathom wrote
  --destroy=SERIAL                    the block device with this serial number (or path, where it has
                                      none) may be overwritten
  --size-cap=SIZE, --time-cap=TIME    no job larger or longer than this
  --client-via=LAUNCHER               what reaches the hosts of --client: ssh, srun, kubectl, mpirun or
                                      'PROGRAM … {host} …'
  --client-fathom=PATH                fathom as it is there; without it this one is carried there

filename=sim:MODEL runs the jobs on a model (fathom sim list).

Nothing is destroyed: writes go to files that fathom made, to a device named after --destroy, or to what the
environment variable FATHOM_FIO_WRITE names: full paths of files, and devices as after --destroy, colons between.
Random jobs do the I/O of fio 3.35 and later; FATHOM_FIO_SEEDS=3.33 asks for the offsets of an older one.
Exit codes are fio's: 0 done, 1 it failed or the script is wrong, 128 a signal ended it; and 2: refused for safety,
or not supported.
";
