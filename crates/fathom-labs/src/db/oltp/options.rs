//! What `fathom db mysql` can be asked for.

use clap::{ArgAction, Args};
use fathom_bench::measurement::{Typed, per_second, word};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::super::DbOptions;
use super::super::cluster::{self, PostgresArgs};
use super::super::mariadb::{self, Programs};
use super::super::server::{DATABASES, Place, Protocol, Server, ServerArgs};
use super::super::settings::SettingArgs;
use super::ROW;
use super::driver::{Mix, Rows};
use crate::LabError;

const MARIADB: &str = DATABASES[0];
const POSTGRES: &str = DATABASES[1];

/// What runs were of before there was a choice.
fn unasked() -> String {
    MARIADB.into()
}

/// An experiment by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Experiment {
    /// Pages of 4 to 64 KiB.
    PageSize,
    /// 1 to 64 clients.
    Threads,
    /// The buffer pool as a share of the data.
    Cache,
    /// Compressed tables and pages.
    Compression,
    /// Nothing is swept: the threads and the pool that were given.
    One,
    /// An open loop at shares of what a closed loop does, until a latency objective breaks.
    Objective,
    /// Settings of the server, each in turns with the server without it.
    Try,
}

impl Experiment {
    /// By name; `all` means the first four.
    pub(super) const ALL: [(&'static str, Self); 7] = [
        ("page-size", Self::PageSize),
        ("threads", Self::Threads),
        ("cache", Self::Cache),
        ("compression", Self::Compression),
        ("one", Self::One),
        ("objective", Self::Objective),
        ("try", Self::Try),
    ];
}

/// Those of a name.
fn named(name: &str) -> Result<Vec<Experiment>, String> {
    let all = Experiment::ALL;
    let known = all.iter().find(|e| e.0 == name);
    match known {
        _ if name == "all" => Ok(all[..4].iter().map(|e| e.1).collect()),
        Some((_, e)) => Ok(vec![*e]),
        None => Err(format!(
            "'{name}' is none: expected {} or all",
            all.map(|e| e.0).join(", ")
        )),
    }
}

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  fathom db mysql /mnt/data --experiment page-size          best page size by transactions (read, mixed, write)\n  fathom db mysql /mnt/data --experiment all --rows 4m --pool 64m --profile standard\n  fathom db mysql /mnt/data --experiment one --threads 32 --driver sysbench   sysbench beside fathom's driver, in turns\n  fathom db mysql /mnt/data --experiment objective --p99 20ms   how many transactions it carries within 20 ms\n  fathom db mysql /mnt/data --try innodb_io_capacity=2000 --try innodb_flush_neighbors=0 --repeats 8   which setting helps\n  fathom db mysql /mnt/data --database postgresql --try commit_delay=200 --repeats 8   the same load on a private PostgreSQL\n  fathom db mysql . --server mysql://bench@db1.example      your own server: a database of fathom's, removed afterwards\n  fathom db mysql . --socket /run/mysqld/mysqld.sock --try innodb_io_capacity=2000 --change-server   a setting of it, in turns\nWithout MariaDB the embedded tree answers what it can, and the report says what to install."
)]
pub struct OltpOptions {
    /// What every database lab takes.
    #[command(flatten)]
    pub db: DbOptions,
    /// page-size, threads, cache, compression, all of these; one: no sweep, the threads and the pool as given; objective: an
    /// open loop at shares of what a closed one does, until --p99 breaks
    /// [default: page-size; threads with --server]
    #[arg(long = "experiment", value_delimiter = ',', value_name = "NAME,…", value_parser = named)]
    #[serde(skip)]
    pub(super) asked: Vec<Vec<Experiment>>,
    /// Which experiments.
    #[arg(skip)]
    pub experiments: Vec<Experiment>,
    /// Transactions: read, mixed (7:2), write
    #[arg(long = "workload", value_delimiter = ',', value_name = "NAME,…", default_value = "read,mixed,write", value_parser = word(&[("read", Mix::Read), ("mixed", Mix::Mixed), ("write", Mix::Write)]))]
    pub mixes: Vec<Mix>,
    /// Rows of the table, about 245 bytes each (suffixes k, m are 1024 and 1048576) [default: as many as --size holds, or
    /// 400000]
    #[arg(long = "rows", conflicts_with = "size", value_name = "N")]
    #[serde(skip)]
    pub(super) given: Option<Bytes>,
    /// Rows of the table.
    #[arg(skip)]
    pub count: u64,
    /// Transactions per second that come at random moments, whatever was answered (an open loop); latency counts from then
    /// on [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// Latency objective of the experiment objective
    #[arg(long = "p99", value_name = "DURATION", default_value = "20ms")]
    pub objective: Nanos,
    /// Keys: uniform or gaussian
    #[arg(long = "distribution", value_name = "DISTRIBUTION", default_value = "uniform", value_parser = word(&[("uniform", Rows::Uniform), ("gaussian", Rows::Gaussian)]))]
    pub rows: Rows,
    /// Clients, where they are not swept
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub threads: u32,
    /// Buffer pool, where it is not swept; pages of 64 KiB need 21m
    #[arg(long, default_value = "24m")]
    pub pool: Bytes,
    /// Settings of the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: SettingArgs,
    /// own, or sysbench: both, in turns, as a cross-check
    #[arg(long = "driver", value_name = "DRIVER", action = ArgAction::Set, default_value = "own", value_parser = word(&[("own", false), ("sysbench", true)]))]
    pub sysbench: bool,
    /// mariadb, or postgresql: a private server of it, with 8 KiB pages and both of its caches as large as --pool
    #[arg(long, value_name = "NAME", default_value = MARIADB, value_parser = [MARIADB, POSTGRES], hide_possible_values = true, conflicts_with_all = ["server", "socket"])]
    #[serde(default = "unasked")]
    pub database: String,
    /// Which PostgreSQL.
    #[command(flatten)]
    #[serde(flatten)]
    pub postgres: PostgresArgs,
    #[command(flatten)]
    #[serde(skip)]
    pub(super) yours: ServerArgs,
    /// A server of the user's own: nothing is started then, and its page, pool and format are what they are.
    #[arg(skip)]
    #[serde(default)]
    pub server: Option<Server>,
}

impl OltpOptions {
    /// A private PostgreSQL is measured.
    pub(super) fn on_postgres(&self) -> bool {
        self.database == POSTGRES
    }

    /// What is measured where the lab starts it.
    pub(super) fn engine(&self) -> &'static str {
        match self.on_postgres() {
            true => "PostgreSQL",
            false => "InnoDB (MariaDB)",
        }
    }

    /// The programs of the lab's own MariaDB; none where another server is measured, which is there.
    ///
    /// # Errors
    /// Where what the lab is to start is not installed.
    pub(super) fn programs(&self) -> Result<Option<Programs>, LabError> {
        match (&self.server, self.on_postgres()) {
            (Some(_), _) => Ok(None),
            (None, true) => cluster::probe(self.postgres.programs.as_deref()).map(|_| None),
            (None, false) => mariadb::probe().map(Some),
        }
    }

    /// What a server can show whose pages, pool and tables are what they are.
    const OF_ONE: [Experiment; 4] = [
        Experiment::Threads,
        Experiment::One,
        Experiment::Objective,
        Experiment::Try,
    ];

    /// One server is measured as it is, or with settings that are tried.
    fn is_one(&self) -> bool {
        self.server.is_some() || self.on_postgres()
    }

    /// Takes what follows from the rest of the command line.
    pub(super) fn follow(&mut self, typed: &mut Typed) -> Result<(), String> {
        let given = self.given.map(|r| r.0);
        self.count = self.db.sized(typed, given, 400_000, (ROW, "a row"))?;
        let asked = std::mem::take(&mut self.mixes);
        self.mixes = Mix::ALL.into_iter().filter(|m| asked.contains(m)).collect();
        self.server = self.yours.find()?;
        self.experiments = self.asked.concat();
        self.experiments.dedup();
        if self.asked.is_empty() {
            self.experiments
                .push(match (self.is_one(), self.settings.tries.is_empty()) {
                    (_, false) => Experiment::Try,
                    (false, true) => Experiment::PageSize,
                    (true, true) => Experiment::Threads,
                });
        }
        Ok(())
    }

    /// Refuses what no single option shows to be impossible.
    pub(super) fn possible(&self) -> Result<(), String> {
        let shows = |e| self.experiments.contains(&e);
        if let Some(server) = &self.server {
            let by_socket =
                server.protocol == Protocol::Mysql && matches!(server.place, Place::Socket(_));
            if self.sysbench && !by_socket {
                return Err("--driver sysbench: beside a server of yours it goes by the socket of a MariaDB or MySQL alone, since its command line would show a password".into());
            }
        }
        self.postgres
            .possible(std::slice::from_ref(&self.database))?;
        if self.sysbench && self.on_postgres() {
            return Err("--driver sysbench: it goes by the socket of a MariaDB or MySQL; beside PostgreSQL db sql has --driver pgbench".into());
        }
        let other = |e: &&(&str, Experiment)| shows(e.1) && !Self::OF_ONE.contains(&e.1);
        let other = Experiment::ALL.iter().find(other);
        if let Some((name, _)) = other.filter(|_| self.is_one()) {
            let whose = match &self.server {
                Some(_) => "a server of yours",
                None => "PostgreSQL",
            };
            return Err(format!(
                "--experiment {name}: the page size, the pool and the tables of {whose} are what they are; it can show threads, one, objective and try"
            ));
        }
        if shows(Experiment::Try) == self.settings.tries.is_empty() {
            return Err("--experiment try and --try NAME=VALUE belong together".into());
        }
        // Pages of 64 KiB do not start with less than 21 MiB.
        let least = if shows(Experiment::PageSize) { 21 } else { 6 };
        if self.pool.0 < least << 20 {
            return Err(format!(
                "--pool: {} is too small: InnoDB needs {least}m or more here",
                self.pool
            ));
        }
        if !(1000..=2_000_000_000).contains(&self.count) {
            return Err(format!(
                "--rows: {} is out of range: expected 1000 to 2000000000",
                self.count
            ));
        }
        Ok(())
    }
}
