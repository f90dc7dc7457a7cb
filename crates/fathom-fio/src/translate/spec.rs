//! The job that a section describes, as far as fathom's own options say it.

use fathom_io::JobSpec;
use fathom_io::job::{BlockSizes, Burst, Command, Engine, OnError, SyncCall};
use fathom_telemetry::{Bytes, Nanos};

use super::recipe::Recipe;
use super::{Errors, FOR_EVER, Logs, draws, load, pace, place};
use crate::FioError;
use crate::feed::replay::Replay;
use crate::options::EngineFate;
use crate::section::Section;

/// What else a section's job is known by.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) recipe: &'a Recipe,
    pub(super) replay: Option<&'a Replay>,
    pub(super) logs: &'a Logs,
    pub(super) errors: &'a Errors,
    /// It has no device, or one of its own.
    pub(super) fake: bool,
    /// One I/O at a time.
    pub(super) synchronous: bool,
    /// A program runs instead of I/Os.
    pub(super) program: bool,
    /// As asked for.
    pub(super) depth: u32,
}

/// Whether an engine has one I/O at a time.
pub(super) fn synchronous(fate: EngineFate) -> bool {
    matches!(
        fate,
        EngineFate::Sync | EngineFate::Calls | EngineFate::Apart
    )
}

/// `iodepth`.
pub(super) fn depth(s: &Section) -> Result<u32, FioError> {
    let depth = u32::try_from(s.number("iodepth").unwrap_or(1)).unwrap_or(u32::MAX);
    if depth > 65_536 {
        return Err(s.invalid(
            "iodepth",
            format!("{depth} is not possible: expected at most 65536"),
        ));
    }
    Ok(depth)
}

impl Known<'_> {
    /// The job; range, amounts and seed are settled later.
    pub(super) fn spec(&self, s: &Section, clone: u32) -> Result<JobSpec, FioError> {
        let Self { recipe, replay, .. } = *self;
        let mut spec = JobSpec {
            name: s.name.clone(),
            rw: recipe.rw(),
            // Commands know no page cache, whatever direct= says.
            direct: s.engine() == "io_uring_cmd" || s.flag("direct", !s.flag("buffered", true)),
            on_error: match self.errors.survives_some() {
                true => OnError::Continue,
                false => OnError::Stop,
            },
            ..JobSpec::default()
        };
        self.engine(s, &mut spec);
        spec.qd = if self.synchronous || spec.engine == Engine::Preadv {
            1
        } else {
            self.depth.max(1)
        };
        spec.bs = match replay {
            Some(r) => BlockSizes(
                [r.smallest.max(1), r.largest]
                    .map(|n| (Bytes(n), 1.0))
                    .into(),
            ),
            None => load::block_sizes(s, recipe)?,
        };
        spec.read_share = draws::read_share(s) as f64;
        spec.seed = s.number("randseed").unwrap_or(0x89);
        if recipe.own {
            load::random(recipe, &mut spec);
        }
        pace::durability(s, &mut spec)?;
        if recipe.rates.is_none() {
            pace::pace(s, &mut spec, recipe.think.time > Nanos::ZERO)?;
        }
        pace::content(s, &mut spec);
        flags(s, &mut spec);
        pace::hand_over(s, &mut spec);
        // fio keeps a file mapped from pass to pass, and what is mapped stays in the cache.
        spec.drop_cache = s.flag("invalidate", true)
            && !s.flag("pre_read", false)
            && !spec.direct
            && spec.engine != Engine::Mmap;
        spec.advise = place::advice(s, recipe.random);
        spec.time = s.nanos("runtime").filter(|t| *t > 0).map(Nanos);
        spec.ramp = Nanos(s.nanos("ramp_time").unwrap_or(0));
        spec.ramp_counts = spec.ramp > Nanos::ZERO;
        spec.ios = s.positive("number_ios");
        spec.cpus = pace::cpus(s, clone)?;
        let periods = [self.logs.average_ms, self.logs.histogram_ms];
        if self.logs.any() || self.logs.histograms() {
            let ms = periods.into_iter().filter(|p| *p > 0).min().unwrap_or(100);
            spec.window = Nanos::from_millis(ms.clamp(1, 100));
        }
        if self.program {
            spec.burst = Some(Burst {
                ios: 1,
                bytes: 0,
                idle: Nanos::from_millis(50),
            });
        }
        if self.computes(s) {
            // As in fio it goes on for ever where nothing ends it.
            spec.time = spec.time.or(Some(FOR_EVER));
        }
        Ok(spec)
    }

    /// Whether it has no I/O.
    pub(super) fn computes(&self, s: &Section) -> bool {
        s.engine() == "cpuio" || self.program
    }

    /// What serves the I/O, and by which call.
    fn engine(&self, s: &Section, spec: &mut JobSpec) {
        spec.engine = match s.engine() {
            "mmap" if !spec.direct => Engine::Mmap,
            _ if self.fake => Engine::Null,
            _ if self.synchronous => Engine::Preadv,
            "libaio" => Engine::Libaio,
            "posixaio" => Engine::PosixAio,
            "io_uring_cmd" => Engine::UringCmd,
            _ => Engine::Uring,
        };
        if self.recipe.resets_zones() {
            spec.command = Command::ZoneReset;
            if spec.engine != Engine::UringCmd {
                spec.engine = Engine::Preadv;
            }
        }
        spec.call = match s.engine() {
            "sync" => SyncCall::Read,
            "psync" => SyncCall::Pread,
            "vsync" => SyncCall::Readv,
            "pvsync" => SyncCall::Preadv,
            _ => SyncCall::Preadv2,
        };
    }
}

/// What io_uring and the kernel's calls are told beside the I/O.
fn flags(s: &Section, spec: &mut JobSpec) {
    let ring = matches!(spec.engine, Engine::Uring | Engine::UringCmd);
    spec.iopoll = s.flag("hipri", false) && ring;
    spec.sqpoll = s.flag("sqthread_poll", false);
    let flagged = matches!(s.engine(), "pvsync2" | "libaio" | "io_uring");
    spec.hipri = s.engine() == "pvsync2" && s.flag("hipri", false);
    spec.nowait = flagged && s.flag("nowait", false);
    spec.atomic = flagged && spec.rw.writes() && s.flag("atomic", false);
    spec.hipri_share = s.number("hipri_percentage").unwrap_or(100).min(100) as u8;
    spec.force_async = match s.engine() {
        "io_uring" => s
            .number("force_async")
            .unwrap_or(0)
            .min(u64::from(u32::MAX)) as u32,
        _ => 0,
    };
    spec.uncached = flagged && s.flag("uncached", false);
    if ring && !spec.sqpoll {
        spec.plain_buffers = !s.flag("fixedbufs", false);
        spec.plain_files = !s.flag("registerfiles", false);
    }
}
