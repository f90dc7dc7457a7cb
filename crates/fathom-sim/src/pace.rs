//! Two clocks: that of the requests that are simulated, and that of the test they stand for.
//!
//! A sampled run simulates one moment in N and lets heat, wear, free space and buffers move N times as
//! fast meanwhile, so that they are where the whole test would have brought them.

/// How the test's clock follows that of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    from: u64,
    test: u64,
    times: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            from: 0,
            test: 0,
            times: 1,
        }
    }
}

impl Pace {
    /// The test's time at `at`, ns.
    #[inline]
    pub fn test(&self, at: u64) -> u64 {
        self.test + at.saturating_sub(self.from) * self.times
    }

    /// The requests' time at which the test's clock reads `test`, ns.
    #[inline]
    pub fn request(&self, test: u64) -> u64 {
        self.from + test.saturating_sub(self.test).div_ceil(self.times)
    }

    /// How many moments each one stands for; 1 where nothing is left out.
    #[inline]
    pub fn times(&self) -> u64 {
        self.times
    }

    /// From `at` on each moment stands for `times`.
    pub fn change(&mut self, at: u64, times: u64) {
        let at = at.max(self.from);
        *self = Self {
            test: self.test(at),
            from: at,
            times: times.max(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_clock_runs_faster_while_moments_are_left_out() {
        let mut p = Pace::default();
        p.change(1_000, 10);
        assert_eq!((p.test(1_000), p.test(1_500)), (1_000, 6_000));
        assert_eq!(p.request(6_000), 1_500);
        p.change(2_000, 1);
        assert_eq!(p.test(2_100), 11_100);
    }
}
