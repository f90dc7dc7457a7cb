//! `--client=HOST`: the jobs on other hosts at once, each by a fathom of its own, and one output of all.
//!
//! What reaches a host is people's own launcher, as with `--hosts` elsewhere: nothing listens there, and nothing is left.

use std::io::{BufRead, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use fathom_fio::output::{Answer, several, several_text};
use fathom_fio::{Format, Invocation, Trigger};
use fathom_io::Control;
use fathom_io::clock::monotonic;
use fathom_system::fleet::{Fathom, Host, Via, launcher};
use fathom_system::programs;
use fathom_telemetry::{Nanos, say};

use crate::exit::{DONE, FAILED, Failure, Outcome, failed, refused};
use crate::signals;

/// What stands alone on an agent's command line.
pub(super) const AGENT: &str = "--client-agent";

/// How often waiting looks whether somebody asks for the end.
const LOOK: Duration = Duration::from_millis(20);
/// A host that was told to end has so long for its output.
const GRACE: Duration = Duration::from_secs(30);

/// A group of hosts and the arguments for them.
struct Part {
    hosts: Vec<Host>,
    launcher: &'static str,
    args: Vec<String>,
}

/// What `--client` asks for; `None` where it is not there.
pub(super) struct Clients {
    parts: Vec<Part>,
    via: Option<String>,
    fathom: Option<String>,
    /// For the output here.
    local: Vec<String>,
}

/// Options of the program that are about what is done here, with whether a value follows.
const LOCAL: [(&str, bool); 8] = [
    ("output", true),
    ("output-format", true),
    ("overwrite-output", false),
    ("minimal", false),
    ("trigger-file", true),
    ("trigger-timeout", true),
    ("trigger", true),
    ("trigger-remote", true),
];

/// What a host is told when the trigger is pulled.
const PULL: &str = "trigger";

/// The trigger here, until it is pulled, and since when its time counts.
type Pulling<'a> = (Mutex<Option<&'a Trigger>>, Nanos);

impl Clients {
    /// Splits a command line: what follows a `--client` is for that host (or those of a file with one per line), what
    /// stands before the first is for all, and several in a row share what follows.
    pub(super) fn of(args: &[String]) -> Result<Option<Self>, Failure> {
        let value = |arg: &str, name: &str| -> Option<Option<String>> {
            let body = arg.strip_prefix("--")?;
            match body.split_once('=') {
                Some((n, v)) if n == name => Some(Some(v.to_owned())),
                None if body == name => Some(None),
                _ => None,
            }
        };
        if !args.iter().any(|a| value(a, "client").is_some()) {
            return Ok(None);
        }
        let mut all = Self {
            parts: Vec::new(),
            via: None,
            fathom: None,
            local: Vec::new(),
        };
        let mut common = Vec::new();
        let mut waiting: Vec<String> = Vec::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut take = |name: &str| -> Option<Result<String, Failure>> {
                let given = value(arg, name)?;
                let given = given.or_else(|| rest.next().cloned());
                let none = || failed(anyhow!("--{name} needs a value"));
                Some(given.filter(|v| !v.is_empty()).ok_or_else(none))
            };
            if let Some(host) = take("client") {
                waiting.push(host?);
                continue;
            }
            if let Some(via) = take("client-via") {
                all.via = Some(via?);
                continue;
            }
            if let Some(path) = take("client-fathom") {
                all.fathom = Some(path?);
                continue;
            }
            if let Some((_, wants)) = LOCAL.iter().find(|(n, _)| value(arg, n).is_some()) {
                all.local.push(arg.clone());
                if *wants && !arg.contains('=') {
                    all.local.extend(rest.next().cloned());
                }
                continue;
            }
            if !waiting.is_empty() {
                all.begin(&mut waiting, &common)?;
            }
            match all.parts.last_mut() {
                Some(part) => part.args.push(arg.clone()),
                None => common.push(arg.clone()),
            }
        }
        if !waiting.is_empty() {
            all.begin(&mut waiting, &common)?;
        }
        Ok(Some(all))
    }

    fn begin(&mut self, waiting: &mut Vec<String>, common: &[String]) -> Result<(), Failure> {
        for text in waiting.drain(..) {
            let hosts = Host::parse(&text).map_err(fathom_labs::LabError::from)?;
            if let Some(host) = hosts.iter().find(|h| h.target.is_some()) {
                return Err(refused(anyhow!(
                    "--client={text}: the target of {} stands in its jobs, as filename=",
                    host.name
                )));
            }
            self.parts.push(Part {
                hosts,
                launcher: launcher(&text),
                args: common.to_vec(),
            });
        }
        Ok(())
    }

    /// Runs the jobs there and prints one output. Several `--client` in a row have the arguments of the last.
    pub(super) fn run(mut self) -> Outcome {
        let mut follows: Option<Vec<String>> = None;
        for part in self.parts.iter_mut().rev() {
            let bare = part
                .args
                .iter()
                .all(|a| !a.starts_with("--name") && a.starts_with('-'));
            match &follows {
                Some(args) if bare => part.args.clone_from(args),
                _ => follows = Some(part.args.clone()),
            }
        }
        // What a host would refuse for its words is refused before any is reached.
        let mut sent = Vec::new();
        for part in &self.parts {
            let it = Invocation::parse(&part.args).map_err(super::rejected)?;
            it.script
                .cross_check(it.read_only)
                .map_err(super::rejected)?;
            sent.push(it);
        }
        let mut local = vec!["--parse-only".to_owned()];
        local.extend(self.local.iter().cloned());
        let local = Invocation::parse(&local).map_err(super::rejected)?;
        if local.formats.contains(&Format::Terse) {
            return Err(refused(anyhow!(
                "terse output has no place for several hosts: choose json, json+ or normal"
            )));
        }
        let people = local.formats.contains(&Format::Normal);
        let control = signals::control().map_err(refused)?;
        let refuse = fathom_labs::LabError::from;
        let fathom = Fathom::find(self.fathom.as_deref()).map_err(refuse)?;
        let mut hosts = Vec::new();
        for (part, it) in self.parts.iter().zip(sent) {
            let via = Via::parse(self.via.as_deref().unwrap_or(part.launcher)).map_err(refuse)?;
            let words = ["fio", AGENT];
            let commands = fathom.commands(&via, &part.hosts, &words).map_err(refuse)?;
            for (host, command) in part.hosts.iter().zip(commands) {
                let mut args = it.arguments(&host.name);
                let format = if people { "normal,json+" } else { "json+" };
                args.push(format!("--output-format={format}"));
                args.push("--eta=never".to_owned());
                if let Some(line) = &local.trigger.remote {
                    args.push(format!("--trigger={line}"));
                }
                if let Some(destroy) = &host.destroy {
                    args.push(format!("--destroy={destroy}"));
                }
                hosts.push((host.name.clone(), command, args));
            }
        }
        let answer = super::Answer::begin(&local)?;
        let pulling = (Mutex::new(Some(&local.trigger)), monotonic());
        let (answers, codes) = all(&hosts, &control, &pulling);
        let whole = answers.len() == hosts.len();
        let mut text = String::new();
        for format in [Format::Json, Format::JsonPlus] {
            if local.formats.contains(&format) {
                let all = several(&answers, whole, format == Format::JsonPlus);
                text += &serde_json::to_string_pretty(&all).map_err(failed)?;
                text.push('\n');
            }
        }
        if people {
            text += &several_text(&answers, whole);
        }
        answer.say(&text)?;
        if control.interrupted() {
            return Ok(super::INTERRUPTED);
        }
        if !whole {
            return Err(failed(anyhow!(
                "{} of {} hosts answered: there is no sum of all",
                answers.len(),
                hosts.len()
            )));
        }
        Ok(codes.into_iter().max().unwrap_or(DONE))
    }
}

/// Runs them side by side. Who does not answer is named.
fn all(
    hosts: &[(String, Vec<String>, Vec<String>)],
    control: &Control,
    pulling: &Pulling<'_>,
) -> (Vec<Answer>, Vec<u8>) {
    let ended: Vec<Result<(Answer, u8), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .iter()
            .map(|(host, command, args)| {
                fathom_io::threads::within(scope, move || {
                    one(host, command, args, control, pulling)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| match t {
                Ok(t) => t
                    .join()
                    .unwrap_or_else(|_| Err("a thread broke off".into())),
                Err(e) => Err(e.to_string()),
            })
            .collect()
    });
    let mut answers = Vec::new();
    let mut codes = Vec::new();
    for ((host, ..), result) in hosts.iter().zip(ended) {
        match result {
            Ok((answer, code)) => {
                answers.push(answer);
                codes.push(code);
            }
            Err(why) => say!("fathom: client {host}: {why}"),
        }
    }
    (answers, codes)
}

fn one(
    host: &str,
    command: &[String],
    args: &[String],
    control: &Control,
    pulling: &Pulling<'_>,
) -> Result<(Answer, u8), String> {
    let text = |e: std::io::Error| e.to_string();
    let mut program = Command::new(&command[0]);
    programs::bind(&mut program);
    let mut child = program
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} could not be started: {e}", command[0]))?;
    let mut channel = child.stdin.take().ok_or("it has no channel")?;
    let words = serde_json::to_string(args).map_err(|e| e.to_string())?;
    let asked = writeln!(channel, "{words}").and_then(|()| channel.flush());
    // Both are read while it runs, so that it never waits for a reader.
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::Builder::new().spawn(move || {
            let mut all = Vec::new();
            if let Some(mut s) = stream {
                let _ = s.read_to_end(&mut all);
            }
            String::from_utf8_lossy(&all).into_owned()
        })
    };
    let said = read(child.stdout.take().map(|s| Box::new(s) as _)).map_err(text)?;
    let errors = read(child.stderr.take().map(|s| Box::new(s) as _)).map_err(text)?;
    let status = wait(&mut child, channel, control, pulling).map_err(text)?;
    let said = said.join().unwrap_or_default();
    let errors = errors.join().unwrap_or_default();
    for line in errors.lines() {
        say!("<{host}> {line}");
    }
    asked.map_err(|e| format!("it took no jobs: {e}"))?;
    // The head of the form for people stands before it.
    let begin = match said.starts_with('{') {
        true => Some(0),
        false => said.find("\n{\n").map(|at| at + 1),
    };
    let begin = begin.ok_or_else(|| format!("it ended with {status} and without results"))?;
    let mut documents = serde_json::Deserializer::from_str(&said[begin..]).into_iter();
    let document = documents.next().and_then(Result::ok);
    let document = document.ok_or("its results are cut off")?;
    let rest = &said[begin + documents.byte_offset()..];
    let code = status.code().and_then(|c| u8::try_from(c).ok());
    let answer = Answer {
        host: host.to_owned(),
        document,
        text: format!("{}{}", &said[..begin], rest.trim_start_matches('\n')),
    };
    Ok((answer, code.unwrap_or(FAILED)))
}

/// Waits for a host; its channel closes where somebody asks for the end, which ends its jobs.
fn wait(
    child: &mut Child,
    channel: std::process::ChildStdin,
    control: &Control,
    (trigger, begin): &Pulling<'_>,
) -> std::io::Result<std::process::ExitStatus> {
    let mut channel = Some(channel);
    let mut left = GRACE;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if control.interrupted() {
            channel = None;
            left = left.saturating_sub(LOOK);
            if left.is_zero() {
                child.kill()?;
                return child.wait();
            }
        }
        std::thread::sleep(LOOK);
        let (first, pulled) = {
            let mut waiting = trigger.lock().unwrap_or_else(PoisonError::into_inner);
            let first = waiting.take_if(|t| super::trigger::fires(t, *begin));
            (first, waiting.is_none())
        };
        if pulled && !told {
            told = true;
            // Who has ended needs not be told.
            if let Some(c) = &mut channel {
                let _ = writeln!(c, "{PULL}").and_then(|()| c.flush());
            }
        }
        if let Some(line) = first.and_then(|t| t.command.as_ref()) {
            super::trigger::command(line);
        }
    }
}

/// On a host: reads what to do from standard input, and ends the jobs when that closes.
pub(super) fn agent() -> Outcome {
    let mut words = String::new();
    let mut input = std::io::stdin().lock();
    input
        .read_line(&mut words)
        .map_err(|e| failed(anyhow!("no jobs came: {e}")))?;
    drop(input);
    let args: Vec<String> = serde_json::from_str(&words).map_err(|e| {
        failed(anyhow!(
            "--client-agent is started by --client of another fathom: {e}"
        ))
    })?;
    fathom_system::fleet::carry::forget();
    let watch = std::thread::Builder::new().spawn(|| {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == PULL {
                super::trigger::pulled();
            }
        }
        // Nobody wants the results any more.
        signals::end();
    });
    watch.map_err(|e| failed(anyhow!("a thread could not be started: {e}")))?;
    super::fio(&args)
}
