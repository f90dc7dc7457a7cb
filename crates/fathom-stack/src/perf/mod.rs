//! Events through perf_event_open: the rung below a trace instance, where tracefs may be read but not
//! written. Each costs about twice as much, and other tracers are not disturbed either.

mod ring;

use std::os::fd::OwnedFd;

use ring::Ring;

use crate::error::TraceError;
use crate::source::{Chosen, Collected, Source};
use crate::tracefs::format::number;

/// Largest and smallest buffer of a processor.
const ROOM_MAX: u64 = 64 << 20;
const ROOM_MIN: u64 = 64 << 10;
/// `PERF_RECORD_LOST`, `PERF_RECORD_THROTTLE`, `PERF_RECORD_SAMPLE`.
const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;

#[derive(Debug)]
pub(crate) struct PerfSource {
    rings: Vec<(u16, Ring)>,
    /// Every event of every processor, the rings' own included.
    events: Vec<OwnedFd>,
    lost: u64,
    small: bool,
    bytes: Vec<u8>,
}

impl PerfSource {
    /// Opens the events on every processor, with one buffer each; those that cannot be are `absent`.
    pub(crate) fn open(
        bytes: u64,
        chosen: &[Chosen],
        absent: &mut Vec<&'static str>,
    ) -> Result<Self, TraceError> {
        let refused = |source| TraceError::Perf { source };
        let want = bytes.clamp(ROOM_MIN, ROOM_MAX).next_power_of_two();
        let mut out = Self {
            rings: Vec::new(),
            events: Vec::new(),
            lost: 0,
            small: bytes > ROOM_MAX,
            bytes: Vec::new(),
        };
        for cpu in online() {
            let mut ring: Option<Ring> = None;
            for event in chosen {
                let fd = match ring::open(event.format.id, cpu) {
                    Ok(fd) => fd,
                    Err(e) if ring.is_none() => return Err(refused(e)),
                    Err(_) => {
                        absent.push(event.boundary);
                        continue;
                    }
                };
                if let Some(filter) = &event.filter {
                    ring::set_filter(&fd, filter).map_err(refused)?;
                }
                match &ring {
                    Some(r) => r.take_from(&fd).map_err(refused)?,
                    None => {
                        // Without CAP_IPC_LOCK little memory may be locked: what is granted, with draining.
                        let mut room = want;
                        let new = loop {
                            match Ring::map(&fd, room) {
                                Ok(r) => break r,
                                Err(e) if room <= ROOM_MIN => return Err(refused(e)),
                                Err(_) => room /= 2,
                            }
                        };
                        out.small |= room < want;
                        ring = Some(new);
                    }
                }
                out.events.push(fd);
            }
            out.rings.extend(ring.map(|r| (cpu as u16, r)));
        }
        Ok(out)
    }
}

/// Numbers of the processors in use, from `0-3,8`.
fn online() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_list(text.trim()).unwrap_or_else(|| vec![0])
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        out.extend(from.parse::<u32>().ok()?..=to.parse().ok()?);
    }
    Some(out)
}

/// Takes records apart: `sample` gets time and data of each event; returns lost events and whether all
/// of it was understood.
fn records(bytes: &[u8], mut sample: impl FnMut(u64, &[u8])) -> (u64, bool) {
    let mut lost = 0;
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let kind = number(bytes, at, 4) as u32;
        let size = number(bytes, at + 6, 2) as usize;
        let Some(body) = bytes.get(at + 8..at + size).filter(|_| size >= 8) else {
            return (lost, false);
        };
        match kind {
            // pid, tid; time; processor, reserved; size, data.
            SAMPLE => {
                let len = number(body, 24, 4) as usize;
                match body.get(28..28 + len) {
                    Some(data) => sample(number(body, 8, 8), data),
                    None => return (lost, false),
                }
            }
            LOST => lost += number(body, 8, 8),
            // How many it held back is not told.
            THROTTLE => lost += 1,
            _ => {}
        }
        at += size;
    }
    (lost, at == bytes.len())
}

impl Source for PerfSource {
    fn record(&mut self, on: bool) -> Result<(), TraceError> {
        self.events
            .iter()
            .try_for_each(|fd| ring::enable(fd, on))
            .map_err(|source| TraceError::Perf { source })
    }

    fn drain(&mut self, into: &mut Collected) {
        for (cpu, ring) in &mut self.rings {
            self.bytes.clear();
            ring.read(&mut self.bytes);
            let (lost, whole) = records(&self.bytes, |ts, data| into.push(ts, *cpu, data));
            self.lost += lost;
            into.broken += u64::from(!whole);
        }
    }

    fn lost(&mut self) -> Result<u64, TraceError> {
        Ok(self.lost)
    }

    fn is_small(&self) -> bool {
        self.small
    }

    fn rest(&mut self) -> Result<bool, TraceError> {
        // A disabled perf event keeps its hook in the kernel's path: only closing it takes that out.
        Ok(false)
    }

    fn wake(&mut self) -> Result<(), TraceError> {
        self.record(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_losses_are_told_apart_and_broken_records_end_it() {
        let mut bytes = Vec::new();
        let mut record = |kind: u32, body: &[u8]| {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(0u16.to_ne_bytes());
            bytes.extend((8 + body.len() as u16).to_ne_bytes());
            bytes.extend(body);
        };
        let mut body = vec![0; 8];
        body.extend(77u64.to_ne_bytes());
        body.extend([0; 8]);
        body.extend(4u32.to_ne_bytes());
        body.extend([1, 2, 3, 4]);
        record(SAMPLE, &body);
        let mut loss = vec![0; 8];
        loss.extend(5u64.to_ne_bytes());
        record(LOST, &loss);
        let mut seen = Vec::new();
        let end = records(&bytes, |t, d| seen.push((t, d.to_vec())));
        assert_eq!(end, (5, true));
        assert_eq!(seen, [(77, vec![1, 2, 3, 4])]);
        assert!(!records(&bytes[..bytes.len() - 1], |_, _| ()).1);
        assert!(!records(&[0; 12], |_, _| ()).1);
        // A data size beyond the record.
        bytes[8 + 24] = 200;
        assert!(!records(&bytes, |_, _| ()).1);
    }

    #[test]
    fn processors_are_read_from_their_list() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list(""), None);
    }
}
