//! What phases of metadata operations show: rates of all hosts together and of each, latencies, fairness, and what a shared
//! directory costs.

use std::collections::BTreeMap;

use fathom_bench::cells::Cell;
use fathom_bench::fairness::{behind, fairness, slowest_to_fastest, stragglers, work};
use fathom_bench::parts::{
    axis, chart, estimate, headline, number, op_of, point, series, table, text,
};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_io::files::Operation;
use fathom_stats::Estimate;
use fathom_telemetry::schema::{ChartKind, Finding, HostShare, Job, Section};

use super::{MetadataResult, Set};

/// Hosts that a table lists, the slowest first.
const HOSTS_MAX: usize = 32;

/// A phase and its repeats.
struct Row {
    set: Set,
    operation: Operation,
    cell: Cell,
}

/// What each host counted: files, of lists the entries of a directory. An operation is a pass over one there.
fn counted(job: &Job) -> Vec<f64> {
    let all = job.spec["counted"].as_array();
    let all = all.into_iter().flatten();
    all.map(|n| n.as_f64().unwrap_or(0.0)).collect()
}

/// What a host counted, on average.
fn entries(job: &Job) -> Option<f64> {
    let all = counted(job);
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// What each host did per second; of lists, entries. Directories of hosts differ, and so does how often each is listed.
fn rates(job: &Job, operation: Operation) -> Vec<(&str, f64)> {
    let seconds = job.wall_ns as f64 / 1e9;
    let of_each = counted(job);
    let hosts = job.hosts.iter().enumerate().filter(|_| seconds > 0.0);
    let rate = |at: usize, h: &HostShare| {
        let each = match operation {
            Operation::List => of_each.get(at).copied().unwrap_or(0.0),
            _ => 1.0,
        };
        h.ios as f64 * each / seconds
    };
    hosts
        .map(|(at, h)| (h.host.as_str(), rate(at, h)))
        .collect()
}

impl Row {
    /// Files per second of all hosts; of lists, entries.
    fn rate(&self) -> Option<Estimate> {
        match self.operation {
            Operation::List => self.cell.estimate(|j| {
                let all = rates(j, Operation::List);
                (!all.is_empty()).then(|| all.iter().map(|r| r.1).sum())
            }),
            _ => self.cell.iops(),
        }
    }

    /// How often each file was looked at or read.
    fn passes(&self) -> Option<f64> {
        let again = matches!(self.operation, Operation::Stat | Operation::Read);
        let of = |j: &Job| Some(entries(j)? / j.spec["there"].as_f64().filter(|n| *n > 0.0)?);
        let passes = self.cell.estimate(of).filter(|_| again)?;
        Some(passes.value)
    }

    fn name(&self) -> String {
        format!("{} {}", self.set.name(), self.operation.name())
    }

    fn hosts(&self) -> usize {
        self.cell.valid().map(|j| j.hosts.len()).max().unwrap_or(1)
    }

    fn percentile(&self, q: f64) -> Option<f64> {
        self.cell.percentile(op_of(&self.cell), q)
    }

    /// By host: what each did per second, mean over repeats.
    fn by_host(&self) -> BTreeMap<&str, Estimate> {
        let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for job in self.cell.valid() {
            for (host, rate) in rates(job, self.operation) {
                all.entry(host).or_default().push(rate);
            }
        }
        let all = all.into_iter();
        all.filter_map(|(host, rates)| Some((host, Estimate::mean_of(&rates)?)))
            .collect()
    }
}

impl ExperimentResult for MetadataResult {
    const EXPERIMENT: &'static str = "metadata";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let rows: Vec<Row> = self
            .steps
            .iter()
            .map(|s| Row {
                set: s.set,
                operation: s.phase.operation,
                cell: evidence.cell(&s.point),
            })
            .collect();
        let hosts = rows.iter().map(Row::hosts).max().unwrap_or(1);
        for row in &rows {
            if matches!(row.operation, Operation::List | Operation::Rename) {
                continue;
            }
            let (label, id) = (row.name(), row.name().replace(' ', "-"));
            let id = format!("metadata-{id}");
            let rate = row.rate();
            let shown_of = headline(&row.cell, "Files per second", &label, &id, "1/s", rate);
            shown.headlines.push(shown_of);
        }
        shown.findings.extend(sharing(&rows, hosts));
        for row in rows.iter().filter(|r| r.operation == Operation::Create) {
            let late = stragglers(&row.cell);
            let named = late.iter().map(|s| behind(s, &row.cell, "metadata"));
            let of_set = |mut f: Finding| {
                f.id = format!("{}-{}", f.id, row.set.name());
                f.text = format!(
                    "{} (create, {})",
                    f.text.trim_end_matches('.'),
                    row.set.name()
                );
                f.text.push('.');
                f
            };
            shown.findings.extend(named.map(of_set));
        }
        shown.sections.push(self.section(&rows, hosts));
    }
}

impl MetadataResult {
    fn section(&self, rows: &[Row], hosts: usize) -> Section {
        let line = |set: Set| {
            let of = |o: Operation| rows.iter().find(|r| r.set == set && r.operation == o);
            let points = ORDER.iter().enumerate();
            let points = points.map(|(i, o)| point(i as f64, of(*o).and_then(Row::rate)));
            series(set.name(), points.collect())
        };
        let sets = Set::ALL
            .into_iter()
            .filter(|s| rows.iter().any(|r| r.set == *s));
        let mut rates = chart(
            "metadata-rate",
            "Files per second, all hosts together",
            ChartKind::Bar,
            axis("operation", "", false),
            axis("rate", "1/s", true),
            sets.map(line).collect(),
        );
        rates.categories = ORDER.iter().map(|o| o.name().to_owned()).collect();
        let mut tables = vec![table(
            "metadata-table",
            "By operation",
            rows,
            &[
                ("operation", "", &|r| text(r.name())),
                ("all hosts", "1/s", &|r| estimate(r.rate())),
                ("mean", "ns", &|r| estimate(r.cell.latency(op_of(&r.cell)))),
                ("p50", "ns", &|r| number(r.percentile(0.5))),
                ("p99", "ns", &|r| number(r.percentile(0.99))),
                ("p99.9", "ns", &|r| number(r.percentile(0.999))),
                ("passes", "", &|r| number(r.passes())),
                ("fairness", "ratio", &|r| {
                    estimate(fairness(&r.cell).filter(|_| hosts > 1))
                }),
                ("slowest to fastest", "ratio", &|r| {
                    number(slowest_to_fastest(&r.cell).filter(|_| hosts > 1))
                }),
            ],
        )];
        if hosts > 1 {
            tables.push(by_host(rows));
        }
        let threads = match self.options.threads {
            1 => "one thread".to_owned(),
            n => format!("{n} threads"),
        };
        let whose = match hosts {
            1 => {
                "Files that are looked at and read are this host's own: its caches may answer. Several hosts (--hosts) look at each other's."
            }
            _ => {
                "Each host looks at, lists and reads the files of the host after it; those that it made itself it renames and removes."
            }
        };
        Section {
            id: "metadata".into(),
            title: match hosts {
                1 => format!("Metadata operations, {threads}"),
                n => format!("Metadata operations of {n} hosts, {threads} each"),
            },
            text: format!(
                "easy: empty files, a directory for each host; hard: files of {} bytes in one directory of all. Rates are those of the time in which every thread of every host had a file left. {whose} Where all were looked at or read within a tenth of the time, they were once more, until that was over: of more passes than one, caches answered. A list is a pass over a whole directory; its rate is in entries, its latency that of a pass.",
                self.options.bytes.0
            ),
            charts: vec![rates],
            tables,
            ..Section::default()
        }
    }
}

/// As they follow each other.
const ORDER: [Operation; 6] = [
    Operation::Create,
    Operation::Stat,
    Operation::List,
    Operation::Read,
    Operation::Rename,
    Operation::Remove,
];

fn by_host(rows: &[Row]) -> fathom_telemetry::schema::Table {
    let by: Vec<(&Row, BTreeMap<&str, Estimate>)> = rows.iter().map(|r| (r, r.by_host())).collect();
    let mut hosts: BTreeMap<&str, f64> = BTreeMap::new();
    // By what each did of the rows' means, so that no row outweighs the others.
    for (row, _) in &by {
        for job in row.cell.valid() {
            let did = work(job);
            let all: f64 = did.iter().sum();
            for (h, did) in job.hosts.iter().zip(did).filter(|_| all > 0.0) {
                *hosts.entry(&h.host).or_default() += did / all;
            }
        }
    }
    let mut hosts: Vec<(&str, f64)> = hosts.into_iter().collect();
    hosts.sort_by(|a, b| a.1.total_cmp(&b.1));
    hosts.truncate(HOSTS_MAX);
    let mut columns = vec![fathom_bench::parts::column("host", "")];
    columns.extend(
        by.iter()
            .map(|(r, _)| fathom_bench::parts::column(&r.name(), "1/s")),
    );
    fathom_telemetry::schema::Table {
        id: "metadata-hosts".into(),
        title: "By host, the slowest first".into(),
        columns,
        rows: hosts
            .iter()
            .map(|(host, _)| {
                let each = by.iter().map(|(_, of)| estimate(of.get(host).copied()));
                std::iter::once(text(*host)).chain(each).collect()
            })
            .collect(),
    }
}

/// What it costs that all work in one directory, by an operation that has nothing to do with the files' bytes.
fn sharing(rows: &[Row], hosts: usize) -> Option<Finding> {
    let of = |set: Set| {
        rows.iter()
            .find(|r| r.set == set && r.operation == Operation::Rename)
    };
    let (own, shared) = (of(Set::Easy)?, of(Set::Hard)?);
    let times = shared.rate()?.gain_over(&own.rate()?);
    if hosts < 2 {
        return None;
    }
    let interval = match (times.low, times.high) {
        (Some(low), Some(high)) => format!(" ({:.2} to {:.2})", low + 1.0, high + 1.0),
        _ => String::new(),
    };
    let text = match times.holds_none() {
        true => format!(
            "No cost of a shared directory is shown: {hosts} hosts rename {:.2} times as many files per second there as in directories of their own{interval}.",
            times.value + 1.0
        ),
        false => format!(
            "{hosts} hosts rename {:.2} times as many files per second in one directory as in directories of their own{interval}.",
            times.value + 1.0
        ),
    };
    let advice = match times.high {
        Some(high) if high < 0.0 => "spread files over directories, one or more for each host",
        _ => "",
    };
    Some(Finding {
        id: "metadata-shared".into(),
        text,
        advice: advice.into(),
        confidence: if times.low.is_some() {
            "strong"
        } else {
            "weak"
        }
        .into(),
        jobs: [own, shared]
            .iter()
            .flat_map(|r| r.cell.indices())
            .collect(),
        evidence: vec!["metadata-table".into(), "metadata-rate".into()],
        refuted_by: "More --files or repeats, whose interval lies elsewhere.".into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_per_second_are_the_sum_of_what_each_host_listed() {
        let share = |host: &str, ios| HostShare {
            host: host.into(),
            ios,
            ..HostShare::default()
        };
        let job = Job {
            wall_ns: 2_000_000_000,
            hosts: vec![share("a", 100), share("b", 2)],
            spec: serde_json::json!({ "counted": [10, 1000] }),
            ..Job::default()
        };
        // Not 51 passes per second of 505 entries.
        assert_eq!(rates(&job, Operation::List), [("a", 500.0), ("b", 1000.0)]);
        assert_eq!(rates(&job, Operation::Stat), [("a", 50.0), ("b", 1.0)]);
    }
}
