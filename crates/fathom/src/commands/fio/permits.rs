//! What a script may write to beside what fathom made: the targets that `FATHOM_FIO_WRITE` names, exactly.
//!
//! fio overwrites whatever it is given, and scripts rely on it where they mean it. The variable lets them say so: a list
//! of files by their full paths without links, of block devices as after `--destroy`, and of objects as HOST/PATH, with
//! colons between (`\:` is a colon of the name). Everything else that is checked before a write is checked for them too.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fathom_host::{Provenance, block_devices, mark};

/// Name of the variable.
const VARIABLE: &str = "FATHOM_FIO_WRITE";

/// The targets that it names.
#[derive(Debug, Default)]
pub(super) struct Permits(Vec<String>);

impl Permits {
    /// Those of the environment.
    pub(super) fn of_environment() -> Self {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        Self(fathom_fio::names(&text))
    }

    /// What to type after `--destroy` for the block device at `path`, where that is on the list.
    pub(super) fn device(&self, path: &Path) -> Option<String> {
        if self.0.is_empty() || !std::fs::metadata(path).ok()?.file_type().is_block_device() {
            return None;
        }
        let real = std::fs::canonicalize(path).ok()?;
        let devices = block_devices().ok()?;
        let device = devices.iter().find(|d| d.path == real)?;
        self.0.iter().find(|e| device.is_named_by(e)).cloned()
    }

    /// Whether a file or directory is on the list.
    pub(super) fn names(&self, path: &Path) -> bool {
        let real = std::fs::canonicalize(path);
        real.is_ok_and(|real| self.0.iter().any(|e| Path::new(e) == real))
    }

    /// Whether this very text is on the list.
    pub(super) fn lists(&self, text: &str) -> bool {
        self.0.iter().any(|e| e == text)
    }

    /// Makes a file on the list fathom's for this run. `None` where it is not on the list, or fathom's already.
    pub(super) fn file(&self, path: &Path) -> Option<Lent> {
        let real = std::fs::canonicalize(path).ok()?;
        if !self.0.iter().any(|e| Path::new(e) == real) {
            return None;
        }
        let file = File::open(&real).ok()?;
        let meta = file.metadata().ok()?;
        // Another name for the same bytes was not on the list.
        let alone = meta.is_file() && meta.nlink() == 1;
        let foreign = matches!(mark::provenance(&file), Ok(Provenance::Foreign));
        (alone && foreign && mark::set(&file).ok()?).then_some(Lent { file, path: real })
    }
}

/// A file of the user's that carries fathom's mark as long as this lives.
pub(super) struct Lent {
    file: File,
    path: PathBuf,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Err(e) = rustix::fs::fremovexattr(&self.file, mark::ATTRIBUTE) {
            eprintln!(
                "fathom: {} keeps fathom's mark ({e}): setfattr -x {} removes it",
                self.path.display(),
                mark::ATTRIBUTE
            );
        }
    }
}
