//! The mark by which fathom knows the files that it made: an extended attribute.
//!
//! It lives on the inode, so it follows renames and links, and no name that somebody else
//! might choose can be mistaken for it. It speaks of the file as fathom left it, by size and
//! time of the last change: a file that changed since is its user's. While a run writes to a
//! file the mark names that run, and counts for as long as that run lives.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::open;

/// Name of the attribute.
pub const ATTRIBUTE: &str = "user.fathom.made";

/// Who made a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// fathom, and it is as fathom left it: the attribute's text.
    Fathom(String),
    /// fathom, but it changed since, or nobody can tell: why, in words. Treated as somebody
    /// else's.
    Changed(String),
    /// Somebody else.
    Foreign,
    /// Cannot be told, because the file system has no user xattrs. Treated as somebody
    /// else's; a file that fathom makes here must be removed after use.
    Unmarkable,
}

/// Who made an open file, and whether it is as it was left.
pub fn provenance(file: &File) -> io::Result<Provenance> {
    let mut buffer = [0u8; 256];
    let text = match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut buffer[..]) {
        Ok(n) => String::from_utf8_lossy(buffer.get(..n).unwrap_or_default()).into_owned(),
        Err(Errno::NODATA | Errno::RANGE) => return Ok(Provenance::Foreign),
        Err(e) if is_unsupported(e) => return Ok(Provenance::Unmarkable),
        Err(e) => return Err(e.into()),
    };
    if !text.starts_with("fathom ") {
        return Ok(Provenance::Foreign);
    }
    Ok(match change(&text, &file.metadata()?) {
        None => Provenance::Fathom(text),
        Some(why) => Provenance::Changed(why),
    })
}

/// What speaks against a mark, as the end of a sentence about its file.
fn change(text: &str, now: &Metadata) -> Option<String> {
    if let Some(run) = field(text, "run=") {
        return (!is_alive(run))
            .then(|| "was being written by a run of fathom that did not end properly".into());
    }
    match (field(text, "size="), field(text, "mtime=")) {
        (Some(size), Some(_)) if size != now.len().to_string() => Some(format!(
            "has {} bytes and had {size} when fathom left it",
            now.len()
        )),
        (Some(_), Some(time)) if time == changed_at(now) => None,
        (Some(_), Some(_)) => Some("was written to after fathom left it".into()),
        _ => Some("was made by a fathom that noted neither size nor time".into()),
    }
}

/// A word of a mark that begins with its name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(' ').find_map(|word| word.strip_prefix(name))
}

fn changed_at(meta: &Metadata) -> String {
    format!("{}.{:09}", meta.mtime(), meta.mtime_nsec())
}

/// Whether fathom made the file and left it as it is, so that it may be overwritten. Never
/// true on doubt.
pub fn may_overwrite(path: &Path) -> bool {
    matches!(of(path), Ok(Provenance::Fathom(_)))
}

/// Whether fathom made the file, whatever became of it since: enough to use it, never to
/// overwrite or to remove it.
pub fn is_made(path: &Path) -> bool {
    matches!(of(path), Ok(Provenance::Fathom(_) | Provenance::Changed(_)))
}

fn of(path: &Path) -> io::Result<Provenance> {
    let file = open::for_reading(path, 0)?;
    if file.metadata()?.is_file() {
        provenance(&file)
    } else {
        Ok(Provenance::Foreign)
    }
}

/// Marks a file that this process has made or written as it is now: the last thing that is
/// done to it. `false` where the file system has no user xattrs.
pub fn set(file: &File) -> io::Result<bool> {
    // Whoever writes next gets another time than this, also within the same tick of the kernel's clock.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let exact = Timespec {
        tv_sec: now.as_secs() as _,
        tv_nsec: now.subsec_nanos().into(),
    };
    let is_exact =
        |meta: &Metadata| (meta.mtime(), meta.mtime_nsec()) == (exact.tv_sec, exact.tv_nsec);
    let mut meta = file.metadata()?;
    // Not the owner's to refuse: then the time is what it is.
    if set_time(file, exact).is_ok() {
        meta = file.metadata()?;
        if !is_exact(&meta) {
            // A file system of whole seconds, or of two: nobody's later change falls into one that is over.
            let over = Timespec {
                tv_sec: (exact.tv_sec & !1) - 2,
                tv_nsec: 0,
            };
            set_time(file, over)?;
            meta = file.metadata()?;
        }
    }
    write(
        file,
        &format!("size={} mtime={}", meta.len(), changed_at(&meta)),
    )
}

fn set_time(file: &File, last_modification: Timespec) -> rustix::io::Result<()> {
    let last_access = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    };
    let times = Timestamps {
        last_access,
        last_modification,
    };
    rustix::fs::futimens(file, &times)
}

/// Marks a file that this process is about to write: it counts as fathom's for as long as
/// the process lives, and until [`set`] says how it was left. `false` where the file system
/// has no user xattrs.
pub fn begin(file: &File) -> io::Result<bool> {
    write(file, &format!("run={}", this_run()))
}

/// The same of a scratch file with its size, by which it is known after a kill.
pub fn begin_scratch(file: &File, bytes: u64) -> io::Result<bool> {
    let (run, host) = (this_run(), this_host());
    write(file, &format!("run={run} scratch={bytes} host={host}"))
}

/// Marks a file that somebody else changed while this process wrote to it: fathom would have
/// left it with `bytes`. It is theirs from here on.
pub fn disown(file: &File, bytes: u64) -> io::Result<bool> {
    write(file, &format!("size={bytes} mtime=never"))
}

/// What the mark of a scratch file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchMark {
    /// Bytes that it was made with.
    pub bytes: u64,
    /// Another host made it: whether it is in use there cannot be told here.
    pub elsewhere: bool,
}

/// What a scratch file's mark says; `None` where its mark is not that of one.
pub fn of_scratch(file: &File) -> io::Result<Option<ScratchMark>> {
    let text = read(file)?;
    let text = text.strip_prefix("fathom ").unwrap_or_default();
    let bytes = field(text, "scratch=").and_then(|bytes| bytes.parse().ok());
    // Before marks named hosts, whoever saw the file had made it.
    let elsewhere = field(text, "host=").is_some_and(|host| host != this_host());
    Ok(bytes.map(|bytes| ScratchMark { bytes, elsewhere }))
}

/// The whole mark of a file, by which another host of the same run knows it.
pub fn text(path: &Path) -> Option<String> {
    let text = open::for_reading(path, libc::O_NOFOLLOW).and_then(|f| read(&f));
    text.ok().filter(|t| t.starts_with("fathom "))
}

fn read(file: &File) -> io::Result<String> {
    let mut buffer = [0u8; 256];
    let n = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut buffer[..])?;
    Ok(String::from_utf8_lossy(buffer.get(..n).unwrap_or_default()).into_owned())
}

/// The value that gives a file to fathom as it is now, for whoever is sure that nothing in it
/// is needed.
pub fn as_it_is(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    Ok(format!(
        "fathom size={} mtime={}",
        meta.len(),
        changed_at(&meta)
    ))
}

fn write(file: &File, state: &str) -> io::Result<bool> {
    let value = format!(
        "fathom {} {} {state}",
        env!("CARGO_PKG_VERSION"),
        utc(SystemTime::now())
    );
    match rustix::fs::fsetxattr(file, ATTRIBUTE, value.as_bytes(), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(e) if is_unsupported(e) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// This process, as no other one is named before or after it: number, start and boot.
fn this_run() -> String {
    let pid = std::process::id();
    let start = started(pid).unwrap_or_default();
    format!("{pid}:{start}:{}", boot())
}

/// This host, whatever it is called and however often it was started: the machine's identity, which stays secret.
pub fn this_host() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = match id.trim() {
        "" => boot(),
        id => id.to_owned(),
    };
    // FNV-1a.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn is_alive(run: &str) -> bool {
    let mut parts = run.splitn(3, ':');
    let (pid, start, of) = (parts.next(), parts.next(), parts.next());
    let started = pid.and_then(|p| p.parse().ok()).and_then(started);
    started.is_some() && started.as_deref() == start && of == Some(boot().as_str())
}

/// When a process began, in ticks since the boot.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of its program may hold blanks and brackets. A process that is dead and not yet waited for writes nothing.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| start.to_owned())
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn is_unsupported(e: Errno) -> bool {
    e == Errno::OPNOTSUPP || e == Errno::NOTSUP || e == Errno::NOSYS
}

/// RFC 3339 in UTC, whole seconds.
pub fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time)
        .format("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}
