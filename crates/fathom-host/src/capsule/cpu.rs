//! Processors, their idle states, memory and memory nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::meminfo::meminfo;
use crate::root::{HostRoot, choice, flag, names, number, text};

/// Processors and what slows them down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Model name.
    pub model: Option<String>,
    /// `x86_64`, `aarch64`, …
    pub architecture: String,
    /// Hardware threads that are online.
    pub threads: usize,
    /// Cores.
    pub cores: Option<usize>,
    /// Packages.
    pub sockets: Option<usize>,
    /// Whether cores share themselves between threads.
    pub smt_active: Option<bool>,
    /// Frequency governors in use, each once.
    pub governors: Vec<String>,
    /// Frequency driver.
    pub frequency_driver: Option<String>,
    /// Energy and performance preferences in use, each once.
    pub energy_preferences: Vec<String>,
    /// Lowest frequency, kHz.
    pub min_frequency_khz: Option<u64>,
    /// Highest frequency, kHz.
    pub max_frequency_khz: Option<u64>,
    /// Whether frequencies above the nominal one are allowed.
    pub boost: Option<bool>,
    /// Microcode revision.
    pub microcode: Option<String>,
    /// Idle states.
    pub idle: Idle,
    /// Weakness to what the kernel does about it.
    pub mitigations: BTreeMap<String, String>,
}

/// What processors do when they have nothing to do; waking up costs latency.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Idle {
    /// Idle driver.
    pub driver: Option<String>,
    /// Idle governor.
    pub governor: Option<String>,
    /// States of the first processor, shallow to deep.
    pub states: Vec<IdleState>,
}

/// One idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// `POLL`, `C1E`, `C6`, …
    pub name: String,
    /// Time to wake up, µs.
    pub exit_latency_us: Option<u64>,
    /// Time that it must last to be worth it, µs.
    pub residency_us: Option<u64>,
    /// Processors on which it is disabled.
    pub disabled_on: usize,
}

impl Cpu {
    pub(super) fn read(root: &HostRoot) -> Self {
        let base = root.sys.join("devices/system/cpu");
        let cpus = cpu_dirs(root);
        let info = text(&root.proc.join("cpuinfo")).unwrap_or_default();
        let line = |name: &str| cpuinfo(&info, name);
        let each = |file: &str| -> Vec<String> {
            let set: BTreeSet<String> = cpus.iter().filter_map(|c| text(&c.join(file))).collect();
            set.into_iter().collect()
        };
        let distinct = |key: &dyn Fn(&PathBuf) -> Option<String>| {
            let set: BTreeSet<String> = cpus.iter().filter_map(key).collect();
            (!set.is_empty()).then_some(set.len())
        };
        let package = |c: &PathBuf| text(&c.join("topology/physical_package_id"));
        let core = |c: &PathBuf| {
            let core = text(&c.join("topology/core_id"))?;
            Some(format!("{}:{core}", package(c)?))
        };
        let first = |file: &str| cpus.iter().find_map(|c| number(&c.join(file)));
        Self {
            model: line("model name").or_else(|| line("Model")),
            architecture: std::env::consts::ARCH.to_string(),
            threads: cpus.len().max(count_processors(&info)),
            cores: distinct(&core),
            sockets: distinct(&package),
            smt_active: flag(&base.join("smt/active")),
            governors: each("cpufreq/scaling_governor"),
            frequency_driver: each("cpufreq/scaling_driver").into_iter().next(),
            energy_preferences: each("cpufreq/energy_performance_preference"),
            min_frequency_khz: first("cpufreq/cpuinfo_min_freq"),
            max_frequency_khz: first("cpufreq/cpuinfo_max_freq"),
            boost: flag(&base.join("cpufreq/boost"))
                .or_else(|| flag(&base.join("intel_pstate/no_turbo")).map(|off| !off)),
            microcode: line("microcode"),
            idle: Idle::read(root, &cpus),
            mitigations: names(&base.join("vulnerabilities"))
                .into_iter()
                .filter_map(|n| {
                    let value = text(&base.join("vulnerabilities").join(&n))?;
                    Some((n, value))
                })
                .collect(),
        }
    }
}

impl Idle {
    fn read(root: &HostRoot, cpus: &[PathBuf]) -> Self {
        let base = root.sys.join("devices/system/cpu/cpuidle");
        let states = cpus.first().map(|first| {
            let dir = first.join("cpuidle");
            names(&dir)
                .into_iter()
                .filter_map(|state| {
                    let file = |name: &str| dir.join(&state).join(name);
                    let disabled = cpus.iter().filter(|c| {
                        flag(&c.join("cpuidle").join(&state).join("disable")) == Some(true)
                    });
                    Some(IdleState {
                        name: text(&file("name"))?,
                        exit_latency_us: number(&file("latency")),
                        residency_us: number(&file("residency")),
                        disabled_on: disabled.count(),
                    })
                })
                .collect()
        });
        Self {
            driver: text(&base.join("current_driver")),
            governor: text(&base.join("current_governor"))
                .or_else(|| text(&base.join("current_governor_ro"))),
            states: states.unwrap_or_default(),
        }
    }
}

/// Directories of the processors that are online.
fn cpu_dirs(root: &HostRoot) -> Vec<PathBuf> {
    let base = root.sys.join("devices/system/cpu");
    names(&base)
        .into_iter()
        .filter(|n| {
            n.strip_prefix("cpu")
                .is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(|n| base.join(n))
        // The first processor often has no such file: it cannot be switched off.
        .filter(|dir| flag(&dir.join("online")) != Some(false))
        .collect()
}

fn cpuinfo(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_string())
    })
}

fn count_processors(text: &str) -> usize {
    text.lines()
        .filter(|l| l.split(':').next().is_some_and(|k| k.trim() == "processor"))
        .count()
}

/// Memory of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Memory {
    /// Bytes of memory.
    pub total_bytes: Option<u64>,
    /// Bytes in no use at all.
    pub free_bytes: Option<u64>,
    /// Bytes that programs could have without swapping.
    pub available_bytes: Option<u64>,
    /// Bytes of swap areas.
    pub swap_total_bytes: Option<u64>,
    /// Reserved huge pages.
    pub huge_pages_total: Option<u64>,
    /// Reserved huge pages in no use.
    pub huge_pages_free: Option<u64>,
    /// Bytes of a huge page.
    pub huge_page_bytes: Option<u64>,
    /// `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
}

impl Memory {
    pub(super) fn read(root: &HostRoot) -> Self {
        let info = text(&root.proc.join("meminfo")).unwrap_or_default();
        let line = |name: &str| meminfo(&info, name);
        Self {
            total_bytes: line("MemTotal"),
            free_bytes: line("MemFree"),
            available_bytes: line("MemAvailable"),
            swap_total_bytes: line("SwapTotal"),
            huge_pages_total: line("HugePages_Total"),
            huge_pages_free: line("HugePages_Free"),
            huge_page_bytes: line("Hugepagesize"),
            transparent_huge_pages: text(&root.sys.join("kernel/mm/transparent_hugepage/enabled"))
                .and_then(|t| choice(&t).0),
        }
    }
}

/// One memory node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its processors, as a list of ranges.
    pub cpus: Option<String>,
    /// Bytes of memory.
    pub memory_total_bytes: Option<u64>,
    /// Bytes in no use.
    pub memory_free_bytes: Option<u64>,
    /// Relative distance to every node, 10 for itself.
    pub distances: Vec<u32>,
}

impl NumaNode {
    pub(super) fn read_all(root: &HostRoot) -> Vec<Self> {
        let base = root.sys.join("devices/system/node");
        names(&base)
            .into_iter()
            .filter_map(|name| {
                let id = name.strip_prefix("node")?.parse().ok()?;
                let dir = base.join(&name);
                let info = text(&dir.join("meminfo")).unwrap_or_default();
                Some(Self {
                    id,
                    cpus: text(&dir.join("cpulist")),
                    memory_total_bytes: meminfo(&info, "MemTotal"),
                    memory_free_bytes: meminfo(&info, "MemFree"),
                    distances: text(&dir.join("distance"))
                        .unwrap_or_default()
                        .split_whitespace()
                        .filter_map(|d| d.parse().ok())
                        .collect(),
                })
            })
            .collect()
    }
}
