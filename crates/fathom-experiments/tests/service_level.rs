//! Capacity under an objective, against queues whose response is known in closed form.

mod common;

use common::{QueueBench, Quiet, headline, plan, run_with};
use fathom_bench::Measurement;
use fathom_bench::measurement::defaults;
use fathom_experiments::slo::SloOptions;
use fathom_io::job::Rw;
use fathom_io::port::virtual_time::Service;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Cell, Run};

const SERVICE_NS: f64 = 20_000.0;

fn measure(millis: u64, seed: u64, limit: Nanos) -> Run {
    let service = Service::Exponential(Nanos(SERVICE_NS as u64));
    let mut bench = QueueBench {
        seed,
        ..QueueBench::new(1, service)
    };
    let options = SloOptions {
        rw: Some(Rw::RandRead),
        latency: Some(limit),
        ..defaults()
    };
    run_with(&mut bench, 0, |bench, book| {
        options
            .run(bench, &plan(millis, 3), book, &mut Quiet)
            .expect("rates");
    })
}

#[test]
fn what_an_exponential_server_carries_is_what_its_response_says() {
    // M/M/1: responses are exponential with the rate mu - lambda, so p99 = ln(100) / (mu - lambda).
    let limit = Nanos::from_micros(200);
    let truth = 1e9 / SERVICE_NS - 100f64.ln() / limit.as_secs_f64();
    let mut held = 0;
    for seed in 1..=10 {
        let run = measure(2000, seed, limit);
        let e = headline(&run, "slo");
        let (low, high) = (e.low.unwrap(), e.high.unwrap());
        assert_eq!(e.value, low, "what is promised holds");
        assert!(
            low < 1.05 * truth && high > 0.95 * truth,
            "seed {seed}: {low} to {high}, truth {truth}"
        );
        assert!(high / low < 1.3, "seed {seed}: {low} to {high}");
        held += u32::from(low <= truth && truth <= high);
        let text = &run.findings[0].text;
        assert!(
            text.contains("Carries") && text.contains("p99 of reads is"),
            "{text}"
        );
        let table = &run.sections[0].tables[0];
        let verdict = |row: &Vec<Cell>| match row.last() {
            Some(Cell::Text(t)) => t.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(verdict(&table.rows[0]), "holds");
        assert_eq!(verdict(table.rows.last().unwrap()), "broken");
    }
    assert!(
        held >= 7,
        "the truth lies between what holds and what does not in {held} of 10"
    );
}

#[test]
fn an_objective_below_the_service_time_is_carried_at_no_rate() {
    let run = measure(500, 1, Nanos::from_micros(20));
    assert!(run.headlines[0].estimate.is_none());
    let text = &run.findings[0].text;
    assert!(text.starts_with("No rate that was tried"), "{text}");
}

#[test]
fn too_few_requests_for_the_percentile_show_nothing() {
    // At 75,000 per second and less, three times 2 ms have fewer than ten beyond the 99th percentile.
    let run = measure(2, 1, Nanos::from_millis(5));
    assert!(run.headlines[0].estimate.is_none());
    let finding = &run.findings[0];
    assert!(
        finding.text.starts_with("Nothing was shown"),
        "{}",
        finding.text
    );
    assert_eq!(finding.confidence, "weak");
    assert!(finding.advice.contains("--time"));
}
