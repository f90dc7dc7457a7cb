//! The kernel events that a stack is made of, each reduced to what joining needs.

use crate::device::{Disk, heads};
use crate::tracefs::format::{Format, number};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A system call begins; `a` is its number.
    SysEnter,
    /// A system call ends; `a` is its number.
    SysExit,
    /// io_uring takes a request from the ring; `a` is the request, `b` the user data.
    RingSubmit,
    /// io_uring posts a completion; `a` is the request, `b` the user data.
    RingComplete,
    /// The thread has submitted all that it had and begins to wait for a completion of its ring.
    RingWait,
    /// The file system's direct I/O begins; `a` is the offset in the file, `b` the length.
    DirectBegin,
    /// A bio enters the block layer (Q); `a` device, `b` sector, `c` sectors, like all below.
    Queue,
    /// A request was got for it (G).
    GetRequest,
    /// Accounting of the request starts.
    IoStart,
    /// The request goes into the scheduler (I).
    Insert,
    /// The request goes to the driver (D).
    Issue,
    /// The driver gives it back: it will be issued again.
    Requeue,
    /// The request is complete (C).
    Complete,
    /// A bio is complete: for devices without requests.
    BioComplete,
    /// The NVMe driver has built a command; `a` is the device in its lower half, the queue and the command's number in it
    /// above, `b` sector, `c` sectors (0 where it names no blocks).
    CommandMade,
    /// The NVMe driver takes a command's completion; `a` as above.
    CommandDone,
    /// A bio joined a request that was already there.
    Merge,
    /// A bio was split.
    Split,
    /// An interrupt handler begins; `a` is its number.
    Irq,
    /// A thread becomes ready to run; `a` is the thread.
    Wakeup,
    /// A thread leaves the processor; `a` is the thread, `b` whether it could have run on (preempted),
    /// `c` the thread that gets the processor.
    SwitchOut,
    /// A thread gets the processor; `a` is the thread, `b` the one that had it.
    SwitchIn,
}

/// A direction and some marks of a block event, from its `rwbs` text.
pub mod rwbs {
    /// A read.
    pub const READ: u32 = 1;
    /// A write.
    pub const WRITE: u32 = 2;
    /// A flush, or a write with one before it.
    pub const FLUSH: u32 = 4;
    /// Metadata.
    pub const META: u32 = 8;
    /// Read ahead.
    pub const AHEAD: u32 = 16;
    /// Discard or secure erase.
    pub const DISCARD: u32 = 32;
    /// Not from the text: it happened in an interrupt (hard or soft), not in a thread.
    pub const INTERRUPT: u32 = 256;

    /// From the text: `R`, `WS`, `FWFSM`, …
    pub fn parse(text: &[u8]) -> u32 {
        let mut bits = 0;
        for (i, c) in text.iter().take_while(|c| **c != 0).enumerate() {
            bits |= match c {
                b'R' => READ,
                b'W' => WRITE,
                b'D' | b'E' => DISCARD,
                b'F' if i == 0 => FLUSH,
                b'M' => META,
                b'A' => AHEAD,
                _ => 0,
            };
        }
        bits
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, ns.
    pub ts: u64,
    /// See [`Kind`].
    pub a: u64,
    /// See [`Kind`].
    pub b: u64,
    /// See [`Kind`].
    pub c: u32,
    /// [`rwbs`] of block events.
    pub flags: u32,
    /// Thread that ran when it happened; 0 is the idle one.
    pub tid: u32,
    /// Processor.
    pub cpu: u16,
    /// What happened.
    pub kind: Kind,
}

/// A kernel event that is asked for: its names from newest to oldest kernel, and its fields for a, b, c.
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) names: &'static [&'static str],
    fields: [&'static str; 3],
    /// What its absence means, for people.
    pub(crate) boundary: &'static str,
}

const fn wanted(
    kind: Kind,
    names: &'static [&'static str],
    fields: [&'static str; 3],
    boundary: &'static str,
) -> Wanted {
    Wanted {
        kind,
        names,
        fields,
        boundary,
    }
}

const BLOCK: [&str; 3] = ["dev", "sector", "nr_sector"];

/// Every event, block events first.
pub(crate) const EVENTS: &[Wanted] = &[
    wanted(Kind::Queue, &["block/block_bio_queue"], BLOCK, "bio queued"),
    wanted(
        Kind::Issue,
        &["block/block_rq_issue"],
        BLOCK,
        "request issued",
    ),
    wanted(
        Kind::Complete,
        &["block/block_rq_complete"],
        BLOCK,
        "request complete",
    ),
    wanted(
        Kind::CommandMade,
        &["nvme/nvme_setup_cmd"],
        ["qid", "cid", "opcode"],
        "NVMe command built",
    ),
    wanted(
        Kind::CommandDone,
        &["nvme/nvme_complete_rq"],
        ["qid", "cid", ""],
        "NVMe command complete",
    ),
    wanted(
        Kind::GetRequest,
        &["block/block_getrq"],
        BLOCK,
        "request got",
    ),
    wanted(
        Kind::IoStart,
        &["block/block_io_start"],
        BLOCK,
        "accounting started",
    ),
    wanted(
        Kind::Insert,
        &["block/block_rq_insert"],
        BLOCK,
        "inserted into the scheduler",
    ),
    wanted(
        Kind::Requeue,
        &["block/block_rq_requeue"],
        BLOCK,
        "requeued",
    ),
    wanted(Kind::Merge, &["block/block_bio_backmerge"], BLOCK, "merged"),
    wanted(
        Kind::Merge,
        &["block/block_bio_frontmerge"],
        BLOCK,
        "merged in front",
    ),
    wanted(
        Kind::Split,
        &["block/block_split"],
        ["dev", "sector", ""],
        "split",
    ),
    wanted(
        Kind::BioComplete,
        &["block/block_bio_complete"],
        BLOCK,
        "bio complete",
    ),
    wanted(
        Kind::Irq,
        &["irq/irq_handler_entry"],
        ["irq", "", ""],
        "interrupt",
    ),
    wanted(
        Kind::SysEnter,
        &["raw_syscalls/sys_enter"],
        ["id", "", ""],
        "system call entry",
    ),
    wanted(
        Kind::SysExit,
        &["raw_syscalls/sys_exit"],
        ["id", "ret", ""],
        "system call exit",
    ),
    wanted(
        Kind::RingSubmit,
        &[
            "io_uring/io_uring_submit_req",
            "io_uring/io_uring_submit_sqe",
        ],
        ["req", "user_data", ""],
        "io_uring takes a request",
    ),
    wanted(
        Kind::RingComplete,
        &["io_uring/io_uring_complete"],
        ["req", "user_data", ""],
        "io_uring completion",
    ),
    wanted(
        Kind::RingWait,
        &["io_uring/io_uring_cqring_wait"],
        ["", "", ""],
        "io_uring begins to wait",
    ),
    wanted(
        Kind::DirectBegin,
        &["iomap/iomap_dio_rw_begin"],
        ["pos", "count", ""],
        "direct I/O of the file system begins",
    ),
    wanted(
        Kind::Wakeup,
        &["sched/sched_wakeup"],
        ["pid", "target_cpu", ""],
        "wake-up",
    ),
    wanted(
        Kind::SwitchOut,
        &["sched/sched_switch"],
        ["prev_pid", "prev_state", "next_pid"],
        "switched out and in",
    ),
];

/// `blk_rq_trace_sector` of a request that came past the block layer (linux/blktrace_api.h).
const NO_SECTOR: u64 = u64::MAX;

/// Reads one event's fields at the offsets of this kernel.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    kind: Kind,
    pid: (usize, usize),
    context: (usize, usize),
    fields: [Option<(usize, usize)>; 3],
    rwbs: Option<(usize, usize)>,
    /// Paths of multipath heads and the heads: a request of a path is its head's.
    heads: Vec<(u64, u64)>,
    /// Of events that name their disk: where the name and the command's double words from 10 on stand, and the disks.
    disk: Option<(usize, usize)>,
    words: Option<(usize, usize)>,
    named: Vec<Named>,
    /// Names of the threads of a switch: out, in.
    names: [Option<(usize, usize)>; 2],
}

/// A disk, or a path of one, as drivers know it.
#[derive(Debug, Clone)]
struct Named {
    name: String,
    /// The disk's number.
    dev: u64,
    /// Sectors of a logical block.
    sectors: u64,
}

impl Named {
    fn all(disk: &Disk) -> impl Iterator<Item = Self> {
        let names = std::iter::once(&disk.name).chain(disk.paths.iter().map(|p| &p.0));
        names.map(|name| Self {
            name: name.clone(),
            dev: disk.dev,
            sectors: u64::from(disk.block_bytes / 512).max(1),
        })
    }
}

/// NVMe's commands that carry a first block and a number of blocks (NVM command set 1.0, 3.2; zoned 1.1, 3.4.1).
mod opcode {
    pub(super) const WRITE: u64 = 0x01;
    pub(super) const READ: u64 = 0x02;
    pub(super) const APPEND: u64 = 0x7d;
}

impl Decoder {
    pub(crate) fn new<'a>(
        wanted: &Wanted,
        format: &Format,
        disks: impl Iterator<Item = &'a Disk> + Clone,
    ) -> Self {
        let place = |name: &str| {
            (!name.is_empty())
                .then(|| format.field(name).map(|f| (f.offset, f.size)))
                .flatten()
        };
        Self {
            kind: wanted.kind,
            pid: place("common_pid").unwrap_or((4, 4)),
            context: place("common_flags").unwrap_or((2, 1)),
            fields: wanted.fields.map(place),
            rwbs: place("rwbs"),
            heads: heads(disks.clone()),
            disk: place("disk"),
            words: place("cdw10"),
            named: disks.flat_map(Named::all).collect(),
            names: ["prev_comm", "next_comm"].map(place),
        }
    }

    /// The threads of a switch with their names, for events that carry them.
    pub(crate) fn names<'a>(&self, data: &'a [u8]) -> Option<[(u32, &'a [u8]); 2]> {
        if self.kind != Kind::SwitchOut {
            return None;
        }
        let name = |i: usize| {
            let (o, s) = self.names[i]?;
            let text = data.get(o..o + s)?;
            text.split(|c| *c == 0).next()
        };
        let tid = |i: usize| self.fields[i].map_or(0, |(o, s)| number(data, o, s)) as u32;
        Some([(tid(0), name(0)?), (tid(2), name(1)?)])
    }

    /// A command of one of the disks: `event` has the queue, the command's number and its operation.
    fn command(&self, event: Event, data: &[u8]) -> Option<Event> {
        let (at, len) = self.disk?;
        let name = data.get(at..at + len)?.split(|c| *c == 0).next()?;
        let disk = self.named.iter().find(|d| d.name.as_bytes() == name)?;
        let number_of = |offset: usize, size: usize| match self.words {
            Some((at, len)) if offset + size <= len => number(data, at + offset, size),
            _ => 0,
        };
        let direction = match u64::from(event.c) {
            opcode::READ => rwbs::READ,
            opcode::WRITE | opcode::APPEND => rwbs::WRITE,
            // Flushes and the like belong to no I/O's data.
            _ => rwbs::META,
        };
        Some(Event {
            a: disk.dev | (event.a & 0xffff) << 32 | (event.b & 0xffff) << 48,
            b: number_of(0, 8).wrapping_mul(disk.sectors),
            // Blocks, less one.
            c: ((number_of(8, 2) + 1) * disk.sectors) as u32,
            flags: event.flags | direction,
            ..event
        })
    }

    /// One kernel event is one or two of ours: a switch takes one thread out and another in.
    pub(crate) fn decode(&self, ts: u64, cpu: u16, data: &[u8], mut each: impl FnMut(Event)) {
        let get = |p: Option<(usize, usize)>| p.map_or(0, |(o, s)| number(data, o, s));
        let flags = self
            .rwbs
            .and_then(|(o, s)| data.get(o..o + s))
            .map_or(0, rwbs::parse);
        // TRACE_FLAG_HARDIRQ and TRACE_FLAG_SOFTIRQ.
        let interrupt = number(data, self.context.0, self.context.1) & 0x18 != 0;
        let flags = flags | if interrupt { rwbs::INTERRUPT } else { 0 };
        let mut event = Event {
            ts,
            a: get(self.fields[0]),
            b: get(self.fields[1]),
            c: get(self.fields[2]) as u32,
            flags,
            tid: number(data, self.pid.0, self.pid.1) as u32,
            cpu,
            kind: self.kind,
        };
        if matches!(self.kind, Kind::CommandMade | Kind::CommandDone) {
            if let Some(command) = self.command(event, data) {
                each(command);
            }
            return;
        }
        // The request of a command that came past the block layer names no sector.
        if self.rwbs.is_some() && event.b == NO_SECTOR {
            return;
        }
        if self.rwbs.is_some()
            && let Some((_, head)) = self.heads.iter().find(|h| h.0 == event.a)
        {
            event.a = *head;
        }
        if self.kind == Kind::SwitchOut {
            let next = u64::from(event.c);
            // TASK_RUNNING is 0; a preempted thread carries one bit above the states in use.
            event.b = u64::from(event.b & 0x7f == 0);
            each(event);
            event.kind = Kind::SwitchIn;
            event.b = event.a;
            event.a = next;
            event.c = 0;
        }
        each(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_block_event_come_from_its_text() {
        assert_eq!(rwbs::parse(b"R\0\0"), rwbs::READ);
        assert_eq!(rwbs::parse(b"RAM\0"), rwbs::READ | rwbs::AHEAD | rwbs::META);
        assert_eq!(rwbs::parse(b"WFS\0"), rwbs::WRITE);
        assert_eq!(rwbs::parse(b"FWFS\0"), rwbs::FLUSH | rwbs::WRITE);
    }

    #[test]
    fn a_switch_is_one_thread_out_and_another_in() {
        let format = Format::parse(
            "name: sched_switch\nID: 5\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n",
        )
        .unwrap();
        let wanted = EVENTS.iter().find(|w| w.kind == Kind::SwitchOut).unwrap();
        let mut data = vec![0u8; 28];
        data[8..12].copy_from_slice(&7u32.to_ne_bytes());
        data[16..24].copy_from_slice(&1u64.to_ne_bytes());
        data[24..28].copy_from_slice(&9u32.to_ne_bytes());
        let mut seen = Vec::new();
        Decoder::new(wanted, &format, std::iter::empty())
            .decode(1, 0, &data, |e| seen.push((e.kind, e.a, e.b)));
        assert_eq!(seen, [(Kind::SwitchOut, 7, 0), (Kind::SwitchIn, 9, 7)]);
    }
}
