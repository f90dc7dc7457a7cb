//! How long a used-up cache or credit needs to come back: pauses that double, each followed by the load.
//!
//! An estimate from size and base rate assumes that idle time empties a cache as fast as the base rate does. Devices
//! that wait before they tidy up, or credits that grow at a rate of their own, do otherwise: only pauses show it.

use fathom_bench::notebook::NotebookError;
use fathom_stats::regimes::Regimes;
use fathom_telemetry::Nanos;
use serde::{Deserialize, Serialize};

use super::{LOAD, ROUNDS_MAX, Steps, filled, pause};

/// Experiment name of the pauses.
const PAUSES: &str = "condition-recovery";
/// Given back: this share of the reserve.
pub(crate) const BACK: f64 = 0.95;
/// The first pause is this part of the estimate.
const FIRST: f64 = 1.0 / 8.0;
/// The burst has ended where the level has come this close to the base, as a share of the way down.
const ENDED: f64 = 0.1;

/// What pauses gave back.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// Idle time and the share of the reserve that the burst after it had again.
    pub(crate) pauses: Vec<(Nanos, f64)>,
}

impl Recovery {
    /// Idle time that gives [`BACK`] of it back, s: at least, and at most (where a pause was long enough).
    pub(crate) fn seconds(&self) -> Option<(f64, Option<f64>)> {
        let too_short = self.pauses.iter().filter(|p| p.1 < BACK);
        let least = too_short.map(|p| p.0.as_secs_f64()).fold(0.0, f64::max);
        let enough = self.pauses.iter().find(|p| p.1 >= BACK);
        (!self.pauses.is_empty()).then(|| (least, enough.map(|p| p.0.as_secs_f64())))
    }

    /// For people.
    pub(crate) fn sentence(&self) -> String {
        let seen: Vec<String> = self
            .pauses
            .iter()
            .map(|(t, share)| format!("{:.0} % after {t}", 100.0 * share))
            .collect();
        let all = match self.seconds() {
            Some((least, Some(most))) => format!("{least:.1} to {most:.1} s"),
            Some((least, None)) => format!("more than {least:.1} s"),
            None => "not measured: the time allowed was too short".into(),
        };
        if seen.is_empty() {
            all
        } else {
            format!("{all} (measured: {})", seen.join(", "))
        }
    }
}

/// Measures until a pause gave everything back or `--recovery` is spent; `load` are the load's options.
pub(super) fn measure(
    steps: &mut Steps<'_>,
    load: &[(&str, String)],
    r: &Regimes,
) -> Result<Option<Recovery>, NotebookError> {
    let o = steps.o;
    let seconds = o.round.as_secs_f64();
    if r.reserve <= 0.0 || r.base_per_second <= 0.0 {
        return Ok(None);
    }
    let mut found = Recovery::default();
    let mut idle = Nanos::from_secs_f64((FIRST * r.reserve / r.base_per_second).max(0.1));
    let mut spent = 0.0;
    // A burst that was given back in full, and a round to see its end.
    let rounds = (r.onset_seconds / seconds).ceil() as u32 + 2;
    let ended = r.base_per_second + ENDED * (r.burst_per_second - r.base_per_second);
    while spent + idle.as_secs_f64() + f64::from(rounds) * seconds <= o.recovery.as_secs_f64() {
        let number = found.pauses.len() + 1;
        let rest = pause(idle, filled(o));
        if steps
            .one(&format!("pause-{number}"), &rest, PAUSES)?
            .is_none()
        {
            break;
        }
        spent += idle.as_secs_f64();
        let mut again = 0.0;
        for round in 1..=rounds.min(ROUNDS_MAX) {
            let name = format!("after-pause-{number}-{round}");
            let Some(index) = steps.one(&name, load, LOAD)? else {
                return Ok(Some(found));
            };
            spent += seconds;
            let job = steps.runner.job(index);
            let rate: f64 = [&job.read, &job.write]
                .into_iter()
                .flatten()
                .map(|d| d.bytes_per_second)
                .sum();
            again += (rate - r.base_per_second) * seconds;
            if rate < ended {
                break;
            }
        }
        let share = (again / r.reserve).max(0.0);
        found.pauses.push((idle, share));
        if share >= BACK {
            break;
        }
        idle = Nanos(idle.0 * 2);
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pauses_showed_becomes_a_range_of_time() {
        let at = |s: &[(u64, f64)]| Recovery {
            pauses: s.iter().map(|(t, v)| (Nanos::from_secs(*t), *v)).collect(),
        };
        let found = at(&[(1, 0.1), (2, 0.4), (4, 0.97)]);
        assert_eq!(found.seconds(), Some((2.0, Some(4.0))));
        assert!(
            found
                .sentence()
                .starts_with("2.0 to 4.0 s (measured: 10 % after")
        );
        assert_eq!(at(&[(1, 0.1)]).seconds(), Some((1.0, None)));
        assert!(at(&[]).sentence().contains("too short"));
    }
}
