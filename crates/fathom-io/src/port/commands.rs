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
use crate::job::JobSpec;

/// IORING_OP_URING_CMD and NVME_URING_CMD_IO, `_IOWR('N', 0x80, struct nvme_uring_cmd)` of 72 bytes.
const URING_CMD: u64 = 46;
const NVME_IO: u64 = 0xC048_4E80;
/// IORING_URING_CMD_FIXED: the address lies in the registered buffer.
const FIXED: u64 = 1 << 32;
/// Opcodes of the NVM command set.
const FLUSH: u64 = 0x00;
const WRITE: u64 = 0x01;
const READ: u64 = 0x02;
const DATASET: u64 = 0x09;
/// Dataset management: deallocate, in the upper half of the double words 10 and 11.
const DEALLOCATE: u64 = 1 << (2 + 32);
/// Double word 12: forced unit access.
const FUA: u64 = 1 << 30;

/// What makes commands of requests.
pub struct Commands {
    nsid: u64,
    block_shift: u32,
    /// Of double word 12 of every read and write.
    protection: u64,
    fixed: u64,
    /// Bytes of each slot's command: a completion does not say them.
    lengths: Box<[u32]>,
    /// What each slot deallocates, as the drive reads it.
    ranges: Box<[[u64; 2]]>,
}

impl Uring<Commands> {
    /// Makes the ring, as [`Uring::new`].
    ///
    /// # Errors
    /// What the kernel refuses, and blocks that are larger than one command of this drive.
    pub fn commands(
        device: &Arc<Passthrough>,
        spec: &JobSpec,
        depth: u32,
        buffers: Buffers,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let most = device.most_bytes;
        if spec.bs.max().0 > most {
            return Err(PortError {
                what: format!(
                    "one command of this drive moves at most {most} bytes, and nobody splits it: expected a smaller --bs"
                ),
                source: std::io::Error::from_raw_os_error(libc::EMSGSIZE),
            });
        }
        let old = kernel() < (6, 1);
        let commands = Commands {
            nsid: device.nsid.into(),
            block_shift: device.block_bytes.trailing_zeros(),
            protection: device.protection.into(),
            fixed: if old || spec.plain_buffers { 0 } else { FIXED },
            lengths: vec![0; depth as usize].into(),
            ranges: vec![[0; 2]; depth as usize].into(),
        };
        let spec = JobSpec {
            plain_buffers: spec.plain_buffers || old,
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
        let moves = |opcode, more| {
            (
                opcode,
                buffer,
                r.len,
                begin,
                (blocks - 1) | self.protection | more,
                self.fixed,
            )
        };
        let (opcode, address, bytes, dw10, dw12, fixed) = match r.op {
            Op::Read => moves(READ, 0),
            Op::Write => moves(WRITE, if shape.is_durable() { FUA } else { 0 }),
            Op::Trim => {
                self.ranges[i] = [blocks << 32, begin];
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
    fn done(&self, c: &Self::Cq) -> (u32, i64) {
        let slot = c.user_data() as u32;
        let result = match c.result() {
            0 => self.lengths.get(slot as usize).copied().unwrap_or(0).into(),
            status @ 1.. => -i64::from(errno(status)),
            e => e.into(),
        };
        (slot, result)
    }

    fn leak(&mut self) {
        Box::leak(std::mem::take(&mut self.ranges));
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
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        Commands {
            nsid: 3,
            block_shift: 12,
            protection: 0,
            fixed: FIXED,
            lengths: vec![0; 2].into(),
            ranges: vec![[0; 2]; 2].into(),
        }
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
        let mut c = commands();
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
            (w[9], c.ranges[1]),
            (c.ranges[1].as_ptr() as u64, [2 << 32, 10])
        );
        assert_eq!(words(&mut c, Op::Sync, false)[6] & 0xff, 0);
    }

    #[test]
    fn a_status_is_the_error_that_the_block_layer_would_say() {
        assert_eq!(errno(0x4281), libc::ENODATA);
        assert_eq!(errno(0x83), libc::EBADE);
        assert_eq!(errno(0x6), libc::EIO);
    }
}
