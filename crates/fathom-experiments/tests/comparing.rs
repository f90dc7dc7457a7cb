//! Comparing runs of a simulated device whose media scatter: how often a difference is raised that is none, and found
//! where it is one. Jobs go through the simulator, the driver and its histograms, as those of a survey do.

use fathom_bench::{Bench, Notebook, RunMeta, SimBench};
use fathom_experiments::compare::compare;
use fathom_io::driver::{Observer, PlannedJob};
use fathom_io::{Control, JobSpec};
use fathom_sim::{Model, SimTarget};
use fathom_stats::Estimate;
use fathom_stats::compare::Verdict;
use fathom_telemetry::schema::{Headline, Run};

struct Silent;

impl Observer for Silent {}

/// A device whose reads take 60 µs on average and scatter by twice that; `slower` scales what a read takes in all.
fn noisy(slower: f64) -> Model {
    let mut model = Model::named("micron-mx500").unwrap();
    model.media_cv = 2.0;
    model.read.media_us *= slower;
    model.read.fixed_us *= slower;
    model.thermal = None;
    model
}

/// What a run looks like before it holds any number.
fn blank() -> Run {
    let dir = tempfile::tempdir().unwrap();
    let bench = SimBench::new(SimTarget::of(noisy(1.0)), Control::new());
    let meta = RunMeta {
        name: "survey".into(),
        command: "survey".into(),
        profile: Some("standard".into()),
        ..RunMeta::default()
    };
    let book = Notebook::create(dir.path(), meta, bench.describe(), true, 0).unwrap();
    book.finish().unwrap().0
}

/// I/Os of a repeat; a job of the standard profile's four seconds has seven times as many here, and scatters less.
const IOS: &str = "5000";

/// Five repeats of a job on the device, as the standard profile has them.
fn survey(blank: &Run, slower: f64, seed: u64) -> Run {
    let mut bench = SimBench::new(SimTarget::of(noisy(slower)), Control::new());
    let mut run = blank.clone();
    for repeat in 0..5 {
        let mut spec = JobSpec::default();
        for (option, text) in [("rw", "randread"), ("bs", "4k"), ("ios", IOS)] {
            spec.set(option, text).unwrap();
        }
        spec.seed = 10 * seed + repeat;
        let planned = PlannedJob {
            experiment: "iops".into(),
            repeat: repeat as u32,
            ..PlannedJob::new(spec.validate(&bench.limits()).unwrap())
        };
        run.jobs
            .extend(bench.run(&[planned], None, &mut Silent).unwrap());
    }
    let iops: Vec<f64> = run
        .jobs
        .iter()
        .map(|j| j.read.as_ref().unwrap().iops)
        .collect();
    run.headlines.push(Headline {
        id: "randread-4k-iops".into(),
        label: "4 KiB random read".into(),
        group: "IOPS".into(),
        unit: "1/s".into(),
        estimate: Estimate::mean_of(&iops),
        extra: Default::default(),
        jobs: (0..run.jobs.len()).collect(),
        flags: Vec::new(),
    });
    run
}

fn differing(pairs: u64, slower: f64, first_seed: u64) -> usize {
    let blank = blank();
    (0..pairs)
        .filter(|p| {
            let a = survey(&blank, 1.0, first_seed + 2 * p);
            let b = survey(&blank, slower, first_seed + 2 * p + 1);
            compare(&a, &b, [&(), &()], &[]).overall != Verdict::NoDifferenceShown
        })
        .count()
}

#[test]
fn a_noisy_device_compared_with_itself_differs_in_five_of_a_hundred_cases() {
    let found = differing(200, 1.0, 1_000);
    assert!((6..=14).contains(&found), "{found} of 200");
}

#[test]
fn a_device_that_got_five_percent_slower_is_found_in_nine_of_ten_cases() {
    let blank = blank();
    let level = |slower: f64| {
        let all: Vec<f64> = (0..40)
            .filter_map(|i| {
                Some(
                    survey(&blank, slower, 90_000 + i).headlines[0]
                        .estimate?
                        .value,
                )
            })
            .collect();
        Estimate::mean_of(&all).unwrap().value
    };
    // The host's share of the latency stays as it is: 5 % in all take a little more inside.
    let share = 1.0 / (level(1.0) / level(2.0) - 1.0);
    let slower = 1.0 + 0.05 / 0.95 * share;
    let change = level(slower) / level(1.0) - 1.0;
    assert!((-0.06..-0.04).contains(&change), "{change}");
    let found = differing(100, slower, 5_000);
    assert!(found >= 90, "{found} of 100");
}
