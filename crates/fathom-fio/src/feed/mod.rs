//! Guides the driver where a plain job is not enough: fio's sequences, zones, patterns, verification,
//! replay, flow and latency target. It decides which I/O and what it carries; the driver does and measures it.

mod begin;
pub(crate) mod classes;
mod crc;
pub(crate) mod device;
pub(crate) mod lifetimes;
mod lines;
pub(crate) mod locks;
pub(crate) mod pattern;
pub(crate) mod phases;
mod pilot;
mod places;
pub(crate) mod random;
pub(crate) mod replay;
mod skew;
pub(crate) mod sprandom;
pub(crate) mod sums;
pub(crate) mod trims;
mod turns;
pub(crate) mod verify;
pub(crate) mod zones;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fathom_io::load::{Next, Pass, PilotIo};
use fathom_telemetry::{Nanos, Op};

use crate::output::{EachLog, Outputs};
use crate::translate::Errors;
use crate::translate::recipe::{Recipe, Service, Sizes};
pub use turns::FlowGroup;

use begin::{PLACES_PER_FILE, places, skewed_files, spread, steps, streams, taken};
use phases::Phases;
use places::{Place, Turn};
use random::{Seeds, Streams};
use replay::Replay;
use skew::Skew;
use turns::{Part, Seeker};
use verify::History;

/// "Connection timed out": fio's error for an I/O beyond `max_latency`.
pub(crate) const TOO_SLOW: i64 = -110;

/// What one thread takes.
pub(crate) type Handover<T> = Arc<Mutex<Option<T>>>;

/// What a feed is made from.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) recipe: Arc<Recipe>,
    /// First and end of the range in each file.
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) names: Vec<PathBuf>,
    pub(crate) replay: Option<Arc<Replay>>,
    /// Bytes of all passes, and passes.
    pub(crate) amount: u64,
    pub(crate) loops: u64,
    pub(crate) ios: Option<u64>,
    pub(crate) time_based: bool,
    /// The amount (`io_size`) counts, not the end of the files.
    pub(crate) again: bool,
    pub(crate) depth: u32,
    pub(crate) seeds: Seeds,
    pub(crate) thread: u16,
    pub(crate) moves_data: bool,
    pub(crate) flow: Option<Arc<FlowGroup>>,
    pub(crate) each: Option<Handover<EachLog>>,
    /// The log of its I/Os, for the thread that does them.
    pub(crate) log: Option<Handover<replay::Writer>>,
    /// Depth that a latency target led to.
    pub(crate) found_depth: Arc<AtomicU64>,
    /// Verification that ended short of the write's amount, by a state file.
    pub(crate) known_writes: Option<u64>,
    /// Writes that were done, for a state file.
    pub(crate) writes_done: Arc<AtomicU64>,
    /// Zones that started again.
    pub(crate) zone_resets: Arc<AtomicU64>,
    /// Times of the load and of reading back.
    pub(crate) phases: Arc<Phases>,
    /// Latencies by priority.
    pub(crate) classes: classes::Classes,
    /// The locks of its files, where jobs take turns.
    pub(crate) locks: Vec<Arc<locks::FileLock>>,
    /// What becomes of errors.
    pub(crate) errors: Errors,
    /// Says each I/O (`--debug=io`).
    pub(crate) says_ios: Option<fn(&str)>,
    /// The zones of its files, where they have any of their own and they matter.
    pub(crate) devices: Vec<Option<Arc<device::Device>>>,
    /// Its files, where each pass finds them empty.
    pub(crate) emptied: Vec<Arc<File>>,
    /// Trims that its blocks lived through.
    pub(crate) lifetimes: lifetimes::SharedLifetimes,
    /// Not a model's time.
    pub(crate) real_time: bool,
    /// Where files beside the data go.
    pub(crate) outputs: Outputs,
}

/// One thread's feed.
pub(crate) struct FioFeed {
    order: Order,
    streams: Streams,
    places: Vec<Place>,
    /// The file under way, and the I/Os that it gets before it is the next one's turn.
    file: usize,
    file_left: u64,
    next_file: usize,
    /// Files that were begun and are not complete, where only some may be open.
    open: Vec<bool>,
    /// Reads, writes and trims that were begun.
    issued: [u64; 3],
    /// The direction of a mix, which holds until it has so many.
    mix: usize,
    mix_until: u64,
    left: u64,
    /// What was left when files began again before their time.
    left_then: u64,
    loops_left: u64,
    ios_left: u64,
    run_left: u64,
    zone_bytes: u64,
    trim_next: bool,
    flying: u32,
    reading_back: bool,
    /// The last I/O reads back: no rate holds for it.
    checks: bool,
    /// When the load, or reading back, began.
    phase_began: Nanos,
    history: History,
    since_batch: u64,
    part: Option<Part>,
    seeker: Option<Seeker>,
    steps: VecDeque<(Nanos, PilotIo)>,
    origin: Nanos,
    think_left: u64,
    /// Think once nothing is under way any more.
    think_due: bool,
    last_think: Nanos,
    resume: Nanos,
    due: [Nanos; 3],
    log: Option<replay::Writer>,
    each: Option<EachLog>,
    /// Sequential files that are complete in this pass.
    complete: Vec<bool>,
    /// A pass begins with the next I/O.
    passed: Option<Pass>,
    /// Replay ran out and its I/Os are done.
    stopped: bool,
    reads_verified: u64,
    /// How files are drawn, where not all alike.
    skewed_files: Option<Skew>,
    /// Priorities of I/Os under way, by place.
    priorities: BTreeMap<(u16, u64), u16>,
    classes: Option<classes::Seen>,
    taking: Option<locks::Taking>,
    spread: Option<sprandom::Spread>,
    trims: trims::Trims,
    blocks: Option<lifetimes::Blocks>,
    lines: Option<lines::Lines>,
    /// I/Os under way, and the one that waits for those that it overlaps (`serialize_overlap`).
    under_way: Vec<PilotIo>,
    waiting: Option<PilotIo>,
    /// Every zone that could be next has an I/O that must complete first.
    busy: bool,
}

/// Whether two I/Os touch the same bytes; as in fio, whatever they do there.
fn overlap(a: &PilotIo, b: &PilotIo) -> bool {
    let end = |io: &PilotIo| io.offset + u64::from(io.len);
    a.file == b.file && a.offset < end(b) && b.offset < end(a)
}

impl FioFeed {
    pub(crate) fn new(order: Order) -> Self {
        let r = &order.recipe;
        let places = places(&order);
        let part = order.flow.clone().zip(r.flow).map(|(g, f)| Part::new(g, f));
        let found = &order.found_depth;
        let seeker = r.latency.map(|goal| Seeker::new(goal, order.depth, found));
        let complete = vec![false; places.len()];
        let pairs = if r.pairs { 2 } else { 1 };
        // Nothing but time ends a job by time.
        let left = if order.time_based {
            u64::MAX
        } else {
            order.amount.saturating_mul(pairs)
        };
        let ios_left = order.ios.filter(|_| !order.time_based);
        Self {
            streams: streams(&order),
            skewed_files: skewed_files(&order),
            places,
            file: 0,
            file_left: 0,
            next_file: 0,
            open: vec![false; order.ranges.len()],
            issued: [0; 3],
            mix: 0,
            mix_until: 0,
            left,
            left_then: u64::MAX,
            loops_left: order.loops,
            ios_left: ios_left.unwrap_or(u64::MAX),
            run_left: 1,
            zone_bytes: 0,
            trim_next: true,
            flying: 0,
            reading_back: false,
            checks: false,
            phase_began: Nanos::ZERO,
            history: History::in_order(r.map || !r.random),
            since_batch: 0,
            part,
            seeker,
            steps: steps(&order),
            origin: Nanos::ZERO,
            think_left: r.think.blocks,
            think_due: false,
            last_think: Nanos::ZERO,
            resume: Nanos::ZERO,
            due: [Nanos::ZERO; 3],
            log: taken(&order.log),
            each: taken(&order.each),
            complete,
            passed: None,
            stopped: false,
            reads_verified: 0,
            priorities: BTreeMap::new(),
            classes: (r.priorities.is_some()).then(|| classes::Seen::new(order.classes.clone())),
            taking: r
                .turns
                .map(|turns| locks::Taking::new(turns, order.locks.clone())),
            spread: spread(&order),
            trims: trims::Trims::default(),
            lines: order.says_ios.map(lines::Lines::new),
            under_way: Vec::new(),
            waiting: None,
            busy: false,
            blocks: r.lifetimes.then(|| {
                let range = order.ranges.first().copied().unwrap_or_default();
                lifetimes::Blocks::new(range, r.sizes[2].min(), order.lifetimes.clone())
            }),
            order,
        }
    }

    /// Whether a plain job decides where and how much.
    fn native(&self) -> bool {
        self.order.recipe.native && self.order.replay.is_none()
    }

    fn direction(&mut self) -> usize {
        let r = &self.order.recipe;
        if r.pairs {
            return if self.trim_next { 2 } else { 1 };
        }
        match r.does {
            [true, true, _] => {
                // One direction holds until it has its share of those done when it began, as in fio.
                if self.issued[self.mix] >= self.mix_until {
                    let drawn = usize::from(self.streams.mix.percent() > r.read_share);
                    if drawn != self.mix {
                        let other = if self.mix == 0 {
                            100 - r.read_share
                        } else {
                            r.read_share
                        };
                        self.mix_until = self.issued[self.mix] * other / 100;
                    }
                    self.mix = drawn;
                }
                self.mix
            }
            [true, ..] => 0,
            [_, true, _] => 1,
            _ => 2,
        }
    }

    /// Chooses a file; `None` when all are complete.
    fn choose_file(&mut self) -> Option<usize> {
        let n = self.places.len();
        if n == 1 {
            return (!self.complete[0]).then_some(0);
        }
        if self.complete.iter().all(|c| *c) {
            return None;
        }
        let service = self.order.recipe.service;
        let most = self.order.recipe.open_files;
        let open = |all: &[bool]| all.iter().filter(|o| **o).count() as u64;
        let full = most < n as u64 && open(&self.open) >= most;
        if !self.complete[self.file] && self.file_left > 0 {
            self.file_left -= 1;
            return Some(self.file);
        }
        self.file = match service {
            Service::Random(_) | Service::By(..) => loop {
                let drawn = match &mut self.skewed_files {
                    Some(skew) => skew.next() / PLACES_PER_FILE,
                    None => self.streams.file.below(n as u64),
                };
                let drawn = drawn as usize;
                if !self.complete[drawn] && (self.open[drawn] || !full) {
                    break drawn;
                }
            },
            Service::RoundRobin(_) | Service::Sequential => loop {
                let next = self.next_file;
                self.next_file = (next + 1) % n;
                if !self.complete[next] && (self.open[next] || !full) {
                    break next;
                }
            },
        };
        self.file_left = match service {
            Service::Random(each) | Service::RoundRobin(each) => each - 1,
            Service::By(..) => 0,
            Service::Sequential => u64::MAX,
        };
        self.open[self.file] = true;
        Some(self.file)
    }

    /// The next I/O of the pass; `None` when it is complete.
    fn generate(&mut self) -> Option<PilotIo> {
        if self.left == 0 || self.ios_left == 0 {
            return None;
        }
        loop {
            let direction = self.direction_now();
            let pair = self.order.recipe.pairs && direction == 1;
            let file = if pair {
                self.file
            } else {
                match self.choose_file() {
                    Some(f) => f,
                    None if self.once_more() => continue,
                    None => return None,
                }
            };
            self.run_left -= 1;
            let jump = self.run_left == 0;
            if jump {
                self.run_left = self.order.recipe.run_length;
            }
            let found = self.draw(direction, file, jump);
            let Some((offset, len)) = found else {
                if self.places[file].is_busy() {
                    // As if it had not been asked for.
                    self.run_left = if jump { 1 } else { self.run_left + 1 };
                    self.busy = true;
                    return None;
                }
                self.leave(file);
                continue;
            };
            self.account(direction, file, len);
            let r = &self.order.recipe;
            let priority = match &r.priorities {
                Some(p) => p.pick(direction, len, &mut self.streams.priority),
                None => 0,
            };
            if priority > 0 {
                self.priorities.insert((file as u16, offset), priority);
            }
            return Some(PilotIo {
                op: [Op::Read, Op::Write, Op::Trim][direction],
                file: file as u16,
                offset,
                len: len as u32,
                priority,
            });
        }
    }

    /// Reads while there is nothing to be read yet are writes, as in fio.
    fn direction_now(&mut self) -> usize {
        match self.direction() {
            0 if self.order.recipe.does[1] && self.places.iter().all(Place::is_empty) => 1,
            direction => direction,
        }
    }

    /// Draws offset and length in a file, which may have no more of them; `jump`: where the run of I/Os that follow
    /// each other ends.
    fn draw(&mut self, direction: usize, file: usize, jump: bool) -> Option<(u64, u64)> {
        let r = &*self.order.recipe;
        let chance = r.percent_random[direction];
        let random = r.random
            && jump
            && (chance == 100 || self.streams.motion[direction].percent() <= chance);
        if let Some(s) = &mut self.spread {
            let (start, block) = (self.order.ranges[0].0, r.sizes[1].min());
            return s.next().map(|n| (start + n * block, block));
        }
        let turn = Turn {
            direction,
            issued: self.issued[direction],
            jump,
            random,
            again: self.order.time_based && self.places.len() == 1,
            renewed: self.order.time_based || self.is_skewed(),
        };
        self.places[file].next(r, turn, &mut self.zone_bytes, &mut self.streams)
    }

    fn is_skewed(&self) -> bool {
        matches!(self.order.recipe.service, Service::By(..))
    }

    /// A file has no more; those of a skewed choice begin again, where anything fits into them.
    fn leave(&mut self, file: usize) {
        if self.is_skewed() && self.places[file].is_begun() {
            self.places[file].reset();
        } else {
            self.complete[file] = true;
            self.open[file] = false;
        }
    }

    /// What changes with an I/O that begins.
    fn account(&mut self, direction: usize, file: usize, len: u64) {
        let r = &self.order.recipe;
        if self.places[file].wrapped() {
            self.passed = Some(Pass::Again);
            if r.check.as_ref().is_none_or(|c| c.backlog == 0) {
                // A job by time reads nothing back.
                self.history.forget();
            }
        }
        if r.pairs {
            self.trim_next = !self.trim_next;
        }
        self.left = self.left.saturating_sub(len);
        self.ios_left -= 1;
        self.issued[direction] += 1;
        if r.zoned.is_some() {
            let resets = self.places.iter().map(Place::zone_resets).sum();
            self.order.zone_resets.store(resets, Ordering::Relaxed);
        }
    }

    /// A pass draws the numbers of the first again, where that was asked for.
    fn seed_again(&mut self) {
        if self.order.recipe.repeats {
            self.streams = streams(&self.order);
            self.skewed_files = skewed_files(&self.order);
        }
        self.mix_until = 0;
        self.complete.fill(false);
        self.open.fill(false);
        for p in &mut self.places {
            p.reset();
        }
        self.passed = Some(Pass::Again);
    }

    /// All files are complete, and what is left of io_size is a block at least: they begin again, as in fio.
    fn once_more(&mut self) -> bool {
        let r = &self.order.recipe;
        let largest = r.used_sizes().map(Sizes::max).max().unwrap_or(u64::MAX);
        let moved = self.left < self.left_then;
        if !self.order.again || self.order.time_based || self.left < largest || !moved {
            return false;
        }
        self.left_then = self.left;
        self.seed_again();
        true
    }

    fn begin_pass(&mut self) {
        self.left_then = u64::MAX;
        self.trim_next = true;
        self.zone_bytes = 0;
        self.seed_again();
        self.spread = spread(&self.order);
        for file in &self.order.emptied {
            // What cannot be emptied (a device) stays, as in fio.
            let _ = file.set_len(0);
        }
    }

    /// A block to trim again, between writes that are verified.
    fn trim_back(&mut self) -> Option<PilotIo> {
        let terms = self.order.recipe.trim_back.filter(|_| !self.reading_back)?;
        let history = &self.history;
        let known = |place| history.trim(place).is_some();
        let place = self.trims.next(terms, history.logged(), known)?;
        self.history.trim(place)
    }

    /// Checks of verification between I/Os: a read to be done, or nothing.
    fn back(&mut self) -> Option<PilotIo> {
        let c = self.order.recipe.check.as_ref()?;
        if !c.read_back {
            return None;
        }
        if self.reading_back {
            return self.history.next(true);
        }
        if self.history.in_batch() {
            return self.history.next(false);
        }
        if c.backlog > 0 && self.since_batch >= c.backlog && self.history.len() as u64 >= c.backlog
        {
            self.since_batch = 0;
            self.history.begin_batch(c.batch as usize);
            return self.history.next(false);
        }
        None
    }

    fn replay(&mut self, now: Nanos) -> Next {
        let r = &self.order.recipe;
        match self.steps.front() {
            None => {
                if self.flying > 0 {
                    return Next::Drain;
                }
                if self.loops_left > 1 {
                    self.loops_left -= 1;
                    self.steps = steps(&self.order);
                    self.origin = now;
                    return Next::At(now);
                }
                Next::End
            }
            Some((at, io)) => {
                let at = self.origin
                    + Nanos(at.0 / 100 * r.time_scale + at.0 % 100 * r.time_scale / 100);
                if !r.no_stall && now < at {
                    return Next::At(at);
                }
                let io = *io;
                self.steps.pop_front();
                self.flying += 1;
                Next::Start(io)
            }
        }
    }

    /// The load ends and reading back begins, or the other way round.
    fn turn(&mut self, now: Nanos, reading_back: bool) {
        let time = now.since(self.phase_began);
        self.order.phases.turn(time, usize::from(reading_back));
        (self.phase_began, self.reading_back) = (now, reading_back);
    }

    /// Waits where one direction has a rate and it is its turn.
    fn pace(&mut self, io: &PilotIo, now: Nanos) {
        let Some(rates) = self.order.recipe.rates else {
            return;
        };
        let rate = rates.get(io.op as usize).copied().unwrap_or(0.0);
        if rate > 0.0 {
            let due = &mut self.due[io.op as usize];
            *due = Nanos(due.0.max(now.0.saturating_sub(1_000_000_000)))
                + Nanos((f64::from(io.len) / rate * 1e9) as u64);
            // The other direction waits along, as the order of a mix is drawn once.
            self.resume = self.resume.max(*due);
        }
    }

    fn custom(&mut self, now: Nanos) -> Next {
        self.checks = false;
        if let Some(io) = self.trim_back() {
            self.flying += 1;
            return Next::Start(io);
        }
        if let Some(io) = self.back() {
            self.flying += 1;
            self.checks = true;
            return Next::Start(io);
        }
        if !self.reading_back {
            let only = self.order.recipe.check.as_ref().is_some_and(|c| c.only);
            while let Some(io) = self.waiting.take().or_else(|| self.generate()) {
                if only && io.op == Op::Write {
                    self.history.wrote(&io, None);
                    continue;
                }
                if self.order.recipe.serial {
                    if self.under_way.iter().any(|other| overlap(other, &io)) {
                        self.waiting = Some(io);
                        return Next::Drain;
                    }
                    self.under_way.push(io);
                }
                self.flying += 1;
                self.pace(&io, now);
                return Next::Start(io);
            }
        }
        if self.flying > 0 {
            self.busy = false;
            return Next::Drain;
        }
        if std::mem::take(&mut self.busy) {
            // Another job's I/O.
            return Next::At(now + Nanos(20_000));
        }
        // Like fio, a job that writes for a time writes only.
        let backwards = self.order.recipe.check.as_ref();
        let backwards = backwards.is_some_and(|c| c.read_back) && !self.order.time_based;
        if !self.reading_back && self.history.len() > 0 && backwards {
            self.turn(now, true);
            self.passed = Some(Pass::ReadBack);
            return Next::At(now);
        }
        if self.reading_back {
            self.turn(now, false);
        }
        self.history.forget();
        let more = self.left > 0 && self.ios_left > 0;
        if (self.loops_left > 1 || self.order.time_based) && more {
            self.loops_left = self.loops_left.saturating_sub(1);
            self.begin_pass();
            return Next::At(now);
        }
        Next::End
    }

    /// The number that blocks of a read must have; `None` where it is not known.
    fn verdict(&mut self, io: &PilotIo, data: &[u8]) -> bool {
        let order = &self.order;
        let Some(check) = &order.recipe.check else {
            return true;
        };
        let back = self.history.checked(io);
        // A job that writes checks what it wrote, unless it has written there again since.
        if !order.moves_data || data.is_empty() || (back.is_none() && order.recipe.does[1]) {
            return true;
        }
        if back.is_some_and(|w| w.trimmed) {
            return data.iter().all(|b| *b == 0);
        }
        let known = back.and_then(|w| w.number);
        self.reads_verified += 1;
        if known.is_none() && order.known_writes.is_some_and(|n| self.reads_verified > n) {
            return true;
        }
        let good = check.holds(io, data, known.filter(|_| check.sequence && !check.only));
        if !good && order.recipe.dump {
            let name = order
                .names
                .get(usize::from(io.file))
                .map_or(Path::new("data"), |n| n);
            let place = verify::Dump {
                outputs: &order.outputs,
                file: name,
                offset: io.offset,
            };
            place.write("received", data);
            if let Some(number) = known {
                let mut wanted = vec![0; data.len()];
                check.fill(io, &mut wanted, number, order.thread);
                place.write("expected", &wanted);
            }
        }
        good
    }
}
