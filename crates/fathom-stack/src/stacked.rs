//! Which of an I/O's bios tells its way: on one device the one that completes last; on a stack of devices
//! (device-mapper, md) the request at the bottom, where the same thread queued it.
//!
//! A bio below is taken only where it lies inside of the bio above and where nothing speaks against its
//! being this I/O's; otherwise the I/O keeps the begin and the end of the bio above, and nothing is guessed.

use crate::chain::Chain;
use crate::device::Devices;

/// The bios that tell of one I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// Queued first, on the target's own device.
    pub(crate) first: Chain,
    /// The one whose requests and interrupt are the I/O's.
    pub(crate) last: Chain,
    /// End of the bio above, where `last` lies below it; otherwise 0.
    pub(crate) upper_complete: u64,
    /// Whether `last` lies on a device below the target's.
    pub(crate) below: bool,
    /// Whether the target's own device got more than one bio.
    pub(crate) split: bool,
}

/// Finds them among the bios that a thread queued for an I/O, in order; `end` is when the I/O was over.
/// `alone`: no other I/O of this thread was under way, so all of them are its own. `None` where none of
/// them was complete by then.
pub(crate) fn way(found: &[Chain], devices: &Devices, alone: bool, end: u64) -> Option<Way> {
    let is_top = |c: &&Chain| devices.top.is_empty() || devices.is_top(c.dev);
    let done = |c: &&Chain| c.complete > 0 && c.complete <= end;
    let first = found.iter().find(is_top).or(found.first())?;
    let top = found.iter().filter(is_top).filter(done);
    // Of several requests the one that completes last; read-ahead may go on after the application does.
    let upper = top.max_by_key(|c| (c.complete, c.issued));
    let split = found.iter().filter(|c| c.dev == first.dev).count() > 1;
    let on_top = |c: &Chain| Way {
        first: *first,
        last: *c,
        upper_complete: 0,
        below: false,
        split,
    };
    if let Some(c) = upper.filter(|c| c.issued > 0) {
        return Some(on_top(c));
    }
    // Without requests of its own: those of the devices below, before the end of the bio above.
    let limit = upper.map_or(end, |u| u.complete);
    let below = |c: &&Chain| !is_top(c) && c.issued > 0;
    let inside = |c: &&Chain| c.queued >= first.queued && c.complete > 0 && c.complete <= limit;
    let lowest = found.iter().filter(below).filter(inside);
    let lowest = lowest.max_by_key(|c| c.complete);
    // A thread with several I/Os may queue bios of one in the time of another (md's write plugs): then
    // there are more or fewer sectors below than above.
    let sectors = |list: &mut dyn Iterator<Item = &Chain>| -> u64 {
        list.map(|c| u64::from(c.sectors)).sum()
    };
    let fits = alone
        || sectors(&mut found.iter().filter(below)) == sectors(&mut found.iter().filter(is_top));
    match (lowest, upper) {
        (Some(c), _) if fits => Some(Way {
            upper_complete: upper.map_or(0, |u| u.complete),
            below: true,
            ..on_top(c)
        }),
        (_, Some(u)) => Some(on_top(u)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Disk;

    const UPPER: u64 = 1;
    const LOWER: u64 = 2;

    fn devices() -> Devices {
        let disk = |name: &str, dev, has_requests| Disk {
            name: name.into(),
            dev,
            has_requests,
            polls: false,
            scheduler: None,
            loop_file: None,
            paths: Vec::new(),
            block_bytes: 512,
        };
        Devices {
            top: vec![disk("dm-0", UPPER, false)],
            lower: vec![disk("vda", LOWER, true)],
        }
    }

    fn bio(dev: u64, queued: u64, issued: u64, complete: u64) -> Chain {
        Chain {
            dev,
            sectors: 8,
            queued,
            issued,
            complete,
            ..Chain::default()
        }
    }

    #[test]
    fn a_request_inside_of_the_bio_above_is_followed() {
        let found = [bio(UPPER, 10, 0, 60), bio(LOWER, 12, 20, 50)];
        let w = way(&found, &devices(), false, 100).unwrap();
        assert_eq!((w.first.dev, w.last.dev), (UPPER, LOWER));
        assert_eq!((w.upper_complete, w.below, w.split), (60, true, false));
    }

    #[test]
    fn what_ends_after_the_bio_above_or_is_another_thread_s_is_not() {
        // A write that a mirror finishes later, and one that a thread of the device's own queued.
        for found in [
            &[bio(UPPER, 10, 0, 60), bio(LOWER, 12, 20, 70)][..],
            &[bio(UPPER, 10, 0, 60)],
        ] {
            let w = way(found, &devices(), true, 100).unwrap();
            assert_eq!((w.last.dev, w.below, w.upper_complete), (UPPER, false, 0));
        }
    }

    #[test]
    fn the_slowest_copy_of_a_write_counts_where_the_thread_has_no_other() {
        let mirror = [
            bio(UPPER, 10, 0, 60),
            bio(LOWER, 12, 20, 50),
            bio(LOWER, 13, 21, 55),
        ];
        let w = way(&mirror, &devices(), true, 100).unwrap();
        assert_eq!((w.last.complete, w.below), (55, true));
        // With others under way the second may be theirs.
        let w = way(&mirror, &devices(), false, 100).unwrap();
        assert_eq!((w.last.dev, w.below), (UPPER, false));
    }

    #[test]
    fn nothing_that_was_still_under_way_counts() {
        assert_eq!(way(&[bio(UPPER, 10, 0, 0)], &devices(), true, 100), None);
        assert_eq!(way(&[bio(UPPER, 10, 0, 101)], &devices(), true, 100), None);
    }
}
