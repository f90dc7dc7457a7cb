//! One job as written: its options, global ones first, and typed access to them.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::FioError;
use crate::options::value::{self, Quantity};
use crate::options::{self, EngineFate, OptionDef};

/// An option as written.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) option: &'static OptionDef,
    pub(crate) value: Option<String>,
    /// From `[global]`.
    pub(crate) global: bool,
}

/// One job as written.
#[derive(Debug, Clone)]
pub struct Section {
    /// Name of the section, or of `--name`.
    pub name: String,
    pub(crate) settings: Vec<Setting>,
    /// Another job file begins here.
    pub(crate) wall: bool,
}

impl Section {
    /// The last value of an option; `Some("")` for a flag without one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.settings
            .iter()
            .rev()
            .find(|s| s.option.name == name)
            .map(|s| s.value.as_deref().unwrap_or("").trim_start())
    }
    /// Its name in the output: one of `[global]` is none of its own.
    pub(crate) fn own_name(&self) -> &str {
        self.settings
            .iter()
            .rev()
            .find(|s| s.option.name == "name" && !s.global)
            .and_then(|s| s.value.as_deref().map(str::trim_start))
            .filter(|n| !n.is_empty())
            .unwrap_or(&self.name)
    }
    /// Every file that is named, those of `[global]` first: each `filename` adds to those before it.
    pub(crate) fn file_names(&self) -> Vec<String> {
        self.settings
            .iter()
            .filter(|s| s.option.name == "filename")
            .filter_map(|s| s.value.as_deref())
            .flat_map(names)
            .chain(self.opened_directory())
            .collect()
    }
    /// The files below `opendir`, in the order of their names.
    fn opened_directory(&self) -> Vec<String> {
        let directory = self.text("opendir");
        directory
            .and_then(|d| files_below(d.as_ref()).ok())
            .unwrap_or_default()
    }
    pub(crate) fn has(&self, name: &str) -> bool {
        self.text(name).is_some()
    }
    /// A value that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        match self.get(name) {
            None => default,
            Some("") => true,
            Some(v) => value::unsigned(v).is_some_and(|n| n != 0),
        }
    }
    pub(crate) fn kb_base(&self) -> u64 {
        match self.get("kb_base") {
            Some("1000") => 1000,
            _ => 1024,
        }
    }
    /// A size or percentage; what follows a comma is left out.
    pub(crate) fn quantity(&self, name: &str) -> Option<Quantity> {
        let head = self.get(name)?.split(',').next()?;
        value::number(head, self.kb_base())
    }
    /// A plain number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.quantity(name)? {
            Quantity::Plain(v) => u64::try_from(v).ok(),
            Quantity::Percent(_) | Quantity::Zones(_) => None,
        }
    }
    /// A plain number that is not 0.
    pub(crate) fn positive(&self, name: &str) -> Option<u64> {
        self.number(name).filter(|n| *n > 0)
    }
    /// Numbers for reads, writes and trims: the first holds where one is missing.
    pub(crate) fn per_direction(&self, name: &str) -> Option<[u64; 3]> {
        let text = self.get(name)?;
        let mut out = [0; 3];
        let mut last = 0;
        let parts: Vec<&str> = text.split(',').collect();
        for (i, slot) in out.iter_mut().enumerate() {
            if let Some(part) = parts.get(i) {
                last = if part.is_empty() {
                    0
                } else {
                    match value::number(part, self.kb_base())? {
                        Quantity::Plain(v) => u64::try_from(v).ok()?,
                        _ => return None,
                    }
                };
            }
            *slot = last;
        }
        Some(out)
    }
    /// A duration in ns.
    pub(crate) fn nanos(&self, name: &str) -> Option<u64> {
        let text = self.get(name)?;
        let bare_seconds = options::find(name)
            .is_some_and(|o| matches!(o.kind, options::Kind::Time { bare_seconds: true }));
        value::micros(text, bare_seconds)?.checked_mul(1000)
    }
    /// That a value is not possible, and why.
    pub(crate) fn invalid(&self, option: &str, why: impl Into<String>) -> FioError {
        FioError::value(&self.name, option, why)
    }
    /// Name of the engine; fio's default on Linux is psync.
    pub(crate) fn engine(&self) -> &str {
        let name = self
            .get("ioengine")
            .map_or("psync", |e| e.split([':', ',']).next().unwrap_or(e));
        match name {
            n if n.starts_with("linuxaio") || n.starts_with("aio") => "libaio",
            n => n,
        }
    }

    /// Adds an option after fio's own checks.
    pub(crate) fn add(
        &mut self,
        name: &str,
        value: Option<String>,
        global: bool,
    ) -> Result<(), FioError> {
        let Some(option) = options::find(name) else {
            return Err(FioError::Unknown {
                job: self.name.clone(),
                name: name.to_owned(),
                hint: nearest(name).map(|n| format!("(did you mean '{n}'?)")),
            });
        };
        option
            .check(value.as_deref())
            .map_err(|m| self.invalid(name, m))?;
        self.settings.push(Setting {
            option,
            value,
            global,
        });
        Ok(())
    }

    /// Options that belong to an engine need that engine, as in fio.
    pub(crate) fn check_engine_options(&self, global: bool) -> Result<(), FioError> {
        let engine = self.engine();
        for s in &self.settings {
            if s.global == global
                && !s.option.engines.is_empty()
                && !s.option.engines.contains(&engine)
            {
                return Err(FioError::Unknown {
                    job: self.name.clone(),
                    name: s.option.name.to_owned(),
                    hint: Some(format!("for the engine {engine}")),
                });
            }
        }
        Ok(())
    }

    /// Whether fathom serves the engine.
    pub(crate) fn engine_fate(&self) -> EngineFate {
        options::engine(self.engine()).unwrap_or(EngineFate::Missing)
    }

    /// Whether the engine is one that fio has and fathom has not: its options are unknown here.
    pub(crate) fn foreign_engine(&self) -> bool {
        options::engine(self.engine()) == Some(EngineFate::Missing)
            || self
                .get("ioengine")
                .is_some_and(|e| e.starts_with("external:"))
    }

    /// The options in the words of fio's `job options`: name and value, as strings.
    pub fn echo(&self, global: bool) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        for s in self.settings.iter().filter(|s| s.global == global) {
            let value = s.value.clone().unwrap_or_default();
            match out.iter_mut().find(|(n, _)| *n == s.option.name) {
                Some(slot) => slot.1 = value,
                None => out.push((s.option.name.to_owned(), value)),
            }
        }
        out
    }
}

/// The known name that differs least.
fn nearest(name: &str) -> Option<&'static str> {
    let near = |other: &str| {
        let same = name
            .bytes()
            .zip(other.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        let tail = name
            .bytes()
            .rev()
            .zip(other.bytes().rev())
            .take_while(|(a, b)| a == b)
            .count();
        (same + tail).min(other.len())
    };
    options::all()
        .map(|o| (near(o.name), o.name))
        .filter(|(n, o)| *n + 2 >= o.len() && *n + 2 >= name.len())
        .max()
        .map(|(_, o)| o)
}

/// Names between colons; `\:` is a colon of the name.
pub fn names(text: &str) -> Vec<String> {
    text.trim()
        .replace("\\:", "\u{0}")
        .split(':')
        .filter(|n| !n.is_empty())
        .map(|n| n.replace('\u{0}', ":"))
        .collect()
}

/// Regular files and block devices below a directory, by name; links are not followed.
pub(crate) fn files_below(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut out = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() || kind.is_block_device() {
                out.push(entry.path().display().to_string());
            }
        }
    }
    out.sort();
    Ok(out)
}
