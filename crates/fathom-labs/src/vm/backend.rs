//! What the VM lab asks of those who run machines: one file per backend, behind one trait.

use std::path::Path;

use fathom_bench::{Bench, Notebook};
use fathom_telemetry::{Bytes, Flag};

use serde::{Deserialize, Serialize};

use super::layers::LayersResult;
use crate::LabError;

/// Something that can be set for a machine or its disk.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Its name: `cache`.
    pub name: &'static str,
    /// What it can be, the default first; an empty list takes a number.
    pub values: &'static [&'static str],
    /// What it does.
    pub help: &'static str,
}

/// Settings of a machine and its disk, those that differ from the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setup(Vec<(String, String)>);

impl Knob {
    /// The setting with the value that differs most from the usual one, and gives nothing up.
    pub fn example(&self) -> Option<String> {
        let value = self.values.iter().rev().find(|v| **v != "unsafe")?;
        Some(format!("{}={value}", self.name))
    }
}

impl Setup {
    /// From `cache=writeback,iothread=off`, held against what the backend knows.
    ///
    /// # Errors
    /// Names the setting, what was expected, and all that there are.
    pub fn parse(text: &str, knobs: &[Knob]) -> Result<Self, LabError> {
        let mut all = Vec::new();
        for part in text.split([',', ' ']).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, "on"));
            let Some(knob) = knobs.iter().find(|k| k.name == name) else {
                let names: Vec<&str> = knobs.iter().map(|k| k.name).collect();
                return Err(LabError::Refused(format!(
                    "'{name}' is no setting of these machines: expected {}",
                    names.join(", ")
                )));
            };
            let number = knob.values.is_empty() && value.parse::<u64>().is_ok();
            if !(number || knob.values.contains(&value)) {
                let expected = if knob.values.is_empty() {
                    "a number".to_owned()
                } else {
                    knob.values.join(", ")
                };
                return Err(LabError::Refused(format!(
                    "{name}={value}: expected {expected}"
                )));
            }
            all.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self(all))
    }

    /// A setting's value, where it was given.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|s| s.0 == name);
        found.map(|s| s.1.as_str())
    }

    /// This setup with another's settings on top.
    pub fn with(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// `cache=writeback,iothread=off`; `defaults` where nothing was set.
    pub fn words(&self) -> String {
        if self.0.is_empty() {
            return "defaults".into();
        }
        let all: Vec<String> = self.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
        all.join(",")
    }
}

/// Runs machines over the target.
pub trait Hypervisor {
    /// Its name: `sim`, `qemu`, `ssh`.
    fn name(&self) -> &'static str;
    /// In words, for the report.
    fn about(&self) -> String;
    /// What can be set, for `--set` and `--try`.
    fn knobs(&self) -> &'static [Knob];
    /// Starts `machines`, each with a part of the target of its own as its disk. Job i of a group runs in machine
    /// i; all of a group start at the same moment. Closing the bench ends the machines.
    ///
    /// # Errors
    /// Where one does not start; none is left then.
    fn boot(&mut self, setup: &Setup, machines: u32) -> Result<Box<dyn Bench>, LabError>;
    /// One machine whose disk answers at once; `None` where there is no such thing.
    ///
    /// # Errors
    /// As [`Hypervisor::boot`].
    fn floor(&mut self, setup: &Setup) -> Result<Option<Box<dyn Bench>>, LabError>;
    /// One machine whose disk is this file or device, whole; `None` where there is no such thing.
    ///
    /// # Errors
    /// As [`Hypervisor::boot`].
    fn over(
        &mut self,
        _setup: &Setup,
        _disk: &Path,
        _size: Bytes,
    ) -> Result<Option<Box<dyn Bench>>, LabError> {
        Ok(None)
    }
    /// Latency by layer in a machine and on its host at the same time; `None` where there is no such thing.
    ///
    /// # Errors
    /// Where one side cannot be traced.
    fn layers(
        &mut self,
        _setup: &Setup,
        _book: &mut Notebook,
    ) -> Result<Option<LayersResult>, LabError> {
        Ok(None)
    }
    /// What stands against every number.
    fn stamps(&self) -> Vec<Flag>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOBS: &[Knob] = &[
        Knob {
            name: "cache",
            values: &["none", "writeback"],
            help: "",
        },
        Knob {
            name: "vcpus",
            values: &[],
            help: "",
        },
    ];

    #[test]
    fn the_last_of_several_values_holds() {
        let base = Setup::parse("cache=none,vcpus=2", KNOBS).unwrap();
        let other = Setup::parse("cache=writeback", KNOBS).unwrap();
        assert_eq!(base.with(&other).get("cache"), Some("writeback"));
        assert_eq!(base.with(&other).get("vcpus"), Some("2"));
        assert_eq!(
            (base.get("aio"), Setup::default().words()),
            (None, "defaults".into())
        );
    }

    #[test]
    fn unknown_settings_are_refused_with_those_that_there_are() {
        let refused = |t| Setup::parse(t, KNOBS).unwrap_err().to_string();
        assert!(refused("colour=red").contains("expected cache, vcpus"));
        assert!(refused("cache=always").contains("expected none, writeback"));
        assert!(refused("vcpus=many").contains("expected a number"));
    }
}
