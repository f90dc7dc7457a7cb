//! A panic while the kernel is traced or a setting is changed leaves neither behind: the guards live in
//! the code that panics, as they do in a pass.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fathom_stack::settings::{Changed, NoIdle, schedulers};
use fathom_stack::{Backend, Devices, Session, TraceConfig, TraceError};

#[path = "../../fathom-host/tests/common/mod.rs"]
mod machine;

use machine::{Disk, Loop, possible, skip, turn};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// Instances are told apart by process, so these tests take turns.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of this process' trace instances.
fn instances() -> Vec<String> {
    let mine = format!("fathom-{}-", std::process::id());
    fs::read_dir(INSTANCES)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|n| n.starts_with(&mine))
        .collect()
}

fn config(live: bool) -> TraceConfig {
    TraceConfig {
        devices: Devices::below(Path::new(env!("CARGO_TARGET_TMPDIR"))),
        threads: Some("fathom-nobody".into()),
        backend: Backend::Best,
        live,
        ios: 100,
        software: true,
        uring: true,
        single: true,
    }
}

/// A running trace with an instance of its own; says visibly why there is none.
fn traced(live: bool) -> Option<Session> {
    match Session::start(&config(live)) {
        Ok(s) if s.rung() == "full" && Path::new(INSTANCES).is_dir() => Some(s),
        Ok(_) => {
            skip(&format!("needs write access to {INSTANCES}"));
            None
        }
        Err(e @ (TraceError::Denied { .. } | TraceError::NotMounted)) => {
            skip(&e.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_panic_while_tracing_removes_the_instance() {
    let _turn = one_at_a_time();
    // Read at the end, and drained all the time by a thread of its own.
    for live in [false, true] {
        let Some(session) = traced(live) else {
            return;
        };
        assert_eq!(instances().len(), 1);
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _held = session;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(instances(), Vec::<String>::new(), "live: {live}");
    }
}

#[test]
fn between_passes_no_event_is_on_and_the_next_has_the_same_ones() {
    let _turn = one_at_a_time();
    let Some(mut session) = traced(false) else {
        return;
    };
    let instance = Path::new(INSTANCES).join(&instances()[0]);
    let read = |file: &str| fs::read_to_string(instance.join(file)).unwrap();
    let on = read("set_event");
    let filter = read("events/block/block_rq_issue/filter");
    assert!(on.contains("block:block_rq_issue"), "{on}");
    assert!(filter.contains("dev == "), "{filter}");
    session.stop().unwrap();
    assert_eq!(
        read("set_event"),
        "",
        "an event costs even where nothing is recorded"
    );
    assert_eq!(read("tracing_on").trim(), "0");
    assert!(session.resume().unwrap());
    assert_eq!(read("set_event"), on);
    assert_eq!(read("events/block/block_rq_issue/filter"), filter);
    assert_eq!(read("tracing_on").trim(), "1");
    session.stop().unwrap();
    drop(session);
    assert_eq!(instances(), Vec::<String>::new());
}

#[test]
fn a_panic_in_a_variant_puts_scheduler_idle_states_and_trace_back() {
    let _turn = one_at_a_time();
    let _loop = turn();
    if !possible(&[]) {
        return;
    }
    let disk = Disk::new(16);
    let device = Loop::of(&disk.image);
    let before = schedulers(device.name());
    let Some(other) = before.get(1).cloned() else {
        skip("needs a loop device with two schedulers");
        return;
    };
    // What the kernel grants at the moment, µs.
    let latency = || fs::read("/dev/cpu_dma_latency").unwrap_or_default();
    let idle = latency();
    let session = traced(false);
    let name = device.name().to_owned();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _trace = session;
        let _scheduler = Changed::scheduler(&name, &other).unwrap();
        let no_idle = NoIdle::hold();
        assert_eq!(schedulers(&name)[0], other, "it was changed");
        if no_idle.is_ok() {
            assert_eq!(latency(), 0i32.to_ne_bytes(), "it is held");
        }
        panic!("on purpose");
    }));
    let said = panicked.unwrap_err();
    assert_eq!(said.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(schedulers(device.name()), before);
    assert_eq!(fs::read("/dev/cpu_dma_latency").unwrap_or_default(), idle);
    assert_eq!(instances(), Vec::<String>::new());
    let note = format!("fathom-setting-{}-", std::process::id());
    let notes = fs::read_dir("/run").into_iter().flatten().flatten();
    assert!(
        !notes
            .filter_map(|e| e.file_name().into_string().ok())
            .any(|n| n.starts_with(&note))
    );
}
