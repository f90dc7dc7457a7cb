//! MySQL's engine under sysbench's OLTP load: page sizes, threads, buffer pools, compression (Zhang et al. 2018,
//! section V), on private instances of MariaDB.
//!
//! One data directory per page size and table format, filled once. Repeats go round all settings in alternating
//! order, with the server started anew for each, so that a drift of the device favours none.

mod conclusion;
mod driver;
mod lab;
mod options;
mod results;
mod rows;
pub(super) mod sysbench;

use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_io::JobError;
use fathom_stats::Estimate;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

pub use driver::{Mix, Rows};
use lab::{Lab, Servers};
pub use options::{Experiment, OltpOptions};
use results::Facts;

use super::counters::Observed;
use super::database::{Database, Made};
use super::directory;
use super::mariadb;
use super::objective::{Offered, SHARES};
use super::settings;
use super::warmth::Warmth;
use super::yours::Yours;
use crate::LabError;
use crate::loads;
use crate::skipped::{self, Skipped};
use fathom_system::lab_dir::LabDir;

/// Bytes of a row with its index entry, as InnoDB stores it.
pub const ROW: u64 = 245;
/// Name of the database with the table.
const SCHEMA: &str = "sbtest";
const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
// The paper's 3 to 50 %, and everything.
const POOLS: [f64; 5] = [3.0, 10.0, 25.0, 50.0, 110.0];
const PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Name, and what is added to CREATE TABLE.
const FORMATS: [(&str, &str); 4] = [
    ("none", ""),
    ("compressed-8k", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8"),
    ("compressed-4k", "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4"),
    ("page", "PAGE_COMPRESSED=1"),
];

/// A setting under which transactions are measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cell {
    experiment: Experiment,
    page: u64,
    format: usize,
    pool: u64,
    threads: u32,
    /// Percent of what a closed loop does that come in an open one.
    load: Option<u32>,
    mix: Mix,
    /// What is tried; empty where the server is as in all others.
    #[serde(default)]
    tried: Vec<String>,
}

impl Cell {
    fn label(&self) -> String {
        let what = match self.experiment {
            Experiment::PageSize => format!("{}k-pages", self.page >> 10),
            Experiment::Threads => format!("{}-threads", self.threads),
            Experiment::Cache => format!("{}m-pool", self.pool >> 20),
            Experiment::Compression => format!("compression-{}", FORMATS[self.format].0),
            Experiment::One => return self.mix.name().to_owned(),
            Experiment::Objective => match self.load {
                None => "closed".into(),
                Some(load) => format!("{load}pc"),
            },
            Experiment::Try if self.tried.is_empty() => "as-it-is".into(),
            Experiment::Try => settings::label(&self.tried),
        };
        format!("{}-{what}", self.mix.name())
    }
    /// Name of its data directory.
    fn directory(&self) -> String {
        format!("{}k-{}", self.page >> 10, FORMATS[self.format].0)
    }
    /// Cells with the same data directory and server.
    fn server(&self) -> (u64, usize, u64, &[String]) {
        (self.page, self.format, self.pool, &self.tried)
    }
}

/// What was counted beside a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counted {
    /// Of the server itself.
    #[serde(flatten)]
    seen: Observed,
    /// Bytes that the server's process read from storage and wrote to it; not of a server of the user's.
    process: Option<[u64; 2]>,
    /// Transactions that were tried again after a deadlock.
    again: u64,
    /// sysbench's transactions per second beside it.
    sysbench: Option<f64>,
    /// Transactions per second that came.
    offered: Option<f64>,
}

impl Offered for Counted {
    fn offered(&self) -> Option<f64> {
        self.offered
    }
}

type Line = loads::Line<Cell, Counted>;
type Repeat = loads::Repeat<Counted>;

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OltpResult {
    options: OltpOptions,
    facts: Facts,
    lines: Vec<Line>,
    skipped: Vec<Skipped>,
}

impl ExperimentResult for OltpResult {
    const EXPERIMENT: &'static str = "oltp";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
        shown
            .sections
            .extend(skipped::skipped("oltp", &self.skipped));
    }
}

impl OltpResult {
    /// How transactions chose their rows.
    pub(crate) fn rows(&self) -> Rows {
        self.options.rows
    }

    /// The page size, bytes, with the highest rate of some transactions, and what can be said of it.
    pub(crate) fn best_page(
        &self,
        evidence: &Evidence<'_>,
        mix: Mix,
    ) -> Option<((f64, Vec<usize>), String)> {
        results::best_page(self, evidence, mix)
    }

    /// The rate of some transactions with so many threads, 1/s.
    pub(crate) fn by_threads(
        &self,
        evidence: &Evidence<'_>,
        mix: Mix,
        threads: u32,
    ) -> Option<Estimate> {
        let asked = |l: &&Line| {
            let c = &l.setting;
            c.experiment == Experiment::Threads && c.mix == mix && c.threads == threads
        };
        self.lines.iter().find(asked)?.rate(evidence)
    }

    /// The rate with the pool nearest to half of the table over that with the smallest, where the pools reach from less
    /// than a tenth of the table to a third at least: a table so small that the least pool holds a good part of it shows
    /// nothing of the kind.
    pub(crate) fn half_cached(
        &self,
        evidence: &Evidence<'_>,
        mix: Mix,
    ) -> Option<(f64, Vec<usize>)> {
        let swept = |l: &&Line| l.setting.experiment == Experiment::Cache && l.setting.mix == mix;
        let point = |l: &Line| {
            let c = &l.setting;
            let share = c.pool as f64 / self.facts.table_bytes(c.page, c.format)? as f64;
            Some((share, l.rate(evidence)?.value, l.jobs()))
        };
        let points: Vec<_> = self.lines.iter().filter(swept).filter_map(point).collect();
        let nearest = |share: f64| {
            let by = |p: &&(f64, f64, Vec<usize>)| (p.0 - share).abs();
            points.iter().min_by(|a, b| by(a).total_cmp(&by(b)))
        };
        let (smallest, half) = (nearest(0.0)?, nearest(0.5)?);
        let shown = smallest.0 < 0.1 && half.0 > 0.3;
        shown.then(|| (half.1 / smallest.1, [&smallest.2[..], &half.2].concat()))
    }
}

fn cells(options: &OltpOptions) -> Vec<Cell> {
    let data = options.count * ROW;
    let base = Cell {
        experiment: Experiment::PageSize,
        page: 16 << 10,
        format: 0,
        pool: options.pool.0,
        threads: options.threads,
        load: None,
        mix: Mix::Read,
        tried: Vec::new(),
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
            Experiment::One => settings.push(base),
            Experiment::Try => {
                settings.extend(options.settings.turns().map(|tried| Cell {
                    tried,
                    ..base.clone()
                }));
            }
            // The closed loop comes first: it says what the shares are of.
            Experiment::Objective => {
                let loads = std::iter::once(None).chain(SHARES.map(Some));
                settings.extend(loads.map(|load| Cell {
                    load,
                    ..base.clone()
                }));
            }
        }
    }
    settings.dedup_by(|a, b| {
        let key = |c: &Cell| (c.experiment, c.page, c.format, c.pool, c.threads, c.load);
        key(a) == key(b) && a.tried == b.tried
    });
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

/// Bytes that the data directories take at most.
fn room(options: &OltpOptions) -> u64 {
    if options.server.is_some() {
        return 1 << 20;
    }
    let mut kinds: Vec<(u64, usize)> = cells(options).iter().map(|c| (c.page, c.format)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let one = options.count * ROW * 3 / 2 + log_bytes(options) + (96 << 20);
    kinds.len() as u64 * one + options.count * 200
}

/// Of the redo log: small enough beside the data that its checkpoints are part of what is measured, and at least what
/// InnoDB asks for its largest pages here; one size for all that is compared.
fn log_bytes(options: &OltpOptions) -> u64 {
    let page = cells(options)
        .iter()
        .map(|c| c.page)
        .max()
        .unwrap_or(64 << 10);
    // PostgreSQL does not start with less than two of its segments.
    let least = match options.on_postgres() {
        true => 32 << 20,
        false => page << 8,
    };
    (options.count * ROW / 8).clamp(least, 512 << 20) >> 20 << 20
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

impl Measurement for OltpOptions {
    const NAME: &'static str = "db-mysql";
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

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let options = self;
        let mut o = super::embedded_cost(plan, &options.db, &embedded(options), fills);
        let n = cells(options).len() as u32 * plan.profile.repeats;
        let (ramp, time) = super::times(plan, &options.db, None);
        // What writes has a log whose checkpoints are waited for.
        let wait = |mix: Mix| match mix {
            Mix::Read => 0.3,
            _ => 3.3,
        };
        let waits: f64 = options.mixes.iter().map(|m| wait(*m)).sum();
        let wait = Nanos::from_secs_f64(waits / options.mixes.len().max(1) as f64);
        let warm = ramp.max(Warmth::least(time)) + wait;
        let sysbench = if options.sysbench {
            ramp + ramp + time
        } else {
            Nanos::ZERO
        };
        // Servers are made, filled, and started anew for each of their settings.
        let cells = cells(options);
        let mut servers: Vec<_> = cells.iter().map(Cell::server).collect();
        servers.sort_unstable();
        servers.dedup();
        let starts = servers.len() as u64 * u64::from(plan.profile.repeats) * 800;
        servers.dedup_by_key(|s| (s.0, s.1));
        let fills = servers.len() as u64 * (1_500 + options.count / 100);
        let servers = Nanos::from_millis(starts + fills);
        let one = (warm + time + sysbench).0;
        let pages = (ramp + time).as_secs_f64() * f64::from(n) * 20_000.0 * 16384.0;
        o.phase("making, filling and starting the servers")
            .work(0, servers, Bytes(room(options)));
        let time = Nanos(one * u64::from(n));
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
        let mut skipped = Vec::new();
        let stop = || bench.interrupted();
        // What can be refused is refused before anything is measured.
        let mut server = None;
        match options.programs() {
            Err(e) => skipped.push(Skipped::from_error(options.engine(), e)),
            Ok(Some(programs)) => {
                mariadb::knows(&programs, &options.settings.all())?;
                let place = LabDir::create(&dir, room(options)).map_err(LabError::from)?;
                server = Some((Servers::innodb(programs), place));
            }
            Ok(None) => {
                let place = LabDir::create(&dir, room(options)).map_err(LabError::from)?;
                let yours = options.server.as_ref().map(Yours::open).transpose()?;
                let made = Made {
                    schema: SCHEMA,
                    pool: options.pool.0,
                    log: log_bytes(options),
                    sessions: options.threads,
                    postgres: options.postgres.programs.as_deref(),
                    settings: &options.settings,
                };
                let name = options.server.as_ref().map_or("postgresql", |s| s.called());
                let database = Database::open(name, &place, made, yours, &stop)?;
                server = Some((Servers::One(Box::new(database), None), place));
            }
        }
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
        super::embedded(bench, plan, &options.db, &embedded(options), book, sink)?;
        let mut measured = Ok(());
        let mut result = OltpResult {
            options: options.clone(),
            facts: Facts::default(),
            lines: Vec::new(),
            skipped,
        };
        skipped::missing(book, &result.skipped, server.is_none());
        if let Some((server, place)) = &mut server {
            let mut lab = Lab::new((bench, book, plan), options, place, other.as_ref());
            measured = lab.rounds(server, sink);
            measured = measured.map_err(|e| super::with_room(place.path(), e));
            (result.facts, result.lines) = (lab.facts, lab.lines);
        }
        drop(server);
        book.found(&result)?;
        if bench.interrupted() {
            super::interrupted(book);
            return Ok(());
        }
        measured.map_err(NotebookError::from)
    }
}

#[cfg(test)]
mod tests {
    use fathom_bench::measurement::defaults;
    use fathom_telemetry::schema::{Direction, Job, Run};
    use serde_json::json;

    use super::super::settings::SettingArgs;
    use super::*;

    fn options() -> OltpOptions {
        OltpOptions {
            experiments: vec![Experiment::PageSize, Experiment::Compression],
            count: 400_000,
            ..defaults()
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
    fn what_comes_is_a_share_of_what_was_done_before() {
        let o = OltpOptions {
            experiments: vec![Experiment::Objective],
            ..options()
        };
        let cells = cells(&o);
        assert_eq!(cells.len(), 3 * (1 + SHARES.len()));
        // Each kind of transactions has its closed loop before all of its shares.
        assert!(cells[..3].iter().all(|c| c.load.is_none()));
        assert!(cells[3..].iter().all(|c| c.load.is_some()));
        assert_eq!(cells[3].label(), "read-20pc");
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

    /// A result whose cells have these rates, each measured once, by a table of 1 GB.
    fn measured(options: OltpOptions, rate: impl Fn(&Cell) -> f64) -> (OltpResult, Run) {
        measured_often(options, 1, |cell, _| rate(cell))
    }

    /// The same in so many rounds.
    fn measured_often(
        options: OltpOptions,
        rounds: u32,
        rate: impl Fn(&Cell, u32) -> f64,
    ) -> (OltpResult, Run) {
        let mut run: Run = serde_json::from_value(json!({
            "schema_version": 2, "tool_version": "", "name": "", "command": "", "command_line": [], "started": "",
            "finished": null, "profile": null, "seed": 1, "simulated": false, "environment": {}, "headlines": [],
            "target": {"name": "", "kind": "", "path": null, "size_bytes": 0, "device": null, "description": ""},
            "results": [], "sections": [], "jobs": [], "findings": [], "flags": [],
        }))
        .unwrap();
        let mut lines = Vec::new();
        for setting in cells(&options) {
            let repeats = (0..rounds).map(|round| {
                let read = Direction {
                    iops: rate(&setting, round),
                    ..Direction::default()
                };
                run.jobs.push(Job {
                    read: Some(read),
                    ..Job::default()
                });
                let beside = Counted {
                    seen: Observed::default(),
                    process: None,
                    again: 0,
                    sysbench: None,
                    offered: None,
                };
                Repeat {
                    jobs: vec![run.jobs.len() - 1],
                    operations: 1,
                    course: loads::Course::of_rates(&[(1.0, 1.0)], Nanos::from_secs(1)),
                    beside,
                }
            });
            let repeats = repeats.collect();
            lines.push(Line { setting, repeats });
        }
        let result = OltpResult {
            facts: Facts::of_table(16 << 10, 1_000_000_000),
            options,
            lines,
            skipped: Vec::new(),
        };
        (result, run)
    }

    #[test]
    fn the_best_page_is_a_field_and_never_better_said_than_shown() {
        let (result, run) = measured(options(), |c| 1e3 - (c.page as f64 - 8192.0).abs() / 1e3);
        let histograms = Vec::new();
        let evidence = Evidence::new(&run, &histograms);
        let ((page, jobs), verdict) = result.best_page(&evidence, Mix::Mixed).unwrap();
        assert_eq!((page, jobs.len()), (8192.0, PAGES.len()));
        // One repeat shows no difference to anything.
        assert!(verdict.starts_with("no difference shown to"), "{verdict}");
    }

    #[test]
    fn a_tried_setting_is_advised_where_it_helps_beyond_chance_and_named_where_not() {
        let tries = ["helps=1", "harms=1", "nothing=1,at_all=2"];
        let o = OltpOptions {
            experiments: vec![Experiment::Try],
            mixes: vec![Mix::Write],
            settings: SettingArgs {
                tries: tries
                    .map(|t| super::super::settings::parse(t).unwrap())
                    .into(),
                ..SettingArgs::default()
            },
            ..options()
        };
        let cells = cells(&o);
        let mut servers: Vec<_> = cells.iter().map(Cell::server).collect();
        servers.dedup();
        assert_eq!((cells.len(), servers.len()), (4, 4));
        assert_eq!(cells[3].label(), "write-nothing-1+at_all-2");
        // A device that drifts from round to round, and what each setting does on top of it.
        let rate = |c: &Cell, round: u32| {
            let of = match c.tried.first().map(String::as_str) {
                Some("helps=1") => 1.3,
                Some("harms=1") => 0.8,
                _ => 1.0,
            };
            let noise = f64::from((round * 7 + 3 * c.tried.len() as u32) % 5) / 100.0;
            1000.0 * of * (1.0 + f64::from(round) / 10.0) * (1.0 + noise)
        };
        let (result, run) = measured_often(o, 6, rate);
        let histograms = Vec::new();
        let mut shown = Shown::default();
        result.present(&Evidence::new(&run, &histograms), &mut shown);
        let said: Vec<_> = shown
            .findings
            .iter()
            .map(|f| (f.text.as_str(), f.advice.as_str(), f.confidence.as_str()))
            .collect();
        let [helps, harms, nothing, ..] = said[..] else {
            panic!("{said:?}");
        };
        assert!(
            helps.0.contains("helps=1: write transactions change by +3"),
            "{said:?}"
        );
        assert!(
            helps.1.starts_with("helps=1 (") && helps.2 == "strong",
            "{said:?}"
        );
        assert!(
            harms.0.contains("change by -") && harms.1.is_empty(),
            "{said:?}"
        );
        assert!(
            nothing
                .0
                .contains("nothing=1, at_all=2, write transactions: no difference shown (")
                && nothing.1.is_empty(),
            "{said:?}"
        );
    }

    #[test]
    fn what_a_cache_brings_is_said_where_its_range_was_measured() {
        let o = OltpOptions {
            experiments: vec![Experiment::Cache],
            count: 1_000_000_000 / ROW,
            ..options()
        };
        let (result, run) = measured(o, |c| c.pool as f64);
        let histograms = Vec::new();
        let (times, jobs) = result
            .half_cached(&Evidence::new(&run, &histograms), Mix::Mixed)
            .unwrap();
        assert!((times / (50.0 / 3.0) - 1.0).abs() < 0.2, "{times}");
        assert_eq!(jobs.len(), 2);
        let small = OltpResult {
            facts: Facts::of_table(16 << 10, 10_000_000),
            ..result
        };
        let none = small.half_cached(&Evidence::new(&run, &histograms), Mix::Mixed);
        assert!(none.is_none(), "{none:?}");
    }
}
