//! A bench on textbook queues in virtual time: its truth is known in closed form.
#![allow(dead_code, reason = "not every test program uses all of it")]

use fathom_bench::bench::LogMaker;
use fathom_bench::profile::Profile;
use fathom_bench::progress::ProgressSink;
use fathom_bench::{Bench, BenchError, Notebook, Plan, RunMeta};
use fathom_io::driver::{PlannedJob, run_virtual};
use fathom_io::job::Limits;
use fathom_io::port::virtual_time::{Queue, Service};
use fathom_io::{Control, Observer};
use fathom_telemetry::schema::{Job, Run, Target};
use fathom_telemetry::{Bytes, Nanos};

/// `servers` equal servers with one queue.
pub(crate) struct QueueBench {
    pub(crate) servers: u32,
    pub(crate) service: Service,
    pub(crate) seed: u64,
    /// Groups run so far.
    pub(crate) runs: u64,
    /// Asks to end after so many groups.
    pub(crate) stop_after: u64,
    pub(crate) control: Control,
    /// Requests from this byte on fail.
    pub(crate) broken_from: Option<u64>,
}

impl QueueBench {
    pub(crate) fn new(servers: u32, service: Service) -> Self {
        Self {
            servers,
            service,
            seed: 1,
            runs: 0,
            stop_after: u64::MAX,
            control: Control::new(),
            broken_from: None,
        }
    }
}

impl Bench for QueueBench {
    fn limits(&self) -> Limits {
        Limits {
            size: 1 << 30,
            direct_align: 512,
            hosts: 1,
        }
    }
    fn describe(&self) -> Target {
        Target {
            name: "queue".into(),
            kind: "simulated".into(),
            path: None,
            size_bytes: 1 << 30,
            device: None,
            description: "a queue of known truth".into(),
        }
    }
    fn simulated(&self) -> bool {
        true
    }
    fn control(&self) -> Control {
        self.control.clone()
    }
    fn prepare(&mut self, _: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        Ok(None)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        self.runs += 1;
        if self.runs >= self.stop_after {
            self.control.interrupt();
        }
        let mut world = Queue::new(self.servers, self.service, self.seed ^ (self.runs << 32));
        world.broken_from = self.broken_from;
        Ok(run_virtual(
            jobs,
            &mut world,
            Nanos::ZERO,
            "virtual",
            log,
            observer,
        ))
    }
}

/// Shows nothing.
pub(crate) struct Quiet;
impl ProgressSink for Quiet {}

/// A plan with jobs of `millis` and `repeats`.
pub(crate) fn plan(millis: u64, repeats: u32) -> Plan {
    Plan {
        limits: Limits {
            size: 1 << 30,
            direct_align: 512,
            hosts: 1,
        },
        profile: Profile {
            name: "test",
            repeats,
            job_time: Nanos::from_millis(millis),
            ramp: Nanos::from_millis(100),
            scratch: Bytes::gib(1),
        },
        threads: 2,
        direct: true,
        wears: true,
        commands: false,
        seed: 1,
    }
}

/// A run of one experiment in a directory that goes away.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn run_with<B: Bench>(
    bench: &mut B,
    log_handles: usize,
    experiment: impl FnOnce(&mut dyn Bench, &mut Notebook),
) -> Run {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let meta = RunMeta {
        name: "test".into(),
        ..RunMeta::default()
    };
    let mut book = Notebook::create(dir.path(), meta, bench.describe(), true, log_handles)
        .expect("a run directory");
    experiment(bench, &mut book);
    book.finish().expect("the run is kept").0
}

/// Value of a headline.
pub(crate) fn headline(run: &Run, id: &str) -> fathom_stats::Estimate {
    run.headlines
        .iter()
        .find(|h| h.id == id)
        .and_then(|h| h.estimate)
        .unwrap_or_else(|| panic!("no headline {id}"))
}
