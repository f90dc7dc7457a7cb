//! A measurement under way: rounds over all settings, on servers of the lab's own or on one that the user runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use fathom_bench::progress::ProgressSink;
use fathom_bench::schedule::{seed, turns};
use fathom_bench::{Bench, Notebook, Plan};
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::Nanos;
use serde_json::json;

use super::super::database::Database;
use super::super::mariadb::{Instance, Programs, Start};
use super::super::server::Place;
use super::super::sql::{Dialect, Result as SqlResult, Session, SqlError, WHOLE_TABLES, quoted};
use super::driver::{self, Load};
use super::results::Facts;
use super::rows::{send_rows, table, write_rows};
use super::{
    Cell, Counted, Experiment, FORMATS, Line, OltpOptions, ROW, Repeat, SCHEMA, cells, log_bytes,
    sysbench,
};
use crate::LabError;
use crate::loads::{About, Course};

/// Why a measurement ended.
enum Ended {
    /// The server, over one of its sessions.
    Sql(SqlError),
    /// Something else.
    Lab(LabError),
}

impl From<SqlError> for Ended {
    fn from(e: SqlError) -> Self {
        Self::Sql(e)
    }
}

impl From<LabError> for Ended {
    fn from(e: LabError) -> Self {
        Self::Lab(e)
    }
}

/// Servers that are measured.
pub(super) enum Servers {
    /// The lab's own MariaDB, one for each page and format that is measured.
    InnoDb(InnoDb),
    /// The one that there is, and what is tried on it now.
    One(Box<Database>, Option<Vec<String>>),
}

/// MariaDB by page and format, of which one runs at a time.
pub(super) struct InnoDb {
    programs: Programs,
    filled: BTreeMap<(u64, usize), Database>,
    running: Option<Cell>,
}

impl Servers {
    pub(super) fn innodb(programs: Programs) -> Self {
        Self::InnoDb(InnoDb {
            programs,
            filled: BTreeMap::new(),
            running: None,
        })
    }

    /// A round begins: what is measured next is started anew.
    fn rest(&mut self) {
        match self {
            Self::InnoDb(own) => {
                own.filled.values_mut().for_each(Database::stop);
                own.running = None;
            }
            Self::One(_, tried) => *tried = None,
        }
    }
}

/// A measurement under way.
pub(super) struct Lab<'a> {
    bench: &'a dyn Bench,
    book: &'a mut Notebook,
    plan: &'a Plan,
    options: &'a OltpOptions,
    dir: &'a LabDir,
    sysbench: Option<&'a (PathBuf, String)>,
    pub(super) facts: Facts,
    pub(super) lines: Vec<Line>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(
        (bench, book, plan): (&'a dyn Bench, &'a mut Notebook, &'a Plan),
        options: &'a OltpOptions,
        dir: &'a LabDir,
        sysbench: Option<&'a (PathBuf, String)>,
    ) -> Self {
        Self {
            bench,
            book,
            plan,
            options,
            dir,
            sysbench,
            facts: Facts::default(),
            lines: cells(options).into_iter().map(Line::new).collect(),
        }
    }

    /// Rounds over all settings.
    pub(super) fn rounds(
        &mut self,
        servers: &mut Servers,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        match servers {
            Servers::InnoDb(own) => {
                self.facts.version.clone_from(&own.programs.version);
                let o = self.options;
                write_rows(&self.rows(), o.count, o.db.seed)?;
            }
            Servers::One(database, _) => self.fill_one(database)?,
        }
        let total = self.lines.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            servers.rest();
            for c in turns(self.lines.len(), repeat) {
                if stop() {
                    return Ok(());
                }
                let cell = self.lines[c].setting.clone();
                sink.job(done, total, &cell.label());
                let database = self.ready(servers, &cell)?;
                match self.measure(database, &cell, repeat, sink) {
                    Ok(repeat) => self.lines[c].repeats.push(repeat),
                    Err(_) if stop() => return Ok(()),
                    Err(Ended::Sql(e)) => return Err(database.explain(e)),
                    Err(Ended::Lab(e)) => return Err(e),
                }
                if let Some(instance) = database.instance() {
                    self.facts.look(instance, &cell);
                }
                done += 1;
            }
        }
        Ok(())
    }

    /// The server as a cell has it, started anew where it was another.
    fn ready<'s>(
        &self,
        servers: &'s mut Servers,
        cell: &Cell,
    ) -> Result<&'s mut Database, LabError> {
        let stop = || self.bench.interrupted();
        match servers {
            Servers::One(database, tried) => {
                if tried.as_ref() != Some(&cell.tried) {
                    database.change(&cell.tried, &stop)?;
                    *tried = Some(cell.tried.clone());
                }
                Ok(database)
            }
            Servers::InnoDb(InnoDb {
                programs,
                filled,
                running,
            }) => {
                let other = |r: &Cell| r.server() != cell.server();
                if running.as_ref().is_some_and(other) {
                    filled.values_mut().for_each(Database::stop);
                    *running = None;
                }
                let database = match filled.entry((cell.page, cell.format)) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(none) => none.insert(self.fill(programs, cell)?),
                };
                if running.is_none() {
                    database.budget.own = cell.pool;
                    database.change(&cell.tried, &stop)?;
                    *running = Some(cell.clone());
                }
                Ok(database)
            }
        }
    }

    /// The rows as a file that a server reads.
    fn rows(&self) -> PathBuf {
        self.dir.plain().join("rows.csv")
    }

    /// A MariaDB with the table in it.
    fn fill(&self, programs: &Programs, cell: &Cell) -> Result<Database, LabError> {
        let stop = || self.bench.interrupted();
        let clause = FORMATS[cell.format].1;
        let dir = self.dir.plain().join(cell.directory());
        let log = log_bytes(self.options);
        let mut instance = Instance::create(programs, dir, cell.page, log, &stop)?;
        let pool = (self.options.count * ROW * 3 / 2).clamp(64 << 20, 1 << 30);
        let how = Start {
            pool,
            loading: true,
            settings: &[],
        };
        instance.start(how, &stop)?;
        let filled = (|| -> SqlResult<()> {
            let mut s = instance.session("")?;
            s.patience(WHOLE_TABLES);
            s.batch(&format!("CREATE DATABASE {SCHEMA}"))?;
            s.batch(&format!("USE {SCHEMA}"))?;
            s.batch(&table(Dialect::Mysql, clause))?;
            s.batch("SET unique_checks=0, foreign_key_checks=0")?;
            s.batch(&format!(
                "LOAD DATA INFILE {} INTO TABLE sbtest1 FIELDS TERMINATED BY ','",
                quoted(&self.rows().display().to_string())
            ))?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")
        })();
        filled.map_err(|e| instance.explain(e))?;
        instance.stop();
        let set = &self.options.settings.set;
        Ok(Database::of_instance(
            &programs.version,
            instance,
            (SCHEMA, set),
        ))
    }

    /// The one server gets the table, and is looked at.
    fn fill_one(&mut self, database: &mut Database) -> Result<(), LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let dialect = database.dialect();
        let filled = database.connect().and_then(|mut s| {
            s.patience(WHOLE_TABLES);
            s.batch(&table(dialect, ""))?;
            send_rows(&mut *s, self.options.count, self.options.db.seed, &stop)?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")?;
            match dialect {
                Dialect::Postgres => s.batch("VACUUM ANALYZE sbtest1"),
                _ => Ok(()),
            }
        });
        filled.map_err(|e| database.explain(e))?;
        self.facts.of_one(database, self.dir)?;
        if let Some(yours) = database.yours() {
            for line in &mut self.lines {
                (line.setting.page, line.setting.pool) = (yours.about.page, yours.about.pool);
            }
        } else if let Some(page) = self.facts.postgres_page() {
            self.lines.iter_mut().for_each(|l| l.setting.page = page);
        }
        Ok(())
    }

    /// Transactions per second that come: those that were asked for, or a share of what a closed loop has done.
    fn offered(&self, cell: &Cell) -> Result<Option<f64>, LabError> {
        let Some(share) = cell.load else {
            return Ok(match cell.experiment {
                Experiment::Objective => None,
                _ => self.options.rate,
            });
        };
        let closed = self.lines.iter().find(|l| {
            let c = &l.setting;
            c.experiment == cell.experiment && c.load.is_none() && c.mix == cell.mix
        });
        let course = closed.and_then(|l| Some(&l.repeats.first()?.course));
        let rate = course.and_then(Course::rate).filter(|r| *r > 0.0);
        let rate = rate.ok_or_else(|| {
            LabError::Failed("the closed loop did nothing of which shares could be made".into())
        })?;
        Ok(Some(rate * f64::from(share) / 100.0))
    }

    /// What a cell does in a repeat.
    fn load(&self, cell: &Cell, repeat: u32) -> Result<Load, LabError> {
        let (ramp, time) = crate::db::times(self.plan, &self.options.db, None);
        let rate = self.offered(cell)?;
        // A step is judged by its 99th percentile, with ten samples beyond it in all repeats together.
        let samples = 1200.0 / f64::from(self.plan.profile.repeats);
        let enough = rate.filter(|_| cell.load.is_some() && self.options.db.time.is_none());
        let enough = enough.map_or(0.0, |r| (samples / r).min(60.0));
        Ok(Load {
            mix: cell.mix,
            rows: self.options.rows,
            count: self.options.count,
            threads: cell.threads,
            ramp,
            time: time.max(Nanos((enough * 1e9) as u64)),
            rate,
            seed: seed(self.options.db.seed, "oltp", cell.mix.name(), repeat),
        })
    }

    fn measure(
        &mut self,
        database: &Database,
        cell: &Cell,
        repeat: u32,
        sink: &mut dyn ProgressSink,
    ) -> Result<Repeat, Ended> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let load = self.load(cell, repeat)?;
        // Half of it before and half after: what drifts is in both halves, and cancels.
        let beside = |half: &str| -> Result<Option<f64>, LabError> {
            let found = self.sysbench.filter(|_| !stop());
            let Some(((program, _), whom)) = found.zip(whom(database)) else {
                return Ok(None);
            };
            let other = Load {
                seed: seed(self.options.db.seed, "oltp", half, repeat),
                time: Nanos(load.time.0 / 2),
                ..load
            };
            sysbench::run(program, &whom, &self.dir.plain(), &other, &stop).map(Some)
        };
        let first = beside("sysbench-before")?;
        // A step follows a closed loop on the same server, which took its log as far as it goes.
        let step = cell.load.is_some() && load.rate.is_some();
        let process = || database.instance().and_then(Instance::process_io);
        let observed = database.observe(
            self.dir.path(),
            (&stop, (!step).then_some(load.time)),
            sink,
            |terms, begin, end, tick| {
                let (mut before, mut after) = (None, None);
                let done = driver::run(
                    &|| database.connect(),
                    &load,
                    terms,
                    &mut |total| {
                        begin(total);
                        before = process();
                    },
                    &mut |total| {
                        after = process();
                        end(total);
                    },
                    tick,
                )?;
                Ok((done, after.zip(before)))
            },
        );
        database.budget.release();
        let (((mut load_done, again), io), counts) = observed?;
        let sysbench = first
            .zip(beside("sysbench-after")?)
            .map(|(a, b)| (a + b) / 2.0);
        let spec = json!({ "setting": cell, "rows": self.options.count, "keys": self.options.rows, "rate": load.rate, "seed": load.seed });
        let about = About {
            experiment: "oltp",
            name: &format!("oltp-{}", cell.label()),
            repeat,
            engine: &self.facts.version,
            spec,
            device: counts.after.zip(counts.before).map(|(a, b)| a.since(&b)),
            ours: database.ours(),
        };
        load_done.noted.extend(database.unpaid(&counts.seen));
        let course = load_done.course.clone();
        Ok(Repeat {
            jobs: vec![load_done.keep(self.book, about)],
            operations: counts.operations,
            course,
            beside: Counted {
                process: io.map(|(a, b)| [0, 1].map(|i| a[i].saturating_sub(b[i]))),
                again,
                sysbench,
                offered: load.rate,
                seen: counts.seen,
            },
        })
    }
}

/// Whom sysbench asks: a MariaDB or MySQL by its socket.
fn whom(database: &Database) -> Option<sysbench::Whom<'_>> {
    if let Some(instance) = database.instance() {
        return Some(sysbench::Whom {
            socket: instance.socket_path(),
            user: "root",
            database: SCHEMA,
        });
    }
    let yours = database.yours()?;
    let Place::Socket(path) = &yours.server().place else {
        return None;
    };
    Some(sysbench::Whom {
        socket: path.clone(),
        user: &yours.server().user,
        database: yours.name(),
    })
}
