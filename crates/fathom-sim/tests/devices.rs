//! Simulated devices through the real driver: known truth, carried state, determinism.

use fathom_io::{JobSpec, PlannedJob};
use fathom_sim::{SimTarget, Simulation};
use fathom_telemetry::FlagCode;
use fathom_telemetry::schema::{Direction, Job};

fn job(sim: &Simulation, options: &str) -> PlannedJob {
    let mut j = JobSpec::default();
    for pair in options.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        j.set(name, value).unwrap();
    }
    PlannedJob::new(j.validate(&sim.target().limits()).unwrap())
}

fn run(sim: &mut Simulation, options: &str) -> Job {
    let j = job(sim, options);
    sim.run_group(&[j], None, &mut ()).remove(0)
}

fn open(target: &str) -> Simulation {
    SimTarget::parse(target).unwrap().open(1)
}

fn once(target: &str, options: &str) -> Job {
    run(&mut open(target), options)
}

fn read(j: &Job) -> &Direction {
    j.read.as_ref().unwrap()
}

fn mean_us(d: &Direction) -> f64 {
    d.service_ns.mean.unwrap() / 1e3
}

fn near(what: &str, seen: f64, expected: f64, percent: f64) {
    let error = 100.0 * (seen / expected - 1.0);
    assert!(
        error.abs() <= percent,
        "{what}: {seen:.2}, expected {expected:.2} ({error:+.1} %)"
    );
}

#[test]
fn one_outstanding_read_takes_what_the_paper_measured() {
    let rand = "rw=randread time=200ms";
    near(
        "900P",
        mean_us(read(&once("sim:optane-900p", rand))),
        13.5,
        3.0,
    );
    near(
        "S3510",
        mean_us(read(&once("sim:intel-s3510", rand))),
        124.5,
        3.0,
    );
    near(
        "900P in VE",
        mean_us(read(&once("sim:vm:optane-900p", rand))),
        67.3,
        3.0,
    );
    near(
        "S3510 in VE",
        mean_us(read(&once("sim:vm:intel-s3510", rand))),
        203.7,
        3.0,
    );
    near(
        "RAM disk",
        mean_us(read(&once("sim:ramdisk", rand))),
        3.0,
        5.0,
    );
}

#[test]
fn results_say_that_they_are_simulated() {
    let j = once("sim:optane-900p", "rw=randread ios=1000");
    assert_eq!(j.engine, "sim");
    assert!(
        j.flags
            .iter()
            .any(|f| f.code == FlagCode::Simulated && !f.void)
    );
    assert!(j.cpu_ns > 0 && j.cpu_ns <= j.wall_ns);
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_seed_others() {
    for target in [
        "sim:intel-s3510",
        "sim:vm2:optane-900p",
        "sim:raid5:4xoptane-900p",
        "sim:hdd",
        "sim:ramdisk",
        "sim:intel-p3700?path=buffered",
    ] {
        let t = SimTarget::parse(target).unwrap();
        let at = |seed| {
            let mut s = t.open(seed);
            let mut jobs = Vec::new();
            for o in [
                "rw=randrw qd=8 time=20ms",
                "rw=read bs=128k threads=3 time=20ms",
            ] {
                jobs.push(run(&mut s, o));
            }
            jobs
        };
        assert_eq!(at(7), at(7), "{target}");
        assert_ne!(at(7), at(8), "{target}");
    }
}
