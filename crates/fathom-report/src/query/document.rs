//! The tables that come from `run.json`.

use fathom_telemetry::schema::Run;
use rusqlite::{Connection, params};
use serde_json::Value;

use super::QueryError;
use super::clock::JOBS_OF_RUN;

/// In the order in which they are shown.
pub(super) const TABLES: [&str; 7] = [
    "jobs",
    "hosts",
    "headlines",
    "findings",
    "layers",
    "device",
    "run",
];

const MADE: &str = "
CREATE TABLE jobs (job INTEGER PRIMARY KEY, name TEXT, experiment TEXT, \"repeat\" INTEGER, engine TEXT,
  start_ns INTEGER, wall_ns INTEGER, cpu_ns INTEGER, qd_requested INTEGER, qd_achieved REAL,
  void INTEGER, flags TEXT, spec TEXT);
CREATE TABLE hosts (job INTEGER, host TEXT, ios INTEGER, bytes INTEGER, tail_ios INTEGER, tail_bytes INTEGER, p99_ns INTEGER,
  slowest_windows INTEGER, wall_ns INTEGER, late_ns INTEGER, clock_offset_ns INTEGER, clock_bound_ns INTEGER, clock_moved_ns INTEGER);
CREATE TABLE headlines (id TEXT, heading TEXT, label TEXT, unit TEXT, value REAL, low REAL, high REAL, samples INTEGER,
  p50 REAL, p99 REAL, p99_9 REAL, void INTEGER, flags TEXT, jobs TEXT);
CREATE TABLE findings (rank INTEGER, id TEXT, text TEXT, advice TEXT, confidence TEXT,
  gain REAL, gain_low REAL, gain_high REAL);
CREATE TABLE layers (\"case\" TEXT, rung TEXT, rank INTEGER, layer TEXT, owner TEXT, mean_ns REAL, p50_ns INTEGER, p99_ns INTEGER,
  share REAL, ios INTEGER);
CREATE TABLE device (job INTEGER, name TEXT, read_ios INTEGER, read_merges INTEGER, read_bytes INTEGER, read_ticks_ms INTEGER,
  write_ios INTEGER, write_merges INTEGER, write_bytes INTEGER, write_ticks_ms INTEGER, discard_ios INTEGER, discard_bytes INTEGER,
  flush_ios INTEGER, busy_ms INTEGER);
CREATE TABLE run (json TEXT);
";

/// Makes and fills them. Of several runs each row has the number of its run.
pub(super) fn fill<'r>(
    db: &Connection,
    runs: impl ExactSizeIterator<Item = &'r Run>,
) -> Result<(), QueryError> {
    db.execute_batch(MADE)?;
    let several = runs.len() > 1;
    if several {
        for table in TABLES {
            db.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN run INTEGER"))?;
        }
        db.execute_batch(
            "ALTER TABLE run ADD COLUMN name TEXT; ALTER TABLE run ADD COLUMN target TEXT; ALTER TABLE run ADD COLUMN started TEXT;",
        )?;
    }
    for (number, run) in runs.enumerate() {
        jobs(db, run, number * JOBS_OF_RUN)?;
        headlines(db, run, number * JOBS_OF_RUN)?;
        findings(db, run)?;
        layers(db, run)?;
        db.execute(
            "INSERT INTO run (json) VALUES (?1)",
            [serde_json::to_string(run)?],
        )?;
        if several {
            db.execute(
                "UPDATE run SET name = ?1, target = ?2, started = ?3 WHERE run IS NULL",
                [&run.name, &run.target.name, &run.started],
            )?;
            for table in TABLES {
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                let named = format!("UPDATE {table} SET run = ?1 WHERE run IS NULL");
                db.execute(&named, [number])?;
            }
        }
    }
    Ok(())
}

fn whole(v: u64) -> i64 {
    i64::try_from(v).unwrap_or(i64::MAX)
}

fn jobs(db: &Connection, run: &Run, first: usize) -> Result<(), QueryError> {
    let mut insert = db.prepare(
        "INSERT INTO jobs (job, name, experiment, \"repeat\", engine, start_ns, wall_ns, cpu_ns, qd_requested, qd_achieved, void, flags, spec)
         VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    )?;
    let mut shared = db.prepare(
        "INSERT INTO hosts (job, host, ios, bytes, tail_ios, tail_bytes, p99_ns, slowest_windows, wall_ns, late_ns, clock_offset_ns,
           clock_bound_ns, clock_moved_ns) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    )?;
    let mut counted = db.prepare(
        "INSERT INTO device (job, name, read_ios, read_merges, read_bytes, read_ticks_ms, write_ios, write_merges, write_bytes, write_ticks_ms,
           discard_ios, discard_bytes, flush_ios, busy_ms) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
    )?;
    for (i, j) in run.jobs.iter().enumerate() {
        let job = (first + i) as i64;
        let flags: Vec<&str> = j.flags.iter().map(|f| f.code.name()).collect();
        insert.execute(params![
            job,
            j.name,
            j.experiment,
            j.repeat,
            j.engine,
            whole(j.start_ns),
            whole(j.wall_ns),
            whole(j.cpu_ns),
            j.qd_requested,
            j.qd_achieved,
            j.is_void(),
            serde_json::to_string(&flags)?,
            j.spec.to_string(),
        ])?;
        for h in &j.hosts {
            shared.execute(params![
                job,
                h.host,
                whole(h.ios),
                whole(h.bytes),
                whole(h.tail_ios),
                whole(h.tail_bytes),
                h.p99_ns.map(whole),
                whole(h.slowest_windows),
                whole(h.wall_ns),
                h.late_ns,
                h.clock_offset_ns,
                whole(h.clock_bound_ns),
                h.clock_moved_ns,
            ])?;
        }
        if let Some(d) = &j.device {
            counted.execute(params![
                job,
                d.name,
                whole(d.read_ios),
                whole(d.read_merges),
                whole(d.read_bytes),
                whole(d.read_ticks_ms),
                whole(d.write_ios),
                whole(d.write_merges),
                whole(d.write_bytes),
                whole(d.write_ticks_ms),
                whole(d.discard_ios),
                whole(d.discard_bytes),
                whole(d.flush_ios),
                whole(d.busy_ms),
            ])?;
        }
    }
    Ok(())
}

fn headlines(db: &Connection, run: &Run, first: usize) -> Result<(), QueryError> {
    let mut insert = db.prepare(
        "INSERT INTO headlines (id, heading, label, unit, value, low, high, samples, p50, p99, p99_9, void, flags, jobs)
         VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
    )?;
    for h in &run.headlines {
        let flags: Vec<&str> = h.flags.iter().map(|f| f.code.name()).collect();
        let jobs: Vec<usize> = h.jobs.iter().map(|j| first + j).collect();
        let extra = |name: &str| h.extra.get(name).copied();
        insert.execute(params![
            h.id,
            h.group,
            h.label,
            h.unit,
            h.estimate.map(|e| e.value),
            h.estimate.and_then(|e| e.low),
            h.estimate.and_then(|e| e.high),
            h.estimate.map(|e| e.samples),
            extra("p50"),
            extra("p99"),
            extra("p99_9"),
            h.flags.iter().any(|f| f.void),
            serde_json::to_string(&flags)?,
            serde_json::to_string(&jobs)?,
        ])?;
    }
    Ok(())
}

fn findings(db: &Connection, run: &Run) -> Result<(), QueryError> {
    let mut insert = db.prepare(
        "INSERT INTO findings (rank, id, text, advice, confidence, gain, gain_low, gain_high) VALUES (?1,?2,?3,?4,?5,?6,?7,?8)",
    )?;
    for (i, f) in run.findings.iter().enumerate() {
        insert.execute(params![
            i as i64 + 1,
            f.id,
            f.text,
            f.advice,
            f.confidence,
            f.gain.map(|g| g.value),
            f.gain.and_then(|g| g.low),
            f.gain.and_then(|g| g.high),
        ])?;
    }
    Ok(())
}

/// Latency by layer, as `fathom stack` saves it: this room knows no experiments, only the names in their data.
fn layers(db: &Connection, run: &Run) -> Result<(), QueryError> {
    let mut insert = db.prepare(
        "INSERT INTO layers (\"case\", rung, rank, layer, owner, mean_ns, p50_ns, p99_ns, share, ios) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)",
    )?;
    let saved = run.results.iter().filter(|r| r.experiment == "stack");
    let cases = saved.filter_map(|r| r.data["cases"].as_array()).flatten();
    for case in cases {
        let layers = case["layers"].as_array().into_iter().flatten();
        for (i, l) in layers.enumerate() {
            let text = |v: &Value| v.as_str().map(str::to_owned);
            insert.execute(params![
                text(&case["name"]),
                text(&case["rung"]),
                i as i64 + 1,
                text(&l["name"]),
                text(&l["owner"]),
                l["mean_ns"].as_f64(),
                l["p50_ns"].as_i64(),
                l["p99_ns"].as_i64(),
                l["share"].as_f64(),
                l["ios"].as_i64(),
            ])?;
        }
    }
    Ok(())
}
