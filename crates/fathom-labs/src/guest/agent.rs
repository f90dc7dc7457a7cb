//! The guest's side: fathom as the first process of a guest, or at the far end of an ssh connection.
//!
//! It does what [`Ask`] says, one thing after another; only the end of a running group comes in between.

mod files;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use fathom_bench::{Bench, BenchError, RealBench, SimBench};
use fathom_files::{Existing, create, kernel, open, output};
use fathom_host::HostRoot;
use fathom_host::mounts::MountTable;
use fathom_io::clock::monotonic;
use fathom_io::driver::{ClosedWindow, PlannedJob, Progress};
use fathom_io::job::Limits;
use fathom_io::replay::{self, FeedHandle, Playing};
use fathom_io::{Control, JobSpec, Observer, Target, Wanted};
use fathom_sim::SimTarget;
use fathom_telemetry::Nanos;
use fathom_telemetry::say;
use serde_json::Value;

use super::spool::{self, Spool, Spooled};
use crate::files::Place;
use crate::{LabError, kv};
use fathom_system::guest::qemu::memory_file;
use fathom_system::guest::wire::{
    Answer, Ask, AskedJob, PULSE, PULSE_LEASED, Ran, Reader, VERSION, send,
};

/// Where the agent's own binary is.
const MYSELF: &str = "/proc/self/exe";

/// Serves until the other side is gone, says [`Ask::Off`], or is not heard of for as long as its lease says; `control`
/// ends it from outside (a signal). What it made is removed then.
///
/// # Errors
/// Where the system refuses a thread.
pub fn serve<R, W>(input: R, output: W, control: Control) -> std::io::Result<()>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let (output, writer) = Outbox::new(output)?;
    let (tx, rx) = channel();
    let line = Arc::new(Line::default());
    line.heard.store(monotonic().0, Relaxed);
    let (ear, stop) = (Arc::clone(&line), control.clone());
    // A group that runs can be ended: somebody must read meanwhile.
    std::thread::Builder::new().spawn(move || read(Reader::new(input), &tx, &stop, &ear))?;
    let (pulse, stop, out) = (Arc::clone(&line), control.clone(), output.clone());
    std::thread::Builder::new().spawn(move || keep_lease(&pulse, &stop, &out))?;
    let mut agent = Agent {
        output,
        control,
        line,
        bench: None,
        trace: None,
        rows: None,
        place: None,
    };
    agent.work(&rx);
    agent.close();
    let listens = !agent.line.silent.load(Relaxed);
    // Who is cut off takes no more words.
    if listens && agent.output.to.send(None).is_ok() {
        // A writer that panicked has nothing more to say.
        let _ = writer.join();
    }
    Ok(())
}

/// What is known of the other side.
#[derive(Default)]
struct Line {
    /// When it was heard last, ns.
    heard: AtomicU64,
    /// How long it may be silent, ns; 0 for ever.
    lease: AtomicU64,
    /// It has said who it is, and may be told things.
    greeted: AtomicBool,
    /// It was silent for longer.
    silent: AtomicBool,
    /// Something is being done for it.
    busy: AtomicBool,
    /// It ended its group itself.
    stopped: AtomicBool,
}

fn read<R: Read>(mut from: Reader<R>, to: &Sender<(Ask, Vec<u8>)>, control: &Control, line: &Line) {
    loop {
        let message = from.message();
        line.heard.store(monotonic().0, Relaxed);
        match message {
            Ok(Some((Ask::Stop, _))) => {
                line.stopped.store(true, Relaxed);
                control.interrupt();
            }
            Ok(Some((Ask::Begin { at }, _))) => control.begin_at(Some(Nanos(at))),
            Ok(Some((Ask::Lease { limit }, _))) => line.lease.store(limit, Relaxed),
            Ok(Some((Ask::Alive, _))) => {}
            Ok(Some(message)) => {
                if to.send(message).is_err() {
                    return;
                }
            }
            // Nobody is there any more: a load that runs for nobody ends.
            Ok(None) => return control.interrupt(),
            Err(e) => {
                say!("fathom: {e}");
                return control.interrupt();
            }
        }
    }
}

/// Says that the agent lives while it does something, and ends it when its lease has run out.
fn keep_lease(line: &Line, control: &Control, out: &Outbox) {
    for turn in 1u64.. {
        std::thread::sleep(PULSE_LEASED.into());
        let lease = line.lease.load(Relaxed);
        let silence = monotonic().since(Nanos(line.heard.load(Relaxed)));
        if lease > 0 && silence > Nanos(lease) {
            say!("fathom: nobody was heard of for {silence}: the load ends");
            line.silent.store(true, Relaxed);
            return control.interrupt();
        }
        let often = lease > 0 && line.busy.load(Relaxed);
        let due = often || turn.is_multiple_of(PULSE.0 / PULSE_LEASED.0);
        if due && line.greeted.load(Relaxed) {
            out.send(&Answer::Alive, &[]);
        }
    }
}

/// Bytes of a file of I/Os that are sent at once.
const PIECE: usize = 1 << 20;

/// Bytes that wait for a reader before a file is read for it.
const QUEUED_MAX: u64 = 64 << 20;

/// What is on its way out, written by a thread of its own: a reader that stands still holds nobody up who measures or
/// cleans up.
#[derive(Clone)]
struct Outbox {
    /// `None` ends it.
    to: Sender<Option<Vec<u8>>>,
    queued: Arc<AtomicU64>,
}

impl Outbox {
    fn new<W: Write + Send + 'static>(
        mut output: W,
    ) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (to, from) = channel::<Option<Vec<u8>>>();
        let queued = Arc::new(AtomicU64::new(0));
        let left = Arc::clone(&queued);
        let writer = std::thread::Builder::new().spawn(move || {
            let mut gone = false;
            while let Ok(Some(bytes)) = from.recv() {
                // Who no longer listens does not want to know.
                gone = gone
                    || output
                        .write_all(&bytes)
                        .and_then(|()| output.flush())
                        .is_err();
                left.fetch_sub(bytes.len() as u64, Relaxed);
            }
        })?;
        Ok((Self { to, queued }, writer))
    }

    fn send(&self, answer: &Answer, raw: &[u8]) {
        let mut bytes = Vec::new();
        // Into memory, where nothing fails.
        let _ = send(&mut bytes, answer, raw);
        self.queued.fetch_add(bytes.len() as u64, Relaxed);
        let _ = self.to.send(Some(bytes));
    }
}

struct Agent {
    output: Outbox,
    control: Control,
    line: Arc<Line>,
    bench: Option<Box<dyn Bench>>,
    /// What is played, in memory.
    trace: Option<fs::File>,
    /// The I/Os of the group that ran last.
    rows: Option<Spooled>,
    place: Option<Place>,
}

impl Agent {
    fn work(&mut self, asks: &Receiver<(Ask, Vec<u8>)>) {
        loop {
            let (ask, raw) = match asks.recv_timeout(Duration::from_millis(100)) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if !self.dismissed() => continue,
                Err(_) => return,
            };
            if ask == Ask::Off {
                self.close();
                return self.output.send(&Answer::Done, &[]);
            }
            self.line.busy.store(true, Relaxed);
            let acted = self.act(ask, &raw);
            self.line.busy.store(false, Relaxed);
            let answer = acted.unwrap_or_else(|e| Answer::Failed {
                message: e.to_string(),
                refused: e.is_refusal(),
            });
            self.output.send(&answer, &[]);
        }
    }

    /// Whether something else than the other side's word ended the work.
    fn dismissed(&self) -> bool {
        self.control.interrupted() && !self.line.stopped.load(Relaxed)
    }

    fn close(&mut self) {
        self.place = None;
        if let Some(bench) = self.bench.take()
            && let Err(e) = bench.close()
        {
            say!("fathom: {e}");
        }
    }

    fn act(&mut self, ask: Ask, raw: &[u8]) -> Result<Answer, LabError> {
        match ask {
            Ask::Hello => {
                self.line.greeted.store(true, Relaxed);
                Ok(hello())
            }
            Ask::Clock => Ok(Answer::Clock { now: monotonic().0 }),
            Ask::Exec { argv, dir } => exec(&argv, &dir),
            Ask::Put { path, mode } => put(Path::new(&path), mode, raw),
            Ask::Fetch { path } => self.fetch(Path::new(&path)),
            Ask::Open {
                target,
                wanted,
                joins,
            } => self.open(&target, &wanted, joins.as_deref()),
            Ask::Sees { names } => self.sees(&names),
            Ask::Prepare => self.prepare(),
            Ask::Trace { goes_on } => self.trace(goes_on, raw),
            Ask::Place { joins } => self.place(joins.as_ref()),
            Ask::Steps { steps } => self.steps(&steps),
            Ask::Run { jobs } => self.run(&jobs),
            Ask::Load { lab, asked } => self.load(&lab, &asked),
            Ask::Rows => self.rows(),
            Ask::Close => {
                self.place.take().map_or(Ok(()), Place::close)?;
                self.bench.take().map_or(Ok(()), Bench::close)?;
                Ok(Answer::Done)
            }
            Ask::Begin { .. } | Ask::Lease { .. } | Ask::Alive | Ask::Stop | Ask::Off => {
                Ok(Answer::Done)
            }
        }
    }

    /// Sends the file of I/Os in pieces, of which few are in memory.
    fn rows(&mut self) -> Result<Answer, LabError> {
        let Some(Spooled { file, summary }) = self.rows.take() else {
            return Err(LabError::Failed("no job recorded its I/Os".into()));
        };
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        loop {
            let read = file.read_at(&mut piece, at);
            let n = read.map_err(|e| LabError::Failed(format!("its I/Os cannot be read: {e}")))?;
            if n == 0 || self.dismissed() {
                break;
            }
            at += n as u64;
            self.output.send(&Answer::Piece, &piece[..n]);
            self.wait_for_reader(2 * PIECE as u64);
        }
        Ok(Answer::Rows {
            lost: summary.lost_by_job,
            error: summary.error.map(|e| e.to_string()),
        })
    }

    fn open(
        &mut self,
        target: &str,
        wanted: &Wanted,
        joins: Option<&str>,
    ) -> Result<Answer, LabError> {
        // Before another is opened: it may be the same file.
        self.close();
        let bench: Box<dyn Bench> = if SimTarget::is_simulated(target) {
            let opened = SimBench::open(target, self.control.clone());
            Box::new(opened.map_err(BenchError::from)?)
        } else {
            let opened = match joins {
                Some(mark) => Target::join(target, mark),
                None => Target::open(target, &wanted.clone().of(target)),
            };
            let opened = opened.map_err(BenchError::from)?;
            Box::new(RealBench::new(opened, self.control.clone()))
        };
        let limits = bench.limits();
        let about = bench.describe();
        let path = about.path.as_deref().map(Path::new);
        let answer = Answer::Opened {
            size: limits.size,
            align: limits.direct_align,
            fills: bench.fills().0,
            mark: path.and_then(fathom_files::mark::text),
            simulated: bench.simulated(),
            place: place(path),
            about: Box::new(about),
        };
        self.bench = Some(bench);
        Ok(answer)
    }

    /// Looks beside the open target: a file that another host has made there is seen where the directory is shared.
    fn sees(&mut self, names: &[String]) -> Result<Answer, LabError> {
        let path = bench(&mut self.bench)?.describe().path;
        let dir = path.as_deref().and_then(|p| Path::new(p).parent());
        let there = |name: &String| {
            let plain = !name.contains('/');
            dir.is_some_and(|d| plain && d.join(name).symlink_metadata().is_ok())
        };
        Ok(Answer::Sees {
            seen: names.iter().map(there).collect(),
        })
    }

    fn prepare(&mut self) -> Result<Answer, LabError> {
        let mut teller = Teller(&self.output);
        let bench = bench(&mut self.bench)?;
        if bench.fills().0 == 0 {
            teller.ready();
        }
        self.control.hold();
        let job = bench.prepare(&mut teller);
        self.control.begin_at(None);
        let job = job?;
        self.undisturbed()?;
        Ok(Answer::Ran(Ran {
            jobs: job.into_iter().collect(),
            ..Ran::default()
        }))
    }

    fn trace(&mut self, goes_on: bool, bytes: &[u8]) -> Result<Answer, LabError> {
        let failed = |e| LabError::Failed(format!("the trace cannot be kept in memory: {e}"));
        if !goes_on {
            self.trace = Some(memory_file(c"trace").map_err(failed)?);
        }
        if let Some(file) = &mut self.trace {
            file.write_all(bytes).map_err(failed)?;
        }
        Ok(Answer::Done)
    }

    /// A trace on its way to a job, laid out on the open target.
    fn feed(
        &self,
        playing: &Playing,
        spec: &JobSpec,
        limits: Limits,
    ) -> Result<FeedHandle, LabError> {
        let Some(file) = &self.trace else {
            return Err(LabError::Failed("no trace came before its job".into()));
        };
        let mut playing = playing.clone();
        playing.score.path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        let layout = replay::Layout::new(&playing.facts, &limits, spec.direct, playing.fit);
        let layout = layout.map_err(|e| LabError::Refused(e.to_string()))?;
        Ok(replay::start(playing, layout))
    }

    fn run(&mut self, jobs: &[AskedJob]) -> Result<Answer, LabError> {
        if let [
            AskedJob {
                files: Some(phase),
                spec: options,
                ..
            },
        ] = jobs
        {
            return self.files(phase, &spec(options)?);
        }
        if jobs.iter().any(|j| j.files.is_some()) {
            let why = "work with files runs alone: give it a group of its own";
            return Err(LabError::Refused(why.into()));
        }
        if jobs.iter().filter(|j| j.playing.is_some()).count() > 1 {
            let why = "one trace is kept here: give each that is played a group of its own";
            return Err(LabError::Refused(why.into()));
        }
        let mut teller = Teller(&self.output);
        let limits = bench(&mut self.bench)?.limits();
        let mut feeds = Vec::new();
        let mut planned = Vec::new();
        for j in jobs {
            let spec = spec(&j.spec)?;
            let mut job = spec.validate(&limits)?;
            if let Some(playing) = &j.playing {
                let feed = self.feed(playing, &spec, limits)?;
                job = job.playing(feed.clone())?;
                feeds.push(feed);
            }
            planned.push(PlannedJob {
                experiment: j.experiment.clone(),
                repeat: j.repeat,
                ..PlannedJob::new(job)
            });
        }
        let bench = bench(&mut self.bench)?;
        self.rows = None;
        let spool = Spool::of(&planned)?;
        // A model's time is its own: it waits for nobody.
        if planned.is_empty() || bench.simulated() {
            teller.ready();
        }
        self.control.hold();
        let jobs = match planned.is_empty() {
            true => Ok(Vec::new()),
            false => match &spool {
                Some(s) => bench.run(&planned, Some(&|job, t| s.handle(job, t)), &mut teller),
                None => bench.run(&planned, None, &mut teller),
            },
        };
        self.control.begin_at(None);
        let mut jobs = jobs?;
        if let Some(spool) = spool {
            if bench.shares_disk_with(&spool::dir()) {
                spool::on_tested_disk(&planned, &mut jobs);
            }
            self.rows = Some(spool.finish()?);
        }
        self.undisturbed()?;
        let played = feeds.iter().map(|f| f.fidelity().unwrap_or_default());
        Ok(Answer::Ran(Ran {
            jobs,
            began: self.control.began().0,
            played: played.collect(),
            ..Ran::default()
        }))
    }

    fn load(&mut self, lab: &str, asked: &Value) -> Result<Answer, LabError> {
        let mut teller = Teller(&self.output);
        let bench = bench(&mut self.bench)?;
        self.control.hold();
        let done = match lab {
            "kv" => kv::hosted::serve(asked, bench, &self.control, &mut teller),
            _ => Err(LabError::Refused(format!("no lab '{lab}' runs on hosts"))),
        };
        self.control.begin_at(None);
        let (job, said) = done?;
        self.undisturbed()?;
        Ok(Answer::Ran(Ran {
            jobs: vec![job],
            began: self.control.began().0,
            said,
            ..Ran::default()
        }))
    }

    /// What a signal cut short is no result.
    fn undisturbed(&self) -> Result<(), LabError> {
        match self.dismissed() {
            true => Err(LabError::Failed("its fathom was ended there".into())),
            false => Ok(()),
        }
    }
}

/// The file system and its options, as this host has it.
fn place(path: Option<&Path>) -> String {
    let mounts = MountTable::read(&HostRoot::real()).unwrap_or_default();
    let mount = path.and_then(|p| mounts.containing(p));
    mount.map_or_else(String::new, |m| {
        let options = m.options.iter().chain(&m.super_options);
        let options: BTreeSet<&str> = options.map(String::as_str).collect();
        let words: Vec<&str> = options.into_iter().collect();
        format!("{} ({})", m.fs_type, words.join(","))
    })
}

fn bench(bench: &mut Option<Box<dyn Bench>>) -> Result<&mut dyn Bench, LabError> {
    match bench {
        Some(b) => Ok(&mut **b),
        None => Err(LabError::Failed("no target is open".into())),
    }
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
struct Teller<'a>(&'a Outbox);

impl Observer for Teller<'_> {
    fn ready(&mut self) {
        self.0.send(&Answer::Ready, &[]);
    }
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let (answer, raw) = Answer::window(w);
        self.0.send(&answer, &raw);
    }
    fn progress(&mut self, p: &Progress) {
        let answer = Answer::Progress {
            elapsed: p.elapsed.0,
            ios: p.ios,
            bytes: p.bytes,
        };
        self.0.send(&answer, &[]);
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
        host: text("/proc/sys/kernel/hostname"),
        fathom: env!("CARGO_PKG_VERSION").to_owned(),
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
        ("cgroup2", "/sys/fs/cgroup"),
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
    serve(reader, port, Control::new())
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
