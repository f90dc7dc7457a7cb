//! The kernel of a guest: the distribution's own, found or named, with its modules.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::fetch;
use crate::SystemError;

/// Where kernels are looked for where none is named.
pub const KERNEL_VARIABLE: &str = "FATHOM_GUEST_KERNEL";

/// What to do where there is none; the package is 27 MB, and nothing has to be installed.
const REMEDY: &str = "fetch one (fathom doctor --fetch), or name one with --kernel: a vmlinuz file, or a directory with an unpacked package (docs/vm.md)";

/// A kernel that can be started, and where its modules are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The bzImage.
    pub image: PathBuf,
    /// `6.1.0-56-cloud-amd64`.
    pub version: String,
    /// `…/lib/modules/VERSION`; `None` where everything is built in, or nothing was found.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// The kernel that is named (an image, or a directory that holds `boot/vmlinuz-*` or `vmlinuz-*`), else the one
    /// of [`KERNEL_VARIABLE`], else the newest that has modules, of this machine's and those that were fetched.
    ///
    /// # Errors
    /// Where there is none, with how to get one.
    pub fn find(named: Option<&Path>) -> Result<Self, SystemError> {
        if let Some(path) = named {
            return Self::at(path);
        }
        if let Some(path) = std::env::var_os(KERNEL_VARIABLE).filter(|p| !p.is_empty()) {
            return Self::at(Path::new(&path));
        }
        let mut found = images(Path::new("/boot"));
        for dir in entries(Path::new("/lib/modules")) {
            found.extend(Some(dir.join("vmlinuz")).filter(|p| p.is_file()));
        }
        found.extend(
            fetch::kernels()
                .iter()
                .flat_map(|dir| images(&dir.join("boot"))),
        );
        Self::newest(&found).ok_or_else(|| SystemError::Missing {
            what: "no kernel for a guest was found in /boot or /lib/modules".into(),
            remedy: REMEDY.into(),
        })
    }

    fn at(path: &Path) -> Result<Self, SystemError> {
        let missing = |what: String| SystemError::Missing {
            what,
            remedy: REMEDY.into(),
        };
        if path.is_file() {
            return Self::of(path).map_err(|e| missing(format!("{}: {e}", path.display())));
        }
        if !path.is_dir() {
            return Err(missing(format!(
                "{}: there is no such kernel",
                path.display()
            )));
        }
        let mut found = images(&path.join("boot"));
        found.extend(images(path));
        Self::newest(&found).ok_or_else(|| {
            missing(format!(
                "{}: no vmlinuz-* in it, nor in its boot",
                path.display()
            ))
        })
    }

    fn newest(images: &[PathBuf]) -> Option<Self> {
        let mut all: Vec<Self> = images.iter().filter_map(|p| Self::of(p).ok()).collect();
        // Those with modules first, then by version.
        all.sort_by_key(|k| (k.modules.is_some(), numbers(&k.version)));
        all.pop()
    }

    fn of(image: &Path) -> Result<Self, String> {
        let version = version(image)?;
        let root = image.parent().unwrap_or(Path::new("/"));
        let beside = [Some(root), root.parent(), Some(Path::new("/"))];
        let modules = beside
            .into_iter()
            .flatten()
            .flat_map(|r| [r.join("lib/modules"), r.join("usr/lib/modules")])
            .map(|m| m.join(&version))
            .find(|m| m.is_dir());
        Ok(Self {
            image: image.to_owned(),
            version,
            modules,
        })
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(dir) else {
        return Vec::new();
    };
    read.flatten().map(|e| e.path()).collect()
}

fn images(dir: &Path) -> Vec<PathBuf> {
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz") && p.is_file()
    };
    entries(dir).into_iter().filter(named).collect()
}

/// What versions are ordered by: their numbers, in order.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect()
}

/// From the header of a bzImage (Documentation/arch/x86/boot.rst: `HdrS` at 0x202, kernel_version at 0x20e).
fn version(image: &Path) -> Result<String, String> {
    let mut head = vec![0; 64 << 10];
    let mut file = fs::File::open(image).map_err(|e| format!("cannot be read: {e}"))?;
    let mut have = 0;
    while have < head.len() {
        match file.read(&mut head[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) => return Err(format!("cannot be read: {e}")),
        }
    }
    head.truncate(have);
    let no_kernel = || "is no x86 kernel image (bzImage)".to_owned();
    if head.get(0x202..0x206) != Some(b"HdrS") {
        return Err(no_kernel());
    }
    let at = usize::from(u16::from_le_bytes([head[0x20e], head[0x20f]])) + 0x200;
    let text = head.get(at..).ok_or_else(no_kernel)?;
    let end = text
        .iter()
        .position(|b| *b == b' ' || *b == 0)
        .ok_or_else(no_kernel)?;
    let text = String::from_utf8_lossy(&text[..end]).into_owned();
    if text.is_empty() {
        Err(no_kernel())
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a bzImage that says which kernel it is.
    fn image(path: &Path, version: &str) {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        let text = format!("{version} (somebody) #1 SMP\0");
        bytes[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn an_unpacked_package_gives_its_newest_kernel_with_modules() {
        let dir = tempfile::tempdir().unwrap();
        for v in [
            "6.1.0-9-cloud-amd64",
            "6.1.0-56-cloud-amd64",
            "7.0.0-1-cloud-amd64",
        ] {
            image(&dir.path().join(format!("boot/vmlinuz-{v}")), v);
            if !v.starts_with('7') {
                fs::create_dir_all(dir.path().join("lib/modules").join(v)).unwrap();
            }
        }
        let k = Kernel::find(Some(dir.path())).unwrap();
        assert_eq!(k.version, "6.1.0-56-cloud-amd64");
        assert_eq!(
            k.modules,
            Some(dir.path().join("lib/modules/6.1.0-56-cloud-amd64"))
        );
        let one = dir.path().join("boot/vmlinuz-7.0.0-1-cloud-amd64");
        assert_eq!(
            Kernel::find(Some(&one)).unwrap().version,
            "7.0.0-1-cloud-amd64"
        );
    }

    #[test]
    fn what_is_no_kernel_is_refused_with_how_to_get_one() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("vmlinuz-text");
        fs::write(&text, "not a kernel").unwrap();
        for path in [text, dir.path().join("nowhere"), dir.path().to_owned()] {
            let e = Kernel::find(Some(&path)).unwrap_err().to_string();
            assert!(e.contains("fathom doctor --fetch"), "{e}");
        }
    }
}
