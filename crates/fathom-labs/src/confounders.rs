//! Confounders: what may have shaped a number beside what was varied. Each is asked where it is known, saved with the result,
//! and said with it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fathom_bench::results::Evidence;
use fathom_host::FileSystem;
use fathom_telemetry::FlagCode;
use fathom_telemetry::schema::Finding;
use serde::{Deserialize, Serialize};

use crate::loads::Line;

/// What servers are looked at for, and what is wrong where they were not waited for long enough.
pub(crate) const SERVERS: [&str; 2] = [
    "caches were warm and logs freed as fast as they were written",
    "a cache was cold, or a log not freed as fast as it was written",
];
/// The same of engines whose caches alone take their time.
pub(crate) const CACHES: [&str; 2] = ["caches were warm", "a cache was cold"];

/// In how many of these jobs all had warmed up.
pub(crate) fn warm([warm, cold]: [&str; 2], jobs: &[usize], evidence: &Evidence<'_>) -> String {
    let is_cold = |j: &&usize| {
        let flags = evidence.job(**j).map(|j| &j.flags);
        flags.is_some_and(|f| f.iter().any(|f| f.code == FlagCode::NotSteady))
    };
    match jobs.iter().filter(is_cold).count() {
        0 => format!("{warm} in all jobs"),
        n => format!("in {n} of {} jobs {cold}", jobs.len()),
    }
}

/// Whether a cache is missed as often as before, of how often it was asked and missed in two spans: the share of misses differs
/// by no more than a tenth, or by chance.
pub(crate) fn missed_alike([asked, missed]: [u64; 2], [now_asked, now_missed]: [u64; 2]) -> bool {
    const CHANGE: f64 = 0.1;
    let share = |missed: u64, asked: u64| missed as f64 / asked.max(1) as f64;
    let (was, is) = (share(missed, asked), share(now_missed, now_asked));
    // What chance makes of so few.
    let chance = (missed.max(1) as f64).sqrt() * 3.0 / asked.max(1) as f64;
    (is - was).abs() <= (was * CHANGE).max(chance).max(0.001)
}

/// What was looked at beside what was varied.
pub(crate) fn beside(lab: &str, facts: Vec<String>, jobs: Vec<usize>, table: &str) -> Finding {
    Finding {
        id: format!("{lab}-beside"),
        text: format!("Looked at beside: {}", facts.join("; ")),
        confidence: "moderate".into(),
        jobs,
        evidence: vec![table.into()],
        refuted_by: "The settings of the server and of the file system that are in use.".into(),
        ..Finding::default()
    }
}

/// The most processors that a driver took, of lines that were measured; `None` where nothing counted them.
pub(crate) fn processors<'a, S: 'a, M: 'a>(
    lines: impl Iterator<Item = &'a Line<S, M>>,
    evidence: &Evidence<'_>,
) -> Option<f64> {
    let used = lines.filter_map(|line| Some(line.mean(|r| r.processors(evidence))?.value));
    used.max_by(f64::total_cmp).filter(|n| *n > 0.0)
}

/// Settings as whoever has them says them, and the file system that files lie in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettingsSeen {
    /// Names with values.
    pub(crate) settings: Vec<(String, String)>,
    /// Bytes of a block of the file system.
    block: u64,
    /// Its kind, with options that change what is written: `btrfs, compress=zstd:1`.
    #[serde(default)]
    kind: String,
}

impl SettingsSeen {
    /// Of whatever keeps its files in `dir`.
    pub(crate) fn of(settings: Vec<(String, String)>, dir: &Path) -> Self {
        const TELLING: [&str; 6] = [
            "compress",
            "data=",
            "dax",
            "nobarrier",
            "barrier=",
            "nodatacow",
        ];
        let kind = FileSystem::holding(dir).map(|f| {
            let options = f.super_options.iter().map(String::as_str);
            let telling = options.filter(|o| TELLING.iter().any(|t| o.starts_with(t)));
            let words = std::iter::once(&*f.fs_type).chain(telling);
            words.collect::<Vec<_>>().join(", ")
        });
        Self {
            settings,
            block: std::fs::metadata(dir).map_or(0, |m| m.blksize()),
            kind: kind.unwrap_or_default(),
        }
    }

    /// `fsync=on, … over ext4 blocks of 4096 bytes`; empty where nothing was asked.
    pub(crate) fn in_words(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let all: Vec<String> = self
            .settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let kind = match &*self.kind {
            "" => "file-system",
            kind => kind,
        };
        Some(format!(
            "{}{}{kind} blocks of {} bytes",
            all.join(", "),
            if all.is_empty() {
                "files in "
            } else {
                " over "
            },
            self.block
        ))
    }
}
