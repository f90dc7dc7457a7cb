//! The load logic: which I/O next, when, at which depth. Written once, for every port.

mod arrivals;
mod offsets;
pub mod permutation;
pub mod rng;
mod worker;

pub use worker::{ErrorCount, Live, Outcome, Wait, Worker};
