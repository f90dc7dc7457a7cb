//! The guest's side: fathom as the first process of a guest, or at the far end of an ssh connection.
//!
//! It does what [`Ask`] says, one thing after another; only the end of a running group comes in between.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use fathom_bench::{Bench, BenchError, RealBench};
use fathom_files::{Existing, create, kernel, open, output};
use fathom_io::driver::{ClosedWindow, PlannedJob, Progress};
use fathom_io::{Control, JobSpec, Observer, Target, Wanted};
use fathom_telemetry::say;
use fathom_telemetry::{Bytes, Nanos};
use serde_json::Value;

use crate::LabError;
use fathom_system::guest::wire::{Answer, Ask, AskedJob, PULSE, Reader, VERSION, send};

/// Where the agent's own binary is.
const MYSELF: &str = "/proc/self/exe";
/// Files below a fetched directory, at most.
const FILES_MAX: usize = 10_000;

/// Serves until the other side is gone or says [`Ask::Off`].
///
/// # Errors
/// Where messages cannot be read or written.
pub fn serve<R, W>(input: R, output: W) -> std::io::Result<()>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let control = Control::new();
    let (tx, rx) = channel();
    let stop = control.clone();
    // A group that runs can be ended: somebody must read meanwhile.
    std::thread::Builder::new().spawn(move || read(Reader::new(input), &tx, &stop))?;
    let mut agent = Agent {
        output: Arc::new(Mutex::new(output)),
        control,
        bench: None,
    };
    agent.work(&rx)
}

fn read<R: Read>(mut from: Reader<R>, to: &Sender<(Ask, Vec<u8>)>, control: &Control) {
    loop {
        match from.message() {
            Ok(Some((Ask::Stop, _))) => control.interrupt(),
            Ok(Some(message)) => {
                if to.send(message).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(e) => {
                say!("fathom: {e}");
                return;
            }
        }
    }
}

struct Agent<W> {
    output: Arc<Mutex<W>>,
    control: Control,
    bench: Option<RealBench>,
}

impl<W: Write + Send + 'static> Agent<W> {
    /// Says from now on that it lives: who waits for an answer can tell a long job from a machine that died.
    fn begin_to_pulse(&mut self) -> Result<(), LabError> {
        let output = Arc::downgrade(&self.output);
        let pulse = move || {
            loop {
                std::thread::sleep(std::time::Duration::from_nanos(PULSE.0));
                let Some(output) = output.upgrade() else {
                    return;
                };
                let mut out = output.lock().unwrap_or_else(|e| e.into_inner());
                if send(&mut *out, &Answer::Alive, &[]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("fathom-pulse".into())
            .spawn(pulse)
            .map(drop)
            .map_err(|e| LabError::Failed(format!("no thread for an agent: {e}")))
    }

    fn work(&mut self, asks: &Receiver<(Ask, Vec<u8>)>) -> std::io::Result<()> {
        while let Ok((ask, raw)) = asks.recv() {
            if ask == Ask::Off {
                self.close();
                return self.answer(&Answer::Done, &[]);
            }
            let answered = match self.act(ask, &raw) {
                Ok(answer) => self.answer(&answer, &[]),
                Err(e) => {
                    let failed = Answer::Failed {
                        message: e.to_string(),
                        refused: e.is_refusal(),
                    };
                    self.answer(&failed, &[])
                }
            };
            answered?;
        }
        self.close();
        Ok(())
    }

    fn answer(&self, answer: &Answer, raw: &[u8]) -> std::io::Result<()> {
        // A panic while writing has ended the process: what is left of the lock does not matter.
        let mut out = self.output.lock().unwrap_or_else(|e| e.into_inner());
        send(&mut *out, answer, raw)
    }

    fn close(&mut self) {
        if let Some(bench) = self.bench.take()
            && let Err(e) = Box::new(bench).close()
        {
            say!("fathom: {e}");
        }
    }

    fn act(&mut self, ask: Ask, raw: &[u8]) -> Result<Answer, LabError> {
        match ask {
            Ask::Hello => {
                self.begin_to_pulse()?;
                Ok(hello())
            }
            Ask::Clock => Ok(Answer::Clock {
                now: fathom_io::clock::monotonic().0,
            }),
            Ask::Exec { argv, dir } => exec(&argv, &dir),
            Ask::Put { path, mode } => put(Path::new(&path), mode, raw),
            Ask::Fetch { path } => self.fetch(Path::new(&path)),
            Ask::Open {
                target,
                modifies,
                size,
                destroy,
            } => self.open(&target, modifies, size, destroy),
            Ask::Prepare => self.prepare(),
            Ask::Run { jobs, begin } => self.run(&jobs, begin),
            Ask::Close => {
                let bench = self.bench.take().map(Box::new);
                bench.map_or(Ok(()), |b| b.close())?;
                Ok(Answer::Done)
            }
            Ask::Stop | Ask::Off => Ok(Answer::Done),
        }
    }

    fn fetch(&self, path: &Path) -> Result<Answer, LabError> {
        let failed = |p: &Path, e: std::io::Error| {
            LabError::Failed(format!("{} cannot be read: {e}", p.display()))
        };
        let mut todo = vec![path.to_owned()];
        let mut sent = 0;
        while let Some(next) = todo.pop() {
            if next.is_dir() {
                let entries = fs::read_dir(&next).map_err(|e| failed(&next, e))?;
                todo.extend(entries.flatten().map(|e| e.path()));
            } else if sent < FILES_MAX {
                sent += 1;
                let bytes = fs::read(&next).map_err(|e| failed(&next, e))?;
                let below = next.strip_prefix(path).unwrap_or(Path::new(""));
                let file = Answer::File {
                    path: below.to_string_lossy().into_owned(),
                };
                self.answer(&file, &bytes).map_err(|e| failed(&next, e))?;
            }
        }
        Ok(Answer::Done)
    }

    fn open(
        &mut self,
        target: &str,
        modifies: bool,
        size: Option<u64>,
        destroy: Option<String>,
    ) -> Result<Answer, LabError> {
        let wanted = Wanted {
            modifies,
            direct: true,
            size: size.map(Bytes),
            destroy,
            ..Wanted::default()
        };
        let opened = Target::open(target, &wanted).map_err(BenchError::from)?;
        let bench = RealBench::new(opened, self.control.clone());
        let limits = bench.limits();
        let answer = Answer::Opened {
            size: limits.size,
            align: limits.direct_align,
            about: Box::new(bench.describe()),
            fills: bench.fills().0,
        };
        self.bench = Some(bench);
        Ok(answer)
    }

    fn prepare(&mut self) -> Result<Answer, LabError> {
        let mut teller = Teller {
            output: Arc::clone(&self.output),
        };
        let job = bench(&mut self.bench)?.prepare(&mut teller)?;
        Ok(Answer::Ran {
            jobs: job.into_iter().collect(),
            began: 0,
        })
    }

    fn run(&mut self, jobs: &[AskedJob], begin: Option<u64>) -> Result<Answer, LabError> {
        let mut teller = Teller {
            output: Arc::clone(&self.output),
        };
        let bench = bench(&mut self.bench)?;
        let limits = bench.limits();
        let planned: Result<Vec<PlannedJob>, LabError> = jobs
            .iter()
            .map(|j| {
                Ok(PlannedJob {
                    experiment: j.experiment.clone(),
                    repeat: j.repeat,
                    ..PlannedJob::new(spec(&j.spec)?.validate(&limits)?)
                })
            })
            .collect();
        self.control.begin_at(begin.map(Nanos));
        let jobs = bench.run(&planned?, None, &mut teller);
        self.control.begin_at(None);
        Ok(Answer::Ran {
            jobs: jobs?,
            began: self.control.began().0,
        })
    }
}

fn bench(bench: &mut Option<RealBench>) -> Result<&mut RealBench, LabError> {
    bench
        .as_mut()
        .ok_or_else(|| LabError::Failed("no target is open".into()))
}

/// From options by name, as `run.json` keeps them.
fn spec(options: &Value) -> Result<JobSpec, LabError> {
    let mut spec = JobSpec::default();
    for (name, value) in options.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        spec.set(name, &text)?;
    }
    Ok(spec)
}

/// Passes windows and progress on while a group runs.
struct Teller<W> {
    output: Arc<Mutex<W>>,
}

impl<W: Write> Teller<W> {
    fn tell(&self, answer: &Answer, raw: &[u8]) {
        let mut out = self.output.lock().unwrap_or_else(|e| e.into_inner());
        // Who no longer listens does not want to know.
        let _ = send(&mut *out, answer, raw);
    }
}

impl<W: Write> Observer for Teller<W> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let (answer, raw) = Answer::window(w.job, w.start_ns, w.width, w.window);
        self.tell(&answer, &raw);
    }
    fn progress(&mut self, p: &Progress) {
        let answer = Answer::Progress {
            elapsed: p.elapsed.0,
            ios: p.ios,
            bytes: p.bytes,
        };
        self.tell(&answer, &[]);
    }
}

fn hello() -> Answer {
    let text = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let mut disks: Vec<String> = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    disks.sort();
    Answer::Hello {
        version: VERSION,
        kernel: text("/proc/sys/kernel/osrelease"),
        clock: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get()) as u32,
        disks,
    }
}

fn exec(argv: &[String], dir: &str) -> Result<Answer, LabError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(LabError::Failed("no program was named".into()));
    };
    let program = if program == "fathom" { MYSELF } else { program };
    own_directory(Path::new(dir))
        .map_err(|e| LabError::Failed(format!("{dir} cannot be made: {e}")))?;
    let ran = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| LabError::Failed(format!("{} cannot be run: {e}", argv[0])))?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Ok(Answer::Output {
        status: ran.status.code(),
        out: text(&ran.stdout),
        err: text(&ran.stderr),
    })
}

/// A directory of this user's: made now, or before by another command line.
fn own_directory(dir: &Path) -> std::io::Result<()> {
    match create::private_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let meta = fs::symlink_metadata(dir)?;
            let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
            if own { Ok(()) } else { Err(e) }
        }
        other => other,
    }
}

fn put(path: &Path, mode: u32, bytes: &[u8]) -> Result<Answer, LabError> {
    let write = || {
        if path.starts_with("/sys") || path.starts_with("/proc") {
            return kernel::write(path, &String::from_utf8_lossy(bytes));
        }
        if let Some(dir) = path.parent() {
            create::dirs(dir)?;
        }
        output::write(path, Existing::Any, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write()
        .map(|()| Answer::Done)
        .map_err(|e| LabError::Failed(format!("{} cannot be written: {e}", path.display())))
}

/// The life of a guest: mounts, modules, the port to the host, work, power off. Never returns.
pub fn init() -> ! {
    let result = start();
    if let Err(e) = &result {
        say!("fathom: the guest could not work: {e}");
    }
    rustix::fs::sync();
    // Where this fails nothing is left to be done: the first process must not end.
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

fn start() -> std::io::Result<()> {
    use rustix::mount::{MountFlags, mount};
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
    ] {
        // What this kernel does not have is missed only by who needs it.
        let _ = mount(
            kind,
            place,
            kind,
            MountFlags::empty(),
            None::<&std::ffi::CStr>,
        );
    }
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")?
        .flatten()
        .map(|e| e.path())
        .collect();
    modules.sort();
    for path in modules {
        let file = fs::File::open(&path)?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => say!("fathom: {} was not loaded: {e}", path.display()),
        }
    }
    let port = port()?;
    let reader = port.try_clone()?;
    serve(reader, port)
}

/// The port that QEMU calls `fathom.0`; devices appear a moment after their drivers.
fn port() -> std::io::Result<fs::File> {
    for _ in 0..500 {
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            let device = Path::new("/dev").join(entry.file_name());
            if name.trim() == fathom_system::guest::qemu::PORT && device.exists() {
                return open::control(&device);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(std::io::Error::other("the port to the host did not appear"))
}
