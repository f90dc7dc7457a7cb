//! Hosts that share a model: laws of growth, stragglers and neighbours whose truth is known.

use fathom_bench::measurement::defaults;
use fathom_bench::profile::Profile;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Measurement, Notebook, Plan, RunMeta};
use fathom_experiments::scale::ScaleOptions;
use fathom_io::Control;
use fathom_labs::fleet::ModelFleet;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Cell, Run};

struct Quiet;
impl ProgressSink for Quiet {}

fn run(mut fleet: ModelFleet, options: &ScaleOptions, time: Nanos, seed: u64) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        limits: fleet.limits(),
        profile: Profile {
            repeats: 3,
            job_time: time,
            ..Profile::named("quick").unwrap()
        },
        seed,
        threads: 1,
        direct: true,
        wears: true,
    };
    let meta = RunMeta {
        name: "scale".into(),
        seed,
        ..RunMeta::default()
    };
    let mut book = Notebook::create(dir.path(), meta, fleet.describe(), true, 0).unwrap();
    let measured = options.run(&mut fleet, &plan, &mut book, &mut Quiet);
    measured.unwrap();
    book.finish().unwrap().0
}

fn fleet(target: &str, hosts: u32) -> ModelFleet {
    ModelFleet::open(target, hosts, Control::new()).unwrap()
}

#[test]
fn the_law_of_fewer_hosts_says_what_the_most_do() {
    let mut off = Vec::new();
    for (target, qd) in [
        ("sim:samsung-960pro", 4),
        ("sim:samsung-960pro", 16),
        ("sim:optane-900p", 4),
        ("sim:intel-s3510", 4),
        ("sim:micron-mx500", 1),
        ("sim:raid0:4xintel-s3510", 4),
    ] {
        let options = ScaleOptions {
            qd,
            ..defaults::<ScaleOptions>()
        };
        let shown = run(fleet(target, 8), &options, Nanos::from_millis(100), 7);
        let text = &shown.sections[0].text;
        // "…, the law was +3.8 % off there."
        let said = text.rsplit("the law was ").next().unwrap();
        let percent: f64 = said.split(' ').next().unwrap().parse().unwrap();
        println!("{target} at depth {qd}: {percent:+.1} %");
        assert!(percent.abs() <= 10.0, "{target} at depth {qd}: {text}");
        off.push(percent);
        let rows = &shown.sections[0].tables[0].rows;
        assert_eq!(rows.len(), 6, "1, 2, 3, 4, 6 and 8 hosts");
        // Alike in a closed loop on one device: nobody is favoured.
        let fair = |c: &Cell| matches!(c, Cell::Estimate(e) if e.value > 0.99);
        assert!(rows.iter().all(|r| fair(&r[7])), "{rows:?}");
    }
    assert!(off.iter().any(|o| *o != 0.0));
}

/// A host that pauses 30 µs before each of its I/Os is named, and no other, in at least 95 % of cases.
#[test]
fn a_straggler_is_named_and_nobody_else() {
    const CASES: u64 = 40;
    let options = ScaleOptions {
        steps: vec![6],
        ..defaults::<ScaleOptions>()
    };
    let named = |shown: &Run| -> Vec<String> {
        let ids = shown.findings.iter().map(|f| f.id.clone());
        ids.filter_map(|id| Some(id.strip_prefix("scale-straggler-")?.to_owned()))
            .collect()
    };
    let (mut found, mut wrong) = (0, 0);
    for seed in 0..CASES {
        let slow = (seed % 6) as usize;
        let time = Nanos::from_millis(100);
        let one = fleet("sim:samsung-960pro", 6).with_straggler(slow, Nanos::from_micros(30));
        let names = named(&run(one, &options, time, seed));
        found += u64::from(names == [format!("h{}", slow + 1)]);
        let none = named(&run(fleet("sim:samsung-960pro", 6), &options, time, seed));
        wrong += u64::from(!none.is_empty());
    }
    println!("named {found} of {CASES}, wrongly {wrong} of {CASES}");
    assert!(found * 100 >= 95 * CASES, "{found} of {CASES}");
    assert!(wrong * 100 <= 5 * CASES, "{wrong} of {CASES}");
}

#[test]
fn what_cannot_be_compared_is_refused_in_a_sentence() {
    let refused = |target: &str, hosts: u32| match ModelFleet::open(target, hosts, Control::new()) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("{target} on {hosts} hosts"),
    };
    assert!(refused("sim:samsung-960pro", 0).contains("expected 1 to"));
    assert!(refused("sim:nothing", 2).contains("nothing"));
}
