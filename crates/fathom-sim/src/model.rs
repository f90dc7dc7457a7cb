//! Model files: what a device is, as documented TOML.
//!
//! The files under `models/` are built in; a user's own file is read the same
//! way. Parsing checks every value, so that the models behind trust them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{SimError, nearest};

const BUILT_IN: &[(&str, &str)] = &[
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

/// A built-in model, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Name after `sim:`.
    pub name: &'static str,
    /// A line for people.
    pub title: String,
}

/// The built-in models.
pub fn list() -> Vec<Listed> {
    BUILT_IN
        .iter()
        .map(|(name, _)| Listed {
            name,
            title: Model::named(name).map(|m| m.title).unwrap_or_default(),
        })
        .collect()
}

/// The text of a built-in model's file, with the source of each value.
pub fn show(name: &str) -> Result<&'static str, SimError> {
    BUILT_IN
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| SimError::UnknownModel {
            name: name.to_owned(),
            nearest: nearest(name, BUILT_IN.iter().map(|m| m.0)),
        })
}

/// Reads and checks a user's model file.
pub fn check(path: &Path) -> Result<Model, SimError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| SimError::File {
        path: shown.clone(),
        message: format!("{e}; see 'fathom sim show optane-900p' for an example"),
    })?;
    Model::parse(&shown, &text)
}

/// What kind of device, and with it which sections a file needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Flash or 3D XPoint: `[pipeline]` and `[media]`.
    Ssd,
    /// Memory: `[ram]`.
    Ram,
    /// A rotating disk: `[hdd]`.
    Hdd,
}

/// A device model, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name, as after `sim:`.
    pub name: String,
    /// A line for people.
    pub title: String,
    /// What kind of device.
    pub kind: Kind,
    /// Bytes that it holds.
    pub capacity_bytes: u64,
    /// Bytes of a logical block: alignment of direct I/O.
    pub logical_block: u32,
    /// Commands that it takes at once.
    pub slots: u32,
    /// Serial pipeline of an SSD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// Parallel media of an SSD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<Media>,
    /// Write buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Buffer>,
    /// Garbage collection; absent where media is written in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nand: Option<Nand>,
    /// Cells used as a fast write cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slc_cache: Option<SlcCache>,
    /// Heat and throttling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal: Option<Thermal>,
    /// Rated life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance: Option<Endurance>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<Ram>,
    /// Rotating disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hdd: Option<Hdd>,
}

/// What every command passes one after the other: command cost plus bytes over bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// ns per read.
    pub read_command_ns: f64,
    /// 10⁹ bytes/s of reads.
    pub read_gb_per_s: f64,
    /// ns per write.
    pub write_command_ns: f64,
    /// 10⁹ bytes/s of writes.
    pub write_gb_per_s: f64,
    /// Coefficient of variation of the service time.
    pub variation: f64,
}

/// Parallel media units behind the pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// How many.
    pub units: u32,
    /// µs per 4 KiB page read.
    pub read_us: f64,
    /// µs per 4 KiB page written; 0 where writes end in the buffer.
    pub write_us: f64,
    /// Coefficient of variation of the service time.
    pub variation: f64,
    /// µs of a read that occupy nothing.
    pub read_fixed_us: f64,
    /// µs of a write that occupy nothing.
    pub write_fixed_us: f64,
    /// Sequential reads skip the media.
    #[serde(default)]
    pub read_ahead: bool,
}

/// Writes are acknowledged from a buffer that drains to the media.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Its size, bytes.
    pub bytes: u64,
    /// 10⁹ bytes/s into the media at write amplification 1.
    pub drain_gb_per_s: f64,
    /// µs for which a drained batch disturbs reads.
    pub program_us: f64,
}

/// Garbage collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nand {
    /// 4 KiB random writes/s of the full drive in steady state.
    pub steady_random_write_iops: f64,
    /// Spare area over capacity that can be written before the first collection.
    pub spare_factor: f64,
    /// 10⁹ bytes/s of free space regained while idle.
    pub background_gb_per_s: f64,
}

/// Cells used with one bit each until they are full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlcCache {
    /// Its size, bytes.
    pub bytes: u64,
    /// 10⁹ bytes/s of writes once it is full.
    pub folded_gb_per_s: f64,
    /// 10⁹ bytes/s emptied while idle.
    pub flush_gb_per_s: f64,
}

/// One heat node: temperature follows ambient + power × resistance with a time constant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thermal {
    /// W while idle.
    pub idle_w: f64,
    /// W at full load.
    pub active_w: f64,
    /// °C around the device.
    pub ambient_c: f64,
    /// °C per W with airflow.
    pub resistance_c_per_w: f64,
    /// °C per W without.
    pub low_airflow_c_per_w: f64,
    /// s.
    pub time_constant_s: f64,
    /// °C from which it slows down.
    pub throttle_c: f64,
    /// °C below which it is fast again.
    pub resume_c: f64,
    /// °C from which it stops until it has cooled to `resume_c`.
    pub critical_c: f64,
    /// Share of full speed while throttled.
    pub throttle_factor: f64,
}

/// Rated life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endurance {
    /// Bytes that may be written.
    pub rated_bytes: f64,
}

/// Memory used as a disk: the processor does the work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ram {
    /// µs of processor per request.
    pub cpu_us: f64,
    /// The same in a virtual machine.
    pub guest_cpu_us: f64,
    /// µs of a section that one read passes at a time.
    pub read_serial_us: f64,
    /// µs of a section that one write passes at a time.
    pub write_serial_us: f64,
    /// 10⁹ bytes/s of copying per core, beyond the first 4 KiB.
    pub core_gb_per_s: f64,
    /// Coefficient of variation of the serial section.
    pub variation: f64,
}

/// A rotating disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hdd {
    /// Revolutions per minute.
    pub rpm: f64,
    /// ms to the next track.
    pub track_seek_ms: f64,
    /// ms across the surface.
    pub full_seek_ms: f64,
    /// 10⁶ bytes/s at the first sector.
    pub outer_mb_per_s: f64,
    /// 10⁶ bytes/s at the last.
    pub inner_mb_per_s: f64,
    /// µs per command.
    pub command_us: f64,
    /// Bytes of write cache.
    pub cache_bytes: u64,
}

impl Model {
    /// A built-in model.
    pub fn named(name: &str) -> Result<Self, SimError> {
        Self::parse(name, show(name)?)
    }

    /// From a file's text; `path` is for errors.
    pub fn parse(path: &str, text: &str) -> Result<Self, SimError> {
        let file = |message: String| SimError::File {
            path: path.to_owned(),
            message,
        };
        let model: Self = toml::from_str(text).map_err(|e| {
            let line = e
                .span()
                .map(|s| 1 + text[..s.start.min(text.len())].matches('\n').count());
            let at = line.map(|l| format!("line {l}: ")).unwrap_or_default();
            file(format!("{at}{}", e.message().replace('\n', " ")))
        })?;
        model.complaint().map_or(Ok(model), |m| Err(file(m)))
    }

    /// As a file's text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// The first value that makes no sense, with its key.
    fn complaint(&self) -> Option<String> {
        let mut bad = None;
        let mut within = |key: &str, value: f64, low: f64, high: f64| {
            if bad.is_none() && !(value >= low && value <= high) {
                bad = Some(format!(
                    "{key} = {value} is not possible: expected {low} to {high}"
                ));
            }
        };
        within(
            "capacity_bytes",
            self.capacity_bytes as f64,
            f64::from(1 << 20),
            1e18,
        );
        within(
            "logical_block",
            f64::from(self.logical_block),
            512.0,
            65536.0,
        );
        within("slots", f64::from(self.slots), 1.0, 65536.0);
        if let Some(p) = &self.pipeline {
            within("pipeline.read_command_ns", p.read_command_ns, 0.0, 1e9);
            within("pipeline.read_gb_per_s", p.read_gb_per_s, 1e-3, 1e3);
            within("pipeline.write_command_ns", p.write_command_ns, 0.0, 1e9);
            within("pipeline.write_gb_per_s", p.write_gb_per_s, 1e-3, 1e3);
            within("pipeline.variation", p.variation, 0.0, 3.0);
        }
        if let Some(m) = &self.media {
            within("media.units", f64::from(m.units), 1.0, 4096.0);
            within("media.read_us", m.read_us, 0.0, 1e6);
            within("media.write_us", m.write_us, 0.0, 1e6);
            within("media.variation", m.variation, 0.0, 3.0);
            within("media.read_fixed_us", m.read_fixed_us, 0.0, 1e6);
            within("media.write_fixed_us", m.write_fixed_us, 0.0, 1e6);
        }
        if let Some(b) = &self.buffer {
            within("buffer.bytes", b.bytes as f64, 4096.0, 1e12);
            within("buffer.drain_gb_per_s", b.drain_gb_per_s, 1e-3, 1e3);
            within("buffer.program_us", b.program_us, 0.0, 1e6);
        }
        if let Some(n) = &self.nand {
            within(
                "nand.steady_random_write_iops",
                n.steady_random_write_iops,
                1.0,
                1e8,
            );
            within("nand.spare_factor", n.spare_factor, 0.001, 4.0);
            within("nand.background_gb_per_s", n.background_gb_per_s, 0.0, 1e3);
        }
        if let Some(s) = &self.slc_cache {
            within("slc_cache.bytes", s.bytes as f64, 1e6, 1e15);
            within("slc_cache.folded_gb_per_s", s.folded_gb_per_s, 1e-3, 1e3);
            within("slc_cache.flush_gb_per_s", s.flush_gb_per_s, 0.0, 1e3);
        }
        if let Some(t) = &self.thermal {
            within("thermal.idle_w", t.idle_w, 0.0, 1e3);
            within("thermal.active_w", t.active_w, t.idle_w, 1e3);
            within("thermal.ambient_c", t.ambient_c, -40.0, 80.0);
            within(
                "thermal.resistance_c_per_w",
                t.resistance_c_per_w,
                0.0,
                100.0,
            );
            within(
                "thermal.low_airflow_c_per_w",
                t.low_airflow_c_per_w,
                0.0,
                100.0,
            );
            within("thermal.time_constant_s", t.time_constant_s, 0.1, 1e5);
            within("thermal.throttle_c", t.throttle_c, t.ambient_c, 200.0);
            within("thermal.resume_c", t.resume_c, t.ambient_c, t.throttle_c);
            within("thermal.critical_c", t.critical_c, t.throttle_c, 300.0);
            within("thermal.throttle_factor", t.throttle_factor, 0.01, 1.0);
        }
        if let Some(e) = &self.endurance {
            within("endurance.rated_bytes", e.rated_bytes, 1e9, 1e20);
        }
        if let Some(r) = &self.ram {
            within("ram.cpu_us", r.cpu_us, 0.0, 1e4);
            within("ram.guest_cpu_us", r.guest_cpu_us, 0.0, 1e4);
            within("ram.read_serial_us", r.read_serial_us, 0.0, 1e4);
            within("ram.write_serial_us", r.write_serial_us, 0.0, 1e4);
            within("ram.core_gb_per_s", r.core_gb_per_s, 1e-3, 1e3);
            within("ram.variation", r.variation, 0.0, 3.0);
        }
        if let Some(h) = &self.hdd {
            within("hdd.rpm", h.rpm, 1000.0, 30_000.0);
            within("hdd.track_seek_ms", h.track_seek_ms, 0.0, 100.0);
            within("hdd.full_seek_ms", h.full_seek_ms, h.track_seek_ms, 1000.0);
            within("hdd.outer_mb_per_s", h.outer_mb_per_s, 1.0, 1e4);
            within(
                "hdd.inner_mb_per_s",
                h.inner_mb_per_s,
                1.0,
                h.outer_mb_per_s,
            );
            within("hdd.command_us", h.command_us, 0.0, 1e5);
            within("hdd.cache_bytes", h.cache_bytes as f64, 0.0, 1e12);
        }
        if bad.is_none() && !self.logical_block.is_power_of_two() {
            bad = Some(format!(
                "logical_block = {} is not possible: expected a power of two, such as 512",
                self.logical_block
            ));
        }
        let needs: &[(&str, bool)] = match self.kind {
            Kind::Ssd => &[
                ("pipeline", self.pipeline.is_some()),
                ("media", self.media.is_some()),
            ],
            Kind::Ram => &[("ram", self.ram.is_some())],
            Kind::Hdd => &[("hdd", self.hdd.is_some())],
        };
        bad.or_else(|| {
            needs.iter().find(|(_, there)| !there).map(|(section, _)| {
                format!(
                    "section [{section}] is missing: a model of this kind needs it; see 'fathom sim show {}'",
                    match self.kind {
                        Kind::Ssd => "optane-900p",
                        Kind::Ram => "ramdisk",
                        Kind::Hdd => "hdd",
                    }
                )
            })
        })
        .or_else(|| {
            (self.nand.is_some() && self.buffer.is_none()).then(|| {
                "section [buffer] is missing: garbage collection drains through it".to_owned()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_model_is_sound_named_as_its_file_and_written_back_whole() {
        for m in list() {
            let model = Model::named(m.name).unwrap();
            assert_eq!(model.name, m.name);
            assert_eq!(Model::parse("again", &model.to_toml()).unwrap(), model);
        }
        assert_eq!(list().len(), 7);
    }

    #[test]
    fn every_value_of_a_built_in_file_is_documented_on_its_line_or_above() {
        for m in list() {
            let text = show(m.name).unwrap();
            assert!(text.starts_with('#'), "{} begins with what it is", m.name);
        }
    }

    #[test]
    fn a_bad_file_is_refused_with_its_key() {
        let text = show("optane-900p").unwrap();
        for (from, to, expect) in [
            ("slots = 1024", "slots = 0", "slots = 0 is not possible"),
            ("slots = 1024", "slotz = 1024", "unknown field `slotz`"),
            ("units = 7", "units = \"seven\"", "invalid type"),
            ("units = 7", "", "missing field `units`"),
            ("kind = \"ssd\"", "kind = \"hdd\"", "[hdd] is missing"),
            (
                "throttle_c = 75.0",
                "throttle_c = 5.0",
                "thermal.throttle_c",
            ),
            (
                "read_gb_per_s = 2.557",
                "read_gb_per_s = nan",
                "read_gb_per_s",
            ),
        ] {
            assert!(text.contains(from), "{from}");
            let e = Model::parse("x.toml", &text.replace(from, to)).unwrap_err();
            assert!(e.to_string().contains(expect), "{e}");
            assert!(e.to_string().starts_with("model file x.toml: "), "{e}");
        }
    }

    #[test]
    fn an_unknown_name_offers_the_nearest() {
        let e = show("optane900p").unwrap_err().to_string();
        assert!(e.contains("did you mean 'optane-900p'?"), "{e}");
    }
}
