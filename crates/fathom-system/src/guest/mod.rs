//! Guests: small virtual machines without a root file system, in which fathom itself is the first process.
//!
//! Kernel ([`kernel`]) and modules ([`modules`]) are the distribution's; the initramfs ([`initramfs`]) carries
//! the fathom that runs, with the libraries that it needs; QEMU ([`qemu`]) runs it on the processors or, where these cannot ([`accel`]), in its
//! translator; host and guest talk over a virtio port ([`wire`]), the guest's side is its agent.

pub mod accel;
mod asker;
mod disk;
pub mod fetch;
pub mod initramfs;
pub mod kernel;
pub mod modules;
pub mod qemu;
mod reached;
mod tools;
pub mod vhost;
pub mod wire;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use fathom_files::create;
use fathom_telemetry::{Flag, FlagCode, Nanos};

pub use accel::Accelerator;
pub use asker::Asker;
pub use disk::{Backing, Cache, Disk, DiskModel};
pub use kernel::Kernel;
pub use qemu::Machine;
pub use tools::{Tool, Tools, given};

use crate::SystemError;
use initramfs::Program;
use modules::Modules;
use qemu::Qemu;
use reached::Reached;
use wire::{Answer, Ask, Reader};

/// A guest that is silent for so long after its start does not boot.
const BOOT_LIMIT: Nanos = Nanos::from_secs(60);
/// The same on the processors, where two seconds are usual.
const BOOT_LIMIT_KVM: Nanos = Nanos::from_secs(15);
/// A machine that runs already answers within this time: a connection, a key, the start of a program.
const REACH_LIMIT: Nanos = Nanos::from_secs(30);

/// More for each that is reached at the same time.
const REACH_EACH: Nanos = Nanos::from_millis(60);
/// An agent that says nothing for so long, twelve of its pulses, has died with its machine.
const SILENCE_LIMIT: Nanos = Nanos::from_secs(60);

/// Everything that guests are made of, found once.
#[derive(Debug, Clone)]
pub struct Supply {
    /// Kernel.
    pub kernel: Kernel,
    /// fathom.
    program: Program,
    /// Who runs guest code.
    pub accelerator: Accelerator,
    /// QEMU's version.
    pub qemu: String,
    /// A guest that says nothing for so long does not boot.
    pub boot_limit: Nanos,
    /// A guest that was booted and says nothing for so long is gone; more than [`wire::PULSE`].
    pub silence_limit: Nanos,
}

impl Supply {
    /// Finds QEMU, a kernel (a named one first), fathom (a named one, or the one that runs), and what can run guest code.
    ///
    /// # Errors
    /// The first part that is missing, with how to get it.
    pub fn find(kernel: Option<&Path>, binary: Option<&Path>) -> Result<Self, SystemError> {
        let qemu = qemu::version()?;
        let kernel = Kernel::find(kernel)?;
        // Where the one that runs is not known, what the kernel calls it will do.
        let own = || std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        let program = Program::read(&binary.map_or_else(own, Path::to_owned))?;
        let accelerator = Accelerator::probe();
        let boot_limit = if accelerator.is_emulated() {
            BOOT_LIMIT
        } else {
            BOOT_LIMIT_KVM
        };
        Ok(Self {
            kernel,
            program,
            accelerator,
            qemu,
            boot_limit,
            silence_limit: SILENCE_LIMIT,
        })
    }

    /// Boots a machine and waits until its agent answers. A kernel that does not boot on the processors is tried
    /// again in the translator, once and for all guests of this supply.
    ///
    /// # Errors
    /// Where a module is missing, or the guest does not answer in time, with what it said.
    pub fn boot(&mut self, machine: &Machine) -> Result<Guest, SystemError> {
        match Guest::boot(self, machine) {
            Err(e @ SystemError::Failed(_)) if !self.accelerator.is_emulated() => {
                self.accelerator =
                    Accelerator::Tcg(format!("a kernel did not boot on the processors: {e}"));
                self.boot_limit = BOOT_LIMIT;
                Guest::boot(self, machine)
            }
            other => other,
        }
    }

    /// What stands against every number of its guests.
    pub fn stamps(&self) -> Vec<Flag> {
        match &self.accelerator {
            Accelerator::Kvm => Vec::new(),
            Accelerator::Tcg(why) => vec![emulated_flag(why)],
        }
    }
}

/// For every job of a guest that is emulated.
pub fn emulated_flag(why: &str) -> Flag {
    Flag::new(
        FlagCode::Emulated,
        format!("emulated CPU: not a performance figure ({why})"),
        "compare settings under the same conditions only; measure on a machine whose processors run guests",
    )
}

/// What carries a guest. Dropping it ends the guest, or the connection to it.
#[derive(Debug)]
enum Carrier {
    /// Its hypervisor.
    Qemu(Qemu),
    /// A connection to a machine of somebody else's.
    Reached(Reached),
}

impl Carrier {
    fn pid(&self) -> u32 {
        match self {
            Self::Qemu(q) => q.pid(),
            Self::Reached(f) => f.pid(),
        }
    }
    fn ended(&mut self) -> bool {
        match self {
            Self::Qemu(q) => q.ended(),
            Self::Reached(f) => f.ended(),
        }
    }
    /// What answers behind it.
    fn who(&self) -> &'static str {
        match self {
            Self::Qemu(_) => "the guest",
            Self::Reached(_) => "its agent",
        }
    }
    /// What it died of, or the last lines that it said.
    fn said(&mut self, lines: usize) -> String {
        last_words(
            &match self {
                Self::Qemu(q) => q.said(),
                Self::Reached(f) => f.said(),
            },
            lines,
        )
    }
    /// Waits for its end.
    fn end_within(&mut self, limit: Nanos) {
        let began = fathom_io::clock::monotonic();
        while !self.ended() && fathom_io::clock::monotonic().since(began) < limit {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A guest whose agent answers. Dropping it ends it.
pub struct Guest {
    carrier: Carrier,
    out: Asker,
    answers: Reader<UnixStream>,
    /// What it said of itself.
    pub hello: Answer,
    /// From the start of QEMU to the first answer.
    pub booted_in: Nanos,
    /// Without any word for so long it is gone.
    silence_limit: Nanos,
    /// Command lines that were run in it.
    commands: u32,
}

/// What a program in a guest left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status; `None` where a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Guest {
    fn boot(supply: &Supply, machine: &Machine) -> Result<Self, SystemError> {
        let modules = Modules::of(&supply.kernel).closure(&machine.all_modules())?;
        let archive =
            qemu::in_memory(|out| initramfs::write(out, &supply.program, &modules, &machine.tools))
                .map_err(|e| {
                    SystemError::Failed(format!("no memory for a guest's initramfs: {e}"))
                })?;
        let (qemu, port) =
            Qemu::start(&supply.kernel.image, &archive, machine, &supply.accelerator)?;
        let name = supply.kernel.image.display().to_string();
        let limits = (supply.boot_limit, supply.silence_limit);
        Self::meet(Carrier::Qemu(qemu), port, limits, &name)
    }

    /// Reaches a machine that runs already, through a program that carries the input and output of its fathom:
    /// `ssh HOST fathom guest-agent`. Ending the guest ends the connection only.
    ///
    /// # Errors
    /// Where the program is missing, or nobody answers, with what it said.
    pub fn reach(program: &[String]) -> Result<Self, SystemError> {
        let mut all = Self::reach_all(&[program.to_vec()]);
        all.pop()
            .unwrap_or_else(|| Err(SystemError::Failed("nobody was to be reached".into())))
    }

    /// The same of many at once: programs are started by this thread, with whose end they end, and met in parallel.
    pub fn reach_all(programs: &[Vec<String>]) -> Vec<Result<Self, SystemError>> {
        let limit = REACH_LIMIT + Nanos(REACH_EACH.0 * programs.len() as u64);
        let started: Vec<_> = programs.iter().map(|p| Reached::start(p)).collect();
        std::thread::scope(|scope| {
            let meetings: Vec<_> = started
                .into_iter()
                .zip(programs)
                .map(|(started, program)| {
                    fathom_io::threads::within(scope, move || {
                        let (far, port) = started?;
                        let limits = (limit, SILENCE_LIMIT);
                        Self::meet(Carrier::Reached(far), port, limits, &program.join(" "))
                    })
                })
                .collect();
            let broken = || SystemError::Failed("a machine could not be met".into());
            meetings
                .into_iter()
                .map(|m| match m {
                    Ok(thread) => thread.join().unwrap_or_else(|_| Err(broken())),
                    Err(e) => Err(SystemError::Failed(e.to_string())),
                })
                .collect()
        })
    }

    /// Waits until its agent answers; from then on no answer is waited for longer than the second limit.
    fn meet(
        mut carrier: Carrier,
        port: UnixStream,
        (limit, silence_limit): (Nanos, Nanos),
        name: &str,
    ) -> Result<Self, SystemError> {
        let began = fathom_io::clock::monotonic();
        let who = carrier.who();
        let pair = port.try_clone().and_then(|out| {
            port.set_read_timeout(Some(std::time::Duration::from_millis(100)))?;
            Ok((Asker::new(out)?, port))
        });
        let (out, mut port) =
            pair.map_err(|e| SystemError::Failed(format!("no port to a guest: {e}")))?;
        // Asked before anybody listens: it is kept until the guest opens the port.
        let sent = out.ask(&Ask::Hello, &[]);
        let mut first = [0];
        loop {
            match port.read(&mut first) {
                Ok(1) if sent.is_ok() => break,
                Err(e) if would_wait(&e) && !carrier.ended() => {}
                _ => {
                    // What ended it may still be on its way to the console.
                    carrier.end_within(Nanos::from_millis(200));
                    let said = carrier.said(4);
                    return Err(SystemError::Failed(format!(
                        "{who} ended before it was ready ({name}): {said}"
                    )));
                }
            }
            if fathom_io::clock::monotonic().since(began) > limit {
                let said = carrier.said(4);
                let said = if said.is_empty() {
                    "it said nothing".into()
                } else {
                    said
                };
                return Err(SystemError::Failed(format!(
                    "{who} did not answer within {limit} ({name}): {said}"
                )));
            }
        }
        let booted_in = fathom_io::clock::monotonic().since(began);
        let limit = Some(std::time::Duration::from_nanos(silence_limit.0));
        let rest = port
            .set_read_timeout(limit)
            .and_then(|()| port.set_write_timeout(limit))
            .and_then(|()| port.try_clone())
            .map_err(|e| SystemError::Failed(format!("no port to a guest: {e}")))?;
        let mut guest = Self {
            carrier,
            out,
            answers: Reader::new(rest),
            hello: Answer::Done,
            booted_in,
            silence_limit,
            commands: 0,
        };
        guest.hello = guest.first_answer(first[0], &port)?;
        match &guest.hello {
            Answer::Hello { version, .. } if *version == wire::VERSION => Ok(guest),
            Answer::Hello { version, .. } => Err(SystemError::Refused(format!(
                "{who} speaks version {version}, this fathom {}: build both from the same sources",
                wire::VERSION
            ))),
            other => Err(SystemError::Failed(format!("{who} answered {other:?}"))),
        }
    }

    /// The first answer, whose first byte was read already.
    fn first_answer(&mut self, first: u8, mut port: &UnixStream) -> Result<Answer, SystemError> {
        let mut bytes = vec![first];
        let mut one = [0];
        while bytes.last() != Some(&b'\n') {
            match port.read(&mut one) {
                Ok(1) => bytes.push(one[0]),
                _ => return Err(self.gone("it ended in the middle of its first answer")),
            }
        }
        let message = Reader::new(&bytes[..]).message();
        match message {
            Ok(Some((answer, _))) => Ok(answer),
            Ok(None) => Err(self.gone("it said nothing")),
            Err(e) => Err(self.gone(&e.to_string())),
        }
    }

    /// Number of the process that carries it: QEMU, or the connection.
    pub fn pid(&self) -> u32 {
        self.carrier.pid()
    }

    /// It cannot be spoken with.
    fn lost(&mut self, e: &std::io::Error) -> SystemError {
        if !would_wait(e) {
            return self.gone(&e.to_string());
        }
        self.gone(&format!(
            "it said nothing for {}: its kernel has died or its machine stands still",
            self.silence_limit
        ))
    }

    fn gone(&mut self, why: &str) -> SystemError {
        self.carrier.end_within(Nanos::from_millis(200));
        let said = self.carrier.said(4);
        let colon = if said.is_empty() { "" } else { ": " };
        let who = self.carrier.who();
        SystemError::Failed(format!("{who} is gone ({why}){colon}{said}"))
    }

    /// Asks; the answers are for [`Guest::answer`].
    ///
    /// # Errors
    /// Where the guest is gone.
    pub fn ask(&mut self, ask: &Ask, raw: &[u8]) -> Result<(), SystemError> {
        let asked = self.out.ask(ask, raw);
        asked.map_err(|e| self.lost(&e))
    }

    /// The next answer; a failure that the guest reports is an error.
    ///
    /// # Errors
    /// What the guest says, that it is gone, or that it said nothing for a minute.
    pub fn answer(&mut self) -> Result<(Answer, Vec<u8>), SystemError> {
        loop {
            let message = self.answers.message();
            self.out.hears();
            return match message {
                Ok(Some((Answer::Alive, _))) => continue,
                Ok(Some((Answer::Failed { message, refused }, _))) => Err(if refused {
                    SystemError::Refused(message)
                } else {
                    SystemError::Failed(message)
                }),
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(self.gone("its port closed")),
                Err(e) => Err(self.lost(&e)),
            };
        }
    }

    /// Another way to ask, for a thread that does not wait for answers.
    pub fn asker(&self) -> Asker {
        self.out.clone()
    }

    /// Runs a program in the guest and waits for it; `fathom` is fathom itself. It runs in `dir`, which is made.
    ///
    /// # Errors
    /// Where it cannot be started. That it failed stands in its status.
    pub fn exec(&mut self, argv: &[&str], dir: &str) -> Result<Output, SystemError> {
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        self.ask(
            &Ask::Exec {
                argv,
                dir: dir.to_owned(),
            },
            &[],
        )?;
        match self.answer()?.0 {
            Answer::Output { status, out, err } => Ok(Output { status, out, err }),
            other => Err(SystemError::Failed(format!("the guest answered {other:?}"))),
        }
    }

    /// Runs a fathom command line in the guest and brings its run directories back into `into`; returns what it
    /// left and the directories.
    ///
    /// # Errors
    /// Where it cannot be started, or its results cannot be kept.
    pub fn fathom(
        &mut self,
        arguments: &[&str],
        into: &Path,
    ) -> Result<(Output, Vec<PathBuf>), SystemError> {
        self.commands += 1;
        // Reached machines have other users.
        let dir = format!(
            "/tmp/fathom-{}-{:x}-{}",
            std::process::id(),
            fathom_io::clock::monotonic().0,
            self.commands
        );
        let argv = [&["fathom"], arguments].concat();
        let output = self.exec(&argv, &dir)?;
        let place = format!("{dir}/{}", fathom_telemetry::rundir::RUNS_DIR);
        // A command that was refused leaves none.
        let made = self.fetch(&place, into).unwrap_or_default();
        let mut runs: Vec<PathBuf> = made
            .iter()
            .filter_map(|p| Some(into.join(p.components().next()?)))
            .collect();
        runs.sort();
        runs.dedup();
        Ok((output, runs))
    }

    /// Makes a file in the guest.
    ///
    /// # Errors
    /// Where the guest cannot write it.
    pub fn put(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), SystemError> {
        self.ask(
            &Ask::Put {
                path: path.to_owned(),
                mode,
            },
            bytes,
        )?;
        self.answer().map(|_| ())
    }

    /// Brings a file, or all files of a directory, from the guest into a directory; returns their paths in it. Directories
    /// are new ones, under another name where there is one of theirs: no run that lies there is touched.
    ///
    /// # Errors
    /// Where it is not there, or cannot be kept here.
    pub fn fetch(&mut self, path: &str, into: &Path) -> Result<Vec<PathBuf>, SystemError> {
        self.ask(
            &Ask::Fetch {
                path: path.to_owned(),
            },
            &[],
        )?;
        let name = Path::new(path)
            .file_name()
            .map(PathBuf::from)
            .unwrap_or_default();
        let (mut kept, mut fresh) = (Vec::new(), BTreeMap::new());
        let mut failed = None;
        loop {
            let (answer, bytes) = self.answer()?;
            let Answer::File { path } = answer else { break };
            let below = if path.is_empty() {
                name.clone()
            } else {
                PathBuf::from(path)
            };
            // What a guest says does not lead out of the directory.
            if below
                .components()
                .any(|c| !matches!(c, Component::Normal(_)))
            {
                continue;
            }
            match keep(&below, &bytes, into, &mut fresh) {
                Ok(place) => kept.push(place),
                Err(e) => {
                    failed = Some(SystemError::Failed(format!(
                        "{} cannot be written: {e}",
                        into.join(&below).display()
                    )))
                }
            }
        }
        failed.map_or(Ok(kept), Err)
    }

    /// Difference of the guest's clock to this one's, ns, and half the shortest round trip, which bounds its error.
    ///
    /// # Errors
    /// Where the guest is gone.
    pub fn clock_offset(&mut self) -> Result<(i64, Nanos), SystemError> {
        const ROUNDS: u32 = 20;
        let mut best = (0, Nanos::MAX);
        for _ in 0..ROUNDS {
            let before = fathom_io::clock::monotonic();
            self.ask(&Ask::Clock, &[])?;
            let answer = self.answer()?.0;
            let after = fathom_io::clock::monotonic();
            let Answer::Clock { now } = answer else {
                return Err(SystemError::Failed(format!(
                    "the guest answered {answer:?}"
                )));
            };
            let half = Nanos(after.since(before).0 / 2);
            if half < best.1 {
                best = (now as i64 - (before + half).0 as i64, half);
            }
        }
        Ok(best)
    }

    /// Powers it off, or takes leave of it.
    pub fn off(mut self) {
        // One that no longer answers is ended by force.
        if self.ask(&Ask::Off, &[]).is_ok() {
            self.carrier.end_within(Nanos::from_secs(3));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Its input ends first: an agent that learns of it cleans up, whatever its launcher does with signals.
        if matches!(self.carrier, Carrier::Reached(_)) {
            self.out.cut();
        }
    }
}

/// Names that a directory's may be changed to, at most.
const SAME_NAME_MAX: u32 = 1000;

/// Keeps a file of a guest's in `into`, and says where. `fresh` are the directories made so far, by the guest's names.
fn keep(
    below: &Path,
    bytes: &[u8],
    into: &Path,
    fresh: &mut BTreeMap<PathBuf, PathBuf>,
) -> std::io::Result<PathBuf> {
    let mut parts = below.components();
    let (first, rest) = (parts.next(), parts.as_path());
    let mut place = below.to_owned();
    if let Some(first) = first.filter(|_| !rest.as_os_str().is_empty()) {
        let name = Path::new(&first).to_owned();
        let dir = match fresh.get(&name) {
            Some(dir) => dir.clone(),
            None => {
                let dir = fresh_dir(into, &name)?;
                fresh.entry(name).or_insert(dir).clone()
            }
        };
        place = dir.join(rest);
    }
    let file = into.join(&place);
    create::dirs(file.parent().unwrap_or(into))?;
    create::whole(&file, 0o644, bytes)?;
    Ok(place)
}

/// Makes a private directory of this name, or with a number behind it.
fn fresh_dir(into: &Path, name: &Path) -> std::io::Result<PathBuf> {
    create::dirs(into)?;
    for n in 1..=SAME_NAME_MAX {
        let dir = match n {
            1 => name.to_owned(),
            n => PathBuf::from(format!("{}-{n}", name.display())),
        };
        match create::private_dir(&into.join(&dir)) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// Of what a console has seen: lines in which a kernel says why it dies, before its registers, else the last ones.
fn last_words(text: &str, lines: usize) -> String {
    const DEATHS: [&str; 4] = ["Kernel panic", "BUG: ", "Oops: ", "Out of memory"];
    let all: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let dies = |l: &&str| DEATHS.iter().any(|d| l.contains(d)) && !l.contains("---[ end");
    let deaths: Vec<&str> = all.iter().copied().filter(dies).take(lines).collect();
    match deaths.as_slice() {
        [] => all[all.len().saturating_sub(lines)..].join(" | "),
        deaths => deaths.join(" | "),
    }
}

fn would_wait(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        std::io::ErrorKind::WouldBlock
            | std::io::ErrorKind::TimedOut
            | std::io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_dies_says_why_before_its_registers() {
        let panicked = "[1] sysrq: Trigger a crash\n[1] Kernel panic - not syncing: sysrq triggered crash\n[1] Call Trace:\n[1] R13: 0000\n[1] Kernel Offset: disabled\n[1] ---[ end Kernel panic - not syncing: sysrq triggered crash ]---\n";
        assert_eq!(
            last_words(panicked, 4),
            "[1] Kernel panic - not syncing: sysrq triggered crash"
        );
        assert_eq!(last_words("a\n\n b \nc\n", 2), "b | c");
        assert_eq!(last_words("", 2), "");
    }

    #[test]
    fn a_run_that_comes_from_a_guest_takes_no_place_of_one_that_is_here() {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("runs");
        let here = into.join("20260228T123045Z-kv");
        std::fs::create_dir_all(&here).unwrap();
        std::fs::write(here.join("run.json"), "measured here").unwrap();
        let mut fresh = BTreeMap::new();
        for name in ["run.json", "deep/er/series.parquet"] {
            let below = Path::new("20260228T123045Z-kv").join(name);
            let kept = keep(&below, b"there", &into, &mut fresh).unwrap();
            assert_eq!(kept, Path::new("20260228T123045Z-kv-2").join(name));
            assert_eq!(std::fs::read(into.join(kept)).unwrap(), b"there");
        }
        let kept = std::fs::read(here.join("run.json")).unwrap();
        assert_eq!(kept, b"measured here");
        // The same file twice, and a link that lies there.
        let again = Path::new("20260228T123045Z-kv/run.json");
        assert!(keep(again, b"else", &into, &mut fresh).is_err());
        std::os::unix::fs::symlink(&here, into.join("log")).unwrap();
        let kept = keep(Path::new("log/run.json"), b"x", &into, &mut fresh).unwrap();
        assert_eq!(kept, Path::new("log-2/run.json"));
        assert!(keep(Path::new("log"), b"x", &into, &mut fresh).is_err());
    }
}
