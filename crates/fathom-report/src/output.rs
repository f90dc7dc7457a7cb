//! Where exporters write: named files, in a directory or in memory.
//!
//! A file appears under its name only when it is complete, so that a report
//! killed half-way leaves the previous one intact; and only in place of one of its kind.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fathom_files::{Existing, create};
use fathom_telemetry::rundir::is_run;

use crate::beginning;
use crate::error::ReportError;

/// Fills one file.
pub type Body<'a> = &'a mut dyn FnMut(&mut dyn Write) -> Result<(), ReportError>;

/// Takes the files of a report.
pub trait Output {
    /// Writes one file. `name` is a plain file name chosen by the exporter (see [`file_name`]).
    ///
    /// # Errors
    /// [`ReportError::Write`] where the file cannot be written; errors of `body` as they are.
    fn file(&mut self, name: &str, body: Body<'_>) -> Result<(), ReportError>;

    /// The directory that files appear in; `None` where they have no place.
    fn dir(&self) -> Option<&Path> {
        None
    }
}

/// Files in a directory, which is made where missing.
#[derive(Debug)]
pub struct DirOutput {
    dir: PathBuf,
    /// Files written so far.
    pub written: Vec<PathBuf>,
}

impl DirOutput {
    /// Files will be written into `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            written: Vec::new(),
        }
    }

    /// Writes a page that is made already; in place of a page of fathom's, not of another's.
    ///
    /// # Errors
    /// [`ReportError::Write`].
    pub fn page(&mut self, name: &str, text: &str) -> Result<PathBuf, ReportError> {
        let path = self.dir.join(name);
        self.file(name, &mut |w| {
            w.write_all(text.as_bytes())
                .map_err(|source| ReportError::Write {
                    path: path.clone(),
                    source,
                })
        })?;
        Ok(path)
    }
}

impl Output for DirOutput {
    fn file(&mut self, name: &str, body: Body<'_>) -> Result<(), ReportError> {
        let path = self.dir.join(name);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::Write { path, source }
        };
        create::dirs(&self.dir).map_err(at(&self.dir))?;
        let mut out = fathom_files::Output::create(&path, existing(name)).map_err(at(&path))?;
        body(&mut out)?;
        out.commit().map_err(at(&path))?;
        self.written.push(path);
        Ok(())
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }
}

/// What a file of the report may replace: one of fathom's, by the kind that its name says.
fn existing(name: &str) -> Existing {
    match name.rsplit('.').next() {
        Some("html") => Existing::OfKind(beginning::is_page),
        Some("json") => Existing::OfKind(is_run),
        Some("svg") => Existing::OfKind(beginning::is_picture),
        Some("md") => Existing::OfKind(|head| head.starts_with(b"# fathom ")),
        Some("txt") => Existing::OfKind(|head| head.starts_with(b"fathom ")),
        // Its columns.
        Some("csv") => Existing::Alike,
        _ => Existing::OWN,
    }
}

/// Files in memory: for tests, and for printing to standard output.
#[derive(Debug, Default)]
pub struct MemoryOutput {
    /// Name to content.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl MemoryOutput {
    /// A file as text; empty where there is none.
    pub fn text(&self, name: &str) -> String {
        self.files
            .get(name)
            .map(|b| String::from_utf8_lossy(b).into_owned())
            .unwrap_or_default()
    }
}

impl Output for MemoryOutput {
    fn file(&mut self, name: &str, body: Body<'_>) -> Result<(), ReportError> {
        let mut bytes = Vec::new();
        body(&mut bytes)?;
        self.files.insert(name.to_owned(), bytes);
        Ok(())
    }
}

/// A plain file name from an identifier of the run, which may hold anything (`../../etc/passwd`).
pub(crate) fn file_name(prefix: &str, id: &str, extension: &str) -> String {
    let clean: String = id
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(80)
        .collect();
    format!("{prefix}{clean}.{extension}")
}

/// A path in an address, in which no character has another meaning.
pub fn percent_encoded(path: &Path) -> String {
    let mut text = String::new();
    for b in path.as_os_str().as_encoded_bytes() {
        match b {
            b'/' | b'.' | b'-' | b'_' | b'~' => text.push(char::from(*b)),
            b if b.is_ascii_alphanumeric() => text.push(char::from(*b)),
            b => text.push_str(&format!("%{b:02X}")),
        }
    }
    text
}

/// What a link in a page of directory `from` begins with to lead to the files of directory `to`: nothing
/// where both are one, else a way through the directories above. `None` where one of them is not there.
pub(crate) fn link_base(from: &Path, to: &Path) -> Option<String> {
    let named = |dir: &Path| match dir.as_os_str().is_empty() {
        true => Path::new(".").canonicalize().ok(),
        false => dir.canonicalize().ok(),
    };
    let (from, to) = (named(from)?, named(to)?);
    let common = from
        .components()
        .zip(to.components())
        .take_while(|(a, b)| a == b)
        .count();
    let mut way: PathBuf = from.components().skip(common).map(|_| "..").collect();
    way.extend(to.components().skip(common));
    Some(match percent_encoded(&way) {
        way if way.is_empty() => way,
        way => way + "/",
    })
}

/// Adapts `write!` into an [`Output::file`] body to its error.
pub(crate) fn written(name: &str, result: io::Result<()>) -> Result<(), ReportError> {
    result.map_err(|source| ReportError::Write {
        path: name.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_from_the_run_never_leave_the_directory() {
        assert_eq!(
            file_name("table-", "../../etc/passwd", "csv"),
            "table-------etc-passwd.csv"
        );
    }

    #[test]
    fn links_lead_from_the_page_to_the_run_also_through_odd_names() {
        let base = tempfile::tempdir().unwrap();
        let (run, out) = (base.path().join("runs/it's 1"), base.path().join("both"));
        fs::create_dir_all(&run).unwrap();
        assert_eq!(link_base(&out, &run), None, "it is not there yet");
        fs::create_dir_all(&out).unwrap();
        assert_eq!(link_base(&run, &run).unwrap(), "");
        assert_eq!(link_base(&out, &run).unwrap(), "../runs/it%27s%201/");
        assert_eq!(link_base(base.path(), &out).unwrap(), "both/");
        assert_eq!(link_base(&run, base.path()).unwrap(), "../../");
    }

    #[test]
    fn a_failed_file_leaves_the_previous_one() {
        let dir = std::env::temp_dir().join(format!("fathom-report-{}", std::process::id()));
        let mut out = DirOutput::new(&dir);
        let mut write = |text: &'static str, fail: bool| {
            out.file("a.txt", &mut |w| {
                written("a.txt", w.write_all(text.as_bytes()))?;
                if fail {
                    return written("a.txt", Err(io::Error::other("disk full")));
                }
                Ok(())
            })
        };
        write("first", false).unwrap();
        assert!(write("second", true).is_err());
        assert_eq!(fs::read_to_string(dir.join("a.txt")).unwrap(), "first");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
