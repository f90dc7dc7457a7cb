//! Databases on a directory.

use clap::Subcommand;
use fathom_labs::db::oltp::OltpOptions;
use fathom_labs::db::rocksdb::RocksOptions;
use fathom_labs::db::scripted::SqlOptions;
use fathom_labs::db::tpcc::TpccOptions;

use super::measured::{Measured, run};
use crate::exit::Outcome;

/// What databases get from a directory. Servers are private: started, loaded, stopped and removed by fathom.
#[derive(Subcommand)]
pub(crate) enum DbCommand {
    /// InnoDB (MariaDB) under sysbench's OLTP load: page sizes, threads, buffer pools, compression
    Mysql(Box<Measured<OltpOptions>>),
    /// TPC-C-like load on MariaDB, PostgreSQL and SQLite, with the consistency conditions; not audited
    Tpcc(Box<Measured<TpccOptions>>),
    /// Your own SQL: pgbench's scripts, and loads by name, on MariaDB, PostgreSQL and SQLite
    Sql(Box<Measured<SqlOptions>>),
    /// RocksDB by its db_bench, with direct I/O
    Rocksdb(Box<Measured<RocksOptions>>),
}

pub(crate) fn db(command: &DbCommand) -> Outcome {
    match command {
        DbCommand::Mysql(args) => run(args),
        DbCommand::Tpcc(args) => run(args),
        DbCommand::Sql(args) => run(args),
        DbCommand::Rocksdb(args) => run(args),
    }
}
