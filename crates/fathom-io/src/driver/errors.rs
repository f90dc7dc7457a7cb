//! What an error of a device means. The kernel folds a drive's answers into error numbers of files
//! (`blk_errors` of block/blk-core.c), whose words then speak of files: "No data available" is a bad sector.

use crate::load::NOTHING_READ;

/// The system's words, and what a device means by them.
pub(super) fn message(errno: i32) -> String {
    match errno {
        0 => return "transferred less than asked for".into(),
        NOTHING_READ => {
            return "read nothing below the known size: the device is gone, or the file was cut short".into();
        }
        _ => {}
    }
    let words = std::io::Error::from_raw_os_error(errno);
    match meaning(errno) {
        Some(meaning) => format!("{words}: {meaning}"),
        None => words.to_string(),
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
        libc::EOVERFLOW | libc::ETOOMANYREFS => "too many zones are open or active",
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
