//! `fathom db sql`: pgbench's scripts, and loads by name.

use std::path::Path;

use fathom_labs::db::scripted::{self, DATABASES, Load, Mode, ScriptText, SqlOptions};
use fathom_labs::db::server::{Protocol, Server};

use super::db_sized::{measuring, options, sized, yours};
use super::measure::measure;
use crate::cli::{DbArgs, SqlArgs};
use crate::exit::{Failure, Outcome, refused};

/// Bytes of a script at most: larger files are data.
const SCRIPT_MAX: u64 = 64 << 20;

pub(crate) fn sql(args: &SqlArgs) -> Outcome {
    // The embedded tree has no SQL.
    let db = DbArgs {
        measure: args.measure.clone(),
        no_embedded: true,
    };
    let each = (scripted::SCALE_BYTES, "a scale");
    let (scale, sized) = sized(&db, args.scale.map(u64::from), 1, each)?;
    let own = !args.script.is_empty();
    let server = yours(&args.server)?;
    let options = SqlOptions {
        db: options(&db),
        loads: loads(args)?,
        first: first(args)?,
        defines: args
            .define
            .iter()
            .map(|d| define(d))
            .collect::<Result<_, _>>()?,
        databases: match (&server, args.database.as_slice()) {
            (Some(server), _) => vec![called(server).into()],
            (None, []) if own => vec!["postgresql".into()],
            (None, []) => DATABASES.map(str::to_owned).to_vec(),
            (None, some) => some.to_vec(),
        },
        clients: args.clients,
        mode: match args.mode.as_str() {
            "prepared" => Mode::Prepared,
            _ => Mode::Simple,
        },
        scale: scale.min(20_000) as u32,
        ramp: args.measure.length.ramp,
        rate: args.rate,
        objective: args.p99,
        pool: args.pool,
        server,
        pgbench: args.driver == "pgbench",
    };
    if args.pool.0 < 6 << 20 {
        return Err(refused(anyhow::anyhow!(
            "--pool: {} is too small: InnoDB needs 6m or more",
            args.pool
        )));
    }
    if options.pgbench && options.server.is_some() {
        return Err(refused(anyhow::anyhow!(
            "--driver pgbench: it runs beside on the lab's own PostgreSQL: leave --server out"
        )));
    }
    if options.pgbench && !options.databases.iter().any(|d| d == "postgresql") {
        return Err(refused(anyhow::anyhow!(
            "--driver pgbench: it speaks with PostgreSQL alone: add --database postgresql"
        )));
    }
    options.check().map_err(refused)?;
    let what = measuring("db-sql", &sized);
    measure(
        &what,
        &|plan, _| Ok(scripted::run_cost(plan, &options)),
        |bench, plan, book, sink| scripted::run(bench, plan, &options, book, sink),
    )
}

/// The database that a server is, in the lab's words.
fn called(server: &Server) -> &'static str {
    match server.protocol {
        Protocol::Mysql => DATABASES[0],
        Protocol::Postgres => DATABASES[1],
    }
}

fn text(path: &Path, name: &str, weight: u32) -> Result<ScriptText, Failure> {
    let refuse = |why: String| refused(anyhow::anyhow!("{}: {why}", path.display()));
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
fn weighted<'a>(option: &str, what: &'a str) -> Result<(&'a str, u32), Failure> {
    let Some((name, weight)) = what.rsplit_once('@') else {
        return Ok((what, 1));
    };
    match weight.parse() {
        Ok(weight) => Ok((name, weight)),
        // A file may have one in its name.
        Err(_) if Path::new(what).exists() => Ok((what, 1)),
        Err(_) => Err(refused(anyhow::anyhow!(
            "{option} {what}: '{weight}' is no weight: expected a whole number from 0 to 4294967295"
        ))),
    }
}

fn loads(args: &SqlArgs) -> Result<Vec<Load>, Failure> {
    let mut all: Vec<Load> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for what in &args.script {
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
    let built_in = match (all.is_empty(), args.builtin.as_slice()) {
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

fn first(args: &SqlArgs) -> Result<Vec<ScriptText>, Failure> {
    let all = args.init.iter();
    all.map(|path| text(path, &base(path), 1)).collect()
}

fn define(text: &str) -> Result<(String, String), Failure> {
    let named = |name: &str| {
        let mut chars = name.chars();
        let first = chars.next().is_some_and(|c| c == '_' || c.is_alphabetic());
        first && chars.all(|c| c == '_' || c.is_alphanumeric())
    };
    match text.split_once('=') {
        Some((name, value)) if named(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(refused(anyhow::anyhow!(
            "--define {text}: expected NAME=VALUE, a name of letters, digits and _"
        ))),
    }
}
