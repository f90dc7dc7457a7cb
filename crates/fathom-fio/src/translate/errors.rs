//! Which errors of I/O end a job, fail it and are said: `continue_on_error`, `ignore_error`, `error_dump`.

use fathom_telemetry::Op;

use crate::FioError;
use crate::section::Section;

/// The names that fio knows: Linux numbers them from 1 in this order.
const ERRORS: &str = "\
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST \
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE";

/// EIO and EILSEQ, which fio calls not fatal.
const OF_DATA: [i32; 2] = [5, MISMATCH];
const MISMATCH: i32 = 84;

/// What becomes of errors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Errors {
    /// Those of reads, of writes and trims, and of verification that fail nothing.
    ignored: [Vec<i32>; 3],
    /// Whether such that tell of the data do not end the job.
    survived: [bool; 3],
    /// Ignored ones are said nevertheless.
    said: bool,
}

impl Errors {
    pub(super) fn of(s: &Section) -> Result<Self, FioError> {
        let survived = match s.get("continue_on_error").unwrap_or("none") {
            "read" => [true, false, false],
            "write" => [false, true, false],
            "io" => [true, true, false],
            "verify" => [false, false, true],
            "none" | "0" => [false; 3],
            _ => [true; 3],
        };
        let mut ignored: [Vec<i32>; 3] = Default::default();
        let lists = s.get("ignore_error").unwrap_or("").split(',');
        for (list, into) in lists.zip(&mut ignored) {
            for word in list.split(':').map(str::trim).filter(|w| !w.is_empty()) {
                into.push(number(word).ok_or_else(|| {
                    s.invalid(
                        "ignore_error",
                        format!(
                            "'{word}' is not an error: expected a number, or one such as ENOSPC"
                        ),
                    )
                })?);
            }
        }
        Ok(Self {
            ignored,
            survived,
            said: s.flag("error_dump", false),
        })
    }

    fn kind(op: Op, errno: i32) -> usize {
        match op {
            _ if errno == MISMATCH => 2,
            Op::Read => 0,
            Op::Write | Op::Trim | Op::Sync => 1,
        }
    }
    /// Whether any error does not end the job.
    pub(crate) fn survives_some(&self) -> bool {
        self.survived.contains(&true) || self.ignored.iter().any(|l| !l.is_empty())
    }
    /// Whether it fails nothing.
    pub(crate) fn ignores(&self, op: Op, errno: i32) -> bool {
        self.ignored[Self::kind(op, errno)].contains(&errno)
    }
    /// Whether the job goes on after it.
    pub(crate) fn survives(&self, op: Op, errno: i32) -> bool {
        let data = OF_DATA.contains(&errno) && self.survived[Self::kind(op, errno)];
        data || self.ignores(op, errno)
    }
    /// Whether it is said on standard error.
    pub fn says(&self, op: Op, errno: i32) -> bool {
        self.said || !self.ignores(op, errno)
    }
}

/// The number of an error, by its name or as it is.
fn number(word: &str) -> Option<i32> {
    if let Some(at) = ERRORS.split_whitespace().position(|n| n == word) {
        return Some(at as i32 + 1);
    }
    match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(hex) => i32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_system() {
        for (name, errno) in [
            ("EIO", rustix::io::Errno::IO),
            ("EAGAIN", rustix::io::Errno::AGAIN),
            ("ENOSPC", rustix::io::Errno::NOSPC),
            ("ERANGE", rustix::io::Errno::RANGE),
        ] {
            assert_eq!(number(name), Some(errno.raw_os_error()), "{name}");
        }
        assert_eq!(number("0x1c"), Some(28));
        assert_eq!(number("ENONE"), None);
    }
}
