//! How often differences are raised and missed on simulated noisy runs, and what is refused.

use super::*;
use fathom_stats::rng::SplitMix64;
use fathom_telemetry::LatencySummary;
use fathom_telemetry::schema::{Direction, Headline, HostShare, Job, SCHEMA_VERSION, Target};
use serde_json::json;

/// A survey of a simulated noisy device: `repeats` of one job, whose level differs by `noise` from repeat to repeat.
pub(crate) fn noisy_run(level: f64, noise: f64, repeats: u32, seed: u64) -> Run {
    let mut r = SplitMix64::new(seed);
    let values: Vec<f64> = (0..repeats)
        .map(|_| level * (1.0 + noise * r.normal()))
        .collect();
    let jobs: Vec<Job> = values
        .iter()
        .enumerate()
        .map(|(i, v)| job(i as u32, *v))
        .collect();
    Run {
        schema_version: SCHEMA_VERSION,
        run_id: String::new(),
        tool_version: "0.1.0".into(),
        name: "survey".into(),
        command: "survey".into(),
        command_line: Vec::new(),
        started: format!("2026-01-01T00:00:{:02}Z", seed % 60),
        finished: None,
        profile: Some("standard".into()),
        seed,
        target: Target {
            name: "sim:noisy".into(),
            kind: "simulated".into(),
            path: None,
            size_bytes: 1 << 30,
            device: None,
            description: String::new(),
        },
        simulated: true,
        labels: std::collections::BTreeMap::new(),
        environment: json!({"kernel": {"release": "6.12"}}),
        headlines: vec![Headline {
            id: "randread-4k-iops".into(),
            label: "4 KiB random read".into(),
            group: "IOPS".into(),
            unit: "1/s".into(),
            estimate: Estimate::mean_of(&values),
            extra: Default::default(),
            jobs: (0..jobs.len()).collect(),
            flags: Vec::new(),
        }],
        results: Vec::new(),
        sections: Vec::new(),
        jobs,
        findings: Vec::new(),
        flags: Vec::new(),
    }
}

fn job(repeat: u32, iops: f64) -> Job {
    Job {
        name: format!("randread-4k.{}", repeat + 1),
        experiment: "iops".into(),
        repeat,
        spec: json!({"rw": "randread", "bs": "4k", "qd": 32, "seed": repeat}),
        engine: "sim".into(),
        engine_notes: Vec::new(),
        start_ns: 0,
        wall_ns: 4_000_000_000,
        cpu_ns: 0,
        cpu_user_ns: 0,
        qd_requested: 32,
        qd_achieved: 32.0,
        qd_distribution: Vec::new(),
        read: Some(Direction {
            iops,
            response_ns: LatencySummary {
                samples: 1000,
                mean: Some(32e9 / iops),
                ..LatencySummary::default()
            },
            ..Direction::default()
        }),
        ..Job::default()
    }
}

fn differing(trials: u64, change: f64, noise: f64) -> usize {
    (0..trials)
        .filter(|t| {
            let a = noisy_run(1e5, noise, 5, 2 * t);
            let b = noisy_run(1e5 * (1.0 + change), noise, 5, 2 * t + 1);
            let c = compare(&a, &b, [&(), &()], &[]);
            assert!(c.mismatches.is_empty(), "{:?}", c.mismatches);
            c.overall != Verdict::NoDifferenceShown
        })
        .count()
}

#[test]
fn a_run_compared_with_itself_differs_in_five_of_a_hundred_cases() {
    let alarms = differing(200, 0.0, 0.02);
    assert!((6..=14).contains(&alarms), "{alarms} of 200");
    let alarms = differing(4000, 0.0, 0.02);
    assert!((120..=280).contains(&alarms), "{alarms} of 4000");
}

#[test]
fn a_true_change_of_five_percent_is_found_at_the_standard_profile() {
    let standard = fathom_bench::profile::Profile::named("standard").unwrap();
    assert_eq!(standard.repeats, 5);
    let found = differing(1000, -0.05, 0.02);
    assert!(found >= 900, "{found} of 1000");
}

#[test]
fn what_got_worse_is_listed_with_its_jobs() {
    let a = noisy_run(1e5, 0.005, 5, 1);
    let b = noisy_run(0.8e5, 0.005, 5, 2);
    let c = compare(&a, &b, [&(), &()], &[]);
    assert_eq!(c.overall, Verdict::Worse);
    assert_eq!(c.worse(0.1).count(), 1);
    assert_eq!(c.worse(0.3).count(), 0);
    assert!((c.geometric_mean.unwrap() - 0.8).abs() < 0.02);
    assert_eq!(c.jobs[0].id, "iops/randread-4k/iops");
    assert_eq!(c.jobs[0].verdict, Verdict::Worse);
    assert_eq!(c.jobs[1].verdict, Verdict::Worse, "latency rose");
}

#[test]
fn conditions_that_differ_are_named_and_some_refuse() {
    let a = noisy_run(1e5, 0.01, 5, 1);
    let mut b = noisy_run(1e5, 0.01, 5, 2);
    b.environment = json!({"kernel": {"release": "6.18"}});
    let c = compare(&a, &b, [&(), &()], &[]);
    assert!(!c.refused);
    assert_eq!(
        c.mismatches[0].sentence("in A", "in B"),
        "kernel differs: 6.12 in A, 6.18 in B"
    );
    b.simulated = false;
    b.target.size_bytes = 1 << 34;
    let c = compare(&a, &b, [&(), &()], &[]);
    assert!(c.refused);
    assert_eq!(c.overall, Verdict::NotComparable);
    assert!(c.rows.iter().all(|r| r.verdict == Verdict::NotComparable));
    let allowed = ["simulated".to_owned(), "size".to_owned()];
    assert!(!compare(&a, &b, [&(), &()], &allowed).refused);
}

#[test]
fn jobs_of_another_load_are_not_compared() {
    let a = noisy_run(1e5, 0.01, 5, 1);
    let mut b = noisy_run(1e5, 0.01, 5, 2);
    b.jobs.iter_mut().for_each(|j| j.spec["qd"] = json!(64));
    let c = compare(&a, &b, [&(), &()], &[]);
    assert_eq!(c.rows[0].verdict, Verdict::NotComparable);
    assert!(c.rows[0].notes[0].contains("qd"), "{:?}", c.rows[0].notes);
    b.headlines.clear();
    assert!(compare(&a, &b, [&(), &()], &[]).rows[0].notes[0].contains("only in A"));
}

#[test]
fn a_change_in_a_history_is_found_at_its_run() {
    let many: Vec<Run> = (0..12)
        .map(|i| noisy_run(if i < 7 { 1e5 } else { 0.9e5 }, 0.01, 5, i))
        .collect();
    let with: Vec<(&Run, &dyn WindowSource)> =
        many.iter().map(|r| (r, &() as &dyn WindowSource)).collect();
    let h = history(&with, &[]);
    assert_eq!(h.traces[0].moves.len(), 1, "{:?}", h.traces[0].moves);
    let m = h.traces[0].moves[0];
    assert_eq!((m.run, m.verdict), (7, Verdict::Worse));
    let few = history(&with[5..9], &[]);
    assert_eq!(few.traces[0].moves[0].run, 2);
}

/// A survey of a device of that size whose knee was found at that depth.
fn knee_run(name: &str, bytes: u64, depth: u32, iops: f64) -> Run {
    let mut run = noisy_run(iops, 0.001, 5, 3);
    run.target.name = name.into();
    run.target.size_bytes = bytes;
    run.headlines[0].id = "knee-iops".into();
    run.headlines[0].label = format!("random read at QD {depth} (the knee)");
    for j in &mut run.jobs {
        j.qd_requested = depth;
        j.spec["qd"] = json!(depth);
        j.spec["size"] = json!(bytes);
    }
    run
}

#[test]
fn the_depth_at_the_knee_is_a_number_and_no_condition() {
    let a = knee_run("sim:a", 1 << 30, 16, 5e5);
    let b = knee_run("sim:b", 1 << 30, 128, 4e5);
    let c = compare(&a, &b, [&(), &()], &[]);
    assert_eq!(c.rows[0].verdict, Verdict::Worse, "{:?}", c.rows[0]);
    assert_eq!(c.rows[0].label, "random read at the knee");
    let none: &dyn WindowSource = &();
    let s = shopping(&[(&a, none), (&b, none)], 0, &[]);
    let depth = s.lines.iter().find(|l| l.id == "knee-depth").unwrap();
    let values: Vec<f64> = depth
        .offers
        .iter()
        .map(|o| o.estimate.unwrap().value)
        .collect();
    assert_eq!((depth.good, values), (None, vec![16.0, 128.0]));
    assert!(
        depth
            .offers
            .iter()
            .all(|o| o.times.is_none() && o.verdict.is_none())
    );
    assert!(s.lines[0].offers[1].notes.is_empty(), "{:?}", s.lines[0]);
}

#[test]
fn who_allows_another_size_gets_everything_compared() {
    let a = knee_run("sim:a", 480 << 30, 16, 5e5);
    let b = knee_run("sim:b", 800 << 30, 16, 4e5);
    assert!(compare(&a, &b, [&(), &()], &[]).refused);
    let allowed = ["size".to_owned()];
    let c = compare(&a, &b, [&(), &()], &allowed);
    assert_eq!((c.refused, c.rows[0].verdict), (false, Verdict::Worse));
    let named: Vec<&str> = c.mismatches.iter().map(|m| m.condition.as_str()).collect();
    assert_eq!(named, ["device"], "models of one capacity are two devices");
    let none: &dyn WindowSource = &();
    let h = history(&[(&a, none), (&b, none), (&a, none)], &allowed);
    assert!(
        h.traces[0].values.iter().all(Option::is_some),
        "{:?}",
        h.traces[0]
    );
}

#[test]
fn a_hole_in_a_history_says_why() {
    let a = noisy_run(1e5, 0.01, 5, 1);
    let mut void = noisy_run(1e5, 0.01, 5, 2);
    void.headlines[0].estimate = None;
    let mut other = noisy_run(1e5, 0.01, 5, 3);
    other.jobs.iter_mut().for_each(|j| j.spec["qd"] = json!(64));
    let none: &dyn WindowSource = &();
    let h = history(&[(&a, none), (&void, none), (&other, none)], &[]);
    let why: Vec<Option<&str>> = h.traces[0].why.iter().map(Option::as_deref).collect();
    assert_eq!(why, [None, Some("void"), Some("another qd")]);
}

#[test]
fn what_is_twice_as_much_and_more_is_said_as_a_factor() {
    let said = |value: f64, low: f64, high: f64| {
        relative(Some(&Estimate {
            value,
            low: Some(low),
            high: Some(high),
            samples: 3,
        }))
    };
    assert_eq!(said(1005.561, 970.0, 1040.0), "1007 × (971 to 1041)");
    assert_eq!(said(5.15, 5.1, 5.2), "6.15 × (6.10 to 6.20)");
    assert_eq!(said(0.041, 0.02, 0.063), "+4.1 % (+2.0 to +6.3)");
    assert_eq!(change(-0.25), "-25.0 %");
    assert_eq!(factor(1.0032), "1.003");
}

/// A run of hosts with the bytes that each did in one job.
fn fleet(hosts: &[(&str, u64, &str)]) -> Run {
    let mut run = noisy_run(1000.0, 0.0, 1, 1);
    run.environment = json!({ "hosts": hosts
        .iter()
        .map(|(host, _, kernel)| json!({"host": host, "kernel": kernel, "place": "nfs (hard)"}))
        .collect::<Vec<_>>() });
    let share = |(host, bytes, _): &(&str, u64, &str)| HostShare {
        host: (*host).to_owned(),
        bytes: *bytes,
        slowest_windows: u64::from(*bytes < 100),
        ..HostShare::default()
    };
    run.jobs = vec![Job {
        name: "load".into(),
        hosts: hosts.iter().map(share).collect(),
        ..Job::default()
    }];
    run
}

#[test]
fn hosts_are_matched_by_name_and_what_differs_is_said_by_host() {
    let a = fleet(&[("h1", 300, "6.1"), ("h2", 100, "6.1"), ("h3", 0, "6.1")]);
    let b = fleet(&[("h2", 50, "6.5"), ("h1", 50, "6.1"), ("h4", 100, "6.1")]);
    let c = compare(&a, &b, [&(), &()], &[]);
    let said: Vec<String> = c
        .mismatches
        .iter()
        .map(|m| m.sentence("in A", "in B"))
        .collect();
    assert_eq!(
        said,
        [
            "hosts differs: 3 with h3 in A, 3 with h4 in B",
            "host-kernels differs: 6.1 (h2) in A, 6.5 (h2) in B"
        ]
    );
    let shares: Vec<(&str, Option<f64>, Option<f64>)> = c
        .hosts
        .iter()
        .map(|h| (h.host.as_str(), h.a.map(|p| p.share), h.b.map(|p| p.share)))
        .collect();
    assert_eq!(
        shares,
        [
            ("h1", Some(0.75), Some(0.25)),
            ("h2", Some(0.25), Some(0.25)),
            ("h3", Some(0.0), None),
            ("h4", None, Some(0.5)),
        ]
    );
    assert_eq!(c.hosts[1].b.unwrap().slowest_windows, 1);
    let names = ["hosts", "host-kernels"].map(str::to_owned);
    assert!(compare(&a, &b, [&(), &()], &names).mismatches.is_empty());
    let alone = compare(&a, &fleet(&[]), [&(), &()], &[]);
    assert_eq!(
        alone.mismatches[0].sentence("in A", "in B"),
        "hosts differs: 3 with h1, h2, h3 in A, one machine, by no name in B"
    );
}
