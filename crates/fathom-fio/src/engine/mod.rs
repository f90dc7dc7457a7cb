//! Engines of fio's that are no way to read and write a file: each does its I/Os itself, one at a time, in the driver's place.

mod exec;
#[cfg(feature = "http")]
mod http;
mod names;
mod net;
mod space;
mod splice;

use std::path::PathBuf;
use std::sync::Arc;

use fathom_io::Control;
use fathom_io::load::{MakePerformer, Performer};
use fathom_telemetry::Nanos;

pub(crate) use exec::Exec;
pub use names::Names;
pub(crate) use net::{Net, OVER};

use crate::FioError;
use crate::aux_files::Outputs;
use crate::section::Section;

/// What such a job does.
#[derive(Debug, Clone)]
pub(crate) enum Own {
    /// splice(2) between the file and a pipe.
    Splice,
    /// ftruncate(2).
    Truncate,
    /// fallocate(2).
    Allocate,
    /// Files and directories are made, looked up, removed.
    Names(Arc<Names>),
    /// A program runs beside other jobs.
    Exec(Exec),
    /// A socket.
    Net(Arc<Net>),
    /// Objects of a server.
    #[cfg(feature = "http")]
    Http(Arc<http::Http>),
}

/// What it needs of the run.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) job: String,
    pub(crate) outputs: Outputs,
    /// Its end: that of the job, and that of all.
    pub(crate) controls: [Control; 2],
    /// Bytes that it is to do, where that is bounded.
    pub(crate) bytes: Option<u64>,
    pub(crate) time: Option<Nanos>,
}

impl Surroundings {
    /// Whether somebody asked for the end.
    fn ended(&self) -> bool {
        self.controls.iter().any(Control::interrupted)
    }
}

impl Own {
    /// For the section's engine; `None` where the driver has it. `names` are those of its files.
    pub(crate) fn of(
        s: &Section,
        clone: u32,
        names: impl FnOnce() -> Result<Vec<PathBuf>, FioError>,
    ) -> Result<Option<Self>, FioError> {
        Ok(Some(match s.engine() {
            "splice" => Self::Splice,
            "ftruncate" => Self::Truncate,
            "falloc" => Self::Allocate,
            "exec" => Self::Exec(Exec::of(s)?),
            "net" | "netsplice" => Self::Net(Arc::new(Net::of(s, clone)?)),
            #[cfg(feature = "http")]
            "http" => {
                let names = names()?;
                let names = names.iter().map(|p| p.display().to_string()).collect();
                Self::Http(Arc::new(http::Http::of(s, names)?))
            }
            other => match names::Kind::named(other) {
                Some(kind) => Self::Names(Arc::new(Names::of(s, kind, names()?))),
                None => return Ok(None),
            },
        }))
    }

    /// Whether its latencies are those of fio's I/Os: only the calls count where files are made, looked up, removed.
    pub(crate) fn only_calls(&self) -> bool {
        matches!(self, Self::Names(_))
    }

    /// Whether what it reads and writes is data.
    pub(crate) fn moves_data(&self) -> bool {
        match self {
            Self::Net(_) => true,
            #[cfg(feature = "http")]
            Self::Http(_) => true,
            _ => false,
        }
    }

    /// Objects of servers that it puts and deletes, as a script names them: HOST/PATH.
    pub(crate) fn objects(&self) -> Vec<String> {
        match self {
            #[cfg(feature = "http")]
            Self::Http(http) => http.objects().collect(),
            _ => Vec::new(),
        }
    }

    /// Files that it writes beside its target.
    pub(crate) fn texts(&self, job: &str, outputs: &Outputs) -> Vec<PathBuf> {
        match self {
            Self::Exec(exec) => exec.texts(job, outputs),
            _ => Vec::new(),
        }
    }

    /// What must be there before any job begins (a socket that listens).
    pub(crate) fn prepare(&self) -> Result<(), String> {
        match self {
            Self::Net(net) => net.prepare(),
            _ => Ok(()),
        }
    }

    /// For the driver.
    pub(crate) fn performer(&self, around: Surroundings) -> MakePerformer {
        let own = self.clone();
        Arc::new(move |_, files| {
            Ok(match &own {
                Self::Splice => Box::new(splice::Splicing::new(files)?) as Box<dyn Performer>,
                Self::Truncate => Box::new(space::Room::Truncate(files)),
                Self::Allocate => Box::new(space::Room::Allocate(files)),
                Self::Names(names) => Box::new(names::Naming(names.clone())),
                Self::Exec(exec) => Box::new(exec.start(around.clone())),
                Self::Net(net) => net.open(around.clone())?,
                #[cfg(feature = "http")]
                Self::Http(http) => Box::new(http.clone().open()),
            })
        })
    }
}

/// As the driver takes results: bytes, or the negative errno.
fn result(done: rustix::io::Result<usize>) -> i64 {
    match done {
        Ok(n) => n as i64,
        Err(e) => -i64::from(e.raw_os_error()),
    }
}
