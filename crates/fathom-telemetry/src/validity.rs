//! Validity flags: what stands against a number, with its remedy.

use serde::{Deserialize, Serialize};

/// What was found wrong (or worth knowing) about a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FlagCode {
    /// The time-weighted mean of outstanding I/Os stayed below the requested depth.
    DepthNotReached,
    /// The generator itself was the limit: close to what it reaches on `null:`.
    GeneratorBound,
    /// The CPU was the limit.
    CpuBound,
    /// The page cache answered: the device, or what it is made of, saw (almost) nothing.
    PageCacheAnswered,
    /// What was written could not be put on the device afterwards: the write-back failed.
    WriteBackFailed,
    /// The threads that issue I/O, or the whole machine, waited for processors that others used.
    CpuContended,
    /// A control group's processor quota or I/O limit held the job back.
    CgroupLimited,
    /// Blocks that were never written were read.
    UnwrittenBlocksRead,
    /// A percentile was hidden for want of samples.
    TooFewSamples,
    /// Open loop: I/Os started later than scheduled.
    MissedSchedule,
    /// The device served I/O that this job did not ask for.
    ForeignIo,
    /// The kernel made fewer, larger requests of the job's I/Os.
    RequestsMerged,
    /// The run directory is not whole: its writer could not keep up with the I/Os, or its disk was full.
    LogLostRecords,
    /// The I/O log or the run directory lies on the device under test.
    LogOnTestedDevice,
    /// Another engine than the requested one was used.
    EngineFallback,
    /// I/Os failed.
    IoErrors,
    /// I/Os transferred less than asked for.
    ShortIo,
    /// The device did not answer for ten seconds or longer.
    Stalled,
    /// The drive itself warns: worn out, too hot, read only, its reliability degraded.
    DeviceWarning,
    /// The job was interrupted; what was measured until then is kept.
    Interrupted,
    /// The clock is slower or less exact than the TSC.
    ClockFallback,
    /// Steady state was not reached.
    NotSteady,
    /// The target is simulated.
    Simulated,
    /// The model was fitted, and what was held out is further off than a number of it should be relied on.
    ModelUnfit,
    /// A processor was emulated: the number shows relations, not performance.
    Emulated,
    /// Some condition could not be checked on this machine.
    NotChecked,
    /// A host of a fleet was lost: it ended, stood still, or was cut off.
    HostLost,
    /// The hosts of a fleet did not measure at the same time.
    OutOfStep,
    /// The hosts of a fleet are not alike.
    HostsDiffer,
}

impl FlagCode {
    /// Whether a number under this flag must not be used at all.
    pub const fn voids(self) -> bool {
        matches!(
            self,
            Self::PageCacheAnswered
                | Self::UnwrittenBlocksRead
                | Self::IoErrors
                | Self::WriteBackFailed
                | Self::HostLost
                | Self::OutOfStep
        )
    }

    /// Whether it says where a number comes from, and nothing against it.
    pub const fn describes(self) -> bool {
        matches!(self, Self::Simulated | Self::Emulated)
    }

    /// The kebab-case name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DepthNotReached => "depth-not-reached",
            Self::GeneratorBound => "generator-bound",
            Self::CpuBound => "cpu-bound",
            Self::PageCacheAnswered => "page-cache-answered",
            Self::WriteBackFailed => "write-back-failed",
            Self::CpuContended => "cpu-contended",
            Self::CgroupLimited => "cgroup-limited",
            Self::UnwrittenBlocksRead => "unwritten-blocks-read",
            Self::TooFewSamples => "too-few-samples",
            Self::MissedSchedule => "missed-schedule",
            Self::ForeignIo => "foreign-io",
            Self::RequestsMerged => "requests-merged",
            Self::LogLostRecords => "log-lost-records",
            Self::LogOnTestedDevice => "log-on-tested-device",
            Self::EngineFallback => "engine-fallback",
            Self::IoErrors => "io-errors",
            Self::ShortIo => "short-io",
            Self::Stalled => "stalled",
            Self::DeviceWarning => "device-warning",
            Self::Interrupted => "interrupted",
            Self::ClockFallback => "clock-fallback",
            Self::NotSteady => "not-steady",
            Self::Simulated => "simulated",
            Self::ModelUnfit => "model-unfit",
            Self::Emulated => "emulated",
            Self::NotChecked => "not-checked",
            Self::HostLost => "host-lost",
            Self::OutOfStep => "out-of-step",
            Self::HostsDiffer => "hosts-differ",
        }
    }
}

/// A flag with what was seen and what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flag {
    /// What kind.
    pub code: FlagCode,
    /// Whether the number must not be used.
    pub void: bool,
    /// One sentence with the figures seen.
    pub detail: String,
    /// What to try next.
    pub remedy: String,
}

impl Flag {
    /// A flag whose weight follows from its code.
    pub fn new(code: FlagCode, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code,
            void: code.voids(),
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }
}
