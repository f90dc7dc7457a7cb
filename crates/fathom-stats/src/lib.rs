//! Statistics for measurements: a number and its uncertainty travel together.
//!
//! This room knows nothing of storage. It holds estimates with confidence
//! intervals, tests of distributions, and (later) verdicts over time series.

mod estimate;
mod ks;

pub use estimate::Estimate;
pub use ks::{ks_distance, ks_p_value};
