//! Heat: one body that warms with work and cools towards the air around it, and a controller that slows
//! the device down between two temperatures. Values in model files are illustrative unless they name a source.

use crate::model::Thermal;
use crate::spread::exp;

/// Heat is brought up to date in steps of this much of the test's time, ns.
const STEP: u64 = 50_000_000;

/// A device's heat.
#[derive(Debug, Clone)]
pub struct ThermalState {
    t: Thermal,
    ambient_c: f64,
    /// °C.
    now_c: f64,
    since: u64,
    busy_ns: u64,
    throttled: bool,
}

impl ThermalState {
    /// At rest in air of `ambient_c` °C.
    pub fn new(t: Thermal, ambient_c: f64) -> Self {
        Self {
            t,
            ambient_c,
            now_c: ambient_c + t.idle_w * t.c_per_w,
            since: 0,
            busy_ns: 0,
            throttled: false,
        }
    }

    /// Takes `busy` ns of work at `at`; both stand for `times` as much. Returns what the work's time is
    /// multiplied by.
    #[inline]
    pub fn work(&mut self, at: u64, busy: u64, times: u64) -> f64 {
        self.busy_ns += busy;
        if at.saturating_sub(self.since) * times >= STEP {
            self.step(at, times);
        }
        if self.throttled { self.t.slowdown } else { 1.0 }
    }

    fn step(&mut self, at: u64, times: u64) {
        let span = (at - self.since) as f64;
        let share = (self.busy_ns as f64 / span).min(1.0);
        let watts = self.t.idle_w + (self.t.active_w - self.t.idle_w) * share;
        let end = self.ambient_c + watts * self.t.c_per_w;
        let seconds = span * times as f64 / 1e9;
        let left = exp(-(seconds / self.t.time_constant_s).min(600.0));
        self.now_c = end + (self.now_c - end) * left;
        self.throttled = if self.throttled {
            self.now_c > self.t.resume_c
        } else {
            self.now_c >= self.t.throttle_c
        };
        (self.since, self.busy_ns) = (at, 0);
    }

    /// The clock of the requests changes its pace at `at`.
    pub fn settle(&mut self, at: u64, times: u64) {
        if at > self.since {
            self.step(at, times);
        }
    }

    /// °C now, and whether the device is slowed down.
    pub fn now(&self) -> (f64, bool) {
        (self.now_c, self.throttled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> ThermalState {
        let t = Thermal {
            ambient_c: 25.0,
            idle_w: 1.0,
            active_w: 6.0,
            c_per_w: 10.0,
            time_constant_s: 60.0,
            throttle_c: 75.0,
            resume_c: 65.0,
            slowdown: 4.0,
        };
        ThermalState::new(t, t.ambient_c)
    }

    #[test]
    fn it_warms_as_an_rc_node_does_and_throttles_with_hysteresis() {
        let mut b = body();
        assert_eq!(b.now(), (35.0, false));
        // One time constant at full work: 85 - 50/e.
        let mut at = 0;
        while at < 60_000_000_000 {
            at += 10_000_000;
            b.work(at, 10_000_000, 1);
        }
        let (c, _) = b.now();
        assert!((c - (85.0 - 50.0 * (-1.0f64).exp())).abs() < 0.1, "{c}");
        let mut slowed = false;
        while at < 200_000_000_000 {
            at += 10_000_000;
            slowed |= b.work(at, 10_000_000, 1) > 1.0;
        }
        assert!(slowed);
        // Ten percent of the work cools it below the lower bound again.
        while at < 500_000_000_000 {
            at += 10_000_000;
            b.work(at, 1_000_000, 1);
        }
        assert!(!b.now().1);
    }

    #[test]
    fn moments_that_stand_for_many_warm_it_as_much() {
        let (mut all, mut sampled) = (body(), body());
        for i in 1..=6_000u64 {
            all.work(i * 10_000_000, 8_000_000, 1);
        }
        for i in 1..=6_000u64 {
            sampled.work(i * 100_000, 80_000, 100);
        }
        assert!((all.now().0 - sampled.now().0).abs() < 0.05);
    }
}
