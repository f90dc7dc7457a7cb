//! Progress: `--tui` on a pseudo terminal (drawn, paused, stopped, ended early with its results kept), the bar
//! there, and plain lines without one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{Place, Said, beside_others, end, names, send, skip, until};

/// Patience with a busy machine; nothing is judged by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pseudo terminal of 100 × 30: our end, and the program's.
fn terminal() -> Option<(File, OwnedFd)> {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize {
        ws_row: 30,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both numbers and the size outlive the call, which writes nothing else.
    let made = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    if made != 0 {
        skip("no pseudo terminal can be opened here");
        return None;
    }
    // SAFETY: openpty gave both to us alone.
    let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    Some((ours, theirs))
}

/// A run of two minutes on a pseudo terminal.
struct Watched {
    child: Child,
    keys: File,
    from: Receiver<Vec<u8>>,
    said: String,
}

impl Watched {
    /// `None` where there is no pseudo terminal. `--tui` is among `options` or not.
    fn begin(place: &Place, options: &[&str]) -> Option<Self> {
        let (ours, theirs) = terminal()?;
        let run = "run null: --name watched --threads 2 --rate 20k --time 120s";
        let mut args: Vec<&str> = run.split(' ').collect();
        args.extend(options);
        let mut command = place.command(&args);
        command
            .env("TERM", "xterm-256color")
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stderr(Stdio::from(theirs));
        let child = command.spawn().unwrap();
        // The command holds the terminal's other end open; it must go for reading to end.
        drop(command);
        let keys = ours.try_clone().unwrap();
        let (to, from) = channel();
        let mut reading = ours;
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(n) = reading.read(&mut buffer) {
                if n == 0 || to.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self {
            child,
            keys,
            from,
            said: String::new(),
        })
    }

    /// Waits until the program has written `part`; what was written before is forgotten.
    fn until(&mut self, part: &str) {
        loop {
            if let Some(at) = self.said.find(part) {
                self.said.drain(..at + part.len());
                return;
            }
            match self.from.recv_timeout(PATIENCE) {
                Ok(bytes) => self.said.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("'{part}' did not come:\n{}", self.said),
            }
        }
    }

    /// Waits until the process is stopped, or goes on.
    fn until_stopped(&self, stopped: bool) {
        let stat = format!("/proc/{}/stat", self.child.id());
        until("the process stops and goes on", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            let state = text.rsplit(") ").next().unwrap().chars().next();
            (state == Some('T')) == stopped
        });
    }

    /// What it writes from here to its end; how it ended.
    fn rest(mut self) -> (String, Said) {
        let said = end(self.child);
        self.said.extend(
            self.from
                .iter()
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        );
        (self.said, said)
    }

    /// How it ended, and the terminal that it leaves.
    fn end(self) -> (Said, File) {
        (end(self.child), self.keys)
    }
}

/// Whether keys are echoed and come in lines, as a shell has it.
fn as_before(terminal: &File) -> bool {
    // SAFETY: the descriptor is open, and the struct is written by the call alone.
    let modes = unsafe {
        let mut now: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut now), 0);
        now.c_lflag & (libc::ECHO | libc::ICANON)
    };
    modes == libc::ECHO | libc::ICANON
}

#[test]
fn the_view_is_drawn_paused_and_ended_early_with_results_kept() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(mut watched) = Watched::begin(&place, &["--tui"]) else {
        return;
    };
    for part in ["\x1b[?1049h", "watched", "p99 ", "thread"] {
        watched.until(part);
    }
    assert!(!as_before(&watched.keys), "keys are read one by one");
    watched.keys.write_all(b"p").unwrap();
    watched.until("PAUSED");
    watched.keys.write_all(b"q").unwrap();
    watched.until("\x1b[?1049l");
    let (ended, terminal) = watched.end();
    let ended = ended.expect(1);
    assert!(ended.stdout.contains("watched"), "{}", ended.stdout);
    let run = place.the_run();
    assert!(run["jobs"][0]["read"]["ios"].as_u64().unwrap() > 0);
    let flags = format!("{} {}", run["jobs"][0]["flags"], run["flags"]);
    assert!(flags.contains("interrupted"), "{flags}");
    assert!(as_before(&terminal), "the terminal is as it was");
}

#[test]
fn a_stopped_run_leaves_the_terminal_to_the_shell_and_takes_it_again_when_it_goes_on() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(mut watched) = Watched::begin(&place, &["--tui"]) else {
        return;
    };
    watched.until("\x1b[?1049h");
    watched.until("p99 ");
    // As the terminal does at Ctrl-Z.
    send(watched.child.id(), libc::SIGTSTP);
    watched.until("\x1b[?1049l");
    watched.until_stopped(true);
    assert!(as_before(&watched.keys));
    send(watched.child.id(), libc::SIGCONT);
    watched.until("\x1b[?1049h");
    watched.until("p99 ");
    assert!(!as_before(&watched.keys));
    // Nobody can object to this one: the terminal is taken again all the same.
    send(watched.child.id(), libc::SIGSTOP);
    watched.until_stopped(true);
    send(watched.child.id(), libc::SIGCONT);
    watched.until("\x1b[?1049h");
    watched.keys.write_all(b"q").unwrap();
    watched.until("\x1b[?1049l");
    let (ended, terminal) = watched.end();
    ended.expect(1);
    assert!(as_before(&terminal));
}

#[test]
fn on_a_terminal_a_bar_shows_what_runs_and_goes_away() {
    let _turn = beside_others();
    let place = Place::new();
    let Some(mut watched) = Watched::begin(&place, &[]) else {
        return;
    };
    for part in ["\u{2501}", "watched", " IOPS", " MB/s", "p99 "] {
        watched.until(part);
    }
    assert!(as_before(&watched.keys), "the keys stay the shell's");
    send(watched.child.id(), libc::SIGINT);
    let (rest, said) = watched.rest();
    let said = said.expect(1);
    assert!(said.stdout.contains("watched"), "{}", said.stdout);
    // The last thing that happens to its line: it is erased.
    let (_, after) = rest.rsplit_once("\x1b[2K").expect("the bar is erased");
    assert!(
        !after.contains("IOPS") && !after.contains('\u{2501}'),
        "{after}"
    );
}

#[test]
fn without_a_terminal_progress_is_plain() {
    let _turn = beside_others();
    let place = Place::new();
    let command = "run null: --name watched --rate 1k --time 8s --tui";
    let args: Vec<&str> = command.split(' ').collect();
    let said = place.fathom(&args).expect(0);
    assert!(!said.stderr.contains(['\x1b', '\r']) && !said.stdout.contains('\x1b'));
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(!lines.is_empty(), "a line after five seconds");
    for line in lines {
        let (share, rest) = line.split_once(" %  watched ").unwrap_or_default();
        assert!(
            share.trim().parse::<u32>().is_ok_and(|s| s <= 100),
            "{line}"
        );
        assert!(rest.contains(" IOPS  ") && rest.contains(" MB/s"), "{line}");
    }
    assert_eq!(names(&place.runs()).len(), 1);
}
