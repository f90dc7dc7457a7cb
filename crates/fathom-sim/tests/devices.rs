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

#[test]
fn twelve_hours_of_random_writes_take_seconds_and_heat_and_wear_go_on() {
    let mut s = open("sim:optane-900p?exact=0&airflow=none");
    let j = run(&mut s, "rw=randwrite qd=8 threads=8 time=12h");
    let w = j.write.as_ref().unwrap();
    assert!(j.wall_ns > 43_100_000_000_000 && w.ios > 1_000_000_000);
    let c = s.condition()[0];
    assert!(c.throttled > 10, "without airflow it throttles: {c:?}");
    near("bytes worn", c.host_written, w.bytes as f64, 2.0);
    assert!(j.engine_notes.iter().any(|n| n.starts_with("sampled")));
}

#[test]
fn a_sampled_job_has_the_rate_and_latency_of_the_exact_one() {
    for t in ["sim:optane-900p", "sim:vm:optane-900p"] {
        let o = "rw=randread threads=16 time=2s";
        let exact = once(&format!("{t}?exact=1"), o);
        let sampled = once(&format!("{t}?exact=0&seed=0"), &o.replace("2s", "60s"));
        near(t, read(&sampled).iops, read(&exact).iops, 0.5);
        near(t, mean_us(read(&sampled)), mean_us(read(&exact)), 0.5);
    }
}

#[test]
fn a_fresh_drive_slows_down_to_its_data_sheet_and_trim_and_rest_bring_it_back() {
    let mut s = open("sim:intel-s3510?fill=1&exact=0");
    let o = "rw=randwrite qd=32 threads=2";
    let rate = |s: &mut Simulation, t: &str| {
        run(s, &format!("{o} time={t}"))
            .write
            .as_ref()
            .unwrap()
            .iops
    };
    let fresh = rate(&mut s, "10s");
    let _ = rate(&mut s, "12h");
    let steady = rate(&mut s, "60s");
    near("fresh", fresh, 39_000.0, 3.0);
    near("steady", steady, 15_100.0, 5.0);
    run(&mut s, "rw=trim bs=64m");
    s.rest("12h".parse().unwrap());
    near("restored", rate(&mut s, "10s"), fresh, 3.0);
}

#[test]
fn the_cache_of_fast_cells_ends_in_a_cliff() {
    let mut s = open("sim:micron-mx500?machine=xeon-gold-6242");
    let rate = |s: &mut Simulation| {
        run(s, "rw=write bs=1m qd=4 time=10s")
            .write
            .as_ref()
            .unwrap()
            .bytes_per_second
            / 1e6
    };
    let first = rate(&mut s);
    for _ in 0..7 {
        rate(&mut s);
    }
    let later = rate(&mut s);
    assert!(later < 0.8 * first);
}

#[test]
fn faults_come_when_and_where_they_were_set() {
    let j = once(
        "sim:optane-900p?fault=eio@1m+4k",
        "rw=read bs=4k size=2m on-error=continue",
    );
    assert_eq!(
        (j.errors.len(), j.errors[0].first_offset, j.errors[0].count),
        (1, 1 << 20, 1)
    );
    let j = once(
        "sim:optane-900p?fault=stall@50ms+100ms",
        "rw=randread time=200ms",
    );
    near(
        "stall",
        j.read.as_ref().unwrap().service_ns.max.unwrap() as f64,
        1e8,
        1.0,
    );
    let j = once(
        "sim:optane-900p?fault=spike@100+5ms",
        "rw=randread ios=10000",
    );
    near("spikes", mean_us(read(&j)), 13.4 + 50.0, 6.0);
    let j = once(
        "sim:optane-900p?fault=dying@0",
        "rw=randread time=40s on-error=continue",
    );
    assert!(read(&j).errors > 100);
}

#[test]
fn degraded_and_rebuilding_arrays_are_slower_and_a_page_cache_answers_what_it_holds() {
    let gb =
        |t: &str| read(&once(t, "rw=randread bs=64k threads=32 time=200ms")).bytes_per_second / 1e9;
    let whole = gb("sim:raid5:4xoptane-900p");
    let degraded = gb("sim:raid5:4xoptane-900p?degraded=1");
    let rebuilding = gb("sim:raid5:4xoptane-900p?rebuilding=1");
    assert!(degraded < 0.8 * whole && rebuilding <= degraded);
    let mut s = open("sim:intel-s3510?path=buffered");
    let o = "rw=randread size=256m threads=4 time=3s";
    let cold = run(&mut s, o);
    let warm = run(&mut s, o);
    assert!(mean_us(read(&warm)) < 10.0);
}
