//! The only place where fathom creates a file or a directory, and the only one that opens something for writing.
//!
//! Every other room asks here, so that one page shows what fathom can ever overwrite: a file that it made a moment ago
//! ([`create`]), an output that appears whole beside what it replaces ([`output`]), what the caller has judged and holds
//! ([`open`]), and attributes of the kernel ([`kernel`]). A test forbids the standard library's ways everywhere else. A whole
//! directory is removed in one way, too ([`remove`]).
//! It must never know what is in a file.

pub mod create;
pub mod kernel;
pub mod mark;
pub mod open;
pub mod output;
pub mod partial;
pub mod remove;
mod replace;
mod sink;

pub use mark::{Provenance, is_made, may_overwrite};
pub use output::Output;
pub use replace::{Existing, Kind};
