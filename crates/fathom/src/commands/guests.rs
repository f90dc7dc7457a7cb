//! What commands that use guests share.

use fathom_bench::{Bench, BenchError, NotebookError};
use fathom_io::TargetError;
use fathom_system::guest::Supply;

use crate::cli::GuestArgs;
use crate::exit::Failure;

/// QEMU, a kernel and this fathom; the refusal says how to get what is missing.
pub(crate) fn supply(args: &GuestArgs) -> Result<Supply, Failure> {
    Ok(Supply::find(args.kernel.as_deref(), None)?)
}

/// Said of a target that can be no machine's disk.
pub(super) fn without_bytes(bench: &dyn Bench) -> NotebookError {
    BenchError::Target(TargetError::Unfit {
        target: bench.describe().name,
        message: "it has no bytes for a machine's disk".into(),
    })
    .into()
}
