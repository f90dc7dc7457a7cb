//! fio's I/O logs: read to be replayed, written while a job runs. Versions 2 and 3.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

use fathom_files::Output;
use fathom_io::load::PilotIo;
use fathom_telemetry::{Nanos, Op};

use crate::output::side::{Outputs, Trouble, is_iolog, named};

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
    /// Reads a log; an error says the line. Offsets are divided by `scale`, lengths rounded up to `align`.
    pub(crate) fn read(path: &Path, scale: u64, align: u64) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("the log '{}' could not be read: {e}", path.display()))?;
        Self::parse(&text, scale, align)
    }

    pub(crate) fn parse(text: &str, scale: u64, align: u64) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        let version = match lines.next().map(|l| l.1.trim()) {
            Some("fio version 2 iolog") => 2,
            Some("fio version 3 iolog") => 3,
            _ => return Err("it does not begin with 'fio version 2 iolog' or 3".into()),
        };
        let mut log = Self {
            smallest: u64::MAX,
            ..Self::default()
        };
        let mut clock = Nanos::ZERO;
        for (number, line) in lines {
            let bad = |what: &str| format!("line {}: {what}: '{line}'", number + 1);
            let mut words = line.split_whitespace();
            let mut time = clock;
            if version == 3 {
                let Some(t) = words.next() else { continue };
                let us: u64 = t.parse().map_err(|_| bad("expected a time in µs"))?;
                time = Nanos(us.saturating_mul(1000));
            }
            let Some(name) = words.next() else { continue };
            let Some(action) = words.next() else {
                return Err(bad("expected a file and an action"));
            };
            let mut number_of = || -> Result<u64, String> {
                words
                    .next()
                    .and_then(|w| w.parse().ok())
                    .ok_or_else(|| bad("expected offset and length"))
            };
            let op = match action {
                "add" => {
                    if !log.files.iter().any(|f| f == Path::new(name)) {
                        log.files.push(PathBuf::from(name));
                        log.sizes.push(0);
                    }
                    continue;
                }
                "open" | "close" => continue,
                "wait" => {
                    // Version 2 waits so many µs after what came before.
                    let us = number_of()?;
                    clock += Nanos(us.saturating_mul(1000));
                    continue;
                }
                "read" => Op::Read,
                "write" => Op::Write,
                "trim" => Op::Trim,
                "sync" | "datasync" => Op::Sync,
                _ => return Err(bad("unknown action")),
            };
            let (offset, len) = if op == Op::Sync {
                (0, 0)
            } else {
                let (offset, len) = (number_of()? / scale.max(1), number_of()?);
                (offset, len.next_multiple_of(align.max(1)))
            };
            let file = match log.files.iter().position(|f| f == Path::new(name)) {
                Some(i) => i,
                None => {
                    log.files.push(PathBuf::from(name));
                    log.sizes.push(0);
                    log.files.len() - 1
                }
            };
            if op != Op::Trim && len > 1 << 30 {
                return Err(bad("a block above 1 GiB is not possible"));
            }
            if op != Op::Sync {
                log.does[op as usize] = true;
                log.sizes[file] = log.sizes[file].max(offset.saturating_add(len));
                if op != Op::Trim {
                    log.largest = log.largest.max(len);
                }
                log.smallest = log.smallest.min(len.max(1));
            }
            // One request discards at most what fits its length.
            let mut at = offset;
            let mut left = len;
            loop {
                let part = left.min(1 << 30);
                log.steps.push_back((
                    time,
                    PilotIo {
                        op,
                        file: u16::try_from(file).map_err(|_| bad("too many files"))?,
                        offset: at,
                        len: part as u32,
                        priority: 0,
                    },
                ));
                left -= part;
                at += part;
                if left == 0 {
                    break;
                }
            }
            if log.steps.len() > STEPS_MAX {
                return Err(bad("more than 20 million I/Os"));
            }
        }
        if log.steps.is_empty() {
            return Err("it holds no I/O".into());
        }
        log.largest = log.largest.max(4096);
        log.smallest = log.smallest.min(log.largest);
        Ok(log)
    }
}

/// A log that is being written, version 3.
pub(crate) struct Writer {
    /// `None` once it is closed.
    out: Option<Output>,
    trouble: Trouble,
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
        self.trouble.commit(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_both_versions_are_read() {
        let v2 = "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf wait 100\nf read 4096 8192\nf close\n";
        let log = Replay::parse(v2, 1, 0).unwrap();
        assert_eq!(
            (log.steps.len(), log.largest, log.sizes[0]),
            (2, 8192, 12_288)
        );
        assert_eq!(log.steps[1].0, Nanos(100_000));
        let v3 = "fio version 3 iolog\n30 /dev/null add\n31 /dev/null open\n36 /dev/null trim 0 2147483648\n52 /dev/null write 0 4096\n";
        let log = Replay::parse(v3, 1, 0).unwrap();
        assert_eq!(log.steps.len(), 3);
        assert_eq!(log.steps[2].0, Nanos(52_000));
        assert_eq!(log.does, [false, true, true]);
    }

    #[test]
    fn what_is_no_log_is_refused_with_its_line() {
        assert!(Replay::parse("hello", 1, 0).is_err());
        assert!(
            Replay::parse("fio version 2 iolog\nf read x 1\n", 1, 0)
                .unwrap_err()
                .starts_with("line 2")
        );
        assert!(Replay::parse("fio version 3 iolog\n", 1, 0).is_err());
    }
}
