//! Exit codes and the error that carries one.

/// Done.
pub(crate) const DONE: u8 = 0;
/// The measurement failed, is void or was interrupted.
pub(crate) const FAILED: u8 = 1;
/// Usage, or refused for safety.
pub(crate) const REFUSED: u8 = 2;

/// An error and the exit code that it means.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// The error and its causes in one line. Many errors repeat their cause in their own sentence; a
    /// cause that has been said is not said again.
    pub(crate) fn sentence(&self) -> String {
        let mut said = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if said.is_empty() {
                said = cause;
            } else if !said.contains(&cause) {
                said = format!("{said}: {cause}");
            }
        }
        said.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

/// What a command returns: an exit code, or an error with its own.
pub(crate) type Outcome = Result<u8, Failure>;

/// The input or the safety rules are the cause.
pub(crate) fn refused(error: impl Into<anyhow::Error>) -> Failure {
    Failure {
        code: REFUSED,
        error: error.into(),
    }
}

/// The measurement is the cause.
pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure {
        code: FAILED,
        error: error.into(),
    }
}

impl From<fathom_bench::NotebookError> for Failure {
    fn from(e: fathom_bench::NotebookError) -> Self {
        use fathom_bench::NotebookError as N;
        let code = match &e {
            N::RunDir(_) | N::Log(_) | N::Series(_) => REFUSED,
            N::Bench(b) if b.is_refusal() => REFUSED,
            N::Bench(_) | N::Beside(_) | N::Result(_) => FAILED,
        };
        Self {
            code,
            error: e.into(),
        }
    }
}

impl From<fathom_bench::BenchError> for Failure {
    fn from(e: fathom_bench::BenchError) -> Self {
        fathom_bench::NotebookError::from(e).into()
    }
}

impl From<fathom_io::TargetError> for Failure {
    fn from(e: fathom_io::TargetError) -> Self {
        refused(e)
    }
}

impl From<fathom_io::JobError> for Failure {
    fn from(e: fathom_io::JobError) -> Self {
        refused(e)
    }
}

impl From<fathom_report::ReportError> for Failure {
    fn from(e: fathom_report::ReportError) -> Self {
        refused(e)
    }
}
