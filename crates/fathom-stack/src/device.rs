//! The block devices below a target: whole disks, what they are made of, and whether they work with
//! requests or with bios alone.

use std::path::{Path, PathBuf};

/// A whole disk (or loop, device-mapper, RAID, zram device).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Kernel name: `vda`.
    pub name: String,
    /// The kernel's number as in its events: major << 20 | minor.
    pub dev: u64,
    /// Names and numbers of the hidden paths of a head of NVMe's native multipath: the requests of its bios are theirs.
    pub paths: Vec<(String, u64)>,
    /// Bytes of a logical block: drivers count in these.
    pub block_bytes: u32,
    /// Whether it has hardware queues; without them the kernel shows only a bio's begin and end.
    pub has_requests: bool,
    /// Whether polling queues are configured.
    pub polls: bool,
    /// Scheduler in use, where there is one.
    pub scheduler: Option<String>,
    /// The file behind a loop device.
    pub loop_file: Option<PathBuf>,
}

impl Disk {
    /// Looks a disk up by its kernel name (`/sys/block/NAME`).
    pub fn named(name: &str) -> Option<Self> {
        Self::in_sys(Path::new("/sys/block"), name)
    }

    fn in_sys(block: &Path, name: &str) -> Option<Self> {
        let dir = block.join(name);
        let text = |file: &str| {
            std::fs::read_to_string(dir.join(file))
                .ok()
                .map(|t| t.trim().to_owned())
        };
        let numbers = text("dev")?;
        let (major, minor) = numbers.split_once(':')?;
        let paths = paths(name);
        // Requests queue at the paths of a head, which itself hands everything on.
        let queued = block.join(paths.first().map_or(name, |p| &p.0));
        let queues = std::fs::read_dir(queued.join("mq")).map_or(0, Iterator::count);
        let scheduler = std::fs::read_to_string(queued.join("queue/scheduler")).ok();
        let scheduler = scheduler.and_then(|s| {
            let chosen = s.split(['[', ']']).nth(1)?;
            Some(chosen.to_owned())
        });
        Some(Self {
            name: name.to_owned(),
            dev: number(major.parse().ok()?, minor.parse().ok()?),
            paths,
            block_bytes: text("queue/logical_block_size")
                .and_then(|t| t.parse().ok())
                .unwrap_or(512),
            has_requests: queues > 0,
            polls: text("queue/io_poll").as_deref() == Some("1"),
            scheduler,
            loop_file: text("loop/backing_file").map(PathBuf::from),
        })
    }

    /// The disks that this one is made of or lies on, nearest first (RAID and device-mapper members,
    /// the disk under a loop device's file).
    pub fn below(&self) -> Vec<Self> {
        let slaves = std::fs::read_dir(Path::new("/sys/block").join(&self.name).join("slaves"));
        let mut names: Vec<String> = slaves
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| whole_disk(e.file_name().to_str()?))
            .collect();
        if let Some(file) = &self.loop_file {
            names.extend(fathom_host::disks_behind(file));
        }
        names.sort();
        names.dedup();
        names.iter().filter_map(|n| Self::named(n)).collect()
    }
}

/// The paths of a multipath head, by name and number. They have no node: their numbers stand among the counters.
fn paths(head: &str) -> Vec<(String, u64)> {
    if !head.starts_with("nvme") {
        return Vec::new();
    }
    let counters = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?;
        (fathom_host::head_of(name)? == head).then(|| (name.to_owned(), number(major, minor)))
    };
    counters.lines().filter_map(line).collect()
}

/// A device's number as the kernel's events have it.
fn number(major: u64, minor: u64) -> u64 {
    major << 20 | minor
}

/// For events of these disks, their paths' included; of no disk where there are none.
pub(crate) fn filter<'a>(disks: impl Iterator<Item = &'a Disk>) -> String {
    let numbers = disks.flat_map(|d| std::iter::once(d.dev).chain(d.paths.iter().map(|p| p.1)));
    let all: Vec<String> = numbers.map(|n| format!("dev == {n}")).collect();
    // A target in memory has none: events of other disks say nothing about it.
    if all.is_empty() {
        return "dev == 0".to_owned();
    }
    all.join(" || ")
}

/// For events that name their disk, of these disks and their paths.
pub(crate) fn filter_by_name<'a>(disks: impl Iterator<Item = &'a Disk>) -> String {
    let names = disks.flat_map(|d| std::iter::once(&d.name).chain(d.paths.iter().map(|p| &p.0)));
    let all: Vec<String> = names.map(|n| format!("disk == \"{n}\"")).collect();
    all.join(" || ")
}

/// Of every path its own number and its head's.
pub(crate) fn heads<'a>(disks: impl Iterator<Item = &'a Disk>) -> Vec<(u64, u64)> {
    disks
        .flat_map(|d| d.paths.iter().map(|p| (p.1, d.dev)))
        .collect()
}

/// The disk that a device name belongs to: itself, or the parent of a partition.
fn whole_disk(name: &str) -> Option<String> {
    if Path::new("/sys/block").join(name).is_dir() {
        return Some(name.to_owned());
    }
    let link = std::fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
    link.parent()?.file_name()?.to_str().map(str::to_owned)
}

/// First sector of a block device on its disk: 0 of a whole disk, the start of a partition; `None` for
/// anything that is not a block device.
pub fn begins_at(path: &Path) -> Option<u64> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::metadata(path).ok()?;
    if !meta.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    let dir = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !dir.join("partition").exists() {
        return Some(0);
    }
    std::fs::read_to_string(dir.join("start"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// What lies below a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Disks that the target's own I/O is sent to.
    pub top: Vec<Disk>,
    /// Disks below those; their I/O is counted, and linked only where the same thread queues it.
    pub lower: Vec<Disk>,
}

impl Devices {
    /// Finds them below a file, a directory or a device node; none for memory.
    pub fn below(path: &Path) -> Self {
        Self::of(&fathom_host::disks_behind(path))
    }

    /// Finds them from the kernel names of the target's disks.
    pub fn of(disks: &[String]) -> Self {
        let top: Vec<Disk> = disks.iter().filter_map(|d| Disk::named(d)).collect();
        let mut lower: Vec<Disk> = Vec::new();
        let mut look: Vec<Disk> = top.clone();
        while let Some(disk) = look.pop() {
            for below in disk.below() {
                if !top.contains(&below) && !lower.contains(&below) {
                    look.push(below.clone());
                    lower.push(below);
                }
            }
        }
        Self { top, lower }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Disk> + Clone {
        self.top.iter().chain(&self.lower)
    }

    /// Numbers of those without interrupts of their own: a thread completes their requests.
    pub fn silent(&self) -> Vec<u64> {
        self.all()
            .filter(|d| d.loop_file.is_some() || !d.has_requests)
            .map(|d| d.dev)
            .collect()
    }

    /// Numbers of those without requests: a bio's end is all that they show.
    pub fn bio_based(&self) -> Vec<u64> {
        self.all()
            .filter(|d| !d.has_requests)
            .map(|d| d.dev)
            .collect()
    }

    /// Whether it is one of the target's own.
    pub fn is_top(&self, dev: u64) -> bool {
        self.top.iter().any(|d| d.dev == dev)
    }

    /// Name of a device by its number.
    pub fn name(&self, dev: u64) -> String {
        self.all().find(|d| d.dev == dev).map_or_else(
            || format!("{}:{}", dev >> 20, dev & 0xf_ffff),
            |d| d.name.clone(),
        )
    }
}

/// Whether this machine is itself a guest: then "device" means device, hypervisor and host together.
pub fn is_guest() -> bool {
    fathom_host::Environment::collect(None)
        .virtualization
        .hypervisor_present
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_described_by_its_sysfs_files() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("sdx");
        std::fs::create_dir_all(disk.join("mq/0")).unwrap();
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::write(disk.join("dev"), "8:16\n").unwrap();
        std::fs::write(disk.join("queue/scheduler"), "none [mq-deadline] bfq\n").unwrap();
        std::fs::write(disk.join("queue/io_poll"), "0\n").unwrap();
        let d = Disk::in_sys(dir.path(), "sdx").unwrap();
        assert_eq!(d.dev, 8 << 20 | 16);
        assert!(d.has_requests && !d.polls);
        assert_eq!(d.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(Disk::in_sys(dir.path(), "sdy"), None);
    }
}
