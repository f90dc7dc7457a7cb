//! What the agent does with files: those that are fetched, its directory, steps, and phases of metadata operations.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fathom_io::clock::{Clock, monotonic};
use fathom_io::files::{Phase, Seen, Steps};
use fathom_io::{JobSpec, Observer};
use fathom_system::guest::wire::{Answer, Ran};
use fathom_telemetry::Nanos;

use super::{Agent, QUEUED_MAX, Teller, bench};
use crate::LabError;
use crate::files::Place;

/// Files below a fetched directory, at most.
const FILES_MAX: usize = 10_000;

impl Agent {
    pub(super) fn fetch(&self, path: &Path) -> Result<Answer, LabError> {
        let failed = |p: &Path, e: std::io::Error| {
            LabError::Failed(format!("{} cannot be read: {e}", p.display()))
        };
        let mut todo = vec![path.to_owned()];
        let mut sent = 0;
        while let Some(next) = todo.pop() {
            if next.is_dir() {
                let entries = fs::read_dir(&next).map_err(|e| failed(&next, e))?;
                todo.extend(entries.flatten().map(|e| e.path()));
            } else if sent < FILES_MAX {
                sent += 1;
                let bytes = fs::read(&next).map_err(|e| failed(&next, e))?;
                let below = next.strip_prefix(path).unwrap_or(Path::new(""));
                let file = Answer::File {
                    path: below.to_string_lossy().into_owned(),
                };
                self.output.send(&file, &bytes);
                self.wait_for_reader(QUEUED_MAX);
            }
        }
        Ok(Answer::Done)
    }

    /// Until no more than so many bytes wait on their way out, or nobody takes them.
    pub(super) fn wait_for_reader(&self, bytes: u64) {
        let listens = || !self.dismissed() && !self.line.silent.load(Relaxed);
        while self.output.queued.load(Relaxed) > bytes && listens() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Files have a directory of their own, beside the scratch file.
    pub(super) fn place(&mut self, joins: Option<&(String, String)>) -> Result<Answer, LabError> {
        let about = bench(&mut self.bench)?.describe();
        let dir = about.path.as_deref().and_then(|p| Path::new(p).parent());
        let dir = dir.filter(|_| about.kind == "directory").ok_or_else(|| {
            LabError::Refused(format!(
                "{}: files are made in a directory: make a file system, mount it, and name the directory",
                about.name
            ))
        })?;
        let place = Place::new(dir, joins)?;
        let (name, mark) = place.invitation()?;
        self.place = Some(place);
        Ok(Answer::Placed { name, mark })
    }

    pub(super) fn steps(&mut self, steps: &Steps) -> Result<Answer, LabError> {
        let place = placed(&mut self.place)?;
        let mut doing = place
            .doing(&self.control)
            .map_err(|e| LabError::Failed(e.to_string()))?;
        self.control.hold();
        let mut seen = doing.all(&steps.before);
        Teller(&self.output).ready();
        let began = self.control.start(&Clock::new(), Nanos::ZERO);
        self.control.begin_at(None);
        std::thread::sleep(began.since(monotonic()).into());
        seen.extend(doing.all(&steps.then));
        drop(doing);
        self.undisturbed()?;
        Ok(Answer::Ran(Ran {
            seen,
            began: began.0,
            ..Ran::default()
        }))
    }

    pub(super) fn files(&mut self, phase: &Phase, spec: &JobSpec) -> Result<Answer, LabError> {
        let place = placed(&mut self.place)?;
        self.control.hold();
        let measured = place.measure((phase, spec), &self.control, &mut Teller(&self.output));
        self.control.begin_at(None);
        let measured = measured?;
        self.undisturbed()?;
        let seen = Seen {
            so: true,
            counted: measured.counted,
            ..Seen::default()
        };
        Ok(Answer::Ran(Ran {
            jobs: vec![measured.job],
            seen: vec![seen],
            began: measured.began.0,
            ..Ran::default()
        }))
    }
}

fn placed(place: &mut Option<Place>) -> Result<&mut Place, LabError> {
    let none = || LabError::Failed("no directory for files was made".into());
    place.as_mut().ok_or_else(none)
}
