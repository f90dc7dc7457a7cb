//! A level that is flat, drifts, or decays towards a base: fits, and how far it will still move.
//!
//! The model is y = b + c·e^(−t/τ), with τ from two rounds to fifty times the series
//! (which is a straight line). τ stays open: an interval of the drift to come is the
//! union over all τ that the data do not rule out (profile likelihood), so a slow decay
//! is not mistaken for a flat line, nor a decay that has ended for one that goes on.

/// The time constants that are tried, with powers of e^(−1/τ).
pub(crate) struct Decays {
    /// e^(−1/τ) of each τ.
    ratios: Vec<f64>,
}

/// Least squares of one τ over one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// e^(−1/τ).
    ratio: f64,
    /// b.
    base: f64,
    /// c at the segment's first value.
    amplitude: f64,
    /// Squared residuals.
    pub(crate) rss: f64,
    /// Σ(k − mean k)² of k = e^(−t/τ).
    spread: f64,
}

/// Shape of the rest of a segment seen from one end: sums over its values.
#[derive(Clone, Copy, Default)]
struct Sums {
    n: f64,
    y: f64,
    yy: f64,
    k: f64,
    kk: f64,
    ky: f64,
}

impl Sums {
    fn fit(&self, ratio: f64) -> Fit {
        let spread = (self.kk - self.k * self.k / self.n).max(0.0);
        let cross = self.ky - self.k * self.y / self.n;
        let total = (self.yy - self.y * self.y / self.n).max(0.0);
        let amplitude = if spread > 1e-9 * self.kk {
            cross / spread
        } else {
            0.0
        };
        Fit {
            ratio,
            base: (self.y - amplitude * self.k) / self.n,
            amplitude,
            rss: (total - amplitude * cross).max(0.0),
            spread,
        }
    }
}

impl Fit {
    /// The level `t` rounds after the segment's first value.
    pub(crate) fn at(&self, t: f64) -> f64 {
        self.base + self.amplitude * self.ratio.powf(t)
    }

    /// How far the level of amplitude 1 moves between two times.
    fn reach(&self, from: f64, to: f64) -> f64 {
        self.ratio.powf(to) - self.ratio.powf(from)
    }
}

impl Decays {
    /// For series of up to `n` values.
    pub(crate) fn for_length(n: usize) -> Self {
        const STEPS: usize = 40;
        let longest = 50.0 * n.max(2) as f64;
        let mut ratios: Vec<f64> = (0..STEPS)
            .map(|i| {
                // Dense up to the length of the series, where shapes differ; then only the line.
                // Below two rounds a curve would only follow a single outlier.
                let tau = 2.0 * (2.0 * n as f64).powf(i as f64 / (STEPS - 1) as f64);
                (-1.0 / tau).exp()
            })
            .collect();
        ratios.push((-1.0 / longest).exp());
        Self { ratios }
    }

    /// Squared residuals of the best fit to every head `y[..s]` (index s) and every tail `y[s..]`.
    pub(crate) fn heads_and_tails(&self, y: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let n = y.len();
        let (mut heads, mut tails) = (vec![0.0; n + 1], vec![0.0; n + 1]);
        let flat = |s: &Sums| (s.yy - s.y * s.y / s.n).max(0.0);
        // Short segments may only be flat: a curve through five points explains anything.
        let short = |s: &Sums| s.n < f64::from(SHORTEST_CURVE as u32);
        for (which, &ratio) in self.ratios.iter().enumerate() {
            let mut s = Sums::default();
            let mut k = 1.0;
            for (i, v) in y.iter().enumerate() {
                s.n += 1.0;
                s.y += v;
                s.yy += v * v;
                s.k += k;
                s.kk += k * k;
                s.ky += k * v;
                k *= ratio;
                let rss = if short(&s) {
                    flat(&s)
                } else {
                    s.fit(ratio).rss
                };
                if which == 0 || rss < heads[i + 1] {
                    heads[i + 1] = rss;
                }
            }
            let mut s = Sums::default();
            for i in (0..n).rev() {
                let v = y[i];
                // Every later value's time grows by one: its k shrinks by the ratio.
                s.n += 1.0;
                s.y += v;
                s.yy += v * v;
                s.ky = v + ratio * s.ky;
                s.k = 1.0 + ratio * s.k;
                s.kk = 1.0 + ratio * ratio * s.kk;
                let rss = if short(&s) {
                    flat(&s)
                } else {
                    s.fit(ratio).rss
                };
                if which == 0 || rss < tails[i] {
                    tails[i] = rss;
                }
            }
        }
        (heads, tails)
    }

    /// Fits of every τ to a segment.
    pub(crate) fn fits(&self, y: &[f64]) -> Vec<Fit> {
        self.weighted_fits(y, &vec![1.0; y.len()])
    }

    /// The same with a weight (one over the variance, in any unit) for each value.
    pub(crate) fn weighted_fits(&self, y: &[f64], weights: &[f64]) -> Vec<Fit> {
        self.ratios
            .iter()
            .map(|&ratio| {
                let mut s = Sums::default();
                let mut k = 1.0;
                for (v, w) in y.iter().zip(weights) {
                    s.n += w;
                    s.y += w * v;
                    s.yy += w * v * v;
                    s.k += w * k;
                    s.kk += w * k * k;
                    s.ky += w * k * v;
                    k *= ratio;
                }
                s.fit(ratio)
            })
            .collect()
    }

    /// The best fit.
    pub(crate) fn best(&self, y: &[f64]) -> Option<Fit> {
        self.fits(y)
            .into_iter()
            .min_by(|a, b| a.rss.total_cmp(&b.rss))
    }
}

/// Segments below this are fitted by a flat line only.
pub(crate) const SHORTEST_CURVE: usize = 8;

/// How far the level moves in the `ahead` rounds after the segment, with a profile interval: every (τ, c)
/// whose squared residuals exceed the best by at most `slack` is held possible.
pub(crate) fn drift(fits: &[Fit], n: usize, ahead: f64, slack: f64) -> Option<(f64, f64, f64)> {
    let best = fits.iter().min_by(|a, b| a.rss.total_cmp(&b.rss))?;
    let (from, to) = (n as f64 - 1.0, n as f64 - 1.0 + ahead);
    let limit = best.rss + slack;
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for f in fits.iter().filter(|f| f.rss <= limit && f.spread > 0.0) {
        let half = ((limit - f.rss) / f.spread).sqrt();
        let reach = f.reach(from, to);
        for c in [f.amplitude - half, f.amplitude + half] {
            low = low.min(c * reach);
            high = high.max(c * reach);
        }
    }
    let value = best.amplitude * best.reach(from, to);
    Some((value, low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_decay_is_followed_into_the_future() {
        let level = |t: f64| 0.3 + 0.7 * (-t / 20.0).exp();
        let y: Vec<f64> = (0..60).map(|t| level(f64::from(t))).collect();
        let d = Decays::for_length(60);
        let (value, low, high) = drift(&d.fits(&y), 60, 25.0, 2e-3).unwrap();
        let truth = level(84.0) - level(59.0);
        assert!((value - truth).abs() < 0.003, "{value} {truth}");
        assert!(
            low <= truth + 1e-4 && truth <= high + 1e-4,
            "{low} {high} {truth}"
        );
        assert!((d.best(&y).unwrap().at(59.0) - level(59.0)).abs() < 0.005);
    }

    #[test]
    fn heads_and_tails_are_what_fits_of_the_parts_give() {
        let y: Vec<f64> = (0..40).map(|t| f64::from((t * 7) % 11)).collect();
        let d = Decays::for_length(40);
        let (heads, tails) = d.heads_and_tails(&y);
        let best = |y: &[f64]| d.best(y).unwrap().rss;
        for s in [10, 20, 30] {
            assert!((heads[s] - best(&y[..s])).abs() < 1e-6);
            assert!((tails[s] - best(&y[s..])).abs() < 1e-6);
        }
    }
}
