//! A database of a lab: one that the lab makes and starts, or one that the user runs; MariaDB, PostgreSQL and SQLite alike.

use std::path::{Path, PathBuf};

use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Notebook, NotebookError};
use fathom_host::CounterSource;
use fathom_io::target::count;
use fathom_system::cgroup::Inside;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::schema::DeviceDelta;
use fathom_telemetry::{Flag, Nanos};

use super::budget::Budget;
use super::cluster;
use super::counters::{Observed, Watch};
use super::mariadb::{self, Instance, Start};
use super::observed::{Counts, Edge, Terms, observed};
use super::settings::SettingArgs;
use super::settings_seen::DatabaseSeen;
use super::sql::{self, Dialect, Session, SqlError};
use super::warmth::{self, Gauge};
use super::yours::Yours;
use crate::LabError;
use crate::confounders::SettingsSeen;
use crate::skipped::Skipped;

/// How a database is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made<'a> {
    /// Its name on the server.
    pub(super) schema: &'static str,
    /// Bytes for its pages.
    pub(super) pool: u64,
    /// Bytes of its redo log, the same for all that have one of a size that can be chosen.
    pub(super) log: u64,
    /// Connections at most, of which SQLite's own cache is made.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub(super) sessions: u32,
    /// Where PostgreSQL's programs are, if somebody says so.
    pub(super) postgres: Option<&'a Path>,
    /// Settings that its server has, and that are tried on it.
    pub(super) settings: &'a SettingArgs,
}

/// Databases that a lab leaves out: one that fails does not end the others.
#[derive(Default)]
pub(super) struct LeftOut {
    /// Those that are not there, which is no failure.
    pub(super) skipped: Vec<Skipped>,
    /// The first, where something went wrong.
    failure: Option<LabError>,
}

impl LeftOut {
    /// One is out.
    pub(super) fn add(&mut self, place: &LabDir, name: &str, error: LabError) {
        if let LabError::Missing { .. } = error {
            self.skipped.push(Skipped::from_error(name, error));
            return;
        }
        let error = match super::with_room(place.path(), error) {
            LabError::Failed(said) => LabError::Failed(format!("{name}: {said}")),
            other => other,
        };
        self.failure.get_or_insert(error);
    }

    /// Ends the run, whose result is kept.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn end(self, bench: &dyn Bench, book: &mut Notebook) -> Result<(), NotebookError> {
        if bench.interrupted() {
            super::interrupted(book);
            return Ok(());
        }
        self.failure.map_or(Ok(()), |e| Err(e.into()))
    }
}

/// A database of the lab.
pub(super) enum Kind {
    MariaDb(Instance),
    /// The user's.
    Yours(Box<Yours>),
    Postgres(cluster::Cluster),
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf, u64),
}

pub(super) struct Database {
    pub(super) name: &'static str,
    pub(super) version: String,
    kind: Kind,
    /// That all of its servers have.
    set: Vec<String>,
    schema: &'static str,
    pub(super) budget: Budget,
}

impl Database {
    /// Makes and starts it.
    pub(super) fn open(
        name: &'static str,
        place: &LabDir,
        made: Made<'_>,
        yours: Option<Yours>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LabError> {
        if let Some(mut yours) = yours {
            yours.may_try(&made.settings.tries, made.settings.change_server)?;
            return Ok(Self {
                set: Vec::new(),
                name,
                version: format!("{} (yours)", yours.about.version),
                kind: Kind::Yours(Box::new(yours)),
                schema: made.schema,
                budget: Budget::default(),
            });
        }
        let dir = place.plain().join(name);
        let Made {
            schema,
            pool,
            log,
            settings,
            ..
        } = made;
        let budget = Budget::new(name, pool);
        let (version, kind) = match name {
            "mariadb" => {
                let programs = mariadb::probe()?;
                mariadb::knows(&programs, &settings.all())?;
                let mut i = Instance::create(&programs, dir, 16 << 10, log, stop)?;
                let how = Start {
                    pool,
                    loading: false,
                    settings: &settings.set,
                };
                i.start(how, stop)?;
                i.session("")?.batch(&format!("CREATE DATABASE {schema}"))?;
                (programs.version, Kind::MariaDb(i))
            }
            "postgresql" => {
                let programs = cluster::probe(made.postgres)?;
                let dirs = (place.path().join(name), dir);
                let sizes = (budget.own, log);
                let _inside = budget.enter();
                let mut c = cluster::Cluster::create(&programs, dirs, sizes, stop)?;
                c.knows(&settings.all())?;
                c.start(&settings.set, stop)?;
                (programs.version, Kind::Postgres(c))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                super::private_directory(&dir)?;
                let each = budget.own / u64::from(made.sessions);
                let version = format!("SQLite {}", rusqlite::version());
                (
                    version,
                    Kind::Sqlite(dir.join(schema).with_extension("db"), each),
                )
            }
            _ => {
                return Err(LabError::Missing {
                    what: format!("this fathom was built without {name}"),
                    remedy: "cargo build --release -p fathom --features sqlite".into(),
                });
            }
        };
        Ok(Self {
            name,
            version,
            kind,
            set: settings.set.clone(),
            schema: made.schema,
            budget,
        })
    }

    /// A MariaDB that was made and filled; it does not run.
    pub(super) fn of_instance(
        version: &str,
        instance: Instance,
        (schema, set): (&'static str, &[String]),
    ) -> Self {
        Self {
            name: "mariadb",
            version: version.to_owned(),
            kind: Kind::MariaDb(instance),
            set: set.to_vec(),
            schema,
            budget: Budget::default(),
        }
    }

    /// The lab's own MariaDB.
    pub(super) fn instance(&self) -> Option<&Instance> {
        match &self.kind {
            Kind::MariaDb(i) => Some(i),
            _ => None,
        }
    }

    /// The user's.
    pub(super) fn yours(&self) -> Option<&Yours> {
        match &self.kind {
            Kind::Yours(y) => Some(y),
            _ => None,
        }
    }

    /// Stops a server that the lab started, until it is changed.
    pub(super) fn stop(&mut self) {
        match &mut self.kind {
            Kind::MariaDb(i) => i.stop(),
            Kind::Postgres(c) => c.stop(),
            _ => {}
        }
    }

    /// Its server anew, with settings over those that all have; of the user's, they are set as they can be without a restart.
    pub(super) fn change(
        &mut self,
        tried: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let settings = [&self.set[..], tried].concat();
        match &mut self.kind {
            Kind::MariaDb(i) => {
                i.stop();
                let how = Start {
                    pool: self.budget.own,
                    loading: false,
                    settings: &settings,
                };
                i.start(how, stop)
            }
            Kind::Yours(y) => y.change(tried),
            Kind::Postgres(c) => {
                let _inside = self.budget.enter();
                c.stop();
                c.start(&settings, stop)
            }
            // It has no server.
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => Ok(()),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        match &self.kind {
            Kind::MariaDb(_) => Dialect::Mysql,
            Kind::Yours(y) => y.dialect(),
            Kind::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => Dialect::Sqlite,
        }
    }

    pub(super) fn connect(&self) -> sql::Result<Box<dyn Session>> {
        Ok(match &self.kind {
            Kind::MariaDb(i) => Box::new(i.session(self.schema)?),
            Kind::Yours(y) => y.session()?,
            Kind::Postgres(c) => Box::new(c.session()?),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(path, cache) => Box::new(sql::sqlite::Sqlite::open(path, *cache)?),
        })
    }

    pub(super) fn explain(&mut self, error: SqlError) -> LabError {
        match &mut self.kind {
            Kind::MariaDb(i) => i.explain(error),
            Kind::Yours(_) => error.into(),
            Kind::Postgres(c) => c.explain(error),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => error.into(),
        }
    }

    /// Lets `drive` run clients on it, warm as [`observed`] says. Its caches are held to their budget meanwhile, until that is
    /// released.
    ///
    /// # Errors
    /// As [`observed`].
    pub(super) fn observe<T>(
        &self,
        place: &Path,
        (stop, time): (&dyn Fn() -> bool, Option<Nanos>),
        sink: &mut dyn ProgressSink,
        drive: impl FnOnce(Terms<'_>, Edge<'_>, Edge<'_>, &mut dyn FnMut(f64)) -> sql::Result<T>,
    ) -> sql::Result<(T, Counts<Option<DeviceDelta>>)> {
        let device = self.data(place);
        let device = device.and_then(|d| CounterSource::locate(&d).ok());
        let gauge = self.gauge()?;
        let _inside = self.inside();
        observed(
            (gauge, self.watch()?),
            (stop, time),
            &|| device.as_ref().and_then(count),
            (sink, &|| self.budget.hold()),
            drive,
        )
    }

    /// Directory of its socket, where it is a PostgreSQL of the lab's own: for programs that are measured beside.
    pub(super) fn postgres_socket(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Postgres(c) => Some(c.socket_dir()),
            _ => None,
        }
    }

    /// What says whether it has warmed up.
    fn gauge(&self) -> sql::Result<Gauge<'static>> {
        Ok(match &self.kind {
            Kind::MariaDb(i) => warmth::innodb(Box::new(i.session(self.schema)?)),
            Kind::Yours(y) => warmth::of_yours(y)?,
            Kind::Postgres(c) => warmth::postgres(Box::new(c.session()?))?,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(path, _) => warmth::sqlite(path.with_extension("db-wal")),
        })
    }

    /// SQLite works in this process, the others in their own.
    pub(super) fn inside(&self) -> Option<Inside> {
        match self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => self.budget.enter(),
            _ => None,
        }
    }

    /// Where the device's counters are to be read.
    fn data(&self, place: &Path) -> Option<PathBuf> {
        match &self.kind {
            Kind::Yours(y) => y.about.data.clone(),
            _ => Some(place.to_owned()),
        }
    }

    /// What is to be known of it; asked once it is filled.
    ///
    /// # Errors
    /// What it says.
    pub(super) fn seen(&mut self, place: &LabDir) -> Result<DatabaseSeen, LabError> {
        let asked = self
            .connect()
            .and_then(|mut s| SettingsSeen::ask(&mut *s, self.dialect(), place.path()));
        Ok(DatabaseSeen {
            name: self.name.to_owned(),
            version: self.version.clone(),
            proof: self.proof(),
            unlimited: self.budget.unlimited.clone(),
            settings: asked.map_err(|e| self.explain(e))?,
        })
    }

    /// How it does its I/O, as far as it can be seen.
    fn proof(&self) -> String {
        match &self.kind {
            Kind::MariaDb(i) => {
                let (direct, all) = i.direct_files();
                format!(
                    "{direct} of {all} open table spaces with O_DIRECT; asynchronous I/O: {}",
                    i.aio()
                )
            }
            Kind::Yours(y) => format!("with its own settings: {}", y.about.settings),
            Kind::Postgres(_) => {
                let mut answer = sql::Answer::default();
                // Versions before 18 have no other way than to wait for each read.
                let asked = "SELECT current_setting('debug_assertions'), current_setting('data_checksums'), coalesce(current_setting('io_method', true), 'sync')";
                let asked = self.connect().and_then(|mut s| s.query(asked, &mut answer));
                let build = match (asked, answer.text(0, 0)) {
                    (Ok(()), "off") => "without assertions",
                    (Ok(()), "on") => "with assertions",
                    _ => "nobody knows how",
                };
                format!(
                    "built {build}; data_checksums={}, io_method={}; through the page cache (direct I/O is an experiment there): {}",
                    answer.text(0, 1),
                    answer.text(0, 2),
                    self.budget.in_words()
                )
            }
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => {
                format!(
                    "write-ahead log, synced at each commit; through the page cache: {}",
                    self.budget.in_words()
                )
            }
        }
    }

    /// Whether it is on this machine.
    fn here(&self) -> bool {
        match &self.kind {
            Kind::Yours(y) => y.server().is_here(),
            _ => true,
        }
    }

    /// What a server of the user's still owes for the rate; the lab's own are waited for.
    pub(super) fn unpaid(&self, seen: &Observed) -> Option<Flag> {
        warmth::unpaid(seen).filter(|_| !self.ours())
    }

    /// Looks at it while it is measured.
    pub(super) fn watch(&self) -> sql::Result<Watch> {
        Watch::new(self.connect()?, self.dialect(), self.here())
    }

    /// Whether the lab started it: what it reads is what the lab makes it read.
    pub(super) fn ours(&self) -> bool {
        !matches!(self.kind, Kind::Yours(_))
    }

    /// Whether commits may be lost and statements take hours, as long as it is filled.
    pub(super) fn loading(&self, session: &mut dyn Session, loading: bool) -> sql::Result<()> {
        session.patience(if loading {
            sql::WHOLE_TABLES
        } else {
            sql::ANSWER
        });
        match self.kind {
            Kind::MariaDb(_) => session.batch(&format!(
                "SET GLOBAL innodb_flush_log_at_trx_commit={}",
                u8::from(!loading)
            )),
            _ => Ok(()),
        }
    }
}
