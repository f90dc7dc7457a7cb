//! Mutated files: every reader ends with an error or with rows, in bounded memory.

use std::fs;
use std::path::Path;

use fathom_stats::rng::SplitMix64;

use crate::Identity;
use crate::iolog::{IoLog, IoLogReader};
use crate::record::{Op, Record};
use crate::series::{JobOfSeries, SeriesReader, SeriesWriter};
use crate::table::Table;
use crate::units::Nanos;
use crate::window::{DirectionWindow, Window};
use crate::{Histogram, parquet_file};

/// Files per kind; more with FATHOM_MUTATIONS.
fn mutations() -> u64 {
    let asked = std::env::var("FATHOM_MUTATIONS").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(300)
}

fn log(path: &Path) {
    let log = IoLog::create(path, Identity::default(), 2).unwrap();
    for job in 0..2u16 {
        let mut h = log.handle(job, 1, Nanos(0));
        for i in 0..500u64 {
            h.push(&Record {
                op: if i % 3 == 0 { Op::Write } else { Op::Read },
                offset: i * 7919 % 1000 * 4096,
                len: 4096,
                intended: Nanos(i * 1000),
                submitted: Nanos(i * 1000 + 10),
                completed: Nanos(i * 1000 + 10 + i * i % 977),
                result: if i % 50 == 7 { -5 } else { 4096 },
            });
        }
        drop(h);
    }
    log.finish().unwrap();
}

fn series(path: &Path) {
    let mut writer = SeriesWriter::create(path, Identity::default(), 1).unwrap();
    for index in 0..40u64 {
        let mut h = Histogram::new();
        (0..20).for_each(|i| h.record(1000 + i * index));
        let mut window = Window {
            index,
            ..Window::default()
        };
        window.directions[Op::Read as usize] = Some(Box::new(DirectionWindow {
            ios: 20,
            bytes: 20 * 4096,
            submit: h.to_sparse(),
            service: h.to_sparse(),
            response: h.to_sparse(),
            ..DirectionWindow::default()
        }));
        writer
            .push(
                &JobOfSeries {
                    index: (index % 2) as u16,
                    name: "job",
                    origin: Nanos::ZERO,
                },
                Nanos(100_000_000),
                &window,
            )
            .unwrap();
    }
    writer.finish().unwrap();
}

/// One to four changes: bits, bytes, numbers that say too much, pieces left out or cut off.
fn mutate(whole: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=random.below(3) {
        if bytes.len() < 16 {
            break;
        }
        // Half of them where the file describes itself.
        let tail = bytes.len() / 4;
        let at = match random.below(2) {
            0 => bytes.len() - 1 - random.below(tail),
            _ => random.below(bytes.len()),
        };
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u64() as u8,
            2 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
            3 => {
                let end = bytes.len().min(at + 5);
                bytes[at..end].fill(0xff);
            }
            4 => {
                let end = bytes.len().min(at + 1 + random.below(64));
                bytes.drain(at..end);
            }
            _ if random.below(8) == 0 => bytes.truncate(at),
            _ => bytes.insert(at, random.next_u64() as u8),
        }
    }
    bytes
}

/// Reads everything that there is to read; whether all of it could be.
fn read(path: &Path, rows_max: usize) -> bool {
    let mut whole = true;
    let bounded = |n: usize| {
        assert!(n <= rows_max, "a small file has no {n} rows");
        n
    };
    match IoLogReader::open(path) {
        Ok(log) => {
            let mut rows = 0;
            for row in log {
                whole &= row.is_ok_and(|r| {
                    let _ = (r.service_ns(), r.response_ns());
                    true
                });
                rows = bounded(rows + 1);
            }
        }
        Err(_) => whole = false,
    }
    if let Ok(series) = SeriesReader::open(path) {
        whole |= series.jobs().is_ok();
        for job in 0..2 {
            whole &= series.windows(job, 10).is_ok() & series.totals(job).is_ok();
        }
    }
    let Ok(table) = Table::open(path) else {
        return false;
    };
    let all = vec![true; table.columns().len()];
    for group in 0..table.groups() {
        let mut rows = 0;
        match table.read(group, &all) {
            Ok(mut batches) => loop {
                match batches.advance() {
                    Ok(0) => break,
                    Ok(n) => rows = bounded(rows + n),
                    Err(_) => {
                        whole = false;
                        break;
                    }
                }
            },
            Err(_) => whole = false,
        }
    }
    whole
}

#[test]
fn no_mutated_file_panics_hangs_or_takes_much_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (io, windows) = (
        dir.path().join("io.parquet"),
        dir.path().join("series.parquet"),
    );
    log(&io);
    series(&windows);
    let mutated = dir.path().join("mutated.parquet");
    for (name, whole) in [("io", &io), ("series", &windows)] {
        let whole = fs::read(whole).unwrap();
        let (mut refused, mut read_on) = (0, 0);
        for seed in 0..mutations() {
            let bytes = mutate(&whole, &mut SplitMix64::new(seed));
            fs::write(&mutated, bytes).unwrap();
            // What a panic's message needs.
            let said = format!("{name}, seed {seed}");
            let caught = std::panic::catch_unwind(|| read(&mutated, 1 << 24));
            match caught.unwrap_or_else(|_| panic!("{said}")) {
                true => read_on += 1,
                false => refused += 1,
            }
        }
        assert!(refused > 0, "{name}: {refused} refused, {read_on} read");
    }
}

#[test]
fn a_panic_inside_is_an_error_and_others_are_told_as_ever() {
    let said = parquet_file::guarded::<()>(|| panic!("inside")).unwrap_err();
    assert!(said.to_string().contains("malformed"), "{said}");
    assert!(std::panic::catch_unwind(|| panic!("outside")).is_err());
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    assert!(parquet_file::open(dir.path()).is_err());
    assert!(parquet_file::open(Path::new("/dev/zero")).is_err());
}
