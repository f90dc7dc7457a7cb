//! The narrow interface between the load logic and what serves I/O.
//!
//! A port has a fixed number of slots. The worker stages a batch of requests in free slots,
//! flushes it, and reaps completions by slot. Real ports also block
//! ([`Blocking`]); virtual ones are stepped by an event loop. Adding a port: one
//! file here and one line in [`crate::driver`].

mod bus;
pub mod commands;
pub mod libaio;
pub mod mmap;
pub mod null;
pub(crate) mod polled;
pub mod posixaio;
pub mod preadv;
pub mod single;
pub mod uring;
pub mod virtual_time;

use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

use fathom_host::ZoneAction;
use fathom_telemetry::{Nanos, Op};

use crate::job::{Advice, Command, Each, Flush, JobSpec};

/// One I/O to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Byte offset in the target.
    pub offset: u64,
    /// Bytes, at most the job's largest block; for [`Op::Sync`] those of [`Flush::Range`], 0 for all that follow.
    pub len: u32,
    /// Which of the port's files: 0 is the destination, then those of a guide
    /// ([`crate::load::Guide::files`]).
    pub file: u16,
    /// I/O priority as the kernel takes it (class << 13 | hint << 3 | level); 0 for the thread's own. Only
    /// asynchronous ports have it per request. [`Op::Sync`] has none: there it is what [`Request::flush`] says.
    pub priority: u16,
}

impl Request {
    /// Makes durable what was written to `range` of a file.
    pub fn sync(file: u16, flush: Flush, range: (u64, u64)) -> Self {
        Self {
            op: Op::Sync,
            offset: range.0,
            len: u32::try_from(range.1.saturating_sub(range.0)).unwrap_or(0),
            file,
            priority: flush.code(),
        }
    }

    /// What a request of [`Op::Sync`] does.
    #[inline]
    pub fn flush(&self) -> Flush {
        Flush::of_code(self.priority)
    }
}

/// Why a port could not be made or failed as a whole (a single I/O's error is its result).
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct PortError {
    /// What failed, in words.
    pub what: String,
    /// The system's answer.
    #[source]
    pub source: std::io::Error,
}

impl PortError {
    /// With the system's last error.
    pub fn last(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            source: std::io::Error::last_os_error(),
        }
    }
}

/// What serves requests.
pub trait Port {
    /// Now, on this port's clock.
    fn now(&mut self) -> Nanos;

    /// Called once per closed window: a chance to correct the clock.
    fn tick(&mut self) {}

    /// The first `len` bytes of a slot's buffer; `None` where the port moves no data.
    fn buffer(&mut self, _slot: u32, _len: u32) -> Option<&mut [u8]> {
        None
    }

    /// Puts new data into the first `len` bytes of a free slot's buffer, for a write.
    fn prepare(&mut self, _slot: u32, _len: u32) {}

    /// Stages requests in free slots (0..depth); a write carries what its slot's buffer holds. Nothing is
    /// handed over before the next flush.
    fn stage(&mut self, batch: impl Iterator<Item = (u32, Request)>);

    /// Samples of requests handed over, and how many of them were complete before the hand-over returned:
    /// such requests run one after another, whatever the depth. `None` where the port cannot tell.
    fn inline(&self) -> Option<(u64, u64)> {
        None
    }

    /// Lets the page cache forget a range of every file, made durable first where that is asked for.
    fn drop_cache(&mut self, _start: u64, _len: u64, _durable: bool) {}

    /// [`Port::reap`] for at most `most` completions. Ports that never have more than one take it as it is.
    fn reap_some(&mut self, _most: usize, each: impl FnMut(u32, i64)) {
        self.reap(each);
    }

    /// Takes every completion that is there: slot and result (bytes done, 0 for a sync or a
    /// discard, or negative errno).
    fn reap(&mut self, each: impl FnMut(u32, i64));
}

/// A port that a thread can wait on.
pub trait Blocking: Port {
    /// Hands staged requests over, then waits until `min` completions are there, or until the clock
    /// reads `until` (`Nanos::MAX`: no limit; a signal ends the wait too).
    fn flush(&mut self, min: u32, until: Nanos) -> Result<(), PortError>;
}

/// The files opened again where the port needs descriptors of its own: for a position that no other thread
/// moves (`seeks`), or for durability that its calls cannot ask for one by one (`flagged`).
pub(crate) fn own_files(
    files: Vec<Arc<std::fs::File>>,
    spec: &JobSpec,
    seeks: bool,
    flagged: bool,
) -> Result<Vec<Arc<std::fs::File>>, PortError> {
    use std::os::fd::AsRawFd as _;
    let extra = match spec.sync.each {
        Each::Fua if flagged => libc::O_DSYNC,
        Each::Sync if flagged => libc::O_SYNC,
        _ => 0,
    };
    if !seeks && extra == 0 {
        return Ok(files);
    }
    let again = |f: &Arc<std::fs::File>| -> std::io::Result<Arc<std::fs::File>> {
        let fd = f.as_raw_fd();
        // SAFETY: the descriptor is open; no memory is involved.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let access = flags & libc::O_ACCMODE;
        let kept = flags & (libc::O_DIRECT | libc::O_NOATIME);
        let file = fathom_files::open::again_for(f, access, kept | extra)?;
        Ok(Arc::new(file))
    };
    files
        .iter()
        .map(again)
        .collect::<std::io::Result<_>>()
        .map_err(|source| PortError {
            what: "the file could not be opened again for this thread".into(),
            source,
        })
}

/// RWF_DONTCACHE (linux/fs.h, Linux 6.14), which libc has not.
const DONTCACHE: i32 = 0x80;

/// RWF_ATOMIC (linux/fs.h, Linux 6.11), which libc has not.
const ATOMIC: i32 = 0x40;

/// RWF_* flags of reads and of writes.
pub(crate) fn call_flags(spec: &JobSpec) -> (i32, i32) {
    let mut both = 0;
    for (asked, flag) in [
        (spec.nowait, libc::RWF_NOWAIT),
        (spec.uncached, DONTCACHE),
        (spec.hipri, libc::RWF_HIPRI),
    ] {
        both |= if asked { flag } else { 0 };
    }
    let durable = match spec.sync.each {
        Each::Fua => libc::RWF_DSYNC,
        Each::Sync => libc::RWF_SYNC,
        Each::Plain => 0,
    };
    let atomic = if spec.atomic { ATOMIC } else { 0 };
    (both, both | durable | atomic)
}

/// The files opened again for this thread, whose accesses to come are told to the kernel: advice belongs to a
/// descriptor, and other jobs may use the same file in another way.
pub(crate) fn advised(
    files: Vec<Arc<File>>,
    spec: &JobSpec,
    advice: Advice,
) -> Result<Vec<Arc<File>>, PortError> {
    let own = own_files(files, spec, true, false)?;
    for file in &own {
        // SAFETY: the descriptor is open; no memory is involved. Where there is nothing to advise, nothing is lost.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice.number()) };
    }
    Ok(own)
}

/// Lets the page cache forget a range; what cannot be dropped stays.
pub(crate) fn forget(fd: RawFd, start: u64, len: u64, durable: bool) {
    // SAFETY: the descriptor is open; no memory is involved.
    unsafe {
        if durable {
            libc::fsync(fd);
        }
        libc::posix_fadvise(fd, start as i64, len as i64, libc::POSIX_FADV_DONTNEED);
    }
}

/// A file that a port serves, and what of it decides how: asked once, not with every I/O.
pub(crate) struct Served {
    file: Arc<File>,
    /// Trims are discards of a block device, not holes in a file.
    device: bool,
    /// Trims manage the zones in which they begin: what they do, and bytes of a zone.
    zones: Option<(ZoneAction, u64)>,
}

impl Served {
    pub(crate) fn new(file: Arc<File>) -> Self {
        let device = is_block_device(&file);
        Self {
            file,
            device,
            zones: None,
        }
    }

    /// Trims do to zones what the job says.
    pub(crate) fn managing_zones(mut self, command: Command) -> Result<Self, PortError> {
        let action = match command {
            Command::ZoneReset => ZoneAction::Reset,
            Command::ZoneFinish => ZoneAction::Finish,
            _ => return Ok(self),
        };
        let bytes = fathom_host::zones::zone_bytes(&self.file).map_err(|source| PortError {
            what: format!("{command} needs a device with zones; name another one"),
            source,
        })?;
        self.zones = Some((action, bytes));
        Ok(self)
    }

    pub(crate) fn all(files: Vec<Arc<File>>) -> Vec<Self> {
        files.into_iter().map(Self::new).collect()
    }

    #[inline]
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Discards a range of a device, or makes a hole in a file: 0, or -1 with errno set.
    pub(crate) fn trim(&self, offset: u64, len: u32) -> i32 {
        /// _IO(0x12, 119): discards a range of a block device (linux/fs.h).
        const BLKDISCARD: u64 = 0x1277;
        if let Some((action, bytes)) = self.zones {
            let done = fathom_host::zones::act(&self.file, action, offset - offset % bytes, bytes);
            return if done.is_ok() { 0 } else { -1 };
        }
        let range = [offset, u64::from(len)];
        // SAFETY: the descriptor is open; the ioctl reads two numbers, fallocate none.
        unsafe {
            if self.device {
                let discard = || libc::ioctl(self.fd(), BLKDISCARD as _, range.as_ptr());
                let busy = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
                match discard() {
                    // What is dirty in the cache goes only for the descriptor that claims the device: written, it does.
                    -1 if busy() && libc::fdatasync(self.fd()) == 0 => discard(),
                    done => done,
                }
            } else {
                let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
                libc::fallocate(self.fd(), mode, offset as i64, i64::from(len))
            }
        }
    }

    /// Does a request of [`Op::Sync`]: 0, or -1 with errno set.
    pub(crate) fn sync(&self, r: &Request) -> i32 {
        let (from, len) = (r.offset as i64, i64::from(r.len));
        // SAFETY: the descriptor is open; no memory is involved.
        unsafe {
            match r.flush() {
                Flush::All => libc::fsync(self.fd()),
                Flush::Data => libc::fdatasync(self.fd()),
                Flush::Range(flags) => {
                    libc::sync_file_range(self.fd(), from, len, u32::from(flags))
                }
            }
        }
    }
}

/// Whether the file is a block device.
pub(crate) fn is_block_device(file: &std::fs::File) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    file.metadata()
        .is_ok_and(|m| m.file_type().is_block_device())
}

/// Waits for due times: sleeps, then spins the rest, so that a schedule is kept to the nanosecond.
///
/// How long before the time a sleep has to end depends on the machine: an idle core, a hypervisor or other work wake a
/// thread late. The alarm learns it: the margin follows the lateness that about one nap in 1000 exceeds:
/// one late nap delays every I/O that is due meanwhile, and 99 % of them shall keep their times.
pub(crate) struct Alarm {
    /// Sleeps end this long before the time, ns.
    margin: u64,
}

/// A usual kernel's timer is later than this rarely, ns.
const MARGIN_LEAST: u64 = 60_000;
/// On a busy machine nothing helps, and spinning takes the processor from those who need it, ns.
const MARGIN_MOST: u64 = 500_000;
/// Naps are short, so that a stop is seen: a signal ends them too, ns.
const NAP_MOST: u64 = 10_000_000;

impl Alarm {
    pub(crate) const fn new() -> Self {
        Self {
            margin: MARGIN_LEAST,
        }
    }

    /// How long a sleep may last when `left` ns are left: `None` where it is time to spin.
    #[inline]
    pub(crate) fn nap(&self, left: u64) -> Option<Nanos> {
        (left > self.margin).then(|| Nanos((left - self.margin).min(NAP_MOST)))
    }

    /// A sleep of `nap` has lasted for `slept` ns. One that something else ended early says nothing.
    pub(crate) fn woke(&mut self, slept: u64, nap: Nanos) {
        let Some(late) = slept.checked_sub(nap.0) else {
            return;
        };
        self.margin = if late > self.margin {
            self.margin + self.margin / 4
        } else {
            self.margin - self.margin / 4096
        }
        .clamp(MARGIN_LEAST, MARGIN_MOST);
    }

    /// Sleeps until shortly before `until`, then spins. Far from it, it returns after a nap.
    pub(crate) fn wait_until(&mut self, clock: &crate::clock::Clock, until: Nanos) {
        loop {
            let now = clock.now();
            if now >= until {
                return;
            }
            let left = until.since(now).0;
            match self.nap(left) {
                Some(nap) => {
                    std::thread::sleep(std::time::Duration::from_nanos(nap.0));
                    self.woke(clock.now().since(now).0, nap);
                    if left > NAP_MOST {
                        return;
                    }
                }
                None => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_learns_how_late_it_is_woken_and_forgets_it_again() {
        let nap = Nanos(1_000_000);
        let mut alarm = Alarm::new();
        assert_eq!(alarm.nap(60_000), None);
        assert_eq!(alarm.nap(2_000_000_000), Some(Nanos(NAP_MOST)));
        // Every hundredth wake comes 200 µs late.
        for i in 0..20_000u64 {
            alarm.woke(nap.0 + if i % 100 == 0 { 200_000 } else { 5_000 }, nap);
        }
        assert!(
            (180_000..=260_000).contains(&alarm.margin),
            "{}",
            alarm.margin
        );
        // One that a signal ended early says nothing.
        let before = alarm.margin;
        alarm.woke(nap.0 / 2, nap);
        assert_eq!(alarm.margin, before);
        for _ in 0..10_000 {
            alarm.woke(nap.0 + 5_000, nap);
        }
        assert_eq!(alarm.margin, MARGIN_LEAST);
        for _ in 0..1_000 {
            alarm.woke(10 * nap.0, nap);
        }
        assert_eq!(alarm.margin, MARGIN_MOST);
    }
}
