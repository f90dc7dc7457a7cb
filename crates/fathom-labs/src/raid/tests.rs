//! The lab on models: what is planned, which expectation fits, what members move.

use super::*;
use fathom_bench::RunMeta;
use fathom_bench::profile::Profile;
use fathom_io::Control;
use fathom_io::job::Limits;

struct Quiet;
impl ProgressSink for Quiet {}

fn options(levels: &[u32], members: &[u32]) -> RaidOptions {
    RaidOptions {
        levels: levels
            .iter()
            .filter_map(|n| Level::from_number(*n))
            .collect(),
        members: members.to_vec(),
        ..RaidOptions::default()
    }
}

fn plan() -> Plan {
    Plan {
        limits: Limits {
            size: 16 << 30,
            direct_align: 512,
            hosts: 1,
        },
        profile: Profile {
            repeats: 2,
            job_time: Nanos::from_millis(300),
            ramp: Nanos::from_millis(100),
            ..Profile::named("quick").unwrap()
        },
        threads: 2,
        direct: true,
        wears: true,
        commands: false,
        seed: 1,
    }
}

fn ran(options: &RaidOptions) -> fathom_telemetry::schema::Run {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = SimArrays::new("sim:optane-900p", Control::new()).unwrap();
    let about = backend.member().unwrap().describe();
    let mut book = Notebook::create(dir.path(), RunMeta::default(), about, true, 0).unwrap();
    run(&mut backend, &plan(), options, &mut book, &mut Quiet).unwrap();
    book.finish().unwrap().0
}

#[test]
fn only_arrays_that_a_level_can_have_are_planned() {
    let all = shapes(&options(&[0, 1, 5, 6, 10], &[2, 3, 4, 5]));
    let has = |level, members| {
        all.iter()
            .any(|s| s.level.number() == level && s.members == members)
    };
    assert!(has(0, 2) && has(5, 3) && has(6, 4) && has(10, 4));
    assert!(!has(5, 2) && !has(6, 3) && !has(10, 5) && !has(10, 2));
    let chunks = RaidOptions {
        chunks: vec![Bytes::kib(64), Bytes::kib(512)],
        ..options(&[1, 5], &[4])
    };
    assert_eq!(shapes(&chunks).len(), 3, "a mirror has no chunk");
}

#[test]
fn a_simulated_array_stands_beside_its_expectations_and_says_what_fits() {
    let run = ran(&options(&[0, 5], &[4]));
    let section = |id: &str| run.sections.iter().find(|s| s.id == id).unwrap();
    let words = |t: &fathom_telemetry::schema::Table| serde_json::to_string(&t.rows).unwrap();
    let raid0 = words(&section("raid0").tables[0]);
    assert!(
        raid0.contains("\"all\""),
        "direct reads of RAID 0 meet N: {raid0}"
    );
    let raid5 = words(&section("raid5").tables[0]);
    assert!(
        raid5.contains("small-write, full-stripe"),
        "reads use every member: {raid5}"
    );
    assert!(
        run.findings.iter().any(|f| f.id == "raid5-loss"),
        "{:?}",
        run.findings
    );
    assert!(run.flags.iter().any(|f| f.code == FlagCode::Simulated));
    assert!(run.jobs.len() > 20 && run.simulated);
}

#[test]
fn members_of_a_parity_array_move_more_than_was_asked() {
    let run = ran(&RaidOptions {
        patterns: vec![Rw::RandWrite],
        direct: vec![true],
        ..options(&[1, 5], &[4])
    });
    let costs = run.sections.iter().find(|s| s.id == "raid-costs").unwrap();
    let written = |array: &str| -> f64 {
        let row = costs.tables[0].rows.iter().find(|r| {
            let t = serde_json::to_value(&r[0]).unwrap();
            t == array && serde_json::to_value(&r[1]).unwrap() == "whole"
        });
        serde_json::to_value(&row.unwrap()[4])
            .unwrap()
            .as_f64()
            .unwrap()
    };
    assert!(
        (written("RAID 1 of 4") - 4.0).abs() < 0.1,
        "{}",
        written("RAID 1 of 4")
    );
    assert!(
        (written("RAID 5 of 4") - 2.0).abs() < 0.1,
        "{}",
        written("RAID 5 of 4")
    );
    let states = run.sections.iter().find(|s| s.id == "raid-states").unwrap();
    assert_eq!(
        states.tables.len(),
        2,
        "degraded, rebuilding, and how long it takes"
    );
}

#[test]
fn arrays_and_unknown_models_are_no_members() {
    let refused = |name: &str| match SimArrays::new(name, Control::new()) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("{name} was taken"),
    };
    assert!(refused("sim:raid5:4xoptane-900p").contains("expected one device"));
    assert!(refused("sim:optan-900p").contains("did you mean"));
}

/// A backend whose arrays all fail.
struct Unable(SimArrays);

impl Backend for Unable {
    fn about(&self) -> String {
        self.0.about()
    }
    fn cannot(&self, _shape: &Shape) -> Option<String> {
        Some("its members are on strike".into())
    }
    fn member(&mut self) -> Result<Box<dyn Bench>, LabError> {
        self.0.member()
    }
    fn make(&mut self, _shape: &Shape) -> Result<Box<dyn ArrayBench>, LabError> {
        unreachable!("it said that it cannot")
    }
}

#[test]
fn a_run_without_any_array_is_void_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut backend = Unable(SimArrays::new("sim:optane-900p", Control::new()).unwrap());
    let about = backend.member().unwrap().describe();
    let book = || Notebook::create(dir.path(), RunMeta::default(), about.clone(), true, 0).unwrap();
    let mut measured = book();
    let options = options(&[0, 1], &[2]);
    run(&mut backend, &plan(), &options, &mut measured, &mut Quiet).unwrap();
    let mut other = book();
    let mut result = within::WithinResult::new("kv", "");
    let why = Err("its members are on strike".into());
    result.add(&mut other, shapes(&options)[0], why);
    result.keep(&mut other).unwrap();
    for run in [measured.finish().unwrap().0, other.finish().unwrap().0] {
        let said = |f: &Flag, what: &str| f.detail.contains(what);
        assert!(run.flags.iter().any(|f| f.void && said(f, "no array")));
        assert!(run.flags.iter().any(|f| said(f, "on strike")));
    }
}
