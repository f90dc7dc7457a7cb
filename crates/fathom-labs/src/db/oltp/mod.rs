//! MySQL's engine under sysbench's OLTP load: page sizes, threads, buffer pools, compression (Zhang et al. 2018,
//! section V), on private instances of MariaDB.
//!
//! One data directory per page size and table format, filled once. Repeats go round all settings in alternating
//! order, with the server started anew for each, so that a drift of the device favours none.

mod driver;
mod results;
mod sysbench;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_experiments::survey::{Outlook, Watcher};
use fathom_experiments::{Bench, Notebook, NotebookError, Plan};
use fathom_host::CounterSource;
use fathom_io::driver::Progress;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};

use driver::{Load, Outcome};
pub use driver::{Mix, Rows};

use super::mariadb::{self, InnodbCounters, Instance, Programs, Start};
use super::sql::{Answer, Session};
use super::{Around, DbOptions, directory};
use crate::LabError;
use crate::outside::Skipped;
use crate::place::Workplace;

/// An experiment by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Pages of 4 to 64 KiB.
    PageSize,
    /// 1 to 64 clients.
    Threads,
    /// The buffer pool as a share of the data.
    Cache,
    /// Compressed tables and pages.
    Compression,
}

impl Experiment {
    /// All of them.
    pub const ALL: [(&'static str, Self); 4] = [
        ("page-size", Self::PageSize),
        ("threads", Self::Threads),
        ("cache", Self::Cache),
        ("compression", Self::Compression),
    ];
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct OltpOptions {
    /// What every database lab takes.
    pub db: DbOptions,
    /// Which experiments.
    pub experiments: Vec<Experiment>,
    /// Which transactions.
    pub mixes: Vec<Mix>,
    /// How rows are chosen.
    pub rows: Rows,
    /// Rows of the table.
    pub count: u64,
    /// Clients, where they are not swept.
    pub threads: u32,
    /// Bytes of the buffer pool, where it is not swept.
    pub pool: Bytes,
    /// Whether sysbench runs beside the own driver, in turns.
    pub sysbench: bool,
    /// A server of the user's own; nothing is started then, and only its own settings are measured.
    pub socket: Option<PathBuf>,
}

/// Bytes of a row with its index entry, as InnoDB stores it.
const ROW: u64 = 245;
const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const POOLS: [f64; 5] = [5.0, 10.0, 25.0, 50.0, 110.0];
const PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Name, and what is added to CREATE TABLE.
const FORMATS: [(&str, &str); 4] = [
    ("none", ""),
    ("compressed-8k", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8"),
    ("compressed-4k", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"),
    ("page", "PAGE_COMPRESSED=1"),
];

/// A setting under which transactions are measured.
#[derive(Debug, Clone)]
struct Cell {
    experiment: Experiment,
    page: u64,
    format: usize,
    pool: u64,
    threads: u32,
    mix: Mix,
}

impl Cell {
    fn label(&self) -> String {
        let what = match self.experiment {
            Experiment::PageSize => format!("{}k-pages", self.page >> 10),
            Experiment::Threads => format!("{}-threads", self.threads),
            Experiment::Cache => format!("{}m-pool", self.pool >> 20),
            Experiment::Compression => format!("compression-{}", FORMATS[self.format].0),
        };
        format!("{}-{what}", self.mix.name())
    }
    /// Cells with the same data directory and server.
    fn server(&self) -> (u64, usize, u64) {
        (self.page, self.format, self.pool)
    }
}

/// One measurement.
#[derive(Debug)]
struct Repeat {
    outcome: Outcome,
    /// sysbench's transactions per second beside it.
    sysbench: Option<f64>,
    innodb: InnodbCounters,
    /// Reads and writes that the device completed.
    device: Option<[u64; 2]>,
}

fn cells(options: &OltpOptions) -> Vec<Cell> {
    let data = options.count * ROW;
    let base = Cell {
        experiment: Experiment::PageSize,
        page: 16 << 10,
        format: 0,
        pool: options.pool.0,
        threads: options.threads,
        mix: Mix::Read,
    };
    let mut settings = Vec::new();
    for experiment in &options.experiments {
        let base = Cell {
            experiment: *experiment,
            ..base.clone()
        };
        match experiment {
            Experiment::PageSize => settings.extend(PAGES.map(|page| Cell {
                page,
                ..base.clone()
            })),
            Experiment::Threads => settings.extend(THREADS.map(|threads| Cell {
                threads,
                ..base.clone()
            })),
            Experiment::Cache => settings.extend(POOLS.map(|share| Cell {
                // The least that 16 KiB pages start with is 6 MiB.
                pool: ((data as f64 * share / 100.0) as u64 >> 20 << 20).max(6 << 20),
                ..base.clone()
            })),
            Experiment::Compression => settings.extend((0..FORMATS.len()).map(|format| Cell {
                format,
                ..base.clone()
            })),
        }
    }
    settings.dedup_by_key(|c| (c.experiment, c.page, c.format, c.pool, c.threads));
    settings
        .iter()
        .flat_map(|c| {
            options.mixes.iter().map(|mix| Cell {
                mix: *mix,
                ..c.clone()
            })
        })
        .collect()
}

fn times(plan: &Plan, options: &OltpOptions) -> (Nanos, Nanos) {
    let time = options
        .db
        .time
        .unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    (Nanos(time.0 / 4), time)
}

/// Bytes that the data directories take at most.
fn room(options: &OltpOptions) -> u64 {
    let mut kinds: Vec<(u64, usize)> = cells(options).iter().map(|c| (c.page, c.format)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let one = options.count * ROW * 3 / 2 + log_bytes(options) + (96 << 20);
    kinds.len() as u64 * one + options.count * 200
}

fn log_bytes(options: &OltpOptions) -> u64 {
    (options.count * ROW / 2).clamp(16 << 20, 512 << 20) >> 20 << 20
}

/// Time and bytes, at most.
pub fn outlook(plan: &Plan, options: &OltpOptions, fills: Bytes) -> Outlook {
    let mut o = super::embedded_outlook(plan, &options.db, &embedded(options), fills);
    let n = cells(options).len() as u32 * plan.profile.repeats;
    let (ramp, time) = times(plan, options);
    let one = (ramp + time).0 * if options.sysbench { 2 } else { 1 };
    // Servers are started and filled.
    let servers = Nanos::from_secs(3 * u64::from(n) / 3 + 8);
    o.jobs += n;
    o.time += Nanos(one * u64::from(n)) + servers;
    let pages = (ramp + time).as_secs_f64() * f64::from(n) * 20_000.0 * 16384.0;
    o.written_at_most = Bytes(o.written_at_most.0 + room(options) + pages as u64);
    o
}

/// Workloads of the embedded tree that ask the same.
fn embedded(options: &OltpOptions) -> Vec<&'static str> {
    let has = |e| options.experiments.contains(&e);
    let mut names = Vec::new();
    if has(Experiment::PageSize) {
        names.push("pages");
    }
    if has(Experiment::Cache) {
        names.push("caches");
    }
    if names.is_empty() {
        names.push("update");
    }
    names
}

/// Measures and puts sections, headlines and findings into the notebook.
///
/// # Errors
/// Where the target is no directory, a server dies, or the run directory fails.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &OltpOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let dir = directory(bench)?;
    let mut skipped = Vec::new();
    // What can be refused is refused before anything is measured.
    let servers = if options.socket.is_some() {
        None
    } else {
        match mariadb::probe() {
            Ok(programs) => {
                let place = Workplace::create(&dir, room(options)).map_err(NotebookError::from)?;
                Some((programs, place))
            }
            Err(e) => {
                skipped.push(Skipped::from_error("InnoDB (MariaDB)", e));
                None
            }
        }
    };
    let other = options
        .sysbench
        .then(sysbench::probe)
        .and_then(|found| match found {
            Ok(found) => Some(found),
            Err(e) => {
                skipped.push(Skipped::from_error("the cross-check by sysbench", e));
                None
            }
        });
    super::embedded(bench, plan, &options.db, &embedded(options), book, watcher)?;
    let measured = match (&servers, &options.socket) {
        (Some((programs, place)), _) => {
            let mut lab = Lab::new(bench, plan, options, place.path(), other.as_ref());
            lab.own_servers(programs, book, watcher)
        }
        (None, Some(socket)) => {
            let place = Workplace::create(&dir, 1 << 20).map_err(NotebookError::from)?;
            let mut lab = Lab::new(bench, plan, options, place.path(), other.as_ref());
            lab.foreign_server(socket, book, watcher)
        }
        (None, None) => Ok(()),
    };
    drop(servers);
    let run = book.run_mut();
    run.results
        .extend(crate::outside::skipped("oltp", &skipped));
    measured.map_err(NotebookError::from)
}

/// A measurement under way.
struct Lab<'a> {
    bench: &'a dyn Bench,
    plan: &'a Plan,
    options: &'a OltpOptions,
    place: &'a Path,
    sysbench: Option<&'a (PathBuf, String)>,
    device: Option<CounterSource>,
    facts: results::Facts,
}

impl<'a> Lab<'a> {
    fn new(
        bench: &'a dyn Bench,
        plan: &'a Plan,
        options: &'a OltpOptions,
        place: &'a Path,
        sysbench: Option<&'a (PathBuf, String)>,
    ) -> Self {
        Self {
            bench,
            plan,
            options,
            place,
            sysbench,
            device: CounterSource::locate(place).ok(),
            facts: results::Facts::default(),
        }
    }

    fn own_servers(
        &mut self,
        programs: &Programs,
        book: &mut Notebook,
        watcher: &mut dyn Watcher,
    ) -> Result<(), LabError> {
        let cells = cells(self.options);
        let mut all: Vec<Vec<Repeat>> = cells.iter().map(|_| Vec::new()).collect();
        self.facts.version.clone_from(&programs.version);
        let measured = self.rounds(programs, &cells, &mut all, watcher);
        if self.bench.interrupted() {
            book.run_mut().flags.push(Flag::new(
                FlagCode::Interrupted,
                "the lab was interrupted; what was measured until then is kept",
                "run again for the rest",
            ));
        }
        results::report(book, &cells, &all, self.options, &self.facts);
        if self.bench.interrupted() {
            return Ok(());
        }
        measured
    }

    fn rounds(
        &mut self,
        programs: &Programs,
        cells: &[Cell],
        all: &mut [Vec<Repeat>],
        watcher: &mut dyn Watcher,
    ) -> Result<(), LabError> {
        let stop = || self.bench.interrupted();
        let rows = self.place.join("rows.csv");
        write_rows(&rows, self.options.count, self.options.db.seed)?;
        let mut instances: BTreeMap<(u64, usize), Instance> = BTreeMap::new();
        let total = cells.len() as u32 * self.plan.profile.repeats;
        let mut done = 0;
        for repeat in 0..self.plan.profile.repeats {
            let mut order: Vec<usize> = (0..cells.len()).collect();
            if repeat % 2 == 1 {
                order.reverse();
            }
            let mut running: Option<(u64, usize, u64)> = None;
            for c in order {
                if stop() {
                    return Ok(());
                }
                let cell = &cells[c];
                watcher.job(done, total, &cell.label());
                let key = (cell.page, cell.format);
                if running.is_some_and(|r| r != cell.server()) {
                    instances.values_mut().for_each(Instance::stop);
                    running = None;
                }
                let instance = match instances.entry(key) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(none) => none.insert(self.fill(programs, cell, &rows)?),
                };
                if running.is_none() {
                    let how = Start {
                        pool: cell.pool,
                        loading: false,
                    };
                    instance.start(how, &stop)?;
                    running = Some(cell.server());
                }
                let measured = self.measure(instance, cell, repeat, watcher);
                let measured = measured.map_err(|e| instance.explain(e))?;
                all[c].push(measured);
                self.facts.look(instance, cell);
                done += 1;
            }
        }
        Ok(())
    }

    /// A data directory with the table in it.
    fn fill(&self, programs: &Programs, cell: &Cell, rows: &Path) -> Result<Instance, LabError> {
        let stop = || self.bench.interrupted();
        let (format, clause) = FORMATS[cell.format];
        let dir = self.place.join(format!("{}k-{format}", cell.page >> 10));
        let log = log_bytes(self.options);
        let mut instance = Instance::create(programs, dir, cell.page, log, &stop)?;
        let pool = (self.options.count * ROW * 3 / 2).clamp(64 << 20, 1 << 30);
        let how = Start {
            pool,
            loading: true,
        };
        instance.start(how, &stop)?;
        let filled = (|| -> super::sql::Result<()> {
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
        instance: &Instance,
        cell: &Cell,
        repeat: u32,
        watcher: &mut dyn Watcher,
    ) -> Result<Repeat, LabError> {
        let connect = || instance.session("sbtest");
        let socket = instance.socket_path();
        self.measure_on(&connect, &socket, cell, repeat, watcher)
    }

    fn measure_on(
        &self,
        connect: &(dyn Fn() -> super::sql::Result<super::sql::mysql::Mysql> + Sync),
        socket: &Path,
        cell: &Cell,
        repeat: u32,
        watcher: &mut dyn Watcher,
    ) -> Result<Repeat, LabError> {
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
        let beside = || -> Result<Option<f64>, LabError> {
            let Some((program, _)) = self.sysbench else {
                return Ok(None);
            };
            let other = Load {
                seed: load.seed + 1000,
                ..load
            };
            sysbench::run(program, socket, self.place, &other, &stop).map(Some)
        };
        let first = if repeat % 2 == 1 { beside()? } else { None };
        let mut asking = connect()?;
        let around = Around::begin(self.device.as_ref());
        let before = InnodbCounters::read(&mut asking)?;
        let began = fathom_io::clock::monotonic();
        let mut done = 0.0;
        let outcome = driver::run(connect, &load, &stop, &mut |rate| {
            done += rate / 10.0;
            watcher.progress(&Progress {
                elapsed: fathom_io::clock::monotonic().since(began),
                ios: done as u64,
                ..Progress::default()
            });
        })?;
        let innodb = InnodbCounters::read(&mut asking)?.since(&before);
        let device = around.end();
        let sysbench = match first {
            Some(rate) => Some(rate),
            None if repeat.is_multiple_of(2) => beside()?,
            None => None,
        };
        Ok(Repeat {
            outcome,
            sysbench,
            innodb,
            device,
        })
    }

    /// A server that the user named: its own settings, a database of fathom's own, removed afterwards.
    fn foreign_server(
        &mut self,
        socket: &Path,
        book: &mut Notebook,
        watcher: &mut dyn Watcher,
    ) -> Result<(), LabError> {
        let user = std::env::var("USER").unwrap_or_else(|_| "root".into());
        let connect = |database: &str| super::sql::mysql::Mysql::connect(socket, &user, database);
        let mut s = connect("").map_err(|e| {
            LabError::Refused(format!(
                "{}: {e}; expected the socket of a running server that lets {user} in without a password",
                socket.display()
            ))
        })?;
        let mut answer = Answer::default();
        s.query(
            "SELECT @@version, @@innodb_page_size, @@innodb_buffer_pool_size",
            &mut answer,
        )?;
        self.facts.version = format!("{} (yours)", answer.text(0, 0));
        let (page, pool) = (answer.int(0, 1) as u64, answer.int(0, 2) as u64);
        let name = format!("fathom_{}", std::process::id());
        // Fails where there is one: nothing of the user's is touched.
        s.batch(&format!("CREATE DATABASE {name}"))?;
        let measured = (|| -> Result<(), LabError> {
            s.batch(&format!("USE {name}"))?;
            s.batch(&table(""))?;
            insert_rows(&mut s, self.options.count, self.options.db.seed)?;
            s.batch("CREATE INDEX k_1 ON sbtest1(k)")?;
            let of = |experiment, threads, mix| Cell {
                experiment,
                page,
                format: 0,
                pool,
                threads,
                mix,
            };
            let cells: Vec<Cell> = THREADS
                .iter()
                .flat_map(|t| {
                    self.options
                        .mixes
                        .iter()
                        .map(|m| of(Experiment::Threads, *t, *m))
                })
                .collect();
            let mut all: Vec<Vec<Repeat>> = cells.iter().map(|_| Vec::new()).collect();
            self.sysbench = None;
            let open = || connect(&name);
            for repeat in 0..self.plan.profile.repeats {
                for (cell, into) in cells.iter().zip(&mut all) {
                    if !self.bench.interrupted() {
                        watcher.job(repeat, self.plan.profile.repeats, &cell.label());
                        into.push(self.measure_on(&open, socket, cell, repeat, watcher)?);
                    }
                }
            }
            results::report(book, &cells, &all, self.options, &self.facts);
            Ok(())
        })();
        let dropped = connect("").and_then(|mut s| s.batch(&format!("DROP DATABASE {name}")));
        measured?;
        Ok(dropped?)
    }
}

fn table(clause: &str) -> String {
    format!(
        "CREATE TABLE sbtest1(id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB CHARACTER SET latin1 {clause}"
    )
}

/// The rows as text, for every data directory the same.
fn write_rows(path: &Path, count: u64, seed: u64) -> Result<(), LabError> {
    let failed = |e: std::io::Error| {
        LabError::Failed(format!(
            "{}: cannot be written: {e}; use fewer --rows, or another directory",
            path.display()
        ))
    };
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let mut random = SplitMix64::new(seed);
    let (mut c, mut pad) = (String::new(), String::new());
    for id in 1..=count {
        driver::digits(10, &mut random, &mut c);
        driver::digits(5, &mut random, &mut pad);
        let k = random.below(count as usize) + 1;
        writeln!(out, "{id},{k},{c},{pad}").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

fn insert_rows(s: &mut dyn Session, count: u64, seed: u64) -> Result<(), LabError> {
    let mut random = SplitMix64::new(seed);
    let (mut c, mut pad) = (String::new(), String::new());
    let mut id = 1;
    while id <= count {
        let mut sql = String::from("INSERT INTO sbtest1 VALUES ");
        for i in 0..1000.min(count - id + 1) {
            driver::digits(10, &mut random, &mut c);
            driver::digits(5, &mut random, &mut pad);
            let k = random.below(count as usize) + 1;
            let comma = if i > 0 { "," } else { "" };
            sql.push_str(&format!("{comma}({},{k},'{c}','{pad}')", id + i));
        }
        s.batch(&sql)?;
        id += 1000;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> OltpOptions {
        OltpOptions {
            db: DbOptions {
                time: None,
                seed: 1,
                embedded: false,
            },
            experiments: vec![Experiment::PageSize, Experiment::Compression],
            mixes: Mix::ALL.to_vec(),
            rows: Rows::Uniform,
            count: 400_000,
            threads: 16,
            pool: Bytes::mib(24),
            sysbench: false,
            socket: None,
        }
    }

    #[test]
    fn every_setting_is_measured_with_every_mix_and_keeps_its_server() {
        let cells = cells(&options());
        assert_eq!(cells.len(), (5 + 4) * 3);
        let servers: Vec<_> = cells.iter().map(Cell::server).collect();
        let mut runs = servers.clone();
        runs.dedup();
        assert_eq!(runs.len(), 9, "a server runs for all of its mixes");
        assert_eq!(cells[0].label(), "read-4k-pages");
    }

    #[test]
    fn a_small_table_sweeps_no_pool_twice() {
        let o = OltpOptions {
            experiments: vec![Experiment::Cache],
            count: 10_000,
            ..options()
        };
        assert_eq!(cells(&o).len(), 3);
    }
}
