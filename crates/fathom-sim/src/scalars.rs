//! Tests of the whole: jobs of the driver on simulated targets.

use fathom_io::JobSpec;
use fathom_io::driver::PlannedJob;
use fathom_io::job::{BlockSizes, Limits, Rw};
use fathom_telemetry::schema::{Direction, Job};
use fathom_telemetry::{Bytes, Nanos};

use crate::{SimTarget, Simulation};

fn job(target: &SimTarget, spec: JobSpec) -> PlannedJob {
    let limits = Limits {
        size: target.size(),
        direct_align: 512,
        hosts: 1,
    };
    PlannedJob::new(spec.validate(&limits).unwrap())
}

fn spec(rw: Rw, bs: u64, threads: u32) -> JobSpec {
    JobSpec {
        rw,
        bs: BlockSizes::one(bs),
        threads,
        size: Some(Bytes::gib(16)),
        time: Some(Nanos::from_millis(100)),
        ramp: Nanos::from_millis(10),
        window: Nanos::from_millis(10),
        ..JobSpec::default()
    }
}

fn run(sim: &mut Simulation, target: &SimTarget, spec: JobSpec) -> Job {
    let jobs = [job(target, spec)];
    sim.assign(&jobs);
    sim.run(&jobs, None, &mut ()).pop().unwrap()
}

fn measure(name: &str, rw: Rw, bs: u64, threads: u32, direct: bool) -> Direction {
    let target = SimTarget::parse(name).unwrap();
    let mut sim = Simulation::new(&target, 1);
    let spec = JobSpec {
        direct,
        ..spec(rw, bs, threads)
    };
    let job = run(&mut sim, &target, spec);
    job.read.or(job.write).unwrap()
}

fn near(what: &str, ours: f64, wanted: f64, tolerance: f64) {
    let error = ours / wanted - 1.0;
    assert!(
        error.abs() <= tolerance,
        "{what}: {ours} instead of {wanted}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_bit_and_it_is_locked() {
    let once = |seed| {
        let target = SimTarget::parse("sim:vm4:intel-s3510").unwrap();
        let mut sim = Simulation::new(&target, seed);
        run(&mut sim, &target, spec(Rw::RandMixed, 4096, 8))
    };
    let (a, b) = (once(1), once(1));
    assert_eq!(a, b);
    assert_ne!(a, once(2));
    let read = a.read.unwrap();
    assert_eq!((read.ios, read.service_ns.max), GOLDEN);
}
const GOLDEN: (u64, Option<u64>) = (2093, Some(530_589));

#[test]
fn state_and_clock_go_on_from_group_to_group() {
    let target = SimTarget::parse("sim:optane-900p").unwrap();
    let mut sim = Simulation::new(&target, 1);
    let first = run(&mut sim, &target, spec(Rw::RandRead, 4096, 4));
    let between = sim.now();
    let second = run(&mut sim, &target, spec(Rw::RandRead, 4096, 4));
    assert!(between.0 >= first.wall_ns && sim.now().0 >= between.0 + second.wall_ns);
    near(
        "iops",
        second.read.unwrap().iops,
        first.read.unwrap().iops,
        0.01,
    );
}

#[test]
fn optane_answers_in_13_and_a_half_microseconds_and_in_67_through_a_guest() {
    let mean = |name| {
        measure(name, Rw::RandRead, 4096, 1, true)
            .service_ns
            .mean
            .unwrap()
            / 1e3
    };
    near("PE", mean("sim:optane-900p"), 13.5, 0.02);
    near("VE", mean("sim:vm:optane-900p"), 67.3, 0.02);
    near("NAND PE", mean("sim:intel-s3510"), 124.5, 0.02);
    near("NAND VE", mean("sim:vm:intel-s3510"), 203.7, 0.02);
}

#[test]
fn polling_and_busy_processors_save_the_wake_up() {
    let mean = |name| {
        measure(name, Rw::RandRead, 4096, 1, true)
            .service_ns
            .mean
            .unwrap()
    };
    let usual = mean("sim:optane-900p");
    near(
        "busy",
        usual - mean("sim:optane-900p,idle=busy"),
        2_000.0,
        0.05,
    );
    near(
        "polling",
        usual - mean("sim:optane-900p,poll"),
        2_800.0,
        0.05,
    );
}

#[test]
fn arrays_scale_as_their_level_lets_them() {
    let gb = |name, rw, direct| measure(name, rw, 512 << 10, 64, direct).bytes_per_second / 1e9;
    near(
        "RAID 0",
        gb("sim:raid0:4xoptane-900p", Rw::RandRead, true),
        9.9,
        0.15,
    );
    near(
        "RAID 1",
        gb("sim:raid1:2xoptane-900p", Rw::RandWrite, true),
        2.3,
        0.1,
    );
    near(
        "RAID 5",
        gb("sim:raid5:4xoptane-900p", Rw::RandWrite, true),
        0.321,
        0.12,
    );
    near(
        "RAID 6",
        gb("sim:raid6:4xoptane-900p", Rw::RandWrite, false),
        0.493,
        0.1,
    );
}

#[test]
fn steady_random_writes_of_flash_meet_the_specification() {
    let iops = measure(
        "sim:intel-s3510,state=steady",
        Rw::RandWrite,
        4096,
        64,
        true,
    )
    .iops;
    near("steady", iops, 15_100.0, 0.03);
}

#[test]
fn a_buffered_write_is_as_fast_as_memory() {
    let mean = measure("sim:intel-s3510", Rw::RandWrite, 4096, 1, false)
        .service_ns
        .mean
        .unwrap();
    assert!(mean < 10_000.0, "{mean} ns");
}

#[test]
fn a_worn_drive_reads_slower_and_one_that_is_worn_out_refuses_writes() {
    let mean = |name| {
        measure(name, Rw::RandRead, 4096, 1, true)
            .service_ns
            .mean
            .unwrap()
    };
    // Twice the rated life: 8 % of the reads go to the media twice, 75 µs each.
    let more = mean("sim:intel-s3510,wear=200") - mean("sim:intel-s3510");
    near("retries", more, 0.08 * 75_000.0, 0.25);
    let mut target = SimTarget::parse("sim:intel-s3510,wear=110").unwrap();
    target.model.flash.as_mut().unwrap().read_only_at_life = 1.0;
    let mut sim = Simulation::new(&target, 1);
    let write = run(&mut sim, &target, spec(Rw::RandWrite, 4096, 1));
    assert_eq!(write.write.unwrap().ios, 0);
    assert!(sim.condition().iter().any(|c| c.contains("worn out")));
    let mut sim = Simulation::new(&target, 1);
    let read = run(&mut sim, &target, spec(Rw::RandRead, 4096, 1));
    assert!(read.read.unwrap().ios > 100);
}

/// A digest of everything that a run measured: one bit more or less shows.
fn digest(name: &str, options: &[(&str, &str)]) -> u64 {
    let target = SimTarget::parse(name).unwrap();
    let mut sim = Simulation::new(&target, 1);
    let mut spec = spec(Rw::RandMixed, 4096, 4);
    for (option, value) in options {
        spec.set(option, value).unwrap();
    }
    let planned = job(&target, spec);
    sim.assign(std::slice::from_ref(&planned));
    let text = if target.fast {
        let (windows, _) = crate::fast::run(&planned, &mut sim, Nanos::ZERO).unwrap();
        format!("{windows:?}")
    } else {
        let mut job = sim.run(&[planned], None, &mut ()).pop().unwrap();
        // What the machine that simulates did meanwhile.
        (job.cpu_ns, job.cpu_user_ns) = (0, 0);
        // What only jobs on real targets, and on hosts, have came later than the digests.
        let text = format!("{job:?} {:?}", sim.condition());
        let later = [" write_back: None, held_up: None,", " hosts: [],"];
        later.iter().fold(text, |t, words| t.replace(words, ""))
    };
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv)
}

/// Every source of randomness and every formula that has an exponential or a logarithm in it. Computed once; whoever
/// changes a model on purpose puts the new digests here.
#[test]
fn a_seed_gives_the_same_numbers_on_every_machine() {
    let cases: [(&str, &[(&str, &str)]); 10] = [
        (
            "sim:optane-900p",
            &[
                ("dist", "zipf:1.1"),
                ("rate", "100k"),
                ("arrival", "poisson"),
            ],
        ),
        (
            "sim:intel-s3510,fill=90,state=steady,wear=80",
            &[("dist", "pareto:0.2")],
        ),
        (
            "sim:samsung-960pro,ambient=60",
            &[("dist", "gauss:10"), ("bs", "4k:70,64k:30")],
        ),
        ("sim:intel-p3700", &[("qd", "32"), ("dist", "zipf:0.9")]),
        ("sim:vm4:intel-s3510", &[("qd", "4")]),
        ("sim:vm:ramdisk", &[]),
        ("sim:raid6:6xoptane-900p,degraded", &[("bs", "64k")]),
        ("sim:raid10:4xmicron-mx500,rebuild", &[("buffered", "")]),
        ("sim:hdd", &[("random-map", "")]),
        ("sim:optane-900p,fast", &[("qd", "8")]),
    ];
    let seen: Vec<u64> = cases.iter().map(|(name, o)| digest(name, o)).collect();
    assert_eq!(seen, DIGESTS, "{cases:?}");
}
const DIGESTS: [u64; 10] = [
    9_374_438_630_188_222_014,
    15_231_525_304_107_550_558,
    12_118_794_404_138_982_257,
    14_365_495_806_151_771_355,
    5_859_756_940_637_157_723,
    5_209_346_449_605_498_118,
    15_077_651_826_687_980_161,
    4_383_773_054_333_727_304,
    11_164_415_915_359_975_592,
    8_687_439_420_134_768_302,
];
