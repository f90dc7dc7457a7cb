//! Values that labs measure (arrays, machines, stores, codecs): which lab a paper needs, how it is asked to follow the
//! paper's method, and what its run says.

use fathom_bench::results;
use fathom_stats::Estimate;
use fathom_telemetry::schema::Run;
use fathom_telemetry::{Bytes, Nanos, Op};

use super::han::POINTS;
use super::{Role, Row, databases};
use crate::compression::{CompressionResult, Rates};

/// How the labs are to measure; `None` leaves a lab its own defaults.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Length of each run.
    pub time: Nanos,
    /// Runs of each load.
    pub repeats: u32,
    /// Bytes of the data set.
    pub size: Option<Bytes>,
    /// Whether the target is a model.
    pub simulated: bool,
}

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

/// Labs whose values are still missing in `rows`.
pub fn missing(paper: &str, rows: &[Row], terms: &Terms) -> Vec<Lab> {
    let wanted = |ids: &[String]| rows.iter().any(|r| r.ours.is_none() && ids.contains(&r.id));
    let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let time = format!("{}ns", terms.time.0);
    let repeats = terms.repeats.to_string();
    let size = |part: u64| match terms.size {
        Some(s) => vec!["--size".to_owned(), (s.0 / part).to_string()],
        None => Vec::new(),
    };
    let mut labs = Vec::new();
    match paper {
        "han2021" => {
            let ids: Vec<String> = POINTS.iter().map(|p| format!("H{:03}", p.0)).collect();
            if wanted(&ids) {
                let mut arguments =
                    words(&["--members", "2,3,4,6,8", "--rw", "randread,randwrite"]);
                arguments.extend(words(&["--small", "0", "--no-degraded", "--no-rebuild"]));
                arguments.extend(words(&["--time", &time, "--repeats", &repeats]));
                // The data set lies on all members.
                arguments.extend(size(8));
                labs.push(Lab {
                    command: "raid",
                    arguments,
                });
            }
            if !terms.simulated {
                labs.extend(databases::on_arrays(&wanted, terms));
            }
        }
        "zhang2018" => {
            if wanted(&words(MACHINES)) {
                let mut arguments = words(&["--vms", "1,2,4,6", "--no-floor", "--no-layers"]);
                arguments.extend(words(&["--time", &time, "--repeats", &repeats]));
                arguments.extend(size(1));
                labs.push(Lab {
                    command: "vm",
                    arguments,
                });
            }
            let ids: Vec<String> = CODECS.iter().map(|c| c.0.to_owned()).collect();
            if wanted(&ids) {
                let mut arguments = words(&["--no-writes"]);
                arguments.extend(size(1));
                labs.push(Lab {
                    command: "compress",
                    arguments,
                });
            }
            if !terms.simulated {
                labs.extend(databases::mysql(&wanted, terms));
            }
        }
        // The embedded engine needs bytes that stay, and threads that wait: a model has neither.
        "oneill2018" if !terms.simulated && wanted(&words(&["O017", "O020"])) => {
            // 16 GB of memory hold 18 % of 5.4e9 records of 16 bytes.
            let mut arguments = words(&["--workload", "insert,update", "--threads", "32"]);
            arguments.extend(words(&["--cache", "18", "--time", &time]));
            arguments.extend(size(1));
            labs.push(Lab {
                command: "kv",
                arguments,
            });
        }
        _ => {}
    }
    labs
}

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

/// Puts what a lab's run measured beside the published values that have no counterpart yet; how many it filled.
///
/// `whence` is said at each of them: the run that keeps jobs and intervals.
pub fn take(paper: &str, run: &Run, whence: &str, rows: &mut [Row]) -> usize {
    let role = if run.simulated {
        Role::Prediction
    } else {
        Role::Measured
    };
    let mut taken = 0;
    for (id, ours, note) in found(paper, run) {
        let note = note.as_str();
        let open = rows.iter_mut().filter(|r| r.id == id && r.ours.is_none());
        for row in open {
            // The lab gives bytes per second, I/Os per second, ns, shares.
            let ours = ours / scale(&row.unit);
            row.ours = Some(ours);
            row.error_percent = row.published.map(|p| (ours / p - 1.0) * 100.0);
            row.role = role;
            row.note = [note, whence]
                .iter()
                .filter(|n| !n.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join("; ");
            taken += 1;
        }
    }
    taken
}

/// Says at the values that only this lab could give why it did not.
pub fn excuse(paper: &str, lab: &str, why: &str, rows: &mut [Row]) {
    let ids: Vec<String> = match (paper, lab) {
        ("han2021", _) => {
            let points = POINTS.iter().map(|p| format!("H{:03}", p.0));
            points.chain(databases::of_arrays()).collect()
        }
        ("zhang2018", "db-mysql") => databases::of_mysql(),
        ("zhang2018", "vm") => MACHINES.iter().map(|m| (*m).to_owned()).collect(),
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

pub(super) type Found = (String, f64, String);

fn found(paper: &str, run: &Run) -> Vec<Found> {
    match (paper, run.command.as_str()) {
        ("han2021", "raid") => [arrays(run), databases::arrays(&run.sections)].concat(),
        ("zhang2018", "vm") => machines(run),
        ("zhang2018", "compress") => codecs(run),
        ("zhang2018", "db-mysql") => databases::innodb(&run.sections),
        ("oneill2018", "kv") => store(run),
        _ => Vec::new(),
    }
}

/// Mean of a quantity over the repeats of a job that are not void.
fn mean(
    run: &Run,
    stem: &str,
    what: fn(&fathom_telemetry::schema::Direction) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = run
        .jobs
        .iter()
        .filter(|j| !j.is_void())
        .filter(|j| {
            j.name
                .strip_prefix(stem)
                .is_some_and(|rest| rest.starts_with('.'))
        })
        .filter_map(|j| {
            [Op::Read, Op::Write]
                .into_iter()
                .find_map(|op| what(j.direction(op)?))
        })
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn arrays(run: &Run) -> Vec<Found> {
    POINTS
        .iter()
        .filter_map(|(n, level, members, read, direct, _)| {
            let way = if *direct { "direct" } else { "buffered" };
            let rw = if *read { "randread" } else { "randwrite" };
            let stem = format!("raid{level}x{members}-512k-{way}-{rw}-512k");
            let rate = mean(run, &stem, |d| Some(d.bytes_per_second))?;
            Some((format!("H{n:03}"), rate, String::new()))
        })
        .collect()
}

fn machines(run: &Run) -> Vec<Found> {
    let latency = |side: &str| {
        mean(run, &format!("{side}-randread-4k-qd1"), |d| {
            d.service_ns.mean
        })
    };
    let iops = |side: &str| mean(run, &format!("{side}-randread-4k-qd64"), |d| Some(d.iops));
    let fleet = |n: u32| {
        (1..=n)
            .map(|i| iops(&format!("vms{n}-vm{i}")))
            .sum::<Option<f64>>()
    };
    let mut all: Vec<Found> = Vec::new();
    let mut put = |ids: &[&str], value: Option<f64>, note: &'static str| {
        all.extend(value.into_iter().flat_map(|v| {
            ids.iter()
                .map(move |id| ((*id).to_owned(), v, note.to_owned()))
        }));
    };
    put(&["D002", "Z012", "Z009"], latency("ve"), "in a machine");
    let over = latency("ve").zip(latency("pe")).map(|(ve, pe)| ve / pe);
    put(
        &["Z011", "Z014", "Z048", "Z049"],
        over,
        "the machine's latency over the host's",
    );
    put(&["Z066"], iops("ve"), "in a machine");
    put(
        &["Z067", "Z068"],
        iops("ve").zip(iops("pe")).map(|(ve, pe)| ve / pe),
        "the machine's rate over the host's",
    );
    put(&["Z070"], fleet(6), "six machines together");
    put(
        &["Z075", "Z076", "Z077"],
        increase(run),
        "a closed loop of 1 to 64 outstanding I/Os",
    );
    all
}

/// Latency at 95 % of a machine's highest rate over its latency alone, %.
fn increase(run: &Run) -> Option<f64> {
    let points: Vec<(f64, f64)> = [1, 2, 4, 8, 12, 16, 24, 32, 64]
        .iter()
        .filter_map(|qd| {
            let stem = format!("ve-curve-randread-4k-qd{qd}");
            Some((
                mean(run, &stem, |d| Some(d.iops))?,
                mean(run, &stem, |d| d.service_ns.mean)?,
            ))
        })
        .collect();
    let wanted = 0.95 * points.iter().map(|p| p.0).fold(0.0, f64::max);
    let w = points
        .windows(2)
        .find(|w| w[0].0 < wanted && w[1].0 >= wanted)?;
    let at = w[0].1 + (wanted - w[0].0) / (w[1].0 - w[0].0) * (w[1].1 - w[0].1);
    Some((at / points.first()?.1 - 1.0) * 100.0)
}

fn codecs(run: &Run) -> Vec<Found> {
    const NOTE: &str = "one core, generated data";
    let Some(found) = results::result::<CompressionResult>(run) else {
        return Vec::new();
    };
    let value = |(id, codec, rates_of): &Codec| {
        let rates = found.codecs.iter().find(|r| r.codec == *codec)?;
        let mean = Estimate::mean_of(rates_of(rates))?;
        Some(((*id).to_owned(), mean.value, NOTE.to_owned()))
    };
    CODECS.iter().filter_map(value).collect()
}

fn store(run: &Run) -> Vec<Found> {
    [("O017", "kv-insert-ops"), ("O020", "kv-update-ops")]
        .iter()
        .filter_map(|(id, headline)| {
            let h = run.headlines.iter().find(|h| h.id == *headline)?;
            Some((
                (*id).to_owned(),
                h.estimate.as_ref()?.value,
                "fathom's own B+tree instead of Tupl".to_owned(),
            ))
        })
        .collect()
}
