//! The schedule of an open loop as the I/O log shows it, on the null port and the real clock.

use fathom_io::driver::{PlannedJob, Setting, run_group};
use fathom_io::job::{JobSpec, Limits};
use fathom_io::{Control, Target, Wanted};
use fathom_stats::{ks_distance, ks_p_value};
use fathom_telemetry::Identity;
use fathom_telemetry::Nanos;
use fathom_telemetry::iolog::{IoLog, IoLogReader};

#[test]
fn poisson_arrivals_on_null_have_the_rate_asked_and_exponential_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("io.parquet");
    let mut spec = JobSpec::default();
    for (name, text) in [
        ("rate", "600k"),
        ("qd", "256"),
        ("time", "500ms"),
        ("record", ""),
    ] {
        spec.set(name, text).unwrap();
    }
    let target = Target::open("null:", &Wanted::default()).unwrap();
    let job = PlannedJob::new(
        spec.validate(&Limits {
            size: 1 << 40,
            direct_align: 1,
            hosts: 1,
        })
        .unwrap(),
    );
    let log = IoLog::create(&path, Identity::default(), 1).unwrap();
    let handle = |job: usize, thread: u32| log.handle(job as u16, thread as u16, Nanos::ZERO);
    let control = Control::new();
    let setting = Setting {
        destination: target.destination(),
        control: &control,
        counters: None,
        log: Some(&handle),
    };
    let measured = run_group(&[job], &setting, &mut ()).unwrap().pop().unwrap();
    let summary = log.finish().unwrap();
    let read = measured.read.as_ref().unwrap();
    let open = measured.open_loop.as_ref().unwrap();
    // What was scheduled is exact; what could not be issued in time on a busy machine is counted.
    let scheduled = read.ios + open.unissued;
    let off = scheduled as f64 / (600_000.0 * 0.5) - 1.0;
    assert!(off.abs() < 0.01, "{scheduled} I/Os scheduled in 0.5 s");
    assert_eq!(
        summary.rows + summary.lost_by_job.values().sum::<u64>(),
        read.ios
    );
    assert!(open.rate_achieved > 0.0 && measured.wall_ns > 0);

    let mut intended: Vec<i64> = IoLogReader::open(&path)
        .unwrap()
        .map(|r| r.unwrap().intended_ns)
        .collect();
    intended.sort_unstable();
    let mut gaps: Vec<f64> = intended.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let mean = 1e9 / 600_000.0;
    let n = gaps.len();
    // Times are whole nanoseconds: half of one is added so that the steps are centred.
    gaps.iter_mut().for_each(|g| *g += 0.5);
    let d = ks_distance(&mut gaps, |x| 1.0 - (-x / mean).exp());
    assert!(n > 250_000, "{n} gaps");
    assert!(
        ks_p_value(d, n) > 0.001,
        "distance {d} over {n} gaps (seed 1)"
    );
}
