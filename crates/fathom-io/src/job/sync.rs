//! What makes writes durable, and how it is asked for.

use std::fmt;
use std::str::FromStr;

/// What a request of [`Op::Sync`](fathom_telemetry::Op::Sync) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// fsync: data and metadata.
    #[default]
    All,
    /// fdatasync: data, and the metadata that finds it.
    Data,
    /// sync_file_range with these `SYNC_FILE_RANGE_*`: pages of what was written since the last one. Neither metadata
    /// nor a device's cache: data that may be lost.
    Range(u8),
}

/// `SYNC_FILE_RANGE_*` by their words.
const RANGE: [(&str, u8); 3] = [("wait-before", 1), ("write", 2), ("wait-after", 4)];

impl Flush {
    /// As a number, for a request that has no use for a priority.
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::All => 0,
            Self::Data => 1,
            Self::Range(flags) => 0x100 | flags as u16,
        }
    }

    pub(crate) const fn of_code(code: u16) -> Self {
        match code {
            0 => Self::All,
            n if n & 0x100 != 0 => Self::Range(n as u8),
            _ => Self::Data,
        }
    }
}

/// What every write carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Each {
    /// Nothing: as the application's plain write.
    #[default]
    Plain,
    /// RWF_DSYNC: FUA where the device has it.
    Fua,
    /// RWF_SYNC (data and metadata).
    Sync,
}

/// What makes writes durable. Of several calls that are due after the same write, the first is made, as in fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncPolicy {
    /// With every write.
    pub each: Each,
    /// Writes of a thread before each fsync; 0 for none.
    pub fsync: u32,
    /// Writes of a thread before each fdatasync; 0 for none.
    pub fdatasync: u32,
    /// `SYNC_FILE_RANGE_*`, and writes of a thread before each sync_file_range; 0 for none.
    pub range: (u8, u32),
    /// No call follows the write that ends the job, as in fio.
    pub open_end: bool,
}

impl SyncPolicy {
    /// Nothing is made durable.
    pub const NONE: Self = Self {
        each: Each::Plain,
        fsync: 0,
        fdatasync: 0,
        range: (0, 0),
        open_end: false,
    };

    /// fdatasync after every so many writes of a thread.
    pub const fn fdatasync(every: u32) -> Self {
        Self {
            fdatasync: every,
            ..Self::NONE
        }
    }

    /// The calls, and the number of writes before each.
    pub fn calls(&self) -> impl Iterator<Item = (Flush, u32)> {
        let all = [
            (Flush::All, self.fsync),
            (Flush::Data, self.fdatasync),
            (Flush::Range(self.range.0), self.range.1),
        ];
        all.into_iter().filter(|c| c.1 > 0)
    }

    /// Whether any call is made between writes.
    pub fn has_calls(&self) -> bool {
        self.calls().next().is_some()
    }
}

impl FromStr for SyncPolicy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::NONE;
        for part in text.split('+') {
            let (word, n) = match part.split_once(':') {
                Some((w, n)) => (
                    w,
                    n.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(|| {
                        format!("'{n}' is not a number of writes: expected 1 or more")
                    })?,
                ),
                None => (part, 1),
            };
            match word {
                "none" => {}
                "fsync" => all.fsync = n,
                "fdatasync" => all.fdatasync = n,
                "fua" | "dsync" => all.each = Each::Fua,
                "sync" => all.each = Each::Sync,
                "open-end" => all.open_end = true,
                _ => match word.strip_prefix("range-").and_then(range) {
                    Some(flags) => all.range = (flags, n),
                    None => {
                        return Err(format!(
                            "'{part}' is not a sync policy: expected none, fsync[:N], fdatasync[:N], range-write[:N], fua, sync, or several with + between"
                        ));
                    }
                },
            }
        }
        Ok(all)
    }
}

/// `wait-before,write,wait-after`.
fn range(text: &str) -> Option<u8> {
    let flag = |word: &str| RANGE.iter().find(|r| r.0 == word).map(|r| r.1);
    text.split(',')
        .try_fold(0, |all, word| Some(all | flag(word)?))
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.each {
            Each::Plain => {}
            Each::Fua => parts.push("fua".to_owned()),
            Each::Sync => parts.push("sync".to_owned()),
        }
        for (flush, every) in self.calls() {
            parts.push(match flush {
                Flush::All => format!("fsync:{every}"),
                Flush::Data => format!("fdatasync:{every}"),
                Flush::Range(flags) => {
                    let words = RANGE.iter().filter(|r| flags & r.1 != 0).map(|r| r.0);
                    let words: Vec<&str> = words.collect();
                    format!("range-{}:{every}", words.join(","))
                }
            });
        }
        if self.open_end {
            parts.push("open-end".into());
        }
        if parts.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for text in [
            "none",
            "fsync:1",
            "fsync:32",
            "fdatasync:1",
            "fua",
            "sync",
            "fua+fsync:8+fdatasync:3",
            "range-write:16",
            "fsync:4+open-end",
            "range-wait-before,write,wait-after:4",
        ] {
            let policy: SyncPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!(
            "fsync".parse(),
            Ok("fsync:1".parse::<SyncPolicy>().unwrap())
        );
        for text in ["fsync:0", "range-:2", "range-read", "often", "fua+", ""] {
            assert!(text.parse::<SyncPolicy>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_carries_what_it_flushes() {
        for flush in [Flush::All, Flush::Data, Flush::Range(0), Flush::Range(7)] {
            assert_eq!(Flush::of_code(flush.code()), flush);
        }
    }
}
