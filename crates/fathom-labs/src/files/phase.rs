//! A phase of metadata operations on one host: threads that take one file after another, until none is left or the time
//! is over. The rate is that of the time in which all of them had one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fathom_files::create;
use fathom_io::clock::{Clock, process_cpu};
use fathom_io::driver::{ClosedWindow, Progress};
use fathom_io::files::{Operation, Phase};
use fathom_io::threads::within;
use fathom_io::{Control, JobSpec, Observer};
use fathom_telemetry::schema::{IoError, Job};
use fathom_telemetry::{Flag, FlagCode, Nanos, Record, Recorder};
use rustix::fs::RawDir;

use super::Place;
use crate::LabError;
use crate::clients::Windows;
use crate::loads::{About, Load};

/// More than a file has.
const BUFFER: usize = 64 << 10;
/// Between two messages of how far a phase is.
const PROGRESS: Nanos = Nanos::from_millis(100);

/// What a phase came to.
pub(crate) struct Measured {
    pub(crate) job: Job,
    /// The common start, on this host's clock.
    pub(crate) began: Nanos,
    /// Files, or entries of a directory.
    pub(crate) counted: u64,
}

/// What threads share.
struct Shared<'a> {
    next: AtomicU64,
    limit: u64,
    stop: AtomicBool,
    start: AtomicU64,
    gate: Barrier,
    control: &'a Control,
    files: Files,
    spec: &'a JobSpec,
    windows: Windows,
}

/// What a thread saw.
#[derive(Default)]
struct Done {
    ended: Nanos,
    /// Operations that did not fail.
    did: u64,
    counted: u64,
    failed: Option<(u64, io::Error)>,
}

/// The files of a phase, by their numbers.
struct Files {
    phase: Phase,
    dir: PathBuf,
    /// Of them, those that have their second name.
    renamed: u64,
}

impl Files {
    /// The file of this number.
    fn path(&self, i: u64) -> PathBuf {
        Names::of(self).numbered(i).to_owned()
    }

    /// One operation; how much it counted, and its bytes. Beside what the file system does it takes no memory.
    fn operate(&self, i: u64, with: &mut Thread) -> io::Result<(u64, u32)> {
        let path = with.names.numbered(i);
        let buffer = &mut with.buffer[..];
        let bytes = self.phase.bytes as usize;
        match self.phase.operation {
            Operation::Create => {
                let mut file = create::file(path)?;
                file.write_all(&buffer[..bytes])?;
                return Ok((1, self.phase.bytes));
            }
            Operation::Stat => {
                fs::symlink_metadata(path)?;
            }
            Operation::List => return Ok((list(&self.dir, &mut with.entries)?, 0)),
            Operation::Read => {
                let mut file = File::open(path)?;
                let mut read = 0;
                while read < bytes {
                    match file.read(buffer)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        n => read += n,
                    }
                }
                return Ok((1, self.phase.bytes));
            }
            Operation::Rename => fs::rename(path, with.second.numbered(i))?,
            Operation::Remove => fs::remove_file(path)?,
        }
        Ok((1, 0))
    }
}

/// Entries of a directory.
fn list(dir: &Path, entries: &mut [MaybeUninit<u8>]) -> io::Result<u64> {
    let dir = File::open(dir)?;
    let mut all = RawDir::new(dir, entries);
    let mut counted = 0;
    while let Some(entry) = all.next() {
        counted += u64::from(!matches!(entry?.file_name().to_bytes(), b"." | b".."));
    }
    Ok(counted)
}

/// Names of files, each in the place of the one before.
struct Names {
    bytes: Vec<u8>,
    /// What all of them begin with.
    common: usize,
    /// Of those before this number all have their second name.
    renamed: u64,
}

impl Names {
    fn of(files: &Files) -> Self {
        let common = files.dir.join(format!("{}.", files.phase.of));
        let bytes = common.into_os_string().into_vec();
        Self {
            common: bytes.len(),
            bytes,
            renamed: files.renamed,
        }
    }

    fn numbered(&mut self, i: u64) -> &Path {
        let (mut digits, mut at, mut left) = ([0; 20], 20, i);
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.bytes.truncate(self.common);
        self.bytes.extend_from_slice(&digits[at..]);
        if i < self.renamed {
            self.bytes.extend_from_slice(b".new");
        }
        Path::new(OsStr::from_bytes(&self.bytes))
    }
}

/// What a thread has for its operations.
struct Thread {
    names: Names,
    second: Names,
    buffer: Vec<u8>,
    entries: Vec<MaybeUninit<u8>>,
}

impl Thread {
    fn of(files: &Files) -> Self {
        Self {
            names: Names::of(files),
            second: Names {
                renamed: u64::MAX,
                ..Names::of(files)
            },
            buffer: vec![0x5a; BUFFER.max(files.phase.bytes as usize)],
            entries: vec![MaybeUninit::uninit(); BUFFER],
        }
    }
}

impl Place {
    /// Does a phase as a job; waits for the common start.
    ///
    /// # Errors
    /// Where there is nothing to work on, or no thread. What fails in the middle is an error of the job.
    pub(crate) fn measure(
        &mut self,
        (phase, spec): (&Phase, &JobSpec),
        control: &Control,
        teller: &mut dyn Observer,
    ) -> Result<Measured, LabError> {
        let dir = match phase.shared {
            true => self.path.join("shared"),
            false => self.path.join(format!("host-{}", phase.of)),
        };
        if phase.operation == Operation::Create {
            self.check_room(phase)?;
            make(&dir)?;
            (self.made, self.renamed) = (0, 0);
        }
        // What phases before have left to be written is not written in this one's time.
        let synced = fathom_files::remove::open_dir(&self.path)
            .and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
        synced.map_err(|e| broken(&self.path, &e))?;
        let own = matches!(phase.operation, Operation::Rename | Operation::Remove);
        let limit = match phase.operation {
            Operation::List => u64::MAX,
            _ if own => self.made,
            _ => phase.files,
        };
        if limit == 0 {
            return Err(LabError::Failed(format!(
                "{}: no file was made that could be used: give it more --time",
                dir.display()
            )));
        }
        let shared = Shared {
            next: AtomicU64::new(0),
            limit,
            stop: AtomicBool::new(false),
            start: AtomicU64::new(0),
            gate: Barrier::new(spec.threads as usize + 1),
            control,
            files: Files {
                renamed: if phase.operation == Operation::Remove {
                    self.renamed
                } else {
                    0
                },
                phase: phase.clone(),
                dir,
            },
            spec,
            windows: Windows::default(),
        };
        let cpu = process_cpu();
        let done = shared.run(teller)?;
        // Numbers of files; threads that find none left have taken one, too.
        let taken = shared.next.load(Ordering::Relaxed).min(limit);
        let began = Nanos(shared.start.load(Ordering::Relaxed));
        match phase.operation {
            Operation::Create => self.made = taken,
            Operation::Rename => self.renamed = taken,
            Operation::Remove => self.made -= taken.min(self.made),
            _ => {}
        }
        let job = shared.job(&done, cpu, teller);
        if phase.operation == Operation::Remove && job.errors.is_empty() {
            // What the time did not suffice for is removed unmeasured: the next repeat begins as this one did.
            (taken..limit).try_for_each(|i| {
                let path = shared.files.path(i);
                fs::remove_file(&path).map_err(|e| broken(&path, &e))
            })?;
        }
        let counted = match phase.operation {
            Operation::List => done.iter().map(|d| d.counted).max().unwrap_or(0),
            _ => done.iter().map(|d| d.did).sum(),
        };
        Ok(Measured {
            job,
            began,
            counted,
        })
    }
}

fn broken(path: &Path, e: &io::Error) -> LabError {
    LabError::Failed(format!("{}: {e}", path.display()))
}

/// A directory that several hosts may make at the same time.
fn make(dir: &Path) -> Result<(), LabError> {
    match create::private_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made.map_err(|e| broken(dir, &e)),
    }
}

impl Shared<'_> {
    /// Threads from their start to their end.
    fn run(&self, teller: &mut dyn Observer) -> Result<Vec<Done>, LabError> {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..self.spec.threads {
                match within(scope, || self.work()) {
                    Ok(thread) => threads.push(thread),
                    Err(e) => {
                        self.stop.store(true, Ordering::SeqCst);
                        // Those that are there wait for as many as were asked for.
                        (threads.len()..self.spec.threads as usize).for_each(|_| {
                            let _ = within(scope, || self.gate.wait());
                        });
                        self.gate.wait();
                        return Err(LabError::Failed(e.to_string()));
                    }
                }
            }
            teller.ready();
            let start = self.control.start(&Clock::new(), Nanos::from_millis(1));
            self.start.store(start.0, Ordering::SeqCst);
            self.gate.wait();
            let clock = Clock::new();
            // That it began is told soon: where a host is lost later, what was measured is kept.
            let mut told = Nanos::ZERO;
            while !threads.iter().all(|t| t.is_finished()) {
                // The end is noticed soon, and told of is seldom: a message costs what the phase measures.
                std::thread::sleep(Duration::from_millis(20));
                let now = clock.now();
                if now.since(told) < PROGRESS {
                    continue;
                }
                told = now;
                teller.progress(&Progress {
                    elapsed: now.since(start).max(Nanos(1)),
                    ios: self.next.load(Ordering::Relaxed),
                    ..Progress::default()
                });
            }
            let join = |t: std::thread::ScopedJoinHandle<'_, Done>| {
                t.join().unwrap_or_else(|p| std::panic::resume_unwind(p))
            };
            Ok(threads.into_iter().map(join).collect())
        })
    }

    fn work(&self) -> Done {
        let mut done = Done::default();
        let mut with = Thread::of(&self.files);
        self.gate.wait();
        let clock = Clock::new();
        let start = Nanos(self.start.load(Ordering::SeqCst));
        let end = start + self.spec.time.unwrap_or(Nanos::from_secs(1));
        // A pass that takes less says little.
        let soon = start + Nanos(end.since(start).0 / 10);
        let again = self.files.phase.operation.repeats();
        let op = self.files.phase.operation.op();
        let mut recorder =
            Recorder::new(start, self.spec.window, &[op], None, self.windows.clone());
        // Awake threads of many hosts on one machine would hold each other up.
        std::thread::sleep(start.since(clock.now()).into());
        let mut now = clock.now();
        while now < end && !self.stopped() {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.limit && (!again || now >= soon) {
                break;
            }
            let began = now;
            let operated = self.files.operate(i % self.limit, &mut with);
            now = clock.now();
            let (counted, bytes) = match operated {
                Ok(counted) => counted,
                Err(e) => {
                    self.stop.store(true, Ordering::Relaxed);
                    done.failed = Some((i, e));
                    break;
                }
            };
            done.did += 1;
            done.counted = done.counted.max(counted);
            recorder.advance(now);
            recorder.record(&Record {
                intended: began,
                submitted: began,
                completed: now,
                offset: 0,
                len: bytes,
                result: i64::from(bytes),
                op,
            });
        }
        done.ended = now;
        drop(recorder.finish());
        done
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.control.interrupted()
    }

    /// The job, whose time ends where the first thread found nothing more to do; tells its windows.
    fn job(&self, done: &[Done], cpu: (Nanos, Nanos), teller: &mut dyn Observer) -> Job {
        let start = Nanos(self.start.load(Ordering::Relaxed));
        let first = done.iter().map(|d| d.ended).min().unwrap_or(start);
        let (spec, operation) = (self.spec, self.files.phase.operation);
        let wall = first.since(start).min(spec.time.unwrap_or(Nanos::MAX));
        let end = process_cpu();
        // Of the time until the last thread's end the part that counts.
        let last = done.iter().map(|d| d.ended).max().unwrap_or(start);
        let share = wall.0 as f64 / last.since(start).0.max(1) as f64;
        let of = |end: Nanos, begin: Nanos| Nanos((end.since(begin).0 as f64 * share) as u64);
        let load = Load {
            clients: spec.threads,
            wall,
            cpu: (of(end.0, cpu.0), of(end.1, cpu.1)),
            width: spec.window,
            ..self.windows.gather(0)
        };
        for window in &load.windows {
            teller.window(&ClosedWindow {
                job: 0,
                start_ns: (window.index * spec.window.0) as i64,
                origin: start,
                width: spec.window,
                window,
            });
        }
        let about = About {
            experiment: "metadata",
            name: &spec.name,
            repeat: 0,
            engine: "files",
            spec: serde_json::Value::Null,
            device: None,
            ours: true,
        };
        let mut job = load.job(about);
        // Few operations of one host are many of all.
        job.flags.retain(|f| f.code != FlagCode::TooFewSamples);
        if self.control.interrupted() {
            let flag = Flag::new(
                FlagCode::Interrupted,
                "the phase was ended early",
                "run it again",
            );
            job.flags.push(flag);
        }
        for (i, e) in done.iter().filter_map(|d| d.failed.as_ref()) {
            let message = format!(
                "{} of {}: {e}",
                operation.name(),
                self.files.path(*i).display()
            );
            job.flags.push(Flag::new(
                FlagCode::IoErrors,
                message.clone(),
                "look for room, also of inodes (df -i), and at the logs of the file system",
            ));
            job.errors.push(IoError {
                op: operation.op(),
                errno: e.raw_os_error().unwrap_or(0),
                message,
                first_offset: 0,
                count: 1,
            });
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_each_other_in_one_place() {
        let phase = Phase {
            operation: Operation::Remove,
            shared: true,
            bytes: 0,
            files: 0,
            hosts: 1,
            of: 3,
        };
        let mut names = Names::of(&Files {
            phase,
            dir: "/d".into(),
            renamed: 8,
        });
        let mut name = |i| names.numbered(i).to_str().unwrap().to_owned();
        assert_eq!(name(u64::MAX), format!("/d/3.{}", u64::MAX));
        assert_eq!(
            [name(0), name(7), name(8), name(10)],
            ["/d/3.0.new", "/d/3.7.new", "/d/3.8", "/d/3.10"]
        );
    }

    #[test]
    fn phases_make_use_and_remove_as_many_files_as_they_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut place = Place::new(dir.path(), None).unwrap();
        let spec = JobSpec {
            time: Some(Nanos::from_secs(20)),
            window: Nanos::from_millis(2),
            threads: 3,
            ..JobSpec::default()
        };
        let files = |dir: &Path| fs::read_dir(dir).unwrap().count();
        let phase = |operation, place: &mut Place, time| {
            let phase = Phase {
                operation,
                shared: true,
                bytes: 3901,
                files: 500,
                hosts: 1,
                of: 0,
            };
            let spec = JobSpec {
                time,
                ..spec.clone()
            };
            place
                .measure((&phase, &spec), &Control::new(), &mut ())
                .unwrap()
        };
        let shared = place.path.join("shared");
        let long = spec.time;
        for operation in [Operation::Create, Operation::Rename, Operation::Remove] {
            let m = phase(operation, &mut place, long);
            assert!(m.job.errors.is_empty(), "{:?}", m.job.errors);
            let done = m.job.write.as_ref().unwrap();
            assert_eq!((m.counted, done.ios), (500, 500), "{operation:?}");
            let left = if operation == Operation::Remove {
                0
            } else {
                500
            };
            assert_eq!(files(&shared), left, "{operation:?}");
            if operation == Operation::Create {
                let list = phase(Operation::List, &mut place, Some(Nanos::from_millis(50)));
                assert_eq!(list.counted, 500);
                // Short passes are repeated, and all of them count.
                let read = phase(Operation::Read, &mut place, long);
                let done = read.job.read.as_ref().unwrap();
                assert_eq!((read.counted, done.bytes), (done.ios, done.ios * 3901));
                assert!(done.ios >= 500, "{}", done.ios);
            }
        }
        // Too little time: what was not reached is removed after it.
        phase(Operation::Create, &mut place, long);
        phase(Operation::Remove, &mut place, Some(Nanos(1)));
        assert_eq!(files(&shared), 0);
        // A file that is not there any more is an error of the job.
        phase(Operation::Create, &mut place, long);
        fs::remove_file(shared.join("0.100")).unwrap();
        let m = phase(Operation::Remove, &mut place, long);
        assert_eq!(m.job.errors.len(), 1, "{:?}", m.job.errors);
        assert!(m.job.is_void() && m.job.errors[0].message.contains("remove of"));
        assert!(m.counted < 500, "what failed is not counted: {}", m.counted);
    }
}
