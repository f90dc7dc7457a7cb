//! Database labs: private servers that the lab starts, loads, measures, stops and removes, on a directory of the
//! target; and what the embedded tree gets there, which needs no server.

mod bound;
mod budget;
mod cluster;
mod counters;
mod database;
mod linkbench;
mod mariadb;
mod objective;
mod observed;
pub mod oltp;
#[cfg(test)]
mod on_databases;
pub mod rocksdb;
mod script;
pub mod scripted;
pub mod server;
pub mod settings;
mod settings_seen;
mod sql;
pub mod tools;
pub mod tpcc;
mod tried;
mod warmth;
mod workload;
mod ycsb;
mod yours;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Typed, defaults};
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, BenchError, Notebook, NotebookError, Plan};
use fathom_io::TargetError;
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::kv::{self, KvOptions};

/// What every database lab takes.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[command(mut_arg("size", |a| a.help("Bytes of the database, and of the embedded tree's scratch file [default: the usual number of rows, warehouses or keys]")))]
pub struct DbOptions {
    /// Time of one measurement; by the profile where it is not given.
    #[arg(skip)]
    pub time: Option<Nanos>,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
    /// Leave out fathom's own embedded tree
    #[arg(long = "no-embedded", action = ArgAction::SetFalse)]
    pub embedded: bool,
}

/// What to do about a target that is no directory.
const MAKE_ONE: Option<&str> = Some("a database needs a file system: make one");
/// The scratch file of the embedded tree must hold a tree and the raw device.
const SCRATCH_MIN: u64 = 64 << 20;
/// Bytes of a buffer pool on the command line.
fn pool(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    match bytes.0 >= 6 << 20 {
        true => Ok(bytes),
        false => Err(format!("'{text}' is too small: InnoDB needs 6m or more")),
    }
}

impl DbOptions {
    /// How many rows, warehouses or keys of `each` bytes the database has: those that were given, those that --size holds,
    /// or the usual number. The scratch file of the embedded tree is as large as the database.
    fn sized(
        &mut self,
        typed: &mut Typed,
        given: Option<u64>,
        usual: u64,
        (each, one): (u64, &str),
    ) -> Result<u64, String> {
        (self.time, self.seed) = (typed.time, typed.seed);
        let count = match typed.size {
            Some(size) if size.0 < SCRATCH_MIN && self.embedded => {
                return Err("--size: the embedded tree and the raw device need 64m or more".into());
            }
            Some(size) if size.0 < each => {
                return Err(format!(
                    "--size: {size} is too small: {one} has {}",
                    Bytes(each)
                ));
            }
            Some(size) => size.0 / each,
            None => given.unwrap_or(usual),
        };
        if !self.embedded {
            typed.size = Some(Bytes(SCRATCH_MIN));
        } else if given.is_some() {
            typed.size = Some(Bytes((count * each).max(SCRATCH_MIN)));
        }
        Ok(count)
    }
}

/// Programs that the labs run: the commands that need it, its name, the packages that bring it, its version.
pub(crate) fn programs() -> Vec<(
    &'static str,
    &'static str,
    &'static str,
    Result<String, LabError>,
)> {
    let mysql = mariadb::probe().map(|p| p.version);
    let postgres = cluster::probe(None).map(|p| p.version);
    let sysbench = oltp::sysbench::probe().map(|(_, version)| version);
    vec![
        (
            "db mysql, db tpcc, db sql",
            "MariaDB",
            mariadb::PACKAGES,
            mysql,
        ),
        ("db tpcc, db sql", "PostgreSQL", cluster::PACKAGE, postgres),
        (
            "db rocksdb",
            "db_bench",
            rocksdb::PACKAGE,
            rocksdb::version(),
        ),
        ("db mysql", "sysbench", oltp::sysbench::PACKAGE, sysbench),
    ]
}

/// The directory that the lab may use.
pub(crate) fn directory(bench: &dyn Bench) -> Result<PathBuf, BenchError> {
    let about = bench.describe();
    let dir = about
        .path
        .as_deref()
        .filter(|_| about.kind == "directory")
        .and_then(|p| PathBuf::from(p).parent().map(PathBuf::from));
    dir.ok_or_else(|| {
        BenchError::Target(TargetError::Unfit {
            target: about.name,
            message:
                "a database needs a file system: make one on the device, mount it, and name the directory"
                    .into(),
        })
    })
}

fn kv_options(options: &DbOptions, workloads: &[&str]) -> KvOptions {
    KvOptions {
        workloads: workloads.iter().map(|w| (*w).to_owned()).collect(),
        model: None,
        time: options.time,
        seed: options.seed,
        ..defaults()
    }
}

/// Time and bytes of the embedded part.
fn embedded_cost(plan: &Plan, options: &DbOptions, workloads: &[&str], fills: Bytes) -> RunCost {
    if !options.embedded {
        return RunCost::default();
    }
    kv::run_cost(plan, &kv_options(options, workloads), fills)
}

/// Ramp, at least, and measured time of a point: three times as long as a job.
fn times(plan: &Plan, options: &DbOptions, ramp: Option<Nanos>) -> (Nanos, Nanos) {
    let time = options.time.unwrap_or(Nanos(plan.profile.job_time.0 * 3));
    (ramp.unwrap_or(Nanos(time.0 / 4)), time)
}

/// Time to make databases and to fill so many units of each; `seconds` has those of making one, and of a unit.
fn loading(databases: &[String], units: u32, seconds: fn(&str) -> (f64, f64)) -> Nanos {
    let of = |name: &String| {
        let (made, each) = seconds(name);
        made + each * f64::from(units)
    };
    Nanos::from_secs_f64(databases.iter().map(of).sum())
}

/// What the embedded tree gets from the same place.
fn embedded(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &DbOptions,
    workloads: &[&str],
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    if !options.embedded {
        return Ok(());
    }
    kv::run(bench, plan, &kv_options(options, workloads), book, sink)
}

/// A directory of a server, which nobody else may enter: its sockets ask for no password, and who reaches one can do all
/// that the server's account can.
fn private_directory(dir: &Path) -> Result<(), LabError> {
    fathom_files::create::private_dir(dir).map_err(|e| {
        LabError::Failed(format!(
            "{}: cannot be made: {e}; name a directory that can be written",
            dir.display()
        ))
    })
}

/// An error with its likely cause, where that is a full disk: programs say so in many words, or in none.
fn with_room(dir: &Path, error: LabError) -> LabError {
    /// Servers give up before the last byte is taken.
    const LITTLE: u64 = 4 << 20;
    match error {
        LabError::Failed(said) if fathom_host::space(dir).is_ok_and(|s| s.free_bytes < LITTLE) => {
            LabError::Failed(format!(
                "{said}; the file system of {} is full: make room, measure less (--rows, --warehouses, --keys), or name another directory",
                dir.display()
            ))
        }
        other => other,
    }
}

/// That not everything was measured, because somebody asked to end.
fn interrupted(book: &mut Notebook) {
    book.run_mut().flags.push(Flag::new(
        FlagCode::Interrupted,
        "the lab was interrupted; what was measured until then is kept",
        "run it again: it begins anew",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_reaches_a_servers_socket() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("server");
        private_directory(&dir).unwrap();
        let mode = std::fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        let said = private_directory(&dir).unwrap_err().to_string();
        assert!(said.contains("server: cannot be made"), "{said}");
    }
}
