//! Transactions of the user's own: pgbench's scripts and loads by name, by weight, on MariaDB, PostgreSQL and SQLite in turns; in a
//! closed loop, in an open one, or in steps until a latency objective breaks.

pub(super) mod driver;
mod pgbench;
mod results;
mod tables;
#[cfg(test)]
mod tests;
mod workload;

use std::cell::RefCell;

use fathom_bench::cost::RunCost;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{seed, turns};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::target::count;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use serde_json::json;

use driver::{How, Weighted};
pub use tables::SCALE_BYTES;
pub use workload::Mode;
use workload::Scripts;

use super::counters::Observed;
pub use super::database::DATABASES;
use super::database::{Database, LeftOut, Made};
use super::objective::{Offered, SHARES};
use super::server::Server;
use super::warmth::Warmth;
use super::workload::Workload;
use super::yours::Yours;
use super::{DbOptions, directory, linkbench, sql, ycsb};
use crate::LabError;
use crate::clients::{Total, WIDTH, ticker};
use crate::loads::{self, About, Course};
use crate::skipped::{self, Skipped};

/// A script's text, with its name and how often it is chosen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptText {
    /// As it is shown.
    pub name: String,
    /// What is in the file.
    pub text: String,
    /// Of the sum of all weights.
    pub weight: u32,
}

/// A load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Load {
    /// A script of the user's.
    Script(ScriptText),
    /// One of [`BUILT_IN`].
    BuiltIn {
        /// Its name.
        name: String,
        /// How often it is chosen, of the sum of all weights.
        weight: u32,
    },
}

/// Loads by name, and what they do.
pub const BUILT_IN: [(&str, &str); 10] = [
    (
        "tpcb-like",
        "pgbench's TPC-B: three updates, a select, an insert",
    ),
    (
        "simple-update",
        "pgbench's, without tellers and branches: less waiting for locks",
    ),
    ("select-only", "pgbench's, a read by key"),
    ("ycsb-a", "YCSB: half reads, half updates"),
    ("ycsb-b", "YCSB: 95 % reads, 5 % updates"),
    ("ycsb-c", "YCSB: reads"),
    ("ycsb-d", "YCSB: reads of the latest, 5 % inserts"),
    ("ycsb-e", "YCSB: short scans, 5 % inserts"),
    ("ycsb-f", "YCSB: reads, half of them with an update behind"),
    ("linkbench", "a social graph: nodes, links and their counts"),
];

/// A load by name that is not made of scripts; its tables are as large as pgbench's of the same scale.
fn native(name: &str, options: &SqlOptions) -> Result<Box<dyn Workload>, LabError> {
    let bytes = u64::from(options.scale) * SCALE_BYTES;
    ycsb::named(name, bytes / ycsb::ROW_BYTES)
        .or_else(|| linkbench::named(name, bytes / linkbench::NODE_BYTES))
        .ok_or_else(|| {
            let known: Vec<&str> = BUILT_IN.iter().map(|b| b.0).collect();
            LabError::Refused(format!(
                "--builtin: '{name}' is none: expected {}",
                known.join(", ")
            ))
        })
}

/// What is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SqlOptions {
    /// What every database lab takes.
    pub db: DbOptions,
    /// Loads; all scripts of a client share its connection and its variables.
    pub loads: Vec<Load>,
    /// Scripts that are done once, when the tables are there.
    pub first: Vec<ScriptText>,
    /// Variables and their values.
    pub defines: Vec<(String, String)>,
    /// Names of [`DATABASES`].
    pub databases: Vec<String>,
    /// Clients.
    pub clients: u32,
    /// How scripts' statements go to the database.
    pub mode: Mode,
    /// Of pgbench's tables: 100,000 accounts each.
    pub scale: u32,
    /// Left out at the start; a quarter of the time where it is not given.
    pub ramp: Option<Nanos>,
    /// Transactions per second that come, whatever was answered: an open loop. Closed where it is not given.
    pub rate: Option<f64>,
    /// What 99 % have to be answered within; steps of an open loop go on until that breaks.
    pub objective: Option<Nanos>,
    /// Bytes of the buffer pool.
    pub pool: Bytes,
    /// A server of the user's own: nothing is started then, and no other database is measured.
    #[serde(default)]
    pub server: Option<Server>,
    /// Whether pgbench runs beside, in turns.
    pub pgbench: bool,
}

impl SqlOptions {
    fn scripts(&self) -> Vec<ScriptText> {
        let of = |load: &Load| match load {
            Load::Script(text) => Some(text.clone()),
            Load::BuiltIn { name, weight } => tables::built_in(name, *weight),
        };
        self.loads.iter().filter_map(of).collect()
    }

    /// All loads: scripts together first.
    fn weighted(&self) -> Result<Vec<Weighted>, LabError> {
        let texts = self.scripts();
        let mut all: Vec<(Box<dyn Workload>, u64)> = Vec::new();
        let texts: Vec<&ScriptText> = texts.iter().filter(|t| t.weight > 0).collect();
        let seed = self.db.seed;
        let scripts = Scripts::new(
            &texts,
            &self.first,
            &self.defines,
            self.mode,
            (self.scale, seed),
        );
        let scripts = scripts.map_err(LabError::Refused)?;
        if !texts.is_empty() || !self.first.is_empty() {
            let weight = texts.iter().map(|t| u64::from(t.weight)).sum();
            all.push((Box::new(scripts), weight));
        }
        for load in &self.loads {
            match load {
                Load::BuiltIn { name, weight } if tables::script(name).is_none() => {
                    all.push((native(name, self)?, u64::from(*weight)));
                }
                _ => {}
            }
        }
        if all.iter().all(|a| a.1 == 0) {
            return Err(LabError::Refused(
                "nothing to do: name a load with a weight above 0 (--script FILE, --builtin NAME)"
                    .into(),
            ));
        }
        let mut first = 0;
        let weighted = all.into_iter().map(|(workload, weight)| {
            let kinds = workload.kinds().len();
            first += kinds;
            Weighted {
                workload,
                weight,
                first: first - kinds,
            }
        });
        Ok(weighted.collect())
    }

    /// Refuses what cannot be: a script that is not understood, a load that nobody knows.
    ///
    /// # Errors
    /// With its name, line and column.
    pub fn check(&self) -> Result<(), LabError> {
        self.weighted().map(|_| ())
    }
}

fn times(plan: &Plan, options: &SqlOptions) -> (Nanos, Nanos) {
    let time = options
        .db
        .time
        .unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    (options.ramp.unwrap_or(Nanos(time.0 / 4)), time)
}

fn bytes(options: &SqlOptions) -> u64 {
    u64::from(options.scale) * SCALE_BYTES
}

fn room(options: &SqlOptions) -> u64 {
    if options.server.is_some() {
        return 1 << 20;
    }
    (bytes(options) * 3 + (512 << 20)) * options.databases.len() as u64
}

/// Points of a database: a closed loop, and shares of its rate.
fn shares(options: &SqlOptions) -> Vec<Option<u32>> {
    let steps = options.objective.iter().flat_map(|_| SHARES.map(Some));
    std::iter::once(None).chain(steps).collect()
}

/// Time and bytes, at most.
pub fn run_cost(plan: &Plan, options: &SqlOptions) -> RunCost {
    let mut o = RunCost::default();
    let databases = options.databases.len() as u32;
    let n = databases * plan.profile.repeats * shares(options).len() as u32;
    let (ramp, time) = times(plan, options);
    let load = Nanos::from_secs(u64::from(2 * options.scale + 10) * u64::from(databases));
    o.phase("making and loading the databases")
        .work(0, load, Bytes(room(options)));
    let warm = ramp.max(Warmth::LEAST) + Nanos::from_secs(1);
    let beside = if options.pgbench {
        warm + time
    } else {
        Nanos::ZERO
    };
    let pages = (ramp + time).as_secs_f64() * f64::from(n) * 10_000.0 * 8192.0;
    let time = Nanos((warm + time + beside).0 * u64::from(n));
    o.phase("transactions").work(n, time, Bytes(pages as u64));
    o
}

/// What was seen of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Seen {
    name: String,
    version: String,
    /// How it does its I/O.
    proof: String,
    /// Why its page cache has no limit, where it has none.
    unlimited: Option<String>,
}

/// A point of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Point {
    /// Which one.
    database: usize,
    /// Percent of what its closed loop does that come in an open one.
    share: Option<u32>,
}

/// What was counted beside a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    /// The job of each kind of transaction that was done.
    kinds: Vec<Option<usize>>,
    /// Tried again after deadlocks, conflicts and lock waits.
    again: u64,
    /// Transactions per second that came in an open loop.
    offered: Option<f64>,
    /// Of the server itself.
    #[serde(flatten)]
    seen: Observed,
    /// What pgbench did, half of its time before and half behind.
    pgbench: Option<pgbench::Theirs>,
}

impl Offered for Counted {
    fn offered(&self) -> Option<f64> {
        self.offered
    }
}

type Line = loads::Line<Point, Counted>;
type Repeat = loads::Repeat<Counted>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SqlResult {
    options: SqlOptions,
    /// Kinds of transactions, by name.
    kinds: Vec<String>,
    seen: Vec<Seen>,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl ExperimentResult for SqlResult {
    const EXPERIMENT: &'static str = "sql";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        shown
            .sections
            .extend(skipped::skipped("sql", &self.skipped));
    }
}

/// Measures and puts sections, headlines and findings into the notebook. A database that fails does not end the
/// others; the first failure is the run's.
///
/// # Errors
/// Where the target is no directory, a server dies, or the run directory fails; what was measured before stands.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &SqlOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let dir = directory(bench)?;
    let loads = options.weighted()?;
    let pgbench = match options.pgbench {
        true => Some(pgbench::probe()?),
        false => None,
    };
    let place = LabDir::create(&dir, room(options)).map_err(LabError::from)?;
    let yours = options.server.as_ref().map(Yours::open).transpose()?;
    let yours = yours
        .map(Yours::with_scripts)
        .transpose()
        .map_err(LabError::from)?;
    let mut lab = Lab {
        bench,
        plan,
        options,
        loads: &loads,
        pgbench,
        place: &place,
        book,
        sink,
        seen: Vec::new(),
        lines: Vec::new(),
        out: LeftOut::default(),
        done: 0,
    };
    lab.all(yours)?;
    let result = SqlResult {
        options: options.clone(),
        kinds: kinds(&loads),
        seen: lab.seen,
        lines: lab.lines,
        skipped: lab.out.skipped.clone(),
    };
    let out = lab.out;
    drop(place);
    skipped::missing(book, &result.skipped, true);
    book.found(&result)?;
    out.end(bench, book)
}

fn kinds(loads: &[Weighted]) -> Vec<String> {
    let all = loads.iter().flat_map(|w| w.workload.kinds());
    all.map(|k| k.0).collect()
}

/// A measurement under way.
struct Lab<'a> {
    bench: &'a dyn Bench,
    plan: &'a Plan,
    options: &'a SqlOptions,
    loads: &'a [Weighted],
    pgbench: Option<pgbench::Program>,
    place: &'a LabDir,
    book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
    seen: Vec<Seen>,
    lines: Vec<Line>,
    out: LeftOut,
    done: u32,
}

impl Lab<'_> {
    /// Says what comes next.
    fn next(&mut self, what: &str) {
        let points = shares(self.options).len() as u32 * self.plan.profile.repeats;
        let total = self.options.databases.len() as u32 * (points + 1);
        self.sink.job(self.done, total, what);
        self.done += 1;
    }

    fn all(&mut self, mut yours: Option<Yours>) -> Result<(), NotebookError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        // As long as it works.
        let mut databases: Vec<Option<Database>> = Vec::new();
        let asked = |d: &&str| self.options.databases.iter().any(|n| n == d);
        for name in DATABASES.into_iter().filter(asked).collect::<Vec<_>>() {
            self.next(&format!("load {name}"));
            match self.open(name, yours.take()) {
                Ok(database) => {
                    let points = shares(self.options).into_iter().map(|share| Point {
                        database: databases.len(),
                        share,
                    });
                    self.lines.extend(points.map(Line::new));
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
                let at = self.lines[i].setting.database;
                let Some(database) = &mut databases[at] else {
                    continue;
                };
                self.next(&format!("sql {}", self.label(i)));
                match self.measure(database, i, repeat) {
                    Ok(r) => self.lines[i].repeats.push(r),
                    Err(_) if stop() => return Ok(()),
                    Err(e) => {
                        let (name, e) = (database.name, database.explain(e));
                        self.out.add(self.place, name, e);
                        databases[at] = None;
                    }
                }
            }
        }
        Ok(())
    }

    fn label(&self, line: usize) -> String {
        let Point { database, share } = self.lines[line].setting;
        let name = &self.seen[database].name;
        match share {
            Some(share) => format!("{name}-{share}pc"),
            None => name.clone(),
        }
    }

    /// Makes and fills a database.
    fn open(&mut self, name: &'static str, yours: Option<Yours>) -> Result<Database, LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let options = self.options;
        let made = Made {
            schema: "fathom",
            pool: options.pool.0,
            log: (bytes(options) / 8).clamp(32 << 20, 1 << 30),
            sessions: options.clients * self.loads.len() as u32 + 2,
        };
        let mut database = Database::open(name, self.place, made, yours, &stop)?;
        let filled = (|| {
            let _inside = database.inside();
            let mut session = database.connect()?;
            let dialect = database.dialect();
            database.loading(&mut *session, true)?;
            for load in self.loads {
                load.workload
                    .fill(&mut *session, dialect, options.db.seed, &stop)?;
            }
            database.loading(&mut *session, false)
        })();
        filled.map_err(|e| database.explain(e))?;
        if stop() {
            return Err(LabError::Failed("interrupted".into()));
        }
        self.seen.push(Seen {
            name: name.to_owned(),
            version: database.version.clone(),
            proof: database.proof(),
            unlimited: database.budget.unlimited.clone(),
        });
        Ok(database)
    }

    /// Transactions per second that come: those that were asked for, or a share of what the closed loop has done.
    fn offered(&self, line: usize) -> Result<Option<f64>, LabError> {
        let Point { database, share } = self.lines[line].setting;
        let Some(share) = share else {
            return Ok(self
                .options
                .rate
                .filter(|_| self.options.objective.is_none()));
        };
        let closed = self.lines.iter().find(|l| {
            let p = &l.setting;
            p.database == database && p.share.is_none()
        });
        let course = closed.and_then(|l| Some(&l.repeats.first()?.course));
        let rate = course.and_then(Course::rate).filter(|r| *r > 0.0);
        let rate = rate.ok_or_else(|| {
            LabError::Failed("the closed loop did nothing of which shares could be made".into())
        })?;
        Ok(Some(rate * f64::from(share) / 100.0))
    }

    fn measure(&mut self, database: &Database, line: usize, repeat: u32) -> sql::Result<Repeat> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let (ramp, time) = times(self.plan, self.options);
        let rate = self.offered(line)?;
        let share = self.lines[line].setting.share;
        // A step is judged by its 99th percentile, with ten samples beyond it in all repeats together.
        let samples = 1200.0 / f64::from(self.plan.profile.repeats);
        let enough = rate.filter(|_| share.is_some() && self.options.db.time.is_none());
        let enough = enough.map_or(0.0, |r| (samples / r).min(60.0));
        let how = How {
            clients: self.options.clients,
            ramp,
            time: time.max(Nanos((enough * 1e9) as u64)),
            rate,
            // Databases are held against each other on the same transactions.
            seed: seed(self.options.db.seed, "sql", "clients", repeat),
        };
        let beside = |half: &str| -> Result<Option<pgbench::Theirs>, LabError> {
            let socket = database
                .postgres_socket()
                .filter(|_| share.is_none() && !stop());
            let Some((program, socket)) = self.pgbench.as_ref().zip(socket) else {
                return Ok(None);
            };
            let seed = seed(self.options.db.seed, "sql", half, repeat);
            program
                .run(self.options, &how, (self.place, socket), seed, &stop)
                .map(Some)
        };
        // pgbench has no more cache than it has beside fathom's driver.
        database.budget.hold();
        if repeat == 0 {
            // Who comes first finds a database that nobody has used.
            beside("pgbench-warm")?;
        }
        let first = beside("pgbench-before")?;
        let device = database.data(self.place.path());
        let device = device.and_then(|d| CounterSource::locate(&d).ok());
        let warmth = RefCell::new(Warmth::new(database.gauge()?));
        let inside = database.inside();
        let watch = RefCell::new(database.watch()?);
        let (mut began, mut seen) = (Ok(()), Ok(Observed::default()));
        let sample = |total: Total<'_>| (total(), device.as_ref().and_then(count));
        let (mut before, mut after) = (None, None);
        let mut shown = ticker(self.sink);
        let mut held = |rate| {
            database.budget.hold();
            watch.borrow_mut().look();
            shown(rate);
        };
        let outcome = driver::run(
            database,
            self.loads,
            how,
            (&stop, &|| {
                // A step follows a closed loop on the same server, which took its log as far as it goes.
                warmth.borrow_mut().cold().filter(|_| share.is_none())
            }),
            &mut |total| {
                began = watch.borrow_mut().begin();
                before = Some(sample(total));
            },
            &mut |total| {
                after = Some(sample(total));
                seen = watch.borrow_mut().end();
            },
            &mut held,
        );
        drop(shown);
        drop(inside);
        let second = match outcome {
            Ok(_) => beside("pgbench-after"),
            Err(_) => Ok(None),
        };
        database.budget.release();
        let (loads, again) = outcome?;
        began?;
        let seen = seen?;
        let (Some(before), Some(after)) = (before, after) else {
            return Err(LabError::Failed("it was ended in its ramp".into()).into());
        };
        let second = second?;
        let course = course(&loads);
        let label = self.label(line);
        let mut jobs = Vec::new();
        for (name, mut done) in kinds(self.loads).into_iter().zip(loads) {
            if done.operations() == 0 {
                jobs.push(None);
                continue;
            }
            done.noted.extend(database.unpaid(&seen));
            let about = About {
                experiment: "sql",
                name: &format!("sql-{label}-{name}"),
                repeat,
                engine: &database.version,
                spec: json!({ "options": self.options, "rate": rate, "seed": how.seed }),
                device: after
                    .1
                    .as_ref()
                    .zip(before.1.as_ref())
                    .map(|(a, b)| a.since(b)),
                ours: database.ours(),
            };
            jobs.push(Some(done.keep(self.book, about)));
        }
        Ok(Repeat {
            jobs: jobs.iter().copied().flatten().collect(),
            operations: after.0 - before.0,
            course,
            beside: Counted {
                kinds: jobs,
                again,
                offered: rate,
                seen,
                pgbench: first.zip(second).map(|(a, b)| a.with(b)),
            },
        })
    }
}

/// Transactions of all kinds over the measured time; the last window is rarely whole.
fn course(loads: &[loads::Load]) -> Course {
    let windows = || loads.iter().flat_map(|l| &l.windows);
    let last = windows().map(|w| w.index).max().unwrap_or(0);
    let mut counts = vec![0; last as usize];
    for w in windows().filter(|w| w.index < last) {
        let done: u64 = w.directions.iter().flatten().map(|d| d.ios).sum();
        counts[w.index as usize] += done;
    }
    Course::thinned(WIDTH, 0, &counts)
}
