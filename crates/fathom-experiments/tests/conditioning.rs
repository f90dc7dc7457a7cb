//! Conditioning and the PTS tests on devices whose truth is known: what is steady, what is not, what a cache holds.

mod common;

use std::fs;

use common::{QueueBench, Quiet};
use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError, Notebook, RunMeta, SimBench};
use fathom_experiments::condition::{self, ConditionOptions};
use fathom_experiments::pts::{self, PtsOptions, TESTS};
use fathom_experiments::purge::Purging;
use fathom_io::driver::PlannedJob;
use fathom_io::job::Limits;
use fathom_io::port::virtual_time::Service;
use fathom_io::{Control, Observer};
use fathom_telemetry::schema::{Cell, Job, Run, Target};
use fathom_telemetry::{Bytes, FlagCode, Nanos};

/// Every job takes longer than the one before.
struct Tiring {
    queue: QueueBench,
    by: f64,
    time: f64,
}

impl Bench for Tiring {
    fn limits(&self) -> Limits {
        self.queue.limits()
    }
    fn describe(&self) -> Target {
        self.queue.describe()
    }
    fn simulated(&self) -> bool {
        true
    }
    fn control(&self) -> Control {
        self.queue.control()
    }
    fn prepare(&mut self, _: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        Ok(None)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        self.time *= 1.0 + self.by;
        self.queue.service = Service::Fixed(Nanos(self.time as u64));
        self.queue.run(jobs, log, observer)
    }
}

fn options(tests: &[&str], millis: u64) -> PtsOptions {
    PtsOptions {
        tests: tests.iter().map(|t| (*t).to_owned()).collect(),
        unit: Nanos::from_millis(millis),
        threads: 2,
        qd: 16,
        range: Bytes::mib(64),
        seed: 1,
        purging: Purging::default(),
    }
}

/// Runs PTS tests on any bench.
fn pts_on(bench: &mut dyn Bench, o: &PtsOptions) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let meta = RunMeta {
        name: "pts".into(),
        ..RunMeta::default()
    };
    let mut book = Notebook::create(dir.path(), meta, bench.describe(), true, 0).unwrap();
    pts::run(bench, true, o, &mut book, &mut Quiet).unwrap();
    book.finish().unwrap().0
}

fn value(run: &Run, id: &str) -> f64 {
    common::headline(run, id).value
}

#[test]
fn every_pts_test_reports_its_tables_and_plots_on_a_steady_device() {
    let mut bench = SimBench::open("sim:intel-p3700", Control::new()).unwrap();
    let all: Vec<&str> = TESTS.iter().map(|t| t.id).collect();
    let run = pts_on(&mut bench, &options(&all, 2));
    for test in &TESTS {
        let sections: Vec<_> = run
            .sections
            .iter()
            .filter(|s| s.id.starts_with(&format!("pts-{}", test.id)))
            .collect();
        assert!(!sections.is_empty(), "{}", test.id);
        for s in sections {
            assert!(!s.charts.is_empty() && !s.tables.is_empty(), "{}", s.id);
            for c in &s.charts {
                assert!(c.series.iter().any(|x| !x.points.is_empty()), "{}", c.id);
            }
            for t in &s.tables {
                assert!(
                    t.rows.iter().all(|r| r.len() == t.columns.len()),
                    "{}",
                    t.id
                );
            }
            // A shortened minute is said.
            assert!(
                s.flags.iter().any(|f| f.detail.contains("minute")),
                "{}",
                s.id
            );
        }
    }
    let iops = run.sections.iter().find(|s| s.id == "pts-iops").unwrap();
    let table = iops
        .tables
        .iter()
        .find(|t| t.id == "pts-iops-table")
        .unwrap();
    assert_eq!((table.rows.len(), table.columns.len()), (8, 8));
    assert!(
        table
            .rows
            .iter()
            .flatten()
            .all(|c| !matches!(c, Cell::Hole(())))
    );
    let lat = run.sections.iter().find(|s| s.id == "pts-lat").unwrap();
    assert!(lat.tables.iter().any(|t| t.id == "pts-lat-max"));
    assert!(
        run.headlines
            .iter()
            .all(|h| h.estimate.is_some_and(|e| e.value > 0.0))
    );
}

#[test]
fn a_single_server_gives_what_arithmetic_says() {
    // 100 µs per I/O, one server: 10,000 IOPS whatever the share or size.
    let mut bench = QueueBench::new(1, Service::Fixed(Nanos::from_micros(100)));
    let run = pts_on(&mut bench, &options(&["iops", "lat"], 20));
    for id in ["pts-iops-100r-4k", "pts-iops-65r-4k", "pts-iops-0r-4k"] {
        let v = value(&run, id);
        assert!((v / 10_000.0 - 1.0).abs() < 0.01, "{id}: {v}");
    }
    assert_eq!(value(&run, "pts-lat-100r-4k"), 100_000.0);
    // Purge, two passes, five rounds of 56; purge, two passes, five rounds of 9.
    assert_eq!(run.jobs.len(), 3 + 5 * 56 + 3 + 5 * 9);
    let text = &run.sections[0].text;
    assert!(text.contains("PTS rule: steady at round 5"), "{text}");
    // Five rounds are too few for fathom's own verdict: it says so, never "steady".
    assert!(text.contains("fathom's verdict: undecided"), "{text}");
    assert!(!run.sections[0].charts[0].title.contains("not steady"));
}

#[test]
fn a_device_that_keeps_slowing_down_is_stamped_on_every_chart() {
    let mut bench = Tiring {
        queue: QueueBench::new(1, Service::Fixed(Nanos(1))),
        by: 0.02,
        time: 20_000.0,
    };
    let run = pts_on(&mut bench, &options(&["lat"], 20));
    let s = &run.sections[0];
    assert!(
        s.text.contains("PTS rule: not reached in 25 rounds"),
        "{}",
        s.text
    );
    assert!(s.charts.iter().all(|c| c.title.ends_with("not steady")));
    assert!(s.tables.iter().all(|t| t.title.ends_with("not steady")));
    assert!(s.flags.iter().any(|f| f.code == FlagCode::NotSteady));
    for h in &run.headlines {
        assert!(
            h.flags.iter().any(|f| f.code == FlagCode::NotSteady),
            "{}",
            h.id
        );
    }
}

/// A model with a fast cache in front of a slow flash, as a file.
fn cached_model(cache_gb: f64, fast_gb_per_s: f64, slow_gb_per_s: f64) -> tempfile::NamedTempFile {
    let text = include_str!("../../fathom-sim/models/micron-mx500.toml")
        .replace(
            "fast_cache_gb = 0 ",
            &format!("fast_cache_gb = {cache_gb} "),
        )
        .replace(
            "behind_cache_gb_per_s = 0.166",
            &format!("behind_cache_gb_per_s = {slow_gb_per_s}"),
        )
        .replace(
            "gb_per_s = 0.166         #",
            &format!("gb_per_s = {fast_gb_per_s} #"),
        )
        .replace("command_ns = 3000", "command_ns = 100")
        .replace("sequential_mb_per_s = 166", "sequential_mb_per_s = 4000")
        .replace("steady_random_iops = 5000", "steady_random_iops = 900000")
        .replace("program_us = 150", "program_us = 5");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn the_size_of_a_fast_cache_is_found_within_ten_percent() {
    for (cache_gb, fast, slow) in [(1.0, 1.0, 0.2), (2.5, 0.8, 0.3), (0.6, 1.5, 0.5)] {
        let file = cached_model(cache_gb, fast, slow);
        let name = format!("sim:{}", file.path().display());
        let mut bench = SimBench::open(&name, Control::new()).unwrap();
        let mut o = plain(Bytes::gib(8));
        o.purge = false;
        o.passes = 0;
        o.load = vec![
            ("rw".into(), "write".into()),
            ("bs".into(), "128k".into()),
            ("qd".into(), "8".into()),
        ];
        o.round = Nanos::from_millis(100);
        o.test = Nanos::from_secs(1);
        let run = conditioned(&mut bench, &o, 0);
        let section = run
            .sections
            .iter()
            .find(|s| s.id == "condition-load")
            .unwrap();
        let before = run
            .findings
            .iter()
            .find(|f| f.id == "burst-and-base")
            .unwrap_or_else(|| panic!("no regimes: {:?}", section.tables[0].rows));
        let rows = &section.tables[0].rows;
        let cell = |name: &str| {
            rows.iter()
                .find(|r| r[0] == Cell::Text(name.into()))
                .map(|r| match &r[1] {
                    Cell::Text(t) => t.clone(),
                    other => panic!("{other:?}"),
                })
                .unwrap()
        };
        let bytes: Bytes = cell("transferred before the fall")
            .replace(' ', "")
            .parse()
            .unwrap();
        let error = bytes.0 as f64 / (cache_gb * 1e9) - 1.0;
        assert!(
            error.abs() < 0.10,
            "{cache_gb} GB: {bytes} ({error:+.3}); {}",
            before.text
        );
        let base: Bytes = cell("base")
            .replace("/s", "")
            .replace(' ', "")
            .parse()
            .unwrap();
        assert!((base.0 as f64 / (slow * 1e9) - 1.0).abs() < 0.10, "{base}");
    }
}

#[test]
fn garbage_collection_is_named_and_no_cache_is_invented_for_a_drive_without_one() {
    let text = include_str!("../../fathom-sim/models/intel-s3510.toml")
        .replace("capacity_gb = 480 ", "capacity_gb = 1 ");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    let name = format!("sim:{}", file.path().display());
    let mut bench = SimBench::open(&name, Control::new()).unwrap();
    let mut o = plain(Bytes(1 << 29));
    o.range = Bytes(bench.limits().size);
    o.purge = false;
    o.passes = 0;
    o.load = vec![
        ("rw".into(), "randwrite".into()),
        ("qd".into(), "32".into()),
    ];
    o.round = Nanos::from_millis(500);
    o.test = Nanos::from_secs(5);
    let run = conditioned(&mut bench, &o, 0);
    let said = finding(&run, "garbage-collection");
    assert!(
        said.contains("internal writes per byte rose from 1.0"),
        "{said}"
    );
    let invented = run.findings.iter().find(|f| f.id == "burst-and-base");
    assert!(invented.is_none(), "{}", invented.unwrap().text);
    assert!(finding(&run, "condition-verdict").contains("the load is steady"));
}

#[test]
fn throttling_is_found_within_one_window_of_when_physics_says() {
    // A body at 35 °C that would reach 85 °C, with a time constant of 3 s: 70 °C after 3 s × ln(50 / 15).
    let truth = 3.0 * (50.0f64 / 15.0).ln();
    let text = fs::read_to_string(cached_model(0.0, 1.0, 1.0).path()).unwrap()
        + "\n[thermal]\nambient_c = 25\nidle_w = 1\nactive_w = 6\nc_per_w = 10\ntime_constant_s = 3\n\
           throttle_c = 70\nresume_c = 40\nslowdown = 3\n";
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    let name = format!("sim:{}", file.path().display());
    let mut bench = SimBench::open(&name, Control::new()).unwrap();
    let mut o = plain(Bytes::gib(16));
    o.purge = false;
    o.passes = 0;
    o.load = vec![
        ("rw".into(), "write".into()),
        ("bs".into(), "128k".into()),
        ("qd".into(), "8".into()),
    ];
    o.round = Nanos::from_millis(100);
    o.test = Nanos::from_secs(1);
    let run = conditioned(&mut bench, &o, 0);
    let section = run
        .sections
        .iter()
        .find(|s| s.id == "condition-load")
        .unwrap();
    let mark = section.charts[0]
        .marks
        .iter()
        .find(|m| m.label == "burst ends")
        .unwrap_or_else(|| panic!("no fall: {:?}", section.tables[0].rows));
    let onset = mark.x.unwrap();
    assert!(
        (onset - truth).abs() <= 0.1,
        "{onset} s instead of {truth} s"
    );
    let said = finding(&run, "burst-and-base");
    assert!(said.contains("throttled at 70 °C"), "{said}");
    assert!(row(&run, "temperature").ends_with("(first and last round)"));
}

fn finding<'a>(run: &'a Run, id: &str) -> &'a str {
    let found = run.findings.iter().find(|f| f.id == id);
    &found
        .unwrap_or_else(|| panic!("{id}: {:?}", run.findings))
        .text
}

/// A row of the verdict's table.
fn row<'a>(run: &'a Run, name: &str) -> &'a str {
    let section = run.sections.iter().find(|s| s.id == "condition-load");
    let rows = &section.unwrap().tables[0].rows;
    let row = rows.iter().find(|r| r[0] == Cell::Text(name.into()));
    match &row.unwrap_or_else(|| panic!("{name}: {rows:?}"))[1] {
        Cell::Text(t) => t,
        other => panic!("{other:?}"),
    }
}

#[test]
fn idle_time_that_gives_a_cache_back_is_measured_where_time_is_allowed_and_else_estimated() {
    // 1 GB that drains at 0.2 GB/s in idle time: 95 % are back after 4.75 s.
    let file = cached_model(1.0, 1.0, 0.2);
    let name = format!("sim:{}", file.path().display());
    let mut o = plain(Bytes::gib(8));
    o.purge = false;
    o.passes = 0;
    o.load = [("rw", "write"), ("bs", "128k"), ("qd", "8")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .to_vec();
    o.round = Nanos::from_millis(100);
    o.test = Nanos::from_secs(1);
    let run = conditioned(&mut SimBench::open(&name, Control::new()).unwrap(), &o, 0);
    assert!(row(&run, "idle time to refill").contains("estimated"));
    o.recovery = Nanos::from_secs(120);
    let run = conditioned(&mut SimBench::open(&name, Control::new()).unwrap(), &o, 0);
    let said = row(&run, "idle time to refill");
    let (range, pauses) = said.split_once(" s (measured: ").unwrap();
    let (least, most) = range.split_once(" to ").unwrap();
    let (least, most): (f64, f64) = (least.parse().unwrap(), most.parse().unwrap());
    assert!(
        least < 4.75 && 4.75 < most && most <= 2.05 * least,
        "{said}"
    );
    for pause in run
        .jobs
        .iter()
        .filter(|j| j.experiment == "condition-recovery")
    {
        assert!(pause.name.starts_with("pause-"), "{}", pause.name);
    }
    // Half way, a fifth of a GB per second has come back.
    let seen: Vec<&str> = pauses.trim_end_matches(')').split(", ").collect();
    assert!(seen.len() >= 3, "{said}");
    for s in &seen[..seen.len() - 1] {
        let (share, time) = s.split_once(" % after ").unwrap();
        let time: f64 = time
            .trim_end_matches('s')
            .trim()
            .parse()
            .unwrap_or(f64::NAN);
        let time = if s.ends_with("ms") { f64::NAN } else { time };
        let share: f64 = share.parse().unwrap();
        assert!(
            time.is_nan() || (share / (20.0 * time) - 1.0).abs() < 0.15,
            "{said}"
        );
    }
    assert!(row(&run, "internal writes per byte written").starts_with("1.00 to 1.00"));
}

#[test]
fn a_long_job_that_falls_off_a_cliff_says_so_and_a_flat_one_does_not() {
    let job = |cache_gb: f64| -> Run {
        let file = cached_model(cache_gb, 1.0, 0.2);
        let name = format!("sim:{}", file.path().display());
        let mut bench = SimBench::open(&name, Control::new()).unwrap();
        let mut spec = fathom_io::JobSpec::default();
        for (option, text) in [
            ("rw", "write"),
            ("bs", "128k"),
            ("qd", "8"),
            ("time", "12s"),
        ] {
            spec.set(option, text).unwrap();
        }
        let planned = [PlannedJob::new(spec.validate(&bench.limits()).unwrap())];
        let dir = tempfile::tempdir().unwrap();
        let about = bench.describe();
        let mut book = Notebook::create(dir.path(), RunMeta::default(), about, true, 0).unwrap();
        book.measure(&mut bench, &planned, &mut |_| {}).unwrap();
        book.finish().unwrap().0
    };
    let unsteady = |r: &Run| {
        r.jobs[0]
            .flags
            .iter()
            .any(|f| f.code == FlagCode::NotSteady)
    };
    // Full after 9 of 12 seconds.
    let cliff = job(9.0);
    assert!(unsteady(&cliff), "{:?}", cliff.jobs[0].flags);
    let found = &cliff.findings[0];
    assert!(found.id.starts_with("burst-and-base"), "{}", found.text);
    let flat = job(0.0);
    assert!(!unsteady(&flat), "{:?}", flat.jobs[0].flags);
    assert!(flat.findings.is_empty(), "{}", flat.findings[0].text);
}

fn plain(range: Bytes) -> ConditionOptions {
    ConditionOptions {
        purge: true,
        purging: Purging::default(),
        passes: 2,
        fill: 100,
        overwrite: 0.0,
        deletes: 0.0,
        idle: Nanos::ZERO,
        load: Vec::new(),
        round: Nanos::from_millis(20),
        test: Nanos::from_millis(200),
        recovery: Nanos::ZERO,
        range,
        devices: 1,
        seed: 1,
    }
}

fn conditioned(bench: &mut dyn Bench, o: &ConditionOptions, skip: usize) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let meta = RunMeta {
        name: "condition".into(),
        command: "condition".into(),
        ..RunMeta::default()
    };
    let mut book = Notebook::create(dir.path(), meta, bench.describe(), true, 0).unwrap();
    condition::run(bench, true, o, skip, None, &mut book, &mut Quiet).unwrap();
    book.finish().unwrap().0
}

#[test]
fn what_was_announced_is_what_is_written() {
    let mut o = plain(Bytes::mib(256));
    o.fill = 50;
    o.overwrite = 0.5;
    o.deletes = 10.0;
    o.idle = Nanos::from_millis(300);
    let mut bench = QueueBench::new(8, Service::Fixed(Nanos::from_micros(20)));
    let run = conditioned(&mut bench, &o, 0);
    let cost = condition::run_cost(&o).unwrap();
    assert_eq!(run.jobs.len(), cost.jobs() as usize);
    let written: u64 = run
        .jobs
        .iter()
        .filter_map(|j| Some(j.write.as_ref()?.bytes))
        .sum();
    let announced = cost.written_at_most().0;
    assert_eq!(announced, 2 * (128 << 20) + (64 << 20));
    // Mixed sizes may end a piece one request late.
    assert!(
        (announced..announced + 16 * (128 << 10) * 2).contains(&written),
        "{written}"
    );
    let trimmed: u64 = run
        .jobs
        .iter()
        .filter_map(|j| Some(j.trim.as_ref()?.bytes))
        .sum();
    assert_eq!(trimmed, (256 << 20) + (12 << 20));
    let idle = run.jobs.iter().find(|j| j.name == "idle").unwrap();
    assert!(idle.wall_ns >= 299_000_000, "{}", idle.wall_ns);
    // Nothing beyond the fill level but the purge.
    for j in run.jobs.iter().filter(|j| j.name != "purge") {
        let at = |k: &str| {
            j.spec[k]
                .as_str()
                .map_or(0, |t| t.parse::<Bytes>().unwrap().0)
        };
        assert!(at("offset") + at("size") <= 128 << 20, "{}", j.spec);
    }
}

#[test]
fn an_interrupted_conditioning_goes_on_where_it_was_and_only_with_the_same_plan() {
    let o = plain(Bytes::mib(64));
    let service = Service::Fixed(Nanos::from_micros(20));
    let mut bench = QueueBench::new(8, service);
    bench.stop_after = 10;
    let first = conditioned(&mut bench, &o, 0);
    assert!(first.flags.iter().any(|f| f.code == FlagCode::Interrupted));
    assert_eq!(condition::completed(&first, "queue", &o), Ok(10));
    let mut bench = QueueBench::new(8, service);
    bench.stop_after = 5;
    let second = conditioned(&mut bench, &o, 10);
    assert_eq!(condition::completed(&second, "queue", &o), Ok(15));
    let mut bench = QueueBench::new(8, service);
    let third = conditioned(&mut bench, &o, 15);
    let names = |r: &Run| r.jobs.iter().map(|j| j.name.clone()).collect::<Vec<_>>();
    let all = [names(&first), names(&second), names(&third)].concat();
    let mut bench = QueueBench::new(8, service);
    assert_eq!(all, names(&conditioned(&mut bench, &o, 0)));
    let mut other = o.clone();
    other.passes = 3;
    let e = condition::completed(&first, "queue", &other).unwrap_err();
    assert!(e.contains("conditioned queue otherwise"), "{e}");
    assert!(condition::completed(&first, "another", &o).is_err());
}

#[test]
fn a_load_runs_until_it_is_steady_and_gives_up_honestly() {
    let mut o = plain(Bytes::mib(64));
    o.load = vec![("rw".into(), "randwrite".into()), ("qd".into(), "4".into())];
    let service = Service::Fixed(Nanos::from_micros(20));
    let flat = conditioned(&mut QueueBench::new(2, service), &o, 0);
    let verdict = |r: &Run| {
        r.findings
            .iter()
            .find(|f| f.id == "condition-verdict")
            .unwrap()
            .text
            .clone()
    };
    assert!(
        verdict(&flat).contains("the load is steady"),
        "{}",
        verdict(&flat)
    );
    assert!(!flat.flags.iter().any(|f| f.code == FlagCode::NotSteady));
    let mut tiring = Tiring {
        queue: QueueBench::new(2, service),
        by: 0.03,
        time: 2_000.0,
    };
    let moving = conditioned(&mut tiring, &o, 0);
    assert!(
        verdict(&moving).contains("not steady"),
        "{}",
        verdict(&moving)
    );
    assert!(moving.flags.iter().any(|f| f.code == FlagCode::NotSteady));
    let chart = &moving
        .sections
        .iter()
        .find(|s| s.id == "condition-load")
        .unwrap()
        .charts[0];
    assert!(chart.title.ends_with("not steady"), "{}", chart.title);
}
