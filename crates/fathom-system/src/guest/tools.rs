//! Programs of this machine in a guest: the file and the libraries that it needs, at the places where it looks for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Guest;
use crate::SystemError;
use crate::packages;
use crate::programs;

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

/// What a machine has beside fathom from its start on: programs of this machine with their libraries, and other files, each at
/// the place where it is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tools(BTreeMap<PathBuf, Source>);

/// Where a file's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Here,
    At(PathBuf),
    Made(Vec<u8>),
}

/// What servers read of a machine: its accounts, root and one for those that refuse to be root, and its name.
const SYSTEM: [(&str, &str); 3] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n"),
];

impl Tools {
    /// What stands in for a distribution, so that servers and their scripts start: accounts, and these programs, a shell among
    /// them.
    ///
    /// # Errors
    /// Names the program that is not here.
    pub fn for_scripts(programs: &[&str]) -> Result<Self, SystemError> {
        let mut all = Self::default();
        for (path, text) in SYSTEM {
            all.0.insert(path.into(), Source::Made(text.into()));
        }
        // Where scripts look for it.
        let shell = Path::new("/bin/sh");
        all = all.program(shell)?;
        for name in programs {
            all = all.named(name)?;
        }
        Ok(all)
    }

    /// With a program by its name.
    ///
    /// # Errors
    /// Where it is not installed.
    pub fn named(self, name: &str) -> Result<Self, SystemError> {
        let found = programs::find(name).ok_or_else(|| SystemError::Missing {
            what: format!("{name}, which the guest needs, is not installed"),
            remedy: "install it here: the guest gets the programs of this machine".into(),
        })?;
        self.program(&found)
    }

    /// With a program, or a library, and what it is linked with.
    ///
    /// # Errors
    /// Where that cannot be asked.
    pub fn program(mut self, path: &Path) -> Result<Self, SystemError> {
        for library in Tool::of(path)?.libraries {
            self.0.insert(library, Source::Here);
        }
        self.0.insert(path.to_owned(), Source::Here);
        Ok(self)
    }

    /// With those files below a directory that `which` chooses; links are followed to files, not to directories.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn directory(
        mut self,
        dir: &Path,
        which: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, SystemError> {
        let failed = |e: std::io::Error| {
            SystemError::Failed(format!("{} cannot be read: {e}", dir.display()))
        };
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                self = self.directory(&path, which)?;
            } else if path.is_file() && which(&path) {
                self.0.insert(path, Source::Here);
            }
        }
        Ok(self)
    }

    /// With a file of the user's, which has another place there ([`given`]).
    pub fn given(mut self, path: &Path) -> Self {
        self.0.insert(given(path), Source::At(path.to_owned()));
        self
    }

    /// With those of another.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Path and bytes of each file, in order of the paths.
    ///
    /// # Errors
    /// Where one cannot be read.
    pub(super) fn files(&self) -> impl Iterator<Item = Result<(&Path, Vec<u8>), SystemError>> {
        self.0.iter().map(|(path, source)| {
            let bytes = match source {
                Source::Here => read(path)?,
                Source::At(here) => read(here)?,
                Source::Made(bytes) => bytes.clone(),
            };
            Ok((path.as_path(), bytes))
        })
    }
}

/// Where a machine has a file of the user's: nothing is mounted over it there.
pub fn given(path: &Path) -> PathBuf {
    let below = path.strip_prefix("/").unwrap_or(path);
    Path::new("/given").join(below)
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
    fn a_machine_gets_files_where_they_are_here() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/script.sql"), "SELECT 1").unwrap();
        std::os::unix::fs::symlink("below/script.sql", dir.path().join("link.sql")).unwrap();
        let all = Tools::for_scripts(&["cat"]).unwrap();
        let all = all.and(Tools::default().directory(dir.path(), &|_| true).unwrap());
        let files: Vec<(PathBuf, Vec<u8>)> = all
            .files()
            .map(|f| f.map(|(p, b)| (p.to_owned(), b)).unwrap())
            .collect();
        let bytes = |path: &Path| files.iter().find(|f| f.0 == path).map(|f| f.1.clone());
        assert_eq!(bytes(&dir.path().join("link.sql")).unwrap(), b"SELECT 1");
        assert_eq!(
            bytes(&dir.path().join("below/script.sql")).unwrap(),
            b"SELECT 1"
        );
        assert!(bytes(Path::new("/etc/passwd")).is_some_and(|b| b.starts_with(b"root:")));
        assert_eq!(bytes(Path::new("/bin/sh")), fs::read("/bin/sh").ok());
        let missing = Tools::for_scripts(&["no-such-program"]).unwrap_err();
        assert!(missing.to_string().contains("no-such-program"), "{missing}");
    }

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
