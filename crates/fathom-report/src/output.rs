//! Where exporters write: named files, in a directory or in memory.
//!
//! A file appears under its name only when it is complete, so that a report
//! killed half-way leaves the previous one intact.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

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
}

impl Output for DirOutput {
    fn file(&mut self, name: &str, body: Body<'_>) -> Result<(), ReportError> {
        let path = self.dir.join(name);
        let temporary = self.dir.join(format!(".{name}.tmp-{}", std::process::id()));
        let result = fill(&self.dir, &temporary, &path, body);
        if result.is_err() {
            // The cause is already on its way; a leftover that cannot be removed adds nothing to it.
            let _ = fs::remove_file(&temporary);
        } else {
            self.written.push(path);
        }
        result
    }
}

fn fill(dir: &Path, temporary: &Path, path: &Path, body: Body<'_>) -> Result<(), ReportError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    };
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut w = BufWriter::new(fs::File::create(temporary).map_err(at(path))?);
    body(&mut w)?;
    w.flush().map_err(at(path))?;
    drop(w);
    fs::rename(temporary, path).map_err(at(path))
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

/// Adapts `write!` into an [`Output::file`] body to its error.
pub(crate) fn written(name: &str, result: io::Result<()>) -> Result<(), ReportError> {
    result.map_err(|source| ReportError::Write {
        path: name.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_the_run_never_leave_the_directory() {
        assert_eq!(
            file_name("table-", "../../etc/passwd", "csv"),
            "table-------etc-passwd.csv"
        );
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
