//! Arrays, mappings and mounts of runs that were killed together with what watches over them.
//!
//! A keeper undoes them where fathom alone is killed. What is left is known by its name, which holds the number of the
//! process that made it: nothing is touched that has another name, whose process lives, or that somebody uses.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::LabError;
use crate::mapper;
use crate::mounted;
use crate::outside;
use crate::raid::md;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remain {
    /// An md array, by its node.
    Array(PathBuf),
    /// A device of the device mapper, by its name.
    Mapping(String),
    /// A mount, by its directory.
    Mount(PathBuf),
}

impl fmt::Display for Remain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(node) => write!(f, "array {}", node.display()),
            Self::Mapping(name) => write!(f, "mapping {name}"),
            Self::Mount(dir) => write!(f, "mount {}", dir.display()),
        }
    }
}

/// Whether `name` is `prefix`, the number of a process that is no fathom, and something that begins with no digit.
fn abandoned(name: &str, prefix: &str) -> bool {
    let Some(rest) = name.strip_prefix(prefix) else {
        return false;
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let Ok(pid) = rest[..end].parse::<u32>() else {
        return false;
    };
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // In a guest fathom is `init`, and tests have names of their own: whoever lives under this number keeps it.
    program.is_empty()
}

/// Finds them.
pub fn find() -> Vec<Remain> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut all: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        all.sort();
        all
    };
    let mut found = Vec::new();
    let temporary = std::env::temp_dir();
    for name in names(&temporary) {
        if abandoned(&name, mounted::PREFIX) {
            found.push(Remain::Mount(temporary.join(name)));
        }
    }
    let block = names(Path::new("/sys/block"));
    for name in block.iter().filter(|n| abandoned(n, md::PREFIX)) {
        found.push(Remain::Array(Path::new("/dev").join(name)));
    }
    let mut mappings: Vec<String> = block
        .iter()
        .filter_map(|n| fs::read_to_string(format!("/sys/block/{n}/dm/name")).ok())
        .map(|n| n.trim().to_owned())
        .filter(|n| abandoned(n, "fathom-") || abandoned(n, "fathom_"))
        .collect();
    // What lies on others has a shorter name, and goes first.
    mappings.sort();
    found.extend(mappings.into_iter().map(Remain::Mapping));
    found
}

impl Remain {
    /// Stops it, removes it or unmounts it; what is busy is tried again for a second: the kernel ends the I/O of a process
    /// that was killed a moment later.
    ///
    /// # Errors
    /// Where somebody uses it.
    pub fn remove(&self) -> Result<(), LabError> {
        let mut last = Ok(());
        for _ in 0..20 {
            last = self.try_to_remove();
            if last.is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        last.map_err(|e| {
            LabError::Refused(format!(
                "{self} of a run that was killed is in use ({e}): end who uses it and run fathom clean again"
            ))
        })
    }

    fn try_to_remove(&self) -> io::Result<()> {
        match self {
            Self::Array(node) => md::stop(node),
            Self::Mapping(name) => mapper::remove(name),
            Self::Mount(dir) => {
                match rustix::mount::unmount(dir, rustix::mount::UnmountFlags::empty()) {
                    // Only the directory is left.
                    Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                    Err(e) => return Err(e.into()),
                }
                fs::remove_dir(dir)
            }
        }
    }
}

/// Removes what it can, and says so: a run that makes arrays begins with this.
pub(crate) fn clear() {
    if !outside::is_root() {
        return;
    }
    for remain in find() {
        match remain.remove() {
            Ok(()) => eprintln!("fathom: removed {remain}, which a killed run had left"),
            Err(e) => eprintln!("fathom: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_the_number_of_a_dead_process_are_ours() {
        // Numbers of processes end at 4194304 (proc(5)).
        assert!(abandoned("md_f4194999", "md_f"));
        assert!(abandoned("md_f4194999b", "md_f"));
        assert!(abandoned("fathom-mount-4194999-3", mounted::PREFIX));
        let own = format!("md_f{}", std::process::id());
        assert!(!abandoned(&own, "md_f"), "its process lives");
        for other in ["md0", "md_f", "md_fx", "fathom-root", "vg0-root"] {
            assert!(
                !abandoned(other, "md_f") && !abandoned(other, "fathom-"),
                "{other}"
            );
        }
    }

    #[test]
    fn the_directory_of_a_mount_that_never_was_goes() {
        let dir = std::env::temp_dir().join(format!("{}4194998-0", mounted::PREFIX));
        fs::create_dir_all(&dir).unwrap();
        let mine = Remain::Mount(dir.clone());
        assert!(find().contains(&mine));
        if outside::is_root() {
            mine.remove().unwrap();
        } else {
            fs::remove_dir(&dir).unwrap();
        }
        assert!(!dir.exists());
    }
}
