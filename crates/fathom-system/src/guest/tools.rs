//! Programs of this machine in a guest: the file and the libraries that it needs, at the places where it looks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Guest;
use crate::SystemError;
use crate::packages;

/// Where a guest looks for programs.
const PLACE: &str = "/sbin";

/// A program with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    program: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Tool {
    /// Of a program of this machine; `ldd` says what it needs.
    ///
    /// # Errors
    /// Where that cannot be asked.
    pub fn of(program: &Path) -> Result<Self, SystemError> {
        let said = Command::new("ldd")
            .arg(program)
            .output()
            .map_err(|e| SystemError::Missing {
                what: format!("ldd, which says what {} needs: {e}", program.display()),
                remedy: packages::install("libc-bin"),
            })?;
        Ok(Self {
            program: program.to_owned(),
            // A static program needs nothing, and ldd says so.
            libraries: libraries(&String::from_utf8_lossy(&said.stdout)),
        })
    }

    /// The libraries, each where the program looks for it.
    ///
    /// # Errors
    /// Where one cannot be read.
    pub fn libraries(&self) -> Result<Vec<(PathBuf, Vec<u8>)>, SystemError> {
        self.libraries
            .iter()
            .map(|path| Ok((path.clone(), read(path)?)))
            .collect()
    }

    /// Puts it into a guest.
    ///
    /// # Errors
    /// Where a file cannot be read here or written there.
    pub fn bring(&self, guest: &mut Guest) -> Result<(), SystemError> {
        for (path, bytes) in self.libraries()? {
            guest.put(&path.display().to_string(), 0o755, &bytes)?;
        }
        let name = self.program.file_name().unwrap_or_default();
        let place = Path::new(PLACE).join(name);
        guest.put(&place.display().to_string(), 0o755, &read(&self.program)?)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, SystemError> {
    fs::read(path)
        .map_err(|e| SystemError::Failed(format!("{} cannot be read: {e}", path.display())))
}

/// Absolute paths of what ldd prints.
fn libraries(text: &str) -> Vec<PathBuf> {
    text.split_whitespace()
        .filter(|w| w.starts_with('/') && !w.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_paths_that_ldd_names() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let names: Vec<String> = libraries(text)
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        assert_eq!(
            names,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
