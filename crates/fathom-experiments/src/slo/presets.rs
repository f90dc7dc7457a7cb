//! Loads that people ask about by name, with the response that their users bear, and where both come from.

use fathom_io::job::Rw;
use fathom_telemetry::Nanos;

/// A load and its objective.
pub struct Preset {
    /// On the command line.
    pub name: &'static str,
    /// Pattern and direction.
    pub rw: Rw,
    /// Share of reads of those that read and write, %.
    pub reads: &'static str,
    /// Block size, or sizes with weights.
    pub bs: &'static str,
    /// After how many writes what is synced.
    pub sync: &'static str,
    /// Percentile of the objective.
    pub percentile: f64,
    /// What it may be.
    pub limit: Nanos,
    /// Where the load and the objective come from.
    pub source: &'static str,
}

/// "No standard" is said where there is none: then the numbers are a convention to compare by.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "oltp",
        rw: Rw::RandMixed,
        reads: "70",
        bs: "8k",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(5),
        source: "pages of PostgreSQL and SQL Server; 70 % reads is the customary mix of data sheets, no standard",
    },
    Preset {
        name: "vm",
        rw: Rw::RandMixed,
        reads: "60",
        bs: "4k:60,16k:25,64k:15",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(10),
        source: "many guests blend into random requests of several sizes; no standard",
    },
    Preset {
        name: "desktop",
        rw: Rw::RandMixed,
        reads: "60",
        bs: "4k:75,64k:25",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(20),
        source: "small random requests among larger ones; what a user does not notice; no standard",
    },
    Preset {
        name: "video",
        rw: Rw::Read,
        reads: "100",
        bs: "1m",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(40),
        source: "one request for each frame: at 25 frames per second the next is due after 40 ms",
    },
    Preset {
        name: "ai-loading",
        rw: Rw::RandRead,
        reads: "100",
        bs: "128k",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(50),
        source: "samples of about 112 KiB in random order, as image training has them (ResNet-50 in MLPerf Storage); objective: no standard",
    },
    Preset {
        name: "ai-checkpoint",
        rw: Rw::Write,
        reads: "0",
        bs: "1m",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(100),
        source: "large sequential writes that training waits for; no standard",
    },
    Preset {
        name: "backup",
        rw: Rw::Read,
        reads: "100",
        bs: "1m",
        sync: "none",
        percentile: 99.0,
        limit: Nanos::from_millis(100),
        source: "large sequential reads; no standard",
    },
    Preset {
        name: "log",
        rw: Rw::Write,
        reads: "0",
        bs: "4k",
        sync: "fdatasync",
        percentile: 99.0,
        limit: Nanos::from_millis(10),
        source: "a small write and fdatasync for each commit; etcd asks for a 99th percentile below 10 ms (etcd's FAQ)",
    },
];
