//! The numbers that stand for a histogram in JSON and tables.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Samples that must lie beyond a percentile before it is shown.
pub const SAMPLES_BEYOND: u64 = 10;

/// Latency in ns. Percentiles without [`SAMPLES_BEYOND`] samples beyond them are `None` (JSON null).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencySummary {
    /// Values behind the summary.
    pub samples: u64,
    /// Exact minimum.
    pub min: Option<u64>,
    /// Exact mean.
    pub mean: Option<f64>,
    /// Exact sample standard deviation.
    pub stddev: Option<f64>,
    /// Exact maximum.
    pub max: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 90th percentile.
    pub p90: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p99_9: Option<u64>,
    /// 99.99th percentile.
    pub p99_99: Option<u64>,
}

impl From<&Histogram> for LatencySummary {
    fn from(h: &Histogram) -> Self {
        let m = h.moments();
        let some = (m.count > 0).then_some(());
        let p = |q| h.quantile_supported(q, SAMPLES_BEYOND);
        Self {
            samples: m.count,
            min: some.map(|()| m.min),
            mean: m.mean(),
            stddev: m.stddev(),
            max: some.map(|()| m.max),
            p50: p(0.5),
            p90: p(0.9),
            p99: p(0.99),
            p99_9: p(0.999),
            p99_99: p(0.9999),
        }
    }
}
