//! Traces real I/O on this machine. Every test says why it is skipped where tracing is not allowed.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;

use fathom_io::driver::{PlannedJob, Setting, run_group};
use fathom_io::{Control, JobSpec, Target, Wanted};
use fathom_stack::{
    Backend, Devices, Manner, Naming, Session, StackAnalysis, StackResult, TraceConfig, TraceError,
};
use fathom_telemetry::iolog::MemoryLog;
use fathom_telemetry::{Bytes, Nanos};

/// Threads of the driver are recognised by name, so passes of one process must not overlap.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Measured {
    result: StackResult,
    analysis: StackAnalysis,
    target: Target,
    records: u64,
}

/// Fills a scratch file below `place` and traces a job on it; `None` where tracing is not allowed.
fn measure(place: &Path, options: &[(&str, &str)]) -> Option<Measured> {
    measure_with(place, options, Backend::Best)
}

fn measure_with(place: &Path, options: &[(&str, &str)], backend: Backend) -> Option<Measured> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let mut spec = JobSpec {
        name: "traced".into(),
        size: Some(Bytes::mib(64)),
        ..JobSpec::default()
    };
    spec.time = Some(Nanos::from_millis(500));
    spec.ios = Some(20_000);
    spec.record = true;
    options.iter().for_each(|(k, v)| spec.set(k, v).unwrap());
    let wanted = Wanted {
        modifies: true,
        ..Wanted::by(std::slice::from_ref(&spec), None)
    };
    let target = Target::open(place.to_str().unwrap(), &wanted).unwrap();
    fill(&target);
    let planned = [PlannedJob::new(spec.validate(&target.limits()).unwrap())];
    let (seats, depth) = planned[0].seats();
    let devices = Devices::below(target.path().unwrap());
    let uring = spec.engine == fathom_io::job::Engine::Uring;
    let config = TraceConfig {
        devices: devices.clone(),
        threads: Some(fathom_io::driver::thread_prefix()),
        backend,
        live: false,
        ios: 20_000,
        software: true,
        uring,
        single: depth == 1,
    };
    let mut session = match Session::start(&config) {
        Ok(s) => s,
        Err(e @ (TraceError::Denied { .. } | TraceError::NotMounted | TraceError::Perf { .. })) => {
            eprintln!("SKIP: {e}");
            return None;
        }
        Err(e) => panic!("{e}"),
    };
    let log = MemoryLog::new();
    let make =
        |job: usize, thread: u32| log.handle(job as u16, thread as u16, 40_000 / seats as usize);
    let control = Control::new();
    let setting = Setting {
        destination: target.destination(),
        control: &control,
        counters: None,
        log: Some(&make),
    };
    run_group(&planned, &setting, &mut ()).unwrap();
    let trace = session.stop().unwrap();
    let records = log.take();
    let manner = Manner {
        uring,
        commands: false,
        single: depth == 1,
        must_reach_device: spec.direct && !devices.top.is_empty(),
        begins_at: None,
    };
    let mut analysis = StackAnalysis::new(
        devices,
        manner,
        Naming {
            deep: depth > 1,
            ..Naming::default()
        },
    );
    analysis.add(&records, &trace);
    let records = records.iter().map(|t| t.records.len() as u64).sum();
    Some(Measured {
        result: analysis.result(),
        analysis,
        target,
        records,
    })
}

fn fill(target: &Target) {
    let mut spec = JobSpec {
        rw: fathom_io::job::Rw::Write,
        qd: 4,
        direct: false,
        ..JobSpec::default()
    };
    spec.set("bs", "1m").unwrap();
    spec.set("sync", "fsync:64").unwrap();
    let planned = [PlannedJob::new(spec.validate(&target.limits()).unwrap())];
    let control = Control::new();
    let setting = Setting {
        destination: target.destination(),
        control: &control,
        counters: None,
        log: None,
    };
    run_group(&planned, &setting, &mut ()).unwrap();
}

fn scratch() -> std::path::PathBuf {
    // Below the build's directory: on the machine's disk, not in memory.
    std::env::var_os("CARGO_TARGET_TMPDIR").map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned(),
        Into::into,
    )
}

/// Nothing lost, nothing contradicted, and all joined up to a share, or one where they are few.
fn covered(r: &StackResult, share: f64) {
    assert_eq!((r.lost, r.contradicted), (0, 0), "{r:#?}");
    let missing = r.submitted - r.by_device - r.by_memory;
    assert!(missing <= 1 || r.coverage >= share, "{r:#?}");
}

fn adds_up(r: &StackResult) {
    let sum: f64 = r.layers.iter().map(|l| l.mean_ns).sum();
    let joined = r.joined_mean_ns.unwrap();
    assert!(
        (sum - joined).abs() < 0.01 * joined,
        "{sum} of {joined}: {r:#?}"
    );
    // Where one is missing, its time is missing too.
    if r.submitted == r.by_device + r.by_memory {
        let mean = r.application_mean_ns;
        assert!((sum - mean).abs() < 0.01 * mean, "{sum} of {mean}: {r:#?}");
    }
    assert!((sum + r.residual_ns - r.application_mean_ns).abs() < 1.0);
}

fn show(name: &str, r: &StackResult) {
    eprintln!(
        "{name}: mean {:.2} us, coverage {:.5}, lost {}, events/io {:.1}, unlinked {}, unmatched {}, contradicted {}, memory {}",
        r.application_mean_ns / 1e3,
        r.coverage,
        r.lost,
        r.events_per_io,
        r.unlinked,
        r.unmatched,
        r.contradicted,
        r.by_memory
    );
    for l in &r.layers {
        eprintln!(
            "  {:45} {:9.3} p50 {:?} p99 {:?} {:5.1} %",
            l.name,
            l.mean_ns / 1e3,
            l.p50_ns,
            l.p99_ns,
            l.share * 100.0
        );
    }
    for d in &r.devices {
        eprintln!("  {d:?}");
    }
}

/// The sector that the file system names for an offset, asked through FIEMAP.
fn sector_by_fiemap(target: &Target, offset: u64) -> Option<u64> {
    let fathom_io::driver::Destination::File {
        buffered: Some(f), ..
    } = target.destination()
    else {
        return None;
    };
    assert!(f.as_raw_fd() >= 0);
    let spans = fathom_host::extents::Spans::new(f, offset..offset + 4096).ok()?;
    let span = spans.into_iter().next()?.ok()?;
    Some((span.physical? + offset - span.range.start) / 512)
}

fn joined_sectors_are_those_of_the_file(m: &Measured) {
    // A partition's sectors are counted from its start in FIEMAP and from the disk's in events.
    let mut shift = None;
    let mut checked = 0;
    for io in m.analysis.ios().iter().step_by(7) {
        let (Some(chain), Some(by_map)) = (io.chain, sector_by_fiemap(&m.target, io.record.offset))
        else {
            continue;
        };
        let shift = *shift.get_or_insert(chain.sector.wrapping_sub(by_map));
        assert_eq!(
            chain.sector.wrapping_sub(shift),
            by_map,
            "offset {}",
            io.record.offset
        );
        checked += 1;
    }
    // One in seven, whatever the number: a slow disk makes few, perf events may show few.
    assert_eq!(checked, m.analysis.ios().len().div_ceil(7));
    assert!(shift.is_none_or(|s| s < 1 << 40));
}

#[test]
fn direct_reads_and_writes_one_at_a_time_are_covered_and_add_up() {
    for engine in ["uring", "preadv"] {
        for rw in ["randread", "randwrite"] {
            let Some(m) = measure(&scratch(), &[("rw", rw), ("engine", engine)]) else {
                return;
            };
            show(&format!("{engine} {rw} qd1"), &m.result);
            if m.result.devices.is_empty() {
                eprintln!("skipped: {} is in memory", scratch().display());
                return;
            }
            assert!(m.records > 0);
            // Where the kernel tells when nothing is left but to wait, the doorbell ends there.
            let marked = engine == "uring" && m.result.absent.is_empty();
            let alone = m
                .result
                .layers
                .iter()
                .any(|l| l.name == "driver and doorbell");
            assert!(alone || !marked, "{:#?}", m.result.layers);
            covered(&m.result, 0.999);
            adds_up(&m.result);
            joined_sectors_are_those_of_the_file(&m);
        }
    }
}

#[test]
fn thirty_two_outstanding_are_joined_by_their_own_events() {
    for (engine, rw) in [
        ("uring", "randread"),
        ("uring", "randwrite"),
        ("preadv", "randread"),
    ] {
        let Some(m) = measure(&scratch(), &[("rw", rw), ("engine", engine), ("qd", "32")]) else {
            return;
        };
        show(&format!("{engine} {rw} qd32"), &m.result);
        // Two writes at one offset that workers of the ring do at once cannot be told apart: rare.
        covered(&m.result, 0.99);
        adds_up(&m.result);
        joined_sectors_are_those_of_the_file(&m);
    }
}

#[test]
fn a_cached_file_is_answered_by_memory_and_so_is_tmpfs() {
    let shm = Path::new("/dev/shm");
    for (place, options) in [
        (scratch(), vec![("buffered", ""), ("rw", "randread")]),
        (
            scratch(),
            vec![("buffered", ""), ("rw", "randread"), ("engine", "preadv")],
        ),
        (
            scratch(),
            vec![("buffered", ""), ("rw", "randread"), ("qd", "8")],
        ),
        (shm.to_owned(), vec![("buffered", ""), ("rw", "randwrite")]),
    ] {
        let Some(m) = measure(&place, &options) else {
            return;
        };
        show(&format!("{} {options:?}", place.display()), &m.result);
        assert!(m.result.by_memory as f64 > 0.95 * m.result.submitted as f64);
        covered(&m.result, 0.999);
        adds_up(&m.result);
    }
}

#[test]
fn perf_events_never_join_wrongly_and_say_what_they_left_out() {
    for (engine, qd) in [("preadv", "1"), ("uring", "32")] {
        let options = [("rw", "randread"), ("engine", engine), ("qd", qd)];
        let Some(m) = measure_with(&scratch(), &options, Backend::Perf) else {
            return;
        };
        show(&format!("perf {engine} qd{qd}"), &m.result);
        let r = &m.result;
        // How many are joined is the kernel's affair: some leave out events around a processor's idle time,
        // without saying so. What is joined must be right, and what is not must be counted.
        assert_eq!(r.contradicted, 0);
        joined_sectors_are_those_of_the_file(&m);
        let sum: f64 = r.layers.iter().map(|l| l.mean_ns).sum();
        if let Some(joined) = r.joined_mean_ns {
            assert!((sum - joined).abs() < 0.01 * joined, "{r:#?}");
        }
        assert!((sum + r.residual_ns - r.application_mean_ns).abs() < 1.0);
        assert!(r.layers.iter().all(|l| l.mean_ns >= 0.0), "{r:#?}");
        let joined = r.by_device + r.by_memory;
        assert!((r.coverage - joined as f64 / r.submitted as f64).abs() < 1e-9);
    }
}
