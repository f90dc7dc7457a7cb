//! Two runs of many hosts: the same ones by their names, what each did of the whole, and in what they differ.

use std::collections::{BTreeMap, BTreeSet};

use fathom_bench::fairness::work;
use fathom_bench::parts::listed;
use fathom_telemetry::schema::Run;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::{Mismatch, Weight};

/// What a host is known by, and where its environment has it.
const BY_HOST: [(&str, &str); 4] = [
    ("host-kernels", "/kernel"),
    ("host-clocks", "/clock"),
    ("host-mounts", "/place"),
    ("host-sizes", "/target/size_bytes"),
];

/// A host of one of the runs, or of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its name.
    pub host: String,
    /// In A; none where it had no part in that.
    pub a: Option<HostPart>,
    /// In B.
    pub b: Option<HostPart>,
}

/// What a host did in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HostPart {
    /// Of all bytes (of jobs that move none: of all operations) of the jobs in which it had a part, that are not void, a share.
    pub share: f64,
    /// Windows in which it did less than every other host.
    pub slowest_windows: u64,
    /// Its latest begin after a common start, ns.
    pub late_ns: i64,
}

/// The hosts of both runs, in the order of A, then those that are in B only.
pub(super) fn rows(a: &Run, b: &Run) -> Vec<HostRow> {
    let (mut of_a, mut of_b) = (parts(a), parts(b));
    let mut names = names(a);
    names.extend(self::names(b).into_iter().filter(|n| !of_a.contains_key(n)));
    let row = |host: String| HostRow {
        a: of_a.remove(&host),
        b: of_b.remove(&host),
        host,
    };
    names.into_iter().map(row).collect()
}

/// Conditions of hosts that differ: which there are, and of those in both what each said of itself.
pub(super) fn mismatches(a: &Run, b: &Run, allowed: &[String]) -> Vec<Mismatch> {
    let (na, nb) = (names(a), names(b));
    let mut found = Vec::new();
    let sorted = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    if sorted(&na) != sorted(&nb) {
        found.push(("hosts", only(&na, &nb), only(&nb, &na)));
    }
    let (ea, eb) = (environments(a), environments(b));
    for (condition, path) in BY_HOST {
        let both = na.iter().filter(|n| nb.contains(n));
        let differ = both.filter_map(|n| {
            let of = |e: &BTreeMap<&str, &Value>| e.get(n.as_str())?.pointer(path).cloned();
            let (va, vb) = (of(&ea)?, of(&eb)?);
            (va != vb).then_some((n, va, vb))
        });
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for (name, va, vb) in differ {
            let said = |v: Value| match v {
                Value::String(text) => format!("{text} ({name})"),
                other => format!("{other} ({name})"),
            };
            here.push(said(va));
            there.push(said(vb));
        }
        if !here.is_empty() {
            found.push((condition, listed(&here), listed(&there)));
        }
    }
    found.retain(|f| !allowed.iter().any(|name| name == f.0));
    let mismatch = |(condition, a, b): (&str, String, String)| Mismatch {
        condition: condition.to_owned(),
        a: Some(a),
        b: Some(b),
        weight: Weight::Warns,
    };
    found.into_iter().map(mismatch).collect()
}

/// How many there are, and which of them only here.
fn only(here: &[String], there: &[String]) -> String {
    let own: Vec<String> = here
        .iter()
        .filter(|n| !there.contains(n))
        .cloned()
        .collect();
    match (here.len(), own.is_empty()) {
        (0, _) => "one machine, by no name".to_owned(),
        (n, true) => format!("{n}"),
        (n, false) => format!("{n} with {}", listed(&own)),
    }
}

fn environments(run: &Run) -> BTreeMap<&str, &Value> {
    let hosts = run.environment["hosts"].as_array().into_iter().flatten();
    hosts
        .filter_map(|h| Some((h["host"].as_str()?, h)))
        .collect()
}

fn names(run: &Run) -> Vec<String> {
    let hosts = run.environment["hosts"].as_array().into_iter().flatten();
    hosts
        .filter_map(|h| Some(h["host"].as_str()?.to_owned()))
        .collect()
}

fn parts(run: &Run) -> BTreeMap<String, HostPart> {
    let mut sums: BTreeMap<&str, (f64, f64, HostPart)> = BTreeMap::new();
    for job in run.jobs.iter().filter(|j| !j.is_void()) {
        let did = work(job);
        let all: f64 = did.iter().sum();
        for (h, did) in job.hosts.iter().zip(did) {
            let (own, of, part) = sums.entry(&h.host).or_default();
            (*own, *of) = (*own + did, *of + all);
            part.slowest_windows += h.slowest_windows;
            part.late_ns = part.late_ns.max(h.late_ns);
        }
    }
    let part = |(host, (own, of, part)): (&str, (f64, f64, HostPart))| {
        let share = own / of.max(1.0);
        (host.to_owned(), HostPart { share, ..part })
    };
    sums.into_iter().map(part).collect()
}
