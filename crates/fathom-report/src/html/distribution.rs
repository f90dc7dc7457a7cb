//! Latency distributions of the jobs: one pair of charts per experiment and operation.
//!
//! Repeats are merged by merging their histograms. The percentile plot ends where fewer than ten
//! samples lie beyond, as everywhere in fathom.

use fathom_telemetry::schema::{ChartKind, Run};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{Op, SparseHistogram, histogram};

use super::spec::{Columns, Num, Spec, axis, own};
use super::time::not_steady;
use crate::data::ReportData;
use crate::error::ReportError;
use crate::group::job_groups;
use crate::text::capital;

/// Curves in one chart; more cannot be told apart.
const CURVES_MAX: usize = 24;
/// Curves in the page that may be drawn finely; more share the page's size and are drawn coarsely.
const FINE_CURVES_MAX: usize = 60;

/// How far apart the points of a curve are.
#[derive(Debug, Clone, Copy)]
struct Steps {
    /// In share of I/Os.
    body: f64,
    /// In powers of ten of the share beyond.
    tail: f64,
}

const FINE: Steps = Steps {
    body: 0.006,
    tail: 0.03,
};
const COARSE: Steps = Steps {
    body: 0.02,
    tail: 0.1,
};

/// The charts of one experiment.
pub(crate) struct Distribution {
    /// Experiment; empty for `fathom run`.
    pub(crate) experiment: String,
    /// What was left out, as a sentence; empty for nothing.
    pub(crate) note: String,
    /// CDF and percentile plot, for each operation.
    pub(crate) charts: Vec<Spec>,
}

struct Curve {
    name: String,
    histogram: SparseHistogram,
}

/// Distributions of all experiments that have windows. `total` gives a job's total histograms.
pub(crate) fn distributions(
    data: &ReportData,
    totals: &[[Option<Totals>; 4]],
) -> Result<Vec<Distribution>, ReportError> {
    let run = &data.run;
    let groups = job_groups(run);
    let mut experiments: Vec<&str> = Vec::new();
    for g in &groups {
        if !experiments.contains(&g.experiment.as_str()) {
            experiments.push(&g.experiment);
        }
    }
    let steps = if groups.len() > FINE_CURVES_MAX {
        COARSE
    } else {
        FINE
    };
    let mut all = Vec::new();
    for experiment in experiments {
        let mut charts = Vec::new();
        let mut left_out = 0;
        for op in Op::ALL {
            let mut curves = Vec::new();
            for g in groups.iter().filter(|g| g.experiment == experiment) {
                curves.extend(curves_of(run, totals, &g.jobs, &g.name, op));
            }
            left_out += curves.len().saturating_sub(CURVES_MAX);
            curves.truncate(CURVES_MAX);
            if !curves.is_empty() {
                charts.extend(charts_of(op, &curves, steps));
            }
        }
        if charts.is_empty() {
            continue;
        }
        all.push(Distribution {
            experiment: experiment.to_owned(),
            note: match left_out {
                0 => String::new(),
                n => format!("{n} more jobs are not drawn; series.parquet holds their histograms."),
            },
            charts,
        });
    }
    Ok(all)
}

/// Total histograms of one job and operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// Service latency.
    pub(crate) service: SparseHistogram,
    /// Response latency.
    pub(crate) response: SparseHistogram,
}

/// The curves of a group: service latency, and response latency beside it in open loop.
fn curves_of(
    run: &Run,
    totals: &[[Option<Totals>; 4]],
    jobs: &[usize],
    name: &str,
    op: Op,
) -> Vec<Curve> {
    let mut merged = Totals::default();
    for &job in jobs {
        if let Some(t) = &totals[job][op as usize] {
            merged.service.merge(&t.service);
            merged.response.merge(&t.response);
        }
    }
    if merged.service.moments.count < 2 * SAMPLES_BEYOND {
        return Vec::new();
    }
    let against = match jobs.iter().any(|j| not_steady(&run.jobs[*j])) {
        _ if run.jobs[jobs[0]].is_void() => " (void)",
        true => " (not steady)",
        false => "",
    };
    let open_loop = run.jobs[jobs[0]].open_loop.is_some();
    let mut curves = vec![Curve {
        name: format!(
            "{name}{}{against}",
            if open_loop { ", service" } else { "" }
        ),
        histogram: merged.service,
    }];
    if open_loop {
        curves.push(Curve {
            name: format!("{name}, response{against}"),
            histogram: merged.response,
        });
    }
    curves
}

fn charts_of(op: Op, curves: &[Curve], steps: Steps) -> [Spec; 2] {
    let latency = || axis("latency", "ns", true);
    let mut cdf = own(
        format!("{} latency, cumulative", capital(op.name())),
        ChartKind::Line,
        latency(),
        axis("share of I/Os at or below", "%", false),
    );
    let mut percentiles = own(
        format!("{} latency by percentile", capital(op.name())),
        ChartKind::Line,
        axis("percentile", "quantile", true),
        latency(),
    );
    for c in curves {
        let points = cumulative(&c.histogram, steps);
        let total = c.histogram.moments.count as f64;
        cdf.series.push(Columns {
            name: c.name.clone(),
            x: points.iter().map(|p| p.0).collect(),
            y: points
                .iter()
                .map(|p| Some(Num::rounded(p.1 * 100.0)))
                .collect(),
            ..Columns::default()
        });
        // 1/(1-q) up to the last percentile with enough samples beyond it.
        let supported: Vec<(f64, f64)> = points
            .iter()
            .filter(|p| (1.0 - p.1) * total >= SAMPLES_BEYOND as f64 - 1e-9)
            .map(|p| (1.0 / (1.0 - p.1), p.0))
            .collect();
        percentiles.series.push(Columns {
            name: c.name.clone(),
            x: supported.iter().map(|p| p.0).collect(),
            y: supported.iter().map(|p| Some(Num::rounded(p.1))).collect(),
            ..Columns::default()
        });
    }
    [cdf, percentiles]
}

/// (latency in ns, share at or below), thinned where neighbours would fall on one pixel.
fn cumulative(h: &SparseHistogram, steps: Steps) -> Vec<(f64, f64)> {
    let total = h.moments.count;
    if total == 0 {
        return Vec::new();
    }
    let mut points = vec![(h.moments.min as f64, 0.0)];
    let (mut seen, mut kept) = (0, 0.0f64);
    for (i, &(bucket, n)) in h.buckets.iter().enumerate() {
        seen += n;
        let q = seen as f64 / total as f64;
        let bucket = bucket as usize;
        let upper = histogram::lower_bound(bucket) + histogram::width(bucket) - 1;
        let value = upper.clamp(h.moments.min, h.moments.max) as f64;
        let tail = q > 0.9 && ((1.0 - kept) / (1.0 - q).max(1e-12)).log10() >= steps.tail;
        let last = i + 1 == h.buckets.len();
        if q - kept >= steps.body || tail || last {
            points.push((value, q));
            kept = q;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_telemetry::Histogram;

    #[test]
    fn the_curve_passes_through_the_percentiles_and_stays_short() {
        let mut h = Histogram::new();
        for i in 0..1_000_000u64 {
            h.record(10_000 + i);
        }
        let points = cumulative(&h.to_sparse(), FINE);
        assert!(points.len() < 400, "{}", points.len());
        assert_eq!(points[0], (10_000.0, 0.0));
        assert_eq!(points.last().unwrap().1, 1.0);
        for (v, q) in &points {
            assert!(
                (v - (10_000.0 + q * 1e6)).abs() / v < 1.0 / 100.0,
                "{v} {q}"
            );
        }
    }

    #[test]
    fn the_percentile_plot_ends_where_ten_samples_lie_beyond() {
        let mut h = Histogram::new();
        for i in 0..1000u64 {
            h.record(10_000 + i * 1000);
        }
        let curve = Curve {
            name: "x".into(),
            histogram: h.to_sparse(),
        };
        let [_, percentiles] = charts_of(Op::Read, &[curve], FINE);
        let super::super::spec::Abscissa::Each(x) = &percentiles.series[0].x else {
            panic!("percentiles are not even");
        };
        let last = x.last().unwrap().0;
        assert!(last <= 100.0 && last > 80.0, "{last}");
    }
}
