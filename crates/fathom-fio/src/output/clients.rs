//! The JSON of several hosts as one document, in fio's form: `client_stats` holds every job with its host, and their sum.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What one host answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// As the user named it.
    pub host: String,
    /// Its JSON with histograms.
    pub document: Value,
    /// Its form for people; empty where nobody asks for it.
    pub text: String,
}

/// Name of the sum in the output.
pub(super) const ALL: &str = "All clients";

/// Keys of a direction that add up.
const SUMS: [&str; 6] = [
    "io_bytes",
    "io_kbytes",
    "total_ios",
    "short_ios",
    "drop_ios",
    "bw_samples",
];
/// Samples of rates: of jobs that run side by side, extremes and means add up.
const RATES: [&str; 7] = [
    "bw_min",
    "bw_max",
    "bw_mean",
    "iops_min",
    "iops_max",
    "iops_mean",
    "iops_samples",
];

const DIRECTIONS: [&str; 4] = ["read", "write", "trim", "mixed"];
/// Distributions in percent of I/Os.
const SHARES: [&str; 6] = [
    "iodepth_level",
    "iodepth_submit",
    "iodepth_complete",
    "latency_ns",
    "latency_us",
    "latency_ms",
];
/// What all hosts were told alike.
const LIKE_FIRST: [&str; 4] = [
    "latency_depth",
    "latency_target",
    "latency_percentile",
    "latency_window",
];

/// Hosts that begin further apart than this share of the longest job are said to.
const APART: f64 = 0.1;

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or(0.0)
}

/// A whole number where it is one.
fn of(n: f64) -> Value {
    if n.fract() == 0.0 && n.abs() < 9e15 {
        json!(n as i64)
    } else {
        json!(n)
    }
}

/// All of it; `plus` keeps histograms. The sum stands only where every host answered (`whole`): one of fewer would be taken
/// for that of all.
pub fn several(answers: &[Answer], whole: bool, plus: bool) -> Value {
    let first = answers.first().map_or(Value::Null, |a| a.document.clone());
    let mut jobs: Vec<Value> = Vec::new();
    let mut disks = Vec::new();
    for a in answers {
        for job in a.document["jobs"].as_array().into_iter().flatten() {
            let mut job = job.clone();
            job["hostname"] = json!(a.host);
            job["port"] = json!(0);
            jobs.push(job);
        }
        for disk in a.document["disk_util"].as_array().into_iter().flatten() {
            let mut disk = disk.clone();
            disk["hostname"] = json!(a.host);
            disks.push(disk);
        }
    }
    if whole && answers.len() > 1 {
        jobs.push(sum(&jobs));
    }
    if !plus {
        jobs.iter_mut().for_each(without_bins);
    }
    let mut root = Map::new();
    for key in [
        "fio version",
        "timestamp",
        "timestamp_ms",
        "time",
        "global options",
    ] {
        if !first[key].is_null() {
            root.insert(key.to_owned(), first[key].clone());
        }
    }
    root.insert("client_stats".to_owned(), Value::Array(jobs));
    root.insert("disk_util".to_owned(), Value::Array(disks));
    Value::Object(root)
}

fn without_bins(v: &mut Value) {
    match v {
        Value::Object(o) => {
            o.remove("bins");
            o.values_mut().for_each(without_bins);
        }
        Value::Array(a) => a.iter_mut().for_each(without_bins),
        _ => {}
    }
}

/// Jobs of all hosts as one job.
fn sum(jobs: &[Value]) -> Value {
    let mut all = Map::new();
    all.insert("jobname".into(), json!(ALL));
    all.insert("groupid".into(), json!(0));
    let total = |key: &str| jobs.iter().map(|j| number(j, key)).sum::<f64>();
    let most = |key: &str| jobs.iter().map(|j| number(j, key)).fold(0.0, f64::max);
    let error = jobs
        .iter()
        .find_map(|j| j["error"].as_i64().filter(|e| *e != 0));
    all.insert("error".into(), json!(error.unwrap_or(0)));
    all.insert("eta".into(), json!(0));
    all.insert("elapsed".into(), of(most("elapsed")));
    for d in DIRECTIONS {
        let parts = objects(jobs, d);
        if !parts.is_empty() {
            all.insert(d.into(), direction(&parts));
        }
    }
    let syncs = objects(jobs, "sync");
    if !syncs.is_empty() {
        let ios: f64 = syncs.iter().map(|s| number(s, "total_ios")).sum();
        let times: Vec<&Value> = syncs.iter().map(|s| &s["lat_ns"]).collect();
        let sync = json!({"total_ios": of(ios), "lat_ns": latency(&times)});
        all.insert("sync".into(), sync);
    }
    let runtime = total("job_runtime");
    all.insert("job_runtime".into(), of(runtime));
    for key in ["usr_cpu", "sys_cpu"] {
        let weighed = |j: &Value| number(j, key) * number(j, "job_runtime");
        let weighed: f64 = jobs.iter().map(weighed).sum();
        let mean = if runtime > 0.0 {
            weighed / runtime
        } else {
            0.0
        };
        all.insert(key.into(), json!(mean));
    }
    for key in ["ctx", "majf", "minf"] {
        all.insert(key.into(), of(total(key)));
    }
    for key in SHARES {
        all.insert(key.into(), json!(shares(jobs, key)));
    }
    for key in LIKE_FIRST {
        let first = jobs.first().map_or(Value::Null, |j| j[key].clone());
        all.insert(key.into(), first);
    }
    let said = against(jobs);
    if !said.is_empty() {
        all.insert("fathom".into(), json!({"flags": said}));
    }
    all.insert("hostname".into(), json!(""));
    all.insert("port".into(), json!(0));
    Value::Object(all)
}

/// What jobs say under a key, where they say something.
fn objects<'a>(jobs: &'a [Value], key: &str) -> Vec<&'a Value> {
    let parts = jobs.iter().map(|j| &j[key]);
    parts.filter(|v| v.is_object()).collect()
}

/// A distribution over all jobs: each counts by its I/Os.
fn shares(jobs: &[Value], key: &str) -> BTreeMap<String, f64> {
    let ios = |j: &Value| -> f64 { DIRECTIONS.map(|d| number(&j[d], "total_ios")).iter().sum() };
    let all_ios: f64 = jobs.iter().map(ios).sum();
    let mut shares = BTreeMap::new();
    for j in jobs {
        for (k, v) in j[key].as_object().into_iter().flatten() {
            let part = v.as_f64().unwrap_or(0.0) * ios(j) / all_ios.max(1.0);
            *shares.entry(k.clone()).or_default() += part;
        }
    }
    shares
}

/// What stands against the sum: what stands against any job in it, and that hosts did not begin together.
fn against(jobs: &[Value]) -> Vec<String> {
    let mut said = Vec::new();
    for job in jobs {
        let own = job["fathom"]["jobs"].as_array();
        let flags = own
            .into_iter()
            .flatten()
            .filter_map(|j| j["flags"].as_array());
        for detail in flags.flatten().filter_map(|f| f["detail"].as_str()) {
            let host = job["hostname"].as_str().unwrap_or_default();
            said.push(format!("{host}: {detail}"));
        }
    }
    // The first of each host, by its own clock.
    let mut begins: BTreeMap<&str, f64> = BTreeMap::new();
    for job in jobs {
        let host = job["hostname"].as_str().unwrap_or_default();
        let begin = begins.entry(host).or_insert(f64::INFINITY);
        *begin = begin.min(number(job, "job_start"));
    }
    let first = begins.values().copied().fold(f64::INFINITY, f64::min);
    let last = begins.values().copied().fold(0.0, f64::max);
    let longest = jobs
        .iter()
        .map(|j| number(j, "job_runtime"))
        .fold(0.0, f64::max);
    if last - first > longest * APART {
        said.push(format!(
            "hosts began up to {:.0} ms apart by their own clocks, and the longest job took {longest:.0} ms: speeds of jobs that did not run together are summed up; fathom run --hosts begins them at one moment",
            last - first
        ));
    }
    said
}

fn direction(parts: &[&Value]) -> Value {
    let mut all = Map::new();
    let total = |key: &str| parts.iter().map(|p| number(p, key)).sum::<f64>();
    for key in SUMS.iter().chain(&RATES) {
        all.insert((*key).to_owned(), of(total(key)));
    }
    let runtime = parts
        .iter()
        .map(|p| number(p, "runtime"))
        .fold(0.0, f64::max);
    all.insert("runtime".into(), of(runtime));
    let per_second = |n: f64| {
        if runtime > 0.0 {
            (n * 1000.0 / runtime).floor()
        } else {
            0.0
        }
    };
    let speed = per_second(total("io_bytes"));
    all.insert("bw_bytes".into(), of(speed));
    all.insert("bw".into(), of((speed / 1024.0).floor()));
    let ios = if runtime > 0.0 {
        total("total_ios") * 1000.0 / runtime
    } else {
        0.0
    };
    all.insert("iops".into(), json!(ios));
    // Of all that is summed up here, this is all.
    all.insert(
        "bw_agg".into(),
        json!(if speed > 0.0 { 100.0 } else { 0.0 }),
    );
    for key in ["bw_dev", "iops_stddev"] {
        let squares: f64 = parts.iter().map(|p| number(p, key).powi(2)).sum();
        all.insert(key.into(), json!(squares.sqrt()));
    }
    for key in ["slat_ns", "clat_ns", "lat_ns"] {
        let times: Vec<&Value> = parts.iter().map(|p| &p[key]).collect();
        all.insert(key.into(), latency(&times));
    }
    Value::Object(all)
}

/// Latencies of all I/Os: percentiles of the histograms together, never means of percentiles.
fn latency(parts: &[&Value]) -> Value {
    let full: Vec<&&Value> = parts.iter().filter(|p| number(p, "N") > 0.0).collect();
    let n: f64 = full.iter().map(|p| number(p, "N")).sum();
    let mean = full
        .iter()
        .map(|p| number(p, "mean") * number(p, "N"))
        .sum::<f64>()
        / n.max(1.0);
    let squares: f64 = full
        .iter()
        .map(|p| {
            (number(p, "stddev").powi(2) + (number(p, "mean") - mean).powi(2)) * number(p, "N")
        })
        .sum();
    let least = full
        .iter()
        .map(|p| number(p, "min"))
        .fold(f64::INFINITY, f64::min);
    let most = full.iter().map(|p| number(p, "max")).fold(0.0, f64::max);
    let mut all = json!({
        "min": of(if least.is_finite() { least } else { 0.0 }),
        "max": of(most),
        "mean": mean,
        "stddev": (squares / n.max(1.0)).sqrt(),
        "N": of(n),
    });
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for p in parts {
        for (value, count) in p["bins"].as_object().into_iter().flatten() {
            if let (Ok(value), Some(count)) = (value.parse(), count.as_u64()) {
                *bins.entry(value).or_default() += count;
            }
        }
    }
    let shown = parts.iter().find_map(|p| p["percentile"].as_object());
    if let Some(shown) = shown.filter(|_| !bins.is_empty()) {
        let count: u64 = bins.values().sum();
        let mut percentiles = Map::new();
        for key in shown.keys() {
            let share: f64 = key.parse().unwrap_or(0.0);
            let rank = ((share / 100.0 * count as f64).ceil() as u64).max(1);
            let mut below = 0;
            let value = bins.iter().find(|(_, n)| {
                below += **n;
                below >= rank
            });
            percentiles.insert(key.clone(), json!(value.map_or(0, |v| *v.0)));
        }
        all["percentile"] = Value::Object(percentiles);
        let text: BTreeMap<String, u64> = bins.iter().map(|(v, n)| (v.to_string(), *n)).collect();
        all["bins"] = json!(text);
    }
    all
}

/// For people: what each host says, each line with its host, and the sum.
pub fn text(answers: &[Answer], whole: bool) -> String {
    let mut out = String::new();
    for a in answers {
        for line in a.text.lines() {
            out += &format!("<{}> {line}\n", a.host);
        }
    }
    if !whole || answers.len() < 2 {
        return out;
    }
    let document = several(answers, whole, true);
    let jobs = document["client_stats"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let Some(all) = jobs.last() else { return out };
    out += &format!(
        "\n{ALL}: (hosts={}, jobs={}): err={:2}\n",
        answers.len(),
        jobs.len() - 1,
        all["error"]
    );
    for flag in all["fathom"]["flags"].as_array().into_iter().flatten() {
        out += &format!("  fathom: {}\n", flag.as_str().unwrap_or_default());
    }
    for d in ["read", "write", "trim", "mixed"] {
        let v = &all[d];
        if number(v, "total_ios") == 0.0 {
            continue;
        }
        let c = &v["clat_ns"];
        out += &format!(
            "  {d}: IOPS={:.0}, BW={:.1}MiB/s, io={:.1}MiB, run={}msec\n    clat (nsec): min={}, max={}, avg={:.2}, stdev={:.2}\n",
            number(v, "iops"),
            number(v, "bw_bytes") / f64::from(1 << 20),
            number(v, "io_bytes") / f64::from(1 << 20),
            v["runtime"],
            c["min"],
            c["max"],
            number(c, "mean"),
            number(c, "stddev"),
        );
        let percentiles = c["percentile"].as_object().into_iter().flatten();
        let mut list: Vec<(f64, u64)> = percentiles
            .filter_map(|(k, v)| Some((k.parse().ok()?, v.as_u64()?)))
            .collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let words: Vec<String> = list
            .iter()
            .map(|(p, v)| format!("{p:5.2}th=[{v}]"))
            .collect();
        for (i, part) in words.chunks(4).enumerate() {
            let head = if i == 0 {
                "    clat percentiles (nsec):\n"
            } else {
                ""
            };
            out += &format!("{head}     |  {}\n", part.join(", "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(host: &str, n: u64, value: u64) -> Answer {
        let clat = json!({"min": value, "max": value, "mean": value, "stddev": 0.0, "N": n,
            "percentile": {"50.000000": value, "99.000000": value}, "bins": {value.to_string(): n}});
        Answer {
            host: host.into(),
            document: json!({"fio version": "fio-3.33", "disk_util": [{"name": "vda"}], "jobs": [{
                "jobname": "a", "error": 0, "elapsed": 2, "job_runtime": 1000, "usr_cpu": 10.0,
                "iodepth_level": {"1": 100.0}, "job_start": 5000 + value,
                "fathom": {"jobs": [{"flags": [{"detail": "others read"}]}]},
                "read": {"io_bytes": 4096 * n, "total_ios": n, "runtime": 1000, "bw_min": 1, "clat_ns": clat}
            }]}),
            text: "one\ntwo\n".into(),
        }
    }

    #[test]
    fn percentiles_are_those_of_all_ios_and_speeds_those_of_the_longest_time() {
        let answers = [answer("h1", 900, 10), answer("h2", 100, 1000)];
        let d = several(&answers, true, false);
        let jobs = d["client_stats"].as_array().unwrap();
        assert_eq!(jobs.len(), 3);
        assert_eq!(jobs[1]["hostname"], "h2");
        let all = &jobs[2];
        assert_eq!(all["jobname"], ALL);
        assert_eq!(all["read"]["total_ios"], 1000);
        assert_eq!(all["read"]["iops"], 1000.0);
        assert_eq!(all["read"]["bw_bytes"], 4_096_000);
        let clat = &all["read"]["clat_ns"];
        assert_eq!(clat["percentile"]["50.000000"], 10);
        assert_eq!(clat["percentile"]["99.000000"], 1000);
        assert_eq!(clat["mean"], 109.0);
        assert_eq!(
            (&clat["min"], &clat["max"], &clat["N"]),
            (&json!(10), &json!(1000), &json!(1000))
        );
        assert!(clat["bins"].is_null(), "only with json+");
        assert_eq!(all["iodepth_level"]["1"], 100.0);
        assert_eq!(d["disk_util"][1]["hostname"], "h2");
        let flags = all["fathom"]["flags"].as_array().unwrap();
        assert_eq!(
            flags[..2],
            [json!("h1: others read"), json!("h2: others read")]
        );
        let apart = flags[2].as_str().unwrap();
        assert!(apart.contains("990 ms apart"), "{apart}");
        let people = text(&answers, true);
        assert!(people.contains("  fathom: h2: others read"), "{people}");
        assert!(
            people.contains("<h2> two\n") && people.contains("All clients: (hosts=2, jobs=2)"),
            "{people}"
        );
    }

    #[test]
    fn fewer_hosts_than_asked_have_no_sum() {
        let answers = [answer("h1", 900, 10), answer("h2", 100, 1000)];
        let d = several(&answers, false, true);
        assert_eq!(d["client_stats"].as_array().unwrap().len(), 2);
        assert!(!text(&answers, false).contains(ALL));
    }
}
