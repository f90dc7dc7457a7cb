//! A measurement under way: rounds over all settings, on servers of the lab's own or on one that the user runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use fathom_bench::progress::ProgressSink;
use fathom_bench::schedule::{seed, turns};
use fathom_bench::{Bench, Notebook, Plan};
use fathom_host::CounterSource;
use fathom_io::target::count;
use fathom_system::lab_dir::LabDir;
use fathom_telemetry::Nanos;
use serde_json::json;

use super::super::counters::Watch;
use super::super::mariadb::{Instance, Programs, Start};
use super::super::observed::observed;
use super::super::server::Place;
use super::super::sql::{Dialect, Result as SqlResult, Session, SqlError, WHOLE_TABLES, quoted};
use super::super::warmth::{self, Gauge};
use super::super::yours::Yours;
use super::driver::{self, Load};
use super::results::Facts;
use super::rows::{insert_rows, table, write_rows};
use super::{
    Cell, Counted, Experiment, FORMATS, Line, OltpOptions, ROW, Repeat, cells, log_bytes, sysbench,
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

/// A measurement under way.
pub(super) struct Lab<'a> {
    bench: &'a dyn Bench,
    book: &'a mut Notebook,
    plan: &'a Plan,
    options: &'a OltpOptions,
    /// By its plain name.
    place: PathBuf,
    sysbench: Option<&'a (PathBuf, String)>,
    device: Option<CounterSource>,
    pub(super) facts: Facts,
    pub(super) lines: Vec<Line>,
}

/// A server that is measured.
struct Server<'a> {
    connect: &'a dyn Fn() -> SqlResult<Box<dyn Session>>,
    /// What says whether it has warmed up.
    gauge: &'a dyn Fn() -> SqlResult<Gauge<'static>>,
    dialect: Dialect,
    /// Whether it is on this machine.
    here: bool,
    whom: sysbench::Whom<'a>,
    /// What its process read and wrote.
    process: &'a dyn Fn() -> Option<[u64; 2]>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(
        (bench, book, plan): (&'a dyn Bench, &'a mut Notebook, &'a Plan),
        options: &'a OltpOptions,
        place: &LabDir,
        sysbench: Option<&'a (PathBuf, String)>,
    ) -> Self {
        Self {
            bench,
            book,
            plan,
            options,
            place: place.plain(),
            sysbench,
            device: CounterSource::locate(place.path()).ok(),
            facts: Facts::default(),
            lines: cells(options).into_iter().map(Line::new).collect(),
        }
    }

    /// Private servers, each started anew for the settings that need it.
    pub(super) fn own_servers(
        &mut self,
        programs: &Programs,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        self.facts.version.clone_from(&programs.version);
        let bench = self.bench;
        let stop = || bench.interrupted();
        let rows = self.place.join("rows.csv");
        write_rows(&rows, self.options.count, self.options.db.seed)?;
        let mut instances: BTreeMap<(u64, usize), Instance> = BTreeMap::new();
        let total = self.lines.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            let mut running: Option<Cell> = None;
            for c in turns(self.lines.len(), repeat) {
                if stop() {
                    return Ok(());
                }
                let cell = self.lines[c].setting.clone();
                sink.job(done, total, &cell.label());
                let key = (cell.page, cell.format);
                if running
                    .as_ref()
                    .is_some_and(|r| r.server() != cell.server())
                {
                    instances.values_mut().for_each(Instance::stop);
                    running = None;
                }
                let instance = match instances.entry(key) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(none) => none.insert(self.fill(programs, &cell, &rows)?),
                };
                if running.is_none() {
                    let settings = [&self.options.settings.set[..], &cell.tried].concat();
                    let how = Start {
                        pool: cell.pool,
                        loading: false,
                        settings: &settings,
                    };
                    instance.start(how, &stop)?;
                    running = Some(cell.clone());
                }
                let socket = instance.socket_path();
                let server = Server {
                    connect: &|| Ok(Box::new(instance.session("sbtest")?)),
                    gauge: &|| Ok(warmth::innodb(Box::new(instance.session("")?))),
                    dialect: Dialect::Mysql,
                    here: true,
                    whom: sysbench::Whom {
                        socket: &socket,
                        user: "root",
                        database: "sbtest",
                    },
                    process: &|| instance.process_io(),
                };
                let measured = self.measure(&server, &cell, repeat, sink);
                match measured {
                    Ok(repeat) => self.lines[c].repeats.push(repeat),
                    Err(_) if stop() => return Ok(()),
                    Err(Ended::Sql(e)) => return Err(instance.explain(e)),
                    Err(Ended::Lab(e)) => return Err(e),
                }
                self.facts.look(instance, &cell);
                done += 1;
            }
        }
        Ok(())
    }

    /// A data directory with the table in it.
    fn fill(&self, programs: &Programs, cell: &Cell, rows: &Path) -> Result<Instance, LabError> {
        let stop = || self.bench.interrupted();
        let clause = FORMATS[cell.format].1;
        let dir = self.place.join(cell.directory());
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
            s.batch("CREATE DATABASE sbtest")?;
            s.batch("USE sbtest")?;
            s.batch(&table(Dialect::Mysql, clause))?;
            s.batch("SET unique_checks=0, foreign_key_checks=0")?;
            s.batch(&format!(
                "LOAD DATA INFILE {} INTO TABLE sbtest1 FIELDS TERMINATED BY ','",
                quoted(&rows.display().to_string())
            ))?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")
        })();
        filled.map_err(|e| instance.explain(e))?;
        instance.stop();
        Ok(instance)
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
        server: &Server<'_>,
        cell: &Cell,
        repeat: u32,
        sink: &mut dyn ProgressSink,
    ) -> Result<Repeat, Ended> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let load = self.load(cell, repeat)?;
        // Half of it before and half after: what drifts is in both halves, and cancels.
        let beside = |half: &str| -> Result<Option<f64>, LabError> {
            let Some((program, _)) = self.sysbench.filter(|_| !stop()) else {
                return Ok(None);
            };
            let other = Load {
                seed: seed(self.options.db.seed, "oltp", half, repeat),
                time: Nanos(load.time.0 / 2),
                ..load
            };
            sysbench::run(program, &server.whom, &self.place, &other, &stop).map(Some)
        };
        let first = beside("sysbench-before")?;
        let watch = Watch::new((server.connect)()?, server.dialect, server.here)?;
        let device = self.device.as_ref();
        // A step follows a closed loop on the same server, which took its log as far as it goes.
        let step = cell.load.is_some() && load.rate.is_some();
        let ((mut load_done, again), counts) = observed(
            ((server.gauge)()?, watch),
            (&stop, (!step).then_some(load.time)),
            &|| ((server.process)(), device.and_then(count)),
            (sink, &|| {}),
            |terms, begin, end, tick| driver::run(server.connect, &load, terms, begin, end, tick),
        )?;
        let (before, after, seen) = (counts.before, counts.after, counts.seen);
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
            device: after.1.zip(before.1).map(|(a, b)| a.since(&b)),
            ours: self.facts.yours.is_none(),
        };
        if self.facts.yours.is_some() {
            load_done.noted.extend(warmth::unpaid(&seen));
        }
        let course = load_done.course.clone();
        Ok(Repeat {
            jobs: vec![load_done.keep(self.book, about)],
            operations: counts.operations,
            course,
            beside: Counted {
                process: after
                    .0
                    .zip(before.0)
                    .map(|(a, b)| [0, 1].map(|i| a[i].saturating_sub(b[i]))),
                again,
                sysbench,
                offered: load.rate,
                seen,
            },
        })
    }

    /// The user's server, with its own settings and those that are tried on it.
    pub(super) fn your_server(
        &mut self,
        yours: &mut Yours,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        let about = &yours.about;
        for line in &mut self.lines {
            (line.setting.page, line.setting.pool) = (about.page, about.pool);
        }
        self.facts.version = format!("{} (yours)", about.version);
        self.facts.engine = Some(about.engine.to_owned());
        self.facts.yours = Some(about.settings.clone());
        // Its files need not lie on the target.
        self.device = about
            .data
            .as_ref()
            .and_then(|d| CounterSource::locate(d).ok());
        let dialect = yours.dialect();
        let filled = yours.session().and_then(|mut s| {
            s.patience(WHOLE_TABLES);
            s.batch(&table(dialect, ""))?;
            insert_rows(&mut *s, self.options.count, self.options.db.seed, &stop)?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")
        });
        filled?;
        let total = self.lines.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            for c in turns(self.lines.len(), repeat) {
                if stop() {
                    return Ok(());
                }
                let cell = self.lines[c].setting.clone();
                sink.job(done, total, &cell.label());
                yours.change(&cell.tried)?;
                let socket = match &yours.server().place {
                    Place::Socket(path) => path.as_path(),
                    Place::Host(..) => Path::new(""),
                };
                let server = Server {
                    connect: &|| yours.session(),
                    gauge: &|| warmth::of_yours(yours),
                    dialect,
                    here: yours.server().is_here(),
                    whom: sysbench::Whom {
                        socket,
                        user: &yours.server().user,
                        database: yours.name(),
                    },
                    process: &|| None,
                };
                match self.measure(&server, &cell, repeat, sink) {
                    Ok(repeat) => self.lines[c].repeats.push(repeat),
                    Err(_) if stop() => return Ok(()),
                    Err(Ended::Sql(e)) => return Err(e.into()),
                    Err(Ended::Lab(e)) => return Err(e),
                }
                done += 1;
            }
        }
        Ok(())
    }
}
