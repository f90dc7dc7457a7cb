//! `--trigger-file`, `--trigger-timeout`, `--trigger` and `--trigger-remote`.

use std::sync::atomic::{AtomicBool, Ordering};

use fathom_fio::Trigger;
use fathom_io::Control;
use fathom_io::clock::monotonic;
use fathom_telemetry::{Nanos, say};

/// Whether whoever started this host's jobs has pulled the trigger there.
static PULLED: AtomicBool = AtomicBool::new(false);

/// On a host: the trigger was pulled by who started it.
pub(super) fn pulled() {
    PULLED.store(true, Ordering::Relaxed);
}

/// Ends the jobs once, where the trigger's time is over or its file is there, and runs its command.
pub(super) fn pull(trigger: &mut Option<&Trigger>, begin: Nanos, controls: &[Control]) {
    let Some(t) = trigger.filter(|t| fires(t, begin)) else {
        return;
    };
    *trigger = None;
    for control in controls {
        control.interrupt();
    }
    if let Some(line) = &t.command {
        command(line);
    }
}

/// Whether the time is over, or the file is there, which is taken away then.
pub(super) fn fires(t: &Trigger, begin: Nanos) -> bool {
    let late = t.timeout.map(Nanos::from);
    let late = late.is_some_and(|time| monotonic().since(begin) >= time);
    let file = t.file.as_ref().and_then(|f| Some((f, f.metadata().ok()?)));
    if !late && file.is_none() && !PULLED.load(Ordering::Relaxed) {
        return false;
    }
    // fio takes the file away; one that holds something is left.
    if let Some((path, meta)) = file
        && meta.is_file()
        && meta.len() == 0
    {
        let _ = std::fs::remove_file(path);
    }
    true
}

/// Hands a line to the shell.
pub(super) fn command(line: &str) {
    // Standard output is the results'. What the command leaves running keeps no one waiting.
    let words = rustix::stdio::stderr().try_clone_to_owned();
    let ran = words.and_then(|words| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).stdout(words).status()
    });
    match ran {
        Ok(status) if status.success() => {}
        Ok(status) => say!("fathom: the command of --trigger ended with {status}: {line}"),
        Err(e) => say!("fathom: the command of --trigger could not be started: {e}: {line}"),
    }
}
