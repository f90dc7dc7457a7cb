//! What an error of a device means. The kernel folds a drive's answers into error numbers of files
//! (`blk_errors` of block/blk-core.c), whose words then speak of files: "No data available" is a bad sector.

use crate::load::NOTHING_READ;
use crate::port::commands::{APPENDED_ELSEWHERE, COMPARED_DIFFERENT};

/// The system's words, and what a device means by them.
pub fn message(errno: i32) -> String {
    match errno {
        0 => return "transferred less than asked for".into(),
        NOTHING_READ => {
            return "read nothing below the known size: the device is gone, or the file was cut short".into();
        }
        APPENDED_ELSEWHERE => {
            return "the drive appended where it was not asked to, or where another append had gone: it loses data".into();
        }
        COMPARED_DIFFERENT => {
            return "the drive holds other data than was handed over: write it with the same --seed, --bs, --offset and --same-data first".into();
        }
        _ => {}
    }
    let words = std::io::Error::from_raw_os_error(errno);
    match meaning(errno) {
        Some(meaning) => format!("{words}: {meaning}"),
        None => words.to_string(),
    }
}

/// The number in results.
pub(super) fn number(errno: i32) -> i32 {
    match errno {
        // What a disk that is gone would say if it still could.
        NOTHING_READ => libc::ENODEV,
        APPENDED_ELSEWHERE => libc::EIO,
        COMPARED_DIFFERENT => libc::EILSEQ,
        _ => errno,
    }
}

fn meaning(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::ENODATA => "the medium cannot be read there (a bad sector)",
        libc::ENOSPC => "there is no room left: below a device, its pool or backing file is full",
        libc::ENODEV | libc::ENXIO => "the device is gone or offline",
        libc::ETIMEDOUT => "the device did not answer within the kernel's time limit",
        libc::ENOLINK => "the path to the device is lost",
        libc::EREMOTEIO => "the device refused the command",
        libc::EBADE => "another machine has reserved the device",
        libc::EILSEQ => "data and their protection information do not match",
        libc::EOVERFLOW => "too many zones are active (open or closed): reset or finish one",
        libc::ETOOMANYREFS => "too many zones are open: close, reset or finish one",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_files_are_said_as_what_a_device_means() {
        let medium = message(libc::ENODATA);
        assert!(
            medium.starts_with("No data available") && medium.contains("bad sector"),
            "{medium}"
        );
        assert!(message(libc::ENOSPC).contains("No space left on device"));
        assert!(message(NOTHING_READ).contains("the device is gone"));
        assert_eq!(message(0), "transferred less than asked for");
        assert_eq!(message(libc::EIO), "Input/output error (os error 5)");
    }
}
