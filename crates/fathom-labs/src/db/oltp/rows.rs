//! sysbench's table: its definition, its rows as a file that a private server reads, and sent to a server that must not
//! read files.

use std::io::Write;
use std::path::Path;

use fathom_files::create;
use fathom_stats::rng::SplitMix64;

use super::super::sql::{Dialect, Rows, Session, SqlError};
use super::driver;
use crate::LabError;

/// CREATE TABLE, with a clause for compression.
pub(super) fn table(dialect: Dialect, clause: &str) -> String {
    if dialect == Dialect::Postgres {
        // All ids are given: a sequence of its own would be one more thing in the database.
        return "CREATE TABLE sbtest1(id INTEGER NOT NULL, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id))".into();
    }
    format!(
        "CREATE TABLE sbtest1(id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB CHARACTER SET latin1 {clause}"
    )
}

/// The rows by their numbers: `row` gets id, k, c and pad, and ends it with `false`.
fn each<E>(
    count: u64,
    seed: u64,
    mut row: impl FnMut(u64, usize, &str, &str) -> Result<bool, E>,
) -> Result<(), E> {
    let mut random = SplitMix64::new(seed);
    let (mut c, mut pad) = (String::new(), String::new());
    for id in 1..=count {
        driver::digits(10, &mut random, &mut c);
        driver::digits(5, &mut random, &mut pad);
        let k = random.below(count as usize) + 1;
        if !row(id, k, &c, &pad)? {
            break;
        }
    }
    Ok(())
}

/// The rows as a file, for every data directory the same. A server that reads it fills an empty table in one go, which it
/// does not with rows that are sent to it.
pub(super) fn write_rows(path: &Path, count: u64, seed: u64) -> Result<(), LabError> {
    let failed = |e: std::io::Error| {
        LabError::Failed(format!(
            "{}: cannot be written: {e}; use fewer --rows, or another directory",
            path.display()
        ))
    };
    let mut out = std::io::BufWriter::new(create::file_for(path, 0o644, 0).map_err(failed)?);
    each::<std::io::Error>(count, seed, |id, k, c, pad| {
        writeln!(out, "{id},{k},{c},{pad}").map(|()| true)
    })
    .and_then(|()| out.flush())
    .map_err(failed)
}

/// The same rows for a server that must not read files; `stop` ends early.
pub(super) fn send_rows(
    s: &mut dyn Session,
    count: u64,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<(), SqlError> {
    let mut rows = Rows::of(s, "sbtest1");
    each::<SqlError>(count, seed, |id, k, c, pad| {
        rows.row(|s| s.push_str(&format!("{id},{k},'{c}','{pad}'")))?;
        Ok(id % 1000 != 0 || !stop())
    })?;
    rows.flush()
}
