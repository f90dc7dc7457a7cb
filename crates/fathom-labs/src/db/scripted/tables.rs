//! pgbench's tables, and the scripts that it brings (PostgreSQL 15, `pgbench.c`).

use super::super::sql::{Dialect, Result, Rows, Session};
use super::ScriptText;

/// Bytes of one scale: 100,000 accounts with their index.
pub(super) const SCALE_BYTES: u64 = 15 << 20;
/// Of one scale.
const ACCOUNTS: i64 = 100_000;
const TELLERS: i64 = 10;

const VARIABLES: &str = "\\set aid random(1, 100000 * :scale)\n\\set bid random(1, 1 * :scale)\n\\set tid random(1, 10 * :scale)\n\\set delta random(-5000, 5000)\n";
const UPDATE: &str = "BEGIN;\nUPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
const BRANCH: &str = "UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\nUPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;\n";
// END is a word of PostgreSQL and SQLite alone.
const HISTORY: &str = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);\nCOMMIT;\n";

/// A script that pgbench brings.
pub(super) fn script(name: &str) -> Option<String> {
    Some(match name {
        "tpcb-like" => [VARIABLES, UPDATE, BRANCH, HISTORY].concat(),
        "simple-update" => [VARIABLES, UPDATE, HISTORY].concat(),
        "select-only" => "\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n".into(),
        _ => return None,
    })
}

/// Whether a script names one of the tables.
pub(super) fn named(text: &str) -> bool {
    let names = ["accounts", "branches", "tellers", "history"];
    names.iter().any(|n| text.contains(&format!("pgbench_{n}")))
}

/// One of pgbench's scripts, as what is asked for.
pub(super) fn built_in(name: &str, weight: u32) -> Option<ScriptText> {
    Some(ScriptText {
        name: name.to_owned(),
        text: script(name)?,
        weight,
    })
}

/// Makes and fills the tables.
pub(super) fn fill(
    session: &mut dyn Session,
    dialect: Dialect,
    scale: i64,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    let engine = dialect.engine();
    // PostgreSQL makes an index faster when the rows are there; InnoDB's rows lie in it, and SQLite makes none later.
    let (within, later) = match dialect {
        Dialect::Postgres => ("", true),
        _ => (" PRIMARY KEY", false),
    };
    for table in [
        format!("pgbench_branches (bid int not null{within}, bbalance int, filler char(88))"),
        format!(
            "pgbench_tellers (tid int not null{within}, bid int, tbalance int, filler char(84))"
        ),
        format!(
            "pgbench_accounts (aid int not null{within}, bid int, abalance int, filler char(84))"
        ),
        "pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))"
            .into(),
    ] {
        session.batch(&format!("CREATE TABLE {table}{engine}"))?;
    }
    for (table, each) in [
        ("pgbench_branches (bid, bbalance)", 1),
        ("pgbench_tellers (tid, bid, tbalance)", TELLERS),
        ("pgbench_accounts (aid, bid, abalance, filler)", ACCOUNTS),
    ] {
        rows(session, table, each, scale * each, stop)?;
    }
    for (table, key) in [("branches", "bid"), ("tellers", "tid"), ("accounts", "aid")] {
        if later && !stop() {
            session.batch(&format!(
                "ALTER TABLE pgbench_{table} ADD PRIMARY KEY ({key})"
            ))?;
        }
    }
    match dialect {
        Dialect::Mysql => {
            session.batch("ANALYZE TABLE pgbench_branches, pgbench_tellers, pgbench_accounts")
        }
        _ => Ok(()),
    }
}

/// Rows 1 to `count`, `each` of them for a branch.
fn rows(
    session: &mut dyn Session,
    table: &str,
    each: i64,
    count: i64,
    stop: &dyn Fn() -> bool,
) -> Result<()> {
    use std::fmt::Write;
    /// Rows of a transaction.
    const STEP: i64 = 50_000;
    let mut next = 1;
    while next <= count && !stop() {
        let last = count.min(next + STEP - 1);
        session.batch("BEGIN")?;
        let mut rows = Rows::of(session, table);
        for id in next..=last {
            let branch = (id - 1) / each + 1;
            rows.row(|s| {
                // A string takes everything.
                let _ = match each {
                    1 => write!(s, "{id},0"),
                    TELLERS => write!(s, "{id},{branch},0"),
                    _ => write!(s, "{id},{branch},0,''"),
                };
            })?;
        }
        rows.flush()?;
        session.batch("COMMIT")?;
        next = last + 1;
    }
    Ok(())
}
