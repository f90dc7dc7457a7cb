//! What may limit a target, and the change that would show it.
//!
//! A suspect knows nothing of the truth: it names a change and the loads on which it would tell, and is convicted or
//! cleared by measuring with the change and without it.

use std::path::PathBuf;

use fathom_sim::SimTarget;
use fathom_stack::TraceError;
use fathom_stack::settings::{self, Changed};
use serde::{Deserialize, Serialize};

use super::load::LoadId;

/// A change that is in force while a pass runs.
pub enum Change {
    /// Another option of a model.
    Model(fn(&mut SimTarget)),
    /// A file of the kernel's settings.
    File {
        /// Below `/sys` or `/proc/sys/vm`.
        path: PathBuf,
        /// What is written.
        value: String,
    },
    /// Idle states forbidden: `/dev/cpu_dma_latency` held at 0.
    Awake,
    /// Other mount options of a loop file system of fathom's own.
    Mount {
        /// Where it is mounted.
        at: PathBuf,
        /// All options, as `fathom_stack::settings::mount` names them.
        options: String,
    },
    /// Completions are polled for.
    Polled,
}

impl Change {
    /// Whether it brings other settings to their defaults, so that it has to come before them.
    pub fn disturbs(&self) -> bool {
        matches!(self, Self::File { path, .. } if settings::disturbs(path))
    }

    /// Makes it, where it can stay in force when the run is over; `None` for the others, which last as long as a process
    /// holds them. Dropping it puts everything back.
    ///
    /// # Errors
    /// The user may not, or the kernel does not take the value.
    pub(super) fn make(&self) -> Option<Result<Changed, TraceError>> {
        match self {
            Self::File { path, value } => Some(Changed::file(path, value)),
            Self::Mount { at, options } => Some(Changed::mount(at, options)),
            Self::Awake | Self::Polled | Self::Model(_) => None,
        }
    }
}

/// In the order in which they can be made without one undoing another.
pub(super) fn in_order<T>(mut all: Vec<T>, change: impl Fn(&T) -> &Change) -> Vec<T> {
    all.sort_by_key(|t| !change(t).disturbs());
    all
}

/// A value to try.
pub struct Value {
    /// In a sentence: `scheduler none`.
    pub label: String,
    /// The command or setting that makes the change last.
    pub command: String,
    /// The change.
    pub change: Change,
}

/// Something that may be the bottleneck.
pub struct Suspect {
    /// Stable name; the finding's too, and what `--only` takes.
    pub id: &'static str,
    /// What it is in a sentence: `the idle states of the processors`.
    pub cause: String,
    /// What is in force now: `scheduler mq-deadline`.
    pub now: String,
    /// What is tried instead.
    pub values: Vec<Value>,
    /// In force on both sides: another cause that the change would hide as well.
    pub under: Vec<Change>,
    /// Where it would tell.
    pub loads: Vec<LoadId>,
    /// Whether it is a reversible setting: what was proved of it stays in force for what is tried after it.
    pub is_setting: bool,
    /// What would show that the finding is wrong.
    pub refuted_by: String,
}

/// What a run keeps of a suspect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suspected {
    /// As [`Suspect::id`].
    pub id: String,
    /// What it is in a sentence.
    pub cause: String,
    /// What was in force.
    pub now: String,
    /// What was tried instead.
    pub values: Vec<Tried>,
    /// What would show that the finding is wrong.
    pub refuted_by: String,
}

/// What a run keeps of a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tried {
    /// In a sentence.
    pub label: String,
    /// The command or setting that makes the change last.
    pub command: String,
}

impl From<&Suspect> for Suspected {
    fn from(s: &Suspect) -> Self {
        let tried = |v: &Value| Tried {
            label: v.label.clone(),
            command: v.command.clone(),
        };
        Self {
            id: s.id.into(),
            cause: s.cause.clone(),
            now: s.now.clone(),
            values: s.values.iter().map(tried).collect(),
            refuted_by: s.refuted_by.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_changed_before_what_it_would_bring_to_its_default() {
        let file = |path: &str| Change::File {
            path: path.into(),
            value: "1".into(),
        };
        let all = [
            file("/sys/block/vda/queue/nr_requests"),
            Change::Awake,
            file("/sys/block/vda/queue/scheduler"),
            file("/sys/block/vda/queue/wbt_lat_usec"),
        ];
        let order = in_order(all.iter().enumerate().collect(), |c| c.1);
        let order: Vec<usize> = order.iter().map(|c| c.0).collect();
        assert_eq!(order, [2, 0, 1, 3]);
    }
}
