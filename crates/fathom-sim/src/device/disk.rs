//! Hard disks: seek, rotation, zones, write cache, reordering of a deep queue.

use fathom_io::load::rng::Rng;
use fathom_telemetry::Op;

use crate::model::Hdd;

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    capacity: f64,
    revolution: f64,
    track_seek: f64,
    full_seek: f64,
    /// ns per byte at the first and the last sector.
    outer: f64,
    inner: f64,
    command: u64,
    cache: f64,
    rng: Rng,
    pub(super) busy: u64,
    /// Completion times of what is queued, oldest first.
    queue: std::collections::VecDeque<u64>,
    head: u64,
    /// When cached writes will be on the platters.
    drained: u64,
    cached_end: u64,
    pub(super) written: u64,
    pub(super) factor: u64,
}

impl Disk {
    pub(super) fn new(h: &Hdd, capacity: u64, rng: Rng) -> Self {
        Self {
            capacity: capacity as f64,
            revolution: 60e9 / h.rpm,
            track_seek: h.track_seek_ms * 1e6,
            full_seek: h.full_seek_ms * 1e6,
            outer: 1e3 / h.outer_mb_per_s,
            inner: 1e3 / h.inner_mb_per_s,
            command: (h.command_us * 1e3) as u64,
            cache: h.cache_bytes as f64,
            rng,
            busy: 0,
            queue: std::collections::VecDeque::new(),
            head: 0,
            drained: 0,
            cached_end: u64::MAX,
            written: 0,
            factor: 1,
        }
    }

    fn transfer(&self, offset: u64, len: u32) -> u64 {
        let zone = (offset as f64 / self.capacity).min(1.0);
        ((self.outer + (self.inner - self.outer) * zone) * f64::from(len)) as u64
    }

    /// Seek and rotation to `offset`; with `queued` requests to choose from, the nearest goes first,
    /// which shortens the way by about the fourth root.
    fn position(&mut self, offset: u64, queued: usize) -> u64 {
        let distance = (offset.abs_diff(self.head) as f64 / self.capacity).min(1.0);
        let seek = self.track_seek + (self.full_seek - self.track_seek) * distance.sqrt();
        let turn = self.revolution * self.rng.unit();
        ((seek + turn) / (queued.max(1) as f64).sqrt().sqrt()) as u64
    }

    pub(super) fn serve(&mut self, at: u64, op: Op, offset: u64, len: u32) -> u64 {
        while self.queue.front().is_some_and(|d| *d <= at) {
            self.queue.pop_front();
        }
        match op {
            Op::Read => {
                let start = at.max(self.busy) + self.command;
                let way = if offset == self.head {
                    0
                } else {
                    self.position(offset, self.queue.len() + 1)
                };
                self.busy = start + way + self.transfer(offset, len);
                self.head = offset + u64::from(len);
                self.queue.push_back(self.busy);
                self.busy
            }
            Op::Write => {
                self.written += u64::from(len) * self.factor;
                // The cache gathers about 32 writes that are put in order.
                let way = if offset == self.cached_end {
                    0
                } else {
                    self.position(offset, 32)
                };
                self.cached_end = offset + u64::from(len);
                self.head = self.cached_end;
                let transfer = self.transfer(offset, len);
                let cost = way + transfer;
                self.drained = at.max(self.drained).max(self.busy) + cost;
                // So much of the drain may be outstanding: the cache's bytes at this cost per byte.
                let room = (self.cache / f64::from(len.max(1)) * cost as f64) as u64;
                (at + self.command + transfer / 8).max(self.drained.saturating_sub(room))
            }
            Op::Trim => at + self.command,
            Op::Sync => at.max(self.drained).max(self.busy) + self.command,
        }
    }
}
