//! `ioengine=exec`: a program runs beside the other jobs for as long as the job lasts.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fathom_files::Output;
use fathom_io::clock::monotonic;
use fathom_io::load::{Performer, PilotIo};
use fathom_system::programs;
use fathom_telemetry::{Nanos, say};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::Surroundings;
use crate::FioError;
use crate::aux_files::{Outputs, is_text};
use crate::section::Section;

/// fio looks so often whether the program's time is over.
const LOOK: Duration = Duration::from_millis(50);

/// Which program.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    program: String,
    arguments: String,
    grace: Duration,
    redirect: bool,
}

impl Exec {
    pub(super) fn of(s: &Section) -> Result<Self, FioError> {
        let program = s.text("program");
        let program = program.ok_or_else(|| {
            s.invalid(
                "program",
                "exec needs a program, such as program=/usr/bin/perf",
            )
        })?;
        let runtime = s.nanos("runtime").unwrap_or(0) / 1_000_000_000;
        let arguments = s.get("arguments").unwrap_or("");
        Ok(Self {
            program: program.to_owned(),
            arguments: arguments
                .replace("%r", &runtime.to_string())
                .replace("%n", &s.name),
            grace: Duration::from_secs(s.number("grace_time").unwrap_or(1)),
            redirect: s.flag("std_redirect", true),
        })
    }

    /// Where standard output and standard error go.
    pub(super) fn texts(&self, job: &str, outputs: &Outputs) -> Vec<PathBuf> {
        let name = |kind| outputs.path(&format!("{}.{kind}", job.replace('/', ".")));
        let kinds = ["stdout", "stderr"].into_iter();
        kinds.filter(|_| self.redirect).map(name).collect()
    }

    pub(super) fn start(&self, around: Surroundings) -> Running {
        Running {
            what: self.clone(),
            around,
            begin: Nanos::ZERO,
            child: None,
            outputs: Vec::new(),
            asked: false,
        }
    }

    /// As fio runs it: words at spaces, no shell.
    fn command(&self) -> Command {
        let mut words = self.program.split(' ').filter(|w| !w.is_empty());
        let mut command = Command::new(words.next().unwrap_or(&self.program));
        command.args(words);
        command.args(self.arguments.split(' ').filter(|w| !w.is_empty()));
        command.stdin(Stdio::null());
        command
    }
}

/// The program under way.
pub(super) struct Running {
    what: Exec,
    around: Surroundings,
    begin: Nanos,
    child: Option<Child>,
    outputs: Vec<Output>,
    /// To end.
    asked: bool,
}

impl Running {
    fn spawn(&mut self) -> std::io::Result<()> {
        let mut command = self.what.command();
        if self.what.redirect {
            let outputs = &self.around.outputs;
            let paths = self.what.texts(&self.around.job, outputs);
            for (i, path) in paths.iter().enumerate() {
                let out = outputs.create(path, is_text)?;
                let handle = out.handle()?;
                if i == 0 {
                    command.stdout(handle);
                } else {
                    command.stderr(handle);
                }
                self.outputs.push(out);
            }
        } else {
            // Standard output is the results'.
            command.stdout(rustix::stdio::stderr().try_clone_to_owned()?);
        }
        // Where fathom is killed, the program goes with it.
        programs::bind(&mut command);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Asks the program to end, and waits for as long as it may take.
    fn ask(&mut self) {
        self.asked = true;
        let Some(child) = &mut self.child else { return };
        if let Some(pid) = Pid::from_raw(child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = monotonic() + Nanos::from(self.what.grace);
        while monotonic() < until && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Performer for Running {
    fn carries_data(&self) -> bool {
        false
    }
    fn perform(&mut self, io: &PilotIo, _data: &mut [u8]) -> i64 {
        if self.begin == Nanos::ZERO {
            self.begin = monotonic();
            if let Err(e) = self.spawn() {
                say!(
                    "fathom: job '{}': {} could not be started: {e}",
                    self.around.job,
                    self.what.program
                );
                return super::result(Err(Errno::from_io_error(&e).unwrap_or(Errno::NOENT)));
            }
            return io.len.into();
        }
        std::thread::sleep(LOOK);
        let over = self
            .around
            .time
            .is_some_and(|t| monotonic().since(self.begin) > t);
        if (over || self.around.ended()) && !self.asked {
            self.ask();
        }
        io.len.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.asked {
            self.ask();
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        for out in self.outputs.drain(..) {
            if let Err(e) = out.commit() {
                say!(
                    "fathom: what {} said could not be kept: {e}",
                    self.what.program
                );
            }
        }
    }
}
