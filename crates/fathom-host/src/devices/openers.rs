//! Programs that have a block device open for writing: NBD servers, hypervisors, databases on raw devices. They need not
//! claim it, so the kernel's exclusive open does not meet them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use crate::root::{DeviceNumber, HostRoot, names, text};

/// A program that has a device open for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opener {
    pub(crate) number: DeviceNumber,
    pub(crate) process: u32,
    pub(crate) program: String,
}

/// How often, and how long apart, a child of this process is looked at again.
const AGAIN: (u32, Duration) = (25, Duration::from_millis(20));

/// All of them, but this process. Without privilege only processes of the same user can be asked.
pub(crate) fn openers(root: &HostRoot) -> Vec<Opener> {
    let mut found = look(root);
    for _ in 0..AGAIN.0 {
        if !found.iter().any(|o| is_child(root, o.process)) {
            break;
        }
        // A program that another thread starts has what this process has, from its fork until it runs.
        std::thread::sleep(AGAIN.1);
        found = look(root);
    }
    found
}

fn is_child(root: &HostRoot, process: u32) -> bool {
    let status = text(&root.proc.join(process.to_string()).join("status")).unwrap_or_default();
    let parent = status.lines().find_map(|l| l.strip_prefix("PPid:"));
    parent.and_then(|p| p.trim().parse().ok()) == Some(std::process::id())
}

fn look(root: &HostRoot) -> Vec<Opener> {
    let processes = names(&root.proc);
    let processes = processes.iter().filter_map(|n| n.parse::<u32>().ok());
    let mut found: Vec<Opener> = Vec::new();
    for process in processes.filter(|p| *p != std::process::id()) {
        let dir = root.proc.join(process.to_string());
        for fd in names(&dir.join("fd")) {
            let Some(number) = block_device(&dir.join("fd").join(&fd)) else {
                continue;
            };
            if writes(&dir.join("fdinfo").join(&fd))
                && !found
                    .iter()
                    .any(|o| (o.number, o.process) == (number, process))
            {
                let program = text(&dir.join("comm")).unwrap_or_default();
                found.push(Opener {
                    number,
                    process,
                    program,
                });
            }
        }
    }
    found
}

fn block_device(fd: &Path) -> Option<DeviceNumber> {
    let name = fs::read_link(fd).ok()?;
    // Sockets, pipes and what the kernel has no name for.
    if !name.is_absolute() {
        return None;
    }
    // Nobody is asked: a file of a server that is gone would hang.
    let s = rustix::fs::statx(CWD, fd, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_block = FileType::from_raw_mode(s.stx_mode.into()) == FileType::BlockDevice;
    is_block.then_some(DeviceNumber {
        major: s.stx_rdev_major,
        minor: s.stx_rdev_minor,
    })
}

fn writes(info: &Path) -> bool {
    let info = text(info).unwrap_or_default();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:"));
    let flags = flags.and_then(|f| i32::from_str_radix(f.trim(), 8).ok());
    flags.is_some_and(|f| f & libc::O_ACCMODE != libc::O_RDONLY && f & libc::O_PATH == 0)
}
