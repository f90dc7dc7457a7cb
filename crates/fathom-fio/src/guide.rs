//! From a task and its files to what guides its job in the driver.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fathom_io::load::{Guide, MakePerformer, Pilot};
use fathom_io::{Control, JobSpec};
use fathom_telemetry::Op;

use crate::aux_files::{Outputs, Trouble};
use crate::engine::{Names, OVER, Own, Surroundings};
use crate::feed::classes::Classes;
use crate::feed::device::Device;
use crate::feed::lifetimes::{BLOCKS_MOST, SharedLifetimes};
use crate::feed::locks::FileLock;
use crate::feed::phases::Phases;
use crate::feed::random::Seeds;
use crate::feed::{FioFeed, FlowGroup, Order, replay};
use crate::output::EachLog;
use crate::plan::Task;
use crate::translate::recipe::Recipe;

/// What guides a task, and what it leaves behind.
pub struct Guided {
    /// For the driver.
    pub guide: Guide,
    depth: Arc<AtomicU64>,
    resets: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
    trouble: Trouble,
    phases: Arc<Phases>,
    reads: bool,
    classes: Classes,
    lifetimes: Option<SharedLifetimes>,
    own: Option<Own>,
}

impl Guided {
    fn new(task: &Task, guide: Guide) -> Self {
        let recipe = &task.shape.recipe;
        let backlog = recipe.check.as_ref().is_some_and(|c| c.backlog > 0);
        Self {
            guide,
            depth: Arc::default(),
            resets: Arc::default(),
            writes: Arc::default(),
            trouble: Trouble::default(),
            phases: Arc::default(),
            reads: recipe.does[0] || backlog,
            classes: Classes::default(),
            lifetimes: None,
            own: task.shape.own.clone(),
        }
    }
    /// Times of the load and of reading back, for the task's measure.
    pub fn time(&self, measure: &mut crate::Measure) {
        measure.phases = Some(self.phases.clone());
        measure.reads = self.reads;
    }
    /// What it found beside the driver's own figures, for the task's measure; complete when the job has ended.
    pub fn ended(&self, measure: &mut crate::Measure) {
        measure.latency_depth = self.depth.load(Ordering::Relaxed);
        if let Some(Own::Net(net)) = &self.own {
            measure.dropped = net.dropped();
        }
        measure.zone_resets = self.resets.load(Ordering::Relaxed);
        let blocks = |l: &SharedLifetimes| l.lock().unwrap_or_else(PoisonError::into_inner).clone();
        measure.lifetimes = self.lifetimes.as_ref().map(blocks);
        let all = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        for (totals, classes) in measure.totals.iter_mut().zip(all.iter()) {
            if let Some(t) = totals {
                t.by_priority.clone_from(classes);
            }
        }
    }
    /// Writes that were done and can be verified.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Guided {
    /// Why a log that it wrote could not be kept; known when the job has ended.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.said()
    }
}

impl Task {
    /// Where its I/O goes: every file.
    pub fn places(&self) -> impl Iterator<Item = &crate::Place> {
        std::iter::once(&self.shape.place).chain(&self.shape.more)
    }
    /// Bytes that this place of it must hold, where its section says it.
    pub fn wanted_size(&self, place: &crate::Place, cap: Option<u64>) -> Option<u64> {
        let index = self.places().position(|p| p == place).unwrap_or(0);
        self.shape
            .wanted_size((self.number, self.clone), index as u64, cap)
    }
    /// The files that have names of their own.
    fn paths(&self) -> Vec<PathBuf> {
        let path = |p: &crate::Place| match p {
            crate::Place::Path(p) => Some(p.clone()),
            crate::Place::Null | crate::Place::Sim(_) => None,
        };
        self.places().filter_map(path).collect()
    }
    /// Whether its I/Os are those of an engine that moves data.
    pub fn moves_data(&self) -> bool {
        let null = self.shape.spec.engine == fathom_io::job::Engine::Null;
        !null || self.shape.own.as_ref().is_some_and(Own::moves_data)
    }
    /// Whether its engine is none of the driver's.
    pub fn has_own_engine(&self) -> bool {
        self.shape.own.is_some()
    }
    /// Whether an error only says that the other end of its socket has closed, which ends a job as it should.
    pub fn only_ends(&self, errno: i32) -> bool {
        errno == OVER && matches!(self.shape.own, Some(Own::Net(_)))
    }
    /// Whether the time of each of its I/Os is shown where it computes.
    pub fn runs_program(&self) -> bool {
        matches!(self.shape.own, Some(Own::Exec(_)))
    }
    /// Names that it makes, looks up or removes.
    pub fn names(&self) -> Option<&Names> {
        match &self.shape.own {
            Some(Own::Names(names)) => Some(names),
            _ => None,
        }
    }
    /// Objects of servers that it changes, as `HOST/PATH`.
    pub fn objects(&self) -> Vec<String> {
        let own = self.shape.own.as_ref();
        own.filter(|_| self.shape.spec.rw.modifies())
            .map_or_else(Vec::new, Own::objects)
    }
    /// What must be there before any job begins: a socket that listens.
    ///
    /// # Errors
    /// Where it cannot be had, by its name.
    pub fn prepare(&self) -> Result<(), String> {
        self.shape.own.as_ref().map_or(Ok(()), Own::prepare)
    }
    /// Whether others wait for their turn at its files.
    pub fn takes_turns(&self) -> bool {
        self.shape.recipe.turns.is_some()
    }
    /// Whether each pass finds its files empty.
    pub fn empties(&self) -> bool {
        self.shape.recipe.anew && self.shape.spec.rw.writes()
    }
    /// Whether what is in its files matters.
    pub fn verifies(&self) -> bool {
        self.shape.recipe.check.is_some()
    }
    /// Whether an I/O may take too long.
    pub fn limits_latency(&self) -> bool {
        self.shape.recipe.max_latency != [fathom_telemetry::Nanos::ZERO; 3]
    }
    /// Whether zones with write pointers are asked for.
    pub fn wants_zones(&self) -> bool {
        self.shape.recipe.zoned.is_some()
    }
    /// Number of the flow that it shares with others.
    pub fn flow_id(&self) -> Option<u64> {
        self.shape.recipe.flow.map(|f| f.id)
    }
    /// File that keeps how far verified writes came, where it is to be kept.
    pub fn state_to_save(&self, outputs: &Outputs) -> Option<PathBuf> {
        let r = &self.shape.recipe;
        let verifies = r.check.is_some() && r.does[1];
        (verifies && r.state_save).then(|| self.state(outputs))
    }
    fn state(&self, outputs: &Outputs) -> PathBuf {
        let job = self.name.replace('/', ".");
        outputs.path(&format!("local-{job}-{}-verify.state", self.number - 1))
    }
    /// How many writes an earlier run completed, by its state file.
    fn known_writes(&self, outputs: &Outputs) -> Result<Option<u64>, String> {
        if !self.shape.recipe.state_load || self.shape.recipe.check.is_none() {
            return Ok(None);
        }
        let path = self.state(outputs);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            format!(
                "the verify state '{}' could not be read: {e}",
                path.display()
            )
        })?;
        text.lines()
            .find_map(|l| l.strip_prefix("writes "))
            .and_then(|n| n.trim().parse().ok())
            .map(Some)
            .ok_or_else(|| format!("'{}' is no verify state of fathom's", path.display()))
    }
}

/// What a task finds around it.
pub struct Around<'a> {
    /// Sizes of its files.
    pub sizes: &'a [u64],
    /// Its files, opened for writing where it writes.
    pub files: Vec<Arc<File>>,
    /// Their locks.
    pub locks: Vec<Arc<FileLock>>,
    /// The flow that it shares with others.
    pub flow: Option<Arc<FlowGroup>>,
    /// Where files beside its data go.
    pub outputs: &'a Outputs,
    /// Its own end, and that of all.
    pub controls: [Control; 2],
    /// Says each I/O on standard output (`--debug=io`).
    pub says_ios: Option<fn(&str)>,
    /// Whether its data goes anywhere: not with null, and not on models.
    pub moves_data: bool,
}

/// What guides `task`, whose job is `spec`; `None` where a plain job does.
pub fn guide(task: &Task, spec: &JobSpec, around: Around<'_>) -> Result<Option<Guided>, String> {
    let (recipe, outputs, sizes) = (task.shape.recipe.clone(), around.outputs, around.sizes);
    let logs = &task.shape.logs;
    let each = logs.any() && logs.average_ms == 0;
    let moves_data = around.moves_data;
    let mut guided = Guided::new(task, beside(task, spec, &around));
    if recipe.plain && !each && around.says_ios.is_none() && !task.shape.errors.survives_some() {
        let g = &guided.guide;
        let guides = g.enter.is_some() || g.last.is_some() || g.performer.is_some();
        return Ok(guides.then_some(guided));
    }
    let unmade = |e: std::io::Error| format!("its log could not be made: {e}");
    let each = EachLog::create(task, outputs, &guided.trouble).map_err(unmade)?;
    let several = sizes.len() > 1 && task.shape.replay.is_none();
    let (mut ranges, mut whole) = ranges(task, spec, sizes, several);
    let zoned = around.files.iter().filter(|_| recipe.zoned.is_some());
    let devices: Vec<Option<Arc<Device>>> = zoned.map(Device::of).collect();
    in_zones(&recipe, &devices, &mut ranges, &mut whole)?;
    let on_device = devices.iter().any(Option::is_some);
    let names = names(task);
    let log = recipe.write_log.as_ref().map(|path| {
        let log = replay::Writer::create(Path::new(path), &names, outputs, &guided.trouble);
        log.map_err(unmade)
    });
    let log = log.transpose()?;
    if recipe.lifetimes {
        check_blocks(&recipe, &ranges, several)?;
        guided.lifetimes = Some(SharedLifetimes::default());
    }
    guided.guide.ops = ops(task);
    let order = Order {
        amount: amount(task, spec, (&ranges, whole), several || on_device)?,
        ranges,
        names,
        replay: task.shape.replay.clone(),
        loops: task.shape.loops.max(1),
        ios: spec.ios,
        time_based: task.shape.time_based,
        again: task.shape.io_size.is_some(),
        depth: spec.qd,
        seeds: Seeds {
            // The driver's counts its jobs; those that fio derives from its own do so themselves.
            seed: spec.seed.wrapping_sub(u64::from(task.number)),
            ..task.shape.seeds(task.number)
        },
        thread: task.number as u16,
        moves_data,
        flow: around.flow,
        each: each.map(|e| Arc::new(Mutex::new(Some(e)))),
        log: log.map(|l| Arc::new(Mutex::new(Some(l)))),
        found_depth: guided.depth.clone(),
        known_writes: task.known_writes(outputs)?,
        writes_done: guided.writes.clone(),
        zone_resets: guided.resets.clone(),
        phases: guided.phases.clone(),
        classes: guided.classes.clone(),
        lifetimes: guided.lifetimes.clone().unwrap_or_default(),
        locks: around.locks,
        errors: task.shape.errors.clone(),
        says_ios: around.says_ios,
        devices,
        emptied: if recipe.anew && spec.rw.writes() {
            around.files
        } else {
            Vec::new()
        },
        real_time: !matches!(task.shape.place, crate::Place::Sim(_)),
        outputs: outputs.clone(),
        recipe,
    };
    guided.guide.pilot = Some(Arc::new(move |_| {
        Box::new(FioFeed::new(order.clone())) as Box<dyn Pilot>
    }));
    Ok(Some(guided))
}

/// What is done beside its I/Os, or instead of the driver's.
fn beside(task: &Task, spec: &JobSpec, around: &Around<'_>) -> Guide {
    let thread = &task.shape.thread;
    let last = thread.take_rights(task.paths(), spec.rw.modifies());
    Guide {
        enter: thread.enter().filter(|_| around.moves_data),
        last: last.filter(|_| around.moves_data),
        performer: performer(task, spec, around),
        ..Guide::default()
    }
}

/// What its own engine does its I/Os with.
fn performer(task: &Task, spec: &JobSpec, around: &Around<'_>) -> Option<MakePerformer> {
    let own = task.shape.own.as_ref()?;
    Some(own.performer(Surroundings {
        job: task.name.clone(),
        outputs: around.outputs.clone(),
        controls: around.controls.clone(),
        bytes: spec.bytes.map(|b| b.0),
        time: spec.time,
    }))
}

/// Refuses to keep account of blocks that are too many.
fn check_blocks(recipe: &Recipe, ranges: &[(u64, u64)], several: bool) -> Result<(), String> {
    let range = ranges.first().map_or(0, |r| r.1 - r.0);
    let blocks = range / recipe.sizes[2].min().max(1);
    if several || blocks == 0 || blocks > BLOCKS_MOST {
        return Err(format!(
            "block_error_percentiles keeps account of 1 to {BLOCKS_MOST} blocks of one file, not of {blocks}: choose a smaller size, or a larger bs of trims"
        ));
    }
    Ok(())
}

/// Begin and end of what is used of each file, and the bytes of all.
fn ranges(task: &Task, spec: &JobSpec, sizes: &[u64], several: bool) -> (Vec<(u64, u64)>, u64) {
    let start = spec.offset.0;
    let length = spec.size.map_or(0, |s| s.0);
    let whole_file = task.shape.sized_file() && task.shape.replay.is_none();
    if several || whole_file {
        return task.shape.ranges(task.clone, sizes);
    }
    let cut = |size: &u64| {
        let end = start.saturating_add(length).min(*size);
        (start.min(end), end)
    };
    let ranges: Vec<(u64, u64)> = sizes.iter().map(cut).collect();
    let whole = ranges.iter().map(|(a, b)| b - a).sum();
    (ranges, whole)
}

/// Cuts ranges to the zones of their devices, and counts what these can hold.
fn in_zones(
    recipe: &Recipe,
    devices: &[Option<Arc<Device>>],
    ranges: &mut [(u64, u64)],
    whole: &mut u64,
) -> Result<(), String> {
    for (range, device) in ranges.iter_mut().zip(devices.iter().flatten()) {
        let before = range.1 - range.0;
        let Some((inside, bytes)) = device.whole(*range) else {
            return Err(
                "io_size must be at least one zone: no zone of the device lies in the range".into(),
            );
        };
        *range = inside;
        let shares = recipe.does[1] && recipe.zoned.is_some_and(|z| z.reset.1 > 0.0);
        if shares {
            device.share(inside)?;
        }
        // What is trimmed is whole zones, whatever can be written in them.
        let bytes = match recipe.resets_zones() {
            true => inside.1 - inside.0,
            false => bytes,
        };
        *whole = *whole - before + bytes;
    }
    Ok(())
}

/// Bytes that are moved, where nothing else ends the job.
fn amount(
    task: &Task,
    spec: &JobSpec,
    (ranges, whole): (&[(u64, u64)], u64),
    apart: bool,
) -> Result<u64, String> {
    let loops = task.shape.loops.max(1);
    let recipe = &task.shape.recipe;
    if let (Some(terms), Some((from, to))) = (recipe.spread, ranges.first()) {
        let block = recipe.sizes[1].min();
        return match terms.refused(to - from, block) {
            Some(why) => Err(why),
            None => Ok(terms.physical(to - from, block).saturating_mul(loops)),
        };
    }
    Ok(match spec.bytes {
        Some(b) if !apart || task.shape.io_size.is_some() => b.0,
        _ => whole.saturating_mul(loops),
    })
}

/// How its files are called in logs.
fn names(task: &Task) -> Vec<PathBuf> {
    let name = |(i, place): (usize, &crate::Place)| match place {
        // The name that fio gives to a file of its own.
        crate::Place::Null => PathBuf::from(format!("{}.{}.{i}", task.name, task.clone)),
        crate::Place::Path(p) => p.clone(),
        crate::Place::Sim(name) => PathBuf::from(name),
    };
    task.places().enumerate().map(name).collect()
}

/// What it does, and what it takes beside that.
fn ops(task: &Task) -> Vec<Op> {
    let recipe = &task.shape.recipe;
    let mut ops = Vec::new();
    for (i, op) in [Op::Read, Op::Write, Op::Trim].into_iter().enumerate() {
        if recipe.does[i] {
            ops.push(op);
        }
    }
    if recipe.check.as_ref().is_some_and(|c| c.read_back) && !ops.contains(&Op::Read) {
        ops.push(Op::Read);
    }
    if task.shape.replay.is_some() {
        ops.push(Op::Sync);
    }
    if recipe.trim_back.is_some() && !ops.contains(&Op::Trim) {
        ops.push(Op::Trim);
    }
    ops
}
