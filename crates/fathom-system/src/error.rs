//! Why something could not be done to the machine.

/// Of a program, a device, a mount, or a guest.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
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
    /// What jobs were to run on cannot be opened.
    #[error(transparent)]
    Target(#[from] fathom_io::TargetError),
    /// An outside part did not do what it was told.
    #[error("{0}")]
    Failed(String),
}

impl SystemError {
    /// Whether the input, the safety rules or a missing part are the cause.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}
