//! For tests: a load on every database that is installed here.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fathom_system::lab_dir::LabDir;
use fathom_telemetry::{Nanos, Op, say};

use super::database::{Database, Made};
use super::scripted::driver::client_seed;
use super::server::DATABASES;
use super::settings::SettingArgs;
use super::sql::{Answer, SqlError};
use super::workload::Workload;
use crate::LabError;
use crate::clients::{self, Client, Loop};
use crate::loads::Load;

/// Opens each database; what is not installed is skipped aloud.
pub(super) fn on_each(test: &str, then: &dyn Fn(&mut Database)) {
    let dir = tempfile::tempdir().unwrap();
    // The account of PostgreSQL's server goes through it.
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for name in DATABASES {
        match open(name, dir.path()) {
            Ok((mut database, place)) => {
                say!("{test}: {name}");
                then(&mut database);
                // The server before its directory.
                drop(database);
                drop(place);
            }
            Err(LabError::Missing { what, .. }) => say!("SKIP {test} on {name}: {what}"),
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

fn open(name: &'static str, dir: &Path) -> Result<(Database, LabDir), LabError> {
    let place = LabDir::create(dir, 64 << 20)?;
    let postgres = std::env::var_os("FATHOM_TEST_POSTGRES").map(PathBuf::from);
    let made = Made {
        schema: "test",
        pool: 64 << 20,
        log: 48 << 20,
        sessions: 8,
        postgres: postgres.as_deref(),
        settings: &SettingArgs::default(),
    };
    Ok((Database::open(name, &place, made, None, &|| false)?, place))
}

/// Fills it.
pub(super) fn fill(database: &Database, workload: &dyn Workload) {
    let mut session = database.connect().unwrap();
    let dialect = database.dialect();
    workload.fill(&mut *session, dialect, 1, &|| false).unwrap();
}

/// Runs clients in a closed loop; returns what each kind did, and how often it was tried again.
pub(super) fn run(
    database: &Database,
    workload: &dyn Workload,
    clients: u32,
    time: Nanos,
) -> (Vec<(String, Load)>, u64) {
    let again = std::sync::atomic::AtomicU64::new(0);
    let kinds = workload.kinds();
    let ops: Vec<[Op; 1]> = kinds.iter().map(|k| [k.1]).collect();
    let each: Vec<&[Op]> = ops.iter().map(|o| &o[..]).collect();
    let dialect = database.dialect();
    let kinds_of = &kinds;
    let tried = &again;
    let sessions = (0..clients).map(|number| (number, database.connect().unwrap()));
    let all = sessions.map(|(number, mut session)| -> Client<'_, SqlError> {
        Box::new(move |seat| {
            let mut client =
                workload.client(&mut *session, dialect, number, client_seed(7, number))?;
            while let Some(came) = seat.next() {
                match client.transaction() {
                    Ok(kind) => seat.done(kind, kinds_of[kind].1, 0, came),
                    Err(e) if e.again => {
                        tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        })
    });
    let how = Loop {
        open: None,
        ramp: Nanos::ZERO,
        cold: &|| None,
        ramp_max: Nanos::ZERO,
        time,
        kinds: &each,
        stop: &|| false,
    };
    let done = clients::run(
        &how,
        all.collect(),
        &mut |_| (),
        &mut |_| (),
        &|| (),
        &mut |_| (),
    );
    let loads = done.unwrap();
    let names = kinds.iter().map(|k| k.0.clone());
    (
        names.zip(loads).collect(),
        again.load(std::sync::atomic::Ordering::Relaxed),
    )
}

/// A number that a question has as its answer.
pub(super) fn number(database: &Database, sql: &str) -> i64 {
    let mut answer = Answer::default();
    let mut session = database.connect().unwrap();
    session.query(sql, &mut answer).unwrap();
    answer.int(0, 0).unwrap()
}
