//! `fathom plan` against queues whose capacity is known in closed form, and against models.

mod common;

use clap::{Args, Command, FromArgMatches};
use common::{QueueBench, Quiet, headline, plan, run_with};
use fathom_bench::{Measurement, SimBench};
use fathom_experiments::plan::PlanOptions;
use fathom_io::Control;
use fathom_io::port::virtual_time::Service;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Cell, Finding, Run};

fn options(words: &str) -> PlanOptions {
    let args = std::iter::once("plan").chain(words.split_whitespace());
    let matches = PlanOptions::augment_args(Command::new("plan")).get_matches_from(args);
    PlanOptions::from_arg_matches(&matches).unwrap()
}

fn refusal(words: &str) -> String {
    options(words).check().unwrap_err()
}

fn finding<'r>(run: &'r Run, id: &str) -> &'r Finding {
    let found = run.findings.iter().find(|f| f.id == id);
    found.unwrap_or_else(|| panic!("no {id}: {:?}", run.findings))
}

const SERVICE_NS: f64 = 20_000.0;

/// One exponential server of 50,000 requests per second.
fn server(words: &str, seed: u64) -> Run {
    let service = Service::Exponential(Nanos(SERVICE_NS as u64));
    let mut bench = QueueBench {
        seed,
        ..QueueBench::new(1, service)
    };
    let options = options(words);
    options.check().unwrap();
    run_with(&mut bench, 0, |bench, book| {
        options
            .run(bench, &plan(2000, 3), book, &mut Quiet)
            .expect("a plan");
    })
}

#[test]
fn months_and_times_hold_the_truth_of_an_exponential_server() {
    // M/M/1: p99 = ln(100) / (mu - lambda) is the limit at this rate.
    let truth = 1e9 / SERVICE_NS - 100f64.ln() / 200e-6;
    let (demand, growth) = (6000.0, 7.0);
    let months = (truth / demand).ln() / 1.07f64.ln();
    let mut held = 0;
    for seed in 1..=4 {
        let words = format!("--rw randread --latency 200us --demand {demand} --growth {growth}");
        let run = server(&words, seed);
        let e = headline(&run, "plan-1");
        let (low, high) = (e.low.unwrap() * demand, e.high.unwrap() * demand);
        held += u32::from(low <= truth && truth <= high);
        let text = &finding(&run, "plan-1").text;
        let near = [months.floor() - 1.0, months.floor(), months.ceil()]
            .iter()
            .any(|m| {
                text.contains(&format!("{m:.0} to ")) || text.contains(&format!("{m:.0} months"))
            });
        assert!(near, "seed {seed}: {months:.1} months: {text}");
        // 6,000 per second are one of the rates: p99 there is ln(100) / 44,000 s.
        let Some(Cell::Number(at_demand)) = run.sections[0].tables[0].rows[0].get(3).cloned()
        else {
            panic!("{:?}", run.sections[0].tables[0]);
        };
        let p99 = 100f64.ln() / (1e9 / SERVICE_NS - demand) * 1e9;
        assert!((at_demand / p99 - 1.0).abs() < 0.1, "{at_demand} of {p99}");
        let held_out = finding(&run, "plan-held-out");
        assert!(held_out.text.contains("3 of 3"), "{}", held_out.text);
    }
    assert!(held >= 3, "{held} of 4 intervals hold {truth}");
}

#[test]
fn what_is_asked_for_beyond_capacity_is_said_to_need_more() {
    let run = server("--rw randread --latency 200us --demand 40000", 1);
    let text = &finding(&run, "plan-1").text;
    // 27 k are carried.
    assert!(
        text.contains("need 1.4") || text.contains("need 1.5"),
        "{text}"
    );
    assert!(!text.contains("months"), "{text}");
}

fn model(target: &str, words: &str) -> Run {
    let mut bench = SimBench::open(target, Control::new()).unwrap();
    let options = options(words);
    options.check().unwrap();
    run_with(&mut bench, 0, |bench, book| {
        options
            .run(bench, &plan(150, 3), book, &mut Quiet)
            .expect("a plan");
    })
}

#[test]
fn the_cheapest_that_carries_it_is_chosen_and_a_slow_one_is_multiplied() {
    let words = "--demand 60000 --beside sim:optane-900p --beside sim:raid10:8xintel-s3510 --prices 90,400,720";
    let run = model("sim:intel-s3510", words);
    let choice = &finding(&run, "plan-choice").text;
    assert!(
        choice.contains("sim:optane-900p costs least: 400")
            && choice.contains("sim:raid10:8xintel-s3510 costs 720"),
        "{choice}"
    );
    let slow = &finding(&run, "plan-1").text;
    assert!(
        slow.contains("2 of them side by side (RAID 0) hold it, simulated"),
        "{slow}"
    );
    // Names tell targets apart: nothing that one of them did is another one's drift.
    let mut names: Vec<&str> = run.jobs.iter().map(|j| j.name.as_str()).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    let rows = &run.sections[0].tables[0].rows;
    assert_eq!(rows.len(), 3);
    assert!(matches!(rows[0].last(), Some(Cell::Text(t)) if t == "too slow"));
}

#[test]
fn without_prices_that_which_carries_most_is_chosen() {
    let run = model("sim:intel-s3510", "--demand 5000 --beside sim:optane-900p");
    let choice = &finding(&run, "plan-choice").text;
    assert!(choice.contains("sim:optane-900p carries most"), "{choice}");
}

#[test]
fn what_cannot_be_planned_is_refused_in_a_sentence() {
    assert!(refusal("").contains("--demand"));
    assert!(refusal("--demand 0").contains("--demand 0"));
    assert!(refusal("--demand 10 --growth=-3").contains("--growth"));
    assert!(refusal("--demand 10 --beside /dev/sda").contains("expected a model"));
    assert!(refusal("--demand 10 --beside sim:nonsense").contains("nonsense"));
    assert!(refusal("--demand 10 --prices 1,2").contains("2 given for 1"));
    assert!(refusal("--demand 10 --percentile 95").contains("--percentile"));
}
