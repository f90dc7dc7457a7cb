//! What O'Neill's key-value store would do over hours on a device of so many I/Os per second.

use fathom_sim::analytic::{StoreLoad, rates_over_time};

/// I/Os' worth of an insert whose page is not in memory: a page read, a page written, and what split pages, nodes copied
/// on write and contention cost. Fitted to the 180,000 inserts per second observed after six hours.
const IOS_PER_INSERT: f64 = 3.75;
/// The same of an update, which splits no page. Fitted to 258,000 updates per second.
const IOS_PER_UPDATE: f64 = 2.66;
/// Records of which updates are made, and beside which inserts go on.
const RECORDS: f64 = 5.4e9;
/// Hours that updates take, and inserts after them.
pub(super) const UPDATE_HOURS: f64 = 5.8;
const LATER_HOURS: f64 = 4.2;

/// Seconds and operations per second.
pub(super) type Course = Vec<(f64, f64)>;

/// Memory of 16 GB, records of 8-byte keys in pages that are two thirds full; what 16 threads insert while everything is in
/// memory is assumed: the paper's plots have no numbers.
fn course(iops: f64, ios_per_op: f64, records: f64, grows: bool, hours: f64) -> Course {
    let load = StoreLoad {
        iops,
        memory_bytes: 16e9,
        record_bytes: 16.0,
        ios_per_op,
        in_memory_per_s: 1_000_000.0,
        records,
        grows,
    };
    rates_over_time(&load, hours * 3600.0, 600)
}

/// Of inserts into an empty store.
pub(super) fn inserts(iops: f64) -> Course {
    course(iops, IOS_PER_INSERT, 0.0, true, 10.0)
}

/// Of updates.
pub(super) fn updates(iops: f64) -> Course {
    course(iops, IOS_PER_UPDATE, RECORDS, false, UPDATE_HOURS)
}

/// Of inserts after the updates.
pub(super) fn inserts_later(iops: f64) -> Course {
    course(iops, IOS_PER_INSERT, RECORDS, true, LATER_HOURS)
}

/// The rate after so many hours; the last one after the end.
pub(super) fn at_hour(course: &Course, hour: f64) -> f64 {
    let then = course.iter().find(|p| p.0 >= hour * 3600.0);
    then.or(course.last()).map_or(0.0, |p| p.1)
}
