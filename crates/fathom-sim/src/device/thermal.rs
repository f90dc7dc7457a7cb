//! Heat: one node with a resistance to the air and a time constant; throttling with hysteresis.

use super::Lapse;
use crate::math::{exp, ln};
use crate::model::Thermal;

#[derive(Debug, Clone)]
pub(super) struct Heat {
    idle_c: f64,
    full_c: f64,
    time_constant: f64,
    throttle: f64,
    resume: f64,
    critical: f64,
    /// 2¹⁶ over the share of full speed.
    slow_down: u64,
    temperature: f64,
    slowed: bool,
    count: u64,
    /// Slow clock of the last step, ns.
    stepped: u64,
    /// Next step, so that most requests only compare.
    next: u64,
    /// Work done since, ns at full speed.
    work: u64,
}

impl Heat {
    pub(super) fn new(t: &Thermal, airflow: bool) -> Self {
        let r = if airflow {
            t.resistance_c_per_w
        } else {
            t.low_airflow_c_per_w
        };
        let idle_c = t.ambient_c + t.idle_w * r;
        Self {
            idle_c,
            full_c: t.ambient_c + t.active_w * r,
            time_constant: t.time_constant_s * 1e9,
            throttle: t.throttle_c,
            resume: t.resume_c,
            critical: t.critical_c,
            slow_down: (65536.0 / t.throttle_factor) as u64,
            temperature: idle_c,
            slowed: false,
            count: 0,
            stepped: 0,
            next: 0,
            work: 0,
        }
    }

    pub(super) fn temperature(&self) -> f64 {
        self.temperature
    }

    pub(super) fn throttled(&self) -> u64 {
        self.count
    }

    /// A command of `ns` begins at `at`: how long it is held back, and what it takes.
    #[inline]
    pub(super) fn pass(&mut self, lapse: &Lapse, at: u64, ns: u64) -> (u64, u64) {
        let mut paused = 0;
        if at >= self.next {
            paused = self.step(lapse, at);
        }
        self.work += ns;
        if self.slowed {
            (paused, (ns * self.slow_down) >> 16)
        } else {
            (paused, ns)
        }
    }

    /// Warms or cools up to now; returns the pause of a device that is too hot.
    #[cold]
    fn step(&mut self, lapse: &Lapse, at: u64) -> u64 {
        let now = lapse.slow(at);
        let dt = now.saturating_sub(self.stepped) as f64;
        if dt > 0.0 {
            let load = (self.work as f64 * lapse.factor as f64 / dt).min(1.0);
            let target = self.idle_c + (self.full_c - self.idle_c) * load;
            self.temperature = target + (self.temperature - target) * exp(-dt / self.time_constant);
        }
        self.stepped = now;
        self.work = 0;
        let step = (self.time_constant / 400.0 / lapse.factor as f64) as u64;
        self.next = at + step.max(1);
        if self.temperature >= self.throttle && !self.slowed {
            self.slowed = true;
            self.count += 1;
        }
        if self.temperature < self.resume {
            self.slowed = false;
        }
        if self.temperature < self.critical || self.idle_c >= self.resume {
            return 0;
        }
        // Idle until it has cooled to where it resumes.
        let ratio = (self.temperature - self.idle_c) / (self.resume - self.idle_c);
        let pause = self.time_constant * ln(ratio);
        self.temperature = self.resume;
        self.slowed = false;
        self.stepped = now + pause as u64;
        let pause = (pause / lapse.factor as f64) as u64;
        self.next = at + pause + step.max(1);
        pause
    }
}
