//! The way of an I/O through a virtual machine: guest, iothread, host kernel, and back.
//!
//! Fitted to Zhang et al. (QEMU 2.10, virtio-blk with one iothread): 67.3 and 203.7 µs at one
//! outstanding read, 120k IOPS of one machine, 410k of six.

use fathom_io::load::rng::Rng;

use crate::host::{Idle, Sleeper};
use crate::spread::Spread;

/// CPU time of the guest to submit, ns.
pub const GUEST_SUBMIT_NS: u64 = 9_000;
/// CPU time of the guest to complete, ns.
pub const GUEST_COMPLETE_NS: u64 = 7_000;
/// Serial time of the iothread per submission and per completion, ns: together 120k IOPS.
const IOTHREAD_NS: [u64; 2] = [4_600, 3_730];
/// Scatter of the iothread.
const IOTHREAD_CV: f64 = 1.3;
/// Host kernel, both ways together, ns.
const KERNEL_NS: u64 = 14_700;
/// Delays that occupy nothing (exits, injection), both ways together, ns.
const DELAYS_NS: u64 = 12_400;
/// Host CPU time per I/O, ns, over [`HOST_CORES`]: 410k IOPS of all machines together.
const CPU_NS: u64 = 39_000;
const HOST_CORES: u64 = 16;

/// The host's side of all machines.
#[derive(Debug, Clone)]
pub struct Guests {
    /// Of one machine after the other.
    iothreads: Vec<Sleeper>,
    /// The host core that takes the device's interrupt, per machine.
    kernel: Vec<Sleeper>,
    idle: Idle,
    cpu_free: u64,
    spread: Spread,
    rng: Rng,
}

impl Guests {
    /// `machines` of them with so many iothreads each, all idle.
    pub fn new(machines: u32, iothreads: u32, idle: Idle, seed: u64) -> Self {
        Self {
            iothreads: vec![Sleeper::default(); (machines * iothreads.max(1)) as usize],
            kernel: vec![Sleeper::default(); machines as usize],
            idle,
            cpu_free: 0,
            spread: Spread::new(IOTHREAD_CV),
            rng: Rng::new(seed, 0x564d),
        }
    }

    /// How many.
    pub fn machines(&self) -> u32 {
        self.kernel.len() as u32
    }

    /// Iothreads of each.
    fn per_machine(&self) -> u32 {
        self.iothreads.len() as u32 / self.machines()
    }

    /// When a request that a guest hands over at `at` reaches the iothread.
    pub fn kick(&self, at: u64) -> u64 {
        at + DELAYS_NS / 2
    }

    /// The iothread of `worker`'s queue takes a request at `at`; returns when it reaches the device. Threads are dealt
    /// to machines in turn, and within a machine to its iothreads.
    pub fn to_device(&mut self, worker: u32, at: u64) -> u64 {
        // All machines share the processors.
        let at = at.max(self.cpu_free);
        self.cpu_free = at + CPU_NS / HOST_CORES;
        self.iothread(worker, at, 0) + KERNEL_NS / 2
    }

    /// The device is done at `at`; returns when the iothread hears of it.
    pub fn from_device(&mut self, worker: u32, at: u64) -> u64 {
        let machine = worker % self.machines();
        let core = &mut self.kernel[machine as usize];
        let exit = core.wake(at, self.idle);
        core.free = core.free.max(at + exit);
        at + exit + KERNEL_NS / 2
    }

    /// The iothread takes a completion at `at`; returns when the guest's processor is told.
    pub fn to_guest(&mut self, worker: u32, at: u64) -> u64 {
        self.iothread(worker, at, 1) + DELAYS_NS / 2
    }

    fn iothread(&mut self, worker: u32, at: u64, way: usize) -> u64 {
        let time = self.spread.apply(IOTHREAD_NS[way], &mut self.rng);
        let (n, per) = (self.machines(), self.per_machine());
        let machine = worker % n;
        let thread = &mut self.iothreads[(machine * per + worker / n % per) as usize];
        // The governor's choice follows the rhythm of the device's interrupts, as all wake-ups of a request do.
        let exit = thread.wake_like(at, self.idle, &self.kernel[machine as usize]);
        thread.free = thread.free.max(at) + exit + time;
        thread.free
    }
}
