//! Suspects of a simulated target: each change is another option of the model, tried whether or not it differs from what
//! is in force, because only the measurement may say so.

use fathom_sim::host::{Completions, Idle};
use fathom_sim::raid::Level;
use fathom_sim::{Shape, SimTarget};

use super::load::LoadId;
use super::suspect::{Change, Suspect, Value};

/// How much more memory is tried for the page cache.
const MORE_CACHE: u64 = 4;
/// How many times as many iothreads are tried.
const MORE_IOTHREADS: u32 = 4;

fn value(label: &str, command: &str, change: fn(&mut SimTarget)) -> Value {
    Value {
        label: label.into(),
        command: command.into(),
        change: Change::Model(change),
    }
}

fn awake(t: &mut SimTarget) {
    t.host.idle = Idle::Busy;
}

/// What may limit this target.
pub fn suspects(target: &SimTarget) -> Vec<Suspect> {
    let mut all = of_the_host();
    all.extend(of_what_is_below(target));
    all.extend(of_an_array(target));
    all.extend(of_machines(target));
    all
}

/// A suspect that one other value is tried of, with nothing else changed.
fn one(id: &'static str, cause: &str, now: String, tried: Value) -> Suspect {
    Suspect {
        id,
        cause: cause.into(),
        now,
        values: vec![tried],
        under: Vec::new(),
        loads: Vec::new(),
        is_setting: false,
        refuted_by: String::new(),
    }
}

/// Settings of the machine.
fn of_the_host() -> Vec<Suspect> {
    let kept_awake = value(
        "processors kept awake",
        "idle=busy (on a machine: hold /dev/cpu_dma_latency at 0, or tuned-adm profile latency-performance)",
        awake,
    );
    let polled = value(
        "polled completions",
        "poll (on a machine: --iopoll, with poll queues)",
        |t| t.host.completions = Completions::Polling,
    );
    let none = value(
        "no scheduler",
        "scheduler=0 (on a machine: echo none > /sys/block/DISK/queue/scheduler)",
        |t| t.host.scheduler_ns = 0,
    );
    let suspect = |id, cause: &str, now: &str, tried| Suspect {
        loads: vec![LoadId::One],
        is_setting: true,
        ..one(id, cause, now.into(), tried)
    };
    vec![
        Suspect {
            refuted_by: "The same latency where other work keeps the cores awake anyway.".into(),
            ..suspect(
                "idle-states",
                "the idle states of the processors",
                "idle states as they are",
                kept_awake,
            )
        },
        Suspect {
            // Who polls does not sleep: what sleeping costs is the idle states' account.
            under: vec![Change::Model(awake)],
            refuted_by:
                "fathom stack, where the time between the device and the application is short."
                    .into(),
            ..suspect(
                "completion",
                "the way in which completions arrive",
                "interrupts",
                polled,
            )
        },
        Suspect {
            loads: vec![LoadId::One, LoadId::Core],
            refuted_by: "The same rate per processor without a scheduler.".into(),
            ..suspect(
                "scheduler",
                "the I/O scheduler",
                "the scheduler as it is",
                none,
            )
        },
    ]
}

/// Layers and memory between the application and the device.
fn of_what_is_below(target: &SimTarget) -> [Suspect; 2] {
    let without = value(
        "without the stacked layer",
        "layer=0 (on a machine: use the device below, or give the layer more workers)",
        |t| t.layer_ns = 0,
    );
    let more = target.cache_bytes.saturating_mul(MORE_CACHE) >> 20;
    let larger = value(
        &format!("{MORE_CACHE} times the cache"),
        &format!("cache={more}m, or a smaller working set"),
        |t| t.cache_bytes = t.cache_bytes.saturating_mul(MORE_CACHE),
    );
    let cached = format!("{} MiB of cache", target.cache_bytes >> 20);
    [
        Suspect {
            loads: vec![LoadId::One, LoadId::Deep],
            refuted_by: "The same load on the device below the layer being as slow.".into(),
            ..one(
                "stacked-layer",
                "a layer between the block layer and the device",
                "the layers as they are".into(),
                without,
            )
        },
        Suspect {
            loads: vec![LoadId::Cached],
            refuted_by: "A share of hits that does not grow with the cache.".into(),
            ..one("cache-size", "the size of the page cache", cached, larger)
        },
    ]
}

/// An array with parity.
fn of_an_array(target: &SimTarget) -> Option<Suspect> {
    let Shape::Raid {
        level: Level::Raid5 | Level::Raid6,
        members,
    } = target.shape
    else {
        return None;
    };
    let (label, change): (_, fn(&mut SimTarget)) = if members.is_multiple_of(2) {
        ("RAID 10 of the same members", |t| relevel(t, Level::Raid10))
    } else {
        ("RAID 0 of the same members", |t| relevel(t, Level::Raid0))
    };
    let tried = value(
        label,
        "RAID 10, or writes of whole stripes; fathom raid shows both on your members",
        change,
    );
    Some(Suspect {
        loads: vec![LoadId::Writes],
        refuted_by: "The same rate of small writes on an array without parity.".into(),
        ..one(
            "parity",
            "the parity of the array",
            "small writes with parity".into(),
            tried,
        )
    })
}

/// Virtual machines.
fn of_machines(target: &SimTarget) -> Option<Suspect> {
    let Shape::Guests { .. } = target.shape else {
        return None;
    };
    let tried = value(
        &format!("{MORE_IOTHREADS} times the iothreads"),
        &format!(
            "iothreads={} (QEMU: -object iothread,… for each, iothread-vq-mapping on the disk)",
            target.iothreads * MORE_IOTHREADS
        ),
        |t| t.iothreads *= MORE_IOTHREADS,
    );
    Some(Suspect {
        loads: vec![LoadId::Deep],
        refuted_by: "An iothread that is not busy all the time under this load.".into(),
        ..one(
            "iothread",
            "the iothread of the virtual machine",
            format!("{} per machine", target.iothreads),
            tried,
        )
    })
}

/// The same members, nothing of them missing, in another array.
fn relevel(t: &mut SimTarget, to: Level) {
    if let Shape::Raid { level, .. } = &mut t.shape {
        *level = to;
    }
    (t.lost, t.rebuild_mb_per_s) = (0, None);
}
