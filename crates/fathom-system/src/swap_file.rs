//! A swap file in a lab's directory: switched on for the whole machine, switched off on any exit, and found again where
//! fathom was killed with its cleanup process.
//!
//! The kernel swaps to the area of the highest priority first, for all processes. Where the machine has no other, it
//! needs none; where it has some, the file comes one step above them, since otherwise the process under test would swap
//! elsewhere.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fathom_files::{create, remove};
use fathom_telemetry::say;

use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};
use crate::lab_dir::{self, Verdict};

/// Bytes of a page of the swap.
const PAGE: usize = 4096;

/// Beginning of every such file's name; the process id follows.
const PREFIX: &str = "fathom-swap-";
/// `SWAP_FLAG_PREFER` (linux/swap.h); the priority is in the bits of [`HIGHEST`].
const PREFER: i32 = 0x8000;
const HIGHEST: i32 = 0x7fff;
/// Swapping ends with memory for everything that was swapped out; a signal may break it off.
const PATIENCE_SECONDS: u64 = 10;

/// A swap file that is on.
pub struct Swap {
    path: CString,
    cleanup: Option<Cleanup>,
}

impl Swap {
    /// Makes one of `bytes` in `dir` and turns it on.
    ///
    /// # Errors
    /// Where it cannot be made, or the kernel refuses it; nothing is left then.
    pub fn on(dir: &Path, bytes: u64) -> Result<Self, SystemError> {
        let path = dir.join(format!("{PREFIX}{}", std::process::id()));
        let pages = bytes / PAGE as u64;
        let failed = |what: &str, e: io::Error| SystemError::Missing {
            what: format!("{}: {what}: {e}", path.display()),
            remedy: "run as root on a file system that can hold a swap file (ext4, XFS)".into(),
        };
        let file = create::file(&path).map_err(|e| failed("cannot be made", e))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .map_err(|e| failed("has no room", e.into()))?;
        let head = header(pages as u32 - 1);
        file.write_all_at(&head, 0)
            .and_then(|()| file.sync_all())
            .map_err(|e| failed("cannot be written", e))?;
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let cleanup = Cleanup::watch(&[Undo::swap(&name)])
            .map_err(|e| SystemError::Failed(format!("no process can be made: {e}")))?;
        // SAFETY: a system call with a terminated string.
        if unsafe { libc::swapon(name.as_ptr(), flags(&areas())) } != 0 {
            let e = io::Error::last_os_error();
            return Err(failed("cannot be used for swapping", e));
        }
        Ok(Self {
            path: name,
            cleanup: Some(cleanup),
        })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // What is swapped out comes back first.
        if let Err(e) = off(&self.path) {
            let path = self.path.to_string_lossy();
            say!("fathom: {path} is still used for swapping ({e}): swapoff {path}");
            Cleanup::try_again(self.cleanup.take());
        }
    }
}

fn off(path: &CString) -> io::Result<()> {
    let broken_off = |e: &io::Error| e.kind() == io::ErrorKind::Interrupted;
    crate::retry::patiently(PATIENCE_SECONDS, broken_off, || {
        // SAFETY: a system call with a terminated string.
        match unsafe { libc::swapoff(path.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

/// The first page of a swap area (`union swap_header` of linux/swap.h).
fn header(last_page: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&last_page.to_ne_bytes());
    page[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// One line of /proc/swaps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    path: PathBuf,
    priority: i32,
}

fn areas() -> Vec<Area> {
    parse(&fs::read(LIST).unwrap_or_default())
}

const LIST: &str = "/proc/swaps";

/// Paths have what would break a line as octal numbers, and ` (deleted)` behind a name that is gone.
fn parse(list: &[u8]) -> Vec<Area> {
    let line = |line: &[u8]| {
        let mut fields = line
            .split(u8::is_ascii_whitespace)
            .filter(|f| !f.is_empty());
        let path = unescape(fields.next()?);
        let priority = std::str::from_utf8(fields.next_back()?).ok()?;
        Some(Area {
            path: PathBuf::from(OsString::from_vec(path)),
            priority: priority.parse().ok()?,
        })
    };
    list.split(|b| *b == b'\n')
        .skip(1)
        .filter_map(line)
        .collect()
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\');
        let number = octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        out.push(number.unwrap_or(*first));
        rest = &tail[if number.is_some() { 3 } else { 0 }..];
    }
    out
}

/// One step above the others; without others the kernel's own choice, which is below whatever comes later.
fn flags(others: &[Area]) -> i32 {
    others
        .iter()
        .map(|a| a.priority)
        .max()
        .map_or(0, |most| PREFER | most.saturating_add(1).clamp(0, HIGHEST))
}

/// The process of a swap file, by its name and its directory's.
fn process_of(path: &Path) -> Option<u32> {
    let name = |p: &Path| p.file_name().and_then(|n| n.to_str()).map(str::to_owned);
    let pid: u32 = name(path)?.strip_prefix(PREFIX)?.parse().ok()?;
    let of = lab_dir::process_of(&name(path.parent()?)?);
    (of == Some(pid)).then_some(pid)
}

/// Swap files of killed runs that are on, and those of which it cannot be known, with why.
pub fn abandoned() -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for Area { path, .. } in areas() {
        let name = path.as_os_str().as_bytes();
        if let Some(was) = name.strip_suffix(b" (deleted)") {
            if process_of(Path::new(std::ffi::OsStr::from_bytes(was))).is_some() {
                unknown.push((path, "no name leads to it; restart the machine".into()));
            }
            continue;
        }
        let (Some(_), Some(dir)) = (process_of(&path), path.parent()) else {
            continue;
        };
        match lab_dir::judge(dir) {
            Verdict::Abandoned(_) => found.push(path),
            Verdict::Unknown(why) => unknown.push((path, why)),
            Verdict::InUse | Verdict::Foreign(_) => {}
        }
    }
    (found, unknown)
}

/// Switches one off that [`abandoned`] found, and removes it.
pub fn remove_abandoned(path: &Path) -> io::Result<()> {
    let in_use = || io::Error::from(io::ErrorKind::ResourceBusy);
    let (Some(_), Some(dir), Some(name)) = (
        process_of(path),
        path.parent(),
        path.file_name().and_then(|n| n.to_str()),
    ) else {
        return Err(in_use());
    };
    let Verdict::Abandoned(place) = lab_dir::judge(dir) else {
        return Err(in_use());
    };
    let file: File = match remove::open_regular(&place.dir, name) {
        Ok(file) => file,
        // Its cleanup was faster.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    // By the descriptor: no change of names can lead to another area.
    let held = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    match off(&held) {
        // It was never on, or is off by now.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
        other => other?,
    }
    Ok(rustix::fs::unlinkat(
        &place.dir,
        name,
        rustix::fs::AtFlags::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_area_says_what_it_is() {
        let h = header(99);
        assert_eq!(&h[4086..], b"SWAPSPACE2");
        assert_eq!((h[1024], h[1028]), (1, 99));
    }

    #[test]
    fn the_file_comes_before_other_areas_and_no_higher() {
        let list = b"Filename\t\tType\t\tSize\t\tUsed\t\tPriority\n\
            /dev/zram0                              partition\t100\t\t0\t\t100\n\
            /a\\040b/.fathom-lab-7-deadbeef/fathom-swap-7\\040(deleted) file\t\t4\t\t0\t\t-2\n";
        let all = parse(list);
        assert_eq!(all[0].path, Path::new("/dev/zram0"));
        let deleted = "/a b/.fathom-lab-7-deadbeef/fathom-swap-7 (deleted)";
        assert_eq!((&*all[1].path, all[1].priority), (Path::new(deleted), -2));
        assert_eq!(flags(&all), PREFER | 101);
        assert_eq!(flags(&all[1..]), PREFER, "the kernel's own are negative");
        assert_eq!(flags(&[]), 0);
        assert_eq!(unescape(b"\\04\\x"), b"\\04\\x");
    }

    #[test]
    fn only_a_file_in_a_labs_directory_of_the_same_process_is_ours() {
        let of = |p: &str| process_of(Path::new(p));
        assert_eq!(of("/x/.fathom-lab-7-deadbeef/fathom-swap-7"), Some(7));
        for other in [
            "/x/.fathom-lab-8-deadbeef/fathom-swap-7",
            "/x/fathom-swap-7",
            "/x/.fathom-lab-7-deadbeef/swap",
            "/dev/zram0",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
