//! What stands behind `sim:`: a model, an array of them, or virtual machines over one, and its options.
//!
//! `sim:MODEL`, `sim:FILE.toml`, `sim:raid5:8xMODEL`, `sim:vm:MODEL`, `sim:vm4:MODEL`, each with options after
//! commas: `sim:intel-s3510,fill=90,state=steady,idle=busy`. [`OPTIONS`] names them all.

use fathom_telemetry::Bytes;

use crate::fault::{self, Fault};
use crate::host::{Completions, HostCosts, Idle};
use crate::model::{Model, SimError};
use crate::raid::{ArrayHost, Level};

/// Every option with its values and what it does: `fathom sim list` prints this.
pub const OPTIONS: &[(&str, &str)] = &[
    (
        "poll",
        "the host polls for completions instead of waiting for interrupts",
    ),
    (
        "idle=on|shallow|busy",
        "idle cores sleep as a menu governor lets them (default), stay in C1, or never sleep",
    ),
    (
        "buffered",
        "every job goes through the page cache, whatever it asks for",
    ),
    ("cache=SIZE", "memory of the page cache (default 16g)"),
    (
        "scheduler=NS",
        "what an I/O scheduler adds to each submission",
    ),
    (
        "layer=NS",
        "what a stacked layer (device mapper, encryption) adds to each request, one at a time",
    ),
    ("cores=N", "cores of the host (default 16)"),
    (
        "iothreads=N",
        "iothreads of each virtual machine (default 1)",
    ),
    (
        "write=GB_PER_S",
        "the device takes writes at this rate instead of its model's",
    ),
    ("fill=PERCENT", "share of a flash drive that holds data"),
    (
        "state=fresh|steady",
        "whether random writes have brought a flash drive to its steady state",
    ),
    ("wear=PERCENT", "share of the rated endurance that is used"),
    ("ambient=CELSIUS", "air around the device"),
    (
        "airflow=none",
        "still air: the device warms 2.5 times as much",
    ),
    ("chunk=SIZE", "chunk of an array (default 512k)"),
    (
        "degraded, degraded=N",
        "an array without N of its members (default 1)",
    ),
    (
        "rebuild, rebuild=MB_PER_S",
        "an array that fills a replaced member (default 200)",
    ),
    (
        "error=OFFSET+LENGTH",
        "commands that touch these bytes fail",
    ),
    (
        "stall=AT+FOR",
        "the device answers nothing for a while: stall=2s+500ms",
    ),
    (
        "spike=AT+FORxTIMES",
        "everything takes longer for a while: spike=2s+1sx10",
    ),
    (
        "dying=AT+FOR, dead=AT",
        "more and more commands fail, then all",
    ),
    (
        "member=N",
        "the member of an array that has these faults (default 0)",
    ),
    (
        "draw=N",
        "of a fitted model, another one that is as likely by what its fit knows",
    ),
    (
        "exact",
        "simulate every request of jobs longer than 5 minutes, not one window in many",
    ),
    (
        "fast",
        "a simpler and faster simulation of closed loops on one device",
    ),
];

/// Pages of the host's memory, bytes.
const CACHE: u64 = 16 << 30;
/// How much more a device warms in still air (illustrative).
const STILL_AIR: f64 = 2.5;

/// How the model is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// On a physical machine.
    Device,
    /// As members of an array.
    Raid {
        /// How they make up the array.
        level: Level,
        /// How many.
        members: u32,
    },
    /// Below virtual machines.
    Guests {
        /// How many, each with its share of the threads.
        machines: u32,
    },
}

/// A simulated target.
#[derive(Debug, Clone, PartialEq)]
pub struct SimTarget {
    /// As typed, with `sim:`.
    pub name: String,
    /// The device.
    pub model: Model,
    /// How it is used.
    pub shape: Shape,
    /// The host.
    pub host: HostCosts,
    /// Iothreads of each virtual machine.
    pub iothreads: u32,
    /// What a stacked layer adds to each request, one at a time, ns.
    pub layer_ns: u64,
    /// What the host of an array contributes.
    pub array: ArrayHost,
    /// Share of the device that holds data, 0 to 1, and whether random writes have brought it to a steady state.
    pub condition: Option<(f64, bool)>,
    /// Share of the rated endurance that is used, 0 to 1.
    pub wear: f64,
    /// Every job goes through the page cache.
    pub buffered: bool,
    /// Bytes of the page cache.
    pub cache_bytes: u64,
    /// Members that an array has lost.
    pub lost: u32,
    /// MB/s at which a replaced member is filled.
    pub rebuild_mb_per_s: Option<f64>,
    /// What goes wrong, and on which member of an array.
    pub faults: Vec<Fault>,
    /// The member that has the faults.
    pub member: u32,
    /// Long jobs are not sampled.
    pub exact: bool,
    /// Closed loops on one device take the fast path.
    pub fast: bool,
}

fn cache(value: &str) -> Result<u64, String> {
    match value.parse::<Bytes>() {
        Ok(b) if b.0 >= 1 << 20 => Ok(b.0),
        _ => Err(format!("cache={value}: expected 1m or more, such as 16g")),
    }
}

/// What is said of an option that there is not.
fn unknown(key: &str) -> String {
    let mut known: Vec<&str> = OPTIONS
        .iter()
        .flat_map(|(o, _)| o.split(", "))
        .map(|o| o.split('=').next().unwrap_or(o))
        .collect();
    known.dedup();
    let near = crate::model::nearest_of(key, known.iter().copied());
    format!(
        "unknown option '{key}'{}: expected {}",
        near.map_or_else(String::new, |n| format!(" (did you mean {n}?)")),
        known.join(", ")
    )
}

impl SimTarget {
    /// Whether a name stands for a simulated target.
    pub fn is_simulated(name: &str) -> bool {
        name.starts_with("sim:")
    }

    /// From a name that begins with `sim:`; reads the model file, if it names one.
    pub fn parse(name: &str) -> Result<Self, SimError> {
        let text = name.strip_prefix("sim:").unwrap_or(name);
        let bad = |message: String| SimError::BadComposition {
            target: text.to_owned(),
            message,
        };
        let mut parts = text.split(',');
        let what = parts.next().unwrap_or_default();
        let (shape, model) = match what.split_once(':') {
            None => (Shape::Device, what),
            Some((prefix, rest)) => composition(prefix, rest).map_err(bad)?,
        };
        let model = if model.ends_with(".toml") {
            let text = std::fs::read_to_string(model).map_err(|e| SimError::BadModel {
                file: model.to_owned(),
                message: match e.kind() {
                    std::io::ErrorKind::InvalidData => {
                        "is no text: expected a model as 'fathom sim show' prints it".into()
                    }
                    _ => format!("cannot be read: {e}; check the path"),
                },
            })?;
            Model::parse(model, &text)?
        } else if model.contains(':') {
            return Err(bad(format!(
                "'{model}' is no model: expected one device's after raidL:Nx or vmN:; compositions have one level"
            )));
        } else {
            Model::named(model)?
        };
        let mut target = Self {
            name: format!("sim:{text}"),
            shape,
            ..Self::of(model)
        };
        for option in parts {
            target.option(option).map_err(bad)?;
        }
        target.check().map_err(bad)?;
        Ok(target)
    }

    /// A device on a physical machine, without any option.
    pub fn of(model: Model) -> Self {
        Self {
            name: "sim:".into(),
            model,
            shape: Shape::Device,
            host: HostCosts::default(),
            iothreads: 1,
            layer_ns: 0,
            array: ArrayHost::default(),
            condition: None,
            wear: 0.0,
            buffered: false,
            cache_bytes: CACHE,
            lost: 0,
            rebuild_mb_per_s: None,
            faults: Vec::new(),
            member: 0,
            exact: false,
            fast: false,
        }
    }

    /// What options ask of each other and of the shape.
    fn check(&self) -> Result<(), String> {
        if self.iothreads != 1 && !matches!(self.shape, Shape::Guests { .. }) {
            return Err("iothreads needs a virtual machine, such as vm:optane-900p".into());
        }
        let Shape::Raid { level, members } = self.shape else {
            return if self.lost > 0 || self.rebuild_mb_per_s.is_some() {
                Err("degraded and rebuild need an array, such as raid5:4xoptane-900p".into())
            } else if self.member > 0 {
                Err("member needs an array, such as raid5:4xoptane-900p".into())
            } else {
                Ok(())
            };
        };
        let lost = self.lost + u32::from(self.rebuild_mb_per_s.is_some());
        let can = level.spare_members(members);
        if lost > can {
            return Err(format!(
                "RAID {} over {members} devices without {lost} of them is impossible: it can lose {can}",
                level.number()
            ));
        }
        if self.lost > 0 && self.rebuild_mb_per_s.is_some() {
            return Err("degraded and rebuild exclude each other: rebuild lacks one member".into());
        }
        if self.member >= members {
            return Err(format!(
                "member={}: expected 0 to {}",
                self.member,
                members - 1
            ));
        }
        Ok(())
    }

    fn option(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let number = |low: f64, high: f64| match value.parse::<f64>() {
            Ok(x) if (low..=high).contains(&x) => Ok(x),
            _ => Err(format!(
                "{key}={value}: expected a number from {low} to {high}"
            )),
        };
        match key {
            "poll" => self.host.completions = Completions::Polling,
            "idle" => {
                self.host.idle = match value {
                    "on" | "menu" => Idle::Menu,
                    "off" | "shallow" => Idle::Shallow,
                    "busy" => Idle::Busy,
                    _ => return Err(format!("idle={value}: expected on, shallow or busy")),
                }
            }
            "scheduler" => self.host.scheduler_ns = number(0.0, 1e6)? as u64,
            "layer" => self.layer_ns = number(0.0, 1e9)? as u64,
            "iothreads" => self.iothreads = number(1.0, 64.0)? as u32,
            "cores" => self.host.cores = number(1.0, 1024.0)? as u32,
            "fill" => {
                let share = number(0.0, 100.0)? / 100.0;
                self.condition = Some((share, self.condition.is_some_and(|c| c.1)));
            }
            "state" => {
                let steady = match value {
                    "fresh" => false,
                    "steady" => true,
                    _ => return Err(format!("state={value}: expected fresh or steady")),
                };
                let share = if steady { 1.0 } else { 0.0 };
                self.condition = Some((self.condition.map_or(share, |c| c.0), steady));
            }
            "write" => {
                self.model.write.gb_per_s = number(1e-4, 1e4)?;
                self.model.check()?;
            }
            "wear" => self.wear = number(0.0, 1000.0)? / 100.0,
            "buffered" => self.buffered = true,
            "cache" => self.cache_bytes = cache(value)?,
            "chunk" => self.chunk(value)?,
            "degraded" if value.is_empty() => self.lost = 1,
            "degraded" => self.lost = number(1.0, 63.0)? as u32,
            "rebuild" if value.is_empty() => self.rebuild_mb_per_s = Some(200.0),
            "rebuild" => self.rebuild_mb_per_s = Some(number(0.1, 1e5)?),
            "member" => self.member = number(0.0, 63.0)? as u32,
            "draw" => {
                let drawn = self.model.drawn(number(0.0, 1e6)? as u32);
                self.model = drawn.map_err(|e| format!("draw: {e}"))?;
            }
            "exact" => self.exact = true,
            "fast" => self.fast = true,
            "ambient" | "airflow" => {
                let celsius = (key == "ambient")
                    .then(|| number(-40.0, 100.0))
                    .transpose()?;
                let Some(t) = &mut self.model.thermal else {
                    return Err(format!("{key}: this model has no [thermal] part"));
                };
                match celsius {
                    Some(c) => t.ambient_c = c,
                    None if value == "none" => t.c_per_w *= STILL_AIR,
                    None => return Err(format!("airflow={value}: expected none")),
                }
            }
            key if fault::KEYS.contains(&key) => self.faults.push(Fault::parse(key, value)?),
            _ => return Err(unknown(key)),
        }
        if (self.condition.is_some() || self.wear > 0.0) && self.model.flash.is_none() {
            return Err(format!(
                "{key}: this model has no flash whose state could matter"
            ));
        }
        Ok(())
    }

    /// Of an array.
    fn chunk(&mut self, value: &str) -> Result<(), String> {
        self.array.chunk = match value.parse::<Bytes>() {
            Ok(b) if b.0 >= 4096 && b.0 <= 64 << 20 && b.0.is_power_of_two() => b.0,
            _ => {
                return Err(format!(
                    "chunk={value}: expected a power of two from 4k to 64m"
                ));
            }
        };
        match self.shape {
            Shape::Raid { .. } => Ok(()),
            _ => Err("chunk needs an array, such as raid5:4xoptane-900p".into()),
        }
    }

    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        match self.shape {
            Shape::Raid { level, members } => {
                self.model.size() * u64::from(level.data_members(members))
            }
            _ => self.model.size(),
        }
    }

    /// A line for people.
    pub fn description(&self) -> String {
        let m = &self.model.description;
        match self.shape {
            Shape::Device => format!("model of {m}"),
            Shape::Raid { level, members } => {
                let state = match (self.lost, self.rebuild_mb_per_s) {
                    (0, None) => String::new(),
                    (0, Some(rate)) => format!(", rebuilding at {rate} MB/s"),
                    (n, _) => format!(", without {n} of them"),
                };
                format!(
                    "model of a RAID {} of {members} x {m}{state}",
                    level.number()
                )
            }
            Shape::Guests { machines } => {
                let s = if machines == 1 { "" } else { "s" };
                format!("model of {m} under {machines} virtual machine{s}")
            }
        }
    }
}

fn composition<'a>(prefix: &str, rest: &'a str) -> Result<(Shape, &'a str), String> {
    if let Some(n) = prefix.strip_prefix("vm") {
        let machines = if n.is_empty() {
            Some(1)
        } else {
            n.parse().ok()
        };
        return match machines {
            Some(machines @ 1..=64) => Ok((Shape::Guests { machines }, rest)),
            _ => Err(format!("{prefix}: expected vm or vm1 to vm64")),
        };
    }
    let Some(n) = prefix.strip_prefix("raid") else {
        return Err(format!(
            "'{prefix}' is no composition: expected raid0, raid1, raid5, raid6, raid10, vm or vmN before the colon"
        ));
    };
    let level = n
        .parse()
        .ok()
        .and_then(Level::from_number)
        .ok_or_else(|| format!("RAID '{n}' is not known: expected 0, 1, 5, 6 or 10"))?;
    let (count, model) = rest
        .split_once('x')
        .and_then(|(n, m)| Some((n.parse::<u32>().ok()?, m)))
        .ok_or_else(|| {
            format!(
                "'{rest}' names no members: expected a count and a model, such as 4xoptane-900p"
            )
        })?;
    if count < level.members_min() {
        return Err(format!(
            "RAID {} over {count} device(s) is impossible: it needs at least {}",
            level.number(),
            level.members_min()
        ));
    }
    if count > 64 {
        return Err(format!("{count} members: expected 64 or fewer"));
    }
    if level == Level::Raid10 && count % 2 == 1 {
        return Err(format!(
            "RAID 10 over {count} devices: expected an even number"
        ));
    }
    Ok((
        Shape::Raid {
            level,
            members: count,
        },
        model,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        SimTarget::parse(name).unwrap_err().to_string()
    }

    #[test]
    fn compositions_and_options_are_understood() {
        let t = SimTarget::parse("sim:raid5:8xoptane-900p").unwrap();
        assert_eq!(
            t.shape,
            Shape::Raid {
                level: Level::Raid5,
                members: 8
            }
        );
        assert_eq!(t.size(), 7 * t.model.size());
        let t = SimTarget::parse("sim:vm4:intel-s3510,idle=busy,fill=90,state=steady").unwrap();
        assert_eq!(t.shape, Shape::Guests { machines: 4 });
        assert_eq!((t.host.idle, t.condition), (Idle::Busy, Some((0.9, true))));
    }

    #[test]
    fn the_impossible_is_refused_with_what_is_needed() {
        assert!(refusal("sim:raid5:2xoptane-900p").contains("needs at least 3"));
        assert!(refusal("sim:raid10:5xoptane-900p").contains("even number"));
        assert!(refusal("sim:raid7:4xoptane-900p").contains("expected 0, 1, 5, 6 or 10"));
        assert!(refusal("sim:raid5:optane-900p").contains("4xoptane-900p"));
        assert!(refusal("sim:vm0:optane-900p").contains("vm1 to vm64"));
        assert!(refusal("sim:vm:raid5:4xhdd").contains("have one level"));
        assert!(refusal("sim:optane-900p,colour=3").contains("unknown option 'colour'"));
        assert!(refusal("sim:optane-900p,state=steady").contains("no flash"));
        assert!(refusal("sim:raid0:4xoptane-900p,degraded").contains("it can lose 0"));
        assert!(refusal("sim:raid5:4xoptane-900p,degraded=2").contains("it can lose 1"));
        assert!(refusal("sim:optane-900p,rebuild").contains("need an array"));
        assert!(refusal("sim:optane-900p,iothreads=2").contains("needs a virtual machine"));
        assert!(refusal("sim:optane-900p,chunk=64k").contains("needs an array"));
        assert!(refusal("sim:raid5:4xoptane-900p,chunk=100k").contains("power of two"));
        assert!(refusal("sim:intel-s3510,ambient=40").contains("no [thermal] part"));
        assert!(refusal("sim:optane-900p,stall=3s").contains("stall=2s+500ms"));
        assert!(refusal("sim:optan-900p").contains("did you mean sim:optane-900p?"));
        assert!(refusal("sim:/nowhere/x.toml").contains("cannot be read"));
    }
}
