//! The mix map and the bursts on queues of known truth.

mod common;

use common::{QueueBench, Quiet, headline, plan, run_with};
use fathom_bench::Measurement;
use fathom_experiments::burst::BurstOptions;
use fathom_experiments::mix::MixOptions;
use fathom_io::port::virtual_time::Service;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Nanos};

#[test]
fn every_cell_of_the_map_is_what_the_queue_does_though_few_are_measured() {
    let service = Nanos::from_micros(20);
    let run = run_with(
        &mut QueueBench::new(4, Service::Fixed(service)),
        0,
        |bench, book| {
            let options = MixOptions::default();
            options
                .run(bench, &plan(100, 1), book, &mut Quiet)
                .expect("a map");
        },
    );
    let section = &run.sections[0];
    let chart = &section.charts[0];
    assert_eq!(chart.id, "mix-map-latency");
    let points = &chart.series[0].points;
    assert_eq!(points.len(), 99);
    let mut worst = 0f64;
    for p in points {
        let depth = p.y.expect("a depth");
        let truth = service.0 as f64 * (depth / 4.0).max(1.0);
        let found = p.z.expect("no hole");
        worst = worst.max((found / truth - 1.0).abs());
    }
    assert!(worst < 0.06, "off by {worst}");
    assert!(section.tables[0].rows.len() <= 36);
    let said = headline(&run, "mix-interpolation-error").value;
    assert!((0.0..=10.0).contains(&said), "{said} %");
}

#[test]
fn a_burst_is_as_fast_as_its_servers_and_a_lone_io_as_one() {
    let run = run_with(
        &mut QueueBench::new(16, Service::Fixed(Nanos::from_micros(100))),
        BurstOptions::RECORDING,
        |bench, book| {
            let options = BurstOptions {
                burst: Bytes::mib(8),
                writer: false,
                ..BurstOptions::default()
            };
            options
                .run(bench, &plan(500, 2), book, &mut Quiet)
                .expect("bursts");
        },
    );
    for (ios, truth) in [
        (1, 10_000.0),
        (4, 40_000.0),
        (16, 160_000.0),
        (256, 160_000.0),
    ] {
        let found = headline(&run, &format!("burst-{ios}-iops")).value;
        assert!(
            (found / truth - 1.0).abs() < 0.01,
            "burst of {ios}: {found}"
        );
    }
}

#[test]
fn deficit_beside_a_writer_is_the_writers_share_of_the_server() {
    // One server, 500 µs per 128 KiB: 20 MB/s of writes take 152.6 × 500 µs = 7.6 % of it.
    let run = run_with(
        &mut QueueBench::new(1, Service::Fixed(Nanos::from_micros(500))),
        BurstOptions::RECORDING,
        |bench, book| {
            let options = BurstOptions {
                burst: Bytes::mib(64),
                ..BurstOptions::default()
            };
            options
                .run(bench, &plan(4000, 2), book, &mut Quiet)
                .expect("bursts");
        },
    );
    let alone = headline(&run, "burst-read-alone").value;
    let truth = f64::from(128 << 10) / 500e-6;
    assert!((alone / truth - 1.0).abs() < 0.01, "{alone}");
    let deficit = headline(&run, "burst-deficit").value;
    assert!((deficit - 7.63).abs() < 0.5, "{deficit} %");
    assert!(run.findings.iter().any(|f| f.id == "burst-deficit"));
}

#[test]
fn a_map_at_fill_levels_writes_no_more_than_was_said_and_measures_within_the_level() {
    // Faster than a job may write: the bound is met by jobs that end early.
    let mut bench = QueueBench::new(64, Service::Fixed(Nanos::from_micros(5)));
    let options = MixOptions {
        fills: vec![25, 50],
        ..MixOptions::default()
    };
    let mut plan = plan(200, 2);
    plan.profile.ramp = Nanos::from_millis(50);
    let said = options.run_cost(&plan, Bytes(0)).unwrap();
    let run = run_with(&mut bench, 0, |bench, book| {
        options
            .run(bench, &plan, book, &mut Quiet)
            .expect("two maps");
    });
    let bytes = |j: &Job| j.write.as_ref().map_or(0, |w| w.bytes);
    // The ramp's share comes on top of what is measured.
    let (fills, others): (Vec<&Job>, Vec<&Job>) = run
        .jobs
        .iter()
        .partition(|j| j.name.starts_with("mix-fill"));
    let filled: u64 = fills.iter().map(|j| bytes(j)).sum();
    assert_eq!(filled, (256 + 512) << 20);
    let measured: u64 = others.iter().map(|j| bytes(j)).sum();
    let written = filled as f64 + measured as f64 * 1.25;
    let share = written / said.written_at_most().0 as f64;
    assert!(
        (0.3..=1.0).contains(&share),
        "{written} of {}",
        said.written_at_most()
    );
    for id in ["mix-fill25", "mix-fill50"] {
        let section = run.sections.iter().find(|s| s.id == id).unwrap();
        assert_eq!(section.charts.len(), 2, "{id}");
    }
    for j in &others {
        let size: Bytes = j.spec["size"].as_str().unwrap().parse().unwrap();
        assert!(size.0 == 256 << 20 || size.0 == 512 << 20 || j.name.contains("discard"));
    }
}
