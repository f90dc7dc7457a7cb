//! What is proved of an array: that its data come back without a member, and what a setting recovers.

use std::ops::Range;

use fathom_bench::parts::{number, table, text};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::Shown;
use fathom_bench::runner::{Point, Runner};
use fathom_bench::{Bench, Notebook};
use fathom_experiments::ab::{self, AbRow};
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::job::Rw;
use fathom_stats::compare::Verdict;
use fathom_telemetry::schema::{Finding, Section, Table};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

use fathom_sim::raid::Level;
use fathom_system::array::Shape;

use super::backend::ArrayBench;
use super::{EXPERIMENT, Lab, Load, RaidOptions, spec};
use crate::LabError;

/// Bytes whose checksum is compared.
const CHECKED: u64 = 256 << 20;
/// Share of a mirrored array that loads leave as it was filled, for [`Lab::kept`].
const KEPT: u64 = 16;
/// A rebuild that takes longer is not waited for.
const REBUILD_LIMIT: Nanos = Nanos::from_secs(1800);

/// Whether data came back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Check {
    shape: Shape,
    what: String,
    bytes: u64,
    same: bool,
}

/// A setting against what the array had, in turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tried {
    shape: Shape,
    setting: String,
    against: String,
    load: Load,
    rows: Vec<AbRow>,
    jobs: Vec<usize>,
}

impl Lab<'_> {
    /// Whole stripes of what is tested.
    pub(super) fn range(&self, bench: &dyn Bench, shape: Option<Shape>) -> u64 {
        let size = bench.limits().size;
        let Some(shape) = shape else {
            return size.min(self.plan.limits.size);
        };
        let data = u64::from(shape.level.data_members(shape.members));
        let stripe = shape.chunk.0 * data;
        // As much of each member as of the one that was measured alone.
        size.min(self.plan.limits.size.saturating_mul(data)) / stripe * stripe
    }

    /// What is read back: the beginning, or, of mirrors, a part that is filled once and no load touches. Two writes of
    /// one block at the same time reach the mirrors in any order (md serialises them only with `serialize_policy`), so
    /// that they may differ for good; whose load overlaps itself must not be told that data were lost.
    pub(super) fn kept(&self, bench: &dyn Bench, shape: Shape) -> Range<u64> {
        let all = self.range(bench, Some(shape));
        let data = u64::from(shape.level.data_members(shape.members));
        let stripe = shape.chunk.0 * data;
        let start = match shape.level {
            Level::Raid1 | Level::Raid10 => (all - all / KEPT) / stripe * stripe,
            Level::Raid0 | Level::Raid5 | Level::Raid6 => return 0..all.min(CHECKED),
        };
        start..all.min(start + CHECKED)
    }

    /// What loads use.
    pub(super) fn loaded(&self, bench: &dyn Bench, shape: Option<Shape>) -> u64 {
        match shape {
            Some(s) if !bench.simulated() => match self.kept(bench, s).start {
                0 => self.range(bench, shape),
                start => start,
            },
            _ => self.range(bench, shape),
        }
    }

    /// Writes the tested range once, in large pieces in order: no block is read that was never written, and parity
    /// is that of the data.
    pub(super) fn fill(
        &mut self,
        array: &mut dyn ArrayBench,
        shape: Shape,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        if array.itself().device().is_none() {
            return Ok(());
        }
        let size = self.range(array.bench(), Some(shape));
        let mut spec = self.plan.job(
            &format!("{}-fill", shape.slug()),
            &[("rw", "write"), ("bs", "1m")],
        )?;
        (spec.qd, spec.threads) = (8, 1);
        (spec.time, spec.ramp) = (None, Nanos::ZERO);
        (spec.size, spec.bytes) = (Some(Bytes(size)), Some(Bytes(size)));
        let planned = [PlannedJob {
            experiment: "raid-fill".into(),
            ..PlannedJob::new(spec.validate(&array.bench().limits())?)
        }];
        sink.job(self.done, self.total, &planned[0].job.spec.name);
        let mut show = |p: &Progress| sink.progress(p);
        let jobs = book.measure(array.bench(), &planned, &mut show)?;
        let failed = jobs
            .first()
            .and_then(|j| book.run().jobs.get(*j)?.errors.first())
            .map(|e| e.message.clone());
        self.interrupted |= array.bench().interrupted();
        if let Some(e) = failed {
            return Err(LabError::Failed(format!("it could not be filled: {e}")));
        }
        array.itself().filled();
        Ok(())
    }

    /// Of what is [kept](Self::kept), read past the page cache's copies; `None` where there is no device.
    pub(super) fn checksum(
        &self,
        array: &mut dyn ArrayBench,
        shape: Shape,
    ) -> Result<Option<(u64, u64)>, LabError> {
        let Some(device) = array.itself().device().map(std::path::Path::to_owned) else {
            return Ok(None);
        };
        let part = self.kept(array.bench(), shape);
        let sum = fathom_system::array::checksum(&device, part.clone()).map_err(|e| {
            LabError::Failed(format!("{} could not be read back: {e}", device.display()))
        })?;
        Ok(Some((sum, part.end - part.start)))
    }

    pub(super) fn check(
        &mut self,
        array: &mut dyn ArrayBench,
        shape: Shape,
        what: &'static str,
        before: Option<(u64, u64)>,
    ) -> Result<(), LabError> {
        let now = self.checksum(array, shape)?;
        if let (Some(before), Some(now)) = (before, now) {
            self.checks.push(Check {
                shape,
                what: what.to_owned(),
                bytes: now.1,
                same: before == now,
            });
        }
        Ok(())
    }

    /// Waits until the new member is filled; returns how long it took from `began`. `None` where it takes too long,
    /// or somebody asked to end.
    pub(super) fn wait_rebuilt(
        &mut self,
        array: &mut dyn ArrayBench,
        began: Nanos,
    ) -> Result<Option<Nanos>, LabError> {
        while array.itself().rebuilt().is_some() {
            let took = fathom_io::clock::monotonic().since(began);
            self.interrupted |= array.bench().interrupted();
            if took > REBUILD_LIMIT || self.interrupted {
                return Ok(None);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(Some(fathom_io::clock::monotonic().since(began)))
    }

    /// Each setting against what the array has, in turns, on large sequential and random writes.
    pub(super) fn tries(
        &mut self,
        array: &mut dyn ArrayBench,
        shape: Shape,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), LabError> {
        for (name, value) in &self.options.tries {
            let had = array
                .itself()
                .settings()
                .into_iter()
                .find(|s| s.0 == *name)
                .map(|s| s.1);
            let (Some(had), false) = (had, self.interrupted) else {
                continue;
            };
            for rw in [Rw::Write, Rw::RandWrite] {
                let load = Load {
                    rw,
                    direct: true,
                    block: self.options.block,
                    stream: !rw.is_random(),
                };
                let size = self.loaded(array.bench(), Some(shape));
                let mut sides = [&had, value].map(|v| {
                    let prefix = format!("{}-{name}={v}", shape.slug());
                    spec(self.plan, self.options, &prefix, load, size, true).map(Point::new)
                });
                let mut order = Vec::new();
                for number in 0..self.options.blocks {
                    for side in ab::block(self.options.seed, number) {
                        let (i, set) = match side {
                            ab::Setting::A => (0, &had),
                            ab::Setting::B => (1, value),
                        };
                        array.itself().set(name, set)?;
                        let point = match &mut sides[i] {
                            Ok(p) => p,
                            Err(e) => return Err(LabError::Failed(e.to_string())),
                        };
                        let before = point.jobs.len();
                        let seed = self.options.seed;
                        let mut runner =
                            Runner::begin(array.bench(), book, sink, EXPERIMENT, seed, self.total)?
                                .after(self.done);
                        let going = runner.repeat(point)?;
                        self.done = runner.done();
                        order.extend(point.jobs[before..].iter().map(|j| (side, *j)));
                        self.interrupted |= !going && array.bench().interrupted();
                        if !going {
                            array.itself().set(name, &had)?;
                            return Ok(());
                        }
                    }
                }
                array.itself().set(name, &had)?;
                let run = book.run();
                let jobs: Vec<_> = order
                    .iter()
                    .filter_map(|(s, j)| Some((*s, run.jobs.get(*j)?)))
                    .collect();
                self.tried.push(Tried {
                    shape,
                    setting: format!("{name}={value}"),
                    against: format!("{name}={had}"),
                    load,
                    rows: ab::analyse(&jobs, self.options.seed),
                    jobs: order.iter().map(|o| o.1).collect(),
                });
            }
        }
        Ok(())
    }
}

/// Arrays that lost data void the run.
pub(super) fn lost(checks: &[Check]) -> Vec<Flag> {
    let lost = checks.iter().filter(|c| !c.same);
    lost.map(|c| {
        Flag::new(
            FlagCode::IoErrors,
            format!(
                "{}, {}: other data came back than were there before",
                c.shape.title(),
                c.what
            ),
            "do not trust this array, its members or this kernel with data",
        )
    })
    .collect()
}

/// Checks and tried settings.
pub(super) fn present(checks: &[Check], tried: &[Tried], options: &RaidOptions, shown: &mut Shown) {
    let checked = (!checks.is_empty()).then(|| {
        table(
            "raid-checks",
            "Data read back",
            checks,
            &[
                ("array", "", &|c| text(c.shape.title())),
                ("state", "", &|c| text(&c.what)),
                ("checked", "bytes", &|c| number(Some(c.bytes as f64))),
                ("checksum", "", &|c| {
                    text(if c.same { "the same" } else { "DIFFERENT" })
                }),
            ],
        )
    });
    let settings = (!tried.is_empty()).then(|| {
        let two = |t| Tried::rows(t).map(move |r| (t, r));
        let rows: Vec<(&Tried, &AbRow)> = tried.iter().flat_map(two).collect();
        let percent = |x: Option<f64>| number(x.map(|x| x * 100.0));
        table(
            "raid-settings-tried",
            &format!(
                "Settings, proved in {} blocks of A B B A or B A A B",
                options.blocks
            ),
            &rows,
            &[
                ("array", "", &|(t, _)| text(t.shape.title())),
                ("setting", "", &|(t, _)| text(&t.setting)),
                ("load", "", &|(t, _)| text(t.load.title())),
                ("measure", "", &|(_, r)| text(&r.label)),
                ("change", "%", &|(_, r)| {
                    percent(r.relative.map(|e| e.value))
                }),
                ("from", "%", &|(_, r)| {
                    percent(r.relative.and_then(|e| e.low))
                }),
                ("to", "%", &|(_, r)| {
                    percent(r.relative.and_then(|e| e.high))
                }),
                ("verdict", "", &|(_, r)| text(r.verdict.words())),
            ],
        )
    });
    let tables: Vec<Table> = checked.into_iter().chain(settings).collect();
    if tables.is_empty() {
        return;
    }
    shown.sections.push(Section {
        id: "raid-proofs".into(),
        title: "Proofs".into(),
        text: "Data are read back without a member, and again without another one after the rebuild: then they can only come from parity or copies. Settings are proved in runs that take turns.".into(),
        tables,
        ..Section::default()
    });
    shown.findings.extend(tried.iter().filter_map(finding));
}

impl Tried {
    /// Rate and latency.
    fn rows(&self) -> impl Iterator<Item = &AbRow> {
        self.rows.iter().take(2)
    }
}

fn finding(t: &Tried) -> Option<Finding> {
    let row = t.rows.first()?;
    let change = row.relative?;
    let better = row.verdict == Verdict::Better;
    if !better && row.verdict != Verdict::Worse {
        return None;
    }
    let interval = match (change.low, change.high) {
        (Some(l), Some(h)) => format!(" (95 %: {:+.0} to {:+.0} %)", l * 100.0, h * 100.0),
        _ => String::new(),
    };
    Some(Finding {
        id: format!(
            "raid-set-{}-{}-{}",
            t.shape.slug(),
            t.setting,
            t.load.rw.word()
        ),
        text: format!(
            "{}: {} changes {} by {:+.0} %{interval}, against {}",
            t.shape.title(),
            t.setting,
            t.load.title(),
            change.value * 100.0,
            t.against
        ),
        advice: if better {
            format!("set {} (/sys/block/mdX/md)", t.setting)
        } else {
            format!("keep {}", t.against)
        },
        confidence: "strong".into(),
        jobs: t.jobs.clone(),
        evidence: vec!["raid-settings-tried".into()],
        gain: better.then_some(change),
        refuted_by: "The same setting with --try and another --seed, or with your own load, whose interval holds 0.".into(),
        ..Finding::default()
    })
}
