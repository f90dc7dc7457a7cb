//! sysbench's table: its definition, its rows as a file that a private server reads, and as statements for a server
//! that must not read files.

use std::io::Write;
use std::path::Path;

use fathom_files::create;
use fathom_stats::rng::SplitMix64;

use super::super::sql::{Dialect, Result, Session};
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

/// The rows as text, for every data directory the same.
pub(super) fn write_rows(path: &Path, count: u64, seed: u64) -> std::result::Result<(), LabError> {
    let failed = |e: std::io::Error| {
        LabError::Failed(format!(
            "{}: cannot be written: {e}; use fewer --rows, or another directory",
            path.display()
        ))
    };
    let mut out = std::io::BufWriter::new(create::file_for(path, 0o644, 0).map_err(failed)?);
    let mut random = SplitMix64::new(seed);
    let (mut c, mut pad) = (String::new(), String::new());
    for id in 1..=count {
        driver::digits(10, &mut random, &mut c);
        driver::digits(5, &mut random, &mut pad);
        let k = random.below(count as usize) + 1;
        writeln!(out, "{id},{k},{c},{pad}").map_err(failed)?;
    }
    out.flush().map_err(failed)
}

/// The same rows by statements; `stop` ends early.
pub(super) fn insert_rows(
    s: &mut dyn Session,
    count: u64,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let mut random = SplitMix64::new(seed);
    let (mut c, mut pad) = (String::new(), String::new());
    let mut id = 1;
    while id <= count && !stop() {
        let mut sql = String::from("INSERT INTO sbtest1 VALUES ");
        for i in 0..1000.min(count - id + 1) {
            driver::digits(10, &mut random, &mut c);
            driver::digits(5, &mut random, &mut pad);
            let k = random.below(count as usize) + 1;
            let comma = if i > 0 { "," } else { "" };
            sql.push_str(&format!("{comma}({},{k},'{c}','{pad}')", id + i));
        }
        s.batch(&sql)?;
        id += 1000;
    }
    Ok(())
}
