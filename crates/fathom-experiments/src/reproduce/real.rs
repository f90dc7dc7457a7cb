//! The papers' own experiments on a target that is there: what they say of one device, measured as they measured it.

use fathom_bench::cost::RunCost;
use fathom_bench::{Bench, Notebook, SimBench};
use fathom_io::job::{BlockSizes, Rw};
use fathom_io::{Control, JobSpec};
use fathom_sim::SimError;
use fathom_stats::Estimate;
use fathom_telemetry::{Bytes, Nanos};

use super::load::{Measured, Models};
use super::{Curve, ReproduceError, Reproduction, Role, Row, is_figure, published};

/// How a paper measured: its data set, and how often it repeated a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Bytes of the data set.
    pub data_set: Bytes,
    /// Runs whose mean is published.
    pub repeats: u32,
}

/// How a paper measured; `None` for one that is not known. Lengths of runs are 30 s where they are stated at all.
pub fn method(paper: &str) -> Option<Method> {
    let (data_set, repeats) = match paper {
        // III-A: 20 GB of data, each result a run of 30 s.
        "zhang2018" => (20_000 << 20, 1),
        // 3.3 and 4.1: 64 files of 4 GB, the mean of five runs.
        "han2021" => (256_000_000_000, 5),
        // Neither says.
        "oneill2018" | "shrout2017" => (20_000 << 20, 1),
        _ => return None,
    };
    Some(Method {
        data_set: Bytes(data_set),
        repeats,
    })
}

/// How to measure here.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// One value, table or figure only.
    pub figure: Option<&'a str>,
    /// Length of each run.
    pub time: Nanos,
    /// Runs of each load.
    pub repeats: u32,
    /// Bytes of the data set; all of a smaller target.
    pub data_set: Bytes,
}

/// A load on the target.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    rw: Rw,
    block: u64,
    threads: u32,
    direct: bool,
}

const fn direct(rw: Rw, kib: u64, threads: u32) -> Shape {
    Shape {
        rw,
        block: kib << 10,
        threads,
        direct: true,
    }
}

/// What repeats of a load gave: their mean, how far it is known, and what stands against it.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// `None` where every run is void.
    mean: Option<Measured>,
    note: String,
}

impl Seen {
    fn of(&self, what: fn(&Measured) -> f64) -> Option<f64> {
        self.mean.as_ref().map(what)
    }
}

/// The target, and what was measured on it so far.
struct Site<'a, 'b> {
    bench: &'a mut dyn Bench,
    models: Models<'b>,
    wish: Wish<'a>,
    known: Vec<(Shape, Seen)>,
    /// Loads that ran beside each other.
    groups: Vec<[JobSpec; 2]>,
    rows: Vec<Row>,
    curves: Vec<Curve>,
}

const IOPS: fn(&Measured) -> f64 = |m| m.iops;
const MEAN_US: fn(&Measured) -> f64 = |m| m.mean_us;
const MB_PER_S: fn(&Measured) -> f64 = |m| m.mb_per_s;

/// Time and bytes of the paper's loads on a target of so many bytes; `fills` of them are filled first. Which loads they
/// are follows from the paper alone, so they are run for a moment on a model that answers at once, and counted.
///
/// # Errors
/// Where the paper is not known.
pub fn run_cost(paper: &str, wish: Wish<'_>, fills: Bytes) -> Result<RunCost, ReproduceError> {
    method(paper).ok_or_else(|| ReproduceError::UnknownPaper(paper.to_owned()))?;
    let failed = |e: SimError| ReproduceError::Bench(e.to_string());
    let mut bench = SimBench::open("sim:ramdisk", Control::new()).map_err(failed)?;
    let mut site = Site {
        bench: &mut bench,
        models: Models::unkept(),
        wish: Wish {
            time: Nanos::from_millis(1),
            repeats: 1,
            ..wish
        },
        known: Vec::new(),
        groups: Vec::new(),
        rows: Vec::new(),
        curves: Vec::new(),
    };
    site.walk(paper)?;
    let mut cost = RunCost::filling(fills);
    for (shape, _) in &site.known {
        let spec = JobSpec {
            time: Some(wish.time),
            size: Some(wish.data_set),
            ..site.spec(String::new(), *shape)
        };
        let way = if shape.direct { "direct" } else { "buffered" };
        let repeats = wish.repeats.max(1);
        // Its writes have no limit but the time; a GB per second is more than most take.
        let written = match shape.rw.modifies() {
            true => spec.time.map_or(0.0, Nanos::as_secs_f64) * 1e9 * f64::from(repeats),
            false => 0.0,
        };
        cost.phase(&format!("{}, {way}", shape.rw))
            .add(&spec, repeats);
        cost.work(0, Nanos::ZERO, Bytes(written as u64));
    }
    for both in &site.groups {
        let [first, second] = both.clone().map(|spec| JobSpec {
            time: Some(wish.time),
            size: Some(wish.data_set),
            ..spec
        });
        cost.phase("reads beside writes").add(&first, 1);
        cost.add_beside(&second, 1);
    }
    Ok(cost)
}

/// Measures what a paper says of one device on `bench`; jobs are kept in `book`.
///
/// # Errors
/// Where the paper is not known, a job does not fit the target, or the target fails.
pub fn measure(
    paper: &str,
    wish: Wish<'_>,
    bench: &mut dyn Bench,
    book: &mut Notebook,
) -> Result<Reproduction, ReproduceError> {
    method(paper).ok_or_else(|| ReproduceError::UnknownPaper(paper.to_owned()))?;
    let failed = |e: &dyn std::fmt::Display| ReproduceError::Bench(e.to_string());
    if let Some(filled) = bench.prepare(&mut ()).map_err(|e| failed(&e))? {
        book.keep(filled);
    }
    let mut site = Site {
        bench,
        models: Models::kept_in(book, paper, Control::new()),
        wish,
        known: Vec::new(),
        groups: Vec::new(),
        rows: Vec::new(),
        curves: Vec::new(),
    };
    let done = site.walk(paper);
    let interrupted = matches!(done, Err(ReproduceError::Interrupted));
    if !interrupted {
        done?;
    }
    let (role, curves) = (site.role(), site.curves);
    let mut rows = site.rows;
    if interrupted {
        let flag = ReproduceError::interrupted();
        book.run_mut().flags.push(flag);
    } else {
        let wanted = |r: &Row| wish.figure.is_none_or(|f| is_figure(f, &r.id, &r.place));
        let others = published::others(paper, &rows, published::On::Target).into_iter();
        rows.extend(others.filter(wanted).map(|r| Row { role, ..r }));
        if let Some(figure) = wish.figure.filter(|_| rows.is_empty()) {
            return Err(ReproduceError::Figure(figure.to_owned()));
        }
    }
    Ok(Reproduction {
        paper: paper.to_owned(),
        rows,
        curves,
        basis: "Measured on the target that was named; nothing is fitted. Published values are those of the paper's own devices, on \
            its own machine."
            .into(),
    })
}

impl Site<'_, '_> {
    /// Every load of the paper, each value beside what it gives.
    fn walk(&mut self, paper: &str) -> Result<(), ReproduceError> {
        match paper {
            "zhang2018" => zhang(self),
            "han2021" => han(self),
            "oneill2018" => oneill(self),
            _ => shrout(self),
        }
    }

    fn wants(&self, id: &str, place: &str) -> bool {
        self.wish.figure.is_none_or(|f| is_figure(f, id, place))
    }

    fn role(&self) -> Role {
        if self.bench.simulated() {
            Role::Prediction
        } else {
            Role::Measured
        }
    }

    fn spec(&self, name: String, shape: Shape) -> JobSpec {
        JobSpec {
            name,
            rw: shape.rw,
            bs: BlockSizes::one(shape.block),
            threads: shape.threads,
            direct: shape.direct,
            size: Some(self.wish.data_set.min(Bytes(self.bench.limits().size))),
            time: Some(self.wish.time),
            // Where a ramp ends, a sequential pass begins anew, and would find its pages in memory.
            ramp: if shape.direct || shape.rw.modifies() {
                Nanos::from_millis(200)
            } else {
                Nanos::ZERO
            },
            ..JobSpec::default()
        }
    }

    /// Runs a load as often as is asked for, once for all the values that need it.
    fn load(&mut self, shape: Shape) -> Result<Seen, ReproduceError> {
        if let Some((_, known)) = self.known.iter().find(|k| k.0 == shape) {
            return Ok(known.clone());
        }
        let mut runs = Vec::new();
        let mut note = String::new();
        for i in 1..=self.wish.repeats.max(1) {
            if self.bench.interrupted() {
                return Err(ReproduceError::Interrupted);
            }
            let way = if shape.direct { "direct" } else { "buffered" };
            let name = format!(
                "{}.{}k.{}.{way}.{i}",
                shape.rw,
                shape.block >> 10,
                shape.threads
            );
            let spec = JobSpec {
                seed: u64::from(i),
                ..self.spec(name, shape)
            };
            let jobs = self.models.group(self.bench, &[spec])?;
            for job in jobs {
                let m = Measured::of(&job);
                if job.is_void() || m.iops == 0.0 {
                    note = "void: see the flags of its jobs".into();
                } else {
                    runs.push(m);
                    if let Some(f) = job.flags.first().filter(|_| note.is_empty()) {
                        note.clone_from(&f.detail);
                    }
                }
            }
        }
        let n = runs.len() as f64;
        let mean = |what: fn(&Measured) -> f64| runs.iter().map(what).sum::<f64>() / n;
        if runs.len() > 1 {
            let rates: Vec<f64> = runs.iter().map(MB_PER_S).collect();
            let e = Estimate::mean_of(&rates);
            if let Some((low, high)) = e.and_then(|e| e.low.zip(e.high)) {
                let said = format!("mean of {n} runs, 95 % interval {low:.4} to {high:.4} MB/s");
                note = if note.is_empty() {
                    said
                } else {
                    format!("{said}; {note}")
                };
            }
        }
        let seen = Seen {
            mean: (!runs.is_empty()).then(|| Measured {
                iops: mean(IOPS),
                mean_us: mean(MEAN_US),
                mb_per_s: mean(MB_PER_S),
            }),
            note,
        };
        self.known.push((shape, seen.clone()));
        Ok(seen)
    }

    fn keep(&mut self, mut row: Row, ours: Option<f64>, note: &str) {
        row.role = self.role();
        let note = match ours {
            None if note.is_empty() => "a load that it comes from has no result: see its flags",
            _ => note,
        };
        if ours.is_none() {
            (row.ours, row.error_percent) = (None, None);
        }
        row.note = [row.note.as_str(), note]
            .iter()
            .filter(|n| !n.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join("; ");
        self.rows.push(row);
    }

    /// A published value beside what a load gives.
    fn value(
        &mut self,
        v: &Value,
        shape: Shape,
        what: fn(&Measured) -> f64,
    ) -> Result<(), ReproduceError> {
        if !self.wants(v.id, v.place) {
            return Ok(());
        }
        let seen = self.load(shape)?;
        let ours = seen.of(what);
        self.keep(v.beside(ours), ours, &seen.note);
        Ok(())
    }

    /// A published value beside one that several loads give.
    fn derived(&mut self, v: &Value, ours: Option<f64>) {
        self.keep(v.beside(ours), ours, "");
    }

    /// The same of a range.
    fn ranged(&mut self, v: &Value, ours: Option<f64>, range: [f64; 2]) {
        self.keep(v.beside(ours).within(range), ours, "");
    }
}

/// A published value.
struct Value {
    id: &'static str,
    place: &'static str,
    what: &'static str,
    published: f64,
    unit: &'static str,
}

impl Value {
    fn beside(&self, ours: Option<f64>) -> Row {
        Row::new(
            self.id,
            self.place,
            self.what,
            self.published,
            ours.unwrap_or(f64::NAN),
            self.unit,
            Role::Measured,
        )
    }
}

const fn v(
    id: &'static str,
    place: &'static str,
    what: &'static str,
    published: f64,
    unit: &'static str,
) -> Value {
    Value {
        id,
        place,
        what,
        published,
        unit,
    }
}

const PATTERNS: [Rw; 4] = [Rw::Read, Rw::RandRead, Rw::Write, Rw::RandWrite];

#[rustfmt::skip]
fn zhang(site: &mut Site<'_, '_>) -> Result<(), ReproduceError> {
    use Rw::{RandRead, RandWrite};
    let (one, many) = (|rw| direct(rw, 4, 1), |rw| direct(rw, 4, 64));
    let large = |rw| direct(rw, 128, 64);
    let place = "II-B, Fig. 3";
    site.value(&v("Z013", place, "Optane: latency of a 4 KiB random read, one thread", 13.5, "us"), one(RandRead), MEAN_US)?;
    site.value(&v("D001", place, "NAND: the same (printed as 67.3, exchanged with 124.5)", 124.5, "us"), one(RandRead), MEAN_US)?;
    let place = "III-B a, Fig. 4a";
    site.value(&v("H184", place, "Optane: latency of a 4 KiB random write, one thread", 15.7, "us"), one(RandWrite), MEAN_US)?;
    let (optane, nand) = (v("Z046", place, "Optane: sequential against random, at most", 12.7, "%"), v("Z047", place, "NAND: random over sequential read", f64::NAN, "x"));
    if site.wants(optane.id, place) || site.wants(nand.id, place) {
        let mut mean = Vec::new();
        for rw in PATTERNS {
            mean.push(site.load(one(rw))?.of(MEAN_US));
        }
        let apart = |i: usize| Some(f64::max(mean[i]? / mean[i + 1]?, mean[i + 1]? / mean[i]?));
        let most = apart(0).zip(apart(2)).map(|(r, w)| (r.max(w) - 1.0) * 100.0);
        let over = mean[1].zip(mean[0]).map(|(random, sequential)| random / sequential);
        site.derived(&optane, most);
        site.ranged(&nand, over, [2.0, 3.0]);
    }
    let place = "Table III";
    site.value(&v("Z088", place, "Optane: read, 128 KiB, 64 threads", 2557.0, "MB/s"), large(RandRead), MB_PER_S)?;
    site.value(&v("Z086", place, "NAND: read, 128 KiB, 64 threads", 542.0, "MB/s"), large(RandRead), MB_PER_S)?;
    site.value(&v("Z089", place, "Optane: write, 128 KiB, 64 threads", 2185.0, "MB/s"), large(RandWrite), MB_PER_S)?;
    site.value(&v("Z087", place, "NAND: write, 128 KiB, 64 threads", 412.0, "MB/s"), large(RandWrite), MB_PER_S)?;
    let place = "III-B c, Fig. 4c";
    site.value(&v("D013", place, "Optane: random read, 4 KiB, 64 threads", 569_332.0, "IOPS"), many(RandRead), IOPS)?;
    site.value(&v("D011", place, "NAND: random read, 4 KiB, 64 threads", 68_412.0, "IOPS"), many(RandRead), IOPS)?;
    site.value(&v("D014", place, "Optane: random write, 4 KiB, 64 threads", 544_916.0, "IOPS"), many(RandWrite), IOPS)?;
    site.value(&v("D012", place, "NAND: random write, 4 KiB, 64 threads", 39_027.0, "IOPS"), many(RandWrite), IOPS)?;
    for (value, rw) in [
        (v("Z061", place, "Optane: IOPS of the bandwidth, read", 91.2, "%"), RandRead),
        (v("Z059", place, "NAND: IOPS of the bandwidth, read", 51.7, "%"), RandRead),
        (v("Z062", place, "Optane: IOPS of the bandwidth, write", 102.15, "%"), RandWrite),
        (v("Z060", place, "NAND: IOPS of the bandwidth, write", 38.8, "%"), RandWrite),
    ] {
        if site.wants(value.id, place) {
            let (small, big) = (site.load(many(rw))?.of(MB_PER_S), site.load(large(rw))?.of(MB_PER_S));
            site.derived(&value, small.zip(big).map(|(s, b)| s / b * 100.0));
        }
    }
    load_curve(site)
}

/// Mean latency against the rate, a closed loop of 1 to 64 threads, and its increase at 95 % of the highest rate.
#[rustfmt::skip]
fn load_curve(site: &mut Site<'_, '_>) -> Result<(), ReproduceError> {
    let place = "III-C, Fig. 7";
    let what = "latency increase at 95 % of the highest rate";
    let values = [v("Z074", place, what, 25.0, "%"), v("Z072", place, what, 80.0, "%"), v("Z073", place, what, 54.0, "%")];
    if !values.iter().any(|v| site.wants(v.id, place)) {
        return Ok(());
    }
    let mut points: Vec<(f64, f64)> = Vec::new();
    for threads in [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64] {
        let seen = site.load(direct(Rw::RandRead, 4, threads))?;
        points.extend(seen.mean.map(|m| (m.iops, m.mean_us)));
    }
    let wanted = 0.95 * points.iter().map(|p| p.0).fold(0.0, f64::max);
    let at = points.windows(2).find(|w| w[0].0 < wanted && w[1].0 >= wanted).map(|w| {
        w[0].1 + (wanted - w[0].0) / (w[1].0 - w[0].0) * (w[1].1 - w[0].1)
    });
    let increase = at.zip(points.first()).map(|(at, first)| (at / first.1 - 1.0) * 100.0);
    for (value, device) in values.iter().zip(["Optane", "NAND", "RAM disk"]) {
        let mut row = Row::new(value.id, place, &format!("{device}: {what}"), value.published, increase.unwrap_or(f64::NAN), "%", Role::Measured);
        row.note = "a closed loop of 1 to 64 threads".into();
        site.keep(row, increase, "");
    }
    site.curves.push(Curve {
        place: place.into(),
        title: "Mean latency against load, closed loop of threads".into(),
        x: ("load".into(), "1/s".into()),
        y: ("mean latency".into(), "ns".into()),
        series: vec![("measured".into(), points.iter().map(|p| (p.0, p.1 * 1e3)).collect())],
        marks: Vec::new(),
    });
    Ok(())
}

#[rustfmt::skip]
fn han(site: &mut Site<'_, '_>) -> Result<(), ReproduceError> {
    // Optane 900P, P3700, MX500, each direct and buffered, by pattern.
    const TABLE_1: [(&str, [[f64; 2]; 4], u32); 3] = [
        ("Optane 900P", [[2553.0, 2558.0], [2556.0, 2554.0], [2445.0, 2499.0], [2445.0, 2468.0]], 22),
        ("P3700", [[2563.0, 2485.0], [2585.0, 2478.0], [1925.0, 2011.0], [1953.0, 1995.0]], 14),
        ("MX500", [[211.0, 220.0], [207.0, 194.0], [170.0, 256.0], [162.0, 194.0]], 6),
    ];
    for (i, rw) in PATTERNS.into_iter().enumerate() {
        for (way, is_direct) in [true, false].into_iter().enumerate() {
            for (device, published, first) in TABLE_1 {
                let id = format!("H{:03}", first + 2 * i as u32 + u32::from(is_direct));
                let place = "Table 1";
                if !site.wants(&id, place) {
                    continue;
                }
                let seen = site.load(Shape { direct: is_direct, ..direct(rw, 512, 64) })?;
                let ours = seen.of(MB_PER_S);
                let kind = if is_direct { "direct" } else { "buffered" };
                let what = format!("{device}: {rw}, 512 KiB, 64 threads, {kind}");
                let row = Row::new(&id, place, &what, published[i][way], ours.unwrap_or(f64::NAN), "MB/s", Role::Measured);
                site.keep(row, ours, &seen.note);
            }
        }
    }
    Ok(())
}

#[rustfmt::skip]
fn oneill(site: &mut Site<'_, '_>) -> Result<(), ReproduceError> {
    let place = "Optane performance";
    let shape = direct(Rw::RandMixed, 4, 32);
    site.value(&v("O015", place, "raw 4 KiB reads and writes, half each, 32 threads", 550_000.0, "ops/s"), shape, IOPS)?;
    site.value(&v("O016", place, "best sustained inserts, two I/Os each", 275_000.0, "inserts/s"), shape, |m| m.iops / 2.0)
}

#[rustfmt::skip]
fn shrout(site: &mut Site<'_, '_>) -> Result<(), ReproduceError> {
    site.value(&v("S003", "Low latency storage", "latency of a 4 KiB random read at depth 1", 10.0, "us"), direct(Rw::RandRead, 4, 1), MEAN_US)?;
    let value = v("S018", "Mixed throughput", "NAND: drop of sequential reads beside 20 MB/s of writes, nearly", 25.0, "%");
    if !site.wants(value.id, value.place) {
        return Ok(());
    }
    let alone = site.load(direct(Rw::Read, 128, 1))?.of(MB_PER_S);
    let read = JobSpec {
        name: "read.128k.beside-writes".into(),
        ..site.spec(String::new(), direct(Rw::Read, 128, 1))
    };
    let write = JobSpec {
        name: "randwrite.8k.20mb-per-s".into(),
        qd: 8,
        rate: Some(20e6 / 8192.0),
        ..site.spec(String::new(), direct(Rw::RandWrite, 8, 1))
    };
    if site.bench.interrupted() {
        return Err(ReproduceError::Interrupted);
    }
    let both = [read, write];
    let jobs = site.models.group(site.bench, &both)?;
    site.groups.push(both);
    let beside = jobs.first().filter(|j| !j.is_void()).map(|j| Measured::of(j).mb_per_s);
    site.derived(&value, alone.zip(beside).map(|(a, b)| (1.0 - b / a) * 100.0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_beside_each_other_are_announced_with_what_they_write() {
        let wish = Wish {
            figure: None,
            time: Nanos::from_secs(3),
            data_set: Bytes::mib(64),
            repeats: 1,
        };
        let cost = run_cost("shrout2017", wish, Bytes(0)).unwrap();
        let names: Vec<&str> = cost.phases.iter().map(|p| p.name.as_str()).collect();
        assert!(names.contains(&"reads beside writes"), "{names:?}");
        assert_eq!(cost.jobs(), 4);
        // 20 MB/s.
        let written = cost.written_at_most().0;
        assert!((60_000_000..80_000_000).contains(&written), "{written}");
    }
}
