//! A disk that another process serves: `qemu-storage-daemon` behind vhost-user, as user-space storage stacks do it.
//!
//! It listens on a socket without a place in any file system, and dies with the thread that started it.

use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::disk::Disk;
use crate::packages;
use crate::{SystemError, programs};

/// The program.
const PROGRAM: &str = "qemu-storage-daemon";
/// What it says a disk's serial number is.
pub const SERIAL: &str = "vhost_user_blk";

/// Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

/// Whether it is there; the error says how to get it.
pub(crate) fn available() -> Result<(), SystemError> {
    let there = Command::new(PROGRAM)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match there {
        Ok(s) if s.success() => Ok(()),
        _ => Err(SystemError::Missing {
            what: format!("disk=vhost-user needs {PROGRAM}, which is not installed"),
            remedy: packages::install("qemu-utils qemu-system-common"),
        }),
    }
}

impl Server {
    /// Serves disk `i`; the stream is for QEMU.
    pub(crate) fn start(disk: &Disk, i: usize) -> Result<(Self, UnixStream), SystemError> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        available()?;
        let failed =
            |e: std::io::Error| SystemError::Failed(format!("{PROGRAM} cannot be started: {e}"));
        let name = format!(
            "fathom-vhost-{}-{}",
            std::process::id(),
            STARTED.fetch_add(1, Ordering::Relaxed)
        );
        let address = SocketAddr::from_abstract_name(name.as_bytes()).map_err(failed)?;
        let listener = UnixListener::bind_addr(&address).map_err(failed)?;
        // Accepted later: the kernel keeps the connection until then.
        let stream = UnixStream::connect_addr(&address).map_err(failed)?;
        let fd = listener.as_raw_fd();
        let mut command = Command::new(PROGRAM);
        programs::bind_with(&mut command, libc::SIGKILL, vec![fd]);
        command
            .args(disk.node_arguments(i))
            .arg("--export")
            .arg(export(disk, i, fd))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        Ok((Self { child }, stream))
    }
}

fn export(disk: &Disk, i: usize, fd: i32) -> String {
    let queues = disk.queues.unwrap_or(1);
    let thread = if disk.iothread {
        format!(",iothread=thread{i}")
    } else {
        String::new()
    };
    format!(
        "type=vhost-user-blk,id=export{i},node-name={},addr.type=fd,addr.str={fd},writable=on,num-queues={queues}{thread}",
        disk.node(i)
    )
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
