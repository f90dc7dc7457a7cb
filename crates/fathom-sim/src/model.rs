//! Device models: what a model file holds, how it is checked, and the ones that come with fathom.
//!
//! Units stand in the names of the keys; sources stand as comments in the files themselves.

use serde::{Deserialize, Serialize};

use crate::fitted::Fitted;

/// Model files that come with fathom: name and text.
pub const CATALOG: &[(&str, &str)] = &[
    ("optane-900p", include_str!("../models/optane-900p.toml")),
    ("intel-s3510", include_str!("../models/intel-s3510.toml")),
    ("intel-p3700", include_str!("../models/intel-p3700.toml")),
    (
        "samsung-960pro",
        include_str!("../models/samsung-960pro.toml"),
    ),
    ("micron-mx500", include_str!("../models/micron-mx500.toml")),
    ("ramdisk", include_str!("../models/ramdisk.toml")),
    ("hdd", include_str!("../models/hdd.toml")),
];

/// Why a model or a simulated target cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimError {
    /// No such model.
    #[error("sim:{name}: no such model{}; 'fathom sim list' names them all, a file ends in .toml", nearest.map(|n| format!(" (did you mean sim:{n}?)")).unwrap_or_default())]
    UnknownModel {
        /// As typed.
        name: String,
        /// The nearest known one.
        nearest: Option<&'static str>,
    },
    /// A file that is no model.
    #[error("model {file}: {message}")]
    BadModel {
        /// Its name.
        file: String,
        /// What is wrong and what was expected.
        message: String,
    },
    /// A composition that cannot exist.
    #[error("sim:{target}: {message}")]
    BadComposition {
        /// As typed.
        target: String,
        /// What is wrong and what was expected.
        message: String,
    },
}

/// A device model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// A line for people.
    pub description: String,
    /// Capacity, GB (10⁹ bytes).
    pub capacity_gb: f64,
    /// Commands that the device takes at the same time (queue slots).
    pub slots: u32,
    /// Media units that work side by side (dies, channels or heads).
    pub units: u32,
    /// Sequential reads are answered from the device's read-ahead and skip the media.
    #[serde(default)]
    pub read_ahead: bool,
    /// Coefficient of variation of the pipeline's time.
    #[serde(default)]
    pub pipeline_cv: f64,
    /// Coefficient of variation of the media's time.
    #[serde(default)]
    pub media_cv: f64,
    /// Reads.
    pub read: Path,
    /// Writes.
    pub write: Path,
    /// Moving parts, where it has any.
    pub mechanical: Option<Mechanical>,
    /// Flash behind the write buffer, where it is modelled.
    pub flash: Option<Flash>,
    /// Heat, where it is modelled.
    pub thermal: Option<Thermal>,
    /// A RAM disk: served by the submitting CPU, without an interrupt.
    pub synchronous: Option<Synchronous>,
    /// What its fit says of it, where it was fitted to runs.
    pub fit: Option<Fitted>,
}

/// One direction's times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Serial cost of a command, ns.
    pub command_ns: f64,
    /// Serial transfer rate, GB/s (10⁹ bytes).
    pub gb_per_s: f64,
    /// Occupation of one media unit, µs; 0 where a buffer answers.
    pub media_us: f64,
    /// Latency that occupies nothing, µs.
    pub fixed_us: f64,
}

/// A disk with a spindle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanical {
    /// Seek to the next track, ms.
    pub track_seek_ms: f64,
    /// Seek over the whole disk, ms.
    pub full_seek_ms: f64,
    /// Revolutions per minute.
    pub rpm: f64,
}

/// Flash: what random writes cost in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Sequential writes of the specification, MB/s.
    pub sequential_mb_per_s: f64,
    /// Random writes of 4 KiB in steady state over the whole drive, IOPS. With the sequential rate it gives the
    /// write amplification, and from it the effective spare space (which the capacity does not).
    pub steady_random_iops: f64,
    /// Fast cache in front (SLC), GB; 0 where there is none.
    pub fast_cache_gb: f64,
    /// Write rate once the cache is full, GB/s.
    pub behind_cache_gb_per_s: f64,
    /// Rated endurance, TB written.
    pub endurance_tb: f64,
    /// Time for which programming a page of 4 KiB keeps a media unit from reading, µs; it happens behind the
    /// write buffer.
    #[serde(default)]
    pub program_us: f64,
    /// Share of reads that need a second access to the media once the rated life is used; before, it grows with the
    /// square of the life used, and goes on growing behind.
    #[serde(default)]
    pub worn_reads_retried: f64,
    /// Share of the rated life after which the drive refuses writes; 0 where it never does.
    #[serde(default)]
    pub read_only_at_life: f64,
    /// A write spoils the read-ahead: so many of the next sequential reads go to the media (parts add up).
    #[serde(default)]
    pub reads_spoilt_by_write: f64,
}

/// Heat: a body with one time constant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thermal {
    /// Air around it, °C.
    pub ambient_c: f64,
    /// Power at rest, W.
    pub idle_w: f64,
    /// Power when the pipeline never rests, W.
    pub active_w: f64,
    /// Rise above the air per W in the long run, °C/W.
    pub c_per_w: f64,
    /// Time constant, s.
    pub time_constant_s: f64,
    /// Slowed down from here on, °C.
    pub throttle_c: f64,
    /// No longer slowed down once it is as cool as this, °C.
    pub resume_c: f64,
    /// How many times as long commands take while it is too hot.
    pub slowdown: f64,
}

/// Host cost of a synchronous device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synchronous {
    /// CPU time of the caller, µs, on a physical machine.
    pub cpu_us: f64,
    /// The same of a write; as of a read where it is left out.
    pub write_cpu_us: Option<f64>,
    /// CPU time of the caller in a guest, µs.
    pub guest_cpu_us: f64,
    /// The same of a write; as of a read where it is left out.
    pub guest_write_cpu_us: Option<f64>,
    /// Coefficient of variation of the pipeline in a guest.
    pub guest_cv: f64,
}

/// Refuses the first value that is not within its limits (name, value, least, most).
fn within(all: &[(&str, f64, f64, f64)]) -> Result<(), String> {
    for (name, v, low, high) in all {
        if !v.is_finite() || !(low..=high).contains(&v) {
            return Err(format!("{name} is {v}: expected {low} to {high}"));
        }
    }
    Ok(())
}

impl Model {
    /// Reads and checks a model file; `file` names it in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, SimError> {
        let bad = |message: String| SimError::BadModel {
            file: file.to_owned(),
            message,
        };
        let model: Self = toml::from_str(text).map_err(|e| bad(e.to_string().trim().to_owned()))?;
        model.check().map_err(bad)?;
        Ok(model)
    }

    /// Its file, without the sources of its values.
    ///
    /// # Errors
    /// Where a value has no form in TOML: of a model that was read there is none.
    pub fn file(&self) -> Result<String, SimError> {
        toml::to_string(self).map_err(|e| SimError::BadModel {
            file: self.description.clone(),
            message: e.to_string(),
        })
    }

    /// One of the models that come with fathom.
    pub fn named(name: &str) -> Result<Self, SimError> {
        match CATALOG.iter().find(|(n, _)| *n == name) {
            Some((n, text)) => Self::parse(n, text),
            None => Err(SimError::UnknownModel {
                name: name.to_owned(),
                nearest: nearest(name),
            }),
        }
    }

    /// Bytes, in whole MiB.
    pub fn size(&self) -> u64 {
        ((self.capacity_gb * 1e9) as u64) >> 20 << 20
    }

    /// Programming may keep units busy for part of the time only, or reads would never be served.
    pub(crate) fn most_program_us(&self) -> f64 {
        let sequential = self.flash.map_or(0.0, |f| f.sequential_mb_per_s / 1e3);
        let pages_per_s = self.write.gb_per_s.max(sequential) * 1e9 / 4096.0;
        0.9 * f64::from(self.units) / pages_per_s * 1e6
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        within(&[
            ("capacity_gb", self.capacity_gb, 0.01, 1e6),
            ("slots", f64::from(self.slots), 1.0, 65536.0),
            ("units", f64::from(self.units), 1.0, 4096.0),
            ("pipeline_cv", self.pipeline_cv, 0.0, 5.0),
            ("media_cv", self.media_cv, 0.0, 5.0),
        ])?;
        for (name, p) in [("read", self.read), ("write", self.write)] {
            within(&[
                (&format!("{name}.command_ns"), p.command_ns, 0.0, 1e9),
                (&format!("{name}.gb_per_s"), p.gb_per_s, 1e-4, 1e4),
                (&format!("{name}.media_us"), p.media_us, 0.0, 1e7),
                (&format!("{name}.fixed_us"), p.fixed_us, 0.0, 1e7),
            ])?;
        }
        if let Some(m) = self.mechanical {
            let least = m.track_seek_ms;
            within(&[
                ("mechanical.track_seek_ms", m.track_seek_ms, 0.0, 1e3),
                ("mechanical.full_seek_ms", m.full_seek_ms, least, 1e3),
                ("mechanical.rpm", m.rpm, 100.0, 1e5),
            ])?;
        }
        if let Some(f) = &self.flash {
            self.check_flash(f)?;
        }
        self.fit.as_ref().map_or(Ok(()), Fitted::check)?;
        if let Some(t) = self.thermal {
            within(&[
                ("thermal.ambient_c", t.ambient_c, -40.0, 100.0),
                ("thermal.idle_w", t.idle_w, 0.0, 1e3),
                ("thermal.active_w", t.active_w, t.idle_w, 1e3),
                ("thermal.c_per_w", t.c_per_w, 0.0, 1e3),
                ("thermal.time_constant_s", t.time_constant_s, 0.1, 1e6),
                ("thermal.throttle_c", t.throttle_c, 0.0, 1e3),
                ("thermal.resume_c", t.resume_c, 0.0, t.throttle_c),
                ("thermal.slowdown", t.slowdown, 1.0, 1e3),
            ])?;
        }
        if let Some(s) = self.synchronous {
            let (write, guest_write) = (s.write_cpu_us, s.guest_write_cpu_us);
            let [write, guest_write] = [write, guest_write].map(|us| us.unwrap_or(0.0));
            within(&[
                ("synchronous.cpu_us", s.cpu_us, 0.0, 1e6),
                ("synchronous.write_cpu_us", write, 0.0, 1e6),
                ("synchronous.guest_write_cpu_us", guest_write, 0.0, 1e6),
                ("synchronous.guest_cv", s.guest_cv, 0.0, 5.0),
                ("synchronous.guest_cpu_us", s.guest_cpu_us, 0.0, 1e6),
            ])?;
        }
        Ok(())
    }

    fn check_flash(&self, f: &Flash) -> Result<(), String> {
        let sequential = f.sequential_mb_per_s * 1e6 / 4096.0;
        let least = sequential / 50.0;
        let behind = f.behind_cache_gb_per_s;
        let program_max = self.most_program_us();
        within(&[
            ("flash.sequential_mb_per_s", f.sequential_mb_per_s, 1.0, 1e5),
            (
                "flash.steady_random_iops",
                f.steady_random_iops,
                least,
                sequential,
            ),
            (
                "flash.fast_cache_gb",
                f.fast_cache_gb,
                0.0,
                self.capacity_gb,
            ),
            ("flash.behind_cache_gb_per_s", behind, 1e-4, 1e4),
            ("flash.endurance_tb", f.endurance_tb, 0.0, 1e9),
            ("flash.program_us", f.program_us, 0.0, program_max),
            ("flash.worn_reads_retried", f.worn_reads_retried, 0.0, 1.0),
            ("flash.read_only_at_life", f.read_only_at_life, 0.0, 1e3),
            (
                "flash.reads_spoilt_by_write",
                f.reads_spoilt_by_write,
                0.0,
                64.0,
            ),
        ])
    }
}

/// The model whose name is at most half its length away.
fn nearest(name: &str) -> Option<&'static str> {
    nearest_of(name, CATALOG.iter().map(|(n, _)| *n))
}

/// The one of `names` that is at most half its length away from what was typed.
pub fn nearest_of<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|n| {
            let partial = n.contains(typed) && typed.len() >= 3;
            (if partial { 0 } else { distance(typed, n) }, n)
        })
        .min()
        .filter(|(d, n)| d * 2 <= n.len())
        .map(|(_, n)| n)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_in_the_catalog_is_valid() {
        for (name, _) in CATALOG {
            assert!(Model::named(name).is_ok(), "{:?}", Model::named(name));
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for (name, _) in CATALOG {
            let model = Model::named(name).unwrap();
            assert_eq!(Model::parse(name, &model.file().unwrap()).unwrap(), model);
        }
    }

    #[test]
    fn an_unknown_name_offers_the_nearest() {
        let e = Model::named("optane-900").unwrap_err().to_string();
        assert!(e.contains("did you mean sim:optane-900p?"), "{e}");
        let e = Model::named("floppy").unwrap_err().to_string();
        assert!(
            !e.contains("did you mean") && e.contains("fathom sim list"),
            "{e}"
        );
    }

    #[test]
    fn unknown_keys_and_impossible_values_are_refused_by_name() {
        let good = CATALOG[0].1;
        let e = Model::parse("x.toml", &format!("colour = 3\n{good}")).unwrap_err();
        assert!(e.to_string().contains("colour"), "{e}");
        let e = Model::parse("x.toml", &good.replace("units = 7", "units = 0")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "model x.toml: units is 0: expected 1 to 4096"
        );
    }
}
