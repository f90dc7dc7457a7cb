//! A level that is flat, drifts, or dies down towards a base: shapes and fits.
//!
//! The model is y = b + c·k(t), where k is an exponential e^(−t/τ), a power (1 + t/τ)^−p, a logarithm, or a straight
//! line.

/// How a curve of amplitude 1 runs from the segment's first value on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// ratio^t: e^(−t/τ).
    Exponential { ratio: f64 },
    /// (1 + t/τ)^−p; p = 0 is −ln(1 + t/τ).
    Power { tau: f64, p: f64 },
}

impl Shape {
    /// e^(−t/τ).
    pub(crate) fn of_tau(tau: f64) -> Self {
        Self::Exponential {
            ratio: (-1.0 / tau).exp(),
        }
    }

    pub(crate) fn at(self, t: f64) -> f64 {
        match self {
            Self::Exponential { ratio } => ratio.powf(t),
            Self::Power { tau, p: 0.0 } => -(1.0 + t / tau).ln(),
            Self::Power { tau, p } => (1.0 + t / tau).powf(-p),
        }
    }
}

/// The curves that are tried.
pub(crate) struct Decays {
    /// Each with its values at 0, 1, 2…
    shapes: Vec<(Shape, Vec<f64>)>,
}

/// Least squares of one shape over one segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    shape: Shape,
    /// b.
    base: f64,
    /// c.
    amplitude: f64,
    /// Squared residuals.
    pub(crate) rss: f64,
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
    /// A value `v` where the shape is at `k`.
    fn add(&mut self, v: f64, k: f64) {
        self.n += 1.0;
        self.y += v;
        self.yy += v * v;
        self.k += k;
        self.kk += k * k;
        self.ky += k * v;
    }

    /// Squared residuals of a segment. Short ones may only be flat: a curve through five points explains anything.
    fn rss(&self, shape: Shape) -> f64 {
        if self.n < f64::from(SHORTEST_CURVE as u32) {
            (self.yy - self.y * self.y / self.n).max(0.0)
        } else {
            self.fit(shape).rss
        }
    }

    fn fit(&self, shape: Shape) -> Fit {
        let spread = (self.kk - self.k * self.k / self.n).max(0.0);
        let cross = self.ky - self.k * self.y / self.n;
        let total = (self.yy - self.y * self.y / self.n).max(0.0);
        let amplitude = if spread > 1e-9 * self.kk {
            cross / spread
        } else {
            0.0
        };
        Fit {
            shape,
            base: (self.y - amplitude * self.k) / self.n,
            amplitude,
            rss: (total - amplitude * cross).max(0.0),
        }
    }
}

impl Fit {
    /// The level `t` rounds after the segment's first value.
    pub(crate) fn at(&self, t: f64) -> f64 {
        self.base + self.amplitude * self.shape.at(t)
    }
}

impl Decays {
    /// For series of up to `n` values.
    pub(crate) fn for_length(n: usize) -> Self {
        const STEPS: usize = 40;
        let longest = 50.0 * n.max(2) as f64;
        let exponentials = (0..STEPS)
            .map(|i| {
                // Dense up to the length of the series, where shapes differ; then only the line.
                // Below two rounds a curve would only follow a single outlier.
                2.0 * (2.0 * n as f64).powf(i as f64 / (STEPS - 1) as f64)
            })
            .chain([longest])
            .map(|tau| Shape::Exponential {
                ratio: (-1.0 / tau).exp(),
            });
        let steps = (n.max(2) as f64).log2().ceil() as i32;
        let powers = (0..=steps).flat_map(|i| {
            let tau = 2.0_f64.powi(i);
            [0.0, 0.4, 1.0, 2.0].map(|p| Shape::Power { tau, p })
        });
        Self {
            shapes: exponentials
                .chain(powers)
                .map(|s| (s, (0..n).map(|t| s.at(t as f64)).collect()))
                .collect(),
        }
    }

    /// Squared residuals of the best fit to every head `y[..s]` (index s) and every tail `y[s..]`.
    pub(crate) fn heads_and_tails(&self, y: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let n = y.len();
        let (mut heads, mut tails) = (vec![0.0; n + 1], vec![0.0; n + 1]);
        for (which, (shape, values)) in self.shapes.iter().enumerate() {
            let mut s = Sums::default();
            for (i, (v, k)) in y.iter().zip(values).enumerate() {
                s.add(*v, *k);
                let rss = s.rss(*shape);
                if which == 0 || rss < heads[i + 1] {
                    heads[i + 1] = rss;
                }
            }
            // Tails begin anew; powers of a later beginning are much like exponentials.
            let Shape::Exponential { ratio } = *shape else {
                continue;
            };
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
                let rss = s.rss(*shape);
                if which == 0 || rss < tails[i] {
                    tails[i] = rss;
                }
            }
        }
        (heads, tails)
    }

    /// The best fit to a segment of at most the length that the shapes were made for.
    pub(crate) fn best(&self, y: &[f64]) -> Option<Fit> {
        self.shapes
            .iter()
            .map(|(shape, values)| {
                let mut s = Sums::default();
                for (v, k) in y.iter().zip(values) {
                    s.add(*v, *k);
                }
                s.fit(*shape)
            })
            .min_by(|a, b| a.rss.total_cmp(&b.rss))
    }
}

/// Segments below this are fitted by a flat line only.
pub(crate) const SHORTEST_CURVE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decay_and_a_power_law_are_fitted() {
        let d = Decays::for_length(60);
        for level in [
            |t: f64| 0.3 + 0.7 * (-t / 20.0).exp(),
            |t: f64| (1.0 + t).powf(-0.4),
        ] {
            let y: Vec<f64> = (0..60).map(|t| level(f64::from(t))).collect();
            let fit = d.best(&y).unwrap();
            assert!((fit.at(59.0) - level(59.0)).abs() < 0.005, "{fit:?}");
        }
    }

    #[test]
    fn heads_and_tails_are_what_fits_of_the_parts_give() {
        let y: Vec<f64> = (0..40).map(|t| f64::from((t * 7) % 11)).collect();
        let d = Decays::for_length(40);
        let (heads, tails) = d.heads_and_tails(&y);
        let best = |y: &[f64]| d.best(y).unwrap().rss;
        for s in [10, 20, 30] {
            assert!((heads[s] - best(&y[..s])).abs() < 1e-6);
            // Tails are not tried as powers.
            assert!(tails[s] > best(&y[s..]) - 1e-6);
        }
    }
}
