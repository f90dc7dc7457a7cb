//! Does it keep its rate? A load without a pause: what the device gives in a burst against what it gives in the end.

use fathom_bench::notebook::NotebookError;
use fathom_io::JobSpec;
use fathom_stats::Estimate;
use fathom_stats::compare::{Good, difference};
use serde::{Deserialize, Serialize};

use super::rate;
use super::stand::Stand;

/// Name of the suspect.
pub(super) const ID: &str = "throttling";
/// Parts of the load.
pub(super) const SLICES: u32 = 48;
/// The first of them are the burst.
const BURST: usize = 3;

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sustained {
    /// Bytes per second of each part.
    pub rates: Vec<f64>,
    /// At the start.
    pub burst: Estimate,
    /// In the second half.
    pub base: Estimate,
    /// Burst against base, − 1: what there would be without the fall.
    pub gain: Option<Estimate>,
    /// Temperature behind the first and the last part, °C.
    pub celsius: [Option<f64>; 2],
    /// Length of a part, ns.
    pub slice_ns: u64,
    /// Indices of its jobs.
    pub jobs: Vec<usize>,
}

/// Runs it; why there is no result where parts of it have no number.
pub(super) fn measure(
    stand: &mut dyn Stand,
    spec: &JobSpec,
    seed: u64,
) -> Result<Result<Sustained, String>, NotebookError> {
    let (parts, celsius) = stand.row(spec, SLICES, seed)?;
    let block = spec.bs.max().0 as f64;
    let rates: Vec<f64> = parts
        .iter()
        .filter_map(|m| Some(rate(&m.job)? * block))
        .collect();
    let half = SLICES as usize / 2;
    let means = (rates.len() >= SLICES as usize)
        .then(|| Estimate::mean_of(&rates[..BURST]).zip(Estimate::mean_of(&rates[half..])))
        .flatten();
    let Some((burst, base)) = means else {
        return Ok(Err(format!(
            "only {} of {SLICES} parts of the load gave a valid number",
            rates.len()
        )));
    };
    let gain = difference(&base, &burst, Good::More).map(|d| d.relative);
    Ok(Ok(Sustained {
        burst,
        base,
        gain,
        celsius,
        slice_ns: spec.time.map_or(0, |t| t.0),
        jobs: parts.iter().map(|m| m.index).collect(),
        rates,
    }))
}
