//! Kolmogorov-Smirnov: does a sample follow a distribution?

/// Largest distance between the empirical distribution of `samples` (sorted here) and `cdf`.
pub fn ks_distance(samples: &mut [f64], cdf: impl Fn(f64) -> f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    samples
        .iter()
        .enumerate()
        .map(|(i, x)| {
            let f = cdf(*x);
            (f - i as f64 / n).abs().max(((i + 1) as f64 / n - f).abs())
        })
        .fold(0.0, f64::max)
}

/// Probability of a distance at least this large if the sample does follow the distribution
/// (Kolmogorov's limit with Stephens' correction for finite samples).
pub fn ks_p_value(distance: f64, samples: usize) -> f64 {
    let root = (samples as f64).sqrt();
    let t = (root + 0.12 + 0.11 / root) * distance;
    if t < 0.2 {
        return 1.0;
    }
    let sum: f64 = (1..=100)
        .map(|k| {
            let k = f64::from(k);
            (if k as u32 % 2 == 1 { 2.0 } else { -2.0 }) * (-2.0 * k * k * t * t).exp()
        })
        .sum();
    sum.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_grid_is_uniform_and_a_squared_one_is_not() {
        let mut grid: Vec<f64> = (0..1000).map(|i| (f64::from(i) + 0.5) / 1000.0).collect();
        let d = ks_distance(&mut grid, |x| x);
        assert!((d - 0.0005).abs() < 1e-9 && ks_p_value(d, 1000) > 0.99);
        let mut squared: Vec<f64> = grid.iter().map(|x| x * x).collect();
        let d = ks_distance(&mut squared, |x| x);
        assert!((d - 0.25).abs() < 0.01 && ks_p_value(d, 1000) < 1e-6);
    }

    #[test]
    fn the_critical_value_at_five_percent_is_the_table_one() {
        // 1.36 / sqrt(n) for large n.
        assert!((ks_p_value(1.358 / 1000f64.sqrt(), 1000) - 0.05).abs() < 0.003);
    }
}
