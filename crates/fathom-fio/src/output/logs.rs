//! fio's logs, written while the job runs: `PREFIX_{bw,iops,lat,clat,slat}.N.log`, one averaged
//! entry per period: time in ms, value, direction, block size (0), priority (0).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fathom_telemetry::{Nanos, Window};

use crate::plan::Task;

/// What an entry averages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
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
}

/// The open logs of one task.
pub struct LogFiles {
    files: Vec<(What, PathBuf, File)>,
    period: Nanos,
    /// Time that the entry under way covers, and where it ends.
    covered: Nanos,
    end: Nanos,
    sums: [Sum; 3],
    error: Option<io::Error>,
}

impl LogFiles {
    /// Makes the files that the task asks for; `None` where it asks for none. Existing logs are replaced, as fio does.
    pub fn create(task: &Task, directory: Option<&Path>) -> io::Result<Option<Self>> {
        let logs = &task.shape.logs;
        if !logs.any() {
            return Ok(None);
        }
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
        let mut files = Vec::new();
        for (what, prefix, word) in wanted {
            let name = if logs.per_job {
                format!("{prefix}_{word}.{}.log", task.number)
            } else {
                format!("{prefix}_{word}.log")
            };
            let path = directory.map_or_else(|| PathBuf::from(&name), |d| d.join(&name));
            let file = if logs.per_job {
                File::create(&path)
            } else {
                File::options().append(true).create(true).open(&path)
            }?;
            files.push((what, path, file));
        }
        Ok(Some(Self {
            files,
            period: Nanos::from_millis(logs.average_ms.max(1)),
            covered: Nanos::ZERO,
            end: Nanos::ZERO,
            sums: [Sum::default(); 3],
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
        }
        self.covered += width;
        self.end = Nanos(u64::try_from(start_ns).unwrap_or(0)) + width;
        if self.covered >= self.period {
            self.entry();
        }
    }

    fn entry(&mut self) {
        let seconds = self.covered.as_secs_f64();
        let ms = self.end.0 / 1_000_000;
        for (direction, s) in self.sums.iter().enumerate() {
            if s.ios == 0 {
                continue;
            }
            for (what, _, file) in &mut self.files {
                let mean = |i: usize| s.latency[i].0.checked_div(u128::from(s.latency[i].1));
                let value = match what {
                    What::Bandwidth => Some((s.bytes as f64 / 1024.0 / seconds) as u128),
                    What::Iops => Some((s.ios as f64 / seconds) as u128),
                    What::Submit => mean(0),
                    What::Service => mean(1),
                    What::Response => mean(2),
                };
                if let Some(v) = value
                    && let Err(e) = writeln!(file, "{ms}, {v}, {direction}, 0, 0")
                {
                    self.error.get_or_insert(e);
                }
            }
        }
        self.sums = [Sum::default(); 3];
        self.covered = Nanos::ZERO;
    }

    /// Writes the last entry; the first failure of all, with the files that were written.
    pub fn close(mut self) -> Result<Vec<PathBuf>, io::Error> {
        if self.covered.0 * 2 >= self.period.0 {
            self.entry();
        }
        match self.error.take() {
            Some(e) => Err(e),
            None => Ok(self.files.into_iter().map(|f| f.1).collect()),
        }
    }
}
