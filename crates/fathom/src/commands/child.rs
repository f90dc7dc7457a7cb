//! Another command of fathom as a process of its own: it opens, guards and clears what it works on by itself, and keeps
//! a run. A signal to us is passed on; it does not outlive us.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fathom_io::Control;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;
use serde::Deserialize;

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
    let say = |e: std::io::Error| e.to_string();
    let mut command = Command::new(std::env::current_exe().map_err(say)?);
    command.args(words).arg("--out").arg(out);
    if !words.iter().any(|w| w == "--json") {
        command.arg("--json");
    }
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    fathom_system::programs::bind(&mut command);
    let mut child = command.spawn().map_err(say)?;
    let (status, named, last) = std::thread::scope(|scope| {
        let (answer, errors) = (child.stdout.take(), child.stderr.take());
        // Refused, its end of the pipe is closed: the child may go on without being heard.
        let reader = fathom_io::threads::within(scope, move || echoed(errors));
        let named = fathom_io::threads::within(scope, move || named(answer));
        let status = wait(&mut child, control)?;
        let last = reader.map(|r| r.join().unwrap_or_default())?;
        Ok((status, named?.join().unwrap_or_default(), last))
    })
    .map_err(say)?;
    match named.and_then(|path| RunDir::open(&path).ok()) {
        Some((dir, run)) => Ok((run, dir)),
        None if last.is_empty() => Err(format!("it ended with {status}")),
        None => Err(last),
    }
}

/// The run directory in its JSON; none where it was refused.
fn named(answer: Option<impl std::io::Read>) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Answer {
        run_directory: PathBuf,
    }
    let mut text = Vec::new();
    answer?.read_to_end(&mut text).ok()?;
    let answer: Answer = serde_json::from_slice(&text).ok()?;
    Some(answer.run_directory)
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

/// Repeats what it says while it runs; returns its last line.
fn echoed(errors: Option<impl std::io::Read>) -> String {
    let mut last = String::new();
    let lines = errors.into_iter().flat_map(|e| BufReader::new(e).lines());
    for line in lines.map_while(Result::ok) {
        say!("{line}");
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
