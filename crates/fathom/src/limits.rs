//! What the system allows this process, made bearable before anything else happens.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that are enough for a thousand jobs with files of their own; what is started inherits the limit, and
/// some programs close every descriptor below it.
const OPEN_FILES_MAX: u64 = 1 << 16;

/// Raises the limit of open files as far as it may be, and makes writing beyond the limit of file sizes an error: the
/// signal would end the process without a word. (What is started has it as ever.)
pub(crate) fn prepare() {
    let files = getrlimit(Resource::Nofile);
    let most = files.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    if files.current.is_some_and(|now| now < most) {
        // Where it may not be raised, running out of files is said where it happens.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(most),
                maximum: files.maximum,
            },
        );
    }
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// What to do about an error that comes of a limit of this process; empty for others.
pub(crate) fn remedy(sentence: &str) -> &'static str {
    let limited = getrlimit(Resource::Fsize).current.is_some();
    // libc's words and numbers: errors of all rooms are one sentence here.
    if limited && sentence.contains("(os error 27)") {
        "; files may not become larger in this shell: ulimit -f unlimited"
    } else if sentence.contains("(os error 24)") && !sentence.contains("ulimit -n") {
        "; raise the limit of open files: ulimit -n"
    } else {
        ""
    }
}
