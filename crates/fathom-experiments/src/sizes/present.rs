//! What the ladder shows: latency and bandwidth by size, and the knee in bytes.

use fathom_bench::cells::Cell;
use fathom_bench::parts::{
    axis, chart, estimate, headline_of, number, op_of, point, series, table,
};
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_stats::Estimate;
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{ChartKind, Finding, Section};

use super::SizesResult;

/// A rung: bytes of a request, bytes per second, mean latency in ns.
type Rung = (f64, f64, f64);

/// The size of largest throughput over latency, bytes: the vertex of a parabola through the best rung and its neighbours,
/// on logarithmic axes. `None` where the best is the first or the last: the knee may lie beyond.
fn knee(rungs: &[Rung]) -> Option<f64> {
    let power: Vec<(f64, f64)> = rungs
        .iter()
        .map(|(size, rate, latency)| (size.log2(), (rate / latency).ln()))
        .collect();
    let best = (0..power.len()).max_by(|a, b| power[*a].1.total_cmp(&power[*b].1))?;
    let near = power.get(best.checked_sub(1)?..best + 2)?;
    let (a, b, c) = (near[0].1, near[1].1, near[2].1);
    let bend = a - 2.0 * b + c;
    (bend < 0.0).then(|| (near[1].0 + 0.5 * (a - c) / bend).exp2())
}

/// The knee over the complete repeats.
fn knees(cells: &[Cell]) -> Option<Estimate> {
    let least = cells.iter().map(|c| c.repeats.len()).min()?;
    let rung = |cell: &Cell, repeat: usize| -> Option<Rung> {
        let job = &cell.repeats[repeat].1;
        let d = job
            .direction(op_of(cell))
            .filter(|d| d.ios > 0 && !job.is_void())?;
        Some((
            cell.spec.bs.max().0 as f64,
            d.bytes_per_second,
            d.response_ns.mean?,
        ))
    };
    let of = |repeat| -> Option<f64> {
        let rungs: Option<Vec<Rung>> = cells.iter().map(|c| rung(c, repeat)).collect();
        knee(&rungs?)
    };
    let all: Option<Vec<f64>> = (0..least).map(of).collect();
    Estimate::mean_of(&all?)
}

impl ExperimentResult for SizesResult {
    const EXPERIMENT: &'static str = "sizes";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        let cells = evidence.cells(&self.points);
        let jobs: Vec<usize> = cells.iter().flat_map(Cell::indices).collect();
        let size = |c: &Cell| c.spec.bs.max().0 as f64;
        let latency = |c: &Cell| c.latency(op_of(c));
        let knee = knees(&cells);
        let what = format!(
            "{}, {} outstanding",
            self.options.rw.word(),
            self.options.qd
        );
        let lines = |f: &dyn Fn(&Cell) -> Option<Estimate>| {
            vec![series(
                &what,
                cells.iter().map(|c| point(size(c), f(c))).collect(),
            )]
        };
        let group = "Size ladder";
        let fastest = cells.iter().filter(|c| c.bandwidth().is_some());
        let fastest = fastest.max_by(|a, b| {
            let value = |c: &Cell| c.bandwidth().map_or(0.0, |e| e.value);
            value(a).total_cmp(&value(b))
        });
        shown.headlines.push(headline_of(
            group,
            "knee",
            "sizes-knee",
            "bytes",
            knee,
            jobs.clone(),
        ));
        if let Some(cell) = fastest {
            let label = format!("largest bandwidth, at {}", cell.spec.bs.max());
            shown.headlines.push(headline_of(
                group,
                &label,
                "sizes-max",
                "bytes/s",
                cell.bandwidth(),
                cell.indices(),
            ));
        }
        shown.findings.extend(knee.map(|knee| finding(knee, jobs)));
        shown.sections.push(Section {
            id: "sizes".into(),
            title: format!("Size ladder, {what}"),
            text: "One size after another, in turns. The knee is the size of largest throughput divided by latency: a smaller request pays for itself, a larger one for its bytes.".into(),
            charts: vec![
                chart("sizes-latency", "Latency by size", ChartKind::Line, axis("size", "bytes", true), axis("mean latency", "ns", true), lines(&latency)),
                chart("sizes-bandwidth", "Bandwidth by size", ChartKind::Line, axis("size", "bytes", true), axis("bandwidth", "bytes/s", true), lines(&Cell::bandwidth)),
            ],
            tables: vec![table("sizes-table", "By size", &cells, &[
                ("size", "bytes", &|c| number(Some(size(c)))),
                ("mean latency", "ns", &|c| estimate(latency(c))),
                ("p99", "ns", &|c| number(c.percentile(op_of(c), 0.99))),
                ("bandwidth", "bytes/s", &|c| estimate(c.bandwidth())),
                ("requests", "1/s", &|c| estimate(c.iops())),
            ])],
            ..Section::default()
        });
    }
}

fn finding(knee: Estimate, jobs: Vec<usize>) -> Finding {
    let bytes = |v: f64| Bytes(v as u64);
    let known = knee
        .low
        .zip(knee.high)
        .filter(|(low, high)| *low > 0.0 && high / low < 4.0);
    let interval = known.map_or(String::new(), |(low, high)| {
        format!(" (95 % interval {} to {})", bytes(low), bytes(high))
    });
    Finding {
        id: "sizes-knee".into(),
        text: format!(
            "Requests of about {}{interval} give the most throughput for their latency: smaller ones pay mainly for being requests, larger ones for their bytes.",
            bytes(knee.value)
        ),
        // An interval over several sizes says nothing that could be set.
        advice: known.map_or(String::new(), |(_, high)| {
            format!("where bandwidth counts, read or write {} and more at a time; where latency counts, no more than that", bytes(high))
        }),
        confidence: if known.is_some() { "strong" } else { "weak" }.into(),
        jobs,
        evidence: vec!["sizes-table".into()],
        refuted_by: "Another seed or a longer --time whose knee lies outside of the interval.".into(),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::SizesOptions;
    use fathom_bench::measurement::defaults;
    use fathom_bench::profile::Profile;
    use fathom_bench::progress::ProgressSink;
    use fathom_bench::{Bench, Measurement, Notebook, Plan, RunMeta, SimBench};
    use fathom_telemetry::Nanos;

    #[test]
    fn the_knee_of_a_fixed_cost_and_a_bandwidth_is_their_product() {
        // ns of a request, bytes per ns.
        for (fixed, rate) in [
            (10_000.0, 2.5),
            (80_000.0, 0.5),
            (3_000.0, 7.0),
            (100_000.0, 3.3),
        ] {
            let rungs: Vec<Rung> = (12..=22)
                .map(|p| {
                    let size = f64::from(1u32 << p);
                    let latency = fixed + size / rate;
                    (size, 1e9 * size / latency, latency)
                })
                .collect();
            let found = knee(&rungs).unwrap();
            let truth = fixed * rate;
            assert!(
                (found / truth - 1.0).abs() < 0.02,
                "{found} instead of {truth}"
            );
        }
    }

    #[test]
    fn a_ladder_that_ends_before_the_knee_has_none() {
        let cheap: Vec<Rung> = (0..5)
            .map(|i| (4096.0 * f64::from(1 << i), f64::from(1 << i), 1.0))
            .collect();
        assert_eq!(knee(&cheap), None);
        assert_eq!(knee(&cheap[..2]), None);
        assert_eq!(knee(&[]), None);
    }

    #[test]
    fn what_is_not_known_well_advises_nothing() {
        let estimate = |low, high| Estimate {
            value: 65536.0,
            low,
            high,
            samples: 3,
        };
        assert!(finding(estimate(None, None), vec![0]).advice.is_empty());
        assert!(
            finding(estimate(Some(-1.0), Some(2e5)), vec![0])
                .advice
                .is_empty()
        );
        let well = finding(estimate(Some(60_000.0), Some(70_000.0)), vec![0]);
        assert!(well.advice.contains("68"), "{}", well.advice);
    }

    struct Quiet;
    impl ProgressSink for Quiet {}

    #[test]
    fn a_model_is_measured_at_every_size_and_every_number_has_its_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let mut bench = SimBench::open("sim:optane-900p", fathom_io::Control::new()).unwrap();
        let profile = Profile {
            repeats: 3,
            job_time: Nanos::from_millis(20),
            ..Profile::named("quick").unwrap()
        };
        let plan = Plan {
            limits: bench.limits(),
            profile,
            seed: 1,
            threads: 1,
            direct: true,
            wears: true,
            commands: false,
        };
        let options: SizesOptions = defaults();
        let cost = options.run_cost(&plan, Bytes(0)).unwrap();
        let mut book = Notebook::create(
            dir.path(),
            RunMeta {
                name: "sizes".into(),
                seed: 1,
                ..RunMeta::default()
            },
            bench.describe(),
            true,
            0,
        )
        .unwrap();
        options
            .run(&mut bench, &plan, &mut book, &mut Quiet)
            .unwrap();
        let (run, _, _) = book.finish().unwrap();
        assert_eq!(run.jobs.len() as u32, cost.jobs());
        assert_eq!(run.sections[0].tables[0].rows.len(), 11);
        let knee = run.headlines.iter().find(|h| h.id == "sizes-knee").unwrap();
        assert_eq!(knee.jobs.len(), run.jobs.len());
        // 10 µs and more of a request at 2.5 GB/s.
        let bytes = knee.estimate.unwrap().value;
        assert!((16e3..128e3).contains(&bytes), "{bytes}");
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_in_a_sentence() {
        let options: SizesOptions = defaults();
        assert_eq!(options.check(), Ok(()));
        let mixed = SizesOptions {
            rw: fathom_io::job::Rw::RandMixed,
            ..options.clone()
        };
        assert!(mixed.check().unwrap_err().contains("randread"));
        let odd = SizesOptions {
            from: Bytes(3000),
            ..options
        };
        assert!(odd.check().unwrap_err().contains("power of two"));
    }
}
