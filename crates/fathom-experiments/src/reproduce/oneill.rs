//! O'Neill 2018: a key-value store on Optane, the ceiling that its device sets, and rates over time.

use fathom_bench::bench::LogMaker;
use fathom_bench::{Bench, BenchError, SimBench};
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob};
use fathom_io::job::{Limits, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimTarget;
use fathom_sim::analytic::{StoreLoad, insert_ceiling, rates_over_time};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Job, Target};

use super::{Curve, Load, Models, ReproduceError, Reproduction, Role, Row};

/// I/Os' worth of an insert whose page is not in memory: a page read, a page written, and what split pages, nodes copied
/// on write and contention cost. Fitted to the 180,000 inserts per second observed after six hours.
const IOS_PER_INSERT: f64 = 3.75;
/// The same of an update, which splits no page. Fitted to 258,000 updates per second.
const IOS_PER_UPDATE: f64 = 2.66;
/// What 16 threads insert while everything is in memory, per second (assumed: the paper's plots have no numbers).
const IN_MEMORY: f64 = 1_000_000.0;
/// Records of 8-byte keys in pages that are two thirds full, bytes each.
const RECORD: f64 = 16.0;
const MEMORY: f64 = 16e9;
const HOURS: f64 = 10.0;

const BASIS: &str = "Fitted: I/Os per insert and per update, to the rates after 6 h (O017) and of the updates (O020). Predictions: the raw \
    rate and its ceiling, from a model that was fitted to another paper, inserts after the updates, and the dips of heat in shape.";

pub(super) fn reproduce(models: &mut Models<'_>) -> Result<Reproduction, ReproduceError> {
    let raw = Load::on("sim:optane-900p")?
        .rw(Rw::RandMixed)
        .threads(32)
        .run(models)?
        .iops;
    // An insert into a full cache reads one page and writes one back.
    let ceiling = insert_ceiling(raw, 1.0, 1.0);
    let load = |ios_per_op, records, grows| StoreLoad {
        iops: raw,
        memory_bytes: MEMORY,
        record_bytes: RECORD,
        ios_per_op,
        in_memory_per_s: IN_MEMORY,
        records,
        grows,
    };
    let inserts = rates_over_time(&load(IOS_PER_INSERT, 0.0, true), HOURS * 3600.0, 600);
    let updates = rates_over_time(&load(IOS_PER_UPDATE, 5.4e9, false), 5.8 * 3600.0, 600);
    let after = rates_over_time(&load(IOS_PER_INSERT, 5.4e9, true), 4.2 * 3600.0, 600);
    let at_hour = |curve: &[(f64, f64)], hour: f64| {
        let last = curve.last().map_or(0.0, |p| p.1);
        curve
            .iter()
            .find(|p| p.0 >= hour * 3600.0)
            .map_or(last, |p| p.1)
    };
    let place = "Optane performance";
    let rows = vec![
        Row::new("O015", place, "raw 4 KiB reads and writes, half each", 550_000.0, raw, "ops/s", Role::Prediction)
            .note("mix and depth are not stated: half each, 32 threads"),
        Row::new("O016", place, "best sustained inserts, two I/Os each", 275_000.0, ceiling, "inserts/s", Role::Prediction),
        Row::new("O017", place, "inserts after 6 hours", 180_000.0, at_hour(&inserts, 6.0), "inserts/s", Role::Fit)
            .note("I/Os per insert were fitted to this value; the store itself needs the key-value lab"),
        Row::new("O020", "Updates vs inserts", "updates: 5.4e9 records in 5.8 h", 258_000.0, at_hour(&updates, 3.0), "updates/s", Role::Fit),
        Row::new("O021", "Updates vs inserts", "inserts after the updates, middle of 4.2 h", 174_000.0, at_hour(&after, 2.1), "inserts/s", Role::Prediction),
        Row {
            error_percent: None,
            note: "lowest rate in one hour of still air; the model's heat is illustrative, only the dips to almost nothing are compared".into(),
            ..Row::new("O023", "Throttling", "inserts without airflow, in dips", 0.0, dips(models)?, "inserts/s", Role::Prediction)
        },
    ];
    Ok(Reproduction {
        paper: "oneill2018".into(),
        rows,
        basis: BASIS.into(),
        curves: vec![Curve {
            place: place.into(),
            title: "Inserts and updates over time".into(),
            x: ("time".into(), "s".into()),
            y: ("rate".into(), "1/s".into()),
            series: vec![
                ("inserts".into(), inserts),
                ("updates".into(), updates),
                (
                    "inserts after the updates".into(),
                    after.iter().map(|p| (p.0 + 5.8 * 3600.0, p.1)).collect(),
                ),
            ],
            marks: vec![
                ("ceiling".into(), 275_000.0),
                ("updates, published".into(), 258_000.0),
                ("inserts, published".into(), 180_000.0),
            ],
        }],
    })
}

/// Lowest rate of inserts over windows of 10 s in an hour without airflow.
fn dips(models: &mut Models<'_>) -> Result<f64, ReproduceError> {
    let target = SimTarget::parse("sim:optane-900p,airflow=none")?;
    let mut bench = Watched {
        inner: models.open(target),
        lowest: f64::MAX,
    };
    let spec = JobSpec {
        name: "still-air.randrw.4k.32x1.direct.1h".into(),
        rw: Rw::RandMixed,
        threads: 32,
        time: Some(Nanos::from_secs(3600)),
        window: Nanos::from_secs(10),
        ..JobSpec::default()
    };
    models.group(&mut bench, &[spec])?;
    Ok(bench.lowest / IOS_PER_INSERT)
}

/// A bench, and the lowest rate of any window on it, I/Os per second.
struct Watched {
    inner: SimBench,
    lowest: f64,
}

/// Takes the lowest rate on the way of the windows.
struct Lowest<'a> {
    rate: &'a mut f64,
    next: &'a mut dyn Observer,
}

impl Observer for Lowest<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        let ios: u64 = w.window.directions.iter().flatten().map(|d| d.ios).sum();
        *self.rate = self.rate.min(ios as f64 / w.width.as_secs_f64());
        self.next.window(w);
    }
}

impl Bench for Watched {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }
    fn describe(&self) -> Target {
        self.inner.describe()
    }
    fn simulated(&self) -> bool {
        self.inner.simulated()
    }
    fn control(&self) -> Control {
        self.inner.control()
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.inner.prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let mut lowest = Lowest {
            rate: &mut self.lowest,
            next: observer,
        };
        self.inner.run(jobs, log, &mut lowest)
    }
}
