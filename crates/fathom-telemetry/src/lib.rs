//! What was measured: records, histograms, windowed series, the run's schema.
//!
//! This room knows nothing of rings, targets or charts. The driver pushes
//! [`Record`]s in; experiments and reports take [`schema::Run`]s out.

pub mod codec;
pub mod histogram;
pub mod identity;
pub mod iolog;
pub(crate) mod parquet_file;
pub mod price;
pub mod record;
pub mod reserve;
pub mod rundir;
pub mod say;
pub mod schema;
pub mod series;
pub mod summary;
pub mod table;
pub mod units;
pub mod utc;
pub mod validity;
pub mod window;

pub use histogram::{Histogram, SparseHistogram};
pub use identity::Identity;
pub use price::Price;
pub use record::{Op, Record};
pub use summary::LatencySummary;
pub use units::{Bytes, Nanos};
pub use validity::{Flag, FlagCode};
pub use window::{DirectionTotal, DirectionWindow, Recorder, Window, WindowSink};
