//! Where the I/Os of a trace go on a target that has another size, and often fewer devices.
//!
//! The devices of a trace lie one behind the other. Scaling moves chunks of 1 MiB and keeps what is inside
//! a chunk, so that sequential runs stay sequential; wrapping takes the offset modulo the target's size.

use fathom_telemetry::{Bytes, Op};
use serde::{Deserialize, Serialize};

use super::{TraceError, TraceFacts, TraceIo};
use crate::job::Limits;

/// Longest single request; longer ones become several at the same time.
pub const LONGEST: u64 = 4 << 20;
/// Scaling moves pieces of this size.
const CHUNK: u64 = 1 << 20;

/// What to do where the trace and the target differ in size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fit {
    /// Offsets as they are, if they fit; scaled otherwise.
    Auto,
    /// Offsets as they are; refused where they do not fit.
    Keep,
    /// The trace's range is spread over the target's, up or down.
    Scale,
    /// Offsets modulo the target's size.
    Wrap,
}

impl std::str::FromStr for Fit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "keep" => Ok(Self::Keep),
            "scale" => Ok(Self::Scale),
            "wrap" => Ok(Self::Wrap),
            _ => Err(format!(
                "'{text}' is not possible: expected auto, keep, scale or wrap"
            )),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Map {
    Keep,
    Scale { chunks: u64, onto: u64 },
    Wrap,
}

/// Where I/Os go. Everything that it gives back lies inside the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Where each device of the trace begins.
    bases: Vec<u64>,
    map: Map,
    size: u64,
    align: u64,
    longest: u64,
    /// Bytes of the trace's range.
    pub span: Bytes,
}

impl Layout {
    /// Lays a trace out on a target.
    ///
    /// # Errors
    /// [`TraceError::Unfit`], where it does not fit and must not be moved, or the target is too small.
    pub fn new(
        facts: &TraceFacts,
        limits: &Limits,
        direct: bool,
        fit: Fit,
    ) -> Result<Self, TraceError> {
        let align = if direct {
            u64::from(limits.direct_align.max(1))
        } else {
            1
        };
        let size = limits.size / align * align;
        let mut bases = Vec::with_capacity(facts.devices.len());
        let mut span = 0u64;
        for d in &facts.devices {
            bases.push(span);
            span = d
                .end
                .checked_next_multiple_of(CHUNK.max(align))
                .and_then(|end| span.checked_add(end))
                .ok_or_else(|| {
                    TraceError::Unfit(
                        "the trace's devices together exceed 2^64 bytes: choose one with --device"
                            .into(),
                    )
                })?;
        }
        // The last device needs no room behind its end.
        let last = facts.devices.last().map_or(0, |d| d.end);
        let exact = bases.last().copied().unwrap_or(0) + last.next_multiple_of(align);
        let longest = facts.longest.clamp(512, LONGEST).next_multiple_of(align);
        if size < longest.max(CHUNK) {
            return Err(TraceError::Unfit(format!(
                "the target of {} is too small: expected at least {}",
                Bytes(limits.size),
                Bytes(longest.max(CHUNK))
            )));
        }
        let scale = Map::Scale {
            chunks: span.div_ceil(CHUNK).max(1),
            onto: size / CHUNK,
        };
        let map = match fit {
            Fit::Auto | Fit::Keep if exact <= size => Map::Keep,
            Fit::Keep => {
                return Err(TraceError::Unfit(format!(
                    "the trace reaches to {}, the target holds {}: use --lba scale or --lba wrap, or a larger target",
                    Bytes(exact),
                    Bytes(limits.size)
                )));
            }
            Fit::Auto | Fit::Scale => scale,
            Fit::Wrap => Map::Wrap,
        };
        Ok(Self {
            bases,
            map,
            size,
            align,
            longest,
            span: Bytes(exact),
        })
    }

    /// Longest request that it gives back, a multiple of the alignment.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// In words, for the report.
    pub fn words(&self) -> &'static str {
        match self.map {
            Map::Keep => "offsets as recorded",
            Map::Scale { .. } => "scaled in chunks of 1 MiB",
            Map::Wrap => "offsets modulo the target's size",
        }
    }

    /// Puts an I/O on the target; calls `each` with offset and length of every piece. Returns whether
    /// offset or length had to be aligned.
    pub fn place(&self, io: &TraceIo, mut each: impl FnMut(u64, u32)) -> bool {
        if io.op == Op::Sync {
            each(0, 0);
            return false;
        }
        let base = self.bases.get(io.device as usize).copied().unwrap_or(0);
        let at = base.saturating_add(io.offset);
        let mut offset = match self.map {
            Map::Keep => at,
            Map::Wrap => at % self.size,
            Map::Scale { chunks, onto } => {
                let chunk = (u128::from(at / CHUNK) * u128::from(onto) / u128::from(chunks)) as u64;
                chunk.min(onto - 1) * CHUNK + at % CHUNK
            }
        };
        let aligned = offset / self.align * self.align;
        // What the I/O covered is covered: the end moves up, the start down.
        let len = (offset - aligned + io.len.max(1))
            .next_multiple_of(self.align)
            .min(self.size);
        let changed = aligned != offset || len != io.len;
        offset = aligned;
        let mut left = len;
        while left > 0 {
            let piece = left.min(self.longest);
            let place = if offset > self.size - piece {
                match self.map {
                    // Around the end, or as far up as it fits.
                    Map::Wrap => 0,
                    _ => self.size - piece,
                }
            } else {
                offset
            };
            each(place, piece as u32);
            offset = place + piece;
            left -= piece;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::formats::Format;
    use crate::replay::{DeviceFacts, TraceFacts};
    use fathom_telemetry::Nanos;

    fn facts(ends: &[u64], longest: u64) -> TraceFacts {
        TraceFacts {
            format: Format::Spc,
            ios: [1, 0, 0, 0],
            bytes: [0; 4],
            first: Nanos::ZERO,
            last: Nanos::ZERO,
            longest,
            with_latency: 0,
            moved: 0,
            devices: ends
                .iter()
                .map(|e| DeviceFacts {
                    name: String::new(),
                    end: *e,
                    ios: 1,
                })
                .collect(),
            aligned: true,
        }
    }

    fn io(device: u32, offset: u64, len: u64) -> TraceIo {
        TraceIo {
            at: Nanos::ZERO,
            device,
            op: Op::Read,
            offset,
            len,
            latency: None,
        }
    }

    fn placed(l: &Layout, io: &TraceIo) -> Vec<(u64, u32)> {
        let mut out = Vec::new();
        l.place(io, |o, n| out.push((o, n)));
        out
    }

    const LIMITS: Limits = Limits {
        size: 64 << 20,
        direct_align: 4096,
        hosts: 1,
    };

    #[test]
    fn what_fits_stays_where_it_was_and_devices_lie_one_behind_the_other() {
        let l = Layout::new(&facts(&[10 << 20, 4096], 8192), &LIMITS, true, Fit::Auto).unwrap();
        assert_eq!(placed(&l, &io(0, 8192, 8192)), [(8192, 8192)]);
        assert_eq!(placed(&l, &io(1, 0, 4096)), [(10 << 20, 4096)]);
    }

    #[test]
    fn scaling_down_keeps_sequential_runs_and_stays_inside() {
        let l = Layout::new(&facts(&[640 << 20], 4096), &LIMITS, true, Fit::Auto).unwrap();
        assert_eq!(placed(&l, &io(0, 320 << 20, 4096)), [(32 << 20, 4096)]);
        assert_eq!(
            placed(&l, &io(0, (320 << 20) + 4096, 4096)),
            [((32 << 20) + 4096, 4096)]
        );
        assert!(Layout::new(&facts(&[640 << 20], 4096), &LIMITS, true, Fit::Keep).is_err());
    }

    #[test]
    fn every_piece_lies_inside_the_target_and_is_aligned_for_any_offset() {
        let mut rng = crate::load::rng::Rng::new(3, 0);
        for fit in [Fit::Scale, Fit::Wrap] {
            for (size, direct) in [(64 << 20, true), ((64 << 20) + 12_345, false)] {
                let limits = Limits {
                    size,
                    direct_align: 4096,
                    hosts: 1,
                };
                let end = 5u64 << 40;
                let l = Layout::new(&facts(&[end, end], 16 << 20), &limits, direct, fit).unwrap();
                for _ in 0..20_000 {
                    let one = io(rng.below(2) as u32, rng.below(end), rng.below(16 << 20));
                    for (o, n) in placed(&l, &one) {
                        assert!(o + u64::from(n) <= size && n > 0, "{o} + {n}");
                        assert!(u64::from(n) <= l.longest());
                        assert!(!direct || (o % 4096 == 0 && n % 4096 == 0), "{o} + {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_not_aligned_covers_what_it_covered() {
        let l = Layout::new(&facts(&[1 << 20], 4096), &LIMITS, true, Fit::Auto).unwrap();
        assert_eq!(placed(&l, &io(0, 512, 4096)), [(0, 4096), (4096, 4096)]);
    }
}
