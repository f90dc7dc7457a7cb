//! Hosts that share a model: laws of growth, stragglers and neighbours whose truth is known.

use fathom_bench::measurement::defaults;
use fathom_bench::profile::Profile;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, Measurement, Notebook, Plan, RunMeta};
use fathom_experiments::neighbour::NeighbourOptions;
use fathom_experiments::scale::ScaleOptions;
use fathom_io::Control;
use fathom_labs::fleet::{Layout, ModelFleet};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Cell, Job, Run};

struct Quiet;
impl ProgressSink for Quiet {}

fn run(mut fleet: ModelFleet, options: &impl Measurement, time: Nanos, seed: u64) -> Run {
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
        commands: false,
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
    ModelFleet::open(target, hosts, Layout::Own, Control::new()).unwrap()
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
        let table = &shown.sections[0].tables[0];
        let rows = &table.rows;
        assert_eq!(rows.len(), 6, "1, 2, 3, 4, 6 and 8 hosts");
        // Alike in a closed loop on one device: nobody is favoured.
        let fair = |c: &Cell| matches!(c, Cell::Estimate(e) if e.value > 0.99);
        let fairness = table.columns.iter().position(|c| c.label == "fairness");
        let fairness = fairness.unwrap();
        assert!(rows.iter().all(|r| fair(&r[fairness])), "{rows:?}");
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
fn neighbours_cost_what_the_model_makes_them_wait_for() {
    let options: NeighbourOptions = defaults();
    let time = Nanos::from_millis(200);
    let shown = run(fleet("sim:optane-900p", 4), &options, time, 3);
    let alone = shown.jobs[0].read.as_ref().unwrap();
    let beside = |name: &str| {
        let job = shown.jobs.iter().find(|j| j.name == name);
        job.unwrap_or_else(|| panic!("{name}"))
    };
    // At half the rate of one at a time there is hardly anything to wait for.
    let mean = |j: &Job| {
        let read = j.read.as_ref().unwrap();
        (read.iops, read.response_ns.mean.unwrap())
    };
    let (rate, latency) = mean(beside("beside-0.1"));
    assert!((rate / alone.iops - 0.5).abs() < 0.03, "{rate}");
    let ratio = latency / alone.response_ns.mean.unwrap();
    assert!((0.95..1.3).contains(&ratio), "{ratio}");
    // The host that is measured is one, the others are as many as their job says.
    for n in [1, 2, 3] {
        assert_eq!(beside(&format!("beside-{n}.1")).hosts.len(), 1);
        assert_eq!(beside(&format!("load-{n}.1")).hosts.len(), n);
    }
    let of = |n: u32| mean(beside(&format!("beside-{n}.1"))).1;
    assert!(of(0) < of(1) && of(1) < of(2) && of(2) < of(3));
    let finding = &shown.findings[0];
    assert_eq!(finding.id, "neighbour-cost");
    assert!(
        finding.text.contains("Beside 3 loading hosts"),
        "{}",
        finding.text
    );
}

#[test]
fn what_cannot_be_compared_is_refused_in_a_sentence() {
    let refused = |target: &str, hosts: u32| match ModelFleet::open(
        target,
        hosts,
        Layout::Own,
        Control::new(),
    ) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("{target} on {hosts} hosts"),
    };
    assert!(refused("sim:samsung-960pro", 0).contains("expected 1 to"));
    assert!(refused("sim:nothing", 2).contains("nothing"));
}
