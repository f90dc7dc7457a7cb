//! Driver and analysis against simulated devices whose truth is known: knee, steady state, cliffs, throttling, arrays.

mod common;

use common::{Quiet, headline, plan, run_with};
use fathom_bench::Measurement;
use fathom_bench::{Bench, SimBench};
use fathom_experiments::curve::CurveOptions;
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob};
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::{Model, SimTarget};
use fathom_stats::change_point::change_points;
use fathom_stats::steady::{Question, Verdict, steadiness};
use fathom_telemetry::Nanos;

/// I/Os per second in each window.
#[derive(Default)]
struct Rates(Vec<f64>);

impl Observer for Rates {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let ios: u64 = w.window.directions.iter().flatten().map(|d| d.ios).sum();
        self.0.push(ios as f64 / w.width.as_secs_f64());
    }
}

fn rates(bench: &mut SimBench, spec: &JobSpec) -> Vec<f64> {
    let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
    let mut seen = Rates::default();
    bench.run(&planned, None, &mut seen).unwrap();
    // The last window is not whole.
    seen.0.pop();
    seen.0
}

fn load(rw: Rw, kib: u64, qd: u32, seconds: u64, window_ms: u64) -> JobSpec {
    JobSpec {
        rw,
        bs: BlockSizes::one(kib << 10),
        qd,
        time: Some(Nanos::from_secs(seconds)),
        window: Nanos::from_millis(window_ms),
        ..JobSpec::default()
    }
}

fn bench(model: Model) -> SimBench {
    SimBench::new(SimTarget::of(model), Control::new())
}

#[test]
fn the_knee_of_a_pipelined_device_is_its_idle_latency_over_its_service_time() {
    let mut model = Model::named("optane-900p").unwrap();
    model.thermal = None;
    let options = CurveOptions {
        open: false,
        ..CurveOptions::default()
    };
    // Idle latency over the serial time of a command.
    for (command_ns, depth) in [(120.0, 13.4 / 1.72), (1_000.0, 14.3 / 2.60)] {
        model.read.command_ns = command_ns;
        let mut bench = bench(model.clone());
        let run = run_with(&mut bench, 0, |bench, book| {
            options
                .run(bench, &plan(1500, 3), book, &mut Quiet)
                .unwrap();
        });
        let serial_s = (command_ns + 4096.0 / 2.557) / 1e9;
        let max = headline(&run, "curve-max").value;
        assert!((max * serial_s - 1.0).abs() < 0.03, "{max}");
        let found = headline(&run, "curve-knee-depth").value;
        // Depths are tried in powers of two.
        assert!(
            found >= depth / 2.0 && found <= depth * 2.0,
            "{found} instead of about {depth}"
        );
    }
}

/// A small drive, so that overwriting it takes seconds.
fn small_nand() -> Model {
    let mut model = Model::named("intel-s3510").unwrap();
    model.capacity_gb = 1.0;
    model
}

#[test]
fn a_drive_in_transition_is_not_called_steady_and_one_in_steady_state_is() {
    let writes = load(Rw::RandWrite, 4, 32, 30, 500);
    let question = Question::new(0.1, 60.0);
    let mut fresh = bench(small_nand());
    let transition = rates(&mut fresh, &writes);
    // From fresh on the rate falls to what the specification says.
    let (first, last) = (transition[0], transition[transition.len() - 1]);
    assert!(first > 35_000.0 && last < 16_500.0, "{first} {last}");
    let falling: Vec<f64> = transition
        .iter()
        .copied()
        .take_while(|r| *r > 1.1 * last)
        .collect();
    assert!(falling.len() >= 10, "{transition:?}");
    assert!(
        matches!(
            steadiness(&falling, &question).verdict,
            Verdict::NotSteady(_)
        ),
        "{falling:?}"
    );
    // The same bench goes on where it was.
    let later = rates(&mut fresh, &writes);
    let verdict = steadiness(&later, &question).verdict;
    assert_eq!(verdict, Verdict::Steady, "{later:?}");
    let level = later.iter().sum::<f64>() / later.len() as f64;
    assert!((level / 15_100.0 - 1.0).abs() < 0.03, "{level}");
}

#[test]
fn a_fast_cache_ends_where_it_is_full() {
    let mut model = small_nand();
    model.capacity_gb = 8.0;
    let flash = model.flash.as_mut().unwrap();
    (flash.fast_cache_gb, flash.behind_cache_gb_per_s) = (1.0, 0.1);
    let seen = rates(&mut bench(model), &load(Rw::Write, 128, 8, 10, 100));
    let jumps = change_points(&seen);
    let cliff = jumps
        .iter()
        .max_by(|a, b| (a.before / a.after).total_cmp(&(b.before / b.after)))
        .expect("a cliff");
    // 1 GB at the fast rate; a little of it drains meanwhile.
    let fast = seen[..20].iter().sum::<f64>() / 20.0 * 131_072.0;
    let expected = 1e9 / fast * 10.0;
    let at = cliff.at as f64;
    assert!((at - expected).abs() <= 3.0, "{at} instead of {expected}");
    let slow = cliff.after * 131_072.0;
    assert!((slow / 1e8 - 1.0).abs() < 0.05, "{slow}");
}

#[test]
fn throttling_begins_when_an_rc_node_is_as_hot_as_that_and_slows_by_its_factor() {
    let mut model = Model::named("samsung-960pro").unwrap();
    let t = model.thermal.as_mut().unwrap();
    t.time_constant_s = 5.0;
    let idle = t.ambient_c + t.idle_w * t.c_per_w;
    let end = t.ambient_c + t.active_w * t.c_per_w;
    let expected = t.time_constant_s * ((end - idle) / (end - t.throttle_c)).ln();
    let (slowdown, throttle) = (t.slowdown, t.throttle_c);
    let seen = rates(&mut bench(model), &load(Rw::Write, 128, 8, 40, 100));
    let first = change_points(&seen)[0];
    let at = first.at as f64 / 10.0;
    assert!(
        (at - expected).abs() < 1.0,
        "{at} s instead of {expected} s at {throttle} °C"
    );
    let slow = seen.iter().copied().fold(f64::MAX, f64::min);
    assert!(
        (seen[0] / slow / slowdown - 1.0).abs() < 0.1,
        "{} {slow}",
        seen[0]
    );
}

#[test]
fn arrays_scale_with_their_members_where_their_data_path_lets_them() {
    let gb = |name: &str, rw| {
        let mut bench = SimBench::open(name, Control::new()).unwrap();
        let seen = rates(
            &mut bench,
            &JobSpec {
                threads: 16,
                ..load(rw, 512, 4, 2, 100)
            },
        );
        seen[5..].iter().sum::<f64>() / (seen.len() - 5) as f64 * 524_288.0 / 1e9
    };
    let striped =
        gb("sim:raid0:4xoptane-900p", Rw::RandRead) / gb("sim:raid0:2xoptane-900p", Rw::RandRead);
    assert!((1.8..2.05).contains(&striped), "{striped}");
    let mirrored =
        gb("sim:raid1:4xoptane-900p", Rw::RandWrite) / gb("sim:raid1:2xoptane-900p", Rw::RandWrite);
    assert!((0.85..1.05).contains(&mirrored), "{mirrored}");
    // One thread computes parity: more members do not help small writes.
    let parity =
        gb("sim:raid5:8xoptane-900p", Rw::RandWrite) / gb("sim:raid5:4xoptane-900p", Rw::RandWrite);
    assert!((0.95..1.05).contains(&parity), "{parity}");
}
