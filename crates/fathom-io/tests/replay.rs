//! Replay: every format as its makers write it, what is wrong with a damaged one, and whether times,
//! dependencies and memory are kept.

use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_io::driver::{Control, Destination, PlannedJob, Setting, run_group, run_virtual};
use fathom_io::job::{BlockSizes, Engine, JobSpec, Limits, Rw};
use fathom_io::port::virtual_time::{Queue, Service};
use fathom_io::replay::{
    Events, FeedHandle, Fidelity, Fit, Format, Layout, Pacing, Playing, Score, Share, TraceFacts,
    start, survey,
};
use fathom_telemetry::Identity;
use fathom_telemetry::iolog::IoLog;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Nanos, Op, Record};

const LIMITS: Limits = Limits {
    size: 1 << 30,
    direct_align: 512,
    hosts: 1,
};

struct Trace {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn trace(name: &str, content: &[u8]) -> Trace {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    Trace { _dir: dir, path }
}

fn look(path: &Path) -> Result<TraceFacts, fathom_io::replay::TraceError> {
    survey(path, None, Events::Auto, None, false, || false)
}

fn score(path: &Path, facts: &TraceFacts, pacing: Pacing, speed: f64) -> Score {
    Score {
        path: path.to_owned(),
        format: facts.format,
        events: Events::Auto,
        device: None,
        reads_only: false,
        pacing,
        speed,
        idle_max: None,
        share: Share::Whole,
    }
}

fn planned(score: Score, facts: &TraceFacts, qd: u32, engine: Engine) -> (PlannedJob, FeedHandle) {
    let layout = Layout::new(facts, &LIMITS, true, Fit::Auto).unwrap();
    let spec = JobSpec {
        rw: Rw::RandMixed,
        bs: BlockSizes::one(layout.longest()),
        qd,
        engine,
        record: true,
        ..JobSpec::default()
    };
    let playing = Playing {
        score,
        facts: facts.clone(),
        fit: Fit::Auto,
    };
    let feed = start(playing, layout);
    let valid = spec.validate(&LIMITS).unwrap();
    (PlannedJob::new(valid.playing(feed.clone()).unwrap()), feed)
}

/// Plays a trace on a queue in virtual time.
fn play(path: &Path, pacing: Pacing, speed: f64, qd: u32, service: Nanos) -> (Job, FeedHandle) {
    let facts = look(path).unwrap();
    let (job, feed) = planned(
        score(path, &facts, pacing, speed),
        &facts,
        qd,
        Engine::Uring,
    );
    let mut world = Queue::new(64, Service::Fixed(service), 1);
    let job = run_virtual(&[job], &mut world, Nanos(1000), "virtual", None, &mut ())
        .pop()
        .unwrap();
    (job, feed)
}

/// One record of blktrace, little endian.
fn blk(time: u64, sector: u64, bytes: u32, action: u32, payload: &[u8]) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(0x6561_7407u32.to_le_bytes());
    b.extend(1u32.to_le_bytes());
    b.extend(time.to_le_bytes());
    b.extend(sector.to_le_bytes());
    b.extend(bytes.to_le_bytes());
    b.extend(action.to_le_bytes());
    b.extend(42u32.to_le_bytes());
    b.extend((8u32 << 20).to_le_bytes());
    b.extend(0u32.to_le_bytes());
    b.extend(0u16.to_le_bytes());
    b.extend((payload.len() as u16).to_le_bytes());
    b.extend(payload);
    b
}

const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const DISCARD: u32 = 1 << 29;
const NOTIFY: u32 = 1 << 26;

#[test]
fn every_text_format_is_recognised_and_read_in_its_own_units() {
    // Name, content, format, I/Os by operation, duration, end of the first device.
    type Case = (&'static str, &'static str, Format, [u64; 4], u64, u64);
    let cases: [Case; 5] = [
        (
            "msr.csv",
            "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,1044\n",
            Format::Msr,
            [1, 1, 0, 0],
            1_332_052_600,
            383_496_192 + 32_768,
        ),
        (
            "financial.spc",
            "0,20941264,8192,W,0.551706\r\n1,3436288,15872,r,1.0011\r\n",
            Format::Spc,
            [1, 1, 0, 0],
            449_394_000,
            20_941_264 * 512 + 8192,
        ),
        (
            "alibaba.csv",
            "419,W,17792704512,4096,1577808144360767\n725,R,59110326272,360448,1577808144360813\n",
            Format::Alibaba,
            [1, 1, 0, 0],
            46_000,
            17_792_704_512 + 4096,
        ),
        (
            "v2.log",
            "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 8192 4096\n/dev/sdb wait 1500 0\n/dev/sdb write 0 4096\n/dev/sdb datasync 0 0\n/dev/sdb trim 4096 4096\n/dev/sdb close\n",
            Format::Fio,
            [1, 1, 1, 1],
            1_500_000,
            12_288,
        ),
        (
            "v3.log",
            "fio version 3 iolog\n0 f add\n130 f open\n141 f read 61440 4096\n1000108 f write 937984 4096\n1000154 f close\n",
            Format::Fio,
            [1, 1, 0, 0],
            999_967_000,
            942_080,
        ),
    ];
    for (name, text, format, ios, duration, end) in cases {
        let t = trace(name, text.as_bytes());
        let f = look(&t.path).unwrap();
        assert_eq!(f.format, format, "{name}");
        assert_eq!(f.ios, ios, "{name}");
        assert_eq!(f.duration(), Nanos(duration), "{name}");
        assert_eq!(f.devices[0].end, end, "{name}");
    }
}

#[test]
fn blktrace_is_merged_over_processors_and_takes_latency_from_completions() {
    let dir = tempfile::tempdir().unwrap();
    let zero: Vec<u8> = [
        blk(0, 0, 0, NOTIFY, b"process name"),
        blk(90, 2048, 4096, READ | 1, b""),
        blk(100, 2048, 4096, READ | 7, b""),
        blk(900, 2048, 4096, READ | 8, b""),
        blk(950, 0, 0, WRITE | FLUSH | 7, b""),
    ]
    .concat();
    let one: Vec<u8> = [
        blk(300, 4096, 8192, WRITE | 7, b"x"),
        blk(700, 4096, 8192, WRITE | 8, b""),
        blk(980, 8192, 4096, WRITE | DISCARD | 7, b""),
    ]
    .concat();
    std::fs::write(dir.path().join("sda.blktrace.0"), zero).unwrap();
    std::fs::write(dir.path().join("sda.blktrace.1"), one).unwrap();
    for name in ["sda", "sda.blktrace.1"] {
        let f = look(&dir.path().join(name)).unwrap();
        assert_eq!(f.format, Format::Blktrace);
        assert_eq!(f.ios, [1, 1, 1, 1]);
        assert_eq!(f.with_latency, 2);
        assert_eq!(f.devices[0].name, "8,0");
        assert_eq!((f.first, f.duration()), (Nanos(100), Nanos(880)));
    }
    let queued = survey(
        &dir.path().join("sda"),
        None,
        Events::Queue,
        None,
        false,
        || false,
    );
    assert_eq!(queued.unwrap().ios, [1, 0, 0, 0]);
}

#[test]
fn malformed_traces_are_refused_with_their_place_and_what_was_expected() {
    let good = "0,0,4096,R,0.0\n".repeat(3);
    let half: Vec<u8> = [blk(1, 0, 4096, READ | 7, b""), vec![7, 0x74, 0x61]].concat();
    let magic: Vec<u8> = [blk(1, 0, 4096, READ | 7, b"abc"), vec![0; 48]].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "a.spc",
            format!("{good}0,12,x,R,1.0\n").into(),
            "line 4: expected Size (bytes) as a whole number, found 'x'",
        ),
        (
            "b.spc",
            format!("{good}\n0,12,4096,Q,1.0\n").into(),
            "line 5: expected R or W as Opcode, found 'Q'",
        ),
        (
            "c.spc",
            format!("{good}0,12,4096").into(),
            "line 4: expected 5 fields (ASU,LBA,Size,Opcode,Timestamp), found 3",
        ),
        (
            "d.csv",
            b"128166372003061629,hm,0,Read,1,2,3\n128166372003061629,hm,0,Erase,1,2,3\n".to_vec(),
            "line 2: expected Read or Write as Type, found 'Erase'",
        ),
        (
            "e.csv",
            b"1,R,1,2,3\n1,R,-5,2,3\n".to_vec(),
            "line 2: expected offset (bytes) as a whole number, found '-5'",
        ),
        (
            "f.log",
            b"fio version 2 iolog\nf add\nf read 0\n".to_vec(),
            "line 3: expected a length (bytes) as a whole number, found ''",
        ),
        (
            "g.log",
            b"fio version 4 iolog\n".to_vec(),
            "line 1: expected 'fio version 2 iolog' or",
        ),
        (
            "h.log",
            b"fio version 3 iolog\n1 f wait 5\n".to_vec(),
            "line 2: expected an action",
        ),
        (
            "i.blktrace.0",
            half,
            "byte 48: expected a record of 48 bytes, found 3 bytes",
        ),
        (
            "j.blktrace.0",
            magic,
            "byte 51: expected blktrace's magic number",
        ),
        (
            "k.spc",
            format!("{good}{}", "9".repeat(70_000)).into(),
            "line 4: expected a record of one line",
        ),
        (
            "l.txt",
            b"hello world\n".to_vec(),
            "not a trace that fathom knows",
        ),
        ("m.txt", Vec::new(), "not a trace that fathom knows"),
        (
            "n.log",
            b"fio version 2 iolog\nf add\n".to_vec(),
            "it holds no I/O",
        ),
        (
            "o.spc",
            format!("0,{},4096,R,0.0\n", u64::MAX).into(),
            "line 1: expected an LBA below 2^55",
        ),
    ];
    for (name, content, expected) in cases {
        let t = trace(name, &content);
        let e = look(&t.path).unwrap_err().to_string();
        assert!(e.contains(expected), "{name}: {e}");
        assert!(!e.contains('\n'), "{e}");
    }
}

#[test]
fn no_bytes_whatever_make_a_reader_panic() {
    let mut rng = fathom_io::load::rng::Rng::new(11, 0);
    let seeds: [&[u8]; 4] = [
        b"128166372003061629,hm,0,Read,383496192,32768,413\n",
        b"0,20941264,8192,W,0.551706\n",
        b"fio version 2 iolog\nf read 0 4096\nf wait 10 0\n",
        b"419,W,17792704512,4096,1577808144360767\n",
    ];
    let mut read = 0;
    for i in 0..2000 {
        let mut content = if i % 5 == 4 {
            blk(
                rng.bits(),
                rng.bits(),
                rng.bits() as u32,
                rng.bits() as u32,
                b"zz",
            )
            .repeat(3)
        } else {
            seeds[i % 5].repeat(4)
        };
        for _ in 0..=rng.below(4) {
            let at = rng.below(content.len() as u64) as usize;
            content[at] = match rng.below(2) {
                0 => b'0' + rng.below(10) as u8,
                _ => rng.bits() as u8,
            };
        }
        let t = trace("x", &content);
        read += u64::from(look(&t.path).is_ok());
    }
    assert!(read > 100, "some are still traces: {read}");
}

/// Reads at 0, 1, 2.5 and 10 ms.
const FOUR: &str = "0,0,4096,R,0.0\n0,8,4096,R,0.001\n0,16,4096,W,0.0025\n0,24,4096,R,0.010\n";

#[test]
fn timed_replay_keeps_every_gap_whatever_the_target_does() {
    let t = trace("t.spc", FOUR.as_bytes());
    for (speed, recorded) in [(1.0, 10_000_000), (10.0, 1_000_000)] {
        // The target takes 3 ms for each: longer than most gaps.
        let (job, feed) = play(&t.path, Pacing::Timed, speed, 16, Nanos::from_millis(3));
        let f = feed.fidelity().unwrap();
        assert_eq!(
            (f.started, f.recorded_ns, f.achieved_ns),
            (4, recorded, recorded)
        );
        assert_eq!(f.gap_error.moments().max, 0);
        assert_eq!(f.score(), Some(1.0));
        assert_eq!(job.read.as_ref().unwrap().ios, 3);
        assert_eq!(job.write.as_ref().unwrap().ios, 1);
        assert_eq!(job.read.unwrap().response_ns.mean, Some(3e6));
    }
}

#[test]
fn a_depth_that_is_too_small_is_seen_as_lateness_not_hidden() {
    let t = trace("t.spc", FOUR.as_bytes());
    let (job, feed) = play(&t.path, Pacing::Timed, 1.0, 1, Nanos::from_millis(3));
    let f = feed.fidelity().unwrap();
    // Due at 0, 1, 2.5, 10 ms; started at 0, 3, 6, 10 ms.
    assert_eq!(f.lag.moments().max, 3_500_000);
    assert!(f.score().unwrap() < 0.5);
    assert_eq!(job.write.unwrap().response_ns.mean, Some(6.5e6));
}

#[test]
fn fast_replay_leaves_out_the_gaps_and_keeps_the_order() {
    let t = trace("t.spc", FOUR.as_bytes());
    let (job, _) = play(&t.path, Pacing::Fast, 1.0, 1, Nanos::from_micros(100));
    assert_eq!(job.wall_ns, 400_000);
}

#[test]
fn idle_time_is_kept_unless_it_is_cut_and_then_counted() {
    let t = trace("t.spc", FOUR.as_bytes());
    let facts = look(&t.path).unwrap();
    let mut s = score(&t.path, &facts, Pacing::Timed, 1.0);
    s.idle_max = Some(Nanos::from_millis(2));
    let (job, feed) = planned(s, &facts, 4, Engine::Uring);
    let mut world = Queue::new(4, Service::Fixed(Nanos(1000)), 1);
    run_virtual(&[job], &mut world, Nanos(1), "virtual", None, &mut ());
    let f = feed.fidelity().unwrap();
    assert_eq!((f.recorded_ns, f.idle_cut_ns), (4_500_000, 5_500_000));
}

#[test]
fn dependent_replay_stretches_with_a_slower_target_and_keeps_think_times() {
    // A chain: each I/O starts 1 ms after the one before has completed, which took 1 ms.
    let ticks = |us: u64| us * 10;
    let chain: String = (0..50)
        .map(|i| {
            format!(
                "{},h,0,Read,{},4096,{}\n",
                1_000_000 + ticks(i * 2000),
                i * 4096,
                ticks(1000)
            )
        })
        .collect();
    let t = trace("chain.csv", chain.as_bytes());
    for service_us in [100, 1000, 5000] {
        let (job, _) = play(
            &t.path,
            Pacing::Dependent,
            1.0,
            32,
            Nanos::from_micros(service_us),
        );
        assert_eq!(
            job.wall_ns,
            (50 * service_us + 49 * 1000) * 1000,
            "{service_us}"
        );
    }
    // Four at a time, all started together once the four before have completed.
    let waves: String = (0..40)
        .map(|i| {
            format!(
                "{},h,0,Read,{},4096,{}\n",
                1_000_000 + ticks(i / 4 * 1000),
                i * 4096,
                ticks(1000)
            )
        })
        .collect();
    let t = trace("waves.csv", waves.as_bytes());
    let (job, _) = play(&t.path, Pacing::Dependent, 1.0, 32, Nanos::from_millis(3));
    assert_eq!(job.wall_ns, 30_000_000);
    assert!((job.qd_achieved - 4.0).abs() < 0.01, "{}", job.qd_achieved);
}

#[test]
fn a_run_that_fathom_recorded_plays_again_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("io.parquet");
    let log = IoLog::create(&path, Identity::default(), 2).unwrap();
    let mut handles: Vec<_> = (0..2).map(|t| log.handle(3, t, Nanos(0))).collect();
    for i in 0..30_000u64 {
        // Two threads in turns: their rows are not in order in the file.
        handles[i as usize % 2].push(&Record {
            intended: Nanos(i * 10_000),
            submitted: Nanos(i * 10_000 + 50),
            completed: Nanos(i * 10_000 + 5000),
            offset: i * 4096 % (1 << 28),
            len: 4096,
            result: 4096,
            op: if i % 3 == 0 { Op::Write } else { Op::Read },
        });
    }
    handles.into_iter().for_each(|h| h.close());
    log.finish().unwrap();
    let f = look(&path).unwrap();
    assert_eq!(
        (f.format, f.ios[0], f.ios[1]),
        (Format::Fathom, 20_000, 10_000)
    );
    assert_eq!((f.moved, f.with_latency), (0, 30_000));
    let (job, feed) = play(&path, Pacing::Timed, 1.0, 16, Nanos(4950));
    let fidelity = feed.fidelity().unwrap();
    assert_eq!(fidelity.started, 30_000);
    assert_eq!(fidelity.gap_error.moments().max, 0);
    assert_eq!(job.write.unwrap().ios, 10_000);
}

#[test]
fn a_device_can_be_chosen_and_writes_left_out() {
    let text = "0,0,4096,W,0.0\n1,8,4096,R,0.5\n0,16,4096,R,1.0\n1,24,4096,W,2.0\n";
    let t = trace("t.spc", text.as_bytes());
    let one = survey(&t.path, None, Events::Auto, Some("ASU 1"), false, || false).unwrap();
    assert_eq!(
        (one.ios, one.duration()),
        ([1, 1, 0, 0], Nanos::from_millis(1500))
    );
    let reads = survey(&t.path, None, Events::Auto, None, true, || false).unwrap();
    assert_eq!((reads.ios, reads.modifies()), ([2, 0, 0, 0], false));
    let e = survey(&t.path, None, Events::Auto, Some("ASU 7"), false, || false).unwrap_err();
    assert!(e.to_string().contains("no device 'ASU 7'"), "{e}");
}

#[test]
fn records_out_of_order_are_sorted_within_the_window() {
    let times = [0.003, 0.001, 0.002, 0.009, 0.004];
    let text: String = times.iter().map(|t| format!("0,0,4096,R,{t}\n")).collect();
    let t = trace("t.spc", text.as_bytes());
    let f = look(&t.path).unwrap();
    assert_eq!(
        (f.first, f.duration(), f.moved),
        (Nanos::from_millis(1), Nanos::from_millis(8), 0)
    );
}

#[test]
fn on_a_real_clock_the_recorded_times_are_kept() {
    // 2,000 I/Os at random gaps of 250 µs on average: half a second.
    let mut rng = fathom_io::load::rng::Rng::new(5, 0);
    let mut at = 0.0;
    let mut text = Vec::new();
    for i in 0..2000 {
        writeln!(text, "0,{},4096,R,{:.9}", i * 8, at).unwrap();
        at += rng.exponential() * 250e-6;
    }
    let t = trace("t.spc", &text);
    let facts = look(&t.path).unwrap();
    // Other work on the machine may take the processor away: one of several attempts has to do.
    let mut seen = Vec::new();
    for _ in 0..16 {
        let (job, feed) = planned(
            score(&t.path, &facts, Pacing::Timed, 1.0),
            &facts,
            32,
            Engine::Null,
        );
        let control = Control::new();
        let setting = Setting {
            destination: &Destination::Null,
            control: &control,
            counters: None,
            log: None,
        };
        let done = run_group(&[job], &setting, &mut ()).unwrap();
        let f = feed.fidelity().unwrap();
        assert_eq!(f.started, 2000);
        assert_eq!(done[0].read.as_ref().unwrap().ios, 2000);
        let half = f.gap_error.quantile(0.5).unwrap();
        let pace = f.achieved_ns as f64 / f.recorded_ns as f64;
        if half < 50_000 && (pace - 1.0).abs() < 0.05 {
            return;
        }
        seen.push((half, pace));
    }
    panic!("half of the gaps off by (ns), pace: {seen:?}");
}

#[test]
fn shares_of_a_trace_are_together_all_of_it_at_its_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let text: String = (0..100u64)
        .map(|i| format!("0,{},4096,r,{}\n", i * 8, i as f64 * 1e-3))
        .collect();
    std::fs::write(&path, text).unwrap();
    let facts = survey(&path, Some(Format::Spc), Events::Auto, None, false, || {
        false
    })
    .unwrap();
    let played = |share| {
        let mut score = score(&path, &facts, Pacing::Timed, 1.0);
        score.share = share;
        let (job, feed) = planned(score, &facts, 8, Engine::Uring);
        let mut world = Queue::new(64, Service::Fixed(Nanos::from_micros(10)), 1);
        let job = run_virtual(&[job], &mut world, Nanos(1000), "virtual", None, &mut ())
            .pop()
            .unwrap();
        (job.read.unwrap().ios, feed.fidelity().unwrap())
    };
    let (whole, all) = played(Share::Whole);
    assert_eq!(whole, 100);
    let mut merged: Option<Fidelity> = None;
    for place in 0..3 {
        let (ios, own) = played(Share::Turns(place, 3));
        assert_eq!(ios, if place == 0 { 34 } else { 33 });
        // Idle time of the others' I/Os is kept: the last one starts at its time.
        assert!(own.recorded_ns >= 96_000_000, "{}", own.recorded_ns);
        match &mut merged {
            Some(m) => m.merge(&own),
            None => merged = Some(own),
        }
    }
    let merged = merged.unwrap();
    assert_eq!(merged.started, all.started);
    assert_eq!(merged.lag.count(), all.lag.count());
    let back: Fidelity = serde_json::from_str(&serde_json::to_string(&merged).unwrap()).unwrap();
    assert_eq!(back.gap_error.to_sparse(), merged.gap_error.to_sparse());
}
