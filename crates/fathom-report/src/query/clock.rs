//! What a row's time says beside others: how many I/Os were outstanding then, and what the clock on the wall showed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fathom_telemetry::iolog::IoLogReader;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use fathom_telemetry::utc;
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

/// Of several runs, the job numbers of each begin at a multiple of this.
pub(super) const JOBS_OF_RUN: usize = 1 << 16;
/// I/Os of a job whose depth is computed, at most: two times of 8 bytes are kept of each.
const DEPTH_IOS_MAX: usize = 20_000_000;

/// A job's submissions and completions, each in order.
#[derive(Debug, Default)]
struct Times {
    submitted: Vec<i64>,
    completed: Vec<i64>,
}

/// The functions behind the columns `depth` and `unix_ns`.
pub(super) fn install(db: &Connection, runs: &[(RunDir, Run)]) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    let files: Vec<_> = runs.iter().map(|r| r.0.io_files()).collect();
    // Rows come job by job: one job's times are enough.
    let last: Mutex<Option<(i64, Arc<Times>)>> = Mutex::new(None);
    let depth = move |ctx: &Context<'_>| {
        let (job, at): (i64, i64) = (ctx.get(0)?, ctx.get(1)?);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().filter(|l| l.0 == job);
        let times = match known {
            Some((_, times)) => Arc::clone(times),
            None => {
                let times = Arc::new(times(&files, job).map_err(wrong)?);
                *last = Some((job, Arc::clone(&times)));
                times
            }
        };
        let until = |all: &[i64]| all.partition_point(|t| *t <= at) as i64;
        Ok(until(&times.submitted) - until(&times.completed))
    };
    db.create_scalar_function("depth_at", 2, flags, depth)?;
    let starts: Vec<(Option<i64>, Vec<i64>)> = runs.iter().map(|r| starts(&r.1)).collect();
    let unix = move |ctx: &Context<'_>| {
        let (job, at): (i64, i64) = (ctx.get(0)?, ctx.get(1)?);
        let (run, job) = place(job);
        let of_run = starts.get(run);
        Ok(of_run.and_then(|(began, jobs)| began.zip(jobs.get(job)).map(|(b, j)| b + j + at)))
    };
    db.create_scalar_function("unix_at", 2, flags, unix)
}

/// Run and job of a job's number.
fn place(job: i64) -> (usize, usize) {
    let job = usize::try_from(job).unwrap_or(usize::MAX);
    (job / JOBS_OF_RUN, job % JOBS_OF_RUN)
}

/// When a run began, and its jobs after that, ns.
fn starts(run: &Run) -> (Option<i64>, Vec<i64>) {
    let whole = |v: u64| i64::try_from(v).unwrap_or(i64::MAX / 4);
    let began = utc::seconds(&run.started).map(|s| s * 1_000_000_000);
    (began, run.jobs.iter().map(|j| whole(j.start_ns)).collect())
}

fn times(files: &[Vec<PathBuf>], job: i64) -> Result<Times, String> {
    let (run, number) = place(job);
    let (Some(files), Ok(number)) = (files.get(run), u16::try_from(number)) else {
        return Ok(Times::default());
    };
    let mut times = Times::default();
    let rows = IoLogReader::open_all(files.clone()).map_err(|e| e.to_string())?;
    for row in rows.only_job(number) {
        let row = row.map_err(|e| e.to_string())?;
        times.submitted.push(row.submitted_ns);
        times.completed.push(row.completed_ns);
        if times.submitted.len() > DEPTH_IOS_MAX {
            return Err(format!(
                "depth: job {job} has more than {DEPTH_IOS_MAX} I/Os; ask with WHERE job = another, or see the query in docs/query.md that sorts on disk"
            ));
        }
    }
    times.submitted.sort_unstable();
    times.completed.sort_unstable();
    Ok(times)
}

fn wrong(why: String) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(why.into())
}
