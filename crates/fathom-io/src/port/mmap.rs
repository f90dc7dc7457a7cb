//! A mapped file: reads and writes are copies from and to its pages.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fathom_telemetry::Op;

use super::single::Call;
use super::{PortError, Request, Served, bus};
use crate::job::{Advice, Each, Flush, JobSpec};

/// One mapped file.
struct Map {
    base: *mut u8,
    len: usize,
    prot: i32,
    fd: Arc<std::fs::File>,
    file: Served,
    /// Pages that could not be had stand for others now and could not be mapped again.
    broken: bool,
}

impl Map {
    /// Why pages of a range could not be had. The kernel does not say: the file tells whether it was shortened, its
    /// disk whether there is room.
    fn cause(&self, r: &Request) -> i32 {
        let length = self.fd.metadata().map_or(u64::MAX, |m| m.len());
        if r.offset.saturating_add(u64::from(r.len)) > length && length > 0 {
            return libc::ENXIO;
        }
        let mut disk = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the descriptor is open, the structure is the call's own and initialised.
        let room = unsafe {
            match libc::fstatvfs(self.fd.as_raw_fd(), disk.as_mut_ptr()) {
                0 => disk.assume_init().f_bavail,
                _ => u64::MAX,
            }
        };
        if room == 0 { libc::ENOSPC } else { libc::EIO }
    }

    /// Maps the pages of a range again, so that the next I/O meets the file and not what stands for it.
    fn renew(&mut self, at: usize, len: usize) {
        const PAGE: usize = 64 << 10;
        let from = at / PAGE * PAGE;
        let to = (at + len).next_multiple_of(PAGE).min(self.len);
        // SAFETY: the range lies inside the mapping of this value, whose pages nobody else uses; the offset is a
        // multiple of every page size.
        let put = unsafe {
            libc::mmap(
                self.base.add(from).cast(),
                to - from,
                self.prot,
                libc::MAP_SHARED | libc::MAP_FIXED,
                self.fd.as_raw_fd(),
                from as libc::off_t,
            )
        };
        self.broken |= put == libc::MAP_FAILED;
    }
}

/// Reads and writes through a mapping of the file.
pub struct Mmap {
    maps: Vec<Map>,
    /// Every write is made durable at once.
    each: bool,
}

impl Mmap {
    /// Maps the files as long as they are now.
    pub fn new(files: &[Arc<std::fs::File>], spec: &JobSpec) -> Result<Self, PortError> {
        let mut maps = Vec::new();
        let prot = if spec.rw.modifies() {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        for file in files {
            // SAFETY: the descriptor is open; every I/O names its own offset, so the position is free to use.
            let len = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
            let len = usize::try_from(len)
                .map_err(|_| PortError::last("the file to be mapped has no length"))?;
            // SAFETY: the descriptor is open; the mapping is released in Drop.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len.max(1),
                    prot,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(PortError::last("the file could not be mapped"));
            }
            let advice = match spec.advise {
                Some(Advice::Random) => libc::MADV_RANDOM,
                Some(Advice::Sequential) => libc::MADV_SEQUENTIAL,
                Some(Advice::NoReuse) | None => libc::MADV_NORMAL,
            };
            // SAFETY: the mapping is ours; the advice changes no content.
            unsafe { libc::madvise(base, len.max(1), advice) };
            maps.push(Map {
                base: base.cast(),
                len,
                prot,
                fd: file.clone(),
                file: Served::new(file.clone()),
                broken: false,
            });
        }
        bus::prepare();
        Ok(Self {
            maps,
            each: spec.sync.each != Each::Plain,
        })
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        for m in &self.maps {
            // SAFETY: mapped in `new` with this length, released once.
            unsafe { libc::munmap(m.base.cast(), m.len.max(1)) };
        }
    }
}

// SAFETY: the mappings belong to this value alone and have no thread affinity.
unsafe impl Send for Mmap {}

impl Call for Mmap {
    fn call(&mut self, r: Request, data: &mut [u8]) -> i64 {
        let Some(map) = self.maps.get_mut(usize::from(r.file)) else {
            return -i64::from(libc::EBADF);
        };
        if map.broken {
            return -i64::from(libc::EIO);
        }
        let (at, len) = (r.offset as usize, r.len as usize);
        if r.op != Op::Sync && at.saturating_add(len) > map.len {
            return -i64::from(libc::EINVAL);
        }
        let data = data.as_mut_ptr();
        let whole = match r.op {
            // SAFETY: the range lies inside the mapping (checked above) and inside the slot's buffer; the two do not
            // overlap. A page that cannot be had is replaced for the time of the copy, see `bus`.
            Op::Read => bus::copied(map.base, map.len, || unsafe {
                std::ptr::copy_nonoverlapping(map.base.add(at), data, len);
            }),
            // SAFETY: as above.
            Op::Write => bus::copied(map.base, map.len, || unsafe {
                std::ptr::copy_nonoverlapping(data, map.base.add(at), len);
            }),
            Op::Trim | Op::Sync => true,
        };
        if !whole {
            map.renew(at, len);
            return -i64::from(map.cause(&r));
        }
        let failed = match r.op {
            Op::Read => 0,
            Op::Write if self.each => map.file.sync(&Request::sync(r.file, Flush::Data, (0, 0))),
            Op::Write => 0,
            Op::Trim => map.file.trim(r.offset, r.len),
            Op::Sync => map.file.sync(&r),
        };
        if failed < 0 {
            return -i64::from(
                std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(libc::EIO),
            );
        }
        i64::from(r.len)
    }

    fn drop_cache(&mut self, start: u64, len: u64, durable: bool) {
        for map in &self.maps {
            // Pages that are mapped stay in the cache: the mapping lets go of them first.
            // SAFETY: the mapping is ours and shared, so that nothing in it is lost.
            unsafe { libc::madvise(map.base.cast(), map.len.max(1), libc::MADV_DONTNEED) };
            super::forget(map.file.fd(), start, len, durable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Rw;
    use std::os::unix::fs::FileExt;

    fn port(file: &Arc<std::fs::File>, rw: Rw) -> Mmap {
        let spec = JobSpec {
            rw,
            ..JobSpec::default()
        };
        Mmap::new(std::slice::from_ref(file), &spec).unwrap()
    }

    fn ask(op: Op, offset: u64) -> Request {
        Request {
            op,
            offset,
            len: 8192,
            file: 0,
            priority: 0,
        }
    }

    #[test]
    fn a_file_that_is_shortened_fails_the_io_and_not_the_process() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
        let mut port = port(&file, Rw::RandMixed);
        assert_eq!(port.call(ask(Op::Read, 512 << 10), &mut [7; 8192]), 8192);
        file.set_len(256 << 10).unwrap();
        let gone = -i64::from(libc::ENXIO);
        for op in [Op::Read, Op::Write] {
            assert_eq!(port.call(ask(op, 512 << 10), &mut [7; 8192]), gone);
            // Still so: nothing stands for what is missing.
            assert_eq!(port.call(ask(op, 512 << 10), &mut [7; 8192]), gone);
        }
        assert_eq!(port.call(ask(Op::Read, 0), &mut [7; 8192]), 8192);
        file.set_len(1 << 20).unwrap();
        assert_eq!(port.call(ask(Op::Write, 512 << 10), &mut [7; 8192]), 8192);
        let mut back = [1; 8];
        file.read_exact_at(&mut back, 512 << 10).unwrap();
        assert_ne!(back, [0; 8], "the write reached the file");
    }

    #[test]
    fn a_disk_that_is_full_behind_a_hole_fails_the_write() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "small"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            println!(
                "SKIP a_disk_that_is_full_behind_a_hole_fails_the_write: no tmpfs can be mounted"
            );
            return;
        }
        let results: Vec<i64> = {
            let file = std::fs::File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(dir.path().join("holes"))
                .unwrap();
            file.set_len(1 << 20).unwrap();
            let mut port = port(&Arc::new(file), Rw::RandWrite);
            (0..32)
                .map(|i| port.call(ask(Op::Write, i * 8192), &mut [7; 8192]))
                .collect()
        };
        let unmounted = std::process::Command::new("umount")
            .arg(dir.path())
            .status();
        assert!(unmounted.unwrap().success());
        assert_eq!(results[0], 8192);
        assert_eq!(results[31], -i64::from(libc::ENOSPC), "{results:?}");
    }
}
