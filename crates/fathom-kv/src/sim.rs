//! A store in memory that loses power: from a given operation on, everything fails, and of what was not
//! synced each 512-byte sector survives or not, by a seed.
//!
//! Faults: lost writes, torn writes, writes that survive out of order. Not: bit rot, misdirected writes.

use std::io;
use std::sync::Mutex;

use crate::store::Store;
use crate::sync::lock;

const SECTOR: usize = 512;

struct State {
    /// What reads see.
    now: Vec<u8>,
    /// What survives for certain.
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    pending: Vec<(u64, Vec<u8>)>,
    /// Writes and syncs left before the power fails.
    left: u64,
    done: u64,
    /// The power has failed.
    dead: bool,
}

/// A store in memory that can lose power.
pub struct SimStore {
    state: Mutex<State>,
    /// Syncs return without doing anything: a device that lies.
    lies: bool,
}

impl SimStore {
    /// Of `image`, whose power fails at the write or sync number `fails_at` (from 0).
    pub fn new(image: Vec<u8>, fails_at: u64) -> Self {
        Self {
            state: Mutex::new(State {
                now: image.clone(),
                durable: image,
                pending: Vec::new(),
                left: fails_at,
                done: 0,
                dead: false,
            }),
            lies: false,
        }
    }
    /// One that never fails.
    pub fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len], u64::MAX)
    }
    /// Ignores syncs from now on.
    pub fn lying(mut self) -> Self {
        self.lies = true;
        self
    }
    /// Writes and syncs so far.
    pub fn done(&self) -> u64 {
        lock(&self.state).done
    }
    /// What a machine finds after the power failed now; every unsynced sector is kept with a probability
    /// that the seed chooses, too.
    pub fn after_power_failure(&self, seed: u64) -> Vec<u8> {
        let state = lock(&self.state);
        let mut random = seed;
        let mut next = || {
            // SplitMix64 (Steele, Lea and Flood 2014).
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let kept = next() % 101;
        let whole_writes = next() % 3 == 0;
        let mut image = state.durable.clone();
        for (offset, bytes) in &state.pending {
            let all = next() % 100 < kept;
            for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                let keep = if whole_writes {
                    all
                } else {
                    next() % 100 < kept
                };
                if keep {
                    let at = *offset as usize + i * SECTOR;
                    image[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        image
    }
}

fn out() -> io::Error {
    io::Error::other("the simulated power failed")
}

fn range(len: usize, offset: u64, buf: usize) -> io::Result<std::ops::Range<usize>> {
    let start = offset as usize;
    match start.checked_add(buf) {
        Some(end) if end <= len => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl State {
    fn step(&mut self) -> bool {
        self.done += 1;
        let on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        on
    }
}

impl Store for SimStore {
    fn len(&self) -> u64 {
        lock(&self.state).now.len() as u64
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.state);
        let range = range(state.now.len(), offset, buf.len())?;
        if state.dead {
            return Err(out());
        }
        buf.copy_from_slice(&state.now[range]);
        Ok(())
    }
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let range = range(state.now.len(), offset, buf.len())?;
        let on = state.step();
        if on || !std::mem::replace(&mut state.dead, true) {
            // The write during which the power fails may survive in part, as any that was not synced.
            state.pending.push((offset, buf.to_vec()));
        }
        if !on {
            return Err(out());
        }
        state.now[range].copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if !state.step() {
            state.dead = true;
            return Err(out());
        }
        if !self.lies {
            let pending = std::mem::take(&mut state.pending);
            for (offset, bytes) in pending {
                let at = offset as usize;
                state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }
}
