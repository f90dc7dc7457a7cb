//! What the drive says of itself before and after a run, and what of that its numbers must be read with.

use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_host::health::latency::Latency;
use fathom_host::{Health, HostRoot};
use fathom_telemetry::schema::Finding;
use fathom_telemetry::{Flag, FlagCode};
use serde::{Deserialize, Serialize};

/// Rated endurance that is used, percent, from which it is worth a sentence.
const WORN: f64 = 80.0;

/// A reading of a drive.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Kernel name of the disk.
    pub disk: String,
    /// Temperature, °C.
    pub celsius: Option<f64>,
    /// Power state: 0 is the fastest.
    pub power_state: Option<u8>,
    /// Whether a volatile write cache is on.
    pub cache_on: Option<bool>,
    /// Times that it slowed itself down because of its temperature, and for how many seconds.
    pub throttled: [Option<u64>; 2],
    /// Minutes above its warning temperature.
    pub hot_minutes: Option<u64>,
    /// Data that was lost or could not be corrected: occurrences.
    pub media_errors: Option<u64>,
    /// Rated endurance that is used, percent.
    pub used_percent: Option<f64>,
    /// Commands that it was slow with, by its own clock.
    #[serde(default)]
    pub latency: Option<Latency>,
}

impl Reading {
    /// Asks a disk of this machine, which must not be under load; `None` where it says nothing.
    pub fn of(disk: &str) -> Option<Self> {
        // Many bridges take such commands badly.
        let place = std::fs::canonicalize(format!("/sys/block/{disk}")).ok()?;
        if place
            .components()
            .any(|c| c.as_os_str().as_encoded_bytes().starts_with(b"usb"))
        {
            return None;
        }
        let health = fathom_host::health::read(&HostRoot::real(), disk);
        (health.sources.iter().any(|s| *s != "hwmon")).then(|| Self::from(&health))
    }
}

impl From<&Health> for Reading {
    fn from(h: &Health) -> Self {
        Self {
            disk: h.disk.clone(),
            celsius: h.celsius,
            power_state: h.power_state,
            cache_on: h.cache_on,
            throttled: [h.throttled, h.throttled_seconds],
            hot_minutes: h.hot_minutes,
            media_errors: h.media_errors,
            used_percent: h.used_percent,
            latency: h.latency.clone(),
        }
    }
}

/// The drive before and after a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveResult {
    /// Before.
    pub before: Reading,
    /// After.
    pub after: Reading,
}

impl DriveResult {
    fn grew(&self, of: impl Fn(&Reading) -> Option<u64>) -> u64 {
        let ends = of(&self.after).zip(of(&self.before));
        // A counter that fell is another drive's, or was reset.
        ends.map_or(0, |(now, then)| now.saturating_sub(then))
    }

    /// What stands against the run's numbers.
    pub fn flags(&self) -> Vec<Flag> {
        let flag = |detail: String, remedy| Flag::new(FlagCode::DeviceWarning, detail, remedy);
        let told = self.told().into_iter().filter(|t| t.against);
        told.map(|t| flag(t.text, t.advice)).collect()
    }

    fn told(&self) -> Vec<Told> {
        let (disk, after) = (&self.after.disk, &self.after);
        let mut all = Vec::new();
        let throttled = self.grew(|r| r.throttled[0]);
        let seconds = self.grew(|r| r.throttled[1]);
        if throttled + seconds > 0 {
            let times = match throttled {
                0 => String::new(),
                1 => " once".to_owned(),
                2 => " twice".to_owned(),
                n => format!(" {n} times"),
            };
            let long = match seconds {
                0 => String::new(),
                s => format!(", {s} s in all"),
            };
            let warm = after
                .celsius
                .map_or_else(String::new, |c| format!("; it is {c:.0} °C warm"));
            all.push(Told {
                id: "drive-throttled",
                text: format!(
                    "{disk} slowed itself down{times} in the run because of its temperature{long}{warm}"
                ),
                advice: "cool it, or take these numbers for those of a hot drive",
                against: true,
            });
        }
        let errors = self.grew(|r| r.media_errors);
        if errors > 0 {
            all.push(Told {
                id: "drive-media-errors",
                text: format!("media errors of {disk} grew by {errors} during the run"),
                advice: "save what is on it, and replace it",
                against: true,
            });
        }
        all.extend(self.slow());
        let states = [self.before.power_state, after.power_state];
        if let Some(n) = states.into_iter().flatten().max().filter(|n| *n > 0) {
            all.push(Told {
                id: "drive-power-state",
                text: format!("{disk} was in power state {n}, which is slower than state 0"),
                advice: "set state 0 (nvme set-feature -f 2 -V 0), and measure again",
                against: true,
            });
        }
        if let Some(used) = after.used_percent.filter(|u| *u >= WORN) {
            all.push(Told {
                id: "drive-worn",
                text: format!("{used:.0} % of the rated endurance of {disk} is used"),
                advice: "plan its replacement",
                against: false,
            });
        }
        all
    }

    /// The slowest commands of the run by the drive's own clock: what no software above it can be blamed for.
    fn slow(&self) -> Option<Told> {
        let (before, after) = (self.before.latency.as_ref()?, self.after.latency.as_ref()?);
        let buckets = before.buckets.iter().zip(&after.buckets);
        let parts: Vec<String> = buckets
            .filter(|(then, now)| then.from_ms == now.from_ms)
            .flat_map(|(then, now)| {
                let kinds = now.kinds().into_iter().zip(then.kinds());
                kinds.filter_map(|((kind, n), (_, t))| {
                    let grown = n.count.saturating_sub(t.count);
                    (grown > 0).then(|| format!("{grown} {kind} of {} ms or more", now.from_ms))
                })
            })
            .collect();
        (!parts.is_empty()).then(|| Told {
            id: "drive-slow",
            text: format!(
                "{} itself counted in the run: {}",
                self.after.disk,
                parts.join(", ")
            ),
            advice: "look for these in the tail: they are the drive's, not the software's",
            against: false,
        })
    }

    /// That writes were not durable when they were answered, of a run that wrote.
    fn cached(&self) -> Option<Told> {
        (self.after.cache_on == Some(true)).then(|| Told {
            id: "drive-cache",
            text: format!(
                "the volatile write cache of {} is on: writes are durable after a flush only",
                self.after.disk
            ),
            advice: "for durable writes measure with --fsync or --fdatasync",
            against: false,
        })
    }
}

/// A sentence, what to do, and whether it stands against the numbers.
struct Told {
    id: &'static str,
    text: String,
    advice: &'static str,
    against: bool,
}

impl ExperimentResult for DriveResult {
    const EXPERIMENT: &'static str = "drive";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let mut all = self.told();
        if evidence.run().jobs.iter().any(|j| j.write.is_some()) {
            all.extend(self.cached());
        }
        shown.findings.extend(all.into_iter().map(|t| Finding {
            id: t.id.into(),
            text: format!("{}.", t.text),
            advice: format!("{}.", t.advice),
            confidence: "strong".into(),
            refuted_by:
                "The drive's own log, read before and after another run (fathom devices).".into(),
            ..Finding::default()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_host::health::latency::{Bucket, Slow};

    fn reading() -> Reading {
        Reading {
            disk: "nvme0n1".into(),
            celsius: Some(81.2),
            power_state: Some(0),
            cache_on: Some(false),
            throttled: [Some(4), Some(100)],
            hot_minutes: Some(1),
            media_errors: Some(7),
            used_percent: Some(12.0),
            latency: None,
        }
    }

    fn texts(before: &Reading, after: &Reading) -> Vec<String> {
        let d = DriveResult {
            before: before.clone(),
            after: after.clone(),
        };
        let flags = d.flags();
        assert!(flags.iter().all(|f| f.code == FlagCode::DeviceWarning));
        assert_eq!(flags.len(), d.told().iter().filter(|t| t.against).count());
        d.told().into_iter().map(|t| t.text).collect()
    }

    #[test]
    fn what_grew_in_the_run_is_said_and_what_was_there_before_is_not() {
        let (before, mut after) = (reading(), reading());
        assert_eq!(texts(&before, &after), [""; 0]);
        after.throttled = [Some(6), Some(112)];
        after.media_errors = Some(10);
        let all = texts(&before, &after);
        assert_eq!(
            all,
            [
                "nvme0n1 slowed itself down twice in the run because of its temperature, 12 s in all; it is 81 °C warm",
                "media errors of nvme0n1 grew by 3 during the run",
            ]
        );
        // Another drive under the same name, or one that says nothing.
        assert_eq!(texts(&after, &before), [""; 0]);
        after.throttled = [None, None];
        after.media_errors = None;
        assert_eq!(texts(&before, &after), [""; 0]);
    }

    #[test]
    fn slow_commands_are_those_of_the_run() {
        let slow = |count| Slow {
            count,
            longest_ms: None,
        };
        let with = |reads: u32| {
            let bucket = |from_ms, reads| Bucket {
                from_ms,
                reads: slow(reads),
                writes: slow(4),
                discards: slow(0),
            };
            Reading {
                latency: Some(Latency {
                    on: true,
                    buckets: [
                        bucket(5, 90),
                        bucket(10, 1),
                        bucket(100, reads),
                        bucket(1000, 0),
                    ],
                }),
                ..reading()
            }
        };
        assert_eq!(
            texts(&with(2), &with(5)),
            ["nvme0n1 itself counted in the run: 3 reads of 100 ms or more"]
        );
        // Nothing new, counters that began anew, and a drive without them.
        assert_eq!(texts(&with(5), &with(5)), [""; 0]);
        assert_eq!(texts(&with(5), &with(2)), [""; 0]);
        assert_eq!(texts(&reading(), &with(2)), [""; 0]);
    }

    #[test]
    fn power_state_wear_and_cache_are_said() {
        let before = reading();
        let after = Reading {
            power_state: Some(3),
            used_percent: Some(93.0),
            cache_on: Some(true),
            ..reading()
        };
        let all = texts(&before, &after).join("\n");
        assert!(
            all.contains("power state 3") && all.contains("93 %"),
            "{all}"
        );
        let cached = |r: &Reading| {
            let d = DriveResult {
                before: before.clone(),
                after: r.clone(),
            };
            d.cached().map(|t| t.text)
        };
        assert!(cached(&after).unwrap().contains("volatile write cache"));
        assert_eq!(cached(&before), None);
    }
}
