//! Transactions of the user's own: pgbench's scripts and loads by name, by weight, on MariaDB, PostgreSQL and SQLite in turns; in a
//! closed loop, in an open one, or in steps until a latency objective breaks.

pub(super) mod driver;
mod options;
mod pgbench;
mod results;
mod tables;
#[cfg(test)]
mod tests;
mod workload;

use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::schedule::{seed, turns};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_io::JobError;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::schema::DeviceDelta;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use serde_json::json;

use driver::{AllTries, How, Weighted};
pub use options::{BUILT_IN, Load, SqlOptions};
use tables::SCALE_BYTES;

use super::counters::Observed;
use super::database::{Database, LeftOut, Made};
use super::objective::{Offered, SHARES};
use super::observed::Counts;
use super::server::DATABASES;
use super::settings;
use super::settings_seen::DatabaseSeen;
use super::warmth::Warmth;
use super::yours::Yours;
use super::{directory, sql};
use crate::LabError;
use crate::clients::WIDTH;
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

fn bytes(options: &SqlOptions) -> u64 {
    u64::from(options.scale) * SCALE_BYTES
}

fn room(options: &SqlOptions) -> u64 {
    if options.server.is_some() {
        return 1 << 20;
    }
    (bytes(options) * 3 + (512 << 20)) * options.databases.len() as u64
}

/// Points of a database: a closed loop, and shares of its rate, or the same loop with each setting that is tried.
fn points(options: &SqlOptions, database: usize) -> Vec<Point> {
    let steps = options.objective.iter().flat_map(|_| SHARES.map(Some));
    let closed = options.settings.turns().map(|tried| (None, tried));
    let all = closed.chain(steps.map(|share| (share, Vec::new())));
    let point = |(share, tried)| Point {
        database,
        share,
        tried,
    };
    all.map(point).collect()
}

/// A point of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Point {
    /// Which one.
    database: usize,
    /// Percent of what its closed loop does that come in an open one.
    share: Option<u32>,
    /// What is tried; empty where the server is as in all others.
    #[serde(default)]
    tried: Vec<String>,
}

/// What was counted beside a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    /// The job of each kind of transaction that was done.
    kinds: Vec<Option<usize>>,
    /// What became of transactions that the database undid.
    #[serde(flatten)]
    tries: AllTries,
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
    seen: Vec<DatabaseSeen>,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl Measurement for SqlOptions {
    const NAME: &'static str = "db-sql";
    const IN_DIRECTORY: Option<&'static str> = super::MAKE_ONE;

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        self.follow(typed)
    }

    fn check(&self) -> Result<(), String> {
        self.possible()
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, _: Bytes) -> Result<RunCost, JobError> {
        let options = self;
        let mut o = RunCost::default();
        let databases = options.databases.len() as u32;
        let n = databases * plan.profile.repeats * points(options, 0).len() as u32;
        let (ramp, time) = super::times(plan, &options.db, options.ramp);
        // pgbench's tables, as two processors and a virtual disk took.
        let load = super::loading(&options.databases, options.scale, |name| match name {
            "postgresql" => (3.0, 0.22),
            "sqlite" => (0.3, 0.08),
            _ => (1.0, 0.35),
        });
        o.phase("making and loading the databases")
            .work(0, load, Bytes(room(options)));
        let warm = ramp.max(Warmth::least(time)) + Nanos::from_secs(1);
        let beside = if options.pgbench {
            warm + time
        } else {
            Nanos::ZERO
        };
        let pages = (ramp + time).as_secs_f64() * f64::from(n) * 10_000.0 * 8192.0;
        let time = Nanos((warm + time + beside).0 * u64::from(n));
        o.phase("transactions").work(n, time, Bytes(pages as u64));
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
        let loads = options.weighted()?;
        let pgbench = match options.pgbench {
            true => Some(pgbench::probe(options.postgres.programs.as_deref())?),
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
    seen: Vec<DatabaseSeen>,
    lines: Vec<Line>,
    out: LeftOut,
    done: u32,
}

impl Lab<'_> {
    /// Says what comes next.
    fn next(&mut self, what: &str) {
        let points = points(self.options, 0).len() as u32 * self.plan.profile.repeats;
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
                    let points = points(self.options, databases.len());
                    self.lines.extend(points.into_iter().map(Line::new));
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
                match self.turn(database, i, repeat) {
                    Ok(r) => self.lines[i].repeats.push(r),
                    Err(_) if stop() => return Ok(()),
                    Err(e) => {
                        self.out.add(self.place, database.name, e);
                        databases[at] = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Measures a point; where settings are tried each begins with its server anew.
    fn turn(&mut self, of: &mut Database, line: usize, repeat: u32) -> Result<Repeat, LabError> {
        let bench = self.bench;
        if !self.options.settings.tries.is_empty() {
            of.change(&self.lines[line].setting.tried, &|| bench.interrupted())?;
        }
        self.measure(of, line, repeat).map_err(|e| of.explain(e))
    }

    fn label(&self, line: usize) -> String {
        let Point {
            database,
            share,
            tried,
        } = &self.lines[line].setting;
        let name = &self.seen[*database].name;
        match share {
            Some(share) => format!("{name}-{share}pc"),
            None if tried.is_empty() => name.clone(),
            None => format!("{name}-{}", settings::label(tried)),
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
            postgres: options.postgres.programs.as_deref(),
            settings: &options.settings,
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
        self.seen.push(database.seen(self.place)?);
        Ok(database)
    }

    /// Transactions per second that come: those that were asked for, or a share of what the closed loop has done.
    fn offered(&self, line: usize) -> Result<Option<f64>, LabError> {
        let Point {
            database, share, ..
        } = self.lines[line].setting;
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
        let (ramp, time) = super::times(self.plan, &self.options.db, self.options.ramp);
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
            max_tries: self.options.max_tries,
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
        let observed = database.observe(
            self.place.path(),
            // A step follows a closed loop on the same server, which took its log as far as it goes.
            (&stop, share.is_none().then_some(how.time)),
            self.sink,
            |terms, begin, end, tick| {
                driver::run(database, self.loads, how, terms, begin, end, tick)
            },
        );
        let second = match observed {
            Ok(_) => beside("pgbench-after"),
            Err(_) => Ok(None),
        };
        database.budget.release();
        let (done, counts) = observed?;
        let pgbench = first.zip(second?).map(|(a, b)| a.with(b));
        let label = format!("sql-{}", self.label(line));
        Ok(self.keep(database, (&label, repeat), &how, done, counts, pgbench))
    }

    /// A job for each kind of transaction that was done.
    fn keep(
        &mut self,
        database: &Database,
        (label, repeat): (&str, u32),
        how: &How,
        (loads, tries): (Vec<loads::Load>, AllTries),
        counts: Counts<Option<DeviceDelta>>,
        pgbench: Option<pgbench::Theirs>,
    ) -> Repeat {
        let device = counts.after.zip(counts.before).map(|(a, b)| a.since(&b));
        let (seen, operations) = (counts.seen, counts.operations);
        let course = course(&loads);
        let mut jobs = Vec::new();
        for (name, mut done) in kinds(self.loads).into_iter().zip(loads) {
            if done.operations() == 0 {
                jobs.push(None);
                continue;
            }
            done.noted.extend(database.unpaid(&seen));
            let about = About {
                experiment: "sql",
                name: &format!("{label}-{name}"),
                repeat,
                engine: &database.version,
                spec: json!({ "options": self.options, "rate": how.rate, "seed": how.seed }),
                device: device.clone(),
                ours: database.ours(),
            };
            jobs.push(Some(done.keep(self.book, about)));
        }
        Repeat {
            jobs: jobs.iter().copied().flatten().collect(),
            operations,
            course,
            beside: Counted {
                kinds: jobs,
                tries,
                offered: how.rate,
                seen,
                pgbench,
            },
        }
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
