//! What the I/O log costs: ns per `push`, ns of process CPU time per record, bytes per record.
//!
//! `cargo run --release -p fathom-telemetry --example iolog_cost [RECORDS] [THREADS]`
//! Also shows the `parquet` crate's own column writers on the same rows, which is why the log encodes
//! its pages itself.

use std::sync::Arc;
use std::time::Instant;

use fathom_telemetry::Identity;
use fathom_telemetry::iolog::IoLog;
use fathom_telemetry::{Nanos, Op, Record};
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let total: usize = args.next().map_or(Ok(20_000_000), |a| a.parse())?;
    let threads: usize = args.next().map_or(Ok(1), |a| a.parse())?;
    let dir = tempfile::tempdir()?;
    for (name, records) in [
        ("random 4 KiB QD32, 1 TB", random(false)),
        ("random 70/30 mixed sizes", random(true)),
        ("sequential 128 KiB", sequential()),
    ] {
        measure(name, &records, total, threads, dir.path())?;
    }
    paced(&random(false), dir.path())?;
    println!("peak memory {} MiB", peak_kib()? / 1024);
    crate_writer(&random(false))?;
    Ok(())
}

/// Pushes as fast as the encoder follows, so that nothing is lost and all is paid for.
fn measure(
    name: &str,
    records: &[Record],
    total: usize,
    threads: usize,
    dir: &std::path::Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let log = IoLog::create(&dir.join("io.parquet"), Identity::default(), threads)?;
    let each = total / threads;
    let cpu = cpu_ns()?;
    let start = Instant::now();
    let push_ns: f64 = std::thread::scope(|s| {
        let handles: Vec<_> = (0..threads)
            .map(|t| {
                let mut handle = log.handle(0, t as u16, Nanos(0));
                s.spawn(move || {
                    let (mut busy, mut done) = (0, 0);
                    // As many at once as surely fit, then a pause for the encoder.
                    let burst = 4096.min(each);
                    while done < each {
                        let lost = handle.lost();
                        let begin = Instant::now();
                        let from = done % (records.len() - burst);
                        for r in &records[from..from + burst] {
                            handle.push(r);
                        }
                        busy += begin.elapsed().as_nanos();
                        done += burst;
                        if handle.lost() > lost {
                            std::thread::sleep(std::time::Duration::from_millis(5));
                        }
                    }
                    busy as f64 / done as f64
                })
            })
            .collect();
        handles
            .into_iter()
            .filter_map(|h| h.join().ok())
            .sum::<f64>()
            / threads as f64
    });
    let summary = log.finish()?;
    let wall = start.elapsed().as_secs_f64();
    let lost: u64 = summary.lost_by_job.values().sum();
    println!(
        "{name}: push {push_ns:.1} ns, process CPU {:.1} ns per row written, {:.2} bytes per row, \
         {:.1} M rows/s, {} rows, {lost} lost",
        (cpu_ns()? - cpu) as f64 / summary.rows as f64,
        summary.bytes as f64 / summary.rows as f64,
        summary.rows as f64 / wall / 1e6,
        summary.rows,
    );
    Ok(())
}

/// A million records a second in batches of 32, as from a fast device: what a push costs then.
fn paced(records: &[Record], dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    const SECONDS: u32 = 3;
    let log = IoLog::create(&dir.join("io.parquet"), Identity::default(), 1)?;
    let mut handle = log.handle(0, 0, Nanos(0));
    let mut batches = Vec::with_capacity(SECONDS as usize * 31_250);
    let start = Instant::now();
    for i in 0..SECONDS * 31_250 {
        let due = std::time::Duration::from_micros(32) * i;
        while start.elapsed() < due {
            std::hint::spin_loop();
        }
        let from = i as usize * 32 % records.len();
        let begin = Instant::now();
        for r in &records[from..from + 32] {
            handle.push(r);
        }
        batches.push(begin.elapsed().as_nanos() as f64 / 32.0);
    }
    handle.close();
    let encoder = Instant::now();
    let lost: u64 = log.finish()?.lost_by_job.values().sum();
    let mean = batches.iter().sum::<f64>() / batches.len() as f64;
    batches.sort_by(f64::total_cmp);
    println!(
        "at 1 M/s: push {mean:.1} ns mean, {:.1} ns median (both with a clock reading shared by 32), \
         {lost} lost, finished in {:.1} ms",
        batches[batches.len() / 2],
        encoder.elapsed().as_secs_f64() * 1e3,
    );
    Ok(())
}

fn random(mixed: bool) -> Vec<Record> {
    let mut x = 88_172_645_463_325_252u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut now = 0;
    (0..1 << 15)
        .map(|_| {
            now += 500 + next() % 1000;
            let submitted = now + 100_000 - next() % 40_000;
            let len = if mixed { 4096 << (next() % 3) } else { 4096 };
            Record {
                intended: Nanos(submitted - next() % 400),
                submitted: Nanos(submitted),
                completed: Nanos(now + 180_000),
                offset: next() % (1 << 28) * 4096,
                len,
                result: i64::from(len),
                op: if mixed && next() % 10 < 3 {
                    Op::Write
                } else {
                    Op::Read
                },
            }
        })
        .collect()
}

fn sequential() -> Vec<Record> {
    (0..1u64 << 15)
        .map(|i| Record {
            intended: Nanos(i * 20_000),
            submitted: Nanos(i * 20_000 + 300 + i % 17),
            completed: Nanos(i * 20_000 + 19_000 + i * 7919 % 1013),
            offset: i << 17,
            len: 128 << 10,
            result: 128 << 10,
            op: Op::Read,
        })
        .collect()
}

/// The same rows through the `parquet` crate's writers, with the same encodings.
fn crate_writer(records: &[Record]) -> Result<(), Box<dyn std::error::Error>> {
    let longs = ["intended_ns", "submitted_ns", "completed_ns", "offset"];
    let ints = ["job", "thread", "op", "len", "done", "error"];
    let field = |name: &&str, kind| {
        Ok::<_, parquet::errors::ParquetError>(Arc::new(
            Type::primitive_type_builder(name, kind)
                .with_repetition(Repetition::REQUIRED)
                .build()?,
        ))
    };
    let mut fields = Vec::new();
    for n in &longs {
        fields.push(field(n, Physical::INT64)?);
    }
    for n in &ints {
        fields.push(field(n, Physical::INT32)?);
    }
    let schema = Type::group_type_builder("io").with_fields(fields).build()?;
    let mut properties =
        WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    for n in longs {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(n), false)
            .set_column_encoding(ColumnPath::from(n), Encoding::DELTA_BINARY_PACKED);
    }
    let start = Instant::now();
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
    for group in records.chunks(1 << 18) {
        let mut out = writer.next_row_group()?;
        let long_fields: [fn(&Record) -> i64; 4] = [
            |r| r.intended.0 as i64,
            |r| r.submitted.0 as i64,
            |r| r.completed.0 as i64,
            |r| r.offset as i64,
        ];
        for f in long_fields {
            let mut column = out.next_column()?.ok_or("a column is missing")?;
            for rows in group.chunks(8192) {
                let values: Vec<i64> = rows.iter().map(f).collect();
                column
                    .typed::<Int64Type>()
                    .write_batch(&values, None, None)?;
            }
            column.close()?;
        }
        let int_fields: [fn(&Record) -> i32; 6] = [
            |_| 0,
            |_| 0,
            |r| r.op as i32,
            |r| r.len as i32,
            |r| r.result as i32,
            |_| 0,
        ];
        for f in int_fields {
            let mut column = out.next_column()?.ok_or("a column is missing")?;
            for rows in group.chunks(8192) {
                let values: Vec<i32> = rows.iter().map(f).collect();
                column
                    .typed::<Int32Type>()
                    .write_batch(&values, None, None)?;
            }
            column.close()?;
        }
        out.close()?;
    }
    let bytes = writer.into_inner()?.len();
    println!(
        "the parquet crate's writers, random 4 KiB: {:.1} ns and {:.2} bytes per row",
        start.elapsed().as_nanos() as f64 / records.len() as f64,
        bytes as f64 / records.len() as f64
    );
    Ok(())
}

/// CPU time of the process, user and system, from /proc (in ticks of 10 ms).
fn cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |i| {
        after
            .split_whitespace()
            .nth(i)
            .and_then(|t: &str| t.parse::<u64>().ok())
    };
    Ok((ticks(11).ok_or("no utime")? + ticks(12).ok_or("no stime")?) * 10_000_000)
}

/// Peak resident memory.
fn peak_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|l| l.starts_with("VmHWM"))
        .ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse()?)
}
