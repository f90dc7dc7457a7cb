//! Target strings: `sim:MODEL`, `sim:raid5:8xoptane-900p`, `sim:vm4:MODEL`, each with `?option=value&…`.

use std::path::Path;

use fathom_io::job::Limits;
use fathom_telemetry::{Bytes, Nanos};

use crate::device::{Start, State};
use crate::error::{SimError, nearest};
use crate::fault::Fault;
use crate::host::Host;
use crate::model::{self, Kind, Model};
use crate::processor::Idle;
use crate::raid::{Level, Shape};
use crate::simulation::Simulation;

/// Options with the help that a command line may show.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "host",
        "interrupt or poll: how completions are found (default interrupt)",
    ),
    (
        "idle",
        "on, off or busy: processor idle states; busy: another task uses the core (default on)",
    ),
    (
        "machine",
        "host in front of the device: xeon-e5-2609 (default) or xeon-gold-6242 (default of arrays)",
    ),
    (
        "path",
        "direct or buffered: overrides what each job asks for",
    ),
    (
        "sched",
        "extra time per submission for an I/O scheduler, such as 300ns (default 0)",
    ),
    (
        "fill",
        "share of the capacity that holds data, 0 to 1 (default 0: fresh)",
    ),
    (
        "wear",
        "share of the rated life that is used up, 0 to 2 (default 0)",
    ),
    (
        "state",
        "fresh or steady: steady is after long random writing (default fresh)",
    ),
    ("airflow", "normal or none: how the device is cooled"),
    ("chunk", "chunk of an array (default 512k)"),
    (
        "degraded",
        "number of missing devices of an array (default 0)",
    ),
    ("rebuilding", "1: a missing device is being rebuilt"),
    ("seed", "seed of the model, added to the run's"),
    (
        "exact",
        "1: every request is simulated; 0: long jobs are sampled; absent: sampled from 50 million requests on",
    ),
    (
        "fault",
        "eio@OFFSET[+LENGTH], stall@TIME+DURATION, dying@TIME or spike@N+DURATION; may be repeated",
    ),
];

/// Whether every request is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exact {
    /// Unless that takes more than a few seconds.
    Auto,
    Always,
    Never,
}

/// A parsed and checked simulated target. Cheap to keep; [`SimTarget::open`] gives it state.
#[derive(Debug, Clone)]
pub struct SimTarget {
    text: String,
    pub(crate) model: Model,
    pub(crate) host: Host,
    pub(crate) raid: Option<Shape>,
    pub(crate) vms: u32,
    pub(crate) poll: bool,
    pub(crate) idle: Idle,
    pub(crate) buffered: Option<bool>,
    pub(crate) scheduler: Nanos,
    pub(crate) start: Start,
    pub(crate) seed: u64,
    pub(crate) exact: Exact,
    pub(crate) faults: Vec<Fault>,
}

impl SimTarget {
    /// Whether a target string means a simulated one.
    pub fn is_simulated(text: &str) -> bool {
        text.starts_with("sim:")
    }

    /// Parses and checks a target string.
    pub fn parse(text: &str) -> Result<Self, SimError> {
        let rest = text
            .strip_prefix("sim:")
            .filter(|r| !r.is_empty())
            .ok_or_else(|| SimError::NotSimulated(text.to_owned()))?;
        let (mut path, options) = match rest.split_once('?') {
            Some((p, o)) => (p, o),
            None => (rest, ""),
        };
        let compose = |message: String| SimError::Composition {
            target: text.to_owned(),
            message,
        };
        let mut vms = 0;
        if let Some((head, tail)) = path.split_once(':')
            && let Some(n) = head.strip_prefix("vm")
            && n.chars().all(|c| c.is_ascii_digit())
        {
            vms = if n.is_empty() {
                1
            } else {
                n.parse().unwrap_or(0)
            };
            if !(1..=64).contains(&vms) {
                return Err(compose(format!(
                    "'{head}' is not possible: expected vm, or vm2 to vm64 for several machines at once"
                )));
            }
            path = tail;
        }
        let mut members = None;
        if let Some((head, tail)) = path.split_once(':')
            && let Some(level) = head.strip_prefix("raid")
        {
            let level = Level::parse(level).ok_or_else(|| {
                compose(format!(
                    "RAID level '{level}' is not known: expected raid0, raid1, raid5, raid6 or raid10"
                ))
            })?;
            let (count, device) = tail
                .split_once('x')
                .and_then(|(n, d)| n.parse::<u32>().ok().map(|n| (n, d)))
                .ok_or_else(|| {
                    compose(format!(
                        "'{tail}' does not say how many devices: expected COUNTxMODEL, such as 8xoptane-900p"
                    ))
                })?;
            members = Some((level, count));
            path = device;
        }
        let model = if path.ends_with(".toml") {
            model::check(Path::new(path))?
        } else {
            Model::named(path)?
        };
        let mut target = Self {
            text: text.to_owned(),
            model,
            host: Host::named(if members.is_some() {
                "xeon-gold-6242"
            } else {
                "xeon-e5-2609"
            })?,
            raid: None,
            vms,
            poll: false,
            idle: Idle::On,
            buffered: None,
            scheduler: Nanos::ZERO,
            start: Start {
                fill: 0.0,
                wear: 0.0,
                state: State::Fresh,
                airflow: true,
            },
            seed: 0,
            exact: Exact::Auto,
            faults: Vec::new(),
        };
        let mut chunk = Bytes::kib(512);
        let mut missing = None;
        let mut rebuilding = false;
        for pair in options.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, "1"));
            let array_only = ["chunk", "degraded", "rebuilding"].contains(&name);
            let set = if array_only && members.is_none() {
                Err("it needs an array: expected a target such as sim:raid5:4xoptane-900p".into())
            } else {
                match name {
                    "chunk" => size(value).map(|v| chunk = v),
                    "degraded" => number(value, 0.0, 64.0).map(|v| missing = Some(v as u32)),
                    "rebuilding" => switch(value).map(|v| rebuilding = v),
                    _ => target.set(name, value),
                }
            };
            set.map_err(|message| SimError::Option {
                target: text.to_owned(),
                option: name.to_owned(),
                message,
            })?;
        }
        if let Some((level, count)) = members {
            let missing = missing.unwrap_or(u32::from(rebuilding));
            let shape = Shape::new(level, count, chunk.0, missing, rebuilding, &target.model)
                .map_err(compose)?;
            target.raid = Some(shape);
        }
        if target.model.kind == Kind::Ram && target.raid.is_some() {
            return Err(compose(
                "an array of RAM disks is not modelled: expected SSDs or hard disks".into(),
            ));
        }
        Ok(target)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "host" => self.poll = word(value, &[("interrupt", false), ("poll", true)])?,
            "idle" => {
                self.idle = word(
                    value,
                    &[("on", Idle::On), ("off", Idle::Off), ("busy", Idle::Busy)],
                )?;
            }
            "machine" => {
                self.host = Host::named(value).map_err(|_| {
                    format!(
                        "'{value}' is not possible: expected {}",
                        Host::names().join(" or ")
                    )
                })?;
            }
            "path" => {
                self.buffered = Some(word(value, &[("direct", false), ("buffered", true)])?);
            }
            "sched" => self.scheduler = value.parse().map_err(text)?,
            "fill" => self.start.fill = number(value, 0.0, 1.0)?,
            "wear" => self.start.wear = number(value, 0.0, 2.0)?,
            "state" => {
                self.start.state =
                    word(value, &[("fresh", State::Fresh), ("steady", State::Steady)])?;
                if self.start.state == State::Steady && self.start.fill == 0.0 {
                    self.start.fill = 1.0;
                }
            }
            "airflow" => self.start.airflow = word(value, &[("normal", true), ("none", false)])?,
            "seed" => {
                self.seed = value
                    .parse()
                    .map_err(|_| format!("'{value}' is not a seed: expected a whole number"))?;
            }
            "exact" => {
                self.exact = if switch(value)? {
                    Exact::Always
                } else {
                    Exact::Never
                };
            }
            "fault" => self.faults.push(Fault::parse(value)?),
            _ => {
                let hint = nearest(name, OPTIONS.iter().map(|o| o.0))
                    .map(|n| format!(" (did you mean '{n}'?)"))
                    .unwrap_or_default();
                let known: Vec<&str> = OPTIONS.iter().map(|o| o.0).collect();
                return Err(format!(
                    "it is not known{hint}: expected one of {}",
                    known.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// As typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes that the target holds.
    pub fn size(&self) -> u64 {
        let whole = self
            .raid
            .as_ref()
            .map_or(self.model.capacity_bytes, Shape::capacity);
        whole / 4096 * 4096
    }

    /// What jobs may ask of it.
    pub fn limits(&self) -> Limits {
        Limits {
            size: self.size(),
            direct_align: self.model.logical_block,
        }
    }

    /// A line for people: devices, array, virtual machines, host.
    pub fn description(&self) -> String {
        let mut d = self.model.title.clone();
        if let Some(r) = &self.raid {
            d = format!("{} of {} x {d}", r.title(), r.count);
        }
        if self.vms == 1 {
            d = format!("{d}, seen from a virtual machine");
        } else if self.vms > 1 {
            d = format!("{d}, shared by {} virtual machines", self.vms);
        }
        format!(
            "simulated {d}, {}, on {}",
            Bytes(self.size()),
            self.host.title
        )
    }

    /// Gives the target state. The same seed gives the same results, bit for bit.
    pub fn open(&self, seed: u64) -> Simulation {
        Simulation::new(self, seed)
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    words
        .iter()
        .find(|(w, _)| *w == value)
        .map(|(_, v)| *v)
        .ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|w| w.0).collect();
            format!("'{value}' is not possible: expected {}", known.join(" or "))
        })
}

fn number(value: &str, low: f64, high: f64) -> Result<f64, String> {
    let (digits, scale) = match value.strip_suffix('%') {
        Some(p) => (p, 0.01),
        None => (value, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(v) if v * scale >= low && v * scale <= high => Ok(v * scale),
        _ => Err(format!(
            "'{value}' is not possible: expected a number from {low} to {high}"
        )),
    }
}

fn switch(value: &str) -> Result<bool, String> {
    word(
        value,
        &[("1", true), ("0", false), ("true", true), ("false", false)],
    )
}

fn size(value: &str) -> Result<Bytes, String> {
    match value.parse::<Bytes>() {
        Ok(b) if b.0 >= 4096 && b.0 <= 1 << 30 && b.0.is_power_of_two() => Ok(b),
        Ok(b) => Err(format!(
            "{b} is not possible: expected a power of two from 4k to 1g"
        )),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        SimTarget::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn targets_know_their_size_and_say_what_they_are() {
        let t = SimTarget::parse("sim:vm4:raid5:8xoptane-900p?chunk=64k&fill=80%").unwrap();
        assert_eq!(t.size() / 1_000_000_000, 7 * 480 - 1);
        assert_eq!((t.vms, t.start.fill), (4, 0.8));
        assert!(t.description().contains("RAID 5 of 8 x Intel Optane"));
        let one = SimTarget::parse("sim:intel-s3510").unwrap();
        assert_eq!(one.limits().direct_align, 512);
    }

    #[test]
    fn impossible_compositions_are_refused_in_a_sentence() {
        for (text, expect) in [
            ("sim:raid5:2xoptane-900p", "RAID 5 needs at least 3 devices"),
            ("sim:raid6:3xoptane-900p", "RAID 6 needs at least 4 devices"),
            ("sim:raid10:5xoptane-900p", "even number"),
            ("sim:raid10:2xoptane-900p", "at least 4 devices"),
            ("sim:raid7:8xoptane-900p", "RAID level '7' is not known"),
            ("sim:raid5:optane-900p", "how many devices"),
            ("sim:raid0:4xoptane-900p?degraded=1", "RAID 0 survives"),
            ("sim:raid5:4xoptane-900p?degraded=2", "RAID 5 survives"),
            ("sim:raid0:4xramdisk", "RAM disks"),
            ("sim:vm0:optane-900p", "vm2 to vm64"),
            ("sim:optane", "did you mean 'optane-900p'?"),
            ("sim:none.toml", "model file none.toml"),
            ("sim:hdd?chunk=64k", "needs an array"),
            ("sim:hdd?idel=off", "did you mean 'idle'?"),
            ("sim:hdd?fill=2", "expected a number from 0 to 1"),
            ("sim:hdd?fault=boom", "expected eio@"),
            ("sim:", "expected sim:MODEL"),
            ("hdd", "expected sim:MODEL"),
        ] {
            let e = refused(text);
            assert!(e.contains(expect), "{text}: {e}");
        }
    }
}
