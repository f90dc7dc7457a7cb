//! Outside programs: where they are, what to install where they are not, and children that never outlive a lab.

use std::os::fd::RawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use fathom_files::create;
use fathom_io::clock::monotonic;
use fathom_telemetry::Nanos;

use crate::SystemError;
use crate::orphans;

/// Where programs lie that are in nobody's PATH.
const ELSEWHERE: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/libexec"];

/// A program by its name.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(ELSEWHERE.map(PathBuf::from));
    first(places, program)
}

/// Asks the kernel for a module, silently: where it is built in or loaded this does nothing, and whoever needs it looks
/// for what it brings.
pub fn load_module(name: &str) {
    let _ = Command::new("modprobe")
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// A command of a program by its name, found also where PATH does not lead.
pub fn command(program: &str) -> Command {
    find(program).map_or_else(|| Command::new(program), Command::new)
}

/// Runs a program to its end, silently; the error is the last thing that it said. It ends where fathom is killed.
pub fn run(command: &mut Command) -> Result<(), String> {
    output(command).map(|_| ())
}

/// The same; what it printed.
pub fn output(command: &mut Command) -> Result<String, String> {
    bind(command);
    let out = command.stdin(Stdio::null()).output();
    said(out.map_err(|e| e.to_string())?)
}

/// What a program printed, or the last thing that it said of its failure.
fn said(out: Output) -> Result<String, String> {
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(said
        .lines()
        .rev()
        .map(str::trim)
        .find(|l| !l.is_empty())
        .unwrap_or("it failed without a word")
        .to_owned())
}

/// The same of a program that asks another one, which may not answer: ended by force after `limit`. What it prints must fit a
/// pipe.
pub fn output_within(command: &mut Command, limit: Nanos) -> Result<String, String> {
    bind(command);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let until = monotonic() + limit;
    while matches!(child.try_wait(), Ok(None)) {
        if monotonic() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no answer within {limit}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    said(child.wait_with_output().map_err(|e| e.to_string())?)
}

/// A program in one of these places.
pub fn first(places: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    places
        .filter(|p| p.is_absolute())
        .map(|p| p.join(program))
        .find(|p| {
            p.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
}

/// The first line that a program prints, such as its version; empty where it does not.
pub fn first_line(program: &Path, arguments: &[&str]) -> String {
    let out = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let Ok(out) = out else { return String::new() };
    let text = [out.stdout, out.stderr].concat();
    String::from_utf8_lossy(&text)
        .lines()
        .map(str::trim)
        .find(|l| !l.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the kernel lets this process mount, trace and set (CAP_SYS_ADMIN): root of most containers may not.
pub fn may_administer() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| u64::from_str_radix(l.strip_prefix("CapEff:")?.trim(), 16).ok())
        .is_some_and(|held| held & SYS_ADMIN != 0)
}

/// User and group of a name in /etc/passwd.
pub fn user(name: &str) -> Option<(u32, u32)> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = text
        .lines()
        .find(|l| l.split(':').next().is_some_and(|n| n == name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// A process that ends with this one, however this one ends.
#[derive(Debug)]
pub struct ChildGuard {
    child: Child,
    name: String,
    log: Option<PathBuf>,
}

/// Prepares a command so that the process is killed with this thread, and no signal of the terminal reaches it.
pub fn bind(command: &mut Command) {
    bind_with(command, libc::SIGKILL, Vec::new());
}

/// The same with the signal that the process gets then.
pub fn bind_ending(command: &mut Command, signal: libc::c_int) {
    bind_with(command, signal, Vec::new());
}

/// The same, and the program gets these descriptors.
pub(crate) fn bind_with(command: &mut Command, ending: libc::c_int, inherited: Vec<RawFd>) {
    orphans::stamp(command).process_group(0);
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, which neither allocate nor lock.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, ending);
            // Who ended before that call sends no signal any more.
            if libc::getppid() as u32 != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            for fd in &inherited {
                if libc::fcntl(*fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

impl ChildGuard {
    /// Starts it, with everything that it says in a file.
    pub fn start(mut command: Command, log: &Path) -> Result<Self, SystemError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed =
            |e: std::io::Error| SystemError::Failed(format!("{name} cannot be started: {e}"));
        let file = create::or_append(log).map_err(failed)?;
        let again = file.try_clone().map_err(failed)?;
        bind(command.stdin(Stdio::null()).stdout(file).stderr(again));
        let child = command.spawn().map_err(failed)?;
        Ok(Self {
            child,
            name,
            log: Some(log.to_owned()),
        })
    }

    /// Starts it with its output on a pipe.
    pub fn piped(
        mut command: Command,
        errors: &Path,
    ) -> Result<(Self, std::process::ChildStdout), SystemError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed =
            |e: std::io::Error| SystemError::Failed(format!("{name} cannot be started: {e}"));
        let file = create::or_append(errors).map_err(failed)?;
        bind(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(file),
        );
        let mut child = command.spawn().map_err(failed)?;
        let Some(out) = child.stdout.take() else {
            return Err(SystemError::Failed(format!("{name} has no output")));
        };
        let kept = Self {
            child,
            name,
            log: Some(errors.to_owned()),
        };
        Ok((kept, out))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; `stop` kills it.
    pub fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<ExitStatus, SystemError> {
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if stop() {
                self.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits; an end without success is an error with the last thing that it said.
    pub fn succeed(&mut self, stop: &dyn Fn() -> bool) -> Result<(), SystemError> {
        let status = self.wait(stop)?;
        if status.success() {
            return Ok(());
        }
        Err(self.failure(&ending(status)))
    }

    /// What ended it, where it ended by itself; waits a moment for one that was killed just now.
    pub fn died(&mut self) -> Option<SystemError> {
        // Its connections close a little before it is gone; tearing down its memory takes time on a busy machine.
        const TRIES: u32 = 40;
        let status = (0..TRIES).find_map(|i| {
            if i > 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            self.ended()
        })?;
        Some(self.failure(&format!("{} in the middle", ending(status))))
    }

    /// An error with the last thing that it said.
    pub fn failure(&self, what: &str) -> SystemError {
        let said = self.log.as_deref().map(last_words).unwrap_or_default();
        SystemError::Failed(format!("{} ended with {what}: {said}", self.name))
    }

    /// Asks it to end, and kills it where it does not.
    pub fn terminate(&mut self, signal: i32, patience: Duration) {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let step = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        while self.ended().is_none() {
            if waited >= patience {
                self.kill();
                return;
            }
            std::thread::sleep(step);
            waited += step;
        }
    }

    fn kill(&mut self) {
        // It leads a group of its own (see `bind`): what it started, such as a script's server, ends with it.
        // SAFETY: a signal to the group of a child that has not been waited for.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// The last lines of a log, as one.
pub fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    // Servers end with notes; what went wrong stands before them.
    let errors: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|l| l.contains("ERROR") || l.contains("FATAL") || l.contains("rror:"))
        .collect();
    let last = if errors.is_empty() { &lines } else { &errors };
    let last = &last[last.len().saturating_sub(2)..];
    let mut said = last.join(" / ");
    if said.chars().count() > 300 {
        said = said.chars().take(300).collect();
    }
    if said.is_empty() {
        "it said nothing".into()
    } else {
        said
    }
}

/// How a program ended, with the likely cause of a kill.
fn ending(status: ExitStatus) -> String {
    let mut words = status.to_string();
    if status.signal() == Some(libc::SIGKILL) {
        words += " (killed by somebody, or by the kernel for want of memory: see dmesg)";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_and_a_missing_one_is_not() {
        assert!(find("sh").is_some());
        assert!(find("fathom-no-such-program").is_none());
    }

    #[test]
    fn the_last_error_of_a_log_is_told_rather_than_its_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "a\n[ERROR] disk full\n[Note] bye\n").unwrap();
        assert_eq!(last_words(&log), "[ERROR] disk full");
        assert_eq!(last_words(&dir.path().join("none")), "it said nothing");
    }

    #[test]
    fn a_kept_process_is_killed_when_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let kept = ChildGuard::start(command, &dir.path().join("log")).unwrap();
        let stat = format!("/proc/{}/stat", kept.id());
        assert!(Path::new(&stat).exists());
        drop(kept);
        assert!(!Path::new(&stat).exists());
    }
}
