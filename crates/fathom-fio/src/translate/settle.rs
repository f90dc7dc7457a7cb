//! A shape on its target: percentages, shares of several files and ends of ranges become bytes.

use fathom_io::JobSpec;
use fathom_telemetry::{Bytes, Nanos};

use super::{Extent, Shape};
use crate::FioError;
use crate::feed::random::{Purpose, Seeds, Stream};

impl Shape {
    /// What the file of this number has of a size that several files share; the first ones have a block more where
    /// it does not divide.
    pub(crate) fn share(&self, index: u64) -> Option<u64> {
        let all = match (self.size, self.io_size) {
            (Extent::Bytes(n), _) | (Extent::Whole, Some(Extent::Bytes(n))) => n,
            _ => return None,
        };
        let files = 1 + self.more.len() as u64;
        let block = self.spec.bs.min().0.max(1);
        let each = all / files;
        let extra = (all - each * files) / block;
        Some(each + if index < extra { block } else { 0 })
    }

    /// Size of the file of this index: drawn as fio draws it, where a least and a most are given.
    fn file_size(&self, seeds: Seeds, index: u64) -> Option<u64> {
        let (low, high) = self.file_size?;
        if low == high {
            return Some(low);
        }
        let mut stream = Stream::new(seeds.of(Purpose::FileSize));
        let mut drawn = low;
        for _ in 0..=index {
            drawn = low + stream.below(high - low);
        }
        Some(drawn - drawn % self.recipe.smallest())
    }

    /// Where fio's random numbers begin for the task of this number.
    pub(crate) fn seeds(&self, number: u32) -> Seeds {
        Seeds {
            seed: self.spec.seed,
            thread: u64::from(number),
            fixed: self.fixed_seeds,
        }
    }

    /// First and end of the range in each of several files, and the bytes of one pass over all of them.
    pub(crate) fn ranges(&self, clone: u32, sizes: &[u64]) -> (Vec<(u64, u64)>, u64) {
        let mut all = 0u64;
        let ranges: Vec<(u64, u64)> = (0u64..)
            .zip(sizes)
            .map(|(i, size)| {
                let step = self.offset_increment.bytes(*size);
                let mut start = self.offset.bytes(*size);
                if matches!(self.offset, Extent::Percent(_)) {
                    start -= start % self.offset_align.max(1);
                }
                let start = start.saturating_add(step.saturating_mul(u64::from(clone)));
                let room = size.saturating_sub(start);
                let len = match (self.file_size, self.size) {
                    (_, Extent::Percent(_)) => self.size.bytes(*size).min(room),
                    (None, Extent::Bytes(_)) => self.share(i).unwrap_or(room).min(room),
                    // A file that has a size between them keeps it.
                    (Some((low, high)), _) if low < high && (low..=high).contains(size) => room,
                    (Some((low, _)), _) => low.saturating_sub(start).min(room),
                    _ => room,
                };
                all += len;
                (start.min(*size), start.min(*size) + len)
            })
            .collect();
        let pass = match self.size {
            Extent::Bytes(n) => n.min(all),
            _ => all,
        };
        (ranges, pass)
    }

    /// Whether the size is an amount of I/O, and the file has one of its own.
    pub(crate) fn sized_file(&self) -> bool {
        self.file_size.is_some() && !matches!(self.size, Extent::Percent(_))
    }

    /// Bytes that the file must hold, where the section says it.
    pub(crate) fn wanted_size(
        &self,
        (number, clone): (u32, u32),
        index: u64,
        cap: Option<u64>,
    ) -> Option<u64> {
        let cut = |n: u64| cap.map_or(n, |c| n.min(c.max(self.spec.bs.max().0)));
        if let Some(r) = &self.replay {
            return r.sizes.iter().copied().max();
        }
        if let Some(size) = self.file_size(self.seeds(number), index) {
            return Some(cut(size));
        }
        if !self.more.is_empty() {
            let largest = self.spec.bs.max().0;
            return self.share(0).map(|n| {
                let start = match self.offset {
                    Extent::Bytes(b) => b,
                    _ => 0,
                };
                cut(n.max(largest)).saturating_add(start.min(cut(start)))
            });
        }
        match (self.size, self.offset, self.offset_increment) {
            (Extent::Bytes(size), Extent::Bytes(start), Extent::Bytes(step)) => Some(
                cut(size)
                    .saturating_add(cut(start).min(start))
                    .saturating_add(cut(step).min(step).saturating_mul(u64::from(clone))),
            ),
            (Extent::Whole, Extent::Bytes(start), Extent::Bytes(step))
                if self.io_size.is_some() || start > 0 || step > 0 =>
            {
                let amount = match self.io_size {
                    Some(Extent::Bytes(n)) => n,
                    _ => return None,
                };
                Some(
                    cut(amount)
                        .saturating_add(cut(start).min(start))
                        .saturating_add(cut(step).min(step).saturating_mul(u64::from(clone))),
                )
            }
            (Extent::Bytes(size), ..) => Some(cut(size)),
            _ => match self.io_size {
                Some(Extent::Bytes(n)) => Some(cut(n)),
                _ => None,
            },
        }
    }

    /// First byte of the range of a clone.
    fn start(&self, clone: u32, target: u64, cap: Option<u64>) -> u64 {
        let align = self.offset_align.max(1);
        let mut start = self.offset.bytes(target);
        if let (Some(c), Extent::Bytes(_)) = (cap, self.offset) {
            // A range that lies far in shrinks with it.
            start = start.min(c - c % align);
        }
        if matches!(self.offset, Extent::Percent(_)) {
            start -= start % align;
        }
        let step = self.offset_increment.bytes(target);
        let step = cap.map_or(step, |c| step.min(c));
        start.saturating_add(step.saturating_mul(u64::from(clone)))
    }

    /// The job on a target of `target` bytes.
    pub fn settle(
        &self,
        clone: u32,
        target: u64,
        cap: Option<u64>,
        time_cap: Option<Nanos>,
    ) -> Result<JobSpec, FioError> {
        let mut spec = self.spec.clone();
        let unit = spec.bs.min().0.max(1);
        let largest = spec.bs.max().0;
        let start = self.start(clone, target, cap);
        let room = target.saturating_sub(start);
        let cut = |n: u64| cap.map_or(n, |c| n.min(c.max(largest)));
        let asked = match self.size {
            _ if self.replay.is_some() => room,
            Extent::Percent(p) => Extent::Percent(p).bytes(target).min(room),
            other => other.bytes(room),
        };
        let mut range = cut(asked).min(room);
        // Like fio, whole blocks only.
        if range > unit {
            range -= range % unit;
        }
        if room == 0 || range < largest {
            return Err(FioError::value(
                &self.spec.name,
                "size",
                format!(
                    "{} from offset {} of a target of {} leaves no room for a block of {}: choose a larger size or file",
                    Bytes(asked),
                    Bytes(start),
                    Bytes(target),
                    Bytes(largest)
                ),
            ));
        }
        spec.offset = Bytes(start);
        spec.size = Some(Bytes(range));
        if let Some(percent) = self.working_set {
            let blocks = u128::from(range) * u128::from(percent) / 100 / u128::from(largest.max(1));
            spec.duplicate_of = (blocks as u64).max(1);
        }
        if let Some(most) = time_cap {
            spec.time = Some(spec.time.map_or(most, |t| t.min(most)));
            spec.ramp = spec.ramp.min(most);
        }
        spec.bytes = (!self.time_based).then(|| {
            let once = match self.io_size {
                Some(e) => cut(e.bytes(room)),
                None if self.sized_file() && !self.recipe.native => cut(asked),
                // A size beyond filesize= is that of the file.
                None => range,
            };
            // fio goes on until the amount is reached; what is beyond is one block at most.
            let whole = match self.recipe.native && once > unit {
                true => once - once % unit,
                false => once,
            };
            Bytes(whole.saturating_mul(self.loops))
        });
        spec.ios = spec.ios.map(|n| n.saturating_mul(self.loops));
        Ok(spec)
    }
}
