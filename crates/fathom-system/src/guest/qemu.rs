//! QEMU as a child process: its command line, its descriptors, its end.
//!
//! Nothing lies on a disk for it: kernel and initramfs come from files that are there or from memory, port and
//! console are descriptors that it inherits. It dies with the thread that started it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fathom_telemetry::Bytes;

use super::accel::Accelerator;
use super::vhost::Server;
use crate::SystemError;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// Name of the port between host and guest.
pub const PORT: &str = "fathom.0";

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

/// A guest's hardware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
    /// Disks, in order.
    pub disks: Vec<Disk>,
    /// Modules beside those that every guest loads.
    pub modules: Vec<String>,
}

impl Machine {
    /// One processor and 512 MiB.
    pub fn new(disks: Vec<Disk>) -> Self {
        Self {
            cpus: 1,
            memory: Bytes::mib(512),
            disks,
            modules: Vec::new(),
        }
    }

    /// Modules that its disks need.
    pub fn all_modules(&self) -> Vec<&str> {
        let mut all: Vec<&str> = super::modules::BASE.to_vec();
        for d in &self.disks {
            match d.model {
                DiskModel::VirtioBlk | DiskModel::VhostUser => {}
                DiskModel::VirtioScsi => all.extend(["virtio_scsi", "sd_mod"]),
                DiskModel::Nvme => all.push("nvme"),
            }
        }
        all.extend(self.modules.iter().map(String::as_str));
        all
    }

    /// Arguments of QEMU.
    fn arguments(&self, accelerator: &Accelerator, files: &Files) -> Vec<String> {
        let cpu = if accelerator.is_emulated() {
            "max"
        } else {
            "host"
        };
        let mut a: Vec<String> = [
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-cpu",
            cpu,
        ]
        .map(str::to_owned)
        .into();
        let mut put = |name: &str, value: String| a.extend([name.to_owned(), value]);
        put("-accel", accelerator.option().into());
        let memory = self.memory.0 >> 20;
        put("-m", memory.to_string());
        if files.served.is_empty() {
            put("-machine", "q35".into());
        } else {
            // Who serves a disk reads and writes the guest's memory.
            put(
                "-object",
                format!("memory-backend-memfd,id=shared,size={memory}M,share=on"),
            );
            put("-machine", "q35,memory-backend=shared".into());
        }
        for (i, fd) in &files.served {
            put("-chardev", format!("socket,id=served{i},fd={fd}"));
        }
        put("-smp", self.cpus.to_string());
        put("-kernel", files.kernel.display().to_string());
        put("-initrd", format!("/proc/self/fd/{}", files.initramfs));
        // Where the host is busy the kernel's test of its timer fails, and it would not boot.
        put(
            "-append",
            "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t,f no_timer_check nokaslr mitigations=off random.trust_cpu=on rdinit=/init -- guest-agent".into(),
        );
        put(
            "-chardev",
            format!(
                "file,id=console,path=/proc/self/fd/{},append=on",
                files.console
            ),
        );
        put("-serial", "chardev:console".into());
        put("-chardev", format!("socket,id=port,fd={}", files.port));
        put("-device", "virtio-serial-pci".into());
        put(
            "-device",
            format!("virtserialport,chardev=port,name={PORT}"),
        );
        for (i, d) in self.disks.iter().enumerate() {
            a.extend(d.arguments(i));
        }
        a
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

    fn arguments(&self, i: usize) -> Vec<String> {
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

/// Files that QEMU gets: a path, and numbers of descriptors.
struct Files {
    kernel: PathBuf,
    initramfs: RawFd,
    console: RawFd,
    port: RawFd,
    /// Disks that other processes serve, and the connections to them.
    served: Vec<(usize, RawFd)>,
}

/// A file that has no name and no place on any disk.
///
/// # Errors
/// Where the kernel has no memory for it.
pub fn memory_file(name: &std::ffi::CStr) -> std::io::Result<File> {
    // SAFETY: the name is terminated; the descriptor is checked and owned by nobody else.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just made.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// A running QEMU. Dropping it ends it.
#[derive(Debug)]
pub struct Qemu {
    child: Child,
    console: File,
    /// Dropped after QEMU's end.
    _servers: Vec<Server>,
}

impl Qemu {
    /// Starts a machine; the stream is the host's end of its port.
    ///
    /// # Errors
    /// Where QEMU is not installed or cannot be started.
    pub fn start(
        kernel: &Path,
        initramfs: &File,
        machine: &Machine,
        accelerator: &Accelerator,
    ) -> Result<(Self, UnixStream), SystemError> {
        let failed = |what: &str, e: std::io::Error| SystemError::Failed(format!("{what}: {e}"));
        let console =
            memory_file(c"fathom-console").map_err(|e| failed("no memory for a console", e))?;
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed("no socket for a guest", e))?;
        let mut servers = Vec::new();
        let mut connections = Vec::new();
        for (i, disk) in machine.disks.iter().enumerate() {
            if disk.model == DiskModel::VhostUser {
                let (server, connection) = Server::start(disk, i)?;
                servers.push(server);
                connections.push((i, connection));
            }
        }
        let files = Files {
            kernel: kernel.to_owned(),
            initramfs: initramfs.as_raw_fd(),
            console: console.as_raw_fd(),
            port: theirs.as_raw_fd(),
            served: connections
                .iter()
                .map(|(i, c)| (*i, c.as_raw_fd()))
                .collect(),
        };
        let mut inherited = vec![files.initramfs, files.console, files.port];
        inherited.extend(files.served.iter().map(|s| s.1));
        let parent = std::process::id();
        let mut command = Command::new(PROGRAM);
        crate::orphans::stamp(&mut command)
            .args(machine.arguments(accelerator, &files))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(console.try_clone().map_err(|e| failed("no console", e))?)
            // A terminal's Ctrl-C is for fathom, which ends its guests itself.
            .process_group(0);
        // SAFETY: between fork and exec only system calls are made, which neither allocate nor lock.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(
                    libc::PR_SET_PDEATHSIG,
                    libc::SIGKILL as libc::c_ulong,
                    0,
                    0,
                    0,
                );
                if libc::getppid() as u32 != parent {
                    return Err(std::io::Error::other("fathom is gone"));
                }
                for fd in inherited.iter().copied() {
                    if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => missing(),
            _ => failed("QEMU cannot be started", e),
        })?;
        let qemu = Self {
            child,
            console,
            _servers: servers,
        };
        Ok((qemu, ours))
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What kernel, agent and QEMU said.
    pub fn said(&mut self) -> String {
        let mut text = Vec::new();
        let read = self
            .console
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.console.read_to_end(&mut text));
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// QEMU is not there.
pub fn missing() -> SystemError {
    SystemError::Missing {
        what: format!("{PROGRAM} is not installed"),
        remedy: "install it: apt-get install qemu-system-x86".into(),
    }
}

/// Its version; the error says how to install it.
///
/// # Errors
/// Where it is not installed.
pub fn version() -> Result<String, SystemError> {
    let out = Command::new(PROGRAM)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| missing())?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().next().unwrap_or("QEMU").trim().to_owned())
}

/// An archive in memory.
///
/// # Errors
/// Where there is no memory.
pub fn in_memory(
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let mut file = memory_file(c"fathom-initramfs")?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, &mut file);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
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
