//! What the jobs of a run want from their target, asked before it is opened.

use std::path::Path;

use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

use crate::job::{Engine, JobSpec};

/// What the jobs want from the target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// Some job writes or trims.
    pub modifies: bool,
    /// Some job uses direct I/O.
    pub direct: bool,
    /// Some job goes through the page cache.
    pub buffered: bool,
    /// Some job polls for completions.
    pub polled: bool,
    /// How many of the jobs send NVMe commands past the block layer.
    pub commands: Share,
    /// Whatever is written is written in order, one I/O at a time, as devices with zones want it.
    pub in_order: bool,
    /// Bytes that a scratch or new file must have.
    pub size: Option<Bytes>,
    /// What was typed after `--destroy`.
    pub destroy: Option<String>,
    /// A file may be made where there is none of this name.
    pub create: bool,
}

impl Wanted {
    /// What these jobs want together.
    pub fn by(jobs: &[JobSpec], destroy: Option<&str>) -> Self {
        let end = |j: &JobSpec| j.size.map(|s| Bytes(s.0.saturating_add(j.offset.0)));
        Self {
            modifies: jobs.iter().any(|j| j.rw.modifies()),
            direct: jobs.iter().any(|j| j.direct),
            buffered: jobs.iter().any(|j| !j.direct),
            commands: Share::of(jobs, |j| j.engine == Engine::UringCmd),
            // (A polled job through the page cache is refused for that.)
            polled: jobs.iter().any(|j| j.iopoll && j.direct),
            in_order: jobs.iter().all(in_order),
            size: jobs.iter().filter_map(end).max(),
            destroy: destroy.map(str::to_owned),
            create: false,
        }
    }

    /// The same of a target that is named as a namespace's character device: whoever names `/dev/ng0n1` wants its jobs to
    /// be commands. ([`Target::takes_commands_only`](super::Target::takes_commands_only) tells the bench.)
    pub fn of(mut self, name: &str) -> Self {
        let alone = self.commands == Share::No && self.direct && !self.buffered;
        if alone && fathom_host::block_device_of(Path::new(name)).is_some() {
            self.commands = Share::All;
        }
        self
    }
}

/// How many of several jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// None.
    #[default]
    No,
    /// Some, but not all.
    Some,
    /// All.
    All,
}

impl Share {
    /// Those for which `does` holds.
    pub fn of<'a>(jobs: impl IntoIterator<Item = &'a JobSpec>, does: fn(&JobSpec) -> bool) -> Self {
        let (yes, no): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|j| does(j));
        match (yes.is_empty(), no.is_empty()) {
            (true, _) => Self::No,
            (false, true) => Self::All,
            (false, false) => Self::Some,
        }
    }
}

/// Whether the job writes nothing, or one block after another.
fn in_order(job: &JobSpec) -> bool {
    let alone = job.qd == 1 && job.threads == 1;
    !job.rw.modifies() || (alone && job.direct && !job.rw.is_random() && !job.rw.trims())
}
