//! fio's steady state: a job ends when its last samples deviate, or drift, no more than was asked for.

use std::collections::VecDeque;

use fathom_telemetry::{Nanos, Window};

use crate::FioError;
use crate::options::value;
use crate::section::Section;

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Iops,
    Bandwidth,
    Latency,
}

/// The question and the samples that answer it.
#[derive(Debug, Clone)]
pub struct Steady {
    what: What,
    slope: bool,
    limit: f64,
    percent: bool,
    pub(crate) duration: Nanos,
    ramp: Nanos,
    interval: Nanos,
    covered: Nanos,
    ios: u64,
    bytes: u64,
    latency: (u128, u64),
    /// IOPS, bytes per second and ns of the last intervals.
    pub(crate) samples: VecDeque<[f64; 3]>,
    /// Whether it was reached.
    pub attained: bool,
    pub(crate) criterion: f64,
    pub(crate) deviation: f64,
    pub(crate) drift: f64,
}

impl Steady {
    pub(crate) fn of(s: &Section) -> Result<Option<Self>, FioError> {
        let Some(text) = s.text("steadystate") else {
            return Ok(None);
        };
        let duration = Nanos(s.nanos("steadystate_duration").unwrap_or(0));
        if duration == Nanos::ZERO {
            return Ok(None);
        }
        let (word, limit) = text.split_once(':').unwrap_or((text, ""));
        let what = match word.trim_end_matches("_slope") {
            "iops" => What::Iops,
            "bw" => What::Bandwidth,
            _ => What::Latency,
        };
        let limit_value = value::float(limit)
            .ok_or_else(|| s.invalid("steadystate", "a threshold is needed, such as iops:5%"))?;
        let interval = Nanos(s.nanos("steadystate_check_interval").unwrap_or(0));
        Ok(Some(Self {
            what,
            slope: word.ends_with("_slope"),
            limit: limit_value,
            percent: limit.contains('%'),
            duration,
            ramp: Nanos(s.nanos("steadystate_ramp_time").unwrap_or(0)),
            interval: if interval == Nanos::ZERO {
                Nanos::from_secs(1)
            } else {
                interval
            },
            covered: Nanos::ZERO,
            ios: 0,
            bytes: 0,
            latency: (0, 0),
            samples: VecDeque::new(),
            attained: false,
            criterion: 0.0,
            deviation: 0.0,
            drift: 0.0,
        }))
    }

    /// What is judged, in fio's word.
    pub(crate) fn word(&self) -> &'static str {
        match self.what {
            What::Iops => "iops",
            What::Bandwidth => "bw",
            What::Latency => "lat",
        }
    }
    pub(crate) fn is_slope(&self) -> bool {
        self.slope
    }
    /// How it was asked for, with fio's figures.
    pub(crate) fn text(&self) -> String {
        let what = self.word();
        let slope = if self.slope { "_slope" } else { "" };
        format!("{what}{slope}:{:.6}{}", self.limit, self.unit())
    }
    pub(crate) fn unit(&self) -> &'static str {
        if self.percent { "%" } else { "" }
    }
    pub(crate) fn judges_latency(&self) -> bool {
        self.what == What::Latency
    }
    /// Samples that answer it.
    pub(crate) fn wanted(&self) -> usize {
        (self.duration.0 / self.interval.0).max(1) as usize
    }

    /// Mean of IOPS (0), bytes per second (1) or ns (2).
    pub(crate) fn mean(&self, which: usize) -> f64 {
        let n = self.wanted() as f64;
        self.samples.iter().map(|s| s[which]).sum::<f64>() / n
    }

    /// Takes a closed window; whether the job may end.
    pub fn window(&mut self, start_ns: i64, width: Nanos, window: &Window) -> bool {
        if self.attained || start_ns < i64::try_from(self.ramp.0).unwrap_or(i64::MAX) {
            return self.attained;
        }
        self.covered += width;
        for d in window.directions.iter().take(3).flatten() {
            self.ios += d.ios;
            self.bytes += d.bytes;
            self.latency.0 += d.response.moments.sum;
            self.latency.1 += d.response.moments.count;
        }
        if self.covered < self.interval {
            return false;
        }
        let seconds = self.covered.as_secs_f64();
        self.samples.push_back([
            self.ios as f64 / seconds,
            self.bytes as f64 / seconds,
            self.latency.0 as f64 / self.latency.1.max(1) as f64,
        ]);
        (self.covered, self.ios, self.bytes, self.latency) = (Nanos::ZERO, 0, 0, (0, 0));
        let wanted = self.wanted();
        while self.samples.len() > wanted {
            self.samples.pop_front();
        }
        if self.samples.len() == wanted {
            self.judge();
        }
        self.attained
    }

    fn judge(&mut self) {
        let which = match self.what {
            What::Iops => 0,
            What::Bandwidth => 1,
            What::Latency => 2,
        };
        let n = self.samples.len() as f64;
        let mean = self.mean(which);
        self.deviation = self
            .samples
            .iter()
            .map(|s| (s[which] - mean).abs())
            .fold(0.0, f64::max);
        let middle = (n - 1.0) / 2.0;
        let (mut xy, mut xx) = (0.0, 0.0);
        for (i, s) in self.samples.iter().enumerate() {
            let x = i as f64 - middle;
            xy += x * (s[which] - mean);
            xx += x * x;
        }
        self.drift = if xx > 0.0 { xy / xx } else { 0.0 };
        let value = if self.slope {
            self.drift
        } else {
            self.deviation
        };
        self.criterion = if self.percent {
            100.0 * value / mean.max(f64::MIN_POSITIVE)
        } else {
            value
        };
        self.attained = self.criterion.abs() < self.limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(text: &str) -> Steady {
        let dir = "[a]\nsteadystate=X\nsteadystate_duration=5\n".replace('X', text);
        let mut script = crate::Script::default();
        crate::jobfile::parse_text(&mut script, &dir, std::path::Path::new("x"), &[]).unwrap();
        Steady::of(&script.sections[0]).unwrap().unwrap()
    }

    #[test]
    fn deviation_and_slope_are_judged_as_fio_does() {
        let mut flat = steady("iops:5%");
        flat.samples = [100.0, 102.0, 98.0, 101.0, 99.0].map(|v| [v, v, v]).into();
        flat.judge();
        assert!(flat.attained && (flat.criterion - 2.0).abs() < 1e-9);
        let mut rising = steady("iops_slope:0.3%");
        rising.samples = [100.0, 101.0, 102.0, 103.0, 104.0]
            .map(|v| [v, v, v])
            .into();
        rising.judge();
        assert!(!rising.attained && (rising.drift - 1.0).abs() < 1e-9);
        assert_eq!(rising.text(), "iops_slope:0.300000%");
    }
}
