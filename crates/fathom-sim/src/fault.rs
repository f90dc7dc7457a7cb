//! Faults at set times and places, so that drivers and analyses can be tested against devices that misbehave.

use fathom_telemetry::{Bytes, Nanos};

/// EIO, as the kernel reports it.
const EIO: i64 = 5;
/// How long a dying device tries before it gives up, ns.
const GIVE_UP: u64 = 200_000_000;
/// From the first trouble of a dying device to its end, ns.
const AGONY: u64 = 30_000_000_000;

/// One scheduled fault. Times are on the simulation's clock, from its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Requests that touch this range fail with EIO: `eio@OFFSET` or `eio@OFFSET+LENGTH`.
    Error {
        /// First bad byte.
        offset: u64,
        /// Bad bytes.
        len: u64,
    },
    /// Nothing completes in this time: `stall@TIME+DURATION`.
    Stall {
        /// Begin.
        at: Nanos,
        /// Length.
        length: Nanos,
    },
    /// From here on ever more requests are slow and fail, after 30 s all: `dying@TIME`.
    Dying {
        /// Begin.
        at: Nanos,
    },
    /// Every n-th request takes longer: `spike@N+DURATION`.
    Spike {
        /// Every so many requests.
        every: u64,
        /// Longer by this.
        by: Nanos,
    },
}

impl Fault {
    /// From its text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected eio@OFFSET[+LENGTH], stall@TIME+DURATION, dying@TIME or spike@N+DURATION, such as stall@2s+500ms";
        let (kind, rest) = text
            .split_once('@')
            .ok_or_else(|| format!("'{text}' is not a fault: {form}"))?;
        let (first, second) = match rest.split_once('+') {
            Some((a, b)) => (a, Some(b)),
            None => (rest, None),
        };
        let time = |t: &str| t.parse::<Nanos>().map_err(|e| e.to_string());
        let size = |t: &str| t.parse::<Bytes>().map(|b| b.0).map_err(|e| e.to_string());
        match (kind, second) {
            ("eio", len) => Ok(Self::Error {
                offset: size(first)?,
                len: len.map_or(Ok(512), size)?.max(1),
            }),
            ("stall", Some(d)) => Ok(Self::Stall {
                at: time(first)?,
                length: time(d)?,
            }),
            ("dying", None) => Ok(Self::Dying { at: time(first)? }),
            ("spike", Some(d)) => Ok(Self::Spike {
                every: first
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| format!("'{first}' is not a number of requests: {form}"))?,
                by: time(d)?,
            }),
            _ => Err(format!("'{text}' is not a fault: {form}")),
        }
    }
}

/// What faults do to one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Effect {
    /// It reaches the device later by this, ns.
    pub(crate) before: u64,
    /// It completes later by this, ns.
    pub(crate) after: u64,
    /// Negative errno.
    pub(crate) error: Option<i64>,
}

/// The schedule at work.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    list: Vec<Fault>,
    requests: u64,
}

impl Faults {
    pub(crate) fn new(list: Vec<Fault>) -> Self {
        Self { list, requests: 0 }
    }

    #[inline]
    pub(crate) fn none(&self) -> bool {
        self.list.is_empty()
    }

    /// For a request at `now` on the slow clock, which runs `lapse` times as fast; `bits` are random.
    #[cold]
    pub(crate) fn effect(
        &mut self,
        now: u64,
        lapse: u64,
        offset: u64,
        len: u32,
        bits: u64,
    ) -> Effect {
        self.requests += 1;
        let mut e = Effect::default();
        for f in &self.list {
            match *f {
                Fault::Error { offset: o, len: l } => {
                    if offset < o.saturating_add(l) && o < offset + u64::from(len) {
                        e.error = Some(-EIO);
                    }
                }
                Fault::Stall { at, length } => {
                    let end = at.0.saturating_add(length.0);
                    if now >= at.0 && now < end {
                        e.before = e.before.max((end - now) / lapse);
                    }
                }
                Fault::Dying { at } => {
                    if now >= at.0 {
                        let share = (((now - at.0) << 16) / AGONY).min(1 << 16);
                        if (bits & 0xffff) < share {
                            e.after = e.after.max(GIVE_UP / lapse);
                            e.error = Some(-EIO);
                        } else if (bits >> 16 & 0xffff) < share * 4 {
                            e.after = e.after.max(GIVE_UP / 20 / lapse);
                        }
                    }
                }
                Fault::Spike { every, by } => {
                    if self.requests.is_multiple_of(every) {
                        e.after += by.0;
                    }
                }
            }
        }
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_text_and_nonsense_names_the_form() {
        assert_eq!(
            Fault::parse("eio@1m+4k"),
            Ok(Fault::Error {
                offset: 1 << 20,
                len: 4096
            })
        );
        assert_eq!(
            Fault::parse("stall@2s+500ms"),
            Ok(Fault::Stall {
                at: Nanos::from_secs(2),
                length: Nanos::from_millis(500)
            })
        );
        assert!(Fault::parse("dying@3s").is_ok());
        assert!(Fault::parse("spike@1000+5ms").is_ok());
        for bad in ["eio", "stall@2s", "spike@0+1ms", "flood@3", "dying@x"] {
            let e = Fault::parse(bad).unwrap_err();
            assert!(e.contains("expected"), "{bad}: {e}");
        }
    }
}
