//! fathom on the hosts: one that is there, or this one, carried through the launcher's standard input. What is carried
//! removes its file as soon as it runs.

use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fathom_telemetry::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::hosts::{check, refused};
use super::{Host, Via};
use crate::guest::{initramfs::Program, qemu};
use crate::{SystemError, programs};

/// Beginning of a carried file's name.
pub const CARRIED: &str = ".fathom-agent-";
/// A launcher is looked at as often.
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// A host has its fathom by then.
const LIMIT: Nanos = Nanos::from_secs(120);

/// How fathom comes to be on the hosts.
#[derive(Debug, Clone)]
pub enum Fathom {
    /// It is there.
    There(String),
    /// Its bytes are carried there.
    Carried(Vec<u8>),
}

impl Fathom {
    /// The one at `path` on every host, or this one.
    ///
    /// # Errors
    /// A path that a shell could take for anything else; a binary that needs libraries of this machine.
    pub fn find(path: Option<&str>) -> Result<Self, SystemError> {
        if let Some(path) = path {
            check("fathom", path, "--hosts-fathom PATH, as it is there")?;
            return Ok(Self::There(path.to_owned()));
        }
        let own = std::env::current_exe()
            .map_err(|e| refused(format!("fathom's own binary cannot be found: {e}")))?;
        let program = Program::read(&own)?;
        if program.libraries.is_empty() {
            Ok(Self::Carried(program.binary))
        } else {
            Err(refused(format!(
                "{} needs libraries and cannot be carried to the hosts: name theirs with --hosts-fathom PATH, or build the static one (cargo build --release --target {}-unknown-linux-musl)",
                own.display(),
                std::env::consts::ARCH
            )))
        }
    }

    /// The command lines that start an agent on each host; where the binary is carried, it is there afterwards.
    ///
    /// # Errors
    /// The first host that it could not be carried to, with what was said there.
    pub fn agents(&self, via: &Via, hosts: &[Host]) -> Result<Vec<Vec<String>>, SystemError> {
        self.commands(via, hosts, &["guest-agent"])
    }

    /// The same for other words than an agent's.
    ///
    /// # Errors
    /// As [`Fathom::agents`].
    pub fn commands(
        &self,
        via: &Via,
        hosts: &[Host],
        words: &[&str],
    ) -> Result<Vec<Vec<String>>, SystemError> {
        let start = |host: &Host, path: &str| {
            let words = words.iter().map(|w| (*w).to_owned());
            let command: Vec<String> = std::iter::once(path.to_owned()).chain(words).collect();
            via.command(&host.name, &command)
        };
        match self {
            Self::There(path) => hosts.iter().map(|h| start(h, path)).collect(),
            Self::Carried(bytes) => {
                let placed = place_all(via, hosts, bytes)?;
                let all = hosts.iter().zip(&placed);
                all.map(|(host, path)| start(host, path)).collect()
            }
        }
    }
}

fn place_all(via: &Via, hosts: &[Host], bytes: &[u8]) -> Result<Vec<String>, SystemError> {
    // Names differ also where hosts share a directory for temporary files, and from those of other runs.
    let nonce = format!(
        "{:x}-{}",
        fathom_io::clock::monotonic().0,
        std::process::id()
    );
    let placed: Vec<Result<String, SystemError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts
            .iter()
            .enumerate()
            .map(|(i, host)| {
                let name = format!("{CARRIED}{nonce}-{i}");
                fathom_io::threads::within(scope, move || place(via, &host.name, &name, bytes))
            })
            .collect();
        let broken = || SystemError::Failed("a thread broke off".into());
        let join = |t: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match t {
            Ok(t) => t.join().unwrap_or_else(|_| Err(broken())),
            Err(e) => Err(SystemError::Failed(e.to_string())),
        };
        threads.into_iter().map(join).collect()
    });
    if placed.iter().any(Result::is_err) {
        for (host, path) in hosts.iter().zip(placed.iter().flatten()) {
            let remove = ["rm", "-f", path].map(str::to_owned);
            // Where this fails too, the host is gone, and its file for temporary files with its next start.
            let _ = via.command(&host.name, &remove).and_then(|c| run(&c, &[]));
        }
    }
    placed.into_iter().collect()
}

/// Puts the binary onto a host; returns its path there.
fn place(via: &Via, host: &str, name: &str, bytes: &[u8]) -> Result<String, SystemError> {
    let machine = std::env::consts::ARCH;
    // Nothing of it comes from the user: neither a host nor a path.
    let script = format!(
        "m=$(uname -m); if [ \"$m\" != {machine} ]; then echo \"its processors are $m, this fathom is for {machine}: build one for it and name it with --hosts-fathom\"; exit 3; fi; set -C; umask 077; f=${{TMPDIR:-/tmp}}/{name}; if cat > \"$f\" && chmod 700 \"$f\"; then echo \"placed $f\"; else rm -f \"$f\"; exit 4; fi"
    );
    let command = via.command(host, &["sh".to_owned(), "-c".to_owned(), script])?;
    let said = run(&command, bytes).map_err(|e| SystemError::Failed(format!("{host}: {e}")))?;
    match said.lines().find_map(|l| l.strip_prefix("placed ")) {
        Some(path) if check("path", path, "").is_ok() => Ok(path.to_owned()),
        _ => Err(refused(format!(
            "fathom cannot be carried to {host}: {}",
            said.split_whitespace().collect::<Vec<_>>().join(" ")
        ))),
    }
}

/// Runs a launcher to its end with `input`; returns what it said.
fn run(command: &[String], input: &[u8]) -> Result<String, SystemError> {
    let failed =
        |e: std::io::Error| SystemError::Failed(format!("{} cannot be run: {e}", command[0]));
    let mut said = qemu::memory_file(c"fathom-said").map_err(failed)?;
    let mut program = Command::new(&command[0]);
    programs::bind(&mut program);
    let mut child = program
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(said.try_clone().map_err(failed)?)
        .stderr(said.try_clone().map_err(failed)?)
        .spawn()
        .map_err(|e| SystemError::Missing {
            what: format!("{} cannot be started: {e}", command[0]),
            remedy: "install it, or name another launcher with --via".into(),
        })?;
    let began = fathom_io::clock::monotonic();
    let mut left = input;
    // Never blocked in a write: a launcher that takes nothing must not be waited for.
    let mut pipe = child.stdin.take();
    if let Some(p) = &pipe {
        rustix::io::ioctl_fionbio(p, true).map_err(|e| failed(e.into()))?;
    }
    while matches!(child.try_wait(), Ok(None)) {
        if fathom_io::clock::monotonic().since(began) > LIMIT {
            // It may have ended just now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(SystemError::Failed(format!(
                "it did not answer within {LIMIT}"
            )));
        }
        let Some(p) = &mut pipe else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        match p.write(left) {
            Ok(n) if n < left.len() => left = &left[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // Until it takes more, or for a moment.
                let mut waited = [PollFd::new(p, PollFlags::OUT)];
                let _ = poll(&mut waited, Some(&MOMENT));
            }
            // All is written, or one that takes no more says why.
            _ => pipe = None,
        }
    }
    let mut text = Vec::new();
    said.seek(SeekFrom::Start(0))
        .and_then(|_| said.read_to_end(&mut text))
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Removes the file of this process where it was carried here: nobody needs it any more.
pub fn forget() {
    let own = std::env::current_exe().unwrap_or_default();
    let name = own.file_name().and_then(|n| n.to_str());
    if name.is_some_and(|n| n.starts_with(CARRIED)) {
        // One that was removed already is as wanted.
        let _ = std::fs::remove_file(own);
    }
}
