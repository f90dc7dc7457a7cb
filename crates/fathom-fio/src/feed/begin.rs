//! What a feed draws from when it begins.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fathom_io::load::PilotIo;
use fathom_telemetry::Nanos;

use super::places::Place;
use super::random::{Purpose, Streams};
use super::skew::Skew;
use super::sprandom;
use super::{Handover, Order};
use crate::translate::recipe::{Generator, Service};

/// The order of `sprandom`.
pub(super) fn spread(order: &Order) -> Option<sprandom::Spread> {
    let (terms, range) = (order.recipe.spread?, order.ranges.first()?);
    let block = order.recipe.sizes[1].min();
    Some(sprandom::Spread::new(
        terms,
        range.1 - range.0,
        block,
        order.seeds,
    ))
}

/// Places among which a file is drawn where not all are alike: many for each.
pub(super) const PLACES_PER_FILE: u64 = 1 << 10;

/// The numbers that a pass draws.
pub(super) fn streams(order: &Order) -> Streams {
    let r = &order.recipe;
    let many = |(a, b): &(u64, u64)| (b - a) / r.smallest() > u64::from(u32::MAX);
    let wide = match r.generator {
        Generator::Unasked => order.ranges.iter().any(many),
        generator => generator == Generator::Wide,
    };
    Streams::new(order.seeds, wide, r.check.is_some(), r.pairs)
}

pub(super) fn skewed_files(order: &Order) -> Option<Skew> {
    match order.recipe.service {
        Service::By(by, center) => {
            let n = order.ranges.len().max(1) as u64 * PLACES_PER_FILE;
            Skew::new(by, n, center, false, order.seeds.of(Purpose::File))
        }
        _ => None,
    }
}

/// One for each file.
pub(super) fn places(order: &Order) -> Vec<Place> {
    let place = |(i, range): (usize, &(u64, u64))| {
        let name = order.names.get(i).map_or(Path::new(""), |n| n);
        let device = order.devices.get(i).cloned().flatten();
        let name = name.as_os_str().as_bytes();
        Place::new(&order.recipe, *range, name, order.seeds, device)
    };
    order.ranges.iter().enumerate().map(place).collect()
}

/// What is replayed in a pass; nothing where nothing is.
pub(super) fn steps(order: &Order) -> VecDeque<(Nanos, PilotIo)> {
    let replay = order.replay.as_ref();
    replay.map(|r| r.steps.clone()).unwrap_or_default()
}

/// What is there for the first thread that asks.
pub(super) fn taken<T>(handover: &Option<Handover<T>>) -> Option<T> {
    handover.as_ref()?.lock().ok()?.take()
}
