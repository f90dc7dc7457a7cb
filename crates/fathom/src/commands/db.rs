//! `fathom db`: databases on a directory.

use fathom_bench::Plan;
use fathom_bench::cpu::CpuSetting;
use fathom_labs::db::DbOptions;
use fathom_labs::db::oltp::{self, Experiment, Mix, OltpOptions, Rows};
use fathom_labs::db::rocksdb::{self, RocksOptions};
use fathom_labs::db::tpcc::{self, TpccOptions};
use fathom_telemetry::Bytes;

use super::measure::{Measuring, measure};
use super::open::directory;
use crate::cli::{DbArgs, DbCommand, MysqlArgs, RocksdbArgs, TpccArgs};
use crate::exit::{Failure, Outcome, refused};

pub(crate) fn db(command: &DbCommand) -> Outcome {
    let db = match command {
        DbCommand::Mysql(args) => &args.db,
        DbCommand::Tpcc(args) => &args.db,
        DbCommand::Rocksdb(args) => &args.db,
    };
    directory(
        &db.measure.target,
        "a database needs a file system: make one",
    )?;
    match command {
        DbCommand::Mysql(args) => mysql(args),
        DbCommand::Tpcc(args) => tpcc(args),
        DbCommand::Rocksdb(args) => rocksdb(args),
    }
}

fn measuring<'a>(name: &'static str, args: &'a DbArgs) -> Measuring<'a> {
    Measuring {
        name,
        args: &args.measure,
        modifies: true,
        cpu: CpuSetting::AsIs,
        recording: 0,
    }
}

/// The plan with what was said on the command line.
fn shaped(plan: &Plan, args: &DbArgs) -> Plan {
    let mut plan = plan.clone();
    plan.profile.repeats = args.repeats.unwrap_or(plan.profile.repeats);
    plan
}

fn options(args: &DbArgs) -> DbOptions {
    DbOptions {
        time: args.time,
        seed: args.measure.seed,
        embedded: !args.no_embedded,
    }
}

/// The scratch file of the embedded tree must hold a tree and the raw device.
fn large_enough(args: &DbArgs) -> Result<(), Failure> {
    if args.measure.size.is_some_and(|s| s.0 < 64 << 20) {
        return Err(refused(anyhow::anyhow!(
            "--size: the embedded tree and the raw device need 64m or more"
        )));
    }
    Ok(())
}

fn mysql(args: &MysqlArgs) -> Outcome {
    let options = oltp_options(args)?;
    large_enough(&args.db)?;
    let what = measuring("db-mysql", &args.db);
    measure(
        &what,
        &|plan, fills| Ok(oltp::run_cost(&shaped(plan, &args.db), &options, fills)),
        |bench, plan, book, sink| oltp::run(bench, &shaped(plan, &args.db), &options, book, sink),
    )
}

fn oltp_options(args: &MysqlArgs) -> Result<OltpOptions, Failure> {
    let mut experiments = Vec::new();
    for name in &args.experiment {
        match Experiment::ALL.iter().find(|e| e.0 == *name) {
            _ if name == "all" => {
                let sweeps = Experiment::ALL.map(|e| e.1);
                experiments.extend(sweeps.into_iter().filter(|e| *e != Experiment::One));
            }
            Some((_, e)) => experiments.push(*e),
            None => {
                let names = Experiment::ALL.map(|e| e.0);
                return Err(refused(anyhow::anyhow!(
                    "--experiment: '{name}' is none: expected {} or all",
                    names.join(", ")
                )));
            }
        }
    }
    experiments.dedup();
    if args.socket.is_some() {
        // Pages, pools and formats of a server that runs are what they are.
        experiments.retain(|e| OltpOptions::OF_YOURS.contains(e));
        if experiments.is_empty() {
            experiments.push(Experiment::Threads);
        }
    }
    // Pages of 64 KiB do not start with less than 21 MiB.
    let least = if experiments.contains(&Experiment::PageSize) {
        21
    } else {
        6
    };
    if args.pool.0 < least << 20 {
        return Err(refused(anyhow::anyhow!(
            "--pool: {} is too small: InnoDB needs {least}m or more here",
            args.pool
        )));
    }
    let rows = args.rows.0;
    if !(1000..=2_000_000_000).contains(&rows) {
        return Err(refused(anyhow::anyhow!(
            "--rows: {rows} is out of range: expected 1000 to 2000000000"
        )));
    }
    let wanted = |m: &Mix| args.workload.iter().any(|w| w == m.name());
    Ok(OltpOptions {
        db: options(&args.db),
        experiments,
        mixes: Mix::ALL.into_iter().filter(wanted).collect(),
        rows: if args.distribution == "gaussian" {
            Rows::Gaussian
        } else {
            Rows::Uniform
        },
        count: rows,
        threads: args.threads,
        pool: Bytes(args.pool.0),
        sysbench: args.driver == "sysbench",
        socket: args.socket.clone(),
    })
}

fn rocksdb(args: &RocksdbArgs) -> Outcome {
    large_enough(&args.db)?;
    let names = rocksdb::WORKLOADS.map(|w| w.name);
    if let Some(name) = args.workload.iter().find(|w| !names.contains(&w.as_str())) {
        return Err(refused(anyhow::anyhow!(
            "--workload: '{name}' is no workload: expected {}",
            names.join(", ")
        )));
    }
    if !(1000..=10_000_000_000).contains(&args.keys.0) {
        return Err(refused(anyhow::anyhow!(
            "--keys: {} is out of range: expected 1000 to 10000000000",
            args.keys.0
        )));
    }
    let options = RocksOptions {
        db: options(&args.db),
        workloads: args.workload.clone(),
        keys: args.keys.0,
        value: args.value,
        threads: args.threads,
        cache: args.cache,
    };
    let what = measuring("db-rocksdb", &args.db);
    measure(
        &what,
        &|plan, fills| Ok(rocksdb::run_cost(&shaped(plan, &args.db), &options, fills)),
        |bench, plan, book, sink| {
            rocksdb::run(bench, &shaped(plan, &args.db), &options, book, sink)
        },
    )
}

fn tpcc(args: &TpccArgs) -> Outcome {
    large_enough(&args.db)?;
    if args.pool.0 < 6 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--pool: {} is too small: InnoDB needs 6m or more",
            args.pool
        )));
    }
    let options = TpccOptions {
        db: options(&args.db),
        databases: args.database.clone(),
        warehouses: args.warehouses,
        terminals: args.terminals,
        ramp: args.ramp,
        pool: args.pool,
        socket: args.socket.clone(),
    };
    let what = measuring("db-tpcc", &args.db);
    measure(
        &what,
        &|plan, fills| Ok(tpcc::run_cost(&shaped(plan, &args.db), &options, fills)),
        |bench, plan, book, sink| tpcc::run(bench, &shaped(plan, &args.db), &options, book, sink),
    )
}
