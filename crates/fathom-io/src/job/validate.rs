//! A job against its target: what cannot work is refused before anything is created.

use fathom_telemetry::{Bytes, Op};

use super::command::start_and_end;
use super::limits::Limits;
use super::{Engine, JobError, JobSpec, SyncCall};
use crate::replay::FeedHandle;

/// Linux's IORING_MAX_ENTRIES.
const URING_ENTRIES_MAX: u32 = 32_768;

/// A job that fits its target: range, alignment and totals are settled.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidJob {
    /// As asked.
    pub spec: JobSpec,
    /// First byte of the range.
    pub start: u64,
    /// First byte after the range.
    pub end: u64,
    /// Offsets are multiples of this from `start`.
    pub align: u64,
    /// A trace that says what to do, in place of pattern and pace.
    pub feed: Option<FeedHandle>,
}

impl ValidJob {
    /// Operations that the job will do.
    pub fn ops(&self) -> Vec<Op> {
        if let Some(feed) = &self.feed {
            return feed.ops();
        }
        let mut ops = Vec::new();
        let rw = self.spec.rw;
        let mixed = rw.reads() && rw.writes();
        if rw.reads() && !(mixed && self.spec.read_share == 0.0) {
            ops.push(Op::Read);
        }
        if rw.writes() && !(mixed && self.spec.read_share == 100.0) {
            ops.push(Op::Write);
        }
        if rw.trims() {
            ops.push(Op::Trim);
        }
        if rw.writes() && self.spec.sync.has_calls() {
            ops.push(Op::Sync);
        }
        ops
    }

    /// Plays a trace in place of its own pattern and pace; its layout must be for the same target.
    ///
    /// # Errors
    /// [`JobError::Value`], where several threads would have to share it.
    pub fn playing(mut self, feed: FeedHandle) -> Result<Self, JobError> {
        if self.spec.threads != 1 || self.spec.engine == Engine::Preadv {
            return Err(JobError::value(
                "engine",
                "a trace is played by one thread that keeps many I/Os outstanding: use the uring engine and one thread",
            ));
        }
        self.feed = Some(feed);
        Ok(self)
    }

    /// Bytes of the range.
    pub fn range(&self) -> u64 {
        self.end - self.start
    }
}

impl JobSpec {
    /// Checks the job against its target.
    pub fn validate(&self, limits: &Limits) -> Result<ValidJob, JobError> {
        let bad = |option: &str, message: &dyn std::fmt::Display| {
            JobError::value(option, message.to_string())
        };
        if let Some(hosts) = self
            .on_hosts
            .filter(|h| h.places().end > limits.hosts as usize)
        {
            return Err(bad(
                "on-hosts",
                &match limits.hosts {
                    0 | 1 => format!("{hosts} of one host: name more with --hosts"),
                    n => format!("{hosts} of {n} hosts: name more with --hosts"),
                },
            ));
        }
        // Most of a scrambled buffer stays: there is no duplicate in it, and nobody asked which part packs.
        if self.scramble && (self.same_data || self.duplicate > 0.0 || self.compress > 0.0) {
            return Err(bad(
                "scramble",
                &"it goes with neither same-data, duplicate nor compress: leave one of them out",
            ));
        }
        let align = self.align.unwrap_or_else(|| self.bs.min()).0;
        if self.direct && self.engine != Engine::Null {
            let unit = u64::from(limits.direct_align.max(1));
            for (size, _) in &self.bs.0 {
                if size.0 % unit != 0 {
                    return Err(bad(
                        "bs",
                        &format!(
                            "{size} is not a multiple of the target's logical block of {}: choose a multiple, or --buffered",
                            Bytes(unit)
                        ),
                    ));
                }
            }
            if !align.is_multiple_of(unit) {
                return Err(bad(
                    "align",
                    &format!(
                        "{} is not a multiple of the target's logical block of {}: choose a multiple, or --buffered",
                        Bytes(align),
                        Bytes(unit)
                    ),
                ));
            }
            if !self.offset.0.is_multiple_of(unit) {
                return Err(bad(
                    "offset",
                    &format!(
                        "{} is not a multiple of the target's logical block of {}: choose a multiple, or --buffered",
                        self.offset,
                        Bytes(unit)
                    ),
                ));
            }
        }
        let room = limits.size.saturating_sub(self.offset.0);
        let mut range = self.size.map_or(room, |s| s.0);
        if self.offset.0 >= limits.size || range > room {
            return Err(bad(
                "size",
                &format!(
                    "the range of {} at offset {} does not fit the target of {}: choose a smaller size or offset",
                    Bytes(range),
                    self.offset,
                    Bytes(limits.size)
                ),
            ));
        }
        let max = self.bs.max().0;
        if range < max {
            return Err(bad(
                "size",
                &format!(
                    "the range of {} is smaller than the block of {}: choose a larger size or a smaller bs",
                    Bytes(range),
                    Bytes(max)
                ),
            ));
        }
        if self.direct && self.engine != Engine::Null {
            // The odd end of a file is out of reach of direct I/O.
            range -= range % u64::from(limits.direct_align.max(1));
        }
        if self.random_map && (self.bs.0.len() > 1 || self.align.is_some_and(|a| a.0 != max)) {
            return Err(bad(
                "random-map",
                &"it needs one block size, equal to the alignment: drop the other sizes or the map",
            ));
        }
        if self.random_map && self.dist != super::Distribution::Uniform {
            return Err(bad(
                "random-map",
                &"it visits every block once, so the distribution must be uniform: drop --dist or the map",
            ));
        }
        if !self.rw.is_random() && self.dist != super::Distribution::Uniform {
            return Err(bad(
                "dist",
                &format!(
                    "it does nothing in a sequential job: use --rw rand{}",
                    self.rw
                ),
            ));
        }
        if self.rate.is_some() && (self.think.0 > 0 || self.burst.is_some()) {
            return Err(bad(
                "rate",
                &"an open loop has its own schedule: drop --think and --burst, or the rate",
            ));
        }
        if self.burst.is_some() && self.think.0 > 0 {
            return Err(bad(
                "burst",
                &"bursts and think time exclude each other: choose one",
            ));
        }
        if self.engine == Engine::Mmap && self.direct {
            return Err(bad(
                "engine",
                &"a mapping goes through the page cache: add --buffered",
            ));
        }
        if self.iopoll && !self.direct {
            return Err(bad("iopoll", &"polling needs direct I/O: drop --buffered"));
        }
        if self.iopoll && self.sync.has_calls() {
            return Err(bad("iopoll", &"a polled ring cannot fsync: use --sync fua"));
        }
        if self.iopoll && self.rw.trims() {
            return Err(bad("iopoll", &"a polled ring cannot trim: drop --iopoll"));
        }
        let carries = match self.engine {
            Engine::Uring | Engine::Libaio => true,
            Engine::Preadv => self.call == SyncCall::Preadv2,
            Engine::UringCmd | Engine::PosixAio | Engine::Mmap | Engine::Null => false,
        };
        if (self.nowait || self.uncached || self.hipri || self.atomic) && !carries {
            return Err(bad(
                "engine",
                &"nowait, uncached, hipri and atomic are flags of a call, which this engine has not: use uring, libaio or preadv",
            ));
        }
        if self.atomic && !self.direct {
            return Err(bad(
                "atomic",
                &"writes through the page cache are not atomic: drop --buffered",
            ));
        }
        if self.force_async > 0 && self.engine != Engine::Uring {
            return Err(bad(
                "engine",
                &format!("force-async needs the uring engine, not {}", self.engine),
            ));
        }
        if self.engine == Engine::UringCmd && !self.direct {
            return Err(bad(
                "engine",
                &"commands to the drive know no page cache: drop --buffered",
            ));
        }
        let ring = matches!(self.engine, Engine::Uring | Engine::UringCmd);
        if (self.iopoll || self.sqpoll) && !ring {
            return Err(bad(
                "engine",
                &format!("polling needs the uring engine, not {}", self.engine),
            ));
        }
        self.check_command(start_and_end(self.offset.0, range), limits)?;
        let memory = u128::from(self.qd) * u128::from(self.threads) * u128::from(max);
        if memory > 8 << 30 {
            return Err(bad(
                "qd",
                &format!(
                    "{} threads × {} outstanding × {} need {} of buffers: expected at most 8 GiB",
                    self.threads,
                    self.qd,
                    Bytes(max),
                    Bytes(u64::try_from(memory).unwrap_or(u64::MAX))
                ),
            ));
        }
        if ring && self.qd > URING_ENTRIES_MAX {
            return Err(bad(
                "qd",
                &format!(
                    "io_uring takes at most {URING_ENTRIES_MAX} outstanding I/Os per ring, not {}: use more threads",
                    self.qd
                ),
            ));
        }
        if u64::from(self.qd) * u64::from(self.threads) > 65_536 && self.engine == Engine::Preadv {
            return Err(bad(
                "qd",
                &"the preadv engine needs a thread per outstanding I/O: expected at most 65536",
            ));
        }
        Ok(ValidJob {
            spec: self.clone(),
            start: self.offset.0,
            end: self.offset.0 + range,
            align,
            feed: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        size: 1 << 30,
        direct_align: 512,
        hosts: 1,
    };

    fn job(options: &[(&str, &str)]) -> JobSpec {
        let mut j = JobSpec::default();
        for (n, t) in options {
            j.set(n, t).unwrap();
        }
        j
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (options, start) in [
            (&[("bs", "1000")][..], "bs: 1000 B is not a multiple"),
            (&[("offset", "100")], "offset: 100 B"),
            (&[("size", "2g")], "size: the range of 2 GiB"),
            (&[("offset", "1g")], "size: the range of 0 B"),
            (&[("size", "4k"), ("bs", "8k")], "size: the range of 4 KiB"),
            (&[("rw", "read"), ("dist", "zipf")], "dist: "),
            (&[("on-hosts", "1-2")], "on-hosts: 1-2 of one host"),
            (&[("rate", "5"), ("think", "1ms")], "rate: "),
            (&[("iopoll", ""), ("buffered", "")], "iopoll: "),
            (&[("random-map", ""), ("bs", "4k,8k")], "random-map: "),
            (&[("qd", "65536"), ("bs", "1m")], "qd: "),
            (&[("qd", "32769")], "qd: io_uring takes at most 32768"),
        ] {
            let e = job(options).validate(&LIMITS).unwrap_err().to_string();
            assert!(e.starts_with(start), "{options:?}: {e}");
        }
        assert!(
            job(&[("bs", "1000"), ("buffered", "")])
                .validate(&LIMITS)
                .is_ok()
        );
    }

    #[test]
    fn the_odd_end_of_a_file_is_left_to_buffered_jobs() {
        let odd = Limits {
            size: 10_000,
            direct_align: 512,
            hosts: 1,
        };
        assert_eq!(job(&[]).validate(&odd).unwrap().end, 9728);
        assert_eq!(job(&[("buffered", "")]).validate(&odd).unwrap().end, 10_000);
    }

    #[test]
    fn a_valid_job_knows_its_operations() {
        let v = job(&[("rw", "randrw"), ("read-share", "100"), ("sync", "fsync")])
            .validate(&LIMITS)
            .unwrap();
        assert_eq!(v.ops(), [Op::Read, Op::Sync]);
        assert_eq!((v.start, v.end, v.align), (0, 1 << 30, 4096));
    }
}
