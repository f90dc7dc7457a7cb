//! `--profile`: jobs that fio has built in.

use std::time::Duration;

use crate::FioError;
use crate::options::value::{self, Quantity};

/// A command line as the jobs that its profile stands for.
pub(crate) struct Expanded {
    pub(crate) args: Vec<String>,
    /// `act`: for so long its latencies are held against what ACT asks of them.
    pub(crate) judged: Option<Duration>,
}

/// Names of the profiles, and the options that each has of its own.
const PROFILES: [(&str, &[&str]); 2] = [
    ("tiobench", &["size", "block", "numruns", "dir", "threads"]),
    (
        "act",
        &[
            "device-names",
            "load",
            "test-duration",
            "threads-per-queue",
            "read-req-num-512-blocks",
            "large-block-op-kbytes",
            "prep",
        ],
    ),
];

/// What was given of a profile's own options.
struct Given(Vec<(&'static str, Option<String>)>);

impl Given {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|g| g.0 == name)?;
        Some(found.1.as_deref().unwrap_or(""))
    }
    fn number(&self, name: &str, default: u64) -> Result<u64, FioError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match value::number(text, 1024) {
            // As in fio they have 32 bits.
            Some(Quantity::Plain(n)) if (1..=i64::from(u32::MAX)).contains(&n) => Ok(n as u64),
            _ => Err(FioError::Usage(format!(
                "--{name}={text} is not possible: expected a number from 1 to {}",
                u32::MAX
            ))),
        }
    }
}

/// A command line with `--profile` as the jobs that it stands for; any other as it is.
///
/// # Errors
/// Profiles that fathom has not, and values that are none.
pub(crate) fn expanded(args: &[String]) -> Result<Expanded, FioError> {
    let mut named: Option<(&str, &[&str])> = None;
    let mut rest = Vec::new();
    let mut given = Given(Vec::new());
    let mut all = args.iter();
    while let Some(arg) = all.next() {
        let body = arg.strip_prefix("--").unwrap_or("");
        let (name, value) = match body.split_once('=') {
            Some((n, v)) => (n, Some(v.to_owned())),
            None => (body, None),
        };
        let own = named.and_then(|p| p.1.iter().find(|o| **o == name));
        if name == "profile" {
            let word = value.or_else(|| all.next().cloned()).unwrap_or_default();
            let found = PROFILES.into_iter().find(|p| p.0 == word);
            named = Some(found.ok_or_else(|| {
                FioError::Usage(format!(
                    "--profile={word} is not supported: tiobench and act are, and the jobs of others can be written as a job file"
                ))
            })?);
        } else if let Some(own) = own {
            // One is a switch, which needs no value.
            let value = value.or_else(|| (*own != "prep").then(|| all.next().cloned())?);
            given.0.push((own, value));
        } else {
            rest.push(arg.clone());
        }
    }
    match named.map(|p| p.0) {
        None => Ok(Expanded {
            args: rest,
            judged: None,
        }),
        Some("act") => act(rest, &given),
        Some(_) => tiobench(rest, &given),
    }
}

fn tiobench(mut args: Vec<String>, given: &Given) -> Result<Expanded, FioError> {
    // fio's default: 4096 bytes for each MiB of memory.
    let size = match given.get("size") {
        Some(_) => given.number("size", 0)?.saturating_mul(1 << 20),
        None => 4096 * memory_mib(),
    };
    args.extend([
        "--buffered=0".to_owned(),
        format!("--size={size}"),
        format!("--bs={}", given.number("block", 4096)?),
        format!("--loops={}", given.number("numruns", 1)?),
        format!("--directory={}", given.get("dir").unwrap_or("./")),
        format!("--numjobs={}", given.number("threads", 1)?),
    ]);
    let jobs = "--timeout=600 --group_reporting --overwrite=1 \
        --filename=.fio.tio.1:.fio.tio.2:.fio.tio.3:.fio.tio.4 --ioengine=sync \
        --name=seqwrite --rw=write --end_fsync=1 --name=randwrite --stonewall --rw=randwrite --end_fsync=1 \
        --name=seqread --stonewall --rw=read --name=randread --stonewall --rw=randread";
    args.extend(jobs.split_whitespace().map(str::to_owned));
    Ok(Expanded { args, judged: None })
}

/// I/Os per second at a load of 1: reads, and writes of the size of a read.
const ACT_READS: u64 = 2000;
const ACT_WRITES: u64 = 1000;

/// The jobs of Aerospike's certification test: reads and large writes at a fixed rate on each device, or its preparation.
fn act(mut args: Vec<String>, given: &Given) -> Result<Expanded, FioError> {
    let bad = |text: String| Err(FioError::Usage(text));
    let devices = given.get("device-names").unwrap_or("");
    if devices.is_empty() {
        return bad("--profile=act needs its targets: --device-names=/dev/sdx,/dev/sdy".into());
    }
    let globals = "--direct=1 --ioengine=sync --random_generator=lfsr --group_reporting=1 --thread";
    args.extend(globals.split_whitespace().map(str::to_owned));
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| format!("--{w}")));
    let devices = devices.split(',').filter(|d| !d.is_empty());
    if given.get("prep").is_some_and(|v| v != "0") {
        for device in devices {
            let (name, file) = (
                format!("name=act-prep-zeroes-{device}"),
                format!("filename={device}"),
            );
            add(&[&name, &file, "bs=1048576", "zero_buffers", "rw=write"]);
            let name = format!("name=act-prep-salt-{device}");
            add(&[
                &name,
                "stonewall",
                &file,
                "bs=4096",
                "ioengine=libaio",
                "iodepth=64",
                "rw=randwrite",
            ]);
        }
        return Ok(Expanded { args, judged: None });
    }
    let text = given.get("test-duration").unwrap_or("24h");
    let Some(us) = value::micros(text, true).filter(|us| *us > 0) else {
        return bad(format!(
            "--test-duration={text} is not possible: expected one such as 24h"
        ));
    };
    let threads = given.number("threads-per-queue", 8)?;
    let load = given.number("load", 1)?;
    let block = given
        .number("read-req-num-512-blocks", 3)?
        .saturating_mul(512);
    // Whatever its name says, in fio this is a number of bytes.
    let large = given.number("large-block-op-kbytes", 131_072)?;
    let ratio = large / block;
    let reads = load.saturating_mul(ACT_READS) / threads;
    if ratio == 0 || reads == 0 {
        return bad(format!(
            "--large-block-op-kbytes={large} is not possible with reads of {block} bytes and {threads} threads: as in fio it counts bytes, and must hold a read; and each thread must have a read per second"
        ));
    }
    add(&[&format!("runtime={us}us"), "time_based=1"]);
    let writes = load.saturating_mul(ACT_WRITES).div_ceil(ratio);
    for device in devices {
        let file = format!("filename={device}");
        add(&[
            &format!("name=act-read-{device}"),
            &file,
            "rw=randread",
            &format!("numjobs={threads}"),
            &format!("rate_iops={reads}"),
            &format!("bs={block}"),
        ]);
        add(&[
            &format!("name=act-write-{device}"),
            &file,
            "rw=randwrite",
            &format!("rate_iops={writes}"),
            &format!("bs={large}"),
        ]);
    }
    let judged = Some(Duration::from_micros(us));
    Ok(Expanded { args, judged })
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(1 << 20) / 1024
}
