//! Why a lab could not do what it was asked.

use fathom_bench::{BenchError, NotebookError};
use fathom_system::SystemError;

/// Of a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The input or the safety rules are the cause: nothing was touched.
    #[error("{0}")]
    Refused(String),
    /// An outside part is not there; the sentence ends with what to install or to do.
    #[error("{what}; {remedy}")]
    Missing {
        /// What is not there.
        what: String,
        /// A command, or what to do.
        remedy: String,
    },
    /// An outside part did not do what it was told.
    #[error("{0}")]
    Failed(String),
    /// The target or a job.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The run directory.
    #[error(transparent)]
    Notebook(Box<NotebookError>),
}

impl LabError {
    /// Whether the user's input, the safety rules or a missing part are the cause, rather than the measurement.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Missing { .. } => true,
            Self::Bench(b) => b.is_refusal(),
            Self::Failed(_) | Self::Notebook(_) => false,
        }
    }
}

impl From<fathom_kv::KvError> for LabError {
    fn from(e: fathom_kv::KvError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<SystemError> for LabError {
    fn from(e: SystemError) -> Self {
        match e {
            SystemError::Refused(why) => Self::Refused(why),
            SystemError::Missing { what, remedy } => Self::Missing { what, remedy },
            SystemError::Target(e) => Self::Bench(e.into()),
            SystemError::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<NotebookError> for LabError {
    fn from(e: NotebookError) -> Self {
        Self::Notebook(Box::new(e))
    }
}

impl From<fathom_io::JobError> for LabError {
    fn from(e: fathom_io::JobError) -> Self {
        Self::Bench(e.into())
    }
}

impl From<LabError> for NotebookError {
    fn from(e: LabError) -> Self {
        match e {
            LabError::Bench(b) => b.into(),
            LabError::Notebook(n) => *n,
            LabError::Failed(message) => Self::Beside(message),
            other => BenchError::Outside(other.to_string()).into(),
        }
    }
}
