//! Arithmetic that gives the same bits on every machine.
//!
//! `ln` and `exp` of the standard library come from the platform; these use only
//! IEEE-754 additions, multiplications and divisions, in a fixed order.

/// Natural logarithm of a positive number; relative error below 10⁻¹⁴.
pub fn ln(x: f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return if x == 0.0 {
            f64::NEG_INFINITY
        } else {
            f64::NAN
        };
    }
    let (mut m, mut e) = (x, 0i32);
    while m > std::f64::consts::SQRT_2 {
        m *= 0.5;
        e += 1;
    }
    while m < std::f64::consts::FRAC_1_SQRT_2 {
        m *= 2.0;
        e -= 1;
    }
    // ln m = 2 atanh((m − 1)/(m + 1))
    let z = (m - 1.0) / (m + 1.0);
    let z2 = z * z;
    let mut sum = 0.0;
    for k in (0..14).rev() {
        sum = sum * z2 + 1.0 / f64::from(2 * k + 1);
    }
    f64::from(e) * std::f64::consts::LN_2 + 2.0 * z * sum
}

/// e to the x; relative error below 10⁻¹³ for |x| below 700.
pub fn exp(x: f64) -> f64 {
    let n = (x / std::f64::consts::LN_2).round();
    let r = x - n * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..18).rev() {
        sum = 1.0 + r / f64::from(k) * sum;
    }
    let mut scale = 1.0;
    let step = if n < 0.0 { 0.5 } else { 2.0 };
    for _ in 0..(n.abs() as u32).min(1100) {
        scale *= step;
    }
    sum * scale
}

/// The principal branch of Lambert's W for −1/e ≤ x ≤ 0: w with w·eʷ = x, −1 ≤ w ≤ 0.
pub fn lambert_w0(x: f64) -> f64 {
    let (mut low, mut high) = (-1.0, 0.0);
    for _ in 0..80 {
        let w = 0.5 * (low + high);
        if w * exp(w) < x {
            low = w;
        } else {
            high = w;
        }
    }
    0.5 * (low + high)
}

/// Write amplification in steady state under uniform random writes, for physical over valid space
/// α > 1 (Desnoyers 2012, Xiang and Kurkoski 2012): α / (α + W₀(−α·e^−α)).
pub fn write_amplification(alpha: f64) -> f64 {
    if alpha > 50.0 {
        return 1.0;
    }
    let alpha = alpha.max(1.001);
    alpha / (alpha + lambert_w0(-alpha * exp(-alpha)))
}

/// The α at which [`write_amplification`] gives `wa` ≥ 1.
pub fn alpha_for(wa: f64) -> f64 {
    let (mut low, mut high) = (1.001, 50.0);
    for _ in 0..60 {
        let mid = 0.5 * (low + high);
        if write_amplification(mid) > wa {
            low = mid;
        } else {
            high = mid;
        }
    }
    0.5 * (low + high)
}

const SLICES: usize = 1024;
const ONE: f64 = (1u64 << 20) as f64;

/// Random factors with mean 1 and a given coefficient of variation, as 1024 equally likely values.
/// Up to 1 they are a constant plus an exponential; above, a power of an exponential (Weibull).
#[derive(Debug, Clone)]
pub struct Noise(Option<Box<[u32; SLICES]>>);

impl Noise {
    /// For a coefficient of variation ≥ 0; 0 gives the constant 1.
    pub fn new(variation: f64) -> Self {
        if variation <= 0.0 {
            return Self(None);
        }
        let unit: Vec<f64> = (0..SLICES)
            .map(|i| -ln(1.0 - (i as f64 + 0.5) / SLICES as f64))
            .collect();
        let shaped = if variation <= 1.0 {
            let (_, spread) = moments(&unit);
            let mean = moments(&unit).0;
            unit.iter()
                .map(|u| 1.0 + (u - mean) * variation / spread)
                .map(|u| u.max(0.0))
                .collect()
        } else {
            let power = |a: f64| -> Vec<f64> {
                let v: Vec<f64> = unit.iter().map(|u| exp(a * ln(*u))).collect();
                let mean = moments(&v).0;
                v.iter().map(|x| x / mean).collect()
            };
            let (mut low, mut high) = (1.0, 4.0);
            for _ in 0..40 {
                let mid = 0.5 * (low + high);
                if moments(&power(mid)).1 < variation {
                    low = mid;
                } else {
                    high = mid;
                }
            }
            power(0.5 * (low + high))
        };
        let table: Vec<u32> = shaped
            .iter()
            .map(|x: &f64| (x * ONE).round() as u32)
            .collect();
        Self(table.into_boxed_slice().try_into().ok())
    }

    /// Scales `ns` by the factor that ten random `bits` choose.
    #[inline]
    pub fn scale(&self, ns: u64, bits: u64) -> u64 {
        match &self.0 {
            None => ns,
            Some(t) => (ns * u64::from(t[bits as usize & (SLICES - 1)]) + (1 << 19)) >> 20,
        }
    }
}

/// Mean and coefficient of variation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    (mean, square.sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_the_platform() {
        for i in 1..2000 {
            let x = f64::from(i) * 0.37;
            assert!((ln(x) - x.ln()).abs() < 1e-12, "{x}");
            let y = f64::from(i - 1000) * 0.05;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-11, "{y}");
        }
    }

    #[test]
    fn write_amplification_falls_with_spare_space_and_inverts() {
        // Known value: α = 1.25 (20 % of the cells spare) gives about 2.7.
        let wa = write_amplification(1.25);
        assert!((2.5..2.9).contains(&wa), "{wa}");
        assert!(write_amplification(1.07) > 2.0 * wa);
        for target in [1.5, 3.0, 7.1] {
            assert!((write_amplification(alpha_for(target)) - target).abs() < 1e-6);
        }
    }

    #[test]
    fn noise_has_the_mean_and_variation_asked_for() {
        for cv in [0.05, 0.4, 0.6, 1.0, 1.2, 2.0] {
            let noise = Noise::new(cv);
            let seen: Vec<f64> = (0..1024)
                .map(|b| noise.scale(1_000_000, b) as f64 / 1e6)
                .collect();
            let (mean, spread) = moments(&seen);
            assert!((mean - 1.0).abs() < 1e-3, "cv {cv}: mean {mean}");
            assert!((spread / cv - 1.0).abs() < 0.01, "cv {cv}: {spread}");
        }
        assert_eq!(Noise::new(0.0).scale(77, 5), 77);
    }
}
