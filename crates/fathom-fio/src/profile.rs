//! `--profile`: jobs that fio has built in.

use crate::FioError;
use crate::options::value::{self, Quantity};

/// Options of the profile itself.
const OWN: [&str; 5] = ["size", "block", "numruns", "dir", "threads"];

/// A command line with `--profile=tiobench` as the jobs that it stands for; any other as it is.
///
/// # Errors
/// Profiles that fathom has not.
pub(crate) fn expanded(args: &[String]) -> Result<Vec<String>, FioError> {
    let mut named = None;
    let mut rest = Vec::new();
    let mut given: [Option<String>; OWN.len()] = Default::default();
    let mut all = args.iter().peekable();
    while let Some(arg) = all.next() {
        let body = arg.strip_prefix("--").unwrap_or("");
        let (name, value) = match body.split_once('=') {
            Some((n, v)) => (n, Some(v.to_owned())),
            None => (body, None),
        };
        if name == "profile" {
            named = value.or_else(|| all.next().cloned());
        } else if let (Some(at), true) = (OWN.iter().position(|o| *o == name), named.is_some()) {
            given[at] = value.or_else(|| all.next().cloned());
        } else {
            rest.push(arg.clone());
        }
    }
    match named.as_deref() {
        None => return Ok(args.to_vec()),
        Some("tiobench") => {}
        Some(other) => {
            return Err(FioError::Usage(format!(
                "--profile={other} is not supported: tiobench is, and the jobs of others can be written as a job file"
            )));
        }
    }
    let number = |at: usize, default: u64| -> Result<u64, FioError> {
        let Some(text) = &given[at] else {
            return Ok(default);
        };
        match value::number(text, 1024) {
            Some(Quantity::Plain(n)) if n > 0 => Ok(n as u64),
            _ => Err(FioError::Usage(format!(
                "--{}={text} is not possible: expected a number",
                OWN[at]
            ))),
        }
    };
    // fio's default: 4096 bytes for each MiB of memory.
    let size = match given[0] {
        Some(_) => number(0, 0)?.saturating_mul(1 << 20),
        None => 4096 * memory_mib(),
    };
    let mut out = rest;
    out.extend([
        "--buffered=0".to_owned(),
        format!("--size={size}"),
        format!("--bs={}", number(1, 4096)?),
        format!("--loops={}", number(2, 1)?),
        format!("--directory={}", given[3].as_deref().unwrap_or("./")),
        format!("--numjobs={}", number(4, 1)?),
    ]);
    for text in [
        "--timeout=600",
        "--group_reporting",
        "--overwrite=1",
        "--filename=.fio.tio.1:.fio.tio.2:.fio.tio.3:.fio.tio.4",
        "--ioengine=sync",
        "--name=seqwrite",
        "--rw=write",
        "--end_fsync=1",
        "--name=randwrite",
        "--stonewall",
        "--rw=randwrite",
        "--end_fsync=1",
        "--name=seqread",
        "--stonewall",
        "--rw=read",
        "--name=randread",
        "--stonewall",
        "--rw=randread",
    ] {
        out.push(text.to_owned());
    }
    Ok(out)
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(1 << 20) / 1024
}
