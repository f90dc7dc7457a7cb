//! What `fathom db sql` can be asked for: scripts and loads by name, each with its weight.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use fathom_bench::measurement::{Typed, per_second, word};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::super::cluster::PostgresArgs;
use super::super::server::{DATABASES, Server, ServerArgs};
use super::super::settings::SettingArgs;
use super::super::workload::Workload;
use super::super::{DbOptions, linkbench, pool, ycsb};
use super::ScriptText;
use super::driver::Weighted;
use super::tables::{self, SCALE_BYTES};
use super::workload::{Mode, Scripts};
use crate::LabError;

/// Bytes of a script at most: larger files are data.
const SCRIPT_MAX: u64 = 64 << 20;

/// A load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Load {
    /// A script of the user's.
    Script(ScriptText),
    /// One of [`BUILT_IN`].
    BuiltIn {
        /// Its name.
        name: String,
        /// How often it is chosen, of the sum of all weights.
        weight: u32,
    },
}

/// Loads by name, and what they do.
pub const BUILT_IN: [(&str, &str); 10] = [
    (
        "tpcb-like",
        "pgbench's TPC-B: three updates, a select, an insert",
    ),
    (
        "simple-update",
        "pgbench's, without tellers and branches: less waiting for locks",
    ),
    ("select-only", "pgbench's, a read by key"),
    ("ycsb-a", "YCSB: half reads, half updates"),
    ("ycsb-b", "YCSB: 95 % reads, 5 % updates"),
    ("ycsb-c", "YCSB: reads"),
    ("ycsb-d", "YCSB: reads of the latest, 5 % inserts"),
    ("ycsb-e", "YCSB: short scans, 5 % inserts"),
    ("ycsb-f", "YCSB: reads, half of them with an update behind"),
    ("linkbench", "a social graph: nodes, links and their counts"),
];

/// A load by name that is not made of scripts; its tables are as large as pgbench's of the same scale.
fn native(name: &str, options: &SqlOptions) -> Result<Box<dyn Workload>, LabError> {
    let bytes = u64::from(options.scale) * SCALE_BYTES;
    ycsb::named(name, bytes / ycsb::ROW_BYTES)
        .or_else(|| linkbench::named(name, bytes / linkbench::NODE_BYTES))
        .ok_or_else(|| {
            let known: Vec<&str> = BUILT_IN.iter().map(|b| b.0).collect();
            LabError::Refused(format!(
                "--builtin: '{name}' is none: expected {}",
                known.join(", ")
            ))
        })
}

/// What is measured.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
#[command(
    mut_arg("size", |a| a.help("Bytes of pgbench's tables, 15 MiB for each of --scale [default: a scale of 1]")),
    after_help = "Examples:\n  fathom db sql /mnt/data --builtin tpcb-like --scale 10                 pgbench's TPC-B on all three databases\n  fathom db sql /mnt/data --script mine.sql --init tables.sql            your statements on your tables\n  fathom db sql /mnt/data --script read.sql@9 --script write.sql@1 -D rows=100000 --mode prepared\n  fathom db sql /mnt/data --script mine.sql --rate 500                   500 transactions/s come at random moments\n  fathom db sql /mnt/data --builtin simple-update --p99 20ms             how many it carries within 20 ms\n  fathom db sql /mnt/data --builtin select-only --driver pgbench         pgbench beside fathom's driver, in turns\n  fathom db sql /mnt/data --builtin simple-update --database postgresql --try commit_delay=200 --repeats 8    which setting helps\n  fathom db sql . --script mine.sql --server postgres://bench@db1.example/postgres    on your own server\nA script is what pgbench -f takes: SQL statements to the semicolon with :variables, and \\set x random(1, 100000 * :scale),\n\\if \\elif \\else \\endif, \\sleep 10 ms, \\gset, \\aset. :scale, :client_id, :random_seed and :default_seed are there.\nLoads by name: tpcb-like, simple-update, select-only, ycsb-a to ycsb-f, linkbench (docs/databases.md says what each does)."
)]
pub struct SqlOptions {
    /// What every database lab takes; the embedded tree has no SQL.
    #[arg(skip)]
    pub db: DbOptions,
    /// A script in pgbench's language, and how often it is chosen (again for more)
    #[arg(long, short = 'f', value_name = "FILE[@WEIGHT]")]
    #[serde(skip)]
    script: Vec<String>,
    /// A load by name, and how often it is chosen (again for more) [default: tpcb-like, where no script is given]
    #[arg(long, short = 'b', value_name = "NAME[@WEIGHT]")]
    #[serde(skip)]
    builtin: Vec<String>,
    /// Loads; all scripts of a client share its connection and its variables.
    #[arg(skip)]
    pub loads: Vec<Load>,
    /// Statements that are done once on each database before: tables, rows, indexes (again for more)
    #[arg(long, value_name = "FILE.sql")]
    #[serde(skip)]
    init: Vec<PathBuf>,
    /// Scripts that are done once, when the tables are there.
    #[arg(skip)]
    pub first: Vec<ScriptText>,
    /// A variable of the scripts (again for more)
    #[arg(long = "define", short = 'D', value_name = "NAME=VALUE", value_parser = define)]
    pub defines: Vec<(String, String)>,
    /// mariadb, postgresql, sqlite [default: all three; with a script postgresql; with --server that server]
    #[arg(long = "database", value_delimiter = ',', value_name = "NAME,…", conflicts_with_all = ["server", "socket"], value_parser = DATABASES)]
    pub databases: Vec<String>,
    /// Clients, each with a connection of its own
    #[arg(long, short = 'c', default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=900))]
    pub clients: u32,
    /// How statements of scripts go to the database: simple (as text) or prepared
    #[arg(long, short = 'M', default_value = "simple", value_parser = word(&[("simple", Mode::Simple), ("prepared", Mode::Prepared)]))]
    pub mode: Mode,
    /// Of the tables, 15 MiB each: pgbench's 100,000 accounts, made where a script names them, YCSB's 12,000 rows, LinkBench's 14,000 nodes [default: as many as --size holds, or 1]
    #[arg(long = "scale", short = 's', conflicts_with = "size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    #[serde(skip)]
    given: Option<u32>,
    /// Of pgbench's tables: 100,000 accounts each.
    #[arg(skip)]
    pub scale: u32,
    /// Left out at the start; a quarter of the time where it is not given.
    #[arg(skip)]
    pub ramp: Option<Nanos>,
    /// Transactions per second that come at random moments, whatever was answered (an open loop); latency counts from then
    /// on [default: a closed loop]
    #[arg(long, value_name = "N", value_parser = per_second)]
    pub rate: Option<f64>,
    /// An open loop at 20 to 100 % of what a closed one does, until 99 % are no longer answered within it
    #[arg(long = "p99", value_name = "DURATION", conflicts_with = "rate")]
    pub objective: Option<Nanos>,
    /// Buffer pool of each database
    #[arg(long, default_value = "64m", value_parser = pool)]
    pub pool: Bytes,
    /// Tries of a transaction that ends in a deadlock or a conflict, as pgbench counts them: after so many it has failed, and is in no
    /// rate (0: until it is done)
    #[arg(long = "max-tries", default_value_t = 0, value_name = "N")]
    #[serde(default)]
    pub max_tries: u32,
    /// Settings of the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub settings: SettingArgs,
    /// own, or pgbench: both, in turns, as a cross-check on the lab's PostgreSQL
    #[arg(long = "driver", value_name = "DRIVER", action = ArgAction::Set, default_value = "own", value_parser = word(&[("own", false), ("pgbench", true)]))]
    pub pgbench: bool,
    /// The PostgreSQL that the lab starts.
    #[command(flatten)]
    #[serde(default)]
    pub postgres: PostgresArgs,
    #[command(flatten)]
    #[serde(skip)]
    yours: ServerArgs,
    /// A server of the user's own: nothing is started then, and no other database is measured.
    #[arg(skip)]
    #[serde(default)]
    pub server: Option<Server>,
}

fn text(path: &Path, name: &str, weight: u32) -> Result<ScriptText, String> {
    let refuse = |why: String| format!("{}: {why}", path.display());
    let about = std::fs::metadata(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
    if about.len() > SCRIPT_MAX || !about.is_file() {
        return Err(refuse(
            "a file of at most 64 MiB with SQL is expected".into(),
        ));
    }
    let text = std::fs::read_to_string(path);
    Ok(ScriptText {
        name: name.to_owned(),
        text: text.map_err(|e| refuse(format!("cannot be read as UTF-8 text: {e}")))?,
        weight,
    })
}

fn base(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// `WHAT@WEIGHT`; 1 where no weight is given.
fn weighted<'a>(option: &str, what: &'a str) -> Result<(&'a str, u32), String> {
    let Some((name, weight)) = what.rsplit_once('@') else {
        return Ok((what, 1));
    };
    match weight.parse() {
        Ok(weight) => Ok((name, weight)),
        // A file may have one in its name.
        Err(_) if Path::new(what).exists() => Ok((what, 1)),
        Err(_) => Err(format!(
            "{option} {what}: '{weight}' is no weight: expected a whole number from 0 to 4294967295"
        )),
    }
}

fn define(text: &str) -> Result<(String, String), String> {
    let named = |name: &str| {
        let mut chars = name.chars();
        let first = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
        first && chars.all(|c| c == '_' || c.is_alphanumeric())
    };
    match text.split_once('=') {
        Some((name, value)) if named(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, a name of letters, digits and _".into()),
    }
}

impl SqlOptions {
    pub(super) fn scripts(&self) -> Vec<ScriptText> {
        let of = |load: &Load| match load {
            Load::Script(text) => Some(text.clone()),
            Load::BuiltIn { name, weight } => tables::built_in(name, *weight),
        };
        self.loads.iter().filter_map(of).collect()
    }

    /// All loads: scripts together first.
    pub(super) fn weighted(&self) -> Result<Vec<Weighted>, LabError> {
        let texts = self.scripts();
        let mut all: Vec<(Box<dyn Workload>, u64)> = Vec::new();
        let texts: Vec<&ScriptText> = texts.iter().filter(|t| t.weight > 0).collect();
        let seed = self.db.seed;
        let scripts = Scripts::new(
            &texts,
            &self.first,
            &self.defines,
            self.mode,
            (self.scale, seed),
        );
        let scripts = scripts.map_err(LabError::Refused)?;
        if !texts.is_empty() || !self.first.is_empty() {
            let weight = texts.iter().map(|t| u64::from(t.weight)).sum();
            all.push((Box::new(scripts), weight));
        }
        for load in &self.loads {
            match load {
                Load::BuiltIn { name, weight } if tables::script(name).is_none() => {
                    all.push((native(name, self)?, u64::from(*weight)));
                }
                _ => {}
            }
        }
        if all.iter().all(|a| a.1 == 0) {
            return Err(LabError::Refused(
                "nothing to do: name a load with a weight above 0 (--script FILE, --builtin NAME)"
                    .into(),
            ));
        }
        let mut first = 0;
        let weighted = all.into_iter().map(|(workload, weight)| {
            let kinds = workload.kinds().len();
            first += kinds;
            Weighted {
                workload,
                weight,
                first: first - kinds,
            }
        });
        Ok(weighted.collect())
    }

    /// Takes what follows from the rest of the command line, and reads the files.
    pub(super) fn follow(&mut self, typed: &mut Typed) -> Result<(), String> {
        let given = self.given.map(u64::from);
        let scale = self.db.sized(typed, given, 1, (SCALE_BYTES, "a scale"))?;
        self.scale = scale.min(20_000) as u32;
        self.ramp = typed.ramp;
        self.server = self.yours.find()?;
        self.loads = self.loads()?;
        let first = self.init.iter().map(|path| text(path, &base(path), 1));
        self.first = first.collect::<Result<_, _>>()?;
        if self.databases.is_empty() {
            self.databases = match &self.server {
                Some(server) => vec![server.called().into()],
                None if !self.script.is_empty() => vec!["postgresql".into()],
                None => DATABASES.map(str::to_owned).to_vec(),
            };
        }
        Ok(())
    }

    fn loads(&self) -> Result<Vec<Load>, String> {
        let mut all: Vec<Load> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for what in &self.script {
            let (file, weight) = weighted("--script", what)?;
            let path = Path::new(file);
            let mut name = base(path);
            let same = names.iter().filter(|n| **n == name).count();
            names.push(name.clone());
            if same > 0 {
                name = format!("{name} ({})", same + 1);
            }
            all.push(Load::Script(text(path, &name, weight)?));
        }
        let usual = ["tpcb-like".to_owned()];
        let built_in = match (all.is_empty(), self.builtin.as_slice()) {
            (true, []) => &usual,
            (_, some) => some,
        };
        for what in built_in {
            let (name, weight) = weighted("--builtin", what)?;
            all.push(Load::BuiltIn {
                name: name.to_owned(),
                weight,
            });
        }
        Ok(all)
    }

    /// Refuses what cannot be: a script that is not understood, a load that nobody knows.
    pub(super) fn possible(&self) -> Result<(), String> {
        self.postgres.possible(&self.databases)?;
        let beside = [
            ("--rate", self.rate.is_some()),
            // Steps have none.
            ("--p99", self.objective.is_some()),
            ("--driver pgbench", self.pgbench),
        ];
        let yours = self.server.is_some();
        self.settings.possible(&self.databases, yours, &beside)?;
        if self.pgbench && self.server.is_some() {
            return Err(
                "--driver pgbench: it runs beside on the lab's own PostgreSQL: leave --server out"
                    .into(),
            );
        }
        if self.pgbench && !self.databases.iter().any(|d| d == "postgresql") {
            return Err(
                "--driver pgbench: it speaks with PostgreSQL alone: add --database postgresql"
                    .into(),
            );
        }
        self.weighted().map(drop).map_err(|e| e.to_string())
    }
}
