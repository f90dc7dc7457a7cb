//! The log as a whole: what goes in comes out, and what does not is counted.

use std::collections::HashSet;
use std::fs;

use proptest::prelude::*;

use super::row::Chunk;
use super::*;
use crate::identity::Host;
use crate::record::{Op, Record};
use crate::rundir::RunDir;
use crate::table::Table;

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
    let log = IoLog::create(path, Identity::default(), 1).unwrap();
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
    let records: Vec<Record> = (0..60_000u64)
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
    assert_eq!(write(&path, &records).rows, 60_000);
    let back: Vec<IoRow> = IoLogReader::open(&path)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(back == rows_of(&records));
}

#[test]
fn lost_records_are_counted_exactly_and_by_job() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    // So many handles that each has small chunks, and no time for the encoder.
    let log = IoLog::create(&path, Identity::default(), 4096).unwrap();
    let records = closed_loop(20_000, 4, 1 << 30, 1000, 100.0);
    let mut pushed = BTreeMap::new();
    for job in 0..6u16 {
        let mut handle = log.handle(job, job, Nanos(0));
        for r in &records[..20_000 - usize::from(job)] {
            handle.push(r);
            *pushed.entry(job).or_insert(0u64) += 1;
        }
        handle.close();
    }
    let summary = log.finish().unwrap();
    let lost: u64 = summary.lost_by_job.values().sum();
    assert!(lost > 0, "nobody waits for the encoder");
    let mut rows: BTreeMap<u16, u64> = BTreeMap::new();
    for row in IoLogReader::open(&path).unwrap() {
        *rows.entry(row.unwrap().job).or_default() += 1;
    }
    assert_eq!(rows.values().sum::<u64>(), summary.rows);
    for (job, n) in pushed {
        let lost = summary.lost_by_job.get(&job).copied().unwrap_or(0);
        assert_eq!(rows.get(&job).copied().unwrap_or(0) + lost, n, "job {job}");
    }
}

#[test]
fn rows_of_several_threads_and_jobs_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let meta = Identity {
        tool_version: "1.2".to_owned(),
        run: "survey".to_owned(),
        run_id: "an-id".to_owned(),
        host: Some(Host {
            name: "h7".to_owned(),
            index: 7,
        }),
        clock_zero_ns: 1_700_000_000_000_000_000,
        simulated: true,
    };
    let log = IoLog::create(&path, meta, 4).unwrap();
    let records = closed_loop(3000, 4, 1 << 30, 1000, 100.0);
    for job in [1u16, 2, 9] {
        log.name(job, if job == 1 { "first" } else { "others" });
        let handles: Vec<_> = (0..4).map(|t| log.handle(job, t, Nanos(500))).collect();
        std::thread::scope(|s| {
            for mut handle in handles {
                s.spawn(|| {
                    for r in &records {
                        handle.push(r);
                    }
                    handle.close();
                });
            }
        });
    }
    let summary = log.finish().unwrap();
    assert_eq!(summary.rows, 36_000);
    let reader = IoLogReader::open(&path).unwrap();
    assert_eq!(reader.metadata("fathom.run"), Some("survey"));
    assert_eq!(reader.metadata("fathom.simulated"), Some("true"));
    assert_eq!(
        reader.metadata("fathom.clock_origin_ns"),
        Some(r#"{"1":500,"2":500,"9":500}"#)
    );
    let rows: Vec<IoRow> = reader.only_job(2).map(Result::unwrap).collect();
    assert_eq!(rows.len(), 12_000);
    let table = Table::open(&path).unwrap();
    let mut seen = HashSet::new();
    for group in 0..table.groups() {
        let mut rows = table.read(group, &[true; 15]).unwrap();
        while rows.advance().unwrap() > 0 {
            let of = |name: &str| format!("{:?}", rows.value(table.column(name).unwrap(), 0));
            let names = [
                "job",
                "job_name",
                "origin_epoch_ns",
                "run_id",
                "host",
                "host_index",
            ];
            seen.insert(names.map(of).join(" "));
        }
    }
    let said = |job: u16, name: &str| {
        format!(
            r#"Integer({job}) Text("{name}") Integer(1700000000000000500) Text("an-id") Text("h7") Integer(7)"#
        )
    };
    assert!(seen.contains(&said(1, "first")), "{seen:?}");
    assert!(
        seen.iter()
            .all(|s| *s == said(1, "first") || s.contains(r#"Text("others")"#))
    );
    let threads: HashSet<u16> = rows.iter().map(|r| r.thread).collect();
    assert_eq!(threads.len(), 4);
    assert!(rows.iter().all(|r| r.job == 2));
    assert!(
        IoLogReader::open(&path)
            .unwrap()
            .only_job(5)
            .next()
            .is_none()
    );
}

#[test]
fn logs_of_hosts_are_read_one_after_the_other_as_the_run_s() {
    let base = tempfile::tempdir().unwrap();
    let dir = RunDir::create(base.path(), "fleet").unwrap();
    let records = closed_loop(20_000, 4, 1 << 30, 1000, 100.0);
    let all = rows_of(&records);
    for host in ["h1", "h2", "h3"] {
        let dir = dir.of_host("f", host, "r");
        fs::create_dir_all(dir.path()).unwrap();
        let mut log = RowLog::create(&dir.io_file(), Identity::default()).unwrap();
        // Two phases, and a job that is not asked for.
        for part in all.chunks(10_000) {
            part.iter().for_each(|r| log.push(3, r, Nanos(1000)));
            log.push(4, &part[0], Nanos(1000));
            log.settle();
        }
        assert_eq!(log.finish().unwrap().rows, 20_002);
    }
    let reader = IoLogReader::open_all(dir.io_files()).unwrap().only_job(3);
    let read: Vec<IoRow> = reader.map(Result::unwrap).collect();
    assert_eq!(read.len(), 60_000);
    assert!(read.chunks(20_000).all(|rows| rows == all));
}

#[test]
fn an_unfinished_log_leaves_no_file_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let log = IoLog::create(&path, Identity::default(), 1).unwrap();
    let mut handle = log.handle(0, 0, Nanos(0));
    for r in closed_loop(100_000, 4, 1 << 30, 1000, 100.0) {
        handle.push(&r);
    }
    handle.close();
    assert!(!path.exists());
    drop(log);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_empty_log_is_a_valid_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let log = IoLog::create(&path, Identity::default(), 0).unwrap();
    log.handle(0, 0, Nanos(0)).close();
    assert_eq!(log.finish().unwrap().rows, 0);
    let mut reader = IoLogReader::open(&path).unwrap();
    assert_eq!(reader.rows(), 0);
    assert!(reader.next_batch().unwrap().is_empty());
}

#[test]
fn a_handle_left_open_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let log = IoLog::create(&path, Identity::default(), 1).unwrap();
    let handle = log.handle(0, 0, Nanos(0));
    let summary = log.finish().unwrap();
    assert!(matches!(summary.error, Some(IoLogError::HandlesOpen(1))));
    handle.close();
}

#[test]
fn what_is_not_a_log_is_refused_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    for content in [&b""[..], b"PAR1", b"PAR1\x15\0\0\0PAR1", &[0x55; 4096]] {
        fs::write(&path, content).unwrap();
        let error = IoLogReader::open(&path).err().unwrap().to_string();
        assert!(error.contains("expected an io.parquet"), "{error}");
    }
    assert!(IoLogReader::open(&dir.path().join("missing")).is_err());
    let error = IoLog::create(Path::new("/nonexistent/io.parquet"), Identity::default(), 1);
    assert!(error.unwrap_err().to_string().contains("--out"));
}

/// A disk with room for so many bytes.
struct SmallDisk {
    content: Arc<std::sync::Mutex<Vec<u8>>>,
    room: usize,
}

impl io::Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.content.lock().unwrap();
        let n = bytes.len().min(self.room - content.len());
        content.extend_from_slice(&bytes[..n]);
        if n == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Store for SmallDisk {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.content.lock().unwrap().truncate(len as usize);
        Ok(())
    }
    fn end(&mut self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().len() as u64)
    }
}

#[test]
fn a_disk_full_at_any_byte_keeps_a_readable_beginning_and_counts_the_rest() {
    let records = closed_loop(8192, 32, 1 << 40, 60_000, 20_000.0);
    let (chunks, job_2) = (180, 120);
    let mut complete = 0;
    for room in [3, 1 << 20, 7 << 20, 13 << 20, 1 << 30] {
        let content = Arc::new(std::sync::Mutex::new(Vec::new()));
        let disk = SmallDisk {
            content: Arc::clone(&content),
            room,
        };
        let Ok(mut encoder) = Encoder::new(disk, Identity::default()) else {
            assert!(room < 4, "the first four bytes must fit");
            continue;
        };
        let (send, inbox) = sync_channel(1000);
        let (home, _free) = sync_channel(1000);
        for i in 0..chunks {
            let rows = records
                .iter()
                .map(|r| Row {
                    completed: r.completed.0,
                    submitted: r.submitted.0,
                    intended: r.intended.0,
                    offset: r.offset,
                    len: r.len,
                    done: r.len,
                    job: if i < job_2 { 1 } else { 2 },
                    ..Row::default()
                })
                .collect();
            let home = home.clone();
            assert!(
                send.send(Message::Chunk(Chunk {
                    rows,
                    origin: Nanos::ZERO,
                    home
                }))
                .is_ok()
            );
        }
        assert!(send.send(Message::Finish).is_ok());
        let summary = encoder.run(&inbox);
        let lost: u64 = summary.lost_by_job.values().sum();
        assert_eq!(summary.rows + lost, chunks * 8192, "{room}");
        if summary.error.is_none() {
            assert_eq!(lost, 0);
            complete += 1;
        } else {
            assert!(matches!(summary.error, Some(IoLogError::Write { .. })));
            // Job 2 came last.
            assert!(summary.lost_by_job.get(&2).is_some_and(|n| *n > 0));
        }
        if summary.bytes == 0 {
            assert_eq!(summary.rows, 0);
            continue;
        }
        let content = content.lock().unwrap();
        assert_eq!(content.len() as u64, summary.bytes);
        // One row group is not given up for room.
        let one = summary.bytes < 8 << 20;
        assert!(one || summary.error.is_none() || room as u64 - summary.bytes > LEFT);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, &*content).unwrap();
        let rows = IoLogReader::open(&path)
            .unwrap()
            .map(Result::unwrap)
            .count();
        assert_eq!(rows as u64, summary.rows);
    }
    assert_eq!(complete, 1, "only the last disk is large enough");
}

/// What a log leaves free, less its footer.
const LEFT: u64 = (2 << 20) - 10_000;

#[test]
fn the_chunks_of_any_number_of_threads_stay_within_their_budget() {
    for handles in [1, 2, 3, 7, 16, 64, 100, 512, 1024] {
        let (rows, chunks) = share(handles);
        let bytes = rows * chunks * handles * size_of::<Row>();
        assert!(bytes <= CHUNK_BUDGET_BYTES, "{handles}: {bytes}");
        assert!(rows >= 64 && chunks >= 3);
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    (
        (0u64..1 << 62, 0u64..1 << 20, 0u64..1 << 40),
        (any::<u64>().prop_map(|o| o >> 1), any::<u32>()),
        (-200i64..1 << 32, 0usize..4),
    )
        .prop_map(
            |((t, submit, service), (offset, len), (result, op))| Record {
                intended: Nanos(t),
                submitted: Nanos(t + submit),
                completed: Nanos(t + submit + service),
                offset,
                len,
                result,
                op: Op::ALL[op],
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_record_comes_back(
        records in prop::collection::vec((any_record(), 1usize..300), 0..60)
    ) {
        // Repetition makes runs next to mixed values.
        let records: Vec<Record> = records
            .into_iter()
            .flat_map(|(r, n)| std::iter::repeat_n(r, n))
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        prop_assert_eq!(write(&path, &records).rows, records.len() as u64);
        let back: Vec<IoRow> = IoLogReader::open(&path).unwrap().map(Result::unwrap).collect();
        prop_assert!(back == rows_of(&records));
    }
}

#[test]
fn every_column_is_described_in_the_documentation() {
    let page = include_str!("../../../../docs/run-directory.md");
    let (_, page) = page.split_once("## io.parquet").unwrap();
    for (name, _) in page::COLUMNS {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
