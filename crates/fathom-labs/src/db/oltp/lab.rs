//! A measurement under way: rounds over all settings, on servers of the lab's own or on one that the user runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use fathom_experiments::survey::Watcher;
use fathom_experiments::{Bench, Plan};
use fathom_host::CounterSource;
use fathom_io::driver::Progress;
use fathom_telemetry::Nanos;

use super::super::Around;
use super::super::mariadb::{InnodbCounters, Instance, Programs, Start};
use super::super::sql::mysql::Mysql;
use super::super::sql::{Result as SqlResult, Session, SqlError};
use super::super::yours::Yours;
use super::driver::{self, Load};
use super::results::Facts;
use super::rows::{insert_rows, table, write_rows};
use super::{Cell, FORMATS, OltpOptions, ROW, Repeat, cells, log_bytes, sysbench, times};
use crate::LabError;

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

/// See the module.
pub(super) struct Lab<'a> {
    bench: &'a dyn Bench,
    plan: &'a Plan,
    options: &'a OltpOptions,
    place: &'a Path,
    sysbench: Option<&'a (PathBuf, String)>,
    device: Option<CounterSource>,
    pub(super) facts: Facts,
    pub(super) cells: Vec<Cell>,
    /// Repeats of each cell.
    pub(super) all: Vec<Vec<Repeat>>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(
        bench: &'a dyn Bench,
        plan: &'a Plan,
        options: &'a OltpOptions,
        place: &'a Path,
        sysbench: Option<&'a (PathBuf, String)>,
    ) -> Self {
        let cells = cells(options);
        Self {
            bench,
            plan,
            options,
            place,
            sysbench,
            device: CounterSource::locate(place).ok(),
            facts: Facts::default(),
            all: cells.iter().map(|_| Vec::new()).collect(),
            cells,
        }
    }

    /// Private servers, each started anew for the settings that need it.
    pub(super) fn own_servers(
        &mut self,
        programs: &Programs,
        watcher: &mut dyn Watcher,
    ) -> Result<(), LabError> {
        self.facts.version.clone_from(&programs.version);
        let bench = self.bench;
        let stop = || bench.interrupted();
        let rows = self.place.join("rows.csv");
        write_rows(&rows, self.options.count, self.options.db.seed)?;
        let mut instances: BTreeMap<(u64, usize), Instance> = BTreeMap::new();
        let total = self.cells.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            let mut order: Vec<usize> = (0..self.cells.len()).collect();
            if repeat % 2 == 1 {
                order.reverse();
            }
            let mut running: Option<(u64, usize, u64)> = None;
            for c in order {
                if stop() {
                    return Ok(());
                }
                let cell = self.cells[c].clone();
                watcher.job(done, total, &cell.label());
                let key = (cell.page, cell.format);
                if running.is_some_and(|r| r != cell.server()) {
                    instances.values_mut().for_each(Instance::stop);
                    running = None;
                }
                let instance = match instances.entry(key) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(none) => none.insert(self.fill(programs, &cell, &rows)?),
                };
                if running.is_none() {
                    let how = Start {
                        pool: cell.pool,
                        loading: false,
                    };
                    instance.start(how, &stop)?;
                    running = Some(cell.server());
                }
                let connect = || instance.session("sbtest");
                let whom = sysbench::Whom {
                    socket: &instance.socket_path(),
                    user: "root",
                    database: "sbtest",
                };
                let measured = self.measure(&connect, &whom, &cell, repeat, watcher);
                match measured {
                    Ok(repeat) => self.all[c].push(repeat),
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
        };
        instance.start(how, &stop)?;
        let filled = (|| -> SqlResult<()> {
            let mut s = instance.session("")?;
            s.batch("CREATE DATABASE sbtest")?;
            s.batch("USE sbtest")?;
            s.batch(&table(clause))?;
            s.batch("SET unique_checks=0, foreign_key_checks=0")?;
            s.batch(&format!(
                "LOAD DATA INFILE '{}' INTO TABLE sbtest1 FIELDS TERMINATED BY ','",
                rows.display()
            ))?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")
        })();
        filled.map_err(|e| instance.explain(e))?;
        instance.stop();
        Ok(instance)
    }

    fn measure(
        &self,
        connect: &(dyn Fn() -> SqlResult<Mysql> + Sync),
        whom: &sysbench::Whom<'_>,
        cell: &Cell,
        repeat: u32,
        watcher: &mut dyn Watcher,
    ) -> Result<Repeat, Ended> {
        let stop = || self.bench.interrupted();
        let (ramp, time) = times(self.plan, self.options);
        let load = Load {
            mix: cell.mix,
            rows: self.options.rows,
            count: self.options.count,
            threads: cell.threads,
            ramp,
            time,
            seed: self.options.db.seed + u64::from(repeat),
        };
        // Half of it before and half after: what drifts is in both halves, and cancels.
        let beside = |half: u64| -> Result<Option<f64>, LabError> {
            let Some((program, _)) = self.sysbench.filter(|_| !stop()) else {
                return Ok(None);
            };
            let other = Load {
                seed: load.seed + 1000 * half,
                time: Nanos(load.time.0 / 2),
                ..load
            };
            sysbench::run(program, whom, self.place, &other, &stop).map(Some)
        };
        let first = beside(1)?;
        let mut asking = connect()?;
        // What is counted in the ramp belongs to no transaction that is.
        let mut counted = None;
        let mut begin = || {
            let around = Around::begin(self.device.as_ref());
            counted = Some((InnodbCounters::read(&mut asking), around));
        };
        let began = fathom_io::clock::monotonic();
        let mut done = 0.0;
        let outcome = driver::run(connect, &load, &stop, &mut begin, &mut |rate| {
            done += rate / 10.0;
            watcher.progress(&Progress {
                elapsed: fathom_io::clock::monotonic().since(began),
                ios: done as u64,
                ..Progress::default()
            });
        })?;
        let (innodb, device) = match counted {
            Some((before, around)) => {
                let device = around.end();
                (InnodbCounters::read(&mut asking)?.since(&before?), device)
            }
            None => (InnodbCounters::default(), None),
        };
        let sysbench = first.zip(beside(2)?).map(|(a, b)| (a + b) / 2.0);
        Ok(Repeat {
            outcome,
            sysbench,
            innodb,
            device,
        })
    }

    /// The user's server, with its own settings.
    pub(super) fn your_server(
        &mut self,
        yours: &Yours,
        watcher: &mut dyn Watcher,
    ) -> Result<(), LabError> {
        let bench = self.bench;
        let stop = || bench.interrupted();
        self.cells
            .retain(|c| OltpOptions::OF_YOURS.contains(&c.experiment));
        for cell in &mut self.cells {
            (cell.page, cell.pool) = (yours.page, yours.pool);
        }
        self.all.truncate(self.cells.len());
        self.facts.version = format!("{} (yours)", yours.version);
        self.facts.yours = Some(yours.settings.clone());
        // Its files need not lie on the target.
        self.device = yours
            .data
            .as_ref()
            .and_then(|d| CounterSource::locate(d).ok());
        let filled = yours.session().and_then(|mut s| {
            s.batch(&table(""))?;
            insert_rows(&mut s, self.options.count, self.options.db.seed, &stop)?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")
        });
        filled?;
        let connect = || yours.session();
        let whom = sysbench::Whom {
            socket: yours.socket(),
            user: yours.user(),
            database: yours.name(),
        };
        let total = self.cells.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            for k in 0..self.cells.len() {
                if stop() {
                    return Ok(());
                }
                let c = match repeat % 2 {
                    0 => k,
                    _ => self.cells.len() - 1 - k,
                };
                let cell = self.cells[c].clone();
                watcher.job(done, total, &cell.label());
                match self.measure(&connect, &whom, &cell, repeat, watcher) {
                    Ok(repeat) => self.all[c].push(repeat),
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
