//! The mix map: latency and IOPS over share of reads and depth, measured where interpolation would err.
//!
//! The grid is cut into rectangles. The middle of each is predicted from its corners, then measured: where
//! the two differ by more than the tolerance the rectangle is cut into smaller ones, worst first, until
//! the budget is used. So every interpolated cell has an error that was seen, not assumed.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Cell, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, defaults};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts::{self, axis, headline_of, series};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{JobError, JobSpec};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{Axis, Chart, ChartKind, Finding, Point as Dot, Section};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Shares of reads, percent.
const SHARES: [f64; 11] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0,
];
/// Depths over all threads.
const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Cells measured at most, of the 99 in the grid.
const BUDGET: usize = 36;
/// A prediction within this of what was measured is good enough.
const TOLERANCE: f64 = 0.05;

/// What a map is drawn of.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  fathom mix                             a scratch file in the current directory\n  fathom mix . --fill 10,50,90 --dry-run  one map at each fill level"
)]
pub struct MixOptions {
    /// Block size
    #[arg(long, default_value = "4k")]
    pub bs: Bytes,
    /// Fill levels in percent: the rest is discarded, the range written once, then measured
    #[arg(long = "fill", value_delimiter = ',', value_name = "PERCENT,…", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub fills: Vec<u32>,
}

impl Default for MixOptions {
    fn default() -> Self {
        defaults()
    }
}

impl MixOptions {
    /// Fill levels, ascending; one of nothing for the target as it is.
    fn levels(&self) -> Vec<Option<u32>> {
        if self.fills.is_empty() {
            return vec![None];
        }
        let levels: BTreeSet<u32> = self.fills.iter().copied().collect();
        levels.into_iter().map(Some).collect()
    }
}

/// A place in the grid: index of the share, index of the depth.
type Place = (usize, usize);

/// A part of the grid, corners included.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Rect {
    low: Place,
    high: Place,
    /// Largest error seen at its middle, or at its parent's where it was not looked at: a share. `None` where neither was.
    error: Option<f64>,
}

/// What the map was measured at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MixResult {
    bs: Bytes,
    levels: Vec<Level>,
}

/// One map: at one fill level, or of the target as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Level {
    /// Percent of the range.
    fill: Option<u32>,
    points: Vec<(Place, Point)>,
    leaves: Vec<Rect>,
}

/// The whole grid.
const WHOLE: Rect = Rect {
    low: (0, 0),
    high: (SHARES.len() - 1, DEPTHS.len() - 1),
    error: None,
};

impl Rect {
    fn middle(&self) -> Place {
        (
            (self.low.0 + self.high.0) / 2,
            (self.low.1 + self.high.1) / 2,
        )
    }
    fn corners(&self) -> [Place; 4] {
        [
            self.low,
            (self.high.0, self.low.1),
            (self.low.0, self.high.1),
            self.high,
        ]
    }
    /// Whether every cell of it is a corner.
    fn whole(&self) -> bool {
        self.high.0 - self.low.0 < 2 && self.high.1 - self.low.1 < 2
    }
    fn holds(&self, p: Place) -> bool {
        (self.low.0..=self.high.0).contains(&p.0) && (self.low.1..=self.high.1).contains(&p.1)
    }
    fn area(&self) -> usize {
        (self.high.0 - self.low.0).max(1) * (self.high.1 - self.low.1).max(1)
    }
    /// Up to four parts that meet at the middle.
    fn parts(&self) -> Vec<Rect> {
        let cut = |low: usize, high: usize, mid: usize| {
            if high - low < 2 {
                vec![(low, high)]
            } else {
                vec![(low, mid), (mid, high)]
            }
        };
        let mid = self.middle();
        let mut parts = Vec::new();
        for s in cut(self.low.0, self.high.0, mid.0) {
            for d in cut(self.low.1, self.high.1, mid.1) {
                parts.push(Rect {
                    low: (s.0, d.0),
                    high: (s.1, d.1),
                    error: self.error,
                });
            }
        }
        parts
    }
    /// Bilinear between the corners: shares linearly, depths by their logarithm, values by theirs.
    fn predict(&self, p: Place, value: &impl Fn(Place) -> Option<f64>) -> Option<f64> {
        let t = |v: f64, low: f64, high: f64| {
            if high > low {
                (v - low) / (high - low)
            } else {
                0.0
            }
        };
        let x = t(SHARES[p.0], SHARES[self.low.0], SHARES[self.high.0]);
        let y = t(p.1 as f64, self.low.1 as f64, self.high.1 as f64);
        let [a, b, c, d] = self.corners();
        let (a, b, c, d) = (
            value(a)?.ln(),
            value(b)?.ln(),
            value(c)?.ln(),
            value(d)?.ln(),
        );
        let log = (a * (1.0 - x) + b * x) * (1.0 - y) + (c * (1.0 - x) + d * x) * y;
        Some(log.exp())
    }
}

impl Measurement for MixOptions {
    const NAME: &'static str = "mix";
    const ON_HOSTS: bool = true;
    const KEEPS_CPU: bool = true;

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut o = RunCost::filling(fills);
        for level in self.levels() {
            let range = range_of(plan, level);
            let at = |l| format!("at {l} % full");
            o.phase(&level.map_or("shares and depths".into(), at));
            if level.is_some() {
                o.add(&fill_jobs(plan, range).1, 1);
            }
            // Which places the refinement takes is not known: the corners, and those that write most.
            let corners: BTreeSet<Place> = WHOLE.parts().iter().flat_map(Rect::corners).collect();
            let mut others: Vec<Place> = (0..SHARES.len())
                .flat_map(|s| (0..DEPTHS.len()).map(move |d| (s, d)))
                .filter(|p| !corners.contains(p))
                .collect();
            others.sort_unstable();
            others.truncate(BUDGET - corners.len());
            for place in corners.into_iter().chain(others) {
                o.add(&job(plan, self, range, place)?, plan.profile.repeats);
            }
        }
        Ok(o)
    }

    /// A map for each fill level.
    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let mut runner = self.begin(bench, plan, book, sink)?;
        let mut found = MixResult {
            bs: self.bs,
            levels: Vec::new(),
        };
        for fill in self.levels() {
            let (level, going) = level(&mut runner, plan, self, fill)?;
            found.levels.extend(level);
            if !going {
                break;
            }
        }
        runner.end();
        book.found(&found)
    }
}

/// One map, and whether the experiment goes on.
fn level(
    runner: &mut Runner<'_>,
    plan: &Plan,
    options: &MixOptions,
    fill: Option<u32>,
) -> Result<(Option<Level>, bool), NotebookError> {
    let range = range_of(plan, fill);
    if fill.is_some() && !fill_to(runner, plan, range)? {
        return Ok((None, false));
    }
    let mut map = Map {
        runner,
        plan,
        options,
        range,
        points: BTreeMap::new(),
    };
    let mut open = WHOLE.parts();
    let mut leaves: Vec<Rect> = Vec::new();
    let mut going = map.measure(WHOLE.parts().iter().flat_map(Rect::corners))?;
    while going && !open.is_empty() {
        // The worst first; among equals the largest.
        let error = |r: &Rect| r.error.unwrap_or(f64::INFINITY);
        open.sort_by(|a, b| error(a).total_cmp(&error(b)).then(a.area().cmp(&b.area())));
        let Some(mut rect) = open.pop() else { break };
        if rect.whole() {
            rect.error = Some(0.0);
            leaves.push(rect);
            continue;
        }
        if map.points.len() >= BUDGET {
            leaves.push(rect);
            continue;
        }
        going = map.measure([rect.middle()])?;
        rect.error = map.error(&rect).or(rect.error);
        let parts = rect.parts();
        let needed = parts.iter().flat_map(Rect::corners);
        let missing = needed.filter(|p| !map.points.contains_key(p)).count();
        if error(&rect) > TOLERANCE && going && map.points.len() + missing <= BUDGET {
            going = map.measure(parts.iter().flat_map(Rect::corners))?;
            open.extend(parts);
        } else {
            leaves.push(rect);
        }
    }
    leaves.append(&mut open);
    if going {
        let (places, mut points): (Vec<Place>, Vec<Point>) =
            std::mem::take(&mut map.points).into_iter().unzip();
        going = map.runner.fill_up(&mut points, plan.profile.repeats)?;
        map.points = places.into_iter().zip(points).collect();
    }
    // With all repeats the errors are known better.
    for leaf in &mut leaves {
        if map.points.contains_key(&leaf.middle()) && !leaf.whole() {
            leaf.error = map.error(leaf).or(leaf.error);
        }
    }
    let level = Level {
        fill,
        points: map.points.into_iter().collect(),
        leaves,
    };
    Ok((Some(level), going))
}

impl ExperimentResult for MixResult {
    const EXPERIMENT: &'static str = "mix";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        for level in &self.levels {
            let cells = level.points.iter().map(|(p, at)| (*p, evidence.cell(at)));
            report(shown, &cells.collect(), level, self.bs);
        }
    }
}

/// The part of the target that a fill level covers, bytes.
fn range_of(plan: &Plan, fill: Option<u32>) -> u64 {
    match fill {
        // Whole MiB, so that every block size and sector fits.
        Some(percent) => {
            let part = u128::from(plan.limits.size) * u128::from(percent) / 100;
            (part >> 20 << 20) as u64
        }
        None => plan.limits.size,
    }
}

/// The jobs that bring the target to a fill level: what lies beyond it is discarded (where anything does), the rest
/// written once, sequentially.
fn fill_jobs(plan: &Plan, range: u64) -> (Option<JobSpec>, JobSpec) {
    let job = |name: &str, rw: Rw, offset: u64, size: u64| JobSpec {
        name: name.into(),
        rw,
        bs: BlockSizes::one(1 << 20),
        qd: 8,
        direct: plan.direct,
        offset: Bytes(offset),
        size: Some(Bytes(size)),
        ..JobSpec::default()
    };
    let beyond = (plan.limits.size - range) >> 20 << 20;
    let discard = (beyond > 0).then(|| job("mix-discard", Rw::Trim, range, beyond));
    (discard, job("mix-fill", Rw::Write, 0, range))
}

fn fill_to(runner: &mut Runner<'_>, plan: &Plan, range: u64) -> Result<bool, NotebookError> {
    let (discard, fill) = fill_jobs(plan, range);
    for job in discard.into_iter().chain([fill]) {
        if runner.group(&[job], 0)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A map while it is measured.
struct Map<'r, 'a> {
    runner: &'r mut Runner<'a>,
    plan: &'r Plan,
    options: &'r MixOptions,
    range: u64,
    points: BTreeMap<Place, Point>,
}

impl Map<'_, '_> {
    /// Measures places once, where that was not done yet.
    fn measure(&mut self, places: impl IntoIterator<Item = Place>) -> Result<bool, NotebookError> {
        for place in places {
            if self.points.contains_key(&place) {
                continue;
            }
            let spec = job(self.plan, self.options, self.range, place).map_err(BenchError::from)?;
            let mut point = Point::new(spec);
            let going = self.runner.repeat(&mut point)?;
            self.points.insert(place, point);
            if !going {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How far the middle lies from what its corners predict, as a share: the larger of latency and IOPS.
    fn error(&self, rect: &Rect) -> Option<f64> {
        let middle = rect.middle();
        let off = |f: &dyn Fn(&Cell) -> Option<Estimate>| {
            let value = |p: Place| f(&self.runner.cell(self.points.get(&p)?)).map(|e| e.value);
            let value = |p: Place| value(p).filter(|v| *v > 0.0);
            Some((rect.predict(middle, &value)? / value(middle)? - 1.0).abs())
        };
        Some(off(&Cell::mean_latency)?.max(off(&Cell::iops)?))
    }
}

/// The job of a place.
fn job(plan: &Plan, options: &MixOptions, range: u64, place: Place) -> Result<JobSpec, JobError> {
    let (share, depth) = (SHARES[place.0], DEPTHS[place.1]);
    let threads = if depth < 8 {
        1
    } else {
        plan.threads.clamp(1, 4).next_power_of_two()
    };
    let mut spec = plan.job(
        &format!("mix-{share}-qd{depth}"),
        &[("rw", "randrw"), ("bs", &options.bs.0.to_string())],
    )?;
    (spec.qd, spec.threads, spec.read_share) = (depth / threads, threads, share);
    spec.size = Some(Bytes(range));
    let writes = share < 100.0 && plan.wears;
    spec.bytes = writes.then(|| plan.profile.write_cap(range, options.bs.0));
    Ok(spec)
}

/// What a cell of the map shows.
struct Value {
    value: f64,
    /// `None` where it was measured; within it `None` where nothing was checked nearby.
    error: Option<Option<f64>>,
}

/// Every cell of the grid, measured or interpolated.
fn grid(
    cells: &BTreeMap<Place, Cell>,
    leaves: &[Rect],
    f: &dyn Fn(&Cell) -> Option<Estimate>,
) -> BTreeMap<Place, Value> {
    let value = |p: Place| {
        cells
            .get(&p)
            .and_then(f)
            .map(|e| e.value)
            .filter(|v| *v > 0.0)
    };
    let mut all = BTreeMap::new();
    for s in 0..SHARES.len() {
        for d in 0..DEPTHS.len() {
            let place = (s, d);
            if let Some(v) = value(place) {
                all.insert(
                    place,
                    Value {
                        value: v,
                        error: None,
                    },
                );
                continue;
            }
            let leaf = leaves
                .iter()
                .filter(|l| l.holds(place))
                .min_by_key(|l| l.area());
            if let Some(l) = leaf
                && !cells.contains_key(&place)
                && let Some(v) = l.predict(place, &value)
            {
                all.insert(
                    place,
                    Value {
                        value: v,
                        error: Some(l.error),
                    },
                );
            }
        }
    }
    all
}

fn report(to: &mut Shown, cells: &BTreeMap<Place, Cell>, level: &Level, bs: Bytes) {
    let Level { fill, leaves, .. } = level;
    let suffix = fill.map_or(String::new(), |f| format!("-fill{f}"));
    let beside = fill.map_or(String::new(), |f| format!(", {f} % full"));
    let latency = grid(cells, leaves, &Cell::mean_latency);
    let iops = grid(cells, leaves, &Cell::iops);
    let unchecked = |e: Option<f64>| e.unwrap_or(f64::INFINITY);
    let errors = latency.values().filter_map(|s| s.error.map(unchecked));
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied();
    let worst = errors.last().copied().filter(|w| w.is_finite());
    let (measured, of) = (cells.len(), SHARES.len() * DEPTHS.len());
    let text = match (median, worst) {
        (Some(m), Some(w)) => format!(
            "{measured} of {of} cells were measured; the others are interpolated. Where a prediction was checked by measuring, it was off by {:.0} % in the median and {:.0} % at worst.",
            100.0 * m,
            100.0 * w
        ),
        _ => format!("{measured} of {of} cells were measured."),
    };
    let map = |id: &str, title: &str, z: Axis, all| Chart {
        id: format!("{id}{suffix}"),
        title: format!("{title}{beside}"),
        ..heatmap(title, z, all)
    };
    let nanos = axis("latency", "ns", true);
    to.sections.push(Section {
        id: format!("mix{suffix}"),
        title: format!("Mix of reads and writes, {bs} random{beside}"),
        text,
        charts: vec![
            map("mix-map-latency", "Mean latency", nanos, &latency),
            map("mix-map-iops", "IOPS", axis("IOPS", "IOPS", true), &iops),
        ],
        tables: vec![parts::table(
            &format!("mix-cells{suffix}"),
            "Measured cells",
            cells,
            &[
                ("reads", "%", &|c| SHARES[c.0.0].into()),
                ("depth", "", &|c| f64::from(DEPTHS[c.0.1]).into()),
                ("IOPS", "IOPS", &|c| c.1.iops().into()),
                ("mean latency", "ns", &|c| c.1.mean_latency().into()),
            ],
        )],
        flags: Vec::new(),
    });
    let jobs: Vec<usize> = cells.values().flat_map(Cell::indices).collect();
    let group = format!("Mix of reads and writes, {bs}{beside}");
    let one = |id: &str, label: &str, unit: &str, e: Option<Estimate>| {
        let id = format!("{id}{suffix}");
        headline_of(&group, label, &id, unit, e, jobs.clone())
    };
    let rates = cells.iter().filter_map(|(p, c)| Some((*p, c.iops()?)));
    let most = rates.max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let label = most.map_or("largest IOPS".into(), |((s, d), _)| {
        format!("largest IOPS: {} % reads, depth {}", SHARES[s], DEPTHS[d])
    });
    to.headlines
        .push(one("mix-most", &label, "IOPS", most.map(|m| m.1)));
    to.headlines.push(one(
        "mix-interpolation-error",
        "interpolation error where checked, worst",
        "%",
        worst.map(|w| Estimate::single(100.0 * w)),
    ));
    to.findings.extend(shares(cells, &suffix));
    to.findings.extend(dip(cells, jobs.clone(), &suffix));
}

/// All cells of the grid, with what is known of each.
fn heatmap(title: &str, z: Axis, all: &BTreeMap<Place, Value>) -> Chart {
    let known = |value: &Value| match value.error {
        None => "measured".to_owned(),
        Some(Some(e)) => format!("interpolated, within {:.0} % nearby", 100.0 * e),
        Some(None) => "interpolated, unchecked".to_owned(),
    };
    let places = (0..DEPTHS.len()).flat_map(|d| (0..SHARES.len()).map(move |s| (s, d)));
    let dot = |place: Place| Dot {
        x: SHARES[place.0],
        y: Some(f64::from(DEPTHS[place.1])),
        z: all.get(&place).map(|v| v.value),
        label: all.get(&place).map(known),
        ..Dot::default()
    };
    Chart {
        z: Some(z),
        ..parts::chart(
            "",
            title,
            ChartKind::Heatmap,
            axis("share of reads", "%", false),
            axis("outstanding I/Os", "", true),
            vec![series(title, places.map(dot).collect())],
        )
    }
}

/// The depth at which shares are compared: one that every map measures.
const COMPARED: usize = 4;

/// What reads cost where writes stand beside them, at one depth; `None` where a share has no number.
fn shares(cells: &BTreeMap<Place, Cell>, suffix: &str) -> Option<Finding> {
    let places = [0, SHARES.len() / 2, SHARES.len() - 1].map(|s| (s, COMPARED));
    let told = |p: Place| {
        let e = cells.get(&p)?.iops()?;
        let interval = match (e.low, e.high) {
            (Some(low), Some(high)) => format!(" ({} to {})", grouped(low), grouped(high)),
            _ => String::new(),
        };
        Some(format!("{}{interval}", grouped(e.value)))
    };
    let [writes, mixed, reads] = places.map(told);
    Some(Finding {
        id: format!("mix-shares{suffix}"),
        text: format!(
            "At depth {} pure reads reach {} IOPS, half reads and half writes {}, pure writes {}.",
            DEPTHS[COMPARED], reads?, mixed?, writes?
        ),
        confidence: "moderate".into(),
        jobs: places
            .iter()
            .filter_map(|p| cells.get(p))
            .flat_map(Cell::indices)
            .collect(),
        evidence: vec![format!("mix-map-iops{suffix}")],
        refuted_by: "The same command with another --seed whose intervals lie elsewhere.".into(),
        ..Finding::default()
    })
}

/// The mix that is slower than both pure loads, where there is one: reads and writes in each other's way.
///
/// The worst of many noisy cells always looks bad, so all three must have been measured, and the lower
/// end of the mix must lie a fifth above the upper ends of the pure loads: one repeat finds nothing.
fn dip(cells: &BTreeMap<Place, Cell>, jobs: Vec<usize>, suffix: &str) -> Option<Finding> {
    let at = |s: usize, d: usize| cells.get(&(s, d)).and_then(Cell::mean_latency);
    let pure = |d: usize| {
        let (writes, reads) = (at(0, d)?, at(SHARES.len() - 1, d)?);
        Some((writes.value.max(reads.value), writes.high?.max(reads.high?)))
    };
    let (place, ratio) = cells
        .iter()
        .filter(|((s, _), _)| *s > 0 && *s < SHARES.len() - 1)
        .filter_map(|(p, c)| {
            let (mixed, (value, high)) = (c.mean_latency()?, pure(p.1)?);
            (mixed.low? > 1.2 * high).then_some((*p, mixed.value / value))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let value = cells.get(&place)?.mean_latency()?.value;
    Some(Finding {
        id: format!("mix-dip{suffix}"),
        text: format!(
            "{} % reads at depth {} take {} each, {:.1} times as long as the slower of pure reads and pure writes: they stand in each other's way.",
            SHARES[place.0],
            DEPTHS[place.1],
            Nanos(value as u64),
            ratio
        ),
        advice: "Keep writes off this device while its reads matter, or bound their rate.".into(),
        confidence: "moderate".into(),
        jobs,
        evidence: vec![format!("mix-map-latency{suffix}")],
        refuted_by: "A mix of your own shares (fathom run --rw randrw --read-share) that is no slower than its parts.".into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_is_exact_for_power_laws_and_parts_cover_their_whole() {
        let whole = Rect {
            low: (0, 0),
            high: (10, 8),
            error: Some(1.0),
        };
        let value = |p: Place| Some((0.01 * SHARES[p.0]).exp() * f64::from(DEPTHS[p.1]).powf(0.7));
        for p in [(3, 5), (10, 8), (0, 0), (7, 1)] {
            let found = whole.predict(p, &value).unwrap();
            assert!((found / value(p).unwrap() - 1.0).abs() < 1e-9, "{p:?}");
        }
        let mut open = vec![whole];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(r) = open.pop() {
            if r.whole() {
                seen.extend(r.corners());
            } else {
                open.extend(r.parts());
            }
        }
        assert_eq!(seen.len(), SHARES.len() * DEPTHS.len());
    }
}
