//! A guest's disk, and QEMU's words for it.

use std::path::PathBuf;

use fathom_telemetry::Bytes;

/// What lies behind a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// A part of a file or block device.
    Part {
        /// Its path.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        size: Bytes,
    },
    /// A disk that answers at once and keeps nothing.
    Null {
        /// What it pretends to hold.
        size: Bytes,
    },
}

/// How the guest sees a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskModel {
    /// virtio-blk.
    #[default]
    VirtioBlk,
    /// virtio-scsi.
    VirtioScsi,
    /// NVMe.
    Nvme,
    /// virtio-blk whose queues another process serves.
    VhostUser,
}

/// QEMU's cache modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// O_DIRECT.
    #[default]
    None,
    /// The host's page cache.
    Writeback,
    /// The same, each write made durable.
    Writethrough,
    /// O_DIRECT, each write made durable.
    Directsync,
    /// The host's page cache, flushes ignored.
    Unsafe,
}

impl Cache {
    /// O_DIRECT, flushes ignored, a write cache shown to the guest.
    fn parts(self) -> (bool, bool, bool) {
        match self {
            Self::None => (true, false, true),
            Self::Writeback => (false, false, true),
            Self::Writethrough => (false, false, false),
            Self::Directsync => (true, false, false),
            Self::Unsafe => (false, true, true),
        }
    }
}

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// What lies behind it.
    pub backing: Backing,
    /// How the guest sees it.
    pub model: DiskModel,
    /// How the host caches it.
    pub cache: Cache,
    /// `threads`, `native` or `io_uring`.
    pub aio: &'static str,
    /// Whether it has a thread of its own in QEMU.
    pub iothread: bool,
    /// Longest time that this thread polls, ns; `None` leaves QEMU's default.
    pub poll_ns: Option<u64>,
    /// Queues; `None` leaves QEMU's default.
    pub queues: Option<u32>,
    /// Bytes per second that it is held to.
    pub bytes_per_s: Option<u64>,
    /// I/Os per second that it is held to.
    pub ios_per_s: Option<u64>,
}

impl Disk {
    /// The usual: virtio-blk, io_uring, O_DIRECT, a thread of its own.
    pub fn new(backing: Backing) -> Self {
        Self {
            backing,
            model: DiskModel::default(),
            cache: Cache::default(),
            aio: "io_uring",
            iothread: true,
            poll_ns: None,
            queues: None,
            bytes_per_s: None,
            ios_per_s: None,
        }
    }

    /// Serial number of the guest's disk `i`.
    pub fn serial(i: usize) -> String {
        format!("fathom-{i}")
    }
}

impl Disk {
    /// Its nodes and its thread, for QEMU or for who serves it.
    pub(crate) fn node_arguments(&self, i: usize) -> Vec<String> {
        let (direct, no_flush, _) = self.cache.parts();
        let on = |b: bool| if b { "on" } else { "off" };
        let caching = format!(
            "cache.direct={},cache.no-flush={}",
            on(direct),
            on(no_flush)
        );
        let mut a = Vec::new();
        let mut put = |name: &str, value: String| a.extend([name.to_owned(), value]);
        match &self.backing {
            Backing::Part { path, offset, size } => {
                let driver = if path.starts_with("/dev") {
                    "host_device"
                } else {
                    "file"
                };
                // A comma in a path is doubled.
                let path = path.display().to_string().replace(',', ",,");
                // Several machines have parts of one file, and fathom itself has it open.
                put(
                    "--blockdev",
                    format!(
                        "driver={driver},node-name=file{i},filename={path},aio={},locking=off,{caching}",
                        self.aio
                    ),
                );
                put(
                    "--blockdev",
                    format!(
                        "driver=raw,node-name=disk{i},file=file{i},offset={offset},size={},{caching}",
                        size.0
                    ),
                );
            }
            Backing::Null { size } => put(
                "--blockdev",
                format!(
                    "driver=null-co,node-name=disk{i},size={},read-zeroes=on",
                    size.0
                ),
            ),
        }
        if self.is_limited() {
            let mut limits = Vec::new();
            limits.extend(self.bytes_per_s.map(|b| format!("\"bps-total\":{b}")));
            limits.extend(self.ios_per_s.map(|b| format!("\"iops-total\":{b}")));
            put(
                "--object",
                format!(
                    "{{\"qom-type\":\"throttle-group\",\"id\":\"limit{i}\",\"limits\":{{{}}}}}",
                    limits.join(",")
                ),
            );
            put(
                "--blockdev",
                format!("driver=throttle,node-name=slow{i},file=disk{i},throttle-group=limit{i}"),
            );
        }
        if self.iothread && self.model != DiskModel::Nvme {
            let poll = self
                .poll_ns
                .map_or_else(String::new, |ns| format!(",poll-max-ns={ns}"));
            put("--object", format!("iothread,id=thread{i}{poll}"));
        }
        a
    }

    /// Whether it is held to a speed.
    fn is_limited(&self) -> bool {
        self.bytes_per_s.is_some() || self.ios_per_s.is_some()
    }

    /// Its uppermost node.
    pub(crate) fn node(&self, i: usize) -> String {
        if self.is_limited() {
            format!("slow{i}")
        } else {
            format!("disk{i}")
        }
    }

    pub(crate) fn arguments(&self, i: usize) -> Vec<String> {
        let mut a = Vec::new();
        if self.model != DiskModel::VhostUser {
            a = self.node_arguments(i);
        }
        let on = |b: bool| if b { "on" } else { "off" };
        let mut put = |name: &str, value: String| a.extend([name.to_owned(), value]);
        let (_, _, write_cache) = self.cache.parts();
        let node = self.node(i);
        let device = if self.iothread && self.model != DiskModel::Nvme {
            format!(",iothread=thread{i}")
        } else {
            String::new()
        };
        let serial = Self::serial(i);
        let queues = |name: &str| {
            self.queues
                .map_or_else(String::new, |n| format!(",{name}={n}"))
        };
        match self.model {
            DiskModel::VirtioBlk => put(
                "-device",
                format!(
                    "virtio-blk-pci,drive={node},serial={serial},write-cache={}{device}{}",
                    on(write_cache),
                    queues("num-queues")
                ),
            ),
            DiskModel::VirtioScsi => {
                put(
                    "-device",
                    format!("virtio-scsi-pci,id=scsi{i}{device}{}", queues("num_queues")),
                );
                put(
                    "-device",
                    format!(
                        "scsi-hd,bus=scsi{i}.0,drive={node},serial={serial},write-cache={}",
                        on(write_cache)
                    ),
                );
            }
            DiskModel::VhostUser => put(
                "-device",
                format!(
                    "vhost-user-blk-pci,chardev=served{i},num-queues={}",
                    self.queues.unwrap_or(1)
                ),
            ),
            DiskModel::Nvme => put(
                "-device",
                format!(
                    "nvme,drive={node},serial={serial}{}",
                    queues("max_ioqpairs")
                ),
            ),
        }
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(disk: &Disk) -> String {
        disk.arguments(3).join(" ")
    }

    fn part() -> Disk {
        Disk::new(Backing::Part {
            path: "/data/a,b".into(),
            offset: 4096,
            size: Bytes(8192),
        })
    }

    #[test]
    fn a_disk_is_a_part_of_a_file_that_others_may_share() {
        let said = line(&part());
        assert!(
            said.contains("filename=/data/a,,b,aio=io_uring,locking=off,cache.direct=on"),
            "{said}"
        );
        assert!(said.contains("offset=4096,size=8192"), "{said}");
        assert!(
            said.contains(
                "virtio-blk-pci,drive=disk3,serial=fathom-3,write-cache=on,iothread=thread3"
            ),
            "{said}"
        );
    }

    #[test]
    fn settings_become_qemus_own() {
        let disk = Disk {
            cache: Cache::Directsync,
            aio: "native",
            queues: Some(4),
            poll_ns: Some(0),
            ios_per_s: Some(500),
            model: DiskModel::VirtioScsi,
            ..part()
        };
        let said = line(&disk);
        for part in [
            "aio=native",
            "cache.direct=on,cache.no-flush=off",
            "\"iops-total\":500",
            "iothread,id=thread3,poll-max-ns=0",
            "virtio-scsi-pci,id=scsi3,iothread=thread3,num_queues=4",
            "scsi-hd,bus=scsi3.0,drive=slow3,serial=fathom-3,write-cache=off",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let null = Disk {
            model: DiskModel::Nvme,
            ..Disk::new(Backing::Null {
                size: Bytes::gib(1),
            })
        };
        let said = line(&null);
        assert!(
            said.contains("driver=null-co")
                && said.contains("nvme,drive=disk3")
                && !said.contains("iothread"),
            "{said}"
        );
    }
}
