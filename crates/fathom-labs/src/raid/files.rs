//! Arrays that are file systems: jobs run on a scratch file in them. They are measured whole.

use std::path::{Path, PathBuf};

use fathom_experiments::bench::LogMaker;
use fathom_experiments::{Bench, BenchError, RealBench};
use fathom_io::driver::PlannedJob;
use fathom_io::job::Limits;
use fathom_io::{Control, Observer, Target, Wanted};
use fathom_telemetry::say;
use fathom_telemetry::schema::{self, Job};
use fathom_telemetry::{Bytes, Nanos};

use super::backend::Array;
use super::members;
use crate::LabError;

/// A file system over members, mounted.
pub(super) trait Place {
    /// Where.
    fn dir(&self) -> &Path;
    /// What is reported of it.
    fn settings(&self) -> Vec<(String, String)>;
    /// CPU time of the kernel threads that serve it.
    fn threads(&self) -> Vec<(String, Nanos)>;
    /// Takes it apart; doing it twice does nothing.
    ///
    /// # Errors
    /// What is left, and how to remove it.
    fn leave(&mut self) -> Result<(), LabError>;
}

/// Such an array with its scratch file. Dropping it takes it apart.
pub(super) struct FileArray<P: Place> {
    /// Closed first: it holds a file in the place.
    bench: Option<RealBench>,
    place: P,
}

impl<P: Place> FileArray<P> {
    /// Makes a scratch file of `size` bytes in it.
    pub(super) fn open(place: P, size: u64, control: &Control) -> Result<Self, LabError> {
        let mut array = Self { bench: None, place };
        let wanted = Wanted {
            modifies: true,
            direct: true,
            buffered: true,
            polled: false,
            size: Some(Bytes(size)),
            destroy: None,
        };
        let dir = array.place.dir().display().to_string();
        let target = Target::open(&dir, &wanted).map_err(BenchError::from)?;
        array.bench = Some(RealBench::new(target, control.clone()));
        Ok(array)
    }

    fn bench_mut(&mut self) -> &mut RealBench {
        self.bench
            .as_mut()
            .unwrap_or_else(|| unreachable!("the bench lives as long as the mount"))
    }

    fn take_apart(&mut self) -> Result<(), LabError> {
        members::close(&mut self.bench)?;
        self.place.leave()
    }
}

impl<P: Place> Drop for FileArray<P> {
    fn drop(&mut self) {
        if let Err(e) = self.take_apart() {
            say!("fathom: {e}");
        }
    }
}

impl<P: Place> Array for FileArray<P> {
    fn bench(&mut self) -> &mut dyn Bench {
        self.bench_mut()
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        self.place.threads()
    }
    fn settings(&self) -> Vec<(String, String)> {
        self.place.settings()
    }
    fn directory(&mut self) -> Result<Option<PathBuf>, LabError> {
        members::close(&mut self.bench)?;
        Ok(Some(self.place.dir().to_owned()))
    }
    fn close(mut self: Box<Self>) -> Result<(), LabError> {
        self.take_apart()
    }
}

/// One member under the same file system.
pub(super) struct Alone<P: Place>(pub(super) FileArray<P>);

impl<P: Place> Bench for Alone<P> {
    fn limits(&self) -> Limits {
        let none = Limits {
            size: 0,
            direct_align: 512,
        };
        self.0.bench.as_ref().map_or(none, Bench::limits)
    }
    fn describe(&self) -> schema::Target {
        self.0.bench.as_ref().map_or_else(
            || unreachable!("the bench lives as long as the mount"),
            Bench::describe,
        )
    }
    fn simulated(&self) -> bool {
        false
    }
    fn control(&self) -> Control {
        self.0
            .bench
            .as_ref()
            .map_or_else(Control::new, Bench::control)
    }
    fn real(&mut self) -> Option<&mut RealBench> {
        self.0.bench.as_mut()
    }
    fn fills(&self) -> Bytes {
        self.0.bench.as_ref().map_or(Bytes(0), Bench::fills)
    }
    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        self.0
            .take_apart()
            .map_err(|e| BenchError::Outside(e.to_string()))
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.0.bench_mut().prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        self.0.bench_mut().run(jobs, log, observer)
    }
}
