//! What block devices there are, what they are, what uses them, and whether fathom may
//! read or write them.

pub(crate) mod attached;
mod exports;
pub(crate) mod graph;
mod identity;
pub mod nvme;
pub(crate) mod occupancy;
mod openers;
mod operations;
mod passthrough;
mod queue;
pub(crate) mod uses;
pub(crate) mod words;

use std::path::PathBuf;

use fathom_files::open;
use serde::Serialize;

use crate::error::HostError;
use crate::judge;
use crate::refusal::Refusal;
use crate::root::{DeviceNumber, HostRoot, flag, number};
use crate::signature;
use graph::{Graph, Node};
use occupancy::Occupancy;

pub use graph::head_of;
pub use operations::{Operations, Placement};
pub use passthrough::{Passthrough, block_device_of, takes_commands};
pub use queue::QueueSettings;
pub use uses::Use;
pub use words::Word;

/// A disk, partition, loop, device-mapper or RAID device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// Kernel name: `nvme0n1p2`.
    pub name: String,
    /// Its node: `/dev/nvme0n1p2`.
    pub path: PathBuf,
    /// Major and minor number.
    pub number: DeviceNumber,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest unit of I/O, bytes.
    pub logical_block_bytes: Option<u64>,
    /// Unit that the device writes without reading first, bytes.
    pub physical_block_bytes: Option<u64>,
    /// Model (a partition shows that of its disk, likewise below).
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// How it is attached: `nvme (pcie)`, `sata`, `virtio`, `loop`, …
    pub transport: Option<String>,
    /// Whether it says that it has spinning disks.
    pub rotational: Option<bool>,
    /// Whether the medium can be taken out.
    pub removable: Option<bool>,
    /// Whether the kernel refuses writes.
    pub read_only: bool,
    /// Queue settings.
    pub queue: Option<QueueSettings>,
    /// Of a namespace, what its drive says of itself.
    pub nvme: Option<nvme::Nvme>,
    /// Kernel names of its partitions.
    pub partitions: Vec<String>,
    /// Disk of which it is a partition.
    pub parent: Option<String>,
    /// Kernel names of the devices that it is made of (RAID, device-mapper).
    pub made_of: Vec<String>,
    /// Words that name it after `--destroy`, the first one to be shown.
    pub words: Vec<Word>,
    /// What it is used for, live uses first.
    pub uses: Vec<Use>,
    /// What fathom may do with it.
    pub verdict: Verdict,
}

impl BlockDevice {
    /// Whether what was typed after `--destroy` names it and nothing else.
    pub fn is_named_by(&self, typed: &str) -> bool {
        self.words.iter().any(|w| w.is(typed))
    }
}

/// What fathom may do with a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Reading.
    pub read: Access,
    /// Writing.
    pub write: Access,
}

/// Whether something is allowed, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "access", rename_all = "kebab-case")]
pub enum Access {
    /// Yes.
    Allowed,
    /// Yes, after `--destroy IDENTITY`.
    Confirm {
        /// What must be typed after `--destroy`.
        destroy: String,
    },
    /// No. `message` is the refusal's sentence.
    Refused {
        /// Why, and what would make it possible.
        refusal: Box<Refusal>,
        /// The same as a sentence.
        message: String,
    },
}

impl Access {
    fn refused(refusal: Refusal) -> Self {
        Self::Refused {
            message: refusal.to_string(),
            refusal: Box::new(refusal),
        }
    }

    /// Whether it is possible at all.
    pub fn is_possible(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

/// All block devices of this machine; loop devices and the like without anything behind
/// them are left out.
pub fn block_devices() -> Result<Vec<BlockDevice>, HostError> {
    block_devices_in(&HostRoot::real())
}

/// The same for a machine described by other trees.
pub fn block_devices_in(root: &HostRoot) -> Result<Vec<BlockDevice>, HostError> {
    let graph = Graph::read(root)?;
    let occupancy = Occupancy::gather(root, &graph)?.with_openers(root);
    Ok(graph
        .nodes
        .values()
        .filter(|n| !n.is_idle_placeholder())
        .map(|node| describe(root, &graph, &occupancy, node))
        .collect())
}

/// One block device of this machine by number, with everything that is known about it.
pub fn block_device(number: DeviceNumber) -> Result<Option<BlockDevice>, HostError> {
    block_device_in(&HostRoot::real(), number)
}

pub(crate) fn block_device_in(
    root: &HostRoot,
    number: DeviceNumber,
) -> Result<Option<BlockDevice>, HostError> {
    let graph = Graph::read(root)?;
    let occupancy = Occupancy::gather(root, &graph)?;
    Ok(graph
        .by_number(number)
        .map(|node| describe(root, &graph, &occupancy, node)))
}

/// Everything about a device except who uses it and what may be done with it.
pub(crate) fn facts(root: &HostRoot, graph: &Graph, node: &Node) -> BlockDevice {
    let disk = graph.disk_of(node);
    let identity = identity::of(root, disk);
    let queue_number = |name: &str| number(&disk.dir.join("queue").join(name));
    BlockDevice {
        name: node.name.clone(),
        path: node.path(root),
        number: node.number,
        size_bytes: node.size_bytes,
        logical_block_bytes: queue_number("logical_block_size"),
        physical_block_bytes: queue_number("physical_block_size"),
        model: identity.model,
        serial: identity.serial,
        firmware: identity.firmware,
        transport: identity.transport,
        rotational: flag(&disk.dir.join("queue/rotational")),
        removable: flag(&disk.dir.join("removable")),
        read_only: node.read_only,
        queue: queue::of(disk),
        nvme: nvme::of(root, disk),
        partitions: node.partitions.clone(),
        parent: node.parent.clone(),
        made_of: node.slaves.clone(),
        words: words::words(root, graph, node),
        uses: Vec::new(),
        verdict: Verdict {
            read: Access::Allowed,
            write: Access::Allowed,
        },
    }
}

fn describe(root: &HostRoot, graph: &Graph, occupancy: &Occupancy, node: &Node) -> BlockDevice {
    let mut device = facts(root, graph, node);
    let path = device.path.clone();
    let opened = open::for_reading(&path, 0);
    device.uses = occupancy.of(root, node);
    let uses = &mut device.uses;
    uses.extend(node.loop_file.clone().map(|file| Use::LoopBacking { file }));
    uses.extend(node.parent.clone().map(|disk| Use::PartitionOf { disk }));
    if let Ok(file) = &opened
        && let Ok(found) = signature::on_medium(file, node.size_bytes)
    {
        uses.extend(found.iter().map(Use::from_signature));
    }
    device.verdict.read = match &opened {
        Ok(_) if node.size_bytes == 0 => Access::refused(Refusal::Empty { path: path.clone() }),
        Ok(_) => Access::Allowed,
        Err(e) => Access::refused(Refusal::from_io("read", &path, e)),
    };
    device.verdict.write = match judge::judge(root, graph, occupancy, node, &path) {
        Ok(()) => Access::Confirm {
            destroy: device.words[0].word.clone(),
        },
        Err(refusal) => Access::refused(refusal),
    };
    device
}
