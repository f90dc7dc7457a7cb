//! Settings that the jobs of a wave ask for, for as long as they run: this process's control group, their disks' schedulers.

use anyhow::anyhow;
use fathom_fio::Task;
use fathom_host::CounterSource;
use fathom_stack::settings::Changed;
use fathom_system::cgroup::Membership;

use super::files::OpenFile;
use crate::exit::{Failure, refused};

/// They are put back when this is dropped.
pub(super) struct Held {
    _schedulers: Vec<Changed>,
    _group: Option<Membership>,
}

impl Held {
    /// Sets what the tasks of one wave ask for.
    pub(super) fn of(tasks: &[&Task], files: &[OpenFile]) -> Result<Self, String> {
        let mut schedulers: Vec<(String, Changed)> = Vec::new();
        for task in tasks {
            let Some(name) = &task.shape.scheduler else {
                continue;
            };
            let own = files
                .iter()
                .filter(|f| task.places().any(|p| *p == f.place));
            for path in own.filter_map(|f| f.target.path()) {
                // As in fio, what has no disk that can be told has no scheduler.
                let Ok(source) = CounterSource::locate(path) else {
                    continue;
                };
                let disk = source.disk().to_owned();
                if schedulers.iter().any(|s| s.0 == disk) {
                    continue;
                }
                let changed = Changed::scheduler(&disk, name).map_err(|e| {
                    format!("job '{}': ioscheduler={name} on {disk}: {e}", task.name)
                })?;
                schedulers.push((disk, changed));
            }
        }
        let group = tasks.iter().find_map(|t| t.shape.group.as_ref());
        let group = group.map(|g| {
            Membership::enter(&g.name, g.weight, g.keep)
                .map_err(|e| format!("cgroup={} could not be entered: {e}", g.name))
        });
        Ok(Self {
            _schedulers: schedulers.into_iter().map(|s| s.1).collect(),
            _group: group.transpose()?,
        })
    }

    /// Refuses what cannot be: jobs of one wave are threads of one process, which is in one group.
    pub(super) fn check(tasks: &[Task]) -> Result<(), Failure> {
        let name = |t: &Task| t.shape.group.clone();
        for pair in tasks.windows(2).filter(|p| p[0].wave == p[1].wave) {
            if name(&pair[0]) != name(&pair[1]) {
                return Err(refused(anyhow!(
                    "jobs '{}' and '{}' run together and ask for different control groups, and jobs are threads of one process here: put a stonewall between them, or start two processes",
                    pair[0].name,
                    pair[1].name
                )));
            }
        }
        let differ = |a: &Task, b: &Task| {
            a.wave == b.wave
                && a.shape.scheduler.is_some()
                && b.shape.scheduler.is_some()
                && a.shape.scheduler != b.shape.scheduler
        };
        for (i, a) in tasks.iter().enumerate() {
            if let Some(b) = tasks[i + 1..].iter().find(|b| differ(a, b)) {
                return Err(refused(anyhow!(
                    "jobs '{}' and '{}' run together and ask for different schedulers: put a stonewall between them",
                    a.name,
                    b.name
                )));
            }
        }
        Ok(())
    }
}
