//! A private PostgreSQL: made, started, stopped and removed by the lab, reached through a unix socket only. It does not
//! run as root: where fathom does, the server gets the account `postgres`, or else `nobody`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::private_directory;
use super::sql::SqlError;
use super::sql::postgres::Postgres;
use crate::LabError;
use fathom_system::packages;
use fathom_system::programs::{self, ChildGuard};

/// Which PostgreSQL a lab starts.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct PostgresArgs {
    /// Directory of the programs of the PostgreSQL to start (postgres, initdb): a version of its own, or one that no package
    /// brought [default: the newest in /usr/lib/postgresql, then PATH]
    #[arg(long = "postgres", value_name = "DIR", conflicts_with_all = ["server", "socket"])]
    #[serde(default)]
    pub programs: Option<PathBuf>,
}

impl PostgresArgs {
    /// Refuses a directory without them, and one that none of the databases needs.
    pub(super) fn possible(&self, databases: &[String]) -> Result<(), String> {
        let Some(dir) = &self.programs else {
            return Ok(());
        };
        if !databases.iter().any(|d| d == "postgresql") {
            return Err("--postgres names PostgreSQL's programs: add --database postgresql".into());
        }
        let lacks = |name: &&&str| program(name, Some(dir)).is_none();
        match ["postgres", "initdb"].iter().find(lacks) {
            Some(name) => Err(format!(
                "--postgres {}: there is no program {name} in it: expected the directory of postgres and initdb, such as /usr/lib/postgresql/17/bin",
                dir.display()
            )),
            None => Ok(()),
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    server: PathBuf,
    init: PathBuf,
    /// User and group of the server, where fathom is root.
    account: Option<(u32, u32)>,
    /// As the server says it.
    pub(super) version: String,
}

/// What brings them, as Debian calls it.
pub(super) const PACKAGE: &str = "postgresql";

/// One of its programs, in the directory that was named alone; Debian has them beside each other, by version.
pub(super) fn program(name: &str, dir: Option<&Path>) -> Option<PathBuf> {
    if let Some(dir) = dir {
        let dir = std::path::absolute(dir).ok();
        return programs::first(dir.into_iter(), name);
    }
    let versions = fs::read_dir("/usr/lib/postgresql");
    let mut places: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|v| v.path().join("bin"))
        .collect();
    places.sort();
    places.reverse();
    programs::first(places.into_iter(), name).or_else(|| programs::find(name))
}

/// Looks for them.
pub(super) fn probe(dir: Option<&Path>) -> Result<Programs, LabError> {
    let find = |name: &str| {
        program(name, dir).ok_or_else(|| LabError::Missing {
            what: format!("PostgreSQL's {name} is not installed"),
            remedy: packages::install(PACKAGE)
                + " (it starts a server of its own, which fathom does not touch)",
        })
    };
    let (server, init) = (find("postgres")?, find("initdb")?);
    let account = if programs::is_root() {
        let found = programs::user("postgres").or_else(|| programs::user("nobody"));
        Some(found.ok_or_else(|| LabError::Missing {
            what: "PostgreSQL does not run as root, and there is no other account".into(),
            remedy: "useradd --system postgres".into(),
        })?)
    } else {
        None
    };
    let version = programs::first_line(&server, &["--version"]);
    Ok(Programs {
        server,
        init,
        account,
        version,
    })
}

/// Whether an account may go through all directories above `dir`.
fn enters(dir: &Path, (user, group): (u32, u32)) -> Result<(), LabError> {
    let closed = dir.ancestors().skip(1).find(|above| {
        fs::metadata(above).is_ok_and(|m| {
            let bit = match (m.uid() == user, m.gid() == group) {
                (true, _) => 0o100,
                (_, true) => 0o010,
                _ => 0o001,
            };
            m.permissions().mode() & bit == 0
        })
    });
    let Some(closed) = closed.map(Path::display) else {
        return Ok(());
    };
    Err(LabError::Missing {
        what: format!(
            "PostgreSQL does not run as root, and its account (number {user}) may not enter {closed}"
        ),
        remedy: format!("chmod o+x {closed}, or name another directory"),
    })
}

/// A data directory, and its server.
#[derive(Debug)]
pub(super) struct Cluster {
    programs: Programs,
    dir: PathBuf,
    /// The same by its plain name, which the server's account need not be able to use.
    plain: PathBuf,
    /// Bytes of its cache.
    buffers: u64,
    /// Bytes of log between checkpoints.
    wal: u64,
    child: Option<ChildGuard>,
}

impl Cluster {
    /// Makes the directory.
    pub(super) fn create(
        programs: &Programs,
        (dir, plain): (PathBuf, PathBuf),
        (buffers, wal): (u64, u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LabError> {
        if let Some(account) = programs.account {
            enters(&dir, account)?;
            enters(&programs.server, account)?;
        }
        let me = Self {
            programs: programs.clone(),
            dir,
            plain,
            buffers,
            wal,
            child: None,
        };
        let failed = |e: std::io::Error| {
            LabError::Failed(format!("{}: cannot be made: {e}", me.dir.display()))
        };
        private_directory(&me.dir)?;
        if let Some((user, group)) = programs.account {
            chown(&me.dir, Some(user), Some(group)).map_err(failed)?;
        }
        let mut init = me.command(&programs.init);
        init.args(["-D", "data"])
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync"]);
        ChildGuard::start(init, &me.dir.join("init.log"))?.succeed(stop)?;
        Ok(me)
    }

    /// A program under the server's account.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.programs.account {
            command.uid(user).gid(group);
        }
        // It may enter this one, and names within it have no quotes or commas that a setting would stumble over.
        command.current_dir(&self.dir);
        command
    }

    /// Refuses settings that the server does not take; it must not run.
    pub(super) fn knows(&self, settings: &[String]) -> Result<(), LabError> {
        for setting in settings {
            let name = setting.split('=').next().unwrap_or_default();
            let mut ask = self.command(&self.programs.server);
            ask.args(["-D", "data", "-c", setting, "-C", name]);
            programs::output(&mut ask).map_err(|why| {
                let why = why.split_once("FATAL:").map_or(&*why, |w| w.1).trim();
                LabError::Refused(format!("the server does not take {setting}: {why}"))
            })?;
        }
        Ok(())
    }

    /// Starts the server with these over whatever the lab itself asks for, and waits until it answers.
    pub(super) fn start(
        &mut self,
        settings: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let mut server = self.command(&self.programs.server);
        server.args(["-D", "data"]);
        let own = [
            "listen_addresses=".into(),
            // As seen from its data.
            "unix_socket_directories=..".into(),
            format!("shared_buffers={}kB", (self.buffers >> 10).max(1024)),
            "max_connections=1050".into(),
            format!("max_wal_size={}MB", self.wal >> 20),
            "min_wal_size=32MB".into(),
            "logging_collector=off".into(),
            // Files in the data directory: what a killed server shared goes with it.
            "dynamic_shared_memory_type=mmap".into(),
        ];
        for setting in own.iter().chain(settings) {
            server.args(["-c", setting]);
        }
        let log = self.dir.join("server.log");
        let socket = self.socket();
        let child = self.child.insert(ChildGuard::start(server, &log)?);
        for _ in 0..3000 {
            if let Some(status) = child.ended() {
                return Err(child.failure(&status.to_string()).into());
            }
            if Postgres::connect(&socket, "postgres", "postgres").is_ok() {
                return Ok(());
            }
            if stop() {
                return Err(LabError::Failed("interrupted".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(LabError::Failed(format!(
            "postgres did not answer within a minute: {}",
            programs::last_words(&log)
        )))
    }

    /// Stops the server.
    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fast: its sessions end, and a last checkpoint leaves nothing to recover.
            child.terminate(libc::SIGINT, Duration::from_secs(120));
        }
    }

    /// Where it listens.
    fn socket(&self) -> PathBuf {
        self.plain.join(".s.PGSQL.5432")
    }

    /// Directory of the socket.
    pub(super) fn socket_dir(&self) -> &Path {
        &self.plain
    }

    /// Connects.
    pub(super) fn session(&self) -> super::sql::Result<Postgres> {
        Postgres::connect(&self.socket(), "postgres", "postgres")
    }

    /// An error of a session, with what the server said before it died, where it did.
    pub(super) fn explain(&mut self, error: SqlError) -> LabError {
        let dead = match &mut self.child {
            Some(child) if error.is_lost() => child.died(),
            _ => None,
        };
        dead.map_or_else(|| error.into(), LabError::from)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Immediate: its data goes with it. Its children end before it does.
            child.terminate(libc::SIGQUIT, Duration::from_secs(20));
        }
        fathom_system::shared_memory::release(&self.dir);
    }
}
