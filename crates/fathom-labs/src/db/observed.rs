//! A server while clients work on it: when it has warmed up, and what is counted beside them over the measured time.

use std::cell::RefCell;

use fathom_bench::progress::ProgressSink;
use fathom_telemetry::Nanos;

use super::counters::{Observed, Watch};
use super::sql;
use super::warmth::{Gauge, Warmth};
use crate::LabError;
use crate::clients::{Total, ticker};

/// Whether to end early, and what has not yet warmed up.
pub(super) type Terms<'a> = (&'a dyn Fn() -> bool, &'a dyn Fn() -> Option<&'static str>);
/// Called as the measured time begins, and as it ends.
pub(super) type Edge<'a> = &'a mut dyn FnMut(Total<'_>);

/// What was counted over the measured time.
pub(super) struct Counts<S> {
    /// Of all clients together.
    pub(super) operations: u64,
    /// What the caller samples, as the time began and as it ended.
    pub(super) before: S,
    pub(super) after: S,
    /// Of the server itself.
    pub(super) seen: Observed,
}

/// Lets `drive` run clients on a server, which has to be warm for a measurement of so much `time`; without it, it is by what
/// ran before. `hold` is done now and then meanwhile.
///
/// # Errors
/// Where the clients or the server fail, or the time never began.
pub(super) fn observed<T, S>(
    (gauge, watch): (Gauge<'_>, Watch),
    (stop, time): (&dyn Fn() -> bool, Option<Nanos>),
    sample: &dyn Fn() -> S,
    (sink, hold): (&mut dyn ProgressSink, &dyn Fn()),
    drive: impl FnOnce(Terms<'_>, Edge<'_>, Edge<'_>, &mut dyn FnMut(f64)) -> sql::Result<T>,
) -> sql::Result<(T, Counts<S>)> {
    let warmth = time.map(|t| RefCell::new(Warmth::new(gauge, t)));
    let cold = || warmth.as_ref().and_then(|w| w.borrow_mut().cold());
    let watch = RefCell::new(watch);
    let (mut began, mut seen) = (Ok(()), Ok(Observed::default()));
    let (mut before, mut after) = (None, None);
    let mut shown = ticker(sink);
    let done = drive(
        (stop, &cold),
        &mut |total| {
            began = watch.borrow_mut().begin();
            before = Some((total(), sample()));
        },
        &mut |total| {
            after = Some((total(), sample()));
            seen = watch.borrow_mut().end();
        },
        &mut |rate| {
            hold();
            watch.borrow_mut().look();
            shown(rate);
        },
    )?;
    began?;
    // One that was ended in its ramp counted nothing.
    let (Some(before), Some(after)) = (before, after) else {
        return Err(LabError::Failed("it was ended in its ramp".into()).into());
    };
    Ok((
        done,
        Counts {
            operations: after.0 - before.0,
            before: before.1,
            after: after.1,
            seen: seen?,
        },
    ))
}
