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

/// What two options or an option and the target make impossible: whether it is so, the option, and what to do.
type Rule<'a> = (bool, &'a str, &'a dyn std::fmt::Display);

/// The first rule that is broken.
fn refused(rules: &[Rule<'_>]) -> Result<(), JobError> {
    match rules.iter().find(|r| r.0) {
        Some((_, option, why)) => Err(JobError::value(option, why.to_string())),
        None => Ok(()),
    }
}

impl JobSpec {
    /// Checks the job against its target.
    pub fn validate(&self, limits: &Limits) -> Result<ValidJob, JobError> {
        if let Some(hosts) = self
            .on_hosts
            .filter(|h| h.places().end > limits.hosts as usize)
        {
            let of = match limits.hosts {
                0 | 1 => "one host".into(),
                n => format!("{n} hosts"),
            };
            let message = format!("{hosts} of {of}: name more with --hosts");
            return Err(JobError::value("on-hosts", message));
        }
        // Most of a scrambled buffer stays: there is no duplicate in it, and nobody asked which part packs.
        refused(&[(
            self.scramble && (self.same_data || self.duplicate > 0.0 || self.compress > 0.0),
            "scramble",
            &"it goes with neither same-data, duplicate nor compress: leave one of them out",
        )])?;
        let align = self.align.unwrap_or_else(|| self.bs.min());
        self.check_blocks(align, limits)?;
        let range = self.range_in(limits)?;
        self.check_pattern()?;
        self.check_engine()?;
        self.check_command(start_and_end(self.offset.0, range), limits)?;
        self.check_depth()?;
        Ok(ValidJob {
            spec: self.clone(),
            start: self.offset.0,
            end: self.offset.0 + range,
            align: align.0,
            feed: None,
        })
    }

    /// The unit of its direct I/O; `None` where anything goes.
    fn unit(&self, limits: &Limits) -> Option<u64> {
        let direct = self.direct && self.engine != Engine::Null;
        direct.then_some(u64::from(limits.direct_align.max(1)))
    }

    /// Direct I/O comes in whole blocks of the target.
    fn check_blocks(&self, align: Bytes, limits: &Limits) -> Result<(), JobError> {
        let Some(unit) = self.unit(limits) else {
            return Ok(());
        };
        let sizes = self.bs.0.iter().map(|(size, _)| ("bs", *size));
        let mut all = sizes.chain([("align", align), ("offset", self.offset)]);
        let block = Bytes(unit);
        match all.find(|(_, size)| !size.0.is_multiple_of(unit)) {
            Some((option, size)) => Err(JobError::value(
                option,
                format!(
                    "{size} is not a multiple of the target's logical block of {block}: choose a multiple, or --buffered"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Bytes of its range on the target.
    fn range_in(&self, limits: &Limits) -> Result<u64, JobError> {
        let room = limits.size.saturating_sub(self.offset.0);
        let range = self.size.map_or(room, |s| s.0);
        let (asked, max, size) = (Bytes(range), self.bs.max(), Bytes(limits.size));
        refused(&[
            (
                self.offset.0 >= limits.size || range > room,
                "size",
                &format_args!(
                    "the range of {asked} at offset {} does not fit the target of {size}: choose a smaller size or offset",
                    self.offset
                ),
            ),
            (
                range < max.0,
                "size",
                &format_args!(
                    "the range of {asked} is smaller than the block of {max}: choose a larger size or a smaller bs"
                ),
            ),
        ])?;
        // The odd end of a file is out of reach of direct I/O.
        Ok(range - range % self.unit(limits).unwrap_or(1))
    }

    /// Offsets and pace: which go together.
    fn check_pattern(&self) -> Result<(), JobError> {
        let uniform = self.dist == super::Distribution::Uniform;
        let max = self.bs.max();
        refused(&[
            (
                self.random_map && (self.bs.0.len() > 1 || self.align.is_some_and(|a| a != max)),
                "random-map",
                &"it needs one block size, equal to the alignment: drop the other sizes or the map",
            ),
            (
                self.random_map && !uniform,
                "random-map",
                &"it visits every block once, so the distribution must be uniform: drop --dist or the map",
            ),
            (
                !self.rw.is_random() && !uniform,
                "dist",
                &format_args!(
                    "it does nothing in a sequential job: use --rw rand{}",
                    self.rw
                ),
            ),
            (
                self.rate.is_some() && (self.think.0 > 0 || self.burst.is_some()),
                "rate",
                &"an open loop has its own schedule: drop --think and --burst, or the rate",
            ),
            (
                self.burst.is_some() && self.think.0 > 0,
                "burst",
                &"bursts and think time exclude each other: choose one",
            ),
        ])
    }

    /// What the engine can do.
    fn check_engine(&self) -> Result<(), JobError> {
        let carries = match self.engine {
            Engine::Uring | Engine::Libaio => true,
            Engine::Preadv => self.call == SyncCall::Preadv2,
            Engine::UringCmd | Engine::PosixAio | Engine::Mmap | Engine::Null => false,
        };
        let flagged = self.nowait || self.uncached || self.hipri || self.atomic;
        refused(&[
            (
                self.engine == Engine::Mmap && self.direct,
                "engine",
                &"a mapping goes through the page cache: add --buffered",
            ),
            (
                self.iopoll && !self.direct,
                "iopoll",
                &"polling needs direct I/O: drop --buffered",
            ),
            (
                self.iopoll && self.sync.has_calls(),
                "iopoll",
                &"a polled ring cannot fsync: use --sync fua",
            ),
            (
                self.iopoll && self.rw.trims(),
                "iopoll",
                &"a polled ring cannot trim: drop --iopoll",
            ),
            (
                flagged && !carries,
                "engine",
                &"nowait, uncached, hipri and atomic are flags of a call, which this engine has not: use uring, libaio or preadv",
            ),
            (
                self.atomic && !self.direct,
                "atomic",
                &"writes through the page cache are not atomic: drop --buffered",
            ),
            (
                self.force_async > 0 && self.engine != Engine::Uring,
                "engine",
                &format_args!("force-async needs the uring engine, not {}", self.engine),
            ),
            (
                self.engine == Engine::UringCmd && !self.direct,
                "engine",
                &"commands to the drive know no page cache: drop --buffered",
            ),
            (
                (self.iopoll || self.sqpoll) && !self.has_ring(),
                "engine",
                &format_args!("polling needs the uring engine, not {}", self.engine),
            ),
        ])
    }

    fn has_ring(&self) -> bool {
        matches!(self.engine, Engine::Uring | Engine::UringCmd)
    }

    /// Buffers, rings and threads have an end.
    fn check_depth(&self) -> Result<(), JobError> {
        let max = self.bs.max();
        let outstanding = u64::from(self.qd) * u64::from(self.threads);
        let memory = u128::from(outstanding) * u128::from(max.0);
        refused(&[
            (
                memory > 8 << 30,
                "qd",
                &format_args!(
                    "{} threads × {} outstanding × {max} need {} of buffers: expected at most 8 GiB",
                    self.threads,
                    self.qd,
                    Bytes(u64::try_from(memory).unwrap_or(u64::MAX))
                ),
            ),
            (
                self.has_ring() && self.qd > URING_ENTRIES_MAX,
                "qd",
                &format_args!(
                    "io_uring takes at most {URING_ENTRIES_MAX} outstanding I/Os per ring, not {}: use more threads",
                    self.qd
                ),
            ),
            (
                outstanding > 65_536 && self.engine == Engine::Preadv,
                "qd",
                &"the preadv engine needs a thread per outstanding I/O: expected at most 65536",
            ),
        ])
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
