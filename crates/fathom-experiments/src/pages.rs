//! The page that a database should use here (Zhang et al. 2018, eqs. 2-10): the costs of a page are measured, the optimum
//! for the user's share of point and range requests follows, and real reads of every size stand beside what was predicted.

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Cell, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::percent;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::parts::{axis, chart, column, estimate, headline_of, point, series, table};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_io::JobError;
use fathom_sim::analytic::{PageCosts, PageLoad};
use fathom_stats::Estimate;
use fathom_telemetry::schema::{
    Cell as TableCell, Chart, ChartKind, Finding, Mark, Section, Table,
};
use fathom_telemetry::units::grouped;
use fathom_telemetry::{Bytes, Nanos, Op};
use serde::{Deserialize, Serialize};

/// The page of the software stack, d_s.
const STACK_PAGE: u64 = 4096;
/// Sizes that are measured.
pub const SIZES: [u64; 5] = [4096, 8192, 16384, 32768, 65536];

/// A prediction that is further off, percent, says that the formula does not fit the target.
const OFF_MAX: f64 = 15.0;

/// What is asked.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct PagesOptions {
    /// Requests in a hundred that touch one record; the others read a range
    #[arg(long, default_value = "90", value_name = "PERCENT", value_parser = percent)]
    pub points: f64,
    /// Mean bytes of a range
    #[arg(long, default_value = "64k", value_parser = range)]
    pub range: Bytes,
    /// What the application spends on a page [default: measured with fathom's own B+tree]
    #[arg(long = "app", value_name = "DURATION")]
    #[serde(skip)]
    pub given: Option<Nanos>,
    /// t_app: what the application spends on a page.
    #[arg(skip)]
    pub app: Nanos,
    /// Whence it is known, in words.
    #[arg(skip)]
    pub app_from: String,
    /// Seed.
    #[arg(skip)]
    pub seed: u64,
}

fn range(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    match bytes.0 >= 4096 {
        true => Ok(bytes),
        false => Err(format!("'{text}': expected 4k or more, the smallest page")),
    }
}

fn points(plan: &Plan) -> Result<Vec<Point>, JobError> {
    let mut all = Vec::new();
    for size in SIZES {
        let bs = size.to_string();
        for (stem, rw) in [("point", "randread"), ("scan", "read")] {
            let name = format!("{stem}-{}k", size / 1024);
            all.push(plan.job(&name, &[("rw", rw), ("bs", &bs), ("qd", "1")])?);
        }
    }
    // Bandwidth of one reader that always has something outstanding.
    all.push(plan.job("bandwidth", &[("rw", "read"), ("bs", "128k"), ("qd", "16")])?);
    Ok(all.into_iter().map(Point::new).collect())
}

/// Time and bytes, at most.
pub fn run_cost(plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
    let mut o = RunCost::filling(fills);
    o.phase("page sizes");
    for p in points(plan)? {
        o.add(&p.spec, plan.profile.repeats);
    }
    Ok(o)
}

/// What was measured of one repeat: latencies by size (ns) and bandwidth (bytes/s).
struct Seen {
    random: Vec<f64>,
    sequential: Vec<f64>,
    bandwidth: f64,
}

/// Costs of a page, and what of them belongs to each I/O whatever its size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Costs {
    /// Eqs. 2-6, the fixed part of the stack counted to the application's.
    page: PageCosts,
    /// Of each I/O, whatever its size, µs.
    fixed_us: f64,
    /// What each 4 KiB of a page that is sought takes beyond those of one that follows, µs: sequential reads are read
    /// ahead, or lie on more channels.
    sought_us: f64,
}

impl Costs {
    /// Costs of a page that lies anywhere.
    fn sought(&self) -> PageCosts {
        PageCosts {
            stack_us: self.page.stack_us + self.sought_us,
            ..self.page
        }
    }
}

/// Sizes that the costs are taken from, by their place in [`SIZES`]: those between are predicted.
const FITTED: [usize; 3] = [0, 2, 4];

/// The line through the latencies (ns) of [`FITTED`] with the least squares of relative errors: what an I/O takes
/// whatever its size, and what each byte takes.
fn line(latencies: &[f64]) -> (f64, f64) {
    let (mut w, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for i in FITTED {
        let (size, latency) = (SIZES[i] as f64, latencies[i].max(1.0));
        let weight = 1.0 / (latency * latency);
        w += weight;
        x += weight * size;
        y += weight * latency;
        xx += weight * size * size;
        xy += weight * size * latency;
    }
    let each = ((w * xy - x * y) / (w * xx - x * x)).max(1e-6);
    (((y - each * x) / w).max(0.0), each)
}

fn costs(seen: &Seen, app: Nanos) -> Costs {
    let (fixed, following) = line(&seen.sequential);
    let (first, sought) = line(&seen.random);
    // What the transfer alone takes belongs to b; what is left grows with the pages of the stack.
    let transfer = (1e9 / seen.bandwidth).min(following);
    let stack_page = STACK_PAGE as f64;
    Costs {
        page: PageCosts {
            app_us: (app.0 as f64 + fixed) / 1e3,
            stack_us: (following - transfer) * stack_page / 1e3,
            seek_us: (first - fixed).max(0.0) / 1e3,
            gb_per_s: 1.0 / transfer,
            stack_page,
        },
        fixed_us: fixed / 1e3,
        sought_us: (sought - following) * stack_page / 1e3,
    }
}

/// Where the pages of a range lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Anywhere, as after random inserts: each is sought (the paper's case).
    Scattered,
    /// One after another, as after a load in order: the first is sought.
    Adjacent,
}

impl Leaves {
    const ALL: [Self; 2] = [Self::Scattered, Self::Adjacent];
    const fn word(self) -> &'static str {
        match self {
            Self::Scattered => "scattered leaves",
            Self::Adjacent => "adjacent leaves",
        }
    }
}

/// Requests per second from the time of a sought and of a following page, µs.
fn rate(o: &PagesOptions, leaves: Leaves, bytes: f64, sought: f64, following: f64) -> f64 {
    let pages = (o.range.0 as f64 / bytes).max(1.0);
    let range = match leaves {
        Leaves::Scattered => pages * sought,
        Leaves::Adjacent => sought + (pages - 1.0) * following,
    };
    1e6 / (o.points / 100.0 * sought + (1.0 - o.points / 100.0) * range)
}

fn predicted(o: &PagesOptions, c: &Costs, leaves: Leaves, bytes: f64) -> f64 {
    let following = c.page.page_us(bytes) - c.page.seek_us;
    rate(o, leaves, bytes, c.sought().page_us(bytes), following)
}

/// The ideal page, bytes, within what databases offer.
fn ideal(o: &PagesOptions, c: &Costs, leaves: Leaves) -> f64 {
    let load = PageLoad {
        points: o.points,
        ranges: 100.0 - o.points,
        range_bytes: o.range.0 as f64,
    };
    let costs = match leaves {
        Leaves::Scattered => c.sought(),
        // Eq. 10 again, where only the first page of a range is sought: d/ds of
        // (A' + b' s) + q (R / s - 1) (A + b s) is 0 at s^2 = q R A / (b' - q b).
        Leaves::Adjacent => PageCosts {
            seek_us: 0.0,
            stack_us: c.page.stack_us + c.sought_us / (o.points / 100.0).max(1e-3),
            ..c.page
        },
    };
    let best = costs.ideal_bytes(&load);
    let ends = (SIZES[0] as f64, SIZES[SIZES.len() - 1] as f64);
    // A range never takes less than a page: beyond its bytes larger pages only cost.
    let most = if o.points >= 100.0 {
        ends.0
    } else {
        (o.range.0 as f64).max(ends.0)
    };
    best.unwrap_or(most).min(most).clamp(ends.0, ends.1)
}

/// The size on offer that gives most by `rate`.
fn best_of(rate: impl Fn(usize) -> f64) -> usize {
    (0..SIZES.len())
        .max_by(|a, b| rate(*a).total_cmp(&rate(*b)))
        .unwrap_or(0)
}

/// Measures, and keeps where the points stand.
///
/// # Errors
/// Where the bench or the run directory fails; an interruption is no error.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    options: &PagesOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let mut points = points(plan).map_err(BenchError::from)?;
    let total = points.len() as u32 * plan.profile.repeats;
    let mut runner = Runner::begin(bench, book, sink, "pages", options.seed, total)?;
    runner.fill_up(&mut points, plan.profile.repeats)?;
    runner.end();
    book.found(&PagesResult {
        options: options.clone(),
        points,
    })
}

/// The points that costs are taken from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PagesResult {
    options: PagesOptions,
    /// For each of [`SIZES`] random and sequential reads, then the bandwidth.
    points: Vec<Point>,
}

impl ExperimentResult for PagesResult {
    const EXPERIMENT: &'static str = "pages";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        report(shown, &evidence.cells(&self.points), &self.options);
    }
}

/// Complete repeats.
fn seen(cells: &[Cell]) -> Vec<Seen> {
    let least = cells.iter().map(|c| c.repeats.len()).min().unwrap_or(0);
    let value = |c: &Cell, i: usize, latency: bool| {
        let job = &c.repeats.get(i)?.1;
        let d = job
            .direction(Op::Read)
            .filter(|d| d.ios > 0 && !job.is_void())?;
        if latency {
            d.service_ns.mean
        } else {
            Some(d.bytes_per_second)
        }
    };
    (0..least)
        .filter_map(|i| {
            let of = |first: usize| -> Option<Vec<f64>> {
                (0..SIZES.len())
                    .map(|s| value(&cells[2 * s + first], i, true))
                    .collect()
            };
            Some(Seen {
                random: of(0)?,
                sequential: of(1)?,
                bandwidth: value(cells.last()?, i, false)?,
            })
        })
        .collect()
}

fn report(shown: &mut Shown, cells: &[Cell], o: &PagesOptions) {
    let seen = seen(cells);
    let pages = Pages {
        o,
        costs: seen.iter().map(|s| costs(s, o.app)).collect(),
        seen,
        jobs: cells.iter().flat_map(Cell::indices).collect(),
    };
    let mut section = Section {
        id: "pages".into(),
        title: "Page size".into(),
        text: format!(
            "{:.0} of 100 requests touch one page, the others {} in pages of the given size. Costs of a page (Zhang et al. 2018, eqs. 2-6): t_app {} ({}), the others measured here: from sequential and random reads of 4, 16 and 64 KiB and the bandwidth. Every size is predicted from them and measured beside, one I/O at a time.",
            o.points, o.range, o.app, o.app_from
        ),
        tables: vec![pages.costs_of_a_page()],
        ..Section::default()
    };
    for leaves in Leaves::ALL {
        pages.show(leaves, &mut section, shown);
    }
    section.tables.push(sensitivity(o, &pages.costs));
    shown.sections.push(section);
}

/// What was measured, and the costs that follow, one of each for every repeat.
struct Pages<'a> {
    o: &'a PagesOptions,
    seen: Vec<Seen>,
    costs: Vec<Costs>,
    jobs: Vec<usize>,
}

impl Pages<'_> {
    fn mean(&self, f: impl Fn(&Costs) -> f64) -> Option<Estimate> {
        Estimate::mean_of(&self.costs.iter().map(f).collect::<Vec<_>>())
    }

    /// Requests per second from reads of a size.
    fn measured(&self, leaves: Leaves, s: usize) -> Option<Estimate> {
        let app = self.o.app.0 as f64 / 1e3;
        let of = |r: &Seen| {
            let (sought, following) = (app + r.random[s] / 1e3, app + r.sequential[s] / 1e3);
            rate(self.o, leaves, SIZES[s] as f64, sought, following)
        };
        Estimate::mean_of(&self.seen.iter().map(of).collect::<Vec<_>>())
    }

    /// The same from the costs.
    fn expected(&self, leaves: Leaves, bytes: f64) -> Option<Estimate> {
        self.mean(|c| predicted(self.o, c, leaves, bytes))
    }

    /// How far that is off, %.
    fn off(&self, leaves: Leaves, s: usize) -> Option<f64> {
        let (e, m) = (
            self.expected(leaves, SIZES[s] as f64)?,
            self.measured(leaves, s)?,
        );
        Some(100.0 * (e.value / m.value - 1.0))
    }

    fn costs_of_a_page(&self) -> Table {
        let us = |f: &dyn Fn(&Costs) -> f64| TableCell::from(self.mean(|c| 1e3 * f(c)));
        table(
            "page-costs",
            "Costs of a page",
            [self],
            &[
                ("t_app", "ns", &|p| (p.o.app.0 as f64).into()),
                ("stack, each I/O", "ns", &|_| us(&|c| c.fixed_us)),
                ("t_stk, each 4 KiB", "ns", &|_| us(&|c| c.page.stack_us)),
                ("t_seek", "ns", &|_| us(&|c| c.page.seek_us)),
                ("sought, each 4 KiB", "ns", &|_| us(&|c| c.sought_us)),
                ("b", "bytes/s", &|p| {
                    p.mean(|c| 1e9 * c.page.gb_per_s).into()
                }),
            ],
        )
    }

    fn show(&self, leaves: Leaves, section: &mut Section, shown: &mut Shown) {
        let word = leaves.word();
        let id = word.replace(' ', "-");
        let value = |s: usize| self.measured(leaves, s).map_or(0.0, |e| e.value);
        let best = best_of(value);
        let top = value(best);
        let worst = (0..SIZES.len())
            .filter_map(|s| self.off(leaves, s))
            .max_by(|a, b| a.abs().total_cmp(&b.abs()));
        let optimum = self.mean(|c| ideal(self.o, c, leaves));
        section.tables.push(table(
            &format!("pages-{id}"),
            &format!("Requests per second, {word}"),
            0..SIZES.len(),
            &[
                ("page", "bytes", &|s| (SIZES[*s] as f64).into()),
                ("predicted", "1/s", &|s| {
                    self.expected(leaves, SIZES[*s] as f64).into()
                }),
                ("measured", "1/s", &|s| self.measured(leaves, *s).into()),
                ("prediction off", "%", &|s| {
                    self.off(leaves, *s).map(tenths).into()
                }),
                ("of the best", "%", &|s| {
                    let measured = self.measured(leaves, *s);
                    measured.map(|m| tenths(100.0 * m.value / top)).into()
                }),
            ],
        ));
        section.charts.push(self.drawn(leaves, &id, optimum));
        for (label, id, unit, estimate) in [
            ("ideal page", format!("page-{id}"), "bytes", optimum),
            (
                "prediction off at worst",
                format!("page-{id}-off"),
                "%",
                worst.map(tenths).map(Estimate::single),
            ),
        ] {
            let label = format!("{label}, {word}");
            let jobs = self.jobs.clone();
            let headline = headline_of("Page size", &label, &id, unit, estimate, jobs);
            shown.headlines.push(headline);
        }
        let measured = |s| self.measured(leaves, s);
        let found = finding(
            self.o,
            leaves,
            optimum,
            (best, worst),
            &measured,
            &self.jobs,
        );
        shown.findings.extend(found);
    }

    /// The curve between the sizes on offer, at eighths of a doubling, and what was measured.
    fn drawn(&self, leaves: Leaves, id: &str, optimum: Option<Estimate>) -> Chart {
        let line = (0..=8 * (SIZES.len() - 1)).map(|i| {
            let bytes = SIZES[0] as f64 * 2f64.powf(i as f64 / 8.0);
            point(bytes, self.expected(leaves, bytes))
        });
        let dots = (0..SIZES.len()).map(|s| point(SIZES[s] as f64, self.measured(leaves, s)));
        let ideal = |e: Estimate| Mark {
            x: Some(e.value),
            y: None,
            label: "ideal page".into(),
        };
        Chart {
            marks: optimum.map(ideal).into_iter().collect(),
            ..chart(
                &format!("pages-{id}-chart"),
                &format!("Throughput by page size, {}", leaves.word()),
                ChartKind::Line,
                axis("page", "bytes", true),
                axis("requests", "1/s", false),
                vec![
                    series("predicted", line.collect()),
                    series("measured", dots.collect()),
                ],
            )
        }
    }
}

/// More digits than these are noise.
fn tenths(percent: f64) -> f64 {
    (10.0 * percent).round() / 10.0
}

/// The ideal page where a cost or the load is half or twice as large.
fn sensitivity(o: &PagesOptions, costs: &[Costs]) -> Table {
    type Change = fn(&mut PagesOptions, &mut Costs, f64);
    let rows: [(&str, Change); 5] = [
        ("t_app and the stack of each I/O", |_, c, f| {
            c.page.app_us *= f
        }),
        ("t_stk", |_, c, f| c.page.stack_us *= f),
        ("t_seek", |_, c, f| c.page.seek_us *= f),
        ("b", |_, c, f| c.page.gb_per_s *= f),
        ("bytes of a range", |o, _, f| {
            o.range = Bytes((o.range.0 as f64 * f) as u64)
        }),
    ];
    let at = |change: Change, factor: f64, leaves| {
        let of = |c: &Costs| {
            let (mut o, mut c) = (o.clone(), *c);
            change(&mut o, &mut c, factor);
            ideal(&o, &c, leaves)
        };
        estimate(Estimate::mean_of(&costs.iter().map(of).collect::<Vec<_>>()))
    };
    Table {
        id: "page-sensitivity".into(),
        title: "Ideal page where a value is half or twice as large".into(),
        columns: vec![
            column("value", ""),
            column("half, scattered", "bytes"),
            column("twice, scattered", "bytes"),
            column("half, adjacent", "bytes"),
            column("twice, adjacent", "bytes"),
        ],
        rows: rows
            .iter()
            .map(|(name, change)| {
                let mut row = vec![TableCell::Text((*name).into())];
                for leaves in Leaves::ALL {
                    row.extend([0.5, 2.0].map(|f| at(*change, f, leaves)));
                }
                row
            })
            .collect(),
    }
}

fn finding(
    o: &PagesOptions,
    leaves: Leaves,
    ideal: Option<Estimate>,
    (best, worst): (usize, Option<f64>),
    measured: &dyn Fn(usize) -> Option<Estimate>,
    jobs: &[usize],
) -> Option<Finding> {
    // 16 KiB is what most databases come with.
    const USUAL: usize = 2;
    let (ideal, top, usual) = (ideal?, measured(best)?, measured(USUAL)?);
    let gain = top.gain_over(&usual);
    let apart = top.low.zip(usual.high).is_some_and(|(t, u)| t > u);
    let well = worst.is_some_and(|w| w.abs() <= OFF_MAX);
    let text = format!(
        "With {:.0} % point requests and ranges of {} on {}, pages of {} give most: {} requests/s{}; the formula says {}.",
        o.points,
        o.range,
        leaves.word(),
        Bytes(SIZES[best]),
        grouped(top.value),
        if best == USUAL {
            String::from(", and most stores come with them")
        } else {
            format!(", {:+.0} % against 16 KiB", 100.0 * gain.value)
        },
        Bytes(ideal.value as u64)
    );
    Some(Finding {
        id: format!("page-{}", leaves.word().replace(' ', "-")),
        text,
        advice: if best == USUAL {
            String::new()
        } else {
            format!(
                "Create the store with pages of {} (InnoDB: innodb_page_size={}).",
                Bytes(SIZES[best]),
                SIZES[best]
            )
        },
        confidence: if well && (best == USUAL || apart) {
            "moderate"
        } else {
            "weak"
        }
        .into(),
        jobs: jobs.to_vec(),
        evidence: vec![
            format!("pages-{}-chart", leaves.word().replace(' ', "-")),
            "page-sensitivity".into(),
        ],
        gain: (best != USUAL).then_some(gain),
        refuted_by: "The store itself with both sizes: fathom kv --workload pages.".into(),
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(points: f64, range: u64) -> PagesOptions {
        PagesOptions {
            app: Nanos::from_micros(5),
            app_from: "assumed".into(),
            given: None,
            points,
            range: Bytes(range),
            seed: 1,
        }
    }

    /// What a model answers, one I/O at a time.
    fn measured(model: &str) -> Seen {
        use fathom_bench::SimBench;
        use fathom_io::driver::{Control, PlannedJob};
        let run = |rw: &str, bs: u64, qd: &str| {
            let mut spec = fathom_io::JobSpec::default();
            let bs = bs.to_string();
            for (name, value) in [
                ("rw", rw),
                ("bs", &bs),
                ("qd", qd),
                ("time", "50ms"),
                ("ramp", "5ms"),
                ("size", "1g"),
            ] {
                spec.set(name, value).unwrap();
            }
            let mut bench = SimBench::open(model, Control::new()).unwrap();
            let job = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
            let read = bench
                .run(&job, None, &mut ())
                .unwrap()
                .remove(0)
                .read
                .unwrap();
            (read.service_ns.mean.unwrap(), read.bytes_per_second)
        };
        Seen {
            random: SIZES.map(|s| run("randread", s, "1").0).to_vec(),
            sequential: SIZES.map(|s| run("read", s, "1").0).to_vec(),
            bandwidth: run("read", 128 << 10, "16").1,
        }
    }

    #[test]
    fn on_models_the_formula_finds_the_page_that_is_best_and_what_it_gives() {
        for model in [
            "sim:optane-900p",
            "sim:intel-s3510",
            "sim:intel-p3700",
            "sim:samsung-960pro",
            "sim:vm:optane-900p",
        ] {
            let seen = measured(model);
            for o in [
                options(90.0, 65536),
                options(50.0, 65536),
                options(99.0, 262_144),
                options(20.0, 1 << 20),
            ] {
                let c = costs(&seen, o.app);
                for leaves in Leaves::ALL {
                    let app = o.app.0 as f64 / 1e3;
                    let real = |s: usize| {
                        rate(
                            &o,
                            leaves,
                            SIZES[s] as f64,
                            app + seen.random[s] / 1e3,
                            app + seen.sequential[s] / 1e3,
                        )
                    };
                    let best = SIZES[best_of(real)] as f64;
                    let found = ideal(&o, &c, leaves);
                    // Databases offer powers of two.
                    let powers = found.log2().round() - best.log2();
                    assert!(
                        powers.abs() <= 1.0,
                        "{model} {o:?} {leaves:?}: {found} instead of {best}"
                    );
                    for (s, size) in SIZES.iter().enumerate() {
                        let off = predicted(&o, &c, leaves, *size as f64) / real(s) - 1.0;
                        assert!(
                            off.abs() < 0.15,
                            "{model} {o:?} {leaves:?} {size}: {off:+.3}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn without_ranges_small_pages_are_best_and_without_points_large_ones() {
        let c = costs(&measured("sim:optane-900p"), Nanos::from_micros(5));
        assert_eq!(ideal(&options(100.0, 65536), &c, Leaves::Scattered), 4096.0);
        assert_eq!(
            ideal(&options(0.0, 1 << 20), &c, Leaves::Scattered),
            65536.0
        );
    }
}
