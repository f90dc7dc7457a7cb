//! Which block devices there are and how they hang together: disk, partitions, holders,
//! slaves, loop devices and what they are made of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::HostError;
use crate::root::{self, DeviceNumber, HostRoot, names, number, text};
use crate::sys::{self, LoopBacking};

/// One block device as sysfs shows it.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Kernel name, `/` written as `!`.
    pub(crate) name: String,
    /// Its directory in sysfs, links resolved.
    pub(crate) dir: PathBuf,
    pub(crate) number: DeviceNumber,
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    /// Disk of which this is a partition.
    pub(crate) parent: Option<String>,
    /// First byte on that disk.
    pub(crate) start_bytes: u64,
    pub(crate) partitions: Vec<String>,
    /// Devices made of this one.
    pub(crate) holders: Vec<String>,
    /// Devices that this one is made of.
    pub(crate) slaves: Vec<String>,
    /// File that a loop device is made of, as the kernel prints it.
    pub(crate) loop_file: Option<PathBuf>,
    /// The same by identity, where the device could be asked.
    pub(crate) loop_backing: Option<LoopBacking>,
    /// Where a loop device begins in what it is made of, and the bytes that it takes at most (0: all that follow).
    pub(crate) loop_part: (u64, u64),
    /// World-wide name, where it has one: the same for every path to one device.
    pub(crate) wwid: Option<String>,
    /// Of the head of NVMe's native multipath: its paths, which the kernel hides but which have the queues and count the I/O.
    pub(crate) paths: Vec<PathBuf>,
}

impl Node {
    /// Its node under `/dev`.
    pub(crate) fn path(&self, root: &HostRoot) -> PathBuf {
        root.dev.join(self.name.replace('!', "/"))
    }

    /// What the kernel calls its zones, where it takes writes only at their write pointers.
    pub(crate) fn zones(&self) -> Option<String> {
        let model = text(&self.dir.join("queue/zoned"));
        model.filter(|m| m == "host-managed")
    }

    /// Whether this is a loop device with nothing behind it, or the like.
    pub(crate) fn is_idle_placeholder(&self) -> bool {
        self.size_bytes == 0
            && self.loop_file.is_none()
            && ["loop", "zram", "ram", "nbd", "md"]
                .iter()
                .any(|kind| self.name.starts_with(kind))
    }
}

/// All block devices of a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<String, Node>,
}

impl Graph {
    /// Reads all of them. An error where sysfs is not there: no devices seen is not the same
    /// as no devices used.
    pub(crate) fn read(root: &HostRoot) -> Result<Self, HostError> {
        let class = root.sys.join("class/block");
        fs::read_dir(&class).map_err(|e| HostError::read(&class, e))?;
        let mut nodes = BTreeMap::new();
        let mut hidden = Vec::new();
        for name in names(&class) {
            if let Some(head) = head_of(&name) {
                hidden.extend(fs::canonicalize(class.join(&name)).map(|dir| (head, dir)));
            } else if let Some(node) = read_node(root, &class.join(&name), name.clone()) {
                nodes.insert(name, node);
            }
        }
        for (head, dir) in hidden {
            if let Some(node) = nodes.get_mut(&head) {
                node.paths.push(dir);
            }
        }
        Ok(Self { nodes })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    pub(crate) fn by_number(&self, number: DeviceNumber) -> Option<&Node> {
        self.nodes.values().find(|n| n.number == number)
    }

    /// The whole disk: itself, unless it is a partition.
    pub(crate) fn disk_of<'a>(&'a self, node: &'a Node) -> &'a Node {
        node.parent
            .as_deref()
            .and_then(|p| self.get(p))
            .unwrap_or(node)
    }
}

/// The head of a path of NVMe's native multipath: `nvme0c1n2` is path 1 of `nvme0n2`.
pub fn head_of(name: &str) -> Option<String> {
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let numbers = [subsystem, controller, namespace];
    let all = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (numbers.iter().all(|s| all(s))).then(|| format!("nvme{subsystem}n{namespace}"))
}

fn read_node(root: &HostRoot, link: &Path, name: String) -> Option<Node> {
    let dir = fs::canonicalize(link).ok()?;
    let device_number = text(&dir.join("dev"))?.parse().ok()?;
    let is_partition = dir.join("partition").exists();
    let parent = is_partition
        .then(|| Some(dir.parent()?.file_name()?.to_str()?.to_string()))
        .flatten();
    let partitions = names(&dir)
        .into_iter()
        // The kernel names them after their disk: nothing else there has to be asked.
        .filter(|n| n.starts_with(&name) && dir.join(n).join("partition").exists())
        .collect();
    let sectors = |file: &str| number::<u64>(&dir.join(file)).unwrap_or(0);
    let loop_file = text(&dir.join("loop/backing_file")).map(PathBuf::from);
    let mut node = Node {
        number: device_number,
        size_bytes: sectors("size").saturating_mul(512),
        start_bytes: sectors("start").saturating_mul(512),
        read_only: root::flag(&dir.join("ro")).unwrap_or(false),
        parent,
        partitions,
        holders: names(&dir.join("holders")),
        slaves: names(&dir.join("slaves")),
        loop_backing: None,
        loop_part: (
            number(&dir.join("loop/offset")).unwrap_or(0),
            number(&dir.join("loop/sizelimit")).unwrap_or(0),
        ),
        wwid: text(&dir.join("wwid")).or_else(|| text(&dir.join("device/wwid"))),
        loop_file,
        name,
        dir,
        paths: Vec::new(),
    };
    node.loop_backing = node
        .loop_file
        .as_ref()
        .and_then(|file| backing(root, &node, file));
    Some(node)
}

/// What a loop device is made of: asked from the device, else from the path it prints.
fn backing(root: &HostRoot, node: &Node, file: &Path) -> Option<LoopBacking> {
    use std::os::unix::fs::MetadataExt;
    if let Ok(device) = fs::File::open(node.path(root))
        && let Ok(backing) = sys::loop_backing(&device)
    {
        return Some(backing);
    }
    let meta = fs::metadata(file).ok();
    let block = root.number_of_node(file);
    (meta.is_some() || block.is_some()).then(|| LoopBacking {
        device: DeviceNumber::from_raw(meta.as_ref().map_or(0, |m| m.dev())),
        inode: meta.as_ref().map_or(0, |m| m.ino()),
        block,
    })
}
