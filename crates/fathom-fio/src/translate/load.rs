//! Block sizes, shares and offsets in the form of a job of fathom's.

use std::collections::BTreeMap;

use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Distribution};
use fathom_telemetry::Bytes;

use super::draws::Draw;
use super::recipe::Recipe;
use crate::FioError;
use crate::section::Section;

/// Sizes of all directions with their weights. Of a range at most 256 sizes stand for all.
pub(super) fn block_sizes(s: &Section, recipe: &Recipe) -> Result<BlockSizes, FioError> {
    let mut all: BTreeMap<u64, f64> = BTreeMap::new();
    for (size, weight) in recipe.used_sizes().flat_map(|sizes| sizes.weights()) {
        *all.entry(size).or_default() += weight;
    }
    // Their rules are those of fathom's own jobs.
    let text: Vec<String> = all.iter().map(|(n, w)| format!("{n}:{w}")).collect();
    let sizes: Result<BlockSizes, String> = text.join(",").parse();
    sizes.map_err(|e| s.invalid("bs", e))
}

/// Offsets of a random job that fathom's own form says.
pub(super) fn random(recipe: &Recipe, spec: &mut JobSpec) {
    if !recipe.random {
        return;
    }
    let align = (0..3).find(|i| recipe.does[*i]).map(|i| recipe.align[i]);
    spec.align = align.map(Bytes).filter(|a| *a != spec.bs.min());
    spec.dist = match recipe.draw[0] {
        // The mean of twelve draws has this deviation, in percent of the range.
        Draw::By(Distribution::Gauss(0.0), _) => Distribution::Gauss(8.33),
        Draw::By(dist, _) => dist,
        _ => Distribution::Uniform,
    };
    let uniform = spec.dist == Distribution::Uniform;
    spec.random_map = uniform && spec.align.is_none() && (recipe.map || recipe.walks());
}
