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
    let mut all = vec![
        Suspect {
            id: "idle-states",
            cause: "the idle states of the processors".into(),
            now: "idle states as they are".into(),
            values: vec![value(
                "processors kept awake",
                "idle=busy (on a machine: hold /dev/cpu_dma_latency at 0, or tuned-adm profile latency-performance)",
                awake,
            )],
            under: Vec::new(),
            loads: vec![LoadId::One],
            is_setting: true,
            refuted_by: "The same latency where other work keeps the cores awake anyway.".into(),
        },
        Suspect {
            id: "completion",
            cause: "the way in which completions arrive".into(),
            now: "interrupts".into(),
            values: vec![value(
                "polled completions",
                "poll (on a machine: --iopoll, with poll queues)",
                |t| t.host.completions = Completions::Polling,
            )],
            // Who polls does not sleep: what sleeping costs is the idle states' account.
            under: vec![Change::Model(awake)],
            loads: vec![LoadId::One],
            is_setting: true,
            refuted_by:
                "fathom stack, where the time between the device and the application is short."
                    .into(),
        },
        Suspect {
            id: "scheduler",
            cause: "the I/O scheduler".into(),
            now: "the scheduler as it is".into(),
            values: vec![value(
                "no scheduler",
                "scheduler=0 (on a machine: echo none > /sys/block/DISK/queue/scheduler)",
                |t| t.host.scheduler_ns = 0,
            )],
            under: Vec::new(),
            loads: vec![LoadId::One, LoadId::Core],
            is_setting: true,
            refuted_by: "The same rate per processor without a scheduler.".into(),
        },
        Suspect {
            id: "stacked-layer",
            cause: "a layer between the block layer and the device".into(),
            now: "the layers as they are".into(),
            values: vec![value(
                "without the stacked layer",
                "layer=0 (on a machine: use the device below, or give the layer more workers)",
                |t| t.layer_ns = 0,
            )],
            under: Vec::new(),
            loads: vec![LoadId::One, LoadId::Deep],
            is_setting: false,
            refuted_by: "The same load on the device below the layer being as slow.".into(),
        },
        Suspect {
            id: "cache-size",
            cause: "the size of the page cache".into(),
            now: format!("{} MiB of cache", target.cache_bytes >> 20),
            values: vec![value(
                &format!("{MORE_CACHE} times the cache"),
                &format!(
                    "cache={}m, or a smaller working set",
                    target.cache_bytes.saturating_mul(MORE_CACHE) >> 20
                ),
                |t| t.cache_bytes = t.cache_bytes.saturating_mul(MORE_CACHE),
            )],
            under: Vec::new(),
            loads: vec![LoadId::Cached],
            is_setting: false,
            refuted_by: "A share of hits that does not grow with the cache.".into(),
        },
    ];
    if let Shape::Raid {
        level: Level::Raid5 | Level::Raid6,
        members,
    } = target.shape
    {
        let (label, change): (_, fn(&mut SimTarget)) = if members.is_multiple_of(2) {
            ("RAID 10 of the same members", |t| relevel(t, Level::Raid10))
        } else {
            ("RAID 0 of the same members", |t| relevel(t, Level::Raid0))
        };
        all.push(Suspect {
            id: "parity",
            cause: "the parity of the array".into(),
            now: "small writes with parity".into(),
            values: vec![value(
                label,
                "RAID 10, or writes of whole stripes; fathom raid shows both on your members",
                change,
            )],
            under: Vec::new(),
            loads: vec![LoadId::Writes],
            is_setting: false,
            refuted_by: "The same rate of small writes on an array without parity.".into(),
        });
    }
    if let Shape::Guests { .. } = target.shape {
        all.push(Suspect {
            id: "iothread",
            cause: "the iothread of the virtual machine".into(),
            now: format!("{} per machine", target.iothreads),
            values: vec![value(
                &format!("{MORE_IOTHREADS} times the iothreads"),
                &format!(
                    "iothreads={} (QEMU: -object iothread,… for each, iothread-vq-mapping on the disk)",
                    target.iothreads * MORE_IOTHREADS
                ),
                |t| t.iothreads *= MORE_IOTHREADS,
            )],
            under: Vec::new(),
            loads: vec![LoadId::Deep],
            is_setting: false,
            refuted_by: "An iothread that is not busy all the time under this load.".into(),
        });
    }
    all
}

/// The same members, nothing of them missing, in another array.
fn relevel(t: &mut SimTarget, to: Level) {
    if let Shape::Raid { level, .. } = &mut t.shape {
        *level = to;
    }
    (t.lost, t.rebuild_mb_per_s) = (0, None);
}
