//! Two settings of one job, run in turns (A B B A or B A A B), so that a drift of the device favours neither.
//!
//! Each block of four gives one ratio of B to A; the interval comes from resampling
//! whole blocks. Which of the two begins is drawn for each block, so that what every other job meets (a timer, a
//! neighbour's job) favours neither as well. What the settings are is up to the caller.

use fathom_bench::bench::Bench;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::Runner;
use fathom_bench::schedule;
use fathom_io::JobSpec;
use fathom_stats::Estimate;
use fathom_stats::bootstrap::bootstrap_mean;
use fathom_stats::compare::{Good, Verdict, judge, relative_of_log};
use fathom_telemetry::schema::{Finding, Job, Section, Table};
use serde::{Deserialize, Serialize};

use crate::compare::{metrics as metrics_of_job, relative};

/// Which of two settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// The first.
    A,
    /// The second.
    B,
}

/// Jobs of a block.
pub const BLOCK_JOBS: u32 = 4;

/// The order of one block: A B B A, or B A A B.
pub fn block(seed: u64, number: u32) -> [Setting; BLOCK_JOBS as usize] {
    let (mut first, mut second) = (Setting::A, Setting::B);
    if schedule::seed(seed, "ab", "order", number) & 1 == 1 {
        std::mem::swap(&mut first, &mut second);
    }
    [first, second, second, first]
}

/// Blocks where nobody says how many: a neighbour that disturbs one or two of them leaves a verdict.
pub const BLOCKS: u32 = 8;

/// Fewest blocks for a bootstrap interval.
pub const BLOCKS_MIN: u32 = 5;

/// One metric under both settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AbRow {
    /// `iops`, `latency` or `p99`.
    pub id: String,
    /// For people.
    pub label: String,
    /// Unit.
    pub unit: String,
    /// Mean over A's runs.
    pub a: Option<Estimate>,
    /// Mean over B's runs.
    pub b: Option<Estimate>,
    /// B / A − 1 over the blocks.
    pub relative: Option<Estimate>,
    /// What follows.
    pub verdict: Verdict,
}

/// Analyses jobs in the order in which [`block`] has them; a block with a void or missing job is left out.
///
/// The first row, IOPS where the load is closed-loop, is the one to decide by: the others repeat it in other words.
pub fn analyse(jobs: &[(Setting, &Job)], seed: u64) -> Vec<AbRow> {
    type Get = fn(&Job) -> Option<f64>;
    let table: [(&str, &str, &str, Good, Get); 3] = [
        ("iops", "IOPS", "IOPS", Good::More, metrics_of_job::iops),
        (
            "latency",
            "mean latency",
            "ns",
            Good::Less,
            metrics_of_job::mean_latency,
        ),
        ("p99", "p99 latency", "ns", Good::Less, metrics_of_job::p99),
    ];
    table
        .into_iter()
        .map(|(id, label, unit, good, get)| {
            let value = |j: &Job| get(j).filter(|v| *v > 0.0 && !j.is_void());
            let side = |s: Setting| {
                let x: Vec<f64> = jobs
                    .iter()
                    .filter(|j| j.0 == s)
                    .filter_map(|j| value(j.1))
                    .collect();
                Estimate::mean_of(&x)
            };
            let ratios: Vec<f64> = jobs
                .chunks_exact(BLOCK_JOBS as usize)
                .filter_map(|block| {
                    block.iter().try_fold(0.0, |sum, (s, j)| {
                        let log = value(j)?.ln() / 2.0;
                        Some(sum + if *s == Setting::B { log } else { -log })
                    })
                })
                .collect();
            let relative = bootstrap_mean(&ratios, seed).map(relative_of_log);
            AbRow {
                id: id.into(),
                label: label.into(),
                unit: unit.into(),
                a: side(Setting::A),
                b: side(Setting::B),
                verdict: relative.map_or(Verdict::NotComparable, |r| judge(&r, good)),
                relative,
            }
        })
        .filter(|r| r.a.is_some() || r.b.is_some())
        .collect()
}

/// What ran in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AbResult {
    /// Options of A, as typed.
    pub a: String,
    /// Options of B.
    pub b: String,
    /// Seed of the order and of the resampling.
    pub seed: u64,
    /// Setting and index in the run of each job, in the order in which they ran.
    pub ran: Vec<(Setting, usize)>,
}

impl AbResult {
    /// Each metric under both settings.
    pub fn rows(&self, evidence: &Evidence<'_>) -> Vec<AbRow> {
        let ran = self.ran.iter();
        let in_order: Vec<_> = ran
            .filter_map(|(s, i)| Some((*s, evidence.job(*i)?)))
            .collect();
        analyse(&in_order, self.seed)
    }

    /// What to do, by the metric that decides.
    fn verdict(&self, decides: Option<&AbRow>) -> Finding {
        let text = match decides {
            None => "Nothing can be said: no block was whole.".into(),
            Some(row) => row.sentence(),
        };
        Finding {
            id: "ab-verdict".into(),
            text,
            confidence: "strong".into(),
            jobs: self.ran.iter().map(|(_, job)| *job).collect(),
            evidence: vec!["ab-verdict".into()],
            refuted_by: "The same verdict of two settings that are alike.".into(),
            ..Finding::default()
        }
    }
}

impl AbRow {
    /// What to do by it.
    fn sentence(&self) -> String {
        let (label, against) = (&self.label, relative(self.relative.as_ref()));
        match self.verdict {
            Verdict::Better => format!("Take B: {label} {against}."),
            Verdict::Worse => format!("Keep A: {label} {against} with B."),
            Verdict::NoDifferenceShown => {
                format!(
                    "No difference shown in {label}: {against}. Keep what is simpler, or ask for more --blocks."
                )
            }
            Verdict::NotComparable => {
                format!("Nothing can be said of {label}: a job of every block is void or missing.")
            }
        }
    }
}

impl ExperimentResult for AbResult {
    const EXPERIMENT: &'static str = "ab";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let rows = self.rows(evidence);
        shown.sections.push(Section {
            id: "ab".into(),
            title: "Two settings in turns".into(),
            text: format!(
                "A: {}. B: {}. Blocks of A B B A or B A A B, as the seed drew them, so that a drift favours neither; the interval comes from resampling blocks.",
                self.a, self.b
            ),
            tables: vec![
                levels(&rows),
                parts::table(
                    "ab-verdict",
                    "B against A",
                    &rows,
                    &[
                        ("metric", "", &|r| r.label.as_str().into()),
                        ("B against A", "%", &|r| {
                            r.relative.map(|e| e.scale(100.0)).into()
                        }),
                        ("verdict", "", &|r| r.verdict.words().into()),
                    ],
                ),
            ],
            ..Section::default()
        });
        shown.findings.push(self.verdict(rows.first()));
    }
}

/// Each metric in a column, in its unit.
fn levels(rows: &[AbRow]) -> Table {
    let side = |name: &str, of: fn(&AbRow) -> Option<Estimate>| {
        let cells = rows.iter().map(|r| of(r).into());
        std::iter::once(name.into()).chain(cells).collect()
    };
    let columns = rows.iter().map(|r| parts::column(&r.label, &r.unit));
    Table {
        id: "ab-table".into(),
        title: "A and B".into(),
        columns: std::iter::once(parts::column("setting", ""))
            .chain(columns)
            .collect(),
        rows: vec![side("A", |r| r.a), side("B", |r| r.b)],
    }
}

/// Runs both settings in turns and keeps what ran; `texts` are their options as typed.
///
/// # Errors
/// Where the bench or the run directory fails; an interruption is no error.
pub fn run(
    bench: &mut dyn Bench,
    specs: &[JobSpec; 2],
    texts: [&str; 2],
    blocks: u32,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<AbResult, NotebookError> {
    let seed = specs[0].seed;
    let total = blocks * BLOCK_JOBS;
    let reads = specs.iter().any(|s| s.rw.reads());
    let mut runner = if reads {
        Runner::begin(bench, book, sink, "ab", seed, total)?
    } else {
        Runner::unprepared(bench, book, sink, "ab", seed, total)
    };
    let ran = turns(&mut runner, specs, blocks)?;
    runner.end();
    let [a, b] = texts.map(str::to_owned);
    let found = AbResult { a, b, seed, ran };
    book.found(&found)?;
    Ok(found)
}

/// Setting and index of the jobs of so many blocks, fewer where the run has to end.
pub(crate) fn turns(
    runner: &mut Runner<'_>,
    specs: &[JobSpec; 2],
    blocks: u32,
) -> Result<Vec<(Setting, usize)>, NotebookError> {
    let mut ran = Vec::new();
    for number in 0..blocks {
        for setting in block(specs[0].seed, number) {
            let mut spec = specs[setting as usize].clone();
            spec.name = format!("{}.{}", spec.name, ran.len() + 1);
            // The same offsets for both settings of a block: one source of noise less.
            let Some(index) = runner.one(spec, "block", number)? else {
                return Ok(ran);
            };
            ran.push((setting, index));
        }
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::noisy_run;
    use fathom_stats::rng::SplitMix64;

    /// Blocks on a device that loses half a percent from job to job, under noise of 2 %.
    fn verdict(change: f64, seed: u64) -> Verdict {
        let mut r = SplitMix64::new(seed);
        let order = (0..8).flat_map(|n| block(seed, n));
        let jobs: Vec<(Setting, Job)> = order
            .enumerate()
            .map(|(i, s)| {
                let drift = 1.0 - 0.005 * i as f64;
                let effect = if s == Setting::B { 1.0 + change } else { 1.0 };
                let level = 1e5 * drift * effect * (1.0 + 0.02 * r.normal());
                (s, noisy_run(level, 0.0, 1, 0).jobs.remove(0))
            })
            .collect();
        let by_reference: Vec<(Setting, &Job)> = jobs.iter().map(|(s, j)| (*s, j)).collect();
        analyse(&by_reference, seed)[0].verdict
    }

    #[test]
    fn either_setting_may_begin_a_block_and_the_seed_says_which() {
        for seed in 0..20 {
            let begins: Vec<Setting> = (0..100).map(|n| block(seed, n)[0]).collect();
            let first = begins.iter().filter(|s| **s == Setting::A).count();
            assert!((30..=70).contains(&first), "{first} of 100");
            assert_eq!(block(seed, 3), block(seed, 3));
            let [a, b, c, d] = block(seed, 3);
            assert!(a == d && b == c && a != b);
        }
    }

    #[test]
    fn drift_is_not_taken_for_a_difference() {
        let alarms = (0..300)
            .filter(|s| verdict(0.0, *s) != Verdict::NoDifferenceShown)
            .count();
        assert!((5..=25).contains(&alarms), "{alarms} of 300");
    }

    #[test]
    fn four_percent_are_found_under_drift_and_noise() {
        let found = (0..100)
            .filter(|s| verdict(0.04, *s) == Verdict::Better)
            .count();
        assert!(found >= 90, "{found} of 100");
    }
}
