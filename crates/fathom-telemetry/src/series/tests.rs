//! The series as a whole: totals and coarser windows are exact.

use super::*;
use crate::Identity;
use crate::histogram::Histogram;
use crate::record::Op;
use crate::units::Nanos;
use crate::window::{DirectionWindow, Window};

const WIDTH: Nanos = Nanos::from_millis(100);

fn job(index: u16) -> JobOfSeries<'static> {
    JobOfSeries {
        index,
        name: "job",
        origin: Nanos(5_000),
    }
}

/// A window with `n` I/Os of latencies that depend on its number; returns them, too.
fn window(index: u64, n: u64) -> (Window, Vec<u64>) {
    let values: Vec<u64> = (0..n)
        .map(|i| 10_000 + (index * 7919 + i * 104_729) % 1_000_003)
        .collect();
    let mut h = Histogram::new();
    for v in &values {
        h.record(*v);
    }
    let direction = DirectionWindow {
        ios: n,
        bytes: n * 4096,
        errors: index % 2,
        short: 0,
        submit: h.to_sparse(),
        service: h.to_sparse(),
        response: h.to_sparse(),
    };
    let mut w = Window {
        index,
        ..Window::default()
    };
    w.directions[Op::Read as usize] = Some(Box::new(direction.clone()));
    if index.is_multiple_of(3) {
        w.directions[Op::Write as usize] = Some(Box::new(direction));
    }
    (w, values)
}

#[test]
fn totals_and_merged_windows_are_those_of_all_samples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = SeriesWriter::create(&path, Identity::default(), 1).unwrap();
    let mut union = Histogram::new();
    for index in (0..1000).filter(|i| i % 10 != 5) {
        let (w, values) = window(index, 50);
        writer.push(&job(7), WIDTH, &w).unwrap();
        writer.push(&job(8), WIDTH, &window(index, 3).0).unwrap();
        for v in values {
            union.record(v);
        }
    }
    assert!(
        !path.exists(),
        "the file takes its name when it is complete"
    );
    let summary = writer.finish().unwrap();
    assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());

    let reader = SeriesReader::open(&path).unwrap();
    assert_eq!(
        reader.jobs().unwrap().into_iter().collect::<Vec<_>>(),
        [7, 8]
    );
    let [read, write, trim, sync] = reader.totals(7).unwrap();
    let read = read.unwrap();
    assert!(write.is_some() && trim.is_none() && sync.is_none());
    assert_eq!(read.service.moments(), union.moments());
    assert_eq!(read.service.quantile(0.999), union.quantile(0.999));
    assert_eq!(
        (read.ios, read.bytes, read.errors),
        (45_000, 45_000 * 4096, 400)
    );

    let all = reader.windows(7, 10_000).unwrap();
    assert_eq!((all.width, all.windows.len()), (WIDTH, 900));
    assert_eq!(all.windows[7], window(8, 50).0);
    for most in [1, 7, 30, 999] {
        let series = reader.windows(7, most).unwrap();
        assert!(series.windows.len() <= most);
        let mut merged = Histogram::new();
        for w in &series.windows {
            merged.merge_sparse(&w.directions[0].as_ref().unwrap().service);
        }
        assert_eq!(merged.moments(), union.moments());
        assert_eq!(merged.to_sparse(), union.to_sparse());
    }
    assert_eq!(reader.windows(9, 10).unwrap(), JobSeries::default());
}

#[test]
fn percentiles_without_samples_are_null() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = SeriesWriter::create(&path, Identity::default(), 1).unwrap();
    writer.push(&job(0), WIDTH, &window(1, 100).0).unwrap();
    writer.finish().unwrap();
    let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let row = file.get_row_iter(None).unwrap().next().unwrap().unwrap();
    let json = row.to_string();
    assert!(json.contains("service_p99_9_ns: null"), "{json}");
    assert!(json.contains("service_p99_ns: null"), "{json}");
    assert!(!json.contains("service_p50_ns: null"), "{json}");
    assert!(json.contains("op: \"read\""), "{json}");
}

/// A directory on a disk of its own, with room for `bytes`; `None` where this process may not make one.
fn small_disk(bytes: u64) -> Option<SmallDisk> {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "small"])
        .arg(dir.path())
        .status();
    mounted.is_ok_and(|s| s.success()).then_some(SmallDisk(dir))
}

struct SmallDisk(tempfile::TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn a_disk_full_at_any_byte_keeps_a_readable_beginning_of_the_series() {
    let (mut whole, mut cut, mut none) = (0, 0, 0);
    for room in [4 << 10, 1_500_000, 2_000_000, 64 << 20] {
        let Some(disk) = small_disk(room) else {
            println!(
                "SKIP a_disk_full_at_any_byte_keeps_a_readable_beginning_of_the_series: no tmpfs can be mounted"
            );
            return;
        };
        let path = disk.0.path().join(FILE_NAME);
        let mut writer = SeriesWriter::create(&path, Identity::default(), 1).unwrap();
        let mut said = 0;
        for index in 0..7_500 {
            let w = window(index, 20).0;
            said += u32::from(writer.push(&job(0), WIDTH, &w).is_err());
        }
        let summary = writer.finish().unwrap();
        // 7,500 reads, and a write in every third window.
        assert_eq!(summary.rows + summary.lost, 10_000, "{room}");
        assert_eq!(summary.error.is_some(), summary.lost > 0);
        assert!(said == 0 || summary.lost > 0);
        match (summary.bytes, summary.lost) {
            (0, _) => {
                none += 1;
                assert!(!path.exists() && summary.rows == 0);
                assert_eq!(std::fs::read_dir(disk.0.path()).unwrap().count(), 0);
                continue;
            }
            (_, 0) => whole += 1,
            _ => cut += 1,
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), summary.bytes);
        let mut rows = 0;
        let series = SeriesReader::open(&path).unwrap();
        series.each_row(None, |_| rows += 1).unwrap();
        assert_eq!(rows, summary.rows);
    }
    assert!(whole > 0 && cut > 1 && none > 0, "{whole} {cut} {none}");
}

#[test]
fn an_abandoned_series_leaves_nothing_and_a_broken_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut writer = SeriesWriter::create(&path, Identity::default(), 1).unwrap();
    writer.push(&job(0), WIDTH, &window(1, 100).0).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::write(&path, b"PAR1 not really PAR1").unwrap();
    let error = SeriesReader::open(&path).err().unwrap().to_string();
    assert!(
        error.contains("series.parquet") && error.contains("expected"),
        "{error}"
    );
}

#[test]
fn every_column_is_described_in_the_documentation() {
    let page = include_str!("../../../../docs/run-directory.md");
    for line in SCHEMA.lines().filter(|l| l.ends_with(';')) {
        let name = line.split_whitespace().nth(2).unwrap();
        let name = name.trim_end_matches(';');
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
