//! Runs the tasks of a fio script: waves, delays and waits around the one driver.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use fathom_fio::output::{COMMANDS, Disk, LogFiles, Outputs, is_state, is_text, text_of};
use fathom_fio::{
    Around, ExitWhat, FileLock, FlowGroup, Format, Guided, Invocation, Measure, Task, guide,
};
use fathom_io::clock::monotonic;
use fathom_io::driver::{PlannedJob, Progress, Setting, run_group};
use fathom_io::job::{Limits, ValidJob};
use fathom_io::thread_terms::Pinned;
use fathom_io::{Control, threads, validity};
use fathom_telemetry::say;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{FlagCode, Nanos};

use super::aggregate::AggregateLogs;
use super::disks::Counted;
use super::eta::lock;
use super::files::{self, OpenFile};
use super::held::Held;
use super::idle::Account;
use super::names::Made;
use super::ramp::{self, Ramp, Ramps};
use super::results::{now_ms, print};
use super::trigger::pull;
use super::watcher::{Least, Watcher};
use crate::exit::{DONE, FAILED, Failure, failed, refused};
use crate::{progress, signals};

/// Input/output error: what fio says of a job that misses its `rate_min`.
const EIO: i32 = 5;

/// Invalid argument: what fio says of a scheduler or a control group that cannot be.
const EINVAL: i32 = 22;

/// ETIMEDOUT: an I/O took longer than `max_latency`.
const TOO_SLOW: i32 = 110;

/// EILSEQ: what a verification that failed leaves as its error.
const MISMATCH: i32 = 84;

/// How often waiting tasks look whether someone asked to end.
const NAP: Duration = Duration::from_millis(20);

/// Everything that the threads of a run share.
struct Stage<'a> {
    it: &'a Invocation,
    answer: &'a super::Answer,
    outputs: Outputs,
    tasks: &'a [Task],
    files: &'a [OpenFile],
    measures: Vec<Mutex<Measure>>,
    /// Ends one task alone.
    controls: Vec<Control>,
    ended: Mutex<Vec<bool>>,
    change: Condvar,
    control: Control,
    begin: Nanos,
    processors: Account,
    failure: Mutex<Option<String>>,
    flows: BTreeMap<u64, Arc<FlowGroup>>,
    /// One per file.
    locks: Vec<Arc<FileLock>>,
    ramps: Ramps,
}

/// Runs them and returns the output and the exit code.
pub(super) fn run(
    it: &Invocation,
    tasks: &[Task],
    answer: &super::Answer,
) -> Result<(String, u8), Failure> {
    let control = signals::control().map_err(refused)?;
    let begin = monotonic();
    let asked = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, asked.clone())
        .map_err(|e| refused(anyhow!(e)))?;
    Held::check(tasks)?;
    ramp::agree(tasks)?;
    let files = files::open(it, tasks, &control)?;
    let held = match ready(it, tasks, answer, &files) {
        Ok(held) => held,
        Err(e) => {
            files::close(files, &[], true);
            return Err(e);
        }
    };
    let counted = Counted::of(&files);
    let stage = Stage {
        it,
        answer,
        outputs: it.outputs(),
        tasks,
        files: &files,
        measures: (tasks.iter())
            .map(|_| Mutex::new(Measure::for_test_of(it.judged)))
            .collect(),
        controls: tasks.iter().map(|_| Control::new()).collect(),
        ended: Mutex::new(vec![false; tasks.len()]),
        change: Condvar::new(),
        control,
        begin,
        processors: Account::now(),
        failure: Mutex::new(None),
        flows: tasks
            .iter()
            .filter_map(|t| Some((t.flow_id()?, Arc::default())))
            .collect(),
        locks: files.iter().map(|_| Arc::default()).collect(),
        ramps: Ramps::of(tasks),
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        match threads::within(s, || stage.watch(&done, &asked, &|| counted.disks())) {
            Ok(_) => stage.waves(),
            Err(e) => stage.fail(e.to_string()),
        }
        done.store(true, Ordering::Relaxed);
    });
    stage.say_errors();
    let text = stage.seeds() + &stage.print(counted.disks());
    let failure = lock(&stage.failure).take();
    let errors = stage.measures.iter().any(|m| lock(m).failed);
    let code = if stage.control.interrupted() {
        super::INTERRUPTED
    } else if errors || failure.is_some() {
        FAILED
    } else {
        DONE
    };
    drop(stage);
    let unlink = tasks.iter().filter(|t| t.shape.unlink);
    let unlink: Vec<_> = unlink.map(|t| t.shape.place.clone()).collect();
    files::close(files, &unlink, false);
    drop(held);
    if let Some(why) = failure {
        say!("fathom: {why}");
    }
    Ok((text, code))
}

/// Refuses what cannot work before anything runs, says the head of the output, and makes what is there from before the
/// first job to after the last.
fn ready(
    it: &Invocation,
    tasks: &[Task],
    answer: &super::Answer,
    files: &[OpenFile],
) -> Result<(Made, Option<Pinned>), Failure> {
    for task in tasks.iter().filter(|t| !t.shape.create_only) {
        planned(it, task, file_of(files, task))?;
    }
    answer.head(it, tasks)?;
    begin_with(tasks)
}

/// What is there from before the first job to after the last: names that are looked up and removed, sockets that listen,
/// locked memory.
fn begin_with(tasks: &[Task]) -> Result<(Made, Option<Pinned>), Failure> {
    let made = Made::lay_out(tasks)?;
    for task in tasks {
        task.prepare()
            .map_err(|why| failed(anyhow!("job '{}': {why}", task.name)))?;
    }
    let locked = tasks.iter().map(|t| t.shape.lockmem).max().unwrap_or(0);
    let pinned = (locked > 0).then(|| Pinned::new(locked)).transpose();
    let pinned = pinned.map_err(|e| {
        failed(anyhow!(
            "lockmem={locked}: the memory could not be locked: {e}; raise ulimit -l, or lock less"
        ))
    })?;
    Ok((made, pinned))
}

/// Makes durable what a task wrote, where it asks for that.
fn sync_at_end(task: &Task, file: &OpenFile) -> Result<(), String> {
    let Some(f) = file.buffered() else {
        return Ok(());
    };
    if task.shape.sync_fs_at_end {
        rustix::fs::syncfs(f).map_err(|e| format!("syncfs at the end: {e}"))?;
    }
    if task.shape.sync_at_end {
        f.sync_all().map_err(|e| format!("fsync at the end: {e}"))?;
    }
    Ok(())
}

fn file_of<'a>(files: &'a [OpenFile], task: &Task) -> Option<&'a OpenFile> {
    files.iter().find(|f| f.place == task.shape.place)
}

/// The task as a job for the driver.
fn planned(it: &Invocation, task: &Task, file: Option<&OpenFile>) -> Result<PlannedJob, Failure> {
    let file = file.ok_or_else(|| failed(anyhow!("job '{}' has no target", task.name)))?;
    Ok(PlannedJob::new(settled(it, task, &file.target.limits())?))
}

/// The task on a target with these limits.
pub(super) fn settled(it: &Invocation, task: &Task, limits: &Limits) -> Result<ValidJob, Failure> {
    let cap = it.time_cap.map(Nanos::from);
    let mut spec = task
        .shape
        .settle(task.clone, limits.size, it.size_cap, cap)
        .map_err(refused)?;
    // Clones and jobs differ, runs repeat, as in fio; with randrepeat=0 they do not.
    spec.seed = spec.seed.wrapping_add(u64::from(task.number));
    if task.shape.random_seed {
        spec.seed ^= SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
    }
    spec.validate(limits)
        .map_err(|e| refused(anyhow!(e).context(format!("job '{}'", task.name))))
}

impl Stage<'_> {
    fn waves(&self) {
        let last = self.tasks.last().map_or(0, |t| t.wave);
        for wave in 0..=last {
            let members: Vec<&Task> = self.tasks.iter().filter(|t| t.wave == wave).collect();
            let _held = match Held::of(&members, self.files) {
                Ok(held) => held,
                Err(why) => {
                    self.fail(why);
                    for (i, _) in self.tasks.iter().enumerate().filter(|t| t.1.wave == wave) {
                        lock(&self.measures[i]).fail(EINVAL);
                        self.end(i);
                    }
                    continue;
                }
            };
            std::thread::scope(|s| {
                for (i, task) in self.tasks.iter().enumerate().filter(|t| t.1.wave == wave) {
                    let spawned = std::thread::Builder::new()
                        .stack_size(512 << 10)
                        .spawn_scoped(s, move || self.task(i, task));
                    if let Err(e) = spawned {
                        self.fail(threads::refused(&e));
                        self.end(i);
                    }
                }
            });
            if self.control.interrupted() {
                return;
            }
        }
    }

    fn fail(&self, why: String) {
        lock(&self.failure).get_or_insert(why);
    }

    fn end(&self, i: usize) {
        lock(&self.measures[i]).elapsed_s = self.elapsed_s();
        let mut ended = lock(&self.ended);
        ended[i] = true;
        let tasks = || self.tasks.iter().zip(ended.iter());
        if tasks().all(|(t, e)| *e || t.shape.computes) {
            for (t, control) in self.tasks.iter().zip(&self.controls) {
                if t.shape.exit_on_io_done {
                    control.interrupt();
                }
            }
        }
        drop(ended);
        self.change.notify_all();
    }

    /// Seconds since the beginning, rounded up as in fio.
    fn elapsed_s(&self) -> u64 {
        monotonic().since(self.begin).0.div_ceil(1_000_000_000)
    }

    /// Whether the task may start: its predecessors have ended, its delay is over.
    fn wait(&self, i: usize, task: &Task) -> bool {
        let over = || self.control.interrupted() || self.controls[i].interrupted();
        if let Some(name) = &task.wait_for {
            let mut ended = lock(&self.ended);
            while self
                .tasks
                .iter()
                .zip(ended.iter())
                .any(|(t, e)| t.name == *name && !e)
            {
                if over() {
                    return false;
                }
                ended = self
                    .change
                    .wait_timeout(ended, NAP)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
        // A cap holds for waiting too.
        let cap = self.it.time_cap.map_or(Nanos::MAX, Nanos::from);
        let start = monotonic() + task.shape.start_delay.min(cap);
        while monotonic() < start {
            if over() {
                return false;
            }
            std::thread::sleep(NAP.min(start.since(monotonic()).into()));
        }
        !over()
    }

    /// The end of a task ends others where a job asks for that.
    fn end_others(&self, i: usize, task: &Task) {
        let failed = task.shape.exit_all_on_error && lock(&self.measures[i]).failed;
        // As in fio, one job's exitall holds for all.
        if !failed && !self.tasks.iter().any(|t| t.shape.exit_all) {
            return;
        }
        for (j, other) in self.tasks.iter().enumerate().filter(|o| o.0 != i) {
            let ends = match task.shape.exit_what {
                ExitWhat::Group => other.group == task.group,
                ExitWhat::Running => lock(&self.measures[j]).started,
                ExitWhat::All => true,
            };
            if ends {
                self.controls[j].interrupt();
            }
        }
    }

    fn task(&self, i: usize, task: &Task) {
        if self.wait(i, task)
            && !task.shape.create_only
            && let Err(why) = self.measure(i, task)
        {
            lock(&self.measures[i]).fail(EIO);
            self.fail(format!("job '{}': {why}", task.name));
        }
        self.end_others(i, task);
        self.end(i);
    }

    fn measure(&self, i: usize, task: &Task) -> Result<(), String> {
        let file = file_of(self.files, task).ok_or("it has no target")?;
        let mut job = planned(self.it, task, Some(file)).map_err(|e| format!("{:#}", e.error))?;
        let guided = self.guide(i, task, &mut job)?;
        let ramp = Ramp::of(task, &self.ramps, &mut job);
        let logs = LogFiles::create(task, &self.outputs)
            .map_err(|e| format!("its log could not be made: {e}"))?;
        self.warm(task)?;
        if !self.command(task, 0)? {
            // As in fio, the job does nothing then, and the others go on.
            return Ok(());
        }
        self.started(i, task, &job, guided.as_ref());
        let least = task.shape.rate_min;
        let mut watcher = Watcher {
            measure: &self.measures[i],
            task,
            logs,
            all: &self.control,
            own: &self.controls[i],
            least: least.map(|(bytes, cycle)| Least::new(bytes, cycle)),
            ramp,
        };
        let measured = self.run(task, file, job, &mut watcher)?;
        sync_at_end(task, file)?;
        if let Some(job) = measured {
            self.ended(i, task, job, &watcher, guided.as_ref());
        }
        self.command(task, 1)?;
        self.keep_state(task, guided.as_ref())?;
        match watcher.logs.map(LogFiles::close) {
            Some(Err(e)) => Err(format!("its log could not be written: {e}")),
            _ => Ok(()),
        }
    }

    /// What of its files is in memory when a task begins, and how long their data lives.
    fn warm(&self, task: &Task) -> Result<(), String> {
        for file in self.files_of(task) {
            file.hint(task.shape.layout.hint)
                .map_err(|e| format!("write_hint could not be given: {e}"))?;
            if task.shape.layout.pre_read {
                file.pre_read()
                    .map_err(|e| format!("it could not be read before the job: {e}"))?;
            } else if task.shape.invalidate {
                file.invalidate();
            }
        }
        Ok(())
    }

    /// Notes that a task begins.
    fn started(&self, i: usize, task: &Task, job: &PlannedJob, guided: Option<&Guided>) {
        let mut m = lock(&self.measures[i]);
        m.started = true;
        m.seed = job.job.spec.seed;
        m.steady.clone_from(&task.shape.steady);
        if let Some(g) = guided {
            g.time(&mut m);
        }
        m.start_ms = now_ms();
    }

    /// Runs the job of a task.
    fn run(
        &self,
        task: &Task,
        file: &OpenFile,
        job: PlannedJob,
        watcher: &mut Watcher<'_>,
    ) -> Result<Option<Job>, String> {
        // Counters of the device tell something only while one task uses it.
        let beside = |t: &&Task| t.wave == task.wave && t.shape.place != fathom_fio::Place::Null;
        let alone = self.tasks.iter().filter(beside).count() == 1;
        let counters = || file.target.counters();
        let setting = Setting {
            destination: file.target.destination(),
            // A task that is steady ends alone.
            control: watcher.own,
            counters: if alone { Some(&counters) } else { None },
            log: None,
        };
        let planned = [job];
        let mut measured = run_group(&planned, &setting, watcher).map_err(|e| e.to_string())?;
        if alone {
            validity::judge(&mut measured, &planned, &file.target);
        }
        Ok(measured.pop())
    }

    /// Keeps what a task measured.
    fn ended(
        &self,
        i: usize,
        task: &Task,
        mut job: Job,
        watcher: &Watcher<'_>,
        guided: Option<&Guided>,
    ) {
        if task.has_own_engine() {
            job.engine.clone_from(&task.shape.terms.engine);
            job.errors.retain(|e| !task.only_ends(e.errno));
        }
        if !self.control.interrupted() {
            job.flags.retain(|f| f.code != FlagCode::Interrupted);
        }
        let mut m = lock(&self.measures[i]);
        if watcher.least.as_ref().is_some_and(|l| l.missed) {
            m.fail(EIO);
        }
        m.ended(Nanos::ZERO, job, &task.shape.errors);
        if let Some(ramp) = &watcher.ramp {
            m.wall = m.wall.since(ramp.time);
            m.ramp_bytes = ramp.bytes;
        }
        if let Some(g) = guided {
            g.ended(&mut m);
        }
    }

    /// Errors of I/Os, where people and scripts look for them beside the output.
    fn say_errors(&self) {
        for (task, m) in self.tasks.iter().zip(&self.measures) {
            let m = lock(m);
            let errors = m.jobs.iter().flat_map(|j| &j.errors);
            for e in errors.filter(|e| task.shape.errors.says(e.op, e.errno)) {
                let what = if e.errno == MISMATCH {
                    "verification: the data is not what was written".to_owned()
                } else if e.errno == TOO_SLOW && task.limits_latency() {
                    "an I/O took longer than max_latency".to_owned()
                } else {
                    e.message.clone()
                };
                say!(
                    "fathom: job '{}': {what}, {} times, first at byte {}",
                    task.name,
                    e.count,
                    e.first_offset
                );
            }
        }
    }

    /// What `--debug=random` says, in fio's words: a job has one seed, of which all of its sequences come.
    fn seeds(&self) -> String {
        let pid = std::process::id();
        let ran = self.measures.iter().map(|m| lock(m).seed);
        let line = |seed| {
            format!("random   {pid} FIO_RAND_NR_OFFS=1\nrandom   {pid} rand_seeds[0]={seed}\n")
        };
        let shown = self.it.seeds.then(|| ran.map(line).collect());
        shown.unwrap_or_default()
    }

    /// Every file of a task.
    fn files_of(&self, task: &Task) -> Vec<&OpenFile> {
        task.places()
            .filter_map(|p| self.files.iter().find(|f| f.place == *p))
            .collect()
    }

    /// Lets a feed guide the job where the task needs one.
    fn guide(&self, i: usize, task: &Task, job: &mut PlannedJob) -> Result<Option<Guided>, String> {
        let files = self.files_of(task);
        let sizes: Vec<u64> = files.iter().map(|f| f.target.limits().size).collect();
        let descriptors: Vec<Arc<std::fs::File>> = files
            .iter()
            .filter_map(|f| f.descriptor(task.shape.spec.direct).cloned())
            .collect();
        let lock_of = |place: &fathom_fio::Place| {
            let at = self.files.iter().position(|f| f.place == *place)?;
            Some(self.locks[at].clone())
        };
        let around = Around {
            sizes: &sizes,
            files: descriptors.clone(),
            locks: task.places().filter_map(lock_of).collect(),
            flow: task.flow_id().and_then(|id| self.flows.get(&id).cloned()),
            outputs: &self.outputs,
            controls: [self.controls[i].clone(), self.control.clone()],
            says_ios: self.it.ios.then_some(crate::screen::print as fn(&str)),
            moves_data: task.moves_data(),
        };
        let Some(guided) = guide(task, &job.job.spec, around)? else {
            return Ok(None);
        };
        let mut with_files = guided.guide.clone();
        with_files.files = descriptors.into_iter().skip(1).collect();
        job.guide = Some(with_files);
        Ok(Some(guided))
    }

    /// Keeps how far verified writes came, for a later run that verifies them.
    fn keep_state(&self, task: &Task, guided: Option<&Guided>) -> Result<(), String> {
        if let Some(why) = guided.and_then(Guided::trouble) {
            return Err(format!("its log could not be written: {why}"));
        }
        if let Some(path) = task.state_to_save(&self.outputs)
            && let Some(g) = guided
        {
            let text = format!("fathom verify state 1\nwrites {}\n", g.writes());
            let keep = || {
                let mut out = self.outputs.create(&path, is_state)?;
                out.write_all(text.as_bytes())?;
                out.commit()
            };
            keep().map_err(|e| format!("its verify state could not be written: {e}"))?;
        }
        Ok(())
    }

    /// Progress on a terminal, and the output so far at `--status-interval`.
    fn watch(&self, done: &AtomicBool, asked: &AtomicBool, disks: &dyn Fn() -> Vec<Disk>) {
        let mut eta = self.eta();
        let mut line = (self.it.eta != Some(false) && eta.is_none())
            .then(|| progress::Line::new(0).without_plain());
        if let Some(l) = &mut line {
            l.name("fio");
        }
        let mut logs = self
            .it
            .bandwidth_log
            .then(|| AggregateLogs::new(&self.outputs));
        let mut trigger = Some(&self.it.trigger);
        let mut next = self.it.status_interval.map(|d| self.begin + Nanos::from(d));
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5).min(NAP));
            if let (Some(at), Some(step)) = (next, self.it.status_interval)
                && monotonic() >= at
            {
                next = Some(at + Nanos::from(step));
                // A full disk shows when the final output is written.
                let _ = self.answer.say(&self.print(disks()));
            }
            pull(&mut trigger, self.begin, &self.controls);
            // SIGUSR1 asks for a report in between.
            if asked.swap(false, Ordering::Relaxed) {
                let _ = self.answer.say(&self.print(disks()));
            }
            if let Some(e) = &mut eta {
                e.step(self.tasks, &self.measures, monotonic().since(self.begin));
            }
            if let Some(l) = &mut logs {
                l.step(monotonic().since(self.begin), || self.bytes());
            }
            if let Some(l) = &mut line {
                let (mut ios, mut bytes) = (0, 0);
                for m in &self.measures {
                    for t in lock(m).totals.iter().flatten() {
                        ios += t.ios;
                        bytes += t.bytes;
                    }
                }
                l.show(&Progress {
                    elapsed: monotonic().since(self.begin),
                    ios,
                    bytes,
                    p99: None,
                });
            }
        }
        if let Some(l) = line {
            l.clear();
        }
        if let Some(Err(e)) = logs.map(AggregateLogs::close) {
            self.fail(format!(
                "a log of --bandwidth-log could not be written: {e}"
            ));
        }
    }

    /// `exec_prerun` (0) and `exec_postrun` (1): the shell's output goes to JOB.prerun.txt and JOB.postrun.txt, as in fio.
    /// Whether it did its work.
    fn command(&self, task: &Task, which: usize) -> Result<bool, String> {
        let Some(line) = &task.shape.commands[which] else {
            return Ok(true);
        };
        let word = COMMANDS[which];
        let name = text_of(task, word);
        let text = |e: std::io::Error| format!("what exec_{word} says could not be kept: {e}");
        let out = self.outputs.create(&name, is_text).map_err(text)?;
        let (one, both) = (out.handle().map_err(text)?, out.handle().map_err(text)?);
        let status = std::process::Command::new("sh")
            .args(["-c", line])
            .stdout(one)
            .stderr(both)
            .status()
            .map_err(|e| format!("exec_{word} could not be started: {e}"))?;
        out.commit().map_err(text)?;
        if !status.success() {
            say!(
                "fathom: job '{}': exec_{word} '{line}' ended with {status}: see {}",
                task.name,
                name.display()
            );
        }
        Ok(status.success())
    }

    /// fio's line of progress, where it was asked for and the output is for people.
    fn eta(&self) -> Option<super::eta::Eta> {
        let people = self.it.formats == [Format::Normal] && self.it.output.is_none();
        (self.it.eta == Some(true) && people).then(super::eta::Eta::default)
    }

    /// Bytes read, written and trimmed so far.
    fn bytes(&self) -> [u64; 3] {
        let mut sum = [0; 3];
        for m in &self.measures {
            for (s, t) in sum.iter_mut().zip(&lock(m).totals) {
                *s += t.as_ref().map_or(0, |t| t.bytes);
            }
        }
        sum
    }

    fn print(&self, disks: Vec<Disk>) -> String {
        let mut measures: Vec<Measure> = self.measures.iter().map(|m| lock(m).clone()).collect();
        for m in &mut measures {
            if m.elapsed_s == 0 {
                m.elapsed_s = self.elapsed_s();
            }
        }
        for (t, m) in self.tasks.iter().zip(&mut measures) {
            if t.shape.computes {
                m.computed(t.runs_program());
            }
        }
        let idle = self.it.idle.map_or_else(Vec::new, |each| {
            let mut shares = Account::now().since(&self.processors);
            shares.truncate(if each { usize::MAX } else { 1 });
            shares
        });
        print(self.it, self.tasks, &measures, disks, idle)
    }
}
