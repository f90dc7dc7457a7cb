//! A machine that runs already: its fathom is reached through a program that carries its input and output, ssh as a rule.
//!
//! The program dies with the thread that started it; the far fathom ends, and removes its scratch files, when its input
//! ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use super::qemu::memory_file;
use crate::{SystemError, packages, programs};

/// How often a program that was asked to end is looked at, each 5 ms: two seconds.
const GOODBYES: u32 = 400;

/// Dropping it ends the program.
#[derive(Debug)]
pub(crate) struct Reached {
    child: Child,
    said: File,
}

impl Reached {
    /// Starts `program` with its arguments; the stream is its input and output.
    pub(crate) fn start(program: &[String]) -> Result<(Self, UnixStream), SystemError> {
        let [name, arguments @ ..] = program else {
            return Err(SystemError::Refused(
                "no program was named that reaches a machine".into(),
            ));
        };
        let failed =
            |e: std::io::Error| SystemError::Failed(format!("{name} cannot be started: {e}"));
        let said = memory_file(c"fathom-far").map_err(failed)?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let theirs = OwnedFd::from(theirs);
        let mut command = Command::new(name);
        // A program that is the agent itself cleans up when it is asked to end, and ends.
        programs::bind_ending(&mut command, libc::SIGTERM);
        command
            .args(arguments)
            .stdin(Stdio::from(theirs.try_clone().map_err(failed)?))
            .stdout(Stdio::from(theirs))
            .stderr(said.try_clone().map_err(failed)?);
        let child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => SystemError::Missing {
                what: format!("{name} is not installed"),
                remedy: packages::install("openssh-client")
                    + ", or name another program with --ssh-program",
            },
            _ => failed(e),
        })?;
        Ok((Self { child, said }, ours))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn said(&mut self) -> String {
        let mut text = Vec::new();
        let read = self
            .said
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.said.read_to_end(&mut text));
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(_) => String::new(),
        }
    }

    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // SAFETY: the process is a child that was not waited for, so its number is its own still.
        let asked = !self.ended() && unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) } == 0;
        for _ in 0..GOODBYES {
            if !asked || self.ended() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // One that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
