//! Programs that labs started and that outlived their run: known by a word in their environment, which names the run by
//! its process, and which a script hands on to what it starts.
//!
//! Each is killed by the kernel with the thread that started it; what a script or a server started is not.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::LazyLock;

use fathom_stack::tracefs::instance::{has_ended, start_time};
use rustix::process::{Pid, PidfdFlags, Signal};

/// Name of the word in the environment: namespace of process numbers, number, start of the process.
const WORD: &str = "FATHOM_RUN";
/// They undo what a run did, and end by themselves.
const KEEPERS: [&str; 2] = ["fathom-cleanup", "keep-settings"];

/// As the word has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    namespace: String,
    pid: u32,
    started: u64,
}

static THIS: LazyLock<String> = LazyLock::new(|| {
    let pid = std::process::id();
    format!("{}:{pid}:{}", namespace(), start_time(pid).unwrap_or(0))
});

fn namespace() -> String {
    let name = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |c: &char| c.is_ascii_digit();
    name.to_string_lossy().chars().filter(digits).collect()
}

/// Tells a program, and what it starts, which run it belongs to.
pub fn stamp(command: &mut Command) -> &mut Command {
    command.env(WORD, &*THIS)
}

impl Run {
    fn parse(word: &str) -> Option<Self> {
        let mut fields = word.split(':');
        Some(Self {
            namespace: fields.next()?.to_owned(),
            pid: fields.next()?.parse().ok()?,
            started: fields.next()?.parse().ok()?,
        })
    }

    /// The run that a process belongs to.
    fn of(pid: u32) -> Option<Self> {
        let words = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let word = words
            .split(|b| *b == 0)
            .find_map(|w| w.strip_prefix(WORD.as_bytes())?.strip_prefix(b"="))?;
        Self::parse(std::str::from_utf8(word).ok()?)
    }

    /// Numbers of other namespaces mean nothing here.
    fn is_over(&self) -> bool {
        self.namespace == namespace()
            && (start_time(self.pid) != Some(self.started) || has_ended(self.pid))
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pid: u32,
    started: u64,
    name: String,
}

impl std::fmt::Display for Orphan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Looks for them.
pub fn find() -> Vec<Orphan> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Orphan> = numbers
        .filter_map(|e| look(e.file_name().to_str()?.parse().ok()?))
        .collect();
    found.sort_by_key(|s| s.pid);
    found
}

fn look(pid: u32) -> Option<Orphan> {
    let started = start_time(pid)?;
    if !Run::of(pid)?.is_over() || has_ended(pid) {
        return None;
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let name = name.trim().to_owned();
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let word = words.split(|b| *b == 0).nth(1).unwrap_or_default();
    let keeps = KEEPERS.iter().any(|k| name == *k || word == k.as_bytes());
    (!keeps).then_some(Orphan { pid, started, name })
}

impl Orphan {
    /// Kills it, where it is still the same.
    pub fn kill(&self) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let held: OwnedFd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        // What is held is looked at: no number can be given to another process meanwhile.
        if look(self.pid).as_ref() != Some(self) {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(&held, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
        // Its files and devices are free once it is gone.
        let gone = || match has_ended(self.pid) || start_time(self.pid) != Some(self.started) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::ResourceBusy)),
        };
        crate::retry::patiently(3, |_| true, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_living_run_started_is_its_own_and_what_a_dead_one_left_is_killed() {
        let sleep = |word: &str| {
            let mut command = Command::new("sleep");
            command.arg("60").env(WORD, word).spawn().unwrap()
        };
        // Process 1 lives, but did not start at that tick.
        let mut left = sleep(&format!("{}:1:123456789", namespace()));
        let mut ours = sleep(&THIS);
        let mut elsewhere = sleep("1:1:123456789");
        let mut typed = sleep("yes");
        let there = |pid: u32| {
            (0..100).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                find().into_iter().find(|s| s.pid == pid)
            })
        };
        let found = there(left.id()).expect("it is found");
        for other in [&ours, &elsewhere, &typed] {
            assert!(find().iter().all(|s| s.pid != other.id()));
        }
        found.kill().unwrap();
        assert!(!left.wait().unwrap().success());
        found.kill().unwrap();
        for other in [&mut ours, &mut elsewhere, &mut typed] {
            assert!(other.try_wait().unwrap().is_none(), "it lives");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
