//! What `--debug=io` says: a line per I/O that is complete, in fio's words.

use std::fmt::Write as _;

use fathom_io::load::PilotIo;

/// Lines of one thread, handed to standard output many at a time.
pub(super) struct Lines {
    text: String,
    pid: u32,
    say: fn(&str),
}

/// Bytes that are handed over at once.
const MANY: usize = 64 << 10;

impl Lines {
    pub(super) fn new(say: fn(&str)) -> Self {
        Self {
            text: String::with_capacity(MANY + 256),
            pid: std::process::id(),
            say,
        }
    }

    pub(super) fn complete(&mut self, io: &PilotIo, file: &str) {
        let (pid, offset, len, direction) = (self.pid, io.offset, io.len, io.op as u32);
        // Its address tells nothing; scripts look at what follows.
        let _ = writeln!(
            self.text,
            "io       {pid} complete: io_u 0x0: off={offset:#x},len={len:#x},ddir={direction},file={file}"
        );
        if self.text.len() >= MANY {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        (self.say)(&self.text);
        self.text.clear();
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.hand_over();
    }
}
