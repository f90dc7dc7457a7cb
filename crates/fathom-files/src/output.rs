//! An output: written beside its place under a name of its own, and renamed when it is whole, so that nothing is lost
//! before something better exists.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{create, mark};

/// A file that appears at its place with [`Output::commit`]. Dropped before, it leaves nothing.
#[derive(Debug)]
pub struct Output {
    out: Option<BufWriter<File>>,
    partial: PathBuf,
    path: PathBuf,
}

impl Output {
    /// Begins one. A regular file of this name is replaced at the end: the caller has judged that it may be.
    ///
    /// # Errors
    /// Where the place is a device, a pipe, a link or a directory, or its directory cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        refuse_special(path)?;
        let partial = beside(path);
        let out = BufWriter::new(create::file_for(&partial, 0o644, 0)?);
        Ok(Self {
            out: Some(out),
            partial,
            path: path.to_owned(),
        })
    }

    /// Writes what is buffered, marks the file as fathom's, and puts it in its place.
    ///
    /// # Errors
    /// As `write(2)` and `rename(2)`; what was in its place is still there then.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(mut out) = self.out.take() {
            out.flush()?;
            // Where the file system has no attributes it is an output like any other.
            mark::set(out.get_ref())?;
            refuse_special(&self.path)?;
            fs::rename(&self.partial, &self.path)?;
            self.partial = PathBuf::new();
        }
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Some(out) => out.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.partial.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Writes a whole output.
///
/// # Errors
/// As [`Output::create`] and [`Output::commit`].
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut out = Output::create(path)?;
    out.write_all(content)?;
    out.commit()
}

/// Only nothing or a regular file may be replaced.
fn refuse_special(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let what = match kind {
        k if k.is_file() => return Ok(()),
        k if k.is_symlink() => "a link",
        k if k.is_dir() => "a directory",
        k if k.is_block_device() => "a block device",
        k if k.is_char_device() => "a character device",
        k if k.is_fifo() => "a pipe",
        _ => "a special file",
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{} is {what}: outputs go to regular files only; name another",
            path.display()
        ),
    ))
}

/// `.NAME.partial-PID-N` in the same directory.
fn beside(path: &Path) -> PathBuf {
    static N: AtomicU64 = AtomicU64::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial-{}-{n}", std::process::id()))
}
