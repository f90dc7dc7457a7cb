//! Demand intensity and response time histogram (PTS client 2.0 § 13): 4 KiB 65/35 over threads × depth, then the
//! distribution of response times at the least, a middle and the largest demand.

use fathom_bench::notebook::NotebookError;
use fathom_bench::parts::{axis, column, table};
use fathom_io::JobSpec;
use fathom_io::job::Rw;
use fathom_telemetry::schema::{Headline, Section, Table};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{Histogram, histogram};

use super::steps::{CONDITIONING, Measured, Rounds, Steps, conditioning, load, mixed};
use super::tables::{convergence, headline, lines, mean_of, verification};
use super::{Found, Jobs, Loads, PtsOptions};

const STEPS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Threads × depths.
const CELLS: usize = STEPS.len() * STEPS.len();

fn cell(t: usize, q: usize) -> usize {
    t * STEPS.len() + q
}

/// 4 KiB, 65/35, a minute.
fn demand(o: &PtsOptions, threads: u32, qd: u32) -> JobSpec {
    mixed(o, 65, 4 << 10, threads, qd)
}

/// The same for a histogram: ten minutes.
fn longer(o: &PtsOptions, threads: u32, qd: u32) -> JobSpec {
    let minutes = load(o, Rw::RandMixed, 4 << 10, 10.0);
    JobSpec {
        time: minutes.time,
        window: minutes.window,
        ..demand(o, threads, qd)
    }
}

/// Minutes of the heaviest load that condition before the grid begins.
const MINUTES: usize = 5;

pub(super) fn loads(o: &PtsOptions) -> Loads {
    let heaviest = vec![demand(o, 32, 32); MINUTES];
    let grid = STEPS
        .iter()
        .flat_map(|t| STEPS.iter().map(|q| demand(o, *t, *q)));
    Loads {
        before: [conditioning(o, CONDITIONING), heaviest].concat(),
        round: grid.collect(),
        // The least, a middle one, the largest.
        after: [(1, 1), (4, 8), (32, 32)]
            .map(|(t, q)| longer(o, t, q))
            .to_vec(),
    }
}

pub(super) fn run(steps: &mut Steps<'_>) -> Result<(), NotebookError> {
    steps.purge()?;
    if !steps.condition(CONDITIONING)? {
        return Ok(());
    }
    let heaviest = demand(steps.options, 32, 32);
    let minutes = (1..=MINUTES).map(|n| (format!("precondition-{n}"), heaviest.clone()));
    if steps.each(minutes)?.len() < MINUTES {
        return Ok(());
    }
    let mut grids: Vec<Vec<usize>> = Vec::new();
    let rounds = steps.rounds(&["1 × 1", "4 × 8", "32 × 32"], |steps, n| {
        let mut grid = vec![0; CELLS];
        let mut iops = [0.0; CELLS];
        for (t, threads) in STEPS.iter().enumerate().rev() {
            for (q, qd) in STEPS.iter().enumerate().rev() {
                let name = format!("{threads}x{qd}-{}", n + 1);
                let Some(m) = steps.job(&name, demand(steps.options, *threads, *qd))? else {
                    return Ok(None);
                };
                grid[cell(t, q)] = m.job;
                iops[cell(t, q)] = m.iops;
            }
        }
        grids.push(grid);
        Ok(Some(
            [(0, 0), (2, 3), (5, 5)]
                .map(|(t, q)| iops[cell(t, q)])
                .to_vec(),
        ))
    })?;
    let evidence = steps.runner.book.evidence();
    let found = Found {
        options: steps.options,
        evidence,
    };
    let chosen = Grid::of(&found, &grids, &rounds).demands();
    let mut demands = Vec::new();
    for (name, (t, q)) in chosen {
        let (threads, qd) = (STEPS[t], STEPS[q]);
        let load = longer(steps.options, threads, qd);
        let Some(m) = steps.job(&format!("histogram-{name}"), load)? else {
            break;
        };
        demands.push((format!("{name} ({threads} × {qd})"), m.job));
    }
    steps.keep(Jobs::Demand(grids, demands), Some(rounds))
}

/// IOPS and mean latency by threads and depth, over the last five rounds.
struct Grid(Vec<Option<(f64, f64)>>);

impl Grid {
    fn of(found: &Found<'_>, grids: &[Vec<usize>], rounds: &Rounds) -> Self {
        let window = grids.get(rounds.window()).unwrap_or_default();
        let at = |c: usize| {
            let jobs: Vec<usize> = window.iter().filter_map(|g| g.get(c).copied()).collect();
            let jobs = found.jobs(&jobs);
            Some((mean_of(&jobs, |m| m.iops)?, mean_of(&jobs, |m| m.mean_ns)?))
        };
        Self((0..CELLS).map(at).collect())
    }

    fn at(&self, t: usize, q: usize) -> Option<(f64, f64)> {
        self.0[cell(t, q)]
    }

    /// Least, middle and largest demand: the largest has most IOPS with a mean response under 5 ms, the middle one is
    /// nearest to half of it.
    fn demands(&self) -> Vec<(&'static str, (usize, usize))> {
        let places = || {
            let all = (0..6).flat_map(|t| (0..6).map(move |q| (t, q)));
            all.filter_map(|p| Some((p, self.at(p.0, p.1)?)))
        };
        let largest = places()
            .filter(|(_, v)| v.1 <= 5e6)
            .max_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let middle = largest.and_then(|(_, top)| {
            let off = |v: (f64, f64)| (v.0 - top.0 / 2.0).abs();
            places().min_by(|a, b| off(a.1).total_cmp(&off(b.1)))
        });
        let mut all = vec![("least", (0, 0))];
        all.extend(middle.map(|m| ("middle", m.0)));
        all.extend(largest.map(|m| ("largest", m.0)));
        all
    }
}

pub(super) fn show(
    found: &Found<'_>,
    grids: &[Vec<usize>],
    demands: &[(String, usize)],
    rounds: &Rounds,
) -> (Section, Vec<Headline>) {
    let grid = Grid::of(found, grids, rounds);
    let points = demands.iter().filter_map(|(name, job)| {
        let mut all = Histogram::new();
        for h in found.evidence.merged(*job).into_iter().flatten().flatten() {
            all.merge(h);
        }
        Some((name.as_str(), found.job(*job)?, all))
    });
    let points: Vec<(&str, Measured, Histogram)> = points.collect();
    let curves = STEPS.iter().enumerate().map(|(t, threads)| {
        let points = (0..6).filter_map(|q| grid.at(t, q)).collect();
        (format!("{threads} threads"), points)
    });
    let section = Section {
        id: "pts-dirth".into(),
        title: "PTS: demand intensity and response time histogram".into(),
        text: "4 KiB random, 65 % reads, 1 to 32 threads × 1 to 32 outstanding after conditioning; then ten minutes at three demands.".into(),
        charts: vec![
            convergence("pts-dirth-convergence", axis("IOPS", "IOPS", true), rounds),
            lines(
                "pts-dirth-demand",
                "Response time by demand",
                axis("IOPS", "IOPS", false),
                axis("mean response", "ns", true),
                curves.collect(),
            ),
            lines(
                "pts-dirth-histogram",
                "Response time histogram",
                axis("response", "ns", true),
                axis("share of I/Os", "%", false),
                points.iter().map(|(name, _, h)| shares(name, h)).collect(),
            ),
        ],
        tables: vec![
            verification("pts-dirth-verification", "IOPS", rounds),
            Table {
                id: "pts-dirth-grid".into(),
                title: "IOPS by threads and outstanding I/Os of each".into(),
                columns: std::iter::once(column("threads", ""))
                    .chain(STEPS.iter().map(|q| column(&format!("QD {q}"), "IOPS")))
                    .collect(),
                rows: (0..6)
                    .map(|t| {
                        let values = (0..6).map(|q| grid.at(t, q).map(|v| v.0).into());
                        std::iter::once(STEPS[t].into()).chain(values).collect()
                    })
                    .collect(),
            },
            responses(&points),
        ],
        ..Section::default()
    };
    let headlines = points.iter().map(|(name, m, _)| {
        let id = format!("dirth-{}", name.split(' ').next().unwrap_or(name));
        let label = format!("4 KiB 65/35, {name}");
        headline("PTS demand", &id, &label, "IOPS", &[*m], |m| m.iops)
    });
    (section, headlines.collect())
}

/// Share of I/Os by response time, %.
fn shares(name: &str, h: &Histogram) -> (String, Vec<(f64, f64)>) {
    let total = h.count().max(1) as f64;
    let share = |(b, n): &(u32, u64)| {
        let from = histogram::lower_bound(*b as usize) as f64;
        (from, 100.0 * *n as f64 / total)
    };
    (
        name.to_owned(),
        h.to_sparse().buckets.iter().map(share).collect(),
    )
}

fn responses(points: &[(&str, Measured, Histogram)]) -> Table {
    let percentile = |h: &Histogram, q: f64| {
        let v = h.quantile_supported(q, SAMPLES_BEYOND);
        v.map(|v| v as f64).into()
    };
    table(
        "pts-dirth-response",
        "Response times",
        points,
        &[
            ("demand", "", &|p| p.0.into()),
            ("IOPS", "IOPS", &|p| p.1.iops.into()),
            ("mean", "ns", &|p| p.1.mean_ns.into()),
            ("p50", "ns", &|p| percentile(&p.2, 0.5)),
            ("p99", "ns", &|p| percentile(&p.2, 0.99)),
            ("p99.9", "ns", &|p| percentile(&p.2, 0.999)),
            ("p99.99", "ns", &|p| percentile(&p.2, 0.9999)),
            ("largest", "ns", &|p| p.1.max_ns.into()),
        ],
    )
}
