//! Tupl, the engine of O'Neill 2018, in a Java machine of its own: the load runs there (`Tupl.java`), this side
//! starts it and reads what it says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use fathom_io::target::count;
use fathom_kv::Stats;
use fathom_telemetry::{Histogram, Nanos, Op};

use super::{Setting, failed};
use crate::LabError;
use crate::kv::keys::Keys;
use crate::kv::load::{Outcome, kernel_cpu};
use crate::loads::{Course, Load};
use fathom_system::kernel_threads::Snapshot;
use fathom_system::packages;
use fathom_system::programs::{self, ChildGuard};

const SOURCE: &str = include_str!("Tupl.java");
const COORDINATES: &str = "org.cojen:tupl:1.3.11";
/// Below a Maven repository: directory of versions, beginning of the file's name.
const JARS: [(&str, &str); 3] = [
    ("org/cojen/tupl", "tupl"),
    ("net/java/dev/jna/jna", "jna"),
    ("net/java/dev/jna/jna-platform", "jna-platform"),
];

/// What brings a Java with a compiler, as Debian calls it.
pub(super) const PACKAGE: &str = "default-jdk-headless";

fn java() -> Result<PathBuf, LabError> {
    let missing = |what: &str| LabError::Missing {
        what: what.into(),
        remedy: packages::install(PACKAGE),
    };
    let java = programs::find("java").ok_or_else(|| missing("java is not installed"))?;
    // Tupl.java is compiled when it is run.
    if programs::find("javac").is_none() {
        return Err(missing("this java cannot compile: there is no javac"));
    }
    Ok(java)
}

/// The newest of each jar in the local Maven repository.
fn jars() -> Option<Vec<PathBuf>> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let repository = home.join(".m2/repository");
    JARS.iter()
        .map(|(dir, name)| {
            let mut found: Vec<PathBuf> = std::fs::read_dir(repository.join(dir))
                .ok()?
                .flatten()
                .map(|v| {
                    let version = v.file_name();
                    v.path()
                        .join(format!("{name}-{}.jar", version.to_string_lossy()))
                })
                .filter(|p| p.is_file())
                .collect();
            found.sort();
            found.pop()
        })
        .collect()
}

/// Its version, or what is missing.
pub(super) fn probe() -> Result<String, LabError> {
    let java = java()?;
    let jars = jars().ok_or_else(|| LabError::Missing {
        what: "Tupl's jars are not in the local Maven repository".into(),
        remedy: format!("mvn dependency:get -Dartifact={COORDINATES}"),
    })?;
    let tupl = jars[0]
        .file_stem()
        .map(|s| s.to_string_lossy().into_owned());
    let machine = programs::first_line(&java, &["-version"]);
    Ok(format!("{}, {machine}", tupl.unwrap_or_default()))
}

/// The adapter, which is told everything by its arguments.
fn command(
    setting: &Setting<'_>,
    jars: &[PathBuf],
    source: &Path,
    data: &Path,
) -> Result<Command, LabError> {
    let load = setting.load;
    let class_path: Vec<String> = jars.iter().map(|j| j.display().to_string()).collect();
    let mut command = Command::new(java()?);
    command
        .args(["-Xshare:auto", "-XX:+UseSerialGC", "-Xmx1g"])
        .args(["--add-opens=java.base/java.nio=ALL-UNNAMED"])
        .args(["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"])
        .args(["-cp", &class_path.join(":")])
        .arg(source)
        .arg(data)
        .args([
            setting.page.to_string(),
            setting.cache.to_string(),
            u32::from(setting.commit).to_string(),
            load.count.to_string(),
            load.value.to_string(),
            load.threads.to_string(),
            (load.ramp.0 / 1_000_000).to_string(),
            (load.time.0 / 1_000_000).to_string(),
            load.mix.read.to_string(),
            load.mix.update.to_string(),
            load.mix.insert.to_string(),
            (load.seed & 0x7fff_ffff).to_string(),
            setting.fill.to_string(),
        ])
        .current_dir(setting.dir);
    Ok(command)
}

/// See [`super::Measure`].
pub(super) fn measure(
    setting: &Setting<'_>,
    tick: &mut dyn FnMut(f64),
) -> Result<Outcome, LabError> {
    let load = setting.load;
    if load.keys != Keys::Uniform || load.mix.scan > 0 || (load.hashed && load.count > 0) {
        return Err(LabError::Missing {
            what:
                "Tupl's adapter draws uniform keys, reads no ranges and inserts into an empty tree"
                    .into(),
            remedy: "use --workload update,insert with --distribution uniform".into(),
        });
    }
    let jars = jars().ok_or_else(|| failed("Tupl", "its jars are gone"))?;
    let source = setting.dir.join("Tupl.java");
    // One of these per cell, in a directory of the lab's.
    fathom_files::output::write(&source, fathom_files::Existing::Any, SOURCE.as_bytes())
        .map_err(|e| failed("Tupl", e))?;
    let data = setting.dir.join("tupl");
    let command = command(setting, &jars, &source, &data)?;
    let errors = setting.dir.join("tupl.log");
    let (mut kept, out) = ChildGuard::piped(command, &errors)?;
    let sample = || (load.device.and_then(count), Snapshot::take());
    let mut before = sample();
    let (mut rates, mut latency, mut end, mut done) = (Vec::new(), Histogram::new(), None, false);
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words.filter_map(|w| w.parse().ok()).collect();
        match (what, &numbers[..]) {
            ("measuring", _) => before = sample(),
            ("rate", [at, rate]) => {
                rates.push((*at, *rate));
                tick(*rate);
                if (setting.stop)() {
                    break;
                }
            }
            ("end", [ops, seconds, cpu]) => end = Some(([*ops, *seconds, *cpu], sample())),
            ("latency", [value, n]) => latency.record_n(*value as u64, *n as u64),
            ("done", _) => done = true,
            _ => {}
        }
    }
    let ended = if done {
        Ok(())
    } else if (setting.stop)() {
        Err(failed("Tupl", "interrupted"))
    } else {
        let status = kept.wait(&|| false)?;
        Err(kept.failure(&status.to_string()).into())
    };
    drop(kept);
    for file in [data, setting.dir.join("tupl.info"), source] {
        let _ = std::fs::remove_file(file);
    }
    ended?;
    let ([ops, seconds, cpu], after) = end.ok_or_else(|| failed("Tupl", "it said no end"))?;
    let op = if load.mix.read == 100 {
        Op::Read
    } else {
        Op::Write
    };
    let course = Course::of_rates(&rates, load.ramp);
    let ns = |s: f64| Nanos((s * 1e9) as u64);
    let bytes = latency.count() * u64::from(8 + load.value);
    Ok(Outcome {
        load: Load {
            cpu: (ns(cpu), Nanos::ZERO),
            ..Load::of_histograms(&[(op, latency)], bytes, load.threads, ns(seconds), course)
        },
        operations: ops as u64,
        stats: Stats::default(),
        kernel_cpu: kernel_cpu(&after.1, &before.1),
        device: after.0.zip(before.0).map(|(a, b)| a.since(&b)),
    })
}
