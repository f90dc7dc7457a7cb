//! What a fit says of its own model: how far its points were off, and how uncertain its values are.

use serde::{Deserialize, Serialize};

/// The part of a model's file that its fit wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// The runs that it was fitted to.
    pub runs: Vec<String>,
    /// Points that were left out while the values were found, and how far 19 in 20 of their means, and of their 99th
    /// percentiles, are off at most, percent.
    pub held_out: u32,
    /// Of means.
    pub mean_error_percent: f64,
    /// Of 99th percentiles.
    pub p99_error_percent: f64,
    /// More is off than a number of it should be relied on.
    pub unfit: bool,
    /// The values that were fitted.
    pub parameters: Vec<String>,
    /// Lower triangle of a root of their covariance on the scale of ln(x + least), see [`crate::parameters`].
    pub root: Vec<Vec<f64>>,
}

impl Fitted {
    pub(crate) fn check(&self) -> Result<(), String> {
        let rows = self.root.len() == self.parameters.len();
        let lower =
            self.root.iter().zip(1..).all(|(row, n)| {
                row.len() == n && row.iter().all(|x| x.is_finite() && x.abs() < 1e3)
            });
        match rows && lower {
            true => Ok(()),
            false => Err(
                "fit: parameters and root do not fit together: expected names of values and a lower triangle, as fathom sim fit writes them"
                    .into(),
            ),
        }
    }

    /// Standard deviation of each value on its scale.
    pub fn deviations(&self) -> Vec<f64> {
        let norm = |row: &Vec<f64>| row.iter().map(|x| x * x).sum::<f64>().sqrt();
        self.root.iter().map(norm).collect()
    }
}
