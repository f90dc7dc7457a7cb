//! Mutated files: every reader ends with an error or with rows, in bounded memory.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::Identity;
use crate::iolog::{IoLog, IoLogReader};
use crate::record::{Op, Record};
use crate::series::{JobOfSeries, SeriesReader, SeriesWriter};
use crate::table::Table;
use crate::units::Nanos;
use crate::window::{DirectionWindow, Window};
use crate::{Histogram, parquet_file};

#[path = "../../../fathom-host/tests/common/fuzz.rs"]
mod fuzz;

use fuzz::{cases, changed, changes, fuzz};

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
        // Half of the changes where the file describes itself.
        let tail = whole.len() * 3 / 4;
        let refused = Cell::new(0);
        fuzz(
            cases(300),
            &(any::<bool>(), changes()),
            |(behind, changes)| {
                let (before, after) = whole.split_at(if *behind { tail } else { 0 });
                fs::write(&mutated, [before, &changed(after, changes)].concat()).unwrap();
                refused.set(refused.get() + u32::from(!read(&mutated, 1 << 24)));
            },
        );
        assert!(refused.get() > 0, "{name}");
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
