//! The database in a PostgreSQL: its lock is an advisory one, which is that of one database there; its mark is the comment
//! of the database, which is seen from all others, and a table. Settings are tried on fathom's own sessions alone.

use std::path::PathBuf;
use std::time::Duration;

use super::super::server::Server;
use super::super::sql::{Answer, Result, Session};
use super::{About, MARK, PREFIX, SCRIPTS, TABLES, connect, is_name};
use crate::LabError;

/// Of the database.
const COMMENT: &str = "made by fathom, removed by fathom";
/// Of the advisory lock: "fathom".
const LOCK: u64 = 0x6661_7468_6f6d;

pub(super) fn about(session: &mut dyn Session) -> Result<About> {
    let mut answer = Answer::default();
    session.query(
        "SELECT current_setting('server_version'), current_setting('block_size'), \
         (SELECT setting FROM pg_settings WHERE name = 'shared_buffers'), current_setting('fsync'), \
         current_setting('synchronous_commit'), current_setting('full_page_writes'), current_setting('max_wal_size'), \
         (SELECT setting FROM pg_settings WHERE name = 'data_directory'), current_setting('data_checksums'), \
         coalesce(current_setting('io_method', true), 'sync')",
        &mut answer,
    )?;
    let said = |i: usize| answer.text(0, i);
    let page = answer.int(0, 1)? as u64;
    Ok(About {
        version: format!("PostgreSQL {}", said(0)),
        engine: "PostgreSQL",
        page,
        // In pages.
        pool: answer.int(0, 2)? as u64 * page,
        settings: format!(
            "fsync={}, synchronous_commit={}, full_page_writes={}, max_wal_size={}, data_checksums={}, io_method={}",
            said(3),
            said(4),
            said(5),
            said(6),
            said(8),
            said(9)
        ),
        data: match said(7) {
            "" => None,
            path => Some(PathBuf::from(path)),
        },
    })
}

/// Databases of runs that were killed.
pub(super) fn leftovers(server: &Server, session: &mut dyn Session) -> Result<Vec<String>> {
    let mut answer = Answer::default();
    session.query(
        &format!(
            "SELECT datname FROM pg_database WHERE datname LIKE '{}%' AND shobj_description(oid, 'pg_database') = '{COMMENT}' AND pg_get_userbyid(datdba) = current_user",
            PREFIX.replace('_', "\\_")
        ),
        &mut answer,
    )?;
    let marked: Vec<String> = (0..answer.rows())
        .map(|r| answer.text(r, 0).to_owned())
        .filter(|n| is_name(n))
        .collect();
    // Somebody may have closed or removed one in the meantime.
    let abandoned = |n: &String| is_abandoned(server, n).unwrap_or(false);
    Ok(marked.into_iter().filter(abandoned).collect())
}

/// Whether nobody works in it, and there is nothing in it but what fathom makes.
fn is_abandoned(server: &Server, name: &str) -> Result<bool> {
    let mut inside = connect(server, name)?;
    let mut answer = Answer::default();
    inside.query(&format!("SELECT pg_try_advisory_lock({LOCK})"), &mut answer)?;
    if answer.text(0, 0) != "t" {
        return Ok(false);
    }
    let names: Vec<String> = TABLES.iter().map(|t| format!("'{t}'")).collect();
    // Tables and the like, functions, and large objects; an index belongs to its table.
    inside.query(
        &format!(
            "SELECT (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND c.relkind <> 'i' \
               AND NOT (n.nspname = 'public' AND c.relkind = 'r' AND c.relname IN ({}))), \
             (SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
               WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')), \
             (SELECT count(*) FROM pg_largeobject_metadata), \
             (SELECT count(*) FROM pg_class c WHERE c.relname = '{SCRIPTS}' AND c.relnamespace = 'public'::regnamespace)",
            names.join(", ")
        ),
        &mut answer,
    )?;
    let mine = (0..3).all(|i| answer.int(0, i).is_ok_and(|n| n == 0));
    Ok(mine || answer.int(0, 3)? > 0)
}

/// Makes the database, takes its lock and marks it.
pub(super) fn make(
    server: &Server,
    mut first: Box<dyn Session>,
    name: &str,
) -> std::result::Result<Box<dyn Session>, LabError> {
    let refused = |what: String| LabError::Refused(format!("{server}: {what}"));
    // As the lab's own servers have it, and without what somebody has put into the usual template.
    first
        .batch(&format!(
            "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
        ))
        .map_err(|e| {
            refused(match e.code.as_str() {
                "42P04" => format!("there is a database {name} already, and nothing says that fathom made it: it is left alone; rename it, or run again (the number is this process')"),
                "42501" => format!("no database can be made there: {e}; expected an account with the right to: ALTER ROLE {} CREATEDB", server.user),
                _ => format!("no database can be made there: {e}"),
            })
        })?;
    let made = (|| {
        let mut holder = connect(server, name)?;
        holder.query(
            &format!("SELECT pg_advisory_lock({LOCK})"),
            &mut Answer::default(),
        )?;
        holder.batch(&format!("COMMENT ON DATABASE {name} IS '{COMMENT}'"))?;
        holder.batch(&format!("CREATE TABLE {MARK} (version VARCHAR(20))"))?;
        Ok(holder)
    })();
    made.map_err(|e: super::SqlError| {
        // It is this run's: nobody else could have made it.
        let _ = first.batch(&format!("DROP DATABASE {name}"));
        refused(format!("the new database {name} cannot be used: {e}"))
    })
}

/// Removes it, when the lab's own sessions have gone.
pub(super) fn remove(server: &Server, name: &str) -> Result<()> {
    /// Somebody is in it.
    const IN_USE: &str = "55006";
    let mut last = connect(server, "")?;
    let drop = format!("DROP DATABASE IF EXISTS {name}");
    for _ in 0..50 {
        match last.batch(&drop) {
            Err(e) if e.code == IN_USE => std::thread::sleep(Duration::from_millis(100)),
            other => return other,
        }
    }
    // Whoever looks at it still: it is fathom's.
    last.batch(&format!("{drop} WITH (FORCE)"))
}
