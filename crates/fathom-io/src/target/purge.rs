//! Purging: a target is emptied by a command of its drive or by the kernel, watched until it is, and looked at by samples.
//!
//! A drive goes on with a sanitize operation whatever becomes of who began it: one that is found going on is waited for
//! ([`settle`]), and counts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use fathom_host::Refusal;
use fathom_host::purge::nvme::{Sanitize, State, after_failure};
use fathom_host::purge::{Blocks, Emptying, Eraser, emptying};
pub use fathom_host::purge::{Method, Offers, offers};
use fathom_telemetry::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use super::{Holder, Target};
use crate::buffer::Buffers;
use crate::clock::monotonic;
use crate::driver::{Control, Destination};
use crate::load::rng::Rng;
use crate::threads;

/// How often a drive is asked how far it is.
const APART: Nanos = Nanos::from_millis(500);
/// Questions in a row that a drive may leave without an answer, or without any progress, before it is given up: an hour.
const SILENT_MAX: u32 = 7_200;
/// Bytes that the kernel empties in one go: an interruption waits for one of them.
const PIECE: u64 = 256 << 20;
/// Samples of a device, and bytes of each.
const SAMPLES: u64 = 256;
const SAMPLE: u64 = 4096;

/// How a target was emptied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Purged {
    /// The way.
    pub method: Method,
    /// Size of what was emptied.
    pub bytes: Bytes,
    /// Kernel names of other namespaces of the drive that were emptied, too.
    pub reached: Vec<String>,
    /// How long it took; of one that was found going on, how long it was waited for.
    pub took: Nanos,
    /// The answer of the drive or the kernel.
    pub answer: String,
    /// Whether the drive was already at it: an earlier run, or somebody else, had begun.
    pub found_going_on: bool,
    /// What deallocated blocks read as, where the drive promises that.
    pub promise: Option<String>,
    /// What samples read as, before and after.
    pub samples: Option<Compared>,
}

/// Samples of a device before and after it was emptied, each a count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Samples.
    pub samples: u32,
    /// Bytes of each.
    pub sample_bytes: u32,
    /// Held data before: not the same byte throughout.
    pub held: u32,
    /// Of those, read as before.
    pub same: u32,
    /// Read as zeroes.
    pub zeroes: u32,
    /// Read as ones (FFh).
    pub ones: u32,
    /// Cannot be read.
    pub unreadable: u32,
}

impl Compared {
    /// The result in a sentence.
    pub fn sentence(&self) -> String {
        let Self {
            samples,
            held,
            same,
            zeroes,
            ones,
            unreadable,
            ..
        } = *self;
        let other = samples.saturating_sub(zeroes + ones + unreadable);
        let now = [
            (zeroes, "read as zeroes"),
            (ones, "read as ones"),
            (other, "read as something else"),
            (unreadable, "cannot be read"),
        ];
        let now: Vec<String> = now
            .into_iter()
            .filter(|n| n.0 > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        let before = match (held, same) {
            (0, _) => "none held data before, so nothing is proved".to_owned(),
            (held, 0) => format!("none of the {held} that held data reads as before"),
            (held, same) => format!("{same} of the {held} that held data read as before"),
        };
        format!("of {samples} samples {}; {before}", now.join(", "))
    }
}

/// Why a target was not emptied.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The safety rules, or the device, say no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is no block device that may be written.
    #[error(
        "{target} cannot be purged by {method}: that needs a block device of this machine; use --purge discard or none"
    )]
    NoDevice {
        /// The target.
        target: String,
        /// The way.
        method: Method,
    },
    /// It went wrong.
    #[error("purge by {method} failed: {why}")]
    Failed {
        /// The way.
        method: Method,
        /// The answer, and what to do.
        why: String,
    },
    /// Somebody asked to end.
    #[error("purge by {method} was interrupted: {why}")]
    Interrupted {
        /// The way.
        method: Method,
        /// What goes on.
        why: String,
    },
}

/// What hears how far it is, percent.
pub type Show<'a> = &'a mut dyn FnMut(f64);

impl Target {
    /// Empties the first `range` bytes of a block device by a way other than [`Method::Discard`], which is a job.
    ///
    /// # Errors
    /// Where the device does not offer it, where it would reach what may not be emptied, and where it fails.
    pub fn purge(
        &self,
        method: Method,
        range: Bytes,
        control: &Control,
        show: Show<'_>,
    ) -> Result<Purged, PurgeError> {
        let Holder::Device(permit) = &self.holder else {
            let target = self.name.clone();
            return Err(PurgeError::NoDevice { target, method });
        };
        let blocks = match method {
            Method::SecureDiscard => Some(Blocks::Secure),
            Method::Zeroes => Some(Blocks::Zeroes),
            _ => None,
        };
        let eraser = match blocks {
            Some(_) => None,
            None if range.0 < self.size => {
                return Err(PurgeError::Refused(Refusal::NotPurged {
                    device: permit.path().to_path_buf(),
                    method: method.name().into(),
                    why: "it would empty more than the range that is asked for (--size)".into(),
                }));
            }
            None => Some(Eraser::new(permit, method)?),
        };
        let align = u64::from(self.align.max(512));
        let range = Bytes(range.0 / align * align);
        let before = Samples::of(self, range);
        let begun = monotonic();
        let failed = |e: &io::Error| PurgeError::Failed {
            method,
            why: format!("{e}; look at the kernel log, or choose another way (--purge)"),
        };
        let answer = match (&eraser, blocks) {
            (Some(eraser), _) => {
                let answer = match method.is_sanitize() {
                    true => sanitize(eraser, method, control, show, &mut std::thread::sleep)?,
                    false => format(eraser, method, show)?,
                };
                eraser.forget().map_err(|e| failed(&e))?;
                answer
            }
            (None, how) => {
                let mut at = 0;
                while at < range.0 {
                    if control.interrupted() {
                        let why = format!("{} of {range} are empty", Bytes(at));
                        return Err(PurgeError::Interrupted { method, why });
                    }
                    let length = PIECE.min(range.0 - at);
                    let how = how.unwrap_or(Blocks::Zeroes);
                    permit.empty(how, at, length).map_err(|e| failed(&e))?;
                    at += length;
                    show(100.0 * at as f64 / range.0 as f64);
                }
                format!("the kernel has emptied {range}")
            }
        };
        let took = monotonic().since(begun);
        let promise = eraser.as_ref().and_then(|e| e.drive.deallocated);
        Ok(Purged {
            method,
            bytes: range,
            reached: eraser.map(|e| e.reached).unwrap_or_default(),
            took,
            answer,
            found_going_on: false,
            promise: promise.map(str::to_owned),
            samples: before.map(|b| b.compare(self)),
        })
    }
}

/// What a drive does when it empties itself; also one that is only described.
trait Drive: Sync {
    /// Sends the command.
    fn begin(&self) -> io::Result<()>;
    /// How the sanitize operation stands.
    fn sanitized(&self) -> io::Result<Sanitize>;
    /// Percent of a format that are left, where it says.
    fn format_left(&self) -> Option<u8>;
}

impl Drive for Eraser {
    fn begin(&self) -> io::Result<()> {
        Eraser::begin(self)
    }
    fn sanitized(&self) -> io::Result<Sanitize> {
        Eraser::sanitized(self)
    }
    fn format_left(&self) -> Option<u8> {
        Eraser::format_left(self)
    }
}

/// Begins a sanitize operation and watches it to its end.
fn sanitize(
    drive: &dyn Drive,
    method: Method,
    control: &Control,
    show: Show<'_>,
    pause: &mut dyn FnMut(Duration),
) -> Result<String, PurgeError> {
    let failed = |why: String| PurgeError::Failed { method, why };
    drive
        .begin()
        .map_err(|e| failed(format!("{e}; choose another way (--purge)")))?;
    let (mut silent, mut last) = (0, None);
    loop {
        let now = drive.sanitized();
        match &now {
            Ok(s) => match s.state {
                State::Done => return Ok("the drive reports that it was sanitized".into()),
                State::Failed => {
                    let what = after_failure(s);
                    return Err(failed(format!(
                        "the drive reports that its sanitize operation failed: {what}"
                    )));
                }
                State::Running => show(s.percent()),
                State::Never | State::Unknown => {
                    return Err(failed(
                        "the drive took the command and reports no sanitize operation".into(),
                    ));
                }
            },
            Err(e) if silent >= SILENT_MAX => {
                return Err(failed(format!("the drive does not answer any more: {e}")));
            }
            Err(_) => {}
        }
        if control.interrupted() {
            let why = "the drive goes on by itself and takes no I/O until it ends; the same command again waits for it".into();
            return Err(PurgeError::Interrupted { method, why });
        }
        let progress = now.ok().map(|s| s.progress);
        silent = match progress.is_some() && progress != last {
            true => 0,
            false => silent + 1,
        };
        if progress.is_some() && silent >= SILENT_MAX {
            return Err(failed(
                "no progress for an hour; look at nvme sanitize-log".into(),
            ));
        }
        last = progress;
        pause(APART.into());
    }
}

/// Formats: the command ends with the format, and nobody can call it back.
fn format(drive: &dyn Drive, method: Method, show: Show<'_>) -> Result<String, PurgeError> {
    let done = std::thread::scope(|scope| {
        let command = match threads::within(scope, || drive.begin()) {
            Ok(command) => command,
            Err(e) => return Ok(Err(e)),
        };
        while !command.is_finished() {
            if let Some(left) = drive.format_left() {
                show(100.0 - f64::from(left));
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        command.join()
    });
    let failed = |why: String| PurgeError::Failed { method, why };
    match done {
        Ok(Ok(())) => Ok("the drive reports that it was formatted".into()),
        Ok(Err(e)) => Err(failed(format!("{e}; choose another way (--purge)"))),
        Err(_) => Err(failed("its thread ended early".into())),
    }
}

/// What was found going on and waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Which way, where it is one of fathom's.
    pub method: Option<Method>,
    /// How long it was waited for.
    pub waited: Nanos,
}

impl Settled {
    /// The purge that it was.
    pub fn as_purge(&self, method: Method, bytes: Bytes) -> Purged {
        Purged {
            method,
            bytes,
            reached: Vec::new(),
            took: self.waited,
            answer: "the drive was at it already and reports that it is done".into(),
            found_going_on: true,
            promise: None,
            samples: None,
        }
    }
}

/// Waits until the drive of a device, which is found emptying itself, has ended; `None` where it is at nothing.
///
/// # Errors
/// In a sentence, where it failed or where somebody asked to end.
pub fn settle(
    device: &Path,
    control: &Control,
    show: &mut dyn FnMut(&str, f64),
) -> Result<Option<Settled>, String> {
    let begun = monotonic();
    let mut ask = || emptying(device);
    let method = wait_for(&mut ask, control, show, &mut std::thread::sleep)
        .map_err(|e| format!("{}: {e}", device.display()))?;
    Ok(method.map(|method| Settled {
        method,
        waited: monotonic().since(begun),
    }))
}

fn wait_for(
    ask: &mut dyn FnMut() -> Option<Emptying>,
    control: &Control,
    show: &mut dyn FnMut(&str, f64),
    pause: &mut dyn FnMut(Duration),
) -> Result<Option<Option<Method>>, String> {
    let mut found = None;
    loop {
        let (what, percent) = match ask() {
            None => return Ok(found),
            Some(Emptying::Failed(s)) => {
                return Err(format!(
                    "the last sanitize operation of its drive failed: {}",
                    after_failure(&s)
                ));
            }
            Some(Emptying::Sanitize(s)) => {
                found = Some(s.method());
                ("being sanitized", s.percent())
            }
            Some(Emptying::Format(left)) => {
                found = Some(Some(Method::Format));
                ("being formatted", 100.0 - f64::from(left))
            }
        };
        show(what, percent);
        if control.interrupted() {
            return Err(format!(
                "its drive is still {what} ({percent:.0} %): the same command again waits for it"
            ));
        }
        pause(APART.into());
    }
}

/// What a device reads as here and there.
pub struct Samples {
    places: Vec<(u64, Option<Vec<u8>>)>,
    length: u32,
}

impl Samples {
    /// Of the first `range` bytes of a block device, past the page cache; `None` of anything else.
    pub fn of(target: &Target, range: Bytes) -> Option<Self> {
        let file = medium(target)?;
        let length = SAMPLE.max(target.align.into());
        let blocks = range.0 / length;
        let count = SAMPLES.min(blocks);
        // Here and there within equal parts, at the first block and at the last.
        let mut rng = Rng::new(range.0, 0x7075_7267);
        let place = |i: u64, rng: &mut Rng| match i {
            0 => 0,
            i if i + 1 == count => blocks - 1,
            i => i * blocks / count + rng.below((blocks / count).max(1)),
        };
        let mut buffer = Buffers::new(1, length as u32, None).ok()?;
        let places = (0..count).map(|i| {
            let at = place(i, &mut rng) * length;
            (at, read(file, at, buffer.bytes(0, length as u32)))
        });
        Some(Self {
            places: places.collect(),
            length: length as u32,
        })
    }

    /// What they read as now.
    pub fn compare(&self, target: &Target) -> Compared {
        let mut all = Compared {
            samples: self.places.len() as u32,
            sample_bytes: self.length,
            ..Compared::default()
        };
        let buffer = Buffers::new(1, self.length, None);
        let (Some(file), Ok(mut buffer)) = (medium(target), buffer) else {
            all.unreadable = all.samples;
            return all;
        };
        for (at, before) in &self.places {
            let now = read(file, *at, buffer.bytes(0, self.length));
            count(&mut all, before.as_deref(), now.as_deref());
        }
        all
    }
}

/// Adds a sample to the counts.
fn count(all: &mut Compared, before: Option<&[u8]>, now: Option<&[u8]>) {
    let only = |data: &[u8], byte: u8| data.iter().all(|b| *b == byte);
    let held = before.is_some_and(|b| b.first().is_some_and(|first| !only(b, *first)));
    all.held += u32::from(held);
    match now {
        None => all.unreadable += 1,
        Some(n) if only(n, 0) => all.zeroes += 1,
        Some(n) if only(n, 0xff) => all.ones += 1,
        Some(_) => {}
    }
    all.same += u32::from(held && now == before);
}

fn medium(target: &Target) -> Option<&File> {
    match (&target.holder, &target.destination) {
        (Holder::Device(_), Destination::File { direct, .. }) => direct.as_deref(),
        _ => None,
    }
}

fn read(file: &File, at: u64, buffer: &mut [u8]) -> Option<Vec<u8>> {
    file.read_exact_at(buffer, at).ok()?;
    Some(buffer.to_vec())
}

#[cfg(test)]
#[path = "purge_tests.rs"]
mod tests;
