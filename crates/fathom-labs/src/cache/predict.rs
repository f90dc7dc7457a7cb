//! What a cached share gives: eq. 1 with the depth that the misses of several threads reach, and the processors' limit.

use fathom_sim::analytic::cached_latency;

/// What a prediction rests on, ns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Costs {
    /// t_load: a request that the cache answers.
    pub(super) load: f64,
    /// What the engine spends on a miss beyond that, without the device.
    pub(super) extra: f64,
    /// t_io by depth, shallowest first; never empty.
    pub(super) io: Vec<(u32, f64)>,
    /// Threads, each with one request at a time.
    pub(super) threads: u32,
    /// Processors that they share.
    pub(super) cores: Option<f64>,
}

/// What one cached share is expected to give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Predicted {
    /// Mean latency of a request, ns.
    pub(super) latency: f64,
    /// Requests per second.
    pub(super) rate: f64,
}

impl Costs {
    /// With this share of requests answered by the cache.
    pub(super) fn at(&self, hits: f64) -> Predicted {
        let miss = (1.0 - hits).clamp(0.0, 1.0);
        let threads = f64::from(self.threads);
        let mut depth = threads;
        let mut latency = self.load;
        // Deeper queues make misses slower, slower misses make queues deeper: the middle of the two converges.
        for _ in 0..60 {
            let io = self.io_at(depth);
            latency = cached_latency(hits, io + self.extra + self.load, self.load);
            let outstanding = threads * miss * io / latency.max(1.0);
            depth = 0.5 * (depth + outstanding);
        }
        let busy = self.load + miss * self.extra;
        let least = self.cores.map_or(0.0, |c| busy * threads / c);
        let latency = latency.max(least).max(1.0);
        Predicted {
            latency,
            rate: threads / latency * 1e9,
        }
    }

    /// Latency at a depth between those measured: a line over the depth's logarithm.
    fn io_at(&self, depth: f64) -> f64 {
        let x = |d: u32| f64::from(d).ln();
        let at = depth.max(1.0).ln();
        let next = self.io.iter().position(|d| x(d.0) >= at);
        match next {
            Some(0) => self.io[0].1,
            Some(i) => {
                let (a, b) = (self.io[i - 1], self.io[i]);
                a.1 + (b.1 - a.1) * (at - x(a.0)) / (x(b.0) - x(a.0))
            }
            None => self.io.last().map_or(0.0, |d| d.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(threads: u32) -> Costs {
        Costs {
            load: 1_000.0,
            extra: 500.0,
            io: vec![(1, 100_000.0), (4, 120_000.0), (16, 240_000.0)],
            threads,
            cores: Some(2.0),
        }
    }

    #[test]
    fn one_thread_is_the_paper_s_equation() {
        let p = costs(1).at(0.9);
        assert!(
            (p.latency - (0.1 * 101_500.0 + 0.9 * 1_000.0)).abs() < 1.0,
            "{p:?}"
        );
        assert!((p.rate * p.latency - 1e9).abs() < 1.0);
    }

    #[test]
    fn misses_of_many_threads_meet_at_the_device_and_hits_at_the_processors() {
        // All misses: sixteen outstanding all the time.
        let p = costs(16).at(0.0);
        assert!((p.latency - 241_000.0).abs() < 2_000.0, "{p:?}");
        // All hits: sixteen threads on two processors.
        let p = costs(16).at(1.0);
        assert!((p.rate - 2e6).abs() < 1.0, "{p:?}");
        // Between: fewer outstanding than threads, so faster than at full depth.
        let p = costs(16).at(0.99);
        assert!(p.latency < 0.01 * 241_500.0 + 8_000.0, "{p:?}");
    }
}
