//! What is done to the zones, in its order: each job begins on zones that were just reset.

use std::io;

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::Plan;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::runner::Runner;
use fathom_bench::schedule::turns;
use fathom_host::{Zone, ZoneAction, ZoneState};
use fathom_io::JobSpec;
use fathom_io::driver::error_of_device;
use fathom_io::target::Target;
use fathom_telemetry::{Bytes, Nanos};

use super::{Beyond, Found, MANAGED, ZonesOptions, ZonesResult};

/// The zones that are worked on.
struct Field {
    /// First and last byte.
    start: u64,
    end: u64,
    capacity: u64,
    count: u64,
}

impl Field {
    /// The first zones with a write pointer that lie side by side below `size`: as many as `wanted` where there are.
    fn choose(zones: &[Zone], size: u64, wanted: u64) -> Option<Self> {
        let usable = |z: &&Zone| {
            let alive = !matches!(z.state, ZoneState::Offline | ZoneState::ReadOnly);
            z.is_sequential() && alive && z.end() <= size
        };
        let mut zones = zones.iter().filter(usable);
        let first = zones.next()?;
        let (mut end, mut last, mut count) = (first.start + first.size, first.end(), 1);
        for z in zones {
            if z.start != end || count >= wanted {
                break;
            }
            (end, last, count) = (z.start + z.size, z.end(), count + 1);
        }
        Some(Self {
            start: first.start,
            end: last,
            capacity: first.capacity,
            count,
        })
    }

    fn has(&self, z: &Zone) -> bool {
        z.start >= self.start && z.end() <= self.end
    }

    /// A job on these zones that writes no more than they hold.
    fn put(&self, spec: &mut JobSpec) {
        spec.offset = Bytes(self.start);
        spec.size = Some(Bytes(self.end - self.start));
        let holds = Bytes(self.capacity * self.count);
        spec.bytes = spec.bytes.map(|b| b.min(holds));
    }

    /// All of them are reset, as far as anything is written in them.
    fn reset(&self, target: &Target) -> Result<(), BenchError> {
        let failed = |what: &str, e: io::Error| {
            BenchError::Outside(format!(
                "the zones cannot be {what}: {e}; look at the kernel log"
            ))
        };
        for z in target.zones().map_err(|e| failed("asked for", e))? {
            if self.has(&z) && z.state != ZoneState::Empty {
                target
                    .zone(ZoneAction::Reset, &z)
                    .map_err(|e| failed("reset", e))?;
            }
        }
        Ok(())
    }
}

fn target(bench: &mut dyn Bench) -> Result<&mut Target, BenchError> {
    let real = bench.real().map(|r| r.target_mut());
    real.ok_or_else(|| BenchError::Outside("zones are those of a device of this machine".into()))
}

/// Bytes of a command that appends, at most `bs`, or why there are none.
fn append_size(on: &mut Target, bs: u64, device_most: u64) -> (u64, Option<String>) {
    match on.take_commands() {
        Ok(most) => {
            let limits = [most, device_most].into_iter().filter(|b| *b > 0);
            // A power of two still.
            (1 << limits.fold(bs, u64::min).max(512).ilog2(), None)
        }
        Err(why) => (bs, Some(why)),
    }
}

/// Everything, up to the result.
pub(super) fn run(
    o: &ZonesOptions,
    (bench, plan): (&mut dyn Bench, &Plan),
    book: &mut Notebook,
    sink: &mut dyn ProgressSink,
    most: u32,
) -> Result<ZonesResult, NotebookError> {
    let on = target(bench)?;
    let zones = on
        .zones()
        .map_err(|e| BenchError::Outside(format!("the zones cannot be asked for: {e}")))?;
    let limits = on.zone_limits().cloned();
    let Some(limits) = limits else {
        return Err(BenchError::Outside("the device has no zones".into()).into());
    };
    let (bs, no_appends) = match o.report {
        true => (o.bs.0, None),
        false => append_size(on, o.bs.0, limits.append_bytes),
    };
    let found = Found::of(limits, &zones);
    let max_open = found.limits.max_open.unwrap_or(u32::MAX);
    let max_active = found.limits.max_active.unwrap_or(u32::MAX);
    let block = plan.limits.direct_align.max(512).into();
    let bs = bs.clamp(block, found.capacity.max(block));
    let mut result = ZonesResult {
        options: o.clone(),
        bs,
        used: 0,
        left_written: false,
        writes: Vec::new(),
        appends: Vec::new(),
        no_appends,
        managed: Vec::new(),
        reads: Vec::new(),
        beyond: Vec::new(),
        found,
    };
    if o.report {
        let mut runner = Runner::unprepared(bench, book, sink, "zones", plan.seed, most);
        read(o, &mut runner, plan, &zones, &mut result)?;
        runner.end();
        result.left_written = result.found.written > 0;
        return Ok(result);
    }
    let cap = plan.profile.write_cap(plan.limits.size, bs).0;
    let per_job = cap.div_ceil(result.found.capacity.max(1));
    let wanted = per_job + 2 * u64::from(o.most_open.max(MANAGED));
    let Some(field) = Field::choose(&zones, plan.limits.size, wanted) else {
        return Err(BenchError::Outside(format!(
            "none of its {} zones below {} can be written in order: choose a larger --size",
            zones.len(),
            Bytes(plan.limits.size)
        ))
        .into());
    };
    result.used = field.count;
    let most_open = o
        .most_open
        .min(max_open)
        .min(max_active)
        .min(u32::try_from(field.count).unwrap_or(u32::MAX));
    let mut runner = Runner::unprepared(bench, book, sink, "zones", plan.seed, most);
    // What the device allows is asked of itself: not every driver says its limits.
    let most_open = beyond(&mut runner, &field, most_open, &mut result)?;
    let measured = measure(o, &mut runner, plan, &field, most_open, &mut result);
    runner.end();
    // Whatever happened: nothing stays in the zones but by request.
    result.left_written = o.keep;
    if !o.keep {
        field.reset(target(runner.bench)?)?;
    }
    measured?;
    Ok(result)
}

fn measure(
    o: &ZonesOptions,
    runner: &mut Runner<'_>,
    plan: &Plan,
    field: &Field,
    most_open: u32,
    result: &mut ZonesResult,
) -> Result<(), NotebookError> {
    let repeats = plan.profile.repeats;
    let (bs, mut points) = (result.bs, Vec::new());
    points.extend(
        o.write_points(plan, bs, most_open)
            .map_err(BenchError::from)?,
    );
    let writes = points.len();
    if result.no_appends.is_none() {
        points.extend(o.append_points(plan, bs).map_err(BenchError::from)?);
    }
    points.iter_mut().for_each(|p| field.put(&mut p.spec));
    // All take turns, so that a drift of the device favours none.
    'all: for round in 0..repeats {
        for k in turns(points.len(), round) {
            field.reset(target(runner.bench)?)?;
            if !runner.repeat(&mut points[k])? {
                break 'all;
            }
        }
    }
    result.appends = points.split_off(writes);
    result.writes = points;
    if !runner.ended() {
        manage(o, runner, plan, field, most_open, result)?;
    }
    if !runner.ended() {
        field.reset(target(runner.bench)?)?;
        let mut fill = result.writes[0].spec.clone();
        fill.name = "fill".into();
        // Zones one after another, so that what is written lies side by side.
        runner.one(fill, "fill", 0)?;
        let zones = target(runner.bench)?.zones().unwrap_or_default();
        let zones: Vec<Zone> = zones.into_iter().filter(|z| field.has(z)).collect();
        read(o, runner, plan, &zones, result)?;
    }
    Ok(())
}

/// Resets of zones full of data, finishes of zones with a block, resets of those.
fn manage(
    o: &ZonesOptions,
    runner: &mut Runner<'_>,
    plan: &Plan,
    field: &Field,
    most_open: u32,
    result: &mut ZonesResult,
) -> Result<(), NotebookError> {
    let mut points = o.managing_points(plan).map_err(BenchError::from)?;
    points.iter_mut().for_each(|p| field.put(&mut p.spec));
    let [written, finish, finished] = &mut points[..] else {
        return Ok(());
    };
    let widest = result.writes.last().map(|p| p.spec.clone());
    let Some(widest) = widest else {
        return Ok(());
    };
    for round in 0..plan.profile.repeats {
        field.reset(target(runner.bench)?)?;
        let before = JobSpec {
            name: format!("write-before-reset.{}", round + 1),
            ..widest.clone()
        };
        if runner.one(before, "write-before-reset", round)?.is_none() || !runner.repeat(written)? {
            break;
        }
        field.reset(target(runner.bench)?)?;
        // A block in each of as many zones as may be open.
        let touch = JobSpec {
            name: format!("touch.{}", round + 1),
            ios: Some(most_open.into()),
            bytes: None,
            ramp: Nanos::ZERO,
            ..widest.clone()
        };
        let only = field.start + (field.end - field.start).min(u64::from(most_open) * zone(result));
        finish.spec.size = Some(Bytes(only - field.start));
        finished.spec.size = finish.spec.size;
        let touched = runner.one(touch, "touch", round)?.is_some();
        if !touched || !runner.repeat(finish)? || !runner.repeat(finished)? {
            break;
        }
    }
    result.managed = points;
    Ok(())
}

fn zone(result: &ZonesResult) -> u64 {
    result.found.limits.zone_bytes
}

/// One more zone than may be open, and one more than may be active; where no limit is known, than the jobs would write. How
/// many they can.
fn beyond(
    runner: &mut Runner<'_>,
    field: &Field,
    most_open: u32,
    result: &mut ZonesResult,
) -> Result<u32, NotebookError> {
    let limits = result.found.limits.clone();
    let mut can = most_open;
    for (active, declared) in [(false, limits.max_open), (true, limits.max_active)] {
        let limit = declared.unwrap_or(most_open);
        if u64::from(limit) >= field.count {
            continue;
        }
        let tried = attempt(runner, field, limit, |on, z| match active {
            false => on.zone(ZoneAction::Open, z),
            true => on.write_block(z),
        })?;
        if tried.said.is_some() {
            can = can.min(tried.reached.max(1));
        }
        if tried.said.is_some() || declared.is_some() {
            result.beyond.push(Beyond { active, ..tried });
        }
    }
    Ok(can)
}

/// Does something to one zone after another until the device says no, or has allowed one more than it may.
fn attempt(
    runner: &mut Runner<'_>,
    field: &Field,
    limit: u32,
    act: impl Fn(&Target, &Zone) -> io::Result<()>,
) -> Result<Beyond, NotebookError> {
    let words = |e: io::Error| error_of_device(e.raw_os_error().unwrap_or(0));
    let on = target(runner.bench)?;
    field.reset(on)?;
    let (mut reached, mut said) = (0, None);
    for z in on.zones().unwrap_or_default() {
        if !field.has(&z) {
            continue;
        }
        match act(on, &z) {
            Ok(()) => reached += 1,
            Err(e) => said = Some(words(e)),
        }
        if said.is_some() || reached > limit {
            break;
        }
    }
    Ok(Beyond {
        active: false,
        limit,
        reached,
        said,
    })
}

/// Reads of the longest stretch that is written without a gap.
fn read(
    o: &ZonesOptions,
    runner: &mut Runner<'_>,
    plan: &Plan,
    zones: &[Zone],
    result: &mut ZonesResult,
) -> Result<(), NotebookError> {
    let (start, end) = longest_written(zones);
    let mut points = o.read_points(plan, result.bs).map_err(BenchError::from)?;
    points.retain(|p| end - start >= p.spec.bs.max().0);
    for p in &mut points {
        let unit = p.spec.bs.max().0;
        p.spec.offset = Bytes(start);
        p.spec.size = Some(Bytes((end - start) / unit * unit));
    }
    if !points.is_empty() {
        runner.fill_up(&mut points, plan.profile.repeats)?;
    }
    result.reads = points;
    Ok(())
}

/// The longest stretch of written bytes below the write pointers.
fn longest_written(zones: &[Zone]) -> (u64, u64) {
    let (mut best, mut now) = ((0, 0), (0, 0));
    for z in zones
        .iter()
        .filter(|z| z.is_sequential() && z.written() > 0)
    {
        if now.1 != z.start {
            now.0 = z.start;
        }
        now.1 = z.start + z.written();
        if now.1 - now.0 > best.1 - best.0 {
            best = now;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_host::ZoneKind;

    fn zones(written: &[u64], capacity: u64) -> Vec<Zone> {
        let zone = |(i, w): (usize, &u64)| Zone {
            start: i as u64 * 100,
            size: 100,
            capacity,
            pointer: i as u64 * 100 + w,
            kind: ZoneKind::SequentialRequired,
            state: match *w {
                0 => ZoneState::Empty,
                w if w == capacity => ZoneState::Full,
                _ => ZoneState::Closed,
            },
        };
        written.iter().enumerate().map(zone).collect()
    }

    #[test]
    fn what_is_read_has_no_gap_in_it() {
        assert_eq!(
            longest_written(&zones(&[40, 100, 100, 20, 0, 90], 100)),
            (100, 320)
        );
        // Behind the capacity of each zone nothing can be written.
        assert_eq!(longest_written(&zones(&[80, 80, 30], 80)), (0, 80));
        assert_eq!(longest_written(&zones(&[0, 0], 80)), (0, 0));
    }

    #[test]
    fn the_zones_lie_side_by_side_and_can_all_be_written() {
        let mut all = zones(&[0; 8], 100);
        all[0].kind = ZoneKind::Conventional;
        all[5].state = ZoneState::ReadOnly;
        let f = Field::choose(&all, 800, 100).unwrap();
        assert_eq!((f.start, f.end, f.count), (100, 500, 4));
        let f = Field::choose(&all, 800, 2).unwrap();
        assert_eq!((f.start, f.end, f.count), (100, 300, 2));
        let f = Field::choose(&all, 350, 9).unwrap();
        assert_eq!((f.start, f.end, f.count), (100, 300, 2));
        assert!(Field::choose(&all, 150, 9).is_none());
        let gaps = zones(&[0; 3], 80);
        let f = Field::choose(&gaps, 300, 9).unwrap();
        assert_eq!((f.start, f.end, f.capacity), (0, 280, 80));
    }
}
