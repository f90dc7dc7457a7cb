//! What stands behind `sim:`: a model, an array of them, or virtual machines over one, and its options.
//!
//! `sim:MODEL`, `sim:FILE.toml`, `sim:raid5:8xMODEL`, `sim:vm:MODEL`, `sim:vm4:MODEL`, each with options after
//! commas: `sim:intel-s3510,fill=90,state=steady,idle=busy`.

use crate::host::{Completions, HostCosts, Idle};
use crate::model::{Model, SimError};
use crate::raid::{ArrayHost, Level};

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
    /// What the host of an array contributes.
    pub array: ArrayHost,
    /// Share of the device that holds data, 0 to 1, and whether random writes have brought it to a steady state.
    pub condition: Option<(f64, bool)>,
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
                message: format!("cannot be read: {e}; check the path"),
            })?;
            Model::parse(model, &text)?
        } else {
            Model::named(model)?
        };
        let mut target = Self {
            name: format!("sim:{text}"),
            model,
            shape,
            host: HostCosts::default(),
            array: ArrayHost::default(),
            condition: None,
        };
        for option in parts {
            target.option(option).map_err(bad)?;
        }
        Ok(target)
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
                    "menu" => Idle::Menu,
                    "shallow" => Idle::Shallow,
                    "busy" => Idle::Busy,
                    _ => return Err(format!("idle={value}: expected menu, shallow or busy")),
                }
            }
            "scheduler" => self.host.scheduler_ns = number(0.0, 1e6)? as u64,
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
                let share = self
                    .condition
                    .map_or(if steady { 1.0 } else { 0.0 }, |c| c.0);
                self.condition = Some((share, steady));
            }
            _ => {
                return Err(format!(
                    "unknown option '{key}': expected poll, idle, scheduler (ns), cores, fill (percent) or state"
                ));
            }
        }
        if self.condition.is_some() && self.model.flash.is_none() {
            return Err(format!(
                "{key}: this model has no flash whose state could matter"
            ));
        }
        Ok(())
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
                format!("model of a RAID {} of {members} x {m}", level.number())
            }
            Shape::Guests { machines } => {
                format!("model of {m} under {machines} virtual machine(s)")
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
        assert!(refusal("sim:optane-900p,colour=3").contains("unknown option 'colour'"));
        assert!(refusal("sim:optane-900p,state=steady").contains("no flash"));
        assert!(refusal("sim:optan-900p").contains("did you mean sim:optane-900p?"));
        assert!(refusal("sim:/nowhere/x.toml").contains("cannot be read"));
    }
}
