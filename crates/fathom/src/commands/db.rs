//! `fathom db`: databases on a directory.

use fathom_labs::db::oltp::{self, Experiment, Mix, OltpOptions, Rows};
use fathom_labs::db::rocksdb::{self, RocksOptions};
use fathom_labs::db::server::{Place, Protocol};
use fathom_labs::db::tpcc::{self, Pace, TpccOptions};
use fathom_telemetry::Bytes;

use super::db_sized::{measuring, options, sized, yours};
use super::measure::measure;
use super::open::directory;
use crate::cli::{DbCommand, MysqlArgs, RocksdbArgs, TpccArgs};
use crate::exit::{Failure, Outcome, refused};

pub(crate) fn db(command: &DbCommand) -> Outcome {
    let measure = match command {
        DbCommand::Mysql(args) => &args.db.measure,
        DbCommand::Tpcc(args) => &args.db.measure,
        DbCommand::Sql(args) => &args.measure,
        DbCommand::Rocksdb(args) => &args.db.measure,
    };
    directory(&measure.target, "a database needs a file system: make one")?;
    match command {
        DbCommand::Mysql(args) => mysql(args),
        DbCommand::Tpcc(args) => tpcc(args),
        DbCommand::Sql(args) => super::db_sql::sql(args),
        DbCommand::Rocksdb(args) => rocksdb(args),
    }
}

fn mysql(args: &MysqlArgs) -> Outcome {
    let typed = args.rows.map(|r| r.0);
    let (rows, sized) = sized(&args.db, typed, 400_000, (oltp::ROW, "a row"))?;
    let options = oltp_options(args, rows)?;
    let what = measuring("db-mysql", &sized);
    measure(
        &what,
        &|plan, fills| Ok(oltp::run_cost(plan, &options, fills)),
        |bench, plan, book, sink| oltp::run(bench, plan, &options, book, sink),
    )
}

fn oltp_options(args: &MysqlArgs, rows: u64) -> Result<OltpOptions, Failure> {
    let mut experiments = Vec::new();
    for name in &args.experiment {
        match Experiment::ALL.iter().find(|e| e.0 == *name) {
            _ if name == "all" => {
                experiments.extend(Experiment::ALL[..4].iter().map(|e| e.1));
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
    let server = yours(&args.server)?;
    if let Some(server) = &server {
        let by_socket =
            server.protocol == Protocol::Mysql && matches!(server.place, Place::Socket(_));
        if args.driver == "sysbench" && !by_socket {
            return Err(refused(anyhow::anyhow!(
                "--driver sysbench: beside a server of yours it goes by the socket of a MariaDB or MySQL alone, since its command line would show a password"
            )));
        }
        if args.experiment.is_empty() {
            experiments = vec![match args.tries.is_empty() {
                true => Experiment::Threads,
                false => Experiment::Try,
            }];
        }
        let names = Experiment::ALL;
        let other = names
            .into_iter()
            .find(|(_, e)| experiments.contains(e) && !OltpOptions::OF_YOURS.contains(e));
        if let Some((name, _)) = other {
            return Err(refused(anyhow::anyhow!(
                "--experiment {name}: the page size, the pool and the tables of a server of yours are what they are; it can show threads, one, objective and try"
            )));
        }
    } else if args.experiment.is_empty() {
        experiments = vec![match args.tries.is_empty() {
            true => Experiment::PageSize,
            false => Experiment::Try,
        }];
    }
    if experiments.contains(&Experiment::Try) == args.tries.is_empty() {
        return Err(refused(anyhow::anyhow!(
            "--experiment try and --try NAME=VALUE belong together"
        )));
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
    if !(1000..=2_000_000_000).contains(&rows) {
        return Err(refused(anyhow::anyhow!(
            "--rows: {rows} is out of range: expected 1000 to 2000000000"
        )));
    }
    let wanted = |m: &Mix| args.workload.iter().any(|w| w == m.name());
    Ok(OltpOptions {
        db: options(&args.db),
        experiments,
        set: args.set.concat(),
        tries: args.tries.clone(),
        mixes: Mix::ALL.into_iter().filter(wanted).collect(),
        rows: if args.distribution == "gaussian" {
            Rows::Gaussian
        } else {
            Rows::Uniform
        },
        count: rows,
        threads: args.threads,
        rate: args.rate,
        objective: args.p99,
        pool: Bytes(args.pool.0),
        sysbench: args.driver == "sysbench",
        server,
        change_server: args.change_server,
    })
}

fn rocksdb(args: &RocksdbArgs) -> Outcome {
    let names = rocksdb::WORKLOADS.map(|w| w.name);
    if let Some(name) = args.workload.iter().find(|w| !names.contains(&w.as_str())) {
        return Err(refused(anyhow::anyhow!(
            "--workload: '{name}' is no workload: expected {}",
            names.join(", ")
        )));
    }
    let each = (rocksdb::KEY + u64::from(args.value), "a key with its value");
    let (keys, sized) = sized(&args.db, args.keys.map(|k| k.0), 500_000, each)?;
    if !(1000..=10_000_000_000).contains(&keys) {
        return Err(refused(anyhow::anyhow!(
            "--keys: {keys} is out of range: expected 1000 to 10000000000"
        )));
    }
    let options = RocksOptions {
        db: options(&args.db),
        workloads: args.workload.clone(),
        keys,
        value: args.value,
        threads: args.threads,
        cache: args.cache,
    };
    let what = measuring("db-rocksdb", &sized);
    measure(
        &what,
        &|plan, fills| Ok(rocksdb::run_cost(plan, &options, fills)),
        |bench, plan, book, sink| rocksdb::run(bench, plan, &options, book, sink),
    )
}

/// Connections that a lab's servers take.
const CONNECTIONS_MAX: u32 = 900;

fn tpcc(args: &TpccArgs) -> Outcome {
    let typed = args.warehouses.map(u64::from);
    let each = (tpcc::WAREHOUSE_BYTES, "a warehouse");
    let (warehouses, sized) = sized(&args.db, typed, 1, each)?;
    if args.pool.0 < 6 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--pool: {} is too small: InnoDB needs 6m or more",
            args.pool
        )));
    }
    let warehouses = warehouses.min(100_000) as u32;
    let pace = Pace {
        keying: args.keying,
        thinking: args.thinking,
        scale: args.pace,
    };
    let terminals = match args.terminals {
        Some(n) if n > CONNECTIONS_MAX && !pace.waits() => {
            return Err(refused(anyhow::anyhow!(
                "--terminals: {n} that never wait need as many connections: ask for {CONNECTIONS_MAX} or fewer, or add --keying and --thinking"
            )));
        }
        Some(n) => n,
        None if pace.waits() => warehouses * tpcc::TERMINALS,
        None => 10,
    };
    if pace.waits() && args.rate.is_some() {
        return Err(refused(anyhow::anyhow!(
            "--rate: terminals that wait come at moments of their own: leave out --rate, or --keying and --thinking"
        )));
    }
    let options = TpccOptions {
        db: options(&args.db),
        databases: args.database.clone(),
        warehouses,
        terminals,
        pace,
        connections: args.connections,
        inline_deliveries: args.inline_deliveries,
        ramp: args.db.measure.length.ramp,
        rate: args.rate,
        pool: args.pool,
        server: yours(&args.server)?,
    };
    let what = measuring("db-tpcc", &sized);
    measure(
        &what,
        &|plan, fills| Ok(tpcc::run_cost(plan, &options, fills)),
        |bench, plan, book, sink| tpcc::run(bench, plan, &options, book, sink),
    )
}
