//! A guest that dies or stands still is given up, and what it said last is told: nothing waits for it for ever.

use std::time::{Duration, Instant};

use fathom_system::guest::wire::PULSE;
use fathom_system::guest::{Guest, Machine, Supply};
use fathom_telemetry::Nanos;

use crate::common::{bring, skip, supply};

/// No answer for so long, and the guest is given up. (A minute outside of tests.)
const SILENCE: Nanos = Nanos::from_secs(12);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_secs(25);

fn boot(supply: &mut Supply) -> Option<Guest> {
    let mut guest = match supply.boot(&Machine::new(Vec::new())) {
        Ok(guest) => guest,
        Err(e) if e.to_string().contains("did not answer within") => {
            skip(&format!("this machine is too busy: {e}"));
            return None;
        }
        Err(e) => panic!("{e}"),
    };
    bring(&mut guest, "busybox").then_some(guest)
}

#[test]
fn a_guest_that_dies_or_stands_still_is_given_up() {
    // Beside other guests: it waits for the silence of its own more than it works.
    let Some(mut supply) = supply() else { return };
    supply.silence_limit = SILENCE;
    let shell = |guest: &mut Guest, script: &str| {
        guest.exec(&["/sbin/busybox", "sh", "-c", script], "/tmp/work")
    };
    // Its kernel dies while it does something.
    let Some(mut guest) = boot(&mut supply) else {
        return;
    };
    let began = Instant::now();
    let died = shell(&mut guest, "echo c > /proc/sysrq-trigger; sleep 1000").unwrap_err();
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
    let said = died.to_string();
    assert!(said.contains("is gone") && said.contains("panic"), "{said}");
    // And it stays gone, at once.
    let began = Instant::now();
    assert!(guest.clock_offset().is_err());
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(guest);

    let Some(mut guest) = boot(&mut supply) else {
        return;
    };
    // Who takes long and lives is waited for.
    let long = SILENCE + PULSE;
    let done = shell(&mut guest, &format!("sleep {}", long.as_secs_f64())).unwrap();
    assert_eq!(done.status, Some(0), "{}", done.err);
    // Its machine stands still: there is no word, and no end either.
    // SAFETY: a system call without pointers; the process is the guest's, and was not waited for.
    let stopped = unsafe { libc::kill(guest.pid() as i32, libc::SIGSTOP) };
    assert_eq!(stopped, 0);
    let began = Instant::now();
    let still = shell(&mut guest, "true").unwrap_err().to_string();
    assert!(still.contains("said nothing for 12"), "{still}");
    let waited = began.elapsed();
    assert!(waited < Duration::from(SILENCE) + SLACK, "{waited:?}");
    // What stands still is ended all the same.
    let pid = guest.pid();
    drop(guest);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());

    // Killed from outside.
    let Some(mut guest) = boot(&mut supply) else {
        return;
    };
    // SAFETY: as above.
    unsafe { libc::kill(guest.pid() as i32, libc::SIGKILL) };
    let began = Instant::now();
    let killed = shell(&mut guest, "true").unwrap_err().to_string();
    assert!(killed.contains("is gone"), "{killed}");
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
}
