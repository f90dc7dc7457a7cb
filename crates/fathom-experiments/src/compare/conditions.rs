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

pub(super) fn conditions(run: &Run) -> BTreeMap<&'static str, String> {
    let e = &run.environment;
    let mut out = BTreeMap::new();
    let mut put = |name, value: Option<String>| {
        if let Some(v) = value.filter(|v| !v.is_empty()) {
            out.insert(name, v);
        }
    };
    let device = e.pointer("/storage/devices/0");
    let of_device = |path: &str| device.and_then(|d| text(d.pointer(path)));
    put(
        "simulated",
        Some(if run.simulated { "simulated" } else { "real" }.into()),
    );
    put("kind", Some(run.target.kind.clone()));
    put("size", Some(format!("{} bytes", run.target.size_bytes)));
    // Serial numbers tell two drives of one model apart.
    let identity = ["/model", "/serial"]
        .iter()
        .filter_map(|p| of_device(p))
        .collect::<Vec<_>>()
        .join(" ");
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
    put("firmware", of_device("/firmware"));
    let fs = e.pointer("/storage/file_system");
    put(
        "file-system",
        fs.filter(|f| f.is_object()).map(|f| {
            ["/fs_type", "/mount_options"]
                .iter()
                .filter_map(|p| text(f.pointer(p)))
                .collect::<Vec<_>>()
                .join(" ")
        }),
    );
    put("scheduler", of_device("/queue/scheduler"));
    put(
        "queue",
        device.and_then(|d| d.pointer("/queue")).map(|q| {
            [
                "nr_requests",
                "hardware_queues",
                "poll_queues",
                "write_cache",
                "nomerges",
                "max_sectors_kb",
            ]
            .iter()
            .filter_map(|k| Some(format!("{k}={}", text(q.get(k))?)))
            .collect::<Vec<_>>()
            .join(" ")
        }),
    );
    put("kernel", text(e.pointer("/kernel/release")));
    put(
        "kernel-command-line",
        text(e.pointer("/kernel/command_line")),
    );
    put("cpu", text(e.pointer("/cpu/model")));
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
    put("governor", text(e.pointer("/cpu/governors")));
    put("mitigations", text(e.pointer("/cpu/mitigations")));
    put(
        "virtualization",
        text(e.pointer("/virtualization/hypervisor")),
    );
    put("fathom", Some(run.tool_version.clone()));
    put("build", text(e.pointer("/build_profile")));
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
