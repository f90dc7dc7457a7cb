//! Latency by layer on a model: nothing is traced, the simulator says in which stage each I/O was.

use fathom_bench::SimBench;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cost::RunCost;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_io::JobSpec;
use fathom_io::driver::PlannedJob;
use fathom_sim::trace::{PLACES, Place, Trace};
use fathom_stack::{Layer, Owner, StackResult};

use super::{PASS_IOS, StackCase, StackReport, Watch};

/// Of [`StackCase::rung`].
pub(super) const RUNG: &str = "model";

/// What a part is called, and who spends its time.
fn named(place: Place) -> (&'static str, Owner) {
    match place {
        Place::Submission => ("submission", Owner::Kernel),
        Place::Exit => ("exit to the hypervisor", Owner::Kernel),
        Place::Iothread => ("iothread and host kernel, submission", Owner::Kernel),
        Place::StackedLayer => ("device-mapper or RAID maps it", Owner::Kernel),
        Place::PageCache => ("page cache", Owner::Kernel),
        Place::Slot => ("waiting for a queue slot", Owner::Device),
        Place::Controller => ("waiting for the controller", Owner::Device),
        Place::Transfer => ("controller and transfer", Owner::Device),
        Place::Media => ("medium, waiting for its unit included", Owner::Device),
        Place::Fixed => ("fixed latency of the device", Owner::Device),
        Place::Array => ("array: its host and members", Owner::Device),
        Place::HostInterrupt => ("interrupt on the host", Owner::Kernel),
        Place::ToGuest => (
            "iothread, completion, and interrupt of the guest",
            Owner::Kernel,
        ),
        Place::Completion => ("interrupt, wake-up and completion", Owner::Kernel),
    }
}

/// Time and bytes: one pass of each case.
pub fn model_cost(cases: &[JobSpec]) -> RunCost {
    let mut cost = RunCost::default();
    for spec in cases {
        let spec = JobSpec {
            ios: Some(PASS_IOS),
            time: None,
            ..spec.clone()
        };
        cost.phase(&spec.name).add(&spec, 1);
    }
    cost
}

/// Runs every case once and keeps it in the notebook.
///
/// # Errors
/// Where a case does not fit the model, or the run directory fails.
pub fn on_model(
    bench: &mut SimBench,
    cases: &[JobSpec],
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<StackReport, NotebookError> {
    let mut report = StackReport::default();
    for spec in cases {
        if bench.interrupted() {
            break;
        }
        let spec = JobSpec {
            ios: Some(PASS_IOS),
            time: None,
            record: false,
            ..spec.clone()
        };
        let valid = spec.validate(&bench.limits()).map_err(BenchError::from)?;
        let planned = [PlannedJob {
            experiment: "stack".into(),
            ..PlannedJob::new(valid)
        }];
        bench.trace();
        let jobs = book.measure(bench, &planned, &mut |p| watch(&spec.name, p))?;
        let trace = bench.traced();
        let mean = jobs.first().and_then(|j| {
            let job = book.run().jobs.get(*j)?;
            [&job.read, &job.write]
                .into_iter()
                .flatten()
                .find_map(|d| d.service_ns.mean)
        });
        if let (Some(trace), Some(mean)) = (trace, mean) {
            report.cases.push(case(&spec, &trace, mean, jobs));
        }
    }
    Ok(report)
}

fn case(spec: &JobSpec, trace: &Trace, mean: f64, jobs: Vec<usize>) -> StackCase {
    let all = trace.taken().max(1) as f64;
    let layers: Vec<Layer> = PLACES
        .into_iter()
        .filter(|p| trace.of(*p).moments().sum > 0)
        .map(|place| {
            let (name, owner) = named(place);
            let times = trace.of(place);
            let sum = times.moments().sum as f64;
            Layer::of(name.into(), owner, (sum, times), all, mean * all)
        })
        .collect();
    let sum = |of: &dyn Fn(&Layer) -> bool| -> f64 {
        layers.iter().filter(|l| of(l)).map(|l| l.mean_ns).sum()
    };
    let residual_ns = mean - sum(&|_| true);
    let by_memory = trace.of(Place::PageCache).count();
    let result = StackResult {
        application_mean_ns: mean,
        joined_mean_ns: Some(sum(&|_| true)),
        device_span_ns: Some(sum(&|l| l.owner == Owner::Device)),
        coverage: 1.0,
        residual_ns,
        submitted: trace.taken(),
        by_device: trace.taken() - by_memory.min(trace.taken()),
        by_memory,
        software_share: Some(sum(&|l| l.owner != Owner::Device) / mean),
        layers: layers.clone(),
        ..StackResult::default()
    };
    StackCase {
        name: spec.name.clone(),
        rung: RUNG.into(),
        layers,
        application_mean_ns: Some(mean),
        coverage: Some(1.0),
        residual_ns: Some(residual_ns),
        notes: vec![
            "Simulated: the stages of the model, which knows no engine and no file system. Nothing was traced, so nothing disturbed it."
                .into(),
        ],
        details: Some(result),
        jobs,
        ..StackCase::default()
    }
}

#[cfg(test)]
mod tests {
    use fathom_bench::RunMeta;
    use fathom_io::Control;
    use fathom_telemetry::Nanos;

    use super::*;

    fn case_of(target: &str, options: &[(&str, &str)]) -> (StackCase, f64) {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = JobSpec {
            time: Some(Nanos::from_millis(50)),
            ..JobSpec::default()
        };
        for (option, text) in options {
            spec.set(option, text).unwrap();
        }
        let mut untraced = SimBench::open(target, Control::new()).unwrap();
        let mut bench = SimBench::open(target, Control::new()).unwrap();
        let mut book =
            Notebook::create(dir.path(), RunMeta::default(), bench.describe(), true, 0).unwrap();
        let mut report = on_model(
            &mut bench,
            std::slice::from_ref(&spec),
            &mut book,
            &mut |_, _| {},
        )
        .unwrap();
        let same = JobSpec {
            ios: Some(PASS_IOS),
            time: None,
            ..spec
        };
        let planned = [PlannedJob::new(same.validate(&untraced.limits()).unwrap())];
        let job = untraced.run(&planned, None, &mut ()).unwrap().remove(0);
        let plain = job.read.or(job.write).and_then(|d| d.service_ns.mean);
        book.discard();
        (report.cases.remove(0), plain.unwrap())
    }

    #[test]
    fn the_stages_of_every_kind_of_model_add_up_to_what_its_application_waits() {
        let read = [("rw", "randread")];
        let deep = [("rw", "randwrite"), ("qd", "32"), ("threads", "2")];
        let buffered = [("rw", "randread"), ("buffered", "")];
        for target in [
            "sim:optane-900p",
            "sim:hdd",
            "sim:intel-s3510",
            "sim:ramdisk",
            "sim:vm2:optane-900p",
            "sim:raid5:4xoptane-900p",
            "sim:optane-900p,layer=5000",
            "sim:optane-900p,stall=1ms+5ms",
        ] {
            for options in [&read[..], &deep[..], &buffered[..]] {
                let (case, plain) = case_of(target, options);
                let sum: f64 = case.layers.iter().map(|l| l.mean_ns).sum();
                let mean = case.application_mean_ns.unwrap();
                // Of several that are submitted by one call the application counts from the call on: the rest is theirs.
                assert!(
                    (sum / mean - 1.0).abs() < 2e-3,
                    "{target} {options:?}: {sum} of {mean}"
                );
                // Nothing is disturbed by looking.
                assert_eq!(mean, plain, "{target} {options:?}");
            }
        }
    }

    #[test]
    fn software_takes_what_zhang_et_al_published_of_a_machine() {
        let (case, _) = case_of("sim:vm:optane-900p", &[("rw", "randread")]);
        let share = case.details.unwrap().software_share.unwrap();
        assert!((share - 0.883).abs() < 0.002, "{share}");
        let media = case.layers.iter().find(|l| l.name.starts_with("medium"));
        assert!((media.unwrap().mean_ns / 5_800.0 - 1.0).abs() < 0.01);
    }
}
