//! The tests of the SNIA Solid State Storage Performance Test Specification (PTS 2.0), one file each.
//!
//! Every test purges, conditions, measures rounds until the specification's rule says "steady" (at most 25),
//! and reports what it asks for. Beside that rule stands fathom's own verdict: a result that either of them
//! does not call steady is stamped so. Shortened minutes are allowed for a trial, and said.

mod dirth;
mod idle;
mod iops;
mod latency;
mod long;
mod steps;
mod tables;
mod throughput;

use fathom_telemetry::{Bytes, Nanos};

use crate::bench::Bench;
use crate::notebook::{Notebook, NotebookError};
use crate::survey::Watcher;
use steps::Steps;

/// A minute as the specification means it.
pub const MINUTE: Nanos = Nanos::from_secs(60);

/// One test of the specification.
pub struct Test {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Minutes that measuring takes at most, conditioning aside.
    pub minutes: f64,
    /// Capacities written before measuring.
    pub conditioning: u64,
    run: fn(&mut Steps<'_>) -> Result<(), NotebookError>,
}

/// All tests, in the order in which they run.
pub const TESTS: [Test; 7] = [
    Test {
        id: "iops",
        title: "IOPS",
        minutes: 25.0 * 56.0,
        conditioning: 2,
        run: iops::run,
    },
    Test {
        id: "tp",
        title: "Throughput",
        minutes: 2.0 * 25.0 * 2.0,
        conditioning: 4,
        run: throughput::run,
    },
    Test {
        id: "lat",
        title: "Latency",
        minutes: 25.0 * 9.0,
        conditioning: 2,
        run: latency::run,
    },
    Test {
        id: "wsat",
        title: "Write saturation",
        minutes: 24.0 * 60.0,
        conditioning: 0,
        run: long::write_saturation,
    },
    Test {
        id: "hir",
        title: "Host idle recovery",
        minutes: 25.0 + 5.0 * (60.0 + 30.0),
        conditioning: 2,
        run: idle::run,
    },
    Test {
        id: "xsr",
        title: "Cross stimulus recovery",
        minutes: 22.0 * 60.0,
        conditioning: 0,
        run: long::cross_stimulus,
    },
    Test {
        id: "dirth",
        title: "Demand intensity and response time histogram",
        minutes: 25.0 + 25.0 * 36.0 + 30.0,
        conditioning: 2,
        run: dirth::run,
    },
];

/// How the tests run.
#[derive(Debug, Clone)]
pub struct PtsOptions {
    /// Names of the tests, each one of [`TESTS`].
    pub tests: Vec<String>,
    /// What stands for a minute; [`MINUTE`] is the specification's.
    pub unit: Nanos,
    /// Threads of the tests that leave the number open.
    pub threads: u32,
    /// Outstanding I/Os of each.
    pub qd: u32,
    /// Range that is tested: the whole target for the specification.
    pub range: Bytes,
    /// Seed of everything random.
    pub seed: u64,
}

/// Time and bytes before a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtsOutlook {
    /// Measuring, at most.
    pub measuring: Nanos,
    /// Written by conditioning, exactly.
    pub conditioning: Bytes,
    /// Written by measuring at a GB per second: devices differ.
    pub measuring_bytes: Bytes,
}

/// The tests that were asked for, in their order.
fn chosen(options: &PtsOptions) -> impl Iterator<Item = &'static Test> {
    TESTS
        .iter()
        .filter(|t| options.tests.iter().any(|n| n == t.id))
}

/// Says time and bytes.
pub fn outlook(options: &PtsOptions) -> PtsOutlook {
    let minutes: f64 = chosen(options).map(|t| t.minutes).sum();
    let capacities: u64 = chosen(options).map(|t| t.conditioning).sum();
    let measuring = Nanos::from_secs_f64(minutes * options.unit.as_secs_f64());
    PtsOutlook {
        measuring,
        conditioning: Bytes(capacities.saturating_mul(options.range.0)),
        measuring_bytes: Bytes((measuring.as_secs_f64() * 1e9) as u64),
    }
}

/// Runs the tests and puts their sections into the notebook.
pub fn run(
    bench: &mut dyn Bench,
    direct: bool,
    options: &PtsOptions,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    for test in chosen(options) {
        let mut steps = Steps::begin(bench, book, watcher, test, options, direct);
        (test.run)(&mut steps)?;
        let ended = steps.end();
        if ended {
            break;
        }
    }
    Ok(())
}
