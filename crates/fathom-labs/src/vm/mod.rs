//! The VM lab: what a hypervisor costs on this storage, after Zhang et al. 2018.
//!
//! The same jobs on the physical host (PE) and in a machine (VE), in turns; the load curve of both; the
//! accumulated and mean IOPS of 1 to N machines that start together; a machine whose disk answers at once; and
//! settings proved in interleaved runs. Who runs the machines is behind [`Hypervisor`].

mod backend;
pub mod filesystems;
pub mod layers;
mod options;
pub mod qemu;
mod results;
mod sim;
mod ssh;
pub mod within;

use fathom_bench::cost::RunCost;
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Shown};
use fathom_bench::runner::{Point, Runner};
use fathom_bench::{Bench, Notebook, NotebookError, Plan};
use fathom_experiments::ab::{self, AbRow, BLOCK_JOBS};
use fathom_io::job::Rw;
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::{Bytes, Flag, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

pub use backend::{Hypervisor, Knob, Setup};
pub use options::VmOptions;
pub use qemu::QemuMachines;
pub use sim::SimMachines;
pub use ssh::{Reach, SshMachines};

use crate::LabError;

/// Jobs of this lab are called so in the run.
const EXPERIMENT: &str = "vm";
/// Blocks of the bandwidth loads (Zhang et al. III-B b).
const LARGE: Bytes = Bytes::kib(128);
const SMALL: Bytes = Bytes::kib(4);

/// So many machines, as a reader says it.
fn counted(machines: u32) -> String {
    match machines {
        1 => "1 machine".into(),
        n => format!("{n} machines"),
    }
}

/// One load that both sides run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) rw: Rw,
    pub(crate) block: Bytes,
    pub(crate) depth: u32,
}

impl Load {
    pub(crate) fn slug(&self) -> String {
        format!(
            "{}-{}k-qd{}",
            self.rw.word(),
            self.block.0 / 1024,
            self.depth
        )
    }

    /// `random reads of 4 KiB, QD 1`.
    pub(crate) fn title(&self) -> String {
        format!("{} of {}, QD {}", self.rw.loads(), self.block, self.depth)
    }
}

/// One load on both sides.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) load: Load,
    pub(crate) pe: Point,
    pub(crate) ve: Point,
}

/// N machines under the same load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fleet {
    pub(crate) machines: u32,
    /// By repeat: IOPS of each machine.
    pub(crate) iops: Vec<Vec<f64>>,
    /// By repeat: from the first start to the last.
    pub(crate) skew: Vec<Nanos>,
    /// By repeat: mean latency of each machine, ns.
    pub(crate) latency: Vec<Vec<f64>>,
    pub(crate) jobs: Vec<usize>,
}

/// One setting against the base, in interleaved runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) setup: Setup,
    pub(crate) load: Load,
    pub(crate) rows: Vec<AbRow>,
    pub(crate) jobs: Vec<usize>,
}

/// Everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) curve: Vec<Pair>,
    pub(crate) floor: Vec<(Load, Point)>,
    pub(crate) fleets: Vec<Fleet>,
    pub(crate) tried: Vec<Tried>,
}

/// What the lab found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VmResult {
    options: VmOptions,
    /// Of the machines.
    about: String,
    /// Settings that can be tried, each with a value.
    knobs: Vec<String>,
    measured: Measured,
}

impl ExperimentResult for VmResult {
    const EXPERIMENT: &'static str = EXPERIMENT;

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        results::present(self, evidence, shown);
    }
}

impl VmResult {
    /// Random reads of 4 KiB at a depth, on the host and in a machine: mean latency at depth 1, ns, IOPS at others.
    pub(crate) fn sides(
        &self,
        evidence: &Evidence<'_>,
        depth: u32,
    ) -> Option<[(f64, Vec<usize>); 2]> {
        let load = Load {
            rw: Rw::RandRead,
            block: SMALL,
            depth,
        };
        let pair = self.measured.pairs.iter().find(|p| p.load == load)?;
        let side = |point: &Point| {
            let cell = evidence.cell(point);
            let e = match depth {
                1 => cell.mean_latency(),
                _ => cell.iops(),
            };
            Some((e?.value, cell.indices()))
        };
        Some([side(&pair.pe)?, side(&pair.ve)?])
    }

    /// IOPS of so many machines together, mean over the repeats.
    pub(crate) fn together(&self, machines: u32) -> Option<(f64, Vec<usize>)> {
        let mut fleets = self.measured.fleets.iter();
        let fleet = fleets.find(|f| f.machines == machines && !f.iops.is_empty())?;
        let all: f64 = fleet.iops.iter().flatten().sum();
        Some((all / fleet.iops.len() as f64, fleet.jobs.clone()))
    }

    /// IOPS and mean latency, ns, of a machine by depth.
    pub(crate) fn curve(&self, evidence: &Evidence<'_>) -> (Vec<(f64, f64)>, Vec<usize>) {
        let mut pairs: Vec<&Pair> = self.measured.curve.iter().collect();
        pairs.sort_by_key(|p| p.load.depth);
        let cells: Vec<_> = pairs.iter().map(|p| evidence.cell(&p.ve)).collect();
        let points = cells
            .iter()
            .filter_map(|c| Some((c.iops()?.value, c.mean_latency()?.value)));
        let jobs = cells.iter().flat_map(|c| c.indices()).collect();
        (points.collect(), jobs)
    }
}

/// Loads of both sides: Zhang et al. Figs. 4 and 5.
fn loads(options: &VmOptions) -> Vec<Load> {
    let all = [Rw::Read, Rw::RandRead, Rw::Write, Rw::RandWrite];
    let allowed = |rw: &Rw| options.writes || !rw.modifies();
    let mut loads = Vec::new();
    for rw in all.into_iter().filter(allowed) {
        loads.push(Load {
            rw,
            block: SMALL,
            depth: 1,
        });
    }
    for block in [LARGE, SMALL] {
        for rw in [Rw::RandRead, Rw::RandWrite].into_iter().filter(allowed) {
            loads.push(Load {
                rw,
                block,
                depth: options.depth,
            });
        }
    }
    loads
}

fn curve(options: &VmOptions) -> Vec<Load> {
    let at = |depth: &u32| Load {
        rw: Rw::RandRead,
        block: SMALL,
        depth: *depth,
    };
    options.curve.iter().map(at).collect()
}

/// What settings are tried on, and what is asked of a disk that does nothing.
fn probes(options: &VmOptions) -> [Load; 2] {
    [1, options.depth].map(|depth| Load {
        rw: Rw::RandRead,
        block: SMALL,
        depth,
    })
}

fn spec(
    plan: &Plan,
    options: &VmOptions,
    side: &str,
    load: Load,
    size: u64,
) -> Result<JobSpec, JobError> {
    let mut spec = plan.job(
        &format!("{side}-{}", load.slug()),
        &[("rw", load.rw.word()), ("bs", &load.block.0.to_string())],
    )?;
    // As many threads as are allowed, with whole depths.
    let threads = (1..=options.threads.clamp(1, load.depth))
        .rev()
        .find(|t| load.depth.is_multiple_of(*t))
        .unwrap_or(1);
    (spec.threads, spec.qd) = (threads, load.depth / threads);
    spec.size = Some(Bytes(size / load.block.0 * load.block.0));
    Ok(spec)
}

/// Bytes of each machine's part.
pub fn part(plan: &Plan, options: &VmOptions) -> u64 {
    let most = u64::from(options.machines.iter().copied().max().unwrap_or(1).max(2));
    (plan.limits.size / most) >> 20 << 20
}

/// Time and bytes, at most.
pub fn run_cost(plan: &Plan, options: &VmOptions, fills: Bytes, model: Option<&str>) -> RunCost {
    let (repeats, size) = (plan.profile.repeats, part(plan, options));
    let time = plan.profile.job_time + plan.profile.ramp;
    let mut cost = RunCost::filling(fills);
    let mut add = |phase: &str, loads: &[Load], times: u32, machine: bool| {
        cost.phase(phase);
        if let Some(model) = model.filter(|_| machine) {
            cost.on(sim::name(model, 1));
        }
        for load in loads {
            // What a side cannot run is left out there, too.
            if let Ok(spec) = spec(plan, options, "cost", *load, size) {
                cost.add(&spec, times);
            }
        }
    };
    for (side, machine) in [("host", false), ("machine", true)] {
        add(side, &loads(options), repeats, machine);
        if !options.curve.is_empty() {
            let name = format!("load curve of the {side}");
            add(&name, &curve(options), repeats, machine);
        }
    }
    if options.floor && model.is_none() {
        add("a disk that does nothing", &probes(options), repeats, true);
    }
    if !options.tries.is_empty() {
        let turns = options.tries.len() as u32 * options.blocks * BLOCK_JOBS;
        add("settings", &probes(options), turns, true);
    }
    let files = filesystems::jobs(options) * repeats;
    if files > 0 {
        let cap = plan.profile.write_cap(size, LARGE.0);
        cost.phase("file systems").work(
            files,
            Nanos(time.0 * u64::from(files)),
            Bytes(cap.0.saturating_mul(u64::from(files))),
        );
    }
    if !options.machines.is_empty() {
        cost.phase("machines beside each other");
        // Each has a job of its own, all at the same time.
        let deep = probes(options)[1];
        for machines in &options.machines {
            if let Ok(spec) = spec(plan, options, "cost", deep, size) {
                cost.add(&spec, repeats);
                let others = machines.saturating_sub(1) * repeats;
                cost.add_beside(&spec, others);
                if let Some(model) = model {
                    cost.on(sim::name(model, 1)).simulated_as(&spec, others);
                }
            }
        }
    }
    cost
}

/// Measures both sides and puts sections, headlines and findings into the notebook.
///
/// # Errors
/// Where the target or the first machine cannot be used, or the run directory fails. What fails later is a
/// hole with its reason.
pub fn run(
    physical: &mut dyn Bench,
    hypervisor: &mut dyn Hypervisor,
    plan: &Plan,
    options: &VmOptions,
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let size = part(plan, options);
    if size < LARGE.0 * 64 {
        return Err(LabError::Refused(format!(
            "{} are too little for {} machines: use a larger --size or fewer --vms",
            Bytes(plan.limits.size),
            options.machines.iter().max().unwrap_or(&1)
        ))
        .into());
    }
    let mut lab = Lab {
        plan,
        options,
        size,
        total: run_cost(plan, options, Bytes(0), None).jobs(),
        done: 0,
        ended: false,
    };
    let mut m = Measured::default();
    let mut machine = hypervisor.boot(&options.setup, 1)?;
    let both = lab.both(physical, &mut *machine, &mut m, book, sink);
    machine.close()?;
    both?;
    lab.floor(hypervisor, &mut m, book, sink)?;
    lab.fleets(hypervisor, &mut m, book, sink)?;
    lab.tries(hypervisor, &mut m, book, sink)?;
    let layers = if options.layers && !lab.ended {
        match hypervisor.layers(&options.setup, book) {
            Ok(layers) => layers,
            Err(e) => {
                lab.hole("latency by layer", e, book)?;
                None
            }
        }
    } else {
        None
    };
    let place = physical
        .real()
        .and_then(|r| r.target().path().map(std::path::Path::to_owned));
    let on_files = lab.files(place, hypervisor, book, sink);
    if physical.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{} of {} jobs were run", lab.done, lab.total),
            "run it again: it begins anew",
        ));
    }
    book.run_mut().flags.extend(hypervisor.stamps());
    book.found(&VmResult {
        options: options.clone(),
        about: hypervisor.about(),
        knobs: hypervisor
            .knobs()
            .iter()
            .filter_map(Knob::example)
            .collect(),
        measured: m,
    })?;
    if let Some(layers) = layers {
        book.found(&layers)?;
    }
    if let Some(files) = on_files? {
        book.found(&files)?;
    }
    Ok(())
}

struct Lab<'a> {
    plan: &'a Plan,
    options: &'a VmOptions,
    size: u64,
    total: u32,
    done: u32,
    ended: bool,
}

impl Lab<'_> {
    fn one(
        &mut self,
        bench: &mut dyn Bench,
        point: &mut Point,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        if self.ended {
            return Ok(());
        }
        let mut runner =
            Runner::begin(bench, book, sink, EXPERIMENT, self.options.seed, self.total)?
                .after(self.done);
        self.ended = !runner.repeat(point)?;
        self.done = runner.done();
        Ok(())
    }

    /// Both sides in turns: PE VE, then VE PE.
    fn both(
        &mut self,
        pe: &mut dyn Bench,
        ve: &mut dyn Bench,
        m: &mut Measured,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let direct = loads(self.options).into_iter().map(|l| (l, false));
        let curved = curve(self.options).into_iter().map(|l| (l, true));
        let mut points = Vec::new();
        for (load, is_curve) in direct.chain(curved) {
            let stem = if is_curve { "-curve" } else { "" };
            let of = |side: &str| {
                spec(
                    self.plan,
                    self.options,
                    &format!("{side}{stem}"),
                    load,
                    self.size,
                )
            };
            let sides = [of("pe"), of("ve")].map(|s| s.map(Point::new).map_err(LabError::from));
            let [p, v] = sides;
            points.push((load, is_curve, p?, v?));
        }
        for repeat in 0..self.plan.profile.repeats {
            for (_, _, p, v) in &mut points {
                if repeat % 2 == 0 {
                    self.one(pe, p, book, sink)?;
                    self.one(ve, v, book, sink)?;
                } else {
                    self.one(ve, v, book, sink)?;
                    self.one(pe, p, book, sink)?;
                }
            }
        }
        for (load, is_curve, p, v) in points {
            let (pe, ve) = (p, v);
            let pair = Pair { load, pe, ve };
            if is_curve { &mut m.curve } else { &mut m.pairs }.push(pair);
        }
        Ok(())
    }

    fn floor(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        m: &mut Measured,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        if !self.options.floor || self.ended {
            return Ok(());
        }
        let mut machine = match hypervisor.floor(&self.options.setup) {
            Ok(Some(machine)) => machine,
            Ok(None) => return Ok(()),
            Err(e) => return self.hole("the machine with a disk that does nothing", e, book),
        };
        for load in probes(self.options) {
            let size = self.size.min(machine.limits().size);
            let spec =
                spec(self.plan, self.options, "floor", load, size).map_err(LabError::from)?;
            let mut point = Point::new(spec);
            for _ in 0..self.plan.profile.repeats {
                self.one(&mut *machine, &mut point, book, sink)?;
            }
            m.floor.push((load, point));
        }
        Ok(machine.close()?)
    }

    /// 1 to N machines, each with the same load.
    fn fleets(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        m: &mut Measured,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        for machines in &self.options.machines {
            if self.ended {
                break;
            }
            let mut bench = match hypervisor.boot(&self.options.setup, *machines) {
                Ok(bench) => bench,
                Err(e) => {
                    self.hole(&counted(*machines), e, book)?;
                    continue;
                }
            };
            let fleet = self.fleet(&mut *bench, *machines, book, sink);
            bench.close()?;
            m.fleets.push(fleet?);
        }
        Ok(())
    }

    fn fleet(
        &mut self,
        bench: &mut dyn Bench,
        machines: u32,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<Fleet, NotebookError> {
        let mut fleet = Fleet {
            machines,
            iops: Vec::new(),
            skew: Vec::new(),
            latency: Vec::new(),
            jobs: Vec::new(),
        };
        let load = probes(self.options)[1];
        let mut specs = Vec::new();
        for i in 0..machines {
            let side = format!("vms{machines}-vm{}", i + 1);
            specs.push(
                spec(self.plan, self.options, &side, load, self.size).map_err(LabError::from)?,
            );
        }
        for repeat in 0..self.plan.profile.repeats {
            let mut runner =
                Runner::begin(bench, book, sink, EXPERIMENT, self.options.seed, self.total)?
                    .after(self.done);
            let Some(jobs) = runner.group(&specs, repeat)? else {
                self.ended = true;
                break;
            };
            self.done = runner.done();
            let measured: Vec<_> = jobs
                .iter()
                .filter_map(|j| book.run().jobs.get(*j))
                .collect();
            if measured.iter().all(|j| !j.is_void()) {
                let read = |f: fn(&fathom_telemetry::schema::Direction) -> f64| -> Vec<f64> {
                    measured
                        .iter()
                        .filter_map(|j| j.read.as_ref())
                        .map(f)
                        .collect()
                };
                fleet.iops.push(read(|d| d.iops));
                fleet
                    .latency
                    .push(read(|d| d.response_ns.mean.unwrap_or(0.0)));
                let starts = measured.iter().map(|j| j.start_ns);
                let (first, last) = (starts.clone().min(), starts.max());
                fleet
                    .skew
                    .push(Nanos(last.unwrap_or(0) - first.unwrap_or(0)));
            }
            fleet.jobs.extend(jobs);
        }
        Ok(fleet)
    }

    /// Each setting against the base: two machines that are there at the same time and work in turns.
    fn tries(
        &mut self,
        hypervisor: &mut dyn Hypervisor,
        m: &mut Measured,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        for setup in &self.options.tries {
            if self.ended {
                break;
            }
            let with = self.options.setup.with(setup);
            let booted = hypervisor
                .boot(&self.options.setup, 1)
                .and_then(|a| Ok((a, hypervisor.boot(&with, 1)?)));
            let (mut a, mut b) = match booted {
                Ok(both) => both,
                Err(e) => {
                    self.hole(&setup.words(), e, book)?;
                    continue;
                }
            };
            for load in probes(self.options) {
                let of = |side: &str| spec(self.plan, self.options, side, load, self.size);
                let base = of(&format!("base-of-{}", setup.words())).map_err(LabError::from)?;
                let tried = of(&setup.words()).map_err(LabError::from)?;
                let (mut base, mut tried) = (Point::new(base), Point::new(tried));
                let mut order = Vec::new();
                for number in 0..self.options.blocks {
                    for side in ab::block(self.options.seed, number) {
                        let (bench, point) = match side {
                            ab::Setting::A => (&mut *a, &mut base),
                            ab::Setting::B => (&mut *b, &mut tried),
                        };
                        let before = point.jobs.len();
                        self.one(bench, point, book, sink)?;
                        order.extend(point.jobs[before..].iter().map(|j| (side, *j)));
                    }
                }
                let run = book.run();
                let jobs: Vec<_> = order
                    .iter()
                    .filter_map(|(s, j)| Some((*s, run.jobs.get(*j)?)))
                    .collect();
                m.tried.push(Tried {
                    setup: setup.clone(),
                    load,
                    rows: ab::analyse(&jobs, self.options.seed),
                    jobs: order.iter().map(|o| o.1).collect(),
                });
            }
            a.close()?;
            b.close()?;
        }
        Ok(())
    }

    /// Something that could not be measured, as a flag of the run; only a run directory that fails ends the run.
    fn hole(&self, what: &str, why: LabError, book: &mut Notebook) -> Result<(), NotebookError> {
        if let LabError::Notebook(e) = why {
            return Err(*e);
        }
        book.run_mut().flags.push(Flag::new(
            FlagCode::NotChecked,
            format!("{what} could not be measured: {why}"),
            "the other numbers are not concerned",
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
