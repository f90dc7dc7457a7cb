//! The path of an I/O allocates nothing: a job with ten times the I/Os allocates no more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_host::{Zone, ZoneKind, ZoneState};
use fathom_io::driver::{PlannedJob, Setting, run_group};
use fathom_io::job::{JobSpec, Limits};
use fathom_io::load::zoned;
use fathom_io::{Control, Target, Wanted};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Many small zones, so that full ones are left for others all the time.
fn zones() -> Vec<Zone> {
    let zone = |start| Zone {
        start,
        size: 64 << 10,
        capacity: 32 << 10,
        pointer: start,
        kind: ZoneKind::SequentialRequired,
        state: ZoneState::Empty,
    };
    (0..4000).map(|n| zone(n << 16)).collect()
}

/// Allocations of a job of `ios` I/Os in one long window.
fn allocations(target: &Target, limits: &Limits, options: &[(&str, &str)], ios: u64) -> u64 {
    let mut spec = JobSpec::default();
    for (name, text) in [("qd", "32"), ("window", "1h"), ("buffered", "")]
        .iter()
        .chain(options)
    {
        spec.set(name, text).unwrap();
    }
    spec.ios = Some(ios);
    let mut job = PlannedJob::new(spec.validate(limits).unwrap());
    if spec.open_zones.is_some() {
        job.guide = zoned::guide(&job.job, job.seats(), &zones()).unwrap();
    }
    let control = Control::new();
    let setting = Setting {
        destination: target.destination(),
        control: &control,
        counters: None,
        log: None,
    };
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let measured = run_group(std::slice::from_ref(&job), &setting, &mut ()).unwrap();
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(measured[0].errors.len(), 0);
    after - before
}

#[test]
fn ten_times_the_ios_allocate_no_more() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let wanted = Wanted {
        modifies: true,
        buffered: true,
        size: Some("8m".parse().unwrap()),
        ..Wanted::default()
    };
    let file = Target::open(dir.path().to_str().unwrap(), &wanted).unwrap();
    let null = Target::open("null:", &Wanted::default()).unwrap();
    for (target, options) in [
        (&null, &[][..]),
        (
            &null,
            &[("rw", "randrw"), ("bs", "4k:50,64k:50"), ("dist", "zipf")],
        ),
        (&null, &[("rate", "50m"), ("think", "0")]),
        (
            &null,
            &[("rw", "write"), ("direct", ""), ("open-zones", "8")],
        ),
        (&file, &[("rw", "write")]),
        (&file, &[]),
        (&file, &[("engine", "preadv"), ("qd", "1")]),
    ] {
        let limits = target.limits();
        // The first run also pays for things that are made once per process.
        allocations(target, &limits, options, 1_000);
        let few = allocations(target, &limits, options, 2_000);
        let many = allocations(target, &limits, options, 20_000);
        // Sparse histograms of the one window may grow by a few doublings; messages by a block.
        assert!(
            many <= few + 40,
            "{options:?}: {few} allocations for 2,000 I/Os, {many} for 20,000"
        );
    }
}
