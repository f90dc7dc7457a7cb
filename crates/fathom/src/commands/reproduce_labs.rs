//! Labs of a reproduction: each runs as the command that a user would type, keeps a run of its own, and its values go
//! beside the published ones.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use fathom_experiments::reproduce::labs::{self, Lab, Terms};
use fathom_experiments::reproduce::{Reproduction, Row};
use fathom_io::Control;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;

use crate::cli::ReproduceArgs;
use crate::exit::{Failure, refused};

/// Runs the labs whose values are missing, one after the other.
pub(super) fn run(
    args: &ReproduceArgs,
    target: &str,
    terms: &Terms,
    control: &Control,
    r: &mut Reproduction,
) {
    for lab in labs::missing(&args.paper, &r.rows, terms) {
        let command = format!(
            "fathom {} {target} {}",
            lab.command,
            lab.arguments.join(" ")
        );
        if args.no_labs || control.interrupted() {
            labs::excuse(
                &args.paper,
                lab.command,
                &format!("not run; {command} does"),
                &mut r.rows,
            );
            continue;
        }
        eprintln!("fathom: {command}");
        match one(args, target, &lab, control) {
            Ok((run, dir)) => {
                let whence = format!("fathom {}, run {}", lab.command, dir.path().display());
                labs::take(&args.paper, &run, &whence, &mut r.rows);
                labs::excuse(
                    &args.paper,
                    lab.command,
                    &format!("see {}", dir.path().display()),
                    &mut r.rows,
                );
            }
            Err(why) => labs::excuse(&args.paper, lab.command, &why, &mut r.rows),
        }
    }
}

/// Values of runs that are there already (`--with`).
pub(super) fn with(args: &ReproduceArgs, rows: &mut [Row]) -> Result<(), Failure> {
    for path in &args.with {
        let (dir, run) = RunDir::open(path).map_err(refused)?;
        let whence = format!("fathom {}, run {}", run.command, dir.path().display());
        if labs::take(&args.paper, &run, &whence, rows) == 0 {
            return Err(refused(anyhow::anyhow!(
                "--with {}: a run of fathom {} holds no value of {} that is missing here: expected one of {}",
                path.display(),
                run.command,
                args.paper,
                labs::of(&args.paper).join(", ")
            )));
        }
    }
    Ok(())
}

/// One lab in a process of its own: it opens, guards and clears what it works on by itself.
fn one(
    args: &ReproduceArgs,
    target: &str,
    lab: &Lab,
    control: &Control,
) -> Result<(Run, RunDir), String> {
    let say = |e: std::io::Error| e.to_string();
    let before = RunDir::newest(&args.out.out).ok();
    let mut command = Command::new(std::env::current_exe().map_err(say)?);
    command.arg(lab.command).arg(target).args(&lab.arguments);
    command.arg("--out").arg(&args.out.out);
    if let Some(serial) = &args.destroy {
        command.arg("--destroy").arg(serial);
    }
    if ["raid", "vm"].contains(&lab.command) {
        let guest = [
            ("--kernel", &args.guest.kernel),
            ("--guest-binary", &args.guest.guest_binary),
        ];
        for (option, path) in guest {
            if let Some(path) = path {
                command.arg(option).arg(path);
            }
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(say)?;
    let last = std::thread::scope(|scope| {
        let errors = child.stderr.take();
        let reader = scope.spawn(move || echoed(errors));
        let ended = wait(&mut child, control);
        let last = reader.join().unwrap_or_default();
        ended.map(|status| (status, last)).map_err(say)
    });
    let (status, last) = last?;
    let newest = RunDir::newest(&args.out.out)
        .ok()
        .filter(|n| before.as_ref() != Some(n));
    let opened = newest.and_then(|path| RunDir::open(&path).ok());
    match opened.filter(|(_, run)| run.command == lab.command) {
        Some((dir, run)) => Ok((run, dir)),
        None if last.is_empty() => Err(format!("it ended with {status}")),
        None => Err(last),
    }
}

/// Repeats what the lab says while it runs; returns its last line.
fn echoed(errors: Option<impl std::io::Read>) -> String {
    let mut last = String::new();
    let lines = errors.into_iter().flat_map(|e| BufReader::new(e).lines());
    for line in lines.map_while(Result::ok) {
        eprintln!("{line}");
        if !line.trim().is_empty() {
            last = line.trim_start_matches("fathom: ").to_owned();
        }
    }
    last
}

/// Waits; a signal to us is passed on, so that the lab ends its window and clears up.
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
