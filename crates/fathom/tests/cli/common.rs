//! What the tests share: the binary, a place to run it in, and turns.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Loop devices, mounts and checksums, as the room below tests its gate with them.
#[path = "../../../fathom-host/tests/common/mod.rs"]
pub(crate) mod machine;

pub(crate) use machine::skip;

/// Ends a command that hangs. (Fitting a model has taken three minutes on a busy machine.)
const PATIENCE: Duration = Duration::from_secs(300);

static TURNS: RwLock<()> = RwLock::new(());

/// For tests that may run beside others.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that look at the time, or at what the whole machine does.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}

/// A directory to run in; `fathom-runs` is made beside it, so that it only holds what a target should.
pub(crate) struct Place {
    base: tempfile::TempDir,
    /// Where commands run.
    pub(crate) dir: PathBuf,
}

impl Place {
    /// On a real file system: /tmp may lie in memory, which has no direct I/O.
    pub(crate) fn new() -> Self {
        let base = tempfile::Builder::new()
            .prefix("fathom-cli-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        let dir = base.path().join("work");
        fs::create_dir(&dir).unwrap();
        Self { base, dir }
    }

    /// What it lies in, with room beside it.
    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// Where its runs are kept.
    pub(crate) fn runs(&self) -> PathBuf {
        self.base.path().join("runs")
    }

    /// A command of fathom with `--out` on the side where it measures.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fathom"));
        command.args(args).current_dir(&self.dir);
        let keeps_no_run = matches!(
            args.first(),
            None | Some(
                &("fio"
                    | "compare"
                    | "report"
                    | "runs"
                    | "query"
                    | "devices"
                    | "sim"
                    | "clean"
                    | "doctor"
                    | "completions"
                    | "man"
                    | "keep-settings"
                    | "swap-load"
                    | "guest-agent")
            )
        );
        let named = args
            .first()
            .is_some_and(|a| a.starts_with(|c: char| c.is_ascii_lowercase()));
        if named && !keeps_no_run && !args.contains(&"--out") {
            command.arg("--out").arg(self.runs());
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs fathom to its end.
    pub(crate) fn fathom(&self, args: &[&str]) -> Said {
        wait(self.command(args))
    }

    /// Starts fathom and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Names in the directory, hidden ones included, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.dir)
    }

    /// The only run of this place, from its file.
    pub(crate) fn the_run(&self) -> Value {
        let runs = names(&self.runs());
        assert_eq!(runs.len(), 1, "{runs:?}");
        let file = self.runs().join(&runs[0]).join("run.json");
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// Directory of its only run.
    pub(crate) fn the_run_dir(&self) -> PathBuf {
        let runs = names(&self.runs());
        assert_eq!(runs.len(), 1, "{runs:?}");
        self.runs().join(&runs[0])
    }
}

/// Names in a directory, sorted; none where it is missing.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What a command said.
pub(crate) struct Said {
    /// Exit code; `None` where a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    fn new(output: Output) -> Self {
        let text = |b: Vec<u8>| String::from_utf8(b).expect("UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// It must have ended with this code.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output is one JSON document and nothing else.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}\n{}", self.stdout, self.stderr))
    }

    /// Refused: exit code 2, nothing on standard output, exactly one sentence on standard error.
    #[track_caller]
    pub(crate) fn refusal(self) -> String {
        let said = self.expect(2);
        assert_eq!(said.stdout, "", "{}", said.stderr);
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "one line: {:?}", said.stderr);
        let sentence = lines[0].strip_prefix("fathom: ").unwrap_or_else(|| {
            panic!("no 'fathom: ' at the start: {:?}", said.stderr);
        });
        assert!(
            (20..400).contains(&sentence.len()),
            "a sentence, not a word or a page: {sentence}"
        );
        for cause in ["os error 2)", "panicked", "RUST_BACKTRACE"] {
            assert!(
                sentence.matches(cause).count() < 2 && !sentence.contains("panicked"),
                "{sentence}"
            );
        }
        sentence.to_owned()
    }
}

/// Runs a command to its end, but not for ever.
pub(crate) fn wait(mut command: Command) -> Said {
    let child = command.spawn().unwrap();
    end(child)
}

/// Waits for a started command, but not for ever.
pub(crate) fn end(child: Child) -> Said {
    let id = child.id();
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            send(id, libc::SIGKILL);
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().unwrap();
    Said::new(output)
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn send(id: u32, signal: i32) {
    // SAFETY: a system call without pointers; the child is ours and not reaped yet.
    unsafe { libc::kill(id as i32, signal) };
}

/// Waits until something is so; fails after a minute, which a small busy machine may need.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "not within 60 s: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The scratch file in a directory, if there is one.
pub(crate) fn scratch(dir: &Path) -> Option<String> {
    names(dir)
        .into_iter()
        .find(|n| n.starts_with(".fathom-scratch-"))
}

/// Codes of a list of flags.
pub(crate) fn codes(flags: &Value) -> Vec<String> {
    flags
        .as_array()
        .expect("a list of flags")
        .iter()
        .map(|f| f["code"].as_str().unwrap().to_owned())
        .collect()
}

/// Denies the io_uring system calls to a command, as container profiles and
/// `kernel.io_uring_disabled=2` do, without touching the rest of the machine.
pub(crate) fn deny_io_uring(command: &mut Command) {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let above = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The three calls have neighbouring numbers (425 to 427) on every architecture.
    let filter = [
        step(load, 0, 0, 0),
        step(at_least, 0, 2, libc::SYS_io_uring_setup as u32),
        step(above, 1, 0, libc::SYS_io_uring_register as u32),
        step(ret, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: plain system calls; the kernel copies the program, which lives until they return.
        let denied = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        if denied {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec only system calls are made, nothing is allocated.
    unsafe { command.pre_exec(install) };
}

/// Python with the engines that `./test` fetched.
pub(crate) fn engines() -> Command {
    let mut python = Command::new("python3");
    let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/engines");
    python.env("PYTHONPATH", modules);
    python
}
