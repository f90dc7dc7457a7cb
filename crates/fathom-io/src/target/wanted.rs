//! What the jobs of a run want from their target, asked before it is opened.

use std::path::Path;

use fathom_host::Passthrough;
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

use crate::job::{Command, Engine, JobSpec};

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
    /// Whatever is written is written in order, as devices with zones want it.
    pub in_order: bool,
    /// Operations beside reads, writes and discards.
    pub operations: Vec<Command>,
    /// The highest number of a placement handle that some job names.
    pub placement: Option<u32>,
    /// The largest write that some job wants done whole or not at all.
    pub atomic: Option<Bytes>,
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
            operations: operations(jobs),
            placement: jobs.iter().flat_map(|j| &j.placement).max().copied(),
            atomic: jobs.iter().filter(|j| j.atomic).map(|j| j.bs.max()).max(),
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

/// Whether the job writes nothing, or only where [`crate::load::zoned`] leads it.
fn in_order(job: &JobSpec) -> bool {
    let both = job.rw.reads() && job.rw.writes();
    let straight = !job.rw.is_random() && !both;
    let writes = !job.rw.trims() || job.command.manages_zones();
    !job.rw.modifies() || (job.direct && straight && writes)
}

fn operations(jobs: &[JobSpec]) -> Vec<Command> {
    let mut all: Vec<Command> = jobs.iter().map(|j| j.command).collect();
    all.retain(|c| *c != Command::Plain);
    all.sort_by_key(|c| c.word());
    all.dedup();
    all
}

impl Wanted {
    /// Whether a namespace offers what the jobs want beside reads, writes and discards.
    ///
    /// # Errors
    /// What it does not, in a sentence.
    pub(super) fn offered_by(&self, device: &Passthrough) -> Result<(), String> {
        let o = &device.operations;
        for c in &self.operations {
            let offered = match c {
                Command::Plain => true,
                Command::Append | Command::ZoneReset | Command::ZoneFinish => {
                    device.zones.is_some()
                }
                Command::WriteZeroes => o.write_zeroes,
                Command::Copy => o.copy_bytes.is_some(),
                Command::Verify => o.verify,
                Command::Compare => o.compare,
            };
            if !offered {
                return Err(match c {
                    Command::Append | Command::ZoneReset | Command::ZoneFinish => {
                        format!("the namespace has no zones, so no {c}: name one that has")
                    }
                    _ => format!(
                        "the drive offers no {c} (fathom devices shows what it does): leave --command out"
                    ),
                });
            }
        }
        match (self.placement, o.placements.len()) {
            (Some(_), 0) => Err(
                "the namespace has no placement handles (flexible data placement is off, or not offered): leave --placement out"
                    .into(),
            ),
            (Some(n), count) if n as usize >= count => Err(format!(
                "the namespace has {count} placement handles, 0 to {}, and no {n}: change --placement",
                count - 1
            )),
            _ => Ok(()),
        }
    }
}
