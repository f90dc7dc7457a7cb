//! The driver against queues whose truth is known from theory, in virtual time.

use fathom_io::driver::{ClosedWindow, Observer, PlannedJob, run_virtual};
use fathom_io::job::{JobSpec, Limits};
use fathom_io::port::Request;
use fathom_io::port::virtual_time::{Completion, Queue, Service, World};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{FlagCode, Nanos};

const LIMITS: Limits = Limits {
    size: 1 << 30,
    direct_align: 512,
    hosts: 1,
};

fn planned(options: &[(&str, &str)]) -> PlannedJob {
    let mut spec = JobSpec::default();
    for (name, text) in options {
        spec.set(name, text).unwrap();
    }
    PlannedJob::new(spec.validate(&LIMITS).unwrap())
}

fn run(options: &[(&str, &str)], servers: u32, service: Service) -> Job {
    let mut world = Queue::new(servers, service, 7);
    run_virtual(
        &[planned(options)],
        &mut world,
        Nanos(1_000),
        "virtual",
        None,
        &mut (),
    )
    .pop()
    .unwrap()
}

fn close(seen: f64, truth: f64, share: f64, what: &str) {
    assert!(
        (seen / truth - 1.0).abs() < share,
        "{what}: {seen} instead of {truth}"
    );
}

/// Erlang's C: probability that an arrival waits in M/M/c.
fn erlang_c(c: u32, load: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..c {
        term *= load / f64::from(k);
        sum += term;
    }
    let last = term * load / f64::from(c) * f64::from(c) / (f64::from(c) - load);
    last / (sum + last)
}

#[test]
fn an_open_loop_on_one_constant_server_waits_as_m_d_1_says() {
    for utilisation in [0.3, 0.5, 0.8] {
        let rate = utilisation * 100_000.0;
        let job = run(
            &[
                ("rate", &rate.to_string()),
                ("qd", "512"),
                ("ios", "1500000"),
            ],
            1,
            Service::Fixed(Nanos::from_micros(10)),
        );
        let truth = 10_000.0 * (1.0 + utilisation / (2.0 * (1.0 - utilisation)));
        let seen = job.read.as_ref().unwrap().response_ns.mean.unwrap();
        close(seen, truth, 0.02, &format!("M/D/1 at {utilisation}"));
        close(job.open_loop.unwrap().rate_achieved, rate, 0.01, "rate");
    }
}

#[test]
fn an_open_loop_on_many_exponential_servers_waits_as_m_m_c_says() {
    for (servers, utilisation) in [(1, 0.5), (4, 0.7), (16, 0.9)] {
        let mean = 100_000.0;
        let load = f64::from(servers) * utilisation;
        let rate = load / mean * 1e9;
        let job = run(
            &[
                ("rate", &rate.to_string()),
                ("qd", "4096"),
                ("ios", "2000000"),
                ("seed", "5"),
            ],
            servers,
            Service::Exponential(Nanos(mean as u64)),
        );
        let wait = erlang_c(servers, load) * mean / (f64::from(servers) - load);
        let seen = job.read.as_ref().unwrap().response_ns.mean.unwrap();
        close(
            seen,
            mean + wait,
            0.02,
            &format!("M/M/{servers} at {utilisation}"),
        );
    }
}

#[test]
fn a_closed_loop_fills_its_servers_and_obeys_littles_law() {
    for (depth, servers) in [(1, 4), (4, 4), (32, 4)] {
        let job = run(
            &[("qd", &depth.to_string()), ("time", "100ms")],
            servers,
            Service::Fixed(Nanos::from_micros(100)),
        );
        let read = job.read.as_ref().unwrap();
        let busy = depth.min(servers);
        close(read.iops, f64::from(busy) * 10_000.0, 0.005, "IOPS");
        let latency = 100_000.0 * f64::from(depth) / f64::from(busy);
        close(read.service_ns.mean.unwrap(), latency, 0.02, "latency");
        close(
            job.qd_achieved,
            read.iops * read.service_ns.mean.unwrap() / 1e9,
            0.02,
            "Little's law",
        );
        assert_eq!(job.qd_requested, depth);
    }
}

#[test]
fn open_loop_latency_counts_from_the_schedule_also_when_the_device_cannot_follow() {
    // 20,000/s asked of a device that does 10,000/s: after 0.5 s the backlog is 5,000 I/Os or 0.5 s.
    let job = run(
        &[
            ("rate", "20k"),
            ("arrival", "constant"),
            ("qd", "4"),
            ("time", "500ms"),
        ],
        1,
        Service::Fixed(Nanos::from_micros(100)),
    );
    let read = job.read.as_ref().unwrap();
    close(
        read.service_ns.p50.unwrap() as f64,
        400_000.0,
        0.02,
        "service latency",
    );
    close(
        read.response_ns.max.unwrap() as f64,
        250_000_000.0,
        0.02,
        "largest response latency",
    );
    let open = job.open_loop.as_ref().unwrap();
    close(open.rate_achieved, 10_000.0, 0.01, "achieved");
    close(open.unissued as f64, 5_000.0, 0.01, "never started");
    assert!(job.flags.iter().any(|f| f.code == FlagCode::MissedSchedule));
}

#[test]
fn think_time_and_bursts_leave_their_gaps() {
    let think = run(
        &[("think", "900us"), ("time", "1s")],
        1,
        Service::Fixed(Nanos::from_micros(100)),
    );
    close(
        think.read.as_ref().unwrap().iops,
        1000.0,
        0.01,
        "one I/O per ms",
    );
    let burst = run(
        &[("burst", "10/9ms"), ("qd", "10"), ("time", "1s")],
        10,
        Service::Fixed(Nanos::from_millis(1)),
    );
    close(
        burst.read.as_ref().unwrap().iops,
        1000.0,
        0.02,
        "ten I/Os per 10 ms",
    );
    close(
        burst.qd_achieved,
        1.0,
        0.02,
        "ten outstanding for a tenth of the time",
    );
}

#[test]
fn ramp_up_is_left_out() {
    let job = run(
        &[("ramp", "250ms"), ("time", "500ms")],
        1,
        Service::Fixed(Nanos::from_micros(100)),
    );
    // The ramp is rounded up to whole windows: 300 ms.
    assert_eq!(job.start_ns, 300_000_000);
    close(job.wall_ns as f64, 5e8, 0.001, "measured time");
    close(job.read.as_ref().unwrap().ios as f64, 5000.0, 0.001, "I/Os");
}

/// A queue that counts what reaches it.
struct Counted(Queue, u64);

impl World for Counted {
    fn submit(&mut self, worker: u32, at: Nanos, slot: u32, request: Request) -> Nanos {
        self.1 += u64::from(request.len);
        self.0.submit(worker, at, slot, request)
    }
    fn next(&mut self) -> Option<Nanos> {
        self.0.next()
    }
    fn pop(&mut self) -> Option<Completion> {
        self.0.pop()
    }
}

#[test]
fn a_limit_of_bytes_bounds_the_wear_of_the_ramp_too() {
    // 4 GB/s would write 400 MB in the ramp alone.
    let queue = Queue::new(1, Service::Fixed(Nanos(1_000)), 7);
    let mut world = Counted(queue, 0);
    let options = [
        ("rw", "randwrite"),
        ("qd", "8"),
        ("threads", "2"),
        ("ramp", "100ms"),
        ("time", "1s"),
        ("bytes", "40m"),
    ];
    let jobs = [planned(&options)];
    let job = run_virtual(&jobs, &mut world, Nanos(1_000), "virtual", None, &mut ());
    assert_eq!(job[0].write.as_ref().unwrap().bytes, 40 << 20);
    let ramp = world.1 - (40 << 20);
    assert!(ramp >= 4 << 20, "{ramp} B in the ramp");
    assert!(ramp < (4 << 20) + 2 * 8 * 4096, "{ramp} B in the ramp");
}

#[test]
fn limits_by_count_and_by_bytes_are_exact_over_all_threads() {
    let fixed = Service::Fixed(Nanos::from_micros(10));
    let job = run(&[("ios", "10007"), ("threads", "3"), ("qd", "4")], 4, fixed);
    assert_eq!(job.read.as_ref().unwrap().ios, 10_007);
    let job = run(
        &[
            ("bytes", "40m"),
            ("bs", "64k"),
            ("threads", "4"),
            ("rw", "write"),
        ],
        4,
        fixed,
    );
    assert_eq!(job.write.as_ref().unwrap().bytes, 40 << 20);
    for (size, threads) in [("64m", "1"), ("64m", "3"), ("1000k", "7"), ("12288", "2")] {
        let job = run(
            &[
                ("rw", "read"),
                ("bs", "4k"),
                ("size", size),
                ("threads", threads),
            ],
            4,
            fixed,
        );
        let range = size.parse::<fathom_telemetry::Bytes>().unwrap().0;
        assert_eq!(
            job.read.as_ref().unwrap().bytes,
            range,
            "one pass over {size} by {threads}"
        );
    }
}

#[test]
fn shares_and_weights_are_kept() {
    let job = run(
        &[
            ("rw", "randrw"),
            ("read-share", "70"),
            ("bs", "4k:75,64k:25"),
            ("ios", "200000"),
            ("qd", "8"),
        ],
        8,
        Service::Fixed(Nanos::from_micros(10)),
    );
    let (r, w) = (job.read.as_ref().unwrap(), job.write.as_ref().unwrap());
    let share = r.ios as f64 / (r.ios + w.ios) as f64;
    assert!((share - 0.7).abs() < 0.005, "{share}");
    let mean = (r.bytes + w.bytes) as f64 / 200_000.0;
    close(mean, 4096.0 * 0.75 + 65_536.0 * 0.25, 0.01, "mean size");
}

#[test]
fn a_sync_follows_every_n_writes_and_runs_alone() {
    let job = run(
        &[
            ("rw", "randwrite"),
            ("sync", "fsync:8"),
            ("qd", "4"),
            ("ios", "800"),
        ],
        4,
        Service::Fixed(Nanos::from_micros(10)),
    );
    assert_eq!(job.write.as_ref().unwrap().ios, 800);
    assert_eq!(job.sync.as_ref().unwrap().ios, 100);
    // Eight writes at depth four take two service times, the lone sync one.
    close(job.wall_ns as f64, 100.0 * 30_000.0, 0.01, "time");
}

#[test]
fn an_error_ends_the_job_keeps_what_was_measured_and_is_named() {
    let mut world = Queue::new(1, Service::Fixed(Nanos::from_micros(10)), 7);
    world.broken_from = Some(512 << 20);
    let job = run_virtual(
        &[planned(&[("rw", "read"), ("bs", "1m")])],
        &mut world,
        Nanos(0),
        "virtual",
        None,
        &mut (),
    )
    .pop()
    .unwrap();
    assert_eq!(job.read.as_ref().unwrap().ios, 512);
    assert_eq!(
        (job.errors[0].errno, job.errors[0].first_offset),
        (libc::EIO, 512 << 20)
    );
    assert!(job.is_void());
    let mut world = Queue::new(1, Service::Fixed(Nanos::from_micros(10)), 7);
    world.broken_from = Some(512 << 20);
    let options = [("rw", "read"), ("bs", "1m"), ("on-error", "continue")];
    let job = run_virtual(
        &[planned(&options)],
        &mut world,
        Nanos(0),
        "virtual",
        None,
        &mut (),
    )
    .pop()
    .unwrap();
    assert_eq!(
        (job.read.as_ref().unwrap().ios, job.errors[0].count),
        (512, 512)
    );
}

#[test]
fn jobs_of_a_group_share_the_device() {
    let mut world = Queue::new(1, Service::Fixed(Nanos::from_micros(100)), 7);
    let reader = planned(&[("name", "reader"), ("qd", "3"), ("time", "1s")]);
    let writer = planned(&[
        ("name", "writer"),
        ("rw", "randwrite"),
        ("rate", "1000"),
        ("arrival", "constant"),
        ("qd", "64"),
        ("time", "1s"),
    ]);
    let jobs = run_virtual(
        &[reader, writer],
        &mut world,
        Nanos(0),
        "virtual",
        None,
        &mut (),
    );
    close(
        jobs[1].write.as_ref().unwrap().iops,
        1000.0,
        0.02,
        "the paced writer",
    );
    close(
        jobs[0].read.as_ref().unwrap().iops,
        9000.0,
        0.02,
        "the reader gets the rest",
    );
}

#[test]
fn the_same_seed_gives_the_same_result_to_the_bit() {
    let options = [
        ("rw", "randrw"),
        ("rate", "50k"),
        ("qd", "64"),
        ("threads", "3"),
        ("dist", "zipf"),
        ("ios", "30000"),
    ];
    let service = Service::Exponential(Nanos::from_micros(50));
    let a = serde_json::to_string(&run(&options, 4, service)).unwrap();
    let b = serde_json::to_string(&run(&options, 4, service)).unwrap();
    assert_eq!(a, b);
    let mut other = options.to_vec();
    other.push(("seed", "2"));
    assert_ne!(a, serde_json::to_string(&run(&other, 4, service)).unwrap());
}

/// Start and number of each window of the measured part, and its I/Os.
#[derive(Default)]
struct Seen(Vec<(i64, u64, u64)>);

impl Observer for Seen {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        if w.start_ns >= 0 {
            let ios = w.window.directions.iter().flatten().map(|d| d.ios);
            self.0.push((w.start_ns, w.window.index, ios.sum()));
        }
    }
}

#[test]
fn windows_are_numbered_from_the_measured_part_on_so_that_a_ramp_is_no_stall() {
    let mut seen = Seen::default();
    let job = run_virtual(
        &[planned(&[
            ("time", "300ms"),
            ("ramp", "200ms"),
            ("window", "100ms"),
        ])],
        &mut Queue::new(1, Service::Fixed(Nanos::from_micros(10)), 7),
        Nanos(1_000),
        "virtual",
        None,
        &mut seen,
    )
    .pop()
    .unwrap();
    let numbers: Vec<(i64, u64)> = seen.0.iter().map(|w| (w.0, w.1)).take(3).collect();
    assert_eq!(numbers, [(0, 0), (100_000_000, 1), (200_000_000, 2)]);
    let ios: u64 = seen.0.iter().map(|w| w.2).sum();
    assert_eq!(ios, job.read.unwrap().ios);
}

/// What may be written is used up before the ramp ends: what comes until then waits for nobody, and is no latency.
#[test]
fn a_ramp_that_its_limit_of_bytes_holds_back_leaves_no_queue() {
    let job = run(
        &[
            ("rw", "randwrite"),
            ("rate", "50k"),
            ("qd", "4096"),
            ("time", "1s"),
            ("ramp", "500ms"),
            // A tenth of what comes in the ramp alone.
            ("bytes", "20m"),
        ],
        1,
        Service::Fixed(Nanos(10_000)),
    );
    let write = job.write.unwrap();
    // M/D/1 at half of its load: half a service time of waiting on average.
    close(write.response_ns.mean.unwrap(), 15_000.0, 0.1, "response");
    close(write.iops, 50_000.0, 0.05, "rate");
    assert_eq!(write.bytes, 20 << 20);
}
