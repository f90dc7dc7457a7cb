//! What a section asks for beyond a plain job: [`Recipe`], for the feed that does it.

use fathom_io::job::{Distribution, Rw};
use fathom_telemetry::Nanos;

pub(crate) use super::draws::{Draw, Sizes};
use super::draws::{bytes, draws, read_share, sizes};
use super::pace;
use crate::FioError;
use crate::feed::locks::Turns;
use crate::feed::pattern::Pattern;
use crate::feed::sprandom;
use crate::feed::sums::Sum;
use crate::feed::trims::TrimBack;
use crate::feed::verify::Check;
use crate::feed::zones::Zoned;
use crate::options::EngineFate;
use crate::options::value::{self, Quantity};
use crate::section::Section;

/// `random_generator`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generator {
    /// The narrow one; the wide one for offsets where a file has more blocks than that has numbers.
    Unasked,
    /// Numbers of 32 bits (`tausworthe`).
    Narrow,
    /// Numbers of 64 bits (`tausworthe64`).
    Wide,
    /// Each block once (`lfsr`).
    ShiftRegister,
}

impl Generator {
    fn of(s: &Section) -> Self {
        match s.get("random_generator") {
            None => Self::Unasked,
            Some("lfsr") => Self::ShiftRegister,
            Some("tausworthe64") => Self::Wide,
            Some(_) => Self::Narrow,
        }
    }
}

/// Zones of a strided job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strided {
    pub(crate) size: u64,
    pub(crate) range: u64,
    pub(crate) skip: u64,
}

impl Strided {
    fn of(s: &Section) -> Option<Self> {
        let size = s.number("zonesize").unwrap_or(0);
        (s.get("zonemode") == Some("strided")).then(|| Self {
            size,
            range: s.positive("zonerange").unwrap_or(size),
            skip: s.number("zoneskip").unwrap_or(0),
        })
    }
}

/// Which file next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Service {
    /// Drawn after so many I/Os of one.
    Random(u64),
    RoundRobin(u64),
    Sequential,
    /// Random by a distribution, perhaps around a center.
    By(Distribution, Option<f64>),
}

/// Weight among jobs of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) id: u64,
    pub(crate) weight: u64,
    pub(crate) sleep: Nanos,
}

impl Flow {
    fn of(s: &Section) -> Option<Self> {
        s.positive("flow").map(|weight| Self {
            id: s.number("flow_id").unwrap_or(0),
            weight,
            sleep: Nanos(s.number("flow_sleep").unwrap_or(0).saturating_mul(1000)),
        })
    }
}

/// The depth is sought at which latency stays below a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LatencyTarget {
    /// Completion latency.
    pub(crate) target: Nanos,
    /// Time over which it is judged.
    pub(crate) window: Nanos,
    /// Share of I/Os that must hold it, percent.
    pub(crate) percentile: f64,
    /// Go on at the depth that was found.
    pub(crate) run: bool,
}

impl LatencyTarget {
    fn of(s: &Section) -> Option<Self> {
        let time = |name| s.nanos(name).filter(|t| *t > 0).map(Nanos);
        let percentile = s.get("latency_percentile").and_then(value::float);
        time("latency_target").map(|target| Self {
            target,
            window: time("latency_window").unwrap_or(Nanos(100_000_000)),
            percentile: percentile.unwrap_or(100.0),
            run: s.flag("latency_run", false),
        })
    }
}

/// Time without I/O between I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Think {
    /// 0 where a plain job thinks, or nobody does.
    pub(crate) time: Nanos,
    /// After so many I/Os.
    pub(crate) blocks: u64,
    /// Part of the time in which the processor is kept busy.
    pub(crate) spin: Nanos,
    /// Think after so much time of I/O; 0 for after so many blocks alone.
    pub(crate) io_time: Nanos,
}

impl Think {
    fn of(s: &Section) -> Result<Self, FioError> {
        let nanos = |name| Nanos(s.nanos(name).unwrap_or(0));
        let io_time = nanos("thinktime_iotime");
        let given = (nanos("thinktime"), nanos("thinktime_spin"));
        let (time, spin) = pace::busy(s)?.unwrap_or(given);
        Ok(Self {
            time,
            // With a time of I/O, blocks count only where they are asked for.
            blocks: match s.number("thinktime_blocks") {
                None if io_time > Nanos::ZERO => u64::MAX,
                n => n.unwrap_or(1).max(1),
            },
            spin: spin.min(time),
            io_time,
        })
    }

    /// Whether a plain job cannot think like this.
    fn is_busy(&self) -> bool {
        self.spin > Nanos::ZERO || self.io_time > Nanos::ZERO
    }
}

/// What `rw` says.
struct Access {
    /// Reads, writes, trims.
    does: [bool; 3],
    pairs: bool,
    random: bool,
    run_length: u64,
    hole: i64,
}

impl Access {
    fn of(s: &Section) -> Result<Self, FioError> {
        let text = s.get("rw").unwrap_or("read");
        let (word, tail) = text.split_once(':').unwrap_or((text, ""));
        let mut access = Self {
            does: match word.trim_start_matches("rand") {
                "read" => [true, false, false],
                "write" => [false, true, false],
                "trim" => [false, false, true],
                "trimwrite" => [false, true, true],
                _ => [true, true, false],
            },
            pairs: word.ends_with("trimwrite"),
            random: word.starts_with("rand"),
            run_length: 1,
            hole: 0,
        };
        if tail.is_empty() {
            return Ok(access);
        }
        match value::number(tail, s.kb_base()) {
            Some(Quantity::Plain(n)) if access.random && n >= 0 => {
                access.run_length = n.max(1) as u64;
            }
            Some(Quantity::Plain(n)) if !access.random => access.hole = n,
            _ => {
                let expected = "expected a number of I/Os, or a distance";
                return Err(s.invalid("rw", format!("'{tail}' is not possible: {expected}")));
            }
        }
        Ok(access)
    }
}

/// How the feed draws the I/O of one section.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    /// Reads, writes, trims.
    pub(crate) does: [bool; 3],
    /// A write follows each trim, at the same place.
    pub(crate) pairs: bool,
    pub(crate) random: bool,
    pub(crate) sizes: [Sizes; 3],
    /// Sizes are no multiples of the smallest (`bs_unaligned`).
    pub(crate) unaligned: bool,
    pub(crate) align: [u64; 3],
    /// Random offset only after so many I/Os; the others follow on, or stay where they are.
    pub(crate) run_length: u64,
    pub(crate) identical: bool,
    /// Distance after each sequential I/O.
    pub(crate) hole: i64,
    pub(crate) percent_random: [u64; 3],
    pub(crate) draw: [Draw; 3],
    pub(crate) map: bool,
    pub(crate) generator: Generator,
    /// Every pass draws the same sequence again.
    pub(crate) repeats: bool,
    /// More than one pass: the feed ends each and begins the next.
    pub(crate) loops: bool,
    pub(crate) strided: Option<Strided>,
    /// Percent of reads in a mix.
    pub(crate) read_share: u64,
    pub(crate) service: Service,
    pub(crate) files: u64,
    /// Files that are open at a time.
    pub(crate) open_files: u64,
    pub(crate) pattern: Option<Pattern>,
    /// Compressible share of written data in percent, and the chunks in which it alternates with other data.
    pub(crate) compress: Option<(u64, u64)>,
    pub(crate) check: Option<Check>,
    pub(crate) think: Think,
    /// Reads, writes and trims that take longer end the job; 0 for any time.
    pub(crate) max_latency: [Nanos; 3],
    /// Priorities of single I/Os.
    pub(crate) priorities: Option<super::priority::Priorities>,
    /// Priority of the thread, for the logs.
    pub(crate) thread_priority: u16,
    /// Zones with write pointers.
    pub(crate) zoned: Option<Zoned>,
    /// Sizes of sequential I/Os are those of reads, of random ones those of writes.
    pub(crate) by_motion: bool,
    /// A drive is written as after a long load.
    pub(crate) spread: Option<sprandom::Terms>,
    /// Jobs that use the same file take turns.
    pub(crate) turns: Option<Turns>,
    /// Verified writes that are trimmed again.
    pub(crate) trim_back: Option<TrimBack>,
    /// How often each block was trimmed is noted.
    pub(crate) lifetimes: bool,
    /// Its files begin empty again with every pass.
    pub(crate) anew: bool,
    /// Blocks that do not hold are kept beside their file.
    pub(crate) dump: bool,
    /// Bytes per second of each direction, 0 for no limit: where only one has a limit.
    pub(crate) rates: Option<[f64; 3]>,
    /// What was missed while the job was thinking is not caught up with.
    pub(crate) skips_missed: bool,
    /// An I/O waits for those under way that it overlaps.
    pub(crate) serial: bool,
    pub(crate) flow: Option<Flow>,
    pub(crate) latency: Option<LatencyTarget>,
    pub(crate) read_log: Option<String>,
    pub(crate) write_log: Option<String>,
    pub(crate) no_stall: bool,
    pub(crate) time_scale: u64,
    pub(crate) state_load: bool,
    pub(crate) state_save: bool,
    /// Nothing of this is asked for: a plain job does.
    pub(crate) plain: bool,
    /// A job of fathom's own form says where and how much.
    pub(crate) own: bool,
    /// The driver decides where and how much; only content, logs or turns are the feed's.
    pub(crate) native: bool,
}

impl Recipe {
    /// `fake`: an engine that moves no data; `apart`: one that has no use for places.
    pub(crate) fn of(s: &Section, fake: bool, apart: bool) -> Result<Self, FioError> {
        let access = Access::of(s)?;
        let (does, random) = (access.does, access.random);
        let sizes = sizes(s)?;
        let align = alignment(s, &sizes);
        let draw = draws(s)?;
        let map = random
            && !s.flag("norandommap", false)
            && matches!(draw[0], Draw::By(Distribution::Uniform, _))
            // As in fio, another alignment than the block size turns the map off.
            && (0..3).all(|i| align[i] == sizes[i].min());
        let files = files(s);
        let zoned = super::zoned::of(s)?;
        let mut think = Think::of(s)?;
        let rated = |n: &str| s.per_direction(n).is_some_and(|v| v.iter().any(|r| *r > 0));
        let has_rate = rated("rate") || rated("rate_iops");
        let check = check(s, pattern(s, "verify_pattern")?)?;
        let flow = Flow::of(s);
        if !(has_rate || check.is_some() || flow.is_some() || think.is_busy() || zoned.is_some()) {
            think.time = Nanos::ZERO;
        }
        let mut recipe = Self {
            does,
            pairs: access.pairs,
            random,
            run_length: access.run_length,
            identical: s.get("rw_sequencer") == Some("identical"),
            hole: access.hole,
            percent_random: s.per_direction("percentage_random").unwrap_or([100; 3]),
            map,
            generator: Generator::of(s),
            repeats: s.flag("randrepeat", true) && !s.has("randseed"),
            loops: s.number("loops").unwrap_or(1) > 1,
            strided: Strided::of(s),
            read_share: read_share(s),
            service: service(s),
            files,
            open_files: s.positive("openfiles").unwrap_or(files),
            pattern: pattern(s, "buffer_pattern")?,
            compress: s
                .positive("buffer_compress_percentage")
                .map(|p| (p.min(100), pace::compress_chunk(s))),
            think,
            max_latency: max_latency(s),
            priorities: super::priority::Priorities::of(s)?,
            thread_priority: super::priority::of_thread(s),
            zoned,
            by_motion: s.flag("bs_is_seq_rand", false),
            turns: turns(s),
            spread: like_a_long_load(s, does, random, files)?,
            trim_back: trim_back(s, check.is_some()),
            lifetimes: s.flag("block_error_percentiles", false),
            anew: s.flag("unlink_each_loop", false),
            dump: s.flag("verify_dump", false),
            rates: rates_by_bytes(s, does, &sizes),
            skips_missed: skips_missed(s),
            serial: s.flag("serialize_overlap", false),
            flow,
            latency: LatencyTarget::of(s),
            read_log: s.text("read_iolog").map(str::to_owned),
            write_log: s.text("write_iolog").map(str::to_owned),
            no_stall: s.flag("replay_no_stall", false),
            time_scale: s.number("replay_time_scale").unwrap_or(100).max(1),
            state_load: s.flag("verify_state_load", false),
            state_save: s.flag("verify_state_save", true),
            check,
            unaligned: s.flag("bs_unaligned", false),
            sizes,
            align,
            draw,
            plain: true,
            own: true,
            native: true,
        };
        recipe.own = recipe.is_own(fake);
        // Random blocks are those that fio draws, and in its order.
        recipe.native = recipe.own && (!random || apart);
        recipe.plain = recipe.native && recipe.is_bare();
        Ok(recipe)
    }

    /// Whether it has nothing beside where and how much.
    fn is_bare(&self) -> bool {
        self.pattern.is_none()
            && self.flow.is_none()
            && self.latency.is_none()
            && self.write_log.is_none()
            && self.turns.is_none()
            && self.max_latency == [Nanos::ZERO; 3]
    }

    /// Whether a job of fathom's own form says the whole load.
    fn is_own(&self, fake: bool) -> bool {
        let used: Vec<usize> = (0..3).filter(|i| self.does[*i]).collect();
        // Of several sizes fio draws until one fits before the end of the range.
        let one_size = matches!(self.sizes[used[0]], Sizes::One(_))
            && used.iter().all(|i| self.sizes[*i] == self.sizes[used[0]]);
        // In fio reads and writes of a sequential mix have a position each.
        let one_position = self.random || used.len() == 1;
        let simple = |i: usize| {
            matches!(self.draw[i], Draw::By(_, None))
                && (!self.random || self.percent_random[i] == 100)
        };
        !self.pairs
            && one_position
            && one_size
            && used.iter().all(|i| simple(*i))
            && self.run_length == 1
            && self.hole == 0
            && self.strided.is_none()
            && self.zoned.is_none()
            && self.priorities.is_none()
            && (!self.loops || fake)
            && !self.by_motion
            && (self.files == 1 || fake)
            && self.check.is_none()
            && self.think.time == Nanos::ZERO
            && self.rates.is_none()
            && !self.serial
            && !self.lifetimes
            && self.spread.is_none()
            && !self.anew
            && self.read_log.is_none()
    }

    /// What a job of fathom's own form cannot say.
    pub(crate) fn beyond(&self) -> Vec<&'static str> {
        let used: Vec<usize> = (0..3).filter(|i| self.does[*i]).collect();
        [
            (self.pairs, "a write after each trim (rw=trimwrite)"),
            (
                self.run_length > 1 || self.hole != 0,
                "sequences inside the pattern (rw=…:N)",
            ),
            (
                used.iter().any(|i| self.sizes[*i] != self.sizes[used[0]]),
                "block sizes that differ between directions",
            ),
            (
                self.strided.is_some() || self.zoned.is_some(),
                "zones (zonemode)",
            ),
            (
                self.priorities.is_some(),
                "priorities of single I/Os (cmdprio)",
            ),
            (self.by_motion, "block sizes by motion (bs_is_seq_rand)"),
            (self.lifetimes, "block_error_percentiles"),
            (self.turns.is_some(), "lockfile"),
            (self.spread.is_some(), "sprandom"),
            (self.anew, "unlink_each_loop"),
            (self.max_latency != [Nanos::ZERO; 3], "max_latency"),
            (self.think.is_busy(), "thinktime_spin and thinktime_iotime"),
            (
                self.random && used.iter().any(|i| self.percent_random[*i] != 100),
                "a share of sequential I/Os (percentage_random)",
            ),
            (
                used.iter()
                    .any(|i| !matches!(self.draw[*i], Draw::By(_, None))),
                "this random_distribution",
            ),
            (self.files > 1, "several files"),
            (self.pattern.is_some(), "a pattern in buffers"),
            (self.check.is_some(), "verification"),
            (self.think.time > Nanos::ZERO, "thinktime with a rate"),
            (self.rates.is_some(), "a rate for one direction only"),
            (self.serial, "serialize_overlap"),
            (self.flow.is_some(), "flow"),
            (self.latency.is_some(), "latency_target"),
            (
                self.read_log.is_some() || self.write_log.is_some(),
                "an I/O log",
            ),
        ]
        .into_iter()
        .filter(|w| w.0)
        .map(|w| w.1)
        .collect()
    }

    /// The nearest pattern of a plain job.
    pub(crate) fn rw(&self) -> Rw {
        match (self.does, self.random) {
            ([true, true, _], true) => Rw::RandMixed,
            ([true, true, _], false) => Rw::Mixed,
            ([true, ..], true) => Rw::RandRead,
            ([true, ..], false) => Rw::Read,
            ([_, true, _], true) => Rw::RandWrite,
            ([_, true, _], false) => Rw::Write,
            (_, true) if !self.resets_zones() => Rw::RandTrim,
            _ => Rw::Trim,
        }
    }

    /// Block sizes of the directions that it does.
    pub(crate) fn used_sizes(&self) -> impl Iterator<Item = &Sizes> {
        let used = |i: &usize| self.does[*i] || self.by_motion && *i < 2;
        (0..3).filter(used).map(|i| &self.sizes[i])
    }

    /// Smallest size of any direction.
    pub(crate) fn smallest(&self) -> u64 {
        self.sizes.iter().map(Sizes::min).min().unwrap_or(1).max(1)
    }

    /// Whether it trims zones of a device: each is reset.
    pub(crate) fn resets_zones(&self) -> bool {
        self.does == [false, false, true] && self.zoned.is_some_and(|z| z.own)
    }

    /// Whether blocks are walked in an order without repeats.
    pub(crate) fn walks(&self) -> bool {
        self.generator == Generator::ShiftRegister
    }
}

/// What offsets of each direction are multiples of: the smallest size where nothing is said.
fn alignment(s: &Section, sizes: &[Sizes; 3]) -> [u64; 3] {
    let asked = s.per_direction("ba").unwrap_or_default();
    [0, 1, 2].map(|i: usize| match asked[i] {
        0 => sizes[i].min(),
        align => align,
    })
}

/// A pattern of data.
fn pattern(s: &Section, option: &str) -> Result<Option<Pattern>, FioError> {
    let parse = |text| Pattern::parse(text).map_err(|e| s.invalid(option, e));
    s.text(option).map(parse).transpose()
}

/// How many files it has.
fn files(s: &Section) -> u64 {
    let named = match s.get("filename") {
        Some(f) if f.starts_with("sim:") => 0,
        _ => s.file_names().len() as u64,
    };
    s.number("nrfiles").unwrap_or(1).max(named).max(1)
}

/// `file_service_type`.
fn service(s: &Section) -> Service {
    let text = s.get("file_service_type").unwrap_or("roundrobin");
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let skewed = |word: &str, default: &str| {
        let (shape, center) = rest.split_once(':').unwrap_or((rest, ""));
        let shape = if shape.is_empty() { default } else { shape };
        format!("{word}:{shape}")
            .parse()
            .map_or(Service::Random(1), |d| Service::By(d, value::float(center)))
    };
    let each = bytes(rest, 1024).unwrap_or(1).max(1);
    match word {
        "zipf" => skewed("zipf", "1.1"),
        "pareto" => skewed("pareto", "0.2"),
        "normal" | "gauss" => skewed("gauss", "0"),
        "sequential" => Service::Sequential,
        "roundrobin" => Service::RoundRobin(each),
        _ => Service::Random(each),
    }
}

/// µs for reads, writes and trims: the first holds where one is missing.
fn max_latency(s: &Section) -> [Nanos; 3] {
    let mut last = 0;
    let parts: Vec<&str> = s.get("max_latency").unwrap_or("").split(',').collect();
    [0, 1, 2].map(|i: usize| {
        if let Some(p) = parts.get(i) {
            last = value::micros(p, false).unwrap_or(0);
        }
        Nanos(last.saturating_mul(1000))
    })
}

/// `sprandom`, and fio's own rules of what goes with it.
fn like_a_long_load(
    s: &Section,
    does: [bool; 3],
    random: bool,
    files: u64,
) -> Result<Option<sprandom::Terms>, FioError> {
    if !s.flag("sprandom", false) {
        return Ok(None);
    }
    let bad = |text: &str| s.invalid("sprandom", text);
    if does != [false, true, false] || !random {
        return Err(bad("it needs rw=randwrite"));
    }
    if s.get("random_generator").is_some_and(|g| g != "lfsr") {
        return Err(bad("it needs random_generator=lfsr, or none"));
    }
    if s.has("norandommap") && !s.flag("norandommap", true) {
        return Err(bad("it needs norandommap=1, or none"));
    }
    if files > 1 {
        return Err(bad("it writes one file only"));
    }
    let provisioning = s.get("spr_op").and_then(value::float).unwrap_or(0.15);
    if !(provisioning > 0.0 && provisioning < 1.6) {
        return Err(bad(
            "spr_op is the share of spare room: expected more than 0 and less than 1.6",
        ));
    }
    Ok(Some(sprandom::Terms {
        regions: s.number("spr_num_regions").unwrap_or(100).max(1),
        provisioning,
        cache: s.number("spr_cs").unwrap_or(0),
    }))
}

/// Asynchronous engines hold fio's lock only while they hand over, which nobody else does then.
fn turns(s: &Section) -> Option<Turns> {
    let waits = matches!(s.engine_fate(), EngineFate::Sync | EngineFate::Calls);
    match s.get("lockfile").filter(|_| waits) {
        Some("exclusive") => Some(Turns::Exclusive),
        Some("readwrite") => Some(Turns::ReadWrite),
        _ => None,
    }
}

/// Nothing is trimmed where nothing is verified or no backlog says when, as in fio.
fn trim_back(s: &Section, verifies: bool) -> Option<TrimBack> {
    let number = |name| s.positive(name);
    let (percent, backlog) = (number("trim_percentage")?, number("trim_backlog")?);
    verifies.then(|| TrimBack {
        percent,
        backlog,
        batch: number("trim_backlog_batch").unwrap_or(backlog),
        zero: s.flag("trim_verify_zero", true),
    })
}

/// Rates that hold only one of two directions back, and those of sizes that differ: fio counts bytes, also where I/Os
/// are asked for, of the smallest size then.
fn rates_by_bytes(s: &Section, does: [bool; 3], sizes: &[Sizes; 3]) -> Option<[f64; 3]> {
    let used: Vec<usize> = (0..3).filter(|i| does[*i]).collect();
    let alike = matches!(sizes[used[0]], Sizes::One(_));
    let alike = alike && used.iter().all(|i| sizes[*i] == sizes[used[0]]);
    if s.get("rate_process") == Some("poisson") || (alike && used.len() < 2 && !skips_missed(s)) {
        return None;
    }
    let of = |n: &str| s.per_direction(n).filter(|v| v.iter().any(|r| *r > 0));
    let rates = match (of("rate"), of("rate_iops")) {
        (Some(r), _) => r.map(|v| v as f64),
        (None, Some(r)) => [0, 1, 2].map(|i: usize| r[i] as f64 * sizes[i].min() as f64),
        (None, None) => return None,
    };
    let holds = |i: usize| does[i] && rates[i] == 0.0;
    (!alike || holds(0) || holds(1) || skips_missed(s)).then_some(rates)
}

/// The schedule moves on by the time of thinking (`rate_ignore_thinktime`).
fn skips_missed(s: &Section) -> bool {
    s.flag("rate_ignore_thinktime", false) && s.nanos("thinktime").unwrap_or(0) > 0
}

fn check(s: &Section, pattern: Option<Pattern>) -> Result<Option<Check>, FioError> {
    let Some(sum) = s.get("verify").and_then(Sum::named) else {
        return Ok(None);
    };
    let backlog = s.number("verify_backlog").unwrap_or(0);
    let check = Check {
        sum,
        interval: s.number("verify_interval").unwrap_or(0).min(1 << 30) as u32,
        offset: s.number("verify_offset").unwrap_or(0).min(1 << 30) as u32,
        pattern: pattern.map(|p| p.every(s.number("verify_pattern_interval").unwrap_or(0))),
        compress: s.number("buffer_compress_percentage").unwrap_or(0),
        backlog,
        batch: s.positive("verify_backlog_batch").unwrap_or(backlog),
        read_back: s.flag("do_verify", true),
        only: s.flag("verify_only", false),
        sequence: s.flag("verify_write_sequence", true),
    };
    let smallest = sizes(s)?.iter().map(Sizes::min).min().unwrap_or(4096);
    let step = if check.interval > 0 {
        smallest.min(u64::from(check.interval))
    } else {
        smallest
    };
    if (step as usize) < check.smallest() {
        return Err(s.invalid("verify",
            format!(
                "blocks of {step} bytes have no room for its header of {} bytes: choose a larger bs or verify_interval",
                check.smallest() - 1
            ),
        ));
    }
    Ok(Some(check))
}
