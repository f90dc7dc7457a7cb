//! `--tui` on a pseudo terminal: drawn, paused, ended early with its results kept; plain without one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::{Place, beside_others, end, names, skip};

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

/// What the program writes, until it has written `part`; everything so far.
fn until(from: &Receiver<Vec<u8>>, said: &mut String, part: &str) {
    while !said.contains(part) {
        match from.recv_timeout(PATIENCE) {
            Ok(bytes) => said.push_str(&String::from_utf8_lossy(&bytes)),
            Err(_) => panic!("'{part}' did not come:\n{said}"),
        }
    }
}

#[test]
fn the_view_is_drawn_paused_and_ended_early_with_results_kept() {
    let _turn = beside_others();
    let Some((ours, theirs)) = terminal() else {
        return;
    };
    let place = Place::new();
    let mut command = place.command(&[
        "run",
        "null:",
        "--name",
        "watched",
        "--threads",
        "2",
        "--rate",
        "20k",
        "--time",
        "120s",
        "--tui",
    ]);
    command
        .env("TERM", "xterm-256color")
        .stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stderr(Stdio::from(theirs));
    let child = command.spawn().unwrap();
    // The command holds the terminal's other end open; it must go for reading to end.
    drop(command);
    let mut keys = ours.try_clone().unwrap();
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
    let mut said = String::new();
    until(&from, &mut said, "\x1b[?1049h");
    until(&from, &mut said, "watched");
    until(&from, &mut said, "p99 ");
    until(&from, &mut said, "thread");
    keys.write_all(b"p").unwrap();
    until(&from, &mut said, "PAUSED");
    keys.write_all(b"q").unwrap();
    until(&from, &mut said, "\x1b[?1049l");
    let ended = end(child).expect(1);
    assert!(ended.stdout.contains("watched"), "{}", ended.stdout);
    let run = place.the_run();
    assert!(run["jobs"][0]["read"]["ios"].as_u64().unwrap() > 0);
    let flags = format!("{} {}", run["jobs"][0]["flags"], run["flags"]);
    assert!(flags.contains("interrupted"), "{flags}");
    // SAFETY: the descriptor is open, and the struct is written by the call alone.
    let echo = unsafe {
        let mut now: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(keys.as_raw_fd(), &raw mut now), 0);
        now.c_lflag & (libc::ECHO | libc::ICANON)
    };
    assert_eq!(echo, libc::ECHO | libc::ICANON, "the terminal is as it was");
}

#[test]
fn without_a_terminal_progress_is_plain() {
    let _turn = beside_others();
    let place = Place::new();
    let said = place
        .fathom(&["run", "null:", "--ios", "1000", "--tui"])
        .expect(0);
    assert!(!said.stderr.contains('\x1b') && !said.stdout.contains('\x1b'));
    assert_eq!(names(&place.runs()).len(), 1);
}
