//! Arguments of `db`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fathom_labs::db::server::Server;
use fathom_telemetry::{Bytes, Nanos};

use super::MeasureArgs;

/// What databases get from a directory. Servers are private: started, loaded, stopped and removed by fathom.
#[derive(Subcommand)]
pub(crate) enum DbCommand {
    /// InnoDB (MariaDB) under sysbench's OLTP load: page sizes, threads, buffer pools, compression
    Mysql(Box<MysqlArgs>),
    /// TPC-C-like load on MariaDB, PostgreSQL and SQLite, with the consistency conditions; not audited
    Tpcc(Box<TpccArgs>),
    /// Your own SQL: pgbench's scripts, and loads by name, on MariaDB, PostgreSQL and SQLite
    Sql(Box<SqlArgs>),
    /// RocksDB by its db_bench, with direct I/O
    Rocksdb(Box<RocksdbArgs>),
}

/// What every database lab takes.
#[derive(Args)]
#[command(mut_arg("size", |a| a.help("Bytes of the database, and of the embedded tree's scratch file [default: the usual number of rows, warehouses or keys]")))]
pub(crate) struct DbArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Leave out fathom's own embedded tree
    #[arg(long)]
    pub(crate) no_embedded: bool,
}

/// A server of the user's own.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// A running server of yours: mysql://USER@HOST[:PORT] or postgres://USER@HOST[:PORT]/DATABASE, with
    /// ?sslmode=verify-full (the default where HOST is not this machine), verify-ca, require or disable and
    /// &sslrootcert=FILE; nothing is started, and all is done in a database that is removed afterwards. The password comes
    /// from FATHOM_DB_PASSWORD, --password-file, ~/.my.cnf, PGPASSWORD or ~/.pgpass
    #[arg(long, value_name = "URL", value_parser = Server::parse)]
    pub(crate) server: Option<Server>,
    /// The same by the path of its socket
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    pub(crate) socket: Option<PathBuf>,
    /// File whose first line is the password; nobody else may be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// Arguments of `db mysql`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom db mysql /mnt/data --experiment page-size          best page size by transactions (read, mixed, write)\n  fathom db mysql /mnt/data --experiment all --rows 4m --pool 64m --profile standard\n  fathom db mysql /mnt/data --experiment one --threads 32 --driver sysbench   sysbench beside fathom's driver, in turns\n  fathom db mysql /mnt/data --experiment objective --p99 20ms   how many transactions it carries within 20 ms\n  fathom db mysql /mnt/data --try innodb_io_capacity=2000 --try innodb_flush_neighbors=0 --repeats 8   which setting helps\n  fathom db mysql . --server mysql://bench@db1.example      your own server: a database of fathom's, removed afterwards\n  fathom db mysql . --socket /run/mysqld/mysqld.sock --try innodb_io_capacity=2000 --change-server   a setting of it, in turns\nWithout MariaDB the embedded tree answers what it can, and the report says what to install."
)]
pub(crate) struct MysqlArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// page-size, threads, cache, compression, all of these; one: no sweep, the threads and the pool as given; objective: an
    /// open loop at shares of what a closed one does, until --p99 breaks
    /// [default: page-size; threads with --server]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub(crate) experiment: Vec<String>,
    /// Transactions: read, mixed (7:2), write
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = ["read", "mixed", "write"], default_values_t = ["read", "mixed", "write"].map(str::to_owned))]
    pub(crate) workload: Vec<String>,
    /// Rows of the table, about 245 bytes each (suffixes k, m are 1024 and 1048576) [default: as many as --size holds, or
    /// 400000]
    #[arg(long, conflicts_with = "size", value_name = "N")]
    pub(crate) rows: Option<Bytes>,
    /// Transactions per second that come at random moments, whatever was answered (an open loop); latency counts from then
    /// on [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = super::loads::per_second)]
    pub(crate) rate: Option<f64>,
    /// Latency objective of the experiment objective
    #[arg(long, value_name = "DURATION", default_value = "20ms")]
    pub(crate) p99: Nanos,
    /// Keys: uniform or gaussian
    #[arg(long, default_value = "uniform", value_parser = ["uniform", "gaussian"])]
    pub(crate) distribution: String,
    /// Clients, where they are not swept
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) threads: u32,
    /// Buffer pool, where it is not swept; pages of 64 KiB need 21m
    #[arg(long, default_value = "24m")]
    pub(crate) pool: Bytes,
    /// A setting that all of the lab's servers have (again for more)
    #[arg(long, value_name = "NAME=VALUE", value_parser = fathom_labs::db::settings::parse, conflicts_with_all = ["server", "socket"])]
    pub(crate) set: Vec<Vec<String>>,
    /// A setting to try, in turns with the server without it (again for more; with commas, several that belong together)
    #[arg(long = "try", value_name = "NAME=VALUE,…", value_parser = fathom_labs::db::settings::parse)]
    pub(crate) tries: Vec<Vec<String>>,
    /// own, or sysbench: both, in turns, as a cross-check
    #[arg(long, default_value = "own", value_parser = ["own", "sysbench"])]
    pub(crate) driver: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Lets --try change settings of that whole server, which all who work there have meanwhile; each is put back
    #[arg(long, requires = "tries")]
    pub(crate) change_server: bool,
}

/// Arguments of `db rocksdb`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom db rocksdb /mnt/data --keys 10m\n  fathom db rocksdb /mnt/data --workload fillrandom,readrandom --threads 16\nReads have another seed than the fill before them. Without db_bench the embedded tree is measured alone."
)]
pub(crate) struct RocksdbArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// fillseq, fillrandom, overwrite, readseq, readrandom, seekrandom, readwhilewriting, updaterandom
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", default_values_t = ["fillseq", "fillrandom", "overwrite", "readseq", "readrandom", "seekrandom", "readwhilewriting"].map(str::to_owned))]
    pub(crate) workload: Vec<String>,
    /// Keys of 16 bytes [default: as many as --size holds with their values, or 500000]
    #[arg(long, conflicts_with = "size", value_name = "N")]
    pub(crate) keys: Option<Bytes>,
    /// Bytes of a value
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) value: u32,
    /// Threads, where a workload has several
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) threads: u32,
    /// Block cache
    #[arg(long, default_value = "8m")]
    pub(crate) cache: Bytes,
}

/// Arguments of `db tpcc`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  fathom db tpcc /mnt/data --warehouses 10 --terminals 16\n  fathom db tpcc /mnt/data --warehouses 100 --pool 1g --ramp 180s --time 10m --repeats 5    as Han et al. 2021\n  fathom db tpcc /mnt/data --warehouses 100 --keying --thinking --pool 2g --ramp 20m --time 2h    by the specification's rules\n  fathom db tpcc . --database sqlite                          no server needed\n  fathom db tpcc . --server postgres://bench@db1.example/postgres   your own server"
)]
pub(crate) struct TpccArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// mariadb, postgresql, sqlite
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = ["mariadb", "postgresql", "sqlite"], default_values_t = ["mariadb", "postgresql", "sqlite"].map(str::to_owned))]
    pub(crate) database: Vec<String>,
    /// Warehouses, about 150 MB each [default: as many as --size holds, or 1]
    #[arg(long, conflicts_with = "size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) warehouses: Option<u32>,
    /// Terminals [default: 10, or 10 for each warehouse where they wait]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) terminals: Option<u32>,
    /// Terminals take the specification's time to key in: 18, 3, 2, 2, 2 s
    #[arg(long)]
    pub(crate) keying: bool,
    /// Terminals think between transactions: 12, 12, 10, 5, 5 s on average
    #[arg(long)]
    pub(crate) thinking: bool,
    /// Of keying and think times: 0.1 waits a tenth
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(crate) pace: f64,
    /// Connections that serve terminals that wait
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=900))]
    pub(crate) connections: u32,
    /// Transactions per second that come at random moments, whatever was answered (an open loop) [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = super::loads::per_second)]
    pub(crate) rate: Option<f64>,
    /// Terminals do their deliveries themselves, as sysbench-tpcc's do, and not further connections in the background
    #[arg(long)]
    pub(crate) inline_deliveries: bool,
    /// Buffer pool of each database
    #[arg(long, default_value = "64m")]
    pub(crate) pool: Bytes,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Arguments of `db sql`.
#[derive(Args)]
#[command(
    mut_arg("size", |a| a.help("Bytes of pgbench's tables, 15 MiB for each of --scale [default: a scale of 1]")),
    after_help = "Examples:\n  fathom db sql /mnt/data --builtin tpcb-like --scale 10                 pgbench's TPC-B on all three databases\n  fathom db sql /mnt/data --script mine.sql --init tables.sql            your statements on your tables\n  fathom db sql /mnt/data --script read.sql@9 --script write.sql@1 -D rows=100000 --mode prepared\n  fathom db sql /mnt/data --script mine.sql --rate 500                   500 transactions/s come at random moments\n  fathom db sql /mnt/data --builtin simple-update --p99 20ms             how many it carries within 20 ms\n  fathom db sql /mnt/data --builtin select-only --driver pgbench         pgbench beside fathom's driver, in turns\n  fathom db sql . --script mine.sql --server postgres://bench@db1.example/postgres    on your own server\nA script is what pgbench -f takes: SQL statements to the semicolon with :variables, and \\set x random(1, 100000 * :scale),\n\\if \\elif \\else \\endif, \\sleep 10 ms, \\gset, \\aset. :scale, :client_id, :random_seed and :default_seed are there.\nLoads by name: tpcb-like, simple-update, select-only, ycsb-a to ycsb-f, linkbench (docs/databases.md says what each does)."
)]
pub(crate) struct SqlArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// A script in pgbench's language, and how often it is chosen (again for more)
    #[arg(long, short = 'f', value_name = "FILE[@WEIGHT]")]
    pub(crate) script: Vec<String>,
    /// A load by name, and how often it is chosen (again for more) [default: tpcb-like, where no script is given]
    #[arg(long, short = 'b', value_name = "NAME[@WEIGHT]")]
    pub(crate) builtin: Vec<String>,
    /// Statements that are done once on each database before: tables, rows, indexes (again for more)
    #[arg(long, value_name = "FILE.sql")]
    pub(crate) init: Vec<PathBuf>,
    /// A variable of the scripts (again for more)
    #[arg(long, short = 'D', value_name = "NAME=VALUE")]
    pub(crate) define: Vec<String>,
    /// mariadb, postgresql, sqlite [default: all three; with a script postgresql; with --server that server]
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", conflicts_with_all = ["server", "socket"], value_parser = ["mariadb", "postgresql", "sqlite"])]
    pub(crate) database: Vec<String>,
    /// Clients, each with a connection of its own
    #[arg(long, short = 'c', default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=900))]
    pub(crate) clients: u32,
    /// How statements of scripts go to the database: simple (as text) or prepared
    #[arg(long, short = 'M', default_value = "simple", value_parser = ["simple", "prepared"])]
    pub(crate) mode: String,
    /// Of the tables, 15 MiB each: pgbench's 100,000 accounts, made where a script names them, YCSB's 12,000 rows, LinkBench's 14,000 nodes [default: as many as --size holds, or 1]
    #[arg(long, short = 's', conflicts_with = "size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) scale: Option<u32>,
    /// Transactions per second that come at random moments, whatever was answered (an open loop); latency counts from then
    /// on [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = super::loads::per_second)]
    pub(crate) rate: Option<f64>,
    /// An open loop at 20 to 100 % of what a closed one does, until 99 % are no longer answered within it
    #[arg(long, value_name = "DURATION", conflicts_with = "rate")]
    pub(crate) p99: Option<Nanos>,
    /// Buffer pool of each database
    #[arg(long, default_value = "64m")]
    pub(crate) pool: Bytes,
    /// own, or pgbench: both, in turns, as a cross-check on the lab's PostgreSQL
    #[arg(long, default_value = "own", value_parser = ["own", "pgbench"])]
    pub(crate) driver: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.001..=100.0).contains(&n) => Ok(n),
        _ => Err("expected a factor from 0.001 to 100; 1 is the specification's".into()),
    }
}
