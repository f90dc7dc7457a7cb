//! How long, how often and how much: the profiles of a survey.

use fathom_telemetry::{Bytes, Nanos};

/// A profile. Times and sizes are said before a survey starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Repeats of every job, interleaved.
    pub repeats: u32,
    /// Measured time of one job.
    pub job_time: Nanos,
    /// Left out at the start of each job.
    pub ramp: Nanos,
    /// Scratch file where nobody said a size.
    pub scratch: Bytes,
}

/// Every profile.
pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "quick",
        repeats: 3,
        job_time: Nanos::from_millis(1000),
        ramp: Nanos::from_millis(100),
        scratch: Bytes::gib(1),
    },
    Profile {
        name: "standard",
        repeats: 5,
        job_time: Nanos::from_secs(4),
        ramp: Nanos::from_millis(500),
        scratch: Bytes::gib(8),
    },
    Profile {
        name: "full",
        repeats: 9,
        job_time: Nanos::from_secs(15),
        ramp: Nanos::from_secs(1),
        scratch: Bytes::gib(32),
    },
];

impl Profile {
    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.iter().copied().find(|p| p.name == name)
    }

    /// Size of the scratch file: the profile's, but at most a tenth of what is free (whole MiB, at least
    /// 64 MiB), so that a nearly full disk is neither filled nor measured at its worst.
    pub fn scratch_size(&self, free: u64) -> Bytes {
        let tenth = (free / 10) >> 20 << 20;
        Bytes(self.scratch.0.min(tenth).max(64 << 20))
    }

    /// A writing job ends after this many bytes at the latest, so that the wear of a survey has a known bound: two
    /// passes for large blocks, half a pass for small ones; and what 262,144 I/Os per second of the job's time or
    /// 1 GiB/s come to, whichever is more. Faster devices end the job before its time, with I/Os enough for p99.99.
    pub fn write_cap(&self, size: u64, block: u64) -> Bytes {
        let passes = if block >= 64 << 10 {
            size.saturating_mul(2)
        } else {
            size / 2
        };
        let per_second = (block.saturating_mul(262_144)).clamp(1 << 30, 16 << 30);
        let rate = (self.job_time.as_secs_f64() * per_second as f64) as u64;
        Bytes(passes.min(rate))
    }
}
