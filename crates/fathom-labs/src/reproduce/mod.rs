//! Values of papers that labs measure (arrays, machines, stores, codecs): which lab a paper needs, how it is asked to
//! follow the paper's method, and what its result says.

mod databases;
mod pairs;

pub use pairs::{pairs, take_pair};

use std::collections::BTreeSet;

use fathom_bench::results::{self, Evidence};
use fathom_experiments::compression::{CompressionResult, Rates};
use fathom_experiments::reproduce::{Point, ReproduceOptions, Role, Row, points};
use fathom_io::job::Rw;
use fathom_stats::Estimate;
use fathom_system::array::Shape;
use fathom_system::guest::Accelerator;
use fathom_telemetry::Bytes;

use crate::kv::KvResult;
use crate::raid::RaidResult;
use crate::vm::VmResult;

/// A lab's command and what follows the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lab {
    /// The command as its runs call it: `raid`, `db-mysql`.
    pub command: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Lab {
    /// As it is typed: `db mysql TARGET --experiment …`.
    pub fn words(&self, target: &str) -> Vec<String> {
        let mut all: Vec<String> = self.command.split('-').map(str::to_owned).collect();
        all.push(target.to_owned());
        all.extend(self.arguments.iter().cloned());
        all
    }
}

/// Labs that measure something a paper states.
pub fn of(paper: &str) -> &'static [&'static str] {
    match paper {
        "han2021" => &["raid"],
        "zhang2018" => &["vm", "compress", "db-mysql"],
        "oneill2018" => &["kv"],
        _ => &[],
    }
}

/// Labs whose values are still missing in `rows`, each with its own defaults where the options say nothing.
pub fn missing(options: &ReproduceOptions, rows: &[Row], simulated: bool) -> Vec<Lab> {
    let wanted = |ids: &[String]| rows.iter().any(|r| r.ours.is_none() && ids.contains(&r.id));
    let mut labs = Vec::new();
    match options.paper.as_str() {
        "han2021" => {
            let ids: Vec<String> = points().into_iter().map(|p| p.id).collect();
            if wanted(&ids) {
                let mut arguments =
                    words(&["--members", "2,3,4,6,8", "--rw", "randread,randwrite"]);
                arguments.extend(words(&["--small", "0", "--no-degraded", "--no-rebuild"]));
                // The data set lies on all members.
                arguments.extend(common(options, 8));
                labs.push(Lab {
                    command: "raid",
                    arguments,
                });
            }
            if !simulated {
                labs.extend(databases::on_arrays(&wanted, options));
            }
        }
        "zhang2018" => {
            if wanted(&words(MACHINES)) {
                let mut arguments = words(&["--vms", "1,2,4,6", "--no-floor", "--no-layers"]);
                arguments.extend(common(options, 1));
                labs.push(Lab {
                    command: "vm",
                    arguments,
                });
            }
            let ids: Vec<String> = CODECS.iter().map(|c| c.0.to_owned()).collect();
            if wanted(&ids) {
                let mut arguments = words(&["--no-writes"]);
                arguments.extend(size(options, 1));
                labs.push(Lab {
                    command: "compress",
                    arguments,
                });
            }
            if !simulated {
                // On an emulated processor they take hours for what is no figure: only who asks for them gets them.
                let machines = options.figure.is_some() || !Accelerator::probe().is_emulated();
                labs.extend(databases::mysql(&wanted, options, machines));
            }
        }
        // On a model the tree has a GiB at most, which is no stand-in for a tree of 80 GiB.
        "oneill2018" if !simulated && wanted(&words(&["O017", "O020"])) => {
            // 16 GB of memory hold 18 % of 5.4e9 records of 16 bytes.
            let mut arguments = words(&["--workload", "insert,update", "--threads", "32"]);
            arguments.extend(words(&["--cache", "18", "--time", &time(options)]));
            arguments.extend(size(options, 1));
            labs.push(Lab {
                command: "kv",
                arguments,
            });
        }
        _ => {}
    }
    labs
}

fn words(w: &[&str]) -> Vec<String> {
    w.iter().map(|w| (*w).to_owned()).collect()
}

fn time(options: &ReproduceOptions) -> String {
    format!("{}ns", options.time.0)
}

/// Bytes of one of so many parts of the data set, where its size was given.
fn size(options: &ReproduceOptions, parts: u64) -> Vec<String> {
    let given = options.size.map(|s| (s.0 / parts).to_string());
    given.map_or(Vec::new(), |s| words(&["--size", &s]))
}

/// Time, repeats and size.
fn common(options: &ReproduceOptions, parts: u64) -> Vec<String> {
    let repeats = options.repeats().to_string();
    let mut all = words(&["--time", &time(options), "--repeats", &repeats]);
    all.extend(size(options, parts));
    all
}

/// Chunks and requests of Han et al.
const BLOCK: Bytes = Bytes(512 << 10);

/// Values of Zhang et al. that one machine and several give.
const MACHINES: &[&str] = &[
    "D002", "Z009", "Z012", "Z011", "Z014", "Z048", "Z049", "Z066", "Z067", "Z068", "Z070", "Z075",
    "Z076", "Z077",
];

/// A published value, its codec, and which of its rates on one core it is.
type Codec = (&'static str, &'static str, fn(&Rates) -> &Vec<f64>);

const ENCODE: fn(&Rates) -> &Vec<f64> = |r| &r.encode;
const DECODE: fn(&Rates) -> &Vec<f64> = |r| &r.decode;

/// Value, codec, column of the lab's table.
const CODECS: [Codec; 6] = [
    ("Z090", "lz4", DECODE),
    ("Z091", "lz4", ENCODE),
    ("Z092", "snappy", DECODE),
    ("Z093", "snappy", ENCODE),
    ("Z094", "zlib-6", DECODE),
    ("Z095", "zlib-6", ENCODE),
];

/// A value that a result gives beside published ones, in bytes per second, operations per second, ns, bytes or shares.
#[derive(Clone)]
pub(crate) struct Found {
    /// The published values' identifiers.
    ids: Vec<String>,
    value: f64,
    /// Jobs of the lab's run that it was made of.
    jobs: Vec<usize>,
    note: String,
}

impl Found {
    fn new(ids: &[&str], (value, jobs): Value, note: &str) -> Self {
        Self {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            value,
            jobs,
            note: note.to_owned(),
        }
    }
}

/// A number and the jobs of its run that it was made of.
pub(crate) type Value = (f64, Vec<usize>);

/// Puts what a lab's run found, in a machine or outside, beside the published values that have no counterpart yet; how many it
/// filled.
///
/// `whence` is said at each of them: the run that keeps jobs and intervals.
pub fn take(
    paper: &str,
    evidence: &Evidence<'_>,
    inside: bool,
    whence: &str,
    rows: &mut [Row],
) -> usize {
    let role = match evidence.run().simulated {
        true => Role::Prediction,
        false => Role::Measured,
    };
    let mut taken = 0;
    for found in found(paper, evidence, inside) {
        let flags = flags(evidence, &found.jobs);
        taken += put(&[found], role, &flags, whence, rows);
    }
    taken
}

/// Puts values into the rows that are open; how many.
fn put(all: &[Found], role: Role, flags: &str, whence: &str, rows: &mut [Row]) -> usize {
    let mut taken = 0;
    for found in all {
        let parts = [found.note.as_str(), flags, whence];
        let note: Vec<&str> = parts.into_iter().filter(|n| !n.is_empty()).collect();
        let open = |r: &&mut Row| r.ours.is_none() && found.ids.contains(&r.id);
        for row in rows.iter_mut().filter(open) {
            let ours = found.value / scale(&row.unit);
            row.ours = Some(ours);
            row.error_percent = row.published.map(|p| (ours / p - 1.0) * 100.0);
            row.role = role;
            row.note = note.join("; ");
            taken += 1;
        }
    }
    taken
}

/// What stands against the jobs of a value.
fn flags(evidence: &Evidence<'_>, jobs: &[usize]) -> String {
    let all = jobs.iter().filter_map(|i| evidence.job(*i));
    let codes: BTreeSet<&str> = all.flat_map(|j| &j.flags).map(|f| f.code.name()).collect();
    match codes.is_empty() {
        true => String::new(),
        false => format!(
            "flagged {}",
            codes.into_iter().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Says at the values that only this lab could give why it did not.
pub fn excuse(paper: &str, lab: &str, why: &str, rows: &mut [Row]) {
    let ids: Vec<String> = match (paper, lab) {
        ("han2021", _) => {
            let points = points().into_iter().map(|p| p.id);
            points.chain(databases::of_arrays()).collect()
        }
        ("zhang2018", "db-mysql") => databases::of_mysql(false),
        ("zhang2018", "vm") => [words(MACHINES), databases::of_mysql(true)].concat(),
        ("zhang2018", _) => CODECS.iter().map(|c| c.0.to_owned()).collect(),
        _ => vec!["O017".into(), "O020".into()],
    };
    for row in rows
        .iter_mut()
        .filter(|r| r.ours.is_none() && ids.contains(&r.id))
    {
        row.note = format!("fathom {} gave no value: {why}", lab.replace('-', " "));
    }
}

fn scale(unit: &str) -> f64 {
    match unit {
        "us" => 1e3,
        "MB/s" => 1e6,
        "GB/s" => 1e9,
        "MOPS" => 1e6,
        // Han et al. print microseconds so.
        "ms (sic)" => 1e3,
        "KB" => 1024.0,
        _ => 1.0,
    }
}

fn found(paper: &str, evidence: &Evidence<'_>, inside: bool) -> Vec<Found> {
    match paper {
        "han2021" => [arrays(evidence), databases::arrays(evidence)].concat(),
        "zhang2018" => [
            machines(evidence),
            codecs(evidence),
            databases::innodb(evidence, inside),
        ]
        .concat(),
        "oneill2018" => store(evidence),
        _ => Vec::new(),
    }
}

fn arrays(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(result) = evidence.result::<RaidResult>() else {
        return Vec::new();
    };
    let value = |p: Point| {
        let rw = if p.read { Rw::RandRead } else { Rw::RandWrite };
        let array = |s: Shape| s.level.number() == p.level && s.members == p.members;
        let rate = result.rate(evidence, array, rw, p.direct, BLOCK)?;
        Some(Found::new(&[&p.id], rate, ""))
    };
    points().into_iter().filter_map(value).collect()
}

fn machines(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(result) = evidence.result::<VmResult>() else {
        return Vec::new();
    };
    let [latency, iops] = [1, 64].map(|depth| result.sides(evidence, depth));
    let over = |sides: &Option<[Value; 2]>| {
        let [(pe, pe_jobs), (ve, ve_jobs)] = sides.clone()?;
        Some((ve / pe, [pe_jobs, ve_jobs].concat()))
    };
    let inside = |sides: &Option<[Value; 2]>| sides.as_ref().map(|[_, ve]| ve.clone());
    let all: [(&[&str], Option<Value>, &str); 6] = [
        (&["D002", "Z012", "Z009"], inside(&latency), "in a machine"),
        (
            &["Z011", "Z014", "Z048", "Z049"],
            over(&latency),
            "the machine's latency over the host's",
        ),
        (&["Z066"], inside(&iops), "in a machine"),
        (
            &["Z067", "Z068"],
            over(&iops),
            "the machine's rate over the host's",
        ),
        (&["Z070"], result.together(6), "six machines together"),
        (
            &["Z075", "Z076", "Z077"],
            increase(&result.curve(evidence)),
            "a closed loop of 1 to 64 outstanding I/Os",
        ),
    ];
    let known = all.into_iter();
    known
        .filter_map(|(ids, value, note)| Some(Found::new(ids, value?, note)))
        .collect()
}

/// Latency at 95 % of a machine's highest rate over its latency alone, %; of rates and latencies by depth.
fn increase((points, jobs): &(Vec<(f64, f64)>, Vec<usize>)) -> Option<Value> {
    let wanted = 0.95 * points.iter().map(|p| p.0).fold(0.0, f64::max);
    let w = points
        .windows(2)
        .find(|w| w[0].0 < wanted && w[1].0 >= wanted)?;
    let at = w[0].1 + (wanted - w[0].0) / (w[1].0 - w[0].0) * (w[1].1 - w[0].1);
    Some(((at / points.first()?.1 - 1.0) * 100.0, jobs.clone()))
}

fn codecs(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(found) = results::result::<CompressionResult>(evidence.run()) else {
        return Vec::new();
    };
    let value = |(id, codec, rates_of): &Codec| {
        let rates = found.codecs.iter().find(|r| r.codec == *codec)?;
        let mean = Estimate::mean_of(rates_of(rates))?;
        // No job: nothing but memory was read and written.
        let value = (mean.value, Vec::new());
        Some(Found::new(&[id], value, "one core, generated data"))
    };
    CODECS.iter().filter_map(value).collect()
}

fn store(evidence: &Evidence<'_>) -> Vec<Found> {
    let Some(result) = evidence.result::<KvResult>() else {
        return Vec::new();
    };
    let value = |(id, workload): (&str, &str)| {
        let rate = result.rate(evidence, workload)?;
        Some(Found::new(
            &[id],
            rate,
            "fathom's own B+tree instead of Tupl",
        ))
    };
    let known = [("O017", "insert"), ("O020", "update")].into_iter();
    known.filter_map(value).collect()
}
