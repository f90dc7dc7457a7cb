//! Faults on a schedule: bytes that cannot be read, a device that stalls, slows down, or dies.
//!
//! Times are those of the test since its start, so that a sampled run meets them too.

use fathom_io::load::rng::Rng;
use fathom_telemetry::{Bytes, Nanos};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Commands that touch these bytes fail.
    Error {
        /// First byte.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// Commands that arrive while it lasts wait for its end.
    Stall {
        /// Begin and end, ns.
        span: (u64, u64),
    },
    /// Everything takes longer.
    Spike {
        /// Begin and end, ns.
        span: (u64, u64),
        /// How many times.
        factor: f64,
    },
    /// From begin to end more and more commands fail, and what succeeds takes up to ten times as long; then all
    /// fail.
    Dying {
        /// Begin and end, ns.
        span: (u64, u64),
    },
}

/// Keys of the faults in a target's options.
pub const KEYS: &[&str] = &["error", "stall", "spike", "dying", "dead"];

impl Fault {
    /// From an option: `error=1g+4k`, `stall=2s+500ms`, `spike=2s+1sx10`, `dying=5s+10s`, `dead=5s`.
    ///
    /// # Errors
    /// What was expected.
    pub fn parse(key: &str, value: &str) -> Result<Self, String> {
        let example = match key {
            "error" => "a byte offset and a length, such as error=1g+4k",
            "stall" => "when and for how long, such as stall=2s+500ms",
            "spike" => "when, for how long and how many times (1 to 10000), such as spike=2s+1sx10",
            "dying" => "when it begins and how long it takes, such as dying=5s+10s",
            _ => "when, such as dead=5s",
        };
        let bad = || format!("{key}={value}: expected {example}");
        let (first, rest) = value.split_once('+').unwrap_or((value, ""));
        let time = |t: &str| t.parse::<Nanos>().map(|n| n.0).map_err(|_| bad());
        let span = |rest: &str| {
            let (from, long) = (time(first)?, time(rest)?);
            Ok::<_, String>((from, from.saturating_add(long)))
        };
        Ok(match key {
            "error" => {
                let from = first.parse::<Bytes>().map_err(|_| bad())?.0;
                let long = match rest {
                    "" => 512,
                    rest => rest.parse::<Bytes>().map_err(|_| bad())?.0,
                };
                Self::Error {
                    from,
                    to: from.saturating_add(long.max(1)),
                }
            }
            "stall" => Self::Stall { span: span(rest)? },
            "spike" => {
                let (long, factor) = rest.split_once('x').ok_or_else(bad)?;
                let factor = factor.parse::<f64>().map_err(|_| bad())?;
                if !(1.0..=1e4).contains(&factor) {
                    return Err(bad());
                }
                Self::Spike {
                    span: span(long)?,
                    factor,
                }
            }
            "dying" => Self::Dying { span: span(rest)? },
            _ => {
                let at = time(value)?;
                Self::Dying { span: (at, at) }
            }
        })
    }
}

/// What faults do to one command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// It begins no sooner, ns of the test.
    pub not_before: u64,
    /// Its time is multiplied by this.
    pub factor: f64,
    /// It fails.
    pub fails: bool,
}

/// The faults of one device.
#[derive(Debug, Clone)]
pub struct Faults {
    all: Vec<Fault>,
    rng: Rng,
}

impl Faults {
    /// `None` where there are none.
    pub fn new(all: &[Fault], seed: u64) -> Option<Box<Self>> {
        (!all.is_empty()).then(|| {
            Box::new(Self {
                all: all.to_vec(),
                rng: Rng::new(seed, 0x4641_554c),
            })
        })
    }

    /// Of a command on `offset..offset + bytes` at `now` of the test.
    pub fn effect(&mut self, now: u64, offset: u64, bytes: u32) -> Effect {
        let mut e = Effect {
            not_before: now,
            factor: 1.0,
            fails: false,
        };
        for fault in &self.all {
            match *fault {
                Fault::Error { from, to } => {
                    e.fails |= offset < to && offset + u64::from(bytes) > from;
                }
                Fault::Stall { span } => {
                    if (span.0..span.1).contains(&now) {
                        e.not_before = e.not_before.max(span.1);
                    }
                }
                Fault::Spike { span, factor } => {
                    if (span.0..span.1).contains(&now) {
                        e.factor *= factor;
                    }
                }
                Fault::Dying { span } => {
                    if now >= span.1 {
                        e.fails = true;
                    } else if now >= span.0 {
                        let gone = (now - span.0) as f64 / (span.1 - span.0) as f64;
                        e.factor *= 1.0 + 9.0 * gone;
                        e.fails |= self.rng.unit() < gone;
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
    fn options_name_each_fault_and_bad_ones_are_refused_with_an_example() {
        assert_eq!(
            Fault::parse("error", "1m+4k"),
            Ok(Fault::Error {
                from: 1 << 20,
                to: (1 << 20) + 4096
            })
        );
        assert_eq!(
            Fault::parse("spike", "2s+1sx10"),
            Ok(Fault::Spike {
                span: (2_000_000_000, 3_000_000_000),
                factor: 10.0
            })
        );
        for (key, value) in [("stall", "2s"), ("spike", "2s+1s"), ("dead", "soon")] {
            let e = Fault::parse(key, value).unwrap_err();
            assert!(e.contains("expected") && e.contains("such as"), "{e}");
        }
    }

    #[test]
    fn a_dying_device_fails_more_and_more_often() {
        let mut f = Faults::new(&[Fault::Dying { span: (0, 1000) }], 1).unwrap();
        let mut failed = |now| (0..1000).filter(|_| f.effect(now, 0, 4096).fails).count();
        let (early, late) = (failed(100), failed(900));
        assert!((50..150).contains(&early), "{early}");
        assert!((850..950).contains(&late), "{late}");
        assert_eq!(failed(1000), 1000);
    }
}
