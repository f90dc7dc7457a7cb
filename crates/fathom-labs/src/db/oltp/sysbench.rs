//! sysbench itself on the same instance: a cross-check of fathom's own driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::driver::Load;
use crate::LabError;
use fathom_system::packages;
use fathom_system::programs::{self, ChildGuard};

/// What brings it, as Debian calls it.
pub(in crate::db) const PACKAGE: &str = "sysbench";

/// Looks for it.
pub(in crate::db) fn probe() -> Result<(PathBuf, String), LabError> {
    let program = programs::find("sysbench").ok_or_else(|| LabError::Missing {
        what: "sysbench is not installed".into(),
        remedy: packages::install(PACKAGE),
    })?;
    let version = programs::first_line(&program, &["--version"]);
    Ok((program, version))
}

/// Which server, as whom, and the database with the table.
pub(super) struct Whom<'a> {
    pub(super) socket: PathBuf,
    pub(super) user: &'a str,
    pub(super) database: &'a str,
}

/// Transactions per second, as it printed them.
pub(super) fn run(
    program: &Path,
    whom: &Whom<'_>,
    dir: &Path,
    load: &Load,
    stop: &dyn Fn() -> bool,
) -> Result<f64, LabError> {
    let log = dir.join("sysbench.log");
    let _ = std::fs::remove_file(&log);
    let mut command = Command::new(program);
    // It counts whole seconds, and knows no ramp: its first lines are left out instead.
    let seconds = |n: fathom_telemetry::Nanos| n.as_secs_f64().ceil().max(1.0) as u64;
    let ramp = seconds(load.ramp);
    command
        .arg(load.mix.script())
        .arg("--db-driver=mysql")
        .arg(format!("--mysql-socket={}", whom.socket.display()))
        .arg(format!("--mysql-user={}", whom.user))
        .arg(format!("--mysql-db={}", whom.database))
        .arg("--tables=1")
        .arg(format!("--table-size={}", load.count))
        .arg(format!("--threads={}", load.threads))
        .arg(format!("--time={}", ramp + seconds(load.time)))
        .arg(format!("--rand-type={}", load.rows.name()))
        .arg(format!("--rand-seed={}", load.seed.max(1) & 0x7fff_ffff))
        .args([
            "--report-interval=1",
            "--mysql-ignore-errors=1213,1020,1205,1062",
        ])
        .arg("run")
        .current_dir(dir);
    ChildGuard::start(command, &log)?.succeed(stop)?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    parse(&said, ramp as f64).ok_or_else(|| {
        LabError::Failed(format!(
            "sysbench said nothing that is understood: {}",
            programs::last_words(&log)
        ))
    })
}

/// The mean of `[ 3s ] thds: 16 tps: 246.57 qps: …` after the ramp; without such lines the total
/// `transactions: 1234 (246.57 per sec.)`.
fn parse(said: &str, ramp: f64) -> Option<f64> {
    let line = |l: &str| -> Option<(f64, f64)> {
        let rest = l.trim().strip_prefix('[')?;
        let at = rest.split('s').next()?.trim().parse().ok()?;
        let tps = rest.split("tps:").nth(1)?.split_whitespace().next()?;
        Some((at, tps.parse().ok()?))
    };
    let rates: Vec<f64> = said
        .lines()
        .filter_map(line)
        .filter(|(at, _)| *at > ramp)
        .map(|(_, tps)| tps)
        .collect();
    if !rates.is_empty() {
        return Some(rates.iter().sum::<f64>() / rates.len() as f64);
    }
    let total = said
        .lines()
        .find_map(|l| l.trim().strip_prefix("transactions:"))?;
    let rate = total.split('(').nth(1)?.split_whitespace().next()?;
    rate.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_understood() {
        let said = "SQL statistics:\n    queries performed:\n    transactions:                        12345  (2468.91 per sec.)\n    queries: 1\n";
        assert_eq!(parse(said, 1.0), Some(2468.91));
        assert_eq!(parse("FATAL: no", 1.0), None);
        let lines = "[ 1s ] thds: 16 tps: 10.00 qps: 1\n[ 2s ] thds: 16 tps: 30.00 qps: 1\n[ 3s ] thds: 16 tps: 50.00 qps: 1\n";
        assert_eq!(parse(lines, 1.0), Some(40.0));
    }
}
