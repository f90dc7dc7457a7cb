//! fio's command line: job options, job files, and where the output goes.

use std::path::PathBuf;
use std::time::Duration;

use crate::jobfile::{Script, expand, parse_job_file};
use crate::options::value;
use crate::output::Outputs;
use crate::section::Section;
use crate::{FioError, options};

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Run the jobs.
    Run,
    /// `--parse-only`.
    ParseOnly,
    /// `--showcmd`: print the jobs as a command line.
    ShowCommand,
    /// `--convert`: print the jobs as fathom's TOML.
    Convert,
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `--cmdhelp`: all options, or one.
    OptionHelp(Option<String>),
    /// `--enghelp`.
    EngineHelp,
    /// `--merge-blktrace-only`: merge traces and do no I/O.
    MergeOnly,
    /// `--crctest`: how fast checksums are, all or these.
    Checksums(String),
    /// `--cpuclock-test`.
    Clock,
    /// `--inflate-log`: the text of a compressed log.
    Inflate(PathBuf),
}

/// A form of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Normal,
    /// Semicolons, version 3.
    Terse,
    /// JSON.
    Json,
    /// JSON with histograms.
    JsonPlus,
}

impl Format {
    fn named(word: &str) -> Option<Self> {
        Some(match word {
            "normal" => Self::Normal,
            "terse" | "minimal" => Self::Terse,
            "json" => Self::Json,
            "json+" => Self::JsonPlus,
            _ => return None,
        })
    }
}

/// A whole command line.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// What to do.
    pub purpose: Purpose,
    /// The jobs.
    pub script: Script,
    /// Forms of output, in order.
    pub formats: Vec<Format>,
    /// File that receives the output.
    pub output: Option<PathBuf>,
    /// Intermediate output at this distance.
    pub status_interval: Option<Duration>,
    /// Progress on standard error: `Some(true)` always, `Some(false)` never.
    pub eta: Option<bool>,
    /// Refuse to write at all.
    pub read_only: bool,
    /// Go on where an option is not supported, and say so.
    pub lenient: bool,
    /// Outputs replace whatever file is in their place.
    pub overwrite_output: bool,
    /// Identity of the block device whose data may be destroyed.
    pub destroy: Option<String>,
    /// Files and amounts get no larger than this.
    pub size_cap: Option<u64>,
    /// Jobs get no longer than this.
    pub time_cap: Option<Duration>,
    /// Version of the terse form.
    pub terse_version: u32,
    /// Terse in the same output after JSON or text.
    pub append_terse: bool,
    /// Logs of bandwidth over all jobs.
    pub bandwidth_log: bool,
    /// Directory for logs and other files.
    pub aux_path: Option<PathBuf>,
    /// `--debug=random`: the seeds of the jobs stand before the output.
    pub seeds: bool,
    /// `--debug=io`: each I/O is said when it is complete.
    pub ios: bool,
    /// `--debug=parse`: what was read stands first of all.
    pub parse: bool,
    /// `--trigger-file`, `--trigger-timeout`, `--trigger`: what ends the run, and what is done then.
    pub trigger: Trigger,
    /// Idle share of the processors: of the system, or of each (`true`).
    pub idle: Option<bool>,
    /// `--profile=act`: latencies are judged hour by hour, for so long.
    pub judged: Option<Duration>,
}

/// Ends the run when a file appears or a time is over, and then hands a line to the shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trigger {
    /// It appears.
    pub file: Option<PathBuf>,
    /// Time since the beginning of the run.
    pub timeout: Option<Duration>,
    /// For the shell, once the jobs are told to end.
    pub command: Option<String>,
    /// The same on every host of `--client`.
    pub remote: Option<String>,
}

/// Options of the program: name, whether a value is needed.
const PROGRAM: &[(&str, bool)] = &[
    ("output", true),
    ("output-format", true),
    ("minimal", false),
    ("append-terse", false),
    ("version", false),
    ("help", false),
    ("cmdhelp", false),
    ("enghelp", false),
    ("showcmd", false),
    ("readonly", false),
    ("eta", true),
    ("eta-newline", true),
    ("eta-interval", true),
    ("status-interval", true),
    ("parse-only", false),
    ("section", true),
    ("alloc-size", true),
    ("warnings-fatal", false),
    ("max-jobs", true),
    ("terse-version", true),
    ("aux-path", true),
    ("convert", false),
    ("lenient", false),
    ("overwrite-output", false),
    ("destroy", true),
    ("size-cap", true),
    ("time-cap", true),
    ("runtime-cap", true),
    // Known, and refused by name below.
    ("server", false),
    ("daemonize", true),
    ("remote-config", true),
    ("profile", true),
    ("debug", true),
    ("trigger-file", true),
    ("trigger-timeout", true),
    ("trigger", true),
    ("trigger-remote", true),
    ("idle-prof", true),
    ("inflate-log", true),
    ("cpuclock-test", false),
    ("crctest", false),
    ("memcpytest", false),
    ("merge-blktrace-only", false),
    ("latency-log", true),
    ("bandwidth-log", false),
];

/// The one option that begins like this, as getopt finds it; the name itself where it is whole or unknown.
fn full_name(name: &str) -> Result<&str, FioError> {
    let known = |n: &str| PROGRAM.iter().any(|p| p.0 == n) || options::find(n).is_some();
    if known(name) {
        return Ok(name);
    }
    // What fio has not must be written out, so that what is short there is not ambiguous here.
    const OWN: [&str; 6] = [
        "convert",
        "lenient",
        "destroy",
        "size-cap",
        "time-cap",
        "runtime-cap",
    ];
    let jobs = options::all().flat_map(|o| [o.name, o.alias]);
    let program = PROGRAM.iter().map(|p| p.0).filter(|n| !OWN.contains(n));
    let mut all: Vec<&'static str> = program
        .chain(jobs)
        .filter(|n| n.starts_with(name))
        .collect();
    all.sort_unstable();
    all.dedup();
    match all[..] {
        [] => Ok(name),
        [one] => Ok(one),
        _ => Err(FioError::Usage(format!(
            "--{name} is ambiguous: it may be --{}",
            all.join(", --")
        ))),
    }
}

impl Invocation {
    /// Nothing was asked for yet.
    fn of_defaults() -> Self {
        Self {
            purpose: Purpose::Run,
            script: Script::default(),
            formats: Vec::new(),
            output: None,
            status_interval: None,
            eta: None,
            read_only: false,
            lenient: false,
            overwrite_output: false,
            destroy: None,
            size_cap: None,
            time_cap: None,
            terse_version: 3,
            append_terse: false,
            bandwidth_log: false,
            aux_path: None,
            seeds: false,
            ios: false,
            parse: false,
            trigger: Trigger::default(),
            idle: None,
            judged: None,
        }
    }

    /// Reads arguments, the program's name left out, and the job files that they name.
    pub fn parse(args: &[String]) -> Result<Self, FioError> {
        let mut it = Self::of_defaults();
        let mut files = Vec::new();
        let mut sections: Vec<String> = Vec::new();
        let mut job: Option<Job> = None;
        let profile = crate::profile::expanded(args)?;
        it.judged = profile.judged;
        let mut args = profile.args.iter().peekable();
        while let Some(arg) = args.next() {
            let Some(body) = arg
                .strip_prefix("--")
                .or_else(|| arg.strip_prefix('-').filter(|b| !b.is_empty()))
            else {
                files.push(PathBuf::from(arg));
                continue;
            };
            if body.is_empty() {
                files.extend(args.by_ref().map(PathBuf::from));
                break;
            }
            let (name, mut value) = match body.split_once('=') {
                Some((n, v)) => (n, Some(v.to_owned())),
                None => (body, None),
            };
            let name = match name {
                "o" => "output",
                "h" => "help",
                "v" => "version",
                other => full_name(other)?,
            };
            if let Some((_, wants)) = PROGRAM.iter().find(|p| p.0 == name) {
                if *wants && value.is_none() {
                    value = args.next().cloned();
                }
                let text = value.clone().unwrap_or_default();
                if *wants && text.is_empty() {
                    return Err(FioError::Usage(format!("--{name} needs a value")));
                }
                match name {
                    "section" => sections.push(text),
                    _ => it.program(name, &text)?,
                }
                continue;
            }
            // A job's option. Flags take a value only after '='.
            let flag = options::find(name).is_some_and(|o| o.kind == options::Kind::Flag);
            if value.is_none() && !flag {
                value = args.next().cloned();
            }
            let value = value.map(|v| expand(&v));
            if name == "name" {
                if let Some(j) = job.take() {
                    j.close(&mut it.script, &sections)?;
                }
                job = Some(Job::named(&it.script, value.unwrap_or_default())?);
                continue;
            }
            job.get_or_insert_with(|| Job::global(it.script.job("global")))
                .set(name, value)?;
        }
        if let Some(j) = job.take() {
            j.close(&mut it.script, &sections)?;
        }
        for file in &files {
            parse_job_file(&mut it.script, file, &sections)?;
        }
        it.complete()
    }

    /// With what holds where nothing was said; refuses a run without jobs.
    fn complete(mut self) -> Result<Self, FioError> {
        if self.formats.is_empty() {
            self.formats.push(Format::Normal);
        }
        if self.append_terse && !self.formats.contains(&Format::Terse) {
            self.formats.push(Format::Terse);
        }
        let needs_jobs = matches!(
            self.purpose,
            Purpose::Run | Purpose::MergeOnly | Purpose::Convert | Purpose::ShowCommand
        );
        if needs_jobs && self.script.sections.is_empty() {
            return Err(FioError::Usage(
                "no jobs: name a job file, or give --name=JOB with its options (fathom fio --cmdhelp lists them)".into(),
            ));
        }
        Ok(self)
    }

    /// The jobs and what belongs to them as a command line for the host of this name; what the output looks like is not
    /// in it. As in fio, files of a directory that hosts may share begin with the host's name, unless `unique_filename=0`.
    pub fn arguments(&self, host: &str) -> Vec<String> {
        let mut out = Vec::new();
        for (given, name) in [
            (self.read_only, "--readonly"),
            (self.lenient, "--lenient"),
            (self.overwrite_output, "--overwrite-output"),
            (self.bandwidth_log, "--bandwidth-log"),
        ] {
            if given {
                out.push(name.to_owned());
            }
        }
        let mut add = |name: &str, value: Option<String>| {
            if let Some(v) = value {
                out.push(format!("--{name}={v}"));
            }
        };
        add("destroy", self.destroy.clone());
        add("size-cap", self.size_cap.map(|n| n.to_string()));
        add(
            "time-cap",
            self.time_cap.map(|t| format!("{}ms", t.as_millis())),
        );
        add(
            "aux-path",
            self.aux_path.as_ref().map(|p| p.display().to_string()),
        );
        for s in &self.script.sections {
            out.push(format!("--name={}", s.own_name()));
            if s.wall {
                out.push("--stonewall".to_owned());
            }
            for set in &s.settings {
                match (set.option.name, &set.value) {
                    ("name", _) => {}
                    (name, None) => out.push(format!("--{name}")),
                    (name, Some(v)) => out.push(format!("--{name}={v}")),
                }
            }
            if s.has("directory") && !s.has("filename") && s.flag("unique_filename", true) {
                let format = s.text("filename_format");
                let format = format.unwrap_or("$jobname.$jobnum.$filenum");
                let format = if format.contains("$clientuid") {
                    format.replace("$clientuid", host)
                } else {
                    format!("{host}.{format}")
                };
                out.push(format!("--filename_format={format}"));
            }
        }
        out
    }

    /// Where its files go, and what they may replace.
    pub fn outputs(&self) -> Outputs {
        Outputs {
            directory: self.aux_path.clone(),
            overwrite: self.overwrite_output,
            ..Outputs::default()
        }
    }

    /// What `--debug=parse` says, in fio's words: every option that was read, and the threshold of a steady state.
    pub fn parsing(&self) -> String {
        if !self.parse {
            return String::new();
        }
        let pid = std::process::id();
        let mut out = "fio: set debug option parse\n".to_owned();
        let sections = self.script.sections.iter().map(|s| &s.settings);
        let none = self.script.sections.is_empty();
        for set in sections
            .chain(none.then_some(&self.script.globals))
            .flatten()
        {
            let name = set.option.name;
            let text = set.value.as_deref().unwrap_or("");
            out += &format!("parse    {pid} handle_option={name}, ptr={text}\n");
            if let Some(said) = (name == "steadystate").then(|| threshold(text)).flatten() {
                out += &format!("parse    {pid} set steady state {said}\n");
            }
        }
        out
    }

    fn program(&mut self, name: &str, text: &str) -> Result<(), FioError> {
        let bad = |expected| not_possible(name, text, expected);
        let duration = || {
            value::micros(text, true)
                .filter(|us| *us > 0)
                .map(Duration::from_micros)
                .ok_or_else(|| bad("a duration such as 10s"))
        };
        if let Some(purpose) = instead(name, text) {
            self.purpose = purpose;
            return Ok(());
        }
        match name {
            "server" | "daemonize" | "remote-config" | "memcpytest" | "latency-log" => {
                return Err(not_supported(name));
            }
            "output" => self.output = Some(PathBuf::from(text)),
            "output-format" => {
                for word in text.split(',') {
                    let format = Format::named(word.trim());
                    self.formats
                        .push(format.ok_or_else(|| bad("normal, terse, json or json+"))?);
                }
            }
            "minimal" => self.formats.push(Format::Terse),
            "append-terse" => self.append_terse = true,
            "terse-version" => match text {
                "2" | "3" | "4" | "5" => self.terse_version = text.parse().unwrap_or(3),
                _ => return Err(bad("2, 3, 4 or 5")),
            },
            "debug" => {
                for word in text.split(',') {
                    self.debug(word).ok_or_else(|| {
                        bad("io, parse, random or zbd: other words of fio's debugging are not available")
                    })?;
                }
            }
            "readonly" => self.read_only = true,
            "lenient" => self.lenient = true,
            "overwrite-output" => self.overwrite_output = true,
            "destroy" => self.destroy = Some(text.to_owned()),
            "eta" => {
                self.eta = match text {
                    "always" => Some(true),
                    "never" => Some(false),
                    "auto" => None,
                    _ => return Err(bad("always, never or auto")),
                }
            }
            "status-interval" => self.status_interval = Some(duration()?),
            "time-cap" | "runtime-cap" => self.time_cap = Some(duration()?),
            "size-cap" => match value::number(text, 1024) {
                Some(value::Quantity::Plain(v)) if v > 0 => self.size_cap = Some(v as u64),
                _ => return Err(bad("a size such as 8m")),
            },
            "idle-prof" => {
                self.idle = match text {
                    "none" | "calibrate" => None,
                    "system" => Some(false),
                    "percpu" => Some(true),
                    _ => return Err(bad("none, system or percpu")),
                }
            }
            "trigger-file" => self.trigger.file = Some(PathBuf::from(text)),
            "trigger-timeout" => self.trigger.timeout = Some(duration()?),
            "trigger" => self.trigger.command = Some(text.to_owned()),
            "trigger-remote" => self.trigger.remote = Some(text.to_owned()),
            "bandwidth-log" => self.bandwidth_log = true,
            "aux-path" => self.aux_path = Some(PathBuf::from(text)),
            // Nothing to do: progress goes where it goes, there are no limits to raise.
            _ => {}
        }
        Ok(())
    }

    /// One word of `--debug`; `None` where it is not available.
    fn debug(&mut self, word: &str) -> Option<()> {
        match word {
            "random" => self.seeds = true,
            "parse" => self.parse = true,
            "io" => self.ios = true,
            // What becomes of zones stands in the results.
            "zbd" => {}
            _ => return None,
        }
        Some(())
    }
}

/// An option of the program with a value that it cannot have.
fn not_possible(name: &str, text: &str, expected: &str) -> FioError {
    FioError::Usage(format!(
        "--{name}: '{text}' is not possible: expected {expected}"
    ))
}

/// What is done instead of measuring, where an option asks for that.
fn instead(name: &str, text: &str) -> Option<Purpose> {
    Some(match name {
        "version" => Purpose::Version,
        "help" => Purpose::Help,
        "cmdhelp" => {
            Purpose::OptionHelp(Some(text.to_owned()).filter(|t| !t.is_empty() && t != "all"))
        }
        "enghelp" => Purpose::EngineHelp,
        "crctest" => Purpose::Checksums(text.to_owned()),
        "cpuclock-test" => Purpose::Clock,
        "inflate-log" => Purpose::Inflate(PathBuf::from(text)),
        "showcmd" => Purpose::ShowCommand,
        "parse-only" => Purpose::ParseOnly,
        "merge-blktrace-only" => Purpose::MergeOnly,
        "convert" => Purpose::Convert,
        _ => return None,
    })
}

fn not_supported(name: &str) -> FioError {
    let instead = match name {
        "server" | "daemonize" => {
            "nothing needs to listen, --client=HOST starts fathom there by ssh (or --client-via)"
        }
        _ => "run the jobs on this machine, without it",
    };
    FioError::Usage(format!("--{name} is not supported: {instead}"))
}

/// The threshold of a steady state as fio writes it.
fn threshold(text: &str) -> Option<String> {
    let (what, limit) = text.split_once(':')?;
    if limit.contains('%') {
        return Some(format!("threshold to {:.6}%", value::float(limit)?));
    }
    Some(match what.trim_end_matches("_slope") {
        "iops" => format!("IOPS threshold to {:.6}", value::float(limit)?),
        "lat" => {
            let ns = value::micros(limit, false)?.saturating_mul(1000);
            format!("latency threshold to {ns} nsec")
        }
        _ => match value::number(limit, 1024)? {
            value::Quantity::Plain(bytes) => format!("BW threshold to {bytes}"),
            _ => return None,
        },
    })
}

/// A job that is being read from the command line.
struct Job {
    section: Section,
    global: bool,
    strange: Option<FioError>,
}

impl Job {
    fn global(section: Section) -> Self {
        Self {
            section,
            global: true,
            strange: None,
        }
    }

    /// As `--name` begins it.
    fn named(script: &Script, name: String) -> Result<Self, FioError> {
        if name.is_empty() {
            return Err(FioError::Usage("--name needs a value".into()));
        }
        let mut job = Self::global(script.job(&name));
        job.global = name.starts_with("global");
        if !job.global {
            job.section.add("name", Some(name), false)?;
        }
        Ok(job)
    }

    fn set(&mut self, name: &str, value: Option<String>) -> Result<(), FioError> {
        match self.section.add(name, value, self.global) {
            Err(e @ FioError::Unknown { .. }) => {
                self.strange.get_or_insert(e);
                Ok(())
            }
            other => other,
        }
    }

    fn close(self, script: &mut Script, only: &[String]) -> Result<(), FioError> {
        let foreign = self.section.foreign_engine();
        if let Some(e) = self.strange
            && !foreign
        {
            return Err(e);
        }
        if self.global {
            script.globals = self.section.settings;
            script.has_global = true;
        } else if only.is_empty() || only.contains(&self.section.name) {
            if !foreign {
                self.section.check_engine_options(false)?;
            }
            script.sections.push(self.section);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Result<Invocation, FioError> {
        let list: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Invocation::parse(&list)
    }

    #[test]
    fn jobs_begin_with_their_name_and_options_before_it_are_global() {
        let i = args("--bs=8k --name=a --rw=read --name b --rw randread --time_based --runtime 3 --output-format=json,terse").unwrap();
        let [a, b] = &i.script.sections[..] else {
            panic!("two jobs");
        };
        assert_eq!((a.get("bs"), a.get("rw")), (Some("8k"), Some("read")));
        assert_eq!(
            (b.get("rw"), b.get("runtime")),
            (Some("randread"), Some("3"))
        );
        assert_eq!(i.formats, [Format::Json, Format::Terse]);
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let i = args("-name=a -rw=write -size=1m").unwrap();
        assert_eq!(i.script.sections[0].get("size"), Some("1m"));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(args("").unwrap_err().to_string().contains("no jobs"));
        assert!(
            args("--server --name=a")
                .unwrap_err()
                .to_string()
                .contains("--client=HOST starts fathom there")
        );
        assert!(
            args("--name=a --bsz=4k")
                .unwrap_err()
                .to_string()
                .contains("bsz")
        );
        assert!(
            args("--output-format=xml")
                .unwrap_err()
                .to_string()
                .contains("json+")
        );
    }
}
