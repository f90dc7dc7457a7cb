//! What the kernel said about a device: the last lines of its log that name it. Read only, and empty without the right to.

use std::io::Read;
use std::path::Path;

use fathom_files::open;

/// Lines that are told, at most: the first says what happened, the last what became of it.
const LINES: usize = 4;
/// A record of /dev/kmsg is not longer.
const RECORD_MAX: usize = 8 << 10;

/// The lines of the last `ns` nanoseconds that name one of these disks, oldest first.
pub fn about(disks: &[&str], ns: u64) -> Vec<String> {
    let Ok(mut log) = open::for_reading(Path::new("/dev/kmsg"), 0) else {
        return Vec::new();
    };
    // The log's clock is the processor's, which starts with it.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
    let since = now_us.saturating_sub(ns / 1000);
    let mut lines: Vec<String> = Vec::new();
    let mut buffer = vec![0; RECORD_MAX];
    loop {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                let record = String::from_utf8_lossy(&buffer[..n]);
                let line = line_of(&record, since).filter(|l| disks.iter().any(|d| names(l, d)));
                if let Some(line) = line
                    && lines.last() != Some(&line)
                {
                    lines.push(line);
                }
            }
            // Records were overwritten before they were read.
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    if lines.len() > LINES {
        lines.drain(LINES / 2..lines.len() - LINES / 2);
    }
    lines
}

/// The text of a record, `priority,sequence,microseconds,flags;text`, where it is not older.
fn line_of(record: &str, since_us: u64) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let at: u64 = head.split(',').nth(2)?.parse().ok()?;
    let line = text.lines().next()?.trim();
    (at >= since_us && !line.is_empty()).then(|| line.to_owned())
}

/// Whether a line names a disk, or the controller of an NVMe namespace.
fn names(line: &str, disk: &str) -> bool {
    let word = |c: char| !c.is_ascii_alphanumeric();
    let controller = disk
        .rsplit_once('n')
        .map(|(c, _)| c)
        .filter(|c| c.starts_with("nvme"));
    let path = |w: &str| controller.is_some_and(|c| w.starts_with(&format!("{c}c")));
    line.split(word)
        .any(|w| w == disk || Some(w) == controller || path(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_where_it_names_the_disk_and_is_new() {
        let record =
            "6,339,5140900,-;critical medium error, dev sda, sector 40000\n SUBSYSTEM=block\n";
        let line = line_of(record, 5_000_000).unwrap();
        assert_eq!(line, "critical medium error, dev sda, sector 40000");
        assert_eq!(line_of(record, 6_000_000), None);
        assert!(names(&line, "sda") && !names(&line, "sd") && !names(&line, "sdaa"));
        assert!(names(
            "nvme nvme0: I/O 12 QID 1 timeout, aborting",
            "nvme0n1"
        ));
        assert!(names("nvme0c1n1: I/O error", "nvme0n1"));
        assert!(!names("nvme nvme1: resetting controller", "nvme0n1"));
        assert_eq!(line_of("no record", 0), None);
    }
}
