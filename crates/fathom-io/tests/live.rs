//! Looking on while jobs run: what a viewer is told, and that nobody is told when he is gone.

use std::collections::BTreeSet;

use fathom_io::driver::live::{LiveWindow, look_on};
use fathom_io::driver::{PlannedJob, Setting, run_group};
use fathom_io::job::{JobSpec, Limits};
use fathom_io::{Control, Target, Wanted};
use fathom_telemetry::schema::Job;

fn group(ios: &[&str]) -> Vec<Job> {
    let jobs: Vec<PlannedJob> = ios
        .iter()
        .map(|ios| {
            let mut spec = JobSpec::default();
            for (name, text) in [("name", "twin"), ("rw", "randrw"), ("ios", ios)] {
                spec.set(name, text).unwrap();
            }
            PlannedJob::new(
                spec.validate(&Limits {
                    size: 1 << 40,
                    direct_align: 1,
                    hosts: 1,
                })
                .unwrap(),
            )
        })
        .collect();
    let target = Target::open("null:", &Wanted::default()).unwrap();
    let setting = Setting {
        destination: target.destination(),
        control: &Control::new(),
        counters: None,
        log: None,
    };
    run_group(&jobs, &setting, &mut ()).unwrap()
}

// One test: whoever looks on sees every group of the process.
#[test]
fn a_viewer_can_tell_jobs_of_one_name_apart_and_is_not_told_more_when_he_has_gone() {
    let windows = look_on().unwrap();
    assert!(look_on().is_none(), "one viewer at a time");
    let measured = [group(&["3000", "5000"]), group(&["700"])];
    let told: Vec<LiveWindow> = windows.try_iter().collect();
    let groups: BTreeSet<u64> = told.iter().map(|w| w.group).collect();
    assert_eq!(groups.len(), 2, "each group has a number of its own");
    for (group, jobs) in groups.iter().zip(&measured) {
        for (index, job) in jobs.iter().enumerate() {
            let of_job = || {
                told.iter()
                    .filter(|w| w.group == *group && w.index == index)
            };
            let (read, write) = (job.read.as_ref().unwrap(), job.write.as_ref().unwrap());
            assert!(of_job().all(|w| w.job == "twin" && w.threads == 1));
            let sum = |of: &dyn Fn(&LiveWindow) -> u64| of_job().map(of).sum::<u64>();
            assert_eq!(sum(&|w| w.ios), read.ios + write.ios);
            assert_eq!(sum(&|w| w.reads), read.ios);
            assert_eq!(sum(&|w| w.bytes), read.bytes + write.bytes);
            assert_eq!(sum(&|w| w.latency.moments.count), read.ios + write.ios);
            let slowest = of_job().map(|w| w.latency.moments.max).max();
            assert_eq!(slowest, read.service_ns.max.max(write.service_ns.max));
        }
    }
    drop(windows);
    group(&["700"]);
    let windows = look_on().expect("the place is free when the viewer has gone");
    assert_eq!(windows.try_iter().count(), 0);
}
