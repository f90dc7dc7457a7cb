//! What a task leaves beside its output: whether all of it can be written, and the texts of its commands.

use std::io;
use std::path::{Path, PathBuf};

use super::{histlog, logs};
use crate::aux_files::{Outputs, is_iolog, is_log, is_state, is_text};
use crate::plan::Task;

impl Outputs {
    /// Whether what a task will write can be written; nothing is made or changed.
    ///
    /// # Errors
    /// The first that cannot, by its path.
    pub fn check(&self, task: &Task) -> io::Result<()> {
        let terms = &task.shape.logs;
        for path in logs::paths(task, self).into_iter().map(|l| l.1) {
            self.log(&path, terms.per_job, logs::kind(terms))
                .map(drop)?;
        }
        if let Some(path) = histlog::path(task, self) {
            self.log(&path, terms.per_job, is_log).map(drop)?;
        }
        if let Some(path) = &task.shape.recipe.write_log {
            self.check_one(Path::new(path), is_iolog)?;
        }
        if let Some(path) = task.state_to_save(self) {
            self.check_one(&path, is_state)?;
        }
        for path in task
            .shape
            .own
            .iter()
            .flat_map(|o| o.texts(&task.name, self))
        {
            self.check_one(&path, is_text)?;
        }
        let commands = task.shape.commands.iter().zip(COMMANDS);
        for (_, word) in commands.filter(|c| c.0.is_some()) {
            self.check_one(&text_of(task, word), is_text)?;
        }
        Ok(())
    }
}

/// The two commands that may run around a job.
pub const COMMANDS: [&str; 2] = ["prerun", "postrun"];

/// Where what the command said is kept, as in fio.
pub fn text_of(task: &Task, word: &str) -> PathBuf {
    PathBuf::from(format!("{}.{word}.txt", task.name))
}
