//! An embedded B+tree for storage tests: many threads read and write leaves of one tree at the same time.
//!
//! Inner nodes live in memory; leaves of 4 to 64 KiB go through a clock pool of a given size to a
//! [`Store`]: a file or block device, or one that loses what was not synced. Pages are written copy on
//! write, checkpoints switch between them, a log with group commit fills the time between checkpoints.
//! This room knows no workloads and no labs. In a
//! simulation its threads take turns ([`turns`]). The format and why it is so: `docs/kv.md`.

mod arena;
mod buf;
mod check;
mod checkpoint;
mod core;
mod engine;
mod error;
mod gate;
mod hands;
mod index;
mod leaf;
mod log;
mod meta;
mod options;
mod overflow;
mod pool;
mod recover;
mod ring;
pub mod sim;
mod space;
mod stats;
pub mod store;
mod sync;
mod table;
pub mod turns;

pub use check::Census;
pub use engine::Engine;
pub use error::KvError;
pub use options::{Durability, Options};
pub use stats::Stats;
pub use store::{FileStore, Store};
