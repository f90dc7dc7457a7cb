//! What a job left in caches is put on the device after its last I/O, and asked for errors.
//!
//! A buffered write succeeds when memory has taken it; that the device is full, broken or gone shows later, and only to who
//! asks. The kernel tells every descriptor that was open at the time once (its errseq), so the job's own descriptors are
//! asked. A direct write may still lie in a disk's cache, or in the page cache below a loop device: those are asked too.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use fathom_telemetry::schema::{IoError, Job, WriteBack};
use fathom_telemetry::{Flag, FlagCode, Nanos, Op};

use super::{Control, Destination, PlannedJob};
use crate::clock::Clock;
use crate::job::Engine;

/// How long somebody who has interrupted the run waits for its data, ms.
const PATIENCE: Nanos = Nanos::from_millis(500);

/// What came of it.
#[derive(Default)]
pub(super) struct WrittenBack {
    files: Vec<(Arc<File>, Option<io::Error>)>,
    /// How long it took.
    pub(super) took: Nanos,
    /// The run was interrupted before it was through.
    given_up: bool,
}

/// The files that a job writes.
fn written<'a>(
    planned: &'a PlannedJob,
    destination: &'a Destination,
) -> impl Iterator<Item = &'a Arc<File>> {
    let own = match destination {
        Destination::File {
            direct, buffered, ..
        } => buffered.as_ref().or(direct.as_ref()),
        Destination::Null => None,
    };
    let writes = planned.job.spec.engine != Engine::Null && planned.ops().contains(&Op::Write);
    let more = planned.guide.iter().flat_map(|g| &g.files);
    own.into_iter()
        .chain(more)
        .filter(move |_| writes && own.is_some())
}

impl WrittenBack {
    /// Asks for errors of what was written before the group, so that they are not taken for its own, and leaves it no data
    /// of others to write: that lies in the page cache, where jobs that go past it meet none.
    pub(super) fn of_before(
        jobs: &[PlannedJob],
        destination: &Destination,
        control: &Control,
        clock: &Clock,
    ) -> Self {
        let buffered = jobs.iter().filter(|p| !p.job.spec.direct);
        Self::of(buffered, destination).put(control, clock, || {})
    }

    /// Puts everything that the group has written on its device.
    pub(super) fn of_group(
        jobs: &[PlannedJob],
        destination: &Destination,
        control: &Control,
        clock: &Clock,
        tick: impl FnMut(),
    ) -> Self {
        Self::of(jobs.iter(), destination).put(control, clock, tick)
    }

    fn put(self, control: &Control, clock: &Clock, mut tick: impl FnMut()) -> Self {
        let mut all = self;
        if all.files.is_empty() {
            return all;
        }
        let begin = clock.now();
        let files: Vec<Arc<File>> = all.files.iter().map(|f| f.0.clone()).collect();
        // Gigabytes take minutes on a slow disk, and no signal ends a sync: it gets a thread that nobody has to wait for.
        let (tx, rx) = channel();
        let spawned = std::thread::Builder::new()
            .name("write-back".into())
            .spawn(move || {
                for (i, file) in files.iter().enumerate() {
                    if tx.send((i, sync(file))).is_err() {
                        return;
                    }
                }
            });
        if spawned.is_err() {
            for (file, error) in &mut all.files {
                *error = sync(file);
            }
        }
        let mut until = None;
        loop {
            match rx.recv_timeout(Duration::from_millis(50)) {
                Ok((i, error)) => all.files[i].1 = error,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => tick(),
            }
            let now = clock.now();
            if control.interrupted() && now >= *until.get_or_insert(now + PATIENCE) {
                all.given_up = true;
                break;
            }
        }
        all.took = clock.now().since(begin);
        all
    }

    fn of<'a>(jobs: impl Iterator<Item = &'a PlannedJob>, destination: &Destination) -> Self {
        let mut all = Self::default();
        for job in jobs {
            for file in written(job, destination) {
                if !all.files.iter().any(|(f, _)| Arc::ptr_eq(f, file)) {
                    all.files.push((file.clone(), None));
                }
            }
        }
        all
    }

    fn error(&self, planned: &PlannedJob, destination: &Destination) -> Option<&io::Error> {
        written(planned, destination)
            .filter_map(|mine| self.files.iter().find(|(f, _)| Arc::ptr_eq(f, mine)))
            .find_map(|(_, e)| e.as_ref())
    }

    /// Says of a job what came of what was written before it.
    pub(super) fn tell_of_before(
        &self,
        job: &mut Job,
        planned: &PlannedJob,
        destination: &Destination,
    ) {
        if let Some(e) = self.error(planned, destination) {
            let mut flag = Flag::new(
                FlagCode::WriteBackFailed,
                format!(
                    "data that was written before this job could not be put on the device: {}",
                    in_words(e)
                ),
                remedy(e),
            );
            flag.void = false;
            job.flags.push(flag);
        }
    }

    /// Says of a job what came of its data. `reached`: what the devices counted as written, and which counted least.
    pub(super) fn tell(
        &self,
        job: &mut Job,
        planned: &PlannedJob,
        destination: &Destination,
        reached: Option<&(u64, String)>,
    ) {
        if written(planned, destination).next().is_none() {
            return;
        }
        if self.given_up {
            job.flags.push(Flag::new(
                FlagCode::NotChecked,
                "the run was interrupted before what was written was on the device",
                "errors of the device may show later, and then in the kernel log only",
            ));
            return;
        }
        job.write_back = Some(WriteBack {
            ns: self.took.0,
            device_write_bytes: reached.map(|r| r.0),
            device: reached.map(|r| r.1.clone()).unwrap_or_default(),
        });
        if let Some(e) = self.error(planned, destination) {
            job.errors.push(IoError {
                op: Op::Sync,
                errno: e.raw_os_error().unwrap_or(0),
                message: e.to_string(),
                first_offset: 0,
                count: 1,
            });
            job.flags.push(Flag::new(
                FlagCode::WriteBackFailed,
                format!(
                    "what was written could not be put on the device afterwards: {}; some of what counts as written is lost",
                    in_words(e)
                ),
                remedy(e),
            ));
        }
    }
}

/// Its data, without the times that no reader needs, is on the device when this returns; `None` where all went well.
fn sync(file: &File) -> Option<io::Error> {
    loop {
        match file.sync_data() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // What holds no data (/dev/null) has nothing to lose.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return None,
            other => return other.err(),
        }
    }
}

/// The name that manuals know it by, and the system's words.
fn in_words(e: &io::Error) -> String {
    let name = match e.raw_os_error() {
        Some(libc::EIO) => "EIO",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::EDQUOT) => "EDQUOT",
        Some(libc::EROFS) => "EROFS",
        Some(libc::ENODEV) => "ENODEV",
        Some(libc::ENXIO) => "ENXIO",
        Some(libc::ETIMEDOUT) => "ETIMEDOUT",
        Some(libc::ENOLINK) => "ENOLINK",
        Some(libc::EREMOTEIO) => "EREMOTEIO",
        Some(libc::EFBIG) => "EFBIG",
        Some(libc::ESTALE) => "ESTALE",
        _ => return e.to_string(),
    };
    format!("{name}, {e}")
}

fn remedy(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "what the target lies on is smaller than it says (a thin volume, a sparse file): give it space, or write less"
        }
        _ => "the device, or what it lies on, fails or is full: look at the kernel log",
    }
}
