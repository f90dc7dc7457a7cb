//! Zones of a device with zones of its own (`zonemode=zbd`): writes go to its write pointers, one in each zone at a time, and a
//! zone that starts again is reset. All jobs of a run see the same pointers, as in fio.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fathom_host::{Zone, ZoneAction, zones};
use fathom_telemetry::Op;

use super::random::Stream;
use super::zones::Zoned;

/// The zones of a device.
#[derive(Debug)]
pub(crate) struct Device {
    file: Arc<File>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    zones: Vec<Zone>,
    /// Writes and reads under way in each.
    flying: Vec<[u32; 2]>,
    /// Zones that jobs write, by number, and how many each job may at most.
    open: Vec<usize>,
    resets: u64,
    /// Range of the jobs that reset zones by the share that is written.
    shared: Option<(u64, u64)>,
}

/// Devices that some job of this process uses, by their numbers.
static KNOWN: Mutex<Option<HashMap<u64, Weak<Device>>>> = Mutex::new(None);

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that died has left is still what the device was told.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// The device behind a file, as the run's other jobs see it; `None` where it has no zones.
    pub(crate) fn of(file: &Arc<File>) -> Option<Arc<Self>> {
        let number = file.metadata().ok()?.rdev();
        let mut known = lock(&KNOWN);
        let known = known.get_or_insert_default();
        if let Some(device) = known.get(&number).and_then(Weak::upgrade) {
            return Some(device);
        }
        let zones = zones::report(file).ok().filter(|z| !z.is_empty())?;
        let device = Arc::new(Self {
            file: file.clone(),
            state: Mutex::new(State {
                flying: vec![[0; 2]; zones.len()],
                open: Vec::new(),
                zones,
                resets: 0,
                shared: None,
            }),
        });
        known.insert(number, Arc::downgrade(&device));
        Some(device)
    }

    /// The whole zones of a range, and bytes that can be written in them; `None` where there is none.
    pub(crate) fn whole(&self, (start, end): (u64, u64)) -> Option<((u64, u64), u64)> {
        let s = lock(&self.state);
        let inside = |z: &&Zone| z.start >= start && z.start + z.size <= end;
        let zones: Vec<&Zone> = s.zones.iter().filter(inside).collect();
        let (first, last) = (zones.first()?, zones.last()?);
        let bytes = zones.iter().map(|z| z.capacity).sum();
        Some(((first.start, last.start + last.size), bytes))
    }

    /// That a job resets zones by the share of this range that is written.
    ///
    /// # Errors
    /// Where another job does so in another range: the shares would not be those of either.
    pub(crate) fn share(&self, range: (u64, u64)) -> Result<(), String> {
        let shared = *lock(&self.state).shared.get_or_insert(range);
        let same = shared == range;
        same.then_some(()).ok_or_else(|| {
            "jobs with zone_reset_threshold have different write ranges: give them one range".into()
        })
    }

    /// Nothing of a zone is written any more. Nothing is under way there.
    fn reset(&self, s: &mut State, zone: usize) -> io::Result<()> {
        let z = &mut s.zones[zone];
        zones::act(&self.file, ZoneAction::Reset, z.start, z.size)?;
        z.pointer = z.start;
        s.open.retain(|o| *o != zone);
        s.resets += 1;
        Ok(())
    }
}

/// Whether no more zones may be open; any number may where `max` is 0.
fn is_full(open: usize, max: u64) -> bool {
    max > 0 && open as u64 >= max
}

/// Where an I/O goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    At(u64, u64),
    /// Something must complete first.
    Busy,
    None,
}

/// One job's way over its range of zones.
#[derive(Debug)]
pub(super) struct OnDevice {
    how: Zoned,
    device: Arc<Device>,
    /// Its zones.
    first: usize,
    count: usize,
    current: usize,
    read_at: u64,
    /// Zones that this job writes.
    open: Vec<usize>,
    /// Writes until the next reset of `zone_reset_frequency`.
    until_reset: u64,
    /// Zones that it reset before it wrote.
    pub(super) resets: u64,
}

impl OnDevice {
    /// The zones from byte `start` to `end`. A job that writes and verifies finds them empty, as in fio.
    pub(super) fn new(
        how: Zoned,
        device: Arc<Device>,
        (start, end): (u64, u64),
        writes: bool,
    ) -> Self {
        let mut own = {
            let s = lock(&device.state);
            let inside = |z: &&Zone| z.start >= start && z.start + z.size <= end;
            let first = s.zones.iter().position(|z| inside(&z));
            Self {
                how,
                first: first.unwrap_or(0),
                count: s.zones.iter().filter(inside).count(),
                current: 0,
                read_at: 0,
                open: Vec::new(),
                until_reset: 0,
                resets: 0,
                device: device.clone(),
            }
        };
        if writes {
            let mut s = lock(&device.state);
            for zone in own.first..own.first + own.count {
                let z = s.zones[zone];
                let begun = z.is_sequential() && z.pointer > z.start;
                if begun && how.kept && s.flying[zone] == [0; 2] {
                    own.resets += u64::from(device.reset(&mut s, zone).is_ok());
                } else if begun && z.room() > 0 && !s.open.contains(&zone) {
                    // It is active already.
                    s.open.push(zone);
                }
            }
        }
        own
    }

    /// Where the next write goes: `want` bytes, fewer at the end of a zone, but at least `smallest`.
    pub(super) fn write(
        &mut self,
        random: bool,
        (want, smallest): (u64, u64),
        stream: &mut Stream,
    ) -> Found {
        if self.count == 0 {
            return Found::None;
        }
        let device = self.device.clone();
        let s = &mut *lock(&device.state);
        let mut k = if random {
            stream.below(self.count as u64) as usize
        } else {
            self.current
        };
        if !s.zones[self.zone(k)].is_sequential() {
            self.current = k;
            return self.conventional(s, k, random, want, stream);
        }
        // Others may have filled, and so closed, what this job has opened.
        self.open.retain(|zone| s.open.contains(zone));
        k = match self.where_open(s, k, stream) {
            Ok(k) => k,
            Err(found) => return found,
        };
        if !self.fits(s, k, smallest) {
            k = self.with_room(s, k, random, smallest);
        }
        let zone = self.zone(k);
        if s.flying[zone][1] > 0 {
            return Found::Busy;
        }
        if !self.fits(s, k, smallest) || self.is_due_for_reset(s) {
            if s.flying[zone][0] > 0 {
                return Found::Busy;
            }
            if device.reset(s, zone).is_err() {
                return Found::None;
            }
            self.resets += 1;
        }
        if !self.fits(s, k, smallest) {
            return Found::None;
        }
        if !self.open.contains(&zone) {
            self.open.push(zone);
        }
        if !s.open.contains(&zone) {
            s.open.push(zone);
        }
        self.current = k;
        let z = &mut s.zones[zone];
        let at = z.pointer;
        let room = z.end() - at;
        let want = want.min(room / smallest * smallest);
        z.pointer += want;
        s.flying[zone][1] += 1;
        Found::At(at, want)
    }

    /// The device's number of one of this job's zones.
    fn zone(&self, k: usize) -> usize {
        self.first + k % self.count
    }

    fn fits(&self, s: &State, k: usize, bytes: u64) -> bool {
        let z = &s.zones[self.zone(k)];
        z.end() - z.pointer >= bytes
    }

    /// The zone itself, or where no more may be open, one that is.
    fn where_open(&self, s: &State, k: usize, stream: &mut Stream) -> Result<usize, Found> {
        let zone = self.zone(k);
        let own_full = is_full(self.open.len(), self.how.job_open_max);
        let all_full = is_full(s.open.len(), self.how.open_max) && !s.open.contains(&zone);
        if !(own_full || all_full) || self.open.contains(&zone) {
            return Ok(k);
        }
        // As many as may be are open: one of them goes on, whichever job has opened it.
        let open = if own_full { &self.open } else { &s.open };
        let inside = |zone: &&usize| (self.first..self.first + self.count).contains(*zone);
        let here: Vec<usize> = open.iter().filter(inside).copied().collect();
        if here.is_empty() {
            // Those of other ranges may become full.
            return Err(match s.flying.iter().any(|f| f[1] > 0) {
                true => Found::Busy,
                false => Found::None,
            });
        }
        Ok(here[stream.below(here.len() as u64) as usize] - self.first)
    }

    /// The zone after a full one, or the full one itself, which then starts again.
    fn with_room(&self, s: &State, k: usize, random: bool, smallest: u64) -> usize {
        // The one that is full makes room for another one only once it is reset or finished.
        let may_open = !is_full(s.open.len(), self.how.open_max);
        let next = (1..=self.count).map(|i| (k + i) % self.count).find(|k| {
            let zone = self.zone(*k);
            let open = may_open || s.open.contains(&zone);
            open && s.zones[zone].is_sequential() && self.fits(s, *k, smallest)
        });
        match next {
            Some(next) if self.how.skip == 0 && !random || self.how.kept => next,
            _ if !random && self.how.skip > 0 => self.how.after(k, self.count),
            _ => k,
        }
    }

    /// Whether `zone_reset_threshold` and `zone_reset_frequency` ask for a reset before this write.
    fn is_due_for_reset(&mut self, s: &State) -> bool {
        let (threshold, frequency) = self.how.reset;
        if frequency <= 0.0 {
            return false;
        }
        let own = &s.zones[self.first..self.first + self.count];
        let sequential = || own.iter().filter(|z| z.is_sequential());
        let written: u64 = sequential().map(Zone::written).sum();
        let all: u64 = own.iter().map(|z| z.size).sum();
        if (written as f64) < all as f64 * threshold {
            return false;
        }
        self.until_reset = self.until_reset.saturating_sub(1);
        if self.until_reset > 0 {
            return false;
        }
        self.until_reset = (1.0 / frequency) as u64;
        true
    }

    /// A zone without a pointer is written anywhere.
    fn conventional(
        &mut self,
        s: &mut State,
        k: usize,
        random: bool,
        want: u64,
        stream: &mut Stream,
    ) -> Found {
        let zone = self.first + k;
        let z = s.zones[zone];
        let blocks = z.capacity / want.max(1);
        if blocks == 0 {
            return Found::None;
        }
        let at = match random {
            true => stream.below(blocks) * want,
            false => self.read_at % (blocks * want),
        };
        if !random {
            self.read_at = at + want;
            if at + 2 * want > z.capacity {
                (self.read_at, self.current) = (0, (k + 1) % self.count);
            }
        }
        s.flying[zone][1] += 1;
        Found::At(z.start + at, want)
    }

    /// Where the next read goes.
    pub(super) fn read(
        &mut self,
        random: bool,
        want: u64,
        again: bool,
        stream: &mut Stream,
    ) -> Found {
        let device = self.device.clone();
        let s = &mut *lock(&device.state);
        let own = self.first..self.first + self.count;
        // What is being written cannot be read yet.
        let limit = |s: &State, zone: usize| {
            let z = &s.zones[zone];
            match (self.how.beyond, s.flying[zone][1]) {
                (true, _) => z.size,
                (_, 0) => z.written(),
                _ => 0,
            }
        };
        let take = |s: &mut State, zone: usize, at: u64| {
            s.flying[zone][0] += 1;
            Found::At(s.zones[zone].start + at, want)
        };
        let none = |s: &State| match own.clone().any(|zone| s.flying[zone][1] > 0) {
            true => Found::Busy,
            false => Found::None,
        };
        if random {
            let blocks = |s: &State, zone: usize| limit(s, zone) / want.max(1);
            let total: u64 = own.clone().map(|zone| blocks(s, zone)).sum();
            if total == 0 {
                return none(s);
            }
            let mut pick = stream.below(total);
            for zone in own.clone() {
                let n = blocks(s, zone);
                if pick < n {
                    return take(s, zone, pick * want);
                }
                pick -= n;
            }
            return Found::None;
        }
        for turn in 0..2 {
            for zone in own.clone().step_by(1 + self.how.skip as usize) {
                let z = s.zones[zone];
                let base = z.start - s.zones[self.first].start;
                let at = self.read_at.max(base);
                if at + want <= base + limit(s, zone) {
                    self.read_at = at + want;
                    return take(s, zone, at - base);
                }
                self.read_at = self.read_at.max(base + z.size);
            }
            if !again || turn > 0 {
                break;
            }
            self.read_at = 0;
        }
        none(s)
    }

    /// The next zone that is emptied, whole; drawn ones hold something.
    pub(super) fn trim(&mut self, random: bool, again: bool, stream: &mut Stream) -> Found {
        let device = self.device.clone();
        let s = &mut *lock(&device.state);
        let zone = if random {
            let k = stream.below(self.count.max(1) as u64) as usize;
            let around = (0..self.count).map(|i| self.first + (k + i) % self.count);
            let written =
                |zone: &usize| s.zones[*zone].is_sequential() && s.zones[*zone].written() > 0;
            around.clone().find(written)
        } else {
            if again && self.current >= self.count {
                self.current = 0;
            }
            let rest = self.first + self.current..self.first + self.count;
            rest.clone().find(|zone| s.zones[*zone].is_sequential())
        };
        let Some(zone) = zone else {
            return Found::None;
        };
        // What is under way there would fail.
        if s.flying[zone] != [0; 2] {
            return Found::Busy;
        }
        self.current = zone - self.first + 1;
        s.flying[zone][1] += 1;
        Found::At(s.zones[zone].start, s.zones[zone].size)
    }

    /// Whether nothing of its range can be read.
    pub(super) fn is_empty(&self) -> bool {
        let s = lock(&self.device.state);
        let own = &s.zones[self.first..self.first + self.count];
        !self.how.beyond && own.iter().all(|z| z.written() == 0)
    }

    /// An I/O has completed; `smallest` is the least that would be written next.
    pub(super) fn done(&mut self, offset: u64, op: Op, good: bool, smallest: u64) {
        let device = self.device.clone();
        let s = &mut *lock(&device.state);
        let inside = |z: &Zone| (z.start..z.start + z.size).contains(&offset);
        let Some(zone) = s.zones.iter().position(inside) else {
            return;
        };
        let reads = op == Op::Read;
        let under_way = &mut s.flying[zone][usize::from(!reads)];
        *under_way = under_way.saturating_sub(1);
        if reads || !s.zones[zone].is_sequential() {
            return;
        }
        if !good && let Ok(now) = zones::report(&device.file) {
            // The device knows where its pointer is.
            s.zones[zone] = now.get(zone).copied().unwrap_or(s.zones[zone]);
        }
        let z = &mut s.zones[zone];
        if op == Op::Trim {
            if good {
                z.pointer = z.start;
                self.resets += 1;
                s.open.retain(|o| *o != zone);
            }
            return;
        }
        let room = z.end() - z.pointer;
        if room > 0 && room < smallest {
            // What no block fits into is given up, so that the zone is not open any more, as in fio.
            if zones::act(&device.file, ZoneAction::Finish, z.start, z.size).is_ok() {
                z.pointer = z.end();
            }
        }
        if z.end() - z.pointer < smallest {
            s.open.retain(|o| *o != zone);
            self.open.retain(|o| *o != zone);
        }
    }
}
