//! fathom's own tree beside other engines: the same keys, threads, cache and file system, in turns.

use fathom_bench::parts::{axis, chart, estimate, headline_of, number, point, series, table, text};
use fathom_bench::results::{Evidence, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Chart, ChartKind, Finding, Headline, Section, Table};
use fathom_telemetry::{Flag, FlagCode};

use super::{KvResult, Line, Sweep};
use crate::conclude::{self, Choice, Told};

/// A line beside fathom's own of the same workload.
struct Pair<'a> {
    line: &'a Line,
    own: &'a Line,
    evidence: &'a Evidence<'a>,
    result: &'a KvResult,
}

impl Pair<'_> {
    fn engine(&self) -> &str {
        self.line.setting.engine.as_deref().unwrap_or("fathom")
    }

    /// Version, and how it writes.
    fn about(&self) -> String {
        let (version, about) = match self.line.setting.engine() {
            None => (
                self.evidence.run().tool_version.as_str(),
                "copy-on-write B+tree, many writers",
            ),
            Some(e) => (
                self.result.versions.get(e.name).map_or("", String::as_str),
                e.about,
            ),
        };
        format!("{version}; {about}")
    }

    /// fathom's rate over this one's, with an interval where both were measured several times.
    fn ratio(&self) -> Option<Estimate> {
        self.line.setting.engine.as_ref()?;
        Estimate::mean_of(&self.own.over(self.line, self.evidence))
    }

    /// Share of the operations that need what was there before.
    fn reading(&self) -> f64 {
        let mix = self.line.setting.workload().mix;
        match self.line.setting.engine().is_some_and(|e| e.blind) {
            true => f64::from(mix.read + mix.scan) / 100.0,
            false => 1.0,
        }
    }

    fn device(&self, line: &Line, which: usize) -> Option<Estimate> {
        line.mean(|r| r.device(self.evidence)[which])
    }

    fn headline(&self) -> Option<Headline> {
        let cell = &self.line.setting;
        cell.engine.as_ref()?;
        let mut h = headline_of(
            "Key-value, other engines",
            &format!("{} on {}: operations", cell.workload, self.engine()),
            &format!("kv-{}-ops", cell.label()),
            "1/s",
            self.line.rate(self.evidence),
            self.line.jobs(),
        );
        // Most of what is read must come from the device, or the page cache has answered.
        if let (Some(theirs), Some(ours)) = (self.device(self.line, 0), self.device(self.own, 0))
            && self.engine() != "tupl"
            && ours.value > 0.1
            && theirs.value < ours.value * self.reading() / 2.0
        {
            h.flags.push(Flag::new(
                FlagCode::NotChecked,
                format!("{:.2} reads of the device per operation, fathom's tree makes {:.2}: the page cache gave it more cache than it was allowed", theirs.value, ours.value),
                "use a larger --size, so that more than the memory is looked up",
            ));
        }
        Some(h)
    }
}

/// The comparison.
pub(super) fn present(result: &KvResult, evidence: &Evidence<'_>, shown: &mut Shown) {
    let is_own = |l: &&Line| l.setting.engine.is_none();
    let compared = |l: &&Line| l.setting.workload().sweep == Sweep::None;
    let own = |of: &Line| {
        let mut own = result.lines.iter().filter(is_own);
        own.find(|l| l.setting.workload == of.setting.workload)
    };
    let pairs: Vec<Pair<'_>> = result
        .lines
        .iter()
        .filter(compared)
        .filter_map(|line| {
            Some(Pair {
                line,
                own: own(line)?,
                evidence,
                result,
            })
        })
        .collect();
    shown.findings.extend(conclusion(&pairs));
    shown.sections.push(Section {
        id: "kv-engines".into(),
        title: "Other engines on the same test".into(),
        text: format!(
            "{} threads, the same keys and values, caches of the same size, files in the same file system, measured in turns. {} Engines that read through the page cache have it emptied ten times a second, so that their own cache is what counts; the reads per operation, as the device counted them, show how far that goes.",
            result.options.threads,
            if result.options.commit {
                "Every commit is synced."
            } else {
                "Changes are durable within a second."
            }
        ),
        charts: charts(&pairs),
        tables: vec![engines(&pairs)],
        flags: Vec::new(),
    });
    shown
        .headlines
        .extend(pairs.iter().filter_map(Pair::headline));
}

fn engines(pairs: &[Pair<'_>]) -> Table {
    let percentile = |p: &Pair<'_>, q| number(p.line.percentile(p.evidence, q));
    table(
        "kv-engines-table",
        "Engines",
        pairs,
        &[
            ("workload", "", &|p| text(&p.line.setting.workload)),
            ("engine", "", &|p| text(p.engine())),
            ("about", "", &|p| text(p.about())),
            ("cache", "bytes", &|p| {
                number(p.line.repeats.last().map(|r| r.beside.cached as f64))
            }),
            ("operations", "1/s", &|p| estimate(p.line.rate(p.evidence))),
            ("fathom is faster by", "x", &|p| estimate(p.ratio())),
            ("p50", "ns", &|p| percentile(p, 0.5)),
            ("p99", "ns", &|p| percentile(p, 0.99)),
            ("reads per operation", "", &|p| {
                estimate(p.device(p.line, 0))
            }),
            ("writes per operation", "", &|p| {
                estimate(p.device(p.line, 1))
            }),
            ("CPU per operation, microseconds", "", &|p| {
                estimate(p.line.mean(|r| r.cpu(p.evidence)).map(|e| e.scale(1e6)))
            }),
        ],
    )
}

/// Bars for each workload.
fn charts(pairs: &[Pair<'_>]) -> Vec<Chart> {
    let one = |of: &Pair<'_>| {
        let workload = &of.line.setting.workload;
        let bars = || {
            pairs
                .iter()
                .filter(|p| p.line.setting.workload == *workload)
        };
        let points = bars().enumerate();
        let points = points.map(|(i, p)| point(i as f64, p.line.rate(p.evidence)));
        Chart {
            categories: bars().map(|p| p.engine().to_owned()).collect(),
            ..chart(
                &format!("kv-engines-{workload}"),
                &format!("Engines: {}", of.line.setting.workload().about),
                ChartKind::Bar,
                axis("engine", "", false),
                axis("operations", "1/s", false),
                vec![series("operations", points.collect())],
            )
        }
    };
    let own = pairs.iter().filter(|p| p.line.setting.engine.is_none());
    own.map(one).filter(|c| c.categories.len() > 1).collect()
}

/// Each workload's engines against fathom's tree. An engine is not a setting: nothing is advised.
fn conclusion(pairs: &[Pair<'_>]) -> Vec<Finding> {
    let own = pairs.iter().filter(|p| p.line.setting.engine.is_none());
    let one = |own: &Pair<'_>| {
        let workload = &own.line.setting.workload;
        let same = |p: &&Pair<'_>| p.line.setting.workload == *workload;
        let all: Vec<Choice<'_, _, _>> = pairs
            .iter()
            .filter(same)
            .map(|p| Choice {
                name: p.engine().to_owned(),
                line: p.line,
            })
            .collect();
        let usual = all.iter().position(|c| c.name == "fathom")?;
        let told = Told {
            id: format!("kv-engines-{workload}"),
            of: own.line.setting.workload().about,
            what: "the tree of",
            advice: &|_| String::new(),
            tables: vec!["kv-engines-table".into()],
        };
        conclude::against(&all, usual, &told, own.evidence)
    };
    own.filter_map(one).collect()
}
