//! A private MariaDB: made, loaded, started, stopped and removed by the lab, reached through a unix socket only.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::private_directory;
use super::sql::mysql::Mysql;
use super::sql::{Answer, Session, SqlError};
use crate::LabError;
use fathom_system::packages;
use fathom_system::process;
use fathom_system::programs::{self, ChildGuard};
use serde::{Deserialize, Serialize};

/// Where the programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    server: PathBuf,
    install: PathBuf,
    /// As the server says it.
    pub(super) version: String,
}

/// What brings them, as Debian calls it.
pub(super) const PACKAGES: &str = "mariadb-server-core mariadb-client-core";

/// Looks for them.
pub(super) fn probe() -> Result<Programs, LabError> {
    let missing = |what: &str| LabError::Missing {
        what: format!("{what} is not installed"),
        remedy: packages::install(PACKAGES) + " (no server is started by them)",
    };
    let server = programs::find("mariadbd").ok_or_else(|| missing("mariadbd"))?;
    let install =
        programs::find("mariadb-install-db").ok_or_else(|| missing("mariadb-install-db"))?;
    // The installer asks it for nothing, but does not start without.
    programs::find("my_print_defaults").ok_or_else(|| missing("my_print_defaults"))?;
    let said = programs::first_line(&server, &["--version"]);
    let version = said.split("Ver ").nth(1).unwrap_or(&said);
    // A build with assertions says so in its version.
    let build = if version.contains("-debug") {
        "with assertions"
    } else {
        "without assertions"
    };
    let version = format!("{version}, built {build}");
    Ok(Programs {
        server,
        install,
        version,
    })
}

/// A data directory and, while it runs, its server.
#[derive(Debug)]
pub(super) struct Instance {
    programs: Programs,
    dir: PathBuf,
    page: u64,
    log_bytes: u64,
    child: Option<ChildGuard>,
}

/// How a server is started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start<'a> {
    /// Bytes of the buffer pool.
    pub(super) pool: u64,
    /// For filling tables: nothing needs to survive, and there is only one copy of each page.
    pub(super) loading: bool,
    /// `NAME=VALUE`, over whatever the lab itself asks for.
    pub(super) settings: &'a [String],
}

/// Refuses settings that the server does not know.
pub(super) fn knows(programs: &Programs, settings: &[String]) -> Result<(), LabError> {
    let mut help = Command::new(&programs.server);
    help.args(["--no-defaults", "--verbose", "--help"]);
    if programs::is_root() {
        help.arg("--user=root");
    }
    super::settings::known(help, settings)
}

impl Instance {
    /// Makes a data directory; `dir` has a plain name ([`fathom_system::lab_dir::LabDir::plain`]).
    pub(super) fn create(
        programs: &Programs,
        dir: PathBuf,
        page: u64,
        log_bytes: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LabError> {
        let me = Self {
            programs: programs.clone(),
            dir,
            page,
            log_bytes,
            child: None,
        };
        let failed = |e: std::io::Error| {
            LabError::Failed(format!("{}: cannot be made: {e}", me.dir.display()))
        };
        private_directory(&me.dir)?;
        fathom_files::create::private_dir(&me.dir.join("tmp")).map_err(failed)?;
        let mut command = Command::new(&me.programs.install);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", me.dir.join("data").display()))
            .arg(format!("--tmpdir={}", me.dir.join("tmp").display()))
            .arg(format!("--innodb-page-size={page}"))
            .arg("--innodb-log-file-size=16M")
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ])
            .current_dir(&me.dir);
        if programs::is_root() {
            command.arg("--user=root");
        }
        let log = me.dir.join("install.log");
        ChildGuard::start(command, &log)?.succeed(stop)?;
        Ok(me)
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("sock")
    }

    /// Starts the server and waits until it answers.
    pub(super) fn start(
        &mut self,
        how: Start<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let log = self.dir.join("server.log");
        let mut command = Command::new(&self.programs.server);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--socket={}", path("sock")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--tmpdir={}", path("tmp")))
            .args(["--skip-networking", "--skip-log-bin", "--skip-name-resolve"])
            .args(["--performance-schema=OFF", "--max-connections=1100"])
            .arg(format!("--innodb-page-size={}", self.page))
            .arg(format!("--innodb-buffer-pool-size={}", how.pool))
            .arg(format!("--innodb-log-file-size={}", self.log_bytes))
            .args([
                "--innodb-flush-method=O_DIRECT",
                "--innodb-file-per-table=1",
                "--innodb-buffer-pool-load-at-startup=0",
                "--innodb-buffer-pool-dump-at-shutdown=0",
                "--secure-file-priv=",
            ])
            .current_dir(&self.dir);
        if how.loading {
            command.args([
                "--innodb-flush-log-at-trx-commit=0",
                "--skip-innodb-doublewrite",
            ]);
        }
        if programs::is_root() {
            command.arg("--user=root");
        }
        command.args(how.settings.iter().map(|s| format!("--{s}")));
        let child = self.child.insert(ChildGuard::start(command, &log)?);
        // A log to recover, or a slow disk, takes its time.
        for _ in 0..6000 {
            if let Some(status) = child.ended() {
                let error = child.failure(&status.to_string());
                self.child = None;
                return Err(error.into());
            }
            let socket = self.dir.join("sock");
            if socket.exists() && Mysql::connect(&socket, "root", "").is_ok() {
                return Ok(());
            }
            if stop() {
                self.child = None;
                return Err(LabError::Failed("interrupted".into()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child = None;
        Err(LabError::Failed(format!(
            "mariadbd did not answer within 2 minutes: {}",
            programs::last_words(&log)
        )))
    }

    /// Connects.
    pub(super) fn session(&self, database: &str) -> super::sql::Result<Mysql> {
        Mysql::connect(&self.socket(), "root", database)
    }

    /// Where it listens.
    pub(super) fn socket_path(&self) -> PathBuf {
        self.socket()
    }

    /// An error of a session, with what the server said before it died, where it did.
    pub(super) fn explain(&mut self, error: SqlError) -> LabError {
        let dead = match &mut self.child {
            Some(child) if error.is_lost() => child.died(),
            _ => None,
        };
        dead.map_or_else(|| error.into(), LabError::from)
    }

    /// Stops the server.
    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An orderly end writes all changed pages; the next start has nothing to recover.
            child.terminate(libc::SIGTERM, Duration::from_secs(120));
        }
    }

    /// Process id of the server.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(ChildGuard::id)
    }

    /// How it does asynchronous I/O, as its log says.
    pub(super) fn aio(&self) -> String {
        let log = fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        log.lines()
            .rev()
            .find_map(|l| {
                l.split("InnoDB: Using ")
                    .nth(1)
                    .filter(|t| t.contains("uring") || t.contains("AIO"))
            })
            .unwrap_or("not said")
            .to_owned()
    }

    /// Of its table spaces that are open: how many with O_DIRECT, and how many in all.
    pub(super) fn direct_files(&self) -> (usize, usize) {
        let Some(pid) = self.id() else { return (0, 0) };
        direct_files(pid, |name| name.ends_with(".ibd"))
    }

    /// Bytes that its process had read from storage and written to it so far.
    pub(super) fn process_io(&self) -> Option<[u64; 2]> {
        let id = self.id()?;
        Some([
            process::io(id, "read_bytes")?,
            process::io(id, "write_bytes")?,
        ])
    }

    /// Bytes of the tables of a database.
    pub(super) fn table_bytes(&self, database: &str) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let dir = self.dir.join("data").join(database);
        let Ok(entries) = fs::read_dir(dir) else {
            return 0;
        };
        entries
            .flatten()
            .filter_map(|e| e.metadata().ok())
            .map(|m| m.blocks() * 512)
            .sum()
    }
}

/// Of a process' open files that `which` chooses: how many with O_DIRECT, and how many in all.
pub(super) fn direct_files(pid: u32, which: impl Fn(&str) -> bool) -> (usize, usize) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return (0, 0);
    };
    let (mut direct, mut all) = (0, 0);
    for entry in entries.flatten() {
        let Ok(file) = fs::read_link(entry.path()) else {
            continue;
        };
        if !which(&file.to_string_lossy()) {
            continue;
        }
        let name = entry.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", name.to_string_lossy());
        let info = fs::read_to_string(info).unwrap_or_default();
        let flags = info
            .lines()
            .find_map(|l| l.strip_prefix("flags:"))
            .and_then(|f| i32::from_str_radix(f.trim(), 8).ok())
            .unwrap_or(0);
        all += 1;
        direct += usize::from(flags & libc::O_DIRECT != 0);
    }
    (direct, all)
}

/// What a server counts, by name; `None` where it does not.
pub(super) fn status<const N: usize>(
    session: &mut dyn Session,
    names: [&str; N],
) -> super::sql::Result<[Option<u64>; N]> {
    let mut answer = Answer::default();
    let list = names.map(|n| format!("'{n}'")).join(",");
    session.query(
        &format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({list})"),
        &mut answer,
    )?;
    Ok(names.map(|name| {
        (0..answer.rows())
            .find(|r| answer.text(*r, 0).eq_ignore_ascii_case(name))
            .and_then(|r| answer.text(r, 1).parse().ok())
    }))
}

/// What a counter rose by, where it is known at both ends.
pub(super) fn since(now: Option<u64>, then: Option<u64>) -> Option<u64> {
    now.zip(then).map(|(now, then)| now.saturating_sub(then))
}

/// What InnoDB counts: reads and writes of pages, syncs of the log, and what sessions wait for in it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct InnodbCounters {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// `None` where the server does not count them: MariaDB from 10.8 on.
    pub(super) log_syncs: Option<u64>,
    /// Pages that a session had to wait for, because the pool did not have them.
    pub(super) pool_reads: Option<u64>,
    /// Pages that were asked of the pool.
    pub(super) pool_requests: Option<u64>,
    /// Pages written from it.
    pub(super) flushed: Option<u64>,
    /// Times that a session waited for a free page.
    pub(super) wait_free: Option<u64>,
    /// Times that the buffer of the log was too small.
    pub(super) log_waits: Option<u64>,
    /// Waits for locks of rows, and how long all of them took, ms.
    pub(super) lock_waits: Option<u64>,
    pub(super) lock_ms: Option<u64>,
    /// Bytes of log.
    pub(super) logged: Option<u64>,
    /// Age of the checkpoint as a share of what the log allows, the mean of the measured part.
    pub(super) checkpoint_share: Option<f64>,
    /// What the age grew by, bytes.
    pub(super) ageing: Option<i64>,
}

impl InnodbCounters {
    /// Asks the server.
    pub(super) fn read(session: &mut dyn Session) -> super::sql::Result<Self> {
        let [
            reads,
            writes,
            log_syncs,
            pool_reads,
            pool_requests,
            flushed,
            wait_free,
            log_waits,
            lock_waits,
            lock_ms,
            lsn,
            redo,
            age,
            freed,
        ] = status(
            session,
            [
                "Innodb_data_reads",
                "Innodb_data_writes",
                "Innodb_os_log_fsyncs",
                "Innodb_buffer_pool_reads",
                "Innodb_buffer_pool_read_requests",
                "Innodb_buffer_pool_pages_flushed",
                "Innodb_buffer_pool_wait_free",
                "Innodb_log_waits",
                "Innodb_row_lock_waits",
                "Innodb_row_lock_time",
                "Innodb_lsn_current",
                "Innodb_redo_log_current_lsn",
                "Innodb_checkpoint_age",
                "Innodb_redo_log_checkpoint_lsn",
            ],
        )?;
        let counted = |n: Option<u64>| {
            n.ok_or_else(|| SqlError::here("the server does not count its reads and writes".into()))
        };
        let age = age.or(since(redo, freed));
        Ok(Self {
            reads: counted(reads)?,
            writes: counted(writes)?,
            log_syncs,
            pool_reads,
            pool_requests,
            flushed,
            wait_free,
            log_waits,
            lock_waits,
            lock_ms,
            logged: lsn.or(redo),
            checkpoint_share: None,
            ageing: age.map(|a| a as i64),
        })
    }
    /// What happened since.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let d = |f: fn(&Self) -> Option<u64>| since(f(self), f(earlier));
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            log_syncs: d(|c| c.log_syncs),
            pool_reads: d(|c| c.pool_reads),
            pool_requests: d(|c| c.pool_requests),
            flushed: d(|c| c.flushed),
            wait_free: d(|c| c.wait_free),
            log_waits: d(|c| c.log_waits),
            lock_waits: d(|c| c.lock_waits),
            lock_ms: d(|c| c.lock_ms),
            logged: d(|c| c.logged),
            checkpoint_share: None,
            ageing: self.ageing.zip(earlier.ageing).map(|(a, b)| a - b),
        }
    }
}
