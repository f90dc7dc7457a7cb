//! The files that a script leaves beside its output (fio: --aux-path): logs, texts of commands, states, blocks that did not hold. Where
//! each goes, and what it may replace.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fathom_files::{Existing, Kind, Output, output};

/// Where a script's files go, and whether they replace whatever is there.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    /// `--aux-path`: for logs and states that are named without a directory.
    pub directory: Option<PathBuf>,
    /// `--overwrite-output`.
    pub overwrite: bool,
    /// Logs of I/Os that jobs of this run have written: what shares their name is added.
    pub(crate) written: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Outputs {
    /// The place of a file that fio names itself.
    pub fn path(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref();
        directory.map_or_else(|| PathBuf::from(name), |d| d.join(name))
    }

    /// What an output of this kind may replace.
    pub fn existing(&self, kind: Kind) -> Existing {
        if self.overwrite {
            Existing::Any
        } else {
            Existing::OfKind(kind)
        }
    }

    /// Begins one.
    ///
    /// # Errors
    /// As [`Output::create`], with its path.
    pub fn create(&self, path: &Path, kind: Kind) -> io::Result<Output> {
        Output::create(path, self.existing(kind)).map_err(|e| named(path, e))
    }

    /// A log: `PREFIX_KIND.N.log` of its own, or one that all jobs share and that is added to.
    pub(crate) fn log(&self, path: &Path, own: bool, kind: Kind) -> io::Result<Output> {
        if own {
            return self.create(path, kind);
        }
        Output::add_to(path, self.existing(kind)).map_err(|e| named(path, e))
    }

    /// Whether what will be written there can be; nothing is made or changed.
    ///
    /// # Errors
    /// That it cannot, by its path.
    pub fn check_one(&self, path: &Path, kind: Kind) -> io::Result<()> {
        output::check(path, self.existing(kind)).map_err(|e| named(path, e))
    }
}

/// An error with the path, and with what a user can do about it here.
pub fn named(path: &Path, e: io::Error) -> io::Error {
    let remedy = match e.kind() {
        io::ErrorKind::AlreadyExists => ", or add --overwrite-output",
        _ => "",
    };
    io::Error::new(e.kind(), format!("{}: {e}{remedy}", path.display()))
}

/// fio's output in any of its forms.
pub fn is_output(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let terse = text.split(';').nth(1);
    text.contains("\"fio version\"")
        || terse.is_some_and(|v| v.starts_with("fio-"))
        || text.contains(": (g=") && text.contains("): rw=")
        || text.contains(": (groupid=") && text.contains("): err=")
}

/// A log of bandwidth, IOPS or latencies, or of histograms: nothing but numbers and commas.
pub fn is_log(head: &[u8]) -> bool {
    // The last line may be cut off.
    let whole = head
        .iter()
        .rposition(|c| *c == b'\n')
        .map_or(head, |end| &head[..end]);
    let number = |word: &str| {
        let word = word.trim();
        let digits = word.strip_prefix("0x").unwrap_or(word);
        !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_hexdigit())
    };
    std::str::from_utf8(whole).is_ok_and(|text| {
        text.lines()
            .all(|l| l.split(", ").count() >= 4 && l.split(", ").all(number))
    })
}

/// A log of I/Os.
pub(crate) fn is_iolog(head: &[u8]) -> bool {
    head.starts_with(b"fio version ") && head.windows(6).take(32).any(|w| w == b" iolog")
}

/// A verify state: fathom's, or fio's, whose version is a small number.
pub fn is_state(head: &[u8]) -> bool {
    let version = head.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    head.starts_with(b"fathom verify state ")
        || head.len() >= 24 && version.is_some_and(|v| (1..=16).contains(&v))
}

/// What a command said can be anything: such a file is known by its mark alone.
pub fn is_text(_head: &[u8]) -> bool {
    false
}

/// The first thing that went wrong with files that are written and closed where nobody can be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// Puts an output in its place.
    pub(crate) fn commit(&self, out: Output) {
        let path = out.path().to_owned();
        if let Err(e) = out.commit() {
            self.say(named(&path, e));
        }
    }
    /// The same for one that several jobs share.
    pub(crate) fn commit_shared(&self, out: Output, outputs: &Outputs) {
        let path = out.path().to_owned();
        let mut written = outputs
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let done = if written.insert(path.clone()) {
            out.commit()
        } else {
            out.commit_behind()
        };
        if let Err(e) = done {
            self.say(named(&path, e));
        }
    }
    pub(crate) fn say(&self, e: io::Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| e.to_string());
    }
    pub(crate) fn said(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_known_by_what_is_in_them() {
        for text in [
            "{\n  \"fio version\" : \"fio-3.33\",\n",
            "fio: note\n{\n  \"fio version\" : \"fio-3.36\",\n",
            "3;fio-3.33;a;0;0;",
            "a: (g=0): rw=read, bs=(R) 4096B-4096B, ioengine=libaio, iodepth=1\nfio-3.33\n",
            "a: (groupid=0, jobs=1): err= 0: pid=0: Fri Nov 20 21:50:43 2026\n",
        ] {
            assert!(is_output(text.as_bytes()), "{text}");
        }
        for text in ["{\"a\": 1}", "dear diary", "a;b;c", "", "\x7fELF"] {
            assert!(!is_output(text.as_bytes()), "{text}");
        }
        for text in [
            "500, 1024, 0, 0, 0\n1000, 998, 1, 0, 0x0000\n5",
            "1, 2, 3, 4, 0\n",
        ] {
            assert!(is_log(text.as_bytes()), "{text}");
        }
        for text in ["time, value, direction, size\n", "1, 2\n", "1,2,3,4\n", "x"] {
            assert!(!is_log(text.as_bytes()), "{text}");
        }
        assert!(is_iolog(b"fio version 3 iolog\n") && !is_iolog(b"fio version 3 of my notes"));
        assert!(is_state(b"fathom verify state 1\n") && !is_state(b"state of the nation, 2026"));
    }
}
