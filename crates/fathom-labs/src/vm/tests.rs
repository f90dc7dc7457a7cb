//! The lab on models, whose truth is the paper: latency, saturation, settings.

use super::*;
use fathom_bench::profile::Profile;
use fathom_bench::{RunMeta, SimBench};
use fathom_io::Control;
use fathom_io::job::Limits;
use fathom_telemetry::schema::Run;

struct Quiet;
impl ProgressSink for Quiet {}

fn ran(options: &VmOptions) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let mut physical = SimBench::open("sim:optane-900p", Control::new()).unwrap();
    let mut machines = SimMachines::new("sim:optane-900p", Control::new()).unwrap();
    let plan = Plan {
        limits: Limits {
            size: 20 << 30,
            direct_align: 512,
            hosts: 1,
        },
        profile: Profile {
            repeats: 2,
            job_time: Nanos::from_millis(200),
            ramp: Nanos::from_millis(100),
            ..Profile::named("quick").unwrap()
        },
        threads: 2,
        direct: true,
        wears: true,
        commands: false,
        seed: 1,
    };
    let mut book =
        Notebook::create(dir.path(), RunMeta::default(), physical.describe(), true, 0).unwrap();
    run(
        &mut physical,
        &mut machines,
        &plan,
        options,
        &mut book,
        &mut Quiet,
    )
    .unwrap();
    book.finish().unwrap().0
}

#[test]
fn one_machine_costs_what_the_paper_says_and_six_fill_the_device() {
    let run = ran(&VmOptions {
        machines: vec![1, 2, 4, 6, 8],
        curve: vec![1, 16, 64],
        ..VmOptions::default()
    });
    let value = |id: &str| {
        let h = run
            .headlines
            .iter()
            .find(|h| h.id == id)
            .unwrap_or_else(|| panic!("{id}"));
        h.estimate.unwrap().value
    };
    let near = |x: f64, y: f64| (x / y - 1.0).abs() < 0.1;
    // Zhang et al. 2018: 13.5 and 67.3 us, 120k IOPS of one machine, 410k of six.
    assert!(
        near(value("pe-randread-4k-qd1"), 13_500.0),
        "{}",
        value("pe-randread-4k-qd1")
    );
    assert!(
        near(value("ve-randread-4k-qd1"), 67_300.0),
        "{}",
        value("ve-randread-4k-qd1")
    );
    assert!(near(value("vms1-iops"), 120e3), "{}", value("vms1-iops"));
    assert!(near(value("vms6-iops"), 410e3), "{}", value("vms6-iops"));
    assert!(value("vms8-iops") < 1.05 * value("vms6-iops"));
    let said = |id: &str| run.findings.iter().any(|f| f.id == id);
    assert!(
        said("vm-latency") && said("vm-saturation"),
        "{:?}",
        run.findings
    );
    let ids: Vec<&str> = run.sections.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["vm", "vm-curve", "vm-machines"]);
}

#[test]
fn a_setting_is_proved_in_interleaved_runs() {
    let knobs = SimMachines::new("sim:optane-900p", Control::new())
        .unwrap()
        .knobs();
    let run = ran(&VmOptions {
        machines: vec![1],
        curve: Vec::new(),
        writes: false,
        tries: vec![Setup::parse("idle=busy", knobs).unwrap()],
        ..VmOptions::default()
    });
    let found = run
        .findings
        .iter()
        .find(|f| f.id == "vm-set-idle=busy-qd1")
        .unwrap();
    assert!(found.text.contains("recovers"), "{}", found.text);
    assert_eq!(found.jobs.len(), 4 * ab::BLOCKS_MIN as usize);
    assert!(
        run.jobs.iter().all(|j| j.write.is_none()),
        "nothing was written"
    );
}

#[test]
fn too_small_a_target_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let mut physical = SimBench::open("sim:optane-900p", Control::new()).unwrap();
    let mut machines = SimMachines::new("sim:optane-900p", Control::new()).unwrap();
    let plan = Plan {
        limits: Limits {
            size: 16 << 20,
            direct_align: 512,
            hosts: 1,
        },
        profile: Profile::named("quick").unwrap(),
        threads: 2,
        direct: true,
        wears: true,
        commands: false,
        seed: 1,
    };
    let mut book =
        Notebook::create(dir.path(), RunMeta::default(), physical.describe(), true, 0).unwrap();
    let e = run(
        &mut physical,
        &mut machines,
        &plan,
        &VmOptions::default(),
        &mut book,
        &mut Quiet,
    );
    assert!(
        e.unwrap_err()
            .to_string()
            .contains("use a larger --size or fewer --vms")
    );
}
