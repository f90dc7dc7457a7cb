//! Zones with a write pointer each (`zonemode=zbd`) on a target that has none, emulated as fio does it: writes
//! append to open zones, reads stay below the pointers, a full zone starts again when it is drawn (or, where its blocks are
//! to be verified, when nothing else is left).

use super::random::Stream;

/// How zones are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Zoned {
    /// Bytes per zone.
    pub(crate) size: u64,
    /// Bytes of a zone that may be written.
    pub(crate) capacity: u64,
    /// Zones that are written at the same time, at most; 0 for any number. Of emulated zones by one job, of a device's by all.
    pub(crate) open_max: u64,
    /// The same by one job, on a device.
    pub(crate) job_open_max: u64,
    /// Share of the range that is written before zones are reset, and share of the writes that then reset theirs; on a device.
    pub(crate) reset: (f64, f64),
    /// Reads may go where nothing was written.
    pub(crate) beyond: bool,
    /// What was written is still to be verified: no full zone starts again before all are full.
    pub(crate) kept: bool,
    /// Zones left out behind each that is used in order.
    pub(crate) skip: u64,
    /// They are the device's own.
    pub(crate) own: bool,
}

impl Zoned {
    /// The zone behind another of `count`: past the end is the first again.
    pub(super) fn after(&self, zone: usize, count: usize) -> usize {
        let next = zone.saturating_add(1).saturating_add(self.skip as usize);
        if next < count { next } else { 0 }
    }
}

/// The zones of one file.
#[derive(Debug)]
pub(super) struct Zones {
    how: Zoned,
    start: u64,
    /// Bytes written above the start of each.
    written: Vec<u64>,
    open: Vec<usize>,
    current: usize,
    read_at: u64,
    pub(super) resets: u64,
}

impl Zones {
    pub(super) fn new(how: Zoned, start: u64, end: u64) -> Self {
        let count = ((end - start) / how.size.max(1)).max(1) as usize;
        Self {
            how,
            start,
            written: vec![0; count],
            open: Vec::new(),
            current: 0,
            read_at: 0,
            resets: 0,
        }
    }

    fn room(&self, zone: usize) -> u64 {
        self.how.capacity - self.written[zone]
    }

    /// Where the next write goes.
    pub(super) fn write(&mut self, random: bool, want: u64, stream: &mut Stream) -> (u64, u64) {
        let want = want.min(self.how.capacity);
        let count = self.written.len();
        let mut zone = if random {
            stream.below(count as u64) as usize
        } else {
            self.current
        };
        let full = self.how.open_max > 0 && self.open.len() as u64 >= self.how.open_max;
        if random && full && !self.open.contains(&zone) {
            zone = self.open[stream.below(self.open.len() as u64) as usize];
        }
        if self.room(zone) < want {
            let next = (1..=count)
                .map(|i| (zone + i) % count)
                .find(|z| self.room(*z) >= want);
            zone = match next {
                Some(z) if random && self.how.kept => z,
                _ if random => zone,
                _ => self.how.after(zone, count),
            };
            if self.room(zone) < want {
                self.written[zone] = 0;
                self.resets += 1;
            }
        }
        if !self.open.contains(&zone) {
            self.open.push(zone);
        }
        self.current = zone;
        let at = self.start + zone as u64 * self.how.size + self.written[zone];
        self.written[zone] += want;
        if self.room(zone) < want {
            self.open.retain(|z| *z != zone);
        }
        (at, want)
    }

    /// Where the next read goes; `None` where nothing can be read (any more).
    pub(super) fn read(
        &mut self,
        random: bool,
        want: u64,
        again: bool,
        stream: &mut Stream,
    ) -> Option<(u64, u64)> {
        let limit = |z: &Self, zone: usize| {
            if z.how.beyond {
                z.how.size
            } else {
                z.written[zone]
            }
        };
        let count = self.written.len();
        if random {
            let blocks = |z: &Self, zone: usize| limit(z, zone) / want.max(1);
            let total: u64 = (0..count).map(|i| blocks(self, i)).sum();
            if total == 0 {
                return None;
            }
            let mut pick = stream.below(total);
            for zone in 0..count {
                let n = blocks(self, zone);
                if pick < n {
                    return Some((self.start + zone as u64 * self.how.size + pick * want, want));
                }
                pick -= n;
            }
            return None;
        }
        for turn in 0..2 {
            let first = (self.read_at / self.how.size) as usize;
            for zone in first..count {
                let base = zone as u64 * self.how.size;
                let at = self.read_at.max(base);
                if at + want <= base + limit(self, zone) {
                    self.read_at = at + want;
                    return Some((self.start + at, want));
                }
                self.read_at = base + self.how.size;
            }
            if !again || turn > 0 {
                break;
            }
            self.read_at = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Zoned = Zoned {
        skip: 0,
        own: false,
        size: 1 << 20,
        capacity: 1 << 20,
        open_max: 3,
        job_open_max: 0,
        reset: (1.0, 0.0),
        beyond: false,
        kept: true,
    };

    #[test]
    fn writes_append_to_few_zones_and_reads_stay_below_their_pointers() {
        let mut stream = Stream::new(3);
        let mut z = Zones::new(HOW, 0, 16 << 20);
        assert!(
            z.read(true, 4096, false, &mut stream).is_none(),
            "nothing was written yet"
        );
        let mut pointer = [0u64; 16];
        for _ in 0..16 * 16 {
            let (at, len) = z.write(true, 65_536, &mut stream);
            let zone = (at >> 20) as usize;
            assert_eq!(at & ((1 << 20) - 1), pointer[zone], "at the write pointer");
            pointer[zone] += len;
            assert!(
                pointer.iter().filter(|p| **p > 0 && **p < 1 << 20).count() <= 3,
                "{pointer:?}"
            );
            let (at, len) = z.read(true, 16_384, false, &mut stream).unwrap();
            assert!((at & ((1 << 20) - 1)) + len <= pointer[(at >> 20) as usize]);
        }
        assert_eq!(z.resets, 0);
        assert!(
            pointer.iter().all(|p| *p == 1 << 20),
            "every zone is full once"
        );
        z.write(true, 65_536, &mut stream);
        assert_eq!(z.resets, 1, "then one starts again");
    }

    #[test]
    fn full_zones_start_again_so_that_as_many_as_allowed_stay_open() {
        let mut stream = Stream::new(3);
        let mut z = Zones::new(Zoned { kept: false, ..HOW }, 0, 16 << 20);
        let mut zones = Vec::new();
        for _ in 0..2000 {
            zones.push(z.write(true, 65_536, &mut stream).0 >> 20);
        }
        // One of three open zones is drawn each time: every third write stays in its zone, and a little more while
        // fewer are open.
        let stays = zones.windows(2).filter(|w| w[0] == w[1]).count();
        assert!((550..850).contains(&stays), "{stays} of 2000");
        assert!(z.resets > 50, "{}", z.resets);
    }

    #[test]
    fn sequential_reads_end_where_nothing_more_was_written() {
        let mut stream = Stream::new(3);
        let mut z = Zones::new(HOW, 0, 4 << 20);
        for _ in 0..20 {
            z.write(false, 65_536, &mut stream);
        }
        let n = std::iter::from_fn(|| z.read(false, 65_536, false, &mut stream)).count();
        assert_eq!(n, 20);
    }
}
