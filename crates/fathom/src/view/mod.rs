//! The full-screen view of `--tui`: what runs now, live.
//!
//! A thread of its own takes the windows that the driver's main loop tells (`fathom_io::driver::live`),
//! ten times a second: neither the threads that issue I/O nor the main loop ever wait for it. Where
//! there is no terminal nothing of it happens, and progress stays plain.

mod draw;
mod model;
mod terminal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fathom_io::clock::Clock;
use fathom_io::driver::live::{LiveWindow, judged, look_on};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::Headline;

pub(crate) use model::Target;
use model::{Model, disk_counters, disks_between};
use terminal::Terminal;

/// Asked for on the command line, and possible.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Asks the thread to leave.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// What commands say about themselves: name, and how far of how much.
static SAID: Mutex<(String, u64, u64)> = Mutex::new((String::new(), 0, 0));
/// Its numbers so far; taken by the view.
static HEADLINES: Mutex<Vec<Headline>> = Mutex::new(Vec::new());
/// What the run is of, and how long it was announced to take.
static ABOUT: Mutex<(Target, Nanos)> = Mutex::new((Target::Unknown, Nanos::ZERO));
static THREAD: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Between two readings of the disks' counters.
const DISKS_EVERY: Nanos = Nanos::from_secs(1);

/// Between two screens.
const BEAT: Duration = Duration::from_millis(50);

/// Remembers that the view is wanted.
pub(crate) fn want() {
    if Terminal::possible() {
        WANTED.store(true, Ordering::Relaxed);
    }
}

/// Whether the screen belongs to the view; begins it at the first call where it is wanted.
pub(crate) fn shown() -> bool {
    if !WANTED.load(Ordering::Relaxed) {
        return false;
    }
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        *thread = begin();
        if thread.is_none() {
            // Progress is plain then.
            WANTED.store(false, Ordering::Relaxed);
        }
    }
    thread.is_some()
}

/// Begins the view; `None` where the terminal cannot be taken over.
fn begin() -> Option<JoinHandle<()>> {
    let terminal = Terminal::enter()?;
    let windows = look_on()?;
    let view = move || view(&terminal, &windows);
    let thread = std::thread::Builder::new().name("fathom-view".to_owned());
    thread.spawn(view).ok()
}

/// What runs now.
pub(crate) fn name(name: &str) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.0.clear();
    said.0.push_str(name);
}

/// How far it is, of how much.
pub(crate) fn position(at: u64, of: u64) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    (said.1, said.2) = (at, of);
}

/// What the run is of: its disks are shown first, and of a model none.
pub(crate) fn target(target: Target) {
    ABOUT.lock().unwrap_or_else(PoisonError::into_inner).0 = target;
}

/// What its numbers are so far.
pub(crate) fn headlines(so_far: Vec<Headline>) {
    *HEADLINES.lock().unwrap_or_else(PoisonError::into_inner) = so_far;
}

/// How long all of it takes, as announced.
pub(crate) fn expect(time: Nanos) {
    ABOUT.lock().unwrap_or_else(PoisonError::into_inner).1 = time;
}

/// Gives the screen back, for good: results follow.
pub(crate) fn leave() {
    WANTED.store(false, Ordering::Relaxed);
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        LEAVING.store(true, Ordering::Relaxed);
        let _ = thread.join();
    }
}

fn view(terminal: &Terminal, windows: &Receiver<LiveWindow>) {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let clock = Clock::new();
    let counters =
        || disk_counters(&std::fs::read_to_string("/proc/diskstats").unwrap_or_default());
    let (mut disks_then, mut read_at) = (counters(), clock.now());
    let begun = read_at;
    let mut live = Model::default();
    // What is shown: the live one, or as it was when the view was paused.
    let mut held: Option<Model> = None;
    while !LEAVING.load(Ordering::Relaxed) {
        while let Ok(w) = windows.try_recv() {
            live.take(w);
        }
        judged().iter().for_each(|j| live.judge(j));
        let now = clock.now();
        if now.since(read_at) >= DISKS_EVERY {
            let disks_now = counters();
            live.disks = disks_between(&disks_then, &disks_now, now.since(read_at).as_secs_f64());
            (disks_then, read_at) = (disks_now, now);
        }
        {
            let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
            live.name.clone_from(&said.0);
            live.position = (said.1, said.2);
            let about = ABOUT.lock().unwrap_or_else(PoisonError::into_inner);
            live.target.clone_from(&about.0);
            live.expected = about.1;
            live.since = now.since(begun);
            let mut so_far = HEADLINES.lock().unwrap_or_else(PoisonError::into_inner);
            if !so_far.is_empty() {
                live.headlines = std::mem::take(&mut so_far);
            }
        }
        if !terminal.ours() {
            // In the background: somebody else's screen and keys.
            std::thread::sleep(BEAT);
            continue;
        }
        for key in Terminal::keys() {
            match key {
                b'p' | b' ' => {
                    held = match held {
                        Some(_) => None,
                        None => Some(Model {
                            paused: true,
                            ..live.clone()
                        }),
                    };
                }
                b'q' if !live.ending => {
                    live.ending = true;
                    held = None;
                    // The same way as Ctrl-C: the current window ends, everything measured is kept.
                    let me = rustix::process::getpid();
                    let _ = rustix::process::kill_process(me, rustix::process::Signal::INT);
                }
                _ => {}
            }
        }
        let (width, height) = Terminal::size();
        let shown = held.as_ref().unwrap_or(&live);
        Terminal::show(&draw::screen(shown, width, height), colour);
        // Where standard input has ended reading does not wait.
        std::thread::sleep(BEAT);
    }
}
