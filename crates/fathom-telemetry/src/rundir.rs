//! The run directory: where one invocation keeps what it measured.
//!
//! `fathom-runs/<UTC time>-<name>/` holds `run.json`, `series.parquet`, `io.parquet`
//! and `report.html`; see `docs/run-directory.md`. This room makes, finds and reads
//! directories; it does not know what made the numbers.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fathom_files::{Existing, Output, create};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::schema::{Run, SCHEMA_VERSION};
use crate::utc;

/// Where runs are kept unless the user says otherwise, in the current directory.
pub const RUNS_DIR: &str = "fathom-runs";
/// The run itself, see [`Run`].
pub const RUN_FILE: &str = "run.json";
/// The report made from the other files.
pub const REPORT_FILE: &str = "report.html";

/// Runs that may start in one second with the same name.
const SAME_SECOND_MAX: u32 = 1000;
/// Longest name that is made part of the directory's.
const NAME_CHARS_MAX: usize = 64;

/// Why a run directory could not be made, found or read.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// It could not be made.
    #[error("cannot make the run directory {path}: {source}; choose another place with --out")]
    Create {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file in it could not be written.
    #[error("cannot write {path}: {source}; free some space or choose another place with --out")]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// There is nothing to read.
    #[error("cannot read {path}: {source}; expected a run directory or its run.json")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// `run.json` is not one.
    #[error(
        "{path} is not a run of fathom: {source}; expected the run.json that fathom wrote, unchanged"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// A later fathom wrote it.
    #[error(
        "{path} has schema version {found}, but this fathom knows {SCHEMA_VERSION} at most; use fathom {tool_version} or later"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The fathom that wrote it.
        tool_version: String,
    },
    /// No run was found.
    #[error("there is no run in {path}; name a run directory, or make one with fathom survey")]
    NoRuns {
        /// Where runs were looked for.
        path: PathBuf,
    },
}

impl RunDirError {
    /// Whether the disk had no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Write { source, .. } if crate::reserve::is_full(source))
    }
}

/// A run directory that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes `base/<UTC time>-<name>/`, which only its owner may enter, and `base` where it is missing; `name` is cut to what file
    /// systems and shells bear. Unique also where several runs start in the same second.
    ///
    /// # Errors
    /// [`RunDirError::Create`].
    pub fn create(base: &Path, name: &str) -> Result<Self, RunDirError> {
        Self::create_at_time(base, name, SystemTime::now())
    }

    fn create_at_time(base: &Path, name: &str, time: SystemTime) -> Result<Self, RunDirError> {
        let failed = |path: &Path, source| RunDirError::Create {
            path: path.to_owned(),
            source,
        };
        create::dirs(base).map_err(|e| failed(base, e))?;
        let first = format!("{}-{}", utc::stamp(time), file_name(name));
        for attempt in 1..=SAME_SECOND_MAX {
            let path = match attempt {
                1 => base.join(&first),
                n => base.join(format!("{first}-{n}")),
            };
            match create::private_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(&path, e)),
            }
        }
        Err(failed(
            &base.join(&first),
            io::ErrorKind::AlreadyExists.into(),
        ))
    }

    /// Opens a run by its directory or by its `run.json`, and reads it.
    ///
    /// # Errors
    /// [`RunDirError::Read`], [`RunDirError::Malformed`] or [`RunDirError::Newer`].
    pub fn open(path: &Path) -> Result<(Self, Run), RunDirError> {
        Self::open_as(path)
    }

    /// As [`Self::open`], for who needs some fields only.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as<T: DeserializeOwned>(path: &Path) -> Result<(Self, T), RunDirError> {
        let dir = if path.is_file() {
            match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            }
        } else {
            path.to_owned()
        };
        let file = if path.is_file() {
            path.to_owned()
        } else {
            path.join(RUN_FILE)
        };
        let regular = || match fs::metadata(&file)?.is_file() {
            true => fs::read(&file),
            // Of a pipe nobody would ever come to the end.
            false => Err(io::Error::other("it is no regular file")),
        };
        let text = regular().map_err(|source| RunDirError::Read {
            path: file.clone(),
            source,
        })?;
        Ok((Self { path: dir }, parse(&file, &text)?))
    }

    /// The newest run in `base`.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn newest(base: &Path) -> Result<PathBuf, RunDirError> {
        Ok(Self::all(base)?.pop().unwrap_or_default())
    }

    /// The runs in `base`, the oldest first, by the time in their names; directories without `run.json` do not count.
    ///
    /// # Errors
    /// [`RunDirError::NoRuns`], also where `base` is missing.
    pub fn all(base: &Path) -> Result<Vec<PathBuf>, RunDirError> {
        let none = || RunDirError::NoRuns {
            path: base.to_owned(),
        };
        let mut all = Vec::new();
        for entry in fs::read_dir(base).map_err(|_| none())?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Names begin with the stamp; within a second the later `run.json` is the later run.
            let stamp = name.split('-').next().unwrap_or_default().to_owned();
            let Ok(saved) = fs::metadata(entry.path().join(RUN_FILE)) else {
                continue;
            };
            all.push(((stamp, saved.modified().ok(), name), entry.path()));
        }
        all.sort_unstable();
        match all.is_empty() {
            true => Err(none()),
            false => Ok(all.into_iter().map(|(_, path)| path).collect()),
        }
    }

    /// The run whose directory this is; nothing is read.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// `run.json`.
    pub fn run_file(&self) -> PathBuf {
        self.path.join(RUN_FILE)
    }
    /// `series.parquet`.
    pub fn series_file(&self) -> PathBuf {
        self.path.join(crate::series::FILE_NAME)
    }
    /// `io.parquet`; there only if the run was recorded.
    pub fn io_file(&self) -> PathBuf {
        self.path.join(crate::iolog::FILE_NAME)
    }
    /// Where a run keeps what one of its hosts did: `fleet=ID/host=NAME/run=ID`, which engines read as columns.
    pub fn of_host(&self, fleet: &str, host: &str, run: &str) -> Self {
        let named = format!(
            "fleet={}/host={}/run={run}",
            file_name(fleet),
            file_name(host)
        );
        Self {
            path: self.path.join(named),
        }
    }
    /// Makes the directory, and those above it.
    ///
    /// # Errors
    /// [`RunDirError::Create`].
    pub fn make(&self) -> Result<(), RunDirError> {
        create::dirs(&self.path).map_err(|source| RunDirError::Create {
            path: self.path.clone(),
            source,
        })
    }
    /// Where runs of hosts lie below this one, in the order of their names; none of a run on one machine.
    pub fn of_hosts(&self) -> Vec<Self> {
        let below = |path: &Path, kind: &str| -> Vec<PathBuf> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let of_kind = entries.filter(|e| e.file_name().to_string_lossy().starts_with(kind));
            let mut all: Vec<PathBuf> = of_kind.map(|e| e.path()).collect();
            all.sort();
            all
        };
        let fleets = below(&self.path, "fleet=");
        let hosts = fleets.iter().flat_map(|f| below(f, "host="));
        let runs = hosts.flat_map(|h| below(&h, "run="));
        runs.map(|path| Self { path }).collect()
    }
    /// The logs of its I/Os: those of its hosts, or its own; none where it was not recorded.
    pub fn io_files(&self) -> Vec<PathBuf> {
        self.by_host(Self::io_file)
    }
    /// The series by host: those of its hosts, which add up to its own one, or that.
    pub fn series_files(&self) -> Vec<PathBuf> {
        self.by_host(Self::series_file)
    }
    fn by_host(&self, file: fn(&Self) -> PathBuf) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.of_hosts().iter().map(file).collect();
        files.retain(|f| f.exists());
        if files.is_empty() && file(self).exists() {
            files.push(file(self));
        }
        files
    }
    /// `report.html`.
    pub fn report_file(&self) -> PathBuf {
        self.path.join(REPORT_FILE)
    }

    /// Writes `run.json` beside itself and renames it: a reader sees the old or the new one, whole.
    /// Meant to be called after each job, so that a killed run keeps what it had. Not flushed to the
    /// device: that could disturb the next job, and a crash of the machine voids the run anyway.
    ///
    /// # Errors
    /// [`RunDirError::Write`]; the former `run.json` is untouched then.
    pub fn save(&self, run: &Run) -> Result<(), RunDirError> {
        let path = self.run_file();
        let written = || {
            let mut out = Output::create(&path, Existing::OfKind(is_run))?;
            serde_json::to_writer_pretty(&mut out, run)?;
            out.write_all(b"\n")?;
            out.commit()
        };
        written().map_err(|source| RunDirError::Write {
            path: path.clone(),
            source,
        })
    }

    /// Writes a file of the directory (an export, a model) so that it appears whole or not at all, in place of what
    /// `existing` allows.
    ///
    /// # Errors
    /// [`RunDirError::Write`].
    pub fn write(
        &self,
        name: &str,
        existing: Existing,
        content: &[u8],
    ) -> Result<PathBuf, RunDirError> {
        let path = self.path.join(name);
        match fathom_files::output::write(&path, existing, content) {
            Ok(()) => Ok(path),
            Err(source) => Err(RunDirError::Write { path, source }),
        }
    }
}

/// Reads a `run.json`; `path` is for the messages.
///
/// # Errors
/// [`RunDirError::Malformed`] or [`RunDirError::Newer`].
pub fn parse<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, RunDirError> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
        #[serde(default)]
        tool_version: String,
    }
    let malformed = |source| RunDirError::Malformed {
        path: path.to_owned(),
        source,
    };
    let version: Version = serde_json::from_slice(text).map_err(malformed)?;
    if version.schema_version > u64::from(SCHEMA_VERSION) {
        return Err(RunDirError::Newer {
            path: path.to_owned(),
            found: version.schema_version,
            tool_version: version.tool_version,
        });
    }
    if version.schema_version == 1 {
        return serde_json::from_slice(text)
            .map(of_version_one)
            .and_then(serde_json::from_value)
            .map_err(malformed);
    }
    serde_json::from_slice(text).map_err(malformed)
}

/// Version 1 kept what was shown under `results`, and nothing that it could be made from. What is made of it is of this
/// version: it may be saved again.
fn of_version_one(mut run: serde_json::Value) -> serde_json::Value {
    if let Some(run) = run.as_object_mut() {
        let shown = run.remove("results").unwrap_or_default();
        run.insert("schema_version".into(), SCHEMA_VERSION.into());
        run.insert("sections".into(), shown);
        run.insert("results".into(), serde_json::Value::Array(Vec::new()));
    }
    run
}

/// Whether a file begins like a `run.json`.
pub fn is_run(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let named = head.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    named.is_some_and(|n| n.starts_with(b"\"schema_version\""))
}

/// Letters, digits, dots, dashes and underscores stay; other characters become dashes.
fn file_name(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().take(NAME_CHARS_MAX) {
        let keep = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        out.push(if keep { c } else { '-' });
    }
    let trimmed = out.trim_matches(['-', '.']);
    if trimmed.is_empty() {
        "run".to_owned()
    } else {
        trimmed.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample::sample_run;

    #[test]
    fn runs_of_the_same_second_get_directories_of_their_own() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().join("new").join(RUNS_DIR);
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_772_281_845);
        let names: Vec<String> = (0..3)
            .map(|_| RunDir::create_at_time(&base, "my run/../x", now).unwrap())
            .map(|d| d.path().file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            names,
            [
                "20260228T123045Z-my-run-..-x",
                "20260228T123045Z-my-run-..-x-2",
                "20260228T123045Z-my-run-..-x-3",
            ]
        );
    }

    #[test]
    fn a_saved_run_is_read_back_by_its_directory_and_by_its_file() {
        let base = tempfile::tempdir().unwrap();
        let dir = RunDir::create(base.path(), "survey").unwrap();
        let mut run = sample_run();
        dir.save(&run).unwrap();
        run.finished = None;
        dir.save(&run).unwrap();
        assert_eq!(
            RunDir::open(dir.path()).unwrap(),
            (dir.clone(), run.clone())
        );
        assert_eq!(RunDir::open(&dir.run_file()).unwrap(), (dir.clone(), run));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_run_is_refused_in_a_sentence() {
        let base = tempfile::tempdir().unwrap();
        let open = |text: Option<&str>| {
            let file = base.path().join(RUN_FILE);
            match text {
                Some(t) => fs::write(&file, t).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            RunDir::open(base.path()).unwrap_err()
        };
        assert!(matches!(open(Some("{")), RunDirError::Malformed { .. }));
        assert!(matches!(open(Some("{}")), RunDirError::Malformed { .. }));
        let old = open(Some(r#"{"schema_version":1,"name":7}"#)).to_string();
        assert!(old.contains("is not a run of fathom"), "{old}");
        let newer = open(Some(r#"{"schema_version":999,"tool_version":"9.1"}"#)).to_string();
        assert!(
            newer.contains("999") && newer.contains("9.1 or later"),
            "{newer}"
        );
        assert!(open(None).to_string().contains("expected a run directory"));
    }

    #[test]
    fn the_newest_run_is_found_by_the_time_in_its_name() {
        let base = tempfile::tempdir().unwrap();
        assert!(matches!(
            RunDir::newest(&base.path().join("missing")),
            Err(RunDirError::NoRuns { .. })
        ));
        let at = |s| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(s);
        let new = RunDir::create_at_time(base.path(), "a", at(2_000_000_000)).unwrap();
        new.save(&sample_run()).unwrap();
        let old = RunDir::create_at_time(base.path(), "z", at(1_000_000_000)).unwrap();
        old.save(&sample_run()).unwrap();
        RunDir::create_at_time(base.path(), "empty", at(2_100_000_000)).unwrap();
        assert_eq!(RunDir::newest(base.path()).unwrap(), new.path());
    }

    #[test]
    fn an_unwritable_place_is_an_error_with_a_remedy() {
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        let error = RunDir::create(&file, "x").unwrap_err().to_string();
        assert!(error.contains("--out"), "{error}");
    }

    #[test]
    fn a_run_of_version_one_may_be_saved_again() {
        let base = tempfile::tempdir().unwrap();
        let dir = RunDir::create(base.path(), "old").unwrap();
        let mut old = serde_json::to_value(sample_run()).unwrap();
        let sections = old["sections"].clone();
        assert!(!sections.as_array().unwrap().is_empty());
        old["schema_version"] = 1.into();
        old["results"] = old["sections"].take();
        old.as_object_mut().unwrap().remove("sections");
        // A reader of bytes knows it by its first field.
        let text = format!("{{\"schema_version\":1,{}", &old.to_string()[1..]);
        fs::write(
            dir.run_file(),
            text.replacen(",\"schema_version\":1", "", 1),
        )
        .unwrap();
        for _ in 0..2 {
            let (dir, run) = RunDir::open(dir.path()).unwrap();
            assert_eq!(run.schema_version, SCHEMA_VERSION);
            assert_eq!(serde_json::to_value(&run.sections).unwrap(), sections);
            dir.save(&run).unwrap();
        }
    }
}
