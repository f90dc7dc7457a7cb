//! fio's options, each defined once: parser, refusals and the table in `docs/fio.md` come from here.
//!
//! Values are judged as fio judges them, oddities included, so that a job file which fio
//! takes is taken and one which fio rejects is rejected.

mod check;
mod engines;
mod load;
mod other;
pub(crate) mod value;

/// What an option's value looks like, and its bounds (0, 0: none).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text but the empty one.
    Text,
    /// Name of an I/O engine.
    Engine,
    /// One of these words, perhaps with more after a colon or comma.
    Choice(&'static [&'static str]),
    /// Text with a grammar of its own.
    Free,
    /// A number of 32 bits; size suffixes count.
    Int(i64, u64),
    /// A number of 64 bits; size suffixes count.
    Size(i64, u64),
    /// A size, a percentage or a number of zones.
    Zone,
    /// A duration; bare numbers are seconds or microseconds.
    Time {
        /// Bare numbers are seconds.
        bare_seconds: bool,
    },
    /// `1k-4k`, up to three.
    Range,
    /// Numbers with colons between.
    Floats {
        /// How many at most.
        len: usize,
        /// Smallest.
        low: f64,
        /// Largest; no bounds where both are 0.
        high: f64,
    },
    /// `0` or `1`, needed.
    Bool,
    /// `0` or `1`, or nothing for 1.
    Flag,
    /// fio rejects it.
    Deprecated,
    /// fio ignores it.
    Ignored,
}

/// What becomes of an option here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It does what it does in fio.
    Mapped,
    /// Accepted; it changes nothing that is measured.
    Harmless,
    /// Refused by name, unless its value is the default.
    Refused,
}

/// One option.
#[derive(Debug)]
pub struct OptionDef {
    /// fio's name.
    pub name: &'static str,
    /// fio's other name, or empty.
    pub alias: &'static str,
    /// What it looks like.
    pub kind: Kind,
    /// fio's default, or empty.
    pub default: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// What it maps to, or why it is harmless or refused.
    pub note: &'static str,
    /// Engines that have it; empty for all.
    pub engines: &'static [&'static str],
}

#[allow(clippy::too_many_arguments)]
const fn def(
    name: &'static str,
    alias: &'static str,
    kind: Kind,
    default: &'static str,
    fate: Fate,
    note: &'static str,
    engines: &'static [&'static str],
) -> OptionDef {
    OptionDef {
        name,
        alias,
        kind,
        default,
        fate,
        note,
        engines,
    }
}

/// Every option, in fio's order.
pub fn all() -> impl Iterator<Item = &'static OptionDef> {
    load::LOAD
        .iter()
        .chain(other::OTHER)
        .chain(engines::ENGINES)
}

/// The option of this name or alias. Aliases that fio's own table cannot hold are known too.
pub fn find(name: &str) -> Option<&'static OptionDef> {
    let name = match name {
        "threads" => "thread",
        "log_max_value" => "log_window_value",
        other => other,
    };
    all().find(|o| o.name == name || (!o.alias.is_empty() && o.alias == name))
}

/// How fathom serves an engine of fio's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFate {
    /// preadv2 and pwritev2, one I/O at a time.
    Sync,
    /// io_uring.
    Async,
    /// Other calls on a file, one at a time.
    Calls,
    /// No I/O.
    Null,
    /// No file: names, sockets, programs.
    Apart,
    /// fio has it, fathom does not.
    Missing,
}

/// fathom's feature `http` brings it.
const HTTP_FATE: EngineFate = match cfg!(feature = "http") {
    true => EngineFate::Apart,
    false => EngineFate::Missing,
};

/// fio's engines. Those that fathom serves come first.
pub const ENGINES: &[(&str, EngineFate)] = &[
    ("psync", EngineFate::Sync),
    ("sync", EngineFate::Sync),
    ("vsync", EngineFate::Sync),
    ("pvsync", EngineFate::Sync),
    ("pvsync2", EngineFate::Sync),
    ("mmap", EngineFate::Sync),
    ("libaio", EngineFate::Async),
    ("io_uring", EngineFate::Async),
    ("posixaio", EngineFate::Async),
    ("null", EngineFate::Null),
    ("io_uring_cmd", EngineFate::Async),
    ("cpuio", EngineFate::Null),
    ("splice", EngineFate::Calls),
    ("ftruncate", EngineFate::Calls),
    ("filecreate", EngineFate::Apart),
    ("filedelete", EngineFate::Apart),
    ("filestat", EngineFate::Apart),
    ("falloc", EngineFate::Calls),
    ("e4defrag", EngineFate::Missing),
    ("sg", EngineFate::Missing),
    ("net", EngineFate::Apart),
    ("netsplice", EngineFate::Apart),
    ("http", HTTP_FATE),
    ("mtd", EngineFate::Missing),
    ("exec", EngineFate::Apart),
    ("rbd", EngineFate::Missing),
    ("rados", EngineFate::Missing),
    ("nfs", EngineFate::Missing),
    ("nbd", EngineFate::Missing),
    ("rdma", EngineFate::Missing),
    ("gfapi", EngineFate::Missing),
    ("gfapi_async", EngineFate::Missing),
    ("libhdfs", EngineFate::Missing),
    ("libiscsi", EngineFate::Missing),
    ("libpmem", EngineFate::Missing),
    ("dev-dax", EngineFate::Missing),
    ("libblkio", EngineFate::Missing),
    ("xnvme", EngineFate::Missing),
    ("cpp_null", EngineFate::Missing),
    ("dfs", EngineFate::Missing),
    ("dircreate", EngineFate::Apart),
    ("dirdelete", EngineFate::Apart),
    ("dirstat", EngineFate::Apart),
    ("fileoperations", EngineFate::Missing),
    ("ime_aio", EngineFate::Missing),
    ("ime_psync", EngineFate::Missing),
    ("ime_psyncv", EngineFate::Missing),
    ("libcufile", EngineFate::Missing),
    ("libhipfile", EngineFate::Missing),
    ("libzbc", EngineFate::Missing),
    ("page_fault", EngineFate::Missing),
    ("pmemblk", EngineFate::Missing),
    ("solarisaio", EngineFate::Missing),
    ("windowsaio", EngineFate::Missing),
];

/// What fathom does with an engine; `None` where fio does not know it either.
pub fn engine(name: &str) -> Option<EngineFate> {
    ENGINES.iter().find(|e| e.0 == name).map(|e| e.1)
}

impl OptionDef {
    /// Judges a value as fio does. `value` is `None` where nothing follows the name.
    pub fn check(&self, value: Option<&str>) -> Result<(), String> {
        check::check(self, value)
    }

    /// Whether the value says what fio does anyway.
    pub fn is_default(&self, value: Option<&str>) -> bool {
        let value = value.unwrap_or("1").trim();
        let default = if self.default.is_empty() {
            "0"
        } else {
            self.default
        };
        let plain = |t: &str| match t {
            "none" | "no" => "0".to_owned(),
            other => other.to_owned(),
        };
        plain(value) == plain(default)
            || matches!(
                (value::number(value, 1024), value::number(default, 1024)),
                (Some(a), Some(b)) if a == b
            )
    }
}
