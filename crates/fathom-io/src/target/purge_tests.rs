//! Drives that are only described: what they answer, in what order.

use std::sync::Mutex;

use super::*;

/// A drive whose sanitize log reads like this, one page after another; the last one stays.
struct Described {
    begins: io::Result<()>,
    pages: Mutex<Vec<[u8; 512]>>,
}

fn page(state: u16, progress: u16, command: u8) -> [u8; 512] {
    let mut p = [0u8; 512];
    p[0..2].copy_from_slice(&progress.to_le_bytes());
    p[2..4].copy_from_slice(&state.to_le_bytes());
    p[4] = command;
    p
}

fn drive(pages: &[[u8; 512]]) -> Described {
    Described {
        begins: Ok(()),
        pages: Mutex::new(pages.iter().rev().copied().collect()),
    }
}

impl Drive for Described {
    fn begin(&self) -> io::Result<()> {
        match &self.begins {
            Ok(()) => Ok(()),
            Err(e) => Err(io::Error::other(e.to_string())),
        }
    }
    fn sanitized(&self) -> io::Result<Sanitize> {
        let mut pages = self.pages.lock().unwrap();
        let page = match pages.len() {
            0 => return Err(io::Error::other("the controller resets")),
            1 => pages[0],
            _ => pages.pop().unwrap(),
        };
        Ok(Sanitize::of(&page))
    }
    fn format_left(&self) -> Option<u8> {
        None
    }
}

const BLOCK: u8 = 0b1010;

fn watched(drive: &Described, control: &Control) -> (Result<String, PurgeError>, Vec<f64>, u32) {
    let (mut shown, mut pauses) = (Vec::new(), 0);
    let done = sanitize(
        drive,
        Method::SanitizeBlock,
        control,
        &mut |p| shown.push(p),
        &mut |_| pauses += 1,
    );
    (done, shown, pauses)
}

#[test]
fn a_sanitize_operation_is_watched_to_its_end() {
    let described = drive(&[
        page(2, 0, BLOCK),
        page(2, 0x8000, BLOCK),
        page(2, 0xC000, BLOCK),
        page(0x101, 0xFFFF, BLOCK),
    ]);
    let (done, shown, pauses) = watched(&described, &Control::new());
    assert!(done.unwrap().contains("sanitized"));
    assert_eq!((shown, pauses), (vec![0.0, 50.0, 75.0], 3));
}

#[test]
fn a_drive_that_failed_says_what_to_do_and_one_that_refuses_why() {
    let (done, ..) = watched(
        &drive(&[page(2, 9, BLOCK), page(3, 9, BLOCK)]),
        &Control::new(),
    );
    let said = done.unwrap_err().to_string();
    for words in [
        "sanitize-block failed",
        "another one succeeds",
        "--sanact=1",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let refuses = Described {
        begins: Err(io::Error::other("the disk answered with status 0x1")),
        ..drive(&[])
    };
    let said = watched(&refuses, &Control::new())
        .0
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("status 0x1") && said.contains("--purge"),
        "{said}"
    );
    let (done, ..) = watched(&drive(&[page(0, 0, 0)]), &Control::new());
    assert!(
        done.unwrap_err()
            .to_string()
            .contains("reports no sanitize")
    );
}

#[test]
fn a_drive_that_makes_no_progress_is_given_up_after_an_hour_and_not_before() {
    let (done, _, pauses) = watched(&drive(&[page(2, 5, BLOCK)]), &Control::new());
    assert!(done.unwrap_err().to_string().contains("no progress"));
    assert!(u64::from(pauses) * APART.0 >= 3_599_000_000_000, "{pauses}");
    let (done, _, pauses) = watched(&drive(&[]), &Control::new());
    let said = done.unwrap_err().to_string();
    assert!(said.contains("does not answer"), "{said}");
    assert!(u64::from(pauses) * APART.0 >= 3_599_000_000_000, "{pauses}");
}

#[test]
fn an_interruption_leaves_the_drive_at_it_and_the_next_run_waits_for_it() {
    let control = Control::new();
    control
        .flag()
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let (done, ..) = watched(&drive(&[page(2, 5, BLOCK)]), &control);
    let said = done.unwrap_err();
    assert!(matches!(said, PurgeError::Interrupted { .. }), "{said}");
    // What the next run finds.
    let at = |progress| Emptying::Sanitize(Sanitize::of(&page(2, progress, BLOCK)));
    let mut found = vec![None, Some(at(0xC000)), Some(at(0x8000))];
    let mut shown = Vec::new();
    let waited = wait_for(
        &mut || found.pop().flatten(),
        &Control::new(),
        &mut |what, percent| shown.push(format!("{what} {percent:.0}")),
        &mut |_| {},
    );
    assert_eq!(waited, Ok(Some(Some(Method::SanitizeBlock))));
    assert_eq!(shown, ["being sanitized 50", "being sanitized 75"]);
    // Nothing goes on; a format; a failed one.
    let ask = |what: Option<Emptying>| {
        let mut first = vec![what];
        wait_for(
            &mut || first.pop().flatten(),
            &Control::new(),
            &mut |_, _| {},
            &mut |_| {},
        )
    };
    assert_eq!(ask(None), Ok(None));
    assert_eq!(
        ask(Some(Emptying::Format(60))),
        Ok(Some(Some(Method::Format)))
    );
    let failed = ask(Some(Emptying::Failed(Sanitize::of(&page(3, 0, 2)))));
    assert!(failed.unwrap_err().contains("takes no I/O until"));
}

#[test]
fn samples_tell_old_data_from_new_and_from_none() {
    let (old, new) = (vec![1u8, 2, 3, 4], vec![9u8, 8, 7, 6]);
    let mut c = Compared {
        samples: 6,
        ..Compared::default()
    };
    count(&mut c, Some(&old), Some(&[0; 4]));
    count(&mut c, Some(&old), Some(&[0xff; 4]));
    count(&mut c, Some(&old), Some(&new));
    count(&mut c, Some(&old), Some(&old));
    count(&mut c, Some(&old), None);
    // Was blank before: that it is so still says nothing.
    count(&mut c, Some(&[0; 4]), Some(&[0; 4]));
    assert_eq!(
        (c.held, c.same, c.zeroes, c.ones, c.unreadable),
        (5, 1, 2, 1, 1)
    );
    assert_eq!(
        c.sentence(),
        "of 6 samples 2 read as zeroes, 1 read as ones, 2 read as something else, 1 cannot be read; 1 of the 5 that held data read as before"
    );
}
