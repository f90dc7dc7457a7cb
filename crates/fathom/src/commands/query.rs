//! `fathom query`: SQL over a run, a ready-made query, or what there is to ask.

use std::fmt::Write as _;
use std::io::Read;
#[cfg(feature = "query")]
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fathom_report::query::{self, READY, ready};
use fathom_telemetry::rundir::{RUN_FILE, RUNS_DIR, RunDir};

use crate::cli::QueryArgs;
use crate::exit::{DONE, Failure, Outcome, refused};
use crate::screen;

pub(crate) fn query(args: &QueryArgs) -> Outcome {
    if args.list {
        return list(args.json);
    }
    let (runs, asked) = what(args)?;
    let Some(asked) = asked else {
        let option = match (args.csv, args.duckdb) {
            (true, _) => "--csv",
            (_, true) => "--duckdb",
            _ => return tables(&runs, args.json),
        };
        return Err(refused(anyhow!(
            "{option} needs a query: expected a SELECT, - or one of {}",
            names()
        )));
    };
    let sql = if asked == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| refused(anyhow!("cannot read the query from standard input: {e}")))?;
        text
    } else {
        asked
    };
    if args.duckdb {
        let [run] = &runs[..] else {
            return Err(refused(anyhow!(
                "--duckdb takes one run, not {}; without it fathom asks several at once",
                runs.len()
            )));
        };
        let (dir, _) = RunDir::open(run).map_err(refused)?;
        screen::print(&query::duckdb(&dir, &sql));
        return Ok(DONE);
    }
    let sql = ready(&sql).map_or(sql.as_str(), |r| r.sql);
    answer(&runs, sql, args)
}

/// The runs and the query, told apart by what they can be: what exists is a run, and the query comes last.
fn what(args: &QueryArgs) -> Result<(Vec<PathBuf>, Option<String>), Failure> {
    let newest = || RunDir::newest(Path::new(RUNS_DIR)).map_err(refused);
    let is_query = |w: &str| w == "-" || w.contains(char::is_whitespace) || ready(w).is_some();
    let (query, runs) = match args.words.split_last() {
        Some((last, before)) if !Path::new(last).exists() && is_query(last) => {
            (Some(last.clone()), before)
        }
        // Where a run stands before it, only a query can be meant.
        Some((last, [run, ..])) if !Path::new(last).exists() && Path::new(run).exists() => {
            return Err(unknown(last));
        }
        _ => (None, &args.words[..]),
    };
    if runs.is_empty() {
        return Ok((vec![newest()?], query));
    }
    if let [one] = runs
        && query.is_none()
        && !Path::new(one).exists()
    {
        return Err(refused(anyhow!(
            "{one}: neither a run directory, nor a ready-made query, nor a SELECT; 'fathom query --list' names the ready-made ones"
        )));
    }
    // A directory that is no run, and holds some, is all of them.
    let of = |path: PathBuf| match path.is_dir() && !path.join(RUN_FILE).exists() {
        true => RunDir::all(&path).unwrap_or_else(|_| vec![path]),
        false => vec![path],
    };
    Ok((runs.iter().map(PathBuf::from).flat_map(of).collect(), query))
}

fn unknown(name: &str) -> Failure {
    refused(anyhow!(
        "{name}: no ready-made query has this name; expected a SELECT or one of {}",
        names()
    ))
}

/// Names of the ready-made queries.
fn names() -> String {
    let names: Vec<&str> = READY.iter().map(|r| r.name).collect();
    names.join(", ")
}

fn list(json: bool) -> Outcome {
    if json {
        let all: Vec<serde_json::Value> = READY
            .iter()
            .map(|r| {
                serde_json::json!({"name": r.name, "about": r.about, "sql": r.sql,
                                   "duckdb": r.duckdb.unwrap_or(r.sql)})
            })
            .collect();
        screen::json(&all)?;
        return Ok(DONE);
    }
    let mut text = String::new();
    for r in READY {
        let _ = writeln!(text, "{:<16}{}", r.name, r.about);
    }
    text.push_str("\nfathom query RUN NAME runs one; fathom query RUN shows the tables.\n");
    screen::print(&text);
    Ok(DONE)
}

#[cfg(feature = "query")]
fn tables(runs: &[PathBuf], json: bool) -> Outcome {
    let queries = query::Queries::open(runs).map_err(refused)?;
    if json {
        let columns = |all: &[query::Column]| -> Vec<serde_json::Value> {
            all.iter()
                .map(|c| serde_json::json!({"name": c.name, "type": c.kind.to_lowercase()}))
                .collect()
        };
        let all: Vec<serde_json::Value> = queries
            .tables()
            .iter()
            .map(|(name, all)| serde_json::json!({"table": name, "columns": columns(all)}))
            .collect();
        screen::json(&all)?;
        return Ok(DONE);
    }
    let mut text = String::new();
    for (name, columns) in queries.tables() {
        let _ = writeln!(text, "{name}");
        for c in columns {
            let _ = writeln!(text, "  {:<22}{}", c.name, c.kind.to_lowercase());
        }
    }
    text.push_str("\nfathom query --list names ready-made queries.\n");
    screen::print(&text);
    Ok(DONE)
}

#[cfg(feature = "query")]
fn answer(runs: &[PathBuf], sql: &str, args: &QueryArgs) -> Outcome {
    let queries = query::Queries::open(runs).map_err(refused)?;
    let rows = if args.csv {
        screen::Rows::Data
    } else {
        screen::Rows::Text
    };
    match print(&queries, sql, args, screen::rows(rows)) {
        // Standard output is judged where the process ends.
        Err(query::QueryError::Write(_)) | Ok(()) => Ok(DONE),
        Err(e) => Err(refused(e)),
    }
}

#[cfg(feature = "query")]
fn print(
    queries: &query::Queries,
    sql: &str,
    args: &QueryArgs,
    out: impl Write,
) -> Result<(), query::QueryError> {
    if args.json {
        queries.run(sql, &mut query::JsonRows::new(out))
    } else if args.csv {
        queries.run(sql, &mut query::CsvRows::new(out))
    } else {
        queries.run(sql, &mut query::TableRows::new(out))
    }
}

#[cfg(not(feature = "query"))]
fn tables(_runs: &[PathBuf], _json: bool) -> Outcome {
    Err(without_sql())
}

#[cfg(not(feature = "query"))]
fn answer(_runs: &[PathBuf], _sql: &str, _args: &QueryArgs) -> Outcome {
    Err(without_sql())
}

#[cfg(not(feature = "query"))]
fn without_sql() -> Failure {
    refused(anyhow!(
        "this fathom was built without SQL; build it with '--features query', or add --duckdb and pipe the script into duckdb"
    ))
}
