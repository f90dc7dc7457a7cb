//! A private PostgreSQL: made, started, stopped and removed by the lab, reached through a unix socket only. It does not
//! run as root: where fathom does, the server gets the account `postgres`, or else `nobody`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::mariadb::socket_fits;
use super::private_directory;
use super::sql::SqlError;
use super::sql::postgres::Postgres;
use crate::LabError;
use crate::outside::{self, Kept};

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

/// Looks for them; Debian has them beside each other, by version.
pub(super) fn probe() -> Result<Programs, LabError> {
    let versions = fs::read_dir("/usr/lib/postgresql");
    let mut places: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|v| v.path().join("bin"))
        .collect();
    places.sort();
    places.reverse();
    let find = |name: &str| {
        outside::first(places.iter().cloned(), name)
            .or_else(|| outside::find(name))
            .ok_or_else(|| LabError::Missing {
                what: format!("PostgreSQL's {name} is not installed"),
                remedy: "apt-get install postgresql (it starts a server of its own, which fathom does not touch)"
                    .into(),
            })
    };
    let (server, init) = (find("postgres")?, find("initdb")?);
    let account = if outside::is_root() {
        let found = outside::user("postgres").or_else(|| outside::user("nobody"));
        Some(found.ok_or_else(|| LabError::Missing {
            what: "PostgreSQL does not run as root, and there is no other account".into(),
            remedy: "useradd --system postgres".into(),
        })?)
    } else {
        None
    };
    let version = outside::first_line(&server, &["--version"]);
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

/// A data directory and its running server.
#[derive(Debug)]
pub(super) struct Cluster {
    dir: PathBuf,
    child: Option<Kept>,
}

impl Cluster {
    /// Makes it and starts it.
    pub(super) fn start(
        programs: &Programs,
        dir: PathBuf,
        buffers: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LabError> {
        if let Some(account) = programs.account {
            enters(&dir, account)?;
        }
        let mut me = Self { dir, child: None };
        socket_fits(&me.dir)?;
        let failed = |e: std::io::Error| {
            LabError::Failed(format!("{}: cannot be made: {e}", me.dir.display()))
        };
        private_directory(&me.dir)?;
        if let Some((user, group)) = programs.account {
            chown(&me.dir, Some(user), Some(group)).map_err(failed)?;
        }
        let as_account = |program: &PathBuf| {
            let mut command = Command::new(program);
            if let Some((user, group)) = programs.account {
                command.uid(user).gid(group);
            }
            // Not all accounts may see the directory that fathom was started in.
            command.current_dir("/");
            command
        };
        let data = me.dir.join("data");
        let log = me.dir.join("init.log");
        let mut init = as_account(&programs.init);
        init.arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync"]);
        Kept::start(init, &log)?.succeed(stop)?;
        let mut server = as_account(&programs.server);
        server.arg("-D").arg(&data);
        for setting in [
            "listen_addresses=".into(),
            format!("unix_socket_directories={}", me.dir.display()),
            format!("shared_buffers={}kB", (buffers >> 10).max(1024)),
            "max_connections=1050".into(),
            "max_wal_size=4GB".into(),
            "logging_collector=off".into(),
            // Files in the data directory: what a killed server shared goes with it.
            "dynamic_shared_memory_type=mmap".into(),
        ] {
            server.args(["-c", &setting]);
        }
        let log = me.dir.join("server.log");
        let socket = me.socket();
        let child = me.child.insert(Kept::start(server, &log)?);
        for _ in 0..3000 {
            if let Some(status) = child.ended() {
                return Err(child.failure(&status.to_string()));
            }
            if Postgres::connect(&socket, "postgres", "postgres").is_ok() {
                return Ok(me);
            }
            if stop() {
                return Err(LabError::Failed("interrupted".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(LabError::Failed(format!(
            "postgres did not answer within a minute: {}",
            outside::last_words(&log)
        )))
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join(".s.PGSQL.5432")
    }

    /// An error of a session, with what the server said before it died, where it did.
    pub(super) fn explain(&mut self, error: SqlError) -> LabError {
        let dead = match &mut self.child {
            Some(child) if error.is_lost() => child.died(),
            _ => None,
        };
        dead.unwrap_or_else(|| error.into())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Immediate: its data goes with it. Its children end before it does.
            child.terminate(libc::SIGQUIT, Duration::from_secs(20));
        }
        release_memory(&self.dir);
    }
}

/// The one thing of a killed server that does not go with its directory: a System V segment, by which servers know
/// that a directory is in use. `postmaster.pid` names it in its seventh line (key and number). Whoever can write there
/// can name any segment: only one of the file's own owner goes.
pub(crate) fn release_memory(dir: &Path) {
    let Some((file, owner)) = owned(&dir.join("data/postmaster.pid")) else {
        return;
    };
    let owner = owner.to_string();
    let mut words = file.lines().nth(6).unwrap_or_default().split_whitespace();
    let (Some(key), Some(id)) = (words.next(), words.next()) else {
        return;
    };
    let Ok(number) = id.parse::<i32>() else {
        return;
    };
    // Its processes are on their way out.
    for _ in 0..20 {
        // Key, number, mode, bytes, creator, last user, processes that have it, owner and group, those of who made it.
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        let mut rows = all
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>());
        // The number may belong to somebody else by now: then its key does not fit.
        match rows.find(|r| r.get(..2) == Some(&[key, id])) {
            Some(row) if [7, 9].iter().any(|i| row.get(*i) != Some(&&*owner)) => return,
            Some(row) if row.get(6) == Some(&"0") => {
                // SAFETY: removes a segment that nobody uses, made for the server in this directory.
                unsafe { libc::shmctl(number, libc::IPC_RMID, std::ptr::null_mut()) };
                return;
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
            None => return,
        }
    }
}

/// What is in a file, and whose it is; nothing behind a link.
fn owned(path: &Path) -> Option<(String, u32)> {
    let file = fathom_files::open::for_reading(path, libc::O_NOFOLLOW).ok()?;
    let owner = file.metadata().ok()?.uid();
    Some((std::io::read_to_string(file).ok()?, owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_goes_with_its_directory_only_where_both_have_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data/postmaster.pid");
        fs::create_dir(dir.path().join("data")).unwrap();
        let key = 0x7a00_0000 | std::process::id() as i32;
        // SAFETY: makes a segment of one page that no process has.
        let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        assert!(id >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: asks for it by its key; nothing is made.
        let there = || unsafe { libc::shmget(key, 0, 0) } == id;
        let name = format!("1\n\n\n\n\n\n {key} {id}\n");
        fs::write(&file, &name).unwrap();
        if outside::is_root() {
            chown(&file, Some(1), None).unwrap();
            release_memory(dir.path());
            assert!(there(), "it belongs to somebody else than the file does");
            chown(&file, Some(0), None).unwrap();
        }
        fs::write(&file, name.replace(&key.to_string(), "7")).unwrap();
        release_memory(dir.path());
        assert!(there(), "its key is another");
        fs::write(&file, &name).unwrap();
        release_memory(dir.path());
        assert!(!there());
    }
}
