//! NVMe commands through io_uring, past the block layer: the rings of [`super::uring`] with entries of 128 bytes, each of
//! which carries a whole command to the namespace's character device (`/dev/ng0n1`, Linux 5.19).
//!
//! Whoever is here has passed the guard of the block device that it is.

use std::sync::Arc;

use fathom_host::Passthrough;
use fathom_telemetry::Op;
use io_uring::{cqueue, squeue};

use super::uring::{Entries, Shape, Uring, kernel};
use super::{PortError, Request};
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::job::{Command, JobSpec, ValidJob};

/// IORING_OP_URING_CMD and NVME_URING_CMD_IO, `_IOWR('N', 0x80, struct nvme_uring_cmd)` of 72 bytes.
const URING_CMD: u64 = 46;
const NVME_IO: u64 = 0xC048_4E80;
/// IORING_URING_CMD_FIXED: the address lies in the registered buffer.
const FIXED: u64 = 1 << 32;
/// Opcodes of the NVM command set, and of zoned namespaces.
const FLUSH: u64 = 0x00;
const WRITE: u64 = 0x01;
const READ: u64 = 0x02;
const COMPARE: u64 = 0x05;
const WRITE_ZEROES: u64 = 0x08;
const DATASET: u64 = 0x09;
const VERIFY: u64 = 0x0C;
const COPY: u64 = 0x19;
const ZONE_MANAGEMENT: u64 = 0x79;
const ZONE_APPEND: u64 = 0x7D;
/// Dataset management: deallocate, in the upper half of the double words 10 and 11.
const DEALLOCATE: u64 = 1 << (2 + 32);
/// Double word 12: forced unit access.
const FUA: u64 = 1 << 30;
/// Double word 12: a directive of data placement (FDP), whose handle stands in the upper half of double word 13.
const PLACED: u64 = 2 << 20;
const HANDLE: u32 = 32 + 16;
/// Double word 13: finish and reset a zone.
const FINISH: u64 = 2 << 32;
const RESET: u64 = 4 << 32;
/// Blocks of a command that moves no data: 16 bits less one.
const BLOCKS_MOST: u64 = 1 << 16;

/// In place of an errno: an append went to another zone than was asked for, or where another one had gone.
pub const APPENDED_ELSEWHERE: i32 = 4097;
/// In place of an errno: the drive holds other data than was handed over for comparison.
pub const COMPARED_DIFFERENT: i32 = 4098;

/// How the commands of one direction are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With the slot's buffer.
    Moves(u64),
    /// Without data.
    Bare(u64),
    /// With the place that is copied from.
    Copies,
}

/// What makes commands of requests.
pub struct Commands {
    nsid: u64,
    block_shift: u32,
    /// Of double word 12 of every read and write.
    protection: u64,
    fixed: u64,
    /// Of reads and of writes.
    ways: [Way; 2],
    /// What is asked of a zone in the place of discards: double word 13.
    zone_action: Option<u64>,
    /// First block of what is copied, less the first block that it is copied to.
    copy_distance: u64,
    /// Double words 12 and 13 of the placement handles that writes name in turn.
    handles: Box<[u64]>,
    turn: usize,
    appended: Option<Appended>,
    /// Bytes of each slot's command: a completion does not say them.
    lengths: Box<[u32]>,
    /// What each slot deallocates or copies, as the drive reads it.
    ranges: Box<[[u64; 4]]>,
}

/// Where a thread's appends went: each inside the zone that was asked for, and no two to one place.
struct Appended {
    zone_blocks: u64,
    /// First block of the tested range, and blocks of an append.
    first: u64,
    unit: u64,
    /// A bit for each place of a unit.
    seen: Box<[u64]>,
    /// First block of the zone that each slot asked for.
    asked: Box<[u64]>,
}

impl Appended {
    /// Whether an append that the drive put at `block` may be there; it is, from now on.
    #[inline]
    fn enter(&mut self, slot: usize, block: u64) -> bool {
        let inside = self.asked.get(slot).is_some_and(|zone| {
            block >= *zone && block.saturating_add(self.unit) <= zone + self.zone_blocks
        });
        // No append begins less than a unit after another one, so that no two have one bit.
        let place = block.wrapping_sub(self.first) / self.unit;
        let bit = 1 << (place % 64);
        match usize::try_from(place / 64)
            .ok()
            .and_then(|i| self.seen.get_mut(i))
        {
            Some(word) if inside && *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }
}

impl Uring<Commands> {
    /// Makes the ring, as [`Uring::new`].
    ///
    /// # Errors
    /// What the kernel refuses, and blocks that are larger than one command of this drive.
    pub fn commands(
        device: &Arc<Passthrough>,
        job: &ValidJob,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let spec = &job.spec;
        let most = most_bytes(device, spec.command);
        if spec.bs.max().0 > most {
            return Err(PortError {
                what: format!(
                    "one command of this drive moves at most {most} bytes, and nobody splits it: expected a smaller --bs"
                ),
                source: std::io::Error::from_raw_os_error(libc::EMSGSIZE),
            });
        }
        let old = kernel() < (6, 1);
        // The kernel counts the pages of all that is registered from a slot on, not those of one command (Linux 6.1).
        let pages = buffers.whole().1 as u64 / 4096;
        let plain_buffers = old || spec.plain_buffers || pages > device.most_segments;
        let fixed = if plain_buffers { 0 } else { FIXED };
        let commands = Commands::new(device, job, depth, fixed);
        let spec = JobSpec {
            plain_buffers,
            ..spec.clone()
        };
        let mut ring = Self::with(
            commands,
            vec![device.file.clone()],
            &spec,
            depth,
            buffers,
            clock,
        )?;
        if !ring.has_fixed_buffer() {
            ring.entries.fixed = 0;
        }
        Ok(ring)
    }
}

/// Bytes of the largest command of a kind.
fn most_bytes(device: &Passthrough, command: Command) -> u64 {
    let unmoved = BLOCKS_MOST * u64::from(device.block_bytes);
    match command {
        Command::Append => {
            let zones = device.zones.as_ref().map_or(0, |z| z.append_bytes);
            if zones == 0 { device.most_bytes } else { zones }
        }
        Command::Copy => device.operations.copy_bytes.unwrap_or(0),
        Command::WriteZeroes | Command::ZoneReset | Command::ZoneFinish => unmoved,
        // QEMU and most drives hold a verify to the limit of a transfer.
        Command::Verify | Command::Compare | Command::Plain => device.most_bytes,
    }
}

impl Commands {
    fn new(device: &Passthrough, job: &ValidJob, depth: u32, fixed: u64) -> Self {
        let spec = &job.spec;
        let block_shift = device.block_bytes.trailing_zeros();
        let [read, write] = match spec.command {
            Command::Verify => [Way::Bare(VERIFY), Way::Moves(WRITE)],
            Command::Compare => [Way::Moves(COMPARE), Way::Moves(WRITE)],
            Command::Append => [Way::Moves(READ), Way::Moves(ZONE_APPEND)],
            Command::WriteZeroes => [Way::Moves(READ), Way::Bare(WRITE_ZEROES)],
            Command::Copy => [Way::Moves(READ), Way::Copies],
            Command::Plain | Command::ZoneReset | Command::ZoneFinish => {
                [Way::Moves(READ), Way::Moves(WRITE)]
            }
        };
        let all = &device.operations.placements;
        let handle = |n: &u32| {
            let id = all.get(*n as usize).map_or(0, |p| p.id);
            PLACED | u64::from(id) << HANDLE
        };
        let unit = (spec.bs.max().0 >> block_shift).max(1);
        let zones = device
            .zones
            .as_ref()
            .filter(|_| spec.command == Command::Append);
        let places = (job.range() >> block_shift) / unit + 1;
        Self {
            nsid: device.nsid.into(),
            block_shift,
            protection: device.protection.into(),
            fixed,
            ways: [read, write],
            zone_action: match spec.command {
                Command::ZoneReset => Some(RESET),
                Command::ZoneFinish => Some(FINISH),
                _ => None,
            },
            copy_distance: (spec
                .copy_source(&(job.start..job.end))
                .wrapping_sub(job.start) as i64
                >> block_shift) as u64,
            handles: spec.placement.iter().map(handle).collect(),
            turn: 0,
            appended: zones.map(|z| Appended {
                zone_blocks: z.zone_bytes >> block_shift,
                first: job.start >> block_shift,
                unit,
                seen: vec![0; places.div_ceil(64) as usize].into(),
                asked: vec![0; depth as usize].into(),
            }),
            lengths: vec![0; depth as usize].into(),
            ranges: vec![[0; 4]; depth as usize].into(),
        }
    }

    /// Double words 12 and 13 of the handle whose turn it is.
    #[inline]
    fn handle(&mut self) -> u64 {
        let Some(handle) = self.handles.get(self.turn) else {
            return 0;
        };
        self.turn += 1;
        if self.turn == self.handles.len() {
            self.turn = 0;
        }
        *handle
    }
}

impl Entries for Commands {
    type Sq = squeue::Entry128;
    type Cq = cqueue::Entry32;

    #[inline]
    fn entry(&mut self, shape: Shape, slot: u32, r: Request, file: u32, buffer: u64) -> Self::Sq {
        let i = slot as usize;
        let (begin, blocks) = (
            r.offset >> self.block_shift,
            u64::from(r.len) >> self.block_shift,
        );
        let more = match r.op {
            Op::Write if shape.is_durable() => FUA | self.handle(),
            Op::Write => self.handle(),
            _ => 0,
        };
        let dw12 = (blocks.wrapping_sub(1) & 0xffff) | self.protection | more;
        let (opcode, address, bytes, dw10, dw12, fixed) = match r.op {
            Op::Read | Op::Write => match self.ways[usize::from(r.op == Op::Write)] {
                Way::Moves(opcode) => {
                    if let Some(a) = self.appended.as_mut().filter(|_| r.op == Op::Write) {
                        a.asked[i] = begin;
                    }
                    (opcode, buffer, r.len, begin, dw12, self.fixed)
                }
                Way::Bare(opcode) => (opcode, 0, 0, begin, dw12, 0),
                Way::Copies => {
                    // One range of format 0: its first block, and its blocks less one.
                    self.ranges[i] = [0, begin.wrapping_add(self.copy_distance), blocks - 1, 0];
                    let range = self.ranges[i].as_ptr() as u64;
                    (COPY, range, 32, begin, self.protection | more, 0)
                }
            },
            Op::Trim if self.zone_action.is_some() => {
                let action = self.zone_action.unwrap_or(0);
                (ZONE_MANAGEMENT, 0, 0, begin, action, 0)
            }
            Op::Trim => {
                self.ranges[i] = [blocks << 32, begin, 0, 0];
                (
                    DATASET,
                    self.ranges[i].as_ptr() as u64,
                    16,
                    DEALLOCATE,
                    0,
                    0,
                )
            }
            Op::Sync => (FLUSH, 0, 0, 0, 0, 0),
        };
        self.lengths[i] = match r.op {
            Op::Read | Op::Write => r.len,
            Op::Trim | Op::Sync => 0,
        };
        let all: [u64; 16] = [
            URING_CMD | shape.file_flag() | u64::from(file) << 32,
            NVME_IO,
            0,
            fixed,
            slot.into(),
            0,
            // struct nvme_uring_cmd.
            opcode | self.nsid << 32,
            0,
            0,
            address,
            u64::from(bytes) << 32,
            dw10,
            dw12,
            0,
            0,
            0,
        ];
        // SAFETY: an entry of 128 bytes is struct io_uring_sqe with its command: plain data without invalid values.
        unsafe { std::mem::transmute(all) }
    }

    fn at_once(entry: Self::Sq) -> Self::Sq {
        entry.flags(squeue::Flags::ASYNC)
    }

    #[inline]
    fn done(&mut self, c: &Self::Cq) -> (u32, i64) {
        let slot = c.user_data() as u32;
        let result = match c.result() {
            0 => {
                let len = self.lengths.get(slot as usize).copied().unwrap_or(0);
                let there = self.appended.as_mut();
                match there.is_none_or(|a| a.enter(slot as usize, c.big_cqe()[0])) {
                    true => len.into(),
                    false => -i64::from(APPENDED_ELSEWHERE),
                }
            }
            status @ 1.. => -i64::from(self.errno(status)),
            e => e.into(),
        };
        (slot, result)
    }

    fn leak(&mut self) {
        Box::leak(std::mem::take(&mut self.ranges));
    }
}

impl Commands {
    #[cold]
    fn errno(&self, status: i32) -> i32 {
        match status & 0x7ff {
            0x285 if self.ways[0] == Way::Moves(COMPARE) => COMPARED_DIFFERENT,
            _ => errno(status),
        }
    }
}

/// A drive's status as the error number that the block layer makes of it (drivers/nvme/host/core.c), so that both ways
/// say the same.
#[cold]
fn errno(status: i32) -> i32 {
    match status & 0x7ff {
        0x80 | 0x1b7 => libc::EREMOTEIO,
        0x81 => libc::ENOSPC,
        0x83 => libc::EBADE,
        0x15 | 0x182 => libc::EOPNOTSUPP,
        0x280 | 0x281 | 0x285 | 0x286 | 0x287 => libc::ENODATA,
        0x282..=0x284 => libc::EILSEQ,
        // Too many zones active, too many open.
        0x1bd => libc::EOVERFLOW,
        0x1be => libc::ETOOMANYREFS,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(options: &[(&str, &str)]) -> Commands {
        let mut spec = JobSpec::default();
        let all = [("engine", "uring-cmd"), ("bs", "8k"), ("size", "1m")];
        for (name, text) in all.iter().chain(options) {
            spec.set(name, text).unwrap();
        }
        let limits = crate::job::Limits {
            size: 1 << 30,
            direct_align: 4096,
            hosts: 1,
        };
        let null = Arc::new(std::fs::File::open("/dev/null").unwrap());
        let device = Passthrough {
            file: null,
            nsid: 3,
            block_bytes: 4096,
            protection: 0,
            most_bytes: 1 << 20,
            most_segments: 127,
            operations: fathom_host::Operations {
                placements: [0, 0x10, 0x20]
                    .map(|id| fathom_host::Placement {
                        id,
                        available_blocks: 0,
                    })
                    .into(),
                ..fathom_host::Operations::default()
            },
            zones: Some(fathom_host::ZoneLimits {
                model: "host-managed".into(),
                zone_bytes: 128 << 10,
                max_open: None,
                max_active: None,
                append_bytes: 0,
            }),
        };
        Commands::new(&device, &spec.validate(&limits).unwrap(), 2, FIXED)
    }

    fn words(c: &mut Commands, op: Op, durable: bool) -> [u64; 16] {
        let r = Request {
            op,
            offset: 40_960,
            len: 8192,
            file: 0,
            priority: 0,
        };
        let entry = c.entry(Shape::plain(durable), 1, r, 7, 0xabc0);
        // SAFETY: both are 128 bytes of plain data.
        unsafe { std::mem::transmute(entry) }
    }

    #[test]
    fn a_command_has_the_drive_s_blocks_where_the_specification_wants_them() {
        let mut c = commands(&[]);
        let w = words(&mut c, Op::Read, false);
        assert_eq!((w[0], w[1], w[3], w[4]), (46 | 7 << 32, NVME_IO, FIXED, 1));
        assert_eq!((w[6], w[9], w[10]), (2 | 3 << 32, 0xabc0, 8192 << 32));
        // Ten blocks in, two blocks less one.
        assert_eq!((w[11], w[12]), (10, 1));
        let w = words(&mut c, Op::Write, true);
        assert_eq!((w[6], w[12]), (1 | 3 << 32, 1 | 1 << 30));
        let w = words(&mut c, Op::Trim, false);
        assert_eq!((w[3], w[6] & 0xff, w[10], w[11]), (0, 9, 16 << 32, 4 << 32));
        assert_eq!(
            (w[9], &c.ranges[1][..2]),
            (c.ranges[1].as_ptr() as u64, &[2 << 32, 10][..])
        );
        assert_eq!(words(&mut c, Op::Sync, false)[6] & 0xff, 0);
    }

    #[test]
    fn operations_carry_data_a_range_or_nothing() {
        let write = ("rw", "write");
        for (rw, command, op, opcode, bytes) in [
            ("write", "append", Op::Write, 0x7D, 8192),
            ("write", "write-zeroes", Op::Write, 0x08, 0),
            ("read", "verify", Op::Read, 0x0C, 0),
            ("trim", "zone-reset", Op::Trim, 0x79, 0),
        ] {
            let mut c = commands(&[("rw", rw), ("command", command)]);
            let w = words(&mut c, op, false);
            assert_eq!(
                (w[6] & 0xff, w[10] >> 32, w[11]),
                (opcode, bytes, 10),
                "{command}"
            );
            if command == "zone-reset" {
                assert_eq!(w[12], 4 << 32);
            }
        }
        // From 2 MiB on, 512 blocks after the destination's start.
        let mut c = commands(&[write, ("command", "copy"), ("copy-from", "2m")]);
        let w = words(&mut c, Op::Write, false);
        assert_eq!((w[6] & 0xff, w[10] >> 32, w[11], w[12]), (0x19, 32, 10, 0));
        assert_eq!(c.ranges[1], [0, 522, 1, 0]);
        // And from before it.
        let mut c = commands(&[
            write,
            ("command", "copy"),
            ("offset", "2m"),
            ("copy-from", "0"),
        ]);
        words(&mut c, Op::Write, false);
        assert_eq!(c.ranges[1][1], 10u64.wrapping_sub(512));
        let mut c = commands(&[write, ("placement", "2,1")]);
        let seen: Vec<u64> = (0..3)
            .map(|_| words(&mut c, Op::Write, false)[12])
            .collect();
        let named = |id: u64| 1 | 2 << 20 | id << 48;
        assert_eq!(seen, [named(0x20), named(0x10), named(0x20)]);
    }

    #[test]
    fn an_append_must_be_in_its_zone_and_where_none_was_before() {
        let mut c = commands(&[("rw", "write"), ("command", "append")]);
        let a = c.appended.as_mut().unwrap();
        a.asked = [0, 32].into();
        assert!(a.enter(1, 32) && a.enter(1, 34) && a.enter(0, 0));
        assert!(!a.enter(1, 34), "twice");
        assert!(!a.enter(1, 64), "in the next zone");
        assert!(!a.enter(1, 63), "across the end of the zone");
        assert!(!a.enter(0, 32), "in the zone of another");
        assert!(!a.enter(0, u64::MAX), "nowhere");
    }

    #[test]
    fn a_status_is_the_error_that_the_block_layer_would_say() {
        assert_eq!(errno(0x4281), libc::ENODATA);
        assert_eq!(errno(0x83), libc::EBADE);
        assert_eq!(errno(0x6), libc::EIO);
        assert_eq!(errno(0x41bd), libc::EOVERFLOW);
        let compares = [("rw", "read"), ("command", "compare"), ("same-data", "")];
        assert_eq!(commands(&compares).errno(0x285), COMPARED_DIFFERENT);
        assert_eq!(commands(&[]).errno(0x285), libc::ENODATA);
    }
}
