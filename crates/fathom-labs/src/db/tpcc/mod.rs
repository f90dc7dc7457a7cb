//! TPC-C-like load, not audited: five transactions on nine tables, on MariaDB, PostgreSQL and SQLite, with the
//! specification's consistency conditions before and after.
//!
//! Terminals have no keying and think times by default, which the specification has: rates per warehouse are then far
//! beyond the 12.86 tpmC that an audited result may have, and say what the database can do, not what may be published.

mod check;
mod driver;
mod results;
mod schema;
mod transactions;

use std::path::{Path, PathBuf};

use fathom_experiments::survey::{Outlook, Watcher};
use fathom_experiments::{Bench, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::driver::Progress;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Bytes, Nanos, utc};

use driver::{Load, Outcome};
use schema::Dialect;
use transactions::Constants;

use super::mariadb::{self, Instance, Start};
use super::sql::{Session, SqlError};
use super::yours::Yours;
use super::{Around, DbOptions, cluster, directory, sql};
use crate::LabError;
use crate::skipped::Skipped;
use fathom_system::lab_dir::LabDir;

/// What is measured.
#[derive(Debug, Clone)]
pub struct TpccOptions {
    /// What every database lab takes.
    pub db: DbOptions,
    /// Names of [`DATABASES`].
    pub databases: Vec<String>,
    /// Warehouses.
    pub warehouses: u32,
    /// Terminals.
    pub terminals: u32,
    /// Left out at the start; a quarter of the time where it is not given.
    pub ramp: Option<Nanos>,
    /// Bytes of the buffer pool.
    pub pool: Bytes,
    /// A server of the user's own (MariaDB or MySQL): nothing is started then, and no other database is measured.
    pub socket: Option<PathBuf>,
}

/// Databases by name.
pub const DATABASES: [&str; 3] = ["mariadb", "postgresql", "sqlite"];

fn times(plan: &Plan, options: &TpccOptions) -> (Nanos, Nanos) {
    let time = options
        .db
        .time
        .unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    (options.ramp.unwrap_or(Nanos(time.0 / 4)), time)
}

fn room(options: &TpccOptions) -> u64 {
    if options.socket.is_some() {
        return 1 << 20;
    }
    let one = u64::from(options.warehouses) * schema::WAREHOUSE_BYTES * 2 + (512 << 20);
    one * options.databases.len() as u64
}

/// Time and bytes, at most.
pub fn outlook(plan: &Plan, options: &TpccOptions, fills: Bytes) -> Outlook {
    let mut o = super::embedded_outlook(plan, &options.db, &["update"], fills);
    let n = options.databases.len() as u32 * plan.profile.repeats;
    let (ramp, time) = times(plan, options);
    let load =
        Nanos::from_secs(20 * u64::from(options.warehouses) * options.databases.len() as u64);
    o.jobs += n;
    o.time += Nanos((ramp + time).0 * u64::from(n)) + load;
    let pages = (ramp + time).as_secs_f64() * f64::from(n) * 20_000.0 * 16384.0;
    o.written_at_most = Bytes(o.written_at_most.0 + room(options) + pages as u64);
    o
}

/// A database of the lab.
enum Kind {
    MariaDb(Instance),
    /// The user's.
    Yours(Box<Yours>),
    Postgres(cluster::Cluster),
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf, u64),
}

struct Database {
    name: &'static str,
    version: String,
    kind: Kind,
}

impl Database {
    /// Makes and starts it.
    fn open(
        name: &'static str,
        place: &Path,
        options: &TpccOptions,
        yours: Option<Yours>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, LabError> {
        if let Some(yours) = yours {
            return Ok(Self {
                name,
                version: format!("{} (yours)", yours.version),
                kind: Kind::Yours(Box::new(yours)),
            });
        }
        let dir = place.join(name);
        let pool = options.pool.0;
        let (version, kind) = match name {
            "mariadb" => {
                let programs = mariadb::probe()?;
                let log = (u64::from(options.warehouses) * (64 << 20)).clamp(96 << 20, 1 << 30);
                let mut i = Instance::create(&programs, dir, 16 << 10, log, stop)?;
                let how = Start {
                    pool,
                    loading: false,
                };
                i.start(how, stop)?;
                i.session("")?.batch("CREATE DATABASE tpcc")?;
                (programs.version, Kind::MariaDb(i))
            }
            "postgresql" => {
                let programs = cluster::probe()?;
                let c = cluster::Cluster::start(&programs, dir, pool, stop)?;
                (programs.version, Kind::Postgres(c))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                super::private_directory(&dir)?;
                let each = pool / u64::from(options.terminals + 1);
                let version = format!("SQLite {}", rusqlite::version());
                (version, Kind::Sqlite(dir.join("tpcc.db"), each))
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
        })
    }

    fn dialect(&self) -> Dialect {
        match self.kind {
            Kind::MariaDb(_) | Kind::Yours(_) => Dialect::Mysql,
            Kind::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => Dialect::Sqlite,
        }
    }

    fn connect(&self) -> sql::Result<Box<dyn Session>> {
        Ok(match &self.kind {
            Kind::MariaDb(i) => Box::new(i.session("tpcc")?),
            Kind::Yours(y) => Box::new(y.session()?),
            Kind::Postgres(c) => Box::new(sql::postgres::Postgres::connect(
                &c.socket(),
                "postgres",
                "postgres",
            )?),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(path, cache) => Box::new(sql::sqlite::Sqlite::open(path, *cache)?),
        })
    }

    fn explain(&mut self, error: SqlError) -> LabError {
        match &mut self.kind {
            Kind::MariaDb(i) => i.explain(error),
            Kind::Yours(_) => error.into(),
            Kind::Postgres(c) => c.explain(error),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => error.into(),
        }
    }

    /// Where the device's counters are to be read.
    fn data(&self, place: &Path) -> Option<PathBuf> {
        match &self.kind {
            Kind::Yours(y) => y.data.clone(),
            _ => Some(place.to_owned()),
        }
    }

    /// Makes and fills the tables.
    fn fill(&self, options: &TpccOptions, c_last: i64, stop: &dyn Fn() -> bool) -> sql::Result<()> {
        let now = now();
        let seed = options.db.seed;
        let mut session = self.connect()?;
        schema::create(&mut *session, self.dialect())?;
        if let Kind::MariaDb(_) = self.kind {
            session.batch("SET GLOBAL innodb_flush_log_at_trx_commit=0")?;
        }
        schema::load_items(&mut *session, seed)?;
        for w in 1..=i64::from(options.warehouses) {
            if stop() {
                return Ok(());
            }
            schema::load_warehouse(&mut *session, w, seed, c_last, &now, stop)?;
        }
        schema::index(&mut *session, self.dialect())?;
        if let Kind::MariaDb(_) = self.kind {
            session.batch("SET GLOBAL innodb_flush_log_at_trx_commit=1")?;
        }
        Ok(())
    }

    /// Contradictions to each of the consistency conditions.
    fn check(&self) -> sql::Result<[i64; 12]> {
        check::check(&mut *self.connect()?)
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
            Kind::Yours(y) => format!("with its own settings: {}", y.settings),
            Kind::Postgres(_) => {
                let mut answer = sql::Answer::default();
                let asked = self
                    .connect()
                    .and_then(|mut s| s.query("SHOW debug_assertions", &mut answer));
                let build = match (asked, answer.text(0, 0)) {
                    (Ok(()), "off") => "without assertions",
                    (Ok(()), "on") => "with assertions",
                    _ => "nobody knows how",
                };
                format!(
                    "built {build}; through the page cache: direct I/O came with version 16, as an experiment"
                )
            }
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(..) => {
                "through the page cache; write-ahead log, synced at each commit".into()
            }
        }
    }
}

fn now() -> String {
    utc::text(std::time::SystemTime::now(), "%Y-%m-%d %H:%M:%S")
}

/// What came of one database.
struct Measured {
    name: &'static str,
    version: String,
    proof: String,
    /// Contradictions to each condition: before, and after.
    before: [i64; 12],
    after: Option<[i64; 12]>,
    repeats: Vec<(Outcome, Option<[u64; 2]>)>,
}

/// Measures and puts sections, headlines and findings into the notebook. A database that fails does not end the
/// others; the first failure is the run's.
///
/// # Errors
/// Where the target is no directory, a server dies, or the run directory fails; what was measured before stands.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &TpccOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let dir = directory(bench)?;
    let place = LabDir::create(&dir, room(options)).map_err(LabError::from)?;
    // What can be refused is refused before anything is measured.
    let has = |name: &str| options.databases.iter().any(|d| d == name);
    let serves = (has("mariadb") && mariadb::probe().is_ok())
        || (has("postgresql") && cluster::probe().is_ok());
    if options.socket.is_none() && serves {
        let longest = place.path().join(DATABASES[1]);
        mariadb::socket_fits(&longest)?;
    }
    let yours = options.socket.as_deref().map(Yours::open);
    let yours = yours.transpose()?;
    super::embedded(bench, plan, &options.db, &["update"], book, watcher)?;
    let mut found = Found::default();
    rounds(
        bench,
        plan,
        options,
        place.path(),
        yours,
        &mut found,
        watcher,
    );
    drop(place);
    results::report(book, options, &found.measured);
    book.run_mut()
        .sections
        .extend(crate::skipped::skipped("tpcc", &found.skipped));
    if bench.interrupted() {
        super::interrupted(book);
        return Ok(());
    }
    found
        .failure
        .map_or(Ok(()), |e| Err(NotebookError::from(e)))
}

/// What came of all databases.
#[derive(Default)]
struct Found {
    measured: Vec<Measured>,
    skipped: Vec<Skipped>,
    /// The first, where something went wrong.
    failure: Option<LabError>,
}

impl Found {
    /// A database is out. One that is not there is no failure.
    fn out(&mut self, name: &str, place: &Path, error: LabError) {
        if let LabError::Missing { .. } = error {
            self.skipped.push(Skipped::from_error(name, error));
            return;
        }
        let error = match super::with_room(place, error) {
            LabError::Failed(said) => LabError::Failed(format!("{name}: {said}")),
            other => other,
        };
        self.failure.get_or_insert(error);
    }
}

fn rounds(
    bench: &dyn Bench,
    plan: &Plan,
    options: &TpccOptions,
    place: &Path,
    mut yours: Option<Yours>,
    found: &mut Found,
    watcher: &mut dyn Watcher,
) {
    let stop = || bench.interrupted();
    let mut random = SplitMix64::new(options.db.seed ^ 0x7bcc);
    let (c_load, c_run) = schema::last_name_constants(&mut random);
    let constants = Constants {
        last: c_run,
        customer: schema::between(&mut random, 0, 1023),
        item: schema::between(&mut random, 0, 8191),
    };
    let names = match yours {
        Some(_) => vec![DATABASES[0]],
        None => DATABASES
            .into_iter()
            .filter(|d| options.databases.iter().any(|n| n == d))
            .collect(),
    };
    // Beside each in `found.measured`: the database, as long as it works.
    let mut databases: Vec<Option<Database>> = Vec::new();
    let total = names.len() as u32 * (plan.profile.repeats + 1);
    let mut done = 0;
    for name in names {
        watcher.job(done, total, &format!("load {name}"));
        done += 1;
        let opened = Database::open(name, place, options, yours.take(), &stop);
        let loaded = opened.and_then(|mut database| {
            let filled = database.fill(options, c_load, &stop);
            filled.map_err(|e| database.explain(e))?;
            if stop() {
                return Err(LabError::Failed("interrupted".into()));
            }
            let before = database.check();
            Ok((before.map_err(|e| database.explain(e))?, database))
        });
        match loaded {
            Ok((before, database)) => {
                found.measured.push(Measured {
                    name,
                    version: database.version.clone(),
                    proof: database.proof(),
                    before,
                    after: None,
                    repeats: Vec::new(),
                });
                databases.push(Some(database));
            }
            Err(_) if stop() => return,
            Err(e) => found.out(name, place, e),
        }
    }
    let (ramp, time) = times(plan, options);
    for repeat in 0..plan.profile.repeats {
        for (i, slot) in databases.iter_mut().enumerate() {
            if stop() {
                return;
            }
            let Some(database) = slot else { continue };
            let name = database.name;
            watcher.job(done, total, &format!("tpcc {name}"));
            done += 1;
            let load = Load {
                constants,
                warehouses: options.warehouses,
                terminals: options.terminals,
                ramp,
                time,
                seed: options.db.seed * 1000 + u64::from(repeat),
            };
            let device = database.data(place);
            let device = device.and_then(|d| CounterSource::locate(&d).ok());
            let mut around = None;
            let mut begin = || around = Some(Around::begin(device.as_ref()));
            let began = fathom_io::clock::monotonic();
            let mut count = 0.0;
            let outcome = driver::run(database, &load, &stop, &mut begin, &mut |rate| {
                count += rate / 10.0;
                watcher.progress(&Progress {
                    elapsed: fathom_io::clock::monotonic().since(began),
                    ios: count as u64,
                    ..Progress::default()
                });
            });
            match outcome {
                Ok(outcome) => {
                    let device = around.and_then(Around::end);
                    found.measured[i].repeats.push((outcome, device));
                }
                Err(_) if stop() => return,
                Err(e) => {
                    found.out(name, place, database.explain(e));
                    *slot = None;
                }
            }
        }
    }
    for (i, slot) in databases.iter_mut().enumerate() {
        let Some(database) = slot else { continue };
        match database.check() {
            Ok(after) => found.measured[i].after = Some(after),
            Err(_) if stop() => return,
            Err(e) => found.out(database.name, place, database.explain(e)),
        }
    }
}
