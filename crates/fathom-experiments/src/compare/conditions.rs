//! Under which conditions two runs were made, and where these differ.

use std::collections::{BTreeMap, BTreeSet};

use fathom_telemetry::schema::Run;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a differing condition does to a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Numbers are of different kinds: refused, unless the condition is allowed by name.
    Refuses,
    /// May be what is compared; with several of these a difference has no single cause.
    Warns,
}

/// A condition that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Name, as `--allow` takes it.
    pub condition: String,
    /// In A; absent where unknown.
    pub a: Option<String>,
    /// In B.
    pub b: Option<String>,
    /// What it does.
    pub weight: Weight,
}

impl Mismatch {
    /// One sentence; `a` and `b` say where each value was: "in A", "in B".
    pub fn sentence(&self, a: &str, b: &str) -> String {
        let show = |v: &Option<String>| v.clone().unwrap_or_else(|| "unknown".into());
        format!(
            "{} differs: {} {a}, {} {b}",
            self.condition,
            show(&self.a),
            show(&self.b)
        )
    }
}

/// The names of all conditions, for help.
pub const CONDITIONS: &[(&str, Weight)] = &[
    ("simulated", Weight::Refuses),
    ("kind", Weight::Refuses),
    ("size", Weight::Refuses),
    ("device", Weight::Warns),
    ("firmware", Weight::Warns),
    ("file-system", Weight::Warns),
    ("scheduler", Weight::Warns),
    ("queue", Weight::Warns),
    ("kernel", Weight::Warns),
    ("kernel-command-line", Weight::Warns),
    ("cpu", Weight::Warns),
    ("processors", Weight::Warns),
    ("governor", Weight::Warns),
    ("mitigations", Weight::Warns),
    ("virtualization", Weight::Warns),
    ("fathom", Weight::Warns),
    ("build", Weight::Warns),
    ("profile", Weight::Warns),
    ("hosts", Weight::Warns),
    ("host-kernels", Weight::Warns),
    ("host-clocks", Weight::Warns),
    ("host-mounts", Weight::Warns),
    ("host-sizes", Weight::Warns),
];

/// Every condition that differs, those in `allowed` left out.
pub fn mismatches(a: &Run, b: &Run, allowed: &[String]) -> Vec<Mismatch> {
    let (a, b) = (conditions(a), conditions(b));
    CONDITIONS
        .iter()
        .filter(|(name, _)| !allowed.iter().any(|x| x == name))
        .filter_map(|(name, weight)| {
            let (va, vb) = (a.get(name), b.get(name));
            (va != vb).then(|| Mismatch {
                condition: (*name).to_owned(),
                a: va.cloned(),
                b: vb.cloned(),
                weight: *weight,
            })
        })
        .collect()
}

/// Conditions that stand in the environment as they are.
const OF_ENVIRONMENT: [(&str, &str); 9] = [
    ("firmware", "/storage/devices/0/firmware"),
    ("scheduler", "/storage/devices/0/queue/scheduler"),
    ("kernel", "/kernel/release"),
    ("kernel-command-line", "/kernel/command_line"),
    ("cpu", "/cpu/model"),
    ("governor", "/cpu/governors"),
    ("mitigations", "/cpu/mitigations"),
    ("virtualization", "/virtualization/hypervisor"),
    ("build", "/build_profile"),
];
/// What is compared of a device's queue.
const QUEUE: [&str; 6] = [
    "nr_requests",
    "hardware_queues",
    "poll_queues",
    "write_cache",
    "nomerges",
    "max_sectors_kb",
];

/// The texts at some places, as far as they are there.
fn joined(v: &Value, places: &[&str]) -> String {
    let texts = places.iter().filter_map(|p| text(v.pointer(p)));
    texts.collect::<Vec<_>>().join(" ")
}

pub(super) fn conditions(run: &Run) -> BTreeMap<&'static str, String> {
    let e = &run.environment;
    let mut out = BTreeMap::new();
    let mut put = |name, value: Option<String>| {
        if let Some(v) = value.filter(|v| !v.is_empty()) {
            out.insert(name, v);
        }
    };
    for (name, path) in OF_ENVIRONMENT {
        put(name, text(e.pointer(path)));
    }
    let device = e.pointer("/storage/devices/0");
    put(
        "simulated",
        Some(if run.simulated { "simulated" } else { "real" }.into()),
    );
    put("kind", Some(run.target.kind.clone()));
    put("size", Some(format!("{} bytes", run.target.size_bytes)));
    // Serial numbers tell two drives of one model apart.
    let identity = device.map_or_else(String::new, |d| joined(d, &["/model", "/serial"]));
    put(
        "device",
        if run.simulated {
            // Two models may have one capacity, and are two devices all the same.
            Some(run.target.name.clone())
        } else if identity.is_empty() {
            run.target.device.clone()
        } else {
            Some(identity)
        },
    );
    let fs = e.pointer("/storage/file_system");
    put(
        "file-system",
        fs.filter(|f| f.is_object())
            .map(|f| joined(f, &["/fs_type", "/mount_options"])),
    );
    put(
        "queue",
        device.and_then(|d| d.pointer("/queue")).map(|q| {
            QUEUE
                .iter()
                .filter_map(|k| Some(format!("{k}={}", text(q.get(k))?)))
                .collect::<Vec<_>>()
                .join(" ")
        }),
    );
    // Kept busy or awake (--cpu); the jobs that compare settings have both.
    let kept: BTreeSet<&str> = run
        .jobs
        .iter()
        .filter(|j| j.experiment != "cpu")
        .flat_map(|j| &j.engine_notes)
        .filter_map(|n| n.strip_prefix(fathom_bench::cpu::NOTE))
        .collect();
    put(
        "processors",
        Some(kept.into_iter().collect::<Vec<_>>().join(", ")),
    );
    put("fathom", Some(run.tool_version.clone()));
    put("profile", run.profile.clone());
    out
}

fn text(v: Option<&Value>) -> Option<String> {
    match v? {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        Value::Array(a) => Some(
            a.iter()
                .filter_map(|v| text(Some(v)))
                .collect::<Vec<_>>()
                .join(","),
        ),
        other => Some(other.to_string()),
    }
}
