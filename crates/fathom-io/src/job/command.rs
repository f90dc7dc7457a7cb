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
        let bad = |message: String| Err(JobError::value("command", message));
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
            return bad(format!("{command} goes with {wanted}, not with {rw}"));
        }
        let (has_it, engines) = match command {
            Command::Plain => (true, ""),
            c if c.manages_zones() => (
                matches!(self.engine, Engine::Preadv | Engine::UringCmd),
                "--engine preadv or uring-cmd",
            ),
            _ => (self.engine == Engine::UringCmd, "--engine uring-cmd"),
        };
        if !has_it {
            return bad(format!(
                "the {} engine has no {command}: use {engines}",
                self.engine
            ));
        }
        if command == Command::Compare && (!self.same_data || self.qd > 1 || self.threads > 1) {
            return bad("compare needs --same-data, one thread and one outstanding I/O: it hands over what a job of writes with the same seed, block size and --same-data has written".into());
        }
        if command == Command::Copy {
            self.check_copy(&range, limits)?;
        }
        self.check_placement()
    }

    /// Refuses a source that is not there, or that the copies would overwrite.
    fn check_copy(&self, range: &Range<u64>, limits: &Limits) -> Result<(), JobError> {
        let bad = |message: String| Err(JobError::value("copy-from", message));
        let from = self.copy_source(range);
        let source = start_and_end(from, range.end - range.start);
        if source.end > limits.size {
            return bad(format!(
                "{} from byte {from} on do not fit the target of {}: choose a smaller --size, or another place",
                Bytes(range.end - range.start),
                Bytes(limits.size)
            ));
        }
        if source.start < range.end && range.start < source.end {
            return bad(
                "what is copied and where it is copied to overlap: choose another place".into(),
            );
        }
        if !from.is_multiple_of(u64::from(limits.direct_align.max(1))) {
            return bad(format!(
                "{from} is not a multiple of the target's logical block of {}: choose a multiple",
                Bytes(limits.direct_align.into())
            ));
        }
        Ok(())
    }

    /// Refuses placement handles that no command of the job would carry.
    fn check_placement(&self) -> Result<(), JobError> {
        let bad = |message: String| Err(JobError::value("placement", message));
        if self.placement.is_empty() {
            return Ok(());
        }
        if self.engine != Engine::UringCmd || !self.rw.writes() {
            return bad(
                "handles are named by NVMe writes: use --engine uring-cmd and a job that writes"
                    .into(),
            );
        }
        match self.command {
            Command::Plain => Ok(()),
            c => bad(format!(
                "{c} carries no placement handle: leave one of them out"
            )),
        }
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
