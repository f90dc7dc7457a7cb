//! The load logic: which I/O next, when, at which depth. Written once, for every port.

mod arrivals;
pub mod guide;
mod offsets;
mod permutation;
pub mod rng;
mod worker;
mod zipf;
pub mod zoned;

pub use guide::{Enter, Guide, MakePerformer, MakePilot, Next, Pass, Performer, Pilot, PilotIo};
pub use worker::{Batches, ErrorCount, Live, NOTHING_READ, Outcome, Wait, Worker};
