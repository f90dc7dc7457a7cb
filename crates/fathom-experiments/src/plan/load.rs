//! The load that is planned for, read from what somebody has of it: a profile that was watched, a trace, a job file.

use std::collections::BTreeMap;
use std::path::Path;

use fathom_io::job::{JobFile, Rw, jobs_from_toml};
use fathom_io::replay::{Events, formats};
use fathom_telemetry::{Bytes, Op};

use crate::workload::{Collector, PROFILE, Profile};

/// Sizes with a smaller share are counted with the next larger one.
const RARE: f64 = 0.02;
/// From this share of requests on that follow on, a load is sequential.
const SEQUENTIAL: f64 = 0.5;
/// Writes per flush beyond which flushes are left out.
const SELDOM: f64 = 100.0;

/// A load, and how much of it comes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Load {
    pub(super) rw: Rw,
    /// Block sizes with weights, as on the command line.
    pub(super) bs: String,
    /// Share of reads, percent.
    pub(super) reads: String,
    /// Sync policy.
    pub(super) sync: String,
    /// Requests per second, where that is known.
    pub(super) rate: Option<f64>,
    /// Where it comes from, and what rate that is.
    pub(super) source: String,
}

impl Load {
    /// That of a profile, with a rate of its own.
    fn of(p: &Profile, rate: Option<f64>, source: String) -> Result<Self, String> {
        let all = p.data_ios();
        let [reads, writes] = [p.ios[Op::Read as usize], p.ios[Op::Write as usize]];
        let Some(share) = p.read_share() else {
            return Err(format!("{source}: no reads and no writes are in it"));
        };
        let follows = p.sequential as f64 >= SEQUENTIAL * all as f64;
        let rw = match (reads > 0, writes > 0, follows) {
            (true, true, true) => Rw::Mixed,
            (true, true, false) => Rw::RandMixed,
            (true, false, true) => Rw::Read,
            (true, false, false) => Rw::RandRead,
            (false, _, true) => Rw::Write,
            (false, _, false) => Rw::RandWrite,
        };
        let flushes = p.ios[Op::Sync as usize];
        let every = writes as f64 / flushes.max(1) as f64;
        let sync = match flushes > 0 && writes > 0 && every <= SELDOM {
            true => format!("fdatasync:{}", every.round().max(1.0)),
            false => "none".to_owned(),
        };
        let counts = p.sizes.iter().map(|(size, n)| (*size, n[0] + n[1]));
        Ok(Self {
            rw,
            bs: sizes(&counts.collect()),
            reads: format!("{:.1}", 100.0 * share),
            sync,
            rate,
            source,
        })
    }
}

/// Sizes with their shares; rare ones count with the next larger one that is not, or the largest.
fn sizes(counts: &BTreeMap<u64, u64>) -> String {
    let total: u64 = counts.values().sum();
    let (mut kept, mut carried) = (Vec::new(), 0);
    for (size, n) in counts {
        carried += n;
        if carried as f64 >= RARE * total as f64 {
            kept.push((*size, carried));
            carried = 0;
        }
    }
    if let Some(last) = kept.last_mut() {
        last.1 += carried;
    }
    let share = |n: u64| 100.0 * n as f64 / total.max(1) as f64;
    let words = kept
        .iter()
        .map(|(size, n)| format!("{size}:{:.1}", share(*n)));
    match kept.as_slice() {
        [(size, _)] => Bytes(*size).0.to_string(),
        _ => words.collect::<Vec<_>>().join(","),
    }
}

/// Reads a load: a run of `fathom watch` or its profile, a job file in TOML, or a trace that `fathom replay` reads.
///
/// # Errors
/// One sentence that names the file.
pub(super) fn read(path: &str) -> Result<Load, String> {
    let file = Path::new(path);
    if file.join(PROFILE).exists() || file.ends_with(PROFILE) {
        return watched(file);
    }
    if file.extension().is_some_and(|e| e == "toml") {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{path}: {e}"))?;
        let jobs = jobs_from_toml(&text).map_err(|e| format!("{path}: {e}"))?;
        return job(path, &jobs);
    }
    trace(file)
}

fn watched(path: &Path) -> Result<Load, String> {
    let p = Profile::read(path)?;
    let seconds = p.wall_ns as f64 / 1e9;
    let rate = (seconds > 0.0).then(|| p.data_ios() as f64 / seconds);
    let source = format!("{} as watched for {seconds:.0} s, its mean rate", p.source);
    Load::of(&p, rate, source)
}

fn job(path: &str, file: &JobFile) -> Result<Load, String> {
    let [job] = file.jobs.as_slice() else {
        return Err(format!(
            "{path}: {} jobs are in it: expected the one that is planned for",
            file.jobs.len()
        ));
    };
    if !job.rw.reads() && !job.rw.writes() {
        return Err(format!(
            "{path}: {} has no capacity to plan: expected reads or writes",
            job.rw
        ));
    }
    Ok(Load {
        rw: job.rw,
        bs: job.bs.to_string(),
        reads: job.read_share.to_string(),
        sync: job.sync.to_string(),
        rate: job.rate,
        source: format!("job {} of {path}, its rate", job.name),
    })
}

fn trace(path: &Path) -> Result<Load, String> {
    let (format, mut source) =
        formats::open(path, None, Events::Auto).map_err(|e| e.to_string())?;
    let mut seen: Option<Collector> = None;
    // Requests of each second: memory grows with the hours, not with the requests.
    let (mut seconds, mut last) = (BTreeMap::<u64, u64>::new(), 0);
    while let Some(io) = source.next().map_err(|e| e.to_string())? {
        last = io.at.0;
        let c = seen.get_or_insert_with(|| Collector::new("", last));
        c.start(last, u64::from(io.device), io.op, io.offset, io.len);
        // When it ended is no part of the load.
        c.end(last, u64::from(io.device), io.offset, io.len);
        if matches!(io.op, Op::Read | Op::Write) {
            *seconds.entry(last / 1_000_000_000).or_default() += 1;
        }
    }
    let busiest = seconds.values().max().map(|n| *n as f64);
    let source = format!(
        "{} ({}), the rate of its busiest second",
        path.display(),
        format.name()
    );
    let profile = seen.map_or_else(Profile::default, |c| c.finish(last));
    Load::of(&profile, busiest, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let path = path.display().to_string();
        (dir, path)
    }

    #[test]
    fn a_profile_gives_sizes_shares_flushes_and_its_mean_rate() {
        let profile = Profile {
            profile_version: 1,
            source: "nvme0n1".into(),
            wall_ns: 10_000_000_000,
            ios: [6000, 2000, 0, 500],
            sizes: [(4096, [5990, 0]), (8192, [10, 1000]), (65536, [0, 1000])].into(),
            ..Profile::default()
        };
        let (_dir, path) = file(PROFILE, &serde_json::to_string(&profile).unwrap());
        let load = read(&path).unwrap();
        assert_eq!(load.rw, Rw::RandMixed);
        assert_eq!(load.reads, "75.0");
        assert_eq!(load.bs, "4096:74.9,8192:12.6,65536:12.5");
        assert_eq!(load.sync, "fdatasync:4");
        assert_eq!(load.rate, Some(800.0));
        assert!(load.source.contains("nvme0n1"), "{}", load.source);
    }

    #[test]
    fn a_trace_gives_the_rate_of_its_busiest_second() {
        // SPC: ASU, LBA in blocks of 512 bytes, size, opcode, seconds.
        let mut text = String::new();
        for i in 0..40 {
            text += &format!("0,{},8192,r,{:.2}\n", i * 16, f64::from(i) * 0.1);
        }
        for i in 0..30 {
            text += &format!("0,{},8192,r,5.{i:02}\n", (40 + i) * 16);
        }
        let (_dir, path) = file("trace.spc", &text);
        let load = read(&path).unwrap();
        assert_eq!((load.rw, load.bs.as_str()), (Rw::Read, "8192"));
        assert_eq!(load.rate, Some(30.0));
    }

    #[test]
    fn a_job_file_holds_one_job() {
        let (_dir, path) = file(
            "job.toml",
            "[[job]]\nrw = \"randrw\"\nbs = \"16k\"\nread-share = 80\nrate = 500\n",
        );
        let load = read(&path).unwrap();
        assert_eq!((load.bs.as_str(), load.reads.as_str()), ("16k", "80"));
        assert_eq!(load.rate, Some(500.0));
        let (_dir, path) = file("jobs.toml", "[[job]]\n[[job]]\n");
        assert!(read(&path).unwrap_err().contains("2 jobs"));
        assert!(read("/no/such/trace").is_err());
    }

    #[test]
    fn sizes_that_are_rare_count_with_the_next_larger_one() {
        let of = |counts: &[(u64, u64)]| sizes(&counts.iter().copied().collect());
        assert_eq!(of(&[(512, 1), (4096, 999)]), "4096");
        assert_eq!(
            of(&[(4096, 500), (8192, 499), (65536, 1)]),
            "4096:50.0,8192:50.0"
        );
    }
}
