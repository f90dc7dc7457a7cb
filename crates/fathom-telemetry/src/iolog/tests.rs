//! The log as a whole: what goes in comes out, and what does not is counted.

use super::*;
use crate::record::{Op, Record};

/// A small generator, so that tests repeat.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }
    pub(super) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Exponential with this mean.
    fn exponential(&mut self, mean: f64) -> u64 {
        let u = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - u).ln() * mean) as u64
    }
}

/// Closed loop with `depth` slots on a target of `size` bytes: per slot, exponential service on top of
/// a floor, one completion per clock reading.
fn closed_loop(n: usize, depth: usize, size: u64, floor: u64, mean: f64) -> Vec<Record> {
    let mut rng = Rng::new(7);
    let mut slots: Vec<(u64, u64, u64)> = Vec::new();
    let origin = 1_000_000_007;
    for _ in 0..depth {
        let service = floor + rng.exponential(mean);
        slots.push((origin + service, origin, origin));
    }
    let mut out = Vec::with_capacity(n);
    while out.len() < n {
        let Some(i) = (0..depth).min_by_key(|i| slots[*i].0) else {
            break;
        };
        let (completed, submitted, intended) = slots[i];
        out.push(Record {
            intended: Nanos(intended),
            submitted: Nanos(submitted),
            completed: Nanos(completed),
            offset: rng.below(size / 4096) * 4096,
            len: 4096,
            result: 4096,
            op: Op::Read,
        });
        let submitted = completed + 150 + rng.below(100);
        let done = submitted + floor + rng.exponential(mean);
        slots[i] = (done, submitted, completed);
    }
    out
}

fn rows_of(records: &[Record]) -> Vec<IoRow> {
    records
        .iter()
        .map(|r| IoRow {
            job: 3,
            thread: 1,
            op: r.op,
            intended_ns: r.intended.0 as i64 - 1000,
            submitted_ns: r.submitted.0 as i64 - 1000,
            completed_ns: r.completed.0 as i64 - 1000,
            offset: r.offset,
            len: r.len,
            done: r.result.max(0) as u32,
            error: (-r.result).max(0) as i32,
        })
        .collect()
}

fn write(path: &Path, records: &[Record]) -> LogSummary {
    let log = IoLog::create(path, IoLogMeta::default(), 1).unwrap();
    let mut handle = log.handle(3, 1, Nanos(1000));
    for r in records {
        // A test may be slower than any I/O, but never loses.
        while !handle.has_room() {
            std::thread::yield_now();
        }
        handle.push(r);
    }
    handle.close();
    log.finish().unwrap()
}

#[test]
fn a_deep_random_job_on_a_terabyte_takes_at_most_12_bytes_per_io() {
    let dir = tempfile::tempdir().unwrap();
    for (name, depth, floor, mean, most) in [
        ("qd32-nvme", 32, 60_000, 20_000.0, 12.0),
        ("qd1-nvme", 1, 60_000, 20_000.0, 12.0),
        ("qd32-optane", 32, 8_000, 3_000.0, 12.0),
        // Slow devices have more bits to tell, and thousands of times fewer I/Os to tell of.
        ("qd1-cloud", 1, 400_000, 300_000.0, 14.0),
    ] {
        let path = dir.path().join(name);
        let records = closed_loop(300_000, depth, 1 << 40, floor, mean);
        let summary = write(&path, &records);
        assert_eq!(summary.rows, 300_000);
        assert!(summary.lost_by_job.is_empty());
        let per_io = summary.bytes as f64 / summary.rows as f64;
        println!("{name}: {per_io:.2} bytes per I/O");
        assert!(per_io <= most, "{name}: {per_io:.2} bytes per I/O");
    }
}

#[test]
fn every_record_comes_back_also_odd_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut rng = Rng::new(1);
    let records: Vec<Record> = (0..40_000u64)
        .map(|i| {
            let t = if i % 1000 == 0 {
                rng.next() >> 2
            } else {
                i * 777
            };
            Record {
                intended: Nanos(t),
                submitted: Nanos(t + rng.below(5000)),
                completed: Nanos(t + rng.below(1 << (i % 40))),
                offset: rng.next() >> (i % 60 + 1),
                // More lengths than a dictionary holds, later.
                len: if i < 20_000 {
                    512 << (i % 3)
                } else {
                    i as u32 * 512
                },
                result: match i % 100 {
                    7 => -5,
                    8 => 100,
                    _ => 4096,
                },
                op: Op::ALL[(i % 7 % 4) as usize],
            }
        })
        .collect();
    assert_eq!(write(&path, &records).rows, 40_000);
    let back: Vec<IoRow> = IoLogReader::open(&path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(back == rows_of(&records));
}
