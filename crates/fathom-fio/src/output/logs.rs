//! fio's logs, written while the job runs: `PREFIX_{bw,iops,lat,clat,slat}.N.log`, one averaged
//! entry per period: time in ms, value, direction, block size (0), priority (0).

use std::io::{self, Write};
use std::path::PathBuf;

use fathom_files::Kind;
use fathom_telemetry::{Nanos, Op, Record, Window};

use super::histlog::HistLog;
use super::packed::{LogFile, is_packed};
use crate::aux_files::{Outputs, Trouble, is_log, named};
use crate::plan::Task;
use crate::translate::Logs;

/// What an entry averages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Bandwidth,
    Iops,
    Submit,
    Service,
    Response,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    ios: u64,
    bytes: u64,
    latency: [(u128, u64); 3],
    most: [u64; 3],
}

/// Open files with what they hold.
type Opened = Vec<(What, LogFile)>;

/// The open logs of one task.
pub struct LogFiles {
    files: Opened,
    period: Nanos,
    /// Time that the entry under way covers, and where it ends.
    covered: Nanos,
    end: Nanos,
    sums: [Sum; 3],
    /// Columns after the direction, of total and of other latencies, and of the rest.
    tails: [String; 3],
    epoch_ms: u64,
    histograms: Option<HistLog>,
    both: bool,
    largest: bool,
    error: Option<io::Error>,
}

impl LogFiles {
    /// Makes the files that the task asks for; `None` where it asks for none. Existing logs are replaced, as fio does.
    pub fn create(task: &Task, outputs: &Outputs) -> io::Result<Option<Self>> {
        let logs = &task.shape.logs;
        let averages = logs.any() && logs.average_ms > 0;
        let epoch_ms = epoch(logs);
        let histograms = HistLog::create(task, outputs, epoch_ms)?;
        if !averages && histograms.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            files: if averages {
                open(task, outputs)?
            } else {
                Vec::new()
            },
            histograms,
            period: Nanos::from_millis(logs.average_ms.max(1)),
            covered: Nanos::ZERO,
            end: Nanos::ZERO,
            sums: [Sum::default(); 3],
            tails: ["lat", "clat", "bw"].map(|w| tail(task, w)),
            epoch_ms,
            both: logs.both,
            largest: logs.largest,
            error: None,
        }))
    }

    /// Takes a closed window; `start_ns` counts from the beginning of the measured part.
    pub fn window(&mut self, start_ns: i64, width: Nanos, window: &Window) {
        for (sum, d) in self.sums.iter_mut().zip(&window.directions) {
            let Some(d) = d else { continue };
            sum.ios += d.ios;
            sum.bytes += d.bytes;
            for (s, h) in sum
                .latency
                .iter_mut()
                .zip([&d.submit, &d.service, &d.response])
            {
                s.0 += h.moments.sum;
                s.1 += h.moments.count;
            }
            for (most, h) in sum
                .most
                .iter_mut()
                .zip([&d.submit, &d.service, &d.response])
            {
                *most = (*most).max(h.moments.max);
            }
        }
        self.covered += width;
        self.end = Nanos(u64::try_from(start_ns).unwrap_or(0)) + width;
        if let Some(h) = &mut self.histograms
            && let Err(e) = h.window(self.end, width, window)
        {
            self.error.get_or_insert(e);
        }
        if self.covered >= self.period {
            self.entry(true);
        }
    }

    /// Writes an entry; speeds only over a `whole` period.
    fn entry(&mut self, whole: bool) {
        let seconds = self.covered.as_secs_f64();
        let ms = self.end.0 / 1_000_000 + self.epoch_ms;
        for (direction, s) in self.sums.iter().enumerate() {
            if s.ios == 0 {
                continue;
            }
            for (what, file) in &mut self.files {
                let mean = |i: usize| s.latency[i].0.checked_div(u128::from(s.latency[i].1));
                let value = match what {
                    What::Bandwidth | What::Iops if !whole => None,
                    What::Bandwidth => Some((s.bytes as f64 / 1024.0 / seconds) as u128),
                    What::Iops => Some((s.ios as f64 / seconds) as u128),
                    What::Submit => mean(0),
                    What::Service => mean(1),
                    What::Response => mean(2),
                };
                let Some(v) = value else { continue };
                let (most, tail) = match what {
                    What::Submit => (u128::from(s.most[0]), &self.tails[1]),
                    What::Service => (u128::from(s.most[1]), &self.tails[1]),
                    What::Response => (u128::from(s.most[2]), &self.tails[0]),
                    _ => (v, &self.tails[2]),
                };
                let written = if self.both {
                    writeln!(file, "{ms}, {v}, {most}, {direction}, 0{tail}")
                } else {
                    let v = if self.largest { most } else { v };
                    writeln!(file, "{ms}, {v}, {direction}, 0{tail}")
                };
                if let Err(e) = written {
                    self.error.get_or_insert(e);
                }
            }
        }
        self.sums = [Sum::default(); 3];
        self.covered = Nanos::ZERO;
    }

    /// Writes the last entry; the first failure of all, with the files that were written.
    pub fn close(mut self) -> Result<Vec<PathBuf>, io::Error> {
        // Like fio's, latencies have an entry for what is left, however short.
        if self.covered > Nanos::ZERO {
            self.entry(self.covered.0 * 2 >= self.period.0);
        }
        if let Some(e) = self.error.take() {
            return Err(e);
        }
        let mut paths = Vec::new();
        for (_, out) in self.files {
            let out = out.finish()?;
            paths.push(out.path().to_owned());
            out.commit()?;
        }
        if let Some(h) = self.histograms.take() {
            paths.push(h.close(self.end)?);
        }
        Ok(paths)
    }
}

/// What is added to times in ms: the time since 1970 where the log wants that.
fn epoch(logs: &Logs) -> u64 {
    if !logs.epoch {
        return 0;
    }
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

/// Columns after the block size, for entries that stand for many I/Os.
fn tail(task: &Task, word: &str) -> String {
    let logs = &task.shape.logs;
    let priority = task.shape.thread.priority;
    let mut out = String::new();
    if logs.offset {
        out += ", 0";
    }
    out += &if logs.priority {
        format!(", 0x{priority:04x}")
    } else {
        format!(", {}", u8::from(priority >> 13 == 1))
    };
    if logs.issue_time && word != "none" {
        out += ", 0";
    }
    out
}

fn open(task: &Task, outputs: &Outputs) -> io::Result<Opened> {
    paths(task, outputs)
        .into_iter()
        .map(|(what, path)| {
            let logs = &task.shape.logs;
            let out = outputs.log(&path, logs.per_job, kind(logs))?;
            Ok((what, LogFile::new(out, logs.packed)))
        })
        .collect()
}

/// What a log may replace.
pub(super) fn kind(logs: &Logs) -> Kind {
    if logs.packed { is_packed } else { is_log }
}

/// What is logged, and where.
pub(super) fn paths(task: &Task, outputs: &Outputs) -> Vec<(What, PathBuf)> {
    let logs = &task.shape.logs;
    let [no_slat, no_clat, no_lat] = task.shape.terms.disabled;
    let mut wanted = Vec::new();
    if let Some(p) = &logs.latency {
        for (what, word, off) in [
            (What::Response, "lat", no_lat),
            (What::Submit, "slat", no_slat),
            (What::Service, "clat", no_clat),
        ] {
            if !off {
                wanted.push((what, p, word));
            }
        }
    }
    wanted.extend(logs.bandwidth.as_ref().map(|p| (What::Bandwidth, p, "bw")));
    wanted.extend(logs.iops.as_ref().map(|p| (What::Iops, p, "iops")));
    let packed = if logs.packed { ".fz" } else { "" };
    let name = |prefix: &str, word: &str| match logs.per_job {
        true => format!("{prefix}_{word}.{}.log{packed}", task.number),
        false => format!("{prefix}_{word}.log{packed}"),
    };
    wanted
        .into_iter()
        .map(|(what, prefix, word)| (what, outputs.path(&name(prefix, word))))
        .collect()
}

/// Logs with an entry for every I/O, written by the thread that does it, in bounded memory.
pub struct EachLog {
    files: Opened,
    trouble: Trouble,
    started: bool,
    logs: Logs,
    origin: Nanos,
    epoch_ms: u64,
}

impl EachLog {
    /// Makes the files; `None` where entries are averaged or none are asked for.
    pub(crate) fn create(
        task: &Task,
        outputs: &Outputs,
        trouble: &Trouble,
    ) -> io::Result<Option<Self>> {
        let logs = &task.shape.logs;
        if !logs.any() || logs.average_ms > 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            files: open(task, outputs)?,
            trouble: trouble.clone(),
            started: false,
            logs: logs.clone(),
            origin: Nanos::ZERO,
            epoch_ms: 0,
        }))
    }

    pub(crate) fn start(&mut self, origin: Nanos) {
        self.started = true;
        self.origin = origin;
        self.epoch_ms = epoch(&self.logs);
    }

    /// Writes an I/O that was done with `priority`.
    pub(crate) fn record(&mut self, r: &Record, priority: u16) {
        if r.op == Op::Sync || r.result < 0 || r.completed < self.origin {
            return;
        }
        let ms = r.completed.since(self.origin).0 / 1_000_000 + self.epoch_ms;
        let direction = r.op as usize;
        let bytes = r.result;
        for (what, file) in &mut self.files {
            let value = match what {
                What::Bandwidth => bytes as u64 * 1_000_000 / r.service().0.max(1),
                What::Iops => 1,
                What::Submit => r.submit().0,
                What::Service => r.service().0,
                What::Response => r.response().0,
            };
            // A full disk must not end the load; the log is then short.
            let _ = write!(file, "{ms}, {value}, {direction}, {bytes}");
            if self.logs.offset {
                let _ = write!(file, ", {}", r.offset);
            }
            let _ = if self.logs.priority {
                write!(file, ", 0x{priority:04x}")
            } else {
                // Without the column's own option: whether it was real time.
                write!(file, ", {}", u8::from(priority >> 13 == 1))
            };
            if self.logs.issue_time {
                let at = match what {
                    What::Submit | What::Service => r.submitted.since(self.origin).0,
                    _ => 0,
                };
                let _ = write!(file, ", {at}");
            }
            let _ = file.write_all(b"\n");
        }
    }
}

impl Drop for EachLog {
    /// The thread that wrote it has ended. A job that never ran leaves the logs of an earlier one.
    fn drop(&mut self) {
        for (_, log) in self.files.drain(..).filter(|_| self.started) {
            match log.finish() {
                Ok(out) => self.trouble.commit(out),
                Err(e) => self.trouble.say(named("a compressed log".as_ref(), e)),
            }
        }
    }
}
