//! Writes on a device with zones: at the write pointers of as many zones as are to be open, one I/O at a time in each (appends:
//! as many as there are slots), and the next zone where one is full.
//!
//! What the zones hold is asked once, before the job begins; from then on every write moves the pointer that is kept here.

use std::sync::Arc;

use fathom_host::{Zone, ZoneState};
use fathom_telemetry::{Nanos, Op, Record};

use super::guide::{Guide, Next, Pilot, PilotIo};
use crate::job::{Command, ValidJob};

/// Why a job cannot write on zones, in a sentence; `None` where it can.
pub fn unfit(job: &ValidJob) -> Option<&'static str> {
    let (spec, rw) = (&job.spec, job.spec.rw);
    if !rw.modifies() {
        return None;
    }
    let manages = spec.command.manages_zones();
    if rw.is_random() || (rw.reads() && rw.writes()) || (rw.trims() && !manages) {
        return Some(
            "its writes would not go to the write pointers: use --rw write, or a device without zones",
        );
    }
    if job.feed.is_some() || spec.bs.0.len() > 1 {
        return Some("zones are written in blocks of one size: give one --bs");
    }
    if !spec.direct {
        return Some("the page cache writes in an order of its own: drop --buffered");
    }
    None
}

/// What leads such a job, of so many threads with a depth each, over these zones; `None` where it writes nothing.
///
/// # Errors
/// Why there is nothing that it could do, in a sentence.
pub fn guide(
    job: &ValidJob,
    (seats, depth): (u32, u32),
    zones: &[Zone],
) -> Result<Option<Guide>, String> {
    if !job.spec.rw.modifies() {
        return Ok(None);
    }
    if let Some(why) = unfit(job) {
        return Err(why.to_owned());
    }
    let whole = |z: &&Zone| z.start >= job.start && z.end() <= job.end;
    let inside: Vec<Zone> = zones.iter().filter(whole).copied().collect();
    let useful = usable(&inside, job);
    if useful.is_empty() {
        return Err(format!(
            "none of the {} zones of its range {}: {}",
            inside.len(),
            match job.spec.command {
                Command::ZoneReset | Command::ZoneFinish =>
                    "has a write pointer that could be moved",
                _ => "has room for a block at its write pointer",
            },
            match job.spec.command {
                Command::ZoneReset | Command::ZoneFinish => "choose another --offset and --size",
                _ =>
                    "reset some (fathom run … --rw trim --command zone-reset --engine preadv), or choose another --offset and --size",
            }
        ));
    }
    let (spec, useful) = (job.spec.clone(), Arc::new(useful));
    Ok(Some(Guide {
        pilot: Some(Arc::new(move |thread| {
            // Whole zones each: no two threads write at one pointer.
            let own = useful.iter().skip(thread as usize).step_by(seats as usize);
            let own: Vec<Zone> = own.copied().collect();
            Box::new(AtPointers::new(
                own,
                spec.zones_at_a_time(depth),
                spec.bs.max().0 as u32,
                spec.command,
                spec.time.is_none() && spec.ios.is_none() && spec.bytes.is_none(),
            ))
        })),
        ..Guide::default()
    }))
}

/// Those with which the job can do something.
fn usable(zones: &[Zone], job: &ValidJob) -> Vec<Zone> {
    let block = job.spec.bs.max().0;
    let alive = |z: &&Zone| !matches!(z.state, ZoneState::Offline | ZoneState::ReadOnly);
    let fits = |z: &&Zone| match job.spec.command {
        Command::ZoneReset => z.is_sequential() && z.state != ZoneState::Empty,
        Command::ZoneFinish => z.is_sequential() && z.state != ZoneState::Full,
        Command::Append => z.is_sequential() && z.room() >= block,
        _ => z.room() >= block,
    };
    zones.iter().filter(alive).filter(fits).copied().collect()
}

/// A zone that is being written.
#[derive(Debug, Clone, Copy)]
struct Lane {
    start: u64,
    next: u64,
    end: u64,
    /// I/Os that have not completed.
    under_way: u32,
}

/// One thread's way over its zones.
struct AtPointers {
    /// Zones to come, the next one last.
    rest: Vec<Zone>,
    lanes: Vec<Lane>,
    /// Whose turn it is.
    turn: usize,
    block: u32,
    command: Command,
    /// Nothing but the zones ends the job.
    once: bool,
}

impl AtPointers {
    fn new(mut zones: Vec<Zone>, open: u32, block: u32, command: Command, once: bool) -> Self {
        zones.reverse();
        let mut own = Self {
            rest: zones,
            // A zone is opened before the full one goes.
            lanes: Vec::with_capacity(open as usize + 1),
            turn: 0,
            block,
            command,
            once,
        };
        if !command.manages_zones() {
            while own.lanes.len() < open as usize && own.open_next() {}
        }
        own
    }

    /// Begins with the next zone.
    fn open_next(&mut self) -> bool {
        let Some(zone) = self.rest.pop() else {
            return false;
        };
        // A block that does not fit any more stays unwritten.
        let block = u64::from(self.block);
        let end = zone.pointer + (zone.end() - zone.pointer) / block * block;
        self.lanes.push(Lane {
            start: zone.start,
            next: zone.pointer,
            end,
            under_way: 0,
        });
        true
    }

    fn write(&mut self) -> Next {
        let io = |offset| {
            Next::Start(PilotIo {
                op: Op::Write,
                offset,
                len: self.block,
                file: 0,
                priority: 0,
            })
        };
        let count = self.lanes.len();
        for k in 0..count {
            let i = (self.turn + k) % count;
            let lane = &mut self.lanes[i];
            let follows = lane.under_way == 0 || self.command == Command::Append;
            if !follows || lane.next >= lane.end {
                continue;
            }
            self.turn = i + 1;
            let at = lane.next;
            lane.next += u64::from(self.block);
            lane.under_way += 1;
            return io(match self.command {
                Command::Append => lane.start,
                _ => at,
            });
        }
        match self.lanes.iter().any(|l| l.under_way > 0) {
            true => Next::Drain,
            false => Next::End,
        }
    }
}

impl Pilot for AtPointers {
    fn decides_end(&self) -> bool {
        self.once
    }

    fn next(&mut self, _now: Nanos) -> Next {
        if !self.command.manages_zones() {
            return self.write();
        }
        match self.rest.pop() {
            Some(zone) => Next::Start(PilotIo {
                op: Op::Trim,
                offset: zone.start,
                len: self.block,
                file: 0,
                priority: 0,
            }),
            None => Next::End,
        }
    }

    fn done(&mut self, io: &PilotIo, record: &Record, _data: &[u8]) -> i64 {
        let of = |l: &&mut Lane| (l.start..l.end).contains(&io.offset);
        if io.op == Op::Write
            && let Some(lane) = self.lanes.iter_mut().find(of)
        {
            lane.under_way -= 1;
            if record.result < i64::from(io.len) {
                // Nobody knows where the pointer is now.
                lane.next = lane.end;
            }
            if lane.next >= lane.end && lane.under_way == 0 {
                self.replace_full();
            }
        }
        record.result
    }
}

impl AtPointers {
    /// Lanes at their end make room for zones to come.
    fn replace_full(&mut self) {
        let mut i = 0;
        while i < self.lanes.len() {
            let lane = self.lanes[i];
            if lane.next >= lane.end && lane.under_way == 0 && self.open_next() {
                self.lanes.swap_remove(i);
            }
            i += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobSpec, Limits};
    use fathom_host::ZoneKind;

    const MIB: u64 = 1 << 20;

    fn zones(pointers: &[u64]) -> Vec<Zone> {
        let zone = |(i, p): (usize, &u64)| {
            let start = i as u64 * 4 * MIB;
            Zone {
                start,
                size: 4 * MIB,
                capacity: 3 * MIB,
                pointer: start + p * MIB,
                kind: ZoneKind::SequentialRequired,
                state: match p {
                    0 => ZoneState::Empty,
                    3 => ZoneState::Full,
                    _ => ZoneState::Closed,
                },
            }
        };
        pointers.iter().enumerate().map(zone).collect()
    }

    fn pilot(
        options: &[(&str, &str)],
        zones: &[Zone],
        thread: u32,
    ) -> Result<Box<dyn Pilot>, String> {
        let mut spec = JobSpec::default();
        for (name, text) in [("rw", "write"), ("bs", "1m")].iter().chain(options) {
            spec.set(name, text).unwrap();
        }
        let limits = Limits {
            size: 64 * MIB,
            direct_align: 4096,
            hosts: 1,
        };
        let job = spec.validate(&limits).unwrap();
        let guide = guide(&job, (spec.threads, spec.qd), zones)?;
        Ok(guide.unwrap().pilot.unwrap()(thread))
    }

    /// Lets a pilot run with `depth` slots; the offsets that it asked for, in MiB, and the largest number outstanding.
    fn run(pilot: &mut dyn Pilot, depth: usize) -> (Vec<u64>, usize) {
        let (mut offsets, mut under_way, mut most) = (Vec::new(), Vec::new(), 0);
        loop {
            let next = if under_way.len() < depth {
                pilot.next(Nanos::ZERO)
            } else {
                Next::Drain
            };
            match next {
                Next::Start(io) => {
                    offsets.push(io.offset / MIB);
                    under_way.push(io);
                    most = most.max(under_way.len());
                }
                _ if !under_way.is_empty() => {
                    let io = under_way.remove(0);
                    let record = Record {
                        intended: Nanos::ZERO,
                        submitted: Nanos::ZERO,
                        completed: Nanos::ZERO,
                        offset: io.offset,
                        len: io.len,
                        result: io.len.into(),
                        op: io.op,
                    };
                    pilot.done(&io, &record, &[]);
                }
                Next::End => return (offsets, most),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn writes_begin_at_the_pointers_and_go_on_in_the_next_zone() {
        let all = zones(&[3, 1, 0, 2]);
        let (offsets, most) = run(&mut *pilot(&[], &all, 0).unwrap(), 1);
        // The first zone is full, the gap behind each capacity is left out.
        assert_eq!(offsets, [5, 6, 8, 9, 10, 14]);
        assert_eq!(most, 1);
    }

    #[test]
    fn as_many_zones_as_outstanding_writes_each_with_one() {
        let all = zones(&[0, 0, 0, 0]);
        let mut p = pilot(&[("qd", "3")], &all, 0).unwrap();
        let (offsets, most) = run(&mut *p, 3);
        assert_eq!(offsets[..6], [0, 4, 8, 1, 5, 9]);
        assert_eq!((offsets.len(), most), (12, 3));
        // More slots than zones: no zone has two writes.
        let mut p = pilot(&[("qd", "8"), ("open-zones", "2")], &all, 0).unwrap();
        assert_eq!(run(&mut *p, 8).1, 2);
    }

    #[test]
    fn threads_have_zones_of_their_own() {
        let all = zones(&[0, 0, 0, 0]);
        let of = |t| run(&mut *pilot(&[("threads", "2")], &all, t).unwrap(), 1).0;
        assert_eq!(of(0), [0, 1, 2, 8, 9, 10]);
        assert_eq!(of(1), [4, 5, 6, 12, 13, 14]);
    }

    #[test]
    fn appends_name_the_zone_and_any_number_is_under_way_in_it() {
        let all = zones(&[1, 0, 3]);
        let options = [("command", "append"), ("engine", "uring-cmd"), ("qd", "4")];
        let mut p = pilot(&options, &all, 0).unwrap();
        let (offsets, most) = run(&mut *p, 4);
        // A full zone is closed before another one is opened.
        assert_eq!(offsets, [0, 0, 4, 4, 4]);
        assert_eq!(most, 3);
    }

    #[test]
    fn zones_are_reset_and_finished_once_where_that_changes_anything() {
        let all = zones(&[3, 1, 0]);
        let of = |command| {
            let options = [("rw", "trim"), ("command", command), ("engine", "preadv")];
            run(&mut *pilot(&options, &all, 0).unwrap(), 1).0
        };
        assert_eq!(of("zone-reset"), [0, 4]);
        assert_eq!(of("zone-finish"), [4, 8]);
    }

    #[test]
    fn what_zones_cannot_take_is_refused_with_the_reason() {
        let all = zones(&[3, 3]);
        let said = |options: &[(&str, &str)]| pilot(options, &all, 0).err().unwrap();
        assert!(said(&[]).contains("zone-reset"), "{}", said(&[]));
        assert!(said(&[("rw", "randwrite")]).contains("write pointers"));
        assert!(said(&[("rw", "rw")]).contains("write pointers"));
        assert!(said(&[("rw", "trim")]).contains("write pointers"));
        assert!(said(&[("bs", "4k,8k")]).contains("one --bs"));
    }
}
