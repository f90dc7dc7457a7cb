//! What applications do: copying many files, and swapping.

use fathom_telemetry::Bytes;

pub mod copy;
mod photos;
pub mod swap;

/// What to do about a target that is no directory.
pub const MAKE_ONE: &str = "is no directory: make a file system";
/// Bytes of the target's scratch file, which is not used here.
pub const SCRATCH: Bytes = Bytes::mib(1);
