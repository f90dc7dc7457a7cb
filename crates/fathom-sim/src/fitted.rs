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
    /// Lower triangle of a root of the best model's covariance on the scale of ln(x + least), see [`crate::parameters`].
    pub root: Vec<Vec<f64>>,
    /// Other models that explain what was seen nearly as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Other>,
}

/// A model beside the best: what differs from that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// How likely it is, 0 to 1; the best has what is left.
    pub share: f64,
    /// Its queue slots.
    pub slots: u32,
    /// The fitted values, in the order of their names.
    pub values: Vec<f64>,
    /// As the best model's.
    pub root: Vec<Vec<f64>>,
}

impl Fitted {
    pub(crate) fn check(&self) -> Result<(), String> {
        let n = self.parameters.len();
        let triangle = |root: &[Vec<f64>]| {
            root.len() == n
                && root.iter().zip(1..).all(|(row, n)| {
                    row.len() == n && row.iter().all(|x| x.is_finite() && x.abs() < 1e3)
                })
        };
        let other = |o: &Other| {
            let values = o.values.len() == n && o.values.iter().all(|v| v.is_finite() && *v >= 0.0);
            values && o.slots > 0 && (0.0..=1.0).contains(&o.share) && triangle(&o.root)
        };
        let shares: f64 = self.others.iter().map(|o| o.share).sum();
        match triangle(&self.root) && self.others.iter().all(other) && shares <= 1.0 + 1e-9 {
            true => Ok(()),
            false => Err(
                "fit: parameters, roots and others do not fit together: expected names of values, a lower triangle for each model and shares of 1 at most, as fathom sim fit writes them"
                    .into(),
            ),
        }
    }

    /// Each model's share, the other model that it is, and the root of its covariance; the best first.
    pub(crate) fn models(&self) -> impl Iterator<Item = (f64, Option<&Other>, &[Vec<f64>])> {
        let shares: f64 = self.others.iter().map(|o| o.share).sum();
        let others = (self.others.iter()).map(|o| (o.share, Some(o), &o.root[..]));
        std::iter::once((1.0 - shares, None, &self.root[..])).chain(others)
    }

    /// The model at a place between 0 and 1: the other one that it is, and the root of its covariance.
    pub(crate) fn at(&self, place: f64) -> (Option<&Other>, &[Vec<f64>]) {
        let mut before = 0.0;
        let mut last = (None, &self.root[..]);
        for (share, other, root) in self.models() {
            last = (other, root);
            before += share;
            if place < before {
                break;
            }
        }
        last
    }
}
