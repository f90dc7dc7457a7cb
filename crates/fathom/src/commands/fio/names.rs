//! Files and directories of jobs that only make, look up and remove names: what is there before, and whose it is after.

use std::path::PathBuf;

use anyhow::anyhow;
use fathom_fio::{Names, Task};

use super::permits::Permits;
use crate::exit::{Failure, refused};

/// What this run makes of such names, by task, and whether it goes again at the end.
#[derive(Default)]
pub(super) struct Made(Vec<(Vec<PathBuf>, bool)>);

impl Made {
    /// Makes what is to be looked up or removed. Where that fails, nothing is left of it.
    pub(super) fn lay_out(tasks: &[Task]) -> Result<Self, Failure> {
        let permits = Permits::of_environment();
        let mut all = Self::default();
        for task in tasks {
            if let Some(object) = task.objects().iter().find(|o| !permits.lists(o)) {
                return Err(refused(anyhow!(
                    "job '{}': {object} may hold somebody's data: name it in FATHOM_FIO_WRITE (colons as \\:) if all objects whose names begin so may be overwritten and deleted",
                    task.name
                )));
            }
            let Some(names) = task.names() else { continue };
            let (made, done) = names.lay_out(|path| permits.names(path));
            all.0.push((made, task.shape.unlink));
            if let Err(why) = done {
                all.0.iter_mut().for_each(|m| m.1 = true);
                return Err(refused(anyhow!("job '{}': {why}", task.name)));
            }
        }
        Ok(all)
    }
}

/// Marks what is left as fathom's, or removes it where that is asked for.
impl Drop for Made {
    fn drop(&mut self) {
        for (made, unlink) in &self.0 {
            if *unlink {
                Names::remove(made);
            } else {
                Names::keep(made);
            }
        }
    }
}
