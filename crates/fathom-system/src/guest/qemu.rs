//! QEMU as a child process: its command line, its descriptors, its end.
//!
//! Nothing lies on a disk for it: kernel and initramfs come from files that are there or from memory, port and
//! console are descriptors that it inherits. It dies with the thread that started it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fathom_telemetry::Bytes;

use super::accel::Accelerator;
use super::disk::{Disk, DiskModel};
use super::tools::Tools;
use super::vhost::Server;
use crate::packages;
use crate::{SystemError, programs};

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// What brings it: nothing to a processor that is no guest's.
pub const PACKAGE: &str = if cfg!(target_arch = "x86_64") {
    "qemu-system-x86"
} else {
    ""
};
/// Name of the port between host and guest.
pub const PORT: &str = "fathom.0";

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
    /// Programs and files beside fathom.
    pub tools: Tools,
    /// Further arguments of QEMU: devices that no [`DiskModel`] describes.
    pub devices: Vec<String>,
    /// Further parameters of the kernel.
    pub parameters: Vec<String>,
}

impl Machine {
    /// One processor and 512 MiB.
    pub fn new(disks: Vec<Disk>) -> Self {
        Self {
            cpus: 1,
            memory: Bytes::mib(512),
            disks,
            modules: Vec::new(),
            tools: Tools::default(),
            devices: Vec::new(),
            parameters: Vec::new(),
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
        // QEMU 7.2's translator and Linux 6.12: with cmpxchg16b the kernel dies at boot, nearly always. "Fast strings" are
        // translated byte by byte: without them the kernel copies and clears pages by words. And what was translated of a program
        // is used again where it lies at the same address: its next start takes two fifths of the time.
        let (cpu, addresses) = if accelerator.is_emulated() {
            ("max,-cx16,-erms,-fsrm", "norandmaps ")
        } else {
            ("host", "")
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
            format!(
                "console=ttyS0 quiet loglevel=4 oops=panic panic=-1 reboot=t,f no_timer_check nokaslr mitigations=off random.trust_cpu=on {addresses}rdinit=/init {} -- guest-agent",
                self.parameters.join(" ")
            ),
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
        a.extend(self.devices.iter().cloned());
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
        let mut command = Command::new(PROGRAM);
        // A terminal's Ctrl-C is for fathom, which ends its guests itself.
        programs::bind_with(&mut command, libc::SIGKILL, inherited);
        command
            .args(machine.arguments(accelerator, &files))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(console.try_clone().map_err(|e| failed("no console", e))?);
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
        remedy: packages::install(PACKAGE),
    }
}

/// Its version; the error says how to install it.
///
/// # Errors
/// Where it is not installed, and on a processor that is no guest's: fathom's own binary is the agent within.
pub fn version() -> Result<String, SystemError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(SystemError::Missing {
            what: format!(
                "guests are x86-64 machines, and this fathom is for {}",
                std::env::consts::ARCH
            ),
            remedy: "an x86-64 host".into(),
        });
    }
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
