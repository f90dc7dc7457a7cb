//! I/O logs: those of fio and of blktrace are read to be replayed, fio's version 3 is written while a job runs.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_files::Output;
use fathom_io::load::PilotIo;
use fathom_io::replay::{Events, Format, TraceError, TraceIo, formats};
use fathom_telemetry::{Nanos, Op};

use crate::aux_files::{Outputs, Trouble, is_iolog, named};

/// A log that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// Files by number, as named in the log.
    pub(crate) files: Vec<PathBuf>,
    /// Size that each must have.
    pub(crate) sizes: Vec<u64>,
    /// When, what.
    pub(crate) steps: VecDeque<(Nanos, PilotIo)>,
    /// Largest block.
    pub(crate) largest: u64,
    /// Smallest block.
    pub(crate) smallest: u64,
    pub(crate) does: [bool; 3],
}

/// Steps of one log, at most.
const STEPS_MAX: usize = 20_000_000;

impl Replay {
    /// Reads an I/O log of fio's, or the binary files of blktrace, without I/Os of the kinds in `skip`. Offsets are
    /// divided by `scale`, lengths rounded up to `align`.
    ///
    /// # Errors
    /// What is no log or holds no I/O, with the line.
    pub(crate) fn read(
        path: &Path,
        scale: u64,
        align: u64,
        skip: &[Op],
    ) -> Result<Self, TraceError> {
        let unfit = |why: String| TraceError::Unfit(format!("{}: {why}", path.display()));
        // Like fio, a block trace counts from where the application handed its I/Os over.
        let (format, mut source) = formats::open(path, None, Events::Queue)?;
        if !matches!(format, Format::Fio | Format::Blktrace) {
            let what = "expected fio's I/O log or blktrace's binary files";
            return Err(unfit(format!("{what}; fathom replay plays others")));
        }
        let mut log = Self {
            smallest: u64::MAX,
            ..Self::default()
        };
        let mut first = None;
        while let Some(io) = source.next()? {
            // Block traces count from when the machine came up.
            let origin = match format {
                Format::Blktrace => *first.get_or_insert(io.at),
                _ => Nanos::ZERO,
            };
            while log.files.len() <= io.device as usize {
                let name = source.device(log.files.len() as u32);
                log.files.push(match format {
                    Format::Blktrace => node(&name),
                    _ => PathBuf::from(name),
                });
                log.sizes.push(0);
            }
            if skip.contains(&io.op) {
                continue;
            }
            log.take(&io, origin, scale.max(1), align.max(1))
                .map_err(unfit)?;
        }
        if log.steps.is_empty() {
            return Err(unfit("it holds no I/O".into()));
        }
        log.largest = log.largest.max(4096);
        log.smallest = log.smallest.min(log.largest);
        Ok(log)
    }

    fn take(&mut self, io: &TraceIo, origin: Nanos, scale: u64, align: u64) -> Result<(), String> {
        let file = u16::try_from(io.device).map_err(|_| "too many files".to_owned())?;
        let (offset, len) = match io.op {
            Op::Sync => (0, 0),
            _ => (io.offset / scale, io.len.next_multiple_of(align)),
        };
        if io.op != Op::Trim && len > 1 << 30 {
            return Err(format!("a block of {len} bytes is above 1 GiB"));
        }
        if io.op != Op::Sync {
            let size = &mut self.sizes[usize::from(file)];
            *size = (*size).max(offset.saturating_add(len));
            self.does[io.op as usize] = true;
            if io.op != Op::Trim {
                self.largest = self.largest.max(len);
            }
            self.smallest = self.smallest.min(len.max(1));
        }
        // One request discards at most what fits its length.
        let (mut at, mut left) = (offset, len);
        loop {
            let part = left.min(1 << 30);
            let step = PilotIo {
                op: io.op,
                file,
                offset: at,
                len: part as u32,
                priority: 0,
            };
            self.steps.push_back((io.at.since(origin), step));
            left -= part;
            at += part;
            if left == 0 {
                break;
            }
        }
        if self.steps.len() > STEPS_MAX {
            return Err("more than 20 million I/Os".into());
        }
        Ok(())
    }
}

/// The node of a device that a block trace names by its numbers (`8,16`).
fn node(numbers: &str) -> PathBuf {
    let link = format!("/sys/dev/block/{}", numbers.replace(',', ":"));
    let name = std::fs::read_link(link).ok();
    let name = name.as_deref().and_then(Path::file_name);
    name.map_or_else(|| PathBuf::from(numbers), |n| Path::new("/dev").join(n))
}

/// A log that is being written, version 3.
pub(crate) struct Writer {
    /// `None` once it is closed.
    out: Option<Output>,
    trouble: Trouble,
    outputs: Outputs,
    names: Vec<String>,
    origin: Nanos,
    started: bool,
}

impl Writer {
    pub(crate) fn create(
        path: &Path,
        names: &[PathBuf],
        outputs: &Outputs,
        trouble: &Trouble,
    ) -> std::io::Result<Self> {
        let mut out = outputs.create(path, is_iolog)?;
        writeln!(out, "fio version 3 iolog")?;
        let names: Vec<String> = names.iter().map(|n| n.display().to_string()).collect();
        for n in &names {
            writeln!(out, "0 {n} add")?;
        }
        for n in &names {
            writeln!(out, "0 {n} open")?;
        }
        Ok(Self {
            out: Some(out),
            trouble: trouble.clone(),
            outputs: outputs.clone(),
            names,
            origin: Nanos::ZERO,
            started: false,
        })
    }
    pub(super) fn start(&mut self, origin: Nanos) {
        self.origin = origin;
        self.started = true;
    }
    pub(super) fn io(&mut self, io: &PilotIo, at: Nanos) {
        let us = at.since(self.origin).0 / 1000;
        let name = self.names.get(usize::from(io.file)).map_or("-", |n| n);
        let word = match io.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Sync => "sync",
        };
        let Some(out) = &mut self.out else { return };
        if let Err(e) = writeln!(out, "{us} {name} {word} {} {}", io.offset, io.len) {
            // The load itself goes on.
            self.trouble.say(named(out.path(), e));
            self.out = None;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A job that never ran leaves the log of an earlier one.
        let Some(mut out) = self.out.take().filter(|_| self.started) else {
            return;
        };
        for n in &self.names {
            if let Err(e) = writeln!(out, "0 {n} close") {
                return self.trouble.say(named(out.path(), e));
            }
        }
        self.trouble.commit_shared(out, &self.outputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Replay, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Replay::read(file.path(), 1, 0, &[]).map_err(|e| e.to_string())
    }

    #[test]
    fn logs_of_both_versions_are_read() {
        let v2 = "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf wait 100\nf read 4096 8192\nf close\n";
        let log = read(v2).unwrap();
        assert_eq!(
            (log.steps.len(), log.largest, log.sizes[0]),
            (2, 8192, 12_288)
        );
        assert_eq!(log.steps[1].0, Nanos(100_000));
        let v3 = "fio version 3 iolog\n30 /dev/null add\n31 /dev/null open\n36 /dev/null trim 0 2147483648\n52 /dev/null write 0 4096\n";
        let log = read(v3).unwrap();
        assert_eq!(log.steps.len(), 3);
        assert_eq!(log.steps[2].0, Nanos(52_000));
        assert_eq!(log.does, [false, true, true]);
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        assert!(read("hello").is_err());
        let broken = read("fio version 2 iolog\nf read x 1\n").unwrap_err();
        assert!(broken.contains("line 2"), "{broken}");
        assert!(read("fio version 3 iolog\n").is_err());
    }
}
