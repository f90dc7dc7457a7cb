//! TPC-C-like load, not audited: five transactions on nine tables, on MariaDB, PostgreSQL and SQLite, with the
//! specification's consistency conditions before and after.
//!
//! Terminals have no keying and think times by default, which the specification has: rates per warehouse are then far
//! beyond the 12.86 tpmC that an audited result may have, and say what the database can do, not what may be published. With them, and
//! where every rule of the specification holds that can be seen from here, the rate is called tpmC.

mod check;
mod driver;
mod results;
mod rules;
mod schema;
mod transactions;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use clap::Args;
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed, per_second};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{seed, turns};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_io::JobError;
use fathom_io::threads::within;
use fathom_stats::rng::SplitMix64;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::schema::DeviceDelta;
use fathom_telemetry::{Bytes, Nanos, utc};
use serde::{Deserialize, Serialize};
use serde_json::json;

use driver::{Load, Outcome};
pub use rules::Pace;
use transactions::Constants;

use super::cluster::PostgresArgs;
use super::counters::Observed;
use super::database::{Database, LeftOut, Made};
use super::observed::Counts;
use super::server::{DATABASES, Server, ServerArgs};
use super::settings::{self, SettingArgs};
use super::settings_seen::DatabaseSeen;
use super::sql::{Dialect, Session};
use super::warmth::Warmth;
use super::yours::Yours;
use super::{DbOptions, directory, pool, sql};
use crate::LabError;
use crate::loads::{self, About};
use crate::skipped::{self, Skipped};

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom db tpcc /mnt/data --warehouses 10 --terminals 16\n  fathom db tpcc /mnt/data --warehouses 100 --pool 1g --ramp 180s --time 10m --repeats 5    as Han et al. 2021\n  fathom db tpcc /mnt/data --warehouses 100 --keying --thinking --pool 2g --ramp 20m --time 2h    by the specification's rules\n  fathom db tpcc . --database sqlite                          no server needed\n  fathom db tpcc /mnt/data --database mariadb --try innodb_flush_neighbors=0 --repeats 8    which setting helps\n  fathom db tpcc . --server postgres://bench@db1.example/postgres   your own server"
)]
pub struct TpccOptions {
    /// What every database lab takes.
    #[command(flatten)]
    pub db: DbOptions,
    /// mariadb, postgresql, sqlite
    #[arg(long = "database", value_delimiter = ',', value_name = "NAME,…", value_parser = DATABASES, default_value = "mariadb,postgresql,sqlite")]
    pub databases: Vec<String>,
    /// Warehouses, about 150 MB each [default: as many as --size holds, or 1]
    #[arg(long = "warehouses", conflicts_with = "size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[serde(skip)]
    given: Option<u32>,
    /// Warehouses.
    #[arg(skip)]
    pub warehouses: u32,
    /// Terminals [default: 10, or 10 for each warehouse where they wait]
    #[arg(long = "terminals", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[serde(skip)]
    asked: Option<u32>,
    /// Terminals.
    #[arg(skip)]
    pub terminals: u32,
    /// How they wait between transactions.
    #[command(flatten)]
    #[serde(default)]
    pub pace: Pace,
    /// Connections that serve terminals that wait
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    #[serde(default)]
    pub connections: u32,
    /// Left out at the start; a quarter of the time where it is not given.
    #[arg(skip)]
    pub ramp: Option<Nanos>,
    /// Transactions per second that come at random moments, whatever was answered (an open loop) [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// Terminals do their deliveries themselves, as sysbench-tpcc's do, and not further connections in the background
    #[arg(long)]
    pub inline_deliveries: bool,
    /// Buffer pool of each database
    #[arg(long, default_value = "64m", value_parser = pool)]
    pub pool: Bytes,
    /// Settings of the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: SettingArgs,
    /// The PostgreSQL that the lab starts.
    #[command(flatten)]
    #[serde(default)]
    pub postgres: PostgresArgs,
    #[command(flatten)]
    #[serde(skip)]
    yours: ServerArgs,
    /// A server of the user's own: nothing is started then, and no other database is measured.
    #[arg(skip)]
    #[serde(default)]
    pub server: Option<Server>,
}

/// Connections that a lab's servers take.
const CONNECTIONS_MAX: u32 = 900;

impl TpccOptions {
    /// Bytes of a redo log.
    fn log(&self) -> u64 {
        (u64::from(self.warehouses) * (16 << 20)).clamp(48 << 20, 1 << 30)
    }

    /// Connections that terminals use at the same time.
    fn clients(&self) -> u32 {
        match self.pace.waits() {
            true => self.connections.clamp(1, self.terminals),
            false => self.terminals,
        }
    }
}

fn room(options: &TpccOptions) -> u64 {
    if options.server.is_some() {
        return 1 << 20;
    }
    let one = u64::from(options.warehouses) * schema::WAREHOUSE_BYTES + options.log() + (512 << 20);
    one * options.databases.len() as u64
}

/// Makes and fills the tables.
fn fill(
    database: &Database,
    options: &TpccOptions,
    c_last: i64,
    stop: &dyn Fn() -> bool,
) -> sql::Result<()> {
    let now = now();
    let seed = options.db.seed;
    let _inside = database.inside();
    let mut session = database.connect()?;
    schema::create(&mut *session, database.dialect())?;
    database.loading(&mut *session, true)?;
    schema::load_items(&mut *session, seed)?;
    let next = AtomicU32::new(1);
    let load = |session: &mut dyn Session, stop: &dyn Fn() -> bool| {
        loop {
            let w = next.fetch_add(1, Ordering::Relaxed);
            if w > options.warehouses || stop() {
                return Ok(());
            }
            schema::load_warehouse(session, i64::from(w), seed, c_last, &now, stop)?;
        }
    };
    match loaders(database, options) {
        1 => load(&mut *session, stop)?,
        n => {
            let sessions = (0..n).map(|_| database.connect());
            together(sessions.collect::<sql::Result<_>>()?, &load, stop)?;
        }
    }
    if stop() {
        return Ok(());
    }
    schema::index(&mut *session, database.dialect())?;
    database.loading(&mut *session, false)
}

/// Connections that load at the same time: both sides of each are busy.
fn loaders(database: &Database, options: &TpccOptions) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    match database.dialect() {
        // One writes, whoever else wants to.
        Dialect::Sqlite => 1,
        _ => cores.clamp(1, 16).min(options.warehouses),
    }
}

/// What a connection loads, until it is told to end.
type Loads<'a> = dyn Fn(&mut dyn Session, &dyn Fn() -> bool) -> sql::Result<()> + Sync + 'a;

/// Runs `load` on each session, until all are done, one fails or `stop` says so.
fn together(
    sessions: Vec<Box<dyn Session>>,
    load: &Loads<'_>,
    stop: &dyn Fn() -> bool,
) -> sql::Result<()> {
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut loading = Vec::new();
        for mut session in sessions {
            let work = move || {
                let done = load(&mut *session, &|| ended.load(Ordering::Relaxed));
                if done.is_err() {
                    ended.store(true, Ordering::Relaxed);
                }
                done
            };
            match within(scope, work) {
                Ok(thread) => loading.push(thread),
                Err(e) => {
                    ended.store(true, Ordering::Relaxed);
                    return Err(LabError::Failed(e.to_string()).into());
                }
            }
        }
        while loading.iter().any(|l| !l.is_finished()) {
            if stop() {
                ended.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        loading.into_iter().try_for_each(|l| {
            l.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Contradictions to each of the consistency conditions.
fn contradictions(database: &Database) -> sql::Result<[i64; 12]> {
    let mut session = database.connect()?;
    session.patience(sql::WHOLE_TABLES);
    check::check(&mut *session)
}

fn now() -> String {
    utc::text(std::time::SystemTime::now(), "%Y-%m-%d %H:%M:%S")
}

/// What was seen of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Seen {
    #[serde(flatten)]
    database: DatabaseSeen,
    /// What is tried; empty where the server is as in all others.
    #[serde(default)]
    tried: Vec<String>,
    /// Contradictions to each condition: before, and after.
    before: [i64; 12],
    after: Option<[i64; 12]>,
}

/// What was counted beside a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    /// The job of each kind of transaction that was done.
    kinds: [Option<usize>; 5],
    /// New orders that were rolled back because they had to be.
    rolled_back: u64,
    /// Tried again after deadlocks and lock waits.
    again: u64,
    /// Of the server itself.
    #[serde(flatten)]
    seen: Observed,
}

impl Seen {
    /// In names of jobs and findings.
    fn label(&self) -> String {
        match self.tried.is_empty() {
            true => self.database.name.clone(),
            false => format!("{}-{}", self.database.name, settings::label(&self.tried)),
        }
    }
}

type Line = loads::Line<Seen, Counted>;
type Repeat = loads::Repeat<Counted>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TpccResult {
    options: TpccOptions,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl Measurement for TpccOptions {
    const NAME: &'static str = "db-tpcc";
    const IN_DIRECTORY: Option<&'static str> = super::MAKE_ONE;

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        let each = (schema::WAREHOUSE_BYTES, "a warehouse");
        let given = self.given.map(u64::from);
        self.warehouses = self.db.sized(typed, given, 1, each)?.min(100_000) as u32;
        let usual = match self.pace.waits() {
            true => self.warehouses * rules::TERMINALS,
            false => 10,
        };
        self.terminals = self.asked.unwrap_or(usual);
        self.ramp = typed.ramp;
        self.server = self.yours.find()?;
        if let Some(server) = &self.server {
            self.databases = vec![server.called().into()];
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.postgres.possible(&self.databases)?;
        let beside = [
            ("--rate", self.rate.is_some()),
            ("--keying and --thinking", self.pace.waits()),
        ];
        let yours = self.server.is_some();
        self.settings.possible(&self.databases, yours, &beside)?;
        let n = self.terminals;
        if n > CONNECTIONS_MAX && !self.pace.waits() {
            return Err(format!(
                "--terminals: {n} that never wait need as many connections: ask for {CONNECTIONS_MAX} or fewer, or add --keying and --thinking"
            ));
        }
        if self.pace.waits() && self.rate.is_some() {
            return Err("--rate: terminals that wait come at moments of their own: leave out --rate, or --keying and --thinking".into());
        }
        Ok(())
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let options = self;
        let mut o = super::embedded_cost(plan, &options.db, &["update"], fills);
        let turns = options.settings.turns().count() as u32;
        let n = options.databases.len() as u32 * turns * plan.profile.repeats;
        let (ramp, time) = super::times(plan, &options.db, options.ramp);
        // To make each database, to fill a warehouse and to check it: as two processors and a virtual disk took.
        let load = super::loading(&options.databases, options.warehouses, |name| match name {
            "postgresql" => (6.5, 3.0),
            "sqlite" => (3.0, 1.7),
            _ => (0.5, 7.0),
        });
        let warm = ramp.max(Warmth::least(time)) + Nanos::from_secs(2);
        let pages = (ramp + time).as_secs_f64() * f64::from(n) * 20_000.0 * 16384.0;
        o.phase("making and loading the databases")
            .work(0, load, Bytes(room(options)));
        let time = Nanos((warm + time).0 * u64::from(n));
        o.phase("TPC-C").work(n, time, Bytes(pages as u64));
        Ok(o)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let options = self;
        let dir = directory(bench)?;
        let place = LabDir::create(&dir, room(options)).map_err(LabError::from)?;
        // What can be refused is refused before anything is measured.
        let yours = options.server.as_ref().map(Yours::open);
        let yours = yours.transpose()?;
        super::embedded(bench, plan, &options.db, &["update"], book, sink)?;
        let mut lab = Lab {
            bench,
            plan,
            options,
            place: &place,
            book,
            sink,
            lines: Vec::new(),
            out: LeftOut::default(),
            done: 0,
        };
        lab.all(yours)?;
        let (lines, out) = (lab.lines, lab.out);
        drop(place);
        skipped::missing(book, &out.skipped, true);
        book.found(&TpccResult {
            options: options.clone(),
            lines,
            skipped: out.skipped.clone(),
        })?;
        out.end(bench, book)
    }
}

impl ExperimentResult for TpccResult {
    const EXPERIMENT: &'static str = "tpcc";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        shown
            .sections
            .extend(skipped::skipped("tpcc", &self.skipped));
    }
}

/// A measurement under way.
struct Lab<'a> {
    bench: &'a dyn Bench,
    plan: &'a Plan,
    options: &'a TpccOptions,
    place: &'a LabDir,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
    lines: Vec<Line>,
    out: LeftOut,
    done: u32,
}

/// Numbers that all terminals have in common.
fn constants(random: &mut SplitMix64, last: i64) -> Constants {
    Constants {
        last,
        customer: schema::between(random, 0, 1023),
        item: schema::between(random, 0, 8191),
    }
}

impl Lab<'_> {
    /// Says what comes next.
    fn next(&mut self, databases: usize, what: &str) {
        let turns = self.options.settings.turns().count() as u32;
        let total = databases as u32 * (turns * self.plan.profile.repeats + 1);
        self.sink.job(self.done, total, what);
        self.done += 1;
    }

    /// Fills all databases, measures them in turns, and asks them whether they are consistent.
    fn all(&mut self, mut yours: Option<Yours>) -> Result<(), NotebookError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let mut random = SplitMix64::new(self.options.db.seed ^ 0x7bcc);
        let (c_load, c_run) = schema::last_name_constants(&mut random);
        let constants = constants(&mut random, c_run);
        let asked = |d: &&str| self.options.databases.iter().any(|n| n == d);
        let names: Vec<&str> = DATABASES.into_iter().filter(asked).collect();
        // As long as each works; one after another, with a line for each of its turns.
        let turns_of_each = self.options.settings.turns().count();
        let mut databases: Vec<Option<Database>> = Vec::new();
        for name in &names {
            self.next(names.len(), &format!("load {name}"));
            match self.open(name, yours.take(), c_load) {
                Ok((database, seen)) => {
                    let turns = self.options.settings.turns();
                    let with = |tried| Seen {
                        tried,
                        ..seen.clone()
                    };
                    self.lines.extend(turns.map(with).map(Line::new));
                    databases.push(Some(database));
                }
                Err(_) if stop() => return Ok(()),
                Err(e) => self.out.add(self.place, name, e),
            }
        }
        for repeat in 0..self.plan.profile.repeats {
            for i in turns(self.lines.len(), repeat) {
                if stop() {
                    return Ok(());
                }
                let slot = &mut databases[i / turns_of_each];
                let Some(database) = slot else {
                    continue;
                };
                self.next(
                    names.len(),
                    &format!("tpcc {}", self.lines[i].setting.label()),
                );
                match self.turn(database, i, constants, repeat) {
                    Ok(r) => self.lines[i].repeats.push(r),
                    Err(_) if stop() => return Ok(()),
                    Err(e) => {
                        self.out.add(self.place, database.name, e);
                        *slot = None;
                    }
                }
            }
        }
        for (i, slot) in databases.iter_mut().enumerate() {
            let Some(database) = slot else { continue };
            match contradictions(database) {
                Ok(after) => {
                    let of_it = self.lines.chunks_mut(turns_of_each).nth(i);
                    for line in of_it.into_iter().flatten() {
                        line.setting.after = Some(after);
                    }
                }
                Err(_) if stop() => return Ok(()),
                Err(e) => {
                    let (name, e) = (database.name, database.explain(e));
                    self.out.add(self.place, name, e);
                }
            }
        }
        Ok(())
    }

    /// Makes, fills and asks a database.
    fn open(
        &self,
        name: &'static str,
        yours: Option<Yours>,
        c_load: i64,
    ) -> Result<(Database, Seen), LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let made = Made {
            schema: "tpcc",
            pool: self.options.pool.0,
            log: self.options.log(),
            sessions: self.options.clients() + 1,
            postgres: self.options.postgres.programs.as_deref(),
            settings: &self.options.settings,
        };
        let mut database = Database::open(name, self.place, made, yours, &stop)?;
        let filled = fill(&database, self.options, c_load, &stop);
        filled.map_err(|e| database.explain(e))?;
        if stop() {
            return Err(LabError::Failed("interrupted".into()));
        }
        let before = contradictions(&database).map_err(|e| database.explain(e))?;
        let seen = Seen {
            database: database.seen(self.place)?,
            tried: Vec::new(),
            before,
            after: None,
        };
        Ok((database, seen))
    }

    /// Measures a database; where settings are tried each turn begins with its server anew.
    fn turn(
        &mut self,
        of: &mut Database,
        line: usize,
        constants: Constants,
        repeat: u32,
    ) -> Result<Repeat, LabError> {
        let bench = self.bench;
        if !self.options.settings.tries.is_empty() {
            of.change(&self.lines[line].setting.tried, &|| bench.interrupted())?;
        }
        let label = self.lines[line].setting.label();
        self.measure(of, &label, constants, repeat)
            .map_err(|e| of.explain(e))
    }

    fn measure(
        &mut self,
        database: &Database,
        label: &str,
        constants: Constants,
        repeat: u32,
    ) -> sql::Result<Repeat> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let (ramp, time) = super::times(self.plan, &self.options.db, self.options.ramp);
        let load = Load {
            constants,
            warehouses: self.options.warehouses,
            terminals: self.options.terminals,
            connections: self.options.clients(),
            pace: self.options.pace,
            ramp,
            time,
            rate: self.options.rate,
            inline: self.options.inline_deliveries,
            // Databases are held against each other on the same transactions.
            seed: seed(self.options.db.seed, "tpcc", "terminals", repeat),
        };
        let observed = database.observe(
            self.place.path(),
            (&stop, Some(time)),
            self.sink,
            |terms, begin, end, tick| driver::run(database, &load, terms, begin, end, tick),
        );
        database.budget.release();
        let (outcome, counts) = observed?;
        Ok(self.keep(database, (label, repeat), &load, outcome, counts))
    }

    /// A job for each kind of transaction that was done.
    fn keep(
        &mut self,
        database: &Database,
        (label, repeat): (&str, u32),
        load: &Load,
        outcome: Outcome,
        counts: Counts<Option<DeviceDelta>>,
    ) -> Repeat {
        let device = counts.after.zip(counts.before).map(|(a, b)| a.since(&b));
        let seen = counts.seen;
        let course = outcome.loads[0].course.clone();
        let mut kinds = [None; 5];
        for ((kind, slot), mut done) in transactions::Kind::ALL
            .into_iter()
            .zip(&mut kinds)
            .zip(outcome.loads)
        {
            if done.operations() == 0 {
                continue;
            }
            done.noted.extend(database.unpaid(&seen));
            let about = About {
                experiment: "tpcc",
                name: &format!("tpcc-{label}-{}", kind.name()),
                repeat,
                engine: &database.version,
                spec: json!({ "options": self.options, "seed": load.seed }),
                device: device.clone(),
                ours: database.ours(),
            };
            *slot = Some(done.keep(self.book, about));
        }
        Repeat {
            jobs: kinds.into_iter().flatten().collect(),
            operations: counts.operations + outcome.rolled_back,
            course,
            beside: Counted {
                kinds,
                rolled_back: outcome.rolled_back,
                again: outcome.again,
                seen,
            },
        }
    }
}
