//! Another command of fathom as a process of its own: it opens, guards and clears what it works on by itself, and keeps
//! a run. A signal to us is passed on; it does not outlive us.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fathom_io::Control;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::announce::Announced;

/// Runs `fathom WORDS --out OUT` and opens the run that it names in its JSON: whatever else is measured meanwhile, it is
/// its own. What it says is repeated.
///
/// # Errors
/// Its last words, where it kept no run.
pub(super) fn run(
    words: &[String],
    out: &Path,
    control: &Control,
) -> Result<(Run, RunDir), String> {
    #[derive(Deserialize)]
    struct Answer {
        run_directory: PathBuf,
    }
    let out = ["--out".into(), out.as_os_str().to_owned()];
    let (answer, last) = asked::<Answer>(words, &out, true, control)?;
    match answer.and_then(|a| RunDir::open(&a.run_directory).ok()) {
        Some((dir, run)) => Ok((run, dir)),
        None => Err(last),
    }
}

/// What `fathom WORDS` would take; nothing is made or measured.
///
/// # Errors
/// Its last words, where it refuses.
pub(super) fn foreseen(words: &[String], control: &Control) -> Result<Announced, String> {
    let (answer, last) = asked(words, &["--dry-run".into()], false, control)?;
    answer.ok_or(last)
}

/// Its JSON, where it said what was expected, and its last words. Where it `tells`, what it says is repeated.
fn asked<T: DeserializeOwned + Send>(
    words: &[String],
    more: &[OsString],
    tells: bool,
    control: &Control,
) -> Result<(Option<T>, String), String> {
    let say = |e: std::io::Error| e.to_string();
    let mut command = Command::new(std::env::current_exe().map_err(say)?);
    command.args(words).args(more);
    if !words.iter().any(|w| w == "--json") {
        command.arg("--json");
    }
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    fathom_system::programs::bind(&mut command);
    let mut child = command.spawn().map_err(say)?;
    let (status, answer, last) = std::thread::scope(|scope| {
        let (answer, errors) = (child.stdout.take(), child.stderr.take());
        // Refused, its end of the pipe is closed: the child may go on without being heard.
        let reader = fathom_io::threads::within(scope, move || heard(errors, tells));
        let answer = fathom_io::threads::within(scope, move || read(answer));
        let status = wait(&mut child, control)?;
        let last = reader.map(|r| r.join().unwrap_or_default())?;
        Ok((status, answer?.join().unwrap_or_default(), last))
    })
    .map_err(say)?;
    match last.is_empty() {
        true => Ok((answer, format!("it ended with {status}"))),
        false => Ok((answer, last)),
    }
}

/// Its JSON; none where it was refused.
fn read<T: DeserializeOwned>(answer: Option<impl std::io::Read>) -> Option<T> {
    let mut text = Vec::new();
    answer?.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// As it would be typed.
pub(super) fn typed(words: &[String]) -> String {
    let quoted = |w: &String| {
        if w.contains(' ') {
            format!("\"{w}\"")
        } else {
            w.clone()
        }
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("fathom {}", words.join(" "))
}

/// Repeats what it says while it runs, where it `tells`; returns its last line.
fn heard(errors: Option<impl std::io::Read>, tells: bool) -> String {
    let mut last = String::new();
    let lines = errors.into_iter().flat_map(|e| BufReader::new(e).lines());
    for line in lines.map_while(Result::ok) {
        if tells {
            say!("{line}");
        }
        if !line.trim().is_empty() {
            last = line.trim_start_matches("fathom: ").to_owned();
        }
    }
    last
}

/// Waits; a signal to us is passed on, so that it ends its window and clears up.
fn wait(child: &mut Child, control: &Control) -> std::io::Result<ExitStatus> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if control.interrupted() && !told {
            told = true;
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
