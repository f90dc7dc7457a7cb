//! What there is to compare in a run: its headlines, and its jobs with their repeats.

use std::collections::BTreeMap;

use fathom_stats::Estimate;
use fathom_stats::autocorrelation::mean_of_series;
use fathom_stats::compare::Good;
use fathom_telemetry::schema::{Direction, Headline, Job, Run};
use fathom_telemetry::series::SeriesReader;
use serde_json::Value;

/// Windows per job that are looked at, at most; more are merged.
const WINDOWS_MAX: usize = 4_000;
/// Options that say nothing about the load.
const NOT_THE_LOAD: [&str; 4] = ["seed", "name", "record", "group"];
/// Headline of a survey whose depth was searched, how it is called without that depth, and the options that hold it.
const KNEE: &str = "knee-iops";
const KNEE_LABEL: &str = "random read at the knee";
const FOUND: [&str; 2] = ["qd", "threads"];

/// One number of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Stable name.
    pub id: String,
    /// For people.
    pub label: String,
    /// Unit.
    pub unit: String,
    /// Which direction is good.
    pub good: Good,
    /// The number; a hole where void.
    pub estimate: Option<Estimate>,
    /// What to keep in mind.
    pub notes: Vec<String>,
    /// The jobs behind it, without what varies from repeat to repeat.
    pub specs: Vec<Value>,
}

impl Metric {
    /// Options in which the jobs behind two metrics differ.
    pub fn differing_options(&self, other: &Self) -> Vec<String> {
        self.differing_but(other, &[])
    }

    /// The same without those of `allowed`: who accepts another capacity accepts the size that follows from it.
    pub(super) fn differing_but(&self, other: &Self, allowed: &[String]) -> Vec<String> {
        let (Some(Value::Object(a)), Some(Value::Object(b))) =
            (self.specs.first(), other.specs.first())
        else {
            return Vec::new();
        };
        let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .filter(|k| a.get(*k) != b.get(*k) && !allowed.contains(k))
            .cloned()
            .collect()
    }
}

/// Metrics of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Of its headlines.
    pub headlines: Vec<Metric>,
    /// Numbers of which none is better than another, such as the depth at the knee: shown beside each other, never judged.
    pub neutral: Vec<Metric>,
    /// Of its jobs.
    pub jobs: Vec<Metric>,
}

/// Windows of a job, for runs without repeats.
pub trait WindowSource {
    /// I/Os per second and mean response latency (ns) of each window of a job; empty where there is no series.
    fn windows(&self, job: usize) -> Vec<(f64, Option<f64>)>;
}

/// No series.
impl WindowSource for () {
    fn windows(&self, _: usize) -> Vec<(f64, Option<f64>)> {
        Vec::new()
    }
}

impl WindowSource for SeriesReader {
    fn windows(&self, job: usize) -> Vec<(f64, Option<f64>)> {
        let Some(series) = u16::try_from(job)
            .ok()
            .and_then(|j| SeriesReader::windows(self, j, WINDOWS_MAX).ok())
        else {
            return Vec::new();
        };
        let seconds = series.width.as_secs_f64();
        let (mut out, mut next) = (Vec::new(), 0);
        // The last window is rarely whole.
        for w in &series.windows[..series.windows.len().saturating_sub(1)] {
            // Windows in which nothing completed are not stored; they count.
            out.extend((next..w.index).map(|_| (0.0, None)));
            next = w.index + 1;
            let data = w.directions[..3].iter().flatten();
            let (mut ios, mut sum, mut count) = (0, 0.0, 0);
            for d in data {
                ios += d.ios;
                sum += d.response.moments.sum as f64;
                count += d.response.moments.count;
            }
            let latency = (count > 0).then(|| sum / count as f64);
            out.push((ios as f64 / seconds, latency));
        }
        out
    }
}

/// Everything in a run that can be compared.
pub fn metrics(run: &Run, windows: &dyn WindowSource) -> Metrics {
    let mut all = Metrics {
        jobs: jobs(run, windows),
        ..Metrics::default()
    };
    for h in &run.headlines {
        let good = match h.unit.as_str() {
            "ns" | "s" => Some(Good::Less),
            "1/s" | "IOPS" | "bytes/s" => Some(Good::More),
            // Of other units it is not known which direction is good.
            _ => None,
        };
        let mut metric = of_headline(run, h, good.unwrap_or(Good::More));
        if h.id == KNEE {
            all.neutral.extend(depth_of_knee(run, h, &metric));
            // The depth was found, not asked for: another one is another result of the same question.
            metric.label = KNEE_LABEL.into();
            for spec in metric.specs.iter_mut().filter_map(Value::as_object_mut) {
                FOUND.iter().for_each(|k| drop(spec.remove(*k)));
            }
        }
        match good {
            Some(_) => all.headlines.push(metric),
            None => all.neutral.push(metric),
        }
    }
    all
}

fn of_headline(run: &Run, h: &Headline, good: Good) -> Metric {
    let void = h.flags.iter().any(|f| f.void);
    let twice = run.headlines.iter().filter(|o| o.label == h.label).count() > 1;
    let specs = h.jobs.iter().filter_map(|i| run.jobs.get(*i));
    Metric {
        id: h.id.clone(),
        // A label may count on the heading above it.
        label: match twice {
            true => format!("{} ({})", h.label, h.group),
            false => h.label.clone(),
        },
        unit: h.unit.clone(),
        good,
        estimate: h.estimate.filter(|_| !void),
        notes: h.flags.iter().map(|f| f.code.name().to_owned()).collect(),
        specs: specs.map(|j| load(&j.spec)).collect(),
    }
}

/// How many outstanding requests a survey's knee has: a number of its own.
fn depth_of_knee(run: &Run, h: &Headline, knee: &Metric) -> Option<Metric> {
    let job = run.jobs.get(*h.jobs.first()?)?;
    let depth = Estimate {
        value: f64::from(job.qd_requested),
        low: None,
        high: None,
        samples: 1,
    };
    Some(Metric {
        id: "knee-depth".into(),
        label: "outstanding I/Os at the knee".into(),
        unit: String::new(),
        good: Good::Less,
        estimate: knee.estimate.map(|_| depth),
        notes: knee.notes.clone(),
        specs: Vec::new(),
    })
}

fn jobs(run: &Run, windows: &dyn WindowSource) -> Vec<Metric> {
    let mut groups: BTreeMap<(usize, String), Vec<(usize, &Job)>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for (i, job) in run.jobs.iter().enumerate() {
        if job.experiment == "prepare" {
            continue;
        }
        let stem = stem(job);
        let place = order.iter().position(|s| *s == stem).unwrap_or_else(|| {
            order.push(stem.clone());
            order.len() - 1
        });
        groups.entry((place, stem)).or_default().push((i, job));
    }
    groups
        .into_iter()
        .flat_map(|((_, stem), group)| of_job(&stem, &group, windows))
        .collect()
}

/// Experiment and name without the number of the repeat.
fn stem(job: &Job) -> String {
    let name = match job.name.rsplit_once('.') {
        Some((stem, n)) if !job.experiment.is_empty() && n.parse::<u32>().is_ok() => stem,
        _ => &job.name,
    };
    if job.experiment.is_empty() {
        name.to_owned()
    } else {
        format!("{}/{name}", job.experiment)
    }
}

fn of_job(stem: &str, group: &[(usize, &Job)], windows: &dyn WindowSource) -> Vec<Metric> {
    let valid: Vec<(usize, &Job)> = group.iter().copied().filter(|g| !g.1.is_void()).collect();
    let mut flags: Vec<String> = group
        .iter()
        .flat_map(|g| &g.1.flags)
        .map(|f| f.code.name().to_owned())
        .collect();
    flags.sort();
    flags.dedup();
    let specs: Vec<Value> = group.iter().take(1).map(|g| load(&g.1.spec)).collect();
    let one = |id: &str, label: &str, unit: &str, good, estimate, within: bool| {
        let mut notes = flags.clone();
        if within {
            notes.push(
                "interval from the windows of one run: drift between runs is not in it".into(),
            );
        }
        Metric {
            id: format!("{stem}/{id}"),
            label: format!("{stem}: {label}"),
            unit: unit.to_owned(),
            good,
            estimate,
            notes,
            specs: specs.clone(),
        }
    };
    let over = |f: &dyn Fn(&Job) -> Option<f64>| {
        Estimate::mean_of(&valid.iter().filter_map(|j| f(j.1)).collect::<Vec<_>>())
    };
    let (mut iops, mut latency) = (over(&iops), over(&mean_latency));
    let mut within = false;
    if let [(index, _)] = valid[..] {
        let w = windows.windows(index);
        let rates: Vec<f64> = w.iter().map(|x| x.0).collect();
        let means: Vec<f64> = w.iter().filter_map(|x| x.1).collect();
        let refine = |whole: &mut Option<Estimate>, x: &[f64]| {
            // The job's own mean stays; its windows lend the interval.
            if let (Some(e), Some(s)) = (whole.as_mut(), mean_of_series(x))
                && let (Some(l), Some(h)) = (s.low, s.high)
            {
                e.low = Some(e.value - (h - l) / 2.0);
                e.high = Some(e.value + (h - l) / 2.0);
                e.samples = s.samples;
                return true;
            }
            false
        };
        within = refine(&mut iops, &rates) | refine(&mut latency, &means);
    }
    let mut out = vec![
        one("iops", "IOPS", "IOPS", Good::More, iops, within),
        one("latency", "mean latency", "ns", Good::Less, latency, within),
    ];
    let p99 = over(&p99);
    if p99.is_some() {
        out.push(one("p99", "p99 latency", "ns", Good::Less, p99, false));
    }
    out
}

/// A job's options without those that do not describe the load.
fn load(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Value::Object(map) = &mut spec {
        NOT_THE_LOAD.iter().for_each(|k| {
            map.remove(*k);
        });
    }
    spec
}

fn directions(j: &Job) -> impl Iterator<Item = &Direction> {
    [&j.read, &j.write, &j.trim].into_iter().flatten()
}

/// I/Os per second over reads, writes and trims.
pub(crate) fn iops(j: &Job) -> Option<f64> {
    Some(j.iops()).filter(|v| *v > 0.0)
}

/// Mean response latency over reads, writes and trims, ns.
pub(crate) fn mean_latency(j: &Job) -> Option<f64> {
    let ios: u64 = directions(j).map(|d| d.response_ns.samples).sum();
    let sum: f64 = directions(j)
        .filter_map(|d| Some(d.response_ns.mean? * d.response_ns.samples as f64))
        .sum();
    (ios > 0).then(|| sum / ios as f64)
}

/// 99th percentile of the response latency of a job with one direction, ns: those of reads and writes have no mean.
pub(crate) fn p99(j: &Job) -> Option<f64> {
    let mut all = directions(j);
    match (all.next(), all.next()) {
        (Some(d), None) => d.response_ns.p99.map(|v| v as f64),
        _ => None,
    }
}
