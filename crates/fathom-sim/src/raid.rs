//! Arrays as Linux md serves them: chunks, mirrors, parity, and the host's own limits.
//!
//! The host's numbers are fitted to Han et al. (Xeon Gold 6242, kernel 5.4, 512 KiB chunks); another
//! host has others.

use std::collections::VecDeque;

use fathom_io::load::rng::Rng;
use fathom_telemetry::Op;

use crate::device::Device;
use crate::fault::Faults;
pub use crate::level::Level;
use crate::model::Model;
use crate::pace::Pace;

/// Bytes of a chunk unless another size is asked for.
pub const CHUNK: u64 = 512 << 10;
/// What the host of an array contributes. Fitted to Han et al.'s host; another has other values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrayHost {
    /// Bytes of a chunk (Han 4.1: as large as a block).
    pub chunk: u64,
    /// Requests of [`CHUNK`] that the array has under way at once, direct and through the page cache; shorter ones
    /// count in proportion.
    pub tokens: [u32; 2],
    /// Most that the platform moves, GB/s, reading and writing (each copy of a mirror counts).
    pub platform_gb_per_s: [f64; 2],
    /// Page cache copies of readers, GB/s.
    pub page_cache_gb_per_s: f64,
    /// The one flusher of an array, GB/s.
    pub flusher_gb_per_s: f64,
    /// Serial time of the parity thread per 4 KiB of direct writes, ns, with one and two parities.
    pub parity_direct_ns: [f64; 2],
    /// The same for buffered writes: a constant part, and a part that is shared by the data members.
    pub parity_buffered_ns: [(f64, f64); 2],
}

impl Default for ArrayHost {
    fn default() -> Self {
        Self {
            chunk: CHUNK,
            tokens: [16, 6],
            platform_gb_per_s: [15.7, 15.8],
            page_cache_gb_per_s: 9.3,
            flusher_gb_per_s: 4.6,
            parity_direct_ns: [11_650.0, 16_700.0],
            parity_buffered_ns: [(5_250.0, 5_930.0), (6_580.0, 3_510.0)],
        }
    }
}

/// Part of a parity thread's direct write time that reconstructing a page takes (assumed: one of two passes).
const RECONSTRUCT: f64 = 0.5;

/// A request on its way into the array.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// What to do.
    pub op: Op,
    /// Byte offset in the array.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// Without the page cache.
    pub direct: bool,
}

/// A member that is being filled again.
#[derive(Debug, Clone, Copy)]
struct Rebuild {
    member: usize,
    /// Bytes of the member that are up to date.
    done: u64,
    /// When the next chunk is due.
    due: u64,
    /// ns from one chunk to the next.
    every: u64,
}

/// An array's state.
#[derive(Debug, Clone)]
pub struct Raid {
    level: Level,
    host: ArrayHost,
    members: Vec<Device>,
    member_bytes: u64,
    /// Members that are gone, or hold only what a rebuild has reached.
    gone: Vec<bool>,
    rebuild: Option<Rebuild>,
    /// Faults of one member.
    faults: Option<(usize, Box<Faults>)>,
    pace: Pace,
    /// Tokens taken, in 1/256 (direct, buffered), and who waits for one.
    taken: [u32; 2],
    waiting: [VecDeque<(u32, Demand)>; 2],
    platform_free: [u64; 2],
    cache_free: u64,
    flusher_free: u64,
    parity_free: u64,
    /// Bytes that were asked of it so far, read and written.
    asked: [u64; 2],
    rng: Rng,
}

/// Share of a token that a request takes, in 1/256: short requests do not hold a large buffer.
fn share(bytes: u32) -> u32 {
    ((u64::from(bytes) * 256 / CHUNK) as u32).clamp(2, 256)
}

/// When a request is done, and whether it is.
pub type Served = (u64, bool);

impl Raid {
    /// `n` fresh members of a model.
    pub fn new(level: Level, n: u32, model: &Model, host: ArrayHost, seed: u64) -> Self {
        Self {
            level,
            host,
            members: (0..n)
                .map(|i| Device::new(model, seed, u64::from(i)))
                .collect(),
            member_bytes: model.size(),
            gone: vec![false; n as usize],
            rebuild: None,
            faults: None,
            pace: Pace::default(),
            taken: [0; 2],
            waiting: [VecDeque::new(), VecDeque::new()],
            platform_free: [0; 2],
            cache_free: 0,
            flusher_free: 0,
            parity_free: 0,
            asked: [0; 2],
            rng: Rng::new(seed, 0x5241_4944),
        }
    }

    /// Without its first `lost` members (of RAID 10: one of each pair).
    pub fn degrade(&mut self, lost: u32) {
        let step = if self.level == Level::Raid10 { 2 } else { 1 };
        for i in 0..lost as usize {
            self.gone[i * step] = true;
        }
    }

    /// Its first member was replaced and is filled at `mb_per_s`.
    pub fn rebuild(&mut self, mb_per_s: f64) {
        self.gone[0] = true;
        self.rebuild = Some(Rebuild {
            member: 0,
            done: 0,
            due: 0,
            every: (self.host.chunk as f64 / mb_per_s * 1e3) as u64,
        });
    }

    /// Share of the rebuild that is done; `None` where there is none.
    pub fn rebuilt(&self) -> Option<f64> {
        self.rebuild
            .map(|r| r.done as f64 / self.member_bytes as f64)
    }

    /// Bytes asked of the array so far, and bytes that its members moved for it: each read and written.
    pub fn traffic(&self) -> ([u64; 2], [u64; 2]) {
        let members = self.members.iter().map(Device::moved);
        let sum = members.fold([0; 2], |a, m| [a[0] + m[0], a[1] + m[1]]);
        (self.asked, sum)
    }

    /// Members that are gone or not rebuilt yet.
    pub fn lost(&self) -> usize {
        self.gone.iter().filter(|g| **g).count()
    }

    /// Faults of a member.
    pub fn fault(&mut self, member: usize, faults: Option<Box<Faults>>) {
        self.faults = faults.map(|f| (member, f));
    }

    /// Follows a change of pace.
    pub fn pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Members.
    pub fn members(&mut self) -> &mut [Device] {
        &mut self.members
    }

    /// Takes request `id` at `at`: returns its end, or keeps it until a token is free.
    pub fn arrive(&mut self, id: u32, at: u64, d: Demand) -> Option<Served> {
        let kind = usize::from(!d.direct);
        let most = 256 * self.host.tokens[kind];
        if self.taken[kind] + share(d.bytes) > most {
            self.waiting[kind].push_back((id, d));
            return None;
        }
        self.taken[kind] += share(d.bytes);
        Some(self.serve(at, d))
    }

    /// A request has ended at `at`; returns those that may start now, with their ends.
    pub fn leave(&mut self, at: u64, d: Demand, mut each: impl FnMut(u32, Served)) {
        let kind = usize::from(!d.direct);
        self.taken[kind] -= share(d.bytes);
        let most = 256 * self.host.tokens[kind];
        while let Some((id, next)) = self.waiting[kind].front().copied() {
            if self.taken[kind] + share(next.bytes) > most {
                break;
            }
            self.waiting[kind].pop_front();
            self.taken[kind] += share(next.bytes);
            each(id, self.serve(at, next));
        }
    }

    fn serve(&mut self, at: u64, d: Demand) -> Served {
        self.fill(at);
        if matches!(d.op, Op::Read | Op::Write) {
            self.asked[usize::from(d.op == Op::Write)] += u64::from(d.bytes) * self.pace.times();
        }
        match d.op {
            Op::Read => self.read(at, d),
            Op::Write if d.direct => self.write(at, d, 0),
            Op::Write => {
                let free = self.flusher_free.max(at);
                let flushed = free + (f64::from(d.bytes) / self.host.flusher_gb_per_s) as u64;
                self.flusher_free = flushed;
                let (end, done) = self.write(flushed, d, 1);
                if matches!(self.level, Level::Raid1 | Level::Raid10) {
                    // The flusher waits for all mirrors of what it wrote.
                    self.flusher_free = end;
                }
                (end, done)
            }
            op => {
                let bytes = if op == Op::Trim {
                    d.bytes / self.members.len() as u32
                } else {
                    0
                };
                let mut end = at;
                for (m, gone) in self.members.iter_mut().zip(&self.gone) {
                    if !gone {
                        end = end.max(m.serve(at, op, 0, bytes));
                    }
                }
                (end, true)
            }
        }
    }

    /// Brings a rebuild to `at`: each chunk is read from the others and written to the new member.
    fn fill(&mut self, at: u64) {
        let Some(mut r) = self.rebuild else { return };
        while r.due <= at && r.done < self.member_bytes {
            let chunk = self.host.chunk as u32;
            let mut read = r.due;
            let sources = match self.level {
                Level::Raid1 | Level::Raid10 => 1,
                _ => self.level.data_members(self.members.len() as u32) as usize,
            };
            let mut left = sources;
            for i in 1..self.members.len() {
                let m = (r.member + i) % self.members.len();
                if left > 0 && !self.gone[m] {
                    read = read.max(self.members[m].serve(r.due, Op::Read, r.done, chunk));
                    left -= 1;
                }
            }
            let written = self.members[r.member].serve(r.due, Op::Write, r.done, chunk);
            // A sampled moment stands for many: so does what is rebuilt in it.
            r.done += u64::from(chunk) * self.pace.times();
            r.due = read.max(written).max(r.due + r.every);
        }
        if r.done >= self.member_bytes {
            self.gone[r.member] = false;
            self.rebuild = None;
        } else {
            self.rebuild = Some(r);
        }
    }

    /// Whether a member holds what lies at `offset` of it.
    fn holds(&self, member: usize, offset: u64) -> bool {
        !self.gone[member]
            || self
                .rebuild
                .is_some_and(|r| r.member == member && offset < r.done)
    }

    /// One command to one member: its end, and whether it succeeded.
    fn command(&mut self, member: usize, at: u64, op: Op, offset: u64, bytes: u32) -> Served {
        let device = &mut self.members[member];
        if device.refuses(op) {
            // md drops a member that cannot be written.
            self.gone[member] = true;
            return (at, false);
        }
        match &mut self.faults {
            Some((m, faults)) if *m == member => {
                let e = faults.effect(self.pace.test(at), offset, bytes);
                let begin = at.max(self.pace.request(e.not_before));
                let end = device.serve(begin, op, offset, bytes);
                let end = begin + ((end - begin) as f64 * e.factor) as u64;
                if e.fails && op == Op::Write {
                    // md drops a member that cannot be written.
                    self.gone[member] = true;
                }
                (end, !e.fails)
            }
            _ => (device.serve(at, op, offset, bytes), true),
        }
    }

    fn platform(&mut self, at: u64, way: usize, bytes: u64) -> u64 {
        let free = &mut self.platform_free[way];
        *free = at.max(*free) + (bytes as f64 / self.host.platform_gb_per_s[way]) as u64;
        *free
    }

    fn read(&mut self, at: u64, d: Demand) -> Served {
        let mut at = at;
        if !d.direct {
            self.cache_free = at.max(self.cache_free)
                + (f64::from(d.bytes) / self.host.page_cache_gb_per_s) as u64;
            at = self.cache_free;
        }
        let at = self.platform(at, 0, u64::from(d.bytes));
        let (mut end, mut done) = (at, true);
        for (chunk, offset, bytes) in pieces(self.host.chunk, d.offset, d.bytes) {
            let (piece_end, ok) = self.read_piece(at, chunk, offset, bytes);
            end = end.max(piece_end);
            done &= ok;
        }
        (end, done)
    }

    fn read_piece(&mut self, at: u64, chunk: u64, offset: u64, bytes: u32) -> Served {
        let n = self.members.len();
        match self.level {
            Level::Raid0 => {
                let (m, at_member) = self.place(chunk, offset);
                self.command(m, at, Op::Read, at_member, bytes)
            }
            Level::Raid1 | Level::Raid10 => {
                let (first, copies, at_member) = self.mirrors(chunk, offset);
                let start = self.rng.below(copies as u64) as usize;
                let mut at = at;
                for i in 0..copies {
                    let m = first + (start + i) % copies;
                    if !self.holds(m, at_member) {
                        continue;
                    }
                    let (end, ok) = self.command(m, at, Op::Read, at_member, bytes);
                    if ok {
                        return (end, true);
                    }
                    // The other copy is asked once the first has failed.
                    at = end;
                }
                (at, false)
            }
            Level::Raid5 | Level::Raid6 => {
                let (m, at_member) = self.place(chunk, offset);
                let mut at = at;
                if self.holds(m, at_member) {
                    let (end, ok) = self.command(m, at, Op::Read, at_member, bytes);
                    if ok {
                        return (end, true);
                    }
                    at = end;
                }
                self.reconstruct(at, m, at_member, bytes, n)
            }
        }
    }

    /// What a missing member held, from as many others as hold data.
    fn reconstruct(
        &mut self,
        at: u64,
        missing: usize,
        at_member: u64,
        bytes: u32,
        n: usize,
    ) -> Served {
        let two = usize::from(self.level == Level::Raid6);
        let need = n - 1 - two;
        let (mut end, mut have) = (at, 0);
        for i in 1..n {
            let m = (missing + i) % n;
            if have < need && self.holds(m, at_member) {
                let (e, ok) = self.command(m, at, Op::Read, at_member, bytes);
                end = end.max(e);
                have += usize::from(ok);
            }
        }
        let sums = self.host.parity_direct_ns[two] * RECONSTRUCT * f64::from(bytes) / 4096.0;
        self.parity_free = at.max(self.parity_free) + sums as u64;
        (end.max(self.parity_free), have >= need)
    }

    /// First mirror, how many, and where on them.
    fn mirrors(&self, chunk: u64, offset: u64) -> (usize, usize, u64) {
        let n = self.members.len() as u64;
        if self.level == Level::Raid1 {
            return (0, n as usize, offset);
        }
        let (pair, row) = (chunk % (n / 2), chunk / (n / 2));
        let within = offset % self.host.chunk;
        ((pair * 2) as usize, 2, row * self.host.chunk + within)
    }

    /// Member and offset that a piece of stripes lies on; parity rotates by one member per row (left-symmetric).
    fn place(&self, chunk: u64, offset: u64) -> (usize, u64) {
        let n = self.members.len() as u64;
        let data = u64::from(self.level.data_members(n as u32));
        let (row, index) = (chunk / data, chunk % data);
        let parities = n - data;
        let member = (self.parity(row) as u64 + parities + index) % n;
        let member = if parities == 0 { index } else { member };
        let at_member = row * self.host.chunk + offset % self.host.chunk;
        (member as usize, at_member)
    }

    /// Member of a row's first parity.
    fn parity(&self, row: u64) -> usize {
        let n = self.members.len() as u64;
        (n - 1 - row % n) as usize
    }

    /// A write that reaches the array at `at`; `way` 0 direct, 1 buffered.
    fn write(&mut self, at: u64, d: Demand, way: usize) -> Served {
        let n = self.members.len();
        match self.level {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => {
                let copies = match self.level {
                    Level::Raid0 => 1,
                    Level::Raid1 => n,
                    _ => 2,
                };
                let moved = self.platform(at, 1, u64::from(d.bytes) * copies as u64);
                // The flusher hands copies over while it goes on; a direct writer waits for them.
                let at = if way == 0 { moved } else { at };
                let (mut end, mut done) = (moved, true);
                for (chunk, offset, bytes) in pieces(self.host.chunk, d.offset, d.bytes) {
                    let (first, at_member) = if copies == 1 {
                        self.place(chunk, offset)
                    } else {
                        let (first, _, at_member) = self.mirrors(chunk, offset);
                        (first, at_member)
                    };
                    let mut written = false;
                    for m in first..first + copies {
                        if copies > 1 && !self.holds(m, at_member) {
                            continue;
                        }
                        let (e, ok) = self.command(m, at, Op::Write, at_member, bytes);
                        end = end.max(e);
                        written |= ok;
                    }
                    done &= written;
                }
                (end, done)
            }
            Level::Raid5 | Level::Raid6 => self.write_parity(at, d, way),
        }
    }

    /// A full stripe is written as it is; of a part, old data and parity are read first. One thread does the sums.
    fn write_parity(&mut self, at: u64, d: Demand, way: usize) -> Served {
        let n = self.members.len();
        let two = usize::from(self.level == Level::Raid6);
        let data = u64::from(self.level.data_members(n as u32));
        let per_page = if way == 0 {
            self.host.parity_direct_ns[two]
        } else {
            self.host.parity_buffered_ns[two].0 + self.host.parity_buffered_ns[two].1 / data as f64
        };
        let serial = per_page * f64::from(d.bytes) / 4096.0;
        self.parity_free = at.max(self.parity_free) + serial as u64;
        let (mut end, mut done) = (self.parity_free, true);
        let stripe = self.host.chunk * data;
        let (mut offset, last) = (d.offset, d.offset + u64::from(d.bytes));
        while offset < last {
            let row = offset / stripe;
            let next = ((row + 1) * stripe).min(last);
            let full = offset == row * stripe && next == offset + stripe;
            let (e, ok) = if full {
                self.write_row(at, row)
            } else {
                self.write_part(at, row, offset, (next - offset) as u32)
            };
            end = end.max(e);
            done &= ok;
            offset = next;
        }
        (end, done)
    }

    fn write_row(&mut self, at: u64, row: u64) -> Served {
        let chunk = self.host.chunk;
        let (mut end, mut failed) = (at, 0);
        for m in 0..self.members.len() {
            let (e, ok) = if self.holds(m, row * chunk) {
                self.command(m, at, Op::Write, row * chunk, chunk as u32)
            } else {
                (at, false)
            };
            end = end.max(e);
            failed += u32::from(!ok);
        }
        (
            end,
            failed <= self.level.spare_members(self.members.len() as u32),
        )
    }

    /// Part of a row. Reads and writes are booked on arrival: throughput is right, latency lacks the wait of the
    /// write for the read.
    fn write_part(&mut self, at: u64, row: u64, offset: u64, bytes: u32) -> Served {
        let n = self.members.len();
        let chunk = self.host.chunk;
        let parities = n - self.level.data_members(n as u32) as usize;
        let parity = self.parity(row);
        let mut touched: Vec<(usize, u64, u32)> = Vec::with_capacity(n);
        for (c, o, b) in pieces(chunk, offset, bytes) {
            let (m, at_member) = self.place(c, o);
            touched.push((m, at_member, b));
        }
        let widest = touched.iter().map(|t| t.2).max().unwrap_or(0);
        let start = touched.iter().map(|t| t.1).min().unwrap_or(0);
        let written = touched.len();
        touched.extend((0..parities).map(|k| ((parity + k) % n, start, widest)));
        let lost = touched.iter().any(|(m, o, _)| !self.holds(*m, *o));
        let others = n - parities - written;
        let mut end = at;
        // Old data and parity, or the rest of the row: whichever is less. A lost data member leaves only the rest.
        if lost || others < written + parities {
            for m in (0..n)
                .filter(|m| !touched.iter().any(|t| t.0 == *m))
                .collect::<Vec<_>>()
            {
                if self.holds(m, start) {
                    end = end.max(self.command(m, at, Op::Read, start, widest).0);
                }
            }
        } else {
            for (m, o, b) in &touched {
                end = end.max(self.command(*m, at, Op::Read, *o, *b).0);
            }
        }
        let mut failed = 0;
        for (m, o, b) in touched {
            let ok = self.holds(m, o) && {
                let (e, ok) = self.command(m, at, Op::Write, o, b);
                end = end.max(e);
                ok
            };
            failed += u32::from(!ok);
        }
        (end, failed <= self.level.spare_members(n as u32))
    }
}

/// Parts of a request by chunk: chunk number, offset, bytes.
fn pieces(chunk: u64, offset: u64, bytes: u32) -> impl Iterator<Item = (u64, u64, u32)> {
    let end = offset + u64::from(bytes);
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let next = ((at / chunk + 1) * chunk).min(end);
            let piece = (at / chunk, at, (next - at) as u32);
            at = next;
            piece
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(level: Level, n: u32) -> Raid {
        let model = Model::named("optane-900p").unwrap();
        Raid::new(level, n, &model, ArrayHost::default(), 1)
    }

    fn demand(op: Op, offset: u64, bytes: u32) -> Demand {
        Demand {
            op,
            offset,
            bytes,
            direct: true,
        }
    }

    /// GB/s of `n` requests one after another.
    fn rate(r: &mut Raid, op: Op, bytes: u32, n: u64) -> f64 {
        let (mut at, mut rng) = (0, Rng::new(9, 9));
        for _ in 0..n {
            let (end, ok) = r.serve(at, demand(op, rng.below(10_000) * (4 << 20), bytes));
            assert!(ok);
            at = end;
        }
        n as f64 * f64::from(bytes) / at as f64
    }

    #[test]
    fn every_row_has_its_chunks_on_different_members_and_parity_goes_round() {
        for (level, n) in [(Level::Raid5, 5), (Level::Raid6, 6)] {
            let r = array(level, n);
            let data = u64::from(level.data_members(n));
            let mut parities = std::collections::BTreeSet::new();
            for row in 0..u64::from(n) {
                let mut members: Vec<usize> = (0..data)
                    .map(|i| r.place(row * data + i, (row * data + i) * CHUNK).0)
                    .collect();
                members.push(r.parity(row));
                members.sort_unstable();
                members.dedup();
                assert_eq!(members.len() as u64, data + 1);
                parities.insert(r.parity(row));
            }
            assert_eq!(parities.len(), n as usize);
        }
    }

    #[test]
    fn a_degraded_array_reads_from_the_others_and_is_slower() {
        for (level, n, lost) in [(Level::Raid5, 4, 1), (Level::Raid6, 6, 2)] {
            let whole = rate(&mut array(level, n), Op::Read, 512 << 10, 400);
            let mut r = array(level, n);
            r.degrade(lost);
            let degraded = rate(&mut r, Op::Read, 512 << 10, 400);
            assert!(degraded < 0.8 * whole, "{level:?}: {degraded} {whole}");
        }
        let mut r = array(Level::Raid10, 4);
        r.degrade(2);
        assert!(rate(&mut r, Op::Read, 512 << 10, 100) > 1.0);
    }

    #[test]
    fn what_redundancy_cannot_replace_fails() {
        let mut r = array(Level::Raid5, 4);
        r.degrade(1);
        r.gone[1] = true;
        let failed = (0..16)
            .filter(|i| !r.serve(0, demand(Op::Read, i * CHUNK, 4096)).1)
            .count();
        assert!(failed > 0);
    }

    #[test]
    fn an_unreadable_sector_is_read_from_the_others_and_a_failed_write_drops_the_member() {
        let mut r = array(Level::Raid1, 2);
        let bad = [crate::fault::Fault::Error {
            from: 0,
            to: 1 << 20,
        }];
        r.fault(1, Faults::new(&bad, 1));
        for _ in 0..20 {
            assert!(r.serve(0, demand(Op::Read, 0, 4096)).1);
        }
        assert_eq!(r.lost(), 0);
        assert!(r.serve(0, demand(Op::Write, 0, 4096)).1);
        assert_eq!(r.lost(), 1);
        assert!(r.serve(0, demand(Op::Read, 0, 4096)).1);
    }

    #[test]
    fn a_rebuild_takes_bandwidth_until_the_member_is_whole() {
        let mut model = Model::named("optane-900p").unwrap();
        model.capacity_gb = 1.0;
        let mut r = Raid::new(Level::Raid5, 4, &model, ArrayHost::default(), 1);
        r.rebuild(200.0);
        r.serve(2_000_000_000, demand(Op::Read, 0, 4096));
        let half = r.rebuilt().unwrap();
        assert!((half - 0.4).abs() < 0.02, "{half}");
        r.serve(6_000_000_000, demand(Op::Read, 0, 4096));
        assert_eq!((r.rebuilt(), r.lost()), (None, 0));
    }

    #[test]
    fn a_full_stripe_is_written_without_reading() {
        let host = ArrayHost {
            parity_direct_ns: [0.0; 2],
            ..ArrayHost::default()
        };
        let model = Model::named("optane-900p").unwrap();
        let time = |bytes: u32| {
            let mut r = Raid::new(Level::Raid5, 4, &model, host, 1);
            r.serve(0, demand(Op::Write, 0, bytes)).0 as f64
        };
        let (full, part) = (time(3 * CHUNK as u32), time(CHUNK as u32));
        assert!(full < 1.3 * part && part > 400_000.0, "{full} {part}");
    }
}
