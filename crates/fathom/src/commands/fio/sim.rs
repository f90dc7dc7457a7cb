//! A fio script on a model (`filename=sim:MODEL`): the same tasks in virtual time, every result stamped as simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use fathom_bench::{Bench, SimBench};
use fathom_fio::output::LogFiles;
use fathom_fio::{Around, FlowGroup, Guided, Invocation, Measure, Place, Task, guide};
use fathom_io::Control;
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob, ThreadUsage};
use fathom_io::job::Limits;
use fathom_io::load::Batches;
use fathom_telemetry::Nanos;

use super::results::{now_ms, print};
use crate::exit::{DONE, FAILED, Failure, failed, refused};
use crate::signals;

/// The model that the tasks name; `None` where they name real places.
pub(super) fn model(tasks: &[Task]) -> Result<Option<&str>, Failure> {
    let mut names = tasks.iter().flat_map(Task::places).filter_map(|p| match p {
        Place::Sim(name) => Some(name.as_str()),
        _ => None,
    });
    let Some(first) = names.next() else {
        return Ok(None);
    };
    let all_alike = names.all(|n| n == first)
        && tasks
            .iter()
            .flat_map(Task::places)
            .all(|p| matches!(p, Place::Sim(_)));
    if !all_alike {
        return Err(refused(anyhow!(
            "one script runs on one model or on real files: name {first} in every job, or run them apart"
        )));
    }
    Ok(Some(first))
}

/// Runs the tasks on a model and returns the output and the exit code.
pub(super) fn run(it: &Invocation, tasks: &[Task], model: &str) -> Result<(String, u8), Failure> {
    let control = signals::control().map_err(refused)?;
    let mut bench = SimBench::open(model, control).map_err(refused)?;
    tasks.iter().try_for_each(possible)?;
    let flows: Flows = tasks
        .iter()
        .filter_map(|t| Some((t.flow_id()?, Arc::default())))
        .collect();
    let mut measures: Vec<Measure> = tasks.iter().map(|_| Measure::default()).collect();
    let begin = now_ms();
    let mut elapsed = Nanos::ZERO;
    for wave in 0..=tasks.last().map_or(0, |t| t.wave) {
        let members: Vec<usize> = (0..tasks.len())
            .filter(|i| tasks[*i].wave == wave)
            .collect();
        let mut planned = Vec::new();
        let mut guided = Vec::new();
        let mut logs = Vec::new();
        for i in &members {
            let (job, guide) = guided_job(it, &tasks[*i], &bench.limits(), &flows)?;
            planned.push(job);
            guided.push(guide);
            logs.push(LogFiles::create(&tasks[*i], &it.outputs()).map_err(|e| {
                failed(anyhow!(
                    "job '{}': its log could not be made: {e}",
                    tasks[*i].name
                ))
            })?);
        }
        let mut watcher = Watcher {
            tasks,
            members: &members,
            measures: &mut measures,
            logs: &mut logs,
        };
        let jobs = bench.run(&planned, None, &mut watcher)?;
        let mut longest = Nanos::ZERO;
        for ((i, job), g) in members.iter().zip(jobs).zip(&guided) {
            longest = longest.max(Nanos(job.wall_ns));
            let m = &mut measures[*i];
            m.started = true;
            m.start_ms = begin + elapsed.0 / 1_000_000;
            m.simulated = Some(model.to_owned());
            m.ended(Nanos::ZERO, job, &tasks[*i].shape.errors);
            if let Some(g) = g {
                g.ended(m);
            }
            m.elapsed_s = (elapsed + longest).0.div_ceil(1_000_000_000);
        }
        for log in logs.into_iter().flatten() {
            log.close()
                .map_err(|e| failed(anyhow!("a log could not be written: {e}")))?;
        }
        elapsed += longest;
        if bench.interrupted() {
            break;
        }
    }
    let code = if bench.interrupted() {
        super::INTERRUPTED
    } else if measures.iter().any(|m| m.failed) {
        FAILED
    } else {
        DONE
    };
    Ok((print(it, tasks, &measures, Vec::new(), Vec::new()), code))
}

/// Groups of `flow_id`.
type Flows = BTreeMap<u64, Arc<FlowGroup>>;

/// Refuses what needs a real target.
fn possible(task: &Task) -> Result<(), Failure> {
    let held = task.shape.group.is_some() || task.shape.scheduler.is_some();
    let why = if task.takes_turns() || task.has_own_engine() || held || task.shape.ramp_size > 0 {
        "lockfile, ramp_size, cgroup, ioscheduler and engines of other calls need a real target: leave them out"
    } else if task.shape.spec.sync.range.1 > 0 {
        "sync_file_range is about a page cache, and models have none: leave it out"
    } else if task.verifies() || task.shape.start_delay > Nanos::ZERO || task.wait_for.is_some() {
        "verify, startdelay and wait_for need a real target: a model holds no data, and its jobs start together (stonewall works)"
    } else {
        return Ok(());
    };
    Err(refused(anyhow!("job '{}': {why}", task.name)))
}

/// A task as a job for the model, and the feed that guides it where it needs one.
fn guided_job(
    it: &Invocation,
    task: &Task,
    limits: &Limits,
    flows: &Flows,
) -> Result<(PlannedJob, Option<Guided>), Failure> {
    let mut job = PlannedJob::new(super::run::settled(it, task, limits)?);
    // A model has no queue that merges.
    (job.job.spec.submit_batch, job.job.spec.complete_max) = (0, 0);
    let around = Around {
        sizes: &[limits.size],
        files: Vec::new(),
        locks: Vec::new(),
        flow: task.flow_id().and_then(|id| flows.get(&id).cloned()),
        outputs: &it.outputs(),
        controls: [Control::new(), Control::new()],
        says_ios: it.ios.then_some(crate::screen::print as fn(&str)),
        moves_data: false,
    };
    let guided = guide(task, &job.job.spec, around)
        .map_err(|e| refused(anyhow!("job '{}': {e}", task.name)))?;
    job.guide = guided.as_ref().map(|g| g.guide.clone());
    Ok((job, guided))
}

/// Passes windows on to the measures and logs of their tasks.
struct Watcher<'a> {
    tasks: &'a [Task],
    members: &'a [usize],
    measures: &'a mut Vec<Measure>,
    logs: &'a mut Vec<Option<LogFiles>>,
}

impl Observer for Watcher<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        if w.start_ns < 0 {
            return;
        }
        let i = self.members[w.job];
        self.measures[i].window(w.width, w.window, self.tasks[i].shape.terms.sample);
        if let Some(log) = &mut self.logs[w.job] {
            log.window(w.start_ns, w.width, w.window);
        }
    }
    fn thread_ended(&mut self, job: usize, _usage: &ThreadUsage, batches: &Batches) {
        self.measures[self.members[job]].batches.add(batches);
    }
}
