//! Operations beside reads, writes and discards: which pattern and engine each belongs to.

use std::ops::Range;

use fathom_telemetry::Bytes;

use super::limits::Limits;
use super::{Command, Engine, JobError, JobSpec};

pub(super) fn start_and_end(start: u64, len: u64) -> Range<u64> {
    start..start + len
}

impl JobSpec {
    /// Where a copy of the block at `range.start` is made from.
    pub(crate) fn copy_source(&self, range: &Range<u64>) -> u64 {
        self.copy_from.map_or(range.end, |b| b.0)
    }

    /// Zones that a thread with `depth` outstanding I/Os writes at the same time.
    pub(crate) fn zones_at_a_time(&self, depth: u32) -> u32 {
        match self.command {
            Command::Append => self.open_zones.unwrap_or(1),
            _ => self.open_zones.unwrap_or(depth).min(depth),
        }
    }

    /// Refuses an operation that is none of the job's pattern or engine.
    pub(super) fn check_command(&self, range: Range<u64>, limits: &Limits) -> Result<(), JobError> {
        let bad = |option: &str, message: String| Err(JobError::value(option, message));
        let (rw, command) = (self.rw, self.command);
        let (fits, wanted) = match command {
            Command::Plain => (true, ""),
            Command::Append => (rw.writes() && !rw.reads() && !rw.is_random(), "--rw write"),
            Command::WriteZeroes | Command::Copy => {
                (rw.writes() && !rw.reads(), "--rw write or randwrite")
            }
            Command::Verify | Command::Compare => {
                (rw.reads() && !rw.writes(), "--rw read or randread")
            }
            Command::ZoneReset | Command::ZoneFinish => {
                (rw.trims() && !rw.is_random(), "--rw trim")
            }
        };
        if !fits {
            return bad(
                "command",
                format!("{command} goes with {wanted}, not with {rw}"),
            );
        }
        let engine = match command {
            Command::Plain => true,
            c if c.manages_zones() => matches!(self.engine, Engine::Preadv | Engine::UringCmd),
            _ => self.engine == Engine::UringCmd,
        };
        if !engine {
            let use_this = match command.manages_zones() {
                true => "--engine preadv or uring-cmd",
                false => "--engine uring-cmd",
            };
            return bad(
                "command",
                format!(
                    "the {} engine has no {command}: use {use_this}",
                    self.engine
                ),
            );
        }
        if command == Command::Compare && (!self.same_data || self.qd > 1 || self.threads > 1) {
            return bad(
                "command",
                "compare needs --same-data, one thread and one outstanding I/O: it hands over what a job of writes with the same seed, block size and --same-data has written".into(),
            );
        }
        if command == Command::Copy {
            let from = self.copy_source(&range);
            let source = start_and_end(from, range.end - range.start);
            if source.end > limits.size {
                return bad(
                    "copy-from",
                    format!(
                        "{} from byte {from} on do not fit the target of {}: choose a smaller --size, or another place",
                        Bytes(range.end - range.start),
                        Bytes(limits.size)
                    ),
                );
            }
            if source.start < range.end && range.start < source.end {
                return bad(
                    "copy-from",
                    "what is copied and where it is copied to overlap: choose another place".into(),
                );
            }
            if !from.is_multiple_of(u64::from(limits.direct_align.max(1))) {
                return bad(
                    "copy-from",
                    format!(
                        "{from} is not a multiple of the target's logical block of {}: choose a multiple",
                        Bytes(limits.direct_align.into())
                    ),
                );
            }
        }
        let handles = !self.placement.is_empty();
        if handles && (self.engine != Engine::UringCmd || !rw.writes()) {
            return bad(
                "placement",
                "handles are named by NVMe writes: use --engine uring-cmd and a job that writes"
                    .into(),
            );
        }
        if handles && !matches!(command, Command::Plain) {
            return bad(
                "placement",
                format!("{command} carries no placement handle: leave one of them out"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(&str, &str)]) -> String {
        let limits = Limits {
            size: 1 << 20,
            direct_align: 512,
            hosts: 1,
        };
        let mut spec = JobSpec::default();
        for (name, text) in options {
            spec.set(name, text).unwrap();
        }
        match spec.validate(&limits) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn an_operation_belongs_to_a_pattern_and_an_engine() {
        let cmd = ("engine", "uring-cmd");
        for (options, words) in [
            (
                &[("rw", "read"), ("command", "append"), cmd][..],
                "--rw write",
            ),
            (
                &[("rw", "randwrite"), ("command", "append"), cmd],
                "--rw write",
            ),
            (
                &[("rw", "write"), ("command", "append")],
                "use --engine uring-cmd",
            ),
            (
                &[("rw", "randwrite"), ("command", "verify"), cmd],
                "--rw read or",
            ),
            (
                &[("rw", "trim"), ("command", "zone-reset")],
                "--engine preadv or",
            ),
            (
                &[("rw", "randread"), ("command", "compare"), cmd],
                "--same-data",
            ),
            (
                &[("rw", "write"), ("command", "copy"), cmd],
                "copy-from: 1 MiB from byte",
            ),
            (
                &[
                    ("rw", "write"),
                    ("command", "copy"),
                    cmd,
                    ("size", "64k"),
                    ("copy-from", "32k"),
                ],
                "overlap",
            ),
            (
                &[("rw", "randread"), ("placement", "0,1"), cmd],
                "--engine uring-cmd and",
            ),
            (
                &[("rw", "write"), ("placement", "1")],
                "--engine uring-cmd and",
            ),
        ] {
            let said = check(options);
            assert!(said.contains(words), "{options:?}: {said}");
        }
        for options in [
            &[("rw", "write"), ("command", "append"), cmd][..],
            &[
                ("rw", "trim"),
                ("command", "zone-reset"),
                ("engine", "preadv"),
            ],
            &[
                ("rw", "randwrite"),
                ("command", "copy"),
                cmd,
                ("size", "64k"),
            ],
            &[("rw", "randwrite"), ("placement", "0-2"), cmd],
        ] {
            assert_eq!(check(options), "", "{options:?}");
        }
    }
}
