//! Settings of a block device's request queue, which decide what a benchmark measures.

use std::path::Path;

use serde::Serialize;

use super::graph::Node;
use crate::root::{choice, flag, number, text};

/// `/sys/block/NAME/queue`; a setting that this kernel or driver has not is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueueSettings {
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Schedulers to choose from.
    pub schedulers_available: Vec<String>,
    /// Requests that the queue holds.
    pub nr_requests: Option<u64>,
    /// Hardware queues.
    pub hardware_queues: Option<u32>,
    /// Whether completions may be polled for.
    pub io_poll: Option<bool>,
    /// Queues set apart for polling (NVMe), where the driver says.
    pub poll_queues: Option<u64>,
    /// `write back` (volatile cache) or `write through`.
    pub write_cache: Option<String>,
    /// Whether the device has forced unit access.
    pub fua: Option<bool>,
    /// Largest request that the kernel sends, KiB.
    pub max_sectors_kb: Option<u64>,
    /// Largest request that the hardware takes, KiB.
    pub max_hw_sectors_kb: Option<u64>,
    /// Largest discard, bytes; 0 where there is none.
    pub discard_max_bytes: Option<u64>,
    /// Smallest unit of discard, bytes.
    pub discard_granularity_bytes: Option<u64>,
    /// Read-ahead of buffered reads, KiB.
    pub read_ahead_kb: Option<u64>,
    /// 0: merge requests, 1: only simple merges, 2: none.
    pub nomerges: Option<u64>,
    /// Latency target of writeback throttling, µs; 0 where off.
    pub wbt_lat_usec: Option<i64>,
    /// CPU on which completions run: 0 any, 1 same group, 2 same CPU.
    pub rq_affinity: Option<u64>,
    /// Whether the device counts its I/O (needed for [`crate::counters`]).
    pub iostats: Option<bool>,
    /// `none`, `host-aware`, `host-managed`.
    pub zoned: Option<String>,
    /// Zones, where there are any.
    pub zones: Option<u64>,
    /// Zones that can be open at a time; 0 for any number.
    pub max_open_zones: Option<u64>,
    /// Zones that can be active at a time; 0 for any number.
    pub max_active_zones: Option<u64>,
    /// Largest append to a zone, bytes.
    pub zone_append_max_bytes: Option<u64>,
    /// Smallest and largest write that the kernel promises to do whole or not at all (RWF_ATOMIC), bytes; 0 where the device
    /// has none, `None` before Linux 6.11.
    pub atomic_write_unit_min_bytes: Option<u64>,
    /// See above.
    pub atomic_write_unit_max_bytes: Option<u64>,
    /// Alignment of buffers for direct I/O, bytes.
    pub dma_alignment_bytes: Option<u64>,
    /// I/O size that performs best, bytes; 0 where unknown.
    pub optimal_io_bytes: Option<u64>,
}

/// Queue settings of a whole disk.
pub(crate) fn of(disk: &Node) -> Option<QueueSettings> {
    if !disk.dir.join("queue").is_dir() {
        return None;
    }
    // A multipath head hands everything on: requests queue at its paths.
    let dir = disk.paths.first().unwrap_or(&disk.dir);
    let queue = dir.join("queue");
    let n = |name: &str| number::<u64>(&queue.join(name));
    let (scheduler, schedulers_available) =
        choice(&text(&queue.join("scheduler")).unwrap_or_default());
    let zoned = text(&queue.join("zoned"));
    let of_zones = |name: &str| n(name).filter(|_| zoned.as_deref().is_some_and(|z| z != "none"));
    Some(QueueSettings {
        scheduler,
        schedulers_available,
        nr_requests: n("nr_requests"),
        hardware_queues: hardware_queues(dir),
        io_poll: flag(&disk.dir.join("queue/io_poll")),
        poll_queues: poll_queues(disk),
        write_cache: text(&queue.join("write_cache")),
        fua: flag(&queue.join("fua")),
        max_sectors_kb: n("max_sectors_kb"),
        max_hw_sectors_kb: n("max_hw_sectors_kb"),
        discard_max_bytes: n("discard_max_bytes"),
        discard_granularity_bytes: n("discard_granularity"),
        read_ahead_kb: n("read_ahead_kb"),
        nomerges: n("nomerges"),
        wbt_lat_usec: number(&queue.join("wbt_lat_usec")),
        rq_affinity: n("rq_affinity"),
        iostats: flag(&queue.join("iostats")),
        zones: of_zones("nr_zones"),
        max_open_zones: of_zones("max_open_zones"),
        max_active_zones: of_zones("max_active_zones"),
        zone_append_max_bytes: of_zones("zone_append_max_bytes"),
        zoned,
        atomic_write_unit_min_bytes: n("atomic_write_unit_min_bytes"),
        atomic_write_unit_max_bytes: n("atomic_write_unit_max_bytes"),
        // The file holds a mask.
        dma_alignment_bytes: n("dma_alignment").map(|mask| mask + 1),
        optimal_io_bytes: n("optimal_io_size"),
    })
}

fn hardware_queues(dir: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(dir.join("mq")).ok()?;
    u32::try_from(entries.count()).ok()
}

/// NVMe's poll queues are a parameter of the module, the same for all its devices.
fn poll_queues(disk: &Node) -> Option<u64> {
    if !disk.name.starts_with("nvme") {
        return None;
    }
    let sys = disk
        .dir
        .ancestors()
        .find(|a| a.join("class/block").is_dir())?;
    number(&sys.join("module/nvme/parameters/poll_queues"))
}
