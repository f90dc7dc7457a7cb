//! pgbench itself on the same server, with the same scripts: a cross-check of fathom's own driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_system::lab_dir::LabDir;
use fathom_system::packages;
use fathom_system::programs::{self, ChildGuard};
use serde::{Deserialize, Serialize};

use super::driver::How;
use super::workload::Mode;
use super::{Load, SqlOptions, tables};
use crate::LabError;

/// What brings it, as Debian calls it.
const PACKAGE: &str = "postgresql-contrib";

/// What it measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Theirs {
    /// Transactions per second.
    pub(super) rate: f64,
    /// Mean latency, ns.
    pub(super) latency: f64,
}

impl Theirs {
    /// Together with another measurement as long.
    pub(super) fn with(self, other: Self) -> Self {
        let rate = self.rate + other.rate;
        Self {
            rate: rate / 2.0,
            latency: (self.latency * self.rate + other.latency * other.rate) / rate.max(1e-9),
        }
    }
}

/// Where it is.
pub(super) struct Program(PathBuf);

/// Looks for it: beside the server's programs first, where these were named; another version speaks with it, too.
pub(super) fn probe(dir: Option<&Path>) -> Result<Program, LabError> {
    let program = |dir| super::super::cluster::program("pgbench", dir);
    let found = program(dir).or_else(|| program(None));
    found.map(Program).ok_or_else(|| LabError::Missing {
        what: "pgbench is not installed".into(),
        remedy: packages::install(PACKAGE),
    })
}

impl Program {
    /// Runs the scripts for half the time, after the ramp.
    pub(super) fn run(
        &self,
        options: &SqlOptions,
        how: &How,
        (place, socket): (&LabDir, &Path),
        seed: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Theirs, LabError> {
        let dir = place.plain().join("pgbench");
        let log = dir.join("log");
        if !dir.exists() {
            super::super::private_directory(&dir)?;
        }
        let failed = |e: std::io::Error| LabError::Failed(format!("{}: {e}", dir.display()));
        let mut command = Command::new(&self.0);
        // It counts whole seconds, and knows no ramp: its first lines are left out instead.
        let seconds = |ns: u64| (ns as f64 / 1e9).ceil().max(1.0) as u64;
        let ramp = seconds(how.ramp.0);
        command
            .args(["-n", "-P", "1", "-U", "postgres", "-h"])
            .arg(socket)
            .args([
                "-M",
                if options.mode == Mode::Simple {
                    "simple"
                } else {
                    "prepared"
                },
            ])
            .args(["-c", &how.clients.to_string()])
            // A thread for each, as here: where processors are short, who has more threads has more of them.
            .args(["-j", &how.clients.to_string()])
            // It may end before it says what its last second came to.
            .args(["-T", &(ramp + seconds(how.time.0 / 2) + 1).to_string()])
            .args(["-s", &options.scale.to_string()])
            // 0 has no end for it, too: it knows that one.
            .args(["--max-tries", &options.max_tries.to_string()])
            .args(["--random-seed", &(seed >> 1).to_string()]);
        if let Some(rate) = how.rate {
            command.args(["-R", &rate.to_string()]);
        }
        for (name, value) in &options.defines {
            command.args(["-D", &format!("{name}={value}")]);
        }
        for (i, load) in options.loads.iter().enumerate() {
            match load {
                Load::Script(script) => {
                    let file = dir.join(format!("{i}.sql"));
                    if !file.exists() {
                        let text = script.text.as_bytes();
                        fathom_files::create::whole(&file, 0o600, text).map_err(failed)?;
                    }
                    command.args(["-f", &format!("{}@{}", file.display(), script.weight)]);
                }
                Load::BuiltIn { name, weight } if tables::script(name).is_some() => {
                    command.args(["-b", &format!("{name}@{weight}")]);
                }
                Load::BuiltIn { name, .. } => {
                    return Err(LabError::Refused(format!(
                        "--driver pgbench: '{name}' is no script; it runs beside scripts and pgbench's own loads"
                    )));
                }
            }
        }
        command.arg("postgres").current_dir(&dir);
        let _ = std::fs::remove_file(&log);
        ChildGuard::start(command, &log)?.succeed(stop)?;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        parse(&said, ramp as f64).ok_or_else(|| {
            LabError::Failed(format!(
                "pgbench said nothing that is understood: {}",
                programs::last_words(&log)
            ))
        })
    }
}

/// The mean of `progress: 3.0 s, 512.3 tps, lat 15.6 ms stddev 3.2, 0 failed` after the ramp.
fn parse(said: &str, ramp: f64) -> Option<Theirs> {
    let line = |l: &str| -> Option<(f64, Theirs)> {
        let mut parts = l.strip_prefix("progress: ")?.split(", ");
        let at = parts.next()?.strip_suffix(" s")?.parse().ok()?;
        let rate = parts.next()?.strip_suffix(" tps")?.parse().ok()?;
        let latency = parts.next()?.strip_prefix("lat ")?.split(' ').next()?;
        let latency = latency.parse::<f64>().ok()? * 1e6;
        Some((at, Theirs { rate, latency }))
    };
    // A line may come a moment late.
    let measured = said
        .lines()
        .filter_map(line)
        .filter(|(at, _)| *at > ramp + 0.5);
    let all: Vec<Theirs> = measured.map(|m| m.1).collect();
    let sum: f64 = all.iter().map(|t| t.rate).sum();
    let spent: f64 = all.iter().map(|t| t.rate * t.latency).sum();
    (sum > 0.0).then(|| Theirs {
        rate: sum / all.len() as f64,
        latency: spent / sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_progress_is_understood_and_its_ramp_left_out() {
        let said = "pgbench (15.18)\nprogress: 1.0 s, 10.0 tps, lat 100.0 ms stddev 1.0, 0 failed\nprogress: 2.0 s, 100.0 tps, lat 10.000 ms stddev 2.1, 0 failed\nprogress: 3.0 s, 300.0 tps, lat 20.0 ms stddev 9.9, 0 failed, lag 0.1 ms\ntransaction type: x\n";
        let theirs = parse(said, 1.0).unwrap();
        assert_eq!(theirs.rate, 200.0);
        assert_eq!(theirs.latency, 17.5e6);
        assert_eq!(parse("pgbench: error: no", 1.0), None);
    }
}
