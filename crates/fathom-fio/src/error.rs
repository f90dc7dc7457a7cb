//! What is wrong with a fio script.

/// Why a script is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FioError {
    /// A job file cannot be read.
    #[error("cannot read the job file {path}: {why}; check the path")]
    Unreadable {
        /// As typed.
        path: String,
        /// The system's words.
        why: String,
    },
    /// A job file is not one.
    #[error("{place}: {message}")]
    Syntax {
        /// File and line.
        place: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// No option of that name.
    #[error("job '{job}': fio has no option '{name}'{}: check its spelling", hint.as_ref().map(|h| format!(" {h}")).unwrap_or_default())]
    Unknown {
        /// The job.
        job: String,
        /// As typed.
        name: String,
        /// What may help.
        hint: Option<String>,
    },
    /// A value that fio would not take either.
    #[error("job '{job}': {option}: {message}")]
    Value {
        /// The job.
        job: String,
        /// The option.
        option: String,
        /// What is wrong.
        message: String,
    },
    /// fio can, fathom cannot.
    #[error("job '{job}': {option} is not supported: {reason}")]
    Unsupported {
        /// The job.
        job: String,
        /// The option with its value.
        option: String,
        /// Why, or what to do instead.
        reason: String,
    },
    /// The command line itself.
    #[error("{0}")]
    Usage(String),
}

impl FioError {
    pub(crate) fn value(job: &str, option: &str, message: impl Into<String>) -> Self {
        Self::Value {
            job: job.to_owned(),
            option: option.to_owned(),
            message: message.into(),
        }
    }
    pub(crate) fn unsupported(job: &str, option: &str, reason: impl Into<String>) -> Self {
        Self::Unsupported {
            job: job.to_owned(),
            option: option.to_owned(),
            reason: reason.into(),
        }
    }
}
