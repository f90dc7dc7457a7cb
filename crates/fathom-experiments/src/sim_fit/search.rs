//! Where to look for a model: many starts, structures that no step along one value reaches (slots, units, who answers writes),
//! from far with few requests, then from near.

use fathom_sim::model::{Model, Path};
use fathom_sim::parameters::Parameter;
use fathom_telemetry::Op;
use fathom_telemetry::schema::Run;

use super::seen::Load;
use super::solve::{Problem, parameters};
use super::{FAR, NEAR};

/// Software of the default host around a request, ns: submission, shallow sleep, completion.
const HOST_NS: f64 = 5_500.0;
/// Queue slots of a device that never runs out of them, and of others that are tried.
pub(super) const SLOTS: [u32; 4] = [1024, 32, 64, 128];

/// The loads of a fit by what they are.
pub(super) struct Parted<'a> {
    pub(super) all: Vec<&'a Load>,
    pub(super) reads: Vec<&'a Load>,
    writes: Vec<&'a Load>,
}

impl<'a> Parted<'a> {
    pub(super) fn of(all: Vec<&'a Load>) -> Self {
        let of = |op: Op| all.iter().copied().filter(|m| m.op() == Some(op)).collect();
        Self {
            reads: of(Op::Read),
            writes: of(Op::Write),
            all,
        }
    }

    /// What can be told of these loads.
    pub(super) fn told(&self) -> Vec<&'static Parameter> {
        let mut heads = vec!["units", "pipeline_cv", "media_cv", "read."];
        let mixed: Vec<_> = self.all.iter().filter(|m| m.op().is_none()).collect();
        if !self.writes.is_empty() || !mixed.is_empty() {
            heads.push("write.");
        }
        if !mixed.is_empty() {
            heads.push("flash.program_us");
        }
        if mixed.iter().any(|m| !m.spec.rw.is_random()) {
            heads.push("flash.reads_spoilt");
        }
        parameters(&heads)
    }
}

/// First guess of one direction from its extremes.
fn guess(points: &[&Load], random_qd1: Option<f64>, sequential_qd1: Option<f64>) -> Path {
    let bytes_per_ns = points
        .iter()
        .map(|m| m.iops * m.block() / 1e9)
        .fold(1e-4, f64::max)
        * 1.02;
    let command_ns = points
        .iter()
        .map(|m| 1e9 / m.iops - m.block() / bytes_per_ns)
        .fold(f64::MAX, f64::min)
        .clamp(0.0, 1e8);
    let device = |total: f64| (total - HOST_NS - command_ns - 4096.0 / bytes_per_ns).max(100.0);
    let random = random_qd1.map_or(10_000.0, device);
    let fixed = match (random_qd1, sequential_qd1) {
        (Some(r), Some(s)) if s < 0.8 * r => device(s),
        _ => random / 4.0,
    };
    Path {
        command_ns,
        gb_per_s: bytes_per_ns,
        media_us: (random - fixed).max(0.0) / 1e3,
        fixed_us: fixed / 1e3,
    }
}

/// A model of nothing but the extremes of what `run` and those beside it measured.
pub(super) fn start(whole: &Parted<'_>, run: &Run, names: &str) -> Model {
    let read = guess(
        &whole.reads,
        single(&whole.reads, true),
        single(&whole.reads, false),
    );
    let write = match whole.writes.is_empty() {
        true => read,
        false => guess(
            &whole.writes,
            single(&whole.writes, true),
            single(&whole.writes, false),
        ),
    };
    Model {
        description: format!("fitted to {} of {}", names, run.target.name),
        capacity_gb: (run.target.size_bytes as f64 / 1e9).max(1.1),
        slots: SLOTS[0],
        units: 8,
        read_ahead: false,
        pipeline_cv: 0.2,
        media_cv: 0.2,
        read,
        write,
        mechanical: None,
        flash: None,
        thermal: None,
        synchronous: None,
        fit: None,
    }
}

/// Latency of one small request at a time, ns.
pub(super) fn single(points: &[&Load], random: bool) -> Option<f64> {
    let one =
        |m: &&&Load| m.outstanding() == 1 && m.spec.rw.is_random() == random && m.block() <= 8192.0;
    points.iter().find(one).map(|m| m.mean_ns())
}

/// Some starts after so many rounds, the best first. A buffer that answers writes at once stays one.
pub(super) fn ranked(
    starts: Vec<Model>,
    loads: &[&Load],
    moved: &[&'static Parameter],
    (requests, rounds): (f64, u32),
) -> Vec<(f64, Model)> {
    let go = |mut model: Model| {
        let buffer = model.write.media_us == 0.0;
        let mut moved = moved.to_vec();
        moved.retain(|p| !(buffer && p.key == "write.media_us"));
        let problem = Problem {
            loads,
            moved: &moved,
            requests,
        };
        (problem.descend(&mut model, rounds), model)
    };
    let mut gone: Vec<_> = starts.into_iter().map(go).collect();
    gone.sort_by(|a, b| a.0.total_cmp(&b.0));
    gone
}

/// The first so many of them.
fn first(ranked: Vec<(f64, Model)>, n: usize) -> Vec<Model> {
    ranked.into_iter().take(n).map(|r| r.1).collect()
}

/// The same device with other numbers of slots, where so many are ever asked for.
pub(super) fn with_slots(model: &Model, loads: &[&Load], slots: &[u32]) -> Vec<Model> {
    let deepest = loads.iter().map(|m| m.outstanding()).max().unwrap_or(1);
    let told = slots.iter().filter(|n| **n < deepest || **n == SLOTS[0]);
    told.map(|slots| Model {
        slots: *slots,
        ..model.clone()
    })
    .collect()
}

/// Values for these loads from nothing.
pub(super) fn solve(parted: &Parted<'_>, model: Model) -> Model {
    let of_reads = parameters(&["units", "pipeline_cv", "media_cv", "read."]);
    let random = single(&parted.reads, true);
    let sequential = single(&parted.reads, false);
    // Read-ahead shows in what one sequential request takes; where it hardly does, either may be true.
    let ahead: &[bool] = match (random, sequential) {
        (Some(r), Some(s)) if s < 0.8 * r => &[true],
        (Some(r), Some(s)) if s < 0.97 * r => &[true, false],
        _ => &[false],
    };
    let most = parted.reads.iter().map(|m| m.iops).fold(0.0, f64::max);
    let mut starts = Vec::new();
    for read_ahead in ahead {
        let busy = most * model.read.media_us / 1e6;
        let mut units = [0.6 * busy, 1.2 * busy, 3.0 * busy, 3.0, 8.0, 24.0]
            .map(|n| (n.ceil() as u32).clamp(1, 512))
            .to_vec();
        units.sort_unstable();
        units.dedup();
        for units in units {
            let start = Model {
                read_ahead: *read_ahead,
                units,
                ..model.clone()
            };
            starts.extend(with_slots(&start, &parted.reads, &SLOTS[..2]));
        }
    }
    let found = first(ranked(starts, &parted.reads, &of_reads, (FAR, 12)), 3);
    let found = first(ranked(found, &parted.reads, &of_reads, (NEAR, 8)), 2);
    let of_writes = parameters(&["write."]);
    // A buffer answers writes, or the medium does.
    let mut answers = Vec::new();
    for medium in found {
        let mut buffer = medium.clone();
        buffer.write.fixed_us += buffer.write.media_us;
        buffer.write.media_us = 0.0;
        answers.push(medium);
        if !parted.writes.is_empty() {
            answers.push(buffer);
        }
    }
    if !parted.writes.is_empty() {
        let gone = ranked(answers, &parted.writes, &of_writes, (FAR, 12));
        answers = first(gone, usize::MAX);
    }
    let told = parted.told();
    // Programming keeps units from reading, for a share of their time at the full rate.
    let shares: &[f64] = match told.iter().any(|p| p.key == "flash.program_us") {
        true => &[0.0, 0.15, 0.5],
        false => &[0.0],
    };
    let programs = |model: &Model, share: f64| {
        let mut other = model.clone();
        let us = share * f64::from(model.units) * 4.096 / model.write.gb_per_s;
        for program in parameters(&["flash.program_us"]) {
            program.set_scaled(&mut other, (us + program.least).ln());
        }
        other
    };
    // Of each the share that suits it best: what looks alike from far is told apart from near.
    let mut near: Vec<Model> = Vec::new();
    for answer in &answers {
        let starts = shares.iter().map(|s| programs(answer, *s)).collect();
        near.extend(first(ranked(starts, &parted.all, &told, (FAR, 12)), 1));
    }
    let best = ranked(near, &parted.all, &told, (NEAR, 8))
        .into_iter()
        .next();
    let (cost, model) = best.unwrap_or((f64::INFINITY, model));
    climbed(model, cost, parted)
}

/// Other numbers of slots and of units, everything else following them: steps along one value at a time end where none alone helps.
fn climbed(mut model: Model, mut cost: f64, parted: &Parted<'_>) -> Model {
    let mut others = with_slots(&model, &parted.all, &SLOTS);
    others.retain(|m| m.slots != model.slots);
    let reached = ranked(others, &parted.all, &parted.told(), (NEAR, 6));
    if let Some(better) = reached.into_iter().find(|r| r.0 < cost) {
        (cost, model) = better;
    }
    let mut follow = parted.told();
    follow.retain(|p| p.key != "units");
    for round in 0..3 {
        let n = model.units;
        // Far ones first, then neighbours.
        let units = match round {
            0 => [n * 7 / 10, n * 14 / 10],
            _ => [n - 1, n + 1],
        };
        for units in units
            .into_iter()
            .filter(|u| *u != n && (1..=4096).contains(u))
        {
            let other = vec![at_units(&model, units)];
            let reached = ranked(other, &parted.all, &follow, (NEAR, 4));
            if let Some(better) = reached.into_iter().find(|r| r.0 < cost) {
                (cost, model) = better;
            }
        }
    }
    model
}

/// The same device of another number of units that serve as much together, and one request as fast.
pub(super) fn at_units(model: &Model, units: u32) -> Model {
    let mut other = model.clone();
    let times = f64::from(units) / f64::from(model.units);
    other.units = units;
    for (path, was) in [
        (&mut other.read, model.read),
        (&mut other.write, model.write),
    ] {
        let medium = (was.media_us * times).min(was.media_us + was.fixed_us);
        path.fixed_us += was.media_us - medium;
        path.media_us = medium;
    }
    other
}
