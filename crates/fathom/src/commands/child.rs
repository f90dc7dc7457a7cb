//! Another command of fathom as a process of its own: it opens, guards and clears what it works on by itself, and keeps
//! a run. A signal to us is passed on; it does not outlive us.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fathom_io::Control;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::say;
use fathom_telemetry::schema::Run;

/// Runs `fathom WORDS --out OUT` and opens its run; `name` is what the run calls its command. What it says is repeated.
///
/// # Errors
/// Its last words, where it kept no run.
pub(super) fn run(
    words: &[String],
    name: &str,
    out: &Path,
    control: &Control,
) -> Result<(Run, RunDir), String> {
    let say = |e: std::io::Error| e.to_string();
    let before = RunDir::newest(out).ok();
    let mut command = Command::new(std::env::current_exe().map_err(say)?);
    command.args(words).arg("--out").arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped());
    fathom_system::programs::bind(&mut command);
    let mut child = command.spawn().map_err(say)?;
    let last = std::thread::scope(|scope| {
        let errors = child.stderr.take();
        // Refused, its end of the pipe is closed: the child may go on without being heard.
        let reader = fathom_io::threads::within(scope, move || echoed(errors));
        let ended = wait(&mut child, control);
        let last = reader.map(|r| r.join().unwrap_or_default());
        ended.and_then(|status| Ok((status, last?))).map_err(say)
    });
    let (status, last) = last?;
    let newest = RunDir::newest(out)
        .ok()
        .filter(|n| before.as_ref() != Some(n));
    let opened = newest.and_then(|path| RunDir::open(&path).ok());
    match opened.filter(|(_, run)| run.command == name) {
        Some((dir, run)) => Ok((run, dir)),
        None if last.is_empty() => Err(format!("it ended with {status}")),
        None => Err(last),
    }
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
