//! Runs the tasks of a fio script: waves, delays and waits around the one driver.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use fathom_fio::output::{Disk, LogFiles, Results};
use fathom_fio::{Format, Invocation, Measure, Rusage, Task};
use fathom_host::{CounterSource, Counters};
use fathom_io::driver::{ClosedWindow, PlannedJob, Progress, Setting, ThreadUsage, run_group};
use fathom_io::{Control, Observer, validity};
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::DeviceDelta;

use super::files::{self, OpenFile};
use crate::exit::{DONE, FAILED, Failure, failed, refused};
use crate::{progress, screen, signals};

/// How often waiting tasks look whether someone asked to end.
const NAP: Duration = Duration::from_millis(20);

/// Everything that the threads of a run share.
struct Stage<'a> {
    it: &'a Invocation,
    tasks: &'a [Task],
    files: &'a [OpenFile],
    measures: Vec<Mutex<Measure>>,
    ended: Mutex<Vec<bool>>,
    change: Condvar,
    control: Control,
    begin: Instant,
    failure: Mutex<Option<String>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has left a number unfinished at worst.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs them and returns the output and the exit code.
pub(super) fn run(it: &Invocation, tasks: &[Task]) -> Result<(String, u8), Failure> {
    let control = signals::control().map_err(refused)?;
    let begin = Instant::now();
    let files = files::open(tasks, it.destroy.as_deref(), it.size_cap, &control)?;
    // What cannot work is refused before anything runs.
    for task in tasks.iter().filter(|t| !t.shape.create_only) {
        if let Err(e) = planned(it, task, file_of(&files, task)) {
            files::close(files, &[], true);
            return Err(e);
        }
    }
    let sources = devices(&files);
    let before: Vec<Option<Counters>> = sources.iter().map(|s| s.read().ok()).collect();
    let device_begin = Instant::now();
    let stage = Stage {
        it,
        tasks,
        files: &files,
        measures: tasks.iter().map(|_| Mutex::default()).collect(),
        ended: Mutex::new(vec![false; tasks.len()]),
        change: Condvar::new(),
        control,
        begin,
        failure: Mutex::new(None),
    };
    let disks = || -> Vec<Disk> {
        sources
            .iter()
            .zip(&before)
            .filter_map(|(s, b)| {
                let c = s.read().ok()?.since(b.as_ref()?);
                Some(Disk {
                    delta: delta(c),
                    time: device_begin.elapsed().into(),
                })
            })
            .collect()
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| stage.watch(&done, &disks));
        stage.waves();
        done.store(true, Ordering::Relaxed);
    });
    let text = stage.print(disks());
    let failure = lock(&stage.failure).take();
    let errors = stage.measures.iter().any(|m| lock(m).error != 0);
    let code = if errors || failure.is_some() || stage.control.interrupted() {
        FAILED
    } else {
        DONE
    };
    drop(stage);
    let unlink: Vec<_> = tasks
        .iter()
        .filter(|t| t.shape.unlink)
        .map(|t| t.shape.place.clone())
        .collect();
    files::close(files, &unlink, false);
    if let Some(why) = failure {
        eprintln!("fathom: {why}");
    }
    Ok((text, code))
}

fn file_of<'a>(files: &'a [OpenFile], task: &Task) -> Option<&'a OpenFile> {
    files.iter().find(|f| f.place == task.shape.place)
}

/// The task as a job for the driver.
fn planned(it: &Invocation, task: &Task, file: Option<&OpenFile>) -> Result<PlannedJob, Failure> {
    let file = file.ok_or_else(|| failed(anyhow!("job '{}' has no target", task.name)))?;
    let limits = file.target.limits();
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
    let job = spec
        .validate(&limits)
        .map_err(|e| refused(anyhow!(e).context(format!("job '{}'", task.name))))?;
    Ok(PlannedJob::new(job))
}

impl Stage<'_> {
    fn waves(&self) {
        let last = self.tasks.last().map_or(0, |t| t.wave);
        for wave in 0..=last {
            std::thread::scope(|s| {
                for (i, task) in self.tasks.iter().enumerate().filter(|t| t.1.wave == wave) {
                    let spawned = std::thread::Builder::new()
                        .stack_size(512 << 10)
                        .spawn_scoped(s, move || self.task(i, task));
                    if let Err(e) = spawned {
                        self.fail(format!("a thread could not be created: {e}"));
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
        lock(&self.ended)[i] = true;
        self.change.notify_all();
    }

    /// Seconds since the beginning, rounded up as in fio.
    fn elapsed_s(&self) -> u64 {
        self.begin.elapsed().as_millis().div_ceil(1000) as u64
    }

    /// Whether the task may start: its predecessors have ended, its delay is over.
    fn wait(&self, task: &Task) -> bool {
        if let Some(name) = &task.wait_for {
            let mut ended = lock(&self.ended);
            while self
                .tasks
                .iter()
                .zip(ended.iter())
                .any(|(t, e)| t.name == *name && !e)
            {
                if self.control.interrupted() {
                    return false;
                }
                ended = self
                    .change
                    .wait_timeout(ended, NAP)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
        let start = Instant::now() + Duration::from(task.shape.start_delay);
        while Instant::now() < start {
            if self.control.interrupted() {
                return false;
            }
            std::thread::sleep(NAP.min(start.saturating_duration_since(Instant::now())));
        }
        !self.control.interrupted()
    }

    fn task(&self, i: usize, task: &Task) {
        if self.wait(task)
            && !task.shape.create_only
            && let Err(why) = self.measure(i, task)
        {
            let mut m = lock(&self.measures[i]);
            if m.error == 0 {
                m.error = 5;
            }
            drop(m);
            self.fail(format!("job '{}': {why}", task.name));
        }
        if task.shape.exit_all_on_error && lock(&self.measures[i]).error != 0 {
            self.control.interrupt();
        }
        self.end(i);
    }

    fn measure(&self, i: usize, task: &Task) -> Result<(), String> {
        let file = file_of(self.files, task).ok_or("it has no target")?;
        let job = planned(self.it, task, Some(file)).map_err(|e| format!("{:#}", e.error))?;
        let logs = LogFiles::create(task, self.it.aux_path.as_deref())
            .map_err(|e| format!("its log could not be made: {e}"))?;
        if task.shape.invalidate {
            file.invalidate();
        }
        {
            let mut m = lock(&self.measures[i]);
            m.started = true;
            m.start_ms = now_ms();
        }
        // Counters of the device tell something only while one task uses it.
        let alone = self
            .tasks
            .iter()
            .filter(|t| t.wave == task.wave && t.shape.place != fathom_fio::Place::Null)
            .count()
            == 1;
        let counters = || file.target.counters();
        let setting = Setting {
            destination: file.target.destination(),
            control: &self.control,
            counters: if alone { Some(&counters) } else { None },
            log: None,
        };
        let mut watcher = Watcher {
            measure: &self.measures[i],
            task,
            logs,
        };
        let planned = [job];
        let mut measured =
            run_group(&planned, &setting, &mut watcher).map_err(|e| e.to_string())?;
        if alone {
            validity::judge(&mut measured, &planned, &file.target);
        }
        if task.shape.sync_at_end
            && let Some(f) = file.buffered()
        {
            f.sync_all().map_err(|e| format!("fsync at the end: {e}"))?;
        }
        if let Some(job) = measured.pop() {
            lock(&self.measures[i]).ended(Nanos::ZERO, job);
        }
        match watcher.logs.map(LogFiles::close) {
            Some(Err(e)) => Err(format!("its log could not be written: {e}")),
            _ => Ok(()),
        }
    }

    /// Progress on a terminal, and the output so far at `--status-interval`.
    fn watch(&self, done: &AtomicBool, disks: &dyn Fn() -> Vec<Disk>) {
        let mut line = (self.it.eta != Some(false)).then(|| progress::Line::new(0));
        if let Some(l) = &mut line {
            l.name("fio");
        }
        let mut next = self.it.status_interval.map(|d| self.begin + d);
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5).min(NAP));
            if let (Some(at), Some(step)) = (next, self.it.status_interval)
                && Instant::now() >= at
            {
                next = Some(at + step);
                screen::print(&self.print(disks()));
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
                    elapsed: self.begin.elapsed().into(),
                    ios,
                    bytes,
                    p99: None,
                });
            }
        }
        if let Some(l) = line {
            l.clear();
        }
    }

    fn print(&self, disks: Vec<Disk>) -> String {
        let mut measures: Vec<Measure> = self.measures.iter().map(|m| lock(m).clone()).collect();
        for m in &mut measures {
            if m.elapsed_s == 0 {
                m.elapsed_s = self.elapsed_s();
            }
        }
        let results = Results {
            tasks: self.tasks.iter().zip(&measures).collect(),
            global: self.it.script.global_options(),
            disks,
            now_ms: now_ms(),
            now_text: local_time(),
        };
        let order = [
            Format::Normal,
            Format::Terse,
            Format::Json,
            Format::JsonPlus,
        ];
        order
            .iter()
            .filter(|f| self.it.formats.contains(f))
            .map(|f| results.print(*f))
            .collect()
    }
}

/// Collects windows into the measure and the logs.
struct Watcher<'a> {
    measure: &'a Mutex<Measure>,
    task: &'a Task,
    logs: Option<LogFiles>,
}

impl Observer for Watcher<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        // Ramp-up is not measured.
        if w.start_ns < 0 {
            return;
        }
        lock(self.measure).window(w.width, w.window, self.task.shape.terms.sample);
        if let Some(logs) = &mut self.logs {
            logs.window(w.start_ns, w.width, w.window);
        }
    }
    fn thread_ended(&mut self, _job: usize, u: &ThreadUsage) {
        let usage = &mut lock(self.measure).usage;
        *usage = Rusage {
            user_us: usage.user_us + u.user.0 / 1000,
            system_us: usage.system_us + u.system.0 / 1000,
            switches: usage.switches + u.switches,
            major_faults: usage.major_faults + u.major_faults,
            minor_faults: usage.minor_faults + u.minor_faults,
        };
    }
}

/// The whole disks behind the files, each once.
fn devices(files: &[OpenFile]) -> Vec<CounterSource> {
    let mut out: Vec<CounterSource> = Vec::new();
    for path in files::paths(files) {
        let Ok(found) = CounterSource::locate(&path) else {
            continue;
        };
        let disk = Path::new("/dev").join(found.disk());
        let source = CounterSource::locate(&disk).unwrap_or(found);
        if !out.iter().any(|o| o.name() == source.name()) {
            out.push(source);
        }
    }
    out
}

fn delta(c: Counters) -> DeviceDelta {
    DeviceDelta {
        name: c.name,
        read_ios: c.read_ios,
        read_merges: c.read_merges,
        read_bytes: c.read_bytes,
        read_ticks_ms: c.read_ticks_ms,
        write_ios: c.write_ios,
        write_merges: c.write_merges,
        write_bytes: c.write_bytes,
        write_ticks_ms: c.write_ticks_ms,
        discard_ios: c.discard_ios,
        discard_bytes: c.discard_bytes,
        flush_ios: c.flush_ios,
        busy_ms: c.busy_ms,
    }
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

/// `Fri Nov 20 21:50:43 2026`, in UTC.
fn local_time() -> String {
    // RFC 3339 holds all parts but the weekday.
    let now = SystemTime::now();
    let text = fathom_telemetry::utc::rfc3339(now);
    let days = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() / 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let part = |a: usize, b: usize| text.get(a..b).unwrap_or("");
    let month = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ][part(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12) - 1];
    let day = part(8, 10).trim_start_matches('0');
    format!("{weekday} {month} {day:>2} {} {}", part(11, 19), part(0, 4))
}
